"""Options in groups: a group is a dataclass, defined once, and every verb that takes it takes all of its options."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
import typer

from sottovoce import within
from sottovoce.data.dialect import Dialect
from sottovoce.data.load import as_reals, as_signs, format_of, load
from sottovoce.data.schema import Encoded, Schema, read_schema
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.notation import Choices, write
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Partition, Shards, by_group, dirichlet, even

NODES = 20
"""To how many nodes records are dealt where nobody says."""


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


Label = Annotated[str | None, option("--label", "The target's column (CSV, Parquet).", DATA)]
Group = Annotated[str | None, option("--group", "The owner's column: one node for each value.", DATA)]
Format = Annotated[str | None, option("--format", "svmlight, csv or parquet, if the name lies.", DATA)]
Separator = Annotated[str | None, option("--separator", "Between columns: comma, semicolon, tab, bar.", DATA)]
Decimal = Annotated[str | None, option("--decimal", "Before decimals: point or comma.", DATA)]
Encoding = Annotated[str | None, option("--encoding", "Of a text: utf-8, cp1252, latin-1, utf-16.", DATA)]
"""Data flags that verbs without a whole group take too. A text's dialect is found from its first lines if not given."""


@dataclass(frozen=True)
class DataFlags:
    """Which records, whose they are, and what is in their columns."""

    file: Annotated[Path, typer.Argument(help="Training records: svmlight, CSV or Parquet; also .gz, .bz2, .xz.")]
    test: Annotated[Path | None, option("--test", "Held-out records, for the accuracy shown.", DATA)] = None
    label: Label = None
    classes: Annotated[
        str | None, option("--classes", "The two labels, −1 first, as in no,yes: public, not read off the data.", DATA)
    ] = None
    positive: Annotated[str | None, option("--positive", "The label to count as +1.", DATA)] = None
    group: Group = None
    nodes: Annotated[int | None, option("--nodes", f"Deal the records to this many nodes ({NODES}).", DATA)] = None
    deal: Annotated[str, option("--deal", "How: even, in_order or dirichlet:0.3 (skewed labels).", DATA)] = "even"
    format: Format = None
    features: Annotated[
        int | None, option("--features", "Number of features (svmlight): public, not read off the data.", DATA)
    ] = None
    first_index: Annotated[
        int | None, option("--first-index", "Whether indices count from 0 or 1 (svmlight), likewise.", DATA)
    ] = None
    unit_rows: Annotated[bool, option("--unit-rows", "Scale rows over the bound down to it.", DATA)] = False
    schema: Annotated[
        Path | None, option("--schema", "What the columns are, publicly: see `sottovoce schema FILE`.", DATA)
    ] = None
    separator: Separator = None
    decimal: Decimal = None
    encoding: Encoding = None

    @property
    def dialect(self) -> Dialect:
        """As much of it as was given."""
        return Dialect(self.separator, self.decimal, self.encoding)

    def columns(self) -> Schema | None:
        """The schema, if one was named, in the dialect that was given."""
        if self.schema is None:
            return None
        said = ("label", "classes", "positive", "group", "features", "first_index", "unit_rows")
        twice = [name for name in said if getattr(self, name)]
        if twice:
            raise SpecError(f"the schema says what --{twice[0].replace('_', '-')} would; leave the option out")
        schema = read_schema(self.schema)
        return replace(schema, dialect=self.dialect.over(schema.dialect))

    def implied(self) -> dict[str, Any]:
        """The fields of a spec that follow from the schema; of the loss, what it is if nobody says."""
        schema = self.columns()
        if schema is None:
            return {}
        label, K = schema.label, schema.label.outputs
        loss = "softmax" if K > 1 else "hinge"
        if label.classes is None:  # quadratic up to an eighth of the range
            loss = write("huber", (label.high - label.low) / 8)
        return {"problem__loss": loss, "problem__row_norm": schema.row_norm, "problem__outputs": K}

    def read(self, loss: Loss, row_norm: float, seed: int | None) -> "Ingested":
        """The files, dealt out to the nodes."""
        if seed is not None:
            within.check_count("--seed", seed, 2**128 - 1, 0)
        if self.group is not None and self.deal != "even":
            raise SpecError("--group and --deal contradict each other; give one of them")
        schema = self.columns()
        if schema is not None:
            others = None if self.test is None else schema.read(self.test, self.format)
            return by_schema(schema, schema.read(self.file, self.format), others, self, loss, seed)
        form: dict[str, Any] = {
            "format": self.format,
            "label": self.label,
            "group": self.group,
            "first_index": self.first_index,
            "dialect": self.dialect,
        }
        table = load(self.file, **form, n_features=self.features)
        held_out = None if self.test is None else load(self.test, **form, n_features=table.m)
        bound = row_norm if self.unit_rows else None
        return ingest(
            table,
            loss,
            test=held_out,
            nodes=self.nodes,
            deal=self.deal,
            classes=self.public_classes,
            positive=self.positive,
            unit_norm=bound,
            seed=seed,
        )

    @property
    def public_classes(self) -> tuple[str, str] | None:
        """The two labels, if they were given."""
        if self.classes is None:
            return None
        names = [name.strip() for name in self.classes.split(",")]
        if len(names) != 2 or not all(names):
            raise SpecError(f"--classes names two labels with a comma between them, as in no,yes, not '{self.classes}'")
        return names[0], names[1]

    def leaks(self, loss: Loss) -> list[str]:
        """What was read off the data although it ought to be public, in the estimators' words."""
        found: list[str] = []
        if self.schema is not None:
            return found
        if self.classes is None and loss.targets == "binary":
            found.append(
                "classes was not given: the classes were read off the data, and that somebody has a rare one may be "
                "telling; give the public list of classes (--classes no,yes)."
            )
        if format_of(self.file, self.format) == "svmlight":
            if self.features is None:
                found.append(
                    "features was not given: the number of features was read off the data, and whoever has the last of "
                    "them is given away; give the public number (--features)."
                )
            if self.first_index is None:
                found.append(
                    "first-index was not given: whether indices count from 0 or from 1 was read off the data, and one "
                    "record can change it for all; say which (--first-index)."
                )
        return found


