"""Weights of very many nodes: W = S + c·11ᵀ with a sparse S, of which no n × n array is ever made.

A complete graph has S = (1 − nc)I, so that a mean is a sum; every other graph has c = 0, and as many entries as links.
A weight rule is then a formula of the two degrees at a link's ends (`LINKS`), and what a row leaves over is its
own. Which W a round has below `graphs.WIDE` active nodes, `mixing` says with matrices, and the two agree.

How fast they mix: the second eigenvalue of W. Where no node is special (a ring, a torus) all eigenvalues are the
Fourier transform of one row; elsewhere Lanczos' method finds it, on the space of vectors whose sum is 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import NetworkError

STEPS = 20_000  # of Lanczos' method, before it is given up
ACCURATE = 1e-9  # how far a vector may be from an eigenvector; its value is then right to the square of it
NOTHING = 1e-15  # what rounding leaves of a diagonal that is zero


@dataclass(frozen=True, eq=False)
class Wide:
    """W = S + level·11ᵀ over the n active nodes of a round; S by rows, as SciPy has it.

    Attributes
    ----------
    n : how many nodes
    starts, places, values : row p of S has values[e] at places[e], starts[p] ≤ e < starts[p + 1]
    level : c

    Examples
    --------
    >>> W = of_links(3, None, max_degree)
    >>> len(W), W.level == 1 / 3, len(W.values), W @ np.array([[1.0], [2.0], [6.0]])
    (3, True, 0, array([[3.],
           [3.],
           [3.]]))
    """

    n: int
    starts: IntArray
    places: IntArray
    values: Array
    level: float = 0.0

    def __len__(self) -> int:
        """How many nodes, as of a matrix."""
        return self.n

    @cached_property
    def sparse(self) -> Any:
        """S."""
        from scipy.sparse import csr_array  # only where there are so many nodes

        return csr_array((self.values, self.places, self.starts), shape=(self.n, self.n))

    @property
    def nbytes(self) -> int:
        """Memory."""
        return int(self.starts.nbytes + self.places.nbytes + self.values.nbytes)

    def __matmul__(self, messages: Array) -> Array:
        """W times one row for each node: what a mean is made of is summed once."""
        mixed = self.sparse @ messages
        return mixed + self.level * np.sum(messages, axis=0) if self.level else mixed

    def row(self, place: int) -> tuple[IntArray, Array]:
        """Which weights of a row are not zero, and those."""
        at = slice(self.starts[place], self.starts[place + 1])
        if self.level == 0:
            return self.places[at], self.values[at]
        weights = np.full(self.n, self.level)
        weights[self.places[at]] += self.values[at]
        return np.arange(self.n), weights

    @cached_property
    def linked(self) -> NDArray[np.bool_]:
        """(n,) whether a node hears of anybody else."""
        if self.level:
            return np.full(self.n, self.n > 1)
        return np.bincount(self._rows[self._rows != self.places], minlength=self.n) > 0

    @property
    def links(self) -> int:
        """How many weights beside the diagonal are not zero."""
        return self.n * (self.n - 1) if self.level else int(np.count_nonzero(self._rows != self.places))

    @property
    def flat(self) -> bool:
        """Whether everybody gets the mean of all."""
        return len(self.values) == 0 and bool(np.isclose(self.level * self.n, 1.0, rtol=1e-13))

    @cached_property
    def _rows(self) -> IntArray:
        return np.repeat(np.arange(self.n), np.diff(self.starts))

    @property
    def squares(self) -> float:
        """‖W‖_F²."""
        own = np.sum(self.values**2) + 2 * self.level * np.sum(self.values)
        return float(own + (self.n * self.level) ** 2)

    def same(self, other: "Wide") -> bool:
        """Whether it is the same W."""
        mine, theirs = ((W.starts, W.places, W.values) for W in (self, other))
        return self.level == other.level and all(map(np.array_equal, mine, theirs))

    def check(self) -> None:
        """Refuse what is not doubly stochastic."""
        if np.any(self.values < -NOTHING) or self.level < 0:
            raise NetworkError(f"a weight is {np.min(self.values):g}, but weights must not be negative; fix the rule")
        rest = self.n * self.level
        for kind, sums in (("row", np.sum(self.sparse, axis=1)), ("column", np.sum(self.sparse, axis=0))):
            off = np.flatnonzero(np.abs(sums + rest - 1.0) > 1e-12 * self.n)
            if len(off):
                raise NetworkError(
                    f"{kind} {off[0]} of the weights sums to {sums[off[0]] + rest:.12g}, but every {kind} must sum to "
                    "1; use a doubly stochastic rule such as metropolis"
                )

    def second(self, columns: int | None = None) -> float:
        """|λ₂|, the largest eigenvalue in size beside that of the mean.

        Parameters
        ----------
        columns : of the rectangle in which all nodes are the same, if there is one (`Graph.columns`)
        """
        if self.level:  # S is a multiple of the identity
            return float(np.max(np.abs(self.values), initial=0.0))
        if columns is not None:
            return by_shifts(self.row_of_first, columns)
        return apart(self.sparse, 0.0)

    @property
    def row_of_first(self) -> Array:
        """Row 0, in whole."""
        row = np.zeros(self.n)
        places, weights = self.row(0)
        row[places] = weights
        return row

    def listed(self) -> Array:
        """As a matrix, for who needs one and has the room."""
        return self.sparse.toarray() + self.level


def by_shifts(row: Array, columns: int) -> float:
    """|λ₂| of a W that is the same after every shift of a rectangle, from its first row: a Fourier transform."""
    values = np.abs(np.fft.fft2(row.reshape(-1, columns))).ravel()
    return float(np.max(values[1:], initial=0.0))  # the first is that of the mean, 1


def apart(S: Any, shift: float) -> float:
    """The largest |λ| of S + shift·I, symmetric, over vectors whose sum is 0."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh  # only where there are so many nodes

    n = S.shape[0]

    def away(v: Array) -> Array:
        v = np.ravel(v)
        v = v - np.mean(v)
        found = S @ v + shift * v
        return found - np.mean(found)

    width = min(n, 40)
    start = np.random.default_rng(0).normal(size=n)
    operator = LinearOperator((n, n), matvec=away, dtype=np.float64)
    try:
        values = eigsh(operator, k=1, which="LM", v0=start - start.mean(), tol=ACCURATE, maxiter=STEPS, ncv=width)[0]
    except ArpackError:
        raise NetworkError(
            f"how fast this graph of {n:,} nodes mixes was not found: it hardly mixes at all; choose a graph with more "
            "links or shorter ways, such as random_regular(degree=6)"
        ) from None
    return float(abs(values[0]))


