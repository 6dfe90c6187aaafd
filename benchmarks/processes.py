"""Fresh processes: how long until the first compiled call is done, and how much memory a run needs.

Processor time is user and system time together. Children keep bytecode in a folder of their own, so
that what is warm is the same on every machine, whatever its environment says.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measure import Line, Target

CHILD = Path(__file__).parent / "child.py"
FIRST_CALL = Target(high=1.5, unit=" s")


class Spent(NamedTuple):
    """What a process took."""

    wall: float
    processor: float
    said: str


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """First calls, then memory."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        yield from _first_calls(kept, max(3, repeats))
        for storage, records in (("dense", 100_000), ("csr", 1_000_000)):
            yield from _peaks(storage, records // (4 if quick else 1), kept)


def _first_calls(kept: dict[str, str], repeats: int) -> Iterator[Line]:
    _spend(["-c", "import sklearn.base, sottovoce.cli.main, sottovoce.engine.compiled"], kept)  # bytecode
    kinds = {
        "imports": ["-c", "import sottovoce.engine.compiled, sottovoce.run.build, sottovoce.run.presets"],
        "first": [str(CHILD), "first-call"],
        "numpy": ["-c", "import numpy"],
        "version": ["-c", "from sottovoce.cli.main import main; main()", "--version"],
    }
    taken: dict[str, list[Spent]] = {name: [] for name in kinds}
    for _ in range(repeats):
        for name, arguments in kinds.items():
            taken[name].append(_spend(arguments, kept))
    for clock, called in (("wall", "wall clock"), ("processor", "processor time")):
        best = {name: min(getattr(spent, clock) for spent in many) for name, many in taken.items()}
        what, first = f"first call, {called}", best["first"]
        yield Line(what, "imports and first call / imports", first, best["imports"], "s", FIRST_CALL, first)
        yield Line(f"start, {called}", "sottovoce --version / import numpy", best["version"], best["numpy"], "s")


def _peaks(storage: str, records: int, kept: dict[str, str]) -> Iterator[Line]:
    details = json.loads(_spend([str(CHILD), "peak", storage, str(records)], kept).said)
    what, alone = f"peak memory, {storage}, {records:,} records", details["peak"] - details["before"]
    yield Line(what, "all / the data", details["peak"], details["data"], "MB")
    yield Line(what, "beyond what a first call leaves / the data", alone, details["data"], "MB")


def _spend(arguments: list[str], changes: dict[str, str]) -> Spent:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | changes
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout)
