"""
From a new algorithm to the figure of a paper
=============================================

A method of one's own, calibrated by the accountant to the same (ε, δ) as all others, run beside them over seeds and ε,
and drawn at the width of a page: thirty lines. It sees the data through ``gradient`` alone and adds ``noise`` before
anything else, so that its privacy is that of what it releases; ``register`` holds it to the laws of methods and of
baselines (pure steps, the same on one row as on all, near the optimum without noise, within the budget).
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sottovoce import register
from sottovoce.algorithm import Descent, Round, State
from sottovoce.data import two_gaussians
from sottovoce.experiments import Baseline, Study, draw_ranking, run_study, split, stepped, summarize


# %%
# Descent by gossip with momentum: a node remembers a running mean of its noised gradients.
@dataclass(frozen=True, eq=False)
class Momentum(Descent):
    def start(self, rows, m):
        return State.zeros(rows, m, 1)

    def step(self, state, t, nodes, speaks, gradient, noise, mix):
        zeta = gradient(state.z) + noise  # what is released
        v = 0.5 * state.memory[:, 0] + 0.5 * self.scale[nodes][:, None] * zeta
        message = state.z - self.eta[t - 1] * v
        new = self.prox(mix(message), self.eta[t - 1])
        after = State(new, self.caught_up(state, t), np.full_like(state.since, t + 1), v[:, None])
        return Round(state.z, zeta, message, after)


# %%
# Its name as a method, and how its settings follow from public facts.
register("method", lambda given: Momentum(given.h, given.a, given.eta, given.scale), "momentum")
register("baseline", Baseline("momentum", "this page", lambda inputs: stepped(inputs, inputs.spec("momentum"))))

# %%
# Beside two others: the same data, passes and guarantee. ``draw_ranking`` writes PDF, SVG or PNG, by the path's ending.
data = split(two_gaussians(4_000, 20, seed=1))
study = Study.of(data, ["momentum", "dsgd", "dual_averaging"], {"epochs": 5.0}, epsilons=(0.5, 2.0), seeds=3)
lines, folder = summarize(run_study(study)), Path(tempfile.mkdtemp())
draw_ranking(lines, folder / "momentum.pdf", width=7.0)
for x in lines:
    print(f"ε = {x.epsilon:g} (δ = {x.delta:g})  {x.rank}. {x.algorithm:15} F − F* = {x.suboptimality}")

# %%
plt.figure(figsize=(7, 3), layout="tight").subplots().imshow(plt.imread(draw_ranking(lines, folder / "m.png", 7.0)))
plt.axis("off")
