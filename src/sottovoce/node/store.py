"""A node's own folder: who may open it, where each of its runs stands, and what is damaged.

    node.sqlite     state, messages, high-water marks, keys of open runs, skip decisions, and the ledger
    secret.key      the node's entropy (`keys.py`)
    ledger.head     the ledger's head, kept apart (`ledger.py`)

One process writes at a time. It holds a lock on the database itself, and checks in every transaction whether that is
still the file in the folder: a lock beside it could be removed under a writer, and the file be replaced. The folder
must be on a disk of this machine: on network file systems neither locks nor the write-ahead log are to be relied upon.

Key, nonce and ledger are born together: a folder that has lost one of them is refused, never filled up again. The
step is the transaction that makes the tables; what is left of a birth that was cut short is thrown away, or finished.

Write-ahead log, synchronous = FULL: when a transaction returns, it is on the disk, and a power loss costs nothing.

One transaction a round, before any peer can see the round's message: the state in which the round begins, the
message, its row in the ledger, and what was seen of the peers. That is what a restart goes on from. A crash at any
other moment loses only what can be requested again, because every node keeps its last two messages on every link: a
peer's newest message needs ours of the same round, so a peer can be one round of the link ahead of what we have on the
disk, never two.

Where a round has several exchanges, what is passed on in each of them is also written down before it is sent, in a
transaction of its own. It is all that the node holds by then, so that is where a restart goes on: nothing that was
received before need be kept or requested again, the same bytes are sent again whatever others say now, and what a peer
can lack is still two messages. Only the first is a release, with its row in the ledger; the others are functions of
releases.

In a folder a run's name stands for one digest, once something was released under it: what would begin under the same
name with another digest is another run, and must be called so.
"""

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array
from sottovoce.errors import FolderInUse, SottovoceError, StoreError
from sottovoce.node import keys as node_keys
from sottovoce.node import ledger
from sottovoce.node.envelope import RunKeys
from sottovoce.node.message import CHECK

FILE = "node.sqlite"
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
_SINCE = """
CREATE TABLE IF NOT EXISTS keys (run TEXT PRIMARY KEY, signing BLOB, agreement BLOB, nonce BLOB);
CREATE TABLE IF NOT EXISTS members (run TEXT, peer INTEGER, introduction BLOB, PRIMARY KEY (run, peer));
CREATE TABLE IF NOT EXISTS proofs (run TEXT, peer INTEGER, round INTEGER, proof TEXT, part INTEGER,
    PRIMARY KEY (run, peer));
CREATE TABLE IF NOT EXISTS parts (run TEXT, round INTEGER, part INTEGER, message TEXT NOT NULL, payload BLOB,
    PRIMARY KEY (run, round, part));
CREATE TABLE IF NOT EXISTS vouchers (run TEXT, peer INTEGER, round INTEGER, voucher BLOB,
    PRIMARY KEY (run, peer, round));
CREATE TABLE IF NOT EXISTS answers (run TEXT, peer INTEGER, topic TEXT, reply INTEGER, sealed BLOB,
    PRIMARY KEY (run, peer, topic, reply));
CREATE TABLE IF NOT EXISTS unvouched (run TEXT, peer INTEGER, step INTEGER, message TEXT,
    PRIMARY KEY (run, peer, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS freezes (run TEXT PRIMARY KEY, statements TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS means (run TEXT, round INTEGER, data BLOB NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (run, round));
"""
"""Tables that folders of earlier versions get when they are opened."""

