"""The data sets of the experiments: stand-ins, real sets, embedded ones and files, and held-out records to test on.

Records are scaled by public numbers alone, or each by itself; adding a set is a row of `MADE` or `REAL`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.data.embedded import EMBEDDED, embedded
from sottovoce.data.fetch import load_real
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.load import load as load_file
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Shards, by_group, even

NODES = 20
SIZES = ("tiny", "small", "full")
HELD_OUT = 5  # where a set has no test file, a fifth of it is kept for the test
DEALT = 20  # the seed from which records are dealt out, unless another one is given


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records to train on, before they are dealt out to nodes, and others to test on.

    Attributes
    ----------
    name : what it is asked for by
    records : to train on; targets are ±1, class numbers 0 … K − 1, or real numbers
    held_out : to test on
    size : of sets that are made here: 'tiny', 'small', or 'full', which is the paper's own
    ordered : whether the records lie in an order that dealing them out has to undo; made ones have none
    """

    name: str
    records: Table
    held_out: Table
    size: str = "full"
    ordered: bool = True

    @property
    def y(self) -> Any:
        """The targets of the records to train on."""
        return _targets(self.records)

    @cached_property
    def classes(self) -> int:
        """How many classes the targets have, where they are classes."""
        return len(np.unique(self.y))

    @cached_property
    def test(self) -> Shards:
        """The held-out records, in one place."""
        return Shards.of(self.held_out.X, _targets(self.held_out), np.array([0, self.held_out.n_records]))

    def deal(self, nodes: int = NODES, seed: int | None = None) -> Shards:
        """The records with their owners or, where they have none, dealt out evenly, at random: always in the same way.

        With a seed they are dealt out from that.
        """
        if self.records.groups is not None:
            return Shards.of(self.records.X, self.y, *by_group(self.records.groups)[0])
        shuffled = None if seed is None and not self.ordered else np.random.default_rng(DEALT if seed is None else seed)
        return Shards.of(self.records.X, self.y, *even(self.records.n_records, nodes, shuffled))

    def bounded(self) -> "Dataset":
        """The same with every row within norm 1, each scaled by itself."""
        within = [replace(table, X=unit_rows(table.X)) for table in (self.records, self.held_out)]
        return replace(self, records=within[0], held_out=within[1])


def load(
    name: str,
    size: str = "full",
    *,
    loss: Loss | None = None,
    label: str | None = None,
    drawn: int | None = None,
) -> Dataset:
    """A set by its name, or a file.

    Parameters
    ----------
    name : of `MADE`, `REAL` or an embedded set, or the path of a file
    size : of a set that is made here; the others are whole
    loss : what the targets are for: ±1 for a loss of two classes, numbers for others; None leaves them as they are
    label : the target's column in a file
    drawn : where there is no test file, the seed by which a fifth is drawn for it; None takes every fifth record

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> found = load("breast_cancer", loss=LOSSES.make("logistic"))
    >>> found.deal(5).sizes.tolist(), len(found.test.y)
    ([91, 91, 91, 91, 91], 114)
    """
    if size not in SIZES:
        raise SpecError(f"there is no size '{size}'; choose one of {', '.join(SIZES)}")
    if name in MADE:
        table, test = (_for_loss(table, loss) for table in MADE[name](size))
        return Dataset(name, table, test, size, ordered=False)
    if name in REAL:
        table, *tested = (_for_loss(table, loss) for table in REAL[name]())
        return Dataset(name, table, tested[0], size) if tested else split(table, drawn, name, size)
    if name in EMBEDDED:
        return split(_for_loss(_within(embedded(name)), loss), drawn)
    if not Path(name).is_file():
        known = ", ".join([*MADE, *REAL, *EMBEDDED])
        raise DataError(f"there is no data '{name}'; give a file, or one of {known}")
    return split(_for_loss(_within(load_file(Path(name), label=label)), loss), drawn)


