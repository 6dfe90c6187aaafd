"""Seeded test problems: made of nothing but their parameters, hence public, and the same on every machine."""

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, Matrix
from sottovoce.data.tables import Table
from sottovoce.errors import SpecError
from sottovoce.matrices import row_norms, unit_rows


def two_gaussians(n_records: int, m: int, separation: float = 2.0, seed: int = 0) -> Table:
    """Two round Gaussian clouds, ±1, whose centers lie `separation` standard deviations apart; rows of unit norm.

    The clouds overlap: the best linear classifier errs on Φ(−separation/2) of the records, 16 % at 2 (scaling a
    row to unit norm does not change the side that it lies on).

    Examples
    --------
    >>> table = two_gaussians(100, 5, seed=1)
    >>> table.X.shape, sorted(set(table.y.tolist()))
    ((100, 5), [-1.0, 1.0])
    """
    rng = _generator(n_records, m, seed)
    direction = rng.standard_normal(m)
    direction /= np.linalg.norm(direction)
    y = rng.choice(np.array([-1.0, 1.0]), size=n_records)
    X = rng.standard_normal((n_records, m))
    X += (separation / 2) * y[:, None] * direction
    return _table(_on_sphere(X), y, "two_gaussians")


def sparse_text(n_records: int, m: int, nnz: int, seed: int = 0) -> Table:
    """Documents of `nnz` words each from a Zipf vocabulary of m, as unit CSR rows; labels ±1 by a few of the words.

    Word j is drawn with probability ∝ 1/(j + 1). A word that a document repeats is counted, so rows have at most
    `nnz` entries; counts are weighted by the rarity of the word, as in tf-idf but with the true probabilities. One
    word in fifty (two at least) carries the true direction, the label is its side after a little noise.

    Examples
    --------
    >>> table = sparse_text(50, 1000, 20, seed=1)
    >>> table.X.format, table.X.shape, bool(np.diff(table.X.indptr).max() <= 20)
    ('csr', (50, 1000), True)
    """
    rng = _generator(n_records, m, seed)
    if nnz < 1:
        raise SpecError(f"a document needs at least one word, not {nnz}")
    chance = 1.0 / np.arange(1, m + 1)
    chance /= chance.sum()
    words = np.searchsorted(np.cumsum(chance), rng.random(n_records * nnz), side="right")
    words = np.minimum(words, m - 1).astype(np.int32)  # rounding may leave the last cumulated chance below 1
    starts = np.arange(0, n_records * nnz + 1, nnz, dtype=np.int32 if n_records * nnz < 2**31 else np.int64)
    X = scipy.sparse.csr_array((np.ones(n_records * nnz), words, starts), shape=(n_records, m))
    X.sum_duplicates()
    rarity = 1.0 - np.log(chance)
    X.data *= rarity[X.indices]
    X.data /= np.repeat(row_norms(X), np.diff(X.indptr))
    X = unit_rows(X)

    truth = np.zeros(m)
    carriers = rng.choice(m, size=min(m, max(2, m // 50)), replace=False, p=chance)
    truth[carriers] = rng.standard_normal(len(carriers))
    weight = chance[carriers] * rarity[carriers]
    truth[carriers] -= np.sum(weight * truth[carriers]) / np.sum(weight)  # neither class outweighs the other by much
    margins = X @ truth
    noisy = margins + (0.2 * np.std(margins) + 1e-9) * rng.standard_normal(n_records)
    return _table(X, np.where(noisy > 0, 1.0, -1.0), "sparse_text")


def regression(n_records: int, m: int, noise: float = 0.1, seed: int = 0) -> Table:
    """Unit rows c in random directions and targets ⟨c, w⟩ + noise · N(0, 1), with ⟨c, w⟩ of about unit variance.

    Examples
    --------
    >>> regression(3, 2, noise=0.0).y.shape
    (3,)
    """
    rng = _generator(n_records, m, seed)
    if not noise >= 0:
        raise SpecError(f"the noise must be 0 or more, not {noise}")
    X = _on_sphere(rng.standard_normal((n_records, m)))
    return _table(X, X @ rng.standard_normal(m) + noise * rng.standard_normal(n_records), "regression")


def _generator(n_records: int, m: int, seed: int) -> np.random.Generator:
    if n_records < 1 or m < 1:
        raise SpecError(f"a problem needs at least one record and one feature, not {n_records} × {m}")
    return np.random.default_rng(seed)


def _on_sphere(X: Array) -> Array:
    X /= row_norms(X)[:, None]
    return unit_rows(X)  # a quotient may end a rounding error above 1


def _table(X: Matrix, y: Array, name: str) -> Table:
    return Table(X, y, None, tuple(f"x{j}" for j in range(X.shape[1])), name)
