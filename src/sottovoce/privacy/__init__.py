"""What is released, what it costs, and against whom: `Release` yields both the draws and the accounting event."""

from sottovoce.privacy.accounting import Account, price
from sottovoce.privacy.calibration import NOISES
from sottovoce.privacy.compound import read_event
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
    "make_statement",
    "price",
    "read_event",
]
