"""Every benchmark in one table: two things measured in the same run, their ratio, and what it should be.

    make bench                                      (or: python benchmarks/run.py, --quick, --section speed)

Absolute times of a shared machine do not hold; ratios do, where the two are taken in turn, again and again, and the
best of each counts. Work of one thread is timed by its processor time. The targets are those that this project set
itself; "linear" and "no more" are taken to within a quarter. Needs gcc for the floor (floor.c).
"""

import argparse
import os
import platform
import time

from threadpoolctl import threadpool_limits

import batches
import fits
import peers
import processes
import scaling
import secure
import speed
import threads
from measure import HEADS, row
from sottovoce.errors import DataError

SECTIONS = {
    "speed": speed.lines,
    "batches": batches.lines,
    "fits": fits.lines,
    "scaling": scaling.lines,
    "threads": threads.lines,
    "processes": processes.lines,
    "secure": secure.lines,
    "peers": peers.lines,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and repeats: about a minute")
    parser.add_argument("--repeats", type=int, help="how often each thing is timed (7, or 3 with --quick)")
    parser.add_argument("--section", "--only", dest="only", choices=SECTIONS, nargs="+", default=list(SECTIONS))
    arguments = parser.parse_args()
    repeats = arguments.repeats or (3 if arguments.quick else 7)
    began, met = time.perf_counter(), []
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {_load()}, Python {platform.python_version()}\n")
    print(row(HEADS))
    with threadpool_limits(1):  # linear algebra would take a second thread where one is measured
        for name in arguments.only:
            try:
                for line in SECTIONS[name](arguments.quick, repeats):
                    print(line, flush=True)
                    met += [] if line.met is None else [line.met]
            except DataError as missing:
                print(f"the rest of '{name}' is left out: {missing}")
    print(f"\n{sum(met)} of {len(met)} targets met; {time.perf_counter() - began:.0f} s, load {_load()}")


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
