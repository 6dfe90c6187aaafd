"""From an estimator's parameters to a spec.

Every word is checked, and everything left on "auto" is chosen by the planner. The problem that is solved is scale-free:
rows are divided by their public bound, targets of a regression mapped from their public range to [−1, 1]. So the
planner's numbers, and the user's `alpha`, mean the same in every unit of measure.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce.algorithm.method import ALL, constant, linear
from sottovoce.errors import SpecError
from sottovoce.planner import Choice, Facts, choose
from sottovoce.planner.terms import (
    INTERCEPT,
    SMALL_INTERCEPT,
    budget,
    is_number,
    refuse_small_nodes,
    steepest,
    target_scale,
)
from sottovoce.planner.trust import read_trust
from sottovoce.privacy import sampling as release
from sottovoce.privacy.calibration import NoNoise
from sottovoce.privacy.quantiles import NO_QUANTILES
from sottovoce.privacy.release import Adversary
from sottovoce.problem.regularisers import REGULARISERS, Regulariser, elastic_net
from sottovoce.run.spec import Spec

__all__ = [
    "INTERCEPT", "SMALL_INTERCEPT", "budget", "further", "over_zero", "penalty_name", "plan", "refuse_small_nodes",
    "regulariser", "seed", "watching", "whole",
]  # fmt: skip

PENALTIES = {"auto": "l2", "l2": "l2", "l1": "l1", "elasticnet": "elastic_net", "none": "none"}
SAMPLINGS = ("auto", "poisson", "fixed", "full")
NO_NOISE = 10.0
"""Without privacy, a plan as for an ε at which noise hardly matters."""
ENDLESS = 1e4
"""The same of a regression, whose plans are right for any ε."""
REACH = 1e4
"""How long a model may get, in units of mean gradients, in as few rounds as there are."""


def watching(trust: Any, adversary: str, nodes: int) -> Adversary | str:
    """Who is watching: what follows from whom the owners trust, unless an adversary was named."""
    if adversary == "auto":
        return read_trust(trust).adversary(nodes)
    if trust != "nobody":
        raise SpecError("trust and adversary say the same thing in two ways; give one of them")
    return adversary


def plan(facts: Facts, private: bool, given: dict[str, Any]) -> Choice:
    """The planner's choice, with what the user fixed among an estimator's parameters."""
    fixed: dict[str, Any] = {}
    if given["activation"] != "auto":
        fixed["activation"] = given["activation"]
    if given["rounds"] != "auto":
        fixed["rounds"] = whole(given["rounds"], "rounds")
    fixed |= _sampling(given["sampling"], given["batch"], min(facts.sizes))
    if "method" in given:  # of a regression, which knows how to choose a clip
        fixed["method"] = given["method"]
    elif math.isinf(facts.loss.slope_bound):
        fixed["clip"] = steepest(facts.outputs, facts.row_norm, facts.intercept)
    if given["alpha"] != "auto":
        fixed["h"] = regulariser(facts.penalty, given["alpha"], given["l1_ratio"])
    elif given["l1_ratio"] != "auto":
        fixed["l1_ratio"] = _share(given["l1_ratio"])
    share = target_scale(given.get("target_scale", "public"))
    if private and share not in (None, NO_QUANTILES):
        fixed["quantiles"] = share
    if not private and "method" in given:
        facts = replace(facts, epsilon=ENDLESS)
    choice = choose(facts, **fixed)
    return choice if private else replace(choice, spec=_without_noise(choice.spec, facts))


def _without_noise(spec: Spec, facts: Facts) -> Spec:
    """The same plan without noise: there is nothing to stop early for, and nothing that a clip would save.

    γ is as small as a steady descent allows: with a_t = t the steps a_t/(μA_t + γ) are at most 1/√(2μγ), and curvatures
    at most R² + B² for every loss here that has one. Where that asks for more than A_T/REACH, few rounds had better go
    far than steadily.
    """
    spec = spec.but(algorithm__counted=ALL)
    if spec.privacy.clip is not None:
        clip = steepest(facts.outputs, facts.row_norm, facts.intercept)
        spec = spec.but(privacy__clip=None if math.isfinite(facts.loss.slope_bound) else clip)
    mu = spec.problem.h.modulus
    if mu > 0:
        steady = (facts.row_norm**2 + facts.intercept**2) ** 2 / (2 * mu)
        far = spec.algorithm.rounds * (spec.algorithm.rounds + 1) / 2 / REACH
        spec = spec.but(algorithm__a=linear(1), algorithm__gamma=constant(min(steady, far)))
    return spec.but(privacy__noise=NoNoise())


def regulariser(penalty: str, alpha: Any, l1_ratio: Any) -> Regulariser:
    """h with its weights: α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), as in scikit-learn.

    Examples
    --------
    >>> print(regulariser("elastic_net", 0.01, 0.25))
    elastic_net(0.0025, 0.0075)
    """
    if not is_number(alpha) or not 0 <= alpha < math.inf:
        raise SpecError(f"alpha must be 'auto' or a number that is not negative, not {alpha!r}")
    if penalty != "elastic_net":
        return REGULARISERS.make(penalty, *([] if penalty == "none" else [float(alpha)]))
    share = 0.5 if l1_ratio == "auto" else _share(l1_ratio)
    return elastic_net(float(alpha * share), float(alpha * (1 - share)))


def penalty_name(penalty: Any) -> str:
    """A penalty under the name that specs know it by."""
    name = "none" if penalty is None else penalty
    if name not in PENALTIES:
        raise SpecError(f"there is no penalty {penalty!r}; choose one of {', '.join(PENALTIES)}")
    return PENALTIES[name]


def over_zero(value: Any, name: str) -> float:
    """A public bound: finite and over 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise SpecError(f"{name} must be a public number that is finite and over 0, not {value!r}")
    return float(value)


def whole(value: Any, name: str) -> int:
    """A whole number over 0."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise SpecError(f"{name} must be 'auto' or a whole number over 0, not {value!r}")
    return int(value)


def seed(random_state: Any) -> int | None:
    """None for a secret key from the operating system; anything else makes a simulation."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    raise SpecError(
        "random_state must be None, or, for a SIMULATION, a whole number that is not negative or one of NumPy's "
        f"generators, not {random_state!r}"
    )


def further(key: int | None, fits: int) -> int | None:
    """The seed of a fit that goes on from others: the same noise twice would add up, where accounts take it as new."""
    return None if key is None else int(np.random.SeedSequence((key, fits)).generate_state(1, np.uint64)[0])


def _sampling(kind: Any, batch: Any, smallest: int) -> dict[str, Any]:
    if kind not in SAMPLINGS:
        raise SpecError(f"there is no sampling {kind!r}; choose one of {', '.join(SAMPLINGS)}")
    batch = batch if batch == "auto" else whole(batch, "batch")
    if kind == "full" and batch != "auto":
        raise SpecError("sampling='full' uses every record in every round; leave batch out")
    if kind in ("auto", "full"):
        return ({} if kind == "auto" else {"sampling": "full"}) | ({} if batch == "auto" else {"batch": batch})
    return {"sampling": release.SAMPLINGS.make(kind, min(64, smallest) if batch == "auto" else batch)}


def _share(value: Any) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise SpecError(f"l1_ratio must be 'auto' or a number between 0 and 1, not {value!r}")
    return float(value)
