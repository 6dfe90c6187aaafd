"""What several fits on the same records cost together, whichever estimators made them.

Every fit releases anew, so a record that was in all of them has been spoken of in all of them. Records are known again
by a digest under a key that is drawn when this process starts and that never leaves it; of each, only which events it
was in is remembered. Fits are chosen one after another, by somebody who has seen the models before: their sum is that
of a privacy filter (`privacy.filter`), at the last one's δ.

What is not known again: the same records in another order, with other columns or scaled otherwise, part of them, and
whatever another process fitted. A budget with a ledger (`Budget(epsilon, delta, path)`) adds all of it up.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import IntArray, Matrix
from sottovoce.errors import SpecError
from sottovoce.privacy.events import Event
from sottovoce.privacy.filter import one_after_another
from sottovoce.privacy.statement import RECORD, Group, PrivacyStatement, number

ROWS = 4096
"""Rows that are made ready for the digest at a time."""
SELDOM = 64
"""Where fewer than one number in so many is not 0, places are shorter than bits."""
_KEY = secrets.token_bytes(32)


@dataclass(frozen=True)
class Spent:
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
        which = f"all {self.fits} fits together" if self.fits > 1 else "the only fit on these records"
        if math.isinf(self.epsilon):
            return f"NOT PRIVATE: among {which} is one without noise."
        found = (
            f"(ε = {number(self.epsilon)}, δ = {self.delta:g})-differential privacy against '{self.adversary}' "
            f"({self.adjacency})."
        )
        if not self.kind:
            return f"{which[0].upper()}{which[1:]}: {found}"
        noise = "secret" if self.kind == "SIMULATION" else "exact"
        return f"{self.kind}: with {noise} noise {which} would have {found}"


@dataclass
class Records:
    """A data set that was fitted: in which events its records were, fit by fit.

    Attributes
    ----------
    histories : every sequence of events that some record was in
    which : the history of each record
    statements : of all fits
    """

    histories: list[tuple[Event, ...]]
    which: IntArray
    statements: list[PrivacyStatement]

    def add(self, statement: PrivacyStatement, owner: IntArray, held_out: IntArray | None = None) -> None:
        """One more fit, in which record r was node `owner[r]`'s, and some were held out of training."""
        groups = (*statement.groups, *statement.held_out)
        mine = _group_of(statement.groups)[owner]
        if held_out is not None:
            mine[held_out] = len(statement.groups) + _group_of(statement.held_out)[owner[held_out]]
        pairs, self.which = np.unique(self.which * len(groups) + mine, return_inverse=True)
        split = [divmod(pair, len(groups)) for pair in pairs.tolist()]
        self.histories = [(*self.histories[old], groups[new].event) for old, new in split]
        self.statements.append(statement)

    def spent(self) -> Spent:
        """What all fits cost together. Who is protected as a person is protected as a record, not the other way."""
        said, last = self.statements, self.statements[-1]
        units = {statement.adjacency for statement in said}
        kinds = {statement.kind for statement in said}
        return Spent(
            epsilon=max(one_after_another(history, last.delta) for history in set(self.histories)),
            delta=last.delta,
            adversary="', '".join(sorted({statement.adversary for statement in said})),
            adjacency=last.adjacency if len(units) == 1 else RECORD.adjacency,
            fits=len(said),
            kind=next((kind for kind in ("SIMULATION", "NOT HARDENED") if kind in kinds), ""),
        )


def _group_of(groups: Sequence[Group]) -> IntArray:
    """The number of every node's group."""
    found = {node: k for k, group in enumerate(groups) for node in group.nodes}
    return np.array([found[node] for node in range(len(found))], dtype=np.int64)


KNOWN: dict[bytes, Records] = {}
"""All that this process has fitted."""


_SILENT: list[None] = []


@contextmanager
def unpublished() -> Iterator[None]:
    """Fits and evaluations in here are let out by nobody: whoever lets something of them out accounts for it."""
    _SILENT.append(None)
    try:
        yield
    finally:
        _SILENT.pop()


Allow = Callable[[PrivacyStatement], None]


@contextmanager
def paying(
    budget: Any, what: str, X: Matrix, owner: IntArray, run: Any = None, held_out: bool = False
) -> Iterator[Allow | None]:
    """What asks a budget, if there is one, whether it allows a release that is about to be made, and pays for it."""
    if budget is None:
        yield None
        return
    from sottovoce.node.budget import Budget
    from sottovoce.node.spending import Paid

    if not isinstance(budget, Budget) or budget.path is None:
        raise SpecError("budget must be None or a Budget with a path for its ledger: Budget(epsilon, delta, path)")
    records, paid = Paid(X, owner, run, held_out), list[str]()
    yield lambda statement: paid.append(budget.pay(what, statement, records))
    for each in paid:
        budget.close(each)


def remember(name: bytes, statement: PrivacyStatement, owner: IntArray, held_out: IntArray | None = None) -> Spent:
    """Add a fit to those on the same records, and say what all of them cost together.

    A record that was held out of a fit has the event of its test, and not that of the training.

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
    if _SILENT:
        alone = Records([()], np.zeros(len(owner), dtype=np.int64), [])
        alone.add(statement, owner, held_out)
        return alone.spent()
    if name not in KNOWN:
        KNOWN[name] = Records([()], np.zeros(len(owner), dtype=np.int64), [])
    KNOWN[name].add(statement, owner, held_out)
    return KNOWN[name].spent()


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
    plain = y.astype(np.float64) if y.dtype.kind in "biuf" else y.astype(np.str_)
    found.update(np.ascontiguousarray(plain).tobytes())
    return found.digest()


def _bits(there: NDArray[np.bool_]) -> NDArray[Any]:
    """Which numbers are not 0, in few bytes: a bit for each, or their places where those are few."""
    return np.flatnonzero(there) if SELDOM * np.count_nonzero(there) < len(there) else np.packbits(there)


def _places(places: IntArray, of: Matrix) -> NDArray[Any]:
    """The same of those at the given places of some rows."""
    count = int(np.prod(of.shape))
    if SELDOM * len(places) < count:
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
