"""The ledger: an append-only chain of everything that a node ever released, over all of its runs.

Every row carries the hash of itself and of the row before it. Kinds of rows:

    nonce     the ledger's own random number, born with it: draws come from the key and from this, so that an old key
              beside a new ledger draws nothing that it ever drew. The first row; in a folder of version 0.1 it comes
              before the first run that draws so
    keys      the public part of this node's keys in a run, born with it
    budget    the owner's total (ε, δ) for a data set
    open      a run begins to release: its name, data set, fingerprint of the records, the event with its exact K_i,
              how many messages there will be, whether they are secure releases, which need the nonce, and with
              which keys of which nodes it shares noise
    release   round t of a run: the hash of the one message, whether or not anybody mixes it. Round 0 is the one-shot
              release before the first round, of a run that has one
    skip      the controller ordered an edge to be left out of round t
    epoch     the run goes on without lost nodes, from round t + 1 on, under the epoch's own digest: who is removed, and
              from which round on. Releases of the epoch have its digest, and count as the run's
    close     all of the run's rounds are done
    stop      the run may never go on here, and why

A chain proves that nothing was changed, removed or put between *before its head*. That nothing was cut off behind
the head has to be known elsewhere: the last head is also kept in a file of its own (`ledger.head`), peers keep the
last message that they saw, and anyone may keep an export to check later.
"""

import hashlib
import json
import math
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.errors import PrivacyError, StoreError
from sottovoce.privacy.composite_events import read_event

KINDS = ("nonce", "keys", "budget", "open", "release", "skip", "epoch", "close", "stop")
GENESIS = bytes(32)
HEAD_FILE = "ledger.head"

SCHEMA = """
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, message TEXT NOT NULL,
    detail TEXT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX ledger_once ON ledger (run, round) WHERE kind = 'release';
CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_fixed BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


class Row(NamedTuple):
    """One entry."""

    seq: int
    kind: str
    run: str
    """Digest of the run; empty for a budget."""
    round: int
    message: str
    """Hash of the message that was released, in hexadecimal."""
    detail: dict[str, Any]
    hash: bytes


class Head(NamedTuple):
    """How long the chain is, and its last hash."""

    seq: int
    hash: bytes


def chained(before: bytes, seq: int, kind: str, run: str, t: int, message: str, detail: dict[str, Any]) -> bytes:
    """The hash of a row that follows `before`."""
    text = json.dumps([seq, kind, run, t, message, detail], sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(before + text.encode()).digest()


class Ledger:
    """The chain inside a node's database; rows are added inside the caller's transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    @property
    def head(self) -> Head:
        """The end of the chain."""
        found = self._db.execute("SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1").fetchone()
        return Head(0, GENESIS) if found is None else Head(*found)

    def append(
        self, kind: str, run: str = "", t: int = 0, message: str = "", detail: dict[str, Any] | None = None
    ) -> Head:
        """Add a row; a round that was released before cannot be released again."""
        seq, before = self.head
        detail = detail or {}
        now = chained(before, seq + 1, kind, run, t, message, detail)
        text = json.dumps(detail, sort_keys=True, ensure_ascii=False, allow_nan=False)
        try:
            row = (seq + 1, kind, run, t, message, text, now)
            self._db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            raise StoreError(f"round {t} of run {run[:12]} is in the ledger; it is never released twice") from None
        return Head(seq + 1, now)

    def rows(self) -> Iterator[Row]:
        """All of it, from the beginning."""
        for seq, kind, run, t, message, detail, digest in self._db.execute("SELECT * FROM ledger ORDER BY seq"):
            try:
                parsed = json.loads(detail)
            except (TypeError, ValueError):
                parsed = {"damaged": str(detail)}
            yield Row(seq, kind, run, t, message, parsed, digest)

    def released(self, run: str, t: int) -> str | None:
        """The hash of the message of a round; None where it was not released."""
        query = "SELECT message FROM ledger WHERE kind = 'release' AND run = ? AND round = ?"
        found = self._db.execute(query, (run, t)).fetchone()
        return None if found is None else str(found[0])

    def nonce(self) -> bytes | None:
        """The nonce, if it has one."""
        found = self._db.execute("SELECT detail FROM ledger WHERE kind = 'nonce'").fetchone()
        return None if found is None else bytes.fromhex(json.loads(found[0])["nonce"])

    def opened(self, run: str) -> dict[str, Any] | None:
        """What a run was opened with."""
        found = self._db.execute("SELECT detail FROM ledger WHERE kind = 'open' AND run = ?", (run,)).fetchone()
        return None if found is None else dict(json.loads(found[0]))

    def detail(self, kind: str, run: str) -> dict[str, Any]:
        """Of a run's only row of a kind; empty where there is none."""
        found = self._db.execute("SELECT detail FROM ledger WHERE kind = ? AND run = ?", (kind, run)).fetchone()
        return {} if found is None else dict(json.loads(found[0]))

    def has(self, kind: str, run: str) -> bool:
        """Whether a run has a row of this kind."""
        query = "SELECT 1 FROM ledger WHERE kind = ? AND run = ? LIMIT 1"
        return self._db.execute(query, (kind, run)).fetchone() is not None


