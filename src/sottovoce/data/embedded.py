"""Seeded test problems: made of nothing but their parameters, hence public, and the same on every machine.

Data sets that come along: scikit-learn's bundled ones, nothing to download, and the demo's synthetic one.

Features are brought to [−1, 1] by PUBLIC bounds, typed below from each set's documentation, and rows to norm at most
1, each record by itself. Bounds must not be computed from the data: minima, maxima, means and deviations are
statistics of everybody's records, and scaling by them would leak what the noise is there to hide.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, Matrix
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.rows import row_norms


def two_gaussians(n_records: int, m: int, separation: float = 2.0, seed: int = 0) -> Table:
    """Two round Gaussian clouds, ±1, whose centres lie `separation` standard deviations apart; rows of unit norm.

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
    return _synthetic(_on_sphere(X), y, "two_gaussians")


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
    return _synthetic(X, np.where(noisy > 0, 1.0, -1.0), "sparse_text")


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
    return _synthetic(X, X @ rng.standard_normal(m) + noise * rng.standard_normal(n_records), "regression")


def _generator(n_records: int, m: int, seed: int) -> np.random.Generator:
    if n_records < 1 or m < 1:
        raise SpecError(f"a problem needs at least one record and one feature, not {n_records} × {m}")
    return np.random.default_rng(seed)


def _on_sphere(X: Array) -> Array:
    X /= row_norms(X)[:, None]
    return unit_rows(X)  # a quotient may end a rounding error above 1


def _synthetic(X: Matrix, y: Array, name: str) -> Table:
    return Table(X, y, None, tuple(f"x{j}" for j in range(X.shape[1])), name)


# Public bounds of the data sets' documentation (scikit-learn's descriptions), (low, high) of every feature in order.
BREAST_CANCER = (
    *((6.981, 28.11), (9.71, 39.28), (43.79, 188.5), (143.5, 2501.0), (0.053, 0.163)),  # mean: radius … smoothness
    *((0.019, 0.345), (0.0, 0.427), (0.0, 0.201), (0.106, 0.304), (0.05, 0.097)),  # … compactness … fractal dimension
    *((0.112, 2.873), (0.36, 4.885), (0.757, 21.98), (6.802, 542.2), (0.002, 0.031)),  # standard error
    *((0.002, 0.135), (0.0, 0.396), (0.0, 0.053), (0.008, 0.079), (0.001, 0.03)),
    *((7.93, 36.04), (12.02, 49.54), (50.41, 251.2), (185.2, 4254.0), (0.071, 0.223)),  # worst
    *((0.027, 1.058), (0.0, 1.252), (0.0, 0.291), (0.156, 0.664), (0.055, 0.208)),
)
WINE = (
    *((11.0, 14.8), (0.74, 5.80), (1.36, 3.23), (10.6, 30.0), (70.0, 162.0), (0.98, 3.88), (0.34, 5.08)),
    *((0.13, 0.66), (0.41, 3.58), (1.3, 13.0), (0.48, 1.71), (1.27, 4.00), (278.0, 1680.0)),
)
DIGITS = ((0.0, 16.0),) * 64  # "integer pixels in the range 0..16"
DIABETES = ((-0.2, 0.2),) * 10  # "real, -.2 < x < .2"
DIABETES_TARGET = (25.0, 346.0)  # "integer 25 - 346"


def embedded(name: str) -> Table:
    """One of the sets that come along; labels are ±1, but for 'diabetes', a regression with targets in [−1, 1].

    'breast_cancer' (+1 benign), 'digits' (+1 even), 'wine' (+1 the first cultivar), 'diabetes', and 'synthetic', the
    20,000 × 50 of the demo. Scaled by documented bounds that are fixed in this file, never by statistics of the
    records, which would leak; a value beyond its bound is clipped to it. Rows have norm at most 1.

    Examples
    --------
    >>> table = embedded("wine")
    >>> table.X.shape, int(np.sum(table.y == 1))
    ((178, 13), 59)
    """
    if name not in EMBEDDED:
        raise DataError(f"no data set called '{name}' comes along; choose one of {', '.join(EMBEDDED)}")
    return EMBEDDED[name]()


def _breast_cancer() -> Table:
    bunch = _bundled("breast_cancer")
    return _table(bunch, BREAST_CANCER, np.where(bunch.target == 1, 1.0, -1.0), "breast_cancer")


def _digits() -> Table:
    bunch = _bundled("digits")
    return _table(bunch, DIGITS, np.where(bunch.target % 2 == 0, 1.0, -1.0), "digits")


def _wine() -> Table:
    bunch = _bundled("wine")
    return _table(bunch, WINE, np.where(bunch.target == 0, 1.0, -1.0), "wine")


def _diabetes() -> Table:
    bunch = _bundled("diabetes")
    y = _to_unit_box(bunch.target[:, None], (DIABETES_TARGET,))[:, 0]
    return _table(bunch, DIABETES, y, "diabetes")


def _two_gaussians() -> Table:
    table = two_gaussians(20_000, 50, seed=2017)
    return Table(table.X, table.y, table.groups, table.features, "synthetic")


EMBEDDED: dict[str, Callable[[], Table]] = {
    "breast_cancer": _breast_cancer,
    "digits": _digits,
    "wine": _wine,
    "diabetes": _diabetes,
    "synthetic": _two_gaussians,
}
"""Every set by name."""


def _bundled(name: str) -> Any:
    from sklearn import datasets  # here: seconds to import, which the synthetic demo need not wait for

    return getattr(datasets, f"load_{name}")()


def _table(bunch: Any, bounds: tuple[tuple[float, float], ...], y: Array, name: str) -> Table:
    features = tuple(str(feature) for feature in bunch.feature_names)
    return Table(unit_rows(_to_unit_box(bunch.data, bounds)), y, None, features, name)


def _to_unit_box(values: Array, bounds: tuple[tuple[float, float], ...]) -> Array:
    """Every column from its bounds to [−1, 1]; what lies beyond them is clipped, each value by itself."""
    low, high = np.array(bounds).T
    return np.clip((2 * values - low - high) / (high - low), -1.0, 1.0)
