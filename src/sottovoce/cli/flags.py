"""Options in groups: a group is a dataclass, defined once, and every verb that takes it takes all of its options."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from sottovoce import within
from sottovoce.cli.records import NODES, Dealt, Records, deal, from_schema, from_table
from sottovoce.data.dialect import Dialect, found
from sottovoce.data.load import Told, format_of, load
from sottovoce.data.schema import Schema, read_schema
from sottovoce.data.tables import Table
from sottovoce.errors import SpecError
from sottovoce.planner.terms import Weighing
from sottovoce.problem.losses import Loss


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
Format = Annotated[str | None, option("--format", "svmlight, csv, tsv, parquet or npz, if the name lies.", DATA)]


@dataclass(frozen=True)
class FileFlags:
    """How a file of records is written, and which of its columns are the label and the owner."""

    label: Annotated[str | None, option("--label", "The target's column (CSV, Parquet).", DATA)] = None
    group: Annotated[str | None, option("--group", "The owner's column: one node for each value.", DATA)] = None
    format: Format = None
    separator: Annotated[
        str | None, option("--separator", "Between columns: comma, semicolon, tab, bar; else found.", DATA)
    ] = None
    decimal: Annotated[str | None, option("--decimal", "Before decimals: point or comma; else found.", DATA)] = None
    encoding: Annotated[
        str | None, option("--encoding", "Of a text: utf-8, cp1252, latin-1, utf-16; else found.", DATA)
    ] = None

    @property
    def dialect(self) -> Dialect:
        """As much of it as was given; the rest is found from a text's first lines."""
        return Dialect(self.separator, self.decimal, self.encoding)

    def load(self, path: Path, **more: Any) -> Table:
        """The records of a file, by these options."""
        form = {"format": self.format, "label": self.label, "group": self.group, "dialect": self.dialect}
        return load(path, **form | more)

    def spoken(self, schema: Schema) -> Schema:
        """A schema in the dialect that was given."""
        return replace(schema, dialect=self.dialect.over(schema.dialect))


@dataclass(frozen=True)
class RecordFlags(FileFlags):
    """What is publicly said of the records of a file: a schema, or what clean numbers need."""

    schema: Annotated[
        Path | None, option("--schema", "What the columns are, publicly: see `sottovoce schema FILE`.", DATA)
    ] = None
    unit: Annotated[
        str | None, option("--unit", "The person's column: the guarantee is for all rows of one.", DATA)
    ] = None
    classes: Annotated[
        str | None, option("--classes", "The labels, −1 first, as in no,yes: public, not read off the data.", DATA)
    ] = None
    positive: Annotated[str | None, option("--positive", "The label to count as +1.", DATA)] = None
    target_bounds: Annotated[
        str | None, option("--target-bounds", "A regression: the public range of targets, as in 0,100.", DATA)
    ] = None
    columns: Annotated[
        str | None, option("--columns", "The features to take, as in age,bmi; all by default.", DATA)
    ] = None
    drop: Annotated[str | None, option("--drop", "Columns to leave alone, as in visit,note.", DATA)] = None
    row_norm: Annotated[
        float | None, option("--row-norm", "Public bound on the length of a row (1), by which rows are divided.", DATA)
    ] = None
    unit_rows: Annotated[
        bool, option("--unit-rows", "Scale rows over it down: for directions, not for raw columns.", DATA)
    ] = False
    features: Annotated[
        int | None, option("--features", "Number of features (svmlight): public, not read off the data.", DATA)
    ] = None
    first_index: Annotated[
        int | None, option("--first-index", "Whether indices count from 0 or 1 (svmlight), likewise.", DATA)
    ] = None

    def agreed(self) -> Schema | None:
        """The schema, if one was named, in the dialect that was given."""
        if self.schema is None:
            return None
        own = {f.name for f in fields(RecordFlags)} - {"format", "separator", "decimal", "encoding", "schema"}
        twice = [f.name for f in fields(RecordFlags) if f.name in own and getattr(self, f.name)]
        if twice:
            raise SpecError(f"the schema says what --{twice[0].replace('_', '-')} would; leave the option out")
        return self.spoken(read_schema(self.schema))

    def records(
        self, path: Path, loss: Loss | None = None, told: Told | None = None, like: Records | None = None
    ) -> Records:
        """The records of a file; with the classes and the number of features of others, if they are to be alike."""
        schema = self.agreed()
        if schema is not None:
            return from_schema(schema, schema.read(path, self.format, told), str(path))
        table = self.load(
            path,
            n_features=self.features if like is None else like.X.shape[1],
            first_index=self.first_index,
            unit=self.unit,
            columns=_listed(self.columns),
            drop=_listed(self.drop) or (),
            told=told,
        )
        bound = 1.0 if self.row_norm is None else self.row_norm
        classes, positive = (self.public_classes, self.positive) if like is None else (like.classes, None)
        return from_table(table, bound, loss, classes, positive, self.public_range, shorten=self.unit_rows)

    @property
    def public_classes(self) -> tuple[str, ...] | None:
        """The labels, if they were given."""
        names = _listed(self.classes)
        if names is not None and len(names) < 2:
            raise SpecError(f"--classes names two labels or more, as in no,yes, not '{self.classes}'")
        return None if names is None else tuple(names)

    @property
    def public_range(self) -> tuple[float, float] | None:
        """The range of targets, if it was given."""
        return None if self.target_bounds is None else read_range(self.target_bounds)

    def leaks(self, path: Path, classified: bool) -> list[str]:
        """What was read off the data although it ought to be public, in the estimators' words."""
        found_out: list[str] = []
        kind, agreed = format_of(path, self.format), self.agreed()
        dialect = self.dialect if agreed is None else agreed.dialect
        if kind in ("csv", "tsv") and not (dialect.separator and dialect.decimal and dialect.encoding):
            found_out.append(
                f"the dialect was not given: {found(path, dialect).words} was found from the first lines, and a record "
                "there may change how all are read; say it (--separator, --decimal, --encoding), or give a schema "
                "that does."
            )
        if agreed is not None:
            return found_out
        if self.classes is None and classified:
            found_out.append(
                "classes was not given: the classes were read off the data, and that somebody has a rare one may be "
                "telling; give the public list of classes (--classes no,yes)."
            )
        if kind == "svmlight":
            if self.features is None:
                found_out.append(
                    "features was not given: the number of features was read off the data, and whoever has the last of "
                    "them is given away; give the public number (--features)."
                )
            if self.first_index is None:
                found_out.append(
                    "first-index was not given: whether indices count from 0 or from 1 was read off the data, and one "
                    "record can change it for all; say which (--first-index)."
                )
        return found_out

    @property
    def caution(self) -> str:
        """What a plan cannot know of these columns; empty where a schema has brought them to a common scale."""
        if self.schema is not None or not (self.unit_rows or self.row_norm not in (None, 1.0)):
            return ""
        what = "scaled down to one length" if self.unit_rows else f"in units of {self.row_norm:g}"
        return (
            f"That is beside the best model of rows {what}. What raw columns in different units lose by it, which may "
            "be nearly all, no public number tells: bring them to a common scale by a schema (sottovoce schema FILE)."
        )


