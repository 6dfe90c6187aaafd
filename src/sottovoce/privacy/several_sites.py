"""What a run costs a person whose records are at several sites: no identifiers are compared, any sites may be theirs.

A statement is about the records of one node. A person with records at k nodes is in k releases a round, and how they
add up depends on the noise.

*Independent noise.* The k nodes' releases are k mechanisms: their events compose.

*Noise that pairs of nodes share* is one noise for all. Let Σ be its covariance among honest nodes, and v_i the move of
node i's release after Σ^(−1/2). A node's event says ‖v_i‖ ≤ 1/z, so that all k move the view by ‖Σ v_i‖ ≤ k/z; where
what pairs share is without limit, Σ hides nothing but the sum, and that is attained. With sampling the person is in a
round with probability 1 − Π(1 − γ_i), and in b ≤ k of its batches: a move of b/k times as much is a function of the
largest one (shrink what is seen, add noise), whatever b is. So a round is dominated by one that uses the person at that
rate, and moves by k/z.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import AccountedEvent, Event, GaussianEvent
from sottovoce.privacy.profiles import FixedPair, PoissonPair


@dataclass(frozen=True)
class SharedNoise(AccountedEvent):
    """The records of one person at several nodes that share their noise: at most so much, whichever nodes these are.

    Attributes
    ----------
    events : of all nodes
    sites : at how many of them the person's records are

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> SharedNoise((FullEvent(1, 1, 0.5, 4.0, 1),), 2).noise_multiplier
    2.0
    """

    events: tuple[Event, ...]
    sites: int

    @property
    def parts(self) -> tuple[Part, ...]:
        """The costliest rounds of all nodes together, of each kind."""
        return tuple(self._together(parts) for parts in zip(*(event.parts for event in self.events), strict=True))

    def _together(self, parts: Sequence[Part]) -> Part:
        unused = (1.0 - max(getattr(part.pair, "rate", 1.0) for part in parts)) ** self.sites
        multiplier = min(part.pair.multiplier for part in parts) / self.sites
        pair = replace(parts[0].pair, multiplier=multiplier, rate=1.0 - unused)  # type: ignore[call-arg]
        return replace(parts[0], pair=pair, count=max(part.count for part in parts))

    @property
    def part(self) -> Part:
        """The costliest one."""
        return min(self.parts, key=lambda part: part.pair.multiplier)

    @property
    def noise_multiplier(self) -> float:
        """Of that."""
        return self.part.pair.multiplier

    @property
    def count(self) -> int:
        """Of all rounds."""
        return sum(part.count for part in self.parts)

    @property
    def realized(self) -> bool:
        """It is a bound."""
        return False

    @property
    def slack(self) -> float:
        """The random graph was drawn once for all sites."""
        return max(event.slack for event in self.events)


def epsilon_at_sites(groups: Sequence[tuple[Event, int]], sites: int, delta: float) -> float | None:
    """ε of a person with records at so many nodes, whichever these are; None where no bound is known.

    Parameters
    ----------
    groups : events, and how many nodes each is of
    sites : at how many nodes the person's records are
    delta : of the guarantee

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent, sheltered
    >>> one = FullEvent(1, 1, 0.5, 3.7306, 1)
    >>> round(epsilon_at_sites([(one, 3)], 2, 1e-5), 2)
    1.47
    >>> round(epsilon_at_sites([(replace(one, note=sheltered(0, False)), 3)], 2, 1e-5), 2)
    2.15
    """
    if sum(count for _, count in groups) < sites:
        return None
    spoken = [(event, count) for event, count in groups if not event.silent]
    events = tuple(event for event, _ in spoken)
    if not events or not all(isinstance(event, GaussianEvent) and event.noise_multiplier > 0 for event in events):
        return None
    shared = [event.note.secrets for event in events]
    kinds = {tuple(type(part.pair) for part in event.parts) for event in events}
    same_kind = len(kinds) == 1 and set(next(iter(kinds))) <= {FixedPair, PoissonPair}
    if not any(shared):
        choices = _choices(spoken, sites)
        if choices is not None:
            return max(compute_epsilon(list(chosen), delta, lower=False).epsilon for chosen in choices)
        return compute_epsilon([SharedNoise(events, 1)] * sites, delta, lower=False).epsilon if same_kind else None
    if not all(shared) or not same_kind:
        return None
    return compute_epsilon([SharedNoise(events, sites)], delta, lower=False).epsilon


MOST_CHOICES = 40
"""Choices of nodes that are tried; with more of them each node counts as the costliest of all, part by part."""


def _choices(groups: Sequence[tuple[Event, int]], sites: int) -> set[tuple[Event, ...]] | None:
    """The events of so many nodes, in all ways that may be the worst; None where these are too many.

    Which of two events costs more may depend on what it is composed with: that of the larger ε alone need not. So all
    are tried, but those that enough other nodes dominate.
    """
    merged: dict[Event, int] = {}
    for event, count in groups:
        merged[event] = merged.get(event, 0) + count
    needed, each = list[Event](), list(merged.items())
    for place, (event, count) in enumerate(each):
        before = (other for one, other in each[:place] if _dominates(one, event))
        after = (other for one, other in each[place:] if _dominates(one, event) and not _dominates(event, one))
        needed += [event] * min(count, max(0, sites - sum(before) - sum(after)))
    if math.comb(len(needed), sites) > MOST_CHOICES**2:
        return None
    found = set(itertools.combinations(needed, sites))
    return found if len(found) <= MOST_CHOICES else None


def _dominates(one: Event, other: Event) -> bool:
    """Whether an event shows at least as much as another, in whatever company."""
    if [type(part.pair) for part in one.parts] != [type(part.pair) for part in other.parts]:
        return False
    return all(
        mine.count >= its.count
        and mine.pair.multiplier <= its.pair.multiplier
        and getattr(mine.pair, "rate", 1.0) >= getattr(its.pair, "rate", 1.0)
        for mine, its in zip(one.parts, other.parts, strict=True)
    )
