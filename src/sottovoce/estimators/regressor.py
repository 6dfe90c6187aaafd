"""PrivateRegressor: robust linear regression over many owners' records, as a scikit-learn estimator."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from sottovoce._types import Array
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators.base import PrivateLinearModel, known_loss, leak
from sottovoce.problem import losses
from sottovoce.problem.losses import Loss

LOSSES = "auto, huber, absolute, quantile, squared"
AUTO = 0.25
"""Threshold of the default loss, huber, over the half width of the targets' range."""
TARGET_BOUNDS = (-1.0, 1.0)
"""The range that targets are clipped to where none is given: fixed, so that it tells of nobody."""


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """A linear regression trained by gossip, with (ε, δ)-differential privacy for every record.

    Targets are clipped to the public range `target_bounds` and mapped to [−1, 1], rows divided by `row_norm`; losses
    and `alpha` speak of that scaled problem, `coef_` and `intercept_` of the original one.

    Parameters
    ----------
    epsilon : ε of the guarantee; None for no noise, which protects nobody
    delta : δ of the guarantee; "auto" is 1e-5, or half of one over the number of records if that is less
    loss : "huber(threshold)", "absolute", "quantile(level)" or "squared" (its slope clipped at 2); "auto" is
        "huber(0.25)", quadratic up to an eighth of the range: an error beyond that pulls no harder, and so needs no
        more noise
    penalty, alpha, l1_ratio : "l2", "l1", "elasticnet" or None, with weight `alpha`. The intercept is penalised too
    trust : whom the owners trust: "nobody" (every message may be read), or "centre" (one node holds all records)
    adversary : the same by the name of who is watching, such as "transcript"; "auto" follows from `trust`
    n_nodes : to how many simulated owners rows are dealt in turn where `fit` is given no `nodes`; "auto" is one owner
    graph, activation : who is linked with whom, and who speaks in a round, such as "ring" and "matching(2)"
    batch, rounds, sampling : records a round, how many rounds; "poisson", "fixed" or "full"
    row_norm : a public bound on the length of a row. Without it rows are scaled down to length 1, with a warning
    target_bounds : a public range (low, high) of the targets, clipped to it. Without it (−1, 1), with a warning
    on_violation : "clip" scales a row over the bound down to it, in `fit` and `predict`; "raise" refuses it
    fit_intercept : whether there is a constant term
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    secure : whether noise and sums are exact and the generator a cryptographic one, so that the guarantee holds of the
        bits of the model; "auto": wherever there is no `random_state`. False is faster, and the statement says so
    engine : "auto", "reference" or "nodes"; "compiled" is for runs that are not secure
    track : whether to keep `history_`, in simulations only
    warm_start : whether a further `fit` starts from the model of the last one; see `spent_`

    Attributes
    ----------
    coef_, intercept_ : the mean model, (m,) and a number
    node_coef_, node_intercept_ : every node's own model
    n_features_in_, feature_names_in_ : as in scikit-learn
    nodes_ : the nodes' names
    row_norm_, target_bounds_ : the bounds that were used
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

    target_bounds: tuple[float, float] | None

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        *,
        loss: str = "auto",
        penalty: str | None = "auto",
        alpha: float | str = "auto",
        l1_ratio: float | str = "auto",
        trust: int | str = "nobody",
        adversary: str = "auto",
        n_nodes: int | str = "auto",
        graph: str = "auto",
        activation: str = "auto",
        batch: int | str = "auto",
        rounds: int | str = "auto",
        sampling: str = "auto",
        row_norm: float | None = None,
        target_bounds: tuple[float, float] | None = None,
        on_violation: str = "clip",
        fit_intercept: bool = True,
        random_state: Any = None,
        secure: bool | str = "auto",
        engine: str = "auto",
        track: bool = False,
        warm_start: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.trust = trust
        self.adversary = adversary
        self.n_nodes = n_nodes
        self.graph = graph
        self.activation = activation
        self.batch = batch
        self.rounds = rounds
        self.sampling = sampling
        self.row_norm = row_norm
        self.target_bounds = target_bounds
        self.on_violation = on_violation
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.secure = secure
        self.engine = engine
        self.track = track
        self.warm_start = warm_start

    def predict(self, X: Any) -> Array:
        """The target of every record, as the linear model has it."""
        return self._decide(X)

    def _targets(self, y: NDArray[Any]) -> tuple[Array, int]:
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError("the targets of a regression must be numbers; give numbers, or take a classifier") from None
        if not np.all(np.isfinite(y)):
            raise DataError("the targets hold NaN or infinite values; drop those records first")
        if self.target_bounds is None:
            leak(
                "target_bounds was not given: targets are clipped to [-1, 1], each by itself. That leaks nothing but "
                "may cost accuracy; give a range that is public, never one that was read off the data."
            )
        self.target_bounds_ = _range(TARGET_BOUNDS if self.target_bounds is None else self.target_bounds)
        low, high = self.target_bounds_
        return np.clip((2 * y - low - high) / (high - low), -1.0, 1.0), 1

    def _labels(self) -> tuple[Any, ...]:
        return self.target_bounds_

    def _loss(self, outputs: int) -> Loss:
        loss = losses.LOSSES.make("huber", AUTO) if self.loss == "auto" else known_loss(self.loss, "real", LOSSES)
        self.loss_ = str(loss)
        return loss

    def _keep(self, models: Array) -> None:
        low, high = self.target_bounds_
        half = (high - low) / 2
        coef, constant = self._split(models)
        self.node_coef_, self.node_intercept_ = half * coef, half * constant + (low + high) / 2
        self.coef_, self.intercept_ = self.node_coef_.mean(axis=0), float(self.node_intercept_.mean())


def _range(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in bounds)
    except (TypeError, ValueError):
        raise SpecError(f"target_bounds must be a pair of numbers (low, high), not {bounds!r}") from None
    if not -math.inf < low < high < math.inf:
        raise SpecError(f"target_bounds must be finite with low < high, not {bounds!r}")
    return low, high
