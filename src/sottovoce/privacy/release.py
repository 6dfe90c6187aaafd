"""The release: the one object that both draws what a node adds and says what must be accounted for, and against whom.

In every round in which node i is active it releases ζ_i = (1/b) Σ clip_L(∂l) + N(0, σ_i² I) (Algorithm 1, lines
2-3); everything else it sends, stores or publishes is a function of such ζ and of public numbers. So the privacy of
a record depends on its own node's (q_i, b, L, σ_i) and on the number K_i of rounds in which that node spoke, and on
nothing else (where records come in a fixed order: on which rounds those were). An `Event` says all of that. The
sampler, the clip and the noise of the event are the fields from which the draws are made: they cannot drift apart.

*The adversary*: no guarantee has a meaning without it. An adversary defines what it sees, the assumptions of a
guarantee against it, the runs that can have one, and how to account for a node of which only the activation probability
is known.

*The noise mechanism*: how noise is drawn and how it is accounted, in one object. A spec holds a choice (`LAWS`):
``gaussian``, ``laplace``, ``pairs(ratio, graph=…)`` or ``tree``. Once graph, method, sampling, sizes and schedule are
known (a `MechanismContext`) it makes the law that runs:

`Gaussian`: fresh and independent at every node in every round, with one σ_i: the paper's, and the default.
`Shaped`: Gaussian whose scale, and whose share of the subgradient in what is released, change from round to round.
`Laplace`: the same with Laplace noise, for pure ε.
`Pairs`: Gaussian with a part that pairs of nodes cancel between them, for adversaries without their seeds (see
`pairs`). `Tree`: Gaussian prefix-sum noise along a binary tree (Kairouz et al. 2021), for records used in a fixed
order. `Objective`: Gaussian noise on the linear term of an objective that is then minimized (see `objective`).

σ_i scales every law linearly: calibration relies on it. A law draws in two ways: `draw` gives floating-point noise, for
simulations; `noise_terms` says of which noise terms a release is made, and a secure run adds exactly those to an exact
sum.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.composite_events import ObjectiveEvent
from sottovoce.privacy.events import (
    SHAPED,
    AccountedEvent,
    CyclicEvent,
    Event,
    FullEvent,
    GaussianEvent,
    Hidden,
    LaplaceEvent,
    RandomParticipation,
    TreeEvent,
)
from sottovoce.privacy.objective import NOISE_SCALE
from sottovoce.privacy.sampling import Cyclic, Sampling, Turns
from sottovoce.registry import Choices, within
from sottovoce.streams import Streams

if TYPE_CHECKING:
    from sottovoce.privacy.pairs import PairsChoice


@dataclass(frozen=True)
class Adversary:
    """An observer; ``str()`` is its name, and its numbers."""

    name: ClassVar[str]
    refusal: ClassVar[str] = ""
    """Why an ordinary run cannot claim it; empty where it can."""

    def __str__(self) -> str:
        """In a spec."""
        return self.name

    @property
    def sees(self) -> str:
        """What it sees, in words."""
        raise NotImplementedError

    @property
    def honest(self) -> str:
        """Who must follow the protocol."""
        return "every node"

    def among(self, nodes: int) -> Self:
        """The same observer of a run of so many nodes."""
        return self

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Whether a run really faces it: its messages carry noise whose seeds pairs of nodes share or not."""
        return not self.refusal

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """On what a guarantee against it rests besides; `coalition` is whose secrets count as known."""
        return ()

    def helped(self, coalition: tuple[int, ...] | None) -> str:
        """Its name, and who helps it where that matters."""
        return f"'{self}'"

    def seen(self, event: Event, activity: float = 1.0) -> AccountedEvent:
        """What it sees of a node that speaks in each of `event.rounds` rounds with a probability."""
        raise PrivacyError(f"'{self}' cannot be accounted for this algorithm: {self.refusal}; use 'transcript'")


