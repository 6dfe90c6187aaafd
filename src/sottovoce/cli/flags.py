"""Options in groups: a group is a dataclass, defined once, and every verb that takes it takes all of its options."""

import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from sottovoce import limits
from sottovoce.cli.records import NODES, Partitioned, Records, from_public, from_schema, from_table, partition_records
from sottovoce.data.dialect import Dialect
from sottovoce.data.layout import Layout, complete, names_in, width_of
from sottovoce.data.load import ReadProgress, format_of, load
from sottovoce.data.policy import ReadPolicy
from sottovoce.data.schema import Label, Schema, plain_columns, read_schema
from sottovoce.data.tables import Table
from sottovoce.errors import SpecError
from sottovoce.planner.shared_settings import Weighing
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
IN_SCHEMA = {
    "label": "column of [label]",
    "group": "group",
    "unit": "unit",
    "classes": "classes of [label]",
    "positive": "the last of classes in [label]",
    "target_bounds": "low and high of [label]",
    "columns": "[columns.…]",
    "drop": "ignored",
    "row_norm": "row_norm",
    "unit_rows": "row_norm",
    "features": "features",
}
"""Where a schema says what an option would."""
Format = Annotated[
    str | None, option("--format", "svmlight, csv, tsv, parquet, xlsx or npz, by default from the file name.", DATA)
]


@dataclass(frozen=True)
class FileFlags:
    """How a file of records is written, and which of its columns are the label and the owner."""

    label: Annotated[str | None, option("--label", "The target's column (CSV, Parquet).", DATA)] = None
    group: Annotated[str | None, option("--group", "The owner's column: one node for each value.", DATA)] = None
    format: Format = None
    separator: Annotated[
        str | None, option("--separator", "Between columns: comma (the default), semicolon, tab, bar.", DATA)
    ] = None
    decimal: Annotated[str | None, option("--decimal", "Before decimals: point (the default) or comma.", DATA)] = None
    encoding: Annotated[str | None, option("--encoding", "Of a text: utf-8 (the default), cp1252, latin-1.", DATA)] = (
        None
    )

    @property
    def dialect(self) -> Dialect:
        """As much of it as was given; a simulation guesses the rest, a run with a guarantee takes the defaults."""
        return Dialect(self.separator, self.decimal, self.encoding)

    def load(self, path: Path, **more: Any) -> Table:
        """The records of a file, by these options."""
        form = {"format": self.format, "label": self.label, "group": self.group, "dialect": self.dialect}
        return load(path, **form | more)

    def with_dialect(self, schema: Schema) -> Schema:
        """A schema in the dialect that was given."""
        return replace(schema, dialect=self.dialect.over(schema.dialect))


@dataclass(frozen=True)
class ReadFlags(FileFlags):
    """The same, and what an svmlight file does not say of itself."""

    first_index: Annotated[
        int | None,
        option("--first-index", "0 or 1: the index of the first feature (svmlight); needed without a seed.", DATA),
    ] = None

    @property
    def layout(self) -> Layout:
        """All of it that was given."""
        if self.first_index not in (None, 0, 1):
            raise SpecError(f"--first-index is 0 or 1, not {self.first_index}")
        named = self.label, self.group, getattr(self, "unit", None)
        return Layout(*named, self.first_index, self.dialect.separator, self.dialect.decimal, self.encoding)


