"""What a plan foresees from public numbers: its noise, in closed form, and from that its loss of accuracy.

It compares hundreds of plans in a second. What counts of the noise is c, its deviation in each coordinate of the mean
gradient over the whole run. With σ_i calibrated to K releases, σ_i ∝ √K, the mean of K releases has the same noise for
every K: in the limit of large batches σ_i = 2L√K z₁/q_i, z₁ the noise multiplier of a single Gaussian release. Small
batches need more, by the central limit theorem for subsampled Gaussians. Its parameter per round is 2p√sinh(1/z²)
under Poisson sampling (a record in or out, replaced by one on the other side), and p√(exp(1/z²) − 1) for batches of
fixed size.

The loss of accuracy is one formula of (τ, c, m, T), fitted once on synthetic problems. A run that follows noisy mean
gradients over T rounds with reach τ (x = −τ · mean gradient; gradients and rows scaled to norm at most 1) errs more
often than the best linear model by about

    b (1 + τ/τ₀)^−p                            the optimum is not reached: bias
  + e x/(1 + x),  x = k c² m^v (τ + τ₁)^u      noise in the model
  + s y/(1 + y),  y = (τ/(dT))^w               steps too long: the iterates swing

Bias and noise are powers because the spectra of data are. The noise grows more slowly than (cτ)², since directions in
which the data has curvature contract it. It hardly grows with m: its effect on a score ⟨c, x⟩ depends on the norm of
the row, not on the number of columns. Theorem 2 has the same three terms, each 10² to 10³ too large.

The constants say how problems behave on average: on one data set the prediction may be off by a factor, the ranking of
plans is what they are for.
"""

import math

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.privacy import calibration

SPREAD = (0.06, 1.3)
"""Measured over predicted: of 129 cells of benchmarks/results/utility.md (six data sets) four in five lie between,
and half below 0.33: real data are kinder than the problems of the fit, but at the least ε."""


def single(epsilon: float, delta: float) -> float:
    """z₁: noise over sensitivity of one Gaussian release that is (ε, δ)-DP."""
    return calibration.single(epsilon, delta)


def excess(kind: str, rate: float, releases: float, z1: float) -> float:
    """By what factor sampling at this rate needs more noise than using every record, at the same (ε, δ).

    Examples
    --------
    >>> excess("full", 1.0, 100, 3.73)
    1.0
    >>> round(excess("poisson", 0.04, 100, 3.73), 3), round(excess("poisson", 0.001, 100, 3.73), 1)
    (1.001, 7.5)
    """
    if kind == "full":
        return 1.0
    halves = 2.0 if kind == "poisson" else 1.0
    budget = 1.0 / (halves * rate * z1) ** 2 / releases
    z = 1.0 / math.sqrt(math.asinh(budget) if kind == "poisson" else math.log1p(budget))
    z *= 1.0 + 0.6 * max(0.0, 1.0 - z)  # the limit theorem is optimistic for z below 1: fitted to the accountant
    return max(1.0, z / (halves * rate * math.sqrt(releases) * z1))


def enough(releases: float, z1: float, share: float = 1.02) -> float:
    """The smallest sampling rate at which Poisson sampling costs at most 2 % more noise than using every record."""
    for rate in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        if excess("poisson", rate, releases, z1) <= share:
            return rate
    return 1.0


def level(weights: Array, sizes: IntArray, lipschitz: float, z1: float, honest: int = 0) -> float:
    """c, for nodes that use every record in every round, with weights that sum to one.

    Where pairs share as much noise as they like, and `honest` nodes keep their secrets, what hides a node are the own
    noises of all of these, all of one size in the mean: then c is √(n/h) times a trusted center's.
    """
    needed = 2 * lipschitz * z1 * weights / sizes
    return float(np.max(needed) * math.sqrt(len(sizes) / honest) if honest else np.linalg.norm(needed))


def shared(honest: int, ratio: float) -> float:
    """How much larger c is where what pairs share is only `ratio` times what a node adds alone.

    Examples
    --------
    >>> round(shared(20, 10.0), 4), round(shared(20, 1.0), 2)
    (1.0047, 1.38)
    """
    return math.sqrt(honest * (1 + ratio**2) / (1 + honest * ratio**2))


