"""NVIDIA FLARE: the one door to it, requests between the processes of a job, and the transport of a node over them.

Messages go through the server, end-to-end encrypted, never in plaintext. FLARE has two ways for a job's processes to
talk. Auxiliary messages (`send_aux_request`) stream every payload in chunks with acknowledgements, and their handlers
are not informed whether what came was encrypted. The cell below them sends one message and one reply, up to three times
as fast, and its handlers see the headers. So we use the cell, with `secure` set, and refuse every message without it,
or with another name than its certificate's. The header `SECURE` alone proves nothing: FLARE neither decrypts nor
verifies a message that has it and lacks `ENCRYPTED`, so anyone who relays could write both. A filter that runs before
FLARE decrypts sees both headers as received, and leaves a mark on the message that cannot come from the wire.

One request does a whole exchange: one node sends its message, and the other one's reply is its own message of the
round, for which the request waits a little. The node with the smaller number requests at once, the other one only if no
request arrives within some milliseconds. Then it was ready first, and its message is there when the late node, for
which all others wait, has written to its disk.
"""

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Condition
from types import ModuleType
from typing import Any

from sottovoce.errors import NetworkError, SottovoceError, SpecError
from sottovoce.node.dropped_edges import Skips
from sottovoce.node.links import Links, round_in
from sottovoce.node.removal import CONFERENCE
from sottovoce.node.transport import CHECK_SECONDS, NodeTransport

VERSION = "2.9.0"  # routing changed since 2.8.3, and our messages use it directly
SIMULATED = "SOTTOVOCE_KITS"
"""The environment variable with the folder of all kits, for FLARE's simulator, which has none of its own."""


def installed() -> str | None:
    """The installed version of FLARE, or None."""
    try:
        return version("nvflare")
    except PackageNotFoundError:
        return None


def flare(module: str) -> ModuleType:
    """A module of FLARE, of the one version that this package was tested with."""
    found = installed()
    if found is None:
        raise SpecError(
            "a consortium runs on NVIDIA FLARE, which is not installed; run: pip install 'sottovoce[flare]'"
        )
    if found != VERSION:
        raise SpecError(f"this version of sottovoce runs on nvflare {VERSION}, not {found}; install that one")
    return import_module(f"nvflare.{module}")


def simulated(cell: Any) -> bool:
    """Whether this is FLARE's simulator: its owner says so, and its processes have no certificates."""
    return SIMULATED in os.environ and not cell.supports_secure_messages()


def kit_of(workspace: Any, name: str, cell: Any) -> Path:
    """The folder of this process's kit. A job has no say in it: FLARE has, or the owner of a simulation."""
    return Path(os.environ[SIMULATED]) / name if simulated(cell) else Path(workspace.get_root_dir())


CHANNEL = "sottovoce"
TOPICS = MESSAGE, MODEL, ORDER, PROGRESS = "message", "model", "order", "progress"
"""What a request may be about: a round's message, a final model, a controller's order, how far a node is."""

HOLD = 2.0  # seconds that a request waits for the other end's message of the same round
GRACE = 0.005  # seconds that the node with the larger number waits for a request
REPLY_TIMEOUT = 4.0  # seconds after which nobody waits for a reply any more; lost requests are sent again long before
OUTSTANDING = 8
"""Requests with one message that may be without a reply at a time: one that is lost must not keep the next one back."""
ENCRYPTED = "sottovoce_encrypted"  # our own mark on a message in memory: it came encrypted

log = logging.getLogger(__name__)


class Channel:
    """Requests and replies between the cells of one job.

    Parameters
    ----------
    cell : FLARE's core cell of this process
    job : FLARE's name of the job
    plaintext : accept unencrypted messages; only for FLARE's simulator, where one owner has everything anyway
    """

    def __init__(self, cell: Any, job: str, plaintext: bool = False) -> None:
        core = flare("fuel.f3.cellnet.core_cell")
        self._cell, self._job, self._core, self.plaintext = cell, job, core, plaintext
        self._keys = core.MessageHeaderKey
        if not plaintext and not (cell.is_secure() and cell.supports_secure_messages()):
            raise NetworkError(
                "this node has no certificate to encrypt its messages with, and nothing is sent in plaintext; start it "
                "from a provisioned kit"
            )
        if not plaintext:
            others = cell.in_filter_reg.find(CHANNEL, "*") or ()  # a filter of one channel would stand before theirs
            for other in [*others]:
                cell.add_incoming_filter(CHANNEL, "*", other.cb, *other.args, **other.kwargs)
            cell.add_incoming_filter(CHANNEL, "*", self._check_encrypted)

    def _check_encrypted(self, message: Any) -> Any:
        """FLARE's filter of what comes in, requests and replies, before it decrypts: None lets a message through."""
        if message.get_header(self._keys.SECURE, False) is True and message.get_header(self._keys.ENCRYPTED) is True:
            message.set_prop(ENCRYPTED, True)
            return None
        log.error("a message in the name of %s was not encrypted; dropped", message.get_header(self._keys.ORIGIN))
        return self._core.make_reply(self._core.ReturnCode.UNAUTHENTICATED)

    def _came_encrypted(self, message: Any) -> bool:
        return self.plaintext or message.get_prop(ENCRYPTED, False) is True

    def ask(self, site: str, topic: str, payload: bytes, patience: float = REPLY_TIMEOUT) -> bytes | None:
        """Another process's reply; None where it cannot be reached, or would not answer."""
        request = self._core.Message({}, payload)
        target = f"{site}.{self._job}"
        secure = not self.plaintext
        reply = self._cell.send_request(CHANNEL, topic, target, request, patience, secure=secure, optional=True)
        if reply.get_header(self._keys.RETURN_CODE) != self._core.ReturnCode.OK:
            return None
        if not self._came_encrypted(reply):
            log.error("the reply of %s was not encrypted; refused", site)
            return None
        return bytes(reply.payload or b"")

    def serve(self, topic: str, answer: Callable[[str, bytes], bytes]) -> None:
        """Answer requests about a topic; `answer` receives the requester's name, and its errors become refusals."""

        def handle(message: Any) -> Any:
            origin = str(message.get_header(self._keys.ORIGIN))
            site, _, job = origin.partition(".")
            if job != self._job or not self._came_encrypted(message):
                log.error("a message of %s was not encrypted, or is of another job; refused", origin)
                return self._core.make_reply(self._core.ReturnCode.UNAUTHENTICATED)
            try:
                return self._core.make_reply(self._core.ReturnCode.OK, body=answer(site, bytes(message.payload or b"")))
            except SottovoceError as error:
                log.warning("a message of %s was refused: %s", site, error)
            except Exception:  # what it says stays here
                log.exception("a message of %s met an error that should not be; please report it", site)
            return self._core.make_reply(self._core.ReturnCode.INVALID_REQUEST)

        self._cell.register_request_cb(CHANNEL, topic, handle)


