"""What this machine computes from a table of records, paid from one budget before anything of it is let out.

A fit, an evaluation, a search or a run of the command is one payment: two rows of a ledger like a node's, written in
one transaction, in which it is also decided whether the budget allows it. So two processes cannot both take what is
enough for one, and what was written down stays paid, whatever becomes of the run. A simulation that is made again, as
when it is resumed, says nothing new, and is not paid twice.

Everything that is paid from a budget adds up, whichever columns and scales it used, as if all of it were about the same
records; but for records that were only held out for a test, which have a sum of their own. Whether those were trained
on, too, is told by a keyed sum over rows, which knows them in any order and, up to rounding, in any unit of length; and
of a part of them by a sample of their digests (`same_rows`): then both count together.
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
from sottovoce.node.budget import HELD_OUT, Budget, budgets, opening, refuse_unless_affordable
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
SAMPLE = 256
"""Rows whose digests are kept of a payment: those with the least ones."""
WIDTH = 8
"""Bytes of each."""
SAME = 0.5
"""The share of rows that one of two tables has from the other, from which on it counts as part of it."""
WAIT = 60.0
"""Seconds for which a payment waits until another one is done."""


class Paid(NamedTuple):
    """The records that something is computed from, and what it is."""

    X: Matrix
    owner: IntArray
    """Whose each row is, by the numbers of the statement's nodes."""
    run: tuple[Spec, Shards] | None = None
    """A run that a seed makes again, and its data; None for what is new every time."""
    held_out: bool = False
    """Whether these records were held out of training."""

    @classmethod
    def of(cls, spec: Spec, shards: Shards) -> "Paid":
        """All records of a run."""
        owner = np.empty(shards.X.shape[0], dtype=np.int64)
        for node in range(shards.n):
            owner[shards.rows(node)] = node
        return cls(shards.X, owner, (spec, shards))


def pay(budget: Budget, what: str, statement: PrivacyStatement, records: Paid, check: bool = False) -> str:
    """Write a payment down, unless it would pass the budget, or was made before; see `Budget.pay`."""
    with opened(budget) as store:
        run = _named(store.secret, records)
        marks, sample = _marked(store.secret, records.X, records.owner)
        whole, dataset = _joined(store.secret, marks), budget.dataset + HELD_OUT * records.held_out
        other = budget.dataset + HELD_OUT * (not records.held_out)
        worst = max((*statement.groups, *statement.held_out), key=lambda group: group.epsilon).event
        each = _each(statement, marks)
        adversary = ADVERSARIES.read(statement.adversary)
        with store.transaction():
            if store.ledger.has("open", run):
                return run
            rows = _limited(store.rows(), budget, dataset)
            whole = _known_again(store.secret, rows, other, sample) or whole
            refuse_unless_affordable(rows, dataset, whole, worst, adversary, run, statement.adjacency, each, what)
            if check:
                return run
            detail = opening(what, "", dataset, whole, worst, adversary, statement.adjacency, messages=1)
            detail |= {"simulation": statement.simulation, "sample": sealed(store.secret, run, sample)}
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
    return _marked(secret, X, owner)[0]


def _marked(secret: bytes, X: Matrix, owner: IntArray) -> tuple[dict[int, str], list[str]]:
    """Marks of the owners' rows, and the least digests of all rows, in order."""
    totals: dict[int, int] = {}
    least: list[str] = []
    for first in range(0, X.shape[0], ROWS):
        some = scipy.sparse.csr_array(X[first : first + ROWS])
        some.sum_duplicates()
        some.data = np.round(some.data.astype(np.float64) / _largest(some), DIGITS)
        some.eliminate_zeros()
        columns, values = some.indices.astype("<i8"), some.data.astype("<f8")
        starts, whose = some.indptr.tolist(), owner[first : first + ROWS].tolist()
        digests = set(least)
        for row, node in enumerate(whose):
            at = slice(starts[row], starts[row + 1])
            found = hashlib.blake2b(columns[at].tobytes(), key=secret, person=b"record", digest_size=32)
            found.update(values[at].tobytes())
            totals[node] = totals.get(node, 0) + int.from_bytes(found.digest(), "little")
            digests.add(found.digest()[:WIDTH].hex())
        least = sorted(digests)[:SAMPLE]
    return {node: (total % (1 << 256)).to_bytes(32, "little").hex() for node, total in sorted(totals.items())}, least


def same_rows(one: list[str], other: list[str]) -> bool:
    """Whether one of two tables seems to be part of the other, by the least digests of the rows of both.

    Up to the digest where the shorter sample ends, both samples have all rows of their tables. A part that is far
    smaller than the other table, a hundredth of it, may have none of them there, and is not known again.

    Examples
    --------
    >>> all_of_them = [f"{number:016x}" for number in range(0, 4 * SAMPLE)]
    >>> same_rows(all_of_them[:SAMPLE], all_of_them[::3][:SAMPLE]), same_rows(all_of_them[::2], all_of_them[1::2])
    (True, False)
    """
    ends = [some[-1] for some in (one, other) if len(some) >= SAMPLE]
    mine, theirs = ({each for each in some if not ends or each <= min(ends)} for some in (one, other))
    return len(mine & theirs) > SAME * min(len(mine), len(theirs))


def sealed(secret: bytes, run: str, sample: list[str]) -> str:
    """A sample for the ledger, always as long: whoever keeps an export does not see how many rows are equal.

    Examples
    --------
    >>> sample = ["00" * 8, "ab" * 8]
    >>> text = sealed(bytes(32), "run", sample)
    >>> opened_sample(bytes(32), "run", text) == sample, len(text) == len(sealed(bytes(32), "run", []))
    (True, True)
    """
    plain = bytes.fromhex("".join(sample)).ljust(WIDTH * SAMPLE, b"\xff")
    return bytes(a ^ b for a, b in zip(plain, _pad(secret, run), strict=True)).hex()


def opened_sample(secret: bytes, run: str, text: str) -> list[str]:
    """`sealed` read back."""
    plain = bytes(a ^ b for a, b in zip(bytes.fromhex(text), _pad(secret, run), strict=True)).hex()
    found = [plain[at : at + 2 * WIDTH] for at in range(0, len(plain), 2 * WIDTH)]
    return [each for each in found if each != "ff" * WIDTH]


def _pad(secret: bytes, run: str) -> bytes:
    """Used once: a run is paid once."""
    return hashlib.shake_256(b"sample" + secret + run.encode()).digest(WIDTH * SAMPLE)


def _known_again(secret: bytes, rows: list[Row], dataset: str, sample: list[str]) -> str | None:
    """The fingerprint of the first payment for a data set that these rows seem to have been in."""
    for row in rows:
        if row.kind == "open" and row.detail.get("dataset") == dataset and "sample" in row.detail:
            if same_rows(sample, opened_sample(secret, row.run, row.detail["sample"])):
                return str(row.detail["fingerprint"])
    return None


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
    """Of all records, whoever's: a sum of sums."""
    total = sum(int.from_bytes(bytes.fromhex(mark), "little") for mark in marks.values()) % (1 << 256)
    return hashlib.blake2b(total.to_bytes(32, "little"), key=secret, person=b"records", digest_size=32).hexdigest()
