"""Ball arithmetic: real functions of bit streams, in intervals that are proved to hold the true value.

Where the fast arithmetic cannot show to which side a number is rounded, it is computed here (Arb, by python-flint),
with more and more bits of the same streams, until the answer is certain. The streams have no last bit, and a number
lies on a boundary with probability zero; so this ends.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import PrivacyError
from sottovoce.secure.generator import WORD, Generator

Ball = Any
"""A `flint.arb`: the library has no types."""
ENOUGH = 128
"""Words of a stream that are examined: one draw in 2⁸⁰⁰⁰ needs more."""
_PRECISION = Lock()  # the working precision belongs to the process: too low a one would be no error, but no end either


class Bits(NamedTuple):
    """The bits of a uniform number that are known so far, as a whole number, and how many they are."""

    value: int
    known: int

    def followed_by(self, word: int) -> "Bits":
        """With one more word of the stream."""
        return Bits((self.value << WORD) | word, self.known + WORD)

    def ball(self) -> Ball:
        """All the numbers that begin with these bits."""
        from flint import arb

        return arb((2 * self.value + 1, -self.known - 1), (1, -self.known - 1))


class Draw(NamedTuple):
    """One block of a generator, cut into two uniforms: `split` bits of the second word continue the first uniform."""

    generator: Generator
    node: int
    round: int
    block: int
    split: int

    def uniforms(self) -> Iterator[tuple[Bits, Bits]]:
        """The two uniforms, with one word more each time."""
        here = np.array([self.node]), np.array([self.round])
        first, second = self.generator.words(*here, self.block, 1)[0, 0].tolist()
        u = Bits((first << self.split) | (second & ((1 << self.split) - 1)), WORD + self.split)
        v = Bits(second >> self.split, WORD - self.split)
        for one, other in self.generator.continuation(self.node, self.round, self.block):
            u, v = u.followed_by(one), v.followed_by(other)
            yield u, v


def gaussian(u: Bits, v: Bits, sine: bool) -> Ball:
    """√(−2 ln u) cos 2πv, or the sine: a standard normal (Box and Muller 1958)."""
    turn = 2 * v.ball()
    return (-2 * u.ball().log()).sqrt() * (turn.sin_pi() if sine else turn.cos_pi())


def laplace(u: Bits, v: Bits) -> Ball:
    """±ln u, the sign from the first bit of v: the density is e^{−|x|}/2."""
    size = -u.ball().log()
    return -size if v.value >> (v.known - 1) else size


def geometric(u: Bits, p: Fraction) -> Ball:
    """ln u / ln(1 − p): its floor is k with probability p(1 − p)^k."""
    from flint import arb, fmpq

    return u.ball().log() / (-arb(fmpq(p.numerator, p.denominator))).log1p()


def whole(value: Callable[[], Ball]) -> int:
    """⌊x⌋, of an x that is known better each time it is requested.

    Parameters
    ----------
    value : a ball that holds x, from one more word of every stream than the time before
    """
    from flint import ctx

    with _PRECISION:
        for words in range(1, ENOUGH):
            with ctx.workprec(WORD * (words + 3)):
                found = value().floor().unique_fmpz()
            if found is not None:
                return int(found)
    raise PrivacyError("a random number lies on a rounding boundary to 8,000 bits; the generator must be broken")
