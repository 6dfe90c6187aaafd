"""The planner: a whole spec from public numbers alone, for the least predicted loss of accuracy.

Nothing here looks at data. What decides is one number, the noise level c: the standard deviation, in each coordinate,
of the noise in the mean gradient over the whole run. All rounds together must hide a record within (ε, δ), so c is the
same for few and for many rounds; sampling only makes it larger. What is left to choose is how far to follow the noisy
gradients: the reach τ, of which x = −τ · (weighted mean gradient).
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sottovoce.build import h_from_text, loss_from_text
from sottovoce.errors import SpecError
from sottovoce.notation import write
from sottovoce.privacy.calibration import noise_multiplier
from sottovoce.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

PENALTIES = ("l2", "l1", "elastic_net", "none")
FIXED = (
    "sampling", "batch", "rounds", "activation", "alpha", "l1_ratio", "gamma", "a", "clip", "weights", "h", "mixing",
    "correct", "on_violation", "primal",
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What may be known of a problem before anybody looks at a record."""

    sizes: tuple[int, ...]
    """q_i: records, or persons, of each node."""
    features: int
    """m, the columns of a record, the intercept's included."""
    loss: str
    epsilon: float
    delta: float
    outputs: int = 1
    adversary: str = "transcript"
    graph: str = "complete"
    row_norm: float = 1.0
    intercept: float = 0.0
    penalty: str = "l2"
    max_rounds: int | None = None
    max_bytes: float | None = None


@dataclass(frozen=True)
class Choice:
    """A plan, why it was chosen, and what else there was."""

    spec: Spec
    reasons: list[str]
    predicted: float
    alternatives: list[dict[str, Any]]


def choose(facts: Facts, **fixed: Any) -> Choice:
    """The best plan for the facts that agrees with everything the user has fixed.

    Examples
    --------
    >>> facts = Facts(sizes=(1600,) * 20, features=123, loss="hinge", epsilon=1.0, delta=1e-5)
    >>> choose(facts).spec.network.activation
    'everyone'
    """
    odd = sorted(set(fixed) - set(FIXED))
    if odd:
        raise SpecError(f"the planner has no setting '{odd[0]}'; it knows {', '.join(FIXED)}")
    if facts.penalty not in PENALTIES:
        raise SpecError(f"there is no penalty '{facts.penalty}'; choose one of {', '.join(PENALTIES)}")
    given = {k: v for k, v in fixed.items() if v is not None}
    n, total = len(facts.sizes), sum(facts.sizes)
    rounds = int(given.get("rounds", min(250, facts.max_rounds or 250)))
    reach = math.hypot(facts.row_norm, facts.intercept)
    slope = loss_from_text(facts.loss).slope_bound if facts.outputs == 1 else math.sqrt(2)
    lipschitz = min(slope * reach, given.get("clip", math.inf))
    c = 2 * lipschitz * noise_multiplier("full", 1.0, 1, facts.epsilon, facts.delta) * math.sqrt(n) / total
    tau = 1e3 * math.sqrt(1e-3 * lipschitz / c) / reach**2
    A = rounds * (rounds + 1) / 2
    h = given.get("h") or _penalty(facts, given, tau)
    strong = h_from_text(h).modulus > 0
    a = given.get("a", "linear(1)" if strong else "constant(1)")
    gamma = write("constant", 0.5 * A / tau) if strong else write("sqrt", math.sqrt(rounds) / tau)
    sampling = given.get("sampling") or (write("poisson", given["batch"]) if "batch" in given else "full")
    problem = {"loss": facts.loss, "h": h, "weights": given.get("weights", "records"), "outputs": facts.outputs}
    if "outputs" not in {f.name for f in fields(ProblemSpec)}:
        del problem["outputs"]
    spec = Spec(
        AlgorithmSpec(rounds=rounds, a=a, gamma=_sequence(given.get("gamma", gamma))),
        ProblemSpec(**problem, intercept=facts.intercept, row_norm=facts.row_norm),
        NetworkSpec(graph=facts.graph, activation=given.get("activation", "everyone")),
        PrivacySpec(
            sampling=sampling,
            noise=write("private", facts.epsilon),
            delta=facts.delta,
            clip=given.get("clip"),
            adversary=facts.adversary,
        ),
    )
    if "mixing" in given:
        spec = replace(spec, network=replace(spec.network, weights=given["mixing"]))
    reasons = [
        f"everyone speaks in each of {rounds} rounds: the noise of {n} nodes averages out.",
        f"all {total:,} records are used in each round: at the same (ε, δ) sampling would need more noise.",
        f"the noise in the mean gradient over the whole run is {c:.2g} a coordinate, so it is followed for {tau:.3g}.",
    ]
    return Choice(spec, reasons, float(np.square(c * tau * reach)), [])


def _penalty(facts: Facts, given: dict[str, Any], tau: float) -> str:
    weight = given.get("alpha", 0.5 / tau)
    ratio = given.get("l1_ratio", 0.5)
    if facts.penalty == "l2":
        return write("l2", weight)
    if facts.penalty == "l1":
        return write("l1", given.get("alpha", 1e-4))
    if facts.penalty == "elastic_net":
        return write("elastic_net", ratio * weight, (1 - ratio) * weight)
    return "none"


def _sequence(value: str | float) -> str:
    return value if isinstance(value, str) else write("constant", float(value))
