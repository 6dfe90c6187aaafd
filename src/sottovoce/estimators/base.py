"""What the classifier and the regressor share: from a table and its owners to a model, by way of `solve`.

A column of labels or the row number determines the owner of a record; never the record's content.
Everything else that decides a run is public too: parameters, and how many records each owner has. The plan is made from
those numbers alone (`planner.fit`), by a function that is not even given the records. What is done to a record before
the mechanism sees it is done to that record by itself: its row is scaled down to the public bound, its target brought
into the public range.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from sottovoce._renamed import old_arguments
from sottovoce._types import Array, IntArray, Matrix
from sottovoce.data.schema import Schema
from sottovoce.errors import DataError, PrivacyLeakWarning, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.clones import FAMILY, cloned, count_clone
from sottovoce.estimators.composition import charge_budget, digest, recomputed, remember
from sottovoce.estimators.evaluation import Evaluates
from sottovoce.estimators.explain import Explains
from sottovoce.estimators.progress import FitReport
from sottovoce.estimators.settings import PlanOptions, caller_stacklevel, whole
from sottovoce.estimators.unusable import (
    check_label_type,
    finite_cells,
    number_cells,
    own_values,
    text_of,
    warn_owner,
    without_rows,
)
from sottovoce.evaluation import Evaluation
from sottovoce.features import DENSE_CELLS, LINEAR, Additive, Features, densified
from sottovoce.inference.table import CoefficientTable
from sottovoce.matrices import is_sparse, row_norms, unit_rows
from sottovoce.planner import Choice
from sottovoce.planner.features import Columns
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.planner.shared_settings import Weighing
from sottovoce.privacy.statement import PrivacyStatement, with_excluded
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.people import group_rows
from sottovoce.problem.regularizers import Euclidean
from sottovoce.problem.scores import row_scores
from sottovoce.problem.shards import Shards, by_group, owner_of_rows, partition
from sottovoce.run.build import ROW_SLACK
from sottovoce.run.inference import mean_intervals
from sottovoce.run.result import BUDGETED, Result
from sottovoce.run.scale import Scale
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec


def owners(
    records: int, nodes: Any, n_nodes: int | str, user_ids: NDArray[Any] | None = None, *, seeded: bool
) -> tuple[IntArray, IntArray | None, tuple[str, ...]]:
    """Offsets, order and names of the nodes.

    Without a column the table has one owner, or as many simulated ones as are requested (`problem.shards.partition`).

    Examples
    --------
    >>> owners(5, None, 2, seeded=False)
    (array([0, 3, 5]), array([0, 2, 4, 1, 3]), ('0', '1'))
    >>> owners(3, ["b", "a", "b"], "auto", seeded=False)
    (array([0, 1, 3]), array([1, 0, 2]), ('a', 'b'))
    """
    wanted = None if n_nodes == "auto" else whole(n_nodes, "n_nodes")
    if nodes is None:
        n = 1 if wanted is None else wanted
        return *partition(records, n, user_ids, seeded=seeded), tuple(map(str, range(n)))
    (offsets, order), names = by_group(column(nodes, records, "nodes"))
    if wanted is not None and wanted != len(names):
        raise SpecError(f"nodes names {len(names)} owners, but n_nodes is {wanted}; leave n_nodes out")
    return offsets, order, tuple(names)


def column(labels: Any, records: int, name: str) -> NDArray[Any]:
    """A column of labels, one a record, none missing."""
    values = np.asarray(labels)
    if values.shape != (records,):
        raise DataError(f"{name} must be one label a record, {records} of them, but its shape is {values.shape}")
    check_no_missing(values, name, "label")
    return values.astype(np.str_) if values.dtype == object else values


def without_missing_ids(user_ids: Any, private: bool, *columns: Any) -> list[Any]:
    """Return person ids and these columns; a `private` run leaves out records without an id.

    Refusing such a record would reveal it, and counting it as one more person would change the public number of people.
    """
    if user_ids is None or not private:
        return [user_ids, *columns]
    values = own_values(user_ids)
    if values.ndim > 1:
        return [user_ids, *columns]
    missing = np.array([_is_missing(value) for value in values.tolist()], dtype=bool)
    if values.dtype == object:
        values = np.array([text_of(value) for value in values.tolist()], dtype=np.str_)
    if not missing.any():
        return [values, *columns]
    warn_owner(int(np.count_nonzero(missing)), "records have no id of a person and are left out")
    rows = np.flatnonzero(~missing)
    whole = [part if part is None or np.ndim(part) == 0 else _safe_indexing(part, rows) for part in columns]
    return [values[rows].astype(np.str_), *whole]


def _is_missing(value: Any) -> bool:
    """None and what is not equal to itself: NaN, NaT, and pandas' NA, which refuses to be compared; arrays too."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def check_no_missing(values: NDArray[Any], name: str, what: str) -> None:
    """Every record has its label: None and what is not equal to itself (NaN, NaT, NA) are none."""
    if values.dtype.kind not in "OfcmM" or (values.dtype != object and bool(np.all(values == values))):
        return
    for record, value in enumerate(values.tolist()):
        if _is_missing(value):
            raise DataError(f"{name} has no {what} for record {record} (None or NaN); give every record one")


