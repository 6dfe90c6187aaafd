"""The data of the experiments, at three sizes: the paper's two sets by their stand-ins, and real ones beside them."""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import IntArray
from sottovoce.data.fetch import load_real
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import SpecError
from sottovoce.problem.shards import Shards, even

NODES = 20
SIZES = ("tiny", "small", "full")
HELD_OUT = 5  # where a set has no test file, every fifth record is kept for it

# records, features and test records by size: the full ones are the paper's
EPSILON = {"tiny": (2_000, 20, 500), "small": (40_000, 200, 10_000), "full": (400_000, 2_000, 100_000)}
RCV1 = {"tiny": (2_000, 300, 500), "small": (40_000, 5_000, 5_000), "full": (677_399, 47_236, 20_242)}


@dataclass(frozen=True, eq=False)
class Sample:
    """The nodes' records, twenty by default, and others to test on."""

    name: str
    size: str
    train: Shards
    test: Shards


def load_sample(name: str, size: str, nodes: int = NODES) -> Sample:
    """A set by name: 'epsilon-like', 'rcv1-like' (made here, at any size), 'rcv1', 'a9a' or 'covtype' (real, whole).

    Rows have norm at most 1; records are dealt out at random, from a fixed seed.
    """
    if size not in SIZES:
        raise SpecError(f"there is no size '{size}'; choose one of {', '.join(SIZES)}")
    if name not in DATA:
        raise SpecError(f"there is no data '{name}' for the experiments; choose one of {', '.join(DATA)}")
    train, test = DATA[name](size)
    shuffled = np.random.default_rng(20)
    dealt = even(train.n_records, nodes, None if name.endswith("-like") else shuffled)  # made ones have no order
    return Sample(name, size, _shards(train, *dealt), _shards(test, np.array([0, test.n_records]), None))


def _shards(table: Table, offsets: IntArray, order: IntArray | None) -> Shards:
    assert table.y is not None
    return Shards.of(table.X, table.y, offsets, order)


def _epsilon(size: str) -> tuple[Table, Table]:
    records, m, tested = EPSILON[size]
    return epsilon_like(records, m), epsilon_like(tested, m, test=True)


def _rcv1(size: str) -> tuple[Table, Table]:
    records, m, tested = RCV1[size]
    return rcv1_like(records, m), rcv1_like(tested, m, test=True)


def _real_rcv1(size: str) -> tuple[Table, Table]:
    return _split(load_real("rcv1"))


def _a9a(size: str) -> tuple[Table, Table]:
    tables = [load_real(name) for name in ("a9a", "a9a.t")]
    train, test = (Table(unit_rows(t.X), t.y, None, None, t.name) for t in tables)
    return train, test


def _covtype(size: str) -> tuple[Table, Table]:
    """Each column over its largest value in the data set's documentation, then rows within 1."""
    table = load_real("covtype")
    X = np.asarray(table.X.toarray(), dtype=np.float32) / COVTYPE_LARGEST
    return _split(Table(unit_rows(X), table.y, None, None, "covtype"))


# elevation, aspect, slope, distances to water (level, height), roads and fires, three hillshades, 44 yes-or-no columns
COVTYPE_LARGEST = np.array([3858, 360, 66, 1397, 601, 7117, 254, 254, 254, 7173] + [1] * 44, dtype=np.float32)


def _split(table: Table) -> tuple[Table, Table]:
    held = np.arange(table.n_records) % HELD_OUT == 0
    assert table.y is not None
    train, test = (Table(table.X[rows], table.y[rows], None, None, table.name) for rows in (~held, held))
    return train, test


DATA = {"epsilon-like": _epsilon, "rcv1-like": _rcv1, "rcv1": _real_rcv1, "a9a": _a9a, "covtype": _covtype}
