"""Every algorithm to compare with, as a complete spec that it makes of public facts alone: a function and a row each.

In five families. Our own planner is held to what all others are held to: the same objective, batches and passes. Dual
averaging by gossip: Algorithm 1 of the paper, its authors' method of 2022, and the conventional one. Gradient descent
by gossip: the control, and what others made of it. A server that averages what its users computed in several local
steps. And what a trusted center that holds all records could do: the references that nobody who gossips can beat
fairly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce import plugins
from sottovoce.algorithm.descent import mixing_weights
from sottovoce.algorithm.method import SEQUENCES, Sequence, constant, linear
from sottovoce.algorithm.methods import METHODS
from sottovoce.algorithm.synchronous import acceleration
from sottovoce.errors import SpecError
from sottovoce.experiments.citations import CITATIONS
from sottovoce.experiments.inputs import BaselineInputs, dual_weight, step_size, stepped
from sottovoce.network.activation import Edges, Ticks
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS, metropolis
from sottovoce.planner import PublicInputs as Known
from sottovoce.planner import choose
from sottovoce.privacy.pairs import PairsChoice
from sottovoce.privacy.release import (
    MAJORITY,
    Adversary,
    Central,
    GaussianChoice,
    LaplaceChoice,
    SecretPairs,
    Transcript,
    TreeChoice,
)
from sottovoce.privacy.sampling import Cyclic, Fixed, Full
from sottovoce.problem.regularizers import Separable
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec

TRANSCRIPT = Transcript()
OUTSIDERS, ONE, MINORITY = SecretPairs(), SecretPairs(1), SecretPairs(MAJORITY)
"""Who may help who sees every message: nobody, any one node, any minority of them."""


def fits(inputs: BaselineInputs) -> str:
    """Nothing stands in the way."""
    return ""


@dataclass(frozen=True)
class Baseline:
    """An algorithm to compare with.

    Attributes
    ----------
    name : its name in the table
    title : authors and year, or what it is
    make : public facts -> a complete spec, without a seed; of one pooled node where `central`
    central : whether all records are in one trusted place
    source : 'read' where paper or official code was at hand, 'recalled' for textbook methods, 'reconstruction' where no
        full text was, 'own' for ours
    refusal : why it cannot be run on such facts; empty where it can
    citation : of the paper that it is from
    """

    name: str
    title: str
    make: Callable[[BaselineInputs], Spec]
    central: bool = False
    source: str = "read"
    refusal: Callable[[BaselineInputs], str] = fits
    citation: str = ""

    def spec(self, inputs: BaselineInputs) -> Spec:
        """The spec for these facts, which are those of the network."""
        return self.make(inputs.pooled() if self.central else inputs)

    def place(self, shards: Shards) -> Shards:
        """The records where the algorithm has them: with their nodes, or merged into one place."""
        return merged(shards) if self.central else shards


def merged(shards: Shards) -> Shards:
    """All records in one place, where they are."""
    one = replace(shards, offsets=shards.offsets[[0, -1]])
    one.__dict__["norms"] = shards.norms
    return one


def planned(inputs: BaselineInputs, adversary: Adversary = TRANSCRIPT) -> Spec:
    """Dual averaging as the planner would run it, with its own step sizes."""
    known = Known(
        sizes=inputs.sizes,
        features=inputs.m,
        loss=inputs.loss,
        epsilon=inputs.epsilon,
        delta=inputs.delta,
        graph=inputs.graph,
        row_norm=inputs.row_norm,
        intercept=inputs.intercept,
        adversary=adversary,
    )
    same = inputs.spec("dual_averaging")
    spec = choose(
        known,
        h=inputs.h,
        weights=same.problem.weights,
        sampling=same.privacy.sampling,
        activation=same.network.activation,
        rounds=same.algorithm.rounds,
    ).spec
    return spec if inputs.boost == 1 else spec.replace(algorithm__gamma=_over(spec.algorithm.gamma, inputs.boost))


def _over(gamma: Sequence, boost: float) -> Sequence:
    """The same sequence of γ_t, divided by a factor: its first number scales all sequences that plans have."""
    (name, first), *rest = gamma.numbers
    return SEQUENCES.make(gamma.name, **{name: first / boost}, **dict(rest))


def planned_pairs(inputs: BaselineInputs) -> Spec:
    """The same, with secrets between pairs of nodes; any one of them may be curious."""
    return planned(inputs, ONE)


def planned_majority(inputs: BaselineInputs) -> Spec:
    """The same, and any minority of them may collude."""
    return planned(inputs, MINORITY)


def dual_spec(inputs: BaselineInputs, a: Sequence | None = None, share: float = 1.0, **changes: Any) -> Spec:
    """Dual averaging with γ by the rule; a_t = t where h is strongly convex, as in Corollary 1, else a_t = 1."""
    a = a or (linear(1) if inputs.h.modulus > 0 else constant(1))
    spec = inputs.spec("dual_averaging", algorithm__a=a, **changes)
    return spec.replace(algorithm__gamma=constant(dual_weight(inputs, spec, a(spec.algorithm.rounds), share)))


def algorithm1(inputs: BaselineInputs) -> Spec:
    """The paper's Algorithm 1 as in its experiments: one random link a round, one record at each of its ends."""
    if inputs.n == 1:
        return liu2022(inputs)
    return dual_spec(inputs, network__activation=Edges(1), network__correct=True, privacy__sampling=Fixed(1))


