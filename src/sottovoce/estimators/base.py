"""What the classifier and the regressor share: from a table and its owners to a model, by way of `solve`.

Whose record is which is told by a column of labels, or dealt out by row number; never by what a record holds.
Everything else that decides a run is public too: parameters, and how many records each owner has. The plan is made
from those numbers alone; `_plan` is not even given the records. What is done to a record before the mechanism sees it
is done to that record by itself: its row is scaled down to the public bound, its target brought into the public range.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.data.tables import unit_rows
from sottovoce.errors import DataError, PrivacyLeakWarning, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.evaluation import Evaluates
from sottovoce.estimators.settings import whole
from sottovoce.estimators.spent import digest, paying, remember
from sottovoce.evaluation import Evaluation
from sottovoce.planner import Choice, Facts
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.regularisers import Euclidean
from sottovoce.problem.shards import Shards, by_group
from sottovoce.rows import is_sparse, row_norms
from sottovoce.run.build import ROW_SLACK
from sottovoce.run.result import Result
from sottovoce.run.scale import Scale
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec


def owners(
    records: int, nodes: Any, n_nodes: int | str, units: NDArray[Any] | None = None
) -> tuple[IntArray, IntArray | None, tuple[str, ...]]:
    """Offsets, order and names of the nodes.

    Without a column the table has one owner, or as many simulated ones as are asked for: row r goes to node r mod n,
    so that a sorted table does not become lopsided nodes. People stay whole, and are dealt in the order of their ids:
    by where their rows are, one person's rows would decide the nodes of all others. (Another id still may; `fit`
    deals people out in simulations only.)

    Examples
    --------
    >>> owners(5, None, 2)
    (array([0, 3, 5]), array([0, 2, 4, 1, 3]), ('0', '1'))
    >>> owners(3, ["b", "a", "b"], "auto")
    (array([0, 1, 3]), array([1, 0, 2]), ('a', 'b'))
    """
    wanted = None if n_nodes == "auto" else whole(n_nodes, "n_nodes")
    if nodes is None:
        n = 1 if wanted is None else wanted
        place = np.arange(records) if units is None else np.unique(units, return_inverse=True)[1].reshape(-1)
        there = int(place.max()) + 1
        if n > there:
            what = "records" if units is None else "people"
            raise DataError(f"{n} nodes cannot share {there} {what} (n_samples = {there}); take at most {there} nodes")
        labels: NDArray[Any] = place % n
    else:
        labels = column(nodes, records, "nodes")
    (offsets, order), names = by_group(labels)
    if wanted is not None and wanted != len(names):
        raise SpecError(f"nodes names {len(names)} owners, but n_nodes is {wanted}; leave n_nodes out")
    return offsets, order, tuple(names)


def column(labels: Any, records: int, name: str) -> NDArray[Any]:
    """A column of labels, one a record, none missing."""
    values = np.asarray(labels)
    if values.shape != (records,):
        raise DataError(f"{name} must be one label a record, {records} of them, but its shape is {values.shape}")
    refuse_missing(values, name, "label")
    return values.astype(np.str_) if values.dtype == object else values


def refuse_missing(values: NDArray[Any], name: str, what: str) -> None:
    """Every record has its label: None and what is not equal to itself (NaN, NaT, NA) are none."""
    if values.dtype.kind not in "OfcmM" or (values.dtype != object and bool(np.all(values == values))):
        return
    for record, value in enumerate(values.tolist()):
        try:
            missing = value is None or bool(value != value)
        except TypeError:  # pandas' NA refuses to be compared
            missing = True
        if missing:
            raise DataError(f"{name} has no {what} for record {record} (None or NaN); give every record one")


ROW_NORM = 1.0
"""The bound that rows are scaled down to where none is given: fixed, so that it tells of nobody."""
LARGEST = 1e150
"""A bound that no row is over."""
OBSERVATIONS = 40
"""How often a run is looked at that is tracked."""


class Prepared(NamedTuple):
    """A run before it is made: all but the shards is public."""

    spec: Spec
    choice: Choice
    nodes: tuple[str, ...]
    problem: tuple[Any, ...]
    """What must stay as it is for a further fit to go on from this one's model."""
    shards: Shards
    records: bytes
    """By which this process knows the records again."""
    owner: IntArray
    """Whose each record is."""
    X: Matrix
    """The records as they came."""


