"""The reference pages that are made from the code: the command, the run file, the agreement, the schema.

`conf.py` writes them to `docs/generated` before Sphinx reads the pages. Options and fields of a spec describe
themselves; keys of files are described here, and `tests/pages/test_references.py` compares them with the code.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from sottovoce import errors
from sottovoce._renamed import ARGUMENTS, ATTRIBUTES, NAMES, OPTIONS
from sottovoce.cli.help import EXAMPLES
from sottovoce.run.spec import PARTS

REQUIRED = "required"
KINDS = {"str": "text", "int": "integer", "float": "number", "bool": "boolean", "Path": "path"}


class Key(NamedTuple):
    """A key of a file: its name, what kind of value it takes, its default, and what it means."""

    name: str
    kind: str
    default: str
    meaning: str


RUN_FILE = (
    Key("run", "text", REQUIRED, "Name of the run. Another name is another run, with fresh noise and its own cost."),
    Key("schedule_seed", "integer", REQUIRED, "Public seed of the schedule. Noise and batches never come from it."),
    Key("nodes", "table", REQUIRED, "`NODE = RECORDS` for every node, in order; numbers of people with a unit."),
    Key("spec", "tables", REQUIRED, "Fields of a spec, in four tables; see below. `[spec.algorithm]` needs `rounds`."),
    Key("schema", "file name", "none", "Schema beside this file: the format of every node's records."),
    Key("timeout", "seconds", "`600`", "How long a node waits for a slow peer before the run pauses; at most 31 days."),
    Key("skip_after", "seconds", "never", "After how long an edge to a slow peer may be left out of a round."),
    Key("lost_after", "seconds", "never", "With `may_lose`: after how long a silence a node counts as lost."),
    Key("liars", "number", "`0`", "How many members may lie in the votes on lost nodes."),
    Key("keys", "table", "none", "`NODE = \"KEY\"` as `sottovoce node key` prints it: of every node, or of none."),
    Key("in_units_of_bounds", "boolean", "`false`", "Divide rows by the schema's bound; map targets to [−1, 1]."),
)  # fmt: skip
RUN_FILE_PLAIN = (
    Key("features", "list or integer", REQUIRED, "Columns in order, or how many features a svmlight file has."),
    Key("label", "text", REQUIRED, "Column of the target, where features have names."),
    Key("classes", "list", "none", "The two classes, that of −1 first, or more. Leave it out for a regression."),
    Key("unit_rows", "boolean", "`false`", "Scale rows over the public bound down to it."),
    Key("unit", "text", "none", "Column of person ids: the rows of one person count together."),
    Key("first_index", "0 or 1", "none", "Index of the first feature in svmlight files."),
)  # fmt: skip
AGREEMENT = (
    Key("name", "text", REQUIRED, "Name of the consortium."),
    Key("run", "text", REQUIRED, "Name of the run. Another name is another run, with fresh noise and its own cost."),
    Key("schedule_seed", "integer", REQUIRED, "Public seed of the schedule. Noise and batches never come from it."),
    Key("schema", "file name", "`schema.toml`", "Schema beside this file: the format of every site's records."),
    Key("held_out", "share", "`0`", "Share of every site's records that only tests the model. 0 for no test."),
    Key("test_epsilon", "number", "ε of `[privacy]`", "ε of that test, at the same δ."),
    Key("tolerance", "number", "none", "How far a right answer of a regression may be off. A test of one needs it."),
    Key("timeout", "seconds", "`600`", "How long a node waits for a slow peer before the run pauses; at most 31 days."),
    Key("skip_after", "seconds", "never", "After how long the controller may leave an edge out of a round."),
    Key("lost_after", "seconds", "never", "With `may_lose`: after how long a silence a site counts as lost."),
    Key("liars", "number", "`0`", "How many sites may lie in the votes on lost ones."),
    Key("in_units_of_bounds", "boolean", "`false`", "Divide rows by the schema's bound and map targets to [−1, 1]."),
    Key("revoked", "list", "none", "Serial numbers of revoked certificates, in hexadecimal."),
    Key("server", "table", REQUIRED, "Address of the relay."),
    Key("admin", "table", REQUIRED, "Person who submits jobs."),
    Key("sites", "tables", REQUIRED, "`[sites.NAME]` for every site, in order."),
    Key("problem", "table", "defaults", "`[problem]`: fields of a spec."),
    Key("network", "table", "defaults", "`[network]`: fields of a spec."),
    Key("algorithm", "table", REQUIRED, "`[algorithm]`: fields of a spec. `rounds` is required."),
    Key("privacy", "table", "defaults", "Fields of a spec. `epsilon = E` is short for `noise = 'private(E)'`."),
)  # fmt: skip
AGREEMENT_TABLES = (
    Key("server.host", "text", REQUIRED, "Name under which sites reach the relay; the server's certificate holds it."),
    Key("server.port", "integer", REQUIRED, "TCP port of the relay."),
    Key("admin.email", "text", REQUIRED, "Address of the administrator, who is known by it."),
    Key("admin.org", "text", REQUIRED, "Organization of the administrator."),
    Key("sites.NAME.org", "text", REQUIRED, "Organization of the site."),
    Key("sites.NAME.records", "integer", REQUIRED, "Public number of its records; of people with a unit."),
)  # fmt: skip
SCHEMA = (
    Key("label", "table", REQUIRED, "What is predicted."),
    Key("columns", "tables", "none", "`[columns.NAME]` for every feature column, in order. Other columns are ignored."),
    Key("features", "integer", "none", "Number of features of svmlight files, in place of columns."),
    Key("low", "number", "`-1`", "Common lower bound of numbered features."),
    Key("high", "number", "`1`", "Common upper bound of numbered features."),
    Key("first_index", "0 or 1", "none", "Index of the first feature in svmlight files."),
    Key("row_norm", "number", "from the columns", "Public bound of a row. Longer rows are scaled down to it."),
    Key("unit", "column", "none", "Person ids: the guarantee covers all rows of a person at a node."),
    Key("group", "column", "none", "Owner of each row: a node for each."),
    Key("ignored", "list of columns", "none", "Columns that are known to be there and are not used."),
    Key("pairs", "list of pairs", "none", "Numeric columns whose interactions an additive model learns."),
    Key("missing_values", "list of texts", "{missing}", "Texts that count as no value."),
    Key("dialect", "table", "defaults", "How text files are written."),
)  # fmt: skip
LABEL = (
    Key("column", "column", REQUIRED, "Where the target stands."),
    Key("classes", "list", "none", "[negative, positive], or three classes and more."),
    Key("low", "number", "none", "Lower bound of a regression's target."),
    Key("high", "number", "none", "Upper bound of a regression's target."),
    Key("prefix", "text", "none", "What may stand before a number in a text, such as `$`."),
    Key("suffix", "text", "none", "What may stand after a number in a text, such as `%`."),
)
COLUMN = (
    Key("type", "text", "`number`", "`number`, `category`, `flag`, `date`, `text` or `ordered`."),
    Key("low", "number or date", "`-1`", "Public lower bound of a number or date; required for a date."),
    Key("high", "number or date", "`1`", "Public upper bound of a number or date; required for a date."),
    Key("categories", "list", "none", "Public values of a category, a flag (two) or an ordered column (in order)."),
    Key("missing", "value", "`refuse`", "A missing value counts as: a value, `none`, `indicator` or `refuse`."),
    Key("format", "text", "ISO 8601", "Format of a date, as in `%d.%m.%Y`."),
    Key("buckets", "integer", REQUIRED, "Number of features that a text's words are hashed to."),
    Key("transform", "text", "none", "`log`, `sqrt` or `signed_log`, before a number is brought to [−1, 1]."),
    Key("prefix", "text", "none", "What may stand before a number in a text, such as `$`."),
    Key("suffix", "text", "none", "What may stand after a number in a text, such as `%`: 45% is 45."),
    Key("special", "list of numbers", "none", "Values of a number that are codes: each gets an indicator."),
)  # fmt: skip
DIALECT = (
    Key("separator", "text", "comma", "One character between columns, or `semicolon`, `tab`, `bar`."),
    Key("decimal", "text", "point", "Mark before decimals: point or comma."),
    Key("thousands", "text", "none", "Mark between groups of three digits."),
    Key("encoding", "text", "`utf-8`", "Codec, such as `cp1252` or `latin-1`."),
    Key("quote", "text", '`"`', "Quotation mark around texts."),
)
SITE = (
    Key("dataset", "text", REQUIRED, "Name under which the budget of these records is kept."),
    Key("state", "folder", REQUIRED, "The node's own folder."),
    Key("file", "path", "none", "File of records. Give either a file or a database."),
    Key("format", "text", "from the name", "`csv`, `tsv`, `parquet` or `svmlight`."),
    Key("database", "address", "none", "SQLAlchemy address; `${NAME}` is taken from the environment."),
    Key("query", "SQL", "none", "Query whose answer is the records."),
)


def table(keys: tuple[Key, ...]) -> str:
    """A Markdown table of keys."""
    return _rows("key", [(k.name, k.kind, k.default, k.meaning) for k in keys])


def _rows(head: str, rows: list[tuple[str, str, str, str]]) -> str:
    """A table of names with their kinds, and what they mean with their defaults."""
    lines = [f"| {head} | meaning |", "|---|---|"]
    for name, kind, default, meaning in rows:
        words = _marked(meaning).replace("|", "\\|")
        first, _, choices = words.partition("<br>")
        ending = {REQUIRED: " *Required.*", "": "", "none": ""}.get(default, f" Default: {default}.")
        lines.append(f"| `{name}`<br>{kind} | {first}{ending}{choices and '<br>' + choices} |")
    return "\n".join(lines)


def _marked(text: str) -> str:
    """The text with its options set as code, where they are not already."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"(?<![\w-])(--[a-z][a-z0-9-]*)", r"<\1>", part) for part in parts[::2]]
    return re.sub(r"<(--[a-z][a-z0-9-]*)>", r"`\1`", "`".join(parts))