ROW_NORM = 1.0
"""The bound on rows if none is given: a constant, so that it reveals nothing about the data."""
NO_ROW_NORM = 1e150
"""A bound that no row is over."""
OBSERVATIONS = 40
"""The number of evaluations in a tracked run."""


class TrainingProblem(NamedTuple):
    """The problem that an estimator poses: its records as the loss takes them, and what is public of it."""

    targets: Array
    loss: Loss
    labels: tuple[Any, ...]
    """What the targets stand for: classes, or the ends of a range."""
    fixed: Mapping[str, Any]
    """The parameters, with α in units of the loss that is minimized."""
    outputs: int = 1
    weights: Array | None = None
    """What each record's loss is multiplied by, at most 1; None where all count the same."""
    weighing: Weighing = Weighing()
    private_scaling: bool = False
    """Whether a share of the budget may go to private scaling."""
    find_range: bool = False
    """Whether one may go to the range of the targets."""
    free: tuple[str, ...] = ()
    """Settings that the planner may choose by itself."""


class FitInputs(NamedTuple):
    """A fit before it is made: all but the shards is public."""

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


class WarmStart(NamedTuple):
    """What a warm start goes on from: the mean model, as it was published, and what was paid for it."""

    problem: tuple[Any, ...]
    model: tuple[float, ...]
    statements: tuple[PrivacyStatement, ...]


def units_per_node(offsets: IntArray, order: IntArray | None, people: Any) -> tuple[int, ...]:
    """How many records, or people, each node has."""
    if people is not None:
        offsets, _, _ = group_rows(people if order is None else people[order], offsets, None)
    return tuple(np.diff(offsets).tolist())


def warn_of_leak(message: str) -> None:
    """Warn the caller of `fit` about something that was not given as public."""
    warnings.warn(message, PrivacyLeakWarning, stacklevel=caller_stacklevel())


