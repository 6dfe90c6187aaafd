"""The data sets of the experiments: stand-ins, real sets, embedded ones and files, and held-out records to test on.

Records are scaled by public numbers alone, or each by itself; adding a set is a row of `MADE` or `REAL`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sottovoce import plugins
from sottovoce._renamed import old_attributes
from sottovoce.data.embedded import EMBEDDED, embedded
from sottovoce.data.fetch import VARIABLE, load_real, real_path
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.load import load as load_file
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.data.tables import Table
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import is_sparse, unit_rows
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even
from sottovoce.registry import Choices, Chosen, check_count, check_real

NODES = 20
SIZES = ("tiny", "small", "full")
HELD_OUT = 5  # where a set has no test file, a fifth of it is kept for the test
PARTITION_SEED = 20  # the seed from which records are partitioned, unless another one is given


class Parting(NamedTuple):
    """What a partition may read, in a simulation."""

    X: Any
    y: Any
    nodes: int
    rng: np.random.Generator


def _even(of: Parting) -> Partition:
    return even(len(of.y), of.nodes, of.rng)


def _dirichlet(of: Parting, alpha: float = 0.3) -> Partition:
    return dirichlet(of.y, of.nodes, alpha, of.rng)


def _by_label(of: Parting) -> Partition:
    return _sorted(of, of.y)


def _by_column(of: Parting, column: int) -> Partition:
    if not isinstance(column, int) or not 0 <= column < of.X.shape[1]:
        raise SpecError(f"there is no column {column!r} to partition by; give a number from 0 to {of.X.shape[1] - 1}")
    values = of.X[:, [column]]
    return _sorted(of, np.ravel(values.toarray() if is_sparse(values) else values))


def _by_size(of: Parting, ratio: float = 100.0) -> Partition:
    """The largest node has so many times the records of the smallest, the others are in between, by equal factors."""
    if not 1 <= ratio < np.inf:
        raise SpecError(f"the largest node has at least as many records as the smallest, not {ratio!r} times as many")
    shares = np.geomspace(1.0, ratio, of.nodes)
    sizes = np.maximum(1, np.floor(shares / shares.sum() * len(of.y))).astype(np.int64)
    sizes[-1] += len(of.y) - sizes.sum()
    if sizes[-1] < 1:
        raise DataError(f"{len(of.y)} records are too few for {of.nodes} nodes; take fewer nodes")
    return np.concatenate([[0], np.cumsum(sizes)]), of.rng.permutation(len(of.y))


def _sorted(of: Parting, values: Any) -> Partition:
    """Nodes of the same size hold neighbors in the order of these values; ties are in random order."""
    order = of.rng.permutation(len(of.y))
    return even(len(of.y), of.nodes)[0], order[np.argsort(np.asarray(values)[order], kind="stable")]


Partitioning: TypeAlias = Chosen[Parting, Partition]
"""A way to partition records over simulated nodes."""

_WAYS: dict[str, Callable[..., Partition]] = {
    "even": _even,
    "dirichlet": _dirichlet,
    "by_label": _by_label,
    "by_size": _by_size,
    "by_column": _by_column,
}
PARTITIONS = Choices.of_functions("partition", _WAYS)
"""even: at random, equal sizes; dirichlet(α): labels in Dirichlet(α) proportions, uneven sizes; by_label: sorted by
label, equal sizes; by_size(r): at random, sizes over a factor of r; by_column(j): sorted by column j, equal sizes.

Examples
--------
>>> found = PARTITIONS.read("by_size:4")(Parting(np.zeros((70, 1)), np.zeros(70), 3, np.random.default_rng(0)))
>>> np.diff(found[0]).tolist()
[10, 20, 40]
"""
EVEN = PARTITIONS.read("even")


def _fourier(X: Any, features: int = 200, scale: float = 1.0, seed: int = 0) -> Any:
    """Random Fourier features (Rahimi and Recht 2007) of a Gaussian kernel of this scale, from a public seed."""
    count = check_count("the number of Fourier features", features, 10**6)
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(X.shape[1], count)) / check_real("the scale of a kernel", scale, least=1e-6, most=1e6)
    return np.cos(np.asarray(X @ W) + rng.uniform(0, 2 * np.pi, count)) / np.sqrt(count)


FEATURE_MAPS = Choices.of_functions("feature map", {"fourier": _fourier})
"""Public maps of rows: from (N, m) to (N, k), each row by itself. What comes out longer than 1 is scaled to 1.

