"""Charge one budget for what this machine computes from a table of records, before anything is released.

A fit, an evaluation, a search or a run of the command is one payment: two rows of a ledger like a node's, written in
one transaction, in which it is also decided whether the budget allows it. So two processes cannot both spend what
suffices for one, and a recorded payment stays, whatever becomes of the run. Repeating a simulation, as when it resumes,
releases nothing new and is not charged twice.

All payments from a budget add up, whichever columns and scales they used, as if all concerned the same records: also an
evaluation of another file. Records that the caller declares disjoint from the others (`disjoint=True`, `--disjoint`)
have a sum of their own. Nothing checks the declaration: the sum would reveal the answer.
"""

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import FolderInUse, PrivacyError
from sottovoce.node.budget import HELD_OUT, Budget, Spending, budgets, check_affordable, opening
from sottovoce.node.ledger import Row
from sottovoce.node.store import FILE, Store
from sottovoce.privacy.events import Event
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.shards import Shards
from sottovoce.run.checkpoint import run_digest
from sottovoce.run.spec import Spec

ROWS = 4096
"""Rows that are made ready for their digests at a time."""
DIGITS = 5
"""To which numbers are rounded, in units of the largest of their row."""
WAIT = 60.0
"""Seconds for which a payment waits until another one is done."""


class Paid(NamedTuple):
    """The records that something is computed from, and what it is."""

    X: Matrix | None = None
    """All rows, by which the ledger knows equal tables again; None for evaluations, of which it keeps no marks."""
    owner: IntArray | None = None
    """Whose each row is, by the numbers of the statement's nodes."""
    run: tuple[Spec, Shards] | None = None
    """A run that a seed makes again, and its data; None for what is new every time."""
    held_out: bool = False
    """Whether these records were declared to be no part of those that are trained on."""

    @classmethod
    def of(cls, spec: Spec, shards: Shards, records: Shards) -> "Paid":
        """A run on some shards, of all that these records are."""
        owner = np.empty(records.X.shape[0], dtype=np.int64)
        for node in range(records.n):
            owner[records.rows(node)] = node
        return cls(records.X, owner, (spec, shards))


def pay(budget: Budget, what: str, statement: PrivacyStatement, records: Paid, check: bool = False) -> str:
    """Write a payment down, unless it would pass the budget, or was made before; see `Budget.pay`."""
    with opened(budget) as store:
        run = _named(store.secret, records)
        dataset = budget.dataset + HELD_OUT * records.held_out
        groups = (*statement.groups, *statement.held_out)
        if records.X is None or records.owner is None:
            marks = {node: secrets.token_hex(32) for group in groups for node in group.nodes}
        else:
            marks = owners_marks(store.secret, records.X, records.owner)
        whole = _joined(store.secret, marks)
        worst = max(groups, key=lambda group: group.epsilon).event
        each = _each(statement, marks)
        adversary = ADVERSARIES.read(statement.adversary)
        with store.transaction():
            if store.ledger.has("open", run):
                return run
            rows = _limited(store.rows(), budget, dataset)
            new = Spending.planned(run, dataset, whole, worst, adversary, statement.adjacency, each, what)
            check_affordable(rows, new)
            if check:
                return run
            detail = opening(what, "", dataset, whole, worst, adversary, statement.adjacency, messages=1)
            detail |= {"simulation": statement.simulation}
            if each:
                detail["each"] = [{"owner": owner, "event": event.to_dict()} for owner, event in each]
            store.ledger.append("open", run, detail=detail)
            store.ledger.append("release", run, 1)
    return run


def close(budget: Budget, run: str) -> None:
    """What was paid for is done; what never is stays paid."""
    with opened(budget) as store, store.transaction():
        if not store.ledger.has("close", run):
            store.ledger.append("close", run)


@contextmanager
def opened(budget: Budget) -> Iterator[Store]:
    """The ledger of a budget, for one process at a time, with its limit in it."""
    if budget.path is None:
        raise PrivacyError("a budget that pays has a path for its ledger; give one: Budget(epsilon, delta, path)")
    folder = Path(budget.path)
    if budget.epsilon is None and not (folder / FILE).exists():
        raise PrivacyError(
            f"there is no ledger in '{folder}'; set a budget first: sottovoce ledger budget {folder} --epsilon … "
            "--delta …"
        )
    until = time.monotonic() + WAIT
    while True:
        try:
            store = Store(folder)
            break
        except FolderInUse:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
    try:
        _settle(store, budget)
        yield store
    finally:
        store.close()