class HeadFile:
    """The head of the chain in a file of its own: two slots, written in turn, so that one is always whole.

    It is made durable when a folder is opened, and written after every commit without waiting for the disk: after a
    power loss it may be behind the ledger, never ahead of it.
    """

    _SLOT = struct.Struct("<Q32s16s")

    def __init__(self, folder: Path) -> None:
        self._path = folder / HEAD_FILE

    def write(self, head: Head, durable: bool = False) -> None:
        """Keep a head."""
        check = hashlib.blake2b(struct.pack("<Q", head.seq) + head.hash, digest_size=16).digest()
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, self._SLOT.pack(head.seq, head.hash, check), (head.seq % 2) * self._SLOT.size)
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)

    def read(self) -> Head | None:
        """The latest whole head; None where no head was ever kept."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return None
        heads = []
        for start in (0, self._SLOT.size):
            if len(content) >= start + self._SLOT.size:
                seq, digest, check = self._SLOT.unpack_from(content, start)
                if hashlib.blake2b(struct.pack("<Q", seq) + digest, digest_size=16).digest() == check:
                    heads.append(Head(seq, digest))
        return max(heads, default=None)


def runs_of(rows: Iterable[Row]) -> dict[str, str]:
    """Digest of an epoch -> digest of its run."""
    return {str(row.detail.get("epoch")): row.run for row in rows if row.kind == "epoch"}


def faults(rows: Sequence[Row], kept: Head | None = None) -> list[str]:
    """Everything that is wrong with a ledger, in sentences; an empty list is a ledger that holds.

    Parameters
    ----------
    rows : as they stand in the database
    kept : a head that was kept elsewhere
    """
    found: list[str] = []
    before = GENESIS
    for place, row in enumerate(rows, start=1):
        if row.seq != place:
            found.append(f"row {place} is missing: after row {place - 1} comes row {row.seq}")
            break
        if row.hash != chained(before, *row[:6]):
            found.append(f"row {row.seq} was changed, or a row before it removed or moved: its hash does not follow")
            break
        before = row.hash
    if kept is not None and kept.seq > len(rows):
        found.append(f"rows {len(rows) + 1} to {kept.seq} are gone: a head that was kept apart knows them")
    elif kept is not None and kept.seq and rows[kept.seq - 1].hash != kept.hash:
        found.append(f"row {kept.seq} is not the one whose hash was kept apart: the ledger was written anew")
    return found + _impossible(rows)


def _impossible(rows: Sequence[Row]) -> list[str]:
    """Histories that no honest node writes, even where their hashes are right."""
    found: list[str] = []
    planned: dict[str, float] = {}
    latest: dict[str, int] = {}
    first: dict[str, int] = {}
    count: dict[str, int] = {}
    over: set[str] = set()
    keyed: set[str] = set()
    nonce = False
    whole = runs_of(rows)
    found += [f"row {row.seq} is of no known kind: '{row.kind}'" for row in rows if row.kind not in KINDS]
    for row in rows:
        short = row.run[:12]
        if row.kind == "nonce":
            if nonce:
                found.append(f"row {row.seq} is a second nonce: the draws of runs before it could be repeated")
            nonce = True
        elif row.kind == "keys":
            again = f"row {row.seq} gives run {short} keys a second time: it has one pair for all of it"
            found += [again] * (row.run in keyed)
            keyed.add(row.run)
        elif row.kind == "open":
            if row.run in planned:
                found.append(f"row {row.seq} opens run {short} a second time: a run was replayed")
            if row.detail.get("secure") and not nonce:
                found.append(f"row {row.seq} opens run {short}, whose draws come from a nonce that is not there")
            opened = _opened(row.detail)
            planned[row.run], start = (math.inf, None) if opened is None else opened
            if start is None:
                found.append(f"row {row.seq} opens run {short} with an event that cannot be accounted for")
            else:
                first[row.run] = start
        elif row.kind == "release":
            run = whole.get(row.run, row.run)
            if run in over or run not in planned:
                why = " after its end: a run was replayed" if run in planned else ", which was never opened"
                found.append(f"row {row.seq} releases for run {short}{why}")
            if row.round <= latest.get(row.run, first.get(run, 1) - 1):
                found.append(f"row {row.seq} releases round {row.round} of run {short} again: a run was replayed")
            latest[row.run] = max(row.round, latest.get(row.run, row.round))
            count[run] = count.get(run, 0) + 1
            if count[run] == planned.get(run, 0) + 1:
                found.append(f"row {row.seq} is one release more than run {run[:12]} was opened for")
        elif row.kind in ("close", "stop"):
            over.add(row.run)
    return found


def _opened(detail: dict[str, Any]) -> tuple[float, int] | None:
    """How many messages a run was opened for, and the number of the first; None for an event that cannot be read."""
    try:
        return _messages(detail), 0 if detail["event"].get("before") else 1
    except (PrivacyError, KeyError, TypeError, ValueError):
        return None


def _messages(detail: dict[str, Any]) -> float:
    """How many messages a run was opened for.

    Version 0.1 wrote down what is accounted and nothing else; where that is not a cost for each message, there is no
    telling how many there were to be.
    """
    event = read_event(detail["event"])
    if "messages" in detail:
        return int(detail["messages"])
    return event.rounds if event.by_round else math.inf
