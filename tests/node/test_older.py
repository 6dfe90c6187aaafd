"""What version 0.1 left behind: folders open, verify and are exported, and runs go on or are refused plainly."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from net import keys, models, open_node, records, run_file, simulated, whole_run

from sottovoce import __version__
from sottovoce.errors import StoreError
from sottovoce.node.budget import contradictions, export, overview, read_export
from sottovoce.node.entropy import older_streams, own_secret
from sottovoce.node.runfile import make_run
from sottovoce.node.store import Store
from sottovoce.privacy.release import Draws
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
    assert was["epsilon"] < each["epsilon"] < 1.05 * was["epsilon"]  # two runs, one after the other: by a filter now
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


def released_by(folder, run):
    """The rounds that version 0.1 released."""
    store = Store(folder, reading=True)
    try:
        return {row.round for row in store.rows() if row.kind == "release" and row.run == run.digest}
    finally:
        store.close()


def older_draws(run, folder):
    """What version 0.1 drew."""
    streams = older_streams(own_secret(folder), run.digest)
    return Draws(run.prepared.job.release, streams, np.array(run.sizes), run.m)


def test_a_paused_run_goes_on_to_the_simulation_s_models(folders):
    run = make_run(RUNS["paused"])
    assert run.digest == KNOWN["digests"]["paused"]
    before = [row for row in store_rows(folders) if row.run == run.digest]
    assert 0 < sum(row.kind == "release" for row in before) < len(run.rounds(0))
    plainly = [(released_by(folders / name, run), older_draws(run, folders / name)) for name in run.nodes]
    ends = whole_run(run, TABLES, folders)
    expected = simulated(run, TABLES, keys(run, folders, TABLES), plainly=plainly)
    assert np.allclose(models(ends), expected, rtol=1e-9, atol=1e-9)
    assert not np.allclose(models(ends), simulated(run, TABLES, keys(run, folders, TABLES)), rtol=1e-9, atol=1e-9)
    store = Store(folders / "north")  # what it released itself is secure: the ledger has its nonce, once
    kinds = [row.kind for row in store.rows()]
    assert kinds.count("nonce") == 1 and store.verify() == []
    store.close()
    again = open_node(run, "north", TABLES, folders / "north")  # but not all of it was
    assert run.statement.secure and not again.statement.secure
    again.statement.verify()
    again.store.close()
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
