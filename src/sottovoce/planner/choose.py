"""The choice of a plan: price every candidate by the predicted loss, take the cheapest of the best, say why."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce._types import FLOAT_BYTES
from sottovoce.algorithm.stepsizes import make_sequence
from sottovoce.errors import SpecError
from sottovoce.network.activation import make_activation
from sottovoce.network.mixing import activation_rate, beta
from sottovoce.network.schedule import draw_schedule
from sottovoce.notation import write
from sottovoce.planner import predict
from sottovoce.planner.explain import others, reasons
from sottovoce.planner.facts import Choice, Facts, Plan
from sottovoce.privacy.sampling import make_sampling
from sottovoce.problem.losses import Joint
from sottovoce.problem.objective import weigh
from sottovoce.run.build import h_from_text, loss_from_text, make_lipschitz, make_network
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

FIXED = (
    "sampling", "batch", "rounds", "activation", "alpha", "l1_ratio", "gamma", "a", "clip", "weights", "h", "mixing",
    "correct", "on_violation", "primal",
)  # fmt: skip
ROUNDS = (2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10_000)
FEWEST = 200
"""Rounds that a plan has at the least, if the budget allows: the average over few rounds is of models that had hardly
begun, and 200 instead of 20 gave 1 to 3 points of accuracy where there is much noise (mushrooms, rcv1)."""
LATENCY, BANDWIDTH = 0.05, 1e7
"""Seconds a round, bytes a second of each node: a plain network, to weigh rounds against bytes."""
PATIENCE = 0.01 / 600
"""What a second on that network is worth in accuracy: a point for ten minutes."""
APART = 0.002
"""What nodes that gossip in pairs lose by not agreeing, besides noise: nothing on a9a, 0.009 on epsilon-like data."""
STRONG = 0.1
"""Share of the shrinkage 1/τ that is given to h as μ; the rest is γ. Which of the two hardly matters."""
WORK = 5e9
"""Multiplications a run may need before records are sampled: some seconds."""
ENTRIES = 200
"""Entries that a row is counted with at the most, where m is larger: such data is sparse as a rule."""
UNEVEN = 1.1
"""From which ratio of the largest to the smallest node on sizes make a difference."""
GENTLER = {"logistic": 0.5, "softmax": 0.5}
"""Clip as a share of the slope bound where steep slopes are rare: at the start all of them are at or below it."""


@dataclass(frozen=True)
class _Network:
    """A way to activate nodes, and what follows from it."""

    activation: str
    iota: float
    beta: float
    messages: float


@dataclass(frozen=True)
class _Scale:
    """The problem in units of its public bounds: gradients and rows have norm at most 1."""

    lipschitz: float
    clip: float | None
    row: float
    weights: str
    z1: float
    noise: float
    """c of full batches, over L."""

    @property
    def reach(self) -> float:
        """What τ is to be divided by."""
        return self.lipschitz * self.row


def choose(facts: Facts, **fixed: Any) -> Choice:
    """The best plan for the facts that agrees with everything that is fixed; settings that are None are not fixed.

    Parameters
    ----------
    facts : public numbers
    sampling, batch : a sampler such as 'poisson(64)' or 'full'; or a batch size alone, for Poisson sampling
    rounds, activation, gamma, a, clip, weights, mixing, correct, on_violation, primal : as in a spec
    h, alpha, l1_ratio : a whole regulariser; or the weight of the penalty, and which share of it is l1

    Examples
    --------
    >>> facts = Facts(sizes=(1600,) * 20, features=123, loss="hinge", epsilon=1.0, delta=1e-5)
    >>> choice = choose(facts)
    >>> choice.spec.network.activation, choice.spec.privacy.sampling
    ('everyone', 'full')
    >>> choose(facts, rounds=50, sampling="poisson(64)").spec.algorithm.rounds
    50
    """
    odd = sorted(set(fixed) - set(FIXED))
    if odd:
        raise SpecError(f"the planner has no setting '{odd[0]}'; it knows {', '.join(FIXED)}")
    given = {k: v for k, v in fixed.items() if v is not None}
    scale = _scale(facts, given)
    networks = _networks(facts, given)
    plans = [_plan(facts, given, scale, network, T) for network in networks for T in _rounds(facts, given)]
    afford = [p for p in plans if facts.max_bytes is None or p.bytes <= facts.max_bytes]
    if not afford:
        least = min(plan.bytes for plan in plans)
        raise SpecError(f"no plan fits into {facts.max_bytes:g} bytes: the smallest sends {least:g}; allow more")
    best = min(afford, key=lambda p: p.loss + PATIENCE * _seconds(facts, p))
    iota = next(network.iota for network in networks if network.activation == best.activation)
    spec = _spec(facts, given, scale, best, iota)
    shortest = len(afford) == len(plans) or best.rounds < max(p.rounds for p in afford)
    return Choice(spec, reasons(facts, given, best, spec, shortest), best.loss, others(afford, best))


def _seconds(facts: Facts, plan: Plan) -> float:
    """How long a plan keeps a plain network busy."""
    return max(plan.rounds, FEWEST) * LATENCY + plan.bytes / facts.n / BANDWIDTH


def _scale(facts: Facts, given: dict[str, Any]) -> _Scale:
    loss, row = loss_from_text(facts.loss), math.hypot(facts.row_norm, facts.intercept)
    joint, clip = Joint(loss, facts.outputs), given.get("clip")
    if clip is None and (loss.name in GENTLER or joint.one_vs_rest) and math.isfinite(loss.slope_bound):
        # one class against the rest: as if one of them were wrong at a time
        clip = loss.slope_bound * row * GENTLER.get(loss.name, 1.0)
    problem = ProblemSpec(facts.loss, outputs=facts.outputs, row_norm=facts.row_norm, intercept=facts.intercept)
    lipschitz = make_lipschitz(loss, Spec(AlgorithmSpec(1), problem, privacy=PrivacySpec(clip=clip)))
    sizes, z1 = np.array(facts.sizes), predict.single(facts.epsilon, facts.delta)
    uneven = max(facts.sizes) > UNEVEN * min(facts.sizes)
    weights = given.get("weights") or (write("records", round(predict.typical_size(z1), 1)) if uneven else "records")
    return _Scale(lipschitz, clip, row, weights, z1, predict.level(weigh(weights, sizes), sizes, 1.0, z1))


def _networks(facts: Facts, given: dict[str, Any]) -> list[_Network]:
    """Everyone, or what is fixed; on the complete graph also pairs, who send n messages a round and not n(n − 1)."""
    names = [given["activation"]] if "activation" in given else ["everyone"]
    if "activation" not in given and facts.graph == "complete" and facts.n > 3:
        names.append(write("matching", facts.n // 2))
    spec = NetworkSpec(graph=facts.graph, weights=given.get("mixing", "metropolis"))
    graph, found = make_network(spec, facts.n), []
    for name in names:
        activation = make_activation("everyone" if facts.n == 1 else name)
        iota, _ = activation_rate(graph, activation, bool(given.get("correct")))
        sample = draw_schedule(graph, activation, spec.weights, 200, np.random.default_rng(0))
        messages = float(sample.up_to()[-1]) / 200
        found.append(_Network(name, iota, beta(graph, activation, spec.weights).beta, messages))
    return found


def _rounds(facts: Facts, given: dict[str, Any]) -> list[int]:
    if "rounds" in given:
        return [int(given["rounds"])]
    fewest = 1 if facts.max_bytes else FEWEST  # few bytes may allow only few rounds
    return [T for T in ROUNDS if fewest <= T < facts.rounds] + [facts.rounds]


def _plan(facts: Facts, given: dict[str, Any], scale: _Scale, network: _Network, T: int) -> Plan:
    """The best plan with this activation and T rounds."""
    iota = network.iota
    releases = max(1.0, iota * T)
    sampling = make_sampling(_sampling(facts, given, scale, releases))
    sizes = np.array(facts.sizes)
    rates = [1.0 if sampling.kind == "full" else sampling.batch(int(q)) / q for q in sizes]
    more = max(predict.excess(sampling.kind, rate, releases, scale.z1) for rate in set(rates))
    a = make_sequence(given.get("a", "constant(1)"), T)
    uneven = T * float(np.sum(a**2)) / float(np.sum(a)) ** 2  # weights that grow use the releases unevenly
    drawn = 0.0 if sampling.kind == "full" else 1 / (facts.features * releases * float(np.dot(rates, sizes)))
    apart = facts.n * network.beta**2 / (releases * (1 - network.beta**2))  # recent noise has not mixed yet
    c = math.sqrt((scale.noise * more) ** 2 * uneven * (1 + apart) + drawn)
    reach = _reach(facts, given, scale, c, T, iota)
    foreseen = float(predict.loss(reach, c, facts.features, releases)) + (APART if network.beta > 0 else 0.0)
    sent = network.messages * T * facts.m * FLOAT_BYTES
    return Plan(network.activation, str(sampling), T, reach / scale.reach, c * scale.lipschitz, foreseen, sent)


def _sampling(facts: Facts, given: dict[str, Any], scale: _Scale, releases: float) -> str:
    if "sampling" in given:
        return str(given["sampling"])
    if "batch" in given:
        return write("poisson", int(given["batch"]))
    work = releases * sum(facts.sizes) * min(facts.features, ENTRIES) * facts.outputs
    rate = max(predict.enough(releases, scale.z1), float(f"{WORK / work:.1g}")) if work > WORK else 1.0
    return write("poisson", rate) if rate < 1 else "full"


def _reach(facts: Facts, given: dict[str, Any], scale: _Scale, c: float, T: int, iota: float) -> float:
    """τ in units of the bounds: the best one, or what the user's γ and μ leave of it."""
    A = iota * float(np.sum(make_sequence(given.get("a", "constant(1)"), T)))
    mu = _modulus(facts, given)
    if "gamma" in given:
        return scale.reach / (mu + float(make_sequence(_sequence(given["gamma"]), T)[-1]) / A)
    best, _ = predict.best_reach(c, facts.features, max(1, round(iota * T)))
    return 1 / max(1 / best, mu / scale.reach + 1 / (predict.LONGEST_STEP * iota * T)) if mu else best


