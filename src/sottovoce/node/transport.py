"""A node's end of a real network: exchange(round, message, peers) -> their messages, complete or an error.

This is the one seam between a node's loop and a network (`engine.nodes.Transport`). A real one may lose, repeat or
delay messages, so `NodeTransport` has all that makes an exchange certain, and what moves the bytes says only how to
`send` and how to `wait`. What is sent and taken in is the business of the node's `Links`: a carrier sends what
`Links.sealed` gives it, and hands what comes to `Links.deliver`. An exchange sends this node's
message, lets messages in until the peers' are there, and sends again now and then where they may get lost; repeated for
a round, it gives the same. A slow peer is waited for up to the run's public timeout, by a clock that stands still while
this process is stopped; then the run is paused, not failed: all is on the disk, and the nodes go on from there when
started again.

Over MPI, inside one trust domain: rank = node number, nonblocking sends, polling receives. MPI has no certificates:
nodes know each other by the keys in the run file, or trust on first use. Across organizations take FLARE
(`sottovoce.consortium`). A rank that dies takes the job with it; started again, the same command goes on where every
node's folder stands.
"""

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sottovoce.errors import NetworkError, PeerTimeout, SottovoceError, SpecError
from sottovoce.node.dropped_edges import Skips
from sottovoce.node.links import MEETING, Links
from sottovoce.node.removal import CONFERS

RESEND_MIN, RESEND_MAX = 0.02, 0.5
"""Seconds after which an unanswered message is sent again: at least, and at most, or after `ROUND_TRIPS` if later."""
ROUND_TRIPS = 4
"""Measured round trips after which a message counts as lost."""
SAMPLES = 16
"""Round trips of a peer that are remembered; the shortest counts, since a reply may wait for its sender."""
CHECK_SECONDS = 0.2  # seconds after which a waiting node checks its clock


class Resend:
    """When to send an unanswered message again: after 4 measured round trips, then after twice as long each time.

    Examples
    --------
    >>> again = Resend()
    >>> again.delay(1, 0)
    0.5
    >>> again.measured(1, 0.03)
    >>> again.delay(1, 0), again.delay(1, 1), again.delay(1, 5)
    (0.12, 0.24, 0.5)
    >>> again.measured(2, 0.4)
    >>> again.delay(2, 0), again.delay(2, 5)
    (1.6, 1.6)
    """

    def __init__(self) -> None:
        self._trips: dict[int, deque[float]] = {}

    def measured(self, peer: int, seconds: float) -> None:
        """Note how long a peer's reply took."""
        self._trips.setdefault(peer, deque(maxlen=SAMPLES)).append(seconds)

    def delay(self, peer: int, sent: int) -> float:
        """Return the seconds to wait for a peer before a message that was sent again `sent` times is sent once more."""
        trips = self._trips.get(peer)
        if not trips:
            return RESEND_MAX
        several = ROUND_TRIPS * min(trips)  # on a slow network more than the most: a busy relay is not to get it twice
        return min(max(RESEND_MAX, several), max(RESEND_MIN, several) * 2.0 ** min(sent, 30))


