"""`sottovoce evaluate MODEL FILE`: evaluate a saved model on labeled records, by noisy counts.

The command does not check whether the model was trained on records of FILE: the answer would reveal it. Each record
counts as used for both, unless --disjoint declares that none is.
"""

import json as json_
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.casts import class_numbers
from sottovoce.cli import screen
from sottovoce.cli.budget import Ledger, mention_budget, overview_of, paid
from sottovoce.cli.flags import ReadFlags, grouped, read_range
from sottovoce.cli.saved import schema_of_run
from sottovoce.data.load import as_reals, as_signs
from sottovoce.data.policy import ReadPolicy
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.evaluation import Evaluation, Held, Model, Tally, seeded
from sottovoce.evaluation import evaluate as evaluate_all
from sottovoce.evaluation.curves import public_link
from sottovoce.evaluation.figures import Row, notes_of, rows_of
from sottovoce.evaluation.private import ROUNDING
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import (
    PERSON,
    RECORD,
    PrivacyStatement,
    statement_of,
    with_evaluation,
    with_held_out,
)
from sottovoce.problem.people import first_rows
from sottovoce.problem.scores import row_scores
from sottovoce.problem.shards import owner_of_rows, partition
from sottovoce.run.result import BUDGETED, EVALUATION, Result


@grouped
def evaluate(
    model: Annotated[Path, typer.Argument(help="A folder written by `sottovoce train --out` or `tune --out`.")],
    file: Annotated[Path, typer.Argument(help="Records with their labels.")],
    data: ReadFlags,
    unit: Annotated[
        str | None, typer.Option("--user-id", help="The person's column, where the guarantee is for people.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="ε of this evaluation (the run's)."),
    ] = None,
    disjoint: Annotated[
        bool,
        typer.Option("--disjoint", help="Declare that no record (person) of FILE was trained on: one ε for both."),
    ] = False,
    metrics: Annotated[
        str, typer.Option("--metrics", help="right, confusion, scores (two classes) or squares (regression).")
    ] = "auto",
    positive: Annotated[
        str | None, typer.Option("--positive", help="The class that recall is about; the last of the run's classes.")
    ] = None,
    recall: Annotated[
        float | None, typer.Option("--recall", help="Store the threshold for this recall of the positive class.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Or for this share of answers with the positive class.")
    ] = None,
    row_norm: Annotated[float | None, typer.Option("--row-norm", help="Public bound on a row (the run's).")] = None,
    target_bounds: Annotated[
        str | None, typer.Option("--target-bounds", help="Of a regression: the public range, as in 0,100.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes the noise a simulation's.")] = None,
    ledger: Ledger = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count, with noise, how well a model does on labeled records, in one statement with its training."""
    result = Result.load(model)
    if result.statement.held_out or result.statement.later:
        raise PrivacyError(
            f"'{model}' already has an evaluation (evaluation.json), which its statement covers; a second one would "
            f"cost more ε: read it with sottovoce report {model}, or train anew with another --out"
        )
    if result.environment.get(BUDGETED) and ledger is None:
        raise PrivacyError(
            "this run was paid from a budget, and so is its evaluation; give the ledger with --budget PATH"
        )
    if seed is not None and result.spec.seed is None:
        raise PrivacyError(
            "a seed would let anybody take the noise off this evaluation, and the run's statement, which is of secret "
            "noise, covers it; leave --seed out, or evaluate a simulation"
        )
    said = result.statement
    kept = seed if seed is not None else result.spec.seed  # of a simulation either way
    with screen.owner_notes() as note:
        policy = ReadPolicy.of(kept is None, note)
        held, public = _held(model, result, file, data, unit, row_norm, target_bounds, policy)
    public = public.with_positive(positive)
    instead = f"evaluate in Python: sottovoce.load({str(model)!r}).evaluate(X, y)"
    tally, there = tally_of(said, held.owner, instead, epsilon)
    events = dict(zip(there.tolist(), tally.events, strict=True))
    whole = with_held_out(said, events, declared=True) if disjoint else with_evaluation(said, events)
    whose = PERSON if said.unit == PERSON.name else RECORD
    alone = statement_of(tally.events, said.delta, said.adversary, kept is not None, whose, kept is None)
    _mention_sum(whole)
    with paid(ledger, "evaluation", alone, disjoint):
        found = replace(evaluate_held_out(tally, there, held, public, kept, metrics), statement=whole)
    values = found.to_dict() | _at_threshold(found, recall, rate) | {"held_out_seeded": kept is not None}
    found_text = json_.dumps(values, ensure_ascii=False, indent=2).encode()
    replace(result, statement=whole).restate(model, {EVALUATION: found_text}, before=said)
    if json:
        screen.say_json(values | ({} if ledger is None else {"budget": overview_of(ledger)}))
        return
    show(found, values, model)
    screen.out.print(
        f"written to {model / EVALUATION}; the run's statement covers it: sottovoce account --verify {model}"
    )
    mention_budget(ledger)


def _mention_sum(whole: PrivacyStatement) -> None:
    """Say, before anything is spent, what training and evaluation cost together, where they share records."""
    if not whole.declared:
        screen.err.print(
            f"Each record of FILE counts as trained on too: ε = {whole.epsilon:.3g} with the training. If none was, "
            "--disjoint declares it, and one ε covers both.",
            soft_wrap=True,
        )


def tally_of(
    said: PrivacyStatement, owner: IntArray, instead: str, epsilon: float | None = None
) -> tuple[Tally, IntArray]:
    """The tally of records of these nodes, by default with the ε of a run; and the nodes that have any, in order.

    `instead` is what to type where the noise of the run cannot be made here.
    """
    budget = said.epsilon if epsilon is None else epsilon
    if not 0 < budget < np.inf:
        raise PrivacyError("an evaluation needs an ε that is finite and over 0; give --epsilon")
    adversary = ADVERSARIES.read(said.adversary)
    if adversary.name == "secret_pairs":
        raise PrivacyError(
            f"nodes of this run cancel noise between them, which this command, that is none of them, cannot; {instead}"
        )
    there, sizes = np.unique(owner, return_counts=True)
    return Tally.of(sizes, budget, said.delta, adversary), there


def evaluate_held_out(
    tally: Tally, there: IntArray, held: Held, public: Model, seed: int | None, metrics: str
) -> Evaluation:
    """Ask the records."""
    own = held._replace(owner=np.searchsorted(there, held.owner))
    return evaluate_all(tally, own, public, seeded(seed), metrics)


def _held(
    model: Path,
    result: Result,
    file: Path,
    data: ReadFlags,
    unit: str | None,
    row_norm: float | None,
    target_bounds: str | None,
    policy: ReadPolicy,
) -> tuple[Held, Model]:
    """Return the records that are evaluated, and the public part of the model."""
    schema = schema_of_run(model, result, file, data, policy, unit)
    encoded = schema.read(file, data.format, policy=policy)
    X, y, groups, people = encoded.X, encoded.y, encoded.groups, encoded.user_ids
    if result.classes is not None and schema.label.classes is not None:  # by name: a search may have sorted them
        numbers = (y + 1.0) / 2 if schema.label.outputs == 1 else y
        known = class_numbers(numbers, len(schema.label.classes))
        y = _numbered(np.array(schema.label.classes), result)[known]
    if encoded.usable is not None:  # a record without a target stays in the public count and adds nothing to a sum
        y = np.where(encoded.usable, y, np.nan)
    if people is None and result.statement.unit == PERSON.name:
        raise PrivacyError(
            "the run's guarantee is for people, but the held-out records have no person ids; name the column with "
            "--user-id, or evaluate a run whose schema names it"
        )

    owner = _owners(result, len(y), groups, people, policy.guess)
    bounds = _range(target_bounds, result) if result.classes is None else None
    return posed(result, Labeled(X, y, owner, people), bounds, row_norm)


class Labeled(NamedTuple):
    """Records as they came, with class numbers or targets, their nodes, and the ids of people."""

    X: Matrix
    targets: Array
    owner: IntArray
    people: Any


def posed(
    result: Result, records: Labeled, bounds: tuple[float, float] | None, row_norm: float | None = None
) -> tuple[Held, Model]:
    """Return held-out records, with targets in units of public bounds, and the public part of the model."""
    X, y, owner, people = records
    if people is not None:  # one record of each person, so that the number of rows is public
        first = first_rows(owner, people)
        X, y, owner = X[first], y[first], owner[first]
    if not np.all(np.isfinite(result.model)):
        raise DataError("the model holds numbers that are not finite: its run diverged; train it anew")
    rows = result.rows(X) if result.spec.problem.features else X
    scores = row_scores(rows, result.coef, result.intercept, result.scale.bound or math.inf)
    if result.classes is None:
        assert bounds is not None
        low, high = bounds
        with np.errstate(over="ignore"):  # overflows are clipped; a warning would reveal them
            scores, y = ((2 * values - low - high) / (high - low) for values in (scores, y))
        return Held(owner, scores, y), Model(0, targets=(low, high))
    bound = (result.scale.bound or result.spec.problem.row_norm * result.scale.unit) if row_norm is None else row_norm
    reach = float(np.linalg.norm(np.atleast_2d(result.coef), axis=1)[0]) * bound
    constant = float(np.ravel(result.intercept)[0])
    link = (result.scale.link or public_link(result.spec.problem.loss.name)) if len(result.classes) == 2 else None
    ends, labels = (constant - reach - ROUNDING, constant + reach + ROUNDING), tuple(result.classes)
    return Held(owner, scores, y), Model(len(labels), *ends, link, result.scale.threshold, labels)


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


def _owners(result: Result, records: int, groups: Any, people: Any, seeded: bool) -> IntArray:
    if groups is None:
        n = min(int(result.public["n"]), records if people is None else len(np.unique(people)))
        return owner_of_rows(partition(records, n, people, seeded=seeded))
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


def _at_threshold(found: Evaluation, recall: float | None, rate: float | None) -> dict[str, Any]:
    """The threshold for a recall or a rate, and the figures of the model with it; nothing where none is wanted."""
    if recall is None and rate is None:
        return {}
    threshold = found.threshold(recall=recall, rate=rate)
    figures = found.at_threshold(threshold).figures
    return {
        "threshold": threshold,
        "threshold_for": {"recall": recall} if rate is None else {"rate": rate},
        "threshold_rate": found.rate_at(threshold),
        "threshold_figures": {name: figure.to_dict() for name, figure in figures.items()},
    }


def show(found: Evaluation, values: dict[str, Any], model: Path | None = None) -> None:
    """Figures, and what they cost together with the training."""
    said = found.statement
    assert said is not None
    _print_figures(f"on {found.records:,} records, with noise", rows_of(values))
    for note in notes_of(values):
        screen.out.print(screen.plain(note), soft_wrap=True)
    if "threshold" in values:
        wanted = " ".join(f"{name} {value:g}" for name, value in values["threshold_for"].items())
        title = f"at the threshold {values['threshold']:.6g}, for a {wanted} of '{values['positive']}'"
        _print_figures(title, rows_of(values, "threshold_figures"))
        screen.out.print(
            f"The rate of '{screen.plain(values['positive'])}' there is about {values['threshold_rate']:.3g}: "
            "thresholds are edges of the noisy histogram, and a wanted rate gets the nearest.",
            soft_wrap=True,
        )
        screen.out.print(
            f"The threshold is stored: sottovoce predict {screen.plain(str(model))} FILE --threshold stored",
            soft_wrap=True,
        )
    screen.out.print(
        f"{screen.plain(said.verdict())} {said.covers} Intervals count the noise and that these records are a sample.",
        soft_wrap=True,
    )


def _print_figures(title: str, rows: list[Row]) -> None:
    table = Table(title=screen.plain(title), title_justify="left", box=None)
    for column in ("", "value", "95 % interval"):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        table.add_row(*map(screen.plain, row))
    screen.out.print(table)