def typical_size(z1: float) -> float:
    """κ of the weights `records(κ)`: a node with fewer records says less about them than its noise hides.

    The mean of q gradients strays by L/√q because q is finite, and gets noise 2Lz₁/q: the same for q = 4z₁².
    """
    return 4 * z1**2


FITTED = {
    "b": 0.144,
    "tau0": 33.21,
    "p": 0.4039,
    "k": 1.362,
    "u": 1.125,
    "v": 0.4405,
    "tau1": 0.2746,
    "e": 0.1964,
    "d": 109.4,
    "w": 24.39,
    "s": 0.01629,
}
"""The formula's constants, written here by benchmarks/fit_planner.py; not to be edited."""
REACHES = 10 ** np.arange(0.3, 5.01, 0.05)
"""The τ that are tried."""
LONGEST_STEP = 6.0
"""τ/T of an undisturbed run: beyond it the iterates swing, and where there is hardly any noise the least hinge loss has
not the best accuracy: real data is not linear, as the problems of the fit are. 5 instead of 10: +0.7 on covtype."""


CALM = 0.15
"""Noise over bias at the longest τ, in predicted loss, up to which there is little noise. On the problems of the fit a
logistic loss is better than a hinge by 0.1 points of accuracy just below it (0.1 to 0.15), and worse by 0.1 above."""


def loss(reach: Array | float, noise: Array | float, m: int, rounds: Array | float) -> Array:
    """Predicted loss of accuracy of plans with reach τ and noise c, in units of the bounds of gradients and rows."""
    bias, lost = _parts(reach, noise, m)
    y = (np.asarray(reach) / (FITTED["d"] * np.asarray(rounds))) ** FITTED["w"]
    return np.asarray(bias + lost + FITTED["s"] * y / (1 + y))


def _parts(reach: Array | float, noise: Array | float, m: int) -> tuple[Array, Array]:
    """Bias, and what the noise adds."""
    f = FITTED
    bias = f["b"] * (1 + np.asarray(reach) / f["tau0"]) ** -f["p"]
    x = f["k"] * np.square(noise) * m ** f["v"] * (reach + f["tau1"]) ** f["u"]
    return np.asarray(bias), np.asarray(f["e"] * x / (1 + x))


SAMPLED = 2_000_000
"""Turns of nodes in a sample of a schedule."""


def sampled_rounds(rounds: int, n: int) -> int:
    """So many of a schedule, or fewer where each has very many nodes, and is much like any other.

    Examples
    --------
    >>> sampled_rounds(200, 20), sampled_rounds(200, 100_000)
    (200, 20)
    """
    return max(1, min(rounds, SAMPLED // n))


def calm(noise: float, m: int, rounds: int) -> bool:
    """Whether noise hardly matters: going as far as steps allow, it adds little to what is lost without it.

    More noise never makes it calmer. (At the best τ it would: where there is so much noise that it is best to stay near
    the start, hardly any of it is let in.)

    Examples
    --------
    >>> calm(2e-5, 55, 1000), calm(1e-3, 55, 1000), calm(5e-2, 55, 1000)
    (True, False, False)
    """
    bias, lost = _parts(float(_reaches(rounds, LONGEST_STEP)[-1]), noise, m)
    return bool(lost <= CALM * bias)


def best_reach(noise: float, m: int, rounds: int, longest: float = LONGEST_STEP) -> tuple[float, float]:
    """The τ with the least predicted loss, and that loss; τ/T at most `longest`.

    Only those are tried at which noise does no more than half of what it can, or the shortest: beyond that it does not
    grow any more, and of a model that is noise the formula would be content that it has gone far.

    Examples
    --------
    >>> reaches = [best_reach(noise, 100, 1000)[0] for noise in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)]
    >>> reaches == sorted(reaches, reverse=True)  # the more noise, the sooner to stop
    True
    """
    reaches = _reaches(rounds, longest)
    drowned = _parts(reaches, noise, m)[1] > FITTED["e"] / 2
    reaches = reaches[: max(1, len(reaches) - int(drowned.sum()))]
    losses = loss(reaches, noise, m, rounds)
    best = int(np.argmin(losses))
    return float(reaches[best]), float(losses[best])


def _reaches(rounds: int, longest: float) -> Array:
    """The τ that so many steps can go, each `longest` at most."""
    return np.asarray(REACHES[REACHES <= max(longest * rounds, REACHES[0])])