# --- rules, as formulas of the degrees at both ends and of the largest degree

LinkWeight = Callable[[Array, Array, float], Array]
"""(d_i, d_j, d_max) -> w_ij."""


def metropolis(mine: Array, other: Array, most: float) -> Array:
    """1/(1 + max(d_i, d_j))."""
    return 1.0 / (1.0 + np.maximum(mine, other))


def uniform(mine: Array, other: Array, most: float) -> Array:
    """1/(1 + d_i), where linked nodes have equally many links."""
    if np.any(mine != other):
        raise NetworkError(
            "uniform weights are doubly stochastic only where linked nodes have equally many links, and here some "
            "do not; use metropolis"
        )
    return 1.0 / (1.0 + mine)


def max_degree(mine: Array, other: Array, most: float) -> Array:
    """1/(1 + d_max)."""
    return np.full(np.shape(mine), 1.0 / (1.0 + most))


def lazy(mine: Array, other: Array, most: float) -> Array:
    """Half of Metropolis'."""
    return 0.5 * metropolis(mine, other, most)


def alone(mine: Array, other: Array, most: float) -> Array:
    """Nothing."""
    return np.zeros(np.shape(mine))


LINKS: dict[str, LinkWeight] = {f.__name__: f for f in (metropolis, uniform, max_degree, lazy, alone)}
"""The rules of `mixing.WEIGHTS`, by their names."""


def of_links(n: int, ends: IntArray | None, weight: LinkWeight) -> Wide:
    """W of n nodes with these links between their places, each once; None for all."""
    if ends is None:
        level = float(weight(np.array([n - 1.0]), np.array([n - 1.0]), n - 1.0)[0])
        left = 1.0 - n * level
        some = n if abs(left) > NOTHING * n else 0
        return Wide(n, np.arange(n + 1) * (some > 0), np.arange(some), np.full(some, left), level)
    degrees = np.bincount(ends.ravel(), minlength=n).astype(np.float64)
    i, j = ends[:, 0], ends[:, 1]
    weights = weight(degrees[i], degrees[j], float(degrees.max(initial=0.0)))
    rows, columns, values = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([weights, weights])
    own = 1.0 - np.bincount(rows, values, minlength=n)
    rows, columns = np.concatenate([rows, np.arange(n)]), np.concatenate([columns, np.arange(n)])
    values = np.concatenate([values, np.where(np.abs(own) > NOTHING, own, 0.0)])
    order = np.lexsort((columns, rows))
    order = order[values[order] != 0]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[order], minlength=n))])
    return Wide(n, starts, columns[order], values[order])
