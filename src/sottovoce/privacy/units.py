"""The unit of privacy: whose data a guarantee is about. One record, or one person with all of their rows at a node."""

from dataclasses import dataclass

from sottovoce.errors import PrivacyError
from sottovoce.privacy.release import ADJACENCY

ASSUMPTIONS = (
    "every node runs this software unchanged and keeps its records and its random numbers to itself",
    "the schedule of who speaks when was drawn without looking at the data, and is public",
)
"""On what every guarantee rests; what a unit is comes on top."""
NOT_COVERED = (
    "how the features, their bounds, the classes and the settings were chosen, if that looked at the data",
    "objective values, accuracies and other figures computed from the data outside the mechanism",
    "attacks on the low bits of floating-point noise: the noise is not yet hardened against them",
    "attacks on the random generator, a fast one with a 64-bit key: the noise is not yet a cryptographic one",
)
"""What no guarantee covers; whom the unit leaves out comes on top."""


@dataclass(frozen=True)
class Unit:
    """What the words of a statement depend on."""

    name: str
    noun: str
    plural: str
    adjacency: str
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]


RECORD = Unit(
    name="one record",
    noun="record",
    plural="records",
    adjacency=ADJACENCY,
    assumptions=(*ASSUMPTIONS, "one person's data is one record of one node"),
    not_covered=(
        "people who have several records, or records at several nodes",
        "which organisations take part, and how many records each has",
        *NOT_COVERED,
    ),
)
PERSON = Unit(
    name="one person",
    noun="person",
    plural="people",
    adjacency="replace one person of one node, with all of their rows there",
    assumptions=(
        *ASSUMPTIONS,
        "one person's data are the rows of one node that carry their id, and every row carries the right one",
    ),
    not_covered=(
        "people who have rows at several nodes, or under several ids: each time they count as another person",
        "which organisations take part, and how many people each has",
        *NOT_COVERED,
    ),
)
UNITS = {unit.name: unit for unit in (RECORD, PERSON)}


def make_unit(name: str) -> Unit:
    """Look a unit up by the name that a statement gives it.

    Examples
    --------
    >>> make_unit("one person").plural
    'people'
    """
    if name not in UNITS:
        raise PrivacyError(f"there is no unit of privacy '{name}'; choose one of {', '.join(UNITS)}")
    return UNITS[name]
