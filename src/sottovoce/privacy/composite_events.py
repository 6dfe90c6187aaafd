"""Events that are made of others, or have one cost as a whole; and every event as it was written down.

`JointEvent`: several releases from the same records. `SearchEvent`: the best of a random number of runs.
`ObjectiveEvent`: the minimizer of a noisy objective. The last two are `WholeEvent`s: they compose with nothing.
`read_event` reads what `Event.to_dict` wrote, of this version and of 0.1.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sottovoce import limits
from sottovoce.errors import PrivacyError
from sottovoce.privacy import objective
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import (
    GAUSSIAN,
    SHAPED,
    CyclicEvent,
    Event,
    FixedEvent,
    FullEvent,
    LaplaceEvent,
    Note,
    PoissonEvent,
    ProductsEvent,
    Reader,
    TreeEvent,
    canceled,
)


class WholeEvent(Event):
    """An event with a cost of its own, which composes with nothing."""

    @abstractmethod
    def bounds(self, delta: float) -> tuple[float, float]:
        """ε at δ, and a cross-check."""

    @abstractmethod
    def risk(self, fpr: float) -> float:
        """The largest share of true alarms that an attacker can have at a share of false ones."""

    @abstractmethod
    def needed_multiplier(self, epsilon: float, delta: float) -> float:
        """The least z with which an event like this one is (ε, δ)-DP."""


@dataclass(frozen=True)
class ObjectiveEvent(WholeEvent):
    """The minimizer of an objective with Gaussian noise on its linear term (see `objective`)."""

    extra: float = field(kw_only=True)
    """ε that no noise covers."""
    sampling: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        """The curvature of a record always costs."""
        super().__post_init__()
        if not 0 < self.extra < math.inf:
            raise PrivacyError(f"{self} is no event of a release: the extra ε of a perturbed objective is over 0")

    @property
    def note(self) -> Note:
        """Of the objective."""
        return Note("objective")

    @property
    def part(self) -> Part:
        """There is none."""
        raise PrivacyError(
            "a perturbed objective is accounted as a whole and composes with nothing: what it and others cost together "
            "is not known; use these records once, or another method"
        )

    def bounds(self, delta: float) -> tuple[float, float]:
        """By the formula."""
        return objective.bounds(self.noise_multiplier, self.extra, delta)

    def risk(self, fpr: float) -> float:
        """By the same."""
        return objective.risk(self.noise_multiplier, self.extra, fpr)

    def needed_multiplier(self, epsilon: float, delta: float) -> float:
        """By its inverse."""
        return objective.needed_multiplier(self.extra, epsilon, delta)

    def to_dict(self) -> dict[str, Any]:
        """With the extra ε."""
        return super().to_dict() | {"extra": self.extra}

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        return super()._read(data, read) | {"extra": data["extra"]}


@dataclass(frozen=True)
class JointEvent(Event):
    """Several releases from the same records, all of them settled before the first; the accountant composes them.

    Its own numbers are those of the first that let something out.
    """

    releases: tuple[Event, ...] = field(kw_only=True)
    sampling: ClassVar[str] = "several"

    def __post_init__(self) -> None:
        """At least one that spoke, and no joint one among them."""
        super().__post_init__()
        plain = not any(isinstance(event, JointEvent | WholeEvent) for event in self.releases)
        if not plain or self.silent:
            raise PrivacyError(f"{self} is no event of a release: it is of one or more plain releases")

    @classmethod
    def of(cls, releases: Sequence[Event]) -> Event:
        """All of them as one event; a single one is itself, and so is silence in all of them.

        Examples
        --------
        >>> one = FullEvent(100, 100, 1.0, 0.2, 50)
        >>> JointEvent.of([one]) is one, JointEvent.of([one, one]).picked
        (True, '2 releases')
        """
        first = next((event for event in releases if not event.silent), releases[0])
        if len(releases) == 1 or first.silent:
            return first
        return cls(first.records, first.batch, first.clip, first.sigma, first.rounds, releases=tuple(releases))

    @property
    def note(self) -> Note:
        """Of all of them; realized where they all are."""
        found = [event.note for event in self.releases]
        secret = {(note.coalition, note.collusion) for note in found if note.secrets}
        if len(secret) > 1:
            raise PrivacyError(f"{self} is no event of a release: one coalition at a time")
        lost = math.fsum(note.slack for note in found)
        return Note(
            "joint",
            all(event.realized for event in self.releases),
            bool(secret),
            *(secret or {(None, None)}).pop(),
            slack=lost,
        )

    @property
    def silent(self) -> bool:
        """Only if all of them are: who is silent in the first may speak in another, or have spoken before."""
        return all(event.silent for event in self.releases)

    @property
    def noise_multiplier(self) -> float:
        """Of the least noise."""
        return min(event.noise_multiplier for event in self.releases if not event.silent)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of all of them."""
        return tuple(part for event in self.releases if not event.silent for part in event.parts)

    @property
    def part(self) -> Part:
        """Return the event with the least noise; pure ones come last."""
        return min(self.parts, key=lambda part: (part.pair.bounded, part.pair.multiplier))

    @property
    def picked(self) -> str:
        """How many."""
        return f"{len(self.releases)} releases"

    def to_dict(self) -> dict[str, Any]:
        """With all of them, which say whatever else there is to say."""
        own = {
            name: value
            for name, value in super().to_dict().items()
            if name not in ("coalition", "collusion", "exact", "slack")
        }
        return own | {"releases": [event.to_dict() for event in self.releases]}

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        return super()._read(data, read) | {"releases": tuple(read(event) for event in data["releases"])}


