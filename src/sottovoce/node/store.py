"""A node's own folder: who may open it, where each of its runs stands, and what is damaged.

    node.sqlite     state, messages, high-water marks, skip decisions, and the ledger
    secret.key      the node's entropy (`entropy.py`)
    ledger.head     the ledger's head, kept apart (`ledger.py`)
    lock            held while a node runs

Key, nonce and ledger are born together: a folder that has lost one of them is refused, never filled up again. The
step is the transaction that makes the tables; what is left of a birth that was cut short is thrown away, or finished.

Write-ahead log, synchronous = FULL: when a transaction returns, it is on the disk, and a power loss costs nothing.

One transaction a round, before any peer can see the round's message: the state in which the round begins, the
message, its row in the ledger, and what was seen of the peers. That is what a restart goes on from. A crash at any
other moment loses only what can be asked for again, because every node keeps its last two messages on every link: a
peer's newest message needs ours of the same round, so a peer can be one round of the link ahead of what we have on the
disk, never two.

In a folder a run's name stands for one digest, once something was released under it: what would begin under the same
name with another digest is another run, and must be called so.
"""

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import FolderInUse, SottovoceError, StoreError
from sottovoce.node import entropy, ledger
from sottovoce.node.message import CHECK

FILE, LOCK = "node.sqlite", "lock"
APPLICATION, VERSION = 0x53564F43, 1  # "SVOC", and the version of the tables

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (run TEXT PRIMARY KEY, name TEXT NOT NULL, node TEXT NOT NULL, nodes TEXT NOT NULL,
    fingerprint TEXT NOT NULL, round INTEGER NOT NULL);
