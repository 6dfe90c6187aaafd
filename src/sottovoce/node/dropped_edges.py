"""Drop an edge from a round: both ends do it, or neither, so that W stays doubly stochastic.

It is for a link that is down, or an end that is slow, and only where the run file says after how many seconds of
waiting (`skip_after`). The controller is at a server that nobody need trust, so it only carries what the two ends say:

1. It requests both ends' *word* on the edge in round t. An end that has not mixed it yet promises not to; one
   that has mixed it declines. A word is written down before it is given, signed with the run key, says whether this end
   has waited as long as was agreed, and is never changed.
2. It hands each end the other's word. Two promises, of which one says that it has waited, and the edge is *skipped*:
   each end writes that into its ledger before it mixes, and gives the edge's weight to its own message. Any other two
   words, and the edge is *kept*. One end alone can decide nothing, nor can the controller.

An end that has promised waits for the other's word, through any number of restarts. A controller that forwards to
nobody, or to one end only, makes the run pause; it cannot make one end skip and the other mix, since both words decide
the same for both. An end that waits so says for whom (`undecided`), so that any correct controller, not only the one
that requested it, releases it. What was sent stays released, mixed or not: skipping an edge saves no budget.
"""

import json
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from sottovoce.errors import NetworkError, StoreError
from sottovoce.network.mixing import listed
from sottovoce.node.envelope import Envelope
from sottovoce.node.message import Code, Header, Refused, check, pack_text, read, unpack_text
from sottovoce.node.runfile import Run
from sottovoce.node.store import Store
from sottovoce.run.result import write_atomically

CONTROLLER = 2**32 - 1
"""The number under which the controller's orders come."""
PROMISED, LATE, SKIP, KEEP = "promised", "late", "skip", "keep"
"""Where an edge stands at an end: promised, promised after having waited, and what was decided."""
PHASE_REQUEST, PHASE_DECISION = "ask", "tell"
ORDER = 4096
"""Bytes of an order, and of the answer to one."""
Word = dict[str, Any]
"""What an end says of an edge in a round: {"word": 'promised' or 'keep', "late": …, "signature": …}."""


def _statement(run: Run, t: int, i: int, j: int, word: str, late: bool) -> tuple[str | int, ...]:
    """What an end signs; the same whichever end's view it is."""
    return "skip", t, run.nodes[min(i, j)], run.nodes[max(i, j)], word, int(late)


class Skips:
    """One node's part: what it promised, what follows from both ends' words, and what it has mixed.

    Parameters
    ----------
    run, me, store : of the node
    phases : (round, peer) -> what is written down already
    mixed : the last round that the node has mixed
    envelope : what signs words, and knows the peers' signatures
    """

    def __init__(
        self, run: Run, me: int, store: Store, phases: dict[tuple[int, int], str], mixed: int, envelope: Envelope
    ) -> None:
        self.run, self.me, self._store, self._envelope = run, me, store, envelope
        self._phases, self._mixed = dict(phases), mixed
        self._lock = RLock()
        self.on_change: Callable[[], None] = lambda: None
        self.waited: Callable[[int, int], float] = lambda t, peer: 0.0
        """(round, peer) -> for how many seconds this node has waited for the peer's message; a transport knows."""

    def answer(self, payload: bytes) -> bytes:
        """Answer the controller: with this node's word, or with whether the edge is skipped."""
        if len(payload) > ORDER:
            raise Refused(Code.SIZE, f"an order of {len(payload)} bytes came; refused")
        message = read(payload)
        t = message.header.round
        check(message, Header(self.run.mark, t, CONTROLLER), None, "|u1")
        value, _ = unpack_text(message)
        try:
            peer, phase, word = value["peer"], value["phase"], value.get("word")
            if type(peer) is not int or phase not in (PHASE_REQUEST, PHASE_DECISION):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refused(Code.SKIP, "the controller sent an order that cannot be read; refused") from None
        if phase == PHASE_REQUEST:
            said: Any = {"word": self.word(t, peer)}
        else:
            said = {"skipped": self.accept_word(t, peer, word)}
        return pack_text(Header(self.run.mark, t, self.me), said)

    def word(self, t: int, peer: int) -> Word:
        """Return this node's signed word on an edge; the first request fixes it."""
        self._check_agreed(t, peer)
        with self._lock:
            if (t, peer) not in self._phases:
                promise = LATE if self._late(t, peer) else PROMISED
                self._keep(t, peer, KEEP if t <= self._mixed else promise)
            word = KEEP if self._phases[t, peer] == KEEP else PROMISED
            late = self._phases[t, peer] in (LATE, SKIP)  # a word that decided says the same as the decision
        signature = self._envelope.sign(*_statement(self.run, t, self.me, peer, word, late))
        return {"word": word, "late": late, "signature": signature.hex()}

    def _late(self, t: int, peer: int) -> bool:
        assert self.run.skip_after is not None
        return self.waited(t, peer) >= self.run.skip_after

    def accept_word(self, t: int, peer: int, word: Any) -> bool:
        """Take the peer's word: whether the edge is skipped. Without both ends' words nothing is decided."""
        self._check_agreed(t, peer)
        said, late = self._believed(t, peer, word)
        with self._lock:
            mine = self._phases.get((t, peer))
            if mine is None:
                raise Refused(
                    Code.SKIP, f"the edge to node {peer} in round {t} was not promised, so it cannot be skipped"
                )
            if mine in (PROMISED, LATE):  # else it is decided already
                self._keep(t, peer, SKIP if said == PROMISED and (late or mine == LATE) else KEEP)
            return self._phases[t, peer] == SKIP

    def _believed(self, t: int, peer: int, word: Any) -> tuple[str, bool]:
        try:
            said, late, signature = word["word"], word["late"], bytes.fromhex(word["signature"])
            if said not in (PROMISED, KEEP) or type(late) is not bool:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise Refused(Code.SKIP, f"the word of node {peer} on round {t} cannot be read; refused") from None
        if not self._envelope.verify(peer, signature, *_statement(self.run, t, self.me, peer, said, late)):
            raise Refused(Code.SKIP, f"the word of node {peer} on round {t} is not signed by it; refused")
        return said, late

    def _check_agreed(self, t: int, peer: int) -> None:
        if self.run.skip_after is None:
            raise Refused(Code.SKIP, "the run file does not say 'skip_after', so no edge is ever skipped; refused")
        if not 1 <= t <= self.run.T or peer not in [j for j, _ in self.run.links(t, self.me)]:
            raise Refused(Code.SKIP, f"nodes {self.me} and {peer} have no link in round {t} that could be skipped")

    def _keep(self, t: int, peer: int, phase: str) -> None:
        self._store.keep_skip(self.run.digest, t, peer, phase, self.run.nodes[peer])
        self._phases[t, peer] = phase
        self.on_change()

    def skipped(self, t: int, peer: int) -> bool:
        """Return whether this edge is dropped; a single lookup, which needs no lock."""
        return self._phases.get((t, peer)) == SKIP

    @property
    def count(self) -> int:
        """How many edges of this node were left out of a round."""
        with self._lock:
            return sum(phase == SKIP for phase in self._phases.values())

    def undecided(self, t: int) -> list[int]:
        """The peers whose word this node waits for before it mixes round t."""
        with self._lock:
            return [peer for (at, peer), phase in self._phases.items() if at == t and phase in (PROMISED, LATE)]

    def settle(self, t: int) -> bool:
        """Begin to mix round t, after which its edges can't be promised any more; False while one awaits a decision."""
        with self._lock:
            if self._phases and self.undecided(t):
                return False
            self._mixed = t
            return True