def split(table: Table, drawn: int | None = None, name: str = "", size: str = "full", owned: bool = False) -> Dataset:
    """Hold a fifth out: every fifth record, or as many drawn from a seed; the name is the table's by default.

    `owned` says that its groups are the owners of the records.
    """
    y, N = _targets(table), table.n_records
    if N < 2 * HELD_OUT:
        raise DataError(f"'{table.name}' has {N} records, too few to keep some for a test")
    if drawn is None:
        held = np.arange(N) % HELD_OUT == 0
        parts: Any = (~held, held)
    else:
        order = np.random.default_rng(drawn).permutation(N)
        parts = (order[N // HELD_OUT :], order[: N // HELD_OUT])
    groups = table.groups if owned else None
    records, held_out = (
        replace(table, X=table.X[rows], y=y[rows], groups=None if groups is None else groups[rows]) for rows in parts
    )
    return Dataset(name or table.name, records, held_out, size)


def _targets(table: Table) -> Any:
    if table.y is None:
        raise DataError(f"'{table.name}' has no targets; name their column (--label), or give another file")
    return table.y


def _for_loss(table: Table, loss: Loss | None) -> Table:
    if loss is None:
        return table
    y = _targets(table)
    return replace(table, y=as_signs(y, None)[0] if loss.targets == "binary" else as_reals(y))


def _within(table: Table) -> Table:
    return replace(table, X=unit_rows(table.X))


# records, features and test records by size: the full ones are the paper's
EPSILON = {"tiny": (2_000, 20, 500), "small": (40_000, 200, 10_000), "full": (400_000, 2_000, 100_000)}
RCV1 = {"tiny": (2_000, 300, 500), "small": (40_000, 5_000, 5_000), "full": (677_399, 47_236, 20_242)}


def _epsilon(size: str) -> tuple[Table, Table]:
    records, m, tested = EPSILON[size]
    return epsilon_like(records, m), epsilon_like(tested, m, test=True)


def _rcv1(size: str) -> tuple[Table, Table]:
    records, m, tested = RCV1[size]
    return rcv1_like(records, m), rcv1_like(tested, m, test=True)


# elevation, aspect, slope, distances to water (level, height), roads and fires, three hillshades, 44 yes-or-no columns
COVTYPE_LARGEST = np.array([3858, 360, 66, 1397, 601, 7117, 254, 254, 254, 7173] + [1] * 44, dtype=np.float32)
COVTYPE_MEAN = (2959.36, 155.65, 14.10, 269.43, 46.42, 2350.15, 212.15, 223.32, 142.53, 1980.29)
COVTYPE_SPREAD = (279.98, 111.91, 7.49, 212.55, 58.30, 1559.25, 26.77, 19.77, 38.27, 1324.19)
"""Largest values, means and standard deviations as the data set's documentation (covtype.info) prints them."""


def _covtype() -> tuple[Table, ...]:
    """Each column over its largest value in the data set's documentation, then rows within 1."""
    table = load_real("covtype")
    return (_within(replace(table, X=np.asarray(table.X.toarray(), dtype=np.float32) / COVTYPE_LARGEST)),)


def _covtype_centred() -> tuple[Table, ...]:
    """Quantities as (value − mean)/(3 deviations), cut off at ±1; soil and wilderness stay 0 and 1; rows within 1."""
    table = load_real("covtype")
    X = table.X.toarray()
    X[:, :10] = np.clip((X[:, :10] - COVTYPE_MEAN) / (3 * np.array(COVTYPE_SPREAD)), -1, 1)
    return (_within(replace(table, X=X.astype(np.float32))),)


def _mushrooms() -> tuple[Table, ...]:
    table = load_real("mushrooms")
    return (_within(replace(table, y=np.where(_targets(table) == 1, 1.0, -1.0))),)


MADE: dict[str, Callable[[str], tuple[Table, Table]]] = {"epsilon-like": _epsilon, "rcv1-like": _rcv1}
"""The paper's two sets by their stand-ins, at any size: (records, records to test on)."""
REAL: dict[str, Callable[[], tuple[Table, ...]]] = {
    "rcv1": lambda: (load_real("rcv1"),),
    "a9a": lambda: (_within(load_real("a9a")), _within(load_real("a9a.t"))),
    "covtype": _covtype,
    "covtype-centred": _covtype_centred,
    "mnist": lambda: (_within(load_real("mnist")), _within(load_real("mnist.t"))),
    "mushrooms": _mushrooms,
}
"""Real sets, whole: their records and, where there is a test file, its records."""
