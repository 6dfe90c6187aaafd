"""The total cost of all fits and evaluations of this process on the same records.

Every fit is a new release, and each fit may depend on the earlier models. So their
sum is that of a privacy filter (`privacy.filter`), at the δ of the last one. Records are recognized by a digest under a
key that is drawn when the process starts and never leaves it; of each record only its events are remembered.

Simulations and real fits have separate sums: a seed makes a simulation, which guarantees nothing. A sum is against one
adversary, the strongest of all; a fit against a weaker one is accounted for the strongest one again, and where that is
not possible there is no sum (ε is infinite).

Recognition is best effort. Not recognized: the same records in another order, with other columns or another scale, a
part of them, and what another process has fitted. A budget with a ledger (`Budget(epsilon, delta, path)`) adds
everything up.
"""

import hashlib
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import IntArray, Matrix
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.estimators.unusable import text_of
from sottovoce.privacy.events import Event
from sottovoce.privacy.filter import Observer, any_of_each, observer, release_against, strongest
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import PERSON, RECORD, Group, PrivacyStatement, number
from sottovoce.run.result import Result

ROWS = 4096
"""Rows that are made ready for the digest at a time."""
SPARSE_BELOW = 64
"""Where fewer than one number in so many is not 0, places are shorter than bits."""
_KEY = secrets.token_bytes(32)


@dataclass(frozen=True)
class TotalSpent:
    """The guarantee of all fits together, for a record that was in every one of them."""

    epsilon: float
    delta: float
    adversary: str
    adjacency: str
    fits: int
    kind: str = ""
    """SIMULATION or NOT HARDENED, where one of them was; see `PrivacyStatement.kind`."""

    def verdict(self) -> str:
        """One line."""
        several = self.fits > 1
        if "', '" in self.adversary:
            return (
                f"NO SUM IS KNOWN of all {self.fits} fits together: they are against '{self.adversary}', and what each "
                "of them costs against one and the same adversary is not known; fit with the same trust."
            )
        which = f"all {self.fits} fits together" if several else "this fit (no other fit recognized in this process)"
        if math.isinf(self.epsilon):
            which = which if several else "the fits recognized in this process"
            return f"NOT PRIVATE: among {which} is one without noise."
        found = (
            f"(ε = {number(self.epsilon)}, δ = {self.delta:g})-differential privacy against '{self.adversary}' "
            f"({self.adjacency})."
        )
        if not self.kind:
            return f"{which[0].upper()}{which[1:]}: {found}"
        noise = "secret" if self.kind == "SIMULATION" else "exact"
        return f"{self.kind}: with {noise} noise {which} would have {found}"


Accounted = Callable[[Observer], Sequence[Event]]
"""The events of all nodes against another adversary; raises an error where these are not known."""


class Fit(NamedTuple):
    """A fit, or an evaluation, that is remembered."""

    statement: PrivacyStatement
    against: Accounted | None = None
    """What it costs against a stronger adversary."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups of nodes, those of held-out records last."""
        return (*self.statement.groups, *self.statement.held_out)

    @property
    def observer(self) -> Observer:
        """The adversary of its statement."""
        adversary = ADVERSARIES.read(self.statement.adversary)
        return observer(adversary, [group.event for group in self.statement.groups])

    def events(self, target: Observer) -> list[tuple[Event, ...]] | None:
        """The possible events of a record of each group against an adversary; None where they are not known."""
        if self.observer == target:
            return [(group.event,) for group in self.groups]
        if self.against is None or self.statement.held_out:
            return None
        try:
            each = self.against(target)
        except PrivacyError:
            return None
        return [tuple(dict.fromkeys(each[node] for node in group.nodes)) for group in self.groups]


