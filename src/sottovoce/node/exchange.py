"""The seam over a real network: exchange(round, peer, bytes) -> bytes, complete or an error, idempotent by round.

A `Carrier` only moves bytes, and may lose, repeat or delay them; the `Postbox` knows what fits. An exchange sends this
node's message, lets messages in until the peer's is there, and sends again now and then over a carrier that may
lose things. A slow peer is waited for up to the run's public timeout, by a clock that stands still while this process
is stopped; then the run is paused, not failed: all is on the disk, and the nodes go on from there when started again.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from sottovoce.errors import NetworkError
from sottovoce.node.postbox import Postbox
from sottovoce.node.skips import Skips

AGAIN = 0.5  # seconds after which an unanswered message is sent again
LOOK = 0.2  # seconds after which a waiting node looks at its clock


class Paused(NetworkError):
    """A peer is gone; the run can go on when it is back."""


class Skipped(Exception):
    """The controller decided to leave an edge out of a round; no error."""


class Carrier(Protocol):
    """What moves bytes between nodes."""

    lossy: bool
    """Whether a message may get lost, so that it must be sent again."""

    def send(self, peer: int, payload: bytes) -> None:
        """Start a message on its way; never waits long, never raises because a peer is away."""

    def wait(self, seconds: float) -> None:
        """Let messages into the postbox: until one came, or so long."""


class Requests:
    """A `Carrier` over a network of requests and replies, such as FLARE's.

    Parameters
    ----------
    postbox : the node's own; incoming requests go to `postbox.answer`, which gives the reply
    ask : (peer, payload) -> reply, empty where the peer has nothing to say yet, None where it cannot be reached
    """

    lossy = True

    def __init__(self, postbox: Postbox, ask: Callable[[int, bytes], bytes | None]) -> None:
        self._postbox, self._ask = postbox, ask

    def send(self, peer: int, payload: bytes) -> None:
        """Ask, and take the reply in; one that does not fit is refused and asked for again."""
        reply = self._ask(peer, payload)
        if reply:
            with suppress(NetworkError):  # the postbox keeps the reason
                self._postbox.deliver(peer, reply)

    def wait(self, seconds: float) -> None:
        """Requests come in on other threads."""
        self._postbox.wait(seconds)


class Exchange:
    """A node's end of the network, for `engine.transport.Transport`."""

    def __init__(self, carrier: Carrier, postbox: Postbox, skips: Skips) -> None:
        self.carrier, self.postbox, self.skips = carrier, postbox, skips
        self.timeout = postbox.plan.timeout
        self._offered: set[tuple[int, int]] = set()
        skips.on_change = postbox.nudge

    def offer(self, t: int, peers: Iterable[int], payload: bytes) -> None:
        """Start a round's message to all of its peers at once, before waiting for any of theirs."""
        self._offered = {(t, peer) for peer in peers if not self.skips.skipped(t, peer)}
        for _, peer in sorted(self._offered):
            self.carrier.send(peer, payload)

    def exchange(self, t: int, peer: int, payload: bytes, timeout: float | None = None) -> bytes:
        """Give a round's message for the peer's; raises `Paused`, or `Skipped` where the controller said so."""
        if self.skips.skipped(t, peer):
            raise Skipped
        if (t, peer) not in self._offered:
            self.carrier.send(peer, payload)
        patience = self.timeout if timeout is None else timeout
        watch, sent = Stopwatch(), 0.0
        while (answer := self.postbox.heard(t, peer)) is None:
            if self.skips.skipped(t, peer):
                raise Skipped
            waited = watch.read()
            if waited >= patience:
                raise Paused(self._gone(t, peer))
            if self.carrier.lossy and waited - sent >= AGAIN:
                self.carrier.send(peer, payload)
                sent = waited
                continue
            self.carrier.wait(min(LOOK, patience))
        return answer

    def settle(self, t: int) -> None:
        """Wait for the controller's decision about edges of this round that it asked about."""
        watch = Stopwatch()
        while not self.skips.settle(t):
            self.carrier.wait(LOOK)
            if watch.read() >= self.timeout:
                raise Paused(
                    f"the controller asked about an edge of round {t} and did not decide within {self.timeout:g} s; "
                    "the run is paused: start the controller and this node again"
                )

    def _gone(self, t: int, peer: int) -> str:
        plan, refused = self.postbox.plan, self.postbox.refused
        what = {0: "say hello", plan.T + 1: "say that it is done"}.get(t, f"send its message of round {t}")
        why = f" (the last message that was refused: {refused[-1]})" if refused else ""
        return (
            f"node '{plan.nodes[self.postbox.me]}' waited {self.timeout:g} s for node '{plan.nodes[peer]}' to {what}; "
            f"the run is paused and nothing is lost: start the nodes again, and it goes on from here{why}"
        )


class Stopwatch:
    """Seconds of waiting, not counting what this process slept through while it was stopped."""

    LONGEST = 10 * LOOK  # no look at the clock comes later than this, unless the process was stopped

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._waited = 0.0

    def read(self) -> float:
        """How long by now."""
        now = time.monotonic()
        self._waited += min(now - self._last, self.LONGEST)
        self._last = now
        return self._waited
