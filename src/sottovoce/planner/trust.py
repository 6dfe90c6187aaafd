"""Trust: whom the owners of the records trust, in their own words, and which adversary follows from that.

`nobody`: every message may be read by anybody. `centre`: one place holds all records, and the model is all that leaves
it. A guarantee is against an adversary; trust is how people choose one.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from sottovoce.errors import SpecError
from sottovoce.privacy.release import Adversary, Central, Transcript


@dataclass(frozen=True)
class Trust:
    """Whom to trust; ``str()`` is the word for it."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """As it is chosen."""
        return self.name

    def adversary(self, nodes: int) -> Adversary:
        """Who is watching so many nodes."""
        raise NotImplementedError

    def words(self, nodes: int) -> str:
        """What is promised, in a clause."""
        raise NotImplementedError


@dataclass(frozen=True)
class Nobody(Trust):
    """Each node hides its own records by itself."""

    name: ClassVar[str] = "nobody"

    def adversary(self, nodes: int) -> Adversary:
        """Who reads everything."""
        return Transcript()

    def words(self, nodes: int) -> str:
        """Of this."""
        return "anybody may read every message, and all other nodes may be curious"


@dataclass(frozen=True)
class Centre(Trust):
    """One place holds all records."""

    name: ClassVar[str] = "centre"

    def adversary(self, nodes: int) -> Adversary:
        """Who sees the model."""
        if nodes > 1:
            raise SpecError(
                f"a trusted centre is one node that holds all records, but here are {nodes} nodes, which would see one "
                "another's messages; bring the records together, or trust nobody or a majority of the nodes"
            )
        return Central()

    def words(self, nodes: int) -> str:
        """Of this."""
        return "one trusted place holds all records, and only the final model is seen"


KINDS = {kind.name: kind for kind in (Nobody, Centre)}


def read_trust(value: Any) -> Trust:
    """Whom to trust, from a word or a number.

    Examples
    --------
    >>> read_trust("centre").words(1)
    'one trusted place holds all records, and only the final model is seen'
    >>> read_trust("everybody")
    Traceback (most recent call last):
    sottovoce.errors.SpecError: trust must be one of nobody, centre, not 'everybody'
    """
    if isinstance(value, Trust):
        return value
    if isinstance(value, str) and value in KINDS:
        return KINDS[value]()
    raise SpecError(f"trust must be one of {', '.join(KINDS)}, not {value!r}")
