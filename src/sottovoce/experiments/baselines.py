"""Every algorithm to compare with, as a complete spec that it makes of public facts alone: a function and a row each.

In five families. Our own planner is held to what all others are held to: the same objective, batches and passes. Dual
averaging by gossip: Algorithm 1 of the paper, its authors' method of 2022, and the conventional one. Gradient descent
by gossip: the control, and what others made of it. A server that averages what its users computed in several local
steps. And what a trusted centre that holds all records could do: the references that nobody who gossips can beat
fairly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.algorithm.descent import mixing_weights
from sottovoce.algorithm.method import SEQUENCES, Sequence, constant, linear
from sottovoce.algorithm.methods import METHODS
from sottovoce.algorithm.synchronous import acceleration
from sottovoce.errors import SpecError
from sottovoce.experiments.facts import Facts, dual_weight, step_size, stepped
from sottovoce.network.activation import Edges, Ticks
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS, metropolis
from sottovoce.planner import Facts as Known
from sottovoce.planner import choose
from sottovoce.privacy.pairs import PairsLaw
from sottovoce.privacy.release import (
    MAJORITY,
    Adversary,
    Central,
    GaussianLaw,
    LaplaceLaw,
    SecretPairs,
    Transcript,
    TreeLaw,
)
from sottovoce.privacy.sampling import Cyclic, Fixed, Full
from sottovoce.problem.regularisers import Separable
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec

TRANSCRIPT = Transcript()
OUTSIDERS, ONE, MOST = SecretPairs(), SecretPairs(1), SecretPairs(MAJORITY)
"""Who may help who sees every message: nobody, any one node, any minority of them."""


def fits(facts: Facts) -> str:
    """Nothing stands in the way."""
    return ""


@dataclass(frozen=True)
class Baseline:
    """An algorithm to compare with.

    Attributes
    ----------
    name : how it is asked for
    title : authors and year, or what it is
    make : public facts -> a complete spec, without a seed; of one pooled node where `central`
    central : whether all records are in one trusted place
    source : 'read' where paper or official code was at hand, 'recalled' for textbook methods, 'reconstruction' where no
        full text was, 'own' for ours
    refusal : why it cannot be run on such facts; empty where it can
    """

    name: str
    title: str
    make: Callable[[Facts], Spec]
    central: bool = False
    source: str = "read"
    refusal: Callable[[Facts], str] = fits

    def spec(self, facts: Facts) -> Spec:
        """The spec for these facts, which are those of the network."""
        return self.make(facts.pooled() if self.central else facts)

    def place(self, shards: Shards) -> Shards:
        """The records where the algorithm has them: with their nodes, or merged into one place."""
        return merged(shards) if self.central else shards


def merged(shards: Shards) -> Shards:
    """All records in one place, where they are."""
    one = replace(shards, offsets=shards.offsets[[0, -1]])
    one.__dict__["norms"] = shards.norms
    return one


def planned(facts: Facts, adversary: Adversary = TRANSCRIPT) -> Spec:
    """Dual averaging as the planner would run it; its step sizes are its own, and no factor is put on them."""
    known = Known(
        sizes=facts.sizes,
        features=facts.m,
        loss=facts.loss,
        epsilon=facts.epsilon,
        delta=facts.delta,
        graph=facts.graph,
        row_norm=facts.row_norm,
        intercept=facts.intercept,
        adversary=adversary,
    )
    same = facts.spec("dual_averaging")
    return choose(
        known,
        h=facts.h,
        weights=same.problem.weights,
        sampling=same.privacy.sampling,
        activation=same.network.activation,
        rounds=same.algorithm.rounds,
    ).spec


def planned_pairs(facts: Facts) -> Spec:
    """The same, with secrets between pairs of nodes; any one of them may be curious."""
    return planned(facts, ONE)


def planned_majority(facts: Facts) -> Spec:
    """The same, and any minority of them may collude."""
    return planned(facts, MOST)


def dual_spec(facts: Facts, a: Sequence | None = None, share: float = 1.0, **changes: Any) -> Spec:
    """Dual averaging with γ by the rule; a_t = t where h is strongly convex, as in Corollary 1, else a_t = 1."""
    a = a or (linear(1) if facts.h.modulus > 0 else constant(1))
    spec = facts.spec("dual_averaging", algorithm__a=a, **changes)
    return spec.but(algorithm__gamma=constant(dual_weight(facts, spec, a(spec.algorithm.rounds), share)))


def algorithm1(facts: Facts) -> Spec:
    """The paper's Algorithm 1 as in its experiments: one random link a round, one record at each of its ends."""
    if facts.n == 1:
        return liu2022(facts)
    return dual_spec(facts, network__activation=Edges(1), network__correct=True, privacy__sampling=Fixed(1))