# -- fields of a spec --


def attribute_docs(kind: type) -> dict[str, str]:
    """The texts below the fields of a class, as its source has them."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        text = (
            following.value.value
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            else 0
        )
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and isinstance(text, str):
            found[statement.target.id] = " ".join(text.split())
    return found


def spec_keys(part: str) -> tuple[Key, ...]:
    """The fields of one part of a spec."""
    kind, found = PARTS[part], []
    docs = attribute_docs(kind)
    for field in fields(kind):
        choices = getattr(kind.__dict__.get(field.name), "table", None)
        value = "choice" if choices is not None else _kind_name(field.type)
        default = REQUIRED if field.default is MISSING else f"`{_plain(field.default)}`"
        meaning = docs.get(field.name, "")
        if choices is not None:
            meaning += f"<br>Choices: {', '.join(f'`{one}`' for one in _usages(choices.usage))}."
        found.append(Key(field.name, value, default, meaning))
    return tuple(found)


def _usages(usage: str) -> list[str]:
    """The single choices in a usage text; commas within brackets are theirs. 'none' has no numbers to give."""
    found = [one.strip() for one in re.split(r",\s*(?![^()]*\))", usage)]
    return ["none" if one.startswith("none(") else one for one in found]


def _kind_name(kind: Any) -> str:
    text = getattr(kind, "__name__", None) or str(kind)
    return " or ".join(KINDS.get(one, one) for one in text.split(" | ") if one != "None")


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


# -- the command --


class Option(NamedTuple):
    """An option or an argument of a verb."""

    names: str
    kind: str
    default: str
    meaning: str


def verbs(command: Any, group: str = "") -> Iterator[tuple[str, Any]]:
    """All verbs by their words, such as 'train' and 'data fetch'."""
    for name, verb in sorted(command.commands.items()):
        inner = hasattr(verb, "commands")
        if not inner or f"{group}{name}" in EXAMPLES:
            yield group + name, verb
        if inner:
            yield from verbs(verb, f"{group}{name} ")


def options(verb: Any) -> list[Option]:
    """What a verb takes, arguments first."""
    found = []
    for parameter in sorted(verb.params, key=lambda p: p.param_type_name != "argument"):
        argument = parameter.param_type_name == "argument"
        names = parameter.name.upper() if argument else ", ".join([*parameter.opts, *parameter.secondary_opts])
        flag = getattr(parameter, "is_flag", False) or getattr(parameter, "is_bool_flag", False)
        annotation = parameter.type_descriptor.annotation
        several = get_args(annotation) if get_origin(annotation) is list else ()
        name = (several[0] if several else annotation).__name__
        kind = "flag" if flag else KINDS.get(name, name.lower()) + (", several" if several else "")
        default = parameter.default
        if parameter.required:
            shown = REQUIRED
        elif callable(default) or default in (None, False, "", [], ()) or default != default:
            shown = ""
        else:
            shown = f"`{_plain(default)}`"
        found.append(Option(names, kind, shown, " ".join((parameter.help or "").split())))
    return found


def _exit_codes() -> str:
    """The exit codes of the errors that set one of their own."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if "exit_code" in vars(kind)]
    rows = [(kind.exit_code, (inspect.getdoc(kind) or "").split("\n")[0]) for kind in kinds if kind.exit_code > 1]
    rows += [(0, "Success."), (7, "An audit's lower bound is over the stated ε.")]
    lines = [f"| {code} | {meaning} |" for code, meaning in sorted(rows)]
    return "\n".join(["| exit code | meaning |", "|---|---|", *lines])


