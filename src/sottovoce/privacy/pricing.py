"""What an event costs: by the accountant, or by the one formula that stands outside it."""

import math
from dataclasses import replace
from functools import lru_cache

from sottovoce.privacy import objective
from sottovoce.privacy.accounting import Account, Mechanism, account, tradeoff
from sottovoce.privacy.event import Event


@lru_cache(maxsize=4096)  # the runs of a sweep ask the same over and over
def price(event: Event, delta: float) -> Account:
    """All that is known about an event at δ. Silence costs nothing; speaking without noise costs everything."""
    if event.rounds == 0:
        return Account(0.0, 0.0, 0.0, delta, 0.0)
    if event.sigma == 0:
        return Account(math.inf, math.inf, math.inf, delta, 0.0)
    if event.law == "objective":
        return objective.price(event, delta)
    found = account([Mechanism.of(event)], delta)
    # √m ‖·‖₂ bounds ‖·‖₁ and is hardly ever reached: nothing is known from below
    return replace(found, epsilon_lower=0.0) if event.law == "laplace" else found


@lru_cache(maxsize=256)
def price_risk(event: Event, fpr: float) -> float:
    """The largest share of true alarms that an attacker can have at a share of false ones."""
    if event.law == "objective" and event.rounds:
        return objective.risk(event, fpr)
    return tradeoff([Mechanism.of(event)], fpr)
