"""The owner's budget: nothing runs without one, and nothing that passes it, under whatever name."""

import os

import pytest
from net import open_node, records, run_of, whole_run

from sottovoce.errors import PrivacyError, StoreError
from sottovoce.node.budget import read_export
from sottovoce.node.node import Outcome
from sottovoce.node.store import Store

TABLES = records(run_of())


def test_a_budget_is_required_and_kept(tmp_path):
    run = run_of(rounds=12, privacy__noise="private(1.0)")
    with pytest.raises(PrivacyError, match="no budget"):
        open_node(run, "north", TABLES, tmp_path / "north", budget=None)
    with pytest.raises(PrivacyError, match=r"over the owner's budget of ε = 0\.5, against 'transcript'"):
        open_node(run, "north", TABLES, tmp_path / "north", budget=0.5)
    ends = whole_run(run, TABLES, tmp_path / "run", budget=1.2)
    assert isinstance(ends["north"], Outcome)
    repeat = run_of(rounds=12, run="second", privacy__noise="private(1.0)")  # the same again, on the same records
    with pytest.raises(PrivacyError, match="so far 1"):
        open_node(repeat, "north", TABLES, tmp_path / "run" / "north")
    with pytest.raises(PrivacyError, match="no budget"):  # another name for the same records has no budget of its own
        open_node(repeat, "north", TABLES, tmp_path / "run" / "north", dataset="other")
    store = Store(tmp_path / "run" / "north")
    store.set_budget({"dataset": "other", "epsilon": "1.2", "delta": 1e-5})
    store.close()
    with pytest.raises(PrivacyError, match="over the owner's budget"):  # and if it had one, they are known again
        open_node(repeat, "north", TABLES, tmp_path / "run" / "north", dataset="other")


def test_no_noise_costs_everything(tmp_path):
    run = run_of(rounds=12, privacy__noise="none")
    with pytest.raises(PrivacyError, match="∞"):
        open_node(run, "north", TABLES, tmp_path / "north", budget=1e9)


def test_people_and_records_are_not_added_up(tmp_path):
    """A guarantee for a person with all of their rows and one for a record have no common budget."""
    people = run_of(rounds=12, unit="person", privacy__noise="private(1.0)")
    assert people.statement.unit == "one person" and people.digest != run_of(rounds=12).digest
    ends = whole_run(people, records(people), tmp_path)
    assert isinstance(ends["north"], Outcome)
    store = Store(tmp_path / "north")
    (opened,) = [row.detail for row in store.rows() if row.kind == "open"]
    store.close()
    assert opened["adjacency"] == people.statement.adjacency and "one person" in opened["adjacency"]
    single = run_of(rounds=12, run="second", nodes={"north": 15, "east": 12, "south": 18, "west": 13})
    with pytest.raises(PrivacyError, match="keep to one unit"):
        open_node(single, "north", records(people), tmp_path / "north")
    again = run_of(rounds=12, run="second", unit="person", privacy__noise="private(1.0)")
    open_node(again, "north", records(people), tmp_path / "north").store.close()


def test_an_export_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "export.json")
    with pytest.raises(StoreError, match="is no export of a ledger"):
        read_export(tmp_path / "export.json")