@dataclass(frozen=True)
class RecordFlags(ReadFlags):
    """What is publicly said of the records of a file: a schema, or what clean numbers need."""

    schema: Annotated[
        Path | None, option("--schema", "What the columns are, publicly: see `sottovoce schema FILE`.", DATA)
    ] = None
    unit: Annotated[
        str | None, option("--user-id", "Column of person ids: the guarantee covers all rows of a person.", DATA)
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
        int | None, option("--features", "Number of features (svmlight): public; needed without a seed.", DATA)
    ] = None

    def given_schema(self) -> Schema | None:
        """The schema, if one was named, in the dialect that was given."""
        if self.schema is None:
            return None
        how = {"format", "separator", "decimal", "encoding", "first_index", "schema"}
        own = {f.name for f in fields(RecordFlags)} - how
        twice = [f.name for f in fields(RecordFlags) if f.name in own and getattr(self, f.name)]
        if twice:
            name = {"unit": "--user-id"}.get(twice[0], f"--{twice[0].replace('_', '-')}")
            raise SpecError(f"the schema says what {name} would ({IN_SCHEMA[twice[0]]}); leave the option out")
        schema = self.with_dialect(read_schema(self.schema))
        if self.first_index is None:
            return schema
        if schema.first_index not in (None, self.first_index):
            raise SpecError(f"the schema says first_index = {schema.first_index}; leave --first-index out")
        return replace(schema, first_index=self.layout.first_index)

    def layout_of(self, path: Path, policy: ReadPolicy) -> Layout:
        """How the file is written, to be kept with the run."""
        schema = self.given_schema()
        if schema is None:
            return complete(self.layout, path, self.format, policy)
        said = schema.dialect
        layout = Layout(None, None, None, schema.first_index, said.separator, said.decimal, said.encoding)
        return complete(layout, path, self.format, policy)

    def read_records(
        self,
        path: Path,
        loss: Loss | None = None,
        on_read: ReadProgress | None = None,
        template: Records | None = None,
        *,
        policy: ReadPolicy,
        clipped: bool = False,
    ) -> Records:
        """The records of a file.

        Parameters
        ----------
        path, loss : the file, and the loss that the records are for
        on_read : called with the number of records read so far
        template : records whose classes and number of features these must have
        policy : what may be inferred from the records, and how unusable records are treated
        clipped : whether to keep rows over the bound unchanged, because their subgradients are clipped
        """
        schema = self.given_schema()
        if schema is not None:
            return from_schema(schema, schema.read(path, self.format, on_read, policy), str(path), policy)
        if not policy.guess:
            schema = self.public_schema(path, loss, policy)
            bound = None if clipped else self.bound
            records = from_public(schema, schema.read(path, self.format, on_read, policy), str(path), bound, policy)
            return replace(records, bound=self.bound)
        table = self.load(
            path,
            n_features=self.features if template is None else template.X.shape[1],
            first_index=self.first_index,
            unit=self.unit,
            columns=_listed(self.columns),
            drop=_listed(self.drop) or (),
            on_read=on_read,
        )
        bound = self.bound
        classes, positive = (self.public_classes, self.positive) if template is None else (template.classes, None)
        return from_table(table, bound, loss, classes, positive, self.public_range, shorten=self.unit_rows)

    @property
    def bound(self) -> float:
        """R, the public bound on a row without a schema."""
        return 1.0 if self.row_norm is None else self.row_norm

    def public_schema(self, path: Path, loss: Loss | None, policy: ReadPolicy) -> Schema:
        """What the options and a file's header say of clean numbers: with a guarantee its records decide nothing."""
        names = names_in(path, self.format, self.dialect, policy)
        width = self.features or width_of(path, self.format)
        real = self.public_range is not None or (loss is not None and loss.targets == "real")
        missing = {
            "--classes no,yes (or --target-bounds 0,100)": self.classes is None and not real,
            "--features 123": names is None and width is None,
            "--first-index 1 (or 0)": format_of(path, self.format) == "svmlight" and self.first_index is None,
        }
        wanted = [option for option, needed in missing.items() if needed]
        if wanted:
            raise SpecError(
                "without a seed nothing may be found from the records of a file; give "
                f"{', '.join(wanted)}, or a schema (--schema); --seed makes the run a simulation"
            )
        label = self._public_label(real)
        if names is not None:
            return plain_columns(names, label, self.layout, str(path), _listed(self.columns), _listed(self.drop) or ())
        if any((self.label, self.group, self.unit, self.columns, self.drop)):
            kind = format_of(path, self.format)
            raise SpecError(
                f"{kind} files have no named columns, so no label or group can be named; use CSV or Parquet"
            )
        limits.check_count("--features", width, limits.FEATURES)
        return Schema(label, numbered=int(width or 0), plain=True, first_index=self.first_index)

    def _public_label(self, real: bool) -> Label:
        """The classes or the range of the target, by options alone; the column's name is still open."""
        classes = self.public_classes
        if real:
            if classes is not None or self.positive is not None:
                raise SpecError("--classes and --positive go with classes, not with a regression; leave them out")
            return Label("", None, *(self.public_range or (-math.inf, math.inf)))
        if classes is None:
            raise SpecError("without a seed the classes must be named (--classes no,yes)")
        if self.positive is not None:
            classes = _with_last(classes, self.positive)
        if len(set(classes)) < len(classes):
            raise SpecError("the classes must differ; name each of them once")
        return Label("", classes)

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

    @property
    def caution(self) -> str:
        """What a plan cannot know of these columns; empty where a schema has brought them to a common scale."""
        if self.schema is not None or not (self.unit_rows or self.row_norm not in (None, 1.0)):
            return ""
        what = "scaled down to one length" if self.unit_rows else f"in units of {self.row_norm:g}"
        return (
            f"The forecast compares with the best model of rows {what}. Raw columns in different units may lose nearly "
            "all of their information, and no public number shows it: scale them by a schema (sottovoce schema FILE)."
        )


