r"""The predicted loss of accuracy: one formula of (τ, c, m, T), fitted once on synthetic problems.

A run that follows noisy mean gradients over T rounds with reach τ (x = −τ · mean gradient; gradients and rows scaled
to norm at most 1) errs more often than the best linear model by about

    b (1 + τ/τ₀)^−p                            the optimum is not reached: bias
  + e x/(1 + x),  x = k c² m^v (τ + τ₁)^u      noise in the model
  + s y/(1 + y),  y = (τ/(dT))^w               steps too long: the iterates swing

Bias and noise are powers because the spectra of data are; the noise grows more slowly than (cτ)² since directions in
which the data has curvature contract it, and hardly with m, since what noise does to a score ⟨c, x⟩ depends on the norm
of the row and not on the number of its columns. Theorem 2 has the same three terms, each 10² to 10³ too large.

`benchmarks/fit_planner.py` makes the constants. They say how problems behave on average: on one data set the
prediction may be off by a factor, the ranking of plans is what they are for.
"""

import numpy as np

from sottovoce._types import Array
from sottovoce.planner.constants import FITTED

REACHES = 10 ** np.arange(0.3, 5.01, 0.05)
"""The τ that are tried."""
LONGEST_STEP = 10.0
"""τ/T of an undisturbed run: beyond it the iterates swing, and where there is hardly any noise the least hinge loss has
not the best accuracy. Half of the τ that the formula alone takes at ε = 4 gave −0.3 (MNIST) to +1.5 points."""


def loss(reach: Array | float, noise: Array | float, m: int, rounds: Array | float) -> Array:
    """Predicted loss of accuracy of plans with reach τ and noise c, in units of the bounds of gradients and rows."""
    f = FITTED
    bias = f["b"] * (1 + np.asarray(reach) / f["tau0"]) ** -f["p"]
    x = f["k"] * np.square(noise) * m ** f["v"] * (reach + f["tau1"]) ** f["u"]
    y = (np.asarray(reach) / (f["d"] * np.asarray(rounds))) ** f["w"]
    return np.asarray(bias + f["e"] * x / (1 + x) + f["s"] * y / (1 + y))


def best_reach(noise: float, m: int, rounds: int) -> tuple[float, float]:
    """The τ with the least predicted loss, and that loss.

    Examples
    --------
    >>> reaches = [best_reach(noise, 100, 1000)[0] for noise in (1e-4, 1e-3, 1e-2)]
    >>> reaches == sorted(reaches, reverse=True)  # the more noise, the sooner to stop
    True
    """
    reaches = REACHES[REACHES <= max(LONGEST_STEP * rounds, REACHES[0])]
    losses = loss(reaches, noise, m, rounds)
    best = int(np.argmin(losses))
    return float(reaches[best]), float(losses[best])
