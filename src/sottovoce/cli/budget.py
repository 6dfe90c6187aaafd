"""`--budget PATH`: one ledger for what several commands, and Python, compute from the same records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import screen
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec

Ledger = Annotated[
    Path | None, typer.Option("--budget", help="The ledger that this is paid from: see `sottovoce ledger budget`.")
]


@contextmanager
def charge_budget(
    path: Path | None, what: str, spec: Spec, shards: Shards, records: Shards | None = None
) -> Iterator[Callable[[PrivacyStatement], None] | None]:
    """Return a check that charges the budget for a run before the run starts, or refuses it; None without a budget.

    `records` are all records that the run is charged for, if it does not train on some of them.
    """
    if path is None:
        yield None
        return
    from sottovoce.node.budget_entries import Paid  # loaded only if there is a ledger

    budget, paid = budget_of(path), list[str]()
    payment = Paid.of(spec, shards, shards if records is None else records)
    yield lambda statement: paid.append(budget.pay(what, statement, payment))
    for each in paid:
        budget.close(each)


@contextmanager
def paid(path: Path | None, what: str, statement: PrivacyStatement, disjoint: bool) -> Iterator[None]:
    """An evaluation, paid before it is made; `disjoint` where its records are declared to be no part of the others."""
    if path is None:
        yield
        return
    from sottovoce.node.budget_entries import Paid

    budget = budget_of(path)
    run = budget.pay(what, statement, Paid(held_out=disjoint))
    yield
    budget.close(run)


def budget_of(path: Path | None) -> Any:
    """The budget that a ledger has; None without one."""
    if path is None:
        return None
    from sottovoce.node.budget import Budget

    return Budget(path=path)


def overview_of(path: Path | None) -> list[dict[str, Any]] | None:
    """What every data set of a ledger has cost, for programs."""
    return None if path is None else budget_of(path).overview()["datasets"]


def mention_budget(path: Path | None) -> None:
    """The sum, in a line."""
    if path is not None:
        screen.out.print(screen.plain(f"budget in {path}: {budget_of(path).verdict()}"), soft_wrap=True)
