"""What a real node draws, and what it lets out: always a secure release.

A node's records are brought to their grids once. In every round in which it takes a gradient, a batch is drawn, the
clipped subgradients are summed without an error, the noise is added and the sum is rounded once (`secure_release`):
what leaves is ζ, finished, so that the method has no noise left to add. Draws are functions of (secret, nonce, run,
node, round): a node that restarts releases the same bits again.

Noise is made for several rounds at a time, for less work; which ones they are cannot change a bit of it.
"""

import math

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Method
from sottovoce.algorithm.synchronous import Admm, Huang
from sottovoce.errors import SpecError
from sottovoce.privacy import release as laws
from sottovoce.privacy.release import Release
from sottovoce.privacy.sampling import Fixed, Poisson, Sampling
from sottovoce.problem.losses import Joint
from sottovoce.problem.objective import Problem
from sottovoce.secure.functions import logistic_slope, softmax_slope
from sottovoce.secure.generator import Generator, Purpose
from sottovoce.secure.grids import Grids, choose_grids, on_grid
from sottovoce.secure.noise import Law, Layer, Noise, release_grid, scale_of
from sottovoce.secure.sampling import fixed, poisson
from sottovoce.secure.sums import Slope, clipped_sum

SLOPES = {"logistic": logistic_slope, "softmax": softmax_slope}
"""Slopes with an exponential, whose bits a library does not promise."""
ELEMENTARY = ("hinge", "smoothed_hinge", "squared_hinge", "squared", "huber", "absolute", "quantile")
"""Losses whose own slopes are made of what IEEE 754 rounds in one way only."""
LAWS = {laws.Gaussian: Law.GAUSSIAN, laws.Shaped: Law.GAUSSIAN, laws.Laplace: Law.LAPLACE}


def refuse_unless_secure(method: Method, release: Release, joint: Joint) -> None:
    """Refuse what has no secure release: real nodes make no other."""
    if not method.released.iterates or isinstance(method, Huang | Admm):
        raise SpecError(
            f"real nodes add their noise to exact sums of subgradients, and {type(method).__name__} adds it to a model "
            "that was computed from them; take another method, or simulate it"
        )
    if type(release.law) not in LAWS:
        raise SpecError(
            f"real nodes draw Gaussian or Laplace noise of their own, and {type(release.law).__name__} is another; "
            "simulate it"
        )
    if joint.loss.name not in (*SLOPES, *ELEMENTARY):
        raise SpecError(
            f"nobody has said that the slope of loss '{joint.loss}' has the same bits wherever a record stands, as a "
            f"real node's must; take one of {', '.join((*SLOPES, *ELEMENTARY))}"
        )


def slope_of(joint: Joint) -> Slope:
    """The slope of a loss, by operations on single elements that IEEE 754 rounds in one way only."""
    own = SLOPES.get(joint.loss.name)
    if own is None:
        return joint.slope
    return (lambda u, y: own(u, joint.signs(y))) if joint.one_vs_rest else own


def draw_records(generator: Generator, sampling: Sampling, node: int, t: int, size: int) -> IntArray | None:
    """The records of one node in one round, by the exact law of the sampler; None for all of them."""
    here, when, q, b = np.array([node]), np.array([t]), np.array([size]), sampling.batch(size)
    if isinstance(sampling, Poisson):
        return poisson(generator, here, when, q, np.array([b]))[0]
    if isinstance(sampling, Fixed):
        return fixed(generator, here, when, q, b)[0]
    return sampling.draw(_nothing, size, t)


def _nothing(first: int, count: int) -> Array:
    raise AssertionError("a sampler without chance draws nothing")


def secure_release(total: IntArray, grids: Grids, noise: Noise, row: int, divisor: int) -> Array:
    """ζ: an exact sum with one row of noise, rounded once, over the public divisor.

    Parameters
    ----------
    total : the sum of clipped subgradients, in units of the sums' grid
    grids : of the records
    noise : of several releases, in units of the sum
    row : which of them
    divisor : b
    """
    whole = noise.added_to(total.reshape(1, -1), grids.sum, np.array([row]))[0]
    return whole * float(noise.grids[row]) / divisor


class SecureDraws:
    """The records on their grids, the batches and the noise of one node in one run.

    Parameters
    ----------
    release : of the run
    problem : the node's own records
    bound : R, the public bound of a row
    number : of the node
    keys : of the node in this run (`entropy.own_keys`)
    turns : the rounds in which the node takes a gradient, in order
    """

    AT_ONCE, NUMBERS = 8, 1 << 17

    def __init__(
        self,
        release: Release,
        problem: Problem,
        bound: float,
        number: int,
        keys: dict[Purpose, Generator],
        turns: IntArray,
    ) -> None:
        shards = problem.shards
        self.release, self.problem, self.number, self.keys, self._turns = release, problem, number, keys, turns
        self.size = int(shards.sizes[0])
        self.batch = release.sampling.batch(self.size)
        self.grids = choose_grids(self.size, release.clip, bound, shards.intercept)
        self._rows = on_grid(shards.X, self.grids, over="clip")  # one by one: nobody learns that a row was over
        self._slope = slope_of(problem.joint)
        self._count = max(1, min(self.AT_ONCE, self.NUMBERS // problem.m))
        self._kept: tuple[int, Noise] | None = None

    def records(self, t: int) -> IntArray | None:
        """Which records are used in a round; None for all of them."""
        return draw_records(self.keys[Purpose.RECORDS], self.release.sampling, self.number, t, self.size)

    def gradient(self, t: int) -> Gradient:
        """x, a row -> ζ of a round, noise and all, in units of the clipped mean."""
        drawn, shards, K = self.records(t), self.problem.shards, self.problem.outputs
        rows, counts = shards.rows(0, drawn), shards.counts(0, drawn)

        def zeta(x: Array) -> Array:
            model = x[0] if K == 1 else x[0].reshape(K, -1)
            total = clipped_sum(self._rows, model, shards.y, self._slope, rows, counts).ravel()
            if not self.release.sigma[self.number]:  # nothing is promised of a run without noise
                return (total * self.grids.sum / self.batch)[None]
            row, noise = self._noise(t)
            return secure_release(total, self.grids, noise, row, self.batch)[None]

        return zeta

    def _noise(self, t: int) -> tuple[int, Noise]:
        """The noise of a round, as a row of what was made together; which that is depends on nothing but the run."""
        place = int(np.searchsorted(self._turns, t))
        start, row = place // self._count * self._count, place % self._count
        if self._kept is None or self._kept[0] != start:
            self._kept = start, self._made(self._turns[start : start + self._count])
        return row, self._kept[1]

    def _made(self, rounds: IntArray) -> Noise:
        scales = np.array([self.scale(t) for t in rounds.tolist()])
        grids = np.array([release_grid(scale, self.grids.sum) for scale in scales.tolist()])
        all_of_them = np.arange(len(rounds))
        layer = Layer(self.keys[Purpose.NOISE], all_of_them, np.full(len(rounds), self.number), rounds, scales)
        return Noise(self.problem.m, grids, [layer], LAWS[type(self.release.law)])

    def scale(self, t: int) -> float:
        """Of the noise on the sum in a round: b·σ, and never less.

        A method that takes gain_t of the subgradient and spread_t of the noise gets both in what it multiplies.
        """
        sigma, law = self.release.sigma[self.number], self.release.law
        if isinstance(law, laws.Shaped):
            ratio = math.nextafter(float(law.spread[t - 1] / law.gain[t - 1]), math.inf)
            return scale_of(self.batch, sigma, ratio)
        return scale_of(self.batch, sigma)