class NodeTransport(ABC):
    """One node's end of a network that may fail; a subclass moves the bytes.

    Parameters
    ----------
    links : what the node says, and what it has heard
    skips : which edges are left out of a round
    """

    lossy = True
    """Whether a message may get lost, so that it must be sent again."""

    def __init__(self, links: Links, skips: Skips) -> None:
        self.follow(links, skips)
        self.timeout = links.run.timeout
        self.resend = Resend()
        self.clock = Stopwatch()
        """By which a silent member counts as lost."""
        self.waited: dict[int, float] = {}
        """Seconds that this process has waited for each peer."""
        self._awaited: tuple[int, tuple[int, ...], float] = MEETING, (), 0.0

    def follow(self, links: Links, skips: Skips) -> None:
        """From now on, what is sent and taken in is of this epoch."""
        self.links, self.skips = links, skips
        skips.on_change, skips.waited = links.nudge, self._waited

    def confer(self, at: int, freezing: bool = False) -> None:
        """Notice who is silent, while this node waits; raises `Frozen` once the epoch is over for it."""
        removal, run = self.links.removal, self.links.run
        if removal is None:
            return
        removal.check()
        if removal.due and not freezing:
            raise Frozen
        done = self.links.done
        removal.tick(self.clock, (run.epoch, at), done, done >= run.T, lambda peer: self.send(peer, CONFERS))

    @abstractmethod
    def send(self, peer: int, payload: bytes) -> None:
        """Start a message on its way; never waits long, never raises because a peer is away."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Let messages in, to `Links.deliver`: until one came, or so long."""

    def exchange(
        self, t: int, payload: bytes, peers: Sequence[int], hears: Sequence[int] | None = None, part: int = 0
    ) -> dict[int, bytes]:
        """Send a round's message to all peers and return theirs; raises `PeerTimeout` if a peer is gone."""
        step, hears = self.links.run.step(t, part), tuple(peers if hears is None else hears)
        skipped = self.skips.skipped
        self._awaited = step, hears, time.monotonic()
        for peer in peers:
            if not skipped(t, peer):
                self.send(peer, payload)
        heard = {}
        for peer in hears:
            heard[peer] = self._wait_for(step, peer, payload if peer in peers else b"", self.timeout)
        self._settle(t)
        return {peer: p for peer, p in heard.items() if p is not None and not skipped(t, peer)}

    def waiting(self, t: int) -> tuple[tuple[int, ...], float]:
        """The peers whose messages of round t, or words on them, this node lacks, and for how many seconds it waits."""
        late, seconds = self._late(t)
        return tuple(dict.fromkeys([*late, *self.skips.undecided(t)])), seconds

    def greeting(self) -> tuple[tuple[int, ...], float]:
        """The peer whose introduction, hello or farewell this node waits for, and for how many seconds."""
        step, peers, since = self._awaited
        if 1 <= step <= self.links.last:
            return (), 0.0
        return tuple(peer for peer in peers if self.links.heard(step, peer) is None), time.monotonic() - since

    def _late(self, t: int) -> tuple[tuple[int, ...], float]:
        """The same of messages alone."""
        step, hears, since = self._awaited
        if not hears or self.links.run.at(step)[0] != t:
            return (), 0.0
        return tuple(peer for peer in hears if self.links.heard(step, peer) is None), time.monotonic() - since

    def _waited(self, t: int, peer: int) -> float:
        """For how many seconds this node has waited for a peer's message of a round."""
        late, seconds = self._late(t)
        return seconds if peer in late else 0.0

    def meet(self, peers: Sequence[int]) -> None:
        """Introduce this node to others, and learn their keys; known keys need no request."""
        strangers = [peer for peer in peers if self.links.heard(MEETING, peer) is None]
        for peer in strangers:
            self.send(peer, self.links.envelope.introduction)
        for peer in strangers:
            self._wait_for(MEETING, peer, self.links.envelope.introduction, self.timeout)

    def swap(self, t: int, peer: int, payload: bytes, timeout: float | None = None) -> None:
        """Give a notice, which each peer gets one of its own of, for the peer's."""
        self.send(peer, payload)
        self._wait_for(t, peer, payload, self.timeout if timeout is None else timeout)

    def _wait_for(self, step: int, peer: int, payload: bytes, patience: float) -> bytes | None:
        """The peer's message of a step; None where it was decided to leave the edge out.

        Two nodes that both send in an exchange answer each other by their messages. A node that only receives repeats
        its hello: every hello carries the link's last messages, in case one was lost.
        """
        watch, t = Stopwatch(), self.links.run.at(step)[0]
        again, due = 0, self.resend.delay(peer, 0)
        if not 1 <= step <= self.links.last:
            self._awaited = step, (peer,), time.monotonic()
        before = self.waited.get(peer, 0.0)
        while (answer := self.links.heard(step, peer)) is None:
            if self.skips.skipped(t, peer):
                return None
            self.confer(step)
            waited = watch.read()
            self.waited[peer] = before + waited
            if waited >= patience:
                raise PeerTimeout(self._gone(step, peer), self.links.run.nodes[peer])
            anew = step == 0 and self.links.repeats_hello(peer)  # it is there, and has not heard this process yet
            if self.lossy and (anew or waited >= due):
                self.send(peer, payload or self.links.hello(peer))
                again += not anew
                due = watch.read() + self.resend.delay(peer, again)
                continue
            self.wait(min(CHECK_SECONDS, patience, max(due - waited, 0.0) if self.lossy else CHECK_SECONDS))
        return answer

    def part(self, seconds: float) -> None:
        """Notify every peer that this node stopped, until all have acknowledged it or the seconds are over."""
        links, watch = self.links, Stopwatch()
        peers, sent = [peer for peer in links.peers if links.envelope.knows(peer)], 0
        while left := [peer for peer in peers if not links.parted(peer)]:
            for peer in left:
                with suppress(SottovoceError):  # what ended this node ends it
                    self.send(peer, links.parting(peer))
            sent += 1
            if watch.read() >= seconds or not self.lossy:
                return
            with suppress(SottovoceError):
                self.wait(RESEND_MAX if sent > 3 else RESEND_MIN * 2**sent)

    def _settle(self, t: int) -> None:
        """Wait for the controller's decision about the edges of this round in its requests."""
        if self.skips.settle(t):
            return
        watch = Stopwatch()
        while not self.skips.settle(t):
            self.wait(CHECK_SECONDS)
            if watch.read() >= self.timeout:
                raise PeerTimeout(
                    f"the controller requested a word on an edge of round {t} but did not decide within "
                    f"{self.timeout:g} s; the run is paused: start the controller and this node again"
                )

    def _gone(self, step: int, peer: int) -> str:
        run, refused = self.links.run, self.links.reasons.get(peer)
        notices = {MEETING: "introduce itself", 0: "say hello", self.links.last + 1: "say that it is done"}
        what = notices.get(step, f"send its message of {run.when(step)}")
        if run.shares_with(self.links.me):
            what += "; should it be gone for good, this run cannot be finished, since noise that it shares stays in"
        why = f" (the last message of it that was refused: {refused})" if refused else ""
        return (
            f"node '{run.nodes[self.links.me]}' waited {self.timeout:g} s for node '{run.nodes[peer]}' to {what}; "
            f"the run is paused and nothing is lost: start the nodes again, and it goes on from here{why}"
        )