@dataclass
class Records:
    """A data set that was fitted: in which groups of nodes its records were, fit by fit.

    Attributes
    ----------
    histories : every sequence of groups that some record was in
    which : the history of each record
    fits : all of them
    """

    which: IntArray
    histories: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    fits: list[Fit] = field(default_factory=list)

    def add(self, fit: Fit, owner: IntArray, held_out: IntArray | None = None) -> None:
        """One more fit, in which record r was node `owner[r]`'s, and some were held out of training."""
        statement, count = fit.statement, len(fit.groups)
        mine = _group_of(statement.groups)[owner]
        if held_out is not None:
            mine[held_out] = len(statement.groups) + _group_of(statement.held_out)[owner[held_out]]
        pairs, self.which = np.unique(self.which * count + mine, return_inverse=True)
        split = [divmod(pair, count) for pair in pairs.tolist()]
        self.histories = [(*self.histories[old], new) for old, new in split]
        self.fits.append(fit)

    def snapshot(self) -> "Records":
        """A copy that other threads do not change."""
        return Records(self.which, list(self.histories), list(self.fits))

    def spent(self) -> TotalSpent:
        """The cost of all fits together. A person is protected as a record, too, but not the other way."""
        statements, last = [fit.statement for fit in self.fits], self.fits[-1].statement
        units = {statement.adjacency for statement in statements}
        kinds = {statement.kind for statement in statements}
        epsilon, adversary = self._sum(last.delta)
        return TotalSpent(
            epsilon=epsilon,
            delta=last.delta,
            adversary=adversary,
            adjacency=last.adjacency if len(units) == 1 else RECORD.adjacency,
            fits=len(statements),
            kind=next((kind for kind in ("SIMULATION", "NOT HARDENED") if kind in kinds), ""),
        )

    def _sum(self, delta: float) -> tuple[float, str]:
        """ε of all fits at δ, and the one adversary that it is against; several, and an infinite ε, if there is none.

        The names are the statements' own, so that a sum of equal fits reads as each of them does.
        """
        target, names = (
            strongest([fit.observer for fit in self.fits]),
            sorted({f.statement.adversary for f in self.fits}),
        )
        listed = [None if target is None else fit.events(target) for fit in self.fits]
        events = [each for each in listed if each is not None]
        if target is None or len(events) < len(listed):
            return math.inf, "', '".join(names)
        sums = {tuple(some[group] for some, group in zip(events, past, strict=True)) for past in self.histories}
        return max(any_of_each(one, delta) for one in sums), names[0] if len(names) == 1 else str(target)


def _group_of(groups: Sequence[Group]) -> IntArray:
    """The number of every node's group."""
    found = {node: k for k, group in enumerate(groups) for node in group.nodes}
    return np.array([found[node] for node in range(len(found))], dtype=np.int64)


KNOWN: dict[tuple[bytes, bool], Records] = {}
"""All that this process has fitted: by the digest of the records, and whether a seed made it a simulation."""
_LOCK = threading.Lock()
_UNPUBLISHED: ContextVar[bool] = ContextVar("unpublished", default=False)
"""Of a thread, or a task: a search in one of them does not keep the fits of another one from being counted."""


@contextmanager
def unpublished() -> Iterator[None]:
    """Do not count the fits and evaluations of this context: the caller accounts for those that it publishes."""
    before = _UNPUBLISHED.set(True)
    try:
        yield
    finally:
        _UNPUBLISHED.reset(before)


def is_unpublished() -> bool:
    """Whether the fits of this context are not counted, since a caller accounts for them."""
    return _UNPUBLISHED.get()


def fits_of(name: bytes, simulation: bool) -> int:
    """The number of fits and evaluations that are recognized of some records."""
    with _LOCK:
        known = KNOWN.get((name, simulation))
        return 0 if known is None else len(known.fits)


Allow = Callable[[PrivacyStatement], None]


@contextmanager
def charge_budget(
    budget: Any,
    what: str,
    X: Matrix | None = None,
    owner: IntArray | None = None,
    run: Any = None,
    held_out: bool = False,
) -> Iterator[Allow | None]:
    """Return a check that charges the budget for a release before it is made, or refuses it; None without a budget.

    Without `X` no records are recognized, as in an evaluation; see `sottovoce.node.budget_entries.Paid`.
    """
    if budget is None:
        yield None
        return
    from sottovoce.node.budget import Budget
    from sottovoce.node.budget_entries import Paid

    if not isinstance(budget, Budget) or budget.path is None:
        raise SpecError("budget must be None or a Budget with a path for its ledger: Budget(epsilon, delta, path)")
    records, paid = Paid(X, owner, run, held_out), list[str]()
    yield lambda statement: paid.append(budget.pay(what, statement, records))
    for each in paid:
        budget.close(each)


