"""Read records and public bounds from files, scale the records by the bounds, and partition them into shards.

Rows are divided by their public bound, targets of a regression mapped from their public range to [−1, 1], as estimators
do: so the plan, its step sizes and penalties mean the same in every unit of measure, and are the estimators' own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, Matrix
from sottovoce.casts import class_numbers
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.policy import SIMULATION, ReadPolicy
from sottovoce.data.schema import Encoded, Schema
from sottovoce.data.tables import Table
from sottovoce.errors import DataError, SpecError
from sottovoce.features import DENSE_CELLS, Additive, densified
from sottovoce.matrices import is_sparse, row_norms, unit_rows
from sottovoce.planner.features import Columns, columns_of
from sottovoce.planner.shared_settings import Weighing
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even, partition
from sottovoce.registry import Choices
from sottovoce.run.build import ROW_SLACK
from sottovoce.run.scale import Scale
from sottovoce.run.spec import Spec

NODES = 1
"""The number of nodes if the user gives none: one owner, as in the estimators."""
MOST_CLASSES = 100
"""Classes that labels have at the most, unless they are named: numbers with more of them are a regression's targets."""


class PartitionRule(NamedTuple):
    """A way of partitioning records."""

    assign: Callable[[Any, int, np.random.Generator], Partition]
    """(targets, nodes, generator) -> whose each record is."""
    uses_labels: bool = False
    """Whether it reads the targets; allowed in simulations only."""


PARTITION_RULES: Choices[PartitionRule] = Choices(
    "way of partitioning records ",
    {
        "even": lambda: PartitionRule(lambda y, n, rng: even(len(y), n, rng)),
        "in_order": lambda: PartitionRule(lambda y, n, rng: even(len(y), n)),
        "dirichlet": lambda alpha: PartitionRule(lambda y, n, rng: dirichlet(y, n, alpha, rng), uses_labels=True),
    },
)


@dataclass(frozen=True, eq=False)
class Records:
    """Records of a file, and what is public of them.

    Attributes
    ----------
    name : where they come from
    X : rows in their own units
    y : −1 and +1, class numbers 0 … K − 1, or numbers in their own units
    classes : the class labels; None for a regression
    features : names of the columns, where they have names
    groups, user_ids : the owner and the person id of each record
    bound : R, the public bound on a row
    targets : the public range of a regression's targets, where there is one
    usable : which rows count, where a run with a guarantee keeps those that do not; None for all
    columns : what a schema says of the columns; None without one
    """

    name: str
    X: Matrix
    y: Array
    classes: tuple[Any, ...] | None
    features: tuple[str, ...] | None
    groups: Any
    user_ids: Any
    bound: float
    targets: tuple[float, float] | None = None
    usable: NDArray[np.bool_] | None = None
    columns: Columns | None = None

    @property
    def outputs(self) -> int:
        """K, the outputs of a model."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def labels(self) -> Any:
        """The labels again, for those who take them as they are; none for a record that cannot be used."""
        if self.classes is None:
            return self.y if self.usable is None else np.where(self.usable, self.y, np.nan)
        codes = class_numbers((self.y + 1) / 2 if self.outputs == 1 else self.y, len(self.classes))
        labels = np.array(self.classes)[codes]
        if self.usable is not None and not self.usable.all():
            labels = labels.astype(object)
            labels[~self.usable] = None
        return labels

    def choose_loss(self, given: Loss | None, planned: bool) -> Loss:
        """The loss, as estimators choose it; of targets whose range is known, in units of half of it."""
        if given is not None:
            if (self.classes is None) != (given.targets == "real"):
                raise SpecError(
                    f"the label is {'a number' if self.classes is None else 'one of some classes'}, and loss '{given}' "
                    "is for the other kind; choose one that fits, as huber:1 for numbers or hinge for classes"
                )
            return LOSSES.make("logistic") if given.name == "softmax" and self.outputs == 1 else given
        if self.classes is None:
            return LOSSES.make("squared") if planned else LOSSES.make("huber", 0.25)
        return LOSSES.make("hinge" if self.outputs == 1 else "softmax")

    def check_row_norms(self) -> None:
        """Return an error about rows over the bound that says how to fix them."""
        norms = row_norms(self.X)
        over = np.flatnonzero(norms > self.bound * (1 + ROW_SLACK))
        if over.size:
            raise DataError(
                f"{self.name}: {over.size} of {len(norms)} rows are over the public bound {self.bound:g} "
                f"(row {over[0]} has norm {norms[over[0]]:.4g}); bring columns to a common scale by their "
                "public bounds, in a schema (sottovoce schema FILE), or give a larger bound (--row-norm); --unit-rows "
                "is for rows that are directions, such as words of a text"
            )

    def in_public_units(self) -> tuple[Matrix, Array]:
        """Rows and targets in units of their public bounds; the rows' memory is used again."""
        X, y = self.X, self.y
        if self.bound != 1.0:
            values = X.data if is_sparse(X) else X
            with np.errstate(over="ignore"):
                values /= self.bound
            if self.bound < 1.0:  # beyond all numbers is the largest one: nothing is refused for one record
                np.clip(values, -np.finfo(values.dtype).max, np.finfo(values.dtype).max, out=values)
        X = densified(X, DENSE_CELLS)
        if self.targets is not None:
            low, high = self.targets
            with np.errstate(over="ignore"):  # overflows are clipped; a warning would reveal them
                y = np.clip((2 * y - low - high) / (high - low), -1.0, 1.0)
        return X, y


