"""Who is watching. A guarantee means nothing without this name beside it.

How each adversary changes the accounting of a node's participation.
"""

from dataclasses import dataclass, replace

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Mechanism
from sottovoce.privacy.events import Event


@dataclass(frozen=True)
class Adversary:
    """What an observer sees, and which runs can claim to be safe from it and no more."""

    name: str
    sees: str
    refusal: str = ""
    """Why an ordinary run cannot claim it; empty where it can."""


_ROWS = (
    Adversary("transcript", "every message of every node, and who was active in every round"),
    Adversary(
        "hidden_participation",
        "messages that cannot be linked to the node that sent them",
        "a message carries z_i, which changes only when node i is active, so participation can always be linked",
    ),
    Adversary(
        "secret_pairs",
        "every message, but not the seeds that pairs of nodes share",
        "dual averaging adds independent noise, so there are no pairwise secrets to rely on",
    ),
    Adversary(
        "central",
        "the final model only",
        "nodes send their messages to one another in clear, so a neighbour sees more than the final model",
    ),
)

ADVERSARIES: dict[str, Adversary] = {row.name: row for row in _ROWS}


def make_adversary(name: str) -> Adversary:
    """Look an adversary up by name.

    Examples
    --------
    >>> make_adversary("transcript").sees
    'every message of every node, and who was active in every round'
    """
    if name not in ADVERSARIES:
        raise PrivacyError(f"there is no adversary '{name}'; choose one of {', '.join(ADVERSARIES)}")
    return ADVERSARIES[name]


def refuse_unless_runnable(adversary: Adversary, law: str = "gaussian", nodes: int = 2) -> None:
    """A run may only be made under an adversary that its messages really face.

    A trusted centre (one node) sends no messages: all that is seen is the final model, and the accounting of every
    round covers that. Noise that pairs of nodes cancel is worth what it is only where their seeds are secret.
    """
    if law == "pairs" and adversary.name != "secret_pairs":
        raise PrivacyError("noise that pairs of nodes share protects against 'secret_pairs' only; name that adversary")
    runnable = not adversary.refusal or {"central": nodes == 1, "secret_pairs": law == "pairs"}.get(adversary.name)
    if not runnable:
        raise PrivacyError(
            f"a run cannot be protected against '{adversary.name}' only: {adversary.refusal}; use 'transcript'"
        )


def mechanism(adversary: Adversary, event: Event, activity: float = 1.0) -> Mechanism:
    """What an adversary sees of a node that is active in each of `event.rounds` rounds with the given probability.

    `transcript`: who spoke is seen, so a sleeping round releases nothing and an active one is a release at rate b/q:
    the mixture of the two (with activity = 1 and the exact count K_i once the schedule is fixed).
    `hidden_participation`: every round is a release at rate activity/q. A what-if: no run can claim it. Only for single
    records: when i is silent another node's message takes its place, and that one may be 2L away, not 2L/b.
    """
    if not 0 < activity <= 1:
        raise PrivacyError(f"the activity of a node is a probability over 0 and at most 1, not {activity}")
    seen = Mechanism.of(event)
    if adversary.name == "transcript":
        return replace(seen, activity=activity)
    if adversary.name == "hidden_participation":
        if event.sampling != "fixed" or event.batch != 1:
            raise PrivacyError(
                "hidden participation can be priced for one record a round only (sampling fixed, batch 1)"
            )
        return replace(seen, rate=seen.rate * activity)
    raise PrivacyError(
        f"'{adversary.name}' cannot be accounted for this algorithm: {adversary.refusal}; use 'transcript'"
    )
