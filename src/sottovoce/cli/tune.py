"""`sottovoce tune FILE`: choose among plans privately, at one (ε, δ) for everything, and keep the best model."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import screen
from sottovoce.cli.budget import Ledger, budget_of, mention_budget, overview_of
from sottovoce.cli.flags import RecordFlags, grouped
from sottovoce.cli.records import Records
from sottovoce.data.layout import FILE as LAYOUT_FILE
from sottovoce.data.policy import ReadPolicy
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.errors import PrivacyLeakWarning, SpecError
from sottovoce.run.result import HEAD

NUMBERS = {"rounds": int, "batch": int, "alpha": float, "l1_ratio": float}
"""Settings that are numbers; others are words, and 'none' is None."""


@grouped
def tune(
    file: Annotated[Path, typer.Argument(help="Records: svmlight, CSV or Parquet.")],
    data: RecordFlags,
    try_: Annotated[
        list[str], typer.Option("--param", help="A setting and its values, as in loss=hinge,logistic; several times.")
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε of the whole search.")] = 1.0,
    delta: Annotated[float | None, typer.Option("--delta", help="δ (1e-5, or half a record's share if less).")] = None,
    runs: Annotated[float, typer.Option("--runs", help="How many runs on average, of one owner.")] = 5.0,
    stopping: Annotated[str, typer.Option("--stopping", help="geometric or logarithmic.")] = "geometric",
    held_out: Annotated[float, typer.Option("--held-out", help="Share of the records to score plans on.")] = 0.2,
    scoring: Annotated[
        str, typer.Option("--scoring", help="accuracy, balanced_accuracy, roc_auc, average_precision or r2.")
    ] = "auto",
    seed: Annotated[int | None, typer.Option("--seed", help="Makes the search a simulation.")] = None,
    budget: Ledger = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the best model here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of another result in --out.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose among plans by private scores on held-out records: one (ε, δ) for the whole search."""
    from sottovoce.estimators import PrivateSearchCV  # scikit-learn is slow to load

    screen.writable(out, keep=False)
    if out is not None and (out / HEAD).exists() and not force:
        raise SpecError(f"there is a result in '{out}' already; give another folder, or --force to lose it")
    with screen.owner_notes() as notify:
        policy = ReadPolicy.of(seed is None, notify)
        records = data.read_records(file, policy=policy)
    records.check_row_norms()
    public = seed is None or data.schema is not None or data.classes is not None
    search = PrivateSearchCV(
        _estimator(records, public),
        _grid(try_),
        epsilon=epsilon,
        delta="auto" if delta is None else delta,
        runs=runs,
        stopping=stopping,
        held_out=held_out,
        scoring=scoring,
        random_state=seed,
        budget=budget_of(budget),
    )
    _fit(search, records)
    beside = {} if data.schema is None else {SCHEMA_FILE: data.schema.read_bytes()}  # `predict` reads raw columns
    beside[LAYOUT_FILE] = data.layout_of(file, policy).to_json()
    saved = None
    if out is not None:
        saved = str(search.best_estimator_.to_result(records.features).save(out, beside=beside, force=force))
    if json:
        best = {name: str(value) for name, value in search.best_params_.items()}
        found = {"best": best, "score": search.best_score_.to_dict(), "run_epsilon": search.run_epsilon_}
        found |= {"worth": search.summary_, "privacy": search.privacy_.to_dict()}
        screen.say_json(found | {"saved": saved, "budget": overview_of(budget)})
        return
    _show(search, saved)
    mention_budget(budget)


def _estimator(records: Records, public: bool) -> Any:
    """What is searched over: a regressor for numbers, else a classifier; it knows classes that are public."""
    from sottovoce.estimators import PrivateClassifier, PrivateRegressor  # scikit-learn is slow to load

    fixed: dict[str, Any] = {"row_norm": records.bound, "on_violation": "raise"}
    if records.classes is None:
        return PrivateRegressor(target_bounds=records.targets, **fixed)
    return PrivateClassifier(classes=list(records.classes) if public else None, **fixed)


def _fit(search: Any, records: Records) -> None:
    """Run the search; its warnings go to the screen, each once."""
    people = {} if records.user_ids is None else {"user_ids": records.user_ids}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(records.X, records.labels, nodes=records.groups, **people)
    for note in {str(each.message): each.category for each in caught}.items():
        kind = PrivacyLeakWarning.__name__ if issubclass(note[1], PrivacyLeakWarning) else "Note"
        screen.err.print(f"[yellow]{kind}:[/] {screen.plain(note[0])}", soft_wrap=True)


def _show(search: Any, saved: str | None) -> None:
    best, score = ", ".join(f"{name} = {value}" for name, value in search.best_params_.items()), search.best_score_
    screen.out.print(f"[bold]the best plan:[/] {best}; its score, of the best and so on the high side: {score}")
    screen.out.print(f"{search.summary_}\n{search.privacy_.verdict()}", soft_wrap=True)
    if saved:
        screen.out.print(f"saved in {saved}; check it with: sottovoce account --verify {saved}", soft_wrap=True)


def _grid(tried: list[str]) -> dict[str, list[Any]]:
    """{'rounds': [50, 200]} of 'rounds=50,200'."""
    grid: dict[str, list[Any]] = {}
    for text in tried:
        name, found, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not found or not values.strip():
            raise SpecError(f"'--param {text}' names no values; write a setting and its values, as in rounds=50,200")
        try:
            grid[name] = [_value(name, value.strip()) for value in values.split(",")]
        except ValueError:
            raise SpecError(f"'--param {text}' has a value that is no number; '{name}' takes numbers") from None
    return grid


def _value(name: str, text: str) -> Any:
    if text in ("none", "auto"):
        return None if text == "none" else text
    return NUMBERS[name](text) if name in NUMBERS else text
