"""From a file to shards: records with all that is publicly said of them, posed in units of their bounds, and dealt out.

Rows are divided by their public bound, targets of a regression mapped from their public range to [−1, 1], as estimators
do: so the plan, its step sizes and penalties mean the same in every unit of measure, and are the estimators' own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import Array, Matrix
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.schema import Encoded, Schema
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.notation import Choices
from sottovoce.planner.terms import Weighing
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even
from sottovoce.rows import is_sparse, row_norms
from sottovoce.run.build import ROW_SLACK
from sottovoce.run.scale import Scale

NODES = 20
"""To how many nodes records are dealt where nobody says."""
MOST_CLASSES = 100
"""Classes that labels have at the most, unless they are named: numbers with more of them are a regression's targets."""


class Deal(NamedTuple):
    """A way of dealing records out."""

    deal: Callable[[Any, int, np.random.Generator], Partition]
    """(targets, nodes, generator) -> whose each record is."""
    looks: bool = False
    """Whether it looks at the targets, as only a simulation may."""


DEALS: Choices[Deal] = Choices(
    "way of dealing records out",
    {
        "even": lambda: Deal(lambda y, n, rng: even(len(y), n, rng)),
        "in_order": lambda: Deal(lambda y, n, rng: even(len(y), n)),
        "dirichlet": lambda alpha: Deal(lambda y, n, rng: dirichlet(y, n, alpha, rng), looks=True),
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
    classes : the labels behind them; None for a regression
    features : names of the columns, where they have names
    groups, units : whose each record is, and whose life it is part of
    bound : R, the public bound on a row
    targets : the public range of a regression's targets, where there is one
    """

    name: str
    X: Matrix
    y: Array
    classes: tuple[Any, ...] | None
    features: tuple[str, ...] | None
    groups: Any
    units: Any
    bound: float
    targets: tuple[float, float] | None = None

    @property
    def outputs(self) -> int:
        """K, the outputs of a model."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def labels(self) -> Any:
        """The labels again, for those who take them as they are."""
        if self.classes is None:
            return self.y
        return np.array(self.classes)[((self.y + 1) / 2 if self.outputs == 1 else self.y).astype(int)]

    def loss(self, given: Loss | None, planned: bool) -> Loss:
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

    def refuse_long(self) -> None:
        """Rows over the bound, with the advice that mends them."""
        norms = row_norms(self.X)
        over = np.flatnonzero(norms > self.bound * (1 + ROW_SLACK))
        if over.size:
            raise DataError(
                f"{self.name}: {over.size} of {len(norms)} rows are over the public bound {self.bound:g} "
                f"(row {over[0]} has norm {norms[over[0]]:.4g}); bring columns to a common scale by their "
                "public bounds, in a schema (sottovoce schema FILE), or give a larger bound (--row-norm); --unit-rows "
                "is for rows that are directions, such as words of a text"
            )

    def posed(self) -> tuple[Matrix, Array]:
        """Rows and targets in units of their public bounds; the rows' memory is used again."""
        X, y = self.X, self.y
        if self.bound != 1.0:
            values = X.data if is_sparse(X) else X
            values /= self.bound
        if self.targets is not None:
            low, high = self.targets
            y = np.clip((2 * y - low - high) / (high - low), -1.0, 1.0)
        return X, y


def from_schema(schema: Schema, found: Encoded, name: str) -> Records:
    """Records that a schema has encoded."""
    label = schema.label
    targets = (label.low, label.high) if label.classes is None else None
    return Records(
        name, found.X, found.y, label.classes, schema.features, found.groups, found.units, schema.row_norm, targets
    )


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
    assert table.y is not None  # the loader was told to require labels
    names: tuple[Any, ...] | None = None
    if targets is not None or (loss is not None and loss.targets == "real"):
        if classes is not None or positive is not None:
            raise SpecError("--classes and --positive go with classes, not with a regression; leave them out")
        y = as_reals(table.y)
    else:
        y, names = _coded(table.y, positive, classes)
    X = unit_rows(table.X, bound, own=True) if shorten else table.X
    return Records(table.name, X, y, names, table.features, table.groups, table.units, bound, targets)


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
class Dealt:
    """Shards ready to train on, and the names that go into the result."""

    name: str
    shards: Shards
    test: Shards | None
    names: dict[str, Any]
    loss: Loss
    outputs: int
    weighing: Weighing
    targets: tuple[float, float] | None = None

    @property
    def node_names(self) -> tuple[str, ...]:
        """What nodes are called."""
        return self.names.get("nodes") or tuple(map(str, range(self.shards.n)))


def deal(
    records: Records,
    loss: Loss,
    *,
    test: Records | None = None,
    nodes: int | None = None,
    how: str = "even",
    seed: int | None = None,
    weighing: Weighing | None = None,
    bounded: bool = True,
) -> Dealt:
    """Deal records out to their owners or, where they have none, to so many nodes. Simulation only.

    `bounded` says that new rows over the bound are to be scaled down to it, since none was trained on.
    """
    dealing = DEALS.read(how)
    if dealing.looks and seed is None:
        raise SpecError(
            f"--deal {how} looks at the labels, so that who has which record tells of them; give --seed, which makes "
            "the run a simulation, or deal evenly"
        )
    if records.units is not None and records.groups is None and seed is None and nodes != 1:
        raise SpecError(
            "people cannot be dealt to simulated nodes in a run with a guarantee: another id in one place would move "
            "others to other nodes; name the owners (--group, or group in the schema), take --nodes 1, or simulate "
            "(--seed)"
        )
    unit = records.bound
    scale = Scale(unit if bounded else None, unit, records.targets)
    names: dict[str, Any] = {"classes": records.classes, "features": records.features, "scale": scale}
    X, y = records.posed()
    if records.groups is not None:
        if nodes is not None:
            raise SpecError("the group column already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(np.asarray(records.groups).astype(np.str_))
        names["nodes"] = tuple(owners)
    else:
        offsets, order = dealing.deal(y, NODES if nodes is None else nodes, np.random.default_rng(seed))
    weighing = weighing or Weighing()
    codes = (y + 1.0) / 2 if records.outputs == 1 else y
    weights = None if records.classes is None else weighing.of_classes(codes)
    shards = Shards.of(X, y, offsets, order, units=records.units, weights=weights)
    held_out = None
    if test is not None:
        if test.X.shape[1] != X.shape[1]:
            raise DataError(
                f"the test records have {test.X.shape[1]} features, but the training records have {X.shape[1]}"
            )
        rows, targets = test.posed()
        held_out = Shards.of(rows, targets, np.array([0, len(targets)]))
    return Dealt(records.name, shards, held_out, names, loss, records.outputs, weighing, records.targets)
