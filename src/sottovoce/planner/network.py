"""What a network is like, in public numbers, and how many seconds a plan takes on it.

A round in which nodes wait for one another `waits` times takes as many round trips. Where a server relays all messages
it takes two for each: one from the sender's side and one from the receiver's; the relay handles so many exchanges (a
message and its answer) a second, and its line carries every byte.

    seconds = rounds · (waits · trips · rtt + exchanges / relay) + bytes / bandwidth
"""

from dataclasses import dataclass

from sottovoce.errors import SpecError

HOUR = 3600.0
"""Seconds that a plan may take unless the user says otherwise."""


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
    26.4
    >>> round(everyone.seconds(rounds=1000, waits=1, messages=50, sent=1e6, n=50) / 60, 1)
    2.2
    """

    rtt: float = 0.05
    bandwidth: float = 1e7
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
        trips, line = (1.0, sent / n) if self.relay is None else (2.0, sent)
        relayed = 0.0 if self.relay is None else messages / 2.0 / self.relay
        return rounds * (waits * trips * self.rtt + relayed) + line / self.bandwidth

    def __str__(self) -> str:
        """In a plan."""
        relay = "" if self.relay is None else f", a relay of {self.relay:g} exchanges a second"
        return f"{1000 * self.rtt:g} ms, {self.bandwidth / 1e6:g} MB/s{relay}"
