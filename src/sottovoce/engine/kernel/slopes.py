"""Slopes of a block of margins at once, by the code of the loss: each formula has a loop of its own, of whole vectors.

The formulas are those of `problem.losses`, but for the logistic one, whose exponential is ours: a library's takes the
margins one by one, six times as long, and is rounded in its own way. This one has the bits of `secure.functions.exp`,
within 2⁻⁵¹, in every lane.
"""

import math
from collections.abc import Iterable
from typing import Any

from sottovoce.engine.kernel.arguments import INSIDE, exact, njit
from sottovoce.problem.losses import LOGISTIC, Loss
from sottovoce.secure.compiled import exp


def _logistic(u, y, k):
    """`secure.functions.logistic_slope`."""
    return -y / (1.0 + exp(y * u))


def formula_of(loss: Loss) -> Any:
    """What is compiled for the slope of a loss, where margins come in blocks."""
    return _logistic if loss.name == LOGISTIC.name else loss.slope_formula


@exact
def _nothing(code, u, y, k):
    u[:] = math.nan


def _rung(mine, formula, others):
    """The slopes of a block by the loss of this code, or by the others."""
    formula = njit(**INSIDE, fastmath=False, forceinline=True)(formula)

    @exact
    def slopes(code, u, y, k):
        if code == mine:
            for e in range(len(u)):
                u[e] = formula(u[e], y[e], k)
        else:
            others(code, u, y, k)

    return slopes


def ladder(formulas: Iterable[Any]) -> Any:
    """One function (code, u, y, parameter) of all formulas, which writes slopes over margins; a code is a place."""
    found = _nothing
    for code, formula in reversed(list(enumerate(formulas))):
        found = _rung(code, formula, found)
    return found
