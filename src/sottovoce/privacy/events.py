"""Events: what a node releases of its records in a run, one type for each mechanism.

An event holds the numbers of a participation (records, batch, bound, noise, rounds) and says what they come to for the
accountant: how many rounds (`count`) of which pair of laws (`pair`). The two counts are kept apart. `rounds` is what
was released: K_i, in how many rounds the node spoke. `count` is what is accounted: the same where records are drawn by
chance, so that every round costs the same; the uses of the most used record, if records come in a fixed order; one, if
the noise of a whole run has a single cost.

`FixedEvent`, `PoissonEvent`, `FullEvent`, `CyclicEvent`: Gaussian noise, records picked in one of four ways. Noise of
another law that comes to the same is one of these, with the equivalent σ and a `Note` of what it was.
`ProductsEvent`: Gaussian noise on the mean of all records' products of numbers (see `statistics`).
`LaplaceEvent`: pure ε. `TreeEvent`: Gaussian noise along a binary tree.
`RandomParticipation` and `Hidden`: for planning, before there is a schedule that says in which rounds a node speaks.
What is made of several of these, or has one cost as a whole, and how events are read back: `composite_events`.

Adjacency: one record of one node is replaced. Written down (`Event.to_dict`), an event has the fields of version 0.1,
in which `rounds` is the count that is accounted, and beside them what that version did not know.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from sottovoce._renamed import old_attributes
from sottovoce.errors import PrivacyError
from sottovoce.privacy.composition import Part
from sottovoce.privacy.profiles import FixedPair, Pair, PoissonPair, ResponsePair

ADJACENCY = "replace one record of one node"


class AccountedEvent(ABC):
    """What the accountant requires of an event."""

    @property
    @abstractmethod
    def noise_multiplier(self) -> float:
        """z: the noise in units of how far one record can move the mean; 0 for none."""

    @property
    @abstractmethod
    def part(self) -> Part:
        """So many rounds of which mechanism; of the one that costs most, where they differ."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """So many rounds of each mechanism, where they differ."""
        return (self.part,)

    @property
    @abstractmethod
    def count(self) -> int:
        """How many rounds are accounted; 0 where the node never spoke."""

    @property
    def silent(self) -> bool:
        """Whether nothing was released."""
        return self.count == 0

    @property
    def slack(self) -> float:
        """The chance that nothing is promised at all, which a δ has to cover besides: see `pairs`."""
        return 0.0

    @property
    @abstractmethod
    def realized(self) -> bool:
        """Whether some data attain the accounted mechanism, so that a lower bound exists, too."""


@dataclass(frozen=True)
class Note:
    """The distribution of the noise that a σ stands for.

    Attributes
    ----------
    law : its name
    realized : whether some data attain the mechanism with that σ, or it is only a bound
    secrets : whether the noise protects only while the seeds that pairs of nodes share stay secret
    coalition : the nodes whose seeds count as known; None where that was not written down
    collusion : k, where the seeds of any k nodes may be known; None where the coalition is the one that is named
    slack : the chance that a graph of secrets drawn at random leaves less of the noise than σ stands for
    """

    law: str
    realized: bool = False
    secrets: bool = False
    coalition: tuple[int, ...] | None = None
    collusion: int | None = None
    slack: float = 0.0


GAUSSIAN = Note("gaussian", realized=True)
SHAPED = Note("shaped")  # what a method releases moves by at most its gain times the subgradient, hardly by so much


def canceled(coalition: tuple[int, ...] | None) -> Note:
    """Noise of which pairs of nodes cancel a part between them; the σ is that of rounds in which everybody speaks."""
    return Note("pairs", secrets=True, coalition=coalition)


def sheltered(collusion: int, exact: bool, slack: float = 0.0) -> Note:
    """The same for any `collusion` colluding nodes; `exact` if σ is what the worst of them leave.

    `slack` is the chance that less is left, if random bits decided which nodes share secrets.
    """
    return Note("pairs", realized=exact, secrets=True, collusion=collusion, slack=slack)


Reader = Callable[[Mapping[str, Any]], "Event"]
"""The reader of saved events: `composite_events.read_event`."""

Levels = tuple[tuple[float, int], ...]
"""(σ, how many rounds have it), the least noise first."""


def envelope(several: Iterable[Levels]) -> Levels:
    """Levels that cost no less than any of these: of every σ as many rounds with no more noise as any of them has.

    Examples
    --------
    >>> envelope([((1.0, 2), (2.0, 5)), ((1.0, 3), (2.0, 1), (3.0, 3))])
    ((1.0, 3), (2.0, 4))
    """
    listed = [levels for levels in several if levels]
    found: list[tuple[float, int]] = []
    before = 0
    for sigma in sorted({sigma for levels in listed for sigma, _ in levels}):
        most = max(sum(count for other, count in levels if other <= sigma) for levels in listed)
        if most > before:
            found.append((sigma, most - before))
        before = max(before, most)
    return tuple(found)


def joint_multiplier(levels: Levels) -> float:
    """Σ 1/σ² over all rounds: Gaussian rounds cost more, the larger this is."""
    return math.fsum(count / sigma**2 if sigma > 0 else math.inf for sigma, count in levels)


@old_attributes
@dataclass(frozen=True)
class Event(AccountedEvent):
    """Everything about node i's participation that an accountant may use."""

    records: int
    """q_i."""
    batch: int
    """b, the divisor."""
    clip: float
    """L, the bound on one record's subgradient."""
    sigma: float
    """σ_i, the standard deviation of the noise on ζ_i in each coordinate, or the equivalent one."""
    rounds: int
    """K_i, in how many rounds the node spoke."""

    sampling: ClassVar[str]
    """How the records of a round are picked, in one word."""
    by_round: ClassVar[bool] = True
    """Whether every round has its own cost, so that as many rounds are accounted as were released."""

    def __post_init__(self) -> None:
        """An event that no release can have is an error, not a number."""
        if not all(isinstance(v, int) for v in (self.records, self.batch, self.rounds)):
            raise PrivacyError(f"{self} is no event of a release: records, batch and rounds are whole numbers")
        if not (1 <= self.batch <= self.records and self.rounds >= 0):
            raise PrivacyError(f"{self} is no event of a release: a batch is part of the records")
        if not (0 < self.clip < math.inf and 0 <= self.sigma < math.inf):
            raise PrivacyError(f"{self} is no event of a release: the clip must be over 0, σ not negative, both finite")

    @property
    @abstractmethod
    def note(self) -> Note:
        """Of the law of the noise."""

    @property
    def law(self) -> str:
        """The name of the law of the noise."""
        return self.note.law

    @property
    def realized(self) -> bool:
        """As the noise is."""
        return self.note.realized

    @property
    def slack(self) -> float:
        """As of the noise."""
        return self.note.slack

    @property
    def rate(self) -> float:
        """γ, the chance that a given record is used in a round that is accounted."""
        return 1.0

    @property
    def reach(self) -> float:
        """How far one record can move the mean: from one end to the other, where the number of records is fixed."""
        return 2.0 * self.clip / self.batch

    @property
    def noise_multiplier(self) -> float:
        """σ over the reach, the only place where this is computed."""
        return self.sigma / self.reach

    @property
    def pair(self) -> Pair:
        """The privacy loss of one accounted round: a Gaussian mechanism without sampling."""
        return FixedPair(self.noise_multiplier)

    @property
    def count(self) -> int:
        """Every round costs."""
        return self.rounds

    @property
    def part(self) -> Part:
        """`count` rounds of `pair`."""
        return Part(self.pair, self.count)

    @property
    def picked(self) -> str:
        """How records were picked, in words."""
        return f"{self.sampling}, {self.batch} of {self.records:,}"

    def after(self, rounds: int) -> Self:
        """The same participation when it had spoken so often; no less than it had cost by then."""
        return replace(self, rounds=rounds)

    def covering(self, others: Sequence["Event"]) -> Self:
        """An event that costs no less than any of these, which differ from it in their counts alone."""
        return replace(self, rounds=max(other.rounds for other in others))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        note, released = self.note, {} if self.by_round else {"released": self.rounds}
        return {
            "sampling": self.sampling,
            "records": self.records,
            "batch": self.batch,
            "clip": self.clip,
            "sigma": self.sigma,
            "rounds": self.count,
            "law": self.law,
            "extra": 0.0,
            **released,
            **({} if note.coalition is None else {"coalition": list(note.coalition)}),
            **({} if note.collusion is None else {"collusion": note.collusion, "exact": note.realized}),
            **({"slack": note.slack} if note.slack else {}),
        }

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        """The fields, from those of `to_dict`; `read` reads an event that is written down within it.

        Version 0.1 saved only the accounted count; if this differs from the number of releases, it is a lower bound on
        it.
        """
        numbers = {name: data[name] for name in ("records", "batch", "clip", "sigma")}
        return numbers | {"rounds": data["rounds"] if cls.by_round else data.get("released", data["rounds"])}


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise, independent from round to round, or noise that comes to that."""

    note: Note = field(default=GAUSSIAN, kw_only=True)
    levels: Levels = field(default=(), kw_only=True)
    """Rounds whose noise differs, `sigma` being the least; empty where all rounds have it."""
    before: "GaussianEvent | None" = field(default=None, kw_only=True)
    """What was released of the same records once, before the first round (`privacy.moments`)."""

    def __post_init__(self) -> None:
        """Levels are those of all rounds."""
        super().__post_init__()
        first = self.before
        if first is not None and not (
            isinstance(first, FullEvent) and (first.records, first.rounds, first.before) == (self.records, 1, None)
        ):
            raise PrivacyError(f"{self} is no event of a release: what came before is one release of all its records")
        sigmas, counts = [sigma for sigma, _ in self.levels], [count for _, count in self.levels]
        if self.levels and not (
            len(sigmas) > 1
            and sigmas[0] == self.sigma
            and all(a < b < math.inf for a, b in itertools.pairwise(sigmas))
            and all(isinstance(count, int) and count > 0 for count in counts)
            and sum(counts) == self.rounds
        ):
            raise PrivacyError(f"{self} is no event of a release: its levels of noise are not those of its rounds")

    @property
    def realized(self) -> bool:
        """As the noise is, where it is the same in all rounds; what no data meets in both is not known from below."""
        return self.note.realized and not self.levels and self.before is None

    @property
    def silent(self) -> bool:
        """Neither in a round nor before."""
        return self.count == 0 and self.before is None

    @property
    def parts(self) -> tuple[Part, ...]:
        """One for each level, and what came before."""
        first = () if self.before is None else self.before.parts
        if not self.levels:
            return (*first, self.part)
        return (*first, *(replace(self, sigma=s, rounds=k, levels=()).part for s, k in self.levels))

    def leveled(self, levels: Levels) -> Self:
        """The same participation with this noise in its rounds."""
        rounds, sigma = sum(count for _, count in levels), levels[0][0] if levels else self.sigma
        return replace(self, sigma=sigma, rounds=rounds, levels=levels if len(levels) > 1 else ())

    def after(self, rounds: int) -> Self:
        """At worst the rounds with the least noise came first."""
        if not self.levels or rounds >= self.rounds:
            return replace(self, rounds=rounds) if not self.levels else self
        kept, left = [], rounds
        for sigma, count in self.levels:
            if left > 0:
                kept.append((sigma, min(count, left)))
            left -= count
        return self.leveled(tuple(kept)) if kept else replace(self, rounds=0, levels=())

    def covering(self, others: Sequence[Event]) -> Self:
        """The most rounds of every level."""
        same_kind = [other for other in others if isinstance(other, GaussianEvent)]
        if not any(other.levels for other in same_kind):
            return replace(self, rounds=max(other.rounds for other in same_kind))
        return self.leveled(envelope(other.levels or ((other.sigma, other.rounds),) for other in same_kind))

    def to_dict(self) -> dict[str, Any]:
        """With the levels, and what came before, where there are any."""
        levels = {"levels": [list(level) for level in self.levels]} if self.levels else {}
        return super().to_dict() | levels | ({} if self.before is None else {"before": self.before.to_dict()})

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        coalition, k = data.get("coalition"), data.get("collusion")
        pairs = canceled(None if coalition is None else tuple(coalition))
        if k is not None:
            if type(k) is not int or k < 0 or type(data["exact"]) is not bool:
                raise PrivacyError(f"{dict(data)} is no event of a release: so many nodes cannot collude")
            slack = data.get("slack", 0.0)
            if not isinstance(slack, float) or not 0 <= slack < 1:
                raise PrivacyError(f"{dict(data)} is no event of a release: its slack is a probability")
            pairs = sheltered(k, data["exact"], slack)
        note = {note.law: note for note in (GAUSSIAN, SHAPED, pairs)}[data["law"]]
        levels = tuple((float(sigma), count) for sigma, count in data.get("levels", ()))
        before = None if data.get("before") is None else read(data["before"])
        return super()._read(data, read) | {"note": note, "levels": levels, "before": before}


@dataclass(frozen=True)
class FixedEvent(GaussianEvent):
    """b distinct records a round, every set of b equally likely.

    Examples
    --------
    >>> event = FixedEvent(records=20000, batch=1, clip=1.0, sigma=0.9, rounds=60000)
    >>> event.rate, event.noise_multiplier, event.count
    (5e-05, 0.45, 60000)
    """

    sampling: ClassVar[str] = "fixed"

    @property
    def rate(self) -> float:
        """b/q."""
        return self.batch / self.records

    @property
    def pair(self) -> Pair:
        """Sampled without replacement."""
        return FixedPair(self.noise_multiplier, self.rate)


@dataclass(frozen=True)
class PoissonEvent(GaussianEvent):
    """Every record in or out on its own, with probability b/q."""

    sampling: ClassVar[str] = "poisson"

    @property
    def rate(self) -> float:
        """b/q."""
        return self.batch / self.records

    @property
    def reach(self) -> float:
        """From the mean without it: the pair to compare is a record against another one, each in or out on its own."""
        return self.clip / self.batch

    @property
    def pair(self) -> Pair:
        """Sampled independently."""
        return PoissonPair(self.noise_multiplier, self.rate)


@dataclass(frozen=True)
class FullEvent(GaussianEvent):
    """All records in every round."""

    sampling: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        """A full batch is all of them."""
        super().__post_init__()
        if self.batch != self.records:
            raise PrivacyError(f"{self} is no event of a release: a full batch holds all records")

    def covering(self, others: Sequence[Event]) -> Self:
        """The one that costs most: Gaussian rounds compose by Σ 1/σ²."""
        same_kind = [other for other in others if isinstance(other, FullEvent)]
        if not any(other.levels for other in same_kind):
            return super().covering(others)
        most = max(same_kind, key=lambda other: joint_multiplier(other.levels or ((other.sigma, other.rounds),)))
        return replace(self, sigma=most.sigma, rounds=most.rounds, levels=most.levels)

    @property
    def picked(self) -> str:
        """There is nothing to pick."""
        return "all records"


@dataclass(frozen=True)
class ProductsEvent(FullEvent):
    """The mean over all records of c cᵀ, a matrix whose length is ‖c‖² ≤ `clip`.

    Such matrices are at right angles at the most, never opposite: so one record moves their sum by √2 of the bound, not
    by twice that (`statistics` has the proof).

    Examples
    --------
    >>> event = ProductsEvent(records=100, batch=100, clip=2.0, sigma=0.1, rounds=1)
    >>> round(event.reach, 9)
    0.028284271
    """

    sampling: ClassVar[str] = "products"

    @property
    def reach(self) -> float:
        """√2 of the bound over the number of records; rounded up."""
        return math.nextafter(math.sqrt(2.0) * self.clip / self.batch, math.inf)

    @property
    def picked(self) -> str:
        """There is nothing to pick."""
        return "products of all records' numbers"


@dataclass(frozen=True)
class _InOrder(Event):
    """Batches in a fixed order, one a round: no chance in it, so that a record costs each time that it is used."""

    uses: int = field(kw_only=True)
    """How often the record was used that was used most."""
    sampling: ClassVar[str] = "cyclic"
    by_round: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Between even turns over all batches, and always the same batch."""
        super().__post_init__()
        if getattr(self, "levels", ()):
            raise PrivacyError(f"{self} is no event of a release: records in a fixed order have one noise")
        least = math.ceil(self.rounds / self.batches)
        if not (isinstance(self.uses, int) and least <= self.uses <= self.rounds):
            raise PrivacyError(
                f"{self} is no event of a release: in {self.rounds} rounds over {self.batches} batches a record is "
                f"used {least} to {self.rounds} times"
            )

    @property
    def batches(self) -> int:
        """Rounds in one pass over the records."""
        return math.ceil(self.records / self.batch)

    @property
    def count(self) -> int:
        """A round without the record says nothing about it."""
        return self.uses

    def after(self, rounds: int) -> Self:
        """At worst the record was in all of them."""
        return replace(self, rounds=rounds, uses=min(self.uses, rounds))

    def covering(self, others: Sequence[Event]) -> Self:
        """The most uses of any."""
        same_kind = [other for other in others if isinstance(other, _InOrder)]
        return replace(self, rounds=max(o.rounds for o in same_kind), uses=max(o.uses for o in same_kind))

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        return super()._read(data, read) | {"uses": data["rounds"]}


