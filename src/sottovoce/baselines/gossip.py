"""Gradient descent by gossip: the control, and what others made of it."""

import math

import numpy as np

from sottovoce.algorithm.mixup import mixing_weights
from sottovoce.algorithm.muffliato import acceleration
from sottovoce.baselines.baseline import Baseline
from sottovoce.baselines.facts import Facts
from sottovoce.baselines.steps import step_size, stepped
from sottovoce.network.weights import metropolis
from sottovoce.notation import write
from sottovoce.spec import Spec

LEAST = 0.5  # of the weights of mixup
WASTE = 0.01  # the share of the effective variance that DECOR's correlated part may leave on the table


def dsgd(facts: Facts) -> Spec:
    """Decentralised DP-SGD: adapt, combine, prox."""
    return stepped(facts, facts.spec("descent"))


def adpsgd(facts: Facts) -> Spec:
    """Xu, Zhang and Wang 2020: one worker at a tick, with one neighbour; no staleness."""
    if facts.n == 1:
        return dsgd(facts)
    return stepped(facts, facts.spec("combine_first", network__activation="ticks", network__correct=True))


def alone(facts: Facts) -> Spec:
    """Each node by itself, sending nothing."""
    return stepped(facts, facts.spec("descent", network__weights="alone"), nodes=1)


def tracking(facts: Facts) -> Spec:
    """Gradient tracking on noisy gradients."""
    return stepped(facts, facts.spec("tracking"))


def muffliato(facts: Facts) -> Spec:
    """Cyffers et al. 2022: full gradients, accelerated gossip between them."""
    gossip = acceleration(metropolis(facts.made_graph.adjacency()))
    return stepped(facts, facts.spec(write("muffliato", *gossip), sampling="full"))


def decor(facts: Facts) -> Spec:
    """Allouah et al. 2024: descent with noise that neighbours cancel; nobody colludes.

    [Σ⁻¹]_ii ≤ (1/n + (1 − 1/n)/(1 + λ₂r²))/σ², so that r² = (n − 1)/(λ₂·waste) leaves all but that share of nσ².
    """
    laplacian = np.diag(facts.made_graph.degrees) - facts.made_graph.adjacency()
    second = float(np.linalg.eigvalsh(laplacian)[1])
    ratio = math.sqrt((facts.n - 1) / (second * WASTE))
    law = write("pairs", round(ratio, 6))
    return stepped(facts, facts.spec("descent", privacy__law=law, privacy__adversary="secret_pairs"))


def mixup(facts: Facts) -> Spec:
    """Xiao and Devadas 2021, gradient descent; the step makes up for the mean of λ."""
    spec = facts.spec(write("mixup", LEAST), sampling="full")
    return stepped(facts, spec, factor=1.0 / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds))))


def admm(facts: Facts) -> Spec:
    """Xiao and Devadas 2021, ADMM: the proximal term and the penalty have half of the rule's 1/η each."""
    spec = mixup(facts)
    eta = step_size(facts, spec) / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds)))
    return spec.but(algorithm__method=write("admm", 0.25 / eta, LEAST), algorithm__eta=write("constant", 2.0 * eta))


def huang(facts: Facts, law: str = "laplace") -> Spec:
    """Huang, Mitra and Vaidya 2015: the step falls to a hundredth over the run, the noise half as fast.

    For the rule, the noise of a Laplace run is that of one that spends ε/T in each round.
    """
    spec = facts.spec("descent", sampling="full")
    T, equal = spec.algorithm.rounds, None
    if law == "laplace":
        equal = math.sqrt(2.0) * T * 2.0 * facts.L * math.sqrt(facts.m) / (facts.least * facts.epsilon)
    eta, ratio = step_size(facts, spec, sigma=equal), 0.01 ** (1.0 / T)
    rho = write("huang", (1.0 + ratio) / 2.0)
    return spec.but(algorithm__method=rho, algorithm__eta=write("geometric", eta, ratio), privacy__law=law)


def huang_gaussian(facts: Facts) -> Spec:
    """The same with Gaussian noise, for (ε, δ)."""
    return huang(facts, "gaussian")


def lonely(facts: Facts) -> str:
    """Noise that pairs cancel needs pairs."""
    return "it needs at least two nodes" if facts.n == 1 else ""


ROWS = (
    Baseline("dsgd", "decentralised DP-SGD, the control", dsgd, source="own"),
    Baseline("adpsgd", "Xu, Zhang and Wang 2020, A(DP)²SGD", adpsgd, source="reconstruction"),
    Baseline("tracking", "gradient tracking on noisy gradients (after Ding et al. 2022)", tracking, source="own"),
    Baseline("muffliato", "Cyffers, Even, Bellet and Massoulié 2022", muffliato),
    Baseline("huang", "Huang, Mitra and Vaidya 2015, Laplace", huang, source="reconstruction"),
    Baseline("huang_gaussian", "Huang, Mitra and Vaidya 2015, Gaussian", huang_gaussian, source="reconstruction"),
    Baseline("xiao_admm", "Xiao and Devadas 2021, ADMM", admm, source="reconstruction"),
    Baseline("xiao_dgd", "Xiao and Devadas 2021, DGD", mixup, source="reconstruction"),
    Baseline("decor", "Allouah et al. 2024, DECOR", decor, refusal=lonely),
    Baseline("alone", "each node alone", alone, source="own"),
)
