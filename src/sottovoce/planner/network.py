"""What a network is like, in public numbers, and how many seconds a plan takes on it.

Nodes that are in step send to one another at the same time, so that a round in which they wait for one another
`waits` times takes as many legs: half a round trip each where nodes speak directly, and a whole one, up and down,
where a server relays. Then each message is half of an exchange (a message and its answer), of which the relay handles
so many a second, and its line carries every byte. Answers come behind the messages; a busy relay handles them, too.

    work       rounds · messages / 2 / relay + bytes / bandwidth
    relayed    max(rounds · waits · rtt + work, 2 · work)
    direct     rounds · waits · rtt / 2 + bytes / n / bandwidth

`benchmarks/network.py` holds this against real nodes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.network.activation import Activation, Everyone, Matching
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import Graph
from sottovoce.network.mixing import GOSSIP, Averaging, Gossip, Rule
from sottovoce.network.schedule import draw_schedule
from sottovoce.planner import predict
from sottovoce.run.spec import Spec

HOUR = 3600.0
"""Seconds that a plan may take unless the user says otherwise."""
RTT, BANDWIDTH = 0.1, 1e7
"""Of a network of which nothing is said: seconds, and bytes a second."""
RELAYED = 250.0
"""Exchanges a second that a relaying server is taken to handle where nothing is said of it: bare ones of four sites on
two cores, which have the sites' work to do as well (benchmarks/results/sites.md)."""


@dataclass(frozen=True)
class NetworkModel:
    """A network between nodes.

    Attributes
    ----------
    rtt : seconds from a message to its answer, between two nodes or between a node and its relay
    bandwidth : bytes a second of each node, and of the relay
    relay : exchanges a second that a relaying server handles for all nodes together; None where nodes speak directly

    Examples
    --------
    >>> everyone = NetworkModel(0.05, 1e7, relay=830)
    >>> round(everyone.seconds(rounds=1000, waits=1, messages=50 * 49, sent=1e8, n=50) / 60, 1)  # minutes
    49.5
    >>> round(everyone.seconds(rounds=1000, waits=1, messages=50, sent=1e6, n=50) / 60, 1)
    1.3
    """

    rtt: float = RTT
    bandwidth: float = BANDWIDTH
    relay: float | None = None

    def __post_init__(self) -> None:
        """Numbers that a network can have."""
        for name, value in (("round-trip time", self.rtt), ("bandwidth", self.bandwidth), ("relay rate", self.relay)):
            if value is not None and not 0 < value < float("inf"):
                raise SpecError(f"the {name} of a network is finite and over 0, not {value!r}")

    def seconds(self, rounds: float, waits: float, messages: float, sent: float, n: int) -> float:
        """How long so many rounds take.

        Parameters
        ----------
        rounds, waits, messages : how many there are, the exchanges of a round that wait for one another, and all
            messages of a round
        sent : bytes of all rounds and nodes
        n : the number of nodes
        """
        if self.relay is None:
            return rounds * waits * self.rtt / 2.0 + sent / n / self.bandwidth
        work = rounds * messages / 2.0 / self.relay + sent / self.bandwidth
        return max(rounds * waits * self.rtt + work, 2.0 * work)

    def __str__(self) -> str:
        """In a plan."""
        relay = "" if self.relay is None else f", a relay of {self.relay:g} exchanges a second"
        return f"{1000 * self.rtt:g} ms, {self.bandwidth / 1e6:g} MB/s{relay}"


class Traffic(NamedTuple):
    """What is said in a round, on average."""

    messages: float
    waits: float
    """Exchanges that wait for one another, at least one."""


def traffic(graph: Graph, scheme: Activation, rule: Rule, averaging: Averaging, rounds: int) -> Traffic:
    """From a sample of so many rounds of a schedule; exact where all rounds are equal."""
    rounds = predict.sampled_rounds(rounds, graph.n)
    sample = draw_schedule(graph, scheme, rule, rounds, np.random.default_rng(0), averaging)
    return Traffic(float(sample.up_to()[-1]) / rounds, max(1.0, sample.depth() / rounds))


EXCHANGES = 4
"""Of the row of a table that has several exchanges a round."""


def ways(spec: Spec, n: int, m: int, network: NetworkModel) -> list[dict[str, Any]]:
    """Seconds and bytes of a plan's rounds in each way that nodes may speak: a row for each, the plan's own first.

    What is mixed less well than in the plan needs more noise, or more rounds; that is not in these numbers.
    """
    graph, chosen = spec.network.graph(n), spec.network
    found: list[tuple[Activation, Averaging]] = [(chosen.activation, chosen.averaging)]
    if n > 1:
        exact = AVERAGINGS.make("exact")
        more: list[tuple[Activation, Averaging]] = [(Everyone(), GOSSIP), (Everyone(), Gossip(EXCHANGES))]
        more += [(Everyone(), exact), (Matching(n // 2), GOSSIP)] if graph.is_complete else []
        found += [way for way in more if way not in found]
    rows = []
    for scheme, averaging in found:
        messages, waits = traffic(graph, scheme, chosen.weights, averaging, SAMPLED)
        sent = messages * spec.algorithm.rounds * averaging.message_bytes(m)
        seconds = network.seconds(spec.algorithm.rounds, waits, messages, sent, n)
        rows.append({"activation": str(scheme), "averaging": str(averaging), "bytes": sent, "seconds": seconds})
    return rows


SAMPLED = 200
"""Rounds of a schedule from which its messages are counted."""