_KEEP_STATE = """
INSERT INTO state VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, field) DO UPDATE
    SET dtype = excluded.dtype, shape = excluded.shape, data = excluded.data, hash = excluded.hash
"""
_KEEP_SEEN = """
INSERT INTO seen VALUES (?, ?, ?, ?) ON CONFLICT (run, peer) DO UPDATE
    SET round = excluded.round, message = excluded.message
    WHERE round != excluded.round OR message != excluded.message
"""
_KEEP_PROOF = """
INSERT INTO proofs VALUES (?, ?, ?, ?, ?) ON CONFLICT (run, peer) DO UPDATE
    SET round = excluded.round, proof = excluded.proof, part = excluded.part
    WHERE round != excluded.round OR proof != excluded.proof OR part != excluded.part
"""
"""Rows of the same size are written where they are: a round then writes the pages that it changes, and no others."""

SHORT = 8
"""Letters of a run's digest that name it."""
LISTED = 20
"""Names of runs in an error."""
REMOTE = frozenset(
    "9p afs beegfs ceph cifs coda fuse.ceph fuse.davfs fuse.glusterfs fuse.rclone fuse.s3fs fuse.sshfs gfs gfs2 gpfs "
    "lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2 smb3 smbfs".split()
)
"""File systems that other machines can write to."""


def file_system(path: Path) -> str:
    """Return the kind of file system that a folder is on; empty if the system does not report it."""
    try:
        mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
        where, best, kind = str(path.resolve()), "", ""
        for line in mounts:
            place, _, rest = line.partition(" - ")
            at = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place.split()[4])
            if len(at) >= len(best) and (where == at or where.startswith(at.rstrip("/") + "/")):
                best, kind = at, rest.split()[0]
        return kind
    except (OSError, IndexError, ValueError):
        return ""


