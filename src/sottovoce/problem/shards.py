"""Shards: the records of every node, as pieces of one dense array or one CSR matrix.

Nothing here copies or densifies the data. A node's records are a slice of the rows or, where the owner's rows do
not lie together, a slice of a permutation of the rows. An intercept is one more column of constant value B that is
never written down: the model simply has one more coordinate, and a row's bound grows from R to √(R² + B²).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.errors import DataError
from sottovoce.rows import BLOCK, is_sparse, row_norms


@dataclass(frozen=True, eq=False)
class Shards:
    """The data of n nodes: rows X, targets y, and which rows are whose.

    Attributes
    ----------
    X : dense 2-d array (float32 or float64) or CSR matrix, all records
    y : one target a record
    offsets : (n + 1,) node i has the places offsets[i] … offsets[i+1] − 1
    order : the row at each place, or None where places are rows
    intercept : B, the constant value of the intercept's column; 0 for no intercept
    """

    X: Matrix
    y: Array
    offsets: IntArray
    order: IntArray | None = None
    intercept: float = 0.0

    @classmethod
    def of(
        cls, X: Matrix, y: Array, offsets: IntArray, order: IntArray | None = None, intercept: float = 0.0
    ) -> "Shards":
        """Check the data once, and wrap it without copying.

        Examples
        --------
        >>> shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 1, 4]))
        >>> shards.n, shards.m, shards.sizes.tolist()
        (2, 4, [1, 3])
        """
        X = _matrix(X)
        y = np.ascontiguousarray(y, dtype=np.float64)
        offsets = np.asarray(offsets, dtype=np.int64)
        if y.shape != (X.shape[0],):
            raise DataError(f"there are {X.shape[0]} records but {y.size} targets; give one target a record")
        _check_owners(offsets, order, len(y))
        empty = np.flatnonzero(np.diff(offsets) <= 0)
        if empty.size:
            raise DataError(f"node {empty[0]} has no records; give every node at least one, or take fewer nodes")
        _refuse_nan(X, y)
        return cls(X, y, offsets, None if order is None else np.asarray(order, dtype=np.int64), float(intercept))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1

    @property
    def m(self) -> int:
        """Dimension of the model: features, and one for the intercept."""
        return int(self.X.shape[1]) + (self.intercept != 0.0)

    @property
    def sizes(self) -> IntArray:
        """q_i, the number of records of each node."""
        return np.diff(self.offsets)

    @cached_property
    def norms(self) -> Array:
        """‖c‖ of every row, the intercept's column included."""
        return np.hypot(row_norms(self.X), self.intercept)

    def rows(self, node: int, records: IntArray | None = None) -> IntArray | slice:
        """The rows of a node's records (numbered from 0 within the node); of all of them where none are named."""
        start, stop = int(self.offsets[node]), int(self.offsets[node + 1])
        if records is not None:
            return start + records if self.order is None else self.order[start + records]
        return slice(start, stop) if self.order is None else self.order[start:stop]

    def node(self, node: int) -> "Shards":
        """One node's shard as data of its own: the same memory, nobody else's records reachable by index."""
        rows = self.rows(node)
        whole = np.array([0, self.sizes[node]])
        if isinstance(rows, slice) and not is_sparse(self.X):
            alone, norms = Shards(self.X[rows], self.y[rows], whole, None, self.intercept), self.norms[rows]
        else:
            order = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            alone, norms = Shards(self.X, self.y, whole, order, self.intercept), self.norms
        alone.__dict__["norms"] = norms  # computed once for all nodes
        return alone

    def spread(self, values: Array) -> Array:
        """One value a node -> one a row; 0 for rows that belong to no node here."""
        places = np.repeat(values, self.sizes)
        if self.order is None:
            return places
        rows = np.zeros(len(self.y))
        rows[self.order] = places
        return rows

    def margins(self, x: Array, rows: IntArray | slice | None = None) -> Array:
        """⟨c, x⟩ for the given rows (all rows by default)."""
        w, b = (x[:-1], self.intercept * x[-1]) if self.intercept else (x, 0.0)
        if is_sparse(self.X):
            return np.asarray((self.X if rows is None else self.X[rows]) @ w) + b
        return np.concatenate([block @ w for _, block in self._blocks(rows)]) + b

    def pull(self, s: Array, rows: IntArray | slice | None = None) -> Array:
        """Σ s_r c_r over the given rows (all rows by default): the adjoint of `margins`."""
        if is_sparse(self.X):
            g = np.asarray((self.X if rows is None else self.X[rows]).T @ s)
        else:
            g = np.zeros(self.X.shape[1])
            for at, block in self._blocks(rows):
                g += s[at] @ block
        return np.append(g, self.intercept * np.sum(s)) if self.intercept else g

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


def _check_owners(offsets: IntArray, order: IntArray | None, records: int) -> None:
    """Every record belongs to one node at most, once: its privacy is accounted for at that node alone."""
    places = records if order is None else len(order)
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != places:
        raise DataError(
            f"the nodes' offsets must run from 0 to the {places} records dealt out, not {offsets.tolist()[:4]} …"
        )
    if order is not None:
        rows = np.asarray(order)
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or np.any((rows < 0) | (rows >= records)):
            raise DataError(f"the order names a row that is not there; give rows from 0 to {records - 1}")
        if len(np.unique(rows)) != len(rows):
            raise DataError("the order names a row twice; give every record to one node, once")


def _refuse_nan(X: Matrix, y: Array) -> None:
    values = X.data if is_sparse(X) else X
    # a sum is not finite if any term is not: no temporary of the data's size unless something is wrong
    if not np.isfinite(np.sum(values, dtype=np.float64)) and not np.all(np.isfinite(values)):
        raise DataError("the data holds NaN or infinite values; fill them in or drop those records first")
    if not np.all(np.isfinite(y)):
        raise DataError("the targets hold NaN or infinite values; drop those records first")