class Stopwatch:
    """Seconds of waiting, not counting what this process slept through while it was stopped."""

    __slots__ = ("_last", "_waited")
    LONGEST = 10 * CHECK_SECONDS  # no access to the clock comes later than this, unless the process was stopped

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._waited = 0.0

    def read(self) -> float:
        """How long by now."""
        now = time.monotonic()
        self._waited += min(now - self._last, self.LONGEST)
        self._last = now
        return self._waited


class Frozen(Exception):
    """A member is being removed: this epoch is over. No error, and nobody but the node's loop sees it."""


class RequestTransport(NodeTransport):
    """A transport over any network of requests and replies; `Links.answer` answers requests.

    Parameters
    ----------
    links, skips : of the node
    ask : (peer, payload) -> reply, empty where the peer has nothing to say yet, None where it cannot be reached
    """

    def __init__(self, links: Links, skips: Skips, ask: Callable[[int, bytes], bytes | None]) -> None:
        super().__init__(links, skips)
        self._ask = ask

    def send(self, peer: int, payload: bytes) -> None:
        """Ask, and take the reply in; one that does not fit is refused and requested again."""
        began = time.monotonic()
        reply = self._ask(peer, self.links.sealed(peer, payload))
        if reply is not None:
            self.resend.measured(peer, time.monotonic() - began)
        if reply:
            with suppress(NetworkError):  # the links keep the reason
                self.links.deliver(peer, reply, reply=True)

    def wait(self, seconds: float) -> None:
        """Requests come in on other threads."""
        self.links.wait(seconds)