def in_use(folder: Path) -> bool:
    """Whether a process has a node's folder open for writing."""
    try:
        file = os.open(folder / FILE, os.O_RDONLY)
    except OSError:
        return False
    import fcntl  # POSIX: real nodes only

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(file)


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
            kind = file_system(self.path)
            if kind in REMOTE:
                raise StoreError(
                    f"the folder '{self.path}' is on a network file system ({kind}), where two machines could write to "
                    "it at once; give a folder on a disk of this machine"
                )
            self._keep_to_owner()
            self._lock = os.open(self.path / FILE, os.O_RDWR | os.O_CREAT, 0o600)  # SQLite would let others read it
        except OSError as error:
            raise StoreError(f"the folder '{self.path}' cannot be used ({error.strerror}); give another one") from None
        import fcntl  # POSIX: real nodes only

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
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", ledger.HEAD_FILE):
            if (self.path / name).exists():
                os.chmod(self.path / name, 0o600)

    def _check_ours(self) -> None:
        """The file that is locked is the one in the folder: else two could write."""
        if self._lock is None:
            raise StoreError(f"'{self.path}' was opened for reading, or is closed; nothing is written to it")
        mine, here = os.fstat(self._lock), os.stat(self.path / FILE)
        if (mine.st_dev, mine.st_ino) != (here.st_dev, here.st_ino):
            raise StoreError(
                f"'{self.path / FILE}' was replaced while this node runs; nothing more is written: stop the process "
                "that did it, and restore the file"
            )

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
        self._db.execute("PRAGMA secure_delete = FAST")  # of old messages nothing need be erased; keys: `_with_keys`
        self._db.executescript(_SINCE)
        if (self.path / node_keys.UNBORN).exists():
            self._finish_birth()
        if not (self.path / node_keys.FILE).exists():
            raise StoreError(f"the secret key of '{self.path}' is gone; restore that one file")
        self.secret = node_keys.own_secret(self.path)
        if self.identity != node_keys.key_mark(self.secret):
            raise StoreError(f"the secret key in '{self.path}' is not the one that its ledger was made with")
        wrong = self.ledger_faults()
        if wrong:
            raise StoreError(f"the ledger in '{self.path}' does not hold: {wrong[0]}; nothing runs on it")
        self._heads.write(self.ledger.head, durable=True)

    def _be_born(self) -> None:
        """Key, nonce and ledger, in an empty folder."""
        for left in (ledger.HEAD_FILE, node_keys.FILE):
            if (self.path / left).exists():
                raise StoreError(
                    f"the ledger in '{self.path}' is gone, though its {left} is there, and what it released cannot be "
                    f"known any more; restore {FILE} and {ledger.HEAD_FILE}, or give an empty folder for other records"
                )
        secret = node_keys.new_secret(self.path)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        mark = f"INSERT INTO about VALUES ('key', '{node_keys.key_mark(secret)}');"
        stamp = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        self._db.executescript(f"BEGIN; {stamp} {_TABLES} {ledger.SCHEMA} {mark}")
        self.ledger.append("nonce", detail=node_keys.new_nonce())
        self._db.execute("COMMIT")

    def _finish_birth(self) -> None:
        """The tables are there; the head and the key may have been cut off."""
        if not (self.path / node_keys.FILE).exists() and [row.kind for row in self.rows()] == ["nonce"]:
            self._heads.write(self.ledger.head, durable=True)
            node_keys.keep_secret(self.path)
        else:
            (self.path / node_keys.UNBORN).unlink()

    def nonce(self) -> bytes:
        """The ledger's nonce; one of version 0.1 gets it when a run first draws by it."""
        with self._guard, self.reporting():
            if self.ledger.nonce() is None:
                with self.transaction():
                    self.ledger.append("nonce", detail=node_keys.new_nonce())
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
            self._check_ours()
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
        kept = self._heads.read()  # first: it is never ahead of the rows, while another process writes both
        rows = self.rows()
        wrong = ledger.faults(rows, kept)
        if kept is None and rows:
            wrong.append(f"the head that is kept apart, in {ledger.HEAD_FILE}, is gone or damaged")
        return wrong

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Turn errors of SQLite and the system about damaged, full or unreadable files into one line."""
        try:
            yield
        except SottovoceError:
            raise
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise StoreError(self._damaged(str(error))) from None

    def _damaged(self, what: str) -> str:
        return (
            f"the state in '{self.path}' is damaged or cannot be written ({what}); fix the disk, and restore the "
            "folder as it was last: an older copy will be refused by the peers"
        )


Arrays = dict[str, NDArray[Any]]


class Mark(NamedTuple):
    """The latest message seen from a peer: its round, its hash, and the proof that came with it, in hexadecimal."""

    round: int
    message: str
    proof: str = ""
    part: int = 0
    """Which exchange of the round it is of."""


class Saved(NamedTuple):
    """Where a run stands in a folder."""

    round: int
    """The state is the one after this round; 0 at the beginning, or -1 where there is a release before round 1."""
    state: Arrays | None
    outbox: dict[int, bytes]
    """Messages that peers may still ask for, by round."""
    seen: dict[int, Mark]
    skips: dict[tuple[int, int], str]
    """(round, peer) -> 'promised', 'late', 'skip' or 'keep'."""
    parts: Mapping[tuple[int, int], bytes] = MappingProxyType({})
    """What was passed on in later exchanges, and peers may still ask for, by (round, exchange)."""
    unvouched: Mapping[int, Mapping[int, str]] = MappingProxyType({})
    """peer -> step -> hash of what came and is not signed for yet."""
    means: Mapping[int, Array] = MappingProxyType({})
    """Of what all nodes sent before the first round (0) and in each exchange after the last, once that is known."""


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
    (None, 3, {'z': array([[0., 0.]])}, {1: Mark(round=3, message='cd', proof='', part=0)})
    """

    def enter(
        self, run: str, name: str, node: str, nodes: tuple[str, ...], fingerprints: Sequence[str], start: int = 0
    ) -> Saved:
        """Begin a run, or find it where it was left; on other records than it began with it cannot go on.

        Records are known by the first of their fingerprints; a run of an earlier version by any of them. A run begins
        after round `start`.
        """
        with self._guard, self.reporting():
            found = self._db.execute("SELECT node, fingerprint FROM runs WHERE run = ?", (run,)).fetchone()
            if found is not None and found[0] != node:
                raise StoreError(f"the folder '{self.path}' takes part in this run as node '{found[0]}', not '{node}'")
            if found is not None and found[1] not in fingerprints and self.ledger.has("release", run):
                raise StoreError(self.other_records(name))
            same = self._db.execute("SELECT run FROM runs WHERE name = ? AND run != ?", (name, run)).fetchall()
            for (other,) in same:
                if self.ledger.has("release", other):
                    raise StoreError(
                        f"run '{name}' was begun in '{self.path}' under another digest ({other[:12]}, now {run[:12]}): "
                        "its run file, or the version of sottovoce that reads it, has changed since; go on with those "
                        "of then, or give this run another name, which is a run of its own with its own cost"
                    )
            for row in self.ledger.rows():
                if row.kind == "stop" and row.run == run and "ended" not in row.detail:
                    raise StoreError(f"this node stopped for good in run '{name}': {row.detail['reason']}")
            if found is None or found[1] not in fingerprints:
                values = (run, name, node, json.dumps(nodes), fingerprints[0], start)
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
            marks = self._db.execute("SELECT peer, round, message FROM seen WHERE run = ?", (run,)).fetchall()
            proofs = {(peer, at): rest for peer, at, *rest in self._of("proofs", "peer, round, proof, part", run)}
            seen = {peer: Mark(at, message, *proofs.get((peer, at), ())) for peer, at, message in marks}
            steps = self._db.execute("SELECT round, peer, phase FROM skips WHERE run = ?", (run,))
            skips = {(at, peer): phase for at, peer, phase in steps}
            parts: dict[tuple[int, int], bytes] = {}
            for at, part, message, payload in self._of("parts", "round, part, message, payload", run):
                if payload is None:
                    continue  # nobody can lack it any more
                if hashlib.sha256(payload[:-CHECK]).hexdigest() != message or payload[-CHECK:].hex() != message:
                    raise StoreError(self._damaged(f"what was passed on in round {at}"))
                parts[at, part] = payload
            unvouched: dict[int, dict[int, str]] = {}
            for peer, step, message in self._of("unvouched", "peer, step, message", run):
                if len(bytes.fromhex(message)) != CHECK:
                    raise StoreError(self._damaged(f"the hash of what node {peer} has still to sign for"))
                unvouched.setdefault(peer, {})[step] = message
            means: dict[int, Array] = {}
            for at, data, check in self._of("means", "round, data, hash", run):
                if _hash(at, data) != check:
                    raise StoreError(self._damaged("the mean of what all nodes sent outside the rounds"))
                means[at] = np.frombuffer(data, dtype="<f8").copy()
            return Saved(t, state or None, outbox, seen, skips, parts, unvouched, means)

    def keep_state(self, run: str, t: int, state: Mapping[str, NDArray[Any]], seen: Mapping[int, Mark]) -> None:
        """The state after round t, and what was seen by then; inside a transaction."""
        self._db.execute("UPDATE runs SET round = ? WHERE run = ?", (t, run))
        rows = []
        for field, array in state.items():
            dtype, shape, data = array.dtype.str, str(list(array.shape)), np.ascontiguousarray(array).tobytes()
            rows.append((run, field, dtype, shape, data, _hash(t, field, dtype, shape, data)))
        self._db.executemany(_KEEP_STATE, rows)
        self.keep_seen(run, seen)

    def keep_mean(self, run: str, t: int, mean: Array) -> None:
        """The mean of what all nodes sent before the first round, or in one after the last; inside a transaction."""
        data = np.ascontiguousarray(mean, dtype="<f8").tobytes()
        self._db.execute("INSERT INTO means VALUES (?, ?, ?, ?)", (run, t, data, _hash(t, data)))

    def keep_freezes(self, run: str, statements: Sequence[Any]) -> None:
        """What this node must never contradict about lost nodes; inside a transaction."""
        self._db.execute("INSERT OR REPLACE INTO freezes VALUES (?, ?)", (run, json.dumps(statements)))

    def freezes(self, run: str) -> list[Any]:
        """The same, as it was kept."""
        with self._guard, self.reporting():
            found = self._of("freezes", "statements", run)
            return list(json.loads(found[0][0])) if found else []

    def enter_epoch(
        self, run: str, epoch: str, t: int, state: Mapping[str, NDArray[Any]], removed: Sequence[tuple[int, int]]
    ) -> None:
        """Go on in another epoch, from the state after round t; inside a transaction."""
        self.ledger.append("epoch", run, t, detail={"epoch": epoch, "removed": [list(pair) for pair in removed]})
        query = "INSERT INTO runs SELECT ?, name || ', ' || ?, node, nodes, fingerprint, ? FROM runs WHERE run = ?"
        self._db.execute(query, (epoch, f"epoch {epoch[:12]}", t, run))
        self.keep_state(epoch, t, state, {})

    def epoch(self, run: str) -> tuple[str, tuple[tuple[int, int], ...]] | None:
        """The latest epoch of a run, and who was removed from which round on; None in the first."""
        details = [row.detail for row in self.rows() if row.kind == "epoch" and row.run == run]
        return (details[-1]["epoch"], tuple((i, t) for i, t in details[-1]["removed"])) if details else None

    def releases(self, run: str) -> int:
        """How many releases a run made, in all of its epochs."""
        with self._guard, self.reporting():
            query = "SELECT detail FROM ledger WHERE kind = 'epoch' AND run = ?"
            runs = [run, *(json.loads(detail)["epoch"] for (detail,) in self._db.execute(query, (run,)))]
            query = "SELECT COUNT(*) FROM ledger WHERE kind = 'release' AND run = ?"
            return sum(self._db.execute(query, (one,)).fetchone()[0] for one in runs)

    def keep_seen(self, run: str, seen: Mapping[int, Mark]) -> None:
        """What was seen of the peers; inside a transaction."""
        marks = [(run, peer, mark.round, mark.message) for peer, mark in seen.items()]
        proofs = [(run, peer, mark.round, mark.proof, mark.part) for peer, mark in seen.items()]
        self._db.executemany(_KEEP_SEEN, marks)
        self._db.executemany(_KEEP_PROOF, proofs)

    def _of(self, table: str, columns: str, run: str) -> list[Any]:
        """Rows of a run in a table that a folder of version 0.1, opened for reading, may not have."""
        known = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        query = f"SELECT {columns} FROM {table} WHERE run = ?"
        return self._db.execute(query, (run,)).fetchall() if known else []

    def keep_vouchers(
        self, run: str, vouchers: Iterable[tuple[int, int, bytes]], unvouched: Iterable[tuple[int, int, str]] = ()
    ) -> None:
        """What peers signed, and what they have still to sign for; inside a transaction."""
        for peer, step, voucher in vouchers:
            # the first counts: what a second one would be compared with is gone, once the first is kept
            self._db.execute("INSERT OR IGNORE INTO vouchers VALUES (?, ?, ?, ?)", (run, peer, step, voucher))
            self._db.execute("DELETE FROM unvouched WHERE run = ? AND peer = ? AND step <= ?", (run, peer, step))
        rows = [(run, *message) for message in unvouched]
        self._db.executemany("INSERT OR REPLACE INTO unvouched VALUES (?, ?, ?, ?)", rows)

    def vouchers(self, run: str) -> list[tuple[int, int, bytes]]:
        """(peer, round, voucher) of a run."""
        with self._guard, self.reporting():
            return [tuple(row) for row in self._of("vouchers", "peer, round, voucher", run)]

    def run_keys(self, run: str) -> RunKeys | None:
        """The node's own keys in a run; None before they are born, and once they are erased."""
        with self._guard, self.reporting():
            found = self._of("keys", "signing, agreement, nonce", run)
            return RunKeys(*found[0]) if found else None

    def born_keys(self, run: str, records: str | None = None) -> RunKeys:
        """The same; they are born with their row in the ledger, once, and for these records where that matters."""
        found = self.run_keys(run)
        if found is not None:
            if records is not None and self.ledger.detail("keys", run).get("records") != records:
                raise StoreError(
                    f"the keys of run {run[:12]} in '{self.path}' were made for other records, and what pairs of nodes "
                    "share must not meet two data sets; begin a run of another name"
                )
            return found
        if self.ledger.has("keys", run):
            raise StoreError(f"the keys of run {run[:12]} in '{self.path}' were erased; it is over for this node")
        keys = RunKeys.born()
        with self._with_keys():
            self.ledger.append(
                "keys", run, detail=keys.public.to_dict() | ({} if records is None else {"records": records})
            )
            self._db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (run, *keys))
        return keys

    def erase_keys(self, run: str, answers: Mapping[tuple[int, str, bool], bytes] = MappingProxyType({})) -> None:
        """When a run is over: overwritten in the database and in its log.

        `answers` are kept in their place: sealed messages for peers that ask again, by (peer, topic, reply or request).
        """
        with self._with_keys():
            rows = [(run, peer, topic, reply, sealed) for (peer, topic, reply), sealed in answers.items()]
            self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("DELETE FROM keys WHERE run = ?", (run,))
        with self._guard, self.reporting():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def answers(self, run: str) -> dict[tuple[int, str, bool], bytes]:
        """What was sealed for peers before the keys were erased."""
        with self._guard, self.reporting():
            rows = self._of("answers", "peer, topic, reply, sealed", run)
            return {(peer, topic, bool(reply)): sealed for peer, topic, reply, sealed in rows}

    @contextmanager
    def _with_keys(self) -> Iterator[None]:
        """A transaction that writes keys or erases them: all that it frees is overwritten, whole pages too."""
        with self._guard:
            self._db.execute("PRAGMA secure_delete = ON")
            try:
                with self.transaction():
                    yield
            finally:
                self._db.execute("PRAGMA secure_delete = FAST")

    def members(self, run: str) -> dict[int, bytes]:
        """The introductions that were believed in a run."""
        with self._guard, self.reporting():
            return dict(self._of("members", "peer, introduction", run))

    def keep_member(self, run: str, peer: int, introduction: bytes) -> None:
        """Believe an introduction from now on."""
        with self.transaction():
            self._db.execute("INSERT INTO members VALUES (?, ?, ?)", (run, peer, introduction))

    def keep_message(self, run: str, t: int, payload: bytes, drop: Iterable[tuple[int, int]]) -> None:
        """A message, before it is sent, with its row in the ledger; inside a transaction.

        Dropped messages are named by (round, exchange). The new message replaces one of them if possible: then no page
        is freed and none allocated.
        """
        self.ledger.append("release", run, t, payload[-CHECK:].hex())
        replaced = False
        for at, part in drop:
            if part:
                which = (run, at, part)
                self._db.execute("UPDATE parts SET payload = NULL WHERE run = ? AND round = ? AND part = ?", which)
            elif replaced:
                self._db.execute("DELETE FROM outbox WHERE run = ? AND round = ?", (run, at))
            else:
                query = "UPDATE outbox SET round = ?, payload = ? WHERE run = ? AND round = ?"
                replaced = self._db.execute(query, (t, payload, run, at)).rowcount > 0
        if not replaced:
            self._db.execute("INSERT INTO outbox VALUES (?, ?, ?)", (run, t, payload))

    def keep_part(self, run: str, t: int, part: int, payload: bytes) -> None:
        """What is passed on in a later exchange of a round, before it is sent; inside a transaction."""
        values = (run, t, part, payload[-CHECK:].hex(), payload)
        self._db.execute("INSERT INTO parts VALUES (?, ?, ?, ?, ?)", values)

    def keep_skip(self, run: str, t: int, peer: int, phase: str, name: str) -> None:
        """A step towards leaving an edge out of a round; the decision itself also goes into the ledger."""
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO skips VALUES (?, ?, ?, ?)", (run, t, peer, phase))
            if phase == "skip":
                self.ledger.append("skip", run, t, detail={"peer": name})

    def said(self, run: str, t: int, part: int = 0) -> str | None:
        """The hash of what was released in a round, or passed on in a later exchange of it; None where nothing was."""
        with self._guard, self.reporting():
            if part == 0:
                return self.ledger.released(run, t)
            query = "SELECT message FROM parts WHERE run = ? AND round = ? AND part = ?"
            found = self._db.execute(query, (run, t, part)).fetchone()
            return None if found is None else str(found[0])

    def set_budget(self, detail: dict[str, Any]) -> None:
        """The owner's decision, written down."""
        with self.transaction():
            self.ledger.append("budget", detail=detail)

    def stop(self, run: str, reason: str, ended: tuple[str, str | None] | None = None) -> None:
        """Never let this run go on in this folder; `ended` is the final state, and the node that it is about."""
        with self.transaction():
            self.ledger.append("stop", run, detail={"reason": reason} | ({"ended": list(ended)} if ended else {}))

    def ended(self, run: str) -> tuple[str, str | None, str] | None:
        """Return the final state of a run that ended for good, the node that it is about, and the reason."""
        for row in self.rows():
            if row.kind == "stop" and row.run == run and "ended" in row.detail:
                state, about = row.detail["ended"]
                return state, about, row.detail["reason"]
        return None

    def run_of(self, name: str) -> str:
        """The digest of the run of a name that has begun here; a consortium's run is named without its mark, too."""
        with self._guard, self.reporting():
            named = dict(self._db.execute("SELECT run, name FROM runs").fetchall())
            begun = {run for run in named if self.ledger.has("release", run)}
        for fits in (
            [run for run, full in named.items() if full == name],
            [run for run, full in named.items() if re.fullmatch(re.escape(name) + r" \([0-9a-f]+\)", full)],
            [run for run in named if len(name) >= SHORT and run.startswith(name)],
        ):
            found = [run for run in fits if run in begun] or fits
            if len(found) > 1:
                marks = ", ".join(sorted(run[:12] for run in found))
                raise StoreError(f"'{name}' names several runs in '{self.path}'; give the digest of one: {marks}")
            if found:
                return found[0]
        names = ", ".join(f"'{full}'" for full in sorted(set(named.values()))[:LISTED]) or "none"
        raise StoreError(f"there is no run '{name}' in '{self.path}'; its runs are: {names}")

    def abandon(self, run: str) -> None:
        """Let a run never go on here, and erase its keys; also where it is done, and a peer never said so too."""
        if not (self.ledger.has("close", run) or self.ledger.has("stop", run)):
            self.stop(run, "its owner abandoned it")
        elif self.run_keys(run) is None:
            raise StoreError(f"run {run[:12]} is over already")
        self.erase_keys(run)

    def marks(self) -> list[dict[str, Any]]:
        """Return what was seen of every peer in every run, by name, to check a peer's ledger against.

        Messages of later exchanges are left out, since ledgers hold releases only: their round must have a release.
        """
        with self._guard, self.reporting():
            query = "SELECT s.run, r.nodes, s.peer, s.round, s.message FROM seen s JOIN runs r ON r.run = s.run"
            found = self._db.execute(query).fetchall()
            later = {
                (run, peer)
                for run in {row[0] for row in found}
                for peer, part in self._of("proofs", "peer, part", run)
                if part
            }
            return [
                {
                    "run": run,
                    "node": json.loads(nodes)[peer],
                    "round": t,
                    "message": None if (run, peer) in later else message,
                }
                for run, nodes, peer, t, message in found
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
