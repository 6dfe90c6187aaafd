"""What may be known before a run, and the one rule that makes every algorithm's step size of it. No data is examined.

`BaselineInputs` are sizes, budget, loss, regularizer: public numbers. The rule: every method takes the step that makes
its own textbook bound least.

Let the mean of a round's gradients, in which node i weighs w_i, have the variance s² = Σ_i w_i²(L²/b_i + mσ_i²): b_i
records sampled at node i, σ_i as calibrated there, in m coordinates; of equal nodes, (L²/b + mσ²)/n. β is the
smoothness of the loss, μ the modulus of h, D a public bound of ‖x*‖, T the number of gradients that each node takes.
Then, for constant η < 1/β, and for dual averaging with constant γ,

    descent          F(x̃) − F* ≤ μD²/(2((1 + μη)^T − 1)) + ηs²/(2(1 − βη))
    dual averaging   A_T (F(x̃) − F*) ≤ γD²/2 + Σ_t a_t² s²/(2(μA_t + γ − βa_t))

(proximal gradient steps with an inexact gradient, the inequality of one step summed with the weights that telescope).
Where μ = 0 the first term of descent is D²/(2ηT). A loss with kinks has no β: there L² joins s², and β = 0. Activation
with probability ι makes T into ιT, a_t² into ιa_t² and A_t into ιA_t. No bound is tight, and none is tuned: a factor of
the caller's (`BaselineInputs.boost`) multiplies all steps equally.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.algorithm.method import constant, linear
from sottovoce.algorithm.methods import METHODS, MethodChoice
from sottovoce.errors import SpecError
from sottovoce.network.activation import Everyone
from sottovoce.network.graphs import GRAPHS, Family, Graph
from sottovoce.privacy.calibration import Private, sigma
from sottovoce.privacy.release import MechanismContext, Release
from sottovoce.privacy.sampling import Full, Poisson, Sampling, always
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.regularizers import REGULARIZERS, Regularizer, Separable, l2
from sottovoce.registry import Field
from sottovoce.run.plan import activation_of, make_lipschitz, rounds_for_epochs
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

UNEVEN = 1.1
"""From which ratio of the largest node to the smallest on nodes are uneven."""


@dataclass(frozen=True)
class BaselineInputs:
    """Public numbers of a comparison.

    Attributes
    ----------
    sizes : records of each node
    m : coordinates of the model
    epsilon, delta : the budget that every run is calibrated to
    epochs : passes over the data that every iterative run makes
    batch : b, expected records of a node's batch; of uneven nodes their mean, a batch being the same share of each
    loss, h, intercept, row_norm : of the problem
    graph : who is linked with whom
    radius : D, where it is to be another one than follows from h
    boost : a factor on all step sizes; another one than 1 is a choice that someone made
    """

    sizes: tuple[int, ...]
    m: int
    epsilon: float
    delta: float = 1e-5
    epochs: float = 10.0
    batch: int = 64
    loss: Field[Loss] = Field(LOSSES, LOSSES.make("logistic"))
    h: Field[Regularizer] = Field(REGULARIZERS, l2(0.001))
    intercept: float = 0.0
    row_norm: float = 1.0
    graph: Field[Family] = Field(GRAPHS, GRAPHS.make("complete"))
    radius: float | None = None
    boost: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no run could keep to."""
        if not self.sizes or min(self.sizes) < 1 or self.m < 1:
            raise SpecError("a comparison needs nodes with records and a model with coordinates")
        if self.loss.targets == "classes":
            raise SpecError(f"a comparison is of models with one output; '{self.loss}' has one a class")
        for name in ("epsilon", "epochs", "batch", "boost"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(f"the {name} of a comparison must be over 0, not {getattr(self, name)}")

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def least(self) -> int:
        """Records of the smallest node."""
        return min(self.sizes)

    @property
    def uneven(self) -> bool:
        """Whether sizes differ by more than even partitions' do."""
        return max(self.sizes) > UNEVEN * self.least

    @property
    def b(self) -> int:
        """The batch that every node can fill; of uneven nodes the mean of their batches."""
        return min(self.batch, sum(self.sizes) // self.n if self.uneven else self.least)

    @property
    def batches(self) -> Sampling:
        """Poisson batches: of b records or, at uneven nodes, of one share of each node's own records."""
        share = self.n * self.b / sum(self.sizes)
        if not self.uneven:
            return Poisson(self.b)
        return Poisson(share) if share < 1 else Full()

    def pooled(self) -> "BaselineInputs":
        """The same with all records in one place, and as many of them in a round."""
        return replace(self, sizes=(sum(self.sizes),), batch=self.n * self.b, graph=GRAPHS.make("complete"))

    @cached_property
    def network(self) -> Graph:
        """The graph over these nodes."""
        return self.graph(self.n)

    @cached_property
    def L(self) -> float:
        """The bound of a record's subgradient."""
        return make_lipschitz(self.spec("descent", 1))

    @cached_property
    def smoothness(self) -> float:
        """β, the largest curvature of a record's loss; infinite for a loss with kinks."""
        return self.loss.smoothness * (self.row_norm**2 + self.intercept**2)

    @cached_property
    def D(self) -> float:
        """How far from 0 the optimum can be.

        At the optimum x* of f + (μ/2)‖x‖², f(0) ≥ f(x*) − ⟨∇f(x*), x*⟩ = f(x*) + μ‖x*‖² ≥ μ‖x*‖², since losses are not
        negative; in the same way φ‖x*‖₁ ≤ f(0). A set has its own radius.
        """
        if self.radius is not None:
            return self.radius
        if self.loss.targets == "real":
            raise SpecError("how far the optimum can be depends on the targets; give a public radius (--radius)")
        start, h = float(np.max(self.loss.value(np.zeros(2), np.array([-1.0, 1.0])))), self.h
        if not isinstance(h, Separable):
            return float(getattr(h, "radius", 1.0))
        bounds = [math.sqrt(start / h.mu)] if h.mu > 0 else []
        bounds += [start / h.phi] if h.phi > 0 else []
        bounds += [math.sqrt(self.m) * max(-h.lo, h.hi)] if h.bounded and math.isfinite(max(-h.lo, h.hi)) else []
        if not bounds:
            raise SpecError(f"with h = '{self.h}' the optimum can be anywhere; give a public radius (--radius)")
        return min(bounds)

    def spec(
        self, method: MethodChoice | str, rounds: int = 0, sampling: Sampling | None = None, **changes: Any
    ) -> Spec:
        """What all baselines share; rounds follow from the epochs unless they are given.

        By default everyone is active with Poisson batches, and the running average weighs round t by t.
        """
        spec = Spec(
            AlgorithmSpec(max(rounds, 1), METHODS.read(method) if isinstance(method, str) else method),
            ProblemSpec(self.loss, self.h, ByRecords(), self.intercept, self.row_norm),
            NetworkSpec(self.graph, Everyone()),
            PrivacySpec(sampling or self.batches, Private(self.epsilon), delta=self.delta),
        ).replace(**changes)
        if rounds:
            return spec
        return spec.replace(algorithm__rounds=rounds_for_epochs(spec, np.array(self.sizes), self.epochs))

    def needed_sigma(self, spec: Spec) -> Array:
        """σ_i of a spec at each node, for the rounds in which it is expected to speak; shapes left aside."""
        privacy = spec.privacy
        sizes, adversary = np.array(self.sizes), privacy.adversary.among(self.n)
        scale = self.n * spec.problem.weights(sizes)
        law = privacy.law.on(
            MechanismContext(self.network, privacy.sampling, sizes, self.m, adversary=adversary, scale=scale)
        )
        spoken = math.ceil(activation_of(spec, self.n) * spec.algorithm.rounds * (1 - 1e-12))
        unit = Release(privacy.sampling, self.L, law.units(self.n), adversary, law)
        needed: dict[tuple[int, float], float] = {}
        for i, q in enumerate(self.sizes):
            if (q, unit.sigma[i]) not in needed:
                event = unit.event(i, q, spoken, always(spoken))
                needed[q, unit.sigma[i]] = sigma(event, self.epsilon, self.delta)
        most = max(needed.values())  # what hides a node behind shared noise is everybody's
        factors = [most if law.secrets else needed[q, s] for q, s in zip(self.sizes, unit.sigma, strict=True)]
        return np.array(factors) * np.array(unit.sigma)


def variance(
    inputs: BaselineInputs, spec: Spec, sigma: Array | float, nodes: int, share: float = 1.0
) -> tuple[float, float]:
    """s² and β of the mean over so many nodes of all: all of them, or 1 where each goes its own way.

    `share` is how many vectors of noise there are in the sum of all gradients, for each gradient.
    """
    sampling, sizes = spec.privacy.sampling, np.array(inputs.sizes)
    weights = spec.problem.weights(sizes)
    full = isinstance(sampling, Full)
    chance = np.array([0.0 if full else inputs.L**2 / sampling.batch(int(q)) for q in sizes])
    s2 = inputs.n / nodes * float(np.sum(weights**2 * (chance + share * inputs.m * np.square(sigma))))
    return (s2 + inputs.L**2, 0.0) if math.isinf(inputs.smoothness) else (s2, inputs.smoothness)


def step_size(
    inputs: BaselineInputs, spec: Spec, nodes: int | None = None, sigma: Array | float | None = None
) -> float:
    """η of a descent method; for a spec's own σ, and averages over all nodes, unless others are given.

    Examples
    --------
    >>> inputs = BaselineInputs((1000,) * 20, 50, epsilon=1.0)
    >>> step_size(inputs, inputs.spec("descent"), sigma=0.0) < 4.0  # 1/β
    True
    """
    T, mu, D = activation_of(spec, inputs.n) * spec.algorithm.rounds, inputs.h.modulus, inputs.D
    s2, beta = variance(inputs, spec, inputs.needed_sigma(spec) if sigma is None else sigma, nodes or inputs.n)

    def bound(log_eta: float) -> float:
        eta = math.exp(log_eta)
        grown = T * math.log1p(mu * eta)
        first = mu / (2.0 * math.expm1(min(grown, 700.0))) if mu > 0 else 1.0 / (2.0 * eta * T)
        return D * D * first + eta * s2 / (2.0 * (1.0 - beta * eta))

    largest = math.log(0.999 / beta) if beta > 0 else math.log(D / math.sqrt(s2)) + 5.0
    return inputs.boost * math.exp(_least(bound, largest - 30.0, largest))


def stepped(
    inputs: BaselineInputs,
    spec: Spec,
    nodes: int | None = None,
    sigma: Array | float | None = None,
    factor: float = 1.0,
) -> Spec:
    """The spec with the rule's constant step; round t has the weight t in the average that is put out."""
    eta = factor * step_size(inputs, spec, nodes, sigma)
    return spec.replace(algorithm__eta=constant(eta), algorithm__a=linear(1))


def dual_weight(inputs: BaselineInputs, spec: Spec, a: Array, share: float = 1.0) -> float:
    """γ of dual averaging with these a_t."""
    iota, mu, D = activation_of(spec, inputs.n), inputs.h.modulus, inputs.D
    s2, beta = variance(inputs, spec, inputs.needed_sigma(spec), inputs.n, share)
    stiff = mu * iota * np.cumsum(a) - beta * a

    def bound(log_gamma: float) -> float:
        gamma = floor + math.exp(log_gamma)
        return 0.5 * gamma * D * D + 0.5 * s2 * iota * float(np.sum(a * a / (stiff + gamma)))

    floor = max(0.0, -float(np.min(stiff)))
    largest = math.log(floor + math.sqrt(s2 * float(np.sum(a * a))) / D + float(a[-1])) + 5.0
    return (floor + math.exp(_least(bound, largest - 40.0, largest))) / inputs.boost


def _least(bound: Callable[[float], float], low: float, high: float) -> float:
    """Where a bound is least."""
    return float(scipy.optimize.minimize_scalar(bound, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)
