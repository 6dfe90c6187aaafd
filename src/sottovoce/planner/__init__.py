"""The planner: a whole spec from public numbers alone, for the least predicted loss of accuracy. It sees no data."""

from sottovoce.planner.choose import Choice, Facts, choose
from sottovoce.planner.choose import choose as plan
from sottovoce.planner.price import Price, price

__all__ = ["Choice", "Facts", "Price", "choose", "plan", "price"]
