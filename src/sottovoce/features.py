"""Public maps of columns: what an additive model is a linear model of.

A map needs public numbers alone: which columns are numeric, between which bounds they lie, how many functions each gets
and how fast their weights decay. It reads no statistic of the records, so it costs no privacy budget.

A numeric column with the value v and public bounds [l, h] becomes t = (2v − l − h)/(h − l), clipped to [−1, 1], and

    legendre(K, a)   t, P₂(t)/2ᵃ, …, P_K(t)/Kᵃ        P_k: the Legendre polynomial of degree k
    cosine(K, a)     t, cos(πu)/1ᵃ, …, cos(πKu)/Kᵃ      u = (1 + t)/2

Where the column's distribution function F is known (a private release, `run.distribution`), it is used in one of two
ways: 2F − 1 is one more function (`distribution`), or u is the mean of (1 + t)/2 and F. All other columns, such as
indicators of categories, stay as they are. Pairs of numeric columns add the products w P_a(t_i) P_b(t_j)/(a b)
for a, b ≤ 3.

*The norm is bounded by construction.* |t|, |P_k(t)|, |cos| and |2F − 1| are at most 1. So to the square of a row's norm
a numeric column adds at most Σ k^(−2a), and 1 for each of t (in `cosine`) and F. A pair adds at most
w² (1 + 1/4 + 1/9)². The other columns are scaled down to their own public bound `rest`, each row by itself. The square
root of the sum, `norm`, bounds every row, whatever it holds. It is attained at a corner of the box for Legendre
polynomials, since P_k(±1) = (±1)^k. ∎

Why the weights decay: noise is the same in all directions of the feature space, so that the noise in a score is in
proportion to the norm of φ(x). With decaying weights that norm hardly grows with the number of functions, and rough
functions are penalized more than smooth ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import is_sparse, row_norms
from sottovoce.registry import Choices, write

MAX_DEGREE = 32
"""Functions of one column, at most."""
PAIR_ORDER, PAIR_WEIGHT = 3, 0.6
"""Functions of each column in a product of two, and the weight of all products."""
CELLS = 32
"""Cells in which the values of a column are counted for its distribution function."""
EDGES = np.concatenate([e := 0.5 * (np.arange(CELLS // 2 + 1) / (CELLS // 2)) ** 2, 1.0 - e[-2::-1]])
"""Their ends in units of the column's bounds: finer towards both bounds, where skewed columns have their values."""
CENTERS = (EDGES[1:] + EDGES[:-1]) / 2.0
DENSE_CELLS = 1 << 27
"""Cells of sparse records, at most, that are stored densely: then storage makes no difference to the model."""
BLOCK = 1 << 20
"""Numbers that are expanded at a time."""
Distributions = Sequence[Sequence[float]]
"""F of each numeric column at the centers of its cells."""


@dataclass(frozen=True)
class Linear:
    """Columns as they are; false, since nothing is to be done."""

    def __bool__(self) -> bool:
        """Whether rows are mapped."""
        return False

    def __str__(self) -> str:
        """In a spec."""
        return "linear"

    @property
    def words(self) -> str:
        """In a statement: there is nothing to say."""
        return ""


LINEAR = Linear()


