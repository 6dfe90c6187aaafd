"""Who is watching. A guarantee means nothing without this name beside it.

An adversary says what it sees, on what a guarantee against it rests, which runs can claim to be safe from it and no
more, and how it sees a node of which it is only known how likely it is to speak.
"""

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.errors import PrivacyError
from sottovoce.notation import Choices
from sottovoce.privacy.events import Event, Hidden, Priced, Seldom


@dataclass(frozen=True)
class Adversary:
    """An observer; ``str()`` is its name."""

    name: ClassVar[str]
    sees: ClassVar[str]
    refusal: ClassVar[str] = ""
    """Why an ordinary run cannot claim it; empty where it can."""

    def __str__(self) -> str:
        """In a spec."""
        return self.name

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Whether a run really faces it: its messages carry noise whose seeds pairs of nodes share or not."""
        return not self.refusal

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """On what a guarantee against it rests besides; `coalition` is whose secrets count as known."""
        return ()

    def helped(self, coalition: tuple[int, ...] | None) -> str:
        """Its name, and who helps it where that matters."""
        return f"'{self.name}'"

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """What it sees of a node that speaks in each of `event.rounds` rounds with a probability."""
        raise PrivacyError(f"'{self}' cannot be accounted for this algorithm: {self.refusal}; use 'transcript'")


@dataclass(frozen=True)
class Transcript(Adversary):
    """Everything that is ever sent."""

    name: ClassVar[str] = "transcript"
    sees: ClassVar[str] = "every message of every node, and who was active in every round"

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """Who spoke is seen: a sleeping round releases nothing, an active one is a release."""
        return Seldom(event, activity)


@dataclass(frozen=True)
class HiddenParticipation(Adversary):
    """A what-if: the adversary that the paper's theorem counts on."""

    name: ClassVar[str] = "hidden_participation"
    sees: ClassVar[str] = "messages that cannot be linked to the node that sent them"
    refusal: ClassVar[str] = (
        "a message carries z_i, which changes only when node i is active, so participation can always be linked"
    )

    def seen(self, event: Event, activity: float = 1.0) -> Priced:
        """Every round is a release, at a smaller rate."""
        return Hidden(event, activity)


@dataclass(frozen=True)
class SecretPairs(Adversary):
    """Everything that is sent, but not what pairs of nodes have agreed on before."""

    name: ClassVar[str] = "secret_pairs"
    sees: ClassVar[str] = "every message, but not the seeds that pairs of nodes share"
    refusal: ClassVar[str] = "dual averaging adds independent noise, so there are no pairwise secrets to rely on"

    def fits(self, secrets: bool, nodes: int) -> bool:
        """Where there are secrets."""
        return secrets

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Every node is an observer too, and knows its own seeds."""
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
        if coalition is None:
            return super().helped(coalition)
        return f"'{self.name}' with {f'the help of {_nodes(coalition)}' if coalition else 'no help from any node'}"


def _nodes(coalition: tuple[int, ...]) -> str:
    return f"node{'s' * (len(coalition) > 1)} {', '.join(map(str, coalition))}"


@dataclass(frozen=True)
class Central(Adversary):
    """Who gets the model of a trusted place."""

    name: ClassVar[str] = "central"
    sees: ClassVar[str] = "the final model only"
    refusal: ClassVar[str] = (
        "nodes send their messages to one another in clear, so a neighbour sees more than the final model"
    )

    def fits(self, secrets: bool, nodes: int) -> bool:
        """One node sends no messages; the accounting of every round covers the final model."""
        return nodes == 1

    def assumptions(self, coalition: tuple[int, ...] | None) -> tuple[str, ...]:
        """Trust."""
        return ("there is one trusted place that holds all records and publishes nothing but the final model",)


ADVERSARIES: Choices[Adversary] = Choices(
    "adversary", {kind.name: kind for kind in (Transcript, HiddenParticipation, SecretPairs, Central)}, PrivacyError
)


def make_adversary(name: Adversary | str) -> Adversary:
    """Look an adversary up by name.

    Examples
    --------
    >>> make_adversary("transcript").sees
    'every message of every node, and who was active in every round'
    """
    return ADVERSARIES.read(name) if isinstance(name, str) else name


def refuse_unless_runnable(adversary: Adversary, secrets: bool = False, nodes: int = 2) -> None:
    """A run may only be made under an adversary that its messages really face.

    Noise that pairs of nodes cancel is worth what it is only where their seeds are secret.
    """
    if secrets and not isinstance(adversary, SecretPairs):
        raise PrivacyError("noise that pairs of nodes share protects against 'secret_pairs' only; name that adversary")
    if not adversary.fits(secrets, nodes):
        raise PrivacyError(
            f"a run cannot be protected against '{adversary}' only: {adversary.refusal}; use 'transcript'"
        )
