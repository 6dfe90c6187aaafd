"""The planner: a whole spec from public numbers alone, for the least predicted loss of accuracy. It sees no data."""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.planner.choose import Choice, PublicInputs, choose
from sottovoce.planner.choose import choose as plan

__all__ = ["Choice", "PublicInputs", "choose", "plan"]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
