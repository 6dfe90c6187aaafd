"""NVIDIA FLARE: the one door to it, requests between the processes of a job, and the transport of a node over them.

Messages go through the server, end-to-end encrypted, never in plaintext. FLARE has two ways for a job's processes to
talk. Auxiliary messages (`send_aux_request`) stream every payload in chunks with acknowledgements, and their handlers
are not told whether what came was encrypted. The cell below them sends one message and one reply, up to three times as
fast, and its handlers see the headers. So we use the cell, with `secure` set, and refuse whatever came without it, or
in another name than its certificate's. The header `SECURE` alone proves nothing: FLARE neither decrypts nor verifies a
message that has it and lacks `ENCRYPTED`, so whoever relays could write both. What both headers stood on is seen by a
filter that runs before FLARE decrypts, and that leaves a mark on the message which cannot come from the wire.

One request does a whole exchange: one node sends its message, and the other one's reply is its own message of the
round, for which the request waits a little. The node with the smaller number asks at once, the other one only if it
was not asked within some milliseconds: then it was the first to be ready, and its message is there when the late one,
on whom everybody waits, is done with its disk.
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
from sottovoce.node.links import Links, round_in
from sottovoce.node.skips import Skips
from sottovoce.node.transport import LOOK, NodeTransport

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

HOLD = 5.0  # seconds that a request waits for the other end's message of the same round
GRACE = 0.005  # seconds that the node with the larger number waits to be asked
PATIENCE = 15.0  # seconds after which a request without a reply is given up, and sent again if need be
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
            cell.add_incoming_filter(CHANNEL, "*", self._refuse_plaintext)

    def _refuse_plaintext(self, message: Any) -> Any:
        """FLARE's filter of what comes in, requests and replies, before it decrypts: None lets a message through."""
        if message.get_header(self._keys.SECURE, False) is True and message.get_header(self._keys.ENCRYPTED) is True:
            message.set_prop(ENCRYPTED, True)
            return None
        log.error("a message in the name of %s was not encrypted; dropped", message.get_header(self._keys.ORIGIN))
        return self._core.make_reply(self._core.ReturnCode.UNAUTHENTICATED)

    def _came_encrypted(self, message: Any) -> bool:
        return self.plaintext or message.get_prop(ENCRYPTED, False) is True

    def ask(self, site: str, topic: str, payload: bytes, patience: float = PATIENCE) -> bytes | None:
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
        """Answer requests about a topic; `answer` is told who asks, and its errors are refusals."""

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
        self._pool = ThreadPoolExecutor(max(1, len(links.peers)), thread_name_prefix="transport")
        self._under_way: dict[int, bytes] = {}
        self._asked: dict[int, bytes] = {}
        self._since: dict[int, tuple[int, float]] = {}
        self._heard: dict[int, int] = {}  # the round of the last request of every peer
        self._held: dict[int, object] = {}  # the request of every peer that may wait
        self._changes, self._noticed = 0, 0
        self._changed = Condition()
        channel.serve(MESSAGE, self._answer)

    def send(self, peer: int, payload: bytes) -> None:
        """Ask with a message; the node with the larger number first waits to be asked."""
        with self._changed:
            first, t = self._asked.get(peer) != payload, round_in(payload)
            if first:
                self._since[peer] = (t, time.monotonic())
            self._asked[peer] = payload
            self._change()  # a request may wait for this very message
            if self._under_way.get(peer) == payload or (first and self.links.heard(t, peer) is not None):
                return  # whoever lacks a message asks for it
            self._under_way[peer] = payload
        self._pool.submit(
            self._ask, peer, payload, first and t != 0 and peer < self.links.me
        )  # a hello needs an answer

    def _ask(self, peer: int, payload: bytes, patient: bool) -> None:
        try:
            if patient and self._was_asked(peer, round_in(payload)):
                return
            answer = self.channel.ask(self.links.run.nodes[peer], MESSAGE, self.links.sealed(peer, payload))
            if answer:
                self.links.deliver(peer, answer, reply=True)
        except NetworkError as error:
            log.warning("the reply of %s was refused: %s", self.links.run.nodes[peer], error)
        except SottovoceError as error:
            self.links.fail(error)
        finally:
            with self._changed:
                if self._under_way.get(peer) == payload:
                    del self._under_way[peer]
                self._change()

    def _was_asked(self, peer: int, t: int) -> bool:
        """Whether the peer's own request for a round is here, or comes within the grace."""
        with self._changed:
            return self._changed.wait_for(lambda: self._heard.get(peer, -1) >= t, timeout=GRACE)

    def _answer(self, site: str, data: bytes) -> bytes:
        """The reply to a request, for which it waits a little; one request of each peer waits, the latest."""
        peer, until = self.links.run.number(site), time.monotonic() + HOLD
        seen = self._changes
        t, answer = self.links.asked(peer, data)
        with self._changed:
            self._heard[peer] = t
            self._held[peer] = mine = object()
            self._change()  # this node may wait for what was just delivered
        while not answer and time.monotonic() < until and not self._stopped() and self._held[peer] is mine:
            with self._changed:
                self._changed.wait_for(lambda past=seen: self._changes != past, timeout=LOOK)  # type: ignore[misc]
                seen = self._changes
            answer = self.links.reply(peer, t)
        return answer

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

    def waiting(self, t: int) -> tuple[int, float] | None:
        """The peer whose message of round t, or word on it, this node waits for the longest, and its seconds."""
        with self._changed:
            began = {peer: when for peer, (r, when) in self._since.items() if r == t}
        asked = self.skips.undecided(t)
        late = [peer for peer in began if self.links.heard(t, peer) is None or peer in asked]
        peer = min(late, key=began.__getitem__, default=None)
        return None if peer is None else (peer, time.monotonic() - began[peer])

    def close(self) -> None:
        """Send nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