def command_page() -> str:
    """The page of the command: every verb with every option."""
    import typer

    from sottovoce.cli.main import app

    text = [
        "# The command",
        "Made from the command itself: `sottovoce VERB --help` prints the same; `--help-all` prints all. "
        "`--set name=value` sets any option.",
        _exit_codes(),
    ]
    for name, verb in verbs(typer.main.get_command(app)):
        description = re.sub(r"^Example:.*\n\n", "", inspect.cleandoc(verb.help or ""))
        text += [f"## {name}", description.replace("\b", ""), f"```text\n{EXAMPLES[name]}\n```"]
        text.append(_rows("option", list(options(verb))))
    return "\n\n".join(text) + "\n"


# -- files --


def _section(title: str, keys: tuple[Key, ...], words: str = "") -> str:
    return "\n\n".join(part for part in (f"## {title}", words, table(keys)) if part)


def _spec_sections(prefix: str) -> list[str]:
    found = []
    for part, kind in PARTS.items():
        words = (inspect.getdoc(kind) or "").split("\n\n")[0]
        found.append(_section(f"[{prefix}{part}]", spec_keys(part), words))
    return found


def files_page() -> str:
    """The page of the files that people write: run file, agreement, site and schema."""
    from sottovoce.data.values import MISSING as TEXTS

    missing = ", ".join(f"`{text}`" for text in TEXTS if text)
    schema = tuple(k._replace(default=k.default.format(missing=f"empty, {missing}")) for k in SCHEMA)
    parts = [
        "# Files: schema, run file, agreement, site",
        "All are TOML, all but `site.toml` are public, and an unknown key is an error.",
        _section("schema.toml", schema, "What columns are, publicly. `sottovoce schema FILE` drafts one."),
        _section("[label] of a schema", LABEL),
        _section("[columns.NAME] of a schema", COLUMN),
        _section("[dialect] of a schema", DIALECT),
        _section("Run file", RUN_FILE, "What `sottovoce node` takes. Every node has the same copy."),
        _section("Run file without a schema", RUN_FILE_PLAIN, "Where all columns are numbers, scaled already."),
        _section("consortium.toml", AGREEMENT, "What the sites of a consortium agreed on."),
        _section("Tables of consortium.toml", AGREEMENT_TABLES),
        _section("site.toml", SITE, "Stays at the site: where its records are. All values are texts."),
        "## Fields of a spec\n\n`[spec.PART]` of a run file and `[PART]` of a consortium.toml. "
        "What is left out has its default; "
        "a choice is written as a name with its numbers, as in `edges(2)`.",
        *_spec_sections(""),
    ]
    return "\n\n".join(parts) + "\n"


