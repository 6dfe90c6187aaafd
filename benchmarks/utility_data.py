"""The data sets of benchmarks/utility.py: records scaled by public numbers alone, dealt out, and held-out records.

Binary targets are ±1, several classes 0 … K − 1. Where a data set has no test file of its own, a fifth of it is held
out by a fixed draw. Rows longer than 1 are scaled down to 1, each by itself.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.fetch import load_real
from sottovoce.data.standins import epsilon_like
from sottovoce.data.tables import unit_rows
from sottovoce.problem.shards import Shards, even

COVTYPE_MEAN = (2959.36, 155.65, 14.10, 269.43, 46.42, 2350.15, 212.15, 223.32, 142.53, 1980.29)
COVTYPE_SPREAD = (279.98, 111.91, 7.49, 212.55, 58.30, 1559.25, 26.77, 19.77, 38.27, 1324.19)
"""Means and standard deviations of the ten quantities, as the data set's documentation (covtype.info) prints them."""


class Data(NamedTuple):
    """Records to train on and to test on."""

    X: Any
    y: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]
    classes: int = 2

    @property
    def outputs(self) -> int:
        """Weights for each class, unless there are two."""
        return 1 if self.classes == 2 else self.classes

    def shards(self, n: int, seed: int) -> Shards:
        """The records, dealt out evenly to n nodes."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        return Shards.of(self.X[order], self.y[order], even(len(order), n)[0])

    def test(self) -> Shards:
        """The held-out records."""
        return Shards.of(self.X_test, self.y_test, np.array([0, len(self.y_test)]))


def _split(X: Any, y: NDArray[Any], classes: int = 2) -> Data:
    order = np.random.default_rng(0).permutation(len(y))
    held, kept = order[: len(y) // 5], order[len(y) // 5 :]
    return Data(unit_rows(X[kept]), y[kept], unit_rows(X[held]), y[held], classes)


def _a9a() -> Data:
    train, test = load_real("a9a"), load_real("a9a.t")
    return Data(unit_rows(train.X), train.y, unit_rows(test.X), test.y)


def _mnist() -> Data:
    train, test = load_real("mnist"), load_real("mnist.t")
    return Data(unit_rows(train.X), train.y, unit_rows(test.X), test.y, 10)


def _rcv1() -> Data:
    table = load_real("rcv1")
    return _split(table.X, table.y)


def _mushrooms() -> Data:
    table = load_real("mushrooms")
    return _split(table.X, np.where(table.y == 1, 1.0, -1.0))


def _covtype() -> Data:
    """Quantities as (value − mean)/(3 deviations), cut off at ±1; soil and wilderness stay 0 and 1."""
    table = load_real("covtype")
    X = table.X.toarray()
    X[:, :10] = np.clip((X[:, :10] - COVTYPE_MEAN) / (3 * np.array(COVTYPE_SPREAD)), -1, 1)
    return _split(X.astype(np.float32), table.y)


def _epsilon() -> Data:
    table = epsilon_like(25_000, 500, seed=1)
    return _split(table.X, table.y)


DATA: dict[str, Callable[[], Data]] = {
    "a9a": _a9a,
    "rcv1": _rcv1,
    "covtype": _covtype,
    "mnist": _mnist,
    "mushrooms": _mushrooms,
    "epsilon-like": _epsilon,
}


@lru_cache(maxsize=1)
def load(name: str) -> Data:
    """A data set by its name, kept until the next."""
    return DATA[name]()
