"""The table of runs: kept as it is made, found again, shared by studies, and never taken for something private."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sottovoce.errors import DataError
from sottovoce.experiments.table import Runs, each, load_rows, save_rows

KEY = ("data", "method", "seed")
BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def row(seed, method="dsgd", **more):
    return {"data": "a9a", "method": method, "seed": seed, "accuracy": seed / 10} | more


def test_an_interrupted_work_continues(tmp_path):
    path, done = tmp_path / "new" / "runs.parquet", []

    def run(seed):
        if seed == 2 and len(done) < 3:
            raise KeyboardInterrupt
        done.append(seed)
        return [row(seed)]

    for _ in range(2):
        runs = Runs(KEY, path)
        missing = [seed for seed in range(4) if not runs.find(data="a9a", method="dsgd", seed=seed)]
        try:
            runs.fill(missing, run)
        except KeyboardInterrupt:
            assert load_rows(path) == [row(0), row(1)]
            done.append("again")
    assert done == [0, 1, "again", 2, 3] and Runs(KEY, path).rows == [row(seed) for seed in range(4)]
    assert pq.read_schema(path).metadata[b"privacy"].startswith(b"not private")
    assert [p.name for p in path.parent.iterdir()] == ["runs.parquet"]  # nothing half-written beside it


def test_other_rows_are_kept_and_the_same_run_is_replaced(tmp_path):
    path = tmp_path / "runs.parquet"
    save_rows([row(0, "dpsgd", sigma=2.0)], path)
    runs = Runs(KEY, path)
    runs.add([row(0), row(1)])
    runs.add([row(0, bytes=5), row(0, bytes=6)])  # a run may have several rows
    again = Runs(KEY, path)
    assert [r["bytes"] for r in again.find(data="a9a", method="dsgd", seed=0)] == [5, 6]
    assert again.find(data="a9a", method="dpsgd", seed=0)[0] == row(0, "dpsgd", sigma=2.0, bytes=None)
    assert len(again.rows) == 4 and again.find(data="a9a", method="dsgd", seed=1)[0]["sigma"] is None


def test_a_choice_in_two_spellings_is_one_run():
    runs = Runs(("h", "data"))
    runs.add([{"h": "l2:5e-4", "data": "some/file.csv"}])
    assert runs.find(h="l2(0.0005)", data="some/file.csv") and not runs.find(h="l2(0.005)", data="some/file.csv")


@pytest.mark.parametrize("threads", [True, False])
def test_several_at_a_time_give_the_same_rows(threads):
    assert sorted(each([3, 1, 2], abs, jobs=2, threads=threads)) == [1, 2, 3]


def test_what_is_done_is_reported():
    details = []
    Runs(KEY).fill([4, 5], lambda seed: [row(seed)], done=lambda *what: details.append(what))
    assert details == [(1, 2, row(4)), (2, 2, row(5))]


@pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are not here")
@pytest.mark.parametrize(("name", "count"), [("utility", 2770), ("ablation", 192)])
def test_tables_of_an_earlier_version_load(name, count):
    runs = Runs(("data", "method", "nodes", "epsilon", "seed"), BENCHMARKS / f"{name}.parquet")
    assert len(runs.rows) >= count and all(0 <= r["accuracy"] <= 1 or r["accuracy"] != r["accuracy"] for r in runs.rows)


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "runs.parquet").write_text("no table")
    with pytest.raises(DataError, match="no readable table"):
        Runs(KEY, tmp_path / "runs.parquet")
    with pytest.raises(DataError, match="cannot be written"):
        save_rows([row(0)], tmp_path / "nowhere" / "runs.parquet")
