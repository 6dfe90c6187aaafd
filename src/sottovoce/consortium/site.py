"""site.toml: where a site's own records are. It stays at the site; so does everything that is read because of it."""

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sottovoce.consortium.schema import Encoded, Schema
from sottovoce.data.columns import from_lists, read_columns
from sottovoce.data.load import format_of, load
from sottovoce.data.sql import answer_of
from sottovoce.errors import SpecError

FILE = "site.toml"
_KNOWN = {"dataset", "state", "file", "format", "database", "query"}
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Source:
    """Where the records are, what their budget is kept under, and the node's own folder."""

    dataset: str
    state: Path
    file: Path | None = None
    format: str | None = None
    database: str | None = None
    query: str | None = None

    def read(self, schema: Schema) -> Encoded:
        """All records, encoded by the schema."""
        if self.file is None:
            name, answer = answer_of(str(self.database), str(self.query))
            return schema.encode(from_lists(answer, name, schema.numbers, schema.texts, schema.missing_values))
        format = format_of(self.file, self.format)
        if format == "svmlight":
            if not schema.numbered:
                raise SpecError("svmlight files have numbered features, but the schema has named columns")
            table = load(self.file, format=format, n_features=schema.numbered)
            assert table.y is not None
            return schema.encode_numbered(table.X, table.y)
        if schema.numbered:
            raise SpecError("the schema has numbered features, so the records must be an svmlight file")
        return schema.encode(read_columns(self.file, format, schema.numbers, schema.texts, schema.missing_values))


def read_site(path: str | Path) -> Source:
    """Read a site.toml; paths in it are meant from its own folder."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise SpecError(f"'{path}' cannot be read; a site says there where its records are") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"'{path}' is no TOML: {error}") from None
    odd = sorted(set(data) - _KNOWN)
    if odd or not all(isinstance(value, str) for value in data.values()):
        raise SpecError(f"'{path}' has texts named {', '.join(sorted(_KNOWN))}, and nothing else ({', '.join(odd)})")
    if ("file" in data) == ("database" in data) or ("database" in data) != ("query" in data):
        raise SpecError(f"'{path}' must name either a file, or a database and a query")
    missing = [name for name in ("dataset", "state") if not data.get(name)]
    if missing:
        raise SpecError(f"'{path}' lacks '{missing[0]}'")
    here = path.parent
    return Source(
        dataset=data["dataset"],
        state=(here / data["state"]).resolve(),
        file=(here / data["file"]).resolve() if "file" in data else None,
        format=data.get("format"),
        database=_expanded(data["database"]) if "database" in data else None,
        query=data.get("query"),
    )


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SpecError(f"{FILE} takes ${{{match[1]}}} from the environment, where it is not set; set it")
        word = os.environ[match[1]]
        return quote(word, safe="") if text[match.end() :].startswith("@") else word  # a password, as it is

    return _VARIABLE.sub(value, text)
