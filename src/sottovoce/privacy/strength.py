"""Which of two adversaries is the stronger one: a guarantee against it is a guarantee against the other, too.

A sum of ε holds against one adversary only if each of its terms does. `transcript` is the strongest: it sees every
message and may have the help of all other nodes. `secret_pairs(k)` is stronger the larger k is. `central`, who sees the
final model only, is the weakest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sottovoce.errors import PrivacyError
from sottovoce.privacy.events import Event
from sottovoce.privacy.release import Adversary, Central, Release, SecretPairs, Transcript


class Observer(NamedTuple):
    """An adversary, and the nodes that help it where a run named them."""

    adversary: Adversary
    coalition: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """Its name."""
        return str(self.adversary)


def observer(adversary: Adversary, events: Iterable[Event]) -> Observer:
    """The adversary that these events of one run are accounted against."""
    notes = [event.note for event in events]
    if isinstance(adversary, SecretPairs) and notes:
        counts = {note.collusion for note in notes}
        if None not in counts:
            return Observer(SecretPairs(max(min(count for count in counts if count is not None), 1)))
        return Observer(adversary, next((note.coalition for note in notes if note.coalition is not None), None))
    return Observer(adversary)


def covers(one: Observer, other: Observer) -> bool:
    """Return whether a guarantee against `one` is a guarantee against `other`.

    Examples
    --------
    >>> one, two, all_of_them = Observer(SecretPairs(1)), Observer(SecretPairs(2)), Observer(Transcript())
    >>> covers(two, one), covers(one, two), covers(all_of_them, two), covers(one, all_of_them)
    (True, False, True, False)
    """
    mine, its = one.adversary, other.adversary
    if one == other or isinstance(mine, Transcript) or isinstance(its, Central):
        return True
    if isinstance(mine, SecretPairs) and isinstance(its, SecretPairs):
        return isinstance(mine.k, int) and isinstance(its.k, int) and mine.k >= its.k
    return False


def strongest(observers: Sequence[Observer]) -> Observer | None:
    """The one that is at least as strong as all others; None where they cannot be compared."""
    return next((one for one in observers if all(covers(one, other) for other in observers)), None)


def weakest(observers: Sequence[Observer]) -> Observer | None:
    """The one against which all guarantees hold; None where they cannot be compared."""
    return next((one for one in observers if all(covers(other, one) for other in observers)), None)


def release_against(release: Release, target: Observer) -> Release:
    """The same release, accounted against another adversary; against `transcript` all other nodes collude.

    Noise that is independent at every node is the same against everybody.
    """
    from sottovoce.privacy.pairs import Pairs  # only loaded by those who need it

    before = None if release.before is None else release_against(release.before, target)
    if not isinstance(release.law, Pairs):
        return replace(release, before=before)
    others, adversary = release.law.n - 1, target.adversary
    k = getattr(adversary, "k", None)
    if isinstance(adversary, Transcript):
        k = others
    if not isinstance(k, int):
        raise PrivacyError(f"noise that nodes share is not accounted against '{target}'; use 'transcript'")
    return replace(release, law=release.law.against(min(k, others)), before=before)
