"""What a node has said and heard on each of its links, and which links are left out of a round.

A message is addressed by its round and is the same however often it is sent, so an exchange can be asked for again at
any time: lost messages are sent again and duplicates ignored. A node keeps its last two messages on every link and
hands them out whenever a peer says hello: that is all that a restarted peer can lack. What does not fit (another run, a
round in which the two do not speak, a second and different message for a round) is refused with a reason, and never
mixed in.

Round 0 is the hello, round T + 1 the farewell. In the hello each peer says the highest round that it saw from the
other, and its hash. A node whose ledger does not know that message is an old copy: it stops for good.

An edge may be left out of a round, so that W stays doubly stochastic: both ends do it, or neither. Only the controller
decides, in two steps. It asks both ends to *promise* not to mix the edge in round t; an end that has mixed it already
declines, and the order is off. Once both have promised, and the decision is on the controller's own disk, it tells both
to *skip*; each writes that into its ledger before it mixes, and gives the edge's weight to its own message. An end that
has promised waits for the decision, through any number of restarts. An order that the controller did not get to decide
is off. What was sent stays released, mixed or not: skipping an edge saves no budget.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from threading import Condition, RLock
from typing import Any

import numpy as np

from sottovoce._version import __version__
from sottovoce.errors import NetworkError, OldCopy, SottovoceError, StoreError, Stranger
from sottovoce.node.message import Header, Message, check, pack_text, read, unpack_text
from sottovoce.node.runfile import Run
from sottovoce.node.store import Mark, Saved, Store
from sottovoce.run.result import write_atomically

KEPT = 2  # messages on a link that a peer may still lack
NOISE_TOLERANCE = 0.01  # σ comes from a search; processors may differ in its last digits


class Links:
    """What one node has said and heard in one run; safe to use from several threads.

    Parameters
    ----------
    run : the run
    me : the node's number
    saved : what the node's folder holds of the run
    released : round -> hash of the message that this node's ledger has for it, or None
    """

    def __init__(self, run: Run, me: int, saved: Saved, released: Callable[[int], str | None]) -> None:
        self.run, self.me, self._released = run, me, released
        self.peers = {j: rounds.tolist() for j, rounds in run.neighbours(me).items()}
        """Every node that this one ever speaks with, and in which rounds."""
        self._shape = run.shape
        self._when = {j: frozenset(rounds) for j, rounds in self.peers.items()}
        self.refused: list[str] = []
        """Why messages were refused, the latest last."""
        self._mixed = saved.round
        self._seen = dict(saved.seen)
        self._inbox: dict[int, dict[int, bytes]] = {j: {} for j in self.peers}
        self._outbox: dict[int, bytes] = {}
        self._last: dict[int, list[int]] = {j: [] for j in self.peers}
        self._strangers: dict[int, Stranger] = {}
        self._failure: SottovoceError | None = None
        self._changed = Condition()  # its lock may be taken again by whoever holds it
        for t, payload in sorted(saved.outbox.items()):
            self.post(t, payload)

    # -- this node's own messages --

    def _header(self, t: int) -> Header:
        return Header(self.run.mark, t, self.me)

    def post(self, t: int, payload: bytes) -> None:
        """Hand a message out from now on; it is on the disk already."""
        with self._changed:
            for old in self.stale(t):
                del self._outbox[old]
            for peer in self._peers_of(t):
                self._last[peer] = [*self._last[peer], t][-KEPT:]
            self._outbox[t] = payload

    def stale(self, t: int) -> list[int]:
        """Which kept messages no peer can lack any more once that of round t is kept; told when there are some."""
        with self._changed:
            if len(self._outbox) <= 2 * KEPT * len(self.peers) + 2:
                return []
            mine = set(self._peers_of(t))
            needed = {r for peer, last in self._last.items() for r in (last[1 - KEPT :] if peer in mine else last)}
            return [r for r in self._outbox if r not in needed]

    def _peers_of(self, t: int) -> list[int]:
        return [peer for peer, rounds in self._when.items() if t in rounds]

    def hello(self, peer: int) -> bytes:
        """Who this node is, what it saw from the peer, and what the peer may lack."""
        with self._changed:
            mark, known = self._seen.get(peer), peer not in self._strangers
            last = [self._outbox[t] for t in sorted(self._outbox) if known and t in self._when[peer]][-KEPT:]
            value = {
                "node": self.run.nodes[self.me],
                "to": self.run.nodes[peer],
                "digest": self.run.digest,
                "version": __version__,
                "sigma": self.run.event(self.me).sigma,
                "seen": None if mark is None else list(mark),
            }
            return pack_text(self._header(0), value, tuple(last))

    def farewell(self) -> bytes:
        """The notice that this node has done all of its rounds, and has everything that it needs on the disk."""
        return pack_text(self._header(self.run.T + 1), "done")

    # -- what others say --

    def deliver(self, peer: int, payload: bytes) -> int:
        """Take a message in that came over the link from a peer; refuse what does not fit. Returns its round."""
        try:
            message = read(payload)
            with self._changed:
                self._take(peer, message, payload)
                self._changed.notify_all()
            return message.header.round
        except NetworkError as error:
            with self._changed:
                self.refused = [*self.refused[-99:], str(error)]
            raise

    def answer(self, peer: int, payload: bytes) -> bytes:
        """`deliver`, and give this node's message of the same round; empty where there is none yet.

        This is what a transport of requests and replies (FLARE) calls for an incoming request.
        """
        try:
            t = self.deliver(peer, payload)
        except Stranger:
            return self.hello(peer)  # so that the other side learns of it too
        return self.own(peer, t)

    def own(self, peer: int, t: int) -> bytes:
        """The message of a round that this node has for a peer; empty where there is none yet."""
        if t == 0:
            return self.hello(peer)
        with self._changed:
            if t > self.run.T:
                return self.farewell() if self._mixed >= self.run.T else b""
            return self._outbox.get(t, b"")

    def _take(self, peer: int, message: Message, payload: bytes) -> None:
        if peer not in self.peers:
            raise NetworkError(f"node {peer} never speaks with node {self.me} in this run; refused")
        t = message.header.round
        if t == 0 and message.array.dtype == np.uint8 and message.header.sender == peer:
            self._welcome(peer, *unpack_text(message))
        if t in (0, self.run.T + 1):
            check(message, Header(self.run.mark, t, peer), None, "|u1")
            self._inbox[peer][t] = payload
            return
        check(message, Header(self.run.mark, t, peer), self._shape)
        name, digest = self.run.nodes[peer], message.digest.hex()
        rounds, box = self.peers[peer], self._inbox[peer]
        if t not in self._when[peer]:
            raise NetworkError(f"node '{name}' sent a message for round {t}, in which the two do not speak; refused")
        mark = self._seen.get(peer)
        if mark is not None and mark.round == t and mark.message != digest:
            raise NetworkError(f"node '{name}' sent a second, different message for round {t}; refused")
        if t <= self._mixed or t in box:
            return  # a duplicate of what was mixed or waits to be
        have = max([self._mixed, *(r for r in box if r <= self.run.T)])
        due = rounds[bisect_right(rounds, have)]
        if t != due:
            raise NetworkError(f"node '{name}' sent round {t} before round {due}; refused")
        box[t] = payload
        if mark is None or t > mark.round:
            self._seen[peer] = Mark(t, digest)

    def _welcome(self, peer: int, value: Any, attached: tuple[bytes, ...]) -> None:
        name = self.run.nodes[peer]
        expected = {"node": name, "digest": self.run.digest}
        if not isinstance(value, dict) or any(value.get(key) != text for key, text in expected.items()):
            self._strangers[peer] = Stranger(
                f"node '{name}' does not take part in the same run; give all nodes the same run file and version of "
                "sottovoce"
            )
            raise self._strangers[peer]
        mine, theirs = self.run.event(peer).sigma, _number(value.get("sigma"))
        if not abs(theirs - mine) <= NOISE_TOLERANCE * mine:
            self._strangers[peer] = Stranger(
                f"node '{name}' would add noise of σ = {theirs}, where the run file gives σ = {mine:.6g}; nothing was "
                "sent"
            )
            raise self._strangers[peer]
        self._strangers.pop(peer, None)
        if value.get("to") != self.run.nodes[self.me]:
            raise NetworkError(f"a hello of node '{name}' to node '{value.get('to')}' came here; refused")
        self._check_own(name, value.get("seen"))
        for payload in attached:
            message = read(payload)
            if message.header.round in (0, self.run.T + 1):
                raise NetworkError(f"node '{name}' attached to its hello what is no message of a round; refused")
            self._take(peer, message, payload)

    def _check_own(self, name: str, seen: Any) -> None:
        """Stop for good where a peer saw a message that this node's ledger does not know."""
        if seen is None:
            return
        if not (isinstance(seen, list) and len(seen) == 2 and type(seen[0]) is int and 1 <= seen[0] <= self.run.T):
            raise NetworkError(f"node '{name}' does not say what it saw of this node; refused")
        t, digest = seen
        if self._released(t) == digest:
            return
        self._failure = OldCopy(
            f"node '{name}' has seen round {t} of this node, which this node's ledger does not know: the folder is an "
            "old copy or another one. The round would be released twice, so this node stops for good in this run"
        )
        self._changed.notify_all()
        raise self._failure

    # -- the exchange --

    def heard(self, t: int, peer: int) -> bytes | None:
        """The peer's message of a round, if it is here; an error if this node must stop."""
        with self._changed:
            if self._failure is not None or peer in self._strangers:
                raise self._failure or self._strangers[peer]
            return self._inbox[peer].get(t)

    def wait(self, seconds: float) -> None:
        """Until something changes, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def nudge(self) -> None:
        """Something changed elsewhere that an exchange may wait for."""
        with self._changed:
            self._changed.notify_all()

    def fail(self, error: SottovoceError) -> None:
        """Let every exchange of this node end with an error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def mixed(self, t: int) -> None:
        """All messages up to round t are mixed and can be forgotten; at the end, once they are on the disk."""
        with self._changed:
            self._mixed = t
            for box in self._inbox.values():
                for old in [r for r in box if 0 < r <= t] if box else ():
                    del box[old]

    @property
    def seen(self) -> dict[int, Mark]:
        """The latest message of every peer."""
        with self._changed:
            return dict(self._seen)


