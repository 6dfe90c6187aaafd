"""What a plan costs and what it buys, from public numbers alone: no data is read here.

A plan is a sampler, an activation scheme and a number of rounds. For a target (ε, δ) its cost is the noise σ that it
needs, what that noise does to the model, a bound on the error, and the bytes that it sends. Before a schedule exists
the number of rounds in which a node will speak is random: the accounting is over that mixture. The planner compares
plans by closed forms; this is the exact cost of one.
"""

import math
from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm import bounds
from sottovoce.algorithm.method import StepSizes, prefix_sums
from sottovoce.network.graphs import Graph
from sottovoce.network.mixing import activation_rate, beta
from sottovoce.planner.network import traffic
from sottovoce.privacy.calibration import Private, sigma
from sottovoce.privacy.planning import calibrate
from sottovoce.privacy.release import MechanismContext, Release
from sottovoce.run.plan import make_lipschitz, scheme_of
from sottovoce.run.spec import Spec


@dataclass(frozen=True)
class PlanCost:
    """One plan and what it comes to."""

    sampling: str
    activation: str
    rounds: int
    epochs: float
    iota: float
    beta: float
    sigma: float
    """The noise that the smallest node needs, in each coordinate of each release."""
    moments: str
    """What is released before the first round, of rows or of targets, and for which shares of the budget; or none."""
    moments_sigma: float
    """The noise of the smallest node in each number of that; 0 where there is none."""
    noise_in_model: float
    """√E‖·‖² of what the noise adds to the averaged model ỹ."""
    bound: float
    """Theorem 2 in its sharper form, without the γ d(x*) term: very loose, and no ranking of plans."""
    messages: float
    bytes: float


def plan_cost(spec: Spec, sizes: IntArray, m: int, epsilon: float) -> PlanCost:
    """The cost of a spec's plan for nodes with the given numbers of records."""
    n, T, lipschitz, delta = len(sizes), spec.algorithm.rounds, make_lipschitz(spec), spec.privacy.delta
    graph = spec.network.graph(n)
    activation = scheme_of(spec, n)
    iota, factors = activation_rate(graph, activation, spec.network.correct)
    mixing = beta(graph, activation, spec.network.weights, averaging=spec.network.averaging)
    sampling = spec.privacy.sampling
    busiest = float(np.max(activation.iota(graph)))
    pre_release = None
    releases = T + spec.privacy.may_lose  # a round is made anew for every node that is lost
    if not spec.privacy.one_shot:
        needed = {
            q: calibrate(sampling, q, releases, epsilon, clip=lipschitz, delta=delta, activity=busiest)
            for q in sorted({int(q) for q in sizes})
        }
        wanted = np.array([needed[int(q)] for q in sizes])
    else:  # the rounds get what the pre-release leaves; every node is assumed to speak in all of them
        from sottovoce.run.one_shot import one_shot_release  # only for those who need it

        spec = spec.replace(privacy__noise=Private(epsilon))
        width = m // spec.problem.outputs - (spec.problem.intercept > 0)
        pre_release = one_shot_release(spec, sizes, width, graph)
        plain = Release(sampling, lipschitz, (1.0,) * n, spec.privacy.adversary.among(n), before=pre_release)
        wanted = np.array([sigma(event, epsilon, delta) for event in plain.events(sizes, np.full(n, releases))])
    sigmas = _own_noise(spec, graph, wanted, sizes, m, factors)
    a = spec.algorithm.a(T)
    steps = StepSizes(a, spec.algorithm.gamma(T), spec.algorithm.counted(a))
    h = spec.problem.h
    scale = n * spec.problem.weights(sizes) * factors  # both act on what is already noised
    rms = float(np.sqrt(np.mean((scale * sigmas) ** 2)))
    setting = bounds.BoundInputs(L=lipschitz, m=m, n=n, iota=iota, beta=mixing.beta, mu=h.modulus, sigma=rms)
    network = spec.network
    links = traffic(graph, activation, network.weights, network.averaging, 2000).messages
    used = sum(sampling.batch(int(q)) for q in sizes)
    return PlanCost(
        sampling=str(sampling),
        activation=str(activation),
        rounds=T,
        epochs=iota * T * used / float(np.sum(sizes)),
        iota=iota,
        beta=mixing.beta,
        sigma=float(np.max(sigmas)),
        moments=" and ".join(map(str, spec.privacy.one_shot)) or "none",
        moments_sigma=0.0 if pre_release is None else max(pre_release.sigma),
        noise_in_model=math.sqrt(m * noise_variance(steps, iota, n, h.modulus, rms)),
        # no term of the sum over all rounds that the theorem bounds is negative: a part of them sums to no more
        bound=bounds.theorem2(setting, steps, T, "sharper") * float(steps.A[T] / steps.W[T]),
        messages=links * T,
        bytes=links * T * spec.network.averaging.message_bytes(m),
    )


def _own_noise(spec: Spec, graph: Graph, needed: Array, sizes: IntArray, m: int, factors: Array) -> Array:
    """What each node adds alone, for its releases to be as well hidden as with so much independent noise.

    Where pairs share noise everybody is taken to speak in every round.
    """
    n, adversary = len(sizes), spec.privacy.adversary.among(len(sizes))
    scale = n * spec.problem.weights(sizes) * factors
    law = spec.privacy.law.on(
        MechanismContext(graph, spec.privacy.sampling, sizes, m, adversary=adversary, scale=scale)
    )
    if not law.secrets:
        return needed
    unit = Release(spec.privacy.sampling, 1.0, law.units(n), adversary, law)
    hidden = np.array([event.sigma for event in unit.events(sizes, np.ones(n, dtype=np.int64))])
    return np.array(unit.sigma) * float(np.max(needed / hidden))


def noise_variance(steps: StepSizes, iota: float, n: int, mu: float, deviation: float) -> float:
    """Variance that the noise puts into each coordinate of ỹ^(T), for eq. (6) without a threshold or constraint.

    z̄ carries a_τ n⁻¹ Σ η_i ν_i from round τ on, and ỹ weighs y^(t) = −z̄^(t)/(ιμA_t + γ_t) by w_t/W_T, so the noise of
    round τ enters with a_τ (S_T − S_τ)/W_T, S being the prefix sums of w_t/(ιμA_t + γ_t).
    """
    S = prefix_sums(steps.w / (iota * mu * steps.A[1:] + steps.gamma))
    weights = steps.a * (S[-1] - S[1:]) / steps.W[-1]
    return float(np.sum(weights**2)) * iota * deviation**2 / n