def liu2022(inputs: BaselineInputs) -> Spec:
    """Liu, Johansson and Shi 2022: everyone in every round, one record each."""
    return dual_spec(inputs, privacy__sampling=Fixed(1))


def conventional(inputs: BaselineInputs) -> Spec:
    """Duchi, Agarwal and Wainwright 2012, eqs. (2)-(3) of the paper, on noisy batches.

    a_t = 1, and γ_t = γ√(t/T) grows to the rule's γ.
    """
    spec = dual_spec(inputs, a=constant(1))
    last = float(spec.algorithm.gamma(1)[0])
    return spec.replace(algorithm__gamma=SEQUENCES.make("sqrt", last / float(np.sqrt(spec.algorithm.rounds))))


LEAST = 0.5  # of the weights of mixup
WASTE = 0.01  # the share of the effective variance that DECOR's correlated part may leave on the table


def dsgd(inputs: BaselineInputs) -> Spec:
    """Decentralised DP-SGD: adapt, combine, prox."""
    return stepped(inputs, inputs.spec("descent"))


def adpsgd(inputs: BaselineInputs) -> Spec:
    """Xu, Zhang and Wang 2020: one worker at a tick, with one neighbor; no staleness."""
    if inputs.n == 1:
        return dsgd(inputs)
    return stepped(inputs, inputs.spec("combine_first", network__activation=Ticks(), network__correct=True))


def alone(inputs: BaselineInputs) -> Spec:
    """Each node by itself, sending nothing."""
    return stepped(inputs, inputs.spec("descent", network__weights=WEIGHTS.make("alone")), nodes=1)


def tracking(inputs: BaselineInputs) -> Spec:
    """Gradient tracking on noisy gradients."""
    return stepped(inputs, inputs.spec("tracking"))


def muffliato(inputs: BaselineInputs) -> Spec:
    """Cyffers et al. 2022: full gradients, accelerated gossip between them."""
    gossip = acceleration(metropolis(inputs.network.adjacency()))
    return stepped(inputs, inputs.spec(METHODS.make("muffliato", *gossip), sampling=Full()))


def decor(inputs: BaselineInputs, adversary: SecretPairs = OUTSIDERS) -> Spec:
    """Allouah et al. 2024: descent with noise that neighbors cancel; as they have it, nobody colludes.

    [Σ⁻¹]_ii ≤ (1/n + (1 − 1/n)/(1 + λ₂r²))/σ², so that r² = (n − 1)/(λ₂·waste) leaves all but that share of nσ². Where
    nodes may collude that cut others off from one another, as on a ring, what is left is accounted.
    """
    laplacian = np.diag(inputs.network.degrees) - inputs.network.adjacency()
    second = float(np.linalg.eigvalsh(laplacian)[1])
    ratio = round(math.sqrt((inputs.n - 1) / (second * WASTE)), 6)
    law = PairsChoice(ratio) if adversary == OUTSIDERS else PairsChoice(ratio, graph=inputs.graph, cut="priced")
    return stepped(inputs, inputs.spec("descent", privacy__law=law, privacy__adversary=adversary))


