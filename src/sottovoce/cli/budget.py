"""`--budget PATH`: one ledger for what several commands, and Python, compute from the same records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce._types import IntArray, Matrix
from sottovoce.cli import screen
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec

Ledger = Annotated[
    Path | None, typer.Option("--budget", help="The ledger that this is paid from: see `sottovoce ledger budget`.")
]


@contextmanager
def paying(
    path: Path | None, what: str, spec: Spec, shards: Shards
) -> Iterator[Callable[[PrivacyStatement], None] | None]:
    """What asks the budget, if there is one, whether it allows a run, and pays for it before it is made."""
    if path is None:
        yield None
        return
    from sottovoce.node.spending import Paid  # ledgers are loaded by those who have one

    budget, records, paid = budget_of(path), Paid.of(spec, shards), list[str]()
    yield lambda statement: paid.append(budget.pay(what, statement, records))
    for each in paid:
        budget.close(each)


@contextmanager
def paid(path: Path | None, what: str, statement: PrivacyStatement, X: Matrix, owner: IntArray) -> Iterator[None]:
    """A release from held-out records, paid before it is made."""
    if path is None:
        yield
        return
    from sottovoce.node.spending import Paid

    budget = budget_of(path)
    run = budget.pay(what, statement, Paid(X, owner, held_out=True))
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