def _modulus(facts: Facts, given: dict[str, Any]) -> float:
    """μ, where the user has fixed it; 0 where it is the planner's to choose."""
    if "h" in given:
        return h_from_text(given["h"]).modulus
    if "alpha" not in given:
        return 0.0
    share = {"l2": 1.0, "elastic_net": 1 - given.get("l1_ratio", 0.5)}.get(facts.penalty, 0.0)
    return float(given["alpha"]) * share


def _penalty(facts: Facts, given: dict[str, Any], plan: Plan) -> str:
    """h: what the user fixed; else a tenth of the shrinkage, and a threshold of one deviation of the noise for l1."""
    if "h" in given:
        return str(given["h"])
    ratio = {"l2": 0.0, "l1": 1.0}.get(facts.penalty, given.get("l1_ratio", 0.5))
    phi, mu = (given["alpha"],) * 2 if "alpha" in given else (_short(plan.noise), _short(STRONG / plan.reach))
    if facts.penalty == "elastic_net":
        return write("elastic_net", float(ratio * phi), float((1 - ratio) * mu))
    return {"none": "none", "l1": write("l1", float(phi)), "l2": write("l2", float(mu))}[facts.penalty]


def _spec(facts: Facts, given: dict[str, Any], scale: _Scale, plan: Plan, iota: float) -> Spec:
    a = given.get("a", "constant(1)")
    h = _penalty(facts, given, plan)
    A = iota * float(np.sum(make_sequence(a, plan.rounds)))
    gamma = write("constant", _short(A * (1 / plan.reach - h_from_text(h).modulus)))
    spec = Spec(
        AlgorithmSpec(plan.rounds, a=a, gamma=_sequence(given.get("gamma", gamma))),
        ProblemSpec(facts.loss, h, scale.weights, facts.intercept, facts.row_norm, outputs=facts.outputs),
        NetworkSpec(facts.graph, plan.activation),
        PrivacySpec(
            sampling=plan.sampling,
            noise=write("private", facts.epsilon),
            delta=facts.delta,
            clip=scale.clip,
            adversary=facts.adversary,
        ),
    )
    changes = {
        "network__weights": given.get("mixing"),
        "network__correct": given.get("correct"),
        "problem__on_violation": given.get("on_violation"),
        "algorithm__primal": given.get("primal"),
    }
    return spec.but(**{name: value for name, value in changes.items() if value is not None})


def _short(value: float) -> float:
    """Four digits: a plan is to be read."""
    return float(f"{value:.4g}")


def _sequence(value: str | float) -> str:
    return value if isinstance(value, str) else write("constant", float(value))
