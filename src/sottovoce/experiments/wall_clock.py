"""How long a run would take on a network: a latency for each link, a bandwidth for each node, and a clock by rounds.

A model for simulations, to draw losses against seconds and not against rounds: a round ends when its slowest link has
carried its message, as often as exchanges wait for one another. Rounds follow one another; computing takes no time
unless it is given. Message sizes are those that histories count (`bytes`).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.network.graphs import Graph, positions
from sottovoce.network.mixing import listed
from sottovoce.registry import Choices
from sottovoce.run.plan import Plan


class Latency(Protocol):
    """Seconds that a message of no length takes on each link."""

    def __call__(self, graph: Graph) -> Array:
        """(n, n) seconds between any two nodes, the same in both directions."""


@dataclass(frozen=True)
class Constant:
    """The same on every link."""

    seconds: float = 0.05

    def __call__(self, graph: Graph) -> Array:
        """As given."""
        return np.full((graph.n, graph.n), self.seconds)


@dataclass(frozen=True)
class Uniform:
    """Drawn once for each link, uniformly between two bounds."""

    low: float = 0.005
    high: float = 0.2
    seed: int = 0

    def __call__(self, graph: Graph) -> Array:
        """By the seed alone."""
        drawn = np.triu(np.random.default_rng(self.seed).uniform(self.low, self.high, (graph.n, graph.n)), 1)
        return np.asarray(drawn + drawn.T)


@dataclass(frozen=True)
class Distance:
    """In proportion to how far apart a graph's nodes are drawn; so many seconds across the whole picture."""

    seconds: float = 0.2

    def __call__(self, graph: Graph) -> Array:
        """By places in [−1, 1]²."""
        places = positions(graph.n, graph.edges)
        apart = np.linalg.norm(places[:, None] - places[None, :], axis=-1)
        return np.asarray(self.seconds * apart / max(float(apart.max()), 1e-12))


LATENCIES: Choices[Latency] = Choices("latency", {"constant": Constant, "uniform": Uniform, "distance": Distance})
"""Every latency by name."""


def wall_clock(plan: Plan, latency: Latency | str, bandwidth: float = 1e7, computing: float = 0.0) -> Array:
    """(T,) seconds from the start to the end of each round.

    Parameters
    ----------
    plan : whose schedule and message sizes are timed
    latency : of each link; or its text
    bandwidth : bytes a second that a node sends, one message after the other
    computing : seconds a round besides

    Examples
    --------
    >>> from sottovoce.run.plan import Request, plan_public
    >>> from sottovoce.run.presets import paper_l2
    >>> plan = plan_public(Request(paper_l2(4).replace(seed=1), np.full(6, 100), 10))
    >>> wall_clock(plan, "constant:0.1", bandwidth=np.inf).round(3).tolist()
    [0.1, 0.2, 0.3, 0.4]
    """
    schedule = plan.schedule
    if not bandwidth > 0 or computing < 0:
        raise SpecError(f"a bandwidth is over 0 and computing takes no less than 0 s, not {bandwidth} and {computing}")
    between = LATENCIES.read(latency) if isinstance(latency, str) else latency
    apart = between(plan.spec.network.graph(schedule.n))
    sending = schedule.averaging.message_bytes(plan.method.width * plan.problem.m) / bandwidth
    counts = np.diff(schedule.starts)
    seconds = np.full(schedule.T, float(computing))
    for number, W in enumerate(schedule.patterns):
        rounds = np.flatnonzero(schedule.pattern == number)
        on = np.argwhere(np.triu(listed(W) > 0, 1))
        if not len(rounds) or not len(on):
            continue  # nobody sends
        places = schedule.starts[rounds][:, None] + np.arange(counts[rounds[0]])
        nodes = schedule.active[places]
        slowest = apart[nodes[:, on[:, 0]], nodes[:, on[:, 1]]].max(axis=1)
        most = int(np.bincount(on.ravel()).max())  # messages that the busiest node sends
        seconds[rounds] += schedule.averaging.depth(W) * (slowest + most * sending)
    return np.asarray(np.cumsum(seconds))
