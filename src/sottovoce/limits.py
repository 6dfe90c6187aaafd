"""What public numbers can be: far more than anybody needs, and well inside of what floats, memory and time can hold.

A number that is out of reach is refused in a sentence where it comes in, before any work is done for it: a slip of the
keyboard, as in a hundred thousand million rounds, would else end in an overflow, or fill the machine.
"""

from functools import partial
from pathlib import Path

from sottovoce.errors import SpecError
from sottovoce.registry import check_count as check_count
from sottovoce.registry import check_real

ROUNDS = 10**8
"""Of a run: its schedule and step sizes are held in memory."""
NODES = 10**6
"""Of a network."""
RECORDS = 10**12
FEATURES = 10**8
LENGTH = 1e100
"""Of rows, clips and other lengths, and the reciprocal of the least: their squares are numbers, too."""
EPSILON = 1e6
"""And the reciprocal of the least: beyond these an ε is no guarantee, or no noise that anybody can add keeps it."""

check_length = partial(check_real, least=1 / LENGTH, most=LENGTH)
"""(what, value, error) -> a length that can be squared; 0 as well with `zero`."""
check_epsilon = partial(check_real, "ε (epsilon)", least=1 / EPSILON, most=EPSILON)
"""(value, error) -> an ε that noise can keep, and that promises anything."""


def check_file(path: Path) -> None:
    """Refuse to put a file in the place of a device, a pipe or a socket: writing whole or not at all would remove it.

    Examples
    --------
    >>> check_file(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    sottovoce.errors.SpecError: '/dev/null' is a device, a pipe or the like, and no file; give the name of a file
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # a folder is refused by the system itself
        raise SpecError(f"'{path}' is a device, a pipe or the like, and no file; give the name of a file")
