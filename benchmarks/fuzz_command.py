"""A fuzzer at the front door: every verb with arguments that nobody meant, and files that someone has spoilt.

Each attempt ends in success or in one line with an exit code of its own (`tests/cli/attempts.py` has the rules).

    python benchmarks/fuzz_command.py [--attempts 10000] [--first 0]
"""

import argparse
import collections
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cli"))
from attempts import Ground, judged


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    codes: collections.Counter[int] = collections.Counter()
    slowest, wrongs, began, first = 0.0, 0, time.process_time(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder) / "ground")
        for seed in range(given.first, given.first + given.attempts):
            before = time.process_time()
            wrong, code, shown = judged(ground, seed)
            slowest = max(slowest, time.process_time() - before)
            codes[code] += 1
            if wrong is not None:
                wrongs += 1
                print(f"{seed}: {wrong}\n    {shown!r}", flush=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{given.attempts:,} attempts in {time.monotonic() - first:.0f} s ({time.process_time() - began:.0f} s of "
        f"processor time, the slowest {slowest:.1f} s), {most:.2f} GB at most; {wrongs} wrong; "
        f"exit codes {dict(sorted(codes.items()))}"
    )
    sys.exit(wrongs > 0)


if __name__ == "__main__":
    main()
