r"""Accelerated proximal gradient descent (Beck and Teboulle 2009, FISTA) on a smooth loss plus a separable h.

For losses whose dual has no closed coordinate step: the softmax loss. Momentum is dropped whenever it points uphill
(O'Donoghue and Candès 2015), which gives the fast linear rate of a strongly convex F without knowing its modulus. The
slopes p − e_y at any point are in the domain of the conjugate, so that every point brings its own dual bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array
from sottovoce.problem.objective import Problem

CAUTION = 64.0  # the first step is this much longer than the one that is sure to descend, and is cut as need be
ROUNDING = 1e-12  # two values of F that differ by less are not told apart


class Iterate(NamedTuple):
    """A point and the slopes of the loss there."""

    x: Array
    slopes: Array


def descend(problem: Problem, x: Array) -> Iterator[Iterate]:
    """Better and better points, without end; each costs about two passes over the data."""
    # the Hessian of logsumexp is at most I/2, so that of the risk is at most Σ w ‖c‖²/2
    sure = 0.5 * float(np.dot(problem.record_weights, np.square(problem.shards.norms))) or 1.0
    stiffness, ahead, momentum = sure / CAUTION, x, 1.0
    while True:
        risk, slopes = _look(problem, ahead)
        gradient = problem.combined(slopes)
        while True:
            new = problem.h.step(gradient - stiffness * ahead, 1.0, stiffness)
            move = new - ahead
            model = risk + float(np.dot(gradient, move)) + 0.5 * stiffness * float(np.dot(move, move))
            found, new_slopes = _look(problem, new)
            if found <= model + ROUNDING * abs(model) or stiffness >= sure:
                break
            stiffness = min(2.0 * stiffness, sure)
        yield Iterate(new, new_slopes)
        if float(np.dot(ahead - new, new - x)) > 0.0:  # the step went against the momentum
            x, ahead, momentum = new, new, 1.0
            continue
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead, x, momentum = new + (momentum - 1.0) / grown * (new - x), new, grown


def _look(problem: Problem, x: Array) -> tuple[float, Array]:
    """The risk at x and the slopes there, from one product with the data."""
    u, y = problem.margins(x), problem.shards.y
    return float(np.dot(problem.record_weights, problem.joint.value(u, y))), problem.joint.slope(u, y)
