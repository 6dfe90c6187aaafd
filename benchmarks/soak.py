"""A soak: real processes on the loopback interface, a hostile relay, a peer that lies, and machines that fail.

Runs follow one another over the same folders until there have been enough events. After each: no round was released
with two different messages, the ledgers hold exactly what crossed the wire, and every node's model equals that of the
undisturbed simulation from the same keys to 1e-9. Exit code 1 where that is not so. Without options there are kills,
stops, cut links, and 5 % of messages lost, repeated, delayed, cut or muted. `--hostile`: the relay also forges,
replays, reorders, reflects, changes and misdirects messages; one node lies under its own keys to all of its peers and
does its part besides. `--machine`: disks take no more, clocks are wrong by up to 35 days, and another process of the
machine attacks the nodes' ports; and every node that has not gone on for five seconds must say for whom it waits, in
the report that `node health` reads.

A row is appended to benchmarks/results/soak.csv after each run; with `--more` the events that are there count.

    python benchmarks/soak.py [--hostile] [--machine] [--pairs | --releases] [--events 300] [--nodes 5] [--rounds 300]
        [--seed 0]
"""

import argparse
import csv
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

import simulation
from loopback import DEEDS, MACHINE, Cluster
from net import keys, records, run_file, simulated

TOLERANCE = 1e-9
RELEASES = {"noise": "private(2000)", "moments": "moments(0.05, 0.1, 0.1)", "balance": "balance(0.1, 0.3)"}
"""Before the first round, and twice after the last one."""
KINDS = ("kill", "stop", "cut", *DEEDS, *MACHINE)
COLUMNS = ("seed", *KINDS, "starts", "releases", "long_waits", "unexplained", "largest_difference", "seconds")


def one(root: Path, args: argparse.Namespace, seed: int, events: int) -> dict[str, object]:
    """A run with at most so many events: its row."""
    nodes = {f"node{i}": 10 + i for i in range(args.nodes)}
    data = run_file(args.rounds, run=f"soak-{seed}", nodes=nodes, timeout=60.0, network__activation="edges(2)")
    if args.releases:
        data["spec"]["problem"] |= {"loss": "logistic", "intercept": 0.5}
        data["spec"]["privacy"] |= RELEASES
    if args.pairs:
        data["spec"]["privacy"] |= {"law": "pairs(10)", "adversary": "secret_pairs(1)"}
    began = time.monotonic()
    cluster = Cluster(root, data, seed=seed, hostile=["node1"] if args.hostile else ())
    cluster.faulty, cluster.machine = 0.05, MACHINE if args.machine else ()
    made = cluster.endure(events=events, every=0.2 if args.hostile else 0.4, limit=900)
    cluster.check_wire()
    run = cluster.run
    if args.releases:
        expected = simulation.simulated(run, records(run), root).models
    else:
        expected = simulated(run, records(run), keys(run, root), pairs=cluster.pairs() if args.pairs else ())
    worst = float(np.max(np.abs(cluster.models() - expected)))
    assert worst < TOLERANCE, f"the models differ from the simulation by {worst}"
    assert not cluster.unexplained, f"a wait without a reason: {cluster.unexplained[:3]}"
    return (
        dict.fromkeys(KINDS, 0)
        | made
        | {
            "seed": seed,
            "starts": sum(cluster.starts.values()),
            "releases": sum(map(len, cluster.wire.values())),
            "long_waits": len(cluster.long_waits),
            "unexplained": len(cluster.unexplained),
            "largest_difference": worst,
            "seconds": round(time.monotonic() - began, 1),
        }
    )


def main() -> None:
    """Run until there were enough events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--machine", action="store_true")
    parser.add_argument("--pairs", action="store_true", help="noise that pairs of nodes cancel")
    parser.add_argument("--releases", action="store_true", help="one-shot releases before and after the rounds")
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", action="store_true", help="go on after the rows in the results")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further run after so many seconds")
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    root = args.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    file = Path(__file__).parent / "results" / ("soak-releases.csv" if args.releases else "soak.csv")
    rows = list(csv.DictReader(file.open())) if args.more and file.exists() else []
    total = Counter({kind: sum(int(row[kind]) for row in rows) for kind in KINDS})
    seed, began = args.seed + len(rows), time.monotonic()
    while total.total() < args.events and time.monotonic() - began < args.seconds:
        seed += 1
        row = one(root, args, seed, args.events - total.total())
        total.update({kind: row[kind] for kind in KINDS})
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            if out.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
        print(row, file=sys.stderr, flush=True)
    print(json.dumps({"events": dict(total), "all": total.total(), "seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
