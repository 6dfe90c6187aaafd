"""A fuzzer on the wire: mutated envelopes, letters, messages, hellos, introductions, refusals and orders.

Each is refused, or accepted by the rules (`tests/node/fuzz.py` has them); no other error escapes, no thread is left
over, and memory stays where it was. Exit code 1 where that is not so.

    python benchmarks/fuzz_wire.py [--messages 100000] [--seed 0]
"""

import argparse
import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from fuzz import KINDS, OPS, Target

FRESH = 5000  # messages after which there is a new target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, began, made, target = random.Random(args.seed), time.monotonic(), Counter(), None
    refused = accepted = first = 0
    for number in range(args.messages):
        if number % FRESH == 0:
            refused, accepted = (
                refused + (target.refused if target else 0),
                accepted + (target.accepted if target else 0),
            )
            target = Target()
        kind = rng.choice(KINDS)
        edits = [(rng.choice(OPS), rng.random(), rng.randbytes(rng.randrange(13))) for _ in range(rng.randrange(4))]
        target.endure(kind, edits, rng.randrange(8))
        made[kind] += 1
        if number == FRESH:
            first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) / 1024 if first else 0.0
    found = {"messages": dict(made), "refused": refused + target.refused, "accepted": accepted + target.accepted}
    print(json.dumps(found | {"grown_mb": round(grown, 1), "seconds": round(time.monotonic() - began)}))
    return int(grown > 50)


if __name__ == "__main__":
    sys.exit(main())