class Last(NamedTuple):
    """What a warm start goes on from: the mean model, as it was published, and what was paid for it."""

    problem: tuple[Any, ...]
    model: tuple[float, ...]
    statements: tuple[PrivacyStatement, ...]


def leak(message: str) -> None:
    """Warn the caller of `fit` about something that was not given as public."""
    warnings.warn(message, PrivacyLeakWarning, stacklevel=6)


class PrivateLinearModel(Evaluates, BaseEstimator):
    """A linear model trained by gossip under differential privacy; see `PrivateClassifier` and `PrivateRegressor`."""

    loss: str
    penalty: str | None
    alpha: float | str
    l1_ratio: float | str
    epsilon: float | None
    delta: float | str
    trust: int | str
    adversary: str
    n_nodes: int | str
    graph: str
    activation: str
    batch: int | str
    rounds: int | str
    sampling: str
    row_norm: float | None
    on_violation: str
    fit_intercept: bool
    random_state: Any
    secure: bool | str
    engine: str
    track: bool
    warm_start: bool
    budget: Any
    _last: Last
    _column: ClassVar[float] = settings.INTERCEPT
    """B."""

    def fit(self, X: Any, y: Any, nodes: Any = None, units: Any = None) -> Self:
        """Train on everybody's records.

        Parameters
        ----------
        X : records by features: array, sparse matrix or data frame
        y : one target a record
        nodes : whose each record is, a column of labels, one node for each label. Without it the table has one owner,
            or `n_nodes` simulated ones, to whom the rows are dealt in turn. Which owners there are and how many
            records each has is public.
        units : whose life each record is part of, a column of ids: a person's rows at a node are drawn, averaged and
            clipped together, and the guarantee is for the whole person. Without it every record is a unit of its own.
        """
        return self._fit(X, y, nodes, units)

    def _fit(self, X: Any, y: Any, nodes: Any, units: Any, sample_weight: Any = None) -> Self:
        run = self._prepare(X, y, nodes, units, sample_weight)
        spec = self._started(run.spec)
        statements: tuple[PrivacyStatement, ...] = ()
        if self.warm_start and hasattr(self, "_last"):
            if self._last.problem != run.problem:
                raise SpecError(
                    "warm_start goes on from a model of other nodes, features, classes or bounds; keep them, or fit "
                    "anew with warm_start=False"
                )
            statements = self._last.statements
            again = settings.further(spec.seed, len(statements))
            spec = spec.but(algorithm__distance=Euclidean(self._last.model), seed=again)
        execution, secure = Execution(self.engine, OBSERVATIONS if self.track else None), self.secure is not False
        with paying(self.budget, "fit", run.X, run.owner, (spec, run.shards)) as allow:
            result = solve(spec, run.shards, execution=execution, secure=secure, allow=allow, nodes=run.nodes)
        self.plan_, self.spec_, self.nodes_ = run.choice, spec, np.array(run.nodes)
        self.privacy_, self.history_ = result.statement, result.history
        self._last = Last(run.problem, tuple(result.model.tolist()), (*statements, result.statement))
        self.spent_ = remember(run.records, result.statement, run.owner)
        self._trained, self._result, self._evaluations = run.records, result, list[Evaluation]()
        self._keep(result.models)
        self._learn(result)
        return self

    def to_result(self, features: tuple[str, ...] | None = None) -> Result:
        """The run as `sottovoce train` keeps it, with what new records need to meet its model: to report and verify."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None) if features is None else features
        return replace(
            self._result,
            statement=self.privacy_,
            classes=self._named(),
            features=None if names is None else tuple(str(name) for name in names),
            scale=self._record_scale(),
        )

    def save(self, folder: str | Path, *, schema: str | Path | None = None, force: bool = False) -> Path:
        """Keep the fitted model in a folder, as `sottovoce train --out` does; `sottovoce.load` reads it back.

        Parameters
        ----------
        folder : where to, made if need be
        schema : the schema.toml by which records were encoded, if they were
        force : whether to take the place of another release that lies there
        """
        from sottovoce.estimators.saved import save

        return save(self, folder, schema=schema, force=force)

    def report(self, path: str | Path, title: str | None = None) -> Path:
        """Write one HTML page about the fit, the same that `sottovoce report` makes of its folder, verified first."""
        from sottovoce.report import write  # Bokeh takes long to load: only when used

        result = self.to_result()
        result.verify()
        return write([result], path, title, verified=True)

    _run_scale: Scale | None = None
    """Of a model that was not fitted here, but by `sottovoce train` or a node."""

    def _record_scale(self) -> Scale:
        """How new records meet the model."""
        return self._run_scale or Scale(bound=self.row_norm_, unit=self.row_norm_)

    def _named(self) -> tuple[Any, ...] | None:
        """The classes of a result; None of a regression."""
        return None

    def _prepare(self, X: Any, y: Any, nodes: Any, units: Any, sample_weight: Any = None) -> Prepared:
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        key, self._run_scale = settings.seed(self.random_state), None
        if self.secure not in ("auto", True, False):
            raise SpecError(f"secure must be 'auto', True or False, not {self.secure!r}")
        if self.secure is True and key is not None:
            raise SpecError(
                "a seed (random_state) can remove the noise, which is then not secure; leave one of them out"
            )
        if self.track and key is None:
            raise SpecError("track looks at the data outside the mechanism; make the run a simulation (random_state)")
        X = self._checked(X, reset=True)
        y = one_column(y)
        if len(y) != X.shape[0]:
            raise DataError(f"there are {X.shape[0]} records but {len(y)} targets; give one target a record")
        people = None if units is None else column(units, len(y), "units")
        offsets, order, names = owners(len(y), nodes, self.n_nodes, people)
        if people is not None and nodes is None and len(names) > 1 and key is None:
            raise SpecError(
                "people cannot be dealt out to simulated nodes in a run with a guarantee: another id in one place "
                "would move others to other nodes; say with nodes whose each record is, or simulate (random_state)"
            )
        targets, outputs = self._targets(y)
        weights = self._weights(targets, sample_weight)
        self.row_norm_ = self._public_row_norm()
        rows = self._bounded(X) / self.row_norm_
        if order is not None:  # every owner's records together: a round reads slices, not scattered rows
            rows, targets, people = rows[order], targets[order], None if people is None else people[order]
            weights = None if weights is None else weights[order]
        shards = Shards.of(rows, targets, offsets, units=people, weights=weights)
        of = "records" if units is None else "people"
        choice = self._plan(tuple(shards.sizes.tolist()), names, outputs, of, is_sparse(rows))
        shards = self._weighed(choice.spec, shards)
        problem = (names, X.shape[1], self.row_norm_, bool(self.fit_intercept), self._labels(), shards.people)
        owner = np.repeat(np.arange(len(names)), np.diff(offsets))
        if order is not None:
            owner[order] = owner.copy()
        return Prepared(choice.spec.but(seed=key), choice, names, problem, shards, digest(X, y), owner, X)

    def _plan(self, sizes: tuple[int, ...], names: tuple[str, ...], outputs: int, of: str, sparse: bool) -> Choice:
        """The planner's choice from public numbers alone: that this takes no data is what keeps it private."""
        epsilon, delta = settings.budget(self.epsilon, self.delta, sum(sizes))
        self._refuse(sizes, names, epsilon, delta, of)
        loss = self._loss(outputs)
        facts = Facts(
            sizes=sizes,
            features=self.n_features_in_ + bool(self.fit_intercept),
            loss=loss,
            epsilon=settings.NO_NOISE if epsilon is None else epsilon,
            delta=delta,
            outputs=outputs,
            adversary=settings.watching(self.trust, self.adversary, len(sizes)),
            graph="complete" if self.graph == "auto" else self.graph,
            intercept=self._column if self.fit_intercept else 0.0,
            shape=epsilon is not None and self._shaped(),
            quantiles=self._narrowed() and epsilon is not None,
            penalty=settings.penalty_name(self.penalty),
            weight=self._mean_weight(),
            rarest=self._rarest(),
            balance=None if epsilon is None else self._balance(),
            sparse=sparse,
            free=() if epsilon is None else self._free(),
        )
        return settings.plan(facts, epsilon is not None, self._given())

    def _refuse(self, *public: Any) -> None:
        """Nodes that would bring nothing but noise."""
        settings.refuse_small_nodes(*public)

    def _free(self) -> tuple[str, ...]:
        """What the planner may choose in place of what it is told."""
        return ()

    def _public_row_norm(self) -> float:
        if self.row_norm is not None:
            return settings.over_zero(self.row_norm, "row_norm")
        leak(
            f"row_norm was not given: rows longer than {ROW_NORM:g} are scaled down to that length, each by itself, in "
            "fit and in predict. That leaks nothing but may cost accuracy; give a bound that is public, never one that "
            "was read off the data."
        )
        return ROW_NORM

    def _bounded(self, X: Matrix) -> Matrix:
        """Rows within the public bound: longer ones scaled down to it, each by itself, or refused."""
        if self.on_violation not in ("clip", "raise"):
            raise SpecError(f"on_violation must be 'clip' or 'raise', not {self.on_violation!r}")
        limit = self.row_norm_ if self._run_scale is None else self._run_scale.bound or LARGEST
        bounded = unit_rows(X, limit)
        if self.on_violation == "raise" and np.any(over := row_norms(X) > self.row_norm_ * (1 + ROW_SLACK)):
            raise DataError(
                f"{np.sum(over)} of {len(over)} rows are over the public bound row_norm = {self.row_norm_:g}, row "
                f"{np.argmax(over)} the first; give a larger bound, or on_violation='clip' to scale such rows down"
            )
        return bounded

    def _decide(self, X: Any) -> Array:
        """⟨c, x⟩ + intercept, on rows bounded as in `fit`."""
        check_is_fitted(self)
        return np.asarray(self._bounded(self._checked(X, reset=False)) @ self.coef_.T) + self.intercept_

    def _checked(self, X: Any, reset: bool) -> Matrix:
        kinds = (np.float64, np.float32)
        return validate_data(self, X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, reset=reset)

    def _split(self, models: Array) -> tuple[Array, Array]:
        """Weights (…, m) and constant terms (…,) of models (…, m'), in the units of the records."""
        if not self.fit_intercept:
            return models / self.row_norm_, np.zeros(models.shape[:-1])
        return models[..., :-1] / self.row_norm_, self._column * models[..., -1]

    def _targets(self, y: NDArray[Any]) -> tuple[Array, int]:
        """Targets as the loss takes them, and how many outputs a record has."""
        raise NotImplementedError

    def _weights(self, targets: Array, sample_weight: Any) -> Array | None:
        """What each record's loss is multiplied by, at most 1; None where all count the same."""
        return None

    def _mean_weight(self) -> float:
        """The same on average, as far as that is public."""
        return 1.0

    def _rarest(self) -> float | None:
        """Which share of that the rarest class has, where that is public."""
        return None

    def _balance(self) -> tuple[float, float] | None:
        """How likely the second of two classes is and what part of all weight it has, where a threshold may do that."""
        return None

    def _weighed(self, spec: Spec, shards: Shards) -> Shards:
        """The records with the weights that the plan leaves them."""
        return shards

    def _shaped(self) -> bool:
        """Whether a share of the budget may go to the shape of the data."""
        return False

    def _narrowed(self) -> bool:
        """Whether one may go to the range of the targets."""
        return False

    def _given(self) -> dict[str, Any]:
        """The parameters, for the planner: α in units of the loss that is minimised."""
        return self.get_params(deep=False)

    def _started(self, spec: Spec) -> Spec:
        """The run from where public numbers say that it may start."""
        return spec

    def _labels(self) -> tuple[Any, ...]:
        """What the targets stand for: classes, or the ends of a range."""
        raise NotImplementedError

    def _loss(self, outputs: int) -> Loss:
        """The loss; sets `loss_`."""
        raise NotImplementedError

    def _keep(self, models: Array) -> None:
        """Set `coef_`, `intercept_` and their kin from every node's model."""
        raise NotImplementedError

    def _learn(self, result: Result) -> None:
        """Set what else can be made of what was released."""

    def __sklearn_tags__(self) -> Any:
        """Sparse records are welcome; without a seed no two fits agree."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def one_column(y: Any) -> NDArray[Any]:
    """Targets, one a record."""
    shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise DataError(
            f"y has {shape[1]} columns, but a model has one target a record (multi-output is not supported); fit one "
            "model for each column, and add up what they cost"
        )
    return np.asarray(column_or_1d(y, warn=True))


def known_loss(text: Any, targets: str, choices: str) -> Loss:
    """A loss that fits the kind of targets."""
    loss = LOSSES.read(text)
    if loss.targets != targets:
        raise SpecError(f"loss '{text}' does not fit this estimator; choose one of {choices}")
    return loss
