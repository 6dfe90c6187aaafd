"""How much a noise costs: the rise of F over the same run without noise, and how it scales."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sottovoce._types import Array
from sottovoce.data.synthetic import two_gaussians
from sottovoce.engine import ENGINES
from sottovoce.experiments.paper.experiments import DELTA, EPOCHS, NOISES
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare, rounds_for_epochs
from sottovoce.run.presets import paper_l1, paper_l2
from sottovoce.run.spec import Spec

PRESETS = {"l2": paper_l2(1).but(problem__h="l2(0.1)", algorithm__gamma="constant(1)"), "l1": paper_l1(1)}
"""Problems in which three passes get close and noise is small: where exponents are those of the noise."""


@dataclass(frozen=True)
class Setting:
    """A point at which the cost of noise is measured."""

    h: str = "l2"
    m: int = 20
    n: int = 20
    q: int = 500
    active: int = 2
    """How many nodes are active in a round: ι = active/n."""
    epsilon: float = 1.0

    def spec(self, noise: str, seed: int) -> Spec:
        """The run; `noise` is 'none', 'paper' or 'honest'."""
        text = "none" if noise == "none" else NOISES[noise].format(self.epsilon)
        base = PRESETS[self.h].but(network__activation=f"nodes({self.active})", privacy__noise=text, seed=seed)
        base = base.but(privacy__delta=DELTA)
        return base.but(algorithm__rounds=rounds_for_epochs(base, np.full(self.n, self.q), EPOCHS))


def cost(setting: Setting, seed: int, noises: Sequence[str] = ("paper", "honest")) -> dict[str, float]:
    """F(mean model) with each noise less F without, everything else the same to the last draw."""
    table = two_gaussians(setting.n * setting.q, setting.m, seed=seed)
    assert table.y is not None
    shards = Shards.of(table.X, table.y, even(len(table.y), setting.n)[0])
    jobs = [prepare(setting.spec(noise, seed), shards).job for noise in ("none", *noises)]
    T = jobs[0].schedule.T
    states = ENGINES["compiled"].run(jobs, [job.start() for job in jobs], 1, T)
    values = [
        job.problem.value(job.method.average(state, T).mean(axis=0)) for job, state in zip(jobs, states, strict=True)
    ]
    return {noise: value - values[0] for noise, value in zip(noises, values[1:], strict=True)}


@dataclass(frozen=True)
class Slope:
    """An exponent with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def slope(x: Array, costs: Array, draws: int = 2000) -> Slope:
    """The exponent of mean cost ∝ xᵏ, by least squares on logarithms; costs is (points, seeds), bootstrapped.

    Examples
    --------
    >>> found = slope(np.array([1.0, 2.0, 4.0]), np.array([[2.0, 2.0], [8.0, 8.0], [32.0, 32.0]]))
    >>> round(found.value, 6), round(found.low, 6)
    (2.0, 2.0)
    """
    rng = np.random.default_rng(0)
    picks = rng.integers(costs.shape[1], size=(draws, costs.shape[1]))

    def fit(means: Array) -> float:
        positive = means > 0
        if positive.sum() < 2:
            return float("nan")
        return float(stats.linregress(np.log(x[positive]), np.log(means[positive])).slope)

    found = [fit(costs[:, pick].mean(axis=1)) for pick in picks]
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Slope(fit(costs.mean(axis=1)), float(low), float(high))


def key(setting: Setting, seed: int) -> str:
    """What a kept measurement is found by."""
    return json.dumps([setting.h, setting.m, setting.n, setting.q, setting.active, setting.epsilon, seed])
