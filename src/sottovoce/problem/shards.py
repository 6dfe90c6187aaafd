"""Shards: the records of every node, as pieces of one dense array or one CSR matrix, and who owns which.

Nothing here copies or densifies the data. A node's records are a slice of the rows or, where the owner's rows do
not lie together, a slice of a permutation of the rows. An intercept is one more column of constant value B that is
never written down: the model simply has one more coordinate, and a row's bound grows from R to √(R² + B²).

What is counted, drawn and protected at a node are its units. A unit is a row, or, where ids are given, a person with
all the rows of theirs at that node; then the permutation has a person's rows side by side.

A record may count less than others: its weight, between 0 and 1, multiplies its loss. That 1 is the most is what keeps
weights out of the accounts: what a record can add to a sum is bounded as if it had none.

Records are partitioned evenly, by a group column, or with skewed labels (`even`, `by_group`, `dirichlet`), each of
which returns (offsets, order). A random partition needs a generator of its own: how records are partitioned in a
simulation is no part of a release.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import BLOCK, csr_stretches, in_parts, is_sparse, row_norms
from sottovoce.problem.people import group_rows

PIECE = 4 * BLOCK  # entries of CSR rows that are multiplied at a time


class Reading:
    """One reading of rows: shards that are made from one another share it, and with it what is known of their rows.

    Shards that are made anew from the same array do not: it may have been changed in place.
    """

    def __init__(self, X: Any = None) -> None:
        self.of = ref(X) if X is not None else None

    def __reduce__(self) -> tuple[type["Reading"], tuple[()]]:
        return Reading, ()  # what comes out of a file is another array


@old_attributes
@dataclass(frozen=True, eq=False)
class Shards:
    """The data of n nodes: rows X, targets y, and which rows are whose.

    Attributes
    ----------
    X : dense 2-d array (float32 or float64) or CSR matrix, all records
    y : one target a record
    offsets : (n + 1,) node i has the units offsets[i] … offsets[i+1] − 1
    order : the row at each place, or None where places are rows
    intercept : B, the constant value of the intercept's column; 0 for no intercept
    starts : (units + 1,) unit u has the places starts[u] … starts[u+1] − 1, or None where units are places
    people : whether units are people, distinguished by ids, and not records
    weights : between 0 and 1, one a row, what its loss is multiplied by; None where all count the same
    reading : which reading of the rows this is, by which engines keep what they make of them
    """

    X: Matrix
    y: Array
    offsets: IntArray
    order: IntArray | None = None
    intercept: float = 0.0
    starts: IntArray | None = None
    people: bool = False
    weights: Array | None = None
    reading: Reading = field(default_factory=Reading, repr=False)

    def __post_init__(self) -> None:
        if self.reading.of is None or self.reading.of() is not self.X:
            object.__setattr__(self, "reading", Reading(self.X))

    @classmethod
    @old_arguments
    def of(
        cls,
        X: Matrix,
        y: Array,
        offsets: IntArray,
        order: IntArray | None = None,
        intercept: float = 0.0,
        user_ids: Any = None,
        weights: Array | None = None,
    ) -> "Shards":
        """Check the data once, and wrap it without copying.

        Parameters
        ----------
        X, y, order, intercept, weights : see the attributes
        offsets : (n + 1,) node i has the places offsets[i] … offsets[i+1] − 1, whatever the units are
        user_ids : one id a record, in the order of X: records of one node with the same id are one person's. None:
            every record is a unit of its own.

        Examples
        --------
        >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 1, 4]))
        >>> shards.n, shards.m, shards.sizes.tolist()
        (2, 4, [1, 3])
        >>> Shards.of(shards.X, shards.y, np.array([0, 1, 4]), user_ids=["ann", "bob", "eve", "bob"]).sizes.tolist()
        [1, 2]
        """
        X = _matrix(X)
        y = np.ascontiguousarray(y, dtype=np.float64)
        offsets = np.asarray(offsets, dtype=np.int64)
        if y.shape != (X.shape[0],):
            raise DataError(f"there are {X.shape[0]} records but {y.size} targets; give one target a record")
        _check_owners(offsets, order, len(y))
        _check_no_nan(X, y)
        order, starts = None if order is None else np.asarray(order, dtype=np.int64), None
        if user_ids is not None:
            if len(user_ids) != len(y):
                raise DataError(f"there are {len(y)} records but {len(user_ids)} person ids; give one id a record")
            offsets, order, starts = group_rows(user_ids, offsets, order)
        return cls(X, y, offsets, order, float(intercept), starts, user_ids is not None, _weights(weights, len(y)))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1

    @property
    def m(self) -> int:
        """Dimension of one output of the model: features, and one for the intercept."""
        return int(self.X.shape[1]) + (self.intercept != 0.0)

    @property
    def sizes(self) -> IntArray:
        """q_i, the number of units (records, or people) of each node."""
        return np.diff(self.offsets)

    @cached_property
    def norms(self) -> Array:
        """‖c‖ of every row, the intercept's column included."""
        return np.hypot(row_norms(self.X), self.intercept)

    def rows(self, node: int, records: IntArray | None = None) -> IntArray | slice:
        """The rows of a node's units (numbered from 0 within the node); of all of them where none are named."""
        start, stop = int(self.offsets[node]), int(self.offsets[node + 1])
        if records is not None:
            places = start + records if self.starts is None else _stretches(self.starts, start + records)
            return places if self.order is None else self.order[places]
        if self.starts is not None:
            start, stop = int(self.starts[start]), int(self.starts[stop])
        return slice(start, stop) if self.order is None else self.order[start:stop]

    def counts(self, node: int, records: IntArray | None = None) -> IntArray | None:
        """How many rows each of these units has, in the order of `rows`; None where each has one."""
        if self.starts is None:
            return None
        start, stop = int(self.offsets[node]), int(self.offsets[node + 1])
        units = np.arange(start, stop) if records is None else start + records
        return self.starts[units + 1] - self.starts[units]

    def node(self, node: int) -> "Shards":
        """One node's shard as data of its own: the same memory, nobody else's records reachable by index."""
        rows = self.rows(node)
        whole = np.array([0, self.sizes[node]])
        starts = self.starts
        if starts is not None:
            starts = starts[self.offsets[node] : self.offsets[node + 1] + 1]
            starts = starts - starts[0]
        if isinstance(rows, slice) and not is_sparse(self.X):
            weights = None if self.weights is None else self.weights[rows]
            alone = replace(
                self, X=self.X[rows], y=self.y[rows], offsets=whole, order=None, starts=starts, weights=weights
            )
            norms = self.norms[rows]
        else:
            order = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            alone, norms = replace(self, offsets=whole, order=order, starts=starts), self.norms
        alone.__dict__["norms"] = norms  # computed once for all nodes
        return alone

    def relabeled(self, y: Array) -> "Shards":
        """The same records with other targets."""
        other = replace(self, y=np.ascontiguousarray(y, dtype=np.float64))
        other.__dict__["norms"] = self.norms
        return other

    def with_intercept(self, intercept: float) -> "Shards":
        """The same records with the intercept's column at B."""
        if intercept == self.intercept:
            return self
        other = replace(self, intercept=float(intercept))
        if "norms" in self.__dict__ and self.intercept == 0:
            other.__dict__["norms"] = np.hypot(self.norms, intercept)
        return other

    def partitioned(self, offsets: IntArray, order: IntArray | None) -> "Shards":
        """The same records, each a unit, with other owners; what is known of them is not fetched again.

        Examples
        --------
        >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
        >>> shards.partitioned(*even(4, 2, np.random.default_rng(0))).X is shards.X
        True
        """
        if self.people:
            raise DataError("people are partitioned with all of their rows; make shards anew, with their ids")
        _check_owners(offsets, order, len(self.y))
        other = replace(self, offsets=offsets, order=order)
        other.__dict__["norms"] = self.norms
        return other

    def weighted(self, values: Array, rows: IntArray | slice | None = None) -> Array:
        """Values (or vectors) of the given rows, each times its row's weight."""
        if self.weights is None:
            return values
        mine = self.weights if rows is None else self.weights[rows]
        return np.asarray(values * (mine if values.ndim == 1 else mine[:, None]))

    def spread(self, values: Array) -> Array:
        """One value a node for each of its units -> one a row; a unit's rows share it; 0 for rows of no node here."""
        places = np.repeat(values, self.sizes)
        if self.starts is not None:
            counts = np.diff(self.starts)
            places = np.repeat(places / counts, counts)
        if self.order is None:
            return places
        rows = np.zeros(len(self.y))
        rows[self.order] = places
        return rows

    def margins(self, x: Array, rows: IntArray | slice | None = None) -> Array:
        """⟨c, x⟩ for the given rows (all rows by default): (m,) -> (rows,), and (K, m) -> (rows, K)."""
        w, b = (x[..., :-1], self.intercept * x[..., -1]) if self.intercept else (x, 0.0)
        if is_sparse(self.X):
            return np.concatenate([piece @ w.T for _, piece, _ in self._pieces(rows)]) + b
        # np.dot, and not @, which holds Python's lock while it makes less than 500 numbers
        return np.concatenate([np.dot(block, w.T) for _, block in self._blocks(rows)]) + b

    def pull(self, s: Array, rows: IntArray | slice | None = None) -> Array:
        """Σ s_r ⊗ c_r over the given rows (all rows by default): the adjoint of `margins`."""
        g = np.zeros((*s.shape[1:], self.X.shape[1]))
        if is_sparse(self.X):
            for at, piece, turned in self._pieces(rows):
                g += ((piece.T if turned is None else turned) @ s[at]).T
        else:
            for at, block in self._blocks(rows):
                g += np.dot(s[at].T, block)
        if not self.intercept:
            return g
        return np.concatenate([g, self.intercept * np.sum(s, axis=0)[..., None]], axis=-1)

    def _pieces(self, rows: IntArray | slice | None = None) -> Iterator[tuple[slice, Any, Any]]:
        """CSR rows, a stretch at a time (positions, rows, their transpose or None).

        Of float32 data SciPy makes a float64 copy to multiply, hence the stretches.
        """
        X, turned = self._sparse(rows)
        if X.dtype == np.float64 or X.nnz <= PIECE:
            yield slice(0, X.shape[0]), X, turned
            return
        for first, last in csr_stretches(X, PIECE):
            start, stop = X.indptr[first], X.indptr[last]
            parts = X.data[start:stop], X.indices[start:stop], X.indptr[first : last + 1] - start
            yield slice(first, last), scipy.sparse.csr_array(parts, shape=(last - first, X.shape[1])), None

    def _sparse(self, rows: IntArray | slice | None) -> tuple[Matrix, Matrix | None]:
        """Sparse rows; a node's stretch is cut out and turned once, which SciPy would do every time."""
        if rows is None or not isinstance(rows, slice):
            return self.X if rows is None else self.X[rows], None
        start, stop, _ = rows.indices(self.X.shape[0])
        if (start, stop) not in self._cuts:
            first, last = self.X.indptr[start], self.X.indptr[stop]
            parts = self.X.data[first:last], self.X.indices[first:last], self.X.indptr[start : stop + 1] - first
            cut = type(self.X)(parts, shape=(stop - start, self.X.shape[1]))
            self._cuts[start, stop] = cut, cut.T
        return self._cuts[start, stop]

    @cached_property
    def _cuts(self) -> dict[tuple[int, int], tuple[Matrix, Matrix]]:
        return {}

    def _blocks(self, rows: IntArray | slice | None = None) -> Iterator[tuple[slice, Array]]:
        """Dense rows as float64, a block at a time (positions, block): float32 data is never widened whole."""
        if isinstance(rows, slice):
            data, index = self.X[rows], None
        else:
            data, index = self.X, rows
        count = data.shape[0] if index is None else len(index)
        size = count if data.dtype == np.float64 and index is None else max(1, BLOCK // max(1, data.shape[1]))
        for start in range(0, count, max(1, size)):
            at = slice(start, min(start + size, count))
            yield at, np.asarray(data[at] if index is None else data[index[at]], dtype=np.float64)


def _stretches(starts: IntArray, units: IntArray) -> IntArray:
    """The places of these units, one unit after the other."""
    counts = starts[units + 1] - starts[units]
    before = np.cumsum(counts) - counts
    return np.repeat(starts[units] - before, counts) + np.arange(int(np.sum(counts)))


def _matrix(X: Matrix) -> Matrix:
    """Accept what can be used as it is; refuse what would have to be copied into shape silently."""
    if is_sparse(X):
        if X.format != "csr":
            raise DataError(f"sparse data must be in CSR form, not {X.format.upper()}; convert it with .tocsr()")
        if not X.has_canonical_format:  # two entries of one place add up, but their squares do not: a norm would lie
            raise DataError("some sparse entries stand twice or out of order; call .sum_duplicates() on the data first")
        return X
    X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"data must be a table of records by features, not an array of {X.ndim} dimensions")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _weights(weights: Array | None, records: int) -> Array | None:
    """Weights that keep every bound."""
    if weights is None:
        return None
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    if weights.shape != (records,) or not np.all((weights >= 0) & (weights <= 1)):
        raise DataError(
            f"weights are {records} numbers between 0 and 1, one a record; divide them by a public bound, and clip them"
        )
    return weights


