"""PrivateClassifier: support vectors or logistic regression over many owners' records, as a scikit-learn estimator."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import type_of_target

from sottovoce._types import Array
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.base import PrivateLinearModel, known_loss, leak, refuse_missing
from sottovoce.evaluation.curves import probabilities, public_link
from sottovoce.evaluation.private import Evaluation, answers
from sottovoce.planner import Choice
from sottovoce.planner.terms import Weighing
from sottovoce.problem import losses
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Shards
from sottovoce.run.scale import Scale
from sottovoce.run.spec import Spec

LOSSES = "auto, hinge, smoothed_hinge, logistic, squared_hinge, softmax"


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """A linear classifier trained by gossip, with (ε, δ)-differential privacy for every record.

    Everything on "auto" is chosen by the planner from public numbers: how many owners and records there are, how many
    features, ε and δ.

    Parameters
    ----------
    epsilon : ε of the guarantee; None for no noise, which protects nobody
    delta : δ of the guarantee; "auto" is 1e-5, or half of one over the number of records if that is less
    loss : "hinge", "logistic", "smoothed_hinge(width)", "squared_hinge" (its slope clipped at 2) or "softmax". "auto"
        is a hinge for two classes or, where public numbers say that there is little noise or that one class is rare
        (`prior`), "logistic"; "softmax" for more. More than two classes under a loss for two are trained one against
        the rest, all at once, in a single release
    penalty, alpha, l1_ratio : "l2", "l1", "elasticnet" or None, with weight `alpha` as in scikit-learn's
        `SGDClassifier`, on rows in units of `row_norm`. The intercept is penalised too. "auto" is l2 and, where it is a
        hinge, a threshold (l1) of half a deviation of the noise
    trust : whom the owners trust: "nobody" (every message may be read, every other node be curious), "majority" or a
        number (so many nodes may collude, the others keep secrets that they share in pairs), or "centre" (one node
        holds all records)
    adversary : the same by the name of who is watching, such as "transcript"; "auto" follows from `trust`
    n_nodes : to how many simulated owners rows are dealt in turn where `fit` is given no `nodes`; "auto" is one owner
    graph, activation : who is linked with whom, and who speaks in a round, such as "ring" and "matching(2)"
    batch, rounds, sampling : records a round, how many rounds; "poisson", "fixed" or "full"
    row_norm : a public bound on the length of a row. Without it rows are scaled down to length 1, with a warning
    on_violation : "clip" scales a row over the bound down to it, in `fit` and `predict`; "raise" refuses it
    fit_intercept : whether there is a constant term
    shape : "auto" spends a share of the budget on the shape of the data where public numbers say that it pays: noisy
        means by which rows are centred, scaled and brought to a common length, and counts of scores by which a rare
        class is balanced; False spends all on the model
    classes : the labels there may be, public. Inferred from the data, with a warning, where not given
    class_weight : what a record of each class counts, {class: number over 0}, public; or "balanced": by the `prior`
        all classes count the same together. The largest weight counts as 1 in the mechanism, so that weights change no
        ε: they lower what the others say beside the same noise. Where a rare class would drown by that, weights go
        half of the way, and noisy counts of scores after the rounds move the constant term
    prior : how likely each class is, {class: share} or shares in the order of `classes`, public. With it the plan
        knows what is left of the data's weight beside the noise, and the constant term starts at its log-odds
    max_weight : a public bound on `sample_weight` in `fit`, clipped to it. Without it 1, with a warning
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    secure : whether noise and sums are exact and the generator a cryptographic one, so that the guarantee holds of the
        bits of the model; "auto": wherever there is no `random_state`. False is faster, and the statement says so
    engine : "auto", "reference" or "nodes"; "compiled" is for runs that are not secure
    track : whether to keep `history_`, in simulations only
    warm_start : whether a further `fit` starts from the model of the last one; see `spent_`
    budget : a `Budget(epsilon, delta, path)` that every fit and evaluation is paid from, before it is made; what would
        pass it is refused. The same ledger serves other estimators, processes and the command

    Attributes
    ----------
    coef_, intercept_ : the mean model, (1, m) and (1,) for two classes, a row a class for more
    node_coef_, node_intercept_ : every node's own model
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn
    nodes_ : the nodes' names
    row_norm_ : the bound on a row that was used
    loss_ : the loss that was used
    threshold_ : the score from which on the answer is the second of two classes: 0, until `use_threshold`
    link_ : (a, b) of the probabilities 1/(1 + e^−(a s + b)) of a score s, public, until `use_calibration`
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

    _column = settings.SMALL_INTERCEPT

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
        shape: bool | str = "auto",
        classes: Any = None,
        class_weight: Any = None,
        prior: Any = None,
        max_weight: float | None = None,
        random_state: Any = None,
        secure: bool | str = "auto",
        engine: str = "auto",
        track: bool = False,
        warm_start: bool = False,
        budget: Any = None,
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
        self.shape = shape
        self.classes = classes
        self.class_weight = class_weight
        self.prior = prior
        self.max_weight = max_weight
        self.random_state = random_state
        self.secure = secure
        self.engine = engine
        self.track = track
        self.warm_start = warm_start
        self.budget = budget

    def fit(self, X: Any, y: Any, nodes: Any = None, units: Any = None, sample_weight: Any = None) -> Self:
        """Train on everybody's records.

        Parameters
        ----------
        X : records by features: array, sparse matrix or data frame
        y : one class a record
        nodes : whose each record is, a column of labels, one node for each label. Without it the table has one owner,
            or `n_nodes` simulated ones, to whom the rows are dealt in turn. Which owners there are and how many
            records each has is public.
        units : whose life each record is part of, a column of ids: a person's rows at a node are drawn, averaged and
            clipped together, and the guarantee is for the whole person. Without it every record is a unit of its own.
        sample_weight : what each record counts, as private as the record; not negative, clipped to `max_weight`. A
            record of weight 0 still counts as one of the records that there are, whose number is public.
        """
        return self._fit(X, y, nodes, units, sample_weight)

    def decision_function(self, X: Any) -> Array:
        """The side of the boundary and the distance from it, or one score a class."""
        scores = self._decide(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every record."""
        scores = self.decision_function(X)
        return self.classes_[answers(scores, self.threshold_)]

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, in the order of `classes_`.

        They are as well calibrated as a public formula can make them; `use_calibration` makes them better.
        """
        return probabilities(self.decision_function(X), self.loss_, self.link_)

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def use_threshold(self, found: Evaluation, *, recall: float | None = None, rate: float | None = None) -> Self:
        """Answer with the second class from the score on that an evaluation of scores gives for a recall or a rate.

        Parameters
        ----------
        found : what `evaluate` gave for this model; nothing else is looked at, so that this costs nothing more
        recall : the share of the second class that is to be answered with it
        rate : or the share of all records

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(20_000, 2)) / 3
        >>> y = (X[:, 0] + rng.normal(size=20_000) / 3 > 0.7).astype(int)
        >>> model = PrivateClassifier(2.0, row_norm=1.0, classes=[0, 1], random_state=0).fit(X[:12_000], y[:12_000])
        >>> found = model.evaluate(X[12_000:], y[12_000:])
        >>> answers = model.use_threshold(found, recall=0.9).predict(X)
        >>> 0.85 < float(answers[y == 1].mean()) < 0.97
        True
        """
        self.threshold_ = found.threshold(recall=recall, rate=rate)
        return self

    def use_calibration(self, found: Evaluation) -> Self:
        """Take probabilities from an evaluation of scores: Platt's, fitted to its noisy histogram, at no other cost."""
        self.link_ = found.link()
        return self

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

    def _shaped(self) -> bool:
        if self.shape not in ("auto", True, False):
            raise SpecError(f"shape must be 'auto', True or False, not {self.shape!r}")
        return bool(self.shape)

    def _free(self) -> tuple[str, ...]:
        return tuple(name for name in ("loss", "penalty") if getattr(self, name) == "auto")

    def _plan(self, sizes: tuple[int, ...], names: tuple[str, ...], outputs: int, of: str, sparse: bool) -> Choice:
        choice = super()._plan(sizes, names, outputs, of, sparse)
        self._settle(choice.spec.problem.loss)
        return choice

    def _labels(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _named(self) -> tuple[Any, ...]:
        return self._labels()

    def _record_scale(self) -> Scale:
        two = len(self.classes_) == 2
        link = None if self.loss_ == "softmax" else (float(self.link_[0]), float(self.link_[1]))
        return replace(super()._record_scale(), threshold=float(self.threshold_) if two else 0.0, link=link)

    def _loss(self, outputs: int) -> Loss:
        if self.loss == "auto":
            loss = losses.LOSSES.make("hinge" if outputs == 1 else "softmax")
        elif self.loss == "softmax":
            loss = losses.LOSSES.make("logistic" if outputs == 1 else "softmax")  # of two classes: the same model
        else:
            loss = known_loss(self.loss, "binary", LOSSES)
        self._settle(loss)
        return loss

    def _settle(self, loss: Loss) -> None:
        self.loss_ = str(loss)
        self.threshold_, self.link_ = 0.0, public_link(loss.name)

    def _weights(self, targets: Array, sample_weight: Any) -> Array | None:
        weighing = self._weighing()
        self._largest = weighing.largest
        weights = weighing.of_classes(targets if len(self.classes_) > 2 else (targets + 1.0) / 2)
        if sample_weight is None:
            return weights
        return (1.0 if weights is None else weights) * self._bounded_weights(sample_weight, len(targets))

    def _weighing(self) -> Weighing:
        """What the classes count, and how likely they are; public."""
        return Weighing.of(self.classes_.tolist(), self.class_weight, self.prior)

    def _bounded_weights(self, sample_weight: Any, records: int) -> Array:
        """Weights of records over their public bound."""
        weights = np.asarray(sample_weight, dtype=np.float64)
        weights = np.full(records, weights) if weights.ndim == 0 else weights
        if weights.shape != (records,):
            raise DataError(
                f"Sample weights must be 1D array or scalar, one for each of {records} records, but their shape is "
                f"{weights.shape}"
            )
        if not np.all((weights >= 0) & np.isfinite(weights)):
            raise DataError(
                "sample_weight must be finite numbers that are not negative; mend them, or drop the records"
            )
        if not np.any(weights):
            raise DataError("every sample_weight is zero: there is nothing to learn from; give some record a weight")
        if self.max_weight is None:
            leak(
                "max_weight was not given: weights of records are clipped to 1, each by itself. That leaks nothing but "
                "may not be what was meant; give a bound that is public, never one that was read off the data."
            )
        bound = 1.0 if self.max_weight is None else settings.over_zero(self.max_weight, "max_weight")
        self._largest *= bound
        return np.minimum(weights, bound) / bound

    def _mean_weight(self) -> float:
        return self._weighing().mean

    def _rarest(self) -> float | None:
        return self._weighing().rarest

    def _balance(self) -> tuple[float, float] | None:
        return self._weighing().balance

    def _weighed(self, spec: Spec, shards: Shards) -> Shards:
        return self._weighing().weighed(spec, shards)

    def _given(self) -> dict[str, Any]:
        """As in scikit-learn α stands beside the loss with its weights; here they are divided by the largest."""
        given, alpha = super()._given(), self.alpha
        return given | ({} if isinstance(alpha, str) or self._largest == 1.0 else {"alpha": alpha / self._largest})

    def _started(self, spec: Spec) -> Spec:
        return self._weighing().started(spec, self.n_features_in_)

    def _keep(self, models: Array) -> None:
        each = 1 if len(self.classes_) == 2 else len(self.classes_)
        models = models.reshape(len(models), each, -1)
        self.node_coef_, self.node_intercept_ = self._split(models)
        self.coef_, self.intercept_ = self._split(models.mean(axis=0))