def liu2022(facts: Facts) -> Spec:
    """Liu, Johansson and Shi 2022: everyone in every round, one record each."""
    return dual_spec(facts, privacy__sampling=Fixed(1))


def conventional(facts: Facts) -> Spec:
    """Duchi, Agarwal and Wainwright 2012, eqs. (2)-(3) of the paper, on noisy batches.

    a_t = 1, and γ_t = γ√(t/T) grows to the rule's γ.
    """
    spec = dual_spec(facts, a=constant(1))
    last = float(spec.algorithm.gamma(1)[0])
    return spec.but(algorithm__gamma=SEQUENCES.make("sqrt", last / float(np.sqrt(spec.algorithm.rounds))))


LEAST = 0.5  # of the weights of mixup
WASTE = 0.01  # the share of the effective variance that DECOR's correlated part may leave on the table


def dsgd(facts: Facts) -> Spec:
    """Decentralised DP-SGD: adapt, combine, prox."""
    return stepped(facts, facts.spec("descent"))


def adpsgd(facts: Facts) -> Spec:
    """Xu, Zhang and Wang 2020: one worker at a tick, with one neighbour; no staleness."""
    if facts.n == 1:
        return dsgd(facts)
    return stepped(facts, facts.spec("combine_first", network__activation=Ticks(), network__correct=True))


def alone(facts: Facts) -> Spec:
    """Each node by itself, sending nothing."""
    return stepped(facts, facts.spec("descent", network__weights=WEIGHTS.make("alone")), nodes=1)


def tracking(facts: Facts) -> Spec:
    """Gradient tracking on noisy gradients."""
    return stepped(facts, facts.spec("tracking"))


def muffliato(facts: Facts) -> Spec:
    """Cyffers et al. 2022: full gradients, accelerated gossip between them."""
    gossip = acceleration(metropolis(facts.network.adjacency()))
    return stepped(facts, facts.spec(METHODS.make("muffliato", *gossip), sampling=Full()))


def decor(facts: Facts, adversary: SecretPairs = OUTSIDERS) -> Spec:
    """Allouah et al. 2024: descent with noise that neighbours cancel; as they have it, nobody colludes.

    [Σ⁻¹]_ii ≤ (1/n + (1 − 1/n)/(1 + λ₂r²))/σ², so that r² = (n − 1)/(λ₂·waste) leaves all but that share of nσ². Where
    nodes may collude that cut others off from one another, as on a ring, what is left is priced.
    """
    laplacian = np.diag(facts.network.degrees) - facts.network.adjacency()
    second = float(np.linalg.eigvalsh(laplacian)[1])
    ratio = round(math.sqrt((facts.n - 1) / (second * WASTE)), 6)
    law = PairsLaw(ratio) if adversary == OUTSIDERS else PairsLaw(ratio, graph=facts.graph, cut="priced")
    return stepped(facts, facts.spec("descent", privacy__law=law, privacy__adversary=adversary))


def decor_pairs(facts: Facts) -> Spec:
    """The same at a guarantee that takes participants into account: any one of them may be curious."""
    return decor(facts, ONE)


def decor_majority(facts: Facts) -> Spec:
    """The same where any minority of them may collude."""
    return decor(facts, MOST)


def mixup(facts: Facts) -> Spec:
    """Xiao and Devadas 2021, gradient descent; the step makes up for the mean of λ."""
    spec = facts.spec(METHODS.make("mixup", LEAST), sampling=Full())
    return stepped(facts, spec, factor=1.0 / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds))))


