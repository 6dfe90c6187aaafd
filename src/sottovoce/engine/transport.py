"""The seam to a real network: exchange(round, peer, bytes) -> bytes.

Both ends of a link call it once a round; each gets the other's bytes, complete, or an error. A node walks through
its links of a round in the order of the pairs (i, j), so that no two nodes ever wait for each other in a circle.
"""

import queue
from threading import Event, Lock
from typing import Protocol

from sottovoce.errors import SottovoceError


class Transport(Protocol):
    """One node's end of the network."""

    def exchange(self, t: int, peer: int, payload: bytes) -> bytes:
        """Send this round's message to a peer and return the peer's; blocks; raises rather than return half of it."""


class Mailboxes:
    """A network inside one process: a queue for each direction of each link."""

    def __init__(self, patience: float = 3600.0) -> None:
        self.patience = patience
        self.stopped = Event()
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[tuple[int, bytes]]] = {}
        self._lock = Lock()

    def end(self, node: int) -> "MailboxEnd":
        """The transport of one node."""
        return MailboxEnd(self, node)

    def box(self, sender: int, receiver: int) -> "queue.SimpleQueue[tuple[int, bytes]]":
        """The queue from one node to another."""
        with self._lock:
            return self._boxes.setdefault((sender, receiver), queue.SimpleQueue())


class MailboxEnd:
    """One node's end of `Mailboxes`."""

    def __init__(self, net: Mailboxes, node: int) -> None:
        self.net, self.node = net, node

    def exchange(self, t: int, peer: int, payload: bytes) -> bytes:
        """Post to the peer's box, then wait for the peer's message of the same round."""
        self.net.box(self.node, peer).put((t, payload))
        waited = 0.0
        while True:
            if self.net.stopped.is_set():
                raise SottovoceError(f"node {self.node} stopped in round {t}: another node failed")
            try:
                round_, answer = self.net.box(peer, self.node).get(timeout=0.05)
                break
            except queue.Empty:
                waited += 0.05
                if waited >= self.net.patience:
                    raise SottovoceError(
                        f"node {self.node} waited {self.net.patience:g} s for node {peer} in round {t}; is it running?"
                    ) from None
        if round_ != t:
            raise SottovoceError(f"node {self.node} expected round {t} from node {peer}, but got round {round_}")
        return answer
