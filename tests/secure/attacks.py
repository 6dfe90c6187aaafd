"""Attempts to learn more from a release than its (ε, δ) allows. Each is a function that other tests can aim elsewhere.

The adversary of all of them knows everything but one record, of which there are two candidates, equally likely; sees a
message; and says which of the two it was. With ε = 0.1 and a small δ nobody can be right in more than e^ε/(1 + e^ε) + δ
= 52.5 % of the cases: of 1,000 trials in 604 at most, but for bad luck of five standard deviations (3·10⁻⁷).
"""

from fractions import Fraction

import numpy as np

OLD_BOUND = float(np.sqrt(2 * 65 * np.log(2)))
"""No normal of `sottovoce.streams` is larger."""


def allowed(trials: int) -> float:
    """The share of so many trials that may be right at ε = 0.1: 52.5 %, and five standard deviations."""
    return 0.525 + 2.5 / trials**0.5


def lattice_misfit(noise, bits: int = 32) -> float:
    """How badly normals fit angles of 2⁻ᵇⁱᵗˢ of a turn: the mean distance to the next one, in steps; ¼ by chance.

    Normals as Box–Muller pairs: number j and number ⌈m/2⌉ + j have one radius and one angle.
    """
    half = (len(noise) + 1) // 2
    cosines, sines = noise[: len(noise) - half], noise[half:]
    steps = np.arctan2(sines, cosines) / (2 * np.pi) * 2.0**bits
    return float(np.mean(np.abs(steps - np.rint(steps))))


def lattice(message, candidates, sigma: float, bits: int = 32) -> int:
    """Which candidate leaves noise on the lattice: of a message = candidate + σ·noise."""
    return int(np.argmin([lattice_misfit((message - candidate) / sigma, bits) for candidate in candidates]))


def low_bits(message, candidates, sigma: float) -> int:
    """Which candidate leaves noise with fewer significant bits: sums of floats of different sizes do (Mironov 2012)."""
    return int(np.argmin([np.mean([_significant(v) for v in message - candidate]) for candidate in candidates]))


def _significant(value: float) -> int:
    top = abs(Fraction(float(value)).numerator)
    return (top // (top & -top)).bit_length() if top else 0


def likelihood(message, candidates, sigma: float) -> int:
    """The best guess where the noise is Gaussian: what (ε, δ) is a bound on."""
    return int(np.argmin([np.sum(np.square(message - candidate)) for candidate in candidates]))


def tail(message, candidates, sigma: float, largest: float = OLD_BOUND) -> int | None:
    """A candidate that a noise within its largest value excludes leaves the other; None where neither is excluded."""
    possible = [bool(np.all(np.abs(message - candidate) <= largest * sigma)) for candidate in candidates]
    return possible.index(True) if possible.count(True) == 1 else None


def share_right(guess, messages, truths, candidates, sigma: float) -> float:
    """How often a guess is right."""
    return float(np.mean([guess(m, candidates, sigma) == t for m, t in zip(messages, truths, strict=True)]))


def summation_batch(n: int, dtype=np.float64):
    """Records against summation in floats: (batch with +1, batch with −1 in the same place), all within [−1, 1].

    Three ones and the record in question make 4 or 2. What follows is a little over half a step at 4 and counts as a
    whole one; at 2, where steps are half as long, it is a little over one, and counts as one. n of them make a
    difference that the record alone would not.
    """
    step = np.finfo(dtype).eps * 4  # between floats from 4 on
    rest = np.full(n, 0.6 * step)
    return tuple(np.concatenate([[1.0, 1.0, 1.0, sign], rest]).astype(dtype)[:, None] for sign in (1.0, -1.0))


def moved_by_summation(n: int, dtype=np.float64) -> Fraction:
    """By how much floats, added sequentially, say that the sum moved."""
    plus, minus = (np.cumsum(batch[:, 0], dtype=dtype)[-1] for batch in summation_batch(n, dtype))
    return Fraction(float(plus)) - Fraction(float(minus))


def moved_margins(X, x) -> int:
    """Rows whose margin has other bits where the row stands alone, or one place further down."""
    whole = X @ x
    alone = np.array([(X[r : r + 1] @ x)[0] for r in range(len(X))])
    shifted = (np.vstack([X[-1:], X[:-1]]) @ x)[1:]
    return int(np.sum((whole != alone) | np.append(whole[:-1] != shifted, False)))