def admm(facts: Facts) -> Spec:
    """Xiao and Devadas 2021, ADMM: the proximal term and the penalty have half of the rule's 1/η each."""
    spec = mixup(facts)
    eta = step_size(facts, spec) / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds)))
    return spec.but(algorithm__method=METHODS.make("admm", 0.25 / eta, LEAST), algorithm__eta=constant(2.0 * eta))


def huang(facts: Facts, pure: bool = True) -> Spec:
    """Huang, Mitra and Vaidya 2015: the step falls to a hundredth over the run, the noise half as fast.

    For the rule, the noise of a Laplace run is that of one that spends ε/T in each round.
    """
    spec = facts.spec("descent", sampling=Full())
    T, equal = spec.algorithm.rounds, None
    if pure:
        equal = math.sqrt(2.0) * T * 2.0 * facts.L * math.sqrt(facts.m) / (facts.least * facts.epsilon)
    eta, ratio = step_size(facts, spec, sigma=equal), 0.01 ** (1.0 / T)
    return spec.but(
        algorithm__method=METHODS.make("huang", (1.0 + ratio) / 2.0),
        algorithm__eta=SEQUENCES.make("geometric", eta, ratio),
        privacy__law=LaplaceLaw() if pure else GaussianLaw(),
    )


def huang_gaussian(facts: Facts) -> Spec:
    """The same with Gaussian noise, for (ε, δ)."""
    return huang(facts, pure=False)


def lonely(facts: Facts) -> str:
    """Noise that pairs cancel needs pairs."""
    return "it needs at least two nodes" if facts.n == 1 else ""


def crowded(facts: Facts) -> str:
    """Where one of them is curious, it needs two others."""
    return "it needs at least three nodes" if facts.n < 3 else ""


LOCAL = 5  # steps between two exchanges
WARM = 2  # exchanges that only build the controls


