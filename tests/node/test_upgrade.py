"""An upgrade from version 0.2 keeps the ledgers: they verify, they cost what they did, and no round is repeated."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from net import models, open_node, whole_run

from sottovoce.errors import PrivacyError, StoreError
from sottovoce.node.budget import Budget, contradictions, overview, read_export
from sottovoce.node.runfile import make_run
from sottovoce.node.store import Store

KEPT = Path(__file__).parent.parent / "fixtures" / "v0.2" / "node"
RUNS = json.loads((KEPT / "runs.json").read_text())
KNOWN = json.loads((KEPT / "known.json").read_text())
TABLES = KNOWN["records"]


@pytest.fixture
def folders(tmp_path):
    """Two nodes that finished one run and were stopped in the middle of another."""
    with tarfile.open(KEPT / "nodes.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def rows_of(folder):
    store = Store(folder, reading=True)
    try:
        assert store.verify() == []
        return store.rows()
    finally:
        store.close()


@pytest.mark.parametrize("name", TABLES)
def test_a_ledger_verifies_and_costs_what_it_did(folders, name):
    assert rows_of(folders / name)[-1].hash.hex() == KNOWN["heads"][name]
    store = Store(folders / name)  # opened for writing, as a node opens it
    found, known = overview(store), KNOWN["overview"][name]
    assert found["runs"] == known["runs"] and found["rows"] == known["rows"]
    (each,), (was,) = found["datasets"], known["datasets"]
    assert each["epsilon"] == pytest.approx(was["epsilon"], rel=0.05) and each["epsilon_budget"] == 40.0
    for export in KEPT.glob("[en]*.json"):
        assert contradictions(store.rows(), store.identity, read_export(export)) == []
    store.close()


def test_the_budget_still_binds(folders):
    """What 0.2 spent counts: a budget just above it admits no further run, and nothing is released."""
    spent = KNOWN["overview"]["north"]["datasets"][0]["epsilon"]
    store = Store(folders / "north")
    store.set_budget(Budget(1.01 * spent, 1e-5).detail("records"))
    store.close()
    before = rows_of(folders / "north")
    with pytest.raises(PrivacyError, match="budget"):
        open_node(make_run(RUNS["finished"] | {"run": "third"}), "north", TABLES, folders / "north")
    assert rows_of(folders / "north") == before


def test_a_finished_run_gives_its_model_or_is_refused_and_releases_nothing(folders):
    before = {name: rows_of(folders / name) for name in TABLES}
    try:
        found = models(whole_run(make_run(RUNS["finished"]), TABLES, folders))
    except StoreError as error:
        assert "another digest" in str(error)
    else:
        assert np.array_equal(found, KNOWN["models"])
    assert {name: rows_of(folders / name) for name in TABLES} == before


def test_an_unfinished_run_continues_or_is_refused_and_repeats_no_round(folders):
    before = {name: rows_of(folders / name) for name in TABLES}
    try:
        models(whole_run(make_run(RUNS["paused"]), TABLES, folders))
    except StoreError as error:
        assert "another digest" in str(error)
    for name in TABLES:
        after = rows_of(folders / name)
        assert after[: len(before[name])] == before[name]
        released = [(row.run, row.round) for row in after if row.kind == "release"]
        assert len(set(released)) == len(released)


def test_a_new_run_adds_to_what_was_spent(folders):
    models(whole_run(make_run(RUNS["finished"] | {"run": "third"}), TABLES, folders))
    store = Store(folders / "north", reading=True)
    (each,) = overview(store)["datasets"]
    store.close()
    assert each["epsilon"] > 1.1 * KNOWN["overview"]["north"]["datasets"][0]["epsilon"]
