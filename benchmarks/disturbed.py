"""Disturbed runs: four processes on loopback, a hostile relay, and a node that lies; one row for each seed.

Every run has 300 rounds. Processes are killed and stopped, links are cut, and the relay loses, repeats, delays, cuts
and mutes 5 % of the messages and forges, replays, reorders, reflects, changes and misdirects others. A run passes if it
ends within the limit, every release has one message, the ledgers hold exactly what crossed the wire, and all models
equal the undisturbed simulation from the same keys to 1e-9. Rows are appended to the results as seeds are done, and
seeds that are there are not run again, so the whole can be run in pieces. Exit code 1 if a run of this call failed.

    python benchmarks/disturbed.py --events 15 --seeds 0 200 [--seconds 400] [--limit 300]
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from loopback import DEEDS, Cluster
from net import keys, records, run_file, simulated

ROUNDS = 300
TOLERANCE = 1e-9
COLUMNS = ("seed", "outcome", "events", "kills", "starts", "releases", "largest_difference", "seconds")


def one(seed: int, events: int, limit: float) -> dict[str, object]:
    """The row of one seed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="disturbed-") as folder:
        cluster = Cluster(folder, run_file(rounds=ROUNDS, timeout=60.0), seed=seed, hostile=["east"])
        cluster.faulty = 0.05
        made, difference, outcome = dict.fromkeys(("kill", "stop", "cut", *DEEDS), 0), float("nan"), "right"
        try:
            made = cluster.endure(events=events, every=0.1, limit=limit)
            cluster.check_wire()
            run = cluster.run
            expected = simulated(run, records(run), keys(run, cluster.root))
            difference = float(np.max(np.abs(cluster.models() - expected)))
            outcome = "right" if difference < TOLERANCE else "wrong model"
        except AssertionError as error:
            outcome = " ".join(str(error).split()) or "releases and ledgers differ"
        found = sum(made.values()), made["kill"], sum(cluster.starts.values()), sum(map(len, cluster.wire.values()))
    return dict(zip(COLUMNS, (seed, outcome, *found, difference, round(time.monotonic() - began, 1)), strict=True))


def main() -> int:
    """Run the seeds that are missing; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FIRST", "LAST"))
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no further seed after so many seconds")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run counts as stalled")
    args = parser.parse_args()
    file = Path(__file__).parent / "results" / f"disturbed-{args.events}.csv"
    file.parent.mkdir(exist_ok=True)
    done = {int(row["seed"]) for row in csv.DictReader(file.open())} if file.exists() else set()
    began, wrong = time.monotonic(), 0
    for seed in range(*args.seeds):
        if seed in done or time.monotonic() - began > args.seconds:
            continue
        row = one(seed, args.events, args.limit)
        wrong += row["outcome"] != "right"
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            if out.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
        print(row, file=sys.stderr, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