def _local(facts: Facts, method: str) -> Spec:
    """All users in every round; on the complete graph W = 11ᵀ/n is the server. Only whole exchanges are run."""
    spec = facts.spec(method, 0, network__every=LOCAL, network__graph=GRAPHS.make("complete"))
    rounds = max(LOCAL, spec.algorithm.rounds // LOCAL * LOCAL)
    return stepped(facts, spec.but(algorithm__rounds=rounds))


def fedavg(facts: Facts) -> Spec:
    """DP-FedAvg."""
    return _local(facts, "descent")


def scaffold(facts: Facts) -> Spec:
    """DP-SCAFFOLD."""
    return _local(facts, "scaffold")


def scaffold_warm(facts: Facts) -> Spec:
    """DP-SCAFFOLD-warm; without a warm start where the run has no exchanges to spare."""
    spec = _local(facts, "scaffold")
    spare = spec.algorithm.rounds > 2 * WARM * LOCAL
    return spec.but(algorithm__method=METHODS.make("scaffold", WARM)) if spare else spec


IN_ONE_PLACE: dict[str, Any] = {"privacy__adversary": Central()}


def noisy_dual_averaging(facts: Facts) -> Spec:
    """Dual averaging on one node: the central counterpart of Algorithm 1."""
    return dual_spec(facts, **IN_ONE_PLACE)


def dpsgd(facts: Facts) -> Spec:
    """Abadi et al. 2016, with a proximal step for h."""
    return stepped(facts, facts.spec("descent", **IN_ONE_PLACE))


def dpftrl(facts: Facts) -> Spec:
    """Kairouz et al. 2021: dual averaging, records in a fixed order, noise on prefix sums along a tree a pass.

    In the sum of a pass of so many batches there are at most as many noises as tree nodes make up a prefix.
    """
    batches = math.ceil(facts.least / facts.b)
    height = math.ceil(math.log2(batches)) + 1
    changes: dict[str, Any] = {"privacy__sampling": Cyclic(facts.b), "privacy__law": TreeLaw(), **IN_ONE_PLACE}
    return dual_spec(facts, constant(1), height / batches, **changes)


def output_perturbation(facts: Facts) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011: the exact minimiser plus noise."""
    return facts.spec("output_perturbation", 1, sampling=Full(), **IN_ONE_PLACE)


def objective_perturbation(facts: Facts) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011, with Gaussian noise: the minimiser of a perturbed objective."""
    return facts.spec("objective_perturbation", 1, sampling=Full(), **IN_ONE_PLACE)


def flat(facts: Facts) -> str:
    """Output perturbation: stability needs curvature."""
    certified = isinstance(facts.h, Separable) and facts.h.modulus > 0
    return "" if certified else "it needs an h with an l2 part, and a certified minimiser"


def rough(facts: Facts) -> str:
    """Objective perturbation: the change of variables needs a smooth loss and h."""
    h = facts.h
    plain = isinstance(h, Separable) and h.mu > 0 and h.phi == 0 and not h.bounded
    return "" if plain and math.isfinite(facts.smoothness) else "it needs a smooth loss (logistic, …) and h = l2"


FAMILIES: dict[str, tuple[Baseline, ...]] = {
    "our planner": (
        Baseline("sottovoce", "our planner's dual averaging", planned, source="own"),
        Baseline("pairs", "the same with secrets between pairs", planned_pairs, source="own", refusal=crowded),
        Baseline("majority", "the same, any minority colluding", planned_majority, source="own", refusal=crowded),
    ),
    "dual averaging by gossip": (
        Baseline("algorithm1", "Liu, Johansson and Shi, Algorithm 1", algorithm1),
        Baseline("liu2022", "Liu, Johansson and Shi 2022", liu2022, source="reconstruction"),
        Baseline("dda", "Duchi, Agarwal and Wainwright 2012, perturbed", conventional, source="recalled"),
        Baseline("dual_averaging", "dual averaging, everyone active, batches", dual_spec, source="own"),
    ),
    "descent by gossip": (
        Baseline("dsgd", "decentralised DP-SGD, the control", dsgd, source="own"),
        Baseline("adpsgd", "Xu, Zhang and Wang 2020, A(DP)²SGD", adpsgd, source="reconstruction"),
        Baseline("tracking", "gradient tracking on noisy gradients (after Ding et al. 2022)", tracking, source="own"),
        Baseline("muffliato", "Cyffers, Even, Bellet and Massoulié 2022", muffliato),
        Baseline("huang", "Huang, Mitra and Vaidya 2015, Laplace", huang, source="reconstruction"),
        Baseline("huang_gaussian", "Huang, Mitra and Vaidya 2015, Gaussian", huang_gaussian, source="reconstruction"),
        Baseline("xiao_admm", "Xiao and Devadas 2021, ADMM", admm, source="reconstruction"),
        Baseline("xiao_dgd", "Xiao and Devadas 2021, DGD", mixup, source="reconstruction"),
        Baseline("decor", "Allouah et al. 2024, DECOR", decor, refusal=lonely),
        Baseline("decor_pairs", "DECOR, any one node curious", decor_pairs, refusal=crowded),
        Baseline("decor_majority", "DECOR, any minority colluding", decor_majority, refusal=crowded),
        Baseline("alone", "each node alone", alone, source="own"),
    ),
    "a server and local steps": (
        Baseline("fedavg", "Noble, Bellet and Dieuleveut 2022, DP-FedAvg", fedavg),
        Baseline("scaffold", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD", scaffold),
        Baseline("scaffold_warm", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD, warm start", scaffold_warm),
    ),
    "a trusted centre": (
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
    ),
}
"""The table: adding an algorithm is one row."""
BASELINES: dict[str, Baseline] = {row.name: row for rows in FAMILIES.values() for row in rows}
"""All of them, by name."""


def make_baseline(name: str) -> Baseline:
    """Look a baseline up by name.

    Examples
    --------
    >>> make_baseline("dsgd").title
    'decentralised DP-SGD, the control'
    """
    if name not in BASELINES:
        raise SpecError(f"there is no algorithm '{name}'; choose one of {', '.join(BASELINES)}")
    return BASELINES[name]
