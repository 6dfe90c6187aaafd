"""Planned seconds beside measured ones: sites over FLARE's transport, with the delays of a network put in.

    python benchmarks/network.py SITES SLOWER

Real nodes with ledgers in one process. What carries their requests and replies waits as a network would: half a round
trip for each direct leg, a whole one for each leg over a relay, whose messages are handled one after another, so many
exchanges (a message and its answer) a second; a line takes its bytes one after another. All delays are SLOWER times as
long, so that the work of all sites, which one machine does here, counts as little as on machines of their own; seconds
are divided by it again. A few rounds are timed, from the first one's end to the last one's. Rows are written to
benchmarks/results/network.csv.
"""

import csv
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "consortium"))

from cells import JOB, Cells
from net import open_node, records, run_of
from nvflare.fuel.f3.cellnet.core_cell import MessageHeaderKey

from sottovoce.consortium import flare
from sottovoce.consortium.flare import Channel, FlareTransport
from sottovoce.node import transport
from sottovoce.planner.network import NetworkModel, ways

NETWORKS = {
    "direct, 50 ms": NetworkModel(0.05, 1e7),
    "relay, 50 ms, 830 exchanges/s": NetworkModel(0.05, 1e7, 830.0),
    "relay, 200 ms, 100 exchanges/s": NetworkModel(0.2, 1e6, 100.0),
}
WAYS = {
    "everyone": {"network__activation": "everyone"},
    "matching": {"network__activation": "matching({half})"},
    "exact": {"network__activation": "everyone", "network__averaging": "exact"},
    "gossip(3) on a ring": {
        "network__graph": "ring",
        "network__activation": "everyone",
        "network__averaging": "gossip(3)",
    },
}
ROUNDS, SKIPPED = 6, 1
MOST = 20
"""Sites of which one machine can send all messages to all others."""
CLOSE = 1.5


class Line:
    """What takes one thing after another: seconds until it has taken this one, too."""

    def __init__(self) -> None:
        self._free, self._lock = 0.0, threading.Lock()

    def takes(self, seconds: float) -> float:
        """From now on."""
        now = time.monotonic()
        with self._lock:
            self._free = max(self._free, now) + seconds
            return self._free - now


class Slow(Cells):
    """Cells whose messages take their time."""

    def __init__(self, network: NetworkModel, slower: float) -> None:
        super().__init__()
        self.network, self.slower = network, slower
        self.relay, self.lines = Line(), defaultdict(Line)
        self.count, self.begun = 0, False

    def carry(self, topic, message):
        """One leg; introductions take no time."""
        if not self.begun:
            return message
        network, each = self.network, len(message.payload or b"") / self.network.bandwidth
        self.count += 1
        if network.relay is None:
            leg, line = network.rtt / 2, self.lines[message.get_header(MessageHeaderKey.ORIGIN)]
        else:
            leg, line, each = network.rtt, self.relay, each + 0.5 / network.relay
        time.sleep(leg * self.slower + line.takes(each * self.slower))
        return message


class Timed(NamedTuple):
    """Seconds of a round, and requests and replies in it."""

    seconds: float
    legs: float


def measured(run, network: NetworkModel, slower: float) -> Timed:
    """Of one round, on average, once all nodes are in step."""
    net, ends = Slow(network, slower), {}
    with tempfile.TemporaryDirectory() as root:
        tables = records(run)
        nodes = {name: open_node(run, name, tables, Path(root) / name) for name in run.nodes}
        for name, node in nodes.items():
            cell = Channel(net.cell(name), JOB)
            node.transport = FlareTransport(node.links, node.skips, cell, lambda: False)
            turn = node.turn

            def timed(state, t, turn=turn):
                net.begun = True
                found = turn(state, t)
                ends.setdefault(t, []).append((time.monotonic(), net.count))
                return found

            node.turn = timed
        threads = [threading.Thread(target=node.take_part, name=name) for name, node in nodes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for node in nodes.values():
            node.transport.close()
            node.store.close()
    first, last = max(ends[SKIPPED]), max(ends[run.T])
    rounds = run.T - SKIPPED
    return Timed((last[0] - first[0]) / rounds / slower, (last[1] - first[1]) / rounds)


def main(sites: int, slower: float) -> None:
    """Every way on every network."""
    for module, name in ((transport, "RESEND_MIN"), (transport, "RESEND_MAX"), (flare, "HOLD"), (flare, "GRACE")):
        setattr(module, name, getattr(module, name) * slower)
    flare.REPLY_TIMEOUT *= slower
    names = {f"site{i:02}": 12 for i in range(sites)}
    rows = []
    for name, network in NETWORKS.items():
        for way, changes in WAYS.items():
            if sites > MOST and way == "everyone":
                continue
            changes = {key: value.format(half=sites // 2) for key, value in changes.items()}
            run = run_of(ROUNDS, nodes=names, timeout=600.0, privacy__sampling="full", **changes)
            planned = ways(run.spec, sites, run.m, network)[0]["seconds"] / run.T
            found = measured(run, network, slower)
            ratio = found.seconds / planned
            rows.append((sites, name, way, f"{planned:.3f}", f"{found.seconds:.3f}", f"{ratio:.2f}"))
            mark = "" if 1 / CLOSE <= ratio <= CLOSE else "  not within a factor 1.5"
            print(*rows[-1], f"{found.legs:.0f} legs", mark, sep="  ", flush=True)
    path = Path(__file__).parent / "results" / "network.csv"
    header = ("sites", "network", "way", "planned seconds a round", "measured", "ratio")
    kept = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [tuple(row) for row in [*csv.reader(file)][1:] if row[0] != str(sites)]
    every = sorted([*kept, *rows], key=lambda row: int(row[0]))
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *every])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
