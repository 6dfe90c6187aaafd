"""What a member of a consortium needs: memory of its processes, disk and traffic of a round, over FLARE on loopback.

    python benchmarks/sizes.py [--features 50 2000 20000] [--sites 3] [--rounds 150]

Rows of dense vectors; all sites exchange with all others in every round. Memory is the largest unique set size of all
processes of the relay, or of one site, together. Rows are appended to benchmarks/results/sizes.csv.
"""

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

import flare
from flare import prepare, settle
from sottovoce.consortium.check import Trial
from sottovoce.consortium.submit import COMPLETED, administrator

COLUMNS = (
    *("sites", "features", "rounds", "relay_memory_mb", "site_memory_mb", "site_processes"),
    *("site_disk_kb_per_round", "site_sent_kb_per_round", "rounds_per_second", "state"),
)


def memory(process: int) -> tuple[float, int]:
    """Megabytes that a process and its children have to themselves, and how many they are."""
    found = []
    try:
        first = psutil.Process(process)
        for each in [first, *first.children(recursive=True)]:
            found.append(each.memory_full_info().uss / 2**20)
    except psutil.Error:
        pass
    return sum(found), len(found)


def size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(features: int, sites: int, rounds: int, port: int) -> tuple:
    """One deployment: a row."""
    flare.SITES, flare.ROUNDS = tuple(f"site{i}" for i in range(sites)), rounds
    flare.AGREEMENT = flare.AGREEMENT.replace("edges(1)", "everyone")
    with tempfile.TemporaryDirectory(prefix="sizes-") as place:
        folder = Path(place) / "kits"
        agreement, kits = prepare(folder, features, port)
        settle(kits, folder, 0)
        first = flare.SITES[0]
        state, peak, seen = kits[first] / "state0", {}, []
        with Trial(kits, folder / "logs") as trial:
            trial.start(agreement.host, *flare.SITES)
            with administrator(kits[agreement.admin], patience=120) as admin:
                while [each.site for each in admin.who(10) if not each.connected]:
                    time.sleep(0.3)
                before = size(state)
                for status in admin.follow(admin.submit(), every=0.5):
                    for name in (agreement.host, first):
                        peak[name] = max(peak.get(name, (0.0, 0)), memory(trial._running[name].pid))
                    if len(status.progress) == sites:
                        seen.append((time.monotonic(), min(row["round"] for row in status.progress.values())))
                report = json.loads((state / "progress.json").read_text())
                sent = sum(peer["sent"] for peer in report["peers"].values())
                disk = size(state) - before
    inner = [(at, done) for at, done in seen if 0 < done < rounds]
    speed = (inner[-1][1] - inner[0][1]) / (inner[-1][0] - inner[0][0]) if len(inner) > 1 else float("nan")
    sums = (round(peak[agreement.host][0]), round(peak[first][0]), peak[first][1])
    costs = (round(disk / rounds / 1000, 2), round(sent / rounds / 1000, 1), round(speed, 1))
    return (sites, features, rounds, *sums, *costs, status.state)


def main() -> int:
    """Measure all settings; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[50, 2000, 20000])
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=150)
    args = parser.parse_args()
    file, good = Path(__file__).parent / "results" / "sizes.csv", True
    for i, features in enumerate(args.features):
        row = measured(features, args.sites, args.rounds, 8160 + i)
        with file.open("a", newline="") as out:
            writer = csv.writer(out)
            if out.tell() == 0:
                writer.writerow(COLUMNS)
            writer.writerow(row)
        print(dict(zip(COLUMNS, row, strict=True)), file=sys.stderr, flush=True)
        good &= row[-1] == COMPLETED
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