def _check_owners(offsets: IntArray, order: IntArray | None, records: int) -> None:
    """Every record belongs to one node at most, once: its privacy is accounted for at that node alone."""
    places = records if order is None else len(order)
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != places:
        raise DataError(
            f"the nodes' offsets must run from 0 to the {places} records partitioned, not {offsets.tolist()[:4]} …"
        )
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if empty.size:
        raise DataError(f"node {empty[0]} has no records; give every node at least one, or take fewer nodes")
    if order is not None:
        rows = np.asarray(order)
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or np.any((rows < 0) | (rows >= records)):
            raise DataError(f"the order names a row that is not there; give rows from 0 to {records - 1}")
        if rows.size and np.bincount(rows).max() > 1:
            raise DataError("the order names a row twice; give every record to one node, once")


def _check_no_nan(X: Matrix, y: Array) -> None:
    values = X.data if is_sparse(X) else X
    # a sum is not finite if any term is not: no temporary of the data's size unless something is wrong
    total = sum(in_parts(values, _sum_without_overflow_warning))
    if not np.isfinite(total) and not np.all(np.isfinite(values)):
        raise DataError("the data holds NaN or infinite values; fill them in or drop those records first")
    if not np.all(np.isfinite(y)):
        raise DataError("the targets hold NaN or infinite values; drop those records first")