@dataclass(frozen=True)
class Ingested:
    """Shards ready to train on, and the names that go into the result."""

    name: str
    shards: Shards
    test: Shards | None
    names: dict[str, Any]


def by_schema(
    schema: Schema, found: Encoded, test: Encoded | None, flags: DataFlags, loss: Loss, seed: int | None
) -> Ingested:
    """Records that a schema has encoded, dealt out to their owners or to so many nodes."""
    label, names = schema.label, {"classes": schema.label.classes, "features": schema.features}
    if (label.classes is None) != (loss.targets == "real"):
        raise SpecError(
            f"the schema's label is {'a number' if label.classes is None else 'one of some classes'}, and loss "
            f"'{loss}' is for the other kind; choose one that fits, as huber:1 for numbers or hinge for classes"
        )
    dealing = DEALS.read(flags.deal)
    _refuse_looking(dealing, flags.deal, seed)
    if found.units is not None and found.groups is None and seed is None and flags.nodes != 1:
        raise SpecError(
            "people cannot be dealt to simulated nodes in a run with a guarantee: another id in one place would move "
            "others to other nodes; name the owners with group in the schema, take --nodes 1, or simulate (--seed)"
        )
    if found.groups is not None:
        if flags.nodes is not None:
            raise SpecError("the schema's group already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(found.groups.astype(np.str_))
        names["nodes"] = tuple(owners)
    else:
        count = flags.nodes if flags.nodes is not None else NODES
        offsets, order = dealing.deal(found.y, count, np.random.default_rng(seed))
    shards = Shards.of(found.X, found.y, offsets, order, units=found.units)
    held_out = None if test is None else Shards.of(test.X, test.y, np.array([0, len(test.y)]))
    return Ingested(str(flags.file), shards, held_out, names)


def _refuse_looking(dealing: Deal, text: str, seed: int | None) -> None:
    if dealing.looks and seed is None:
        raise SpecError(
            f"--deal {text} looks at the labels, so that who has which record tells of them; give --seed, which makes "
            "the run a simulation, or deal evenly"
        )


def ingest(
    table: Table,
    loss: Loss,
    *,
    test: Table | None = None,
    nodes: int | None = None,
    deal: str = "even",
    classes: tuple[str, str] | None = None,
    positive: str | None = None,
    unit_norm: float | None = None,
    seed: int | None = None,
) -> Ingested:
    """Deal a table out to its nodes: by its group column if it has one, else to the given number of nodes.

    Labels become signs, owners nodes. Simulation only: a real node reads its own file.
    """
    dealing = DEALS.read(deal)
    _refuse_looking(dealing, deal, seed)
    y, found = _targets(table, loss, positive, classes)
    names: dict[str, Any] = {"classes": found, "features": table.features}
    X = table.X if unit_norm is None else unit_rows(table.X, unit_norm)
    if table.groups is not None:
        if nodes is not None:
            raise SpecError("the group column already says whose each record is; leave --nodes out")
        (offsets, order), owners = by_group(table.groups)
        names["nodes"] = tuple(owners)
    else:
        offsets, order = dealing.deal(y, nodes if nodes is not None else NODES, np.random.default_rng(seed))
    shards = Shards.of(X, y, offsets, order)
    return Ingested(table.name, shards, _test_shards(test, table, found, unit_norm), names)


def _targets(
    table: Table, loss: Loss, positive: str | None, classes: tuple[str, str] | None
) -> tuple[Any, tuple[Any, Any] | None]:
    assert table.y is not None  # the loader was told to require labels
    if loss.targets == "binary":
        return as_signs(table.y, positive, classes)
    if classes is not None:
        raise SpecError(f"--classes goes with a loss for two classes, not with '{loss}'")
    return as_reals(table.y), None


def _test_shards(
    test: Table | None, train: Table, classes: tuple[Any, Any] | None, unit_norm: float | None
) -> Shards | None:
    if test is None:
        return None
    if test.m != train.m:
        raise DataError(f"the test records have {test.m} features, but the training records have {train.m}")
    assert test.y is not None
    if classes is None:
        y = as_reals(test.y)
    else:
        y, _ = as_signs(test.y, known=classes)
    return Shards.of(test.X if unit_norm is None else unit_rows(test.X, unit_norm), y, np.array([0, len(y)]))