@dataclass(frozen=True)
class Additive:
    """Functions of numeric columns beside all other columns.

    Expanded rows hold t of every numeric column, then the other columns in their order, then 2F − 1 of every numeric
    column if `distribution`, then the further functions of the first numeric column, of the second, and so on, then
    the products of pairs.

    Attributes
    ----------
    columns : columns of a row before the map
    numeric : (place, low, high) of every numeric column
    rest : public bound on the norm of the other columns together; longer ones are scaled down
    basis : 'legendre' or 'cosine'
    degree, decay : K and a
    distribution : whether F of every numeric column is a feature; if not, cosines are of the mean of u and F
    pairs : pairs of numeric columns, by their places among `numeric`

    Examples
    --------
    >>> additive = Additive(columns=2, numeric=((0, 0.0, 120.0),), rest=1.0, degree=3)
    >>> additive.rows(np.array([[120.0, 1.0], [60.0, 0.0]])).round(3)
    array([[ 1.   ,  1.   ,  0.5  ,  0.333],
           [ 0.   ,  0.   , -0.25 , -0.   ]])
    >>> round(additive.norm, 3), ADDITIVE_OR_LINEAR.read(str(additive)) == additive
    (1.537, True)
    """

    columns: int
    numeric: tuple[tuple[int, float, float], ...]
    rest: float = 0.0
    basis: str = "legendre"
    degree: int = 8
    decay: float = 1.0
    distribution: bool = False
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Columns that are there, bounds that bound, numbers within reach."""
        places = [place for place, _, _ in self.numeric]
        if not self.numeric or len(set(places)) < len(places) or not 0 <= min(places) <= max(places) < self.columns:
            raise SpecError(f"an additive model needs numeric columns, each one of the {self.columns} and named once")
        for place, low, high in self.numeric:
            if not -math.inf < low < high < math.inf or math.isinf(high - low):
                raise SpecError(f"numeric column {place + 1} needs finite bounds low < high, not ({low:g}, {high:g})")
        if self.basis not in ("legendre", "cosine"):
            raise SpecError(f"the functions of a column are 'legendre' or 'cosine', not {self.basis!r}")
        if not 1 <= self.degree <= MAX_DEGREE or not 0 <= self.decay <= 4:
            raise SpecError(f"a column has 1 to {MAX_DEGREE} functions with a decay from 0 to 4")
        if not 0 <= self.rest < math.inf or (self.rest == 0) != (len(places) == self.columns):
            raise SpecError("the columns that are not numeric need a public bound on their norm, finite and over 0")
        if any(not 0 <= i < j < len(places) for i, j in self.pairs) or len(set(self.pairs)) < len(self.pairs):
            raise SpecError("pairs are of two different numeric columns, each pair named once")

    def __str__(self) -> str:
        """In a spec."""
        pairs = {"pairs": "+".join(f"{i}x{j}" for i, j in self.pairs)} if self.pairs else {}
        bounds = [number for each in self.numeric for number in each]
        head = (self.degree, self.decay, int(self.distribution), self.columns, self.rest)
        return write(self.basis, *head, *bounds, **pairs)

    @property
    def words(self) -> str:
        """In a statement."""
        if self.degree == 1 and self.basis == "legendre":
            found = f"{self.d} numeric columns brought to [−1, 1] by their bounds"
        else:
            kind = "Legendre polynomials" if self.basis == "legendre" else "cosines"
            found = f"{self.degree} {kind} with weights k^−{self.decay:g} of each of {self.d} numeric columns"
        pairs = f", products of {len(self.pairs)} pairs" if self.pairs else ""
        others = f", beside {len(self.others)} other columns of norm {self.rest:g} at most" if self.others else ""
        return found + pairs + others

    @property
    def d(self) -> int:
        """How many numeric columns there are."""
        return len(self.numeric)

    @cached_property
    def others(self) -> list[int]:
        """Places of all other columns."""
        places = {place for place, _, _ in self.numeric}
        return [place for place in range(self.columns) if place not in places]

    @property
    def orders(self) -> range:
        """k of the functions beside t."""
        return range(2 if self.basis == "legendre" else 1, self.degree + 1)

    @property
    def weights(self) -> Array:
        """What each function beside t is multiplied by: k^−a."""
        return np.array([float(k) ** -self.decay for k in self.orders])

    @property
    def first(self) -> int:
        """Where the columns begin that are computed from t."""
        return self.columns

    @property
    def width(self) -> int:
        """Columns of an expanded row."""
        return self.columns + self.d * (self.distribution + len(self.orders)) + PAIR_ORDER**2 * len(self.pairs)

    @cached_property
    def norm(self) -> float:
        """The norm that no expanded row exceeds; see the module for the proof."""
        column = 1.0 + self.distribution + float(np.sum(np.square(self.weights)))
        product = PAIR_WEIGHT**2 * sum(k**-2.0 for k in range(1, PAIR_ORDER + 1)) ** 2
        return math.sqrt(self.d * column + len(self.pairs) * product + self.rest**2)

    def features_of(self, j: int) -> list[int]:
        """Which features are functions of the numeric column j alone."""
        begin = self.columns + self.d * self.distribution + j * len(self.orders)
        own = [j] + ([self.columns + j] if self.distribution else [])
        return [*own, *range(begin, begin + len(self.orders))]

    def features_of_pair(self, p: int) -> list[int]:
        """Which features are products of the pair p."""
        begin = self.width - PAIR_ORDER**2 * (len(self.pairs) - p)
        return [*range(begin, begin + PAIR_ORDER**2)]

    def feature_of(self, place: int) -> int:
        """Which feature another column is."""
        return self.d + self.others.index(place)

    def names(self, columns: Sequence[str] | None = None) -> tuple[str, ...]:
        """Names of the features, from those of the columns."""
        named = [f"column {k + 1}" for k in range(self.columns)] if columns is None else [str(name) for name in columns]
        lines, short = [named[place] for place, _, _ in self.numeric], "P" if self.basis == "legendre" else "cos"
        found = [*lines, *(named[place] for place in self.others)]
        found += [f"{name} [F]" for name in lines] if self.distribution else []
        found += [f"{name} [{short}{k}]" for name in lines for k in self.orders]
        steps = range(1, PAIR_ORDER + 1)
        found += [f"{lines[i]} [P{a}] × {lines[j]} [P{b}]" for i, j in self.pairs for a in steps for b in steps]
        return tuple(found)

    def lines(self, X: Matrix) -> Array:
        """t of every numeric column: within [−1, 1]; a value that is not a number counts as the middle."""
        found = np.empty((X.shape[0], self.d))
        for j, (place, low, high) in enumerate(self.numeric):
            values = X[:, [place]].toarray()[:, 0] if is_sparse(X) else X[:, place]
            middle, half = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
            found[:, j] = (np.clip(values.astype(np.float64), low, high) - middle) / half
        return np.clip(np.nan_to_num(found, copy=False, nan=0.0), -1.0, 1.0)

    def rows(self, X: Matrix, distributions: Distributions | None = None) -> Array:
        """Expanded rows, each from its own record and public numbers alone; dense.

        Parameters
        ----------
        X : (records, columns)
        distributions : F of every numeric column at the centers of its cells; None for F(x) = x
        """
        if X.shape[1] != self.columns:
            raise DataError(f"the model has {self.columns} columns, but these records have {X.shape[1]}")
        out = np.empty((X.shape[0], self.width))
        step = max(1, BLOCK // self.width)
        for begin in range(0, len(out), step):
            part, some = out[begin : begin + step], X[begin : begin + step]
            part[:, : self.d] = t = self.lines(some)
            if self.others:
                other = some[:, self.others]
                other = np.array(other.toarray() if is_sparse(other) else other, dtype=np.float64)
                norms = row_norms(other)
                other *= np.where(norms > self.rest, self.rest / np.maximum(norms, self.rest), 1.0)[:, None]
                part[:, self.d : self.columns] = other
            self.fill(part, t, distributions)
        return out

    def fill(self, out: Array, t: Array, distributions: Distributions | None = None) -> None:
        """Write everything that is computed from t into expanded rows."""
        place = self.columns
        u = (1.0 + t) / 2.0
        if distributions is not None:
            F = np.column_stack([np.interp(u[:, j], CENTERS, F) for j, F in enumerate(distributions)])
        else:
            F = u
        if self.distribution:
            out[:, place : place + self.d] = 2.0 * F - 1.0
            place += self.d
        count = len(self.orders)
        for j in range(self.d):
            x = t[:, j] if self.basis == "legendre" else u[:, j] if self.distribution else (u[:, j] + F[:, j]) / 2.0
            out[:, place : place + count] = self.functions(x)
            place += count
        for i, j in self.pairs:
            left, right = (legendre(t[:, k], range(1, PAIR_ORDER + 1)) / np.arange(1, PAIR_ORDER + 1) for k in (i, j))
            products = PAIR_WEIGHT * left[:, :, None] * right[:, None, :]
            out[:, place : place + PAIR_ORDER**2] = products.reshape(len(out), -1)
            place += PAIR_ORDER**2

    def functions(self, x: Array) -> Array:
        """(records, functions) of one column beside t, weighted; of t or, for cosines, of u."""
        if self.basis == "legendre":
            return legendre(x, self.orders) * self.weights
        return np.asarray(np.cos(math.pi * x[:, None] * np.array(self.orders)) * self.weights)

    def without_distribution(self) -> "Additive":
        """The same where F is not known."""
        return replace(self, distribution=False)


def legendre(t: Array, orders: Sequence[int]) -> Array:
    """(records, orders) Legendre polynomials P_k(t), by their recurrence; clipped to [−1, 1] against rounding.

    Examples
    --------
    >>> legendre(np.array([-1.0, 0.0, 1.0]), range(1, 4))
    array([[-1. ,  1. , -1. ],
           [ 0. , -0.5, -0. ],
           [ 1. ,  1. ,  1. ]])
    """
    wanted = {k: place for place, k in enumerate(orders)}
    out = np.empty((len(t), len(wanted)))
    before, now = np.ones_like(t), t
    for k in range(1, max(wanted, default=0) + 1):
        if k in wanted:
            out[:, wanted[k]] = now
        before, now = now, ((2 * k + 1) * t * now - k * before) / (k + 1)
    return np.clip(out, -1.0, 1.0, out=out)


def every_pair(d: int) -> tuple[tuple[int, int], ...]:
    """All pairs of d columns."""
    return tuple(combinations(range(d), 2))


def densified(X: Matrix, most: int) -> Matrix:
    """Sparse records of at most so many cells as a dense array, so that storage makes no difference to the model."""
    if not is_sparse(X) or X.shape[0] * X.shape[1] > most:
        return X
    return np.asarray(scipy.sparse.csr_array(X).toarray())


def _additive(basis: str) -> Any:
    def row(
        degree: float, decay: float, distribution: float, columns: float, rest: float, *bounds: float, pairs: str = ""
    ) -> Additive:
        if len(bounds) % 3:
            raise SpecError(f"'{basis}' needs place, low and high of every numeric column")
        numeric = tuple((int(p), float(low), float(high)) for p, low, high in zip(*[iter(bounds)] * 3, strict=True))
        try:
            two = tuple((int(i), int(j)) for i, j in (each.split("x") for each in pairs.split("+") if each))
        except ValueError:
            raise SpecError(f"pairs are written as in 0x1+0x2, not '{pairs}'") from None
        known = bool(distribution)
        return Additive(int(columns), numeric, float(rest), basis, int(degree), float(decay), known, two)

    return row


Features = Linear | Additive
ADDITIVE_OR_LINEAR: Choices[Features] = Choices(
    "map of columns", {"linear": Linear, "legendre": _additive("legendre"), "cosine": _additive("cosine")}
)
"""'linear', or 'legendre(degree, decay, distribution, columns, rest, place, low, high, …)', or 'cosine(…)'."""