def decor_pairs(inputs: BaselineInputs) -> Spec:
    """The same at a guarantee that takes participants into account: any one of them may be curious."""
    return decor(inputs, ONE)


def decor_majority(inputs: BaselineInputs) -> Spec:
    """The same where any minority of them may collude."""
    return decor(inputs, MINORITY)


def mixup(inputs: BaselineInputs) -> Spec:
    """Xiao and Devadas 2021, gradient descent; the step makes up for the mean of λ."""
    spec = inputs.spec(METHODS.make("mixup", LEAST), sampling=Full())
    return stepped(inputs, spec, factor=1.0 / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds))))


def admm(inputs: BaselineInputs) -> Spec:
    """Xiao and Devadas 2021, ADMM: the proximal term and the penalty have half of the rule's 1/η each."""
    spec = mixup(inputs)
    eta = step_size(inputs, spec) / float(np.mean(mixing_weights(LEAST, spec.algorithm.rounds)))
    return spec.replace(algorithm__method=METHODS.make("admm", 0.25 / eta, LEAST), algorithm__eta=constant(2.0 * eta))


def huang(inputs: BaselineInputs, pure: bool = True) -> Spec:
    """Huang, Mitra and Vaidya 2015: the step falls to a hundredth over the run, the noise half as fast.

    For the rule, the noise of a Laplace run is that of one that spends ε/T in each round.
    """
    spec = inputs.spec("descent", sampling=Full())
    T, equal = spec.algorithm.rounds, None
    if pure:
        equal = math.sqrt(2.0) * T * 2.0 * inputs.L * math.sqrt(inputs.m) / (np.array(inputs.sizes) * inputs.epsilon)
    eta, ratio = step_size(inputs, spec, sigma=equal), 0.01 ** (1.0 / T)
    return spec.replace(
        algorithm__method=METHODS.make("huang", (1.0 + ratio) / 2.0),
        algorithm__eta=SEQUENCES.make("geometric", eta, ratio),
        privacy__law=LaplaceChoice() if pure else GaussianChoice(),
    )


def huang_gaussian(inputs: BaselineInputs) -> Spec:
    """The same with Gaussian noise, for (ε, δ)."""
    return huang(inputs, pure=False)


def lonely(inputs: BaselineInputs) -> str:
    """Noise that pairs cancel needs pairs."""
    return "it needs at least two nodes" if inputs.n == 1 else ""


def unweighted(inputs: BaselineInputs) -> str:
    """Why noise that cancels in the sum of all nodes does not in the mean of all records."""
    if inputs.uneven:
        return "its noise cancels in an equal sum of nodes, not where they count by their records; take decor_pairs"
    return lonely(inputs)


def large_n(inputs: BaselineInputs) -> str:
    """Where one of them is curious, it needs two others."""
    return "it needs at least three nodes" if inputs.n < 3 else ""


LOCAL = 5  # steps between two exchanges
WARM = 2  # exchanges that only build the controls


