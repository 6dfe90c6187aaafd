"""The planner: a whole spec from public numbers alone, for the least predicted loss of accuracy. It sees no data."""

from sottovoce.planner.choose import choose
from sottovoce.planner.facts import Choice, Facts

__all__ = ["Choice", "Facts", "choose"]
