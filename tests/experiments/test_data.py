"""Data sets: bounded rows, held-out records that nobody trains on, and partition that a seed decides."""

import numpy as np
import pytest

from sottovoce.data.embedded import embedded
from sottovoce.data.tables import Table
from sottovoce.errors import DataError, SpecError
from sottovoce.experiments.data import load, split
from sottovoce.problem.losses import LOSSES


def numbered(count):
    return Table(np.arange(float(count))[:, None], np.where(np.arange(count) % 2, 1.0, -1.0), None, None, "numbered")


@pytest.mark.parametrize("drawn", [None, 0, 1])
def test_every_record_is_either_trained_on_or_held_out(drawn):
    found = split(numbered(103), drawn)
    parts = [set(table.X[:, 0].tolist()) for table in (found.records, found.held_out)]
    assert parts[0] | parts[1] == set(range(103)) and not parts[0] & parts[1]
    assert len(parts[1]) == (21 if drawn is None else 20) and (parts[1] == set(range(0, 103, 5))) == (drawn is None)
    with pytest.raises(DataError, match="too few"):
        split(numbered(9), drawn)


def test_records_are_partitioned_by_a_seed():
    found = split(numbered(100))
    one, again, other = found.partition(4), found.partition(4), found.partition(4, seed=1)
    assert one.sizes.tolist() == [20] * 4 and np.array_equal(one.order, again.order)
    assert not np.array_equal(one.order, other.order) and not np.array_equal(one.order, np.arange(80))
    made = load("epsilon-like", "tiny")
    assert (
        made.partition().order is None and made.partition(seed=0).order is not None
    )  # what was made has no order to undo
    assert (made.records.n_records, made.records.m, made.test.sizes.tolist(), made.size) == (2000, 20, [500], "tiny")


def test_targets_are_for_the_loss(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,b,y\n" + "3,4,no\n0.1,0.2,yes\n" * 6)
    found = load(str(path), loss=LOSSES.make("logistic"), label="y")
    assert set(found.y.tolist()) == {-1.0, 1.0} and found.name == str(path)
    assert np.linalg.norm(found.records.X, axis=1).max() <= 1
    real = load("diabetes", loss=LOSSES.make("absolute"))
    assert set(real.y.tolist()) <= set(embedded("diabetes").y.tolist())
    with pytest.raises(DataError, match="classes"):
        load("diabetes", loss=LOSSES.make("logistic"))
    with pytest.raises(SpecError, match="no size 'huge'"):
        load("epsilon-like", "huge")


def test_rows_are_brought_within_the_bound_each_by_itself():
    found = split(Table(np.array([[3.0, 4.0], [0.3, 0.4]] * 10), np.ones(20), None, None, "long")).bounded()
    norms = np.linalg.norm(np.vstack([found.records.X, found.held_out.X]), axis=1)
    assert np.allclose(np.sort(norms), [0.5] * 10 + [1.0] * 10)