CREATE TABLE state (run TEXT, field TEXT, dtype TEXT, shape TEXT, data BLOB, hash BLOB, PRIMARY KEY (run, field));
CREATE TABLE outbox (run TEXT, round INTEGER, payload BLOB NOT NULL, PRIMARY KEY (run, round));
CREATE TABLE seen (run TEXT, peer INTEGER, round INTEGER, message TEXT, PRIMARY KEY (run, peer));
CREATE TABLE skips (run TEXT, round INTEGER, peer INTEGER, phase TEXT, PRIMARY KEY (run, round, peer));
"""


class Folder:
    """A node's folder, opened by the one process that may write to it; `reading` opens it beside a running node."""

    def __init__(self, folder: str | Path, reading: bool = False) -> None:
        self.path = Path(folder)
        self._lock: int | None = None
        self._guard = RLock()
        self._db: sqlite3.Connection
        if reading and not (self.path / FILE).exists():
            raise StoreError(f"'{folder}' is no node's folder: there is no {FILE} in it")
        if not reading:
            self._take_lock()
        try:
            with self.reporting():
                self._connect(reading)
                self._open(reading)
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            self._keep_to_owner()
        except OSError as error:
            raise StoreError(f"the folder '{self.path}' cannot be used ({error.strerror}); give another one") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._release_lock()
            raise FolderInUse(
                f"another process uses the folder '{self.path}'; a node runs once: wait for it, or stop it"
            ) from None

    def _keep_to_owner(self) -> None:
        """Nobody else reads the folder, nor what is in it, however it was made."""
        os.chmod(self.path, 0o700)
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", ledger.HEAD_FILE, LOCK):
            if (self.path / name).exists():
                os.chmod(self.path / name, 0o600)
        os.close(os.open(self.path / FILE, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would let others read it

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _connect(self, reading: bool) -> None:
        where = f"file:{quote(str(self.path / FILE))}?mode={'ro' if reading else 'rwc'}"
        self._db = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
        self.ledger, self._heads = ledger.Ledger(self._db), ledger.HeadFile(self.path)

    def _open(self, reading: bool) -> None:
        fresh = not reading and self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)
        if fresh:
            self._be_born()
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION, VERSION):
            raise StoreError(f"'{self.path / FILE}' was not made by this version of sottovoce; use the right one")
        (report,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise StoreError(self._damaged(report))
        if reading:
            return
        self._db.execute("PRAGMA synchronous = FULL")
        if (self.path / entropy.UNBORN).exists():
            self._finish_birth()
        if not (self.path / entropy.FILE).exists():
            raise StoreError(f"the secret key of '{self.path}' is gone; restore that one file")
        self.secret = entropy.own_secret(self.path)
        if self.identity != entropy.key_mark(self.secret):
            raise StoreError(f"the secret key in '{self.path}' is not the one that its ledger was made with")
        wrong = self.ledger_faults()
        if wrong:
            raise StoreError(f"the ledger in '{self.path}' does not hold: {wrong[0]}; nothing runs on it")
        self._heads.write(self.ledger.head, durable=True)

    def _be_born(self) -> None:
        """Key, nonce and ledger, in an empty folder."""
        for left in (ledger.HEAD_FILE, entropy.FILE):
            if (self.path / left).exists():
                raise StoreError(
                    f"the ledger in '{self.path}' is gone, though its {left} is there, and what it released cannot be "
                    f"known any more; restore {FILE} and {ledger.HEAD_FILE}, or give an empty folder for other records"
                )
        secret = entropy.new_secret(self.path)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        mark = f"INSERT INTO about VALUES ('key', '{entropy.key_mark(secret)}');"
        stamp = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        self._db.executescript(f"BEGIN; {stamp} {_TABLES} {ledger.SCHEMA} {mark}")
        self.ledger.append("nonce", detail=entropy.new_nonce())
        self._db.execute("COMMIT")

    def _finish_birth(self) -> None:
        """The tables are there; the head and the key may have been cut off."""
        if not (self.path / entropy.FILE).exists() and [row.kind for row in self.rows()] == ["nonce"]:
            self._heads.write(self.ledger.head, durable=True)
            entropy.keep_secret(self.path)
        else:
            (self.path / entropy.UNBORN).unlink()

    def nonce(self) -> bytes:
        """The ledger's nonce; one of version 0.1 gets it when a run first draws by it."""
        with self._guard, self.reporting():
            if self.ledger.nonce() is None:
                with self.transaction():
                    self.ledger.append("nonce", detail=entropy.new_nonce())
            found = self.ledger.nonce()
        assert found is not None
        return found

    @property
    def identity(self) -> str:
        """By which exports know whose ledger they are of."""
        with self._guard, self.reporting():
            return str(self._db.execute("SELECT value FROM about WHERE name = 'key'").fetchone()[0])

    def close(self) -> None:
        """Give the folder free."""
        with self._guard:  # a peer's hello may be looking something up
            if hasattr(self, "_db"):
                self._db.close()
            self._release_lock()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it on the disk, or nothing; the ledger's head is kept apart afterwards."""
        with self._guard, self.reporting():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                head = self.ledger.head
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._heads.write(head)

    def rows(self) -> list[ledger.Row]:
        """The ledger."""
        with self._guard, self.reporting():
            return list(self.ledger.rows())

    def ledger_faults(self) -> list[str]:
        """What is wrong with the ledger, in sentences."""
        rows, kept = self.rows(), self._heads.read()
        wrong = ledger.faults(rows, kept)
        if kept is None and rows:
            wrong.append(f"the head that is kept apart, in {ledger.HEAD_FILE}, is gone or damaged")
        return wrong

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """What SQLite and the system say about files that are damaged, full or not to be read, in one sentence."""
        try:
            yield
        except SottovoceError:
            raise
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise StoreError(self._damaged(str(error))) from None

    def _damaged(self, what: str) -> str:
        return (
            f"the state in '{self.path}' is damaged or cannot be written ({what}); mend the disk, and restore the "
            "folder as it was last: an older copy will be refused by the peers"
        )


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
    ...     saved = store.enter("ab" * 32, "first", "north", ("north", "south"), ["fingerprint"])
    ...     with store.transaction():
    ...         store.keep_state("ab" * 32, 3, {"z": np.zeros((1, 2))}, {1: Mark(3, "cd")})
    ...     again = store.load("ab" * 32)
    ...     store.close()
    >>> saved.state, again.round, again.state, again.seen
    (None, 3, {'z': array([[0., 0.]])}, {1: Mark(round=3, message='cd')})
    """

    def enter(self, run: str, name: str, node: str, nodes: tuple[str, ...], fingerprints: Sequence[str]) -> Saved:
        """Begin a run, or find it where it was left; on other records than it began with it cannot go on.

        Records are known by the first of their fingerprints; a run of an earlier version by any of them.
        """
        with self._guard, self.reporting():
            found = self._db.execute("SELECT node, fingerprint FROM runs WHERE run = ?", (run,)).fetchone()
            if found is not None and found[0] != node:
                raise StoreError(f"the folder '{self.path}' takes part in this run as node '{found[0]}', not '{node}'")
            if found is not None and found[1] not in fingerprints and self.ledger.last(run):
                raise StoreError(self.other_records(name))
            same = self._db.execute("SELECT run FROM runs WHERE name = ? AND run != ?", (name, run)).fetchall()
            for (other,) in same:
                if self.ledger.last(other):
                    raise StoreError(
                        f"run '{name}' was begun in '{self.path}' under another digest ({other[:12]}, now {run[:12]}): "
                        "its run file, or the version of sottovoce that reads it, has changed since; go on with those "
                        "of then, or give this run another name, which is a run of its own with its own cost"
                    )
            for row in self.ledger.rows():
                if row.kind == "stop" and row.run == run:
                    raise StoreError(f"this node stopped for good in run '{name}': {row.detail['reason']}")
            if found is None or found[1] not in fingerprints:
                values = (run, name, node, json.dumps(nodes), fingerprints[0], 0)
                with self.transaction():
                    self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", values)
            return self.load(run)

    @staticmethod
    def other_records(name: str) -> str:
        """Why a run cannot go on."""
        return (
            f"run '{name}' was begun on other records than these, or in another order or of other people, and the "
            "noise of its rounds must not meet two data sets; give it the same records, or begin a run of another name"
        )

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
