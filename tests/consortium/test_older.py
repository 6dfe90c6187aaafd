"""What version 0.1 left at a site: its ledger holds; its results, its statement and its run are refused."""

import tarfile
from pathlib import Path

import pytest

from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.node import own_records
from sottovoce.errors import DataError, PrivacyError, StoreError
from sottovoce.node.budget import overview
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.result import Result

KEPT = Path(__file__).parent.parent / "fixtures" / "v0.1" / "consortium" / "ash.tar.xz"


@pytest.fixture
def kit(tmp_path):
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_the_ledger_holds_and_results_are_refused(kit):
    store = Store(kit / "state")
    assert store.verify() == []
    shown = overview(store)
    assert [(run["name"][:5], run["state"], run["released"]) for run in shown["runs"]] == [
        ("first", "closed", 4),
        ("first", "closed", 1),
    ]
    store.close()
    folder = kit / "state" / "results" / "first"
    with pytest.raises(DataError, match=r"saved by sottovoce 0\.1"):
        Result.load(folder)
    with pytest.raises(PrivacyError, match=r"made by sottovoce 0\.1"):
        PrivacyStatement.from_json((folder / "statement.json").read_text())


def test_its_agreement_is_read_and_a_run_under_its_name_is_refused(kit):
    """The digest is another one since noise is written as private(2): this would be a run of its own, and its cost."""
    agreement = read_agreement(kit / "local" / "consortium.toml")
    store = Store(kit / "state")
    rows = store.rows()
    assert agreement.run.digest not in {row.run for row in rows}
    with pytest.raises(StoreError, match="under another digest"):
        own_records(agreement, "ash", read_site(kit / "local" / "site.toml"), store)
    assert store.rows() == rows
    store.close()
