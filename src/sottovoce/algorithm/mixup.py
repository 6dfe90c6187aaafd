"""Xiao and Devadas 2021, decentralised gradient descent with mixup on the updates. A *reconstruction*.

Round t, for the rows (nodes) that are active in it:

    ζ_i = λ_t ĝ_i(x_i) + ν_i                          the update is mixed with "no update", then perturbed
    x_i = prox_{λ_t η_t h}( Σ_j w_ij x_j − η_t c_i ζ_i )

Of the source ("Towards understanding practical randomness beyond noise: differential privacy and mixup", ePrint
2021/687) and of its forerunner (arXiv 1902.06101) no more than the abstracts could be read: what is mixed, how λ_t is
distributed and which noise is added are inferred. λ_t ~ U[lo, 1] is drawn from a public seed and given to the
adversary, so that it makes a public change of the sensitivity, 2Lλ_t/b, which is priced exactly; no amplification is
claimed for it. h is our addition, by its proximal map, and shrinks with λ_t as the update does: else the two would not
balance at the optimum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Mix, Round, Speaks, State
from sottovoce.algorithm.primal import Primal
from sottovoce.errors import SpecError

PUBLIC_SEED = 687  # everybody knows the λ_t; the same ones in every run


def mixing_weights(lo: float, rounds: int) -> Array:
    """λ_1 … λ_T, uniform on [lo, 1] and public.

    Examples
    --------
    >>> mixing_weights(1.0, 3)
    array([1., 1., 1.])
    """
    if not 0 < lo <= 1:
        raise SpecError(f"mixup draws its weights between lo and 1, with lo over 0 and at most 1, not {lo}")
    return np.random.default_rng(PUBLIC_SEED).uniform(lo, 1.0, rounds)


@dataclass(frozen=True, eq=False)
class Mixup(Primal):
    """Gradient descent by gossip whose updates are scaled at random, in public.

    Attributes
    ----------
    lo : the least λ_t
    """

    lo: float = 0.5

    @cached_property
    def weights(self) -> Array:
        """λ_1 … λ_T."""
        return mixing_weights(self.lo, self.T)

    @property
    def shape(self) -> tuple[Array, Array]:
        """ζ_i = λ_t ĝ_i + ν_i."""
        return self.weights, np.ones(self.T)

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes."""
        x, eta, weight = state.z, float(self.eta[t - 1]), float(self.weights[t - 1])
        total = self.caught_up(state, t)
        zeta = weight * gradient(x) + noise
        mixed = mix(x) - eta * self.scale[nodes][:, None] * zeta
        new = np.where(speaks[:, None], self.prox(mixed, weight * eta), mixed)
        return Round(x, zeta, x, State(new, total, np.full_like(state.since, t + 1), state.memory))
