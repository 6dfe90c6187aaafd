"""Named parameter choices of the one algorithm: the paper's two experiments, and the two methods it grows out of."""

from collections.abc import Callable

from sottovoce.algorithm.method import SEQUENCES, constant
from sottovoce.network.activation import Everyone
from sottovoce.privacy.sampling import Poisson
from sottovoce.problem.regularizers import l1, l2
from sottovoce.registry import Choices
from sottovoce.run.spec import AlgorithmSpec, Spec


def paper_l2(rounds: int) -> Spec:
    """Section 5.2: μ = 5e-4, a_t = t, γ_t = 20, one edge of the complete graph a round."""
    return Spec(AlgorithmSpec(rounds=rounds))


def paper_l1(rounds: int) -> Spec:
    """Section 5.3: φ = 5e-4, a_t = 1, γ_t = 0.01√t."""
    return paper_l2(rounds).replace(
        problem__h=l1(5e-4), algorithm__a=constant(1), algorithm__gamma=SEQUENCES.make("sqrt", 0.01)
    )


def liu2022(rounds: int) -> Spec:
    """The paper's baseline, its authors' earlier method: every node in every round, ι = 1, Metropolis on the graph.

    A reconstruction: that paper's text was not at hand, and this one only says that it perturbs one record's
    subgradient at every node in every step.
    """
    return paper_l2(rounds).replace(network__activation=Everyone())


def conventional_dda(rounds: int) -> Spec:
    """Eqs. (2)-(3), Duchi, Agarwal and Wainwright's dual averaging: a_t = 1, γ_t ∝ √t, everyone active, no noise."""
    return paper_l1(rounds).replace(network__activation=Everyone(), privacy__noise="none")


def private(rounds: int) -> Spec:
    """A plain plan for honest noise: everyone active, Poisson batches of 64, a smaller γ for the fewer rounds.

    Batches cost far less noise than single records (docs/privacy.md); choosing the best plan is a planner's work.
    """
    return paper_l2(rounds).replace(
        problem__h=l2(0.001),
        network__activation=Everyone(),
        algorithm__gamma=constant(3),
        privacy__sampling=Poisson(64),
    )


PRESETS: Choices[Callable[[int], Spec]] = Choices(
    "preset",
    {
        "private": lambda: private,
        "paper-l2": lambda: paper_l2,
        "paper-l1": lambda: paper_l1,
        "liu2022": lambda: liu2022,
        "conventional-dda": lambda: conventional_dda,
    },
)
"""From a number of rounds to a spec.

Examples
--------
>>> str(PRESETS.make("liu2022")(100).network.activation)
'everyone'
"""