Examples
--------
>>> FEATURE_MAPS.read("fourier(2)")(np.zeros((1, 3))).shape
(1, 2)
"""


@old_attributes
@dataclass(frozen=True, eq=False)
class Dataset:
    """Records to train on, before they are partitioned to nodes, and others to test on.

    Attributes
    ----------
    name : what it is requested by
    records : to train on; targets are ±1, class numbers 0 … K − 1, or real numbers
    held_out : to test on
    size : of sets that are made here: 'tiny', 'small', or 'full', which is the paper's own
    ordered : whether the records lie in an order that partitioning them  has to undo; made ones have none
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

    def partition(self, nodes: int = NODES, seed: int | None = None, partition: Partitioning | None = None) -> Shards:
        """The records with their owners or, where they have none, partitioned over so many nodes."""
        return Shards.of(self.records.X, self.y, *self.parts(nodes, seed, partition))

    def parts(self, nodes: int = NODES, seed: int | None = None, partition: Partitioning | None = None) -> Partition:
        """Which records are at which node: with their owners or, where they have none, by a row of `PARTITIONS`.

        By default evenly, at random; always in the same way, unless another seed is given. Only simulations may
        partition by what records hold.
        """
        if self.records.groups is not None:
            return by_group(self.records.groups)[0]
        rng = np.random.default_rng(PARTITION_SEED if seed is None else seed)
        if partition is None or partition == EVEN:
            shuffled = None if seed is None and not self.ordered else rng
            return even(self.records.n_records, nodes, shuffled)
        return partition(Parting(self.records.X, self.y, nodes, rng))

    def bounded(self) -> "Dataset":
        """The same with every row within norm 1, each scaled by itself."""
        within = [replace(table, X=unit_rows(table.X)) for table in (self.records, self.held_out)]
        return replace(self, records=within[0], held_out=within[1])

    def mapped(self, features: Chosen[Any, Any]) -> "Dataset":
        """The same after a row of `FEATURE_MAPS`, with every row within norm 1; the map is part of the name."""
        tables = []
        for table in (self.records, self.held_out):
            X = features(table.X)
            if getattr(X, "ndim", 0) != 2 or X.shape[0] != table.n_records:
                shape = getattr(X, "shape", type(X).__name__)
                raise SpecError(f"feature map '{features}' made {shape} of {table.n_records} rows; give a row for each")
            tables.append(replace(table, X=unit_rows(X), features=None))
        return replace(self, name=f"{self.name}, {features}", records=tables[0], held_out=tables[1])


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
    >>> found.partition(5).sizes.tolist(), len(found.test.y)
    ([91, 91, 91, 91, 91], 114)
    """
    if size not in SIZES:
        raise SpecError(f"there is no size '{size}'; choose one of {', '.join(SIZES)}")
    if name in MADE:
        table, test = (_for_loss(table, loss) for table in MADE[name](size))
        return Dataset(name, table, test, size, ordered=False)
    if name in REAL or (name not in EMBEDDED and plugins.found("data set", name, REAL)):
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


def _covtype_centered() -> tuple[Table, ...]:
    """Quantities as (value − mean)/(3 deviations), cut off at ±1; soil and wilderness stay 0 and 1; rows within 1."""
    table = load_real("covtype")
    X = table.X.toarray()
    X[:, :10] = np.clip((X[:, :10] - COVTYPE_MEAN) / (3 * np.array(COVTYPE_SPREAD)), -1, 1)
    return (_within(replace(table, X=X.astype(np.float32))),)


CREDIT_LABEL = "default-payment-next-month"
CREDIT_BOUNDS = {"LIMIT_BAL": 1e6, "AGE": 100.0, "PAY_AMT": 1e5, "PAY_": 9.0, "BILL_AMT": 5e5}
"""Public bounds by the beginnings of columns' names: what is larger is cut off; all others are 0, 1 or 2."""


def _credit() -> tuple[Table, ...]:
    """Default of credit card clients: amounts over public bounds, and cut off there; rows within 1; no client ids."""
    path = real_path("credit")
    if path is None:
        raise DataError(f"the data set 'credit' is not in the project; set {VARIABLE} to the folder that holds it")
    table = load_file(path, label=CREDIT_LABEL)
    names = list(table.features or ())
    scale = [next((b for start, b in CREDIT_BOUNDS.items() if name.startswith(start)), 1.0) for name in names]
    X = np.clip(np.asarray(table.X, dtype=np.float64) / scale, -1, 1)
    kept = [i for i, name in enumerate(names) if name != "ID"]
    y = np.where(np.asarray(_targets(table), dtype=np.float64) > 0, 1.0, -1.0)
    features = tuple(names[i] for i in kept)
    return (_within(Table(X[:, kept].astype(np.float32), y, None, features, "credit")),)


def _odd() -> tuple[Table, ...]:
    """MNIST's odd digits against the even ones."""
    tables = (load_real("mnist"), load_real("mnist.t"))
    return tuple(_within(replace(t, y=np.where(_targets(t) % 2 == 1, 1.0, -1.0), name="mnist-odd")) for t in tables)


def _mushrooms() -> tuple[Table, ...]:
    table = load_real("mushrooms")
    return (_within(replace(table, y=np.where(_targets(table) == 1, 1.0, -1.0))),)


MADE: dict[str, Callable[[str], tuple[Table, Table]]] = {"epsilon-like": _epsilon, "rcv1-like": _rcv1}
"""The paper's two sets by their stand-ins, at any size: (records, records to test on)."""
REAL: dict[str, Callable[[], tuple[Table, ...]]] = {
    "rcv1": lambda: (load_real("rcv1"),),
    "a9a": lambda: (_within(load_real("a9a")), _within(load_real("a9a.t"))),
    "covtype": _covtype,
    "covtype-centred": _covtype_centered,
    "mnist": lambda: (_within(load_real("mnist")), _within(load_real("mnist.t"))),
    "mnist-odd": _odd,
    "credit": _credit,
    "mushrooms": _mushrooms,
}
"""Real sets, whole: their records and, where there is a test file, its records."""
