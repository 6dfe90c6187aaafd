"""`sottovoce evaluate MODEL FILE`: what a saved model is worth on held-out records, as noisy tallies."""

import json as json_
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.cli import screen
from sottovoce.cli.budget import Ledger, mention_budget, overview_of, paid
from sottovoce.cli.flags import FileFlags, grouped, read_range
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import read_schema
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.evaluation import Evaluation, Held, Model, Tally, seeded
from sottovoce.evaluation import evaluate as ask_all
from sottovoce.evaluation.curves import public_link
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import PERSON, RECORD, number, statement_of, with_held_out
from sottovoce.run.result import EVALUATION, Result


@grouped
def evaluate(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out` or `tune --out`.")],
    file: Annotated[Path, typer.Argument(help="Held-out records with their labels: none that was trained on.")],
    data: FileFlags,
    unit: Annotated[
        str | None, typer.Option("--unit", help="The person's column, where the guarantee is for people.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="ε of the held-out records; the run's, which covers it."),
    ] = None,
    ask: Annotated[
        str, typer.Option("--ask", help="right, confusion, scores (two classes) or squares (regression).")
    ] = "auto",
    recall: Annotated[float | None, typer.Option("--recall", help="Also the threshold for this recall.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Or for this rate of positive answers.")] = None,
    row_norm: Annotated[float | None, typer.Option("--row-norm", help="Public bound on a row (the run's).")] = None,
    target_bounds: Annotated[
        str | None, typer.Option("--target-bounds", help="Of a regression: the public range, as in 0,100.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes the noise a simulation's.")] = None,
    ledger: Ledger = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count, with noise, how well a model does on held-out records, in one statement with its training."""
    result = Result.load(model)
    if result.statement.held_out:
        raise PrivacyError(
            "this run's statement already has an evaluation of held-out records; a second one would cost more than it "
            "says: evaluate a model once, or make a copy of its folder for records that were never asked"
        )
    if seed is not None and result.spec.seed is None:
        raise PrivacyError(
            "a seed would let anybody take the noise off this evaluation, and the run's statement, which is of secret "
            "noise, covers it; leave --seed out, or evaluate a simulation"
        )
    said = result.statement
    held, public, rows = _held(model, result, file, data, unit, row_norm, target_bounds)
    there = np.unique(held.owner)
    own = held._replace(owner=np.searchsorted(there, held.owner))
    budget = said.epsilon if epsilon is None else epsilon
    if not 0 < budget < np.inf:
        raise PrivacyError("an evaluation needs an ε that is finite and over 0; give --epsilon")
    if ADVERSARIES.read(said.adversary).name == "secret_pairs":
        raise PrivacyError(
            "nodes of this run cancel noise between them, which this command, that is none of them, cannot; evaluate "
            "with `model.evaluate`, or within the consortium"
        )
    tally = Tally.of(np.bincount(own.owner), budget, said.delta, ADVERSARIES.read(said.adversary))
    kept = seed if seed is not None else result.spec.seed  # of a simulation either way
    whole = with_held_out(said, dict(zip(there.tolist(), tally.events, strict=True)))
    whose = PERSON if said.unit == PERSON.name else RECORD
    alone = statement_of(tally.events, said.delta, said.adversary, kept is not None, whose, kept is None)
    with paid(ledger, "evaluation", alone, rows.X, np.searchsorted(there, rows.owner)):
        found = replace(ask_all(tally, own, public, seeded(kept), ask), statement=whole)
    more = {} if recall is None and rate is None else {"threshold": found.threshold(recall=recall, rate=rate)}
    told = found.to_dict() | more | {"held_out_seeded": kept is not None}
    found_text = json_.dumps(told, ensure_ascii=False, indent=2).encode()
    replace(result, statement=whole).restate(model, {EVALUATION: found_text})
    if json:
        screen.say_json(told | ({} if ledger is None else {"budget": overview_of(ledger)}))
        return
    _show(found, more)
    screen.out.print(
        f"written to {model / EVALUATION}; the run's statement covers it: sottovoce account --verify {model}"
    )
    mention_budget(ledger)


class Rows(NamedTuple):
    """Held-out records before they are asked."""

    X: Matrix
    owner: IntArray


def _held(
    model: Path,
    result: Result,
    file: Path,
    data: FileFlags,
    unit: str | None,
    row_norm: float | None,
    target_bounds: str | None,
) -> tuple[Held, Model, Rows]:
    """The records as they are asked, what is public of the model, and the records as they came."""
    groups: Any = None
    people: Any = None
    if (model / SCHEMA_FILE).exists():
        schema = data.spoken(read_schema(model / SCHEMA_FILE))
        encoded = schema.read(file, data.format)
        X, y, groups, people = encoded.X, encoded.y, encoded.groups, encoded.units
        if result.classes is not None and schema.label.classes is not None:  # by name: a search may have sorted them
            numbers = (y + 1.0) / 2 if schema.label.outputs == 1 else y
            y = _numbered(np.array(schema.label.classes)[numbers.astype(int)], result)
    else:
        width = None if result.features is not None else result.coef.shape[-1]
        table = data.load(file, columns=result.features, n_features=width, unit=unit)
        assert table.y is not None  # the loader was told to require labels
        X, groups, people, y = table.X, table.groups, table.units, _numbered(table.y, result)
    scores = result.decide(X)
    owner = _owners(result, len(y), groups)
    if people is None and result.statement.unit == PERSON.name:
        raise PrivacyError(
            "the run's guarantee is for people, and nothing here says whose each held-out record is; name their "
            "column (--unit), or evaluate a run whose schema does"
        )

    def asked(scores: Array, y: Array) -> Held:
        held = Held(owner, scores, y)
        return held if people is None else held.of_people(people)

    if result.classes is None:
        low, high = _range(target_bounds, result)
        return asked(*((2 * values - low - high) / (high - low) for values in (scores, y))), Model(0), Rows(X, owner)
    bound = (result.scale.bound or result.spec.problem.row_norm * result.scale.unit) if row_norm is None else row_norm
    reach = float(np.linalg.norm(np.atleast_2d(result.coef), axis=1)[0]) * bound
    constant = float(np.ravel(result.intercept)[0])
    link = public_link(result.spec.problem.loss.name) if len(result.classes) == 2 else None
    return asked(scores, y), Model(len(result.classes), constant - reach, constant + reach, link), Rows(X, owner)


def _numbered(y: Any, result: Result) -> Array:
    """Class numbers by the run's own classes, or real targets."""
    if result.classes is None:
        return as_reals(y)
    if len(result.classes) == 2:
        return (as_signs(y, known=result.classes)[0] + 1.0) / 2
    known = {str(name): number for number, name in enumerate(result.classes)}
    names = [str(value) for value in np.asarray(y).tolist()]
    strange = [name for name in names if name not in known]
    if strange:
        raise DataError(f"there is a label '{strange[0]}', but the model's are {', '.join(known)}; drop such records")
    return np.array([known[name] for name in names], dtype=np.float64)


def _owners(result: Result, records: int, groups: Any) -> IntArray:
    n = int(result.public["n"])
    if groups is None:
        return np.arange(records) % n
    known = {name: i for i, name in enumerate(result.nodes or ())}
    strange = [str(name) for name in groups if str(name) not in known]
    if strange:
        raise DataError(f"'{strange[0]}' is no node of the run, which has {', '.join(known) or 'no names for them'}")
    return np.array([known[str(name)] for name in groups], dtype=np.int64)


def _range(text: str | None, result: Result) -> tuple[float, float]:
    """The public range of targets: the one that the run clipped them to, unless another is given."""
    if text is not None:
        return read_range(text)
    if result.scale.targets is None or result.target_range is None:
        raise SpecError("a regression is evaluated within a public range of its targets; give --target-bounds low,high")
    return result.target_range


def _show(found: Evaluation, more: dict[str, float]) -> None:
    said = found.statement
    assert said is not None
    table = Table(title=f"on {found.records:,} held-out records, with noise", title_justify="left", box=None)
    for column in ("", "value", "95 % interval"):
        table.add_column(column, justify="left" if not column else "right")
    for name, figure in found.figures.items():
        low, high = figure.interval
        table.add_row(name.replace("_", " "), f"{figure.value:.4f}", f"{low:.4f} to {high:.4f}")
    screen.out.print(table)
    for name, value in more.items():
        screen.out.print(f"{name}: {value:.6g}")
    screen.out.print(
        f"{said.verdict()} Intervals count the noise and that these records are a sample. ε = {number(said.epsilon)} "
        "covers training and evaluation: no record is in both.",
        soft_wrap=True,
    )
