"""`train --holdout SHARE`: a share of the records that is not trained on, and on which the model is evaluated.

The share is chosen by a key, record by record or person by person, so that no record is in both by construction. Then
one ε covers both: replace a record, and one of the two uses changes (parallel composition).
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.cli.evaluate import Labeled, evaluate_held_out, posed, tally_of
from sottovoce.cli.records import Partitioned
from sottovoce.errors import SpecError
from sottovoce.evaluation import Evaluation
from sottovoce.evaluation.holdout import held_out_share
from sottovoce.privacy.statement import PrivacyStatement, with_held_out
from sottovoce.problem.shards import Shards
from sottovoce.run.result import Result

INSTEAD = (
    "leave --holdout out, and evaluate other records in Python: sottovoce.load(OUT).evaluate(X, y, disjoint=True), "
    "where OUT is the folder of --out"
)
"""What to type where a command cannot evaluate."""
BudgetCheck = Callable[[PrivacyStatement], None]


@dataclass(frozen=True, eq=False)
class Holdout:
    """The records that are held out of training.

    Attributes
    ----------
    X, y : rows and targets in the units of the run
    owner : the node of each row
    people : the person id of each row; None if each record is protected by itself
    evaluated_counts : the node of each record or person
    everything : all records, including those for training
    targets : the public range of a regression's targets
    unit : the number by which rows were divided
    """

    X: Matrix
    y: Array
    owner: IntArray
    people: IntArray | None
    evaluated_counts: IntArray
    everything: Shards
    targets: tuple[float, float] | None
    unit: float

    @classmethod
    def of(cls, partitioned: Partitioned, share: float, seed: int | None) -> tuple[Partitioned, "Holdout"]:
        """Split records into those to train on and those that are held out, at every node."""
        if partitioned.names["classes"] is None and partitioned.targets is None:
            raise SpecError("a regression is evaluated within a public range of its targets; give --target-bounds, too")
        shards, key = partitioned.shards, repr(("holdout", seed)).encode()
        secret = secrets.token_bytes(32) if seed is None else hashlib.blake2b(key, digest_size=32).digest()
        held = held_out_share(shards.sizes, share, secret)
        trained = [np.setdiff1d(np.arange(q), out) for q, out in zip(shards.sizes.tolist(), held, strict=True)]
        rows, owner, people = _rows(shards, held)
        whole = cls(
            shards.X[rows], shards.y[rows], owner, people, np.repeat(np.arange(shards.n), list(map(len, held))), shards,
            partitioned.targets, partitioned.names["scale"].unit,
        )  # fmt: skip
        rows, owner, people = _rows(shards, trained)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=shards.n))])
        weights = None if shards.weights is None else shards.weights[rows]
        rest = Shards.of(
            shards.X[rows], shards.y[rows], offsets, intercept=shards.intercept, user_ids=people, weights=weights
        )
        return replace(partitioned, shards=rest), whole

    def covered(self, statement: PrivacyStatement) -> PrivacyStatement:
        """The statement of training and evaluation, from that of the training."""
        tally, there = tally_of(statement, self.evaluated_counts, INSTEAD)
        return with_held_out(statement, dict(zip(there.tolist(), tally.events, strict=True)))

    def checked(self, budget_check: BudgetCheck | None) -> BudgetCheck:
        """Ask a budget, if there is one, for both at once; and refuse what cannot be evaluated before training."""

        def check_both(statement: PrivacyStatement) -> None:
            whole = self.covered(statement)
            if budget_check is not None:
                budget_check(whole)

        return check_both

    def evaluated(self, result: Result) -> tuple[Result, Evaluation]:
        """Ask the held-out records, and return the result with the statement of both."""
        scale, whole = result.scale, self.covered(result.statement)
        if result.classes is None:
            y = scale.middle + scale.half * self.y
        else:
            y = (self.y + 1.0) / 2 if len(result.classes) == 2 else self.y
        bounds = result.target_range if result.classes is None else None
        held, public = posed(result, Labeled(self.X * self.unit, y, self.owner, self.people), bounds)
        tally, there = tally_of(result.statement, self.evaluated_counts, INSTEAD)
        found = evaluate_held_out(tally, there, held, public.with_positive(None), result.spec.seed, "auto")
        return replace(result, statement=whole), replace(found, statement=whole)


def _rows(shards: Shards, units: list[IntArray]) -> tuple[IntArray, IntArray, IntArray | None]:
    """The rows of some units of every node; the node of each, and the person where units are people."""
    places = np.arange(shards.X.shape[0])
    rows = [places[shards.rows(node, mine)] for node, mine in enumerate(units)]
    owner = np.repeat(np.arange(shards.n), [len(some) for some in rows])
    if not shards.people:
        return np.concatenate(rows), owner, None
    counts = [shards.counts(node, mine) for node, mine in enumerate(units)]
    ids = np.repeat(np.arange(sum(map(len, units))), np.concatenate([c for c in counts if c is not None]))
    return np.concatenate(rows), owner, ids
