"""Trust: whom the owners of the records trust, in their own words, and which adversary follows from that.

`nobody`: every message may be read by anybody, and all other nodes be curious. A number k, or `majority`: every message
may be read, and up to k nodes, fewer than half of them, may collude; the others keep the secrets that they
share in pairs. `center`: one place holds all records, and the model is all that leaves it. A guarantee is against an
adversary; trust is how people choose one.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.planner.choose import PublicInputs, choose
from sottovoce.privacy.release import Adversary, Central, SecretPairs, Transcript


@dataclass(frozen=True)
class Trust:
    """Whom to trust; ``str()`` is the word for it."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """As it is chosen."""
        return self.name

    def adversary(self, nodes: int) -> Adversary:
        """The adversary of a run of so many nodes."""
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
class Majority(Trust):
    """Fewer than half of the nodes collude."""

    name: ClassVar[str] = "majority"

    def adversary(self, nodes: int) -> Adversary:
        """Who has the help of so many."""
        return SecretPairs("majority")

    def words(self, nodes: int) -> str:
        """Of this."""
        k = SecretPairs("majority").among(nodes).k
        return f"anybody may read every message, and {k} of {nodes} nodes may collude: fewer than half"


@dataclass(frozen=True)
class AllBut(Trust):
    """Up to k nodes collude, whichever."""

    k: int

    def __post_init__(self) -> None:
        """Every node is curious, at the least."""
        if self.k < 1:
            raise SpecError(
                f"at least 1 node may be curious, not {self.k}; trust 'nobody', a number of nodes or a 'center'"
            )

    def __str__(self) -> str:
        """The number."""
        return str(self.k)

    def adversary(self, nodes: int) -> Adversary:
        """Who has the help of any k."""
        return SecretPairs(self.k)

    def words(self, nodes: int) -> str:
        """Of this."""
        return f"anybody may read every message, and any {self.k} of {nodes} nodes may collude"


@dataclass(frozen=True)
class Center(Trust):
    """One place holds all records."""

    name: ClassVar[str] = "centre"  # saved plans have the British spelling

    def adversary(self, nodes: int) -> Adversary:
        """Who sees the model."""
        if nodes > 1:
            raise SpecError(
                f"a trusted center is one node that holds all records, but here are {nodes} nodes, which would see one "
                "another's messages; bring the records together, or trust nobody or a majority of the nodes"
            )
        return Central()

    def words(self, nodes: int) -> str:
        """Of this."""
        return "one trusted place holds all records, and only the final model is seen"


KINDS: dict[str, type[Trust]] = {kind.name: kind for kind in (Nobody, Majority, Center)}


def read_trust(value: Any) -> Trust:
    """Whom to trust, from a word or a number.

    Examples
    --------
    >>> read_trust("center").words(1)
    'one trusted place holds all records, and only the final model is seen'
    >>> read_trust("center") == read_trust("centre")
    True
    >>> read_trust("3") == read_trust(3), str(read_trust(3).adversary(20))
    (True, 'secret_pairs(3)')
    >>> read_trust("everybody")
    Traceback (most recent call last):
    sottovoce.errors.SpecError: trust must be nobody, majority, center or the number of nodes that may collude, not ...
    """
    if isinstance(value, Trust):
        return value
    if value == "center":
        value = Center.name
    if isinstance(value, str) and value in KINDS:
        return KINDS[value]()
    number = value.isdecimal() if isinstance(value, str) else isinstance(value, int | np.integer)
    if number and not isinstance(value, bool):
        return AllBut(int(value))
    raise SpecError(f"trust must be nobody, majority, center or the number of nodes that may collude, not {value!r}")


def _spare(adversary: Adversary, n: int) -> int:
    """How many of n nodes may be lost, for two honest ones to stay."""
    k = adversary.k if isinstance(adversary, SecretPairs) else 0
    return n - 2 - (k if isinstance(k, int) else 0)


OF_MANY = ("activation", "mixing", "averaging", "correct")
"""Settings that one node has no use for."""


class Offer(NamedTuple):
    """What one choice of whom to trust would give."""

    trust: str
    words: str
    loss: float
    """Predicted loss of accuracy."""
    noise: float
    """c: the noise that is left in each coordinate of the mean gradient."""


def offers(inputs: PublicInputs, **fixed: Any) -> list[Offer]:
    """What each choice would give: for two nodes or more also a center, if all records were brought there.

    Examples
    --------
    >>> for offer in offers(PublicInputs((1600,) * 20, 123, 1.0, 1e-5)):
    ...     print(offer.trust, offer.words)
    nobody anybody may read every message, and all other nodes may be curious
    1 anybody may read every message, and any 1 of 20 nodes may collude
    majority anybody may read every message, and 9 of 20 nodes may collude: fewer than half
    centre one trusted place holds all records, and only the final model is seen
    """
    n = inputs.n
    kinds: list[Trust] = [Nobody(), AllBut(1), Majority()] if n > 2 else [Nobody()]
    kinds = [kind for kind in kinds if inputs.may_lose <= _spare(kind.adversary(n).among(n), n)]
    tried = [(trust, replace(inputs, adversary=trust.adversary(n)), fixed) for trust in kinds]
    alone = {name: value for name, value in fixed.items() if name not in OF_MANY}
    one = replace(inputs, sizes=(sum(inputs.sizes),), graph="complete", adversary=Central(), may_lose=0)
    tried.append((Center(), one, alone))
    found = []
    for trust, these, settings in tried:
        choice = choose(these, **settings)
        found.append(Offer(str(trust), trust.words(n), choice.predicted, float(choice.alternatives[0]["noise"])))
    return found
