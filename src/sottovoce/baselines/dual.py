"""Dual averaging by gossip: Algorithm 1 of the paper, its authors' method of 2022, and the conventional one."""

from typing import Any

import numpy as np

from sottovoce.algorithm.stepsizes import make_sequence
from sottovoce.baselines.baseline import Baseline
from sottovoce.baselines.facts import Facts
from sottovoce.baselines.steps import dual_weight
from sottovoce.notation import write
from sottovoce.spec import Spec


def dual_spec(facts: Facts, a: str = "", share: float = 1.0, **changes: Any) -> Spec:
    """Dual averaging with γ by the rule; a_t = t where h is strongly convex, as in Corollary 1, else a_t = 1."""
    a = a or ("linear(1)" if facts.made_h.modulus > 0 else "constant(1)")
    spec = facts.spec("dual_averaging", algorithm__a=a, **changes)
    gamma = dual_weight(facts, spec, make_sequence(a, spec.algorithm.rounds), share)
    return spec.but(algorithm__gamma=write("constant", gamma))


def algorithm1(facts: Facts) -> Spec:
    """The paper's Algorithm 1 as in its experiments: one random link a round, one record at each of its ends."""
    if facts.n == 1:
        return liu2022(facts)
    return dual_spec(facts, network__activation="edges(1)", network__correct=True, privacy__sampling="one")


def liu2022(facts: Facts) -> Spec:
    """Liu, Johansson and Shi 2022: everyone in every round, one record each."""
    return dual_spec(facts, privacy__sampling="one")


def conventional(facts: Facts) -> Spec:
    """Duchi, Agarwal and Wainwright 2012, eqs. (2)-(3) of the paper, on noisy batches.

    a_t = 1, and γ_t = γ√(t/T) grows to the rule's γ.
    """
    spec = dual_spec(facts, a="constant(1)")
    last = float(make_sequence(spec.algorithm.gamma, 1)[0])
    return spec.but(algorithm__gamma=write("sqrt", last / float(np.sqrt(spec.algorithm.rounds))))


ROWS = (
    Baseline("algorithm1", "Liu, Johansson and Shi, Algorithm 1", algorithm1),
    Baseline("liu2022", "Liu, Johansson and Shi 2022", liu2022, source="reconstruction"),
    Baseline("dda", "Duchi, Agarwal and Wainwright 2012, perturbed", conventional, source="recalled"),
    Baseline("dual_averaging", "dual averaging, everyone active, batches", dual_spec, source="own"),
)