@dataclass(frozen=True)
class SearchEvent(WholeEvent):
    """The best of a random number of runs, each of a plan picked by chance (see `search`); an upper bound.

    Its own numbers are those of the first plan.
    """

    runs: tuple[Event, ...] = field(kw_only=True)
    """The releases of one run of each plan."""
    eta: float = field(kw_only=True)
    gamma: float = field(kw_only=True)
    sampling: ClassVar[str] = "search"

    def __post_init__(self) -> None:
        """Plans, and a law of how many runs there are."""
        super().__post_init__()
        if not self.runs or any(isinstance(event, WholeEvent) or event.slack for event in self.runs):
            raise PrivacyError(f"{self} is no event of a release: a search is among plain releases")
        if not (-1 < self.eta < math.inf and 0 < self.gamma < 1):
            raise PrivacyError(f"{self} is no event of a release: η is over −1, and γ a probability")

    @classmethod
    def of(cls, runs: Sequence[Event], eta: float, gamma: float) -> "SearchEvent":
        """A search among these."""
        first = runs[0]
        numbers = first.records, first.batch, first.clip, first.sigma, first.rounds
        return cls(*numbers, runs=tuple(runs), eta=float(eta), gamma=float(gamma))

    @property
    def note(self) -> Note:
        """Of the search."""
        return Note("search")

    @property
    def noise_multiplier(self) -> float:
        """Of the least noise."""
        return min(event.noise_multiplier for event in self.runs)

    @property
    def part(self) -> Part:
        """There is none."""
        raise PrivacyError(
            "a search is accounted as a whole and composes with nothing: what it and others cost together is not "
            "known; use these records once"
        )

    @property
    def picked(self) -> str:
        """Among how many plans."""
        return f"the best of a random number of runs of {len(self.runs)} plans"

    @property
    def _parts(self) -> tuple[tuple[Part, ...], ...]:
        return tuple(dict.fromkeys(event.parts for event in self.runs))

    def bounds(self, delta: float) -> tuple[float, float]:
        """By the theorem."""
        from sottovoce.privacy import search  # it imports the accountant, which imports events

        return search.bounds(self._parts, self.eta, self.gamma, delta)

    def risk(self, fpr: float) -> float:
        """By the same."""
        from sottovoce.privacy import search

        return search.risk(self._parts, self.eta, self.gamma, fpr)

    def needed_multiplier(self, epsilon: float, delta: float) -> float:
        """A search is not calibrated as a whole, its runs are."""
        raise PrivacyError("the runs of a search are calibrated one by one; see `search.run_multiplier`")

    def to_dict(self) -> dict[str, Any]:
        """With all plans."""
        runs = [event.to_dict() for event in self.runs]
        return super().to_dict() | {"runs": runs, "eta": self.eta, "gamma": self.gamma}

    @classmethod
    def _read(cls, data: Mapping[str, Any], read: Reader) -> dict[str, Any]:
        runs = tuple(read(event) for event in data["runs"])
        return super()._read(data, read) | {"runs": runs, "eta": data["eta"], "gamma": data["gamma"]}


_TYPES: dict[tuple[str, str], type[Event]] = {
    **{
        (kind.sampling, note.law): kind
        for kind in (FixedEvent, PoissonEvent, FullEvent, CyclicEvent, ProductsEvent)
        for note in (GAUSSIAN, SHAPED, canceled(None))
    },
    ("full", "laplace"): LaplaceEvent,
    ("cyclic", "tree"): TreeEvent,
    ("full", "objective"): ObjectiveEvent,
    ("several", "joint"): JointEvent,
    ("search", "search"): SearchEvent,
}


def read_event(data: Mapping[str, Any]) -> Event:
    """Read `Event.to_dict` back, of this version or of 0.1; what is not known is an error, never a guess.

    Examples
    --------
    >>> event = PoissonEvent(1000, 64, 1.0, 0.1, 50)
    >>> read_event(event.to_dict()) == event
    True
    """
    try:
        given = {"law": GAUSSIAN.law, "extra": 0.0, **data}
        kind = _TYPES.get((given["sampling"], given["law"]))
        if kind is None:
            raise PrivacyError(f"there is no way to account for {given}: it is no event of this version")
        for name, most in (("records", limits.RECORDS), ("rounds", limits.ROUNDS), ("batch", limits.RECORDS)):
            if name in given:
                limits.check_count(f"'{name}' of an event", given[name], most, 0, PrivacyError)
        event = kind(**kind._read(given, read_event))
        written = event.to_dict()
        odd = [name for name in given if name not in written or written[name] != given[name]]
        if odd:
            raise PrivacyError(f"{given} is no event of a release: '{odd[0]}' does not go with the law '{event.law}'")
        return event
    except PrivacyError:  # says it already
        raise
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise PrivacyError(f"{data!r} is no event of a release ({type(error).__name__})") from None
