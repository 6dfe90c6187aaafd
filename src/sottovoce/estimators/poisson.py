"""PrivatePoissonRegressor: rate ratios of counts with intervals that count sampling and privacy noise."""

import math
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.sums import TableEstimator, quantile
from sottovoce.estimators.unusable import number_cells, real_numbers, warn_owner
from sottovoce.inference.estimate import Settings, poisson
from sottovoce.inference.requirements import check_enough
from sottovoce.inference.statistics import Rows, weighted
from sottovoce.inference.table import CoefficientTable
from sottovoce.privacy.inference import Inference
from sottovoce.problem.shards import Shards
from sottovoce.run.inference import StageSums

NOTE = "Standard errors count sampling and privacy noise; they allow for counts that scatter more than Poisson's."
LONGEST_CAP = 1000.0
"""A public cap on counts, at most: the tables of the model grow with it."""


class _CountSums(StageSums):
    """A stage of a Poisson model: the last two columns of a record are its offset and whether it counts."""

    @property
    def share(self) -> float:
        """All of the budget: there is no other fit."""
        return 1.0

    def rows(self, shards: Shards, node: int, units: IntArray) -> Rows:
        """With the constant; records that cannot be used weigh nothing."""
        places = shards.rows(node, units)
        X = np.asarray(shards.X[places], dtype=np.float64)
        x = np.concatenate([X[:, :-2], np.ones((len(X), 1))], axis=1)
        rows = weighted(x, shards.y[places], self.choice.longest)._replace(offset=X[:, -2])
        root = rows.root * X[:, -1]
        return rows._replace(root=root, u=root[:, None] * rows.x)


class _Records(NamedTuple):
    """Columns in [−1, 1], counts, offsets, and which records can be used."""

    t: Array
    y: Array
    offset: Array
    usable: Array