@dataclass(frozen=True, kw_only=True)
class DataFlags(RecordFlags):
    """Which records, whose they are, and what is in their columns."""

    file: Annotated[Path, typer.Argument(help="Training records: svmlight, CSV or Parquet; also .gz, .bz2, .xz, .zst.")]
    test: Annotated[Path | None, option("--test", "Held-out records, for the accuracy shown.", DATA)] = None
    nodes: Annotated[int | None, option("--nodes", f"Deal the records to this many nodes ({NODES}).", DATA)] = None
    deal: Annotated[str, option("--deal", "How: even, in_order or dirichlet:0.3 (skewed labels).", DATA)] = "even"

    def dealt(
        self,
        loss: Loss | None,
        seed: int | None,
        planned: bool,
        clipped: bool = False,
        weigh: Callable[[tuple[Any, ...]], Weighing] | None = None,
        told: Told | None = None,
    ) -> Dealt:
        """The files, dealt out to the nodes; `clipped` where long rows are taken, and their subgradients clipped."""
        if seed is not None:
            within.check_count("--seed", seed, 2**128 - 1, 0)
        if self.group is not None and self.deal != "even":
            raise SpecError("--group and --deal contradict each other; give one of them")
        records = self.records(self.file, loss, told)
        chosen = records.loss(loss, planned)
        if not clipped:
            records.refuse_long()
        weighing = None
        if weigh is not None:
            if records.classes is None:
                raise SpecError("--class-weight and --prior go with classes, not with a regression; leave them out")
            weighing = weigh(records.classes)
        test = None if self.test is None else self.records(self.test, loss, like=records)
        return deal(
            records, chosen, test=test, nodes=self.nodes, how=self.deal, seed=seed, weighing=weighing,
            bounded=not clipped,
        )  # fmt: skip


def _listed(text: str | None) -> list[str] | None:
    """Names with commas between them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise SpecError(f"names are written with commas between them, as in age,bmi, not '{text}'")
    return names


def read_range(text: str) -> tuple[float, float]:
    """(low, high) of 'low,high'."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not float("-inf") < low < high < float("inf"):
        raise SpecError(f"a public range is two finite numbers, the lower one first, as in 0,100, not '{text}'")
    return low, high


def by_class(text: str, classes: tuple[Any, ...]) -> Any:
    """{class: number} of 'no=1,yes=5'; a plain word, such as 'balanced', stays one.

    Examples
    --------
    >>> by_class("0=1,1=5", (0.0, 1.0)), by_class("balanced", ("no", "yes"))
    ({0.0: 1.0, 1.0: 5.0}, 'balanced')
    """
    if "=" not in text:
        return text
    known = {str(name): name for name in classes} | {f"{name:g}": name for name in classes if isinstance(name, float)}
    try:
        pairs = [part.rsplit("=", 1) for part in text.split(",")]
        return {known.get(name.strip(), name.strip()): float(value) for name, value in pairs}
    except ValueError:
        raise SpecError(f"write a number for each class, as in no=1,yes=5, not '{text}'") from None