def remember(
    name: bytes,
    statement: PrivacyStatement,
    owner: IntArray,
    held_out: IntArray | None = None,
    against: Accounted | None = None,
) -> TotalSpent:
    """Count a fit, and return what all fits on the same records cost together.

    A record that was held out of a fit has the event of its test, and not that of the training.

    Parameters
    ----------
    name : the digest of the records
    statement : the guarantee of the fit
    owner : the node of each record
    held_out : the records that were not trained on
    against : the events of all nodes against a stronger adversary, where these can be known

    Examples
    --------
    >>> from sottovoce import PrivateClassifier
    >>> X, y = np.eye(100), np.arange(100) % 2
    >>> settings = {"row_norm": 1.0, "classes": [0, 1], "random_state": 0}
    >>> model = PrivateClassifier(1.0, **settings).fit(X, y)
    >>> model.spent_.epsilon == model.privacy_.epsilon
    True
    >>> print(PrivateClassifier(1.0, **settings).fit(X, y).spent_.verdict())
    SIMULATION: with secret noise all 2 fits together would have (ε = 1.47, δ = 1e-05)-differential privacy against ...
    """
    new, blank = Fit(statement, against), Records(np.zeros(len(owner), dtype=np.int64))
    if _UNPUBLISHED.get():
        blank.add(new, owner, held_out)
        return blank.spent()
    with _LOCK:
        records = KNOWN.setdefault((name, statement.simulation), blank)
        records.add(new, owner, held_out)
        now = records.snapshot()
    return now.spent()


def recomputed(result: Result) -> Accounted:
    """The events of a run against other adversaries, from its spec and its public numbers."""

    def events(target: Observer) -> Sequence[Event]:
        from sottovoce.run.verify import again  # only loaded for fits against several adversaries

        plan = again(result.spec, result.public, people=result.statement.unit == PERSON.name)
        spoken, turns = plan.spoken, plan.schedule.turns
        return release_against(plan.release, target).events(plan.problem.sizes, spoken, turns)

    return events


def digest(X: Matrix, y: NDArray[Any]) -> bytes:
    """By which records are known again, dense or sparse, in single or double precision: of no use without the key.

    Examples
    --------
    >>> X, y = np.eye(3), np.arange(3)
    >>> digest(X, y) == digest(scipy.sparse.csr_array(X.astype(np.float32)), y.astype(float)) != digest(X, y[::-1])
    True
    """
    found = hashlib.blake2b(repr(X.shape).encode(), key=_KEY, digest_size=32)
    columns = int(X.shape[1])
    for first in range(0, X.shape[0], ROWS):
        some = X[first : first + ROWS]
        if scipy.sparse.issparse(some):
            some = scipy.sparse.csr_array(some, copy=True)
            some.sum_duplicates()
            some.eliminate_zeros()
            where = _places(np.repeat(np.arange(some.shape[0]), np.diff(some.indptr)) * columns + some.indices, some)
            values = some.data
        else:
            flat = np.ravel(some)
            there = flat != 0
            where = _bits(there)
            values = flat if there.all() else flat[there]
        for part in (where, _shortest(values)):
            found.update(f"{part.dtype} {len(part)} ".encode())
            found.update(np.ascontiguousarray(part).data)
    plain = y.astype(np.float64) if y.dtype.kind in "biuf" else np.array([text_of(value) for value in y.tolist()])
    found.update(np.ascontiguousarray(plain).tobytes())
    return found.digest()


def _bits(there: NDArray[np.bool_]) -> NDArray[Any]:
    """Which numbers are not 0, in few bytes: a bit for each, or their places where those are few."""
    return np.flatnonzero(there) if SPARSE_BELOW * np.count_nonzero(there) < len(there) else np.packbits(there)


def _places(places: IntArray, of: Matrix) -> NDArray[Any]:
    """The same of those at the given places of some rows."""
    count = int(np.prod(of.shape))
    if SPARSE_BELOW * len(places) < count:
        return places.astype(np.int64, copy=False)
    there = np.zeros(count, dtype=np.bool_)
    there[places] = True
    return np.packbits(there)


def _shortest(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in single precision if that is what they are, in whatever they are kept."""
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values.astype(np.float64, copy=False)