@dataclass(frozen=True, kw_only=True)
class DataFlags(RecordFlags):
    """Which records, whose they are, and what is in their columns."""

    file: Annotated[Path, typer.Argument(help="Training records: svmlight, CSV or Parquet; also .gz, .bz2, .xz, .zst.")]
    test: Annotated[Path | None, option("--test", "Held-out records, for the accuracy shown.", DATA)] = None
    nodes: Annotated[
        int | None, option("--nodes", f"Partition the records to this many simulated nodes ({NODES}: one owner).", DATA)
    ] = None
    partition: Annotated[
        str, option("--partition", "How to partition: even, in_order or dirichlet:0.3 (skewed labels).", DATA)
    ] = "even"

    def read_and_partition(
        self,
        loss: Loss | None,
        seed: int | None,
        planned: bool,
        policy: ReadPolicy,
        clipped: bool = False,
        weighing_of: Callable[[tuple[Any, ...]], Weighing] | None = None,
        on_read: ReadProgress | None = None,
    ) -> Partitioned:
        """Return the records, partitioned over the nodes; `clipped`: keep long rows and clip their subgradients."""
        if seed is not None:
            limits.check_count("--seed", seed, 2**128 - 1, 0)
        if self.group is not None and self.partition != "even":
            raise SpecError("--group and --partition contradict each other; give one of them")
        records = self.read_records(self.file, loss, on_read, policy=policy, clipped=clipped)
        chosen = records.choose_loss(loss, planned)
        if not clipped:
            records.check_row_norms()
        weighing = None
        if weighing_of is not None:
            if records.classes is None:
                raise SpecError("--class-weight and --prior go with classes, not with a regression; leave them out")
            weighing = weighing_of(records.classes)
        test = (
            None
            if self.test is None
            else self.read_records(self.test, loss, template=records, policy=policy, clipped=clipped)
        )
        return partition_records(
            records, chosen, test=test, nodes=self.nodes, how=self.partition, seed=seed, weighing=weighing,
            bounded=not clipped,
        )  # fmt: skip


def _with_last(classes: tuple[str, ...], positive: str) -> tuple[str, ...]:
    """Two classes with this one as the second, +1."""
    if len(classes) > 2:
        raise SpecError("--positive is the one of two classes that counts as +1; of several there is none")
    if positive not in classes:
        raise SpecError(f"--positive is one of --classes ({', '.join(classes)}), not '{positive}'")
    return (*(name for name in classes if name != positive), positive)


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
    if not (float("-inf") < low < high < float("inf") and high - low < float("inf")):
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
