"""What version 0.1 left behind: folders open, verify and are exported, and its runs are refused."""

import json
import tarfile
from pathlib import Path

import pytest
from net import open_node, records, run_file, whole_run

from sottovoce import __version__
from sottovoce.errors import PrivacyError, StoreError
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
    assert kept["sottovoce"] == "0.1.0"
    assert json.loads(json.dumps(export(store))) == kept | {"sottovoce": __version__}  # who writes it now
    assert overview(store)["runs"] == KNOWN["overview"]["runs"]
    (each,), (was,) = overview(store)["datasets"], KNOWN["overview"]["datasets"]
    assert was["epsilon"] < each["epsilon"] < 1.05 * was["epsilon"]  # two runs, sequentially: by a filter now
    assert each["adjacency"] == was["adjacency"]
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


def test_its_statement_is_refused():
    with pytest.raises(PrivacyError, match=r"made by sottovoce 0\.1, which this version does not read"):
        PrivacyStatement.from_dict(KNOWN["statement"])


@pytest.mark.parametrize("name", ["finished", "paused"])
def test_its_runs_are_refused_and_stay_in_the_budget(folders, name):
    run = make_run(RUNS[name])
    assert run.digest == KNOWN["digests"][name]
    before = store_rows(folders)
    with pytest.raises(StoreError, match=rf"run '{name}' was begun by sottovoce 0\.1, .* begin a run of another name"):
        open_node(run, "north", TABLES, folders / "north")
    assert store_rows(folders) == before
    store = Store(folders / "north", reading=True)
    (spent,) = overview(store)["datasets"]
    assert spent["epsilon"] > KNOWN["overview"]["datasets"][0]["epsilon"] > 0
    store.close()


def test_a_new_run_in_its_folder_is_secure_and_adds_to_what_was_spent(folders):
    before = len(store_rows(folders))
    whole_run(make_run(RUNS["finished"] | {"run": "third"}), TABLES, folders)
    store = Store(folders / "north")
    assert [row.kind for row in store.rows()][before:].count("nonce") == 1 and store.verify() == []
    store.close()


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
