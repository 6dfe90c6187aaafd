"""The format of a run's files, saved with the run for `evaluate` and `predict`."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sottovoce.data.dialect import Dialect, settled
from sottovoce.data.lines import header_of
from sottovoce.data.load import format_of, read_error_text
from sottovoce.data.policy import ReadPolicy
from sottovoce.errors import DataError, SpecError

FILE = "layout.json"
VERSION = 1


@dataclass(frozen=True)
class Layout:
    """Which columns of a file are what, and how the file is written; None where nobody said.

    Attributes
    ----------
    label, group, unit : the columns of the target, of the owner and of the person
    first_index : of svmlight files, the index of the first feature, 0 or 1
    separator, decimal, encoding : how a text is written, see `Dialect`

    Examples
    --------
    >>> layout = Layout("sick", separator=";")
    >>> Layout.read(layout.to_json()) == layout, Layout(decimal=",").over(layout).dialect.separator
    (True, ';')
    """

    label: str | None = None
    group: str | None = None
    unit: str | None = None
    first_index: int | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    @property
    def dialect(self) -> Dialect:
        """What it says of texts."""
        return Dialect(self.separator, self.decimal, self.encoding)

    def over(self, other: "Layout") -> "Layout":
        """What is said here, and of the rest what another says."""
        mine, theirs = asdict(self), asdict(other)
        return Layout(**{name: theirs[name] if value is None else value for name, value in mine.items()})

    def to_json(self) -> bytes:
        """The content of its file."""
        return json.dumps({"format": VERSION} | asdict(self), ensure_ascii=False, indent=2).encode()

    @classmethod
    def read(cls, content: bytes | None) -> "Layout":
        """The layout in a file's content; one that says nothing where a run has none."""
        if content is None:
            return cls()
        try:
            said = json.loads(content)
            texts = [said[f.name] for f in fields(cls) if f.name != "first_index"]
            if said["format"] != VERSION or not all(text is None or isinstance(text, str) for text in texts):
                raise ValueError
            made = cls(**{f.name: said[f.name] for f in fields(cls)})
            if made.first_index not in (None, 0, 1):
                raise ValueError
            made.dialect  # noqa: B018 - refuses what is no separator or encoding
            return made
        except (ValueError, KeyError, TypeError, RecursionError, SpecError):
            raise DataError(f"'{FILE}' does not describe how a run's files are written; train anew") from None


def names_in(path: Path, format: str | None, dialect: Dialect, policy: ReadPolicy) -> list[str] | None:
    """The names of a file's columns, from its header alone; None for a format whose features have numbers."""
    kind = format_of(path, format)
    with read_error_text(path, kind):
        if path.is_dir():
            raise IsADirectoryError
        if kind == "parquet":
            import pyarrow.parquet as pq

            return [str(name) for name in pq.read_schema(path).names]
        if kind == "xlsx":
            from sottovoce.data.excel import sheet_names

            return sheet_names(path)
        if kind in ("csv", "tsv"):
            return header_of(path, settled(path, kind, dialect, policy))
        with path.open("rb"):  # it is there, and may be read
            return None


def width_of(path: Path, format: str | None) -> int | None:
    """The number of features that a file's own header gives (npz); None where only its records would."""
    if format_of(path, format) != "npz":
        return None
    from sottovoce.data.tables import load_table

    return load_table(path).m


def complete(layout: Layout, path: Path, format: str | None, policy: ReadPolicy) -> Layout:
    """The same with the dialect that a text is read in where nothing may be guessed."""
    kind = format_of(path, format)
    if policy.guess or kind not in ("csv", "tsv"):
        return layout
    dialect = settled(path, kind, layout.dialect, policy)
    return Layout(separator=dialect.separator, decimal=dialect.decimal, encoding=dialect.encoding).over(layout)