def from_schema(schema: Schema, found: Encoded, name: str, policy: ReadPolicy = SIMULATION) -> Records:
    """Records that a schema has encoded."""
    label = schema.label
    targets = (label.low, label.high) if label.classes is None and math.isfinite(label.low) else None
    usable = None if policy.refuse else found.usable
    owners = found.groups, found.user_ids
    return Records(
        name, found.X, found.y, label.classes, schema.features, *owners, schema.row_norm, targets, usable,
        columns_of(schema),
    )  # fmt: skip


def from_public(schema: Schema, found: Encoded, name: str, bound: float | None, policy: ReadPolicy) -> Records:
    """Clean numbers by a plain schema and scale rows over the bound down to it; without a bound, keep their lengths.

    Refusing a row over the bound would reveal a single record; only the owner gets a note.
    """
    records = from_schema(schema, found, name, policy)
    names = None if records.classes is None else schema.label.spelled
    if bound is None:
        return replace(records, classes=names)
    over = int(np.count_nonzero(row_norms(found.X) > bound * (1 + ROW_SLACK)))
    policy.notify_owner(
        f"a row is longer than the public bound {bound:g} and is scaled down to it (if most are, bring columns to a "
        "common scale by a schema, sottovoce schema FILE, or give a larger --row-norm)",
        over,
    )
    return replace(records, classes=names, X=unit_rows(found.X, bound, own=True) if over else found.X)


def from_table(
    table: Table,
    bound: float,
    loss: Loss | None = None,
    classes: tuple[Any, ...] | None = None,
    positive: str | None = None,
    targets: tuple[float, float] | None = None,
    shorten: bool = False,
) -> Records:
    """Records of a file without a schema: clean numbers, and labels of two classes, of several, or real."""
    assert table.y is not None  # the loader requires labels
    names: tuple[Any, ...] | None = None
    if targets is not None or (loss is not None and loss.targets == "real"):
        if classes is not None or positive is not None:
            raise SpecError("--classes and --positive go with classes, not with a regression; leave them out")
        y = as_reals(table.y)
    else:
        y, names = _coded(table.y, positive, classes)
    X = unit_rows(table.X, bound, own=True) if shorten else table.X
    return Records(table.name, X, y, names, table.features, table.groups, table.user_ids, bound, targets)


