"""What version 0.1 left behind: folders open, verify and are exported, and runs go on or are refused plainly."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from net import assert_as_simulated, open_node, records, run_file, whole_run

from sottovoce.errors import StoreError
from sottovoce.node.budget import contradictions, export, overview, read_export
from sottovoce.node.runfile import make_run
from sottovoce.node.store import Store
from sottovoce.privacy.statement import PrivacyStatement

KEPT = Path(__file__).parent.parent / "fixtures" / "v0.1" / "node"
RUNS = json.loads((KEPT / "runs.json").read_text())
KNOWN = json.loads((KEPT / "known.json").read_text())
SIZES = {"north": 12, "east": 9, "south": 15}
TABLES = {
    name: dict(zip(("a", "b", "c", "sick"), map(list, zip(*rows, strict=True)), strict=True))
    for name, rows in KNOWN["records"].items()
}


@pytest.fixture
def folders(tmp_path):
    """Three nodes that finished one run and were stopped in the middle of another."""
    with tarfile.open(KEPT / "nodes.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.mark.parametrize("name", SIZES)
def test_a_folder_opens_and_verifies(folders, name):
    store = Store(folders / name)
    assert store.verify() == [] and {row.kind for row in store.rows()} >= {"budget", "open", "release", "close"}
    store.close()


def test_its_overview_and_its_export_are_what_they_were(folders):
    store = Store(folders / "north", reading=True)
    kept = read_export(KEPT / "north.json")
    assert json.loads(json.dumps(export(store))) == kept
    assert overview(store)["runs"] == KNOWN["overview"]["runs"]
    (each,), (was,) = overview(store)["datasets"], KNOWN["overview"]["datasets"]
    assert each["epsilon"] == pytest.approx(was["epsilon"], rel=1e-9) and each["adjacency"] == was["adjacency"]
    assert contradictions(store.rows(), store.identity, kept) == []
    peer = Store(folders / "south", reading=True)  # a peer's high-water marks hold against it too
    assert contradictions(peer.rows(), peer.identity, kept) == []
    store.close()
    peer.close()
    damaged = kept | {"rows": [*kept["rows"][:-1], [*kept["rows"][-1][:6], "00" * 32]]}
    assert contradictions(store_rows(folders), kept["ledger"], damaged) != []


def store_rows(folders):
    store = Store(folders / "north", reading=True)
    try:
        return store.rows()
    finally:
        store.close()


def test_its_statement_verifies(folders):
    kept = PrivacyStatement.from_dict(KNOWN["statement"])
    kept.verify()
    now = make_run(RUNS["finished"]).statement
    assert now.epsilon == pytest.approx(kept.epsilon, rel=1e-9) and now.unit == kept.unit


def test_a_finished_run_is_known_again_and_releases_nothing(folders):
    run = make_run(RUNS["finished"])
    assert run.digest == KNOWN["digests"]["finished"]
    before = store_rows(folders)
    ends = whole_run(run, TABLES, folders)
    assert store_rows(folders) == before
    for name, model in KNOWN["models"].items():
        np.testing.assert_allclose(ends[name].model, model, rtol=1e-9)


def test_a_paused_run_goes_on_to_the_simulation_s_models(folders):
    run = make_run(RUNS["paused"])
    assert run.digest == KNOWN["digests"]["paused"]
    before = [row for row in store_rows(folders) if row.run == run.digest]
    assert 0 < sum(row.kind == "release" for row in before) < len(run.rounds(0))
    ends = whole_run(run, TABLES, folders)
    assert_as_simulated(run, TABLES, folders, ends)
    after = [row for row in store_rows(folders) if row.run == run.digest]
    assert after[: len(before)] == before and after[-1].kind == "close"


def test_a_run_of_the_same_name_whose_digest_has_changed_is_refused_in_a_sentence(folders):
    """So too where another version of this software reads the same run file in another way."""
    changed = make_run(RUNS["paused"] | {"timeout": 11.0})
    with pytest.raises(StoreError, match=r"run 'paused' was begun in .* under another digest .* another name"):
        open_node(changed, "north", TABLES, folders / "north")
    renamed = make_run(RUNS["paused"] | {"timeout": 11.0, "run": "second"})
    open_node(renamed, "north", TABLES, folders / "north").store.close()


def test_a_name_is_free_until_something_was_released(tmp_path):
    first, second = make_run(run_file()), make_run(run_file(timeout=21.0))
    assert first.digest != second.digest
    for run in (first, second):
        open_node(run, "north", records(run), tmp_path / "north").store.close()
