"""Options in groups: a group is a dataclass, defined once, and every verb that takes it takes all of its options."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from sottovoce.data.load import as_reals, as_signs, load
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.notation import Choices
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even

NODES = 20
"""To how many nodes records are dealt where nobody says."""

DEALS: Choices[Callable[[Any, int, np.random.Generator], Partition]] = Choices(
    "way of dealing records out",
    {
        "even": lambda: lambda y, n, rng: even(len(y), n, rng),
        "in_order": lambda: lambda y, n, rng: even(len(y), n),
        "dirichlet": lambda alpha: lambda y, n, rng: dirichlet(y, n, alpha, rng),
    },
)
"""(targets, nodes, generator) -> whose each record is."""


def option(name: str, text: str, panel: str) -> Any:
    """An option in a panel of the help."""
    return typer.Option(name, help=text, rich_help_panel=panel)


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as Typer wants it: for each parameter that is a group, the group's fields in its place."""
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            parameters += [_parameter(f, kinds[f.name]) for f in fields(groups[name])]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    def command(**given: Any) -> None:
        made = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)})  # type: ignore[operator]
            for name, kind in groups.items()
        }
        verb(**made, **given)

    command.__name__, command.__doc__ = verb.__name__, verb.__doc__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(field: "Field[Any]", kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


DATA = "Data"


@dataclass(frozen=True)
class DataFlags:
    """Which records, whose they are, and what is in their columns."""

    file: Annotated[Path, typer.Argument(help="Training records: svmlight, CSV or Parquet; also .gz, .bz2, .xz.")]
    test: Annotated[Path | None, option("--test", "Held-out records, for the accuracy shown.", DATA)] = None
    label: Annotated[str | None, option("--label", "The target's column (CSV, Parquet).", DATA)] = None
    positive: Annotated[str | None, option("--positive", "The label to count as +1.", DATA)] = None
    group: Annotated[str | None, option("--group", "The owner's column: one node for each value.", DATA)] = None
    nodes: Annotated[int | None, option("--nodes", f"Deal the records to this many nodes ({NODES}).", DATA)] = None
    deal: Annotated[str, option("--deal", "How: even, in_order or dirichlet:0.3 (skewed labels).", DATA)] = "even"
    format: Annotated[str | None, option("--format", "svmlight, csv or parquet, if the name lies.", DATA)] = None
    features: Annotated[int | None, option("--features", "Number of features (svmlight).", DATA)] = None
    unit_rows: Annotated[bool, option("--unit-rows", "Scale rows over the bound down to it.", DATA)] = False

    def read(self, loss: Loss, row_norm: float, seed: int | None) -> "Ingested":
        """The files, dealt out to the nodes."""
        if self.group is not None and self.deal != "even":
            raise SpecError("--group and --deal contradict each other; give one of them")
        table = load(self.file, format=self.format, label=self.label, group=self.group, n_features=self.features)
        held_out = None
        if self.test is not None:
            held_out = load(self.test, format=self.format, label=self.label, group=self.group, n_features=table.m)
        bound = row_norm if self.unit_rows else None
        return ingest(
            table,
            loss,
            test=held_out,
            nodes=self.nodes,
            deal=self.deal,
            positive=self.positive,
            unit_norm=bound,
            seed=seed,
        )


@dataclass(frozen=True)
class Ingested:
    """Shards ready to train on, and the names that go into the result."""

    name: str
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
    """Deal a table out to its nodes: by its group column if it has one, else to the given number of nodes.

    Labels become signs, owners nodes. Simulation only: a real node reads its own file.
    """
    y, classes = _targets(table, loss, positive)
    names: dict[str, Any] = {"classes": classes, "features": table.features}
    X = table.X if unit_norm is None else unit_rows(table.X, unit_norm)
    if table.groups is not None:
        if nodes is not None:
            raise SpecError("the group column already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(table.groups)
        names["nodes"] = tuple(owners)
    else:
        offsets, order = DEALS.read(deal)(y, nodes if nodes is not None else NODES, np.random.default_rng(seed))
    shards = Shards.of(X, y, offsets, order)
    return Ingested(table.name, shards, _test_shards(test, table, loss, classes, unit_norm), names)


def _targets(table: Table, loss: Loss, positive: str | None) -> tuple[Any, tuple[Any, Any] | None]:
    assert table.y is not None  # the loader was told to require labels
    return as_signs(table.y, positive) if loss.targets == "binary" else (as_reals(table.y), None)


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