class PrivatePoissonRegressor(TableEstimator):
    """Poisson regression of counts or rates, with (ε, δ)-differential privacy for every record.

    All of the budget goes to noisy sums from which estimates with intervals follow: `summary()` prints rate ratios.
    There is no other model: `predict` uses the same estimates. A record is one person; give each person one row.

    Parameters
    ----------
    epsilon, delta : the guarantee; δ "auto" is 1e-5, or half of one over the number of records if that is less
    bounds : public bounds of the columns: {name: (low, high)}, one pair for all columns, or a list with a pair for each
    max_count : a public cap on the expected count of a record, and on the error that counts: larger ones are clipped,
        and what clipping would bias is taken off. Eight times the usual count is a good choice: noise grows with it
    exposure_bounds : public bounds (low, high) of `exposure`, clipped to them
    trust : whom the owners trust: "nobody", "majority" or a number of nodes that may collude, or "center"
    n_nodes : to how many simulated owners rows are assigned where `fit` is given no `nodes`; "auto" is one owner
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    budget : a `Budget(epsilon, delta, path)` that the release is paid from, before it is made

    Attributes
    ----------
    coef_, intercept_ : the estimates, in the units of the columns: logarithms of rate ratios, and of the rate
    privacy_ : the `PrivacyStatement`
    spent_ : what all fits of this process on these records cost together
    nodes_, n_features_in_, feature_names_in_ : as in `PrivateClassifier`

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, years = rng.uniform(20, 80, (20_000, 1)), rng.uniform(0.5, 2.0, 20_000)
    >>> visits = rng.poisson(years * np.exp(-2 + 0.03 * X[:, 0]))
    >>> model = PrivatePoissonRegressor(1.0, bounds=(20, 80), max_count=6, exposure_bounds=(0.5, 2), random_state=0)
    >>> low, high = model.fit(X, visits, exposure=years).summary().intervals[0]
    >>> bool(low < 0.03 < high), bool(high - low < 0.01)
    (True, True)
    """

    instead, purchase, remedy = "statsmodels", "Poisson regression", "a smaller max_count"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        bounds: Any = None,
        max_count: float | None = None,
        exposure_bounds: tuple[float, float] = (1.0, 1.0),
        trust: int | str = "nobody",
        n_nodes: int | str = "auto",
        random_state: Any = None,
        budget: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.max_count = max_count
        self.exposure_bounds = exposure_bounds
        self.trust = trust
        self.n_nodes = n_nodes
        self.random_state = random_state
        self.budget = budget

    def fit(self, X: Any, y: Any, exposure: Any = None, nodes: Any = None) -> Self:
        """Release the sums, and estimate.

        Parameters
        ----------
        X : records by columns
        y : counts
        exposure : over 0, such as years at risk; rates are per unit of it. None: 1 for every record
        nodes : the owner of each record; without it the table has one owner, or `n_nodes` simulated ones
        """
        cap = self._cap()
        records = self._records(X, y, exposure, private=settings.seed(self.random_state) is None)
        planned, p = self._planned(len(records.y), nodes), records.t.shape[1] + 1
        check_enough("poisson", len(records.y), p - 1, planned.multiplier, planned.epsilon, planned.factor)
        choice = Inference(0.9, 1.0, math.sqrt(1.0 + (p - 1) / 2.0))
        steps = poisson(Settings(p, choice.longest, len(records.y)), cap, np.zeros(p))
        table = np.column_stack([records.t, records.offset, records.usable])
        self._release(planned, table, records.y, steps, partial(_CountSums, choice=choice))
        raw = self._table(0.95).estimates
        self.coef_, self.intercept_ = raw[:-1], float(raw[-1])
        return self

    def summary(self, confidence: float = 0.95) -> CoefficientTable:
        """The table of estimates and rate ratios with intervals, in the units of the columns.

        It is refused where released numbers say that noise hides them.
        """
        self._checked()
        return self._table(confidence)

    def predict(self, X: Any, exposure: Any = None) -> Array:
        """The expected count of every record; without an exposure the rate for one unit of it."""
        check_is_fitted(self)
        return np.exp(self._design(X) @ self._theta) * (1.0 if exposure is None else np.asarray(exposure, dtype=float))

    def mean_interval(self, X: Any, confidence: float = 0.95) -> Array:
        """(records, 2) ends of intervals for the rates at these records, each alone."""
        self._checked()
        width, x = quantile(confidence), self._design(X)
        deviation = np.sqrt(np.maximum(np.sum((x @ self._estimate.covariance) * x, axis=1), 0.0))
        margin = width * deviation
        return np.exp(np.stack([x @ self._theta - margin, x @ self._theta + margin], axis=1))

    @property
    def _theta(self) -> Array:
        """θ₁, with the constant per unit of exposure."""
        found = self._estimate.theta.copy()
        found[-1] -= self._middle()
        return found

    def _table(self, confidence: float) -> CoefficientTable:
        return self._made_table(confidence, ("(constant)",), "record", "counts", "rate ratio", NOTE)

    def _cap(self) -> float:
        if self.max_count is None:
            raise SpecError("max_count must be given: a public cap on counts, such as eight times the usual one")
        cap = settings.over_zero(self.max_count, "max_count")
        if not 1.0 <= cap <= LONGEST_CAP:
            raise SpecError(f"max_count must be between 1 and {LONGEST_CAP:g}, not {cap:g}")
        return cap

    def _middle(self) -> float:
        """The logarithm of the exposure whose offset is 0."""
        try:
            low, high = (float(end) for end in self.exposure_bounds)
        except (TypeError, ValueError):
            low = high = math.nan
        if not 0 < low <= high < math.inf:
            raise SpecError(f"exposure_bounds must be two public numbers over 0, not {self.exposure_bounds!r}")
        return 0.5 * (math.log(low) + math.log(high))

    def _design(self, X: Any) -> Array:
        """Columns in [−1, 1], with the constant."""
        X = validate_data(self, number_cells(X), dtype=np.float64, ensure_all_finite=False, reset=False)
        return np.concatenate([self._map.rows(X), np.ones((len(X), 1))], axis=1)

    def _records(self, X: Any, y: Any, exposure: Any, private: bool) -> _Records:
        X = self._columns(X)
        middle, counts = self._middle(), real_numbers(np.asarray(y))
        spent = np.full(len(X), math.exp(middle)) if exposure is None else real_numbers(np.asarray(exposure))
        if counts.shape != (len(X),) or spent.shape != counts.shape:
            raise DataError(f"there are {len(X)} records; give one count, and one exposure if any, for each")
        usable = np.isfinite(counts) & (counts >= 0) & np.isfinite(spent) & (spent > 0)
        bad = int(np.count_nonzero(~usable))
        if private:
            warn_owner(bad, "records have no usable count or exposure and contribute zero")
        elif bad:
            raise DataError(f"{bad} records have no usable count or exposure; counts are from 0, exposures over 0")
        low, high = self.exposure_bounds
        offset = np.log(np.clip(np.where(usable, spent, low), low, high)) - middle
        return _Records(self._map.rows(X), np.where(usable, counts, 0.0), offset, usable.astype(np.float64))
