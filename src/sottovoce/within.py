"""What public numbers can be: far more than anybody needs, and well inside of what floats, memory and time can hold.

A number that is out of reach is refused in a sentence where it comes in, before any work is done for it: a slip of the
keyboard, as in a hundred thousand million rounds, would else end in an overflow, or fill the machine.
"""

import math
from typing import Any

from sottovoce.errors import SottovoceError, SpecError

ROUNDS = 10**8
"""Of a run: its schedule and step sizes are held in memory."""
NODES = 10**6
"""Of a network: everybody's model is held in memory."""
RECORDS = 10**12
FEATURES = 10**8
LENGTH = 1e100
"""Of rows, clips and other lengths, and the reciprocal of the least: their squares are numbers, too."""
EPSILON = 1e6
"""And the reciprocal of the least: beyond these an ε is no guarantee, or no noise that anybody can add keeps it."""


def check_count(what: str, value: Any, most: int, least: int = 1, error: type[SottovoceError] = SpecError) -> int:
    """A whole number that is within reach.

    Examples
    --------
    >>> check_count("the number of rounds", 10**11, ROUNDS)
    Traceback (most recent call last):
    sottovoce.errors.SpecError: the number of rounds must be a whole number from 1 to 100,000,000, not 100000000000
    """
    try:
        whole = int(value)
        exact = whole == value and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        whole, exact = 0, False
    if not exact or not least <= whole <= most:
        raise error(f"{what} must be a whole number from {least:,} to {most:,}, not {shown(value)}")
    return whole


def check_length(what: str, value: Any, error: type[SottovoceError] = SpecError, zero: bool = False) -> float:
    """A length that can be squared; 0 where that means something.

    Examples
    --------
    >>> check_length("the clip", 0.5)
    0.5
    >>> check_length("the clip", 1e308)
    Traceback (most recent call last):
    sottovoce.errors.SpecError: the clip must be a number from 1e-100 to 1e+100, not 1e+308
    """
    return _check_real(what, value, 1 / LENGTH, LENGTH, error, zero)


def check_epsilon(value: Any, error: type[SottovoceError] = SpecError) -> float:
    """An ε that noise can keep, and that promises anything."""
    return _check_real("ε (epsilon)", value, 1 / EPSILON, EPSILON, error, False)


def _check_real(what: str, value: Any, least: float, most: float, error: type[SottovoceError], zero: bool) -> float:
    try:
        real = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        real = math.nan
    if not (least <= real <= most or (zero and real == 0)):
        raise error(f"{what} must be {'0, or ' if zero else ''}a number from {least:g} to {most:g}, not {shown(value)}")
    return real


def shown(value: Any) -> str:
    """A value for a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