@dataclass(frozen=True)
class Transcript(Adversary):
    """Everything that is ever sent."""

    name: ClassVar[str] = "transcript"

    @property
    def sees(self) -> str:
        """All there is."""
        return "every message of every node, and who was active in every round"

    def seen(self, event: Event, activity: float = 1.0) -> AccountedEvent:
        """Who spoke is seen: a sleeping round releases nothing, an active one is a release."""
        return RandomParticipation(event, activity)


@dataclass(frozen=True)
class HiddenParticipation(Adversary):
    """A what-if: the adversary that the paper's theorem counts on."""

    name: ClassVar[str] = "hidden_participation"
    refusal: ClassVar[str] = (
        "a message carries z_i, which changes only when node i is active, so participation can always be linked"
    )

    @property
    def sees(self) -> str:
        """Not whose they are."""
        return "messages that cannot be linked to the node that sent them"

    def seen(self, event: Event, activity: float = 1.0) -> AccountedEvent:
        """Every round is a release, at a smaller rate."""
        return Hidden(event, activity)


MAJORITY = "majority"
"""In place of k: as many nodes as leave a majority honest, ⌊(n − 1)/2⌋, and one at least."""


@dataclass(frozen=True)
class SecretPairs(Adversary):
    """Who sees everything that is sent, and knows all that any k nodes know, but not what two others have agreed on.

    Attributes
    ----------
    k : how many nodes may collude, 'majority', or None: the coalition is the one that the law of the noise names, as
        version 0.1 had it

    Examples
    --------
    >>> str(SecretPairs(3)), SecretPairs("majority").among(20).k, SecretPairs("majority").among(2).k
    ('secret_pairs(3)', 9, 1)
    """

    k: int | str | None = None
    name: ClassVar[str] = "secret_pairs"
    refusal: ClassVar[str] = (
        "this run's noise is independent at every node, so that there are no secrets of pairs to rely on (the law "
        "'pairs(10)' has them)"
    )

    def __post_init__(self) -> None:
        """Every node is an observer, too: with none that is curious there would be nobody to hide from."""
        if self.k is None or self.k == MAJORITY or (type(self.k) is int and self.k >= 1):
            return
        raise PrivacyError(
            f"'secret_pairs({self.k})' is malformed; write 'secret_pairs(k)' with the number k of nodes that may "
            "collude, at least 1, or 'secret_pairs(majority)', which leaves a majority honest"
        )

    def __str__(self) -> str:
        """In a spec."""
        return self.name if self.k is None else f"{self.name}({self.k})"

    @property
    def sees(self) -> str:
        """By who helps it."""
        if self.k is None:
            return "every message, but not the seeds that pairs of nodes share"
        who = "any one node knows" if self.k == 1 else f"any {self.k} nodes know"
        who = "any minority of the nodes knows" if self.k == MAJORITY else who
        return f"every message and all that {who}, but not the seeds that two other nodes share"

    @property
    def honest(self) -> str:
        """Those that collude may do as they like."""
        return super().honest if self.k is None else "every node that does not collude"

    def among(self, nodes: int) -> Self:
        """With a number for k."""
        return replace(self, k=max(1, (nodes - 1) // 2)) if self.k == MAJORITY else self

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Where there are secrets."""
        return secrets

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Every node is an observer too, and knows its own seeds."""
        if self.k is not None:
            return (
                f"at most {self.k} of the nodes, whichever, tell the observer all that they know; they were fixed "
                "before the run, and whoever admits nodes decides how many that can be",
                "they may do in the run whatever they like: that can spoil the model, not the others' privacy",
                "the seed that two other nodes share is known to those two alone, and nobody can tell noise from it "
                "from random numbers: a computational guarantee",
            )
        if coalition is None:  # in this way version 0.1 left it open
            return ("the seeds that pairs of nodes share stay secret, but for those of the declared coalition",)
        if not coalition:
            return ("there is no coalition: no node is curious, and each seed is known to the two that share it alone",)
        return (
            f"the coalition of {_nodes(coalition)} tells the observer all it knows; no other node is curious, and the "
            "seeds that two others share are known to those two alone",
        )

    def helped(self, coalition: tuple[int, ...] | None) -> str:
        """An ε without the coalition would be a different promise."""
        if self.k is not None:
            return f"'{self}', whichever {self.k} node{'s' * (self.k != 1)} may help"
        if coalition is None:
            return super().helped(coalition)
        return f"'{self.name}' with {f'the help of {_nodes(coalition)}' if coalition else 'no help from any node'}"


def _nodes(coalition: tuple[int, ...]) -> str:
    return f"node{'s' * (len(coalition) > 1)} {', '.join(map(str, coalition))}"


@dataclass(frozen=True)
class Central(Adversary):
    """Who gets the model of a trusted place."""

    name: ClassVar[str] = "central"
    refusal: ClassVar[str] = (
        "nodes send their messages to one another in clear, so a neighbour sees more than the final model"
    )

    @property
    def sees(self) -> str:
        """What is published."""
        return "the final model only"

    def fits(self, secrets: bool, nodes: int) -> bool:
        """One node sends no messages; the accounting of every round covers the final model."""
        return nodes == 1

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Trust."""
        return ("there is one trusted place that holds all records and publishes nothing but the final model",)


def _secret_pairs(k: str = "") -> SecretPairs:
    return SecretPairs(int(k) if k.isdecimal() else k or None)


ADVERSARIES: Choices[Adversary] = Choices(
    "adversary",
    {
        "transcript": Transcript,
        "hidden_participation": HiddenParticipation,
        "secret_pairs": _secret_pairs,
        "central": Central,
    },
    PrivacyError,
)


def check_runnable(adversary: Adversary, secrets: bool = False, nodes: int = 2) -> None:
    """A run may only be made under an adversary that its messages really face.

    Noise that pairs of nodes cancel is worth what it is only where their seeds are secret.
    """
    if secrets and not isinstance(adversary, SecretPairs):
        raise PrivacyError(
            "noise that pairs of nodes share protects against 'secret_pairs(k)' only, with k nodes that may collude; "
            "name that adversary"
        )
    if not adversary.fits(secrets, nodes):
        raise PrivacyError(
            f"a run cannot be protected against '{adversary}' only: {adversary.refusal}; use 'transcript'"
        )


class NoiseTerm(NamedTuple):
    """One noise term in each of some releases.

    Attributes
    ----------
    rows : which of the releases, none of them twice
    owners, rounds : the address of each one's noise: equal addresses are one and the same number
    factors : what it is multiplied by, besides the release's own scale; of either sign, and of 26 bits at most, so that
        the product is exact
    shared : whether it is a secret of several nodes
    peer : the one other node that knows it, where it is the real secret of a pair
    shared_terms : noise terms of which releases have the sum besides, times a factor of their own; None for none
    """

    rows: IntArray
    owners: IntArray
    rounds: IntArray
    factors: Array
    shared: bool = False
    peer: int | None = None
    shared_terms: "SharedNoise | None" = None


class SharedNoise(NamedTuple):
    """Sums of noise terms, of which several releases have the same one.

    Attributes
    ----------
    owners, rounds : the addresses of all noise terms, sum after sum
    starts : (sums + 1,) where each sum begins
    which : the sum that each of the noise term's releases has
    factors : what it is multiplied by there, as in `NoiseTerm`
    """

    owners: IntArray
    rounds: IntArray
    starts: IntArray
    which: IntArray
    factors: Array


SHORT = 26
"""Bits of a factor, and of a scale: their product has no more than a float has."""


def rounded_up(values: Array, bits: int = SHORT) -> Array:
    """Positive numbers brought to 26 bits, upwards by more than a few roundings: never below what was meant.

    Examples
    --------
    >>> float(rounded_up(np.array([0.1]))[0]) - 0.1 < 2.0**-28, rounded_up(np.array([0.0, 3.0])) - [0, 3] < 2.0**-23
    (True, array([ True,  True]))
    """
    part, octave = np.frexp(np.asarray(values, dtype=np.float64) * (1.0 + 2.0**-40))
    return np.ldexp(np.ceil(part * 2.0**bits), octave - bits)


Scales = tuple[float, ...]
"""σ_i of every node; empty where a law does not need to know the others'."""


class NoiseMechanism(Protocol):
    """A noise mechanism; it gets all nodes' σ, since the protection of one node may depend on the others' noise."""

    secrets: ClassVar[bool]
    """Whether pairs of nodes share seeds: what two of them cancel has one scale, no worth once they are out."""
    unit: ClassVar[str]
    """The law of one noise term: 'gaussian', with variance 1, or 'laplace', with scale 1."""

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """A row of noise for each pair (node, round)."""

    def share(self, t: IntArray) -> Array:
        """How much noise, in units of σ, goes with ĝ itself: the spread over the gain, for each round."""

    def noise_terms(self, nodes: IntArray, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """The noise terms of which the noise of each pair (node, round) is made, in units of its scale."""

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """What a node must account for, given what it would be for independent Gaussian noise of its σ_i."""

    def units(self, n: int) -> Scales:
        """σ_i of the n nodes relative to one another, where it is to be found how much noise is needed."""

    def apart(self, sigma: Scales) -> Sequence[Hashable] | None:
        """Return what else distinguishes nodes than records, rounds and σ_i, a value a node; None if nothing does."""


@dataclass(frozen=True)
class Gaussian:
    """N(0, σ_i² I), independent."""

    secrets: ClassVar[bool] = False
    unit: ClassVar[str] = "gaussian"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """Fresh normals."""
        scales = np.take(sigma, nodes)
        if not np.any(scales):
            return np.zeros((len(nodes), m))
        return scales[:, None] * streams.normals(nodes, t, m)

    def share(self, t: IntArray) -> Array:
        """σ, always."""
        return np.ones(len(t))

    def noise_terms(self, nodes: IntArray, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """One, a node's own."""
        return [_own(nodes, t)]

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """As it is."""
        return plain

    def units(self, n: int) -> Scales:
        """All equally."""
        return (1.0,) * n

    def apart(self, sigma: Scales) -> None:
        """Nothing."""
        return


def _own(nodes: IntArray, t: IntArray) -> NoiseTerm:
    """A noise term of its own for each pair (node, round)."""
    return NoiseTerm(np.arange(len(nodes)), nodes, t, np.ones(len(nodes)))


@dataclass(frozen=True, eq=False)
class Shaped:
    """gain_t ĝ_i + N(0, (spread_t σ_i)² I) in round t; both sequences are public and fixed before the run."""

    gain: Array
    spread: Array
    secrets: ClassVar[bool] = False
    unit: ClassVar[str] = "gaussian"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """Normals times the round's spread."""
        return self.spread[np.asarray(t) - 1][:, None] * Gaussian().draw(streams, nodes, t, m, sigma)

    def share(self, t: IntArray) -> Array:
        """Of gain·(ĝ + share·ν): the gain is public, and may be taken afterwards."""
        return np.asarray((self.spread / self.gain)[np.asarray(t) - 1])

    def noise_terms(self, nodes: IntArray, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """One, a node's own."""
        return [_own(nodes, t)]

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """K equal rounds that come to the same: Gaussian mechanisms compose by Σ 1/z² (Dong, Roth and Su 2022)."""
        weights = (self.gain / self.spread) ** 2
        if np.ptp(weights) == 0:
            return replace(plain, sigma=plain.sigma / math.sqrt(weights[0]), note=SHAPED)
        self._check(plain)
        return replace(plain, sigma=plain.sigma * math.sqrt(len(weights) / math.fsum(weights)), note=SHAPED)

    def units(self, n: int) -> Scales:
        """All equally."""
        return (1.0,) * n

    def apart(self, sigma: Scales) -> None:
        """Nothing."""
        return

    def _check(self, plain: GaussianEvent) -> None:
        if not isinstance(plain, FullEvent) or plain.rounds not in (0, len(self.gain)):
            raise PrivacyError(
                "noise that changes from round to round can be accounted where every node takes all of its records in "
                "every round only; use sampling 'full' and activation 'everyone'"
            )


@dataclass(frozen=True, eq=False)
class Laplace(Shaped):
    """As `Shaped`, each coordinate Laplace with scale spread_t σ_i: pure ε, in the L1 norm."""

    dimension: int
    unit: ClassVar[str] = "laplace"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """The difference of two exponentials, each half of a χ² with two degrees of freedom."""
        squares = np.square(streams.normals(nodes, t, 4 * m)).reshape(len(nodes), 4, m)
        scales = np.take(sigma, nodes) * self.spread[np.asarray(t) - 1]
        return 0.5 * scales[:, None] * (squares[:, 0] + squares[:, 1] - squares[:, 2] - squares[:, 3])

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """One mechanism with the sum of all rounds' ε; ‖·‖₁ ≤ √m ‖·‖₂ gives its sensitivity."""
        self._check(plain)
        total = math.fsum(self.gain / self.spread)
        clip = math.sqrt(self.dimension) * plain.clip
        return LaplaceEvent(plain.records, plain.batch, clip, plain.sigma / total, plain.rounds)


@dataclass(frozen=True)
class Tree:
    """Noise on the prefix sums ĝ_1 + … + ĝ_s of each pass over the batches: the sum of the tree nodes that make up s.

    Attributes
    ----------
    batches : rounds in one pass; a tree a pass
    """

    batches: int
    secrets: ClassVar[bool] = False
    unit: ClassVar[str] = "gaussian"

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """How much the prefix sum's noise changes in round t."""
        rows = [self._prefix(streams, int(r), m) - self._prefix(streams, int(r) - 1, m, int(r)) for r in t]
        return np.take(sigma, nodes)[:, None] * np.reshape(rows, (len(nodes), m))

    def _prefix(self, streams: Streams, t: int, m: int, seen: int | None = None) -> Array:
        """The noise on the prefix that ends with round t, in the pass of round `seen`."""
        first = ((t if seen is None else seen) - 1) // self.batches * self.batches
        level = 0
        total, s = np.zeros(m), t - first
        while s > 0:
            if s & 1:
                total += streams.normals(np.array([level]), np.array([first + (s << level)]), m)[0]
            s, level = s >> 1, level + 1
        return total

    def share(self, t: IntArray) -> Array:
        """σ, always."""
        return np.ones(len(t))

    def noise_terms(self, nodes: IntArray, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """The tree nodes in which the prefix of round t differs from the one before.

        Of s = …1000 that is the node of its last 1, added, and those of the ones of s − 1 = …0111 below it, taken away.
        """
        t = np.asarray(t)
        first = (t - 1) // self.batches * self.batches
        s = t - first
        last = np.bitwise_count((s & -s) - 1).astype(np.int64)  # how many zeros s ends with
        found = []
        for level in range(int(last.max(initial=-1)) + 1):
            rows = np.flatnonzero(last >= level)
            new = last[rows] == level
            ends = np.where(new, s[rows], (s[rows] - 1) >> level << level)
            factors = np.where(new, 1.0, -1.0)
            found.append(NoiseTerm(rows, np.full(len(rows), level), first[rows] + ends, factors))
        return found

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """A record is in one leaf a pass, and in every node above it."""
        if not isinstance(plain, CyclicEvent) or plain.batches != self.batches or node != 0:
            raise PrivacyError("tree noise is for one node that takes its records in a fixed order; use 'cyclic(b)'")
        return TreeEvent(plain.records, plain.batch, plain.clip, plain.sigma, plain.rounds, uses=plain.uses)

    def units(self, n: int) -> Scales:
        """All equally."""
        return (1.0,) * n

    def apart(self, sigma: Scales) -> Sequence[Hashable]:
        """Who it is: there is one node."""
        return range(len(sigma))


@dataclass(frozen=True)
class Objective(Gaussian):
    """N(0, σ² I) for the linear term of F; what the minimizer gives away besides that noise is `extra`."""

    extra: float

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """Return the noise, then the extra noise on the minimizer, in units of the minimizer's largest error."""
        noise_rtol = NOISE_SCALE * streams.normals(nodes, np.asarray(t) + 1, m) * (np.take(sigma, nodes) > 0)[:, None]
        return np.concatenate([super().draw(streams, nodes, t, m, sigma), noise_rtol], axis=1)

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """The noise as on a mean of all gradients, and the extra ε."""
        return ObjectiveEvent(plain.records, plain.batch, plain.clip, plain.sigma, plain.rounds, extra=self.extra)


class Graph(Protocol):
    """Of a network, what a law may want to know."""

    @property
    def n(self) -> int:
        """How many nodes."""

    @property
    def edges(self) -> IntArray:
        """(E, 2) who is linked with whom."""


Shape = tuple[Array, Array]
"""Gain and spread of a method with a schedule of its own for noise."""


class Attendance(NamedTuple):
    """Who speaks in each round, by the public schedule.

    Attributes
    ----------
    starts : (T + 1,) round t has the places starts[t − 1] … starts[t] − 1
    nodes : who speaks, round after round
    """

    starts: IntArray
    nodes: IntArray


class Epochs(NamedTuple):
    """Who takes part in which rounds.

    Attributes
    ----------
    first : (E,) the first round of each epoch; the first is 1
    members : (E, n) who takes part
    raised : (E,) what own and shared noise are multiplied by
    rounds : T; the address T + e is that of the release that was in flight when epoch e ended, e from 1

    Examples
    --------
    >>> epochs = Epochs(np.array([1, 4]), np.array([[True] * 3, [True, False, True]]), np.array([1.0, 1.5]), 10)
    >>> epochs.of(np.array([1, 3, 4, 10, 11])).tolist()
    [0, 0, 1, 1, 0]
    """

    first: IntArray
    members: NDArray[np.bool_]
    raised: Array
    rounds: int

    def of(self, t: IntArray) -> IntArray:
        """The epoch of each round, or of a release that was given up."""
        t = np.asarray(t, dtype=np.int64)
        return np.where(t > self.rounds, t - self.rounds - 1, np.searchsorted(self.first, t, side="right") - 1)


@dataclass(frozen=True, eq=False)
class MechanismContext:
    """What a noise mechanism may use of its run.

    Attributes
    ----------
    graph : the links between nodes
    shape : gain and spread, of a method with a schedule of its own for noise
    sampling, sizes, m : how records are picked, q_i, and how many numbers there are in a release
    adversary : the adversary
    scale : c_i, the public factor on node i's release; all ones if not given
    attendance : the active nodes of each round; all nodes in all rounds if not given
    may_lose : how many nodes may be lost during the run, so that the others go on without them
    epochs : who takes part when, in a simulation in which nodes are lost
    """

    graph: Graph
    sampling: Sampling
    sizes: IntArray
    m: int
    shape: Shape | None = None
    adversary: Adversary = Transcript()
    scale: Array | None = None
    attendance: Attendance | None = None
    may_lose: int = 0
    epochs: Epochs | None = None


class MechanismChoice(Protocol):
    """A law as a spec holds it."""

    def on(self, of: MechanismContext) -> NoiseMechanism:
        """The law that runs."""


@dataclass(frozen=True)
class GaussianChoice:
    """Independent Gaussian noise, in the method's own shape where it has one."""

    def __str__(self) -> str:
        """In a spec."""
        return "gaussian"

    def on(self, of: MechanismContext) -> NoiseMechanism:
        """Plain or shaped."""
        return Gaussian() if of.shape is None else Shaped(*of.shape)


@dataclass(frozen=True)
class LaplaceChoice:
    """Laplace noise in the shape of a method that has one."""

    def __str__(self) -> str:
        """In a spec."""
        return "laplace"

    def on(self, of: MechanismContext) -> NoiseMechanism:
        """Over m coordinates."""
        if of.shape is None:
            raise SpecError(
                f"noise law '{self}' goes with a method that has a schedule of its own for noise, as 'huang'"
            )
        return Laplace(*of.shape, of.m)


@dataclass(frozen=True)
class TreeChoice:
    """Noise along a binary tree over the batches of a pass."""

    def __str__(self) -> str:
        """In a spec."""
        return "tree"

    def on(self, of: MechanismContext) -> NoiseMechanism:
        """Over the batches of the one node."""
        if of.shape is not None:
            raise SpecError(f"noise law '{self}' does not fit a method that has a schedule of its own for noise")
        q = int(of.sizes[0])
        return Tree(-(-q // of.sampling.batch(q)))


def _pairs(
    ratio: float,
    *nodes: int,
    graph: str = "",
    cut: str = "refused",
    peers: float = 0.0,
    coins: int = 0,
    fails: float = 1e-9,
) -> "PairsChoice":
    from sottovoce.privacy.pairs import PairsChoice  # loaded only if needed

    return PairsChoice(ratio, nodes, within("graph", graph) if graph else None, cut, peers, coins, fails)


LAWS: Choices[MechanismChoice] = Choices(
    "noise law", {"gaussian": GaussianChoice, "laplace": LaplaceChoice, "pairs": _pairs, "tree": TreeChoice}
)


NodeTurns = Callable[[int], IntArray]
"""Node i -> the rounds in which it spoke: `Schedule.turns`."""


@dataclass(frozen=True)
class Release:
    """What every node releases, and against whom.

    Attributes
    ----------
    sampling : how the records of a round are picked
    clip : L, the norm to which every record's subgradient is clipped
    sigma : σ_i, one for each node; zeros for no noise, which protects nobody
    adversary : the adversary
    law : how the noise is made from σ
    before : what is released of the same records once, before the first round, if anything is
    """

    sampling: Sampling
    clip: float
    sigma: tuple[float, ...]
    adversary: Adversary
    law: NoiseMechanism = field(default_factory=Gaussian)
    before: "Release | None" = None

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
        plain = self.sampling.event(records, self.clip, self.sigma[node], rounds, turns)
        event = self.law.event(node, plain, self.sigma)
        if self.before is None:
            return event
        first = self.before.event(node, records, 1)
        if not (isinstance(event, GaussianEvent) and isinstance(first, GaussianEvent)):
            raise PrivacyError(
                f"noise of the law '{event.law}' cannot be accounted together with moments; leave the moments out"
            )
        return replace(event, before=first)

    def events(self, sizes: IntArray, spoken: IntArray, turns: NodeTurns | None = None) -> list[Event]:
        """The same of every node, of which `spoken` says how often and `turns` when; equal nodes share one event."""
        known: dict[tuple[Hashable, ...], Event] = {}
        found = []
        for i, kind in enumerate(zip(sizes.tolist(), spoken.tolist(), *self._apart(turns is not None), strict=True)):
            event = known.get(kind)
            if event is None:
                when = None if turns is None else partial(turns, i)
                event = known[kind] = self.event(i, int(sizes[i]), int(spoken[i]), when)
            found.append(event)
        return found

    def _apart(self, timed: bool) -> list[Sequence[Hashable]]:
        """Return what distinguishes events of nodes with equal records and rounds; `timed` adds their active rounds."""
        parts = [self.sigma, self.law.apart(self.sigma)]
        if timed and isinstance(self.sampling, Cyclic):
            parts.append(range(len(self.sigma)))
        before = [] if self.before is None else self.before._apart(False)
        return [each for each in (*parts, *before) if each is not None]


@dataclass(frozen=True)
class Draws:
    """The randomness of a run, as an engine draws it; a test may replace it."""

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
