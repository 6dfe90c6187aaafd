"""What an event costs: by the accountant, or by the one formula that stands outside it."""

import math
from functools import lru_cache

from sottovoce.privacy import objective
from sottovoce.privacy.accounting import Account, Mechanism, account, tradeoff
from sottovoce.privacy.events import Event


@lru_cache(maxsize=4096)  # the runs of a sweep ask the same over and over
def price(event: Event, delta: float, lower: bool = True) -> Account:
    """What is known about an event at δ. Silence costs nothing; speaking without noise costs everything.

    Without `lower` nothing from below is computed, where that would take long.
    """
    if event.rounds == 0:
        return Account(0.0, 0.0, 0.0, delta, 0.0)
    if event.sigma == 0:
        return Account(math.inf, math.inf, math.inf, delta, 0.0)
    if event.law == "objective":
        return objective.price(event, delta)
    # √m ‖·‖₂ bounds ‖·‖₁ and is hardly ever reached: nothing is known from below
    return account([Mechanism.of(event)], delta, lower and event.law != "laplace")


@lru_cache(maxsize=256)
def price_risk(event: Event, fpr: float) -> float:
    """The largest share of true alarms that an attacker can have at a share of false ones."""
    if event.law == "objective" and event.rounds:
        return objective.risk(event, fpr)
    return tradeoff([Mechanism.of(event)], fpr)