class PrivateLinearModel(Evaluates, Explains, BaseEstimator):
    """A linear model trained by gossip under differential privacy; see `PrivateClassifier` and `PrivateRegressor`."""

    loss: str
    penalty: str | None
    alpha: float | str
    l1_ratio: float | str
    epsilon: float | None
    delta: float | str
    trust: int | str
    n_nodes: int | str
    row_norm: float | None
    features: str
    bounds: Any
    pairs: Any
    on_violation: str
    fit_intercept: bool
    random_state: Any
    secure: bool | str
    warm_start: bool
    budget: Any
    verbose: bool | int
    plan: PlanOptions | None
    schema: Schema | None
    _last: WarmStart
    _column: ClassVar[float] = settings.INTERCEPT
    """B."""

    @old_arguments
    def fit(self, X: Any, y: Any, nodes: Any = None, user_ids: Any = None) -> Self:
        """Train on everybody's records.

        Parameters
        ----------
        X : records by features: array, sparse matrix or data frame
        y : one target a record
        nodes : the owner of each record, a column of labels, one node for each label. Without it the table has one
            owner, or `n_nodes` simulated ones, to whom the rows are assigned in turn. The owners and their numbers of
            records are public.
        user_ids : the person id of each record: a person's rows at a node are drawn, averaged and clipped together, and
            the guarantee covers the whole person. Without it the guarantee covers single records.
        """
        return self._fit(X, y, nodes, user_ids)

    def _fit(self, X: Any, y: Any, nodes: Any, user_ids: Any, sample_weight: Any = None) -> Self:
        run = self._prepare(X, y, nodes, user_ids, sample_weight)
        spec, statements = run.spec, tuple[PrivacyStatement, ...]()
        if self.warm_start and hasattr(self, "_last"):
            if self._last.problem != run.problem:
                raise SpecError(
                    "warm_start goes on from a model of other nodes, features, classes or bounds; keep them, or fit "
                    "anew with warm_start=False"
                )
            statements = self._last.statements
            again = settings.warm_start_seed(spec.seed, len(statements))
            spec = spec.replace(algorithm__distance=Euclidean(self._last.model), seed=again)
        options, secure = self._options, self.secure is not False
        execution = Execution(options.engine, OBSERVATIONS if options.track else None)
        report = FitReport(type(self).__name__) if self.verbose else None
        if report is not None:
            report.plan(run.choice)
        with charge_budget(self.budget, "fit", run.X, run.owner, (spec, run.shards)) as budget_check:
            result = solve(
                spec, run.shards, execution=execution, secure=secure, budget_check=budget_check, nodes=run.nodes,
                progress=None if report is None else report.progress,
            )  # fmt: skip
        excluded = " and ".join(self._excluded(result.statement, len(statements)))
        result = replace(result, statement=with_excluded(result.statement, excluded))
        self.plan_, self.spec_, self.nodes_ = run.choice, spec, np.array(run.nodes)
        self.loss_, self.privacy_, self.history_ = str(spec.problem.loss), result.statement, result.history
        self._last = WarmStart(run.problem, tuple(result.model.tolist()), (*statements, result.statement))
        self.spent_ = remember(run.records, result.statement, run.owner, against=recomputed(result))
        self._result, self._evaluations = result, list[Evaluation]()
        self._distributions = result.public.get("distribution")
        self.features_ = "additive" if getattr(self._features, "degree", 1) > 1 else "linear"
        self._set_coefficients(result)
        if report is not None:
            report.done(result.statement)
        count_clone(self, result.statement, recomputed(result))
        return self

    def __sklearn_clone__(self) -> Self:
        """As scikit-learn clones, and remembered as one of a family, so that its several releases are reported."""
        return cloned(self, super().__sklearn_clone__())

    @property
    def _options(self) -> PlanOptions:
        """What of the plan was fixed by hand."""
        if not isinstance(self.plan, PlanOptions | None):
            raise SpecError(f"plan must be None or PlanOptions(rounds=…, batch=…), not {self.plan!r}")
        return PlanOptions() if self.plan is None else self.plan

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, `plan__rounds` and the like as well."""
        moved = {name: params.pop(name) for name in settings.PLAN_OPTIONS & params.keys()}
        if self.plan is None and params.get("plan") is None and any(name.startswith("plan__") for name in params):
            self.plan = PlanOptions()
            params.pop("plan", None)
        super().set_params(**params)
        self.plan = settings.with_moved(self.plan, moved, type(self).__name__)
        return self

    def to_result(self, features: tuple[str, ...] | None = None) -> Result:
        """The run as `sottovoce train` keeps it, with what new records need to meet its model: to report and verify.

        The statement covers an evaluation too: the threshold or the probabilities may come from it.
        """
        check_is_fitted(self)
        found = self.kept_evaluation()
        names = getattr(self, "feature_names_in_", None) if features is None else features
        paid = {} if self.budget is None else {BUDGETED: True}
        made = replace(
            self._result,
            environment=self._result.environment | paid,
            statement=getattr(found, "statement", None) or self.privacy_,
            classes=self._labels() if hasattr(self, "classes_") else None,
            features=None if names is None else tuple(str(name) for name in names),
            scale=self._record_scale(),
        )
        return made if made.classes is None else made.with_classes(self._class_order())

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

    def summary(self, confidence: float = 0.95, schema: Schema | None = None) -> CoefficientTable:
        """The table of estimates, standard errors, intervals and p-values, in the units of the columns.

        For models with ``inference=True``. `print` it, or take ``to_frame()``. The estimates are corrected ones, not
        `coef_`: `coef_` is regularized, stopped early and noisy, so intervals around it would rarely cover the truth.

        Parameters
        ----------
        confidence : of the intervals
        schema : by which columns were encoded, such as `encoder.schema_`: then the table is in the units that numbers
            and dates had before; of a saved model its own schema

        Examples
        --------
        >>> from sottovoce import PrivateClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, (20_000, 2))
        >>> y = (rng.random(20_000) < 1 / (1 + np.exp(2 - 0.4 * X[:, 0]))).astype(int)
        >>> model = PrivateClassifier(1.0, bounds=(0, 10), classes=[0, 1], inference=True, random_state=0).fit(X, y)
        >>> table = model.summary()
        >>> low, high = table.intervals[0]
        >>> bool(low < 0.4 < high), table.names
        (True, ('column 1', 'column 2', '(constant)'))
        """
        check_is_fitted(self)
        known = self._encoding if schema is None else schema
        found = self.to_result().summary(confidence)
        return found if known is None else found.in_raw_units(known.raw_bounds)

    def mean_interval(self, X: Any, confidence: float = 0.95) -> Array:
        """Intervals for the mean target at these records; of two classes, for the probability of the last of `classes`.

        They are of the model of `summary`, not of `coef_`, and count sampling and privacy noise.

        Parameters
        ----------
        X : records by features
        confidence : of the intervals, each alone

        Returns
        -------
        (records, 2) low and high ends
        """
        check_is_fitted(self)
        result = self.to_result()
        rows = np.asarray(densified(self._bounded(self._checked(X, reset=False)), DENSE_CELLS)) / self.row_norm_
        return mean_intervals(result, rows, confidence)

    def _wants_intervals(self) -> bool:
        if self.inference not in (True, False):
            raise SpecError(f"inference must be True or False, not {self.inference!r}")
        return bool(self.inference)

    def report(self, path: str | Path, title: str | None = None) -> Path:
        """Write one HTML page about the fit, the same that `sottovoce report` makes of its folder, verified first."""
        from sottovoce.report import write  # Bokeh takes long to load: only when used

        result = self.to_result()
        result.verify()
        return write([result], path, title, verified=True, axes=self._axes() or None)

    _features: Features = LINEAR
    _distributions: Any = None
    _run_scale: Scale | None = None
    """Of a model that was not fitted here, but by `sottovoce train` or a node."""

    def _record_scale(self) -> Scale:
        """How new records meet the model."""
        bound = None if self._features else self.row_norm_  # expanded rows are within it by construction
        return self._run_scale or Scale(bound=bound, unit=self.row_norm_)

    def _class_order(self) -> tuple[Any, ...]:
        """The classes in the order in which they were given, which is that of a result."""
        return ()

    def _prepare(self, X: Any, y: Any, nodes: Any, user_ids: Any, sample_weight: Any = None) -> FitInputs:
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        self._check_owned(nodes, user_ids)
        key, self._run_scale = self._seed(), None
        private = key is None and self.epsilon is not None
        X = self._checked(X, reset=True)
        if is_classifier(self) and self.classes is not None:
            check_label_type(self.classes, y)
        y = one_column(y, private)
        if len(y) != X.shape[0]:
            raise DataError(f"there are {X.shape[0]} records but {len(y)} targets; give one target a record")
        user_ids, X, y, nodes, sample_weight = without_missing_ids(user_ids, private, X, y, nodes, sample_weight)
        people = None if user_ids is None else column(user_ids, len(y), "user_ids")
        offsets, order, names = owners(len(y), nodes, self.n_nodes, people, seeded=key is not None)
        known, came, usable = digest(X, y), X, np.ones(len(y), dtype=bool)
        if private:
            X, y, usable = self._with_unusable_as_zero(X, y)
        posed = self._training_problem(y, sample_weight, private)
        weights = posed.weights
        if not usable.all() and is_classifier(self):
            weights = usable.astype(np.float64) if weights is None else weights * usable
        X, columns = densified(X, DENSE_CELLS), self._columns()
        sizes = units_per_node(offsets, order, people)
        choice = plan_fit(self._request(posed, names, sizes, people is not None, is_sparse(X), columns))
        self._features, self._distributions = choice.spec.problem.features, None
        self.row_norm_ = self._features.norm if isinstance(self._features, Additive) else self._public_row_norm()
        parts: tuple[Any, ...] = self._bounded(X, private) / self.row_norm_, posed.targets, people, weights
        if order is not None:  # every owner's records together: a round reads slices, not scattered rows
            parts = tuple(None if part is None else part[order] for part in parts)
        rows, targets, people, weights = parts
        shards = Shards.of(rows, targets, offsets, user_ids=people, weights=weights)
        self._warn_if_useless(choice, shards)
        shards = posed.weighing.weighted(choice.spec, shards)
        problem = (names, X.shape[1], self.row_norm_, bool(self.fit_intercept), posed.labels, shards.people)
        owner = owner_of_rows((offsets, order))
        return FitInputs(choice.spec.replace(seed=key), choice, names, problem, shards, known, owner, came)

    def _check_owned(self, nodes: Any, user_ids: Any) -> None:
        """Where the schema says whose a record is, `fit` must be given it: the statement would be of something else."""
        if not isinstance(self.schema, Schema | None):
            raise SpecError(f"schema must be a Schema, such as encoder.schema_, not {self.schema!r}")
        if self.schema is None:
            return
        step = f"{type(self).__name__.lower()}__"
        wanted = (self.schema.unit, user_ids, "user_ids", "unit"), (self.schema.group, nodes, "nodes", "group")
        for column, given, name, entry in wanted:
            if column is not None and given is None:
                raise SpecError(
                    f"the schema says whose a record is ({entry} = '{column}'), but fit was given no {name}; give "
                    f"{name}=table['{column}'], to a pipeline {step}{name}=table['{column}']"
                )

    def _with_unusable_as_zero(self, X: Matrix, y: NDArray[Any]) -> tuple[Matrix, NDArray[Any], NDArray[np.bool_]]:
        """Records and targets that are all numbers, and which records have a usable target."""
        y, usable = self._usable(y)
        warn_owner(int(np.count_nonzero(~usable)), "records have no usable target and contribute zero")
        return without_rows(finite_cells(X), ~usable), y, usable

    def _usable(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Targets with a public one in place of each that cannot be used, and which can."""
        raise NotImplementedError

    def _seed(self) -> int | None:
        """The seed of a simulation; parameters that contradict it are refused."""
        key = settings.seed(self.random_state)
        if self.secure not in ("auto", True, False):
            raise SpecError(f"secure must be 'auto', True or False, not {self.secure!r}")
        if self.secure is True and key is not None:
            raise SpecError(
                "a seed (random_state) can remove the noise, which is then not secure; leave one of them out"
            )
        if self._options.track and key is None:
            raise SpecError(
                "plan.track evaluates the data outside the mechanism; make the run a simulation (random_state)"
            )
        return key

    def _request(
        self,
        posed: TrainingProblem,
        names: tuple[str, ...],
        sizes: tuple[int, ...],
        people: bool,
        sparse: bool,
        columns: Columns | None,
    ) -> FitRequest:
        """What the plan is made from."""
        options = self._options
        return FitRequest(
            sizes=sizes,
            nodes=names,
            features=self.n_features_in_,
            loss=posed.loss,
            epsilon=self.epsilon,
            delta=self.delta,
            outputs=posed.outputs,
            people=people,
            adversary=settings.watching(self.trust, options.adversary, len(sizes)),
            graph="complete" if options.graph == "auto" else options.graph,
            intercept=self._column if self.fit_intercept else 0.0,
            penalty=settings.penalty_name(self.penalty),
            fixed=settings.fixed(posed.fixed, min(sizes)),
            weighing=posed.weighing,
            private_scaling=posed.private_scaling,
            find_range=posed.find_range,
            sparse=sparse,
            free=posed.free,
            columns=columns,
            wanted=self.features,
            inference=self._wants_intervals(),
            network=options.network_model,
            max_seconds=settings.over_zero(options.max_seconds, "max_seconds"),
        )

    @property
    def _width(self) -> int:
        """How many features a row has under the map of columns."""
        return self._features.width if isinstance(self._features, Additive) else int(self.n_features_in_)

    def _columns(self) -> Columns | None:
        """What is public of the columns: which are numeric, between which bounds, and how long the others are."""
        count, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        numeric = settings.numeric_columns(self.bounds, count, names)
        if not numeric:
            if settings.names_pairs(self.pairs):
                raise SpecError("pairs are of numeric columns, whose public bounds are not known; give bounds, too")
            return None
        rest, d = 0.0, len(numeric)
        if d < count:
            whole = self._public_row_norm()
            rest = math.sqrt(whole**2 - d) if whole**2 > d * (1 + ROW_SLACK) else whole
        encoded = all((low, high) == (-1.0, 1.0) for _, low, high in numeric) and self.row_norm is not None
        return Columns(count, numeric, rest, encoded, settings.numeric_pairs(self.pairs, numeric, names))

    def _public_row_norm(self) -> float:
        if self.row_norm is not None:
            return settings.over_zero(self.row_norm, "row_norm")
        warn_of_leak(
            f"row_norm was not given: rows longer than {ROW_NORM:g} are scaled down to that length, each by itself, in "
            "fit and in predict. That leaks nothing but may cost accuracy; give a bound that is public, never one that "
            "was read off the data."
        )
        return ROW_NORM

    def _bounded(self, X: Matrix, private: bool = False) -> Matrix:
        """Return rows within the public bound: scale longer ones down to it, each by itself, or refuse them.

        A `private` fit refuses none, because that would reveal single records; only their owner gets a note.
        """
        if self.on_violation not in ("clip", "raise"):
            raise SpecError(f"on_violation must be 'clip' or 'raise', not {self.on_violation!r}")
        if isinstance(self._features, Additive):
            return self._features.rows(X, self._distributions)
        limit = self.row_norm_ if self._run_scale is None else self._run_scale.bound or NO_ROW_NORM
        bounded = unit_rows(X, limit)
        if self.on_violation == "raise" and np.any(over := row_norms(X) > self.row_norm_ * (1 + ROW_SLACK)):
            if private:
                warn_owner(int(np.sum(over)), "rows are longer than row_norm and are scaled down to it")
                return bounded
            raise DataError(
                f"{np.sum(over)} of {len(over)} rows are over the public bound row_norm = {self.row_norm_:g}, row "
                f"{np.argmax(over)} the first; give a larger bound, or on_violation='clip' to scale such rows down"
            )
        return bounded

    def _decide(self, X: Any) -> Array:
        """⟨c, x⟩ + intercept, on rows bounded as in `fit`."""
        check_is_fitted(self)
        return np.asarray(self._bounded(self._checked(X, reset=False)) @ self.coef_.T) + self.intercept_

    def _row_scores(self, X: Matrix) -> Array:
        """The same for a release: each row's scores are a function of that row and the model alone, to the last bit."""
        if isinstance(self._features, Additive):
            return row_scores(self._features.rows(X, self._distributions), self.coef_, self.intercept_, NO_ROW_NORM)
        bound = self.row_norm_ if self._run_scale is None else self._run_scale.bound or NO_ROW_NORM
        return row_scores(X, self.coef_, self.intercept_, bound)

    def _checked(self, X: Any, reset: bool) -> Matrix:
        kinds = (np.float64, np.float32)
        X = number_cells(X) if self.random_state is None and self.epsilon is not None else X
        return validate_data(self, X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, reset=reset)

    def _split(self, models: Array) -> tuple[Array, Array]:
        """Weights (…, m) and constant terms (…,) of models (…, m'), in the units of the records."""
        if not self.fit_intercept:
            return models / self.row_norm_, np.zeros(models.shape[:-1])
        return models[..., :-1] / self.row_norm_, self._column * models[..., -1]

    def _training_problem(self, y: NDArray[Any], sample_weight: Any, private: bool) -> TrainingProblem:
        """The problem: targets as the loss takes them, weights, and what the parameters say of the plan.

        In a `private` run nothing is refused because of one record.
        """
        raise NotImplementedError

    def _warn_if_useless(self, choice: Choice, shards: Shards) -> None:
        """Warn of a plan that is not foreseen to teach anything."""

    def _excluded(self, statement: PrivacyStatement, earlier: int) -> list[str]:
        """What the guarantee of a fit does not hold of; of a simulation, or without noise, there is none."""
        if statement.simulation or math.isinf(statement.epsilon) or not earlier:
            return []
        return [f"the {earlier} earlier fit{'s' * (earlier > 1)} that this one goes on from (see spent_)"]

    def _labels(self) -> tuple[Any, ...]:
        """What the targets stand for: classes, or the ends of a range."""
        raise NotImplementedError

    def _set_coefficients(self, result: Result) -> None:
        """Set `coef_`, `intercept_` and what else can be made of what was released."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Of a pickle: without what this process knows of other fits on the same records, as in a saved model."""
        state = dict(super().__getstate__())
        state.pop("spent_", None)
        state.pop(FAMILY, None)
        found = state.get("_evaluations", ())
        if found:
            state["_evaluations"] = [
                replace(each, spent=None) if isinstance(each, Evaluation) else each for each in found
            ]
        return state

    def __sklearn_tags__(self) -> Any:
        """Sparse records are welcome; without a seed no two fits agree."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def one_column(y: Any, private: bool) -> NDArray[Any]:
    """Targets, one a record; in a `private` run each is of its own type, and none is refused."""
    values = own_values(y) if private else np.asarray(y)
    shape = values.shape
    if len(shape) == 2 and shape[1] > 1:
        raise DataError(
            f"y has {shape[1]} columns, but a model has one target a record (multi-output is not supported); fit one "
            "model for each column, and add up what they cost"
        )
    if private:
        column_or_1d(np.zeros(shape), warn=True)  # errors and warnings about the shape, and none about values
        return values.reshape(-1)
    return np.asarray(column_or_1d(y, warn=True))


def known_loss(text: Any, targets: str, choices: str) -> Loss:
    """A loss that fits the kind of targets."""
    loss = LOSSES.read(text)
    if loss.targets != targets:
        raise SpecError(f"loss '{text}' does not fit this estimator; choose one of {choices}")
    return loss
