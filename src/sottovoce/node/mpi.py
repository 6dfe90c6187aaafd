"""Messages over MPI, inside one trust domain: rank = node number, nonblocking sends, polling receives.

MPI encrypts nothing and trusts every rank: it is for a cluster of one owner. Across organisations take FLARE.
A rank that dies takes the job with it; started again, the same command goes on where every node's folder stands.
"""

import time
from contextlib import suppress
from typing import Any

from sottovoce.errors import NetworkError, SpecError
from sottovoce.node.postbox import Postbox

TAG = 7
HELD = 32  # messages that may be on their way before it is looked whether some have left
SPIN = 0.001  # seconds of polling before a waiting rank begins to sleep, so that many ranks can share a core
NAP = 0.0002


def world() -> Any:
    """The communicator of all ranks."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise SpecError(
            f"nodes over MPI need mpi4py and an MPI library ({error}); install sottovoce[mpi] and start with mpirun"
        ) from None
    return MPI.COMM_WORLD


class MpiCarrier:
    """A `Carrier` over a communicator; nothing gets lost in it."""

    lossy = False

    def __init__(self, comm: Any, postbox: Postbox) -> None:
        from mpi4py import MPI

        self._mpi, self._comm, self._postbox = MPI, comm, postbox
        self._status = MPI.Status()
        self._sending: list[tuple[Any, bytes]] = []

    def send(self, peer: int, payload: bytes) -> None:
        """Start a message; its bytes are held until MPI is done with them."""
        self._sending.append((self._comm.Isend(payload, peer, TAG), payload))
        if len(self._sending) > HELD:
            self._sending = [(r, p) for r, p in self._sending if not r.Test()]

    def wait(self, seconds: float) -> None:
        """Take in whatever has come, from whomever; polling also moves this rank's own sends along."""
        began = time.monotonic()
        while not self._receive():
            waited = time.monotonic() - began
            if waited >= seconds:
                return
            if waited > SPIN:  # until then: a probe that finds nothing lets others run, where ranks share cores
                time.sleep(NAP)

    def flush(self) -> None:
        """Wait until every message has left; their receivers have said that they are done, so it is a moment."""
        while self._sending:
            self._receive()
            self._sending = [(r, p) for r, p in self._sending if not r.Test()]

    def _receive(self) -> bool:
        message = self._comm.Improbe(self._mpi.ANY_SOURCE, TAG, self._status)
        if message is None:
            return False
        buffer = bytearray(self._status.Get_count(self._mpi.BYTE))
        peer = self._status.Get_source()
        message.Recv(buffer)
        with suppress(NetworkError):  # the postbox keeps the reason; whoever waits goes on waiting
            self._postbox.deliver(peer, bytes(buffer))
        return True
