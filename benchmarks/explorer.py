"""States of a run that the explorer reaches, and how many are dead: no final state after a restart of every node.

    python benchmarks/explorer.py [--walks 300]

Two and three nodes are explored whole, over the real `Links`: loss, repeated and late messages, a crash anywhere, and
an early lie under a node's own keys. More at once is walked through at random, by fixed seeds. Rows are appended to
benchmarks/results/explorer.csv. Exit code 1 if a state is dead, or a lie is in a model.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from explorer import explored, walked, world_of
from sottovoce.node import links

COLUMNS = ("nodes", "rounds", "lies", "crashes", "copies", "how", "states", "disks", "dead", "seconds")
WHOLE = (
    (2, 1, 1, 1, 1),
    (2, 3, 1, 1, 1),
    (2, 4, 1, 1, 1),
    (2, 5, 2, 1, 1),
    (2, 3, 1, 2, 1),
    (3, 1, 0, 1, 0),
    (3, 1, 1, 0, 1),
    (3, 2, 1, 0, 0),
    (3, 2, 1, 1, 0),
)
"""Nodes, rounds, lies, crashes and kept copies."""
WALKS = (3, 2, 1, 1, 1), (3, 3, 1, 2, 1)
NAMES = ("north", "east", "south")


def counted(worlds) -> tuple[int, int, int]:
    """How many worlds, different disks, and disks from which a restart does not lead to an end."""
    states, disks, dead = 0, set(), 0
    for now in worlds:
        states += 1
        assert not any(site.deceived for site in now.sites), "a lie is in a model"
        if now.disks not in disks:
            disks.add(now.disks)
            dead += not all(site.state.final for site in now.settled(restart=True).sites)
    return states, len(disks), dead


def main() -> int:
    """Explore all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=300)
    args = parser.parse_args()
    links.STRETCH = 2  # a voucher for two messages
    settings = [*((*each, "whole") for each in WHOLE), *((*each, "walks") for each in WALKS)]
    file, failed = Path(__file__).parent / "results" / "explorer.csv", 0
    done = {tuple(row.values())[:6] for row in csv.DictReader(file.open())} if file.exists() else set()
    for n, rounds, lies, crashes, copies, how in settings:
        if tuple(map(str, (n, rounds, lies, crashes, copies, how))) in done:
            continue
        began = time.monotonic()
        world = world_of(NAMES[:n], rounds=rounds, lies=lies, crashes=crashes, copies=copies)
        if how == "whole":
            found = counted(explored(world))
        else:
            found = counted(now for seed in range(args.walks) for now in walked(world, seed, 60 * rounds))
        failed += found[2]
        row = (n, rounds, lies, crashes, copies, how, *found, round(time.monotonic() - began))
        with file.open("a", newline="") as out:
            writer = csv.writer(out)
            if out.tell() == 0:
                writer.writerow(COLUMNS)
            writer.writerow(row)
        print(dict(zip(COLUMNS, row, strict=True)), file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
