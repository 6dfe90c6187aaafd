"""PrivateSurvival: hazard ratios and survival curves of people with intervals that count sampling and privacy noise."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.sums import TableEstimator, quantile
from sottovoce.estimators.survival import cell_numbers, exits, public_times
from sottovoce.estimators.unusable import number_cells, warn_owner
from sottovoce.inference.estimate import Settings
from sottovoce.inference.hazard import LINKS, hazard, length_of_rows
from sottovoce.inference.requirements import check_enough
from sottovoce.inference.statistics import Rows, weighted
from sottovoce.inference.survival import interval_of_survival
from sottovoce.inference.table import CoefficientTable
from sottovoce.privacy.inference import Inference
from sottovoce.problem.shards import Shards
from sottovoce.run.inference import StageSums

NOTE = "A person is the unit. Standard errors count sampling and privacy noise."
RATIOS = {"hazard": "hazard ratio", "odds": "odds ratio"}
MAX_HAZARD = 100.0


class SurvivalBands(NamedTuple):
    """Survival curves of some people, with pointwise intervals.

    Attributes
    ----------
    times : ends of intervals
    survival, low, high : (people, times)
    """

    times: Array
    survival: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class _PersonSums(StageSums):
    """A stage of a hazard model: a record's target is the cell of its exit."""

    intervals: int

    @property
    def share(self) -> float:
        """All of the budget: there is no other fit."""
        return 1.0

    def rows(self, shards: Shards, node: int, units: IntArray) -> Rows:
        """With the constant twice; records that cannot be used weigh nothing."""
        places = shards.rows(node, units)
        X, y = np.asarray(shards.X[places], dtype=np.float64), shards.y[places]
        usable = (y <= 2 * self.intervals).astype(np.float64)
        rows = weighted(np.concatenate([X, np.ones((len(X), 2))], axis=1), y, self.choice.longest)
        root = rows.root * usable
        return rows._replace(root=root, u=root[:, None] * rows.x)


