"""PrivateClassifier: support vectors or logistic regression over many owners' records, as a scikit-learn estimator."""

import math
import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array
from sottovoce.casts import class_numbers
from sottovoce.data.schema import Schema
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.base import PrivateLinearModel, TrainingProblem, check_no_missing, known_loss, warn_of_leak
from sottovoce.estimators.settings import PlanOptions, accepts_moved
from sottovoce.estimators.unusable import check_label_type, class_codes, real_numbers, warn_owner
from sottovoce.evaluation.curves import probabilities, public_link
from sottovoce.evaluation.private import Evaluation, answers
from sottovoce.planner.shared_settings import Weighing
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem import losses
from sottovoce.problem.losses import Loss
from sottovoce.run.result import Result
from sottovoce.run.scale import Scale

LOSSES = "auto, hinge, smoothed_hinge, logistic, squared_hinge, softmax"


@old_attributes
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """A linear classifier trained by gossip, with (ε, δ)-differential privacy for every record.

    Everything on "auto" is chosen by the planner from public numbers: how many owners and records there are, how many
    features, ε and δ.

    Parameters
    ----------
    epsilon : ε of the guarantee; None for no noise, which protects nobody
    delta : δ of the guarantee; "auto" is 1e-5, or half of one over the number of records if that is less
    loss : "hinge", "logistic", "smoothed_hinge(width)", "squared_hinge" (its slope clipped at 2) or "softmax". "auto"
        is "logistic" for two classes where columns have known bounds, there is little noise or one class is rare
        (`prior`), unless public numbers say that noise is large, and else a hinge; "softmax" for more. More than two
        classes under a loss for two are trained one against the rest, all at once, in a single release
    penalty, alpha, l1_ratio : "l2", "l1", "elasticnet" or None, with weight `alpha` as in scikit-learn's
        `SGDClassifier`, on rows in units of `row_norm`. The intercept is penalised too. "auto" is l2 and, where it is a
        hinge, a threshold (l1) of half a deviation of the noise
    trust : whom the owners trust: "nobody" (every message may be read, every other node be curious), "majority" or a
        number (so many nodes may collude, the others keep secrets that they share in pairs), or "center" (one node
        holds all records)
    n_nodes : to how many simulated owners rows are assigned in turn where `fit` is given no `nodes`; "auto" is one
        owner
    row_norm : a public bound on the length of a row. Without it rows are scaled down to length 1, with a warning
    features : "linear", "additive" (functions of every numeric column) or "auto", which chooses from public numbers and
        is linear where no bounds are known
    bounds : public bounds of numeric columns: {name: (low, high)}, one pair for all columns, or a list with a pair or
        None for each; of encoded columns `encoder.bounds_`. With bounds `row_norm` is of rows whose numeric columns
        are in [−1, 1], √3 for three columns: the other columns are scaled down to what it leaves beside these
    pairs : pairs of numeric columns that interact in an additive model, by name or place, [("age", "dose")]; "all" of
        them; None for none; "auto" for all where public numbers say that records are many and columns few
    on_violation : "clip" scales a row over the bound down to it, in `fit` and `predict`; "raise" refuses it
    fit_intercept : whether there is a constant term
    private_scaling : "auto" spends a share of the budget on scaling the data where public numbers say that it
        pays: noisy means by which rows are centered, scaled and brought to a common length, and counts of scores by
        which a rare class is balanced; False spends all on the model
    classes : the labels there may be, public; of two the last is the positive class, for which `evaluate` and
        `use_threshold` report. Inferred from the data, with a warning, where not given
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
    warm_start : whether a further `fit` starts from the model of the last one; see `spent_`
    budget : a `Budget(epsilon, delta, path)` that every fit and evaluation is paid from, before it is made; what would
        pass it is refused. The same ledger serves other estimators, processes and the command
    inference : whether 90 % of the budget goes to confidence intervals: `summary()` then prints the table of estimates
        with standard errors that count sampling and privacy noise. For two classes and loss "logistic"
    verbose : whether `fit` prints the plan with its reasons, its progress and the guarantee; nothing of it is private
    plan : `PlanOptions`: rounds, batch, graph and other parts of the plan that are fixed by hand. These were parameters
        of this class until 0.3, and are still taken as such
    schema : the `Schema` by which records were encoded, such as `encoder.schema_`: pictures then have its names and
        units, and where it names people (`unit`) or owners (`group`), `fit` needs `user_ids` or `nodes`

    Attributes
    ----------
    coef_, intercept_ : the mean model, (1, m) and (1,) for two classes, a row a class for more
    node_coef_, node_intercept_ : every node's own model
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn; `classes_` is sorted, in whatever order `classes`
        was given
    nodes_ : the nodes' names
    row_norm_ : the bound on a row that was used; of an additive model, on a row of functions
    features_ : "linear" or "additive"
    loss_ : the loss that was used
    threshold_ : the score from which on the answer is `classes_[1]`, of two classes: 0, until `use_threshold`
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

    @accepts_moved
    @old_arguments
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
        n_nodes: int | str = "auto",
        row_norm: float | None = None,
        features: str = "auto",
        bounds: Any = None,
        pairs: Any = "auto",
        on_violation: str = "clip",
        fit_intercept: bool = True,
        private_scaling: bool | str = "auto",
        classes: Any = None,
        class_weight: Any = None,
        prior: Any = None,
        max_weight: float | None = None,
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
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.trust = trust
        self.n_nodes = n_nodes
        self.row_norm = row_norm
        self.features = features
        self.bounds = bounds
        self.pairs = pairs
        self.on_violation = on_violation
        self.fit_intercept = fit_intercept
        self.private_scaling = private_scaling
        self.classes = classes
        self.class_weight = class_weight
        self.prior = prior
        self.max_weight = max_weight
        self.random_state = random_state
        self.secure = secure
        self.warm_start = warm_start
        self.budget = budget
        self.inference = inference
        self.verbose = verbose
        self.plan = plan
        self.schema = schema

    @old_arguments
    def fit(self, X: Any, y: Any, nodes: Any = None, user_ids: Any = None, sample_weight: Any = None) -> Self:
        """Train on everybody's records.

        Parameters
        ----------
        X : records by features: array, sparse matrix or data frame
        y : one class a record
        nodes : the owner of each record, a column of labels, one node for each label. Without it the table has one
            owner, or `n_nodes` simulated ones, to whom the rows are assigned in turn. The owners and their numbers of
            records are public.
        user_ids : the person id of each record: a person's rows at a node are drawn, averaged and clipped together, and
            the guarantee covers the whole person. Without it the guarantee covers single records.
        sample_weight : what each record counts, as private as the record; not negative, clipped to `max_weight`. A
            record of weight 0 still counts as one of the records that there are, whose number is public, and as one
            of those whose scores are counted, where that balances a rare class (`class_weight`).
        """
        self._fit(X, y, nodes, user_ids, sample_weight)
        self.threshold_, self.link_ = 0.0, public_link(self.spec_.problem.loss.name)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on these records, as in scikit-learn; it is not private."""
        check_is_fitted(self)
        check_label_type(self.classes_, y)
        return float(super().score(X, y, sample_weight))

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

    def use_threshold(
        self, found: Evaluation, *, recall: float | None = None, rate: float | None = None, positive: Any = None
    ) -> Self:
        """Answer from the threshold that an evaluation of scores gives for a recall or a rate of the positive class.

        Parameters
        ----------
        found : the result of `evaluate` for this model; nothing else is used, so that this costs no further budget
        recall : the share of positive records to predict as positive
        rate : or the share of all records to predict as positive; the nearest edge of the noisy histogram is taken,
            with a warning where its rate is less than half of that or more than one and a half of it
        positive : which class that is; by default that of the evaluation, the last of `classes` as it was given

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(20_000, 2)) / 3
        >>> y = (X[:, 0] + rng.normal(size=20_000) / 3 > 0.7).astype(int)
        >>> model = PrivateClassifier(2.0, row_norm=1.0, classes=[0, 1], random_state=0).fit(X[:12_000], y[:12_000])
        >>> found = model.evaluate(X[12_000:], y[12_000:], disjoint=True)
        >>> answers = model.use_threshold(found, recall=0.9).predict(X)
        >>> 0.85 < float(answers[y == 1].mean()) < 0.97
        True
        """
        self.threshold_ = found.threshold(recall=recall, rate=rate, positive=positive)
        if rate is not None and abs((near := found.rate_at(self.threshold_, positive)) - rate) > rate / 2:
            warnings.warn(
                f"the edge of the noisy histogram that is nearest to a rate of {rate:g} has a rate of {near:.3g}; "
                "evaluate with more records or a larger ε, or set threshold_ yourself",
                UserWarning,
                stacklevel=2,
            )
        return self

    def use_calibration(self, found: Evaluation) -> Self:
        """Take probabilities from an evaluation of scores: Platt's, fitted to its noisy histogram, at no other cost."""
        self.link_ = found.link()
        return self

    def _usable(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        if self.classes is None:  # then the classes are read off the data, of which `fit` warns
            return np.array(y.tolist()), np.ones(len(y), dtype=bool)
        classes = np.unique(np.asarray(self.classes))
        found = class_codes(classes, y)
        return classes[class_numbers(np.maximum(found, 0.0), len(classes))], found >= 0

    def _training_problem(self, y: NDArray[Any], sample_weight: Any, private: bool) -> TrainingProblem:
        if self.private_scaling not in ("auto", True, False):
            raise SpecError(f"private_scaling must be 'auto', True or False, not {self.private_scaling!r}")
        codes = self._codes(y)
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        weighing = Weighing.of(self.classes_.tolist(), self.class_weight, self.prior)
        weights, largest = weighing.of_classes(codes), weighing.largest
        if sample_weight is not None:
            own, bound = self._bounded_weights(sample_weight, len(y), private)
            weights, largest = own if weights is None else weights * own, largest * bound
        fixed = self.get_params(deep=False) | self._options.get_params()
        if not isinstance(self.alpha, str) and largest != 1.0:  # as in scikit-learn α stands beside the weighted loss
            fixed |= {"alpha": self.alpha / largest}
        return TrainingProblem(
            targets=2.0 * codes - 1.0 if outputs == 1 else codes.astype(np.float64),
            loss=self._loss(outputs),
            labels=self._labels(),
            fixed=fixed,
            outputs=outputs,
            weights=weights,
            weighing=weighing,
            private_scaling=bool(self.private_scaling),
            free=tuple(name for name in ("loss", "penalty") if getattr(self, name) == "auto"),
        )

    def _codes(self, y: NDArray[Any]) -> NDArray[Any]:
        """The number of every record's class; sets `classes_`."""
        check_no_missing(y, "y", "class")
        kind = type_of_target(y)
        if kind not in ("binary", "multiclass"):
            raise DataError(f"Unknown label type: {kind} values are no classes; give labels, or take PrivateRegressor")
        self.classes_ = np.unique(y if self.classes is None else np.asarray(self.classes))
        if len(self.classes_) < 2:
            whose = "y holds" if self.classes is None else "classes names"
            raise DataError(f"{whose} only one class, {self.classes_.tolist()}; a classifier needs two or more classes")
        if self.classes is None:
            warn_of_leak(
                "classes was not given: the classes were inferred from the data, and a rare class may reveal a person; "
                "give the public list of classes."
            )
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        strange = np.flatnonzero(self.classes_[codes] != y)
        if strange.size:
            label = y[strange].tolist()[0]
            raise DataError(
                f"y holds the class {label!r} in record {strange[0]}, which is not among the given classes; add it to "
                "classes, or drop the record"
            )
        return codes

    def _labels(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _excluded(self, statement: PrivacyStatement, earlier: int) -> list[str]:
        inferred = self.classes is None and not statement.simulation and math.isfinite(statement.epsilon)
        classes = ["the list of classes, which was read off the records"] if inferred else []
        return [*super()._excluded(statement, earlier), *classes]

    def _class_order(self) -> tuple[Any, ...]:
        """The classes in the order in which they were given; of two the last is the positive one."""
        return self._labels() if self.classes is None else tuple(np.asarray(self.classes).tolist())

    def _record_scale(self) -> Scale:
        two = len(self.classes_) == 2
        link = None if self.loss_ == "softmax" else (float(self.link_[0]), float(self.link_[1]))
        return replace(super()._record_scale(), threshold=float(self.threshold_) if two else 0.0, link=link)

    def _loss(self, outputs: int) -> Loss:
        if self.loss == "auto":
            return losses.LOSSES.make("hinge" if outputs == 1 else "softmax")
        if self.loss == "softmax":
            return losses.LOSSES.make("logistic" if outputs == 1 else "softmax")  # of two classes: the same model
        return known_loss(self.loss, "binary", LOSSES)

    def _bounded_weights(self, sample_weight: Any, records: int, private: bool) -> tuple[Array, float]:
        """Weights of records over their public bound, and the bound."""
        weights = real_numbers(sample_weight) if private else np.asarray(sample_weight, dtype=np.float64)
        weights = np.full(records, weights) if weights.ndim == 0 else weights
        if weights.shape != (records,):
            raise DataError(
                f"Sample weights must be 1D array or scalar, one for each of {records} records, but their shape is "
                f"{weights.shape}"
            )
        usable = (weights >= 0) & np.isfinite(weights)
        if private:
            warn_owner(int(np.count_nonzero(~usable)), "weights are negative or not finite and count as 0")
            weights = np.where(usable, weights, 0.0)
        elif not usable.all():
            raise DataError("sample_weight must be finite numbers that are not negative; fix them, or drop the records")
        if self.max_weight is None:
            warn_of_leak(
                "max_weight was not given: weights of records are clipped to 1, each by itself. That leaks nothing but "
                "may not be what was meant; give a bound that is public, never one that was read off the data."
            )
        bound = 1.0 if self.max_weight is None else settings.over_zero(self.max_weight, "max_weight")
        return np.minimum(weights, bound) / bound, bound

    def _set_coefficients(self, result: Result) -> None:
        models = result.models
        each = 1 if len(self.classes_) == 2 else len(self.classes_)
        models = models.reshape(len(models), each, -1)
        self.node_coef_, self.node_intercept_ = self._split(models)
        self.coef_, self.intercept_ = self._split(models.mean(axis=0))