class FlareTransport(NodeTransport):
    """A node's end of the network, over FLARE.

    Parameters
    ----------
    links, skips : of the node
    channel : to the other processes of the job
    stopped : whether the job was ended
    """

    def __init__(self, links: Links, skips: Skips, channel: Channel, stopped: Callable[[], bool]) -> None:
        super().__init__(links, skips)
        self.channel, self._stopped = channel, stopped
        self._pool = ThreadPoolExecutor(max(1, OUTSTANDING * len(links.peers)), thread_name_prefix="transport")
        self._under_way: dict[int, tuple[bytes, int]] = {}  # by peer: the request sent to it, and how often
        self._requested: dict[int, bytes] = {}
        self._heard: dict[int, int] = {}  # the step of the last request of every peer
        self._held: dict[int, object] = {}  # the request of every peer that may wait
        self.sent, self.received = (dict.fromkeys(links.peers, 0) for _ in range(2))
        """Bytes of requests and replies, by peer; how long a message is follows from the plan."""
        self._changes, self._noticed = 0, 0
        self._changed = Condition()
        channel.serve(MESSAGE, self._answer)

    def send(self, peer: int, payload: bytes) -> None:
        """Send a message as a request; the node with the larger number first waits for the peer's request."""
        with self._changed:
            first, t = self._requested.get(peer) != payload, round_in(payload)
            self._requested[peer] = payload
            self._change()  # a request may wait for this very message
            count = 0 if first else self._outstanding(peer, payload)
            if count >= OUTSTANDING or (first and self.links.heard(t, peer) is not None):
                return  # a peer that lacks a message requests it
            self._under_way[peer] = payload, count + 1
        self._pool.submit(
            self._ask, peer, payload, first and t not in (0, CONFERENCE) and peer < self.links.me
        )  # these need an answer

    def _outstanding(self, peer: int, payload: bytes) -> int:
        """How many requests with a message are without a reply."""
        outstanding, count = self._under_way.get(peer, (b"", 0))
        return count if outstanding == payload else 0

    def _ask(self, peer: int, payload: bytes, patient: bool) -> None:
        try:
            if patient and self._was_requested(peer, round_in(payload)):
                return
            began, sealed = time.monotonic(), self.links.sealed(peer, payload)
            answer = self.channel.ask(self.links.run.nodes[peer], MESSAGE, sealed)
            self._count(peer, sent=len(sealed), received=len(answer or b""))
            if answer:
                self.resend.measured(peer, time.monotonic() - began)
                self.links.deliver(peer, answer, reply=True)
        except NetworkError as error:
            log.warning("the reply of %s was refused: %s", self.links.run.nodes[peer], error)
        except SottovoceError as error:
            self.links.fail(error)
        finally:
            with self._changed:
                count = self._outstanding(peer, payload)
                if count:
                    self._under_way[peer] = payload, count - 1
                self._change()

    def _was_requested(self, peer: int, t: int) -> bool:
        """Whether the peer's own request for a round is here, or comes within the grace."""
        with self._changed:
            return self._changed.wait_for(lambda: self._heard.get(peer, -1) >= t, timeout=GRACE)

    def _answer(self, site: str, data: bytes) -> bytes:
        """The reply to a request, for which it waits a little; one request of each peer waits, the latest."""
        peer, until = self.links.run.number(site), time.monotonic() + HOLD
        seen = self._changes
        t, answer = self.links.answer_with_round(peer, data)
        with self._changed:
            self._heard[peer] = t
            self._held[peer] = mine = object()
            self._change()  # this node may wait for what was just delivered
        owed = self.links.owes(peer, t)
        while owed and not answer and time.monotonic() < until and not self._stopped() and self._held[peer] is mine:
            with self._changed:
                self._changed.wait_for(lambda past=seen: self._changes != past, timeout=CHECK_SECONDS)  # type: ignore[misc]
                seen = self._changes
            answer = self.links.reply(peer, t)
        self._count(peer, sent=len(answer), received=len(data))
        return answer

    def _count(self, peer: int, sent: int, received: int) -> None:
        with self._changed:
            self.sent[peer] = self.sent.get(peer, 0) + sent
            self.received[peer] = self.received.get(peer, 0) + received

    def _change(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until something came in since the last time; a job that was ended does not wait."""
        if self._stopped():
            self.links.fail(NetworkError("the job was ended; the run is paused: submit it again, and it goes on"))
        with self._changed:
            self._changed.wait_for(lambda: self._changes != self._noticed, timeout=seconds)
            self._noticed = self._changes

    def close(self) -> None:
        """Send nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