class PrivateSurvival(TableEstimator):
    """Regression of the hazard in discrete time, with (ε, δ)-differential privacy for every person.

    All of the budget goes to noisy sums from which estimates with intervals follow: `summary()` prints hazard ratios,
    and `survival(X)` has curves with bands. A record is one person; give each person one row.

    Parameters
    ----------
    epsilon, delta : the guarantee; δ "auto" is 1e-5, or half of one over the number of records if that is less
    bounds : public bounds of the columns: {name: (low, high)}, one pair for all columns, or a list with a pair for each
    times : public ends of the intervals of time, increasing and over 0. Every interval has a hazard of its own, which
        has to be known beside the noise: few intervals with many events in each, such as five
    ratio : "hazard", ratios of hazards (proportional hazards in intervals: the complementary log-log link), or "odds",
        odds ratios of the event in an interval among those who are still there (the logistic link)
    max_hazard : c ≥ 1, public: a person is followed until the hazards that the released model expects of them add up
        to c. Noise grows with it; at 1 people are followed until about 63 % of those like them had the event
    trust : whom the owners trust: "nobody", "majority" or a number of nodes that may collude, or "center"
    n_nodes : to how many simulated owners rows are assigned where `fit` is given no `nodes`; "auto" is one owner
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    budget : a `Budget(epsilon, delta, path)` that the release is paid from, before it is made

    Attributes
    ----------
    coef_ : the estimates, in the units of the columns: logarithms of the ratios
    intercept_ : the constant of every interval
    privacy_ : the `PrivacyStatement`
    spent_ : what all fits of this process on these records cost together
    nodes_, n_features_in_, feature_names_in_ : as in `PrivateClassifier`

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(20, 80, (20_000, 1))
    >>> left, censored = rng.exponential(np.exp(4 - 0.03 * X[:, 0])), rng.uniform(0, 15, 20_000)
    >>> model = PrivateSurvival(1.0, bounds=(20, 80), times=[2, 4, 6, 8, 10], random_state=0)
    >>> model = model.fit(X, np.minimum(left, censored), left <= censored)
    >>> low, high = model.summary().intervals[0]
    >>> bool(low < 0.03 < high), bool(high - low < 0.01)
    (True, True)
    >>> bands = model.survival([[50]])
    >>> bool(bands.low[0, -1] < np.exp(-10 * np.exp(-2.5)) < bands.high[0, -1])
    True
    """

    instead, purchase, remedy = "lifelines", "survival regression", "fewer times"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        bounds: Any = None,
        times: Any = None,
        ratio: str = "hazard",
        max_hazard: float = 1.0,
        trust: int | str = "nobody",
        n_nodes: int | str = "auto",
        random_state: Any = None,
        budget: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.times = times
        self.ratio = ratio
        self.max_hazard = max_hazard
        self.trust = trust
        self.n_nodes = n_nodes
        self.random_state = random_state
        self.budget = budget

    def fit(self, X: Any, time: Any, event: Any, nodes: Any = None) -> Self:
        """Release the sums, and estimate.

        Parameters
        ----------
        X : records by columns
        time : when each person left, in the units of `times`
        event : whether by an event (1 or True) or censored (0 or False)
        nodes : the owner of each record; without it the table has one owner, or `n_nodes` simulated ones
        """
        times, most = public_times(self.times), settings.over_zero(self.max_hazard, "max_hazard")
        if not 1.0 <= most <= MAX_HAZARD:
            raise SpecError(f"max_hazard must be between 1 and {MAX_HAZARD:g}, not {most:g}")
        if self.ratio not in RATIOS:
            raise SpecError(f"ratio must be 'hazard' or 'odds', not {self.ratio!r}")
        X = self._columns(X)
        N, m = X.shape
        cell = self._cells(time, event, times, N, private=settings.seed(self.random_state) is None)
        t, planned = self._map.rows(X), self._planned(N, nodes)
        check_enough(
            "hazard", N, m, planned.multiplier, planned.epsilon, planned.factor, "people", intervals=len(times)
        )
        longest = length_of_rows(m)
        steps = hazard(Settings(m + 2, longest, N), LINKS[self.ratio], len(times), most)
        sums = partial(_PersonSums, choice=Inference(0.9, 1.0, longest), intervals=len(times))
        self._release(planned, t, cell, steps, sums)
        raw = self._table(0.95).estimates
        self.coef_, self.intercept_ = raw[:m], raw[m:]
        return self

    def summary(self, confidence: float = 0.95) -> CoefficientTable:
        """The table of estimates and ratios with intervals, in the units of the columns.

        It is refused where released numbers say that noise hides them.
        """
        self._checked()
        return self._table(confidence)

    def survival(self, X: Any, confidence: float = 0.95) -> SurvivalBands:
        """Survival curves of people with these columns, with pointwise intervals.

        Parameters
        ----------
        X : people by columns
        confidence : of each interval
        """
        self._checked()
        z, link = quantile(confidence), LINKS[self.ratio]
        X = validate_data(self, number_cells(X), dtype=np.float64, ensure_all_finite=False, reset=False)
        t, m, times = self._map.rows(X), self.n_features_in_, public_times(self.times)
        log_survival, gradient = np.zeros(len(t)), np.zeros((len(t), len(self._theta)))
        found = []
        for k in range(len(times)):
            u = t @ self._theta[:m] + self._theta[m + k]
            log_survival = log_survival + np.log1p(-np.minimum(link.slope(u, np.zeros_like(u)), 1.0 - 1e-12))
            slope = link.log_survival_slope(u)
            gradient[:, :m] -= slope[:, None] * t
            gradient[:, m + k] -= slope
            variance = np.sum((gradient @ self._estimate.covariance) * gradient, axis=1)
            error = np.sqrt(np.maximum(variance, 0.0))
            found.append((np.exp(log_survival), *interval_of_survival(log_survival, error, z)))
        return SurvivalBands(times, *(np.stack(each, axis=1) for each in zip(*found, strict=True)))

    def _table(self, confidence: float) -> CoefficientTable:
        check_is_fitted(self)
        ends = [0.0, *public_times(self.times)]
        constants = tuple(f"({low:g}, {high:g}]" for low, high in pairwise(ends))
        return self._made_table(confidence, constants, "person", "events", RATIOS[self.ratio], NOTE)

    def _cells(self, time: Any, event: Any, times: Array, N: int, private: bool) -> Array:
        """The cell of every person's exit."""
        left, ended = exits(time, event)
        if len(left) != N:
            raise DataError(f"there are {N} records but {len(left)} times; give one time and one event a record")
        bad = int(np.count_nonzero(~np.isfinite(left)))
        if private:
            warn_owner(bad, "records have no usable time or event and contribute zero")
        elif bad:
            raise DataError(f"{bad} records have no usable time or event: times are numbers from 0, events 0 or 1")
        return cell_numbers(left, ended, np.zeros(N, dtype=np.int64), times, 1).astype(np.float64)
