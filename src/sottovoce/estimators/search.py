"""PrivateSearchCV: choose among plans by private scores on held-out records, at a cost that is known in advance.

*One owner*: the best of a random number of runs (`privacy.search`). Each run takes a plan by chance, trains it and
scores it on held-out records, with noise in both; only the best run is released. Nobody learns how many there were.

*Several owners* exchange messages in every run, so that all runs are seen, and a search hides nothing: every plan
is run once, and all of them are composed. That costs √(plans) times the noise, and the statement says so; all scores
are public then.

Each record is used for training or held out for the whole search, by a choice that does not depend on its content: its
ε is that of this one use. Tuning is not free: with ten runs on average the noise of each is 1.6 times that of a single
fit, and a fifth of the records is not trained on. `summary_` gives the expected cost, and says when a search
cannot pay off.
"""

import hashlib
import math
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_array, check_is_fitted, indexable

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.base import PrivateLinearModel, column, one_column, owners, without_missing_ids
from sottovoce.estimators.composition import charge_budget, digest, remember, unpublished
from sottovoce.estimators.evaluation import evaluated
from sottovoce.estimators.unusable import number_cells
from sottovoce.evaluation import Evaluation
from sottovoce.evaluation.holdout import secret_order
from sottovoce.privacy import profiles, search
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.composite_events import JointEvent, SearchEvent
from sottovoce.privacy.events import Event
from sottovoce.privacy.statement import Group, restated, with_held_out
from sottovoce.problem.shards import owner_of_rows
from sottovoce.registry import Choices
from sottovoce.run.plan import Request, plan_public


class Scored(NamedTuple):
    """By which question to held-out records a plan is judged, and by which figure of the answer."""

    metrics: str
    figure: str


SCORINGS: Choices[Scored] = Choices(
    "scoring",
    {
        "accuracy": lambda: Scored("right", "accuracy"),
        "balanced_accuracy": lambda: Scored("confusion", "balanced_accuracy"),
        "roc_auc": lambda: Scored("scores", "auc"),
        "average_precision": lambda: Scored("scores", "average_precision"),
        "r2": lambda: Scored("squares", "r2"),
    },
)
STOPPING = {"geometric": 1.0, "logarithmic": 0.0}
"""How many runs there are: laws by name, and their η."""
SHRINK = 0.999
"""By how much ε of a run is lowered at a time, where plans are not quite Gaussian and the search would cost more."""
NOTEWORTHY = 0.005
"""Points of foreseen accuracy from which on a search is warned of: half of one."""


def _delegates(method: str) -> Any:
    def there(self: "PrivateSearchCV") -> bool:
        return hasattr(getattr(self, "best_estimator_", self.estimator), method)

    return available_if(there)