class SkipOrders:
    """The controller's part: it collects words and forwards them; it keeps its requests on disk.

    Parameters
    ----------
    run : the run
    file : where it keeps the edges of its requests
    ask : (node, payload) -> the node's reply; None, or a `NetworkError`, where the node cannot be reached
    """

    def __init__(self, run: Run, file: Path, ask: Callable[[int, bytes], bytes | None]) -> None:
        self.run, self.file, self._ask = run, file, ask
        self._edges: dict[tuple[int, int, int], bool] = {}
        try:
            if file.exists():
                self._edges = {(int(t), int(i), int(j)): bool(done) for t, i, j, done in json.loads(file.read_text())}
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"the controller's decisions in '{file}' cannot be read ({error})") from None

    def skip(self, t: int, i: int, j: int) -> bool:
        """Leave edge {i, j} out of round t, if both ends say so; True once both ends have decided it."""
        edge = (t, min(i, j), max(i, j))
        W = listed(self.run.plan.schedule.weights(t))
        if not np.array_equal(W, W.T):
            raise NetworkError(
                "an edge can only be skipped where W is symmetric: else W would not stay doubly stochastic"
            )
        self._write(edge, False)
        return self._settled(edge) is True

    def repeat(self) -> bool:
        """Go on with every edge that is not decided at both ends, for nodes that were away; True once all are."""
        return all([self._settled(edge) is not None for edge, done in list(self._edges.items()) if not done])

    def _settled(self, edge: tuple[int, int, int]) -> bool | None:
        """Whether both ends skip the edge; None while one of them cannot be reached or does not decide."""
        _, i, j = edge
        words = {node: self._order(edge, node, {"phase": PHASE_REQUEST}).get("word") for node in (i, j)}
        if not all(isinstance(word, dict) for word in words.values()):
            return None
        ends = [
            self._order(edge, node, {"phase": PHASE_DECISION, "word": words[i + j - node]}).get("skipped")
            for node in (i, j)
        ]
        if not all(isinstance(end, bool) for end in ends):
            return None
        self._write(edge, True)
        return all(ends)

    def _write(self, edge: tuple[int, int, int], done: bool) -> None:
        if self._edges.get(edge) != done:
            self._edges[edge] = done
            write_atomically(self.file, json.dumps([[*at, what] for at, what in self._edges.items()]).encode())

    def _order(self, edge: tuple[int, int, int], node: int, value: dict[str, Any]) -> dict[str, Any]:
        """What a node answers; nothing where it does not."""
        t, i, j = edge
        order = pack_text(Header(self.run.mark, t, CONTROLLER), value | {"peer": i + j - node})
        try:
            reply = self._ask(node, order)
            if reply is None or len(reply) > ORDER:
                return {}
            message = read(reply)
            check(message, Header(self.run.mark, t, node), None, "|u1")
            said = unpack_text(message)[0]
            return said if isinstance(said, dict) else {}
        except NetworkError:
            return {}
