"""PrivateClassifier: support vectors or logistic regression over many owners' records, as a scikit-learn estimator."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target

from sottovoce._types import Array
from sottovoce.errors import DataError
from sottovoce.estimators.base import PrivateLinearModel, known_loss, leak, refuse_missing
from sottovoce.problem import losses
from sottovoce.problem.losses import Loss

LOSSES = "auto, hinge, smoothed_hinge, logistic, squared_hinge, softmax"
WITH_PROBABILITIES = ("logistic", "softmax")


def _has_probabilities(model: "PrivateClassifier") -> bool:
    loss = getattr(model, "loss_", model.loss)
    if loss not in WITH_PROBABILITIES:
        raise AttributeError(f"loss '{loss}' has no probabilities; fit with loss='logistic'")
    return True


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """A linear classifier trained by gossip, with (ε, δ)-differential privacy for every record.

    Everything on "auto" is chosen by the planner from public numbers: how many owners and records there are, how many
    features, ε and δ.

    Parameters
    ----------
    epsilon : ε of the guarantee; None for no noise, which protects nobody
    delta : δ of the guarantee; "auto" is 1e-5, or half of one over the number of records if that is less
    loss : "hinge" (the default for two classes), "logistic", "smoothed_hinge(width)", "squared_hinge" (its slope
        clipped at 2) or "softmax" (the default for more). More than two classes under a loss for two are trained one
        against the rest, all at once, in a single release
    penalty, alpha, l1_ratio : "l2", "l1", "elasticnet" or None, with weight `alpha` as in scikit-learn's
        `SGDClassifier`, on rows in units of `row_norm`. The intercept is penalised too
    trust : whom the owners trust: "nobody" (every message may be read), or "centre" (one node holds all records)
    adversary : the same by the name of who is watching, such as "transcript"; "auto" follows from `trust`
    n_nodes : to how many simulated owners rows are dealt in turn where `fit` is given no `nodes`; "auto" is one owner
    graph, activation : who is linked with whom, and who speaks in a round, such as "ring" and "matching(2)"
    batch, rounds, sampling : records a round, how many rounds; "poisson", "fixed" or "full"
    row_norm : a public bound on the length of a row. Without it rows are scaled down to length 1, with a warning
    on_violation : "clip" scales a row over the bound down to it, in `fit` and `predict`; "raise" refuses it
    fit_intercept : whether there is a constant term
    classes : the labels there may be, public. Inferred from the data, with a warning, where not given
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    secure : whether noise and sums are exact and the generator a cryptographic one, so that the guarantee holds of the
        bits of the model; "auto": wherever there is no `random_state`. False is faster, and the statement says so
    engine : "auto", "reference" or "nodes"; "compiled" is for runs that are not secure
    track : whether to keep `history_`, in simulations only
    warm_start : whether a further `fit` starts from the model of the last one; see `spent_`

    Attributes
    ----------
    coef_, intercept_ : the mean model, (1, m) and (1,) for two classes, a row a class for more
    node_coef_, node_intercept_ : every node's own model
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn
    nodes_ : the nodes' names
    row_norm_ : the bound on a row that was used
    loss_ : the loss that was used
    privacy_ : the `PrivacyStatement` of the last fit
    spent_ : what all fits of this process on these records cost together, of other estimators too
    plan_, spec_ : what the planner chose and why; the whole run, written down
    history_ : observations along the way, **not private**; empty unless tracked

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> hospital = rng.choice(["north", "south"], 2000)
    >>> model = PrivateClassifier(epsilon=1.0, row_norm=1.5, classes=["no", "yes"], random_state=0)
    >>> model.fit(X, y, nodes=hospital).score(X, y) > 0.95
    True
    >>> print(model.privacy_.verdict())
    SIMULATION: with secret noise every record would have (ε = 1, δ = 1e-05)-differential privacy against ...
    """

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
        on_violation: str = "clip",
        fit_intercept: bool = True,
        classes: Any = None,
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
        self.on_violation = on_violation
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.random_state = random_state
        self.secure = secure
        self.engine = engine
        self.track = track
        self.warm_start = warm_start

    def decision_function(self, X: Any) -> Array:
        """The side of the boundary and the distance from it, or one score a class."""
        scores = self._decide(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every record."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            likely = expit(scores)
            return np.column_stack([1 - likely, likely])
        if self.loss_ == "softmax":
            return softmax(scores, axis=1)
        likely = expit(scores)
        return likely / likely.sum(axis=1, keepdims=True)

    def _targets(self, y: NDArray[Any]) -> tuple[Array, int]:
        refuse_missing(y, "y", "class")
        kind = type_of_target(y)
        if kind not in ("binary", "multiclass"):
            raise DataError(f"Unknown label type: {kind} values are no classes; give labels, or take PrivateRegressor")
        self.classes_ = np.unique(y if self.classes is None else np.asarray(self.classes))
        if len(self.classes_) < 2:
            whose = "y holds" if self.classes is None else "classes names"
            raise DataError(f"{whose} only one class, {self.classes_.tolist()}; a classifier needs two or more classes")
        if self.classes is None:
            leak(
                "classes was not given: the classes were read off the data, and that somebody has a rare one may be "
                "telling; give the public list of classes."
            )
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        strange = np.flatnonzero(self.classes_[codes] != y)
        if strange.size:
            label = y[strange].tolist()[0]
            raise DataError(
                f"y holds the class {label!r} in record {strange[0]}, which is not among the given classes; add it to "
                "classes, or drop the record"
            )
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        return (2.0 * codes - 1.0 if outputs == 1 else codes.astype(np.float64)), outputs

    def _labels(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _loss(self, outputs: int) -> Loss:
        if self.loss == "auto":
            loss = losses.LOSSES.make("hinge" if outputs == 1 else "softmax")
        elif self.loss == "softmax":
            loss = losses.LOSSES.make("logistic" if outputs == 1 else "softmax")  # of two classes: the same model
        else:
            loss = known_loss(self.loss, "binary", LOSSES)
        self.loss_ = str(loss)
        return loss

    def _keep(self, models: Array) -> None:
        each = 1 if len(self.classes_) == 2 else len(self.classes_)
        models = models.reshape(len(models), each, -1)
        self.node_coef_, self.node_intercept_ = self._split(models)
        self.coef_, self.intercept_ = self._split(models.mean(axis=0))
