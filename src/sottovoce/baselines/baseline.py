"""A row of the table: a name, where the algorithm comes from, and the spec that it makes of public facts."""

from collections.abc import Callable
from dataclasses import dataclass

from sottovoce.baselines.facts import Facts
from sottovoce.spec import Spec


def fits(facts: Facts) -> str:
    """Nothing stands in the way."""
    return ""


@dataclass(frozen=True)
class Baseline:
    """An algorithm to compare with.

    Attributes
    ----------
    name : how it is asked for
    title : authors and year, or what it is
    make : public facts -> a complete spec, without a seed; of one pooled node where `central`
    central : whether all records are in one trusted place
    source : 'read' where paper or official code was at hand, 'recalled' for textbook methods, 'reconstruction' where no
        full text was, 'own' for ours
    refusal : why it cannot be run on such facts; empty where it can
    """

    name: str
    title: str
    make: Callable[[Facts], Spec]
    central: bool = False
    source: str = "read"
    refusal: Callable[[Facts], str] = fits

    def spec(self, facts: Facts) -> Spec:
        """The spec for these facts, which are those of the network."""
        return self.make(facts.pooled() if self.central else facts)
