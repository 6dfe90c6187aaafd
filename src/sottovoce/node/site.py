"""A site: where a node's records lie, read the way that the public schema says, and the node's own folder.

Nothing is inferred from the data. The run file and its schema state the columns, the class that counts as +1 and the
number of records of each node. So a node with one class only, or with a misplaced column, reveals nothing by an error.

Over MPI the command's options say where the records are; in a consortium `site.toml` does, which stays at the site:

    dataset = "records"           # the name under which their budget is kept
    state = "../state"            # the node's own folder
    file = "records.csv"          # or database = "postgresql+psycopg://…" and query = "SELECT …"
"""

import os
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from sottovoce._types import Array
from sottovoce.bounded import read_toml
from sottovoce.data.policy import GUARANTEE, ReadPolicy
from sottovoce.data.schema import Encoded, Schema
from sottovoce.data.sql import answer_of
from sottovoce.data.values import from_lists
from sottovoce.errors import DataError, SpecError
from sottovoce.features import Additive
from sottovoce.matrices import row_norms, unit_rows
from sottovoce.node.runfile import Run, predicts_numbers
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.build import check_rows, make_problem

FILE = "site.toml"
_KNOWN = {"dataset", "state", "file", "format", "database", "query"}
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Site:
    """Where the records are, what their budget is kept under, and the node's own folder."""

    dataset: str
    state: Path
    file: Path | None = None
    format: str | None = None
    database: str | None = None
    query: str | None = None

    def read(self, schema: Schema, policy: ReadPolicy = GUARANTEE) -> Encoded:
        """All records, encoded by the schema; one that cannot be used contributes nothing."""
        if self.file is not None:
            return schema.read(self.file, self.format, policy=policy)
        if schema.numbered:
            raise SpecError("the schema has numbered features, so the records must be an svmlight file")
        name, answer = answer_of(str(self.database), str(self.query))
        return schema.encode(
            from_lists(answer, name, schema.numbers, schema.texts, schema.missing_values, policy, schema.formats)
        )


def read_site(path: str | Path) -> Site:
    """Read a site.toml; paths in it are meant from its own folder."""
    path = Path(path)
    try:
        data = read_toml(path)
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
    return Site(
        dataset=data["dataset"],
        state=(here / data["state"]).resolve(),
        file=(here / data["file"]).resolve() if "file" in data else None,
        format=data.get("format"),
        database=expanded(data["database"]) if "database" in data else None,
        query=data.get("query"),
    )


def expanded(text: str) -> str:
    """The address of a database, with `${NAME}` taken from the environment."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SpecError(f"the database's address takes ${{{match[1]}}} from the environment; set it there")
        word = os.environ[match[1]]
        return quote(word, safe="") if text[match.end() :].startswith("@") else word  # a password, as it is

    return _VARIABLE.sub(value, text)


def own_problem(run: Run, name: str, records: Encoded) -> Problem:
    """The node's part of eq. (1): its own records, as many as the run file says, within its bounds."""
    offsets, weights = np.array([0, len(records.y)]), usable_weights(run, records)
    shards = Shards.of(records.X, records.y, offsets, user_ids=records.user_ids, weights=weights)
    count, promised = int(shards.sizes[0]), run.sizes[run.number(name)]
    if count != promised:
        raise DataError(
            f"node '{name}' has {count} {'people' if shards.people else 'records'}, but the run file says {promised}: "
            "noise and guarantee were computed from that number; correct the one or the other"
        )
    return problem_of(run, shards)


def usable_weights(run: Run, records: Encoded) -> Array | None:
    """0 for rows that cannot be used, 1 for the others; None for a regression, where the former are rows of zeros."""
    if predicts_numbers(run.spec) or records.usable is None:
        return None
    return records.usable.astype(np.float64)


def _targets(run: Run, shards: Shards) -> Shards:
    """Targets in units of their range, where the plan has them so; weights of two classes that a threshold balances."""
    if run.in_units and predicts_numbers(run.spec):
        low, high = run.schema.label.low, run.schema.label.high
        return replace(shards, y=np.clip((2 * shards.y - low - high) / (high - low), -1.0, 1.0))
    if not run.spec.privacy.balance.prior:
        return shards
    half = np.where(shards.y > 0, *run.spec.privacy.balance.weights[::-1])
    return replace(shards, weights=half if shards.weights is None else shards.weights * half)


def problem_of(run: Run, shards: Shards) -> Problem:
    """The problem over records that were read by the run's schema; a row over the bound is scaled down to it."""
    spec, classes = run.spec.problem, run.schema.label.classes
    if not predicts_numbers(run.spec) and (classes is None or len(classes) != max(2, spec.outputs)):
        raise SpecError(
            f'the run file must name the {max(2, spec.outputs)} classes (classes = ["no", "yes"], −1 first): a node '
            "that inferred them from its records would reveal which labels it has"
        )
    if isinstance(spec.features, Additive):
        expanded = spec.features.rows(shards.X) / (spec.features.norm / spec.row_norm)
        shards = replace(shards, X=expanded)
    elif run.in_units:
        shards = replace(shards, X=shards.X / run.schema.row_norm)
    shards = _targets(run, shards)
    if spec.on_violation == "raise":  # a refusal would reveal single records to the other nodes
        over = row_norms(shards.X) > spec.row_norm
        shards = replace(shards, X=unit_rows(shards.X, spec.row_norm)) if np.any(over) else shards
    problem = make_problem(spec, shards)
    check_rows(spec, problem.shards)
    return problem
