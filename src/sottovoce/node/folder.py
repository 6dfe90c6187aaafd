"""A node's own folder: who may open it, how it is written to so that a power loss costs nothing, what is damaged.

    node.sqlite     state, messages, high-water marks, skip decisions, and the ledger (`store.py`)
    secret.key      the node's entropy (`entropy.py`)
    ledger.head     the ledger's head, kept apart (`ledger.py`)
    lock            held while a node runs

Write-ahead log, synchronous = FULL: when a transaction returns, it is on the disk.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from urllib.parse import quote

from sottovoce.errors import SottovoceError, StoreError
from sottovoce.node import entropy, ledger

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
        except OSError as error:
            raise StoreError(f"the folder '{self.path}' cannot be used ({error.strerror}); give another one") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._release_lock()
            raise StoreError(
                f"another process uses the folder '{self.path}'; a node runs once: wait for it, or stop it"
            ) from None

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
        if not reading:
            self.secret = self._own_secret(fresh)
        if fresh:
            self._db.execute("PRAGMA journal_mode = WAL")
            mark = f"INSERT INTO about VALUES ('key', '{entropy.key_mark(self.secret)}');"
            stamp = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN; {stamp} {_TABLES} {ledger.SCHEMA} {mark} COMMIT;")
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
        found = self._db.execute("SELECT value FROM about WHERE name = 'key'").fetchone()
        if found is None or found[0] != entropy.key_mark(self.secret):
            raise StoreError(f"the secret key in '{self.path}' is not the one that its ledger was made with")
        wrong = self.ledger_faults()
        if wrong:
            raise StoreError(f"the ledger in '{self.path}' does not hold: {wrong[0]}; nothing runs on it")
        self._heads.write(self.ledger.head, durable=True)

    def _own_secret(self, fresh: bool) -> bytes:
        if fresh and (self.path / ledger.HEAD_FILE).exists():
            raise StoreError(
                f"the ledger in '{self.path}' is gone, and what it released cannot be known any more; restore {FILE}, "
                "or give an empty folder for other records"
            )
        if not fresh and not (self.path / entropy.FILE).exists():
            raise StoreError(f"the secret key of '{self.path}' is gone; restore that one file")
        return entropy.own_secret(self.path)

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