def citations() -> str:
    """A table of the sources of all algorithms that `compare` runs."""
    from sottovoce.experiments.baselines import BASELINES

    sources: dict[str, list[str]] = {}
    for name, baseline in BASELINES.items():
        sources.setdefault(baseline.citation, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {source} |" for source, names in sources.items()]
    return "\n".join(["| algorithm | source |", "|---|---|", *rows]) + "\n"


def renames() -> str:
    """Tables of the names of version 0.2 and their replacements."""
    rows = [
        [f"`{package}.{old}`", f"`{new}`"] for package, found in sorted(NAMES.items()) for old, new in found.items()
    ]
    rows += [
        [f"`{kind}.{old}`", f"`{new}`"] for kind, found in sorted(ATTRIBUTES.items()) for old, new in found.items()
    ]
    for function, found in sorted(ARGUMENTS.items()):
        called = function.removesuffix(".__init__")
        rows += [[f"`{called}({old}=)`", f"`{new}=`"] for old, new in found.items()]
    options = [[f"`{old}`", f"`{new}`"] for old, new in sorted(OPTIONS.items())]
    return f"{_two_columns(options)}\n\n{_two_columns(rows)}\n"


def _two_columns(rows: list[list[str]]) -> str:
    return "\n".join(["| 0.2 | 0.3 |", "|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def write(folder: Path) -> None:
    """Write all pages into a folder; a page that is the same is left alone."""
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("command.md", command_page()),
        ("files.md", files_page()),
        ("renames.txt", renames()),
        ("citations.txt", citations()),
    ):
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


__all__ = [
    "Key",
    "citations",
    "command_page",
    "files_page",
    "options",
    "renames",
    "spec_keys",
    "table",
    "verbs",
    "write",
]
