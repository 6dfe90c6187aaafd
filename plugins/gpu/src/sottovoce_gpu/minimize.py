"""Points near the optimum F* on a machine, for `problem.optimum` to certify: two products with the records a step.

The alternating direction method of multipliers (Boyd et al. 2011) on min Σ w_r φ(u_r) + h(v) with u = Xx and v = x,
over-relaxed. A step solves (r XᵀWX + (μ + c) 1) x = …, whose matrix is inverted once, and takes the proximal points of
φ and of what h has beside μ. The multipliers of u are slopes in the domain of φ*, whatever step it is, so that every
step brings a dual bound. Products are with dense rows, in float32 where those are many; how good the points are is the
host's to say.
"""

import math
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.matrices import is_sparse
from sottovoce.problem.losses import Conjugate
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import Separable
from sottovoce_gpu.machine import Machine
from sottovoce_gpu.rounds import records_of

STEPS = 6_000
"""After which to give up."""
STEPS_PER_CHECK = 25
"""Steps between two examines the gap: an evaluation costs as much as two of them."""
GAP_SHARE = 0.8
"""The gap that is wanted here, as a share of the one that the host is to find: what is float32 here is not there."""
RELAXED = 1.6
SPLIT = 0.03
"""c over the mean of the matrix' diagonal; of no consequence within a factor of ten."""
MAX_INVERTED = 8_192
"""Coordinates of which a matrix is inverted."""
FINE = 1 << 31
"""Bytes up to which rows are taken in float64."""


def minimize_on(machine: Machine, problem: Problem, gap: float) -> tuple[Array, Array] | None:
    """(x, slopes) whose gap is about this one, or as near as it came; None where there is no way to find them."""
    h, loss, shards = problem.h, problem.loss, problem.shards
    if not isinstance(h, Separable) or not isinstance(loss.conjugate_formula, Conjugate) or problem.outputs > 1:
        return None
    if is_sparse(shards.X) or shards.intercept or shards.m > MAX_INVERTED:
        return None
    with machine.working():
        work = _Work(machine, problem, h, records_of(machine, shards).X)
        for step in range(1, STEPS + 1):
            work.step()
            if step % STEPS_PER_CHECK == 0 and work.measure_gap() <= GAP_SHARE * gap:
                break
        return machine.get(work.best_x), machine.get(work.best_slopes)


class _Work:
    """Where the method stands, and the best points that it has come by."""

    def __init__(self, machine: Machine, problem: Problem, h: Separable, X: Any) -> None:
        xp, loss = machine.xp, problem.loss
        X = X.astype(np.float64) if 8 * X.size <= FINE else X
        self.machine, self.xp, self.problem, self.h, self.X = machine, xp, problem, h, X
        self.y, self.w = machine.put(problem.shards.y, np.float64), machine.put(problem.record_weights, np.float64)
        self.low, self.high = (machine.put(end, np.float64) for end in loss.interval(problem.shards.y))
        self.curvature = float(loss.curvature)
        m = problem.m
        matrix = (X.T @ (X * self.w[:, None].astype(X.dtype))).astype(np.float64)
        self.split = h.phi > 0 or h.lo > -math.inf or h.hi < math.inf
        self.c = SPLIT * float(matrix.trace()) / m if self.split else 0.0
        self.inverse = xp.linalg.inv(matrix + (h.mu + self.c) * xp.eye(m))
        self.u, self.dual = xp.zeros(len(self.y)), xp.zeros(len(self.y))
        self.v, self.eta = xp.zeros(m), xp.zeros(m)
        self.x = xp.zeros(m)
        self.value, self.lower = math.inf, -math.inf
        self.best_x, self.best_slopes = self.v, self.dual

    def step(self) -> None:
        """One of the method, with r = 1: margins are of the order of 1."""
        right = self._pulled(self.u - self.dual)
        if self.split:
            right = right + self.c * (self.v - self.eta)
        self.x = self.inverse @ right
        q = RELAXED * self._margins(self.x) + (1.0 - RELAXED) * self.u + self.dual
        self.dual = self.xp.clip((q - self.y) / (1.0 + self.curvature), self.low, self.high)
        self.u = q - self.dual
        if self.split:
            q = RELAXED * self.x + (1.0 - RELAXED) * self.v + self.eta
            soft = self.xp.sign(q) * self.xp.maximum(self.xp.abs(q) - self.h.phi / self.c, 0.0)
            self.v = self.xp.clip(soft, self.h.lo, self.h.hi)
            self.eta = q - self.v

    def measure_gap(self) -> float:
        """The gap between the best points so far."""
        x = self.v if self.split else self.x
        risk = float(self.w @ self.problem.loss.value(self._margins(x), self.y))
        value = risk + self.h.value(self.machine.get(x))
        if value < self.value:
            self.value, self.best_x = value, x.copy()
        pulled = -self.machine.get(self._pulled(self.dual))
        reach = self.value / self.h.phi if self.h.phi > 0 else math.inf
        shares, steepest = [1.0], float(np.max(np.abs(pulled)))
        if self.h.mu == 0.0 and 0.0 < self.h.phi < steepest:
            shares.append(self.h.phi / steepest)  # slopes pulled back to where h* is 0: 0 is in every interval
        first = float(self.w @ (self.dual * self.y))
        second = 0.5 * self.curvature * float(self.w @ self.xp.square(self.dual))
        for share in shares:
            lower = -share * first - share**2 * second - self.h.conjugate(share * pulled, reach)
            if lower > self.lower:
                self.lower, self.best_slopes = lower, share * self.dual
        return self.value - self.lower

    def _margins(self, x: Any) -> Any:
        return (self.X @ x.astype(self.X.dtype)).astype(np.float64)

    def _pulled(self, s: Any) -> Any:
        """Σ w_r s_r c_r."""
        return ((self.w * s).astype(self.X.dtype) @ self.X).astype(np.float64)