@dataclass(frozen=True)
class CyclicEvent(_InOrder, GaussianEvent):
    """Records in a fixed order, with Gaussian noise.

    Examples
    --------
    >>> event = CyclicEvent(records=100, batch=10, clip=1.0, sigma=0.5, rounds=30, uses=5)
    >>> event.batches, event.count
    (10, 5)
    """


@dataclass(frozen=True)
class TreeEvent(_InOrder):
    """Records in a fixed order, with Gaussian noise on the prefix sums of each pass, along a binary tree a pass.

    A record is in one leaf a pass and in every node above it. Not every node is released, so that this is a bound.
    """

    @property
    def note(self) -> Note:
        """Of the tree."""
        return Note("tree")

    @property
    def height(self) -> int:
        """Of the path from a leaf to the root."""
        return math.ceil(math.log2(self.batches)) + 1

    @property
    def count(self) -> int:
        """So many Gaussian mechanisms."""
        return self.uses * self.height

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        height = cls(data["records"], data["batch"], 1.0, 1.0, 0, uses=0).height
        uses, rest = divmod(data["rounds"], height)
        if rest:
            raise PrivacyError(f"{data['rounds']} mechanisms are no whole number of paths of {height} nodes of a tree")
        return super()._read(data, read) | {"uses": uses, "rounds": data.get("released", uses)}


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise on all records: one mechanism with the ε of all rounds together, for which clip and σ are given.

    L here is in the L1 norm, √m times the one in the L2 norm, which is hardly ever reached: a bound.
    """

    sampling: ClassVar[str] = "full"
    by_round: ClassVar[bool] = False

    @property
    def note(self) -> Note:
        """Of Laplace."""
        return Note("laplace")

    @property
    def pair(self) -> Pair:
        """What no ε-DP mechanism exceeds."""
        return ResponsePair(self.noise_multiplier)

    @property
    def count(self) -> int:
        """Once for all rounds."""
        return min(self.rounds, 1)

    @property
    def picked(self) -> str:
        """There is nothing to pick."""
        return "all records"


@dataclass(frozen=True)
class _Planned(AccountedEvent):
    event: Event
    activity: float
    """The probability that the node speaks in a round."""

    def __post_init__(self) -> None:
        """A probability."""
        if not 0 < self.activity <= 1:
            raise PrivacyError(f"the activity of a node is a probability over 0 and at most 1, not {self.activity}")

    @property
    def noise_multiplier(self) -> float:
        """The event's."""
        return self.event.noise_multiplier

    @property
    def count(self) -> int:
        """Of all rounds, silent ones too."""
        return self.event.count

    @property
    def realized(self) -> bool:
        """As the event."""
        return self.event.realized


@dataclass(frozen=True)
class RandomParticipation(_Planned):
    """An event each of whose rounds happens with a probability, and is seen to: a sleeping round releases nothing."""

    @property
    def part(self) -> Part:
        """The mixture of the two."""
        return replace(self.event.part, activity=self.activity)


@dataclass(frozen=True)
class Hidden(_Planned):
    """The same if nobody could see who spoke: every round is a release at the rate activity/q. A what-if.

    Only for single records: when i is silent another node's message takes its place, and that one may be 2L away, not
    2L/b.
    """

    def __post_init__(self) -> None:
        """What else has no known cost."""
        super().__post_init__()
        if not isinstance(self.event, FixedEvent) or self.event.batch != 1:
            raise PrivacyError(
                "hidden participation can be accounted for one record a round only (sampling fixed, batch 1)"
            )

    @property
    def part(self) -> Part:
        """At a smaller rate."""
        return Part(FixedPair(self.noise_multiplier, self.event.rate * self.activity), self.count)
