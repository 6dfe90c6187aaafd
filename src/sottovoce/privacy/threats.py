"""How each adversary changes the accounting of a node's participation."""

from dataclasses import replace

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Mechanism
from sottovoce.privacy.adversaries import Adversary
from sottovoce.privacy.event import Event


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
