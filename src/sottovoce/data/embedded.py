"""Data sets that come along: scikit-learn's bundled ones, nothing to download, and the demo's synthetic one.

Features are brought to [−1, 1] by PUBLIC bounds, typed below from each set's documentation, and rows to norm at most
1, each record by itself. Bounds must not be computed from the data: minima, maxima, means and deviations are
statistics of everybody's records, and scaling by them would leak what the noise is there to hide.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.data.synthetic import two_gaussians
from sottovoce.data.tables import Table
from sottovoce.errors import DataError
from sottovoce.matrices import unit_rows

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


def _synthetic() -> Table:
    table = two_gaussians(20_000, 50, seed=2017)
    return Table(table.X, table.y, table.groups, table.features, "synthetic")


EMBEDDED: dict[str, Callable[[], Table]] = {
    "breast_cancer": _breast_cancer,
    "digits": _digits,
    "wine": _wine,
    "diabetes": _diabetes,
    "synthetic": _synthetic,
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