def _number(value: Any) -> float:
    """What a peer wrote as a number; NaN for anything else, and for a whole number that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


CONTROLLER = 2**32 - 1
"""The number under which the controller signs its orders."""
PROMISED, SKIP, KEEP = "promised", "skip", "keep"


class Skips:
    """One node's part: what it promised, what was decided, and what it has mixed."""

    def __init__(self, run: Run, me: int, store: Store, phases: dict[tuple[int, int], str], mixed: int) -> None:
        self.run, self.me, self._store = run, me, store
        self._phases, self._mixed = dict(phases), mixed
        self._lock = RLock()
        self.on_change: Callable[[], None] = lambda: None

    def answer(self, payload: bytes) -> bytes:
        """Obey an order of the controller, and confirm it or decline."""
        message = read(payload)
        t = message.header.round
        check(message, Header(self.run.mark, t, CONTROLLER), None, "|u1")
        value, _ = unpack_text(message)
        try:
            peer, phase = int(value["peer"]), str(value["phase"])
        except (KeyError, TypeError, ValueError):
            raise NetworkError("the controller sent an order that cannot be read; refused") from None
        done = self.promise(t, peer) if phase == PROMISED else self.decide(t, peer, phase)
        return pack_text(Header(self.run.mark, t, self.me), {"done": done})

    def promise(self, t: int, peer: int) -> bool:
        """Not to mix this edge until there is a decision; False where it is mixed already."""
        self._refuse_unless_linked(t, peer)
        with self._lock:
            phase = self._phases.get((t, peer))
            if phase in (PROMISED, SKIP):
                return True
            if t <= self._mixed:
                return False
            self._keep(t, peer, PROMISED)
            return True

    def decide(self, t: int, peer: int, phase: str) -> bool:
        """Write the decision down; idempotent. Nothing is skipped, and nothing written down, that was not promised."""
        self._refuse_unless_linked(t, peer)
        with self._lock:
            before = self._phases.get((t, peer))
            if before is None and phase == KEEP:
                return True
            if phase not in (SKIP, KEEP) or (phase == SKIP and before not in (PROMISED, SKIP)):
                raise NetworkError(f"the edge to node {peer} in round {t} was not promised, so it cannot be skipped")
            if before == SKIP and phase == KEEP:
                raise NetworkError(f"the edge to node {peer} in round {t} was skipped already; it cannot be kept")
            if before != phase:
                self._keep(t, peer, phase)
            return True

    def _refuse_unless_linked(self, t: int, peer: int) -> None:
        if not 1 <= t <= self.run.T or peer not in [j for j, _ in self.run.links(t, self.me)]:
            raise NetworkError(f"nodes {self.me} and {peer} have no link in round {t} that could be skipped")

    def _keep(self, t: int, peer: int, phase: str) -> None:
        self._store.keep_skip(self.run.digest, t, peer, phase, self.run.nodes[peer])
        self._phases[t, peer] = phase
        self.on_change()

    def skipped(self, t: int, peer: int) -> bool:
        """Whether it was decided to leave this edge out."""
        with self._lock:
            return self._phases.get((t, peer)) == SKIP

    def settle(self, t: int) -> bool:
        """Begin to mix round t, after which its edges can't be promised any more; False while one awaits a decision."""
        with self._lock:
            if any(at == t and phase == PROMISED for (at, _), phase in self._phases.items()):
                return False
            self._mixed = t
            return True