def _sum_without_overflow_warning(values: NDArray[Any]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal one record
        return float(np.sum(values, dtype=np.float64))


Partition = tuple[IntArray, IntArray | None]


def even(n_records: int, n: int, rng: np.random.Generator | None = None) -> Partition:
    """Partition the records out evenly (sizes differ by one at the most): in file order, or shuffled.

    Examples
    --------
    >>> even(7, 3)[0]
    array([0, 3, 5, 7])
    """
    _enough(n_records, n)
    sizes = np.full(n, n_records // n)
    sizes[: n_records % n] += 1
    return _offsets(sizes), None if rng is None else rng.permutation(n_records)


def by_group(groups: NDArray[Any]) -> tuple[Partition, list[str]]:
    """One node for every distinct value of a group column; also the nodes' names, in the nodes' order.

    Examples
    --------
    >>> (offsets, order), names = by_group(np.array(["b", "a", "b"]))
    >>> offsets, order, names
    (array([0, 1, 3]), array([1, 0, 2]), ['a', 'b'])
    """
    names, owner = np.unique(np.asarray(groups), return_inverse=True)
    order = np.argsort(owner, kind="stable")
    identity = np.array_equal(order, np.arange(len(order)))
    offsets = _offsets(np.bincount(owner, minlength=len(names)))
    return (offsets, None if identity else order), [str(name) for name in names]


def dirichlet(y: Array, n: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Label-skewed nodes: each label is shared out by Dirichlet(concentration) proportions; no node stays empty.

    A small concentration gives nodes that hold almost one label only, a large one the even mixture.
    """
    _enough(len(y), n)
    if not concentration > 0:
        raise DataError(f"the Dirichlet concentration must be over 0, not {concentration}")
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(n, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for node, part in enumerate(np.split(rows, cuts)):
            owner[part] = node
    sizes = np.bincount(owner, minlength=n)
    for empty in np.flatnonzero(sizes == 0):  # the largest node gives one record to each empty one
        giver = int(np.argmax(sizes))
        owner[np.flatnonzero(owner == giver)[0]] = empty
        sizes[giver] -= 1
        sizes[empty] += 1
    return _offsets(sizes), np.argsort(owner, kind="stable")


Split = Callable[[IntArray, int], Partition]
"""(a row of each unit, nodes) -> which unit is at which node."""


def in_turn(rows: IntArray, n: int) -> Partition:
    """Unit u to node u mod n, so that a sorted table does not become lopsided nodes.

    Examples
    --------
    >>> in_turn(np.arange(5), 2)
    (array([0, 3, 5]), array([0, 2, 4, 1, 3]))
    """
    _enough(len(rows), n)
    return by_group(np.arange(len(rows)) % n)[0]


def partition(records: int, n: int, people: Any = None, *, seeded: bool, split: Split = in_turn) -> Partition:
    """Which rows are at which of n simulated nodes, where no column names the owners: the only way to decide it.

    A row goes by its place in the table. A person goes with all of their rows. Which people there are is private, and
    no partition into nodes of public sizes could be made without looking at it: with more than one node a person with
    another id would move others. So people are partitioned in simulations only.

    Parameters
    ----------
    records : rows of the table
    n : nodes
    people : the id of the person of each row; None where every row is a unit of its own
    seeded : whether the run is a simulation, without a guarantee
    split : of the units; people are in the order of their ids

    Examples
    --------
    >>> partition(4, 2, ["eve", "ann", "bob", "ann"], seeded=True)
    (array([0, 3, 4]), array([0, 1, 3, 2]))
    """
    if people is None or n == 1:
        return split(np.arange(records), n)
    if not seeded:
        raise SpecError(
            f"people cannot be partitioned over {n} simulated nodes in a run with a guarantee: another id of one "
            "person would move others to other nodes; name the owner of each record (nodes=, --group), take one node "
            "(n_nodes=1, --nodes 1), or simulate (random_state=, --seed)"
        )
    _, first, person = np.unique(np.asarray(people), return_index=True, return_inverse=True)
    if n > len(first):
        raise DataError(f"{n} nodes cannot share {len(first)} people; take at most {len(first)} nodes")
    offsets, order = split(first, n)
    owner = np.empty(len(first), dtype=np.int64)
    owner[slice(None) if order is None else order] = np.repeat(np.arange(n), np.diff(offsets))
    return by_group(owner[person.reshape(-1)])[0]


def owner_of_rows(parts: Partition) -> IntArray:
    """The node number of every row.

    Examples
    --------
    >>> owner_of_rows(in_turn(np.arange(5), 2))
    array([0, 1, 0, 1, 0])
    """
    offsets, order = parts
    places = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if order is None:
        return places
    owner = np.empty_like(places)
    owner[order] = places
    return owner


def _offsets(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _enough(n_records: int, n: int) -> None:
    if n < 1:
        raise DataError(f"there must be at least one node, not {n}")
    if n > n_records:
        raise DataError(
            f"{n} nodes cannot share {n_records} records (n_samples = {n_records}); take at most {n_records} nodes"
        )
