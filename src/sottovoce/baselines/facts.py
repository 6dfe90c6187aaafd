"""What may be known before a run: sizes, budget, loss, regulariser. Nothing here looks at data.

`steps` takes every baseline's step size from these facts.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sottovoce.build import activation_of, h_from_text, loss_from_text, make_lipschitz, make_network, rounds_for_epochs
from sottovoce.errors import SpecError
from sottovoce.network.graphs import Graph
from sottovoce.noising import make_law
from sottovoce.notation import write
from sottovoce.privacy.adversaries import make_adversary
from sottovoce.privacy.calibration import sigma_for
from sottovoce.privacy.release import Release
from sottovoce.privacy.sampling import make_sampling
from sottovoce.problem.losses import Loss
from sottovoce.problem.regularisers import Regulariser, Separable
from sottovoce.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec


def smoothness_of(loss: Loss) -> float:
    """sup φ'': the reciprocal of what its conjugate is at least curved by; infinite for a loss with kinks.

    Examples
    --------
    >>> smoothness_of(loss_from_text("logistic")), smoothness_of(loss_from_text("hinge"))
    (0.25, inf)
    """
    conjugate = loss.conjugate_formula
    kappa = 4.0 if conjugate is None else conjugate.curvature(loss.parameter)
    return 1.0 / kappa if kappa > 0 else math.inf


@dataclass(frozen=True)
class Facts:
    """Public numbers of a comparison.

    Attributes
    ----------
    sizes : records of each node
    m : coordinates of the model
    epsilon, delta : the budget that every run is calibrated to
    epochs : passes over the data that every iterative run makes
    batch : b, expected records of a node's batch
    loss, h, intercept, row_norm : of the problem
    graph : who is linked with whom
    radius : D, where it is to be another one than follows from h
    boost : a factor on all step sizes; another one than 1 is a choice that somebody made
    """

    sizes: tuple[int, ...]
    m: int
    epsilon: float
    delta: float = 1e-5
    epochs: float = 10.0
    batch: int = 64
    loss: str = "logistic"
    h: str = "l2(0.001)"
    intercept: float = 0.0
    row_norm: float = 1.0
    graph: str = "complete"
    radius: float | None = None
    boost: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no run could keep to."""
        if not self.sizes or min(self.sizes) < 1 or self.m < 1:
            raise SpecError("a comparison needs nodes with records and a model with coordinates")
        if self.made_loss.targets == "classes":
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
    def b(self) -> int:
        """The batch that every node can fill."""
        return min(self.batch, self.least)

    def pooled(self) -> "Facts":
        """The same with all records in one place, and as many of them in a round."""
        return replace(self, sizes=(sum(self.sizes),), batch=self.n * self.b, graph="complete")

    @cached_property
    def made_loss(self) -> Loss:
        """The loss."""
        return loss_from_text(self.loss)

    @cached_property
    def made_h(self) -> Regulariser:
        """The regulariser."""
        return h_from_text(self.h)

    @cached_property
    def made_graph(self) -> Graph:
        """The graph."""
        return make_network(NetworkSpec(graph=self.graph), self.n)

    @cached_property
    def L(self) -> float:
        """The bound of a record's subgradient."""
        return make_lipschitz(self.made_loss, self.spec("descent", 1))

    @cached_property
    def smoothness(self) -> float:
        """β, the largest curvature of a record's loss; infinite for a loss with kinks."""
        return smoothness_of(self.made_loss) * (self.row_norm**2 + self.intercept**2)

    @cached_property
    def D(self) -> float:
        """How far from 0 the optimum can be.

        At the optimum x* of f + (μ/2)‖x‖², f(0) ≥ f(x*) − ⟨∇f(x*), x*⟩ = f(x*) + μ‖x*‖² ≥ μ‖x*‖², since losses are not
        negative; in the same way φ‖x*‖₁ ≤ f(0). A set has its own radius.
        """
        if self.radius is not None:
            return self.radius
        if self.made_loss.targets == "real":
            raise SpecError("how far the optimum can be depends on the targets; give a public radius (--radius)")
        start, h = float(np.max(self.made_loss.value(np.zeros(2), np.array([-1.0, 1.0])))), self.made_h
        if not isinstance(h, Separable):
            return float(getattr(h, "radius", 1.0))
        bounds = [math.sqrt(start / h.mu)] if h.mu > 0 else []
        bounds += [start / h.phi] if h.phi > 0 else []
        bounds += [math.sqrt(self.m) * max(-h.lo, h.hi)] if h.bounded and math.isfinite(max(-h.lo, h.hi)) else []
        if not bounds:
            raise SpecError(f"with h = '{self.h}' the optimum can be anywhere; give a public radius (--radius)")
        return min(bounds)

    def spec(self, method: str, rounds: int = 0, sampling: str = "", **changes: Any) -> Spec:
        """What all baselines share; rounds follow from the epochs unless they are given.

        By default everyone is active with Poisson batches, and the running average weighs round t by t.
        """
        spec = Spec(
            AlgorithmSpec(max(rounds, 1), method),
            ProblemSpec(self.loss, self.h, "records", self.intercept, self.row_norm),
            NetworkSpec(graph=self.graph, activation="everyone"),
            PrivacySpec(sampling or write("poisson", self.b), write("private", self.epsilon), delta=self.delta),
        ).but(**changes)
        if rounds:
            return spec
        return spec.but(algorithm__rounds=rounds_for_epochs(spec, np.array(self.sizes), self.epochs))

    def needed_sigma(self, spec: Spec) -> float:
        """σ of a spec at the smallest node, for the rounds in which it is expected to speak; shapes left aside."""
        sampling, sizes = make_sampling(spec.privacy.sampling), np.array(self.sizes)
        law = make_law(spec.privacy.law, self.made_graph, None, sampling, sizes, self.m)
        adversary = make_adversary(spec.privacy.adversary)
        spoken = math.ceil(activation_of(spec, self.n) * spec.algorithm.rounds * (1 - 1e-12))
        unit = Release(sampling, self.L, (1.0,) * self.n, adversary, law)
        return sigma_for(unit.event(0, self.least, spoken), self.epsilon, self.delta)