class SkipOrders:
    """The controller's part; every step is on its disk before anybody hears of it.

    Parameters
    ----------
    run : the run
    file : where decisions are kept
    ask : (node, payload) -> the node's reply; None, or a `NetworkError`, where the node cannot be reached
    """

    def __init__(self, run: Run, file: Path, ask: Callable[[int, bytes], bytes | None]) -> None:
        self.run, self.file, self._ask = run, file, ask
        self._phases: dict[tuple[int, int, int], str] = {}
        try:
            if file.exists():
                self._phases = {(t, i, j): str(phase) for t, i, j, phase in json.loads(file.read_text())}
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"the controller's decisions in '{file}' cannot be read ({error})") from None

    def skip(self, t: int, i: int, j: int) -> bool:
        """Leave edge {i, j} out of round t, if both ends can; True once that is decided and both ends have it."""
        edge = (t, min(i, j), max(i, j))
        W = self.run.prepared.job.schedule.weights(t)
        if not np.array_equal(W, W.T):
            raise NetworkError(
                "an edge can only be skipped where W is symmetric: else W would not stay doubly stochastic"
            )
        if self._phases.get(edge) != SKIP:
            self._write(edge, PROMISED)
            both = all([self._order(edge, PROMISED, node) for node in edge[1:]])
            self._write(edge, SKIP if both else KEEP)
        return self._tell(edge) and self._phases[edge] == SKIP

    def repeat(self) -> bool:
        """Tell every decision again, for nodes that were away; an order that was cut short is off."""
        for edge, phase in list(self._phases.items()):
            if phase == PROMISED:
                self._write(edge, KEEP)
        return all([self._tell(edge) for edge in self._phases])

    def _tell(self, edge: tuple[int, int, int]) -> bool:
        return all([self._order(edge, self._phases[edge], node) for node in edge[1:]])

    def _write(self, edge: tuple[int, int, int], phase: str) -> None:
        self._phases[edge] = phase
        write_atomically(self.file, json.dumps([[*at, what] for at, what in self._phases.items()]).encode())

    def _order(self, edge: tuple[int, int, int], phase: str, node: int) -> bool:
        t, i, j = edge
        value: Any = {"peer": i + j - node, "phase": phase}
        try:
            reply = self._ask(node, pack_text(Header(self.run.mark, t, CONTROLLER), value))
            if reply is None:
                return False
            message = read(reply)
            check(message, Header(self.run.mark, t, node), None, "|u1")
            value = unpack_text(message)[0]
            return bool(isinstance(value, dict) and value.get("done") is True)
        except NetworkError:
            return False
