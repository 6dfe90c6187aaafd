"""What the paper ran (its section 5), as data: schemes, regularisers, noises; figures are views of these runs.

Twenty nodes, complete graph, Metropolis weights, hinge loss, three passes over the data. Where the paper is silent the
reading is that of `docs/paper.md`: h = μ‖x‖²/2, equal passes for all schemes, the exact ι, F* with a certificate.
"""

from dataclasses import dataclass

from sottovoce._types import IntArray
from sottovoce.errors import SpecError
from sottovoce.run.build import rounds_for_epochs
from sottovoce.run.presets import liu2022, paper_l1, paper_l2
from sottovoce.run.spec import Spec

EPOCHS = 3.0
EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0)
DELTA0 = 0.01
DELTA = 1e-5
NOISES = {"paper": f"theorem1({{}}, {DELTA0})", "honest": "private({})"}
SCHEMES = {
    "edges(1)": "one edge, ι = 0.1",
    "edges(2)": "two edges, ι = 4/21",
    "matching(2)": "two disjoint edges, ι = 0.2",
    "everyone": "Liu 2022, ι = 1",
}
"""Who is active, and what the figures call it."""
REGULARISERS = {"l2": (paper_l2, tuple(SCHEMES)), "l1": (paper_l1, ("edges(1)", "edges(2)", "matching(2)"))}
"""Each with the preset and the schemes that the paper shows it with."""


@dataclass(frozen=True)
class Figure:
    """One of the paper's: which runs, which ε for curves (None: all, at their end)."""

    name: str
    h: str
    epsilon: float | None
    title: str


FIGURES = {
    "fig1": Figure("fig1", "l2", 0.8, "l2-regularised SVM, ε = 0.8"),
    "fig2": Figure("fig2", "l2", None, "privacy and utility, l2-regularised SVM"),
    "fig3": Figure("fig3", "l1", 0.4, "l1-regularised SVM, ε = 0.4"),
    "fig4": Figure("fig4", "l1", None, "privacy and utility, l1-regularised SVM"),
}


@dataclass(frozen=True)
class Group:
    """Runs that share their draws: one regulariser, one scheme, one seed; all ε and noises."""

    h: str
    scheme: str
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.h}-{self.scheme.replace('(', '').replace(')', '')}-{self.seed}"

    def specs(self, sizes: IntArray, noises: tuple[str, ...]) -> list[tuple[str, float, Spec]]:
        """(noise, ε, spec) of every run."""
        preset = liu2022 if (self.h, self.scheme) == ("l2", "everyone") else REGULARISERS[self.h][0]
        base = preset(1).but(network__activation=self.scheme, privacy__delta=DELTA, seed=self.seed)
        base = base.but(algorithm__rounds=rounds_for_epochs(base, sizes, EPOCHS))
        return [
            (noise, epsilon, base.but(privacy__noise=NOISES[noise].format(epsilon)))
            for noise in noises
            for epsilon in EPSILONS
        ]


def groups(figures: list[str], seeds: int) -> list[Group]:
    """What must be run for these figures; seed by seed, so that an interrupted work leaves whole seeds."""
    wrong = [name for name in figures if name not in FIGURES]
    if wrong:
        raise SpecError(f"there is no figure '{wrong[0]}'; choose one of {', '.join(FIGURES)}")
    if seeds < 2:
        raise SpecError(f"intervals need at least two seeds, not {seeds}")
    kinds = sorted({FIGURES[name].h for name in figures}, reverse=True)
    return [Group(h, scheme, seed) for seed in range(seeds) for h in kinds for scheme in REGULARISERS[h][1]]