@old_attributes
class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """The best of some plans for a private model, with one (ε, δ) for the whole search.

    Parameters
    ----------
    estimator : a `PrivateClassifier` or `PrivateRegressor`; its `epsilon`, `delta` and `random_state` are the search's
    param_grid : plans to choose from, as in scikit-learn's `GridSearchCV`
    epsilon, delta : the guarantee of everything that is released; "auto" δ as in the estimator
    runs : how many runs are made on average, where there is one owner; the number itself is random, and secret
    stopping : its law: "geometric", or "logarithmic", which costs less and more often makes a single run
    held_out : the share of every owner's records, or people, that plans are scored on and that are never trained on
    scoring : "accuracy", "balanced_accuracy", "roc_auc", "average_precision" or, of a regression, "r2"; "auto" is the
        first or the last
    random_state : None keeps everything secret; a number makes a simulation, and the statement says so
    budget : a `Budget(epsilon, delta, path)` that the whole search is paid from; by default the estimator's

    Attributes
    ----------
    best_estimator_, best_params_ : the best run's model and its plan
    best_score_ : its noisy score with its standard error: of the best, and so on the high side
    privacy_ : the statement of the search; also that of `best_estimator_`
    spent_ : what the search and all other fits of this process on these records cost together
    summary_ : the forecast of the search, as a sentence
    run_epsilon_ : ε of a single run, by which plans were made
    scores_ : the noisy score of every plan, where there are several owners; None where they are secret

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = X[:, 0] > X[:, 1]
    >>> from sottovoce import PrivateClassifier
    >>> model = PrivateClassifier(row_norm=1.5, classes=[False, True])
    >>> tuned = PrivateSearchCV(model, {"rounds": [20, 200]}, runs=2, random_state=0).fit(X, y)
    >>> bool(tuned.score(X, y) > 0.9), round(tuned.privacy_.epsilon, 2), tuned.run_epsilon_ < 1
    (True, 1.0, True)
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        runs: float = 5.0,
        stopping: str = "geometric",
        held_out: float = 0.2,
        scoring: str = "auto",
        random_state: Any = None,
        budget: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.runs = runs
        self.stopping = stopping
        self.held_out = held_out
        self.scoring = scoring
        self.random_state = random_state
        self.budget = budget

    @old_arguments
    def fit(self, X: Any, y: Any, nodes: Any = None, user_ids: Any = None) -> Self:
        """Search, and keep the best run's model; `nodes` and `user_ids` as in the estimator's `fit`."""
        self.estimator._check_owned(nodes, user_ids)  # below the nodes are always named
        private = self.random_state is None
        X, y = indexable(number_cells(X) if private else X, one_column(y, private))
        plans, seed = self._plans(), settings.seed(self.random_state)
        user_ids, X, y, nodes = without_missing_ids(user_ids, seed is None, X, y, nodes)
        table = Split.of(self, X, y, nodes, user_ids, seed)
        epsilon, delta = settings.budget(self.epsilon, self.delta, table.counted)
        if epsilon is None:
            raise PrivacyError("a search needs an epsilon; without privacy take scikit-learn's GridSearchCV")
        if table.nodes > 1:
            cost_of, single = self._account_jointly(epsilon, delta, len(plans))
        else:
            cost_of, single = self._account_by_stopping(epsilon, delta)
        while True:  # once, where plans are Gaussian
            candidates = [self._candidate(plan, single, delta, seed) for plan in plans]
            events = [table.events(candidate) for candidate in candidates]
            trained = [cost_of([some[i] for some in events]) for i in range(table.nodes)]
            cost = max(compute_epsilon([event], delta, lower=False).epsilon for event in trained)
            if cost <= epsilon:
                break
            single *= min(SHRINK, epsilon / cost)
        self.run_epsilon_ = single
        with unpublished():
            self.summary_ = self._foreseen(table, single, epsilon, delta, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # plans have warned: how often runs do would reveal how many there were
                best, scores, seen = self._best(table, candidates, seed)
        model, found = best
        assert found.statement is not None
        if table.nodes > 1:  # who spoke how often was drawn in every run anew
            made = [_by_node(said.groups) for said in seen]
            trained = [cost_of([events[i] for events in made]) for i in range(table.nodes)]
        tested = [cost_of([event] * len(plans)) for event in _by_node(found.statement.held_out)]
        statement = restated(found.statement, trained, tested)
        budget = self.estimator.budget if self.budget is None else self.budget
        with charge_budget(budget, "search", table.rows, table.owner) as budget_check:  # nothing was released so far
            if budget_check is not None:
                budget_check(statement)
        model.budget, self.scores_ = budget, scores
        self.best_estimator_, self.best_params_ = model, plans[model._plan_number]
        self.best_score_ = found.figures[self._scored.figure]
        self.privacy_ = model.privacy_ = statement
        model._evaluations.clear()  # the score is the search's
        self.spent_ = model.spent_ = remember(table.digest, statement, table.owner, table.test)
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "classes_"):
            self.classes_ = model.classes_
        return self

    @property
    def _scored(self) -> Scored:
        first = "accuracy" if is_classifier(self.estimator) else "r2"
        return SCORINGS.read(first if self.scoring == "auto" else self.scoring)

    def _plans(self) -> list[dict[str, Any]]:
        from sklearn.model_selection import ParameterGrid  # here: a fit without a search need not wait for it

        plans = list(ParameterGrid(self.param_grid))
        if not isinstance(self.estimator, PrivateLinearModel):
            raise SpecError("a search is among plans of a PrivateClassifier or PrivateRegressor; give one")
        fixed = {"epsilon", "delta", "random_state", "secure", "track", "warm_start", "budget"}
        odd = sorted({name for plan in plans for name in plan} & fixed)
        if odd:
            raise SpecError(f"'{odd[0]}' is not for plans to choose: the search has one guarantee; leave it out")
        if self.stopping not in STOPPING:
            raise SpecError(f"there is no stopping {self.stopping!r}; choose one of {', '.join(STOPPING)}")
        known = self.estimator.get_params(deep=False).keys() | settings.PLAN_OPTIONS
        odd = sorted({name for plan in plans for name in plan} - known)
        if odd:
            raise SpecError(
                f"there is no setting '{odd[0]}' to try; {type(self.estimator).__name__} has {', '.join(sorted(known))}"
            )
        self._scored  # noqa: B018 - refuses what is no scoring
        return plans

    def _candidate(self, plan: dict[str, Any], epsilon: float, delta: float, seed: int | None) -> Any:
        mine = {"epsilon": epsilon, "delta": delta, "random_state": seed, "budget": None}  # the search pays for all
        named = {f"plan__{name}" if name in settings.PLAN_OPTIONS else name: value for name, value in plan.items()}
        return clone(self.estimator).set_params(**named, **mine)

    def _account_by_stopping(self, epsilon: float, delta: float) -> Any:
        """(events of all plans -> that of the search), and ε of one run."""
        eta = STOPPING[self.stopping]
        gamma = search.gamma_for(eta, self.runs)
        z = search.run_multiplier(epsilon, delta, eta, gamma)
        return (lambda events: SearchEvent.of(events, eta, gamma)), profiles.gaussian_epsilon(delta, z)

    def _account_jointly(self, epsilon: float, delta: float, plans: int) -> Any:
        z = profiles.gaussian_multiplier(epsilon, delta) * math.sqrt(plans) * (1.0 + 1e-9)
        return JointEvent.of, profiles.gaussian_epsilon(delta, z)

    def _best(self, table: "Split", candidates: Sequence[Any], seed: int | None) -> Any:
        """The best of the runs, chance deciding between equals; and all scores and statements, where all is seen."""
        rng = np.random.default_rng(secrets.randbits(128) if seed is None else (seed, 1))
        if table.nodes > 1:
            numbers: IntArray = np.arange(len(candidates))
        else:
            eta = STOPPING[self.stopping]
            many = search.draw(eta, search.gamma_for(eta, self.runs), float(rng.random()))
            numbers = rng.integers(len(candidates), size=many)
        made, seen, best = [], [], None
        for place, number in enumerate(numbers.tolist()):
            model = clone(candidates[number]).set_params(random_state=settings.warm_start_seed(seed, place))
            model._plan_number = number
            found = table.score(model, self._scored.metrics)
            score = found.value(self._scored.figure), float(rng.random())
            made.append(score[0])
            seen.append(model.privacy_)
            if best is None or score > best[0]:
                best = score, (model, found)
        assert best is not None
        return best[1], *((made, seen) if table.nodes > 1 else (None, None))

    def _foreseen(self, table: "Split", single: float, epsilon: float, delta: float, seed: int | None) -> str:
        """What the search is foreseen to cost, from public numbers: the estimator as it is, before and after."""
        whole, part = (self._candidate({}, budget, delta, seed) for budget in (epsilon, single))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lost = table.foreseen(part) - table.foreseen(whole, everything=True)
        unit = "points of accuracy" if is_classifier(self.estimator) else "hundredths of R²"
        said = (
            f"A run of the search has ε = {single:.3g} of {epsilon:g}, and {100 * (1 - self.held_out):.0f} % of the "
            f"records. That is foreseen to cost {100 * lost:.1f} {unit}: the search pays where its best plan is better "
            "than the estimator as it is by more than that."
        )
        if lost > NOTEWORTHY:
            warnings.warn(f"{said} It seldom is; think of fitting without a search.", UserWarning, stacklevel=3)
        return said

    def save(self, folder: str | Path, *, schema: str | Path | None = None, force: bool = False) -> Path:
        """Keep the best model, with the statement of the whole search; `sottovoce.load` reads it back."""
        check_is_fitted(self)
        return self.best_estimator_.save(folder, schema=schema, force=force)

    def report(self, path: str | Path, title: str | None = None) -> Path:
        """Write one HTML page about the best model, with the statement of the whole search."""
        check_is_fitted(self)
        return self.best_estimator_.report(path, title)

    def __getstate__(self) -> dict[str, Any]:
        """Of a pickle: without what this process knows of other fits on the same records."""
        return {name: value for name, value in super().__getstate__().items() if name != "spent_"}

    def __sklearn_tags__(self) -> Any:
        """As the estimator has them."""
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags, tags.non_deterministic = inner.regressor_tags, self.random_state is None
        tags.input_tags = inner.input_tags
        return tags

    def predict(self, X: Any) -> NDArray[Any]:
        """As the best model does."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """As the best model does: not private."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    @_delegates("decision_function")
    def decision_function(self, X: Any) -> Array:
        """As the best model does."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    @_delegates("predict_proba")
    def predict_proba(self, X: Any) -> Array:
        """As the best model does."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @_delegates("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Array:
        """As the best model does."""
        check_is_fitted(self)
        return self.best_estimator_.predict_log_proba(X)


