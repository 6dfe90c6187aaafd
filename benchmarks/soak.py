"""A soak: real processes on the loopback interface, killed, stopped and cut off, a hostile relay, and a peer that lies.

Runs follow one another over the same folders until there have been enough events. After each: no round was released
with two different messages, the ledgers hold exactly what crossed the wire, and every node's model equals that of the
undisturbed simulation from the same keys to 1e-9. Exit code 1 where that is not so. The relay forges, replays,
reorders, reflects, changes and misdirects messages, besides losing and delaying some; one node lies under its own keys
to all of its peers and does its part besides. Without `--hostile` there are kills, stops, cut links and lost messages.

    python benchmarks/soak.py [--hostile] [--pairs] [--events 300] [--nodes 5] [--rounds 300] [--seed 0] [--folder DIR]
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from loopback import Cluster
from net import keys, records, run_file, simulated


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--pairs", action="store_true", help="noise that pairs of nodes cancel")
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    root = args.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    total, starts, messages, number, worst = Counter(), 0, 0, 0, 0.0
    began = time.monotonic()
    while sum(total.values()) < args.events:
        number += 1
        nodes = {f"node{i}": 10 + i for i in range(args.nodes)}
        data = run_file(args.rounds, run=f"soak-{number}", nodes=nodes, timeout=60.0, network__activation="edges(2)")
        if args.pairs:
            data["spec"]["privacy"] |= {"law": "pairs(10)", "adversary": "secret_pairs(1)"}
        cluster = Cluster(root, data, seed=args.seed + number, hostile=["node1"] if args.hostile else ())
        cluster.faulty = 0.05
        made = cluster.endure(events=args.events - sum(total.values()), every=0.2 if args.hostile else 0.4, limit=900)
        cluster.check_wire()
        run = cluster.run
        expected = simulated(run, records(run), keys(run, root), pairs=cluster.pairs())
        worst = max(worst, float(np.max(np.abs(cluster.models() - expected))))
        assert worst < 1e-9, f"the models differ from the simulation by {worst}"
        total.update(made)
        starts += sum(cluster.starts.values())
        messages += sum(map(len, cluster.wire.values()))
        print(f"run {number}: {made}, {sum(cluster.starts.values())} starts, as simulated", file=sys.stderr, flush=True)
    found = {"events": dict(total), "runs": number, "starts": starts, "releases_on_the_wire": messages}
    print(json.dumps(found | {"largest_difference": worst, "seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
