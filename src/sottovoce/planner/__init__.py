"""The planner: a whole spec from public numbers alone, for the least predicted loss of accuracy. It sees no data."""

from sottovoce.planner.choose import Choice, Facts, choose
from sottovoce.planner.choose import choose as plan

__all__ = ["Choice", "Facts", "choose", "plan"]
