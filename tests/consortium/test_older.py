"""What version 0.1 left at a site: its ledger, its results and its statement hold; its run is refused in a sentence."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.node import own_records
from sottovoce.data.schema import read_schema
from sottovoce.errors import StoreError
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


def test_ledger_results_and_statement_hold(kit):
    store = Store(kit / "state")
    assert store.verify() == []
    shown = overview(store)
    assert [(run["name"][:5], run["state"], run["released"]) for run in shown["runs"]] == [
        ("first", "closed", 4),
        ("first", "closed", 1),
    ]
    store.close()
    folder = kit / "state" / "results" / "first"
    kept = Result.load(folder)
    kept.statement.verify()
    assert kept.statement == PrivacyStatement.from_json((folder / "statement.json").read_text())
    rows = read_schema(folder / "schema.toml").read_rows(kit / "ash.csv")
    assert np.shape(rows) == (16, 4) and set(kept.predict(rows)) <= {"no", "yes"}


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
