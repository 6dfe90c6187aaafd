"""The release: the one object that both draws what a node adds and says what must be accounted for.

In every round in which node i is active it releases ζ_i = (1/b) Σ clip_L(∂l) + N(0, σ_i² I) (Algorithm 1, lines
2-3); everything else it sends, stores or publishes is a function of such ζ and of public numbers. So the privacy of
a record depends on its own node's (q_i, b, L, σ_i) and on the number K_i of rounds in which that node spoke, and on
nothing else (where records come in a fixed order: on which rounds those were). An `Event` says all of that. The
sampler, the clip and the noise of the event are the fields from which the draws are made: they cannot drift apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError
from sottovoce.privacy.adversaries import Adversary
from sottovoce.privacy.events import Event
from sottovoce.privacy.laws import Gaussian, Law
from sottovoce.privacy.sampling import Sampling, Turns
from sottovoce.streams import Streams

NodeTurns = Callable[[int], IntArray]
"""Node i -> the rounds in which it spoke: `Schedule.turns`."""


@dataclass(frozen=True)
class Release:
    """What every node lets out, and against whom.

    Attributes
    ----------
    sampling : how the records of a round are picked
    clip : L, the norm to which every record's subgradient is clipped
    sigma : σ_i, one for each node; zeros for no noise, which protects nobody
    adversary : who is watching
    law : how the noise is made from σ
    """

    sampling: Sampling
    clip: float
    sigma: tuple[float, ...]
    adversary: Adversary
    law: Law = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        """A bound that is no bound, and a negative noise, are errors."""
        if not 0 < self.clip < math.inf:
            raise PrivacyError(
                f"the bound on one record's subgradient must be finite and over 0, not {self.clip}; "
                "give a clip, or take a loss with a bounded slope"
            )
        if not all(0 <= s < math.inf for s in self.sigma):
            raise PrivacyError(f"noise scales must be finite and not negative, not {min(self.sigma)}")

    def records(self, streams: Streams, nodes: IntArray, t: IntArray, sizes: IntArray) -> list[IntArray | None]:
        """The records that each node uses in its round, for each pair (node, round)."""
        stretch = self.sampling.stretch
        ready = streams.uniforms(nodes, t, 0, stretch) if stretch else None

        def uniforms(pair: int, first: int, count: int) -> Array:
            if ready is not None and first + count <= stretch:
                return ready[pair, first : first + count]
            return streams.uniforms(nodes[pair : pair + 1], t[pair : pair + 1], first, count)[0]

        return [self.sampling.draw(partial(uniforms, p), int(sizes[i]), int(t[p])) for p, i in enumerate(nodes)]

    def noise(self, streams: Streams, nodes: IntArray, t: IntArray, m: int) -> Array:
        """ν, a row for each pair (node, round)."""
        return self.law.draw(streams, nodes, t, m, self.sigma)

    def event(self, node: int, records: int, rounds: int, turns: Turns | None = None) -> Event:
        """What node i must account for after `rounds` rounds of speaking: those of `turns`, where that is known."""
        return self.law.event(node, self.sampling.event(records, self.clip, self.sigma[node], rounds, turns))

    def events(self, sizes: IntArray, spoken: IntArray, turns: NodeTurns | None = None) -> list[Event]:
        """The same of every node, of which `spoken` says how often and `turns` when."""
        return [
            self.event(i, int(q), int(spoken[i]), None if turns is None else partial(turns, i))
            for i, q in enumerate(sizes)
        ]


@dataclass(frozen=True)
class Draws:
    """The randomness of a run, as an engine asks for it; a test may put its own in its place."""

    release: Release
    streams: Streams
    sizes: IntArray
    m: int

    def records(self, nodes: IntArray, t: IntArray) -> list[IntArray | None]:
        """Which records."""
        return self.release.records(self.streams, nodes, t, self.sizes)

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
        """Which noise."""
        return self.release.noise(self.streams, nodes, t, self.m)
