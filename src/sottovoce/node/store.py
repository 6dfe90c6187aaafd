"""A node's durable state of each run, and its ledger: what a restart goes on from.

One transaction a round, before any peer can see the round's message: the state in which the round begins, the
message, its row in the ledger, and what was seen of the peers. A crash at any other moment loses only what can be asked
for again, because every node keeps its last two messages on every link: a peer's newest message needs ours of the same
round, so a peer can be one round of the link ahead of what we have on the disk, never two.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import StoreError
from sottovoce.node.folder import Folder
from sottovoce.node.wire import CHECK

Arrays = dict[str, NDArray[Any]]


class Mark(NamedTuple):
    """The latest message seen from a peer: its round, and its hash in hexadecimal."""

    round: int
    message: str


class Saved(NamedTuple):
    """Where a run stands in a folder."""

    round: int
    """The state is the one after this round; 0 at the beginning."""
    state: Arrays | None
    outbox: dict[int, bytes]
    """Messages that peers may still ask for, by round."""
    seen: dict[int, Mark]
    skips: dict[tuple[int, int], str]
    """(round, peer) -> 'promised', 'skip' or 'keep'."""


class Store(Folder):
    """A node's folder and the runs in it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     saved = store.enter("ab" * 32, "first", "north", ("north", "south"), "fingerprint")
    ...     with store.transaction():
    ...         store.keep_state("ab" * 32, 3, {"z": np.zeros((1, 2))}, {1: Mark(3, "cd")})
    ...     again = store.load("ab" * 32)
    ...     store.close()
    >>> saved.state, again.round, again.state, again.seen
    (None, 3, {'z': array([[0., 0.]])}, {1: Mark(round=3, message='cd')})
    """

    def enter(self, run: str, name: str, node: str, nodes: tuple[str, ...], fingerprint: str) -> Saved:
        """Begin a run, or find it where it was left; on other records than it began with it cannot go on."""
        with self._guard, self.reporting():
            found = self._db.execute("SELECT node, fingerprint FROM runs WHERE run = ?", (run,)).fetchone()
            if found is not None and found[0] != node:
                raise StoreError(f"the folder '{self.path}' takes part in this run as node '{found[0]}', not '{node}'")
            if found is not None and found[1] != fingerprint and self.ledger.last(run):
                raise StoreError(
                    f"run '{name}' was begun on other records than these, and the noise of its rounds must not meet "
                    "two data sets; give it the same records, or begin a run of another name"
                )
            for row in self.ledger.rows():
                if row.kind == "stop" and row.run == run:
                    raise StoreError(f"this node stopped for good in run '{name}': {row.detail['reason']}")
            if found is None or found[1] != fingerprint:
                values = (run, name, node, json.dumps(nodes), fingerprint, 0)
                with self.transaction():
                    self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", values)
            return self.load(run)

    def load(self, run: str) -> Saved:
        """All that is kept of a run, each part of it checked."""
        with self._guard, self.reporting():
            (t,) = self._db.execute("SELECT round FROM runs WHERE run = ?", (run,)).fetchone()
            state: Arrays = {}
            query = "SELECT field, dtype, shape, data, hash FROM state WHERE run = ?"
            for field, dtype, shape, data, check in self._db.execute(query, (run,)):
                if _hash(t, field, dtype, shape, data) != check:
                    raise StoreError(self._damaged(f"field '{field}' of the state"))
                state[field] = np.frombuffer(data, dtype=dtype).reshape(json.loads(shape)).copy()
            outbox = dict(self._db.execute("SELECT round, payload FROM outbox WHERE run = ?", (run,)))
            for sent, payload in outbox.items():
                whole = hashlib.sha256(payload[:-CHECK]).digest() == payload[-CHECK:]
                if not whole or self.ledger.released(run, sent) != payload[-CHECK:].hex():
                    raise StoreError(self._damaged(f"the message of round {sent} is not the one in the ledger"))
            marks = self._db.execute("SELECT peer, round, message FROM seen WHERE run = ?", (run,))
            seen = {peer: Mark(at, message) for peer, at, message in marks}
            steps = self._db.execute("SELECT round, peer, phase FROM skips WHERE run = ?", (run,))
            return Saved(t, state or None, outbox, seen, {(at, peer): phase for at, peer, phase in steps})

    def keep_state(self, run: str, t: int, state: Mapping[str, NDArray[Any]], seen: Mapping[int, Mark]) -> None:
        """The state after round t, and what was seen by then; inside a transaction."""
        self._db.execute("UPDATE runs SET round = ? WHERE run = ?", (t, run))
        for field, array in state.items():
            dtype, shape, data = array.dtype.str, json.dumps(array.shape), np.ascontiguousarray(array).tobytes()
            values = (run, field, dtype, shape, data, _hash(t, field, dtype, shape, data))
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)", values)
        marks = [(run, peer, *mark) for peer, mark in seen.items()]
        self._db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", marks)

    def keep_message(self, run: str, t: int, payload: bytes, drop: Iterable[int]) -> None:
        """A message, before it is sent, with its row in the ledger; inside a transaction."""
        self.ledger.append("release", run, t, payload[-CHECK:].hex())
        self._db.execute("INSERT INTO outbox VALUES (?, ?, ?)", (run, t, payload))
        self._db.executemany("DELETE FROM outbox WHERE run = ? AND round = ?", [(run, old) for old in drop])

    def keep_skip(self, run: str, t: int, peer: int, phase: str, name: str) -> None:
        """A step towards leaving an edge out of a round; the decision itself also goes into the ledger."""
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO skips VALUES (?, ?, ?, ?)", (run, t, peer, phase))
            if phase == "skip":
                self.ledger.append("skip", run, t, detail={"peer": name})

    def released(self, run: str, t: int) -> str | None:
        """The hash of the message of a round; None where it was not released."""
        with self._guard, self.reporting():
            return self.ledger.released(run, t)

    def set_budget(self, detail: dict[str, Any]) -> None:
        """The owner's decision, written down."""
        with self.transaction():
            self.ledger.append("budget", detail=detail)

    def stop(self, run: str, reason: str) -> None:
        """Never let this run go on in this folder."""
        with self.transaction():
            self.ledger.append("stop", run, detail={"reason": reason})

    def marks(self) -> list[dict[str, Any]]:
        """What was seen of every peer in every run, by name: with it, a peer's ledger can be checked."""
        with self._guard, self.reporting():
            query = "SELECT s.run, r.nodes, s.peer, s.round, s.message FROM seen s JOIN runs r ON r.run = s.run"
            return [
                {"run": run, "node": json.loads(nodes)[peer], "round": t, "message": message}
                for run, nodes, peer, t, message in self._db.execute(query)
            ]

    def verify(self) -> list[str]:
        """Everything that is wrong with the folder, in sentences."""
        found = self.ledger_faults()
        with self._guard, self.reporting():
            runs = [row[0] for row in self._db.execute("SELECT run FROM runs ORDER BY run")]
        for run in runs:
            try:
                self.load(run)
            except StoreError as error:
                found.append(str(error))
        return found


def _hash(*parts: Any) -> bytes:
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.digest()