def _by_node(groups: Sequence[Group]) -> list[Event]:
    """Events, one for each node in order."""
    found = {node: group.event for group in groups for node in group.nodes}
    return [found[node] for node in sorted(found)]


class Split(NamedTuple):
    """All nodes' records, partitioned for the whole search."""

    X: Any
    y: NDArray[Any]
    labels: NDArray[Any]
    """Whose each record is, as node names."""
    people: NDArray[Any] | None
    train: IntArray
    test: IntArray
    nodes: int
    owner: IntArray
    digest: bytes
    counted: int
    """Records, or people."""
    rows: Any
    """X as an array or a sparse matrix."""

    @classmethod
    def of(
        cls, search_: PrivateSearchCV, X: Any, y: NDArray[Any], nodes: Any, user_ids: Any, seed: int | None
    ) -> "Split":
        """Split every node's records, or people, into training and test, in a secret order."""
        share = search_.held_out
        if isinstance(share, bool) or not isinstance(share, float) or not 0 < share < 1:
            raise SpecError(f"held_out is a share of the records, over 0 and below 1, not {share!r}")
        records = _num_samples(X)
        people = None if user_ids is None else column(user_ids, records, "user_ids")
        offsets, order, names = owners(records, nodes, search_.estimator.n_nodes, people, seeded=seed is not None)
        owner = owner_of_rows((offsets, order))
        train, test, counted = [], [], 0
        for node in range(len(names)):
            mine = np.flatnonzero(owner == node)
            each = _split_in_secret(mine, people, node, seed)
            first = max(1, round(share * len(each)))
            if first >= len(each):
                raise DataError(
                    f"node '{names[node]}' has too few records to hold some of them out (n_samples = {len(each)}); "
                    "give it more"
                )
            test += [row for unit in each[:first] for row in unit]
            train += [row for unit in each[first:] for row in unit]
            counted += len(each)
        kinds = (np.float64, np.float32)
        rows = check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False)  # as the models will see them
        return cls(
            X, y, np.array(names)[owner], people, np.sort(train), np.sort(test), len(names), owner,
            digest(rows, y), counted, rows,
        )  # fmt: skip

    def _some(self, rows: IntArray) -> tuple[Any, Any, Any, Any]:
        some = self.X.iloc[rows] if hasattr(self.X, "iloc") else _rows(self.X, rows)
        return some, self.y[rows], self.labels[rows], None if self.people is None else self.people[rows]

    def _prepared(self, model: Any, everything: bool = False) -> Any:
        some = self._some(np.arange(len(self.y)) if everything else self.train)
        return model.set_params(n_nodes="auto")._prepare(*some)

    def events(self, model: Any) -> list[Event]:
        """What every node must account for in one fit."""
        run = self._prepared(model)
        shards = run.shards
        return plan_public(Request(run.spec, shards.sizes, int(shards.X.shape[1]), shards.people, 0)).events()

    def foreseen(self, model: Any, everything: bool = False) -> float:
        """Predicted loss of accuracy."""
        return float(self._prepared(model, everything).choice.predicted)

    def score(self, model: Any, metrics: str) -> Evaluation:
        """Train, and evaluate."""
        model.set_params(n_nodes="auto").fit(*self._some(self.train))
        held = self._some(self.test)
        return evaluated(model, held[0], held[1], held[2:], None, (metrics, None), with_held_out, held_out=True)


def _split_in_secret(mine: IntArray, people: NDArray[Any] | None, node: int, seed: int | None) -> list[list[int]]:
    """A node's rows, unit by unit, in a secret order: of rows by chance, of people by a keyed hash of their ids."""
    if people is None:
        rng = np.random.default_rng(secrets.randbits(128) if seed is None else (seed, node, 2))
        return [[row] for row in mine[rng.permutation(len(mine))].tolist()]
    known = repr((seed, node)).encode()
    secret = secrets.token_bytes(32) if seed is None else hashlib.blake2b(known, digest_size=32).digest()
    nothing = np.zeros((len(mine), 1))
    return [[int(mine[row]) for row in unit] for unit in secret_order(nothing, nothing[:, 0], people[mine], secret, "")]


def _rows(X: Any, rows: IntArray) -> Any:
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]
