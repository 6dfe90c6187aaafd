"""The one rule for step sizes: every method takes the step that makes its own textbook bound least, in public numbers.

Let a round's gradient, averaged over n nodes, have the variance s² = (L²/b + mσ²)/n: b records sampled at each node, σ
as calibrated, in m coordinates. β is the smoothness of the loss, μ the modulus of h, D a public bound of ‖x*‖, T the
number of gradients that each node takes. Then, for constant η < 1/β, and for dual averaging with constant γ,

    descent          F(x̃) − F* ≤ μD²/(2((1 + μη)^T − 1)) + ηs²/(2(1 − βη))
    dual averaging   A_T (F(x̃) − F*) ≤ γD²/2 + Σ_t a_t² s²/(2(μA_t + γ − βa_t))

(proximal gradient steps with an inexact gradient, the inequality of one step summed with the weights that telescope).
Where μ = 0 the first term of descent is D²/(2ηT). A loss with kinks has no β: there L² joins s², and β = 0. Activation
with probability ι makes T into ιT, a_t² into ιa_t² and A_t into ιA_t. No bound is tight, and none is tuned: a factor of
the caller's (`Facts.boost`) multiplies all steps alike.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.baselines.facts import Facts
from sottovoce.build import activation_of
from sottovoce.notation import write
from sottovoce.privacy.sampling import make_sampling
from sottovoce.spec import Spec


def variance(facts: Facts, spec: Spec, sigma: float, nodes: int, share: float = 1.0) -> tuple[float, float]:
    """s² and β; `share` is how many vectors of noise there are in the sum of all gradients, for each gradient."""
    b = make_sampling(spec.privacy.sampling).batch(facts.least)
    chance = 0.0 if spec.privacy.sampling == "full" else facts.L**2 / b
    s2 = (chance + share * facts.m * sigma**2) / nodes
    return (s2 + facts.L**2, 0.0) if math.isinf(facts.smoothness) else (s2, facts.smoothness)


def step_size(facts: Facts, spec: Spec, nodes: int | None = None, sigma: float | None = None) -> float:
    """η of a descent method; for a spec's own σ, and averages over all nodes, unless others are given.

    Examples
    --------
    >>> facts = Facts((1000,) * 20, 50, epsilon=1.0)
    >>> step_size(facts, facts.spec("descent"), sigma=0.0) < 4.0  # 1/β
    True
    """
    T, mu, D = activation_of(spec, facts.n) * spec.algorithm.rounds, facts.made_h.modulus, facts.D
    s2, beta = variance(facts, spec, facts.needed_sigma(spec) if sigma is None else sigma, nodes or facts.n)

    def bound(log_eta: float) -> float:
        eta = math.exp(log_eta)
        grown = T * math.log1p(mu * eta)
        first = mu / (2.0 * math.expm1(min(grown, 700.0))) if mu > 0 else 1.0 / (2.0 * eta * T)
        return D * D * first + eta * s2 / (2.0 * (1.0 - beta * eta))

    largest = math.log(0.999 / beta) if beta > 0 else math.log(D / math.sqrt(s2)) + 5.0
    return facts.boost * math.exp(_least(bound, largest - 30.0, largest))


def stepped(
    facts: Facts, spec: Spec, nodes: int | None = None, sigma: float | None = None, factor: float = 1.0
) -> Spec:
    """The spec with the rule's constant step; round t has the weight t in the average that is put out."""
    eta = factor * step_size(facts, spec, nodes, sigma)
    return spec.but(algorithm__eta=write("constant", eta), algorithm__a="linear(1)")


def dual_weight(facts: Facts, spec: Spec, a: Array, share: float = 1.0) -> float:
    """γ of dual averaging with these a_t."""
    iota, mu, D = activation_of(spec, facts.n), facts.made_h.modulus, facts.D
    s2, beta = variance(facts, spec, facts.needed_sigma(spec), facts.n, share)
    stiff = mu * iota * np.cumsum(a) - beta * a

    def bound(log_gamma: float) -> float:
        gamma = floor + math.exp(log_gamma)
        return 0.5 * gamma * D * D + 0.5 * s2 * iota * float(np.sum(a * a / (stiff + gamma)))

    floor = max(0.0, -float(np.min(stiff)))
    largest = math.log(floor + math.sqrt(s2 * float(np.sum(a * a))) / D + float(a[-1])) + 5.0
    return (floor + math.exp(_least(bound, largest - 40.0, largest))) / facts.boost


def _least(bound: Callable[[float], float], low: float, high: float) -> float:
    """Where a bound is least."""
    return float(scipy.optimize.minimize_scalar(bound, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)
