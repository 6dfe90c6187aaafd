"""States of a run that the explorer reaches, and how many are dead: no final state after a restart of every node.

    python benchmarks/explorer.py [--walks 300]

Two nodes are explored whole, over the real `Links`: loss, repeated and late messages, a crash anywhere, and an early
lie under a node's own keys. Three nodes are explored along random walks by fixed seeds. Rows are appended to
benchmarks/results/explorer.csv. Exit code 1 if a state is dead.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from explorer import World, explored, walked
from sottovoce.node import links

COLUMNS = ("nodes", "rounds", "lies", "crashes", "copies", "how", "states", "disks", "dead", "seconds")
WHOLE = ((1, 1, 1, 1), (2, 0, 1, 1), (2, 1, 1, 0), (2, 0, 2, 0), (3, 1, 1, 0))
"""Rounds, lies, crashes and kept copies of two nodes."""
NAMES = ("north", "east", "south")


def counted(worlds) -> tuple[int, int, int]:
    """How many worlds, different disks, and disks from which a restart does not lead to an end."""
    states, disks, dead = 0, set(), 0
    for now in worlds:
        states += 1
        disk = tuple(site.disk.key() for site in now.sites)
        if disk not in disks:
            disks.add(disk)
            dead += not all(site.state.final for site in now.settled(restart=True).sites)
    return states, len(disks), dead


def main() -> int:
    """Explore all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=300)
    args = parser.parse_args()
    links.STRETCH = 2  # a voucher for two messages
    whole = [(2, *setting, "whole") for setting in WHOLE]
    settings = [*whole[:-1], (3, 2, 1, 1, 0, "walks"), (3, 3, 1, 2, 1, "walks"), whole[-1]]  # the longest last
    file, failed = Path(__file__).parent / "results" / "explorer.csv", 0
    done = {tuple(row.values())[:6] for row in csv.DictReader(file.open())} if file.exists() else set()
    for n, rounds, lies, crashes, copies, how in settings:
        if tuple(map(str, (n, rounds, lies, crashes, copies, how))) in done:
            continue
        began = time.monotonic()
        world = World(NAMES[:n], rounds=rounds, lies=lies, crashes=crashes, copies=copies)
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
