"""Rounds a second of three sites over FLARE whose links lose 3 % of a run's messages and delay 5 % by 50 ms.

    python benchmarks/lossy.py [--rounds 300] [--turns 2] [--loss 0.03 --delayed 0.05 --delay 0.05]

A message crosses two links, site to relay and relay to site; each loses and delays it at random, requests and replies
equally. All sites exchange with all others in every round. Runs without loss and with it take turns. Rounds are counted
while all sites are between their first round and their last one. Rows are appended to benchmarks/results/lossy.csv.
"""

import argparse
import csv
import os
import sys
import tempfile
import time
from pathlib import Path

import flare
from flare import prepare, settle
from sottovoce.consortium.check import Trial
from sottovoce.consortium.submit import COMPLETED, administrator

COLUMNS = ("lost", "delayed", "seconds_of_delay", "rounds", "rounds_per_second", "state")


def rate(admin, job: str) -> tuple[float, str]:
    """Rounds a second of the slowest site, and how the job ended."""
    seen, state = [], ""
    for status in admin.follow(job, every=0.25):
        state = status.state
        if len(status.progress) == len(flare.SITES):
            seen.append((time.monotonic(), min(row["round"] for row in status.progress.values())))
    inner = [(at, done) for at, done in seen if 0 < done < flare.ROUNDS]
    if len(inner) < 2 or inner[0][1] == inner[-1][1]:
        return float("nan"), state
    (begun, first), (ended, last) = inner[0], inner[-1]
    return (last - first) / (ended - begun), state


def one(folder: Path, loss: str, port: int) -> tuple[float, str]:
    """A deployment of its own, with this loss, or with none."""
    agreement, kits = prepare(folder, 50, port)
    settle(kits, folder, 0)
    paths = os.pathsep.join([str(Path(__file__).parent / "loss"), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": paths, "LOSS": loss} if loss else {}
    with Trial(kits, folder / "logs") as trial:
        trial.start(agreement.host, *flare.SITES, environment=environment)
        with administrator(kits[agreement.admin], patience=120) as admin:
            while [each.site for each in admin.who(10) if not each.connected]:
                time.sleep(0.3)
            return rate(admin, admin.submit())


def main() -> int:
    """Run in turn; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--loss", type=float, default=0.03)
    parser.add_argument("--delayed", type=float, default=0.05)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds")
    args = parser.parse_args()
    flare.SITES, flare.ROUNDS = ("ash", "birch", "cedar"), args.rounds
    flare.AGREEMENT = flare.AGREEMENT.replace("edges(1)", "everyone")
    file = Path(__file__).parent / "results" / "lossy.csv"
    good = True
    for turn in range(args.turns):
        for lossy in (False, True):
            setting = (args.loss, args.delayed, args.delay) if lossy else (0.0, 0.0, 0.0)
            with tempfile.TemporaryDirectory(prefix="lossy-") as place:
                text = ",".join(map(str, setting)) if lossy else ""
                found, state = one(Path(place) / "kits", text, 8130 + 10 * turn + lossy)
            with file.open("a", newline="") as out:
                writer = csv.writer(out)
                if out.tell() == 0:
                    writer.writerow(COLUMNS)
                writer.writerow((*setting, args.rounds, round(found, 2), state))
            print(setting, f"{found:.1f} rounds/s", state, file=sys.stderr, flush=True)
            good &= state == COMPLETED
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
