"""What a trusted centre that holds all records could do: the references that nobody who gossips can beat fairly."""

import math
from typing import Any

from sottovoce.baselines.baseline import Baseline
from sottovoce.baselines.dual import dual_spec
from sottovoce.baselines.facts import Facts
from sottovoce.baselines.steps import stepped
from sottovoce.notation import write
from sottovoce.problem.regularisers import Separable
from sottovoce.spec import Spec

CENTRAL: dict[str, Any] = {"privacy__adversary": "central"}


def noisy_dual_averaging(facts: Facts) -> Spec:
    """Dual averaging on one node: the central counterpart of Algorithm 1."""
    return dual_spec(facts, **CENTRAL)


def dpsgd(facts: Facts) -> Spec:
    """Abadi et al. 2016, with a proximal step for h."""
    return stepped(facts, facts.spec("descent", **CENTRAL))


def dpftrl(facts: Facts) -> Spec:
    """Kairouz et al. 2021: dual averaging, records in a fixed order, noise on prefix sums along a tree a pass.

    In the sum of a pass of so many batches there are at most as many noises as tree nodes make up a prefix.
    """
    batches = math.ceil(facts.least / facts.b)
    height = math.ceil(math.log2(batches)) + 1
    changes: dict[str, Any] = {"privacy__sampling": write("cyclic", facts.b), "privacy__law": "tree", **CENTRAL}
    return dual_spec(facts, "constant(1)", height / batches, **changes)


def output_perturbation(facts: Facts) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011: the exact minimiser plus noise."""
    return facts.spec("output_perturbation", 1, sampling="full", **CENTRAL)


def objective_perturbation(facts: Facts) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011, with Gaussian noise: the minimiser of a perturbed objective."""
    return facts.spec("objective_perturbation", 1, sampling="full", **CENTRAL)


def flat(facts: Facts) -> str:
    """Output perturbation: stability needs curvature."""
    certified = isinstance(facts.made_h, Separable) and facts.made_h.modulus > 0
    return "" if certified else "it needs an h with an l2 part, and a certified minimiser"


def rough(facts: Facts) -> str:
    """Objective perturbation: the change of variables needs a smooth loss and h."""
    h = facts.made_h
    plain = isinstance(h, Separable) and h.mu > 0 and h.phi == 0 and not h.bounded
    return "" if plain and math.isfinite(facts.smoothness) else "it needs a smooth loss (logistic, …) and h = l2"


ROWS = (
    Baseline("central_da", "noisy dual averaging, centralised", noisy_dual_averaging, central=True, source="own"),
    Baseline("dpsgd", "Abadi et al. 2016, DP-SGD", dpsgd, central=True, source="recalled"),
    Baseline("dpftrl", "Kairouz et al. 2021, DP-FTRL (tree)", dpftrl, central=True),
    Baseline(
        "output", "Chaudhuri et al. 2011, output perturbation", output_perturbation, True, "recalled", refusal=flat
    ),
    Baseline(
        "objective",
        "Chaudhuri et al. 2011, Gaussian objective perturbation",
        objective_perturbation,
        True,
        "recalled",
        refusal=rough,
    ),
)
