"""`evaluate`: what a fitted model is worth on records that were held out, let out as noisy tallies.

Who is protected twice over is nobody: a record is either trained on or held out. Replace one, and one of the two uses
changes; so each record has the ε of the one use that is made of it, and the larger of the two covers everybody. That
holds where rows are held out without a look at what they hold, as by their place in the table, and where no record is
in both. Who evaluates on the table that was trained on is refused; a part of it, in another order, is not known again.

A model may be evaluated again, and other models on the same records: that adds up, and `Spent` says to what.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.spent import KNOWN, digest, paying, remember
from sottovoce.evaluation import Evaluation, Held, Model, Tally, seeded
from sottovoce.evaluation import evaluate as ask_all
from sottovoce.privacy.release import ADVERSARIES, Gaussian, Law, Setting
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PERSON, RECORD, statement_of, with_held_out


class Evaluates:
    """What the classifier and the regressor have in common once they are fitted."""

    def evaluate(
        self,
        X: Any,
        y: Any,
        nodes: Any = None,
        units: Any = None,
        *,
        epsilon: float | None = None,
        ask: str = "auto",
    ) -> Evaluation:
        """Private figures of this model on held-out records: accuracy, confusion matrix, AUC, R², with intervals.

        Parameters
        ----------
        X, y : records that were not trained on, and their targets
        nodes : whose each record is, by the names that `fit` was given. Without it rows are dealt as `fit` deals them
        units : whose life each record is part of; a person is asked about one record, the first of theirs
        epsilon : ε for the held-out records, at the δ of the fit; by default that of the fit, which covers both
        ask : 'right' (the accuracy, with the least noise), 'confusion' or, of two classes, 'scores' (everything,
            thresholds and calibration too); 'squares' of a regression. 'auto' is the most that there is

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
        >>> found = model.evaluate(X[4000:], y[4000:])
        >>> found.accuracy.value > 0.9, abs(found.statement.epsilon - 1) < 0.01
        (True, True)
        """
        return _evaluate(self, X, y, nodes, units, epsilon, ask)


def _evaluate(model: Any, X: Any, y: Any, nodes: Any, units: Any, given: float | None, ask: str) -> Evaluation:
    check_is_fitted(model)
    known = digest_of(model, X, y)
    if known == model._trained:
        raise PrivacyError(
            "these are the records that the model was trained on, which an evaluation would use a second time; hold "
            "some records out of fit, and evaluate on those"
        )
    epsilon, _ = settings.budget(model.epsilon if given is None else given, "auto", 1)
    if epsilon is None:
        raise PrivacyError("an evaluation needs an epsilon of its own where the fit had none; give epsilon")
    if units is None and model.privacy_.unit == PERSON.name:
        raise PrivacyError(
            "the model's guarantee is for people, each with all of their rows; say with units whose each held-out "
            "record is, and each person is asked about one record"
        )
    held, public, people = held_out(model, X, y, nodes, units)
    there, said, seed = np.unique(held.owner), model.privacy_, model.spec_.seed
    own = held._replace(owner=np.searchsorted(there, held.owner))
    sizes = np.bincount(own.owner)
    tally = Tally.of(sizes, epsilon, said.delta, ADVERSARIES.read(said.adversary), law_of(model, there, sizes))
    keys = seeded(seed, len(KNOWN[known].statements) if known in KNOWN else 0)
    whole = with_held_out(said, dict(zip(there.tolist(), tally.events, strict=True)))
    unit = PERSON if people else RECORD
    alone = statement_of(tally.events, said.delta, said.adversary, seed is not None, unit, seed is None)
    mine = np.searchsorted(there, owners_of(model, len(y), nodes))
    with paying(model.budget, "evaluation", model._checked(X, reset=False), mine, held_out=True) as allow:
        if allow is not None:
            allow(alone)
        found = ask_all(tally, own, public, keys, ask)
    spent = remember(known, alone, mine)
    done = replace(found, statement=whole, spent=spent.epsilon)
    model._evaluations.append(done)
    return done


def digest_of(model: Any, X: Any, y: Any) -> bytes:
    """By which this process knows the records again."""
    return digest(model._checked(X, reset=False), np.asarray(y))


def held_out(model: Any, X: Any, y: Any, nodes: Any, units: Any) -> tuple[Held, Model, bool]:
    """The records as they are asked, what is public of the model, and whether units are people."""
    from sottovoce.estimators.base import column, one_column

    y = one_column(y)
    owner = owners_of(model, len(y), nodes)
    reach = np.linalg.norm(np.atleast_2d(model.coef_), axis=1) * model.row_norm_
    if is_classifier(model):
        scores, targets = model.decision_function(X), codes(model.classes_, y)
        at = float(model.threshold_)
        constant = float(np.ravel(model.intercept_)[0])
        ends = constant - float(reach[0]) - ROUNDING, constant + float(reach[0]) + ROUNDING
        two = scores.ndim == 1
        public = Model(len(model.classes_), *ends, model.link_ if two else None, at)
    else:
        if model.target_range_ is None:
            raise SpecError("the folder of this model does not say in which public range its targets are; fit it anew")
        low, high = model.target_range_
        both = (np.asarray(values, dtype=np.float64) for values in (model.predict(X), y))
        scores, targets = ((2 * values - low - high) / (high - low) for values in both)
        public = Model(0)
    if len(scores) != len(y):
        raise DataError(f"there are {len(scores)} records but {len(y)} targets; give one target a record")
    if not np.all(np.isfinite(targets)):
        raise DataError("the targets hold NaN or infinite values; drop those records first")
    held = Held(owner, scores, targets)
    return (held, public, False) if units is None else (held.of_people(column(units, len(y), "units")), public, True)


ROUNDING = 1e-9
"""By which a score may be over its bound: what is over falls into the last bin in any case."""


def codes(classes: Any, y: Any) -> Array:
    """Class numbers."""
    found = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    strange = np.flatnonzero(classes[found] != y)
    if strange.size:
        raise DataError(
            f"y holds the class {np.asarray(y)[strange].tolist()[0]!r} in record {strange[0]}, which the model does "
            "not know; drop the record"
        )
    return found.astype(np.float64)


def owners_of(model: Any, records: int, nodes: Any) -> IntArray:
    """The node number of every held-out record."""
    from sottovoce.estimators.base import column

    if nodes is None:
        return np.arange(records) % len(model.nodes_)
    names = column(nodes, records, "nodes").astype(np.str_)
    known = {name: i for i, name in enumerate(model.nodes_.tolist())}
    strange = [name for name in names.tolist() if name not in known]
    if strange:
        raise DataError(f"node '{strange[0]}' was not in fit; held-out records are of the nodes {', '.join(known)}")
    return np.array([known[name] for name in names.tolist()], dtype=np.int64)


def law_of(model: Any, there: IntArray, sizes: IntArray) -> Law:
    """Noise of each node's own, or cancelled between pairs as in training."""
    from sottovoce.privacy.pairs import PairsLaw  # for those who need it

    privacy, n = model.spec_.privacy, len(model.nodes_)
    if not isinstance(privacy.law, PairsLaw):
        return Gaussian()
    if len(there) < n:
        raise SpecError("noise that nodes cancel between them needs all of them; let every node hold records out")
    graph = model.spec_.network.graph(n)  # what is summed are counts: means times sizes
    return privacy.law.on(Setting(graph, Full(), sizes, 1, adversary=privacy.adversary, scale=sizes.astype(float)))