def _local(inputs: BaselineInputs, method: str) -> Spec:
    """All users in every round; on the complete graph W = 11ᵀ/n is the server. Only whole exchanges are run."""
    spec = inputs.spec(method, 0, network__every=LOCAL, network__graph=GRAPHS.make("complete"))
    rounds = max(LOCAL, spec.algorithm.rounds // LOCAL * LOCAL)
    return stepped(inputs, spec.replace(algorithm__rounds=rounds))


def fedavg(inputs: BaselineInputs) -> Spec:
    """DP-FedAvg."""
    return _local(inputs, "descent")


def scaffold(inputs: BaselineInputs) -> Spec:
    """DP-SCAFFOLD."""
    return _local(inputs, "scaffold")


def scaffold_warm(inputs: BaselineInputs) -> Spec:
    """DP-SCAFFOLD-warm; without a warm start where the run has no exchanges to spare."""
    spec = _local(inputs, "scaffold")
    spare = spec.algorithm.rounds > 2 * WARM * LOCAL
    return spec.replace(algorithm__method=METHODS.make("scaffold", WARM)) if spare else spec


IN_ONE_PLACE: dict[str, Any] = {"privacy__adversary": Central()}


def noisy_dual_averaging(inputs: BaselineInputs) -> Spec:
    """Dual averaging on one node: the central counterpart of Algorithm 1."""
    return dual_spec(inputs, **IN_ONE_PLACE)


def dpsgd(inputs: BaselineInputs) -> Spec:
    """Abadi et al. 2016, with a proximal step for h."""
    return stepped(inputs, inputs.spec("descent", **IN_ONE_PLACE))


def dpftrl(inputs: BaselineInputs) -> Spec:
    """Kairouz et al. 2021: dual averaging, records in a fixed order, noise on prefix sums along a tree a pass.

    In the sum of a pass of so many batches there are at most as many noises as tree nodes make up a prefix.
    """
    batches = math.ceil(inputs.least / inputs.b)
    height = math.ceil(math.log2(batches)) + 1
    changes: dict[str, Any] = {"privacy__sampling": Cyclic(inputs.b), "privacy__law": TreeChoice(), **IN_ONE_PLACE}
    return dual_spec(inputs, constant(1), height / batches, **changes)


def output_perturbation(inputs: BaselineInputs) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011: the exact minimizer plus noise."""
    return inputs.spec("output_perturbation", 1, sampling=Full(), **IN_ONE_PLACE)


def objective_perturbation(inputs: BaselineInputs) -> Spec:
    """Chaudhuri, Monteleoni and Sarwate 2011, with Gaussian noise: the minimizer of a perturbed objective."""
    return inputs.spec("objective_perturbation", 1, sampling=Full(), **IN_ONE_PLACE)


def flat(inputs: BaselineInputs) -> str:
    """Output perturbation: stability needs curvature."""
    certified = isinstance(inputs.h, Separable) and inputs.h.modulus > 0
    return "" if certified else "it needs an h with an l2 part, and a certified minimizer"


def rough(inputs: BaselineInputs) -> str:
    """Objective perturbation: the change of variables needs a smooth loss and h."""
    h = inputs.h
    plain = isinstance(h, Separable) and h.mu > 0 and h.phi == 0 and not h.bounded
    return "" if plain and math.isfinite(inputs.smoothness) else "it needs a smooth loss (logistic, …) and h = l2"


FAMILIES: dict[str, tuple[Baseline, ...]] = {
    "our planner": (
        Baseline("sottovoce", "our planner's dual averaging", planned, source="own"),
        Baseline("pairs", "the same with secrets between pairs", planned_pairs, source="own", refusal=large_n),
        Baseline("majority", "the same, any minority colluding", planned_majority, source="own", refusal=large_n),
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
        Baseline("decor", "Allouah et al. 2024, DECOR", decor, refusal=unweighted),
        Baseline("decor_pairs", "DECOR, any one node curious", decor_pairs, refusal=large_n),
        Baseline("decor_majority", "DECOR, any minority colluding", decor_majority, refusal=large_n),
        Baseline("alone", "each node alone", alone, source="own"),
    ),
    "a server and local steps": (
        Baseline("fedavg", "Noble, Bellet and Dieuleveut 2022, DP-FedAvg", fedavg),
        Baseline("scaffold", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD", scaffold),
        Baseline("scaffold_warm", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD, warm start", scaffold_warm),
    ),
    "a trusted center": (
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
BASELINES: dict[str, Baseline] = {
    row.name: replace(row, citation=CITATIONS[row.name]) for rows in FAMILIES.values() for row in rows
}
"""All of them, by name."""


def make_baseline(name: str) -> Baseline:
    """Look a baseline up by name.

    Examples
    --------
    >>> make_baseline("dsgd").title
    'decentralised DP-SGD, the control'
    """
    if name not in BASELINES and not plugins.found("baseline", name, BASELINES):
        raise SpecError(
            f"there is no algorithm '{name}'; choose one of {', '.join(BASELINES)}{plugins.hint('baseline')}"
        )
    return BASELINES[name]
