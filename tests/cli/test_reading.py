"""No entry point decides anything about a file by its records without a seed, and each remembers the files' form."""

import ast
import json
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sottovoce as sottovoce_package
from sottovoce import estimators
from sottovoce.cli import evaluate as _evaluate  # noqa: F401 - the module is fetched by its name below
from sottovoce.cli import records
from sottovoce.cli import train as _train  # noqa: F401
from sottovoce.cli.main import parser
from sottovoce.data import columns, dialect, load
from sottovoce.data.policy import GUARANTEE, SIMULATION
from sottovoce.data.schema import read_schema
from sottovoce.node.runfile import make_run
from sottovoce.node.site import Site, own_problem
from sottovoce.run.result import Result

RECORDS = 240
COLUMNS = (
    '[label]\ncolumn = "y"\nclasses = ["no", "yes"]\n[columns.a]\nlow = -1\nhigh = 1\n[columns.b]\nlow = -1\nhigh = 1\n'
)
NUMBERS = 'features = 3\nlow = -1\nhigh = 1\nfirst_index = 1\n[label]\ncolumn = "y"\nclasses = [-1, 1]\n'
SMALL_RUN = ("--rounds", 5, "--nodes", 2)


@pytest.fixture
def home(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (RECORDS, 2))
    y = X[:, 0] > X[:, 1]
    rows = [f"{a:.4f},{b:.4f},{'yes' if one else 'no'}" for (a, b), one in zip(X, y, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    lines = [f"{'1' if one else '-1'} 1:{a:.4f} 2:{b:.4f}" for (a, b), one in zip(X, y, strict=True)]
    (tmp_path / "r.svm").write_text("\n".join(lines) + "\n")
    with pa.OSFile(str(tmp_path / "r.parquet"), "wb") as file:
        labels = ["yes" if one else "no" for one in y.tolist()]
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": labels}), file)
    (tmp_path / "r.tsv").write_text((tmp_path / "r.csv").read_text().replace(",", "\t"))
    (tmp_path / "columns.toml").write_text(COLUMNS)
    (tmp_path / "numbers.toml").write_text(NUMBERS)
    return tmp_path


KINDS = {
    "csv, options": ("r.csv", ("--label", "y", "--classes", "no,yes")),
    "csv, schema": ("r.csv", ("--schema", "columns.toml")),
    "parquet, options": ("r.parquet", ("--label", "y", "--classes", "no,yes")),
    "parquet, schema": ("r.parquet", ("--schema", "columns.toml")),
    "tsv, options": ("r.tsv", ("--label", "y", "--classes", "no,yes")),
    "svmlight, options": ("r.svm", ("--classes=-1,1", "--features", 3, "--first-index", 1)),
    "svmlight, schema": ("r.svm", ("--schema", "numbers.toml")),
}
PRIORS = {kind: "-1=0.5,1=0.5" if "svm" in kind else "no=0.5,yes=0.5" for kind in KINDS}
GUESSES = (
    (dialect, "_head"), (dialect, "_encoding"), (dialect, "_separator"), (dialect, "_decimal"),
    (load, "_read_svmlight"), (records, "_coded"), (columns.Roles, "to_table"),
)  # fmt: skip
"""All that decides how a file is read by looking at its records."""


def flags(home, kind):
    file, options = KINDS[kind]
    return home / file, tuple(home / word if str(word).endswith(".toml") else word for word in options)


def no_guess(monkeypatch):
    def guessed(name):
        def refuse(*_, **__):
            raise AssertionError(f"a guess was reached: {name}")

        return refuse

    for place, name in GUESSES:
        monkeypatch.setattr(place, name, guessed(name))


@pytest.mark.parametrize("kind", KINDS)
def test_no_entry_point_reaches_a_guess_without_a_seed(sottovoce, home, kind, monkeypatch):
    no_guess(monkeypatch)
    file, options = flags(home, kind)
    out = home / "run"
    code, _, err = sottovoce("train", file, *options, *SMALL_RUN, "--test", file, "--not-private-history", "--out", out)
    assert code == 0, err
    for verb in (("predict", out, file), ("evaluate", out, file, "--metrics", "right")):
        code, _, err = sottovoce(*verb)
        assert code == 0, err
    code, _, err = sottovoce("tune", file, *options, "--param", "rounds=2,3", "--out", home / "tuned")
    assert code == 0, err
    for verb in (("predict", home / "tuned", file), ("predict", home / "tuned", file, "--json")):
        assert sottovoce(*verb)[0] == 0
    for more in (
        ("--holdout", 0.3),
        ("--no-private-scaling",),
        ("--class-weight", "balanced", "--prior", PRIORS[kind]),
    ):
        code, _, err = sottovoce("train", file, *options, *SMALL_RUN, *more)
        assert code == 0, err
    if "schema" in kind:
        Site("records", home, file).read(read_schema(options[1]))


WALKED = {"train", "predict", "evaluate", "tune", "node", "consortium"}
"""Commands that read private records: above, and `node` and `consortium` by `Site`."""
NO_PRIVATE_RECORDS = {
    "schema",  # a draft, whose guessed lines say so
    "sweep", "compare", "demo", "reproduce", "data",  # simulations, on public or generated data or with seeds
    "report", "export", "plan", "account", "calibrate", "audit", "ledger",  # read no records
}  # fmt: skip


def test_every_command_is_walked_or_reads_no_private_records():
    assert set(parser().commands) == WALKED | NO_PRIVATE_RECORDS


MAY_GUESS = {
    "cli/sweep.py",
    "cli/compare.py",
    "cli/predict.py",
    "cli/records.py",
    "data/schema.py",
    "data/values.py",
} | {"data/draft.py"}
"""Commands that are simulations always, predictions of a simulation, functions that are given a policy, and drafts."""


def test_no_other_module_names_the_policy_of_simulations():
    home = Path(sottovoce_package.__file__).parent
    found = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "sottovoce.data.policy"
        if "SIMULATION" in {name.name for name in node.names}
    }
    assert found == MAY_GUESS


def test_the_people_of_a_file_are_evaluated_once_each(sottovoce, tmp_path):
    """Over 20 simulated nodes every person was at each of them: 5.41 for a printed 1, and one more row was one more."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.4f},p{k % 200},{'yes' if a > 0 else 'no'}" for k, a in enumerate(rng.uniform(-0.5, 0.5, 1200))]
    (tmp_path / "r.csv").write_text("\n".join(["a,who,y", *rows]) + "\n")
    words = ("--label", "y", "--classes", "no,yes", "--user-id", "who", "--nodes", 20, "--rounds", 3)
    code, _, err = sottovoce("train", tmp_path / "r.csv", *words)
    assert code == 2 and "people cannot be partitioned over 20 simulated nodes" in " ".join(err.split()), err
    code, _, err = sottovoce("train", tmp_path / "r.csv", *words, "--seed", 1, "--out", tmp_path / "run")
    assert code == 0, err
    for more in ([], ["0.1,p7,yes"] * 3):
        (tmp_path / "h.csv").write_text("\n".join(["a,who,y", *rows, *more]) + "\n")
        folder = tmp_path / str(len(more))
        shutil.copytree(tmp_path / "run", folder)
        code, said, err = sottovoce("evaluate", folder, tmp_path / "h.csv", "--metrics", "right", "--json")
        assert code == 0 and json.loads(said)["records"] == 200, err


def test_the_walk_can_fail(sottovoce, home, monkeypatch):
    no_guess(monkeypatch)
    file, options = flags(home, "csv, schema")
    with pytest.raises(AssertionError, match="a guess was reached"):
        read_schema(options[1]).read(file, policy=SIMULATION)


RUN = """
run = "two"
schedule_seed = 1
{records}
[nodes]
north = 240
south = 240
[spec.algorithm]
rounds = 5
gamma = "constant(1)"
[spec.problem]
h = "l2(0.1)"
[spec.privacy]
sampling = "poisson(8)"
noise = "private(1.0)"
"""
CLEAN = "features = 3\nclasses = [-1, 1]\nfirst_index = 1\nunit_rows = true"


def encoded(sottovoce, home, kind, entry, monkeypatch):
    """What a run is given of the records: rows, targets, and what they count."""
    file, options = flags(home, kind)
    seen = []
    with monkeypatch.context() as patch:
        if entry == "train":

            def solve(spec, shards, **_):
                seen.append((shards.X, shards.y, shards.weights, shards.sizes))
                raise KeyboardInterrupt

            patch.setattr(sys.modules["sottovoce.cli.train"], "solve", solve)
            sottovoce("train", file, *options, *SMALL_RUN, "--partition", "in_order")
        elif entry == "tune":

            def fit(self, X, y, **_):
                seen.append((X, np.asarray(y, dtype=object), None, np.array([len(y)])))
                raise KeyboardInterrupt

            patch.setattr(estimators.PrivateSearchCV, "fit", fit)
            sottovoce("tune", file, *options, "--param", "rounds=2,3")
        elif entry == "node by a schema":
            run = make_run(tomllib.loads(RUN.format(records="").replace("[nodes]", 'schema = "x"\n[nodes]')),
                           read_schema(options[1]))  # fmt: skip
            shards = own_problem(run, "north", Site("records", home, file).read(run.schema)).shards
            seen.append((shards.X, shards.y, shards.weights, shards.sizes))
        else:
            run = make_run(tomllib.loads(RUN.format(records=CLEAN)))
            shards = own_problem(run, "north", Site("records", home, file).read(run.schema)).shards
            seen.append((shards.X, shards.y, shards.weights, shards.sizes))
    ((X, y, weights, sizes),) = seen
    return X.toarray() if hasattr(X, "toarray") else X, y, weights, sizes


OTHERS = {
    "r.csv": [b"0.1,0.2,\xff", b"1e308,nan,yes", b'"0.1,0.2,yes', b"", b"0,1;0,2;yes", "ü,1,no".encode("cp1252")],
    "r.svm": [b"1 0:0.5 1:0.1", b"1 1:1e308 2:nan", b"1 9:1", b"", b"2 1:0.1", b"1 2:0.1 1:0.1", b"\xff"],
}
CASES = [
    *((kind, entry) for kind in KINDS if KINDS[kind][0] in OTHERS for entry in ("train", "tune")),
    ("csv, schema", "node by a schema"), ("svmlight, schema", "node by a schema"), ("svmlight, options", "node"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "entry"), CASES)
def test_another_record_changes_at_most_one_encoded_row(sottovoce, home, kind, entry, monkeypatch):
    """An index 0 in one record used to change 2,000 of 2,000 rows, one byte of another encoding 1,001."""
    file = home / KINDS[kind][0]
    before = encoded(sottovoce, home, kind, entry, monkeypatch)
    whole = file.read_bytes().split(b"\n")
    for k, other in enumerate(OTHERS[KINDS[kind][0]]):
        at = 7 + 3 * k
        file.write_bytes(b"\n".join([*whole[:at], other, *whole[at + 1 :]]))
        after = encoded(sottovoce, home, kind, entry, monkeypatch)
        assert after[0].shape == before[0].shape and np.array_equal(after[3], before[3])
        rows = np.any(before[0] != after[0], axis=1) | (before[1] != after[1])
        if before[2] is not None:
            rows |= before[2] != after[2]
        assert np.count_nonzero(rows) <= 1, other


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0] in OTHERS])
def test_another_held_out_record_changes_a_count_by_one(sottovoce, home, kind, monkeypatch):
    """The noisy count moved from 1,003 to 2 where a sensitivity of 1 was accounted."""
    file, options = flags(home, kind)
    out = home / "run"
    assert sottovoce("train", file, *options, *SMALL_RUN, "--out", out)[0] == 0
    whole, seen = file.read_bytes().split(b"\n"), []

    def ask(tally, held, *_):
        seen.append((tally.sizes.sum(), np.count_nonzero((held.scores >= 0) == (held.targets > 0))))
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["sottovoce.cli.evaluate"], "evaluate_all", ask)
    sottovoce("evaluate", out, file)
    for k, other in enumerate(OTHERS[file.name]):
        at = 7 + 3 * k
        file.write_bytes(b"\n".join([*whole[:at], other, *whole[at + 1 :]]))
        sottovoce("evaluate", out, file)
    sizes, right = zip(*seen, strict=True)
    assert len(seen) == 1 + len(OTHERS[file.name]) and set(sizes) == {RECORDS}
    assert max(abs(count - right[0]) for count in right) <= 1 and right[0] > 10


def test_a_run_remembers_how_its_files_are_written(sottovoce, home):
    """`evaluate RUN FILE` of a run without a schema ended in an AssertionError."""
    path = home / "semicolons.csv"
    path.write_text((home / "r.csv").read_text().replace("y\n", "krank\n", 1).replace(",", ";").replace(".", ","))
    out = home / "run"
    how = ("--separator", "semicolon", "--decimal", "comma")
    code, _, err = sottovoce("train", path, "--label", "krank", "--classes", "no,yes", *how, *SMALL_RUN, "--out", out)
    assert code == 0, err
    kept = json.loads((out / "layout.json").read_text())
    assert (kept["label"], kept["separator"], kept["decimal"], kept["encoding"]) == ("krank", ";", ",", "utf-8")
    code, said, err = sottovoce("predict", out, path)
    assert code == 0 and len(said.split()) == RECORDS
    code, said, err = sottovoce("evaluate", out, path, "--metrics", "right", "--json")
    assert code == 0 and json.loads(said)["records"] == RECORDS, err
    assert sottovoce("account", "--verify", out)[0] == 0 and Result.load(out).statement.later
    (out / "layout.json").write_text("{}")
    code, _, err = sottovoce("predict", out, path)
    assert code == 3 and "layout.json" in err


def test_a_first_index_is_remembered(sottovoce, home):
    file, options = flags(home, "svmlight, options")
    code, _, err = sottovoce("train", file, *options, *SMALL_RUN, "--out", home / "run")
    assert code == 0, err
    assert json.loads((home / "run" / "layout.json").read_text())["first_index"] == 1
    (home / "run" / "layout.json").rename(home / "kept.json")
    head = json.loads((home / "run" / "result.json").read_text())
    del head["files"]["layout.json"]  # as an older version saved it
    (home / "run" / "result.json").write_text(json.dumps(head))
    code, _, err = sottovoce("predict", home / "run", file)
    assert code == 2 and "--first-index" in err
    assert sottovoce("predict", home / "run", file, "--first-index", 1)[0] == 0
    assert sottovoce("predict", home / "run", file, "--first-index", 2)[0] == 2


def test_what_the_owner_is_notified_is_in_no_output(sottovoce, home):
    file, options = flags(home, "csv, options")
    file.write_bytes(file.read_bytes().replace(b"yes", b"perhaps", 1))
    code, said, err = sottovoce("train", file, *options, *SMALL_RUN, "--json", "--out", home / "run")
    assert code == 0 and "For the owner of the records alone" in err and "1 record" in err
    kept = "".join(path.read_text(errors="replace") for path in (home / "run").iterdir())
    assert not any(words in said + kept for words in ("neither class", "owner of the records"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0] in OTHERS])
def test_a_search_takes_records_that_cannot_be_used(sottovoce, home, kind):
    file, options = flags(home, kind)
    whole = file.read_bytes().split(b"\n")
    for k, other in enumerate(OTHERS[file.name]):
        whole[5 + 7 * k] = other
    file.write_bytes(b"\n".join(whole))
    code, said, err = sottovoce("tune", file, *options, "--param", "rounds=2,3", "--json")
    assert code == 0 and "owner of the records" in err and json.loads(said)["privacy"]["epsilon"] <= 1.0, err


def test_a_draft_marks_what_was_guessed(sottovoce, home):
    code, said, _ = sottovoce("schema", home / "r.csv", "--label", "y")
    how = [line for line in said.splitlines() if line.startswith(("separator", "decimal", "encoding"))]
    assert code == 0 and len(how) == 3 and all("read off the data" in line for line in how)
    given = ("--separator", "comma", "--decimal", "point", "--encoding", "utf-8")
    said = sottovoce("schema", home / "r.csv", "--label", "y", *given)[1]
    how = [line for line in said.splitlines() if line.startswith(("separator", "decimal", "encoding"))]
    assert len(how) == 3 and not any("read off" in line for line in how)
    book = home / "book.csv"
    book.write_text("column,type,low,high,values\na,number,-1,1,\nb,number,-1,1,\ny,flag,,,no|yes\n")
    code, said, _ = sottovoce("schema", home / "r.csv", "--label", "y", "--codebook", book, "--out", home / "s.toml")
    assert code == 0 and "(3 lines say so)" in said  # the dialect alone
    code, said, _ = sottovoce(
        "schema", home / "r.csv", "--label", "y", "--codebook", book, *given, "--out", home / "t.toml"
    )
    assert code == 0 and "nothing in it was read off the data" in said
    assert GUARANTEE.guess is False


@pytest.mark.parametrize("target", [("--classes", "no,yes"), ("--target-bounds=-1,1",)])
def test_a_row_beyond_all_numbers_in_units_of_its_bound_ends_no_run(sottovoce, tmp_path, target):
    """1e308 over a bound of 0.001 is infinite, and was refused."""
    real = len(target) == 1
    rows = [f"{k / 500 - 0.1},0.{k % 7},{k / 100 - 0.5 if real else ('no', 'yes')[k % 2]}" for k in range(100)]
    rows[7] = f"1e308,-1e308,{rows[7].rsplit(',', 1)[1]}"
    (tmp_path / "r.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    words = ("--label", "y", *target, "--nodes", 1, "--row-norm", 0.001, "--on-violation", "clip", "--json")
    code, said, err = sottovoce("train", tmp_path / "r.csv", *words)
    assert code == 0 and json.loads(said)["last"] is None, err
    assert "Warning" not in err


def test_a_range_wider_than_all_numbers_is_refused_by_itself(sottovoce, tmp_path):
    (tmp_path / "r.csv").write_text("a,y\n0.1,0.2\n")
    code, _, err = sottovoce("train", tmp_path / "r.csv", "--label", "y", "--target-bounds=-1e308,1e308")
    assert code == 2 and "two finite numbers" in err
