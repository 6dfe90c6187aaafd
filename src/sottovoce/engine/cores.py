"""How many processors a run may take: all of this process, unless someone has said otherwise.

OMP_NUM_THREADS is how people and batch systems say so to numerical libraries, and holds here, too. Runs that are made
side by side share the processors among them (`shared`): a sweep gives each run its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_others = [1]  # among how many runs they are shared; the newest word is the last


def available() -> int:
    """Processors for one run.

    Examples
    --------
    >>> with shared(1_000_000):
    ...     available()
    1
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if said.isdecimal() and int(said) > 0:
        own = min(own, int(said))
    return max(1, own // _others[-1])


@contextmanager
def shared(runs: int) -> Iterator[None]:
    """While so many runs are made side by side in this process."""
    _others.append(max(1, runs) * _others[-1])
    try:
        yield
    finally:
        _others.pop()
