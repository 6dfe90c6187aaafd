"""`evaluate`: evaluate a fitted model on records with known targets, by noisy counts.

Nothing checks whether the model was trained on these records: the answer would reveal it. By default each record counts
as used for both, so that training and evaluation are two releases, the second chosen after the first was seen. With
`disjoint=True` the caller declares that no record is in both. Replacing a record then changes only one of the two uses,
so that one ε, that of this use, holds for each record.

A model may be evaluated again, and other models on the same records: that adds up, and `spent` says to what.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from sottovoce._renamed import old_arguments
from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.composition import charge_budget, digest, fits_of, remember
from sottovoce.estimators.unusable import check_label_type, class_codes, number_cells, real_numbers, warn_owner
from sottovoce.evaluation import Evaluation, Held, Model, Tally, seeded
from sottovoce.evaluation import evaluate as evaluate_all
from sottovoce.evaluation.curves import public_link
from sottovoce.evaluation.private import ROUNDING
from sottovoce.privacy.events import Event
from sottovoce.privacy.filter import Observer, release_against
from sottovoce.privacy.release import ADVERSARIES, Gaussian, MechanismContext, NoiseMechanism
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PERSON, RECORD, PrivacyStatement, statement_of, with_evaluation, with_held_out
from sottovoce.problem.people import first_rows
from sottovoce.problem.shards import owner_of_rows, partition
from sottovoce.run.result import BUDGETED


class Evaluates:
    """What the classifier and the regressor have in common once they are fitted."""

    @old_arguments
    def evaluate(
        self,
        X: Any,
        y: Any,
        nodes: Any = None,
        user_ids: Any = None,
        *,
        epsilon: float | None = None,
        metrics: str = "auto",
        positive: Any = None,
        disjoint: bool = False,
    ) -> Evaluation:
        """Private figures of this model on labeled records: accuracy, confusion matrix, AUC, R², with intervals.

        Parameters
        ----------
        X, y : records and their targets
        nodes : the owner of each record, by the names that `fit` was given. Without it rows, or people, are partitioned
            over the nodes as in `fit`
        user_ids : the person id of each record; of each person only the first record is evaluated
        epsilon : ε for these records, at the δ of the fit; by default that of the fit
        metrics : 'right' (the accuracy, with the least noise), 'confusion' or, of two classes, 'scores' (everything,
            thresholds and calibration too); 'squares' of a regression. 'auto' is the most that there is
        positive : of two classes, the one that recall, precision, average precision and thresholds are about; by
            default the last of `classes` as it was given
        disjoint : declare that no record (of a guarantee for people: no person) was trained on. Then one ε covers
            training and evaluation, provided that this is true; otherwise both add up

        Returns
        -------
        evaluation : its figures, such as `evaluation.auc`, and `evaluation.statement`, of training and evaluation

        Examples
        --------
        >>> from sottovoce import PrivateClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (6000, 2))
        >>> y = X[:, 0] > X[:, 1]
        >>> model = PrivateClassifier(row_norm=1.5, classes=[False, True], random_state=0).fit(X[:4000], y[:4000])
        >>> found = model.evaluate(X[4000:], y[4000:], disjoint=True)
        >>> found.accuracy.value > 0.9, abs(found.statement.epsilon - 1) < 0.01
        (True, True)
        >>> round(model.evaluate(X[4000:], y[4000:]).statement.epsilon, 3)
        1.475
        """
        joined = with_declared if disjoint else with_evaluation
        return evaluated(self, X, y, (nodes, user_ids), epsilon, (metrics, positive), joined, held_out=disjoint)

    _evaluations: list[Any]
    """Of this model: an `Evaluation`, or of a loaded one the bytes of its file."""

    def kept_evaluation(self) -> Any:
        """The evaluation that goes with the model: of one alone a statement says what it costs with the training."""
        check_is_fitted(self)
        if len(self._evaluations) < 2:
            return self._evaluations[0] if self._evaluations else None
        loss = self.spec_.problem.loss.name  # type: ignore[attr-defined]
        public = abs(getattr(self, "threshold_", 0.0)) < np.finfo(float).tiny  # 0, or next to it: see `with_classes`
        if is_classifier(self) and not (public and self.link_ == public_link(loss)):  # type: ignore[attr-defined]
            raise SpecError(
                f"this model was evaluated {len(self._evaluations)} times, and its threshold or probabilities come "
                "from one of them: what all of them cost the held-out records no statement of one folder says; fit "
                "anew and evaluate once, or go back to threshold_ = 0 and the public link_"
            )
        return None


Joined = Callable[[PrivacyStatement, Mapping[int, Event]], PrivacyStatement]
"""The statement of training and evaluation, from that of the training and the events of the evaluation by node."""


def with_declared(statement: PrivacyStatement, events: Mapping[int, Event]) -> PrivacyStatement:
    """Training and evaluation that the caller declares to share no record."""
    return with_held_out(statement, events, declared=True)


def evaluated(
    model: Any,
    X: Any,
    y: Any,
    whose: tuple[Any, Any],
    given: float | None,
    question: tuple[str, Any],
    joined: Joined,
    held_out: bool,
) -> Evaluation:
    """`Evaluates.evaluate`, by a rule for the statement; `whose` is (nodes, units), `question` is (ask, positive)."""
    from sottovoce.estimators.base import column, one_column, without_missing_ids

    check_is_fitted(model)
    if model._result.environment.get(BUDGETED) and model.budget is None:
        raise PrivacyError(
            "this model was paid from a budget, and so is its evaluation; name the ledger: "
            "model.set_params(budget=Budget(path=…))"
        )
    if is_classifier(model):
        check_label_type(model.classes_, y)
    private = model.spec_.seed is None
    X, y = number_cells(X) if private else X, one_column(y, private)
    user_ids, X, y, nodes = without_missing_ids(whose[1], private, X, y, whose[0])
    known = digest_of(model, X, y)
    epsilon, _ = settings.budget(model.epsilon if given is None else given, "auto", 1)
    if epsilon is None:
        raise PrivacyError("an evaluation needs an epsilon of its own where the fit had none; give epsilon")
    if user_ids is None and model.privacy_.unit == PERSON.name:
        raise PrivacyError(
            "the model's guarantee is for people, each with all of their rows; give the person id of each held-out "
            "record by user_ids: one record of each person is evaluated"
        )
    people = None if user_ids is None else column(user_ids, len(y), "user_ids")
    owner = owners_of(model, len(y), nodes, people)
    held, public = held_out_records(model, X, y, owner, people)
    metrics, positive = question
    public = public.with_positive(positive)
    there, said, seed = np.unique(held.owner), model.privacy_, model.spec_.seed
    own = held._replace(owner=np.searchsorted(there, held.owner))
    sizes = np.bincount(own.owner)
    tally = Tally.of(sizes, epsilon, said.delta, ADVERSARIES.read(said.adversary), law_of(model, there, sizes))
    keys = seeded(seed, fits_of(known, seed is not None))
    whole = joined(said, dict(zip(there.tolist(), tally.events, strict=True)))
    unit = RECORD if people is None else PERSON
    alone = statement_of(tally.events, said.delta, said.adversary, seed is not None, unit, seed is None)
    mine = np.searchsorted(there, owner)
    with charge_budget(model.budget, "evaluation", held_out=held_out) as budget_check:
        if budget_check is not None:
            budget_check(alone)
        found = evaluate_all(tally, own, public, keys, metrics)

    def against(target: Observer) -> list[Event]:
        return release_against(tally.release, target).events(tally.sizes, np.ones(len(tally.sizes), dtype=np.int64))

    spent = remember(known, alone, mine, against=against)
    done = replace(found, statement=whole, spent=spent.epsilon)
    model._evaluations.append(done)
    return done


def digest_of(model: Any, X: Any, y: Any) -> bytes:
    """By which this process knows the records again."""
    return digest(model._checked(X, reset=False), np.asarray(y))


def held_out_records(model: Any, X: Any, y: Array, owner: IntArray, people: Any) -> tuple[Held, Model]:
    """The records as they are evaluated, one of each person at each node, and what is public of the model."""
    X, private = model._checked(X, reset=False), model.spec_.seed is None
    if X.shape[0] != len(y):
        raise DataError(f"there are {X.shape[0]} records but {len(y)} targets; give one target a record")
    if people is not None:
        first = first_rows(owner, people)
        X, y, owner = X[first], y[first], owner[first]
    scores = model._row_scores(X)
    if is_classifier(model):
        reach = np.linalg.norm(np.atleast_2d(model.coef_), axis=1) * model.row_norm_
        constant = float(np.ravel(model.intercept_)[0])
        ends = constant - float(reach[0]) - ROUNDING, constant + float(reach[0]) + ROUNDING
        two, at = len(model.classes_) == 2, float(model.threshold_)
        labels = tuple(model.classes_.tolist())
        public = Model(len(labels), *ends, model.link_ if two else None, at, labels)
        public = public.with_positive(model._class_order()[-1]) if two else public
        return Held(owner, scores[:, 0] if two else scores, codes(model.classes_, y, private)), public
    if model.target_range_ is None:
        raise SpecError("the folder of this model does not say in which public range its targets are; fit it anew")
    low, high = model.target_range_
    y = real_numbers(y)
    warn_owner(int(np.count_nonzero(np.isnan(y))) if private else 0, "records have no usable target")
    if not private and not np.all(np.isfinite(y)):
        raise DataError("the targets hold NaN or infinite values; drop those records first")
    with np.errstate(over="ignore"):  # overflows are clipped; a warning would reveal them
        scores, targets = ((2 * values - low - high) / (high - low) for values in (scores, y))
    return Held(owner, scores, targets), Model(0, targets=(float(low), float(high)))


def codes(classes: Any, y: Any, private: bool) -> Array:
    """Class numbers; −1 for a label that the model does not know, which a simulation refuses."""
    found = class_codes(classes, y)
    strange = np.flatnonzero(found < 0)
    if strange.size and not private:  # with a guarantee a refusal would be an output
        raise DataError(
            f"y holds the class {np.asarray(y)[strange].tolist()[0]!r} in record {strange[0]}, which the model does "
            "not know; drop the record"
        )
    warn_owner(len(strange), "records have a label that the model does not know, and count as none of its classes")
    return found


def owners_of(model: Any, records: int, nodes: Any, people: Any) -> IntArray:
    """The node number of every held-out record."""
    from sottovoce.estimators.base import column

    if nodes is None:
        units = records if people is None else len(np.unique(people))
        n = min(len(model.nodes_), units)
        return owner_of_rows(partition(records, n, people, seeded=model.spec_.seed is not None))
    names = column(nodes, records, "nodes").astype(np.str_)
    known = {name: i for i, name in enumerate(model.nodes_.tolist())}
    strange = [name for name in names.tolist() if name not in known]
    if strange:
        raise DataError(f"node '{strange[0]}' was not in fit; held-out records are of the nodes {', '.join(known)}")
    return np.array([known[name] for name in names.tolist()], dtype=np.int64)


def law_of(model: Any, there: IntArray, sizes: IntArray) -> NoiseMechanism:
    """Return each node's own noise, or pairwise canceling noise as in training."""
    from sottovoce.privacy.pairs import PairsChoice  # loaded only if needed

    privacy, n = model.spec_.privacy, len(model.nodes_)
    if not isinstance(privacy.law, PairsChoice):
        return Gaussian()
    if len(there) < n:
        raise SpecError("noise that nodes cancel between them needs all of them; let every node hold records out")
    graph = model.spec_.network.graph(n)  # what is summed are counts: means times sizes
    return privacy.law.on(
        MechanismContext(graph, Full(), sizes, 1, adversary=privacy.adversary, scale=sizes.astype(float))
    )
