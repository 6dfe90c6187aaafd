"""Our own planner, held to what all others are held to: the same objective, batches and passes."""

from sottovoce.baselines.baseline import Baseline
from sottovoce.baselines.facts import Facts
from sottovoce.planner import Facts as Known
from sottovoce.planner import choose
from sottovoce.spec import Spec


def planned(facts: Facts) -> Spec:
    """Dual averaging as the planner would run it; its step sizes are its own, and no factor is put on them."""
    known = Known(
        sizes=facts.sizes,
        features=facts.m,
        loss=facts.loss,
        epsilon=facts.epsilon,
        delta=facts.delta,
        graph=facts.graph,
        row_norm=facts.row_norm,
        intercept=facts.intercept,
    )
    same = facts.spec("dual_averaging")
    return choose(
        known,
        h=facts.h,
        weights=same.problem.weights,
        sampling=same.privacy.sampling,
        activation=same.network.activation,
        rounds=same.algorithm.rounds,
    ).spec


ROWS = (Baseline("sottovoce", "our planner's dual averaging", planned, source="own"),)
