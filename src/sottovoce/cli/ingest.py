"""From a table to shards: labels to signs, owners to nodes. Simulation only: a real node reads its own file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.notation import Choices
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even


@dataclass(frozen=True)
class Ingested:
    """Shards ready to train on, and the names that go into the result."""

    shards: Shards
    test: Shards | None
    names: dict[str, Any]


def ingest(
    table: Table,
    loss: Loss,
    *,
    test: Table | None = None,
    nodes: int | None = None,
    deal: str = "even",
    positive: str | None = None,
    unit_norm: float | None = None,
    seed: int | None = None,
) -> Ingested:
    """Deal a table out to its nodes: by its group column if it has one, else to the given number of nodes."""
    y, classes = _targets(table, loss, positive)
    names: dict[str, Any] = {"classes": classes, "features": table.features}
    X = table.X if unit_norm is None else unit_rows(table.X, unit_norm)
    if table.groups is not None:
        if nodes is not None:
            raise SpecError("the group column already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(table.groups)
        names["nodes"] = tuple(owners)
    else:
        offsets, order = DEALS.read(deal)(y, nodes if nodes is not None else 20, np.random.default_rng(seed))
    shards = Shards.of(X, y, offsets, order)
    return Ingested(shards, _test_shards(test, table, loss, classes, unit_norm), names)


def _targets(table: Table, loss: Loss, positive: str | None) -> tuple[Any, tuple[Any, Any] | None]:
    assert table.y is not None  # the loader was told to require labels
    return as_signs(table.y, positive) if loss.targets == "binary" else (as_reals(table.y), None)


DEALS: Choices[Callable[[Any, int, np.random.Generator], Partition]] = Choices(
    "way of dealing records out",
    {
        "even": lambda: lambda y, n, rng: even(len(y), n, rng),
        "in_order": lambda: lambda y, n, rng: even(len(y), n),
        "dirichlet": lambda alpha: lambda y, n, rng: dirichlet(y, n, alpha, rng),
    },
)
"""(targets, nodes, generator) -> whose each record is."""


def _test_shards(
    test: Table | None, train: Table, loss: Loss, classes: tuple[Any, Any] | None, unit_norm: float | None
) -> Shards | None:
    if test is None:
        return None
    if test.m != train.m:
        raise DataError(f"the test records have {test.m} features, but the training records have {train.m}")
    assert test.y is not None
    if classes is None:
        y = as_reals(test.y)
    else:
        y, found = as_signs(test.y, classes[1])
        if found != classes:
            raise DataError(f"the test labels are {found[0]} and {found[1]}, but the training labels {classes}")
    return Shards.of(test.X if unit_norm is None else unit_rows(test.X, unit_norm), y, np.array([0, len(y)]))
