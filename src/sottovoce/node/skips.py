"""Leaving an edge out of a round, so that W stays doubly stochastic: both ends do it, or neither.

Only the controller decides, in two steps. It asks both ends to *promise* not to mix the edge in round t; an end that
has mixed it already declines, and the order is off. Once both have promised, and the decision is on the controller's
own disk, it tells both to *skip*; each writes that into its ledger before it mixes, and gives the edge's weight to its
own message. An end that has promised waits for the decision, through any number of restarts. An order that the
controller did not get to decide is off.

What was sent stays released, mixed or not: skipping an edge saves no budget.
"""

import json
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from sottovoce.errors import NetworkError, StoreError
from sottovoce.node.message import Header, check, pack_text, read, unpack_text
from sottovoce.node.runfile import Run
from sottovoce.node.store import Store
from sottovoce.run.result import write_atomically

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
        if not 1 <= t <= self.run.T or peer not in [j for j, _ in self.run.links(t, self.me)]:
            raise NetworkError(f"nodes {self.me} and {peer} have no link in round {t} that could be skipped")
        with self._lock:
            phase = self._phases.get((t, peer))
            if phase in (PROMISED, SKIP):
                return True
            if t <= self._mixed:
                return False
            self._keep(t, peer, PROMISED)
            return True

    def decide(self, t: int, peer: int, phase: str) -> bool:
        """Write the decision down; idempotent. Nothing is skipped that was not promised."""
        with self._lock:
            before = self._phases.get((t, peer))
            if phase not in (SKIP, KEEP) or (phase == SKIP and before not in (PROMISED, SKIP)):
                raise NetworkError(f"the edge to node {peer} in round {t} was not promised, so it cannot be skipped")
            if before == SKIP and phase == KEEP:
                raise NetworkError(f"the edge to node {peer} in round {t} was skipped already; it cannot be kept")
            if before != phase:
                self._keep(t, peer, phase)
            return True

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


class Controller:
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
