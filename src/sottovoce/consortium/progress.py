"""How far a site's node is, in a file of its state folder: for `sottovoce node health` and for metrics.

The process of a job writes it every second. It holds what follows from the public plan and from the network: rounds,
peers that are waited for, bytes, seconds. Nothing in it is computed from records.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.bounded import read_bounded
from sottovoce.errors import SottovoceError

FILE = "progress.json"
EVERY = 1.0
"""Seconds between two reports."""
SILENT = 30.0
"""Seconds without a report after which a process counts as hung."""
MAX_BYTES = 2**20
log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """What this process has exchanged with a peer."""

    sent: int
    """Bytes."""
    received: int
    waited: float
    """Seconds that this node waited for the peer."""


class Progress(NamedTuple):
    """The last report of a job's process."""

    run: str
    name: str
    process: int
    starts: int
    """How often this node was started in the run."""
    state: str
    round: int
    rounds: int
    age: float
    """Seconds since the last round was finished."""
    waits: dict[str, Any] | None
    removed: tuple[str, ...]
    """Nodes that this one went on without."""
    peers: dict[str, Peer]
    reported: float
    """Seconds since the report."""

    @property
    def alive(self) -> bool:
        """Whether the process that reported is there."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # someone else's
            return True
        return True

    @property
    def hangs(self) -> bool:
        """Whether the process is there and has not reported for too long."""
        return self.alive and self.reported > SILENT


def read_progress(folder: Path) -> Progress | None:
    """The last report in a state folder; None where there is none that can be read."""
    path = folder / FILE
    try:
        found = json.loads(read_bounded(path, MAX_BYTES))
        peers = {
            str(name): Peer(int(p["sent"]), int(p["received"]), float(p["waited"]))
            for name, p in found["peers"].items()
        }
        waits = found["waits"] and {"for": str(found["waits"]["for"]), "seconds": float(found["waits"]["seconds"])}
        return Progress(
            run=str(found["run"]),
            name=str(found["name"]),
            process=int(found["process"]),
            starts=int(found["starts"]),
            state=str(found["state"]),
            round=int(found["round"]),
            rounds=int(found["rounds"]),
            age=float(found["age"]),
            waits=waits,
            removed=tuple(map(str, found.get("removed", ()))),
            peers=peers,
            reported=max(0.0, time.time() - path.stat().st_mtime),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


class Reporter:
    """Writes a report every second from `start` to `close`.

    Parameters
    ----------
    folder : the node's state folder
    run : the digest of the run
    report : what is reported, as `Progress` has it, without `process`, `starts` and `reported`
    """

    def __init__(self, folder: Path, run: str, report: Callable[[], dict[str, Any]]) -> None:
        self._path, self._report, self._closed = folder / FILE, report, threading.Event()
        before = read_progress(folder)
        starts = before.starts if before is not None and before.run == run else 0
        self._fixed = {"run": run, "process": os.getpid(), "starts": starts + 1}
        self._failed = False
        self._thread = threading.Thread(target=self._write_often, name="progress", daemon=True)

    def start(self) -> None:
        """Write the first report, and then one every second."""
        self._write()
        self._thread.start()

    def close(self) -> None:
        """Write the last report."""
        self._closed.set()
        self._thread.join()
        self._write()

    def _write_often(self) -> None:
        while not self._closed.wait(EVERY):
            self._write()

    def _write(self) -> None:
        """Replace the file; a failure is logged once and stops nothing."""
        part = self._path.with_name(f"{FILE}.part")
        try:
            content = json.dumps(self._fixed | self._report()).encode()
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(content)
            os.replace(part, self._path)
        except (OSError, SottovoceError) as error:
            if not self._failed:
                log.warning("no report could be written to '%s': %s", self._path, error)
            self._failed = True
