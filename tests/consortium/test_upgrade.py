"""A site of version 0.2 after an upgrade: its ledger holds, and its results are read."""

import json
import tarfile
from pathlib import Path

import pytest

from sottovoce.consortium.agreement import read_agreement
from sottovoce.errors import SottovoceError
from sottovoce.node.budget import overview
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.run.result import Result

KEPT = Path(__file__).parent.parent / "fixtures" / "v0.2" / "consortium"


@pytest.fixture
def kit(tmp_path):
    with tarfile.open(KEPT / "ash.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_the_ledger_of_a_site_holds_and_its_result_verifies(kit):
    known = json.loads((KEPT / "known.json").read_text())
    state = read_site(kit / "local" / "site.toml").state
    store = Store(state)
    assert store.verify() == []
    assert overview(store) == known["overview"]
    store.close()
    result = Result.load(state / "results" / "first")
    result.verify()
    assert result.statement.verdict()


def test_a_ledger_of_a_site_can_be_abandoned_by_the_run_s_name(kit):
    """After an upgrade whose digests differ, too: what was released stays in the ledger."""
    agreement = read_agreement(kit / "local" / "consortium.toml")
    store = Store(read_site(kit / "local" / "site.toml").state)
    before = store.rows()
    try:
        store.abandon(store.run_of(agreement.run_name))
    except SottovoceError as error:
        assert "over" in str(error) or "finished" in str(error)
    assert store.rows()[: len(before)] == before and store.verify() == []
    store.close()
