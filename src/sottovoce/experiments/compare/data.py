"""The data of a comparison: a set by name or a file, with rows of norm at most 1, and held-out records to test on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce.data.embedded import EMBEDDED, embedded
from sottovoce.data.load import as_reals, as_signs, load
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError
from sottovoce.experiments.paper.data import DATA, load_sample
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Shards, even

HELD_OUT = 5  # where there is no test file, every fifth record is kept for it


@dataclass(frozen=True, eq=False)
class Dataset:
    """Everybody's records, and others to test on."""

    name: str
    shards: Shards
    test: Shards


def load_dataset(name: str, loss: Loss, nodes: int = 20, label: str | None = None) -> Dataset:
    """A real or made set, an embedded one, or a file; dealt out evenly at random, from a fixed seed.

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> found = load_dataset("breast_cancer", LOSSES.make("logistic"), nodes=5)
    >>> found.shards.sizes.tolist(), len(found.test.y)
    ([91, 91, 91, 91, 91], 114)
    """
    if name in DATA and loss.targets == "binary":
        sample = load_sample(name, "full", nodes)
        return Dataset(name, sample.train, sample.test)
    if name in EMBEDDED:
        return _split(embedded(name), loss, nodes)
    if not Path(name).is_file():
        raise DataError(f"there is no data '{name}'; give a file, or one of {', '.join([*DATA, *EMBEDDED])}")
    return _split(load(Path(name), label=label), loss, nodes)


def _split(table: Table, loss: Loss, nodes: int) -> Dataset:
    assert table.y is not None
    y = as_signs(table.y, None)[0] if loss.targets == "binary" else as_reals(table.y)
    X, held = unit_rows(table.X), np.arange(len(y)) % HELD_OUT == 0
    if len(y) < 2 * HELD_OUT:
        raise DataError(f"'{table.name}' has {len(y)} records, too few to keep some for a test")
    offsets, order = even(int(np.sum(~held)), nodes, np.random.default_rng(20))
    test = Shards.of(X[held], y[held], np.array([0, int(held.sum())]))
    return Dataset(table.name, Shards.of(X[~held], y[~held], offsets, order), test)
