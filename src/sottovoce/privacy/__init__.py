"""What is released, what it costs, and against whom: `Release` yields both the draws and the accounting event."""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.privacy.accounting import Account, compute_epsilon
from sottovoce.privacy.calibration import NOISES
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.events import Event
from sottovoce.privacy.planning import account, calibrate
from sottovoce.privacy.release import ADVERSARIES, Release
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.privacy.statement import PrivacyStatement, make_statement
from sottovoce.privacy.theorem1 import Theorem1, compare

__all__ = [
    "ADVERSARIES",
    "NOISES",
    "SAMPLINGS",
    "Account",
    "Event",
    "PrivacyStatement",
    "Release",
    "Theorem1",
    "account",
    "calibrate",
    "compare",
    "compute_epsilon",
    "make_statement",
    "read_event",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for."""
    return module_attribute(__name__, name)
