"""The dual point of the certified optimum: passes of coordinate ascent over the rows, extrapolated now and then."""

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularisers import Separable
from sottovoce.rows import is_sparse

BLOCK = 15  # passes of one extrapolation: more see more of the slow directions, fewer follow changes of the active set


class Ascent:
    """The dual point s of Σ w_r φ(⟨c_r, ·⟩, y_r) + h + κ‖· − x₀‖²/2, with z = v + κx₀ and the primal point x of z."""

    def __init__(self, problem: Problem, h: Separable, seed: int) -> None:
        shards, loss = problem.shards, problem.loss
        self.problem, self.h, self.rng = problem, h, np.random.default_rng(seed)
        self.w, self.y, self.records = problem.record_weights, shards.y, len(shards.y)
        self.low, self.high = (np.ascontiguousarray(end, dtype=np.float64) for end in loss.interval(shards.y))
        self.steps = self.w * np.square(shards.norms)
        self.stiffness = float(np.mean(self.steps)) or 1.0  # R²/N: here a record's own curvature balances the rest
        self.curvature = 0.0 if loss.conjugate_formula is None else loss.conjugate_formula.curvature(loss.parameter)
        self.s = np.zeros(self.records)

    @property
    def v(self) -> Array:
        """−Σ w_r s_r c_r, as the running sum has it."""
        return self.z - self.kappa * self.x0

    def centre_at(self, x0: Array, kappa: float) -> None:
        """Move the proximal centre, and sum v afresh."""
        self.x0, self.kappa = x0.copy(), kappa
        self.z, self.x = self._primal(self.s)

    def _primal(self, s: Array) -> tuple[Array, Array]:
        z = self.kappa * self.x0 - self.problem.shards.pull(self.w * s)
        return z, self.h.step(-z, 1.0, self.kappa)

    def proximal_term(self) -> float:
        """κ‖x − x₀‖²/2."""
        return 0.5 * self.kappa * float(np.sum(np.square(self.x - self.x0)))

    def inner_dual(self, s: Array, z: Array, x: Array) -> float:
        """The dual value of the problem with the proximal term: (h + κ‖· − x₀‖²/2)* is attained at x."""
        attained = float(np.dot(z, x)) - self.h.value(x)
        attained -= 0.5 * self.kappa * float(np.dot(x, x) + np.dot(self.x0, self.x0))
        return -float(np.dot(self.w, self.problem.loss.conjugate(s, self.y))) - attained

    def advance(self, passes: int, extrapolate: bool) -> None:
        """Make passes: each in an order of its own, or in blocks of one order where they are to be extrapolated."""
        while extrapolate and passes >= BLOCK:
            self._block()
            passes -= BLOCK
        for _ in range(passes):
            self._sweep(self.rng.permutation(self.records))

    def _block(self) -> None:
        """Passes in one order, a fixed map of s, and then the combination of its iterates that moved least."""
        rows = self.rng.permutation(self.records)
        iterates = [self.s.copy()]
        for _ in range(BLOCK):
            self._sweep(rows)
            iterates.append(self.s.copy())
        moves = np.diff(iterates, axis=0)
        gram = moves @ moves.T
        size = float(np.trace(gram))
        if size == 0.0:
            return
        share = np.linalg.solve(gram / size + 1e-12 * np.eye(BLOCK), np.ones(BLOCK))
        s = np.clip(np.tensordot(share / np.sum(share), np.array(iterates[1:]), 1), self.low, self.high)
        z, x = self._primal(s)
        if self.inner_dual(s, z, x) > self.inner_dual(self.s, self.z, self.x):
            self.s, self.z, self.x = s, z, x

    def _sweep(self, rows: IntArray) -> None:
        from sottovoce.problem.coordinate import dense_pass, sparse_pass  # Numba takes long to load: only when used

        shards, h = self.problem.shards, self.h
        scale = 1.0 / (h.mu + self.kappa)
        entropy = self.problem.loss.conjugate_formula is None
        loss = (self.y, self.w, self.steps, self.low, self.high, self.curvature, entropy)
        state = (h.phi, scale, h.lo, h.hi, self.s, self.z, self.x)
        if is_sparse(shards.X):
            X = shards.X
            sparse_pass(X.data, X.indices, X.indptr, shards.intercept, rows, *loss, *state)
        else:
            dense_pass(shards.X, shards.intercept, rows, *loss, *state)
