"""The release: the one object that both draws what a node adds and says what must be accounted for.

In every round in which node i is active it releases ζ_i = (1/b) Σ clip_L(∂l) + N(0, σ_i² I) (Algorithm 1, lines
2-3); everything else it sends, stores or publishes is a function of such ζ and of public numbers. So the privacy of
a record depends on its own node's (q_i, b, L, σ_i) and on the number K_i of rounds in which that node spoke, and on
nothing else. `Event` is that tuple. The sampler, the clip and the noise of the event are the fields from which the
draws are made: they cannot drift apart.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError
from sottovoce.privacy.adversaries import Adversary
from sottovoce.privacy.sampling import Sampling
from sottovoce.streams import Streams

ADJACENCY = "replace one record of one node"


@dataclass(frozen=True)
class Event:
    """Everything about node i's participation that an accountant may look at."""

    sampling: str
    records: int
    """q_i."""
    batch: int
    """b, the divisor."""
    clip: float
    """L, the bound on one record's subgradient."""
    sigma: float
    """σ_i, the standard deviation of the noise on ζ_i in each coordinate."""
    rounds: int
    """K_i, in how many rounds the node spoke."""

    def __post_init__(self) -> None:
        """An event that no release can have is an error, not a number."""
        counts = all(isinstance(v, int) for v in (self.records, self.batch, self.rounds))
        if self.sampling not in ("fixed", "poisson", "full") or not counts:
            raise PrivacyError(f"{self} is no event of a release: sampling and whole numbers are expected")
        if not (1 <= self.batch <= self.records and self.rounds >= 0):
            raise PrivacyError(f"{self} is no event of a release: a batch is part of the records")
        if self.sampling == "full" and self.batch != self.records:
            raise PrivacyError(f"{self} is no event of a release: a full batch holds all records")
        if not (0 < self.clip < math.inf and 0 <= self.sigma < math.inf):
            raise PrivacyError(f"{self} is no event of a release: the clip must be over 0, σ not negative, both finite")

    @property
    def rate(self) -> float:
        """γ = b/q, the chance that a given record is used in a round."""
        return 1.0 if self.sampling == "full" else self.batch / self.records

    @property
    def noise_multiplier(self) -> float:
        """The noise in units of how far one record can move the mean, the only place where this is computed.

        Replacing a record moves it by at most 2L/b where the batch size is fixed. Under Poisson sampling the pair to
        compare is a record against another one, each in or out on its own: L/b from the mean without it.
        """
        reach = (1.0 if self.sampling == "poisson" else 2.0) * self.clip / self.batch
        return self.sigma / reach


@dataclass(frozen=True)
class Release:
    """What every node lets out, and against whom.

    Attributes
    ----------
    sampling : how the records of a round are picked
    clip : L, the norm to which every record's subgradient is clipped
    sigma : σ_i, one for each node; zeros for no noise, which protects nobody
    adversary : who is watching
    """

    sampling: Sampling
    clip: float
    sigma: tuple[float, ...]
    adversary: Adversary

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
        ready = streams.uniforms(nodes, t, 0, stretch)

        def uniforms(pair: int, first: int, count: int) -> Array:
            if first + count <= stretch:
                return ready[pair, first : first + count]
            return streams.uniforms(nodes[pair : pair + 1], t[pair : pair + 1], first, count)[0]

        return [self.sampling.draw(partial(uniforms, pair), int(sizes[i])) for pair, i in enumerate(nodes)]

    def noise(self, streams: Streams, nodes: IntArray, t: IntArray, m: int) -> Array:
        """ν, a row of N(0, σ_i² I) for each pair (node, round)."""
        scales = np.take(self.sigma, nodes)
        if not np.any(scales):
            return np.zeros((len(nodes), m))
        return scales[:, None] * streams.normals(nodes, t, m)

    def event(self, node: int, records: int, rounds: int) -> Event:
        """What node i must account for after `rounds` rounds of speaking."""
        return Event(
            sampling=self.sampling.kind,
            records=records,
            batch=self.sampling.batch(records),
            clip=self.clip,
            sigma=self.sigma[node],
            rounds=rounds,
        )


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
