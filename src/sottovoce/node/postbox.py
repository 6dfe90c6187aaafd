"""What a node has said and heard on each of its links, so that an exchange can be asked for again at any time.

A message is addressed by its round and is the same however often it is sent, so lost messages are sent again and
duplicates ignored. A node keeps its last two messages on every link and hands them out whenever a peer says hello:
that is all that a restarted peer can lack. What does not fit (another run, a round in which the two do not speak, a
second and different message for a round) is refused with a reason, and never mixed in.

Round 0 is the hello, round T + 1 the farewell. In the hello each peer says the highest round that it saw from the
other, and its hash. A node whose ledger does not know that message is an old copy: it stops for good.
"""

from collections.abc import Callable
from threading import Condition
from typing import Any

import numpy as np

from sottovoce._version import __version__
from sottovoce.errors import NetworkError, SottovoceError, StoreError
from sottovoce.node.plan import Plan
from sottovoce.node.store import Mark, Saved
from sottovoce.node.wire import CHECK, Header, Message, check, pack_text, read, unpack_text

KEPT = 2  # messages on a link that a peer may still lack
NOISE_TOLERANCE = 0.01  # σ comes from a search; processors may differ in its last digits


class OldCopy(StoreError):
    """A folder that is behind what peers have seen from its node."""


class Postbox:
    """The messages of one node in one run; safe to use from several threads.

    Parameters
    ----------
    plan : the run
    me : the node's number
    saved : what the node's folder holds of the run
    released : round -> hash of the message that this node's ledger has for it, or None
    """

    def __init__(self, plan: Plan, me: int, saved: Saved, released: Callable[[int], str | None]) -> None:
        self.plan, self.me, self._released = plan, me, released
        self.peers = plan.neighbours(me)
        """Every node that this one ever speaks with, and in which rounds."""
        self._when = {j: frozenset(rounds.tolist()) for j, rounds in self.peers.items()}
        self.shape: tuple[int, ...] | None = None
        """Of this node's own messages, hence of everybody's; None until the first."""
        self.refused: list[str] = []
        """Why messages were refused, the latest last."""
        self._mixed = saved.round
        self._seen = dict(saved.seen)
        self._inbox: dict[int, dict[int, bytes]] = {j: {} for j in self.peers}
        self._outbox: dict[int, bytes] = {}
        self._failure: SottovoceError | None = None
        self._changed = Condition()
        for t, payload in sorted(saved.outbox.items()):
            self.post(t, payload)

    # -- this node's own messages --

    def _header(self, t: int) -> Header:
        return Header(self.plan.run, t, self.me)

    def post(self, t: int, payload: bytes) -> None:
        """Hand a message out from now on; it is on the disk already."""
        with self._changed:
            self._outbox[t] = payload
            self.shape = read(payload).array.shape
            for old in self._stale():
                del self._outbox[old]

    def stale(self, t: int) -> list[int]:
        """Which kept messages no peer can lack any more once that of round t is kept."""
        with self._changed:
            return self._stale(t)

    def _stale(self, *more: int) -> list[int]:
        kept = {*self._outbox, *more}
        needed = {max(kept)} if kept else set()
        for rounds in self.peers.values():
            needed |= set(rounds[: np.searchsorted(rounds, max(kept, default=0), side="right")][-KEPT:].tolist())
        return sorted(kept - needed)

    def hello(self, peer: int) -> bytes:
        """Who this node is, what it saw from the peer, and what the peer may lack."""
        with self._changed:
            mark = self._seen.get(peer)
            last = [self._outbox[t] for t in sorted(self._outbox) if t in self._when[peer]][-KEPT:]
            value = {
                "node": self.plan.nodes[self.me],
                "digest": self.plan.digest,
                "version": __version__,
                "sigma": self.plan.event(self.me).sigma,
                "seen": None if mark is None else list(mark),
            }
            return pack_text(self._header(0), value, tuple(last))

    def farewell(self) -> bytes:
        """The notice that this node has done all of its rounds, and has everything that it needs on the disk."""
        return pack_text(self._header(self.plan.T + 1), "done")

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

        This is what a transport with requests and replies (FLARE) calls for an incoming request.
        """
        t = self.deliver(peer, payload)
        if t == 0:
            return self.hello(peer)
        with self._changed:
            if t > self.plan.T:
                return self.farewell() if self._mixed >= self.plan.T else b""
            return self._outbox.get(t, b"")

    def _take(self, peer: int, message: Message, payload: bytes) -> None:
        if peer not in self.peers:
            raise NetworkError(f"node {peer} never speaks with node {self.me} in this run; refused")
        t = message.header.round
        if t in (0, self.plan.T + 1):
            check(message, Header(self.plan.run, t, peer), None, "|u1")
            if t == 0:
                self._welcome(peer, *unpack_text(message))
            self._inbox[peer][t] = payload
            return
        check(message, Header(self.plan.run, t, peer), self.shape)
        name, digest = self.plan.nodes[peer], message.digest.hex()
        rounds, box = self.peers[peer], self._inbox[peer]
        if t not in self._when[peer]:
            raise NetworkError(f"node '{name}' sent a message for round {t}, in which the two do not speak; refused")
        mark = self._seen.get(peer)
        if mark is not None and mark.round == t and mark.message != digest:
            raise NetworkError(f"node '{name}' sent a second, different message for round {t}; refused")
        if t <= self._mixed or t in box:
            return  # a duplicate of what was mixed or waits to be
        have = max(self._mixed, *box) if box else self._mixed
        due = rounds[np.searchsorted(rounds, have, side="right")]
        if t != due:
            raise NetworkError(f"node '{name}' sent round {t} before round {due}; refused")
        box[t] = payload
        if mark is None or t > mark.round:
            self._seen[peer] = Mark(t, digest)

    def _welcome(self, peer: int, value: Any, attached: tuple[bytes, ...]) -> None:
        name = self.plan.nodes[peer]
        expected = {"node": name, "digest": self.plan.digest}
        if not isinstance(value, dict) or any(value.get(key) != text for key, text in expected.items()):
            raise NetworkError(
                f"node '{name}' does not run the same plan; give all nodes the same run file and version of sottovoce"
            )
        mine, theirs = self.plan.event(peer).sigma, value.get("sigma")
        if not isinstance(theirs, int | float) or abs(theirs - mine) > NOISE_TOLERANCE * mine:
            raise NetworkError(
                f"node '{name}' would add noise of σ = {theirs}, where the plan gives σ = {mine:.6g}; nothing was sent"
            )
        self._check_own(name, value.get("seen"))
        for payload in attached:
            message = read(payload)
            if message.header.round in (0, self.plan.T + 1):
                raise NetworkError(f"node '{name}' attached to its hello what is no message of a round; refused")
            self._take(peer, message, payload)

    def _check_own(self, name: str, seen: Any) -> None:
        """Stop for good where a peer saw a message that this node's ledger does not know."""
        if seen is None:
            return
        if not (isinstance(seen, list) and len(seen) == 2 and isinstance(seen[0], int)):
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
            if self._failure is not None:
                raise self._failure
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
                for old in [r for r in box if 0 < r <= t]:
                    del box[old]

    @property
    def seen(self) -> dict[int, Mark]:
        """The latest message of every peer."""
        with self._changed:
            return dict(self._seen)


def digest_of(payload: bytes) -> str:
    """What ledgers and marks call a message."""
    return payload[-CHECK:].hex()