def _settle(store: Store, budget: Budget) -> None:
    """The limit that was given is the ledger's, or becomes it."""
    there = budgets(store.rows()).get(budget.dataset)
    if there is None and budget.epsilon is None:
        raise PrivacyError(
            f"the owner has set no budget for data set '{budget.dataset}'; set one first: sottovoce ledger budget "
            f"{store.path} --epsilon … --delta …"
        )
    if there is None:
        store.set_budget(budget.detail(budget.dataset))
    elif budget.epsilon is not None and (there.epsilon, there.delta) != (budget.epsilon, budget.delta):
        raise PrivacyError(
            f"the ledger in '{store.path}' has a budget of ε = {there.epsilon:g} at δ = {there.delta:g} for data set "
            f"'{budget.dataset}', and ε = {budget.epsilon:g} at δ = {budget.delta:g} was given; give the same, or "
            f"change it: sottovoce ledger budget {store.path} --epsilon … --delta …"
        )


def _limited(rows: list[Row], budget: Budget, dataset: str) -> list[Row]:
    """The rows, with the limit of the whole for its held-out share."""
    limits = budgets(rows)
    if dataset in limits:
        return rows
    return [*rows, Row(len(rows) + 1, "budget", "", 0, "", limits[budget.dataset].detail(dataset), b"")]


def _named(secret: bytes, records: Paid) -> str:
    """By which the ledger knows a run: again if a seed makes it again, and else never."""
    if records.run is None or records.run[0].seed is None:
        return secrets.token_hex(32)
    return run_digest(*records.run, key=secret)


def _each(statement: PrivacyStatement, marks: dict[int, str]) -> tuple[tuple[str, Event], ...]:
    """(owner, event), where there are several events."""
    groups = (*statement.groups, *statement.held_out)
    if len({group.event for group in groups}) == 1:
        return ()
    return tuple((marks[node], group.event) for group in groups for node in group.nodes if node in marks)


def owners_marks(secret: bytes, X: Matrix, owner: IntArray) -> dict[int, str]:
    """By which the folder knows each owner's rows again, in whatever order they come: of no use without its secret.

    Rows count by their direction, so that they are the same before and after they were brought to a bound.

    Examples
    --------
    >>> X, owner = np.eye(4) + 0.1, np.array([0, 0, 1, 1])
    >>> one = owners_marks(bytes(32), X, owner)
    >>> turned = owners_marks(bytes(32), X[::-1] / 3, owner[::-1])
    >>> one == turned, one[0] != one[1], one == owners_marks(bytes(32), scipy.sparse.csr_array(X), owner)
    (True, True, True)
    """
    totals: dict[int, int] = {}
    for first in range(0, X.shape[0], ROWS):
        some = scipy.sparse.csr_array(X[first : first + ROWS])
        some.sum_duplicates()
        some.data = np.round(some.data.astype(np.float64) / _largest(some), DIGITS)
        some.eliminate_zeros()
        columns, values = some.indices.astype("<i8"), some.data.astype("<f8")
        starts, whose = some.indptr.tolist(), owner[first : first + ROWS].tolist()
        for row, node in enumerate(whose):
            at = slice(starts[row], starts[row + 1])
            found = hashlib.blake2b(columns[at].tobytes(), key=secret, person=b"record", digest_size=32)
            found.update(values[at].tobytes())
            totals[node] = totals.get(node, 0) + int.from_bytes(found.digest(), "little")
    return {node: (total % (1 << 256)).to_bytes(32, "little").hex() for node, total in sorted(totals.items())}


def _largest(rows: Any) -> Array:
    """The largest number of its row, for each stored one."""
    counts = np.diff(rows.indptr)
    found = np.ones(len(counts))
    filled = np.flatnonzero(counts)
    if filled.size:
        sizes = np.abs(rows.data.astype(np.float64))
        found[filled] = np.maximum.reduceat(sizes, rows.indptr[filled])
    return np.repeat(np.where(found > 0, found, 1.0), counts)


def _joined(secret: bytes, marks: dict[int, str]) -> str:
    """A digest of all records of all owners: a sum of sums."""
    total = sum(int.from_bytes(bytes.fromhex(mark), "little") for mark in marks.values()) % (1 << 256)
    return hashlib.blake2b(total.to_bytes(32, "little"), key=secret, person=b"records", digest_size=32).hexdigest()