TAG = 7
HELD = 32  # unsent messages in the queue before it is checked which of them have left
SPIN = 0.001  # seconds of polling before a waiting rank begins to sleep, so that many ranks can share a core
NAP = 0.0002
AT_ONCE = 32768
"""Bytes that ranks of one machine pass in one step; a receiver first requests longer messages."""


def world() -> Any:
    """The communicator of all ranks."""
    os.environ.setdefault("OMPI_MCA_btl_sm_eager_limit", str(AT_ONCE))  # Open MPI reads it when it starts
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise SpecError(
            f"nodes over MPI need mpi4py and an MPI library ({error}); install sottovoce[mpi] and start with mpirun"
        ) from None
    return MPI.COMM_WORLD


class MpiTransport(NodeTransport):
    """Over the communicator of all ranks; nothing gets lost in it."""

    lossy = False

    def __init__(self, links: Links, skips: Skips, comm: Any) -> None:
        from mpi4py import MPI

        super().__init__(links, skips)
        self._comm, self._status, self._anybody, self._bytes = comm, MPI.Status(), MPI.ANY_SOURCE, MPI.BYTE
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._buffer = memoryview(bytearray(links.limit))  # the links keep nothing of it
        self._introduced: set[int] = set()
        self._hellos: dict[int, Any] = {}  # the last answer to each peer's hello: one is on its way at a time
        self._owed: set[int] = set()

    def send(self, peer: int, payload: bytes) -> None:
        """Start a message; its bytes are held until MPI is done with them."""
        data = self.links.sealed(peer, payload)
        if data is self.links.envelope.introduction:
            self._introduced.add(peer)
        self._let_go()
        self._sending.append((self._comm.Isend(data, peer, TAG), data))

    def wait(self, seconds: float) -> None:
        """Take in whatever has come, from whomever; polling also moves this rank's own sends along."""
        began = time.monotonic()
        while not self._receive():
            waited = time.monotonic() - began
            if waited >= seconds:
                return
            if waited > SPIN:  # until then: a probe that finds nothing lets others run, where ranks share cores
                time.sleep(NAP)

    def flush(self) -> None:
        """Wait until every message has left; their receivers have said that they are done, so it is a moment."""
        while self._sending:
            self._receive()
            self._let_go(held=0)

    def _let_go(self, held: int = HELD) -> None:
        """Forget what has left: the oldest first, and where one waits, those behind it once they are many."""
        while self._sending and self._sending[0][0].Test():
            self._sending.popleft()
        if len(self._sending) > held:
            self._sending = deque((request, data) for request, data in self._sending if not request.Test())

    def _answer(self) -> None:
        """Send the hellos that peers wait for; a peer that never receives costs no memory."""
        for peer in [j for j in self._owed if j not in self._hellos or self._hellos[j].Test()]:
            self._owed.discard(peer)
            if self.links.owes_hello(peer):
                self.send(peer, self.links.hello(peer))
                self._hellos[peer] = self._sending[-1][0]

    def _receive(self) -> bool:
        if self._owed:
            self._answer()
        status = self._status
        message = self._comm.Improbe(self._anybody, TAG, status)
        if message is None:
            return False
        size, peer = status.Get_count(self._bytes), status.Get_source()
        if size > self.links.limit:  # it can't be left where it is, and nothing honest is so long
            self.links.fail(
                NetworkError(f"rank {peer} sent {size} bytes, and {self.links.limit} are the most; stopped")
            )
            return True
        data = self._buffer[:size]
        message.Recv(data)
        try:
            t = self.links.deliver(peer, data)
            if t == MEETING and peer not in self._introduced:
                self.send(peer, self.links.envelope.introduction)  # known here from before, and not yet there
            elif t == 0 and self.links.owes_hello(peer):
                self._owed.add(peer)
                self._answer()
        except NetworkError:
            pass  # the links keep the reason; waiting continues
        return True