def _coded(y: Any, positive: str | None, classes: tuple[Any, ...] | None) -> tuple[Array, tuple[Any, ...]]:
    """Signs of two classes, numbers of several."""
    there = np.unique(np.asarray(y))
    if len(classes if classes is not None else there) <= 2:
        return as_signs(y, positive, classes)
    if positive is not None:
        raise SpecError("--positive is the one of two classes that counts as +1; of several there is none")
    if classes is None and len(there) > MOST_CLASSES:
        raise DataError(
            f"the labels have {len(there):,} different values; give the public range of a regression's targets "
            "(--target-bounds low,high), or name the classes (--classes)"
        )
    known: list[Any] = there.tolist()
    if classes is not None:
        known = list(classes)
        if there.dtype.kind in "iuf":
            try:
                known = [float(name) for name in classes]
            except ValueError:
                raise DataError(
                    f"the labels are numbers, and the classes {', '.join(map(str, classes))} are not"
                ) from None
        if len(set(known)) != len(known):
            raise SpecError("the classes must differ; name each of them once")
        strange = [value for value in there.tolist() if value not in known]
        if strange:
            raise DataError(f"there is a label {strange[0]!r}, which is none of the classes; name all, or drop it")
    order = {value: number for number, value in enumerate(known)}
    return np.array([order[value] for value in np.asarray(y).tolist()], dtype=np.float64), tuple(known)


@dataclass(frozen=True, eq=False)
class Partitioned:
    """Shards ready to train on, and the names that go into the result."""

    name: str
    shards: Shards
    test: Shards | None
    names: dict[str, Any]
    loss: Loss
    outputs: int
    weighing: Weighing
    targets: tuple[float, float] | None = None
    columns: Columns | None = None

    def with_feature_map(self, spec: Spec) -> "Partitioned":
        """The same records after the spec's map of columns, in units of its bound, with how new ones meet the model."""
        of, scale = spec.problem.features, self.names["scale"]
        if not isinstance(of, Additive):
            return self

        def rows(shards: Shards) -> Shards:
            return replace(shards, X=of.rows(shards.X * scale.unit) / of.norm)

        test = None if self.test is None else rows(self.test)
        names = self.names | {"scale": replace(scale, bound=None, unit=of.norm)}
        return replace(self, shards=rows(self.shards), test=test, names=names)

    @property
    def node_names(self) -> tuple[str, ...]:
        """What nodes are called."""
        return self.names.get("nodes") or tuple(map(str, range(self.shards.n)))


def partition_records(
    records: Records,
    loss: Loss,
    *,
    test: Records | None = None,
    nodes: int | None = None,
    how: str = "even",
    seed: int | None = None,
    weighing: Weighing | None = None,
    bounded: bool = True,
) -> Partitioned:
    """Partition records by their owners or, where they have none, over so many nodes. Simulation only.

    `bounded` says that new rows over the bound are to be scaled down to it, since none was trained on.
    """
    rule = PARTITION_RULES.read(how)
    if rule.uses_labels and seed is None:
        raise SpecError(
            f"--partition {how} reads the labels, so that the partition reveals them; give --seed, which makes the run "
            "a simulation, or use --partition even"
        )
    unit = records.bound
    scale = Scale(unit if bounded else None, unit, records.targets)
    names: dict[str, Any] = {"classes": records.classes, "features": records.features, "scale": scale}
    X, y = records.in_public_units()
    if records.groups is not None:
        if nodes is not None:
            raise SpecError("the group column already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(np.asarray(records.groups).astype(np.str_))
        names["nodes"] = tuple(owners)
    else:
        n, rng = NODES if nodes is None else nodes, np.random.default_rng(seed)
        offsets, order = partition(
            len(y), n, records.user_ids, seeded=seed is not None, split=lambda rows, n: rule.assign(y[rows], n, rng)
        )
    weighing = weighing or Weighing()
    codes = (y + 1.0) / 2 if records.outputs == 1 else y
    weights = None if records.classes is None else weighing.of_classes(codes)
    if records.usable is not None and records.classes is not None:  # rows of a regression are zeros, and all count
        weights = records.usable.astype(np.float64) * (1.0 if weights is None else weights)
    shards = Shards.of(X, y, offsets, order, user_ids=records.user_ids, weights=weights)
    held_out = None
    if test is not None:
        if test.X.shape[1] != X.shape[1]:
            raise DataError(
                f"the test records have {test.X.shape[1]} features, but the training records have {X.shape[1]}"
            )
        rows, targets = test.in_public_units()
        held_out = Shards.of(rows, targets, np.array([0, len(targets)]))
    return Partitioned(
        records.name, shards, held_out, names, loss, records.outputs, weighing, records.targets, records.columns
    )
