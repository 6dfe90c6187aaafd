"""PrivateRegressor: linear regression over many owners' records, as a scikit-learn estimator.

It is fitted by a noisy descent that public bounds keep stable, or from sufficient statistics that are released once,
whichever is foreseen to be better (`planner.regression`). What the statistics allow besides costs nothing more: a whole
path of penalties, an estimate of R², intervals that count the noise.
"""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sottovoce._types import Array
from sottovoce.data.schema import Schema
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.base import PrivateLinearModel, TrainingProblem, known_loss, warn_of_leak
from sottovoce.estimators.settings import PlanOptions, accepts_moved, caller_stacklevel
from sottovoce.estimators.unusable import real_numbers
from sottovoce.limits import LENGTH
from sottovoce.planner.choose import Choice
from sottovoce.planner.regression import EXPLAINED
from sottovoce.planner.shared_settings import target_scale
from sottovoce.problem import losses
from sottovoce.problem.least_squares import NoisyLeastSquares
from sottovoce.problem.shards import Shards
from sottovoce.run.result import Result
from sottovoce.run.scale import Scale
from sottovoce.run.target_range import TargetRange

LOSSES = "auto, huber, absolute, quantile, squared"
TARGET_BOUNDS = (-1.0, 1.0)
"""The range of targets if none is given: a constant, so that it reveals nothing about the data."""


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """A linear regression trained by gossip, with (ε, δ)-differential privacy for every record.

    Targets are clipped to the public range `target_bounds` and mapped to [−1, 1], rows divided by `row_norm`; losses
    and `alpha` speak of that scaled problem, `coef_` and `intercept_` of the original one. Where the range may be far
    too wide, `target_scale="private"` searches for a narrower one.

    Parameters
    ----------
    epsilon : ε of the guarantee; None for no noise, which protects nobody
    delta : δ of the guarantee; "auto" is 1e-5, or half of one over the number of records if that is less
    loss : "squared", which "auto" is too, "huber(threshold)", "absolute" or "quantile(level)". In a descent, a record
        that errs by more than a threshold pulls no harder: the squared loss's is chosen by the plan
    method : "descent", many rounds of noisy gradients; "statistics", one release of the products of all columns, for
        the squared loss; "mean", the best constant; "auto" is what public numbers say will lose least
    penalty, alpha, l1_ratio : "l2", "l1", "elasticnet" or None, with weight `alpha`. The intercept is penalized, too
    trust : whom the owners trust: "nobody" (every message may be read, every other node be curious), "majority" or a
        number (so many nodes may collude, the others keep secrets that they share in pairs), or "center" (one node
        holds all records)
    n_nodes : to how many simulated owners rows are assigned in turn where `fit` is given no `nodes`; "auto" is one
        owner
    row_norm : a public bound on the length of a row. Without it rows are scaled down to length 1, with a warning
    target_bounds : a public range (low, high) of the targets, clipped to it. Without it (−1, 1), with a warning
    target_scale : "public", `target_bounds` as they are; "private", a narrower range within them, from noisy counts of
        the targets that a share of the budget is spent on where that can pay; or that share. Losses, `alpha`, `r2_`,
        intervals and evaluations then speak of targets clipped to the narrower range
    features : "linear", "additive" (functions of every numeric column) or "auto", which chooses from public numbers and
        is linear where no bounds are known
    bounds : public bounds of numeric columns: {name: (low, high)}, one pair for all columns, or a list with a pair or
        None for each; of encoded columns `encoder.bounds_`. With bounds `row_norm` is of rows whose numeric columns
        are in [−1, 1], √3 for three columns: the other columns are scaled down to what it leaves beside these
    pairs : pairs of numeric columns that interact in an additive model, by name or place, [("age", "dose")]; "all" of
        them; None for none; "auto" for all where public numbers say that records are many and columns few
    on_violation : "clip" scales a row over the bound down to it, in `fit` and `predict`; "raise" refuses it
    fit_intercept : whether there is a constant term
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    secure : whether noise and sums are exact and the generator a cryptographic one, so that the guarantee holds of the
        bits of the model; "auto": wherever there is no `random_state`. False is faster, and the statement says so
    warm_start : whether a further `fit` starts from the model of the last one; see `spent_`
    budget : a `Budget(epsilon, delta, path)` that every fit and evaluation is paid from, before it is made; what would
        pass it is refused. The same ledger serves other estimators, processes and the command
    inference : whether 90 % of the budget goes to confidence intervals: `summary()` then prints the table of estimates
        with standard errors that count sampling and privacy noise. For the squared loss
    verbose : whether `fit` prints the plan with its reasons, its progress and the guarantee; nothing of it is private
    plan : `PlanOptions`: rounds, batch, graph and other parts of the plan that are fixed by hand. These were parameters
        of this class until 0.3, and are still taken as such
    schema : the `Schema` by which records were encoded, such as `encoder.schema_`: pictures then have its names and
        units, and where it names people (`unit`) or owners (`group`), `fit` needs `user_ids` or `nodes`

    Attributes
    ----------
    coef_, intercept_ : the mean model, (m,) and a number
    node_coef_, node_intercept_ : every node's own model
    n_features_in_, feature_names_in_ : as in scikit-learn
    nodes_ : the nodes' names
    row_norm_, target_bounds_ : the bounds that were used; of an additive model, on a row of functions
    features_ : "linear" or "additive"
    target_range_ : the range that targets were clipped to: `target_bounds_`, or a narrower one found from noisy counts
    method_ : which method it was fitted by
    r2_ : R² on the training records, estimated from the released statistics and their known noise, at no further cost;
        None after a descent, and where noise hides how far targets differ
    privacy_ : the `PrivacyStatement` of the last fit
    spent_ : what all fits of this process on these records cost together, of other estimators too
    plan_, spec_ : what the planner chose and why; the whole run, written down
    history_ : observations along the way, **not private**; empty unless tracked

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    >>> y = 100 + 20 * X[:, 0] - 10 * X[:, 1]
    >>> model = PrivateRegressor(epsilon=1.0, row_norm=1.5, target_bounds=(70, 130), random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    method: str
    target_bounds: tuple[float, float] | None
    target_scale: str | float

    @accepts_moved
    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        *,
        loss: str = "auto",
        method: str = "auto",
        penalty: str | None = "auto",
        alpha: float | str = "auto",
        l1_ratio: float | str = "auto",
        trust: int | str = "nobody",
        n_nodes: int | str = "auto",
        row_norm: float | None = None,
        features: str = "auto",
        bounds: Any = None,
        pairs: Any = "auto",
        target_bounds: tuple[float, float] | None = None,
        target_scale: str | float = "public",
        on_violation: str = "clip",
        fit_intercept: bool = True,
        random_state: Any = None,
        secure: bool | str = "auto",
        warm_start: bool = False,
        budget: Any = None,
        inference: bool = False,
        verbose: bool | int = False,
        plan: PlanOptions | None = None,
        schema: Schema | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.method = method
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.trust = trust
        self.n_nodes = n_nodes
        self.row_norm = row_norm
        self.features = features
        self.bounds = bounds
        self.pairs = pairs
        self.target_bounds = target_bounds
        self.target_scale = target_scale
        self.on_violation = on_violation
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.secure = secure
        self.warm_start = warm_start
        self.budget = budget
        self.inference = inference
        self.verbose = verbose
        self.plan = plan
        self.schema = schema

    def predict(self, X: Any) -> Array:
        """The target of every record, as the linear model has it."""
        return self._decide(X)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Two ends, between which the target of a new record lies with about the given probability.

        They count three things: how far targets scatter about the model, as estimated from the released statistics; how
        far noise and chance may have moved the model at this record; and how far noise may have misled the estimate, by
        one deviation of it. Targets that scatter like a normal law are covered as often as requested, or more, on
        average over the noise: a single release may be so unlucky that fewer are.

        Parameters
        ----------
        X : records by features
        coverage : a probability

        Returns
        -------
        (records, 2) low and high ends, in the units of the targets

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (4000, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=4000)
        >>> settings = {"row_norm": 1.5, "target_bounds": (-1.5, 1.5), "random_state": 1}
        >>> model = PrivateRegressor(epsilon=2.0, method="statistics", **settings).fit(X, y)
        >>> low, high = model.predict_interval(X).T
        >>> bool(np.mean((low <= y) & (y <= high)) > 0.9)
        True
        """
        found = self._statistics()
        if not 0 < coverage < 1:
            raise SpecError(f"coverage is a probability strictly between 0 and 1, not {coverage!r}")
        fit, records = self._fit_, sum(group.event.records * len(group.nodes) for group in self.privacy_.groups)
        decided = self._decide(X)
        rows = self._bounded(self._checked(X, reset=False)) / self.row_norm_
        rows = np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), dtype=np.float64)
        if self.fit_intercept:
            rows = np.concatenate([rows, np.full((len(rows), 1), settings.INTERCEPT)], axis=1)
        if found.m < rows.shape[1]:  # of the constant alone
            rows = rows[:, -1:]
        scatter, freedom = found.scatter(fit, records)
        at = np.sum((rows @ (found.moved(fit) + found.chance(fit, records))) * rows, axis=1)
        low, high = self.target_range_
        times = float(scipy.special.stdtrit(freedom, (1.0 + coverage) / 2.0))
        width = (high - low) / 2.0 * times * np.sqrt(scatter + found.deviation(fit.x) + np.maximum(at, 0.0))
        return np.stack([decided - width, decided + width], axis=1)

    def path(self, alphas: Any, penalty: str | None = None, l1_ratio: float | str = "auto") -> tuple[Array, Array]:
        """Models for many penalties from the one release: no further cost, whatever is tried.

        Parameters
        ----------
        alphas : weights of the penalty
        penalty, l1_ratio : as in the estimator, whose penalty is the default

        Returns
        -------
        coefficients (alphas, features) and constant terms (alphas,)
        """
        found, name = self._statistics(), settings.penalty_name(self.penalty if penalty is None else penalty)
        hs = [settings.regularizer(name, float(alpha), l1_ratio) for alpha in np.ravel(alphas)]
        models = np.stack([fit.x for fit in found.path(hs)])
        if found.m < self._width + bool(self.fit_intercept):
            models = np.concatenate([np.zeros((len(models), self._width)), models], axis=1)
        coef, constant = self._scaled(models if self._found is None else self._found.inverse_transform(models))
        return coef, constant

    def _statistics(self) -> NoisyLeastSquares:
        check_is_fitted(self)
        if self.statistics_ is None:
            raise SpecError(
                f"this model was fitted by {self.method_}, which releases gradients and no statistics; fit with "
                "method='statistics'"
            )
        return self.statistics_

    def _usable(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        found, (low, high) = (
            real_numbers(y),
            _range(TARGET_BOUNDS if self.target_bounds is None else self.target_bounds),
        )
        usable = np.isfinite(found)
        return np.where(usable, found, low / 2 + high / 2), usable

    def _training_problem(self, y: NDArray[Any], sample_weight: Any, private: bool) -> TrainingProblem:
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError("the targets of a regression must be numbers; give numbers, or take a classifier") from None
        if not np.all(np.isfinite(y)):
            raise DataError("the targets hold NaN or infinite values; drop those records first")
        if self.target_bounds is None:
            warn_of_leak(
                "target_bounds was not given: targets are clipped to [-1, 1], each by itself. That leaks nothing but "
                "may cost accuracy; give a range that is public, never one that was read off the data."
            )
        self.target_bounds_ = _range(TARGET_BOUNDS if self.target_bounds is None else self.target_bounds)
        low, high = self.target_bounds_
        with np.errstate(over="ignore"):  # overflows are clipped; a warning would reveal them
            targets = np.clip((2 * y - low - high) / (high - low), -1.0, 1.0)
        fixed = self.get_params(deep=False) | self._options.get_params()
        if self.warm_start and hasattr(self, "_last") and self.method == "auto":
            fixed |= {"method": "descent"}  # which goes on from another fit's model
        return TrainingProblem(
            targets=targets,
            loss=losses.LOSSES.make("squared") if self.loss == "auto" else known_loss(self.loss, "real", LOSSES),
            labels=self._labels(),
            fixed=fixed,
            find_range=target_scale(self.target_scale) is None,
        )

    def _labels(self) -> tuple[Any, ...]:
        return self.target_bounds_

    def _record_scale(self) -> Scale:
        return self._run_scale or replace(super()._record_scale(), targets=self.target_bounds_)

    def _warn_if_useless(self, choice: Choice, shards: Shards) -> None:
        if self.epsilon is not None and choice.predicted >= EXPLAINED and self.method != "mean":
            of = "people" if shards.people else "records"
            warnings.warn(
                f"at epsilon = {self.epsilon:g} {int(shards.sizes.sum())} {of} are not foreseen to teach more than the "
                "mean of their targets, or part of it: the model stays near the middle of their range; give a larger "
                "epsilon, or bring more of them together",
                UserWarning,
                stacklevel=caller_stacklevel(),
            )

    def _scaled(self, models: Array) -> tuple[Array, Array]:
        """Weights and constant terms in the units of records and targets."""
        low, high = self.target_bounds_
        half = (high - low) / 2
        coef, constant = self._split(models)
        return half * coef, half * constant + (low + high) / 2

    def _set_coefficients(self, result: Result) -> None:
        self.node_coef_, self.node_intercept_ = self._scaled(result.models)
        self.coef_, self.intercept_ = self.node_coef_.mean(axis=0), float(self.node_intercept_.mean())
        self.method_ = {"dual_averaging": "descent"}.get(name := result.spec.algorithm.method.name, name)
        self._found = _found(result)
        self.target_range_ = self.target_bounds_
        if self._found is not None:
            low, high = self.target_bounds_
            middle, half = (low + high) / 2, (high - low) / 2
            self.target_range_ = middle + half * self._found.low, middle + half * self._found.high
        self.statistics_: NoisyLeastSquares | None = None
        self.r2_: float | None = None
        if result.statistics is None:
            return
        m = self._width * (self.method_ != "mean") + bool(self.fit_intercept)
        intercept = result.spec.problem.intercept
        weight = dict(result.spec.algorithm.method.numbers).get("weight", intercept)
        self.statistics_ = NoisyLeastSquares.of(result.statistics, m, result.public["noise"], weight, intercept)
        self._fit_ = self.statistics_.solve(result.spec.problem.h)
        self.r2_ = self.statistics_.r2(self._fit_)


def _found(result: Result) -> TargetRange | None:
    """The range, within [−1, 1], that the run was made in units of; None where that is all of it."""
    if "targets" not in result.public:
        return None
    low, high = result.public["targets"]
    return TargetRange(low, high, result.spec.problem.row_norm, result.spec.problem.intercept)


def _range(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in bounds)
    except (TypeError, ValueError):
        raise SpecError(f"target_bounds must be a pair of numbers (low, high), not {bounds!r}") from None
    if not -math.inf < low < high < math.inf:
        raise SpecError(f"target_bounds must be finite with low < high, not {bounds!r}")
    if max(-low, high) > LENGTH or high - low < 1 / LENGTH:
        raise SpecError(f"target_bounds must be within ±{LENGTH:g} and {1 / LENGTH:g} or more apart, not {bounds!r}")
    return low, high
