"""What a node has said and heard on each of its links.

Nodes that do not know each other's keys introduce themselves; from then on everything between two of them travels
sealed (`envelope.py`), and what does not open is not read.

Where a round has several exchanges they are counted through the run, as *steps*; with one, a step is a round.

A message is addressed by its step and is the same however often it is sent, so an exchange can be requested again at
any time: lost messages are sent again and duplicates ignored. A node keeps its last two messages on every link and
hands them out whenever a peer says hello: that is all that a restarted peer can lack. What does not fit is
refused with a code and a reason, and never mixed in: another run, a round in which the two do not speak, a second and
different message for a round, numbers that no honest node reaches.

*Input is bounded* before it is parsed: by size, then by steps. A peer's message of a step needs all that
the plan has this node say to it at earlier ones, so nothing is due that would need what was not said yet. Two nodes
that speak in a round do so in both directions. So at most two messages of each peer wait to be mixed, as many as a
restarted node can lack. Of a peer's notices only the fact that they came is kept.

Step 0 is the hello, the one after the last the farewell. In the hello each peer says the highest step that it saw from
the other, its hash, and the *proof* that came with it: a MAC of step and hash under the sender's own secret, which
nobody else can make. A node that is shown such a proof of a message that its folder does not know is an old copy of
itself, and stops for good. A claim without a proof stops nobody: it is refused. A hello counts only if it answers this
very process: each process has a *question*, some bytes of chance that it says in its hellos, and a hello in answer says
them back. Else a relay could play back to an old copy what its peers once said to the folder, before it was copied.

*Vouchers.* With the last message of every stretch of 128 on a link goes a signature of the hashes of all of them, and a
receiver takes the message in only if they are those that it got. So every message is signed for, with the sender's run
key, at the cost of one signature for 128; receivers keep vouchers, and can show them to anybody. A valid signature of
other messages than came proves that someone with the sender's keys sent two versions. One of them may be mixed, so the
run cannot be finished: `ConflictingMessages`.

*Forged messages that come early.* Anyone who has a node's keys can send a message before the node makes its own. The
first version counts while the process runs. After a restart only what is mixed decides which version is the second one.
A hello says the latest message of the peer that is mixed; a peer that never made it stops: `Disputed`.

*When all is done* a node erases its keys. A peer that was killed before it heard so requests again: for such peers the
node seals its farewell before it erases the keys (`last_words`), and has nothing else to say or to read from then on.

*Ends.* A node that stops says so, in a notice of the farewell's step. That a peer contradicts is final, whenever it
comes. Every other end counts only with the question of this process in it, so that nobody can play back an old one.
"""

import json
import math
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b, sha256
from threading import Condition, RLock
from types import MappingProxyType
from typing import Any, NamedTuple

from sottovoce._version import __version__
from sottovoce.errors import (
    ConflictingMessages,
    Disputed,
    NetworkError,
    PeerEnded,
    PeerTimeout,
    SottovoceError,
    StaleCopy,
    UnknownPeer,
)
from sottovoce.node.envelope import INTRODUCES, LONGEST, OVERHEAD, SIGNATURE, Envelope, joined
from sottovoce.node.message import (
    CHECK,
    Code,
    Header,
    Refused,
    check,
    expect,
    pack_text,
    read,
    round_of,
    size_of,
    unpack_text,
)
from sottovoce.node.removal import CONFERENCE, CONFERS, Removal
from sottovoce.node.runfile import Run
from sottovoce.node.state import RunState
from sottovoce.node.store import Mark, Saved

KEPT = 2
"""Messages on a link that a peer may still lack."""
STRETCH = 128
"""Messages of a link that one voucher is for."""
NOISE_TOLERANCE = 0.01  # σ comes from a search; processors may differ in its last digits
MEETING = -1
"""The round in which nodes introduce themselves."""
MESSAGE = "message"
"""The topic of everything here."""
REFUSES = b"svox"
"""Begins the answer to a node whose keys are not those that are known of it."""
PROOF = 16
QUESTION = 16  # bytes by which a process knows that a hello is in answer to its own
NOTICE = 4096  # bytes of a notice without what is attached to it
REMARKS = 100  # refusals that are remembered
_ABOUT = struct.Struct(f"<{PROOF}sH")  # what goes with a message: its proof, and how long the voucher behind it is
_NOTHING = _ABOUT.pack(bytes(PROOF), 0)
_NEVER = "00" * CHECK  # in place of the hash of what was not said
_HERE = b"here"  # of a notice, which leaves nothing else behind
ENDS = MappingProxyType(
    {
        RunState.CONTRADICTED: "{about} signed other messages than it sent; this run cannot be finished",
        RunState.PEER_ENDED: "{about} ended the run; this run cannot be finished",
        RunState.DISPUTED: "{about} holds messages in its name that it never made; starting again will not help before "
        "its folder and key are the right ones",
        RunState.OLD_COPY: "its folder is an old copy; restore the right one there, and start the nodes again",
        RunState.PAUSED: "it is paused and waits for {about}; start the nodes again, and the run goes on",
    }
)
"""What a peer's notice of an end says."""
FOR_GOOD = RunState.CONTRADICTED, RunState.PEER_ENDED
"""Ends after which no start leads on."""


class Unproven(Refused):
    """A claim that nobody need believe."""


class End(NamedTuple):
    """Why a node stopped, as sent to its peers."""

    state: RunState
    about: str | None = None
    """The node that it is about."""


def round_in(payload: bytes) -> int:
    """The round of a message, or of an introduction."""
    if payload.startswith(CONFERS):
        return CONFERENCE
    return MEETING if payload.startswith(INTRODUCES) else round_of(payload)


def own_proof(secret: bytes, run: str, t: int, message: str) -> bytes:
    """What only the sender of a message can have made: shown to an old copy of its folder, it knows its own future."""
    proof = _proving(secret, run)
    proof.update(f"{t} {message}".encode())
    return proof.digest()


def _proving(secret: bytes, run: str) -> blake2b:
    return blake2b(f"{run} ".encode(), key=secret, digest_size=PROOF, person=b"own message")


class Links:
    """What one node has said and heard in one run; safe to use from several threads.

    Parameters
    ----------
    run : the run
    me : the node's number
    saved : what the node's folder holds of the run
    released : step -> hash of the message that this node's folder has for it, or None
    envelope : what seals and opens
    secret : the node's own, from which its proofs are made
    removal : its part in going on without lost nodes, where the run may
    """

    def __init__(
        self,
        run: Run,
        me: int,
        saved: Saved,
        released: Callable[[int], str | None],
        envelope: Envelope,
        secret: bytes,
        removal: Removal | None = None,
    ) -> None:
        self.run, self.me, self.envelope, self._n, self.removal = run, me, envelope, run.n, removal
        self.last = run.last
        """The last step."""
        self._released, self._secret, self._digest, self._mark = released, secret, run.digest, run.mark
        self._proving = _proving(secret, run.digest)
        met = run.neighbors(me)
        self.peers = {j: said for j, (said, _) in met.items()}
        """Every node that this one ever speaks with, and at which steps it speaks."""
        self.hears = {j: heard for j, (_, heard) in met.items()}
        """And at which steps each of them does."""
        largest = size_of(run.longest_shape)
        self._when = {j: frozenset(steps) for j, steps in self.peers.items()}
        self._whence = {j: frozenset(steps) for j, steps in self.hears.items()}
        self._whom: dict[int, list[int]] = {}
        for j, steps in self.peers.items():
            for step in steps:
                self._whom.setdefault(step, []).append(j)
        self._signs = {j: _stretches(steps) for j, steps in self.peers.items()}
        self._signed = {j: _stretches(steps) for j, steps in self.hears.items()}
        letter = _ABOUT.size + SIGNATURE + STRETCH * CHECK + largest
        self.limit = max(LONGEST, OVERHEAD + _ABOUT.size + NOTICE + KEPT * letter, removal.limit if removal else 0)
        """Bytes that anything may have that comes in."""
        self.refused: list[str] = []
        """Why messages were refused, the latest last."""
        self.reasons: dict[int, str] = {}
        """Why the last message of each node was refused; not for being unknown, where there is more to say."""
        passed = {run.step(t, part): payload for (t, part), payload in saved.parts.items()}
        self._mixed = self._said = max([run.step(saved.round + 1), *passed]) - 1
        self._seen = dict(saved.seen)
        self._latest = {j: run.step(mark.round, mark.part) for j, mark in saved.seen.items()}
        self._inbox: dict[int, dict[int, bytes]] = {j: {} for j in self.peers}
        self._notices: dict[int, set[int]] = {j: set() for j in self.peers}
        kept = {j: saved.unvouched.get(j, {}) for j in self.peers}
        self._unvouched = {  # what was not mixed is gone, and its hash decides nothing any more
            j: {t: bytes.fromhex(digest) for t, digest in got.items() if t <= self._mixed} for j, got in kept.items()
        }
        left_out = {edge for edge, phase in saved.skips.items() if phase == "skip"}
        self._mixed_of = {j: self._latest_mixed(j, left_out) for j in self.peers}
        self._unkept: dict[int, dict[int, bytes]] = {j: {} for j in self.peers}  # those that are not on the disk
        self._vouchers: list[tuple[int, int, bytes]] = []
        self._outbox: dict[int, bytes] = {}
        self._abouts: dict[int, bytes] = {}
        self._own: dict[int, bytes] = {}  # round -> hash of what this node said lately
        self._last: dict[int, list[int]] = {j: [] for j in self.peers}
        self._lacked: dict[int, int] = {}  # step -> how many peers may lack what this node said at it
        self._stale: list[int] = []  # those that nobody can lack any more
        self._strangers: dict[int, UnknownPeer] = {}
        self.question = os.urandom(QUESTION).hex()
        """What a hello must say back to count."""
        self._questions: dict[int, str] = {}  # of the peers
        self._answered: dict[int, str] = {}  # those of them that a hello of this node answers
        self._unanswering: set[int] = set()
        self._failure: SottovoceError | None = None
        self.end: End | None = None
        """Why this node stopped."""
        self.end_kept = False
        """Whether the end is on the disk. Only then do peers learn of it, lest a crash here lose it."""
        self.last_words: dict[tuple[int, bool], bytes] = {}
        """Sealed farewells of a run whose keys are erased, by (peer, whether a reply); nothing else is said or read."""
        self._lock = RLock()
        self._changed, self._waiting = Condition(self._lock), 0
        for step, payload in sorted(({run.step(t): p for t, p in saved.outbox.items()} | passed).items()):
            self._keep(step, payload)

    def _latest_mixed(self, peer: int, left_out: set[tuple[int, int]]) -> int:
        """The last step whose message of a peer the saved state holds; 0 where there is none."""
        steps = self.hears[peer]
        before = steps[: bisect_right(steps, self._mixed)]
        return next((t for t in reversed(before) if (self.run.at(t)[0], peer) not in left_out), 0)

    # -- this node's own messages --

    def _header(self, t: int) -> Header:
        return Header(self._mark, t, self.me)

    def post(self, t: int, payload: bytes) -> None:
        """Hand a message out from now on; it is on the disk already."""
        with self._lock:
            if not self.run.at(t)[1]:
                for old in self._stale:
                    del self._outbox[old], self._abouts[old], self._lacked[old]
                self._stale = []
            self._keep(t, payload)

    def _keep(self, t: int, payload: bytes) -> None:
        """Hold a message for those who may lack it, each until two later ones of its link are held."""
        whom, digest, lacked = self._whom.get(t, ()), payload[-CHECK:], self._lacked
        for peer in whom:
            last = self._last[peer]
            last.append(t)
            if len(last) > KEPT:
                old = last.pop(0)
                lacked[old] -= 1
                if not lacked[old]:
                    self._stale.append(old)
        lacked[t] = len(whom)
        if not whom:
            self._stale.append(t)
        self._outbox[t], self._own[t] = payload, digest
        if t > self._said:
            self._said = t
        proof = self._proving.copy()
        proof.update(f"{t} {digest.hex()}".encode())
        self._abouts[t] = _ABOUT.pack(proof.digest(), 0)
        if len(self._own) > 2 * STRETCH:
            del self._own[next(iter(self._own))]  # the ledger has it

    def stale(self, t: int) -> list[int]:
        """Which kept messages no peer can lack any more; they go with the release of a step."""
        with self._lock:
            return [] if self.run.at(t)[1] else list(self._stale)

    def hello(self, peer: int) -> bytes:
        """Who this node is, what it saw from the peer, and what the peer may lack."""
        with self._lock:
            known = peer not in self._strangers
            last = [t for t in sorted(self._outbox) if known and t in self._when[peer]][-KEPT:]
            self._answered |= {peer: self._questions[peer]} if peer in self._questions else {}
            value = {
                "to": self.run.nodes[peer],
                "version": __version__,
                "sigma": self.run.event(self.me).sigma,
                "seen": self._claim(peer),
                "mixed": self._mixed_of[peer],
                "asks": self.question,
                "answers": self._answered.get(peer),
            }
            return pack_text(self._header(0), value, tuple(self._letter(peer, self._outbox[t]) for t in last))

    def _claim(self, peer: int) -> list[int | str] | None:
        """The latest that was seen of a peer, and its proof."""
        mark = self._seen.get(peer)
        return None if mark is None else [self.run.step(mark.round, mark.part), mark.message, mark.proof]

    def owes_hello(self, peer: int) -> bool:
        """Whether a peer waits for a hello of this node; where there are no replies, send one."""
        with self._lock:
            return self._questions.get(peer) != self._answered.get(peer)

    def repeats_hello(self, peer: int) -> bool:
        """Return whether a hello that does not answer this process came since the last call: then say hello again."""
        with self._lock:
            found = peer in self._unanswering
            self._unanswering.discard(peer)
            return found

    def farewell(self) -> bytes:
        """The notice that this node has done all of its rounds, and has everything that it needs on the disk."""
        return pack_text(self._header(self.last + 1), "done")

    def parting(self, peer: int) -> bytes:
        """Return the notice of this node's end for a peer; a hello where the end needs a question that is not known."""
        with self._lock:
            end, question = self.end, self._questions.get(peer)
        assert end is not None
        if question is None and end.state not in FOR_GOOD:
            return self.hello(peer)
        value = {"end": end.state.value, "about": end.about, "answers": question}
        return pack_text(self._header(self.last + 1), value)

    @property
    def done(self) -> int:
        """The rounds that are mixed."""
        with self._lock:
            return self.run.T if self._mixed >= self.last else max(0, self.run.at(self._mixed + 1)[0] - 1)

    def parted(self, peer: int) -> bool:
        """Whether a peer has said that it is done, or stopped."""
        return self.last + 1 in self._notices[peer]

    def sealed(self, peer: int, payload: bytes, reply: bool = False) -> bytes:
        """A message as it travels to a peer; an introduction travels as it is."""
        if self.last_words:
            return self.last_words.get((peer, reply), b"")
        if payload.startswith(INTRODUCES):
            return payload
        if payload == CONFERS and self.removal is not None:
            return self.removal.sealed(peer, reply)
        return self.envelope.seal(peer, MESSAGE, self._about(peer, payload), payload, reply)

    def _letter(self, peer: int, payload: bytes) -> bytes:
        return self._about(peer, payload) + payload

    def _about(self, peer: int, payload: bytes) -> bytes:
        """The proof of a message, and the voucher where one is due; a notice has neither."""
        t = round_of(payload)
        about, stretch = self._abouts.get(t), self._signs[peer].get(t)
        if about is None or stretch is None:
            return about or _NOTHING
        voucher = self._voucher(peer, stretch)
        return about[:PROOF] + len(voucher).to_bytes(2, "little") + voucher

    def _voucher(self, peer: int, stretch: list[int]) -> bytes:
        own, kept = self._own.get, self._released
        hashes = b"".join([own(r) or bytes.fromhex(kept(r) or _NEVER) for r in stretch])
        return self.envelope.sign(*self._vouched(self.run.nodes[peer], stretch, hashes)) + hashes

    def _vouched(self, receiver: str, stretch: Sequence[int], hashes: bytes) -> tuple[bytes | str | int, ...]:
        what = sha256(joined(_packed(self.run.shape), _packed(stretch), hashes))
        return "voucher", receiver, what.digest()

    # -- what others say --

    def deliver(self, peer: int, data: bytes | memoryview, reply: bool = False) -> int:
        """Take in what came over the link from a peer; refuse what does not fit. Returns its round.

        The data may be written over afterwards.
        """
        if self.last_words:
            return self.last + 1
        try:
            if not 0 <= peer < self._n:
                raise Refused(Code.SENDER, f"there is no node {peer} in this run; refused")
            if len(data) > self.limit:
                raise Refused(
                    Code.SIZE, f"{len(data)} bytes came from node {peer}, and {self.limit} are the most; refused"
                )
            with self._lock:
                t = self._opened(peer, data, reply)
                if self._waiting:
                    self._changed.notify_all()
            return t
        except NetworkError as error:
            self._note(peer, error)
            raise

    def _note(self, peer: int, error: NetworkError) -> None:
        """Remember why something of a peer was not used."""
        with self._lock:
            self.refused = [*self.refused[1 - REMARKS :], str(error)]
            if peer not in self.reasons or getattr(error, "code", None) is not Code.UNKNOWN:
                self.reasons[peer] = str(error)

    def answer(self, peer: int, data: bytes) -> bytes:
        """`deliver`, and give this node's message of the same step; empty where there is none yet.

        This is what a transport of requests and replies (FLARE) calls for an incoming request.
        """
        return self.answer_with_round(peer, data)[1]

    def answer_with_round(self, peer: int, data: bytes) -> tuple[int, bytes]:
        """Return the same, with the requested step."""
        try:
            t = self.deliver(peer, data)
        except UnknownPeer:  # so that the other side learns of it too
            t = 0 if self.envelope.knows(peer) and peer in self.peers else MEETING
        except Refused as error:
            if error.code is Code.KEYS and data.startswith(INTRODUCES):
                return MEETING, self._not_you(peer)
            if error.code is not Code.UNKNOWN or not 0 <= peer < self.run.n:
                raise
            t = MEETING
        return t, self.reply(peer, t)

    def reply(self, peer: int, t: int) -> bytes:
        """What this node has for a peer of a step, sealed; empty where there is nothing yet, or never is (`owes`)."""
        payload = self.farewell() if self.last_words else self._own_of(peer, t)
        return self.sealed(peer, payload, reply=True) if payload else b""

    def owes(self, peer: int, t: int) -> bool:
        """Whether this node has, or will have, something to say to a peer at a step."""
        return not 1 <= t <= self.last or t in self._when[peer]

    def _own_of(self, peer: int, t: int) -> bytes:
        if t == MEETING:
            return self.envelope.introduction
        if t == CONFERENCE:
            return CONFERS
        if t == 0:
            return self.hello(peer)
        with self._lock:
            if t > self.last and self.end is not None:
                return self.parting(peer) if self.end_kept else b""
            if t > self.last:
                return self.farewell() if self._mixed >= self.last else b""
            return self._outbox.get(t, b"") if self.owes(peer, t) else b""

    def _opened(self, peer: int, data: bytes | memoryview, reply: bool) -> int:
        kind = bytes(data[: len(REFUSES)])
        if kind == INTRODUCES:
            self._meet(peer, bytes(data))
            return MEETING
        if kind == REFUSES:
            self._was_refused(peer, bytes(data))
            return MEETING
        if kind == CONFERS and self.removal is not None:
            self.removal.take(peer, bytes(data), reply)
            return CONFERENCE
        letter = self.envelope.open(peer, MESSAGE, data, reply)
        if peer not in self.peers:
            raise Refused(Code.SENDER, f"node {peer} never speaks with node {self.me} in this run; refused")
        return self._take(peer, letter)

    def _meet(self, peer: int, data: bytes) -> None:
        try:
            self.envelope.meet(peer, data)
            self._strangers.pop(peer, None)
        except UnknownPeer as error:
            if not self.envelope.knows(peer):  # whom this run knows already is no stranger in it
                self._strangers[peer] = error
            raise

    def _not_you(self, peer: int) -> bytes:
        """The answer to keys that are not the peer's: with what was seen of it, so that an old copy can know itself."""
        with self._lock:
            return REFUSES + json.dumps(self._claim(peer)).encode()

    def _was_refused(self, peer: int, data: bytes) -> None:
        """Anybody can say this: without a proof it ends nothing but this attempt, and only while a hello is due."""
        if peer not in self.peers or 0 in self._notices[peer] or self._mixed >= self.last:
            raise Refused(Code.NOTICE, f"node {peer} says that it does not know this node, which it does; refused")
        name = self.run.nodes[peer]
        try:
            seen = json.loads(data[len(REFUSES) :])
        except (ValueError, RecursionError):
            raise Refused(Code.NOTICE, f"node '{name}' sent a notice that cannot be read; refused") from None
        with suppress(Refused):  # a folder that is lost, and not old, has another secret: it can prove nothing
            self._check_own(name, seen)
        self._strangers[peer] = UnknownPeer(
            f"node '{name}' says that it knows other keys of this node in this run: this folder is not the one that "
            "began it; restore that folder, or begin a run of another name. Nothing was sent"
        )
        self.nudge()

    def _take(self, peer: int, letter: bytes) -> int:
        """One letter: what goes with a message, and the message."""
        if len(letter) < _ABOUT.size:
            raise Refused(Code.FORMAT, f"node {peer} sent a letter without a message; refused")
        proof, length = _ABOUT.unpack_from(letter)
        start = _ABOUT.size + length
        voucher, payload = letter[_ABOUT.size : start] if length else b"", letter[start:]
        t = round_of(payload)
        if not 1 <= t <= self.last:
            self._take_notice(peer, t, payload)
        elif len(payload) == (size := size_of(self.run.shape_at(t))):
            self._take_message(peer, t, payload, proof, voucher)
        else:
            raise Refused(Code.SIZE, f"node {peer} sent {len(payload)} bytes where {size} are expected; refused")
        return t

    def _take_notice(self, peer: int, t: int, payload: bytes) -> None:
        message = read(payload)
        if t not in (0, self.last + 1):
            raise Refused(Code.ROUND, f"node {peer} sent round {t}, and the last is {self.last}; refused")
        check(message, Header(self._mark, t, peer), None, "|u1")
        value, attached = unpack_text(message)
        if t == 0:
            self._welcome(peer, value, attached)
        elif attached or not (value == "done" or isinstance(value, dict)):
            raise Refused(Code.NOTICE, f"node {peer} sent a notice that cannot be read; refused")
        elif isinstance(value, dict):
            self._take_end(peer, value)
        else:
            self._notices[peer].add(t)

    def _take_end(self, peer: int, value: dict[str, Any]) -> None:
        """A peer stopped: this node need not wait for it."""
        nodes, about = self.run.nodes, value.get("about")
        state = next((state for state in ENDS if state == value.get("end")), None)
        if state is None or not (about is None or about in nodes):
            raise Refused(Code.NOTICE, f"node {peer} sent a notice that cannot be read; refused")
        if state not in FOR_GOOD and value.get("answers") != self.question:
            raise Refused(Code.NOTICE, f"node '{nodes[peer]}' sent a notice of another start; refused")
        why = ENDS[state].format(about="its owner" if about is None else f"node '{about}'")
        ending = f"node '{nodes[peer]}' stopped: {why}"
        blamed = peer if about is None else nodes.index(about)
        if blamed in self.reasons or peer in self.reasons:
            refused = self.reasons.get(blamed, self.reasons.get(peer))
            ending += f" (the last message that was refused: {refused})"
        else:
            self.reasons[peer] = ending
        finished, back = self._mixed >= self.last, state is RunState.PAUSED and self.removal is not None
        resume = self.run.skip_after is not None
        if state in FOR_GOOD or not (finished or back):
            self._notices[peer].add(self.last + 1)
        if (
            finished
            or back
            or self._failure is not None
            or self.end is not None
            or (state is RunState.PAUSED and resume)
        ):
            return  # nothing is needed of it; or it may be back, before it is lost or while its edges are left out
        ended = state in FOR_GOOD or state is RunState.DISPUTED
        self._failure = PeerEnded(ending) if ended else PeerTimeout(ending, about or nodes[peer])
        self.end = End(RunState.PEER_ENDED, nodes[peer]) if state in FOR_GOOD else None
        self.nudge()

    def _take_message(self, peer: int, t: int, payload: bytes, proof: bytes, voucher: bytes) -> None:
        run, when, spoken = self.run, self.run.when, t in self._whence[peer]
        bound = run.bound(peer, t) if spoken else math.inf
        digest = expect(payload, Header(self._mark, t, peer), run.shape_at(t), bound, when)
        if not spoken:
            raise self._untimely(peer, f"a message for {when(t)}, in which the two do not speak")
        box, latest, got = self._inbox[peer], self._latest.get(peer, 0), self._unvouched[peer]
        other = (t == latest and self._seen[peer].message != digest.hex()) or got.get(t, digest) != digest
        if other and (t <= self._mixed or t in box):
            name = run.nodes[peer]
            raise Refused(Code.SECOND, f"node '{name}' sent a second, different message for {when(t)}; refused")
        if t <= self._mixed or t in box:
            return  # a duplicate of what was mixed or waits to be
        steps, mine = self.hears[peer], self.peers[peer]
        due = steps[bisect_right(steps, max(self._mixed, *box) if box else self._mixed)]
        if t != due:
            raise self._untimely(peer, f"{when(t)} before {when(due)}")
        before = bisect_left(mine, t)
        if before and mine[before - 1] > self._said:
            raise self._untimely(peer, f"{when(t)}, which needs this node's of {when(mine[before - 1])}")
        if voucher or t in self._signed[peer]:
            self._check_voucher(peer, t, digest, voucher)
        else:
            got[t] = self._unkept[peer][t] = digest
        box[t] = payload
        at, part = run.at(t)
        if t >= latest and not (part and at > run.T):  # a final model is nothing that an old copy could release again
            self._seen[peer], self._latest[peer] = Mark(at, digest.hex(), proof.hex(), part), t

    def _untimely(self, peer: int, what: str) -> Refused:
        return Refused(Code.ROUND, f"node '{self.run.nodes[peer]}' sent {what}; refused")

    def _check_voucher(self, peer: int, t: int, digest: bytes, voucher: bytes) -> None:
        """Every stretch is signed for, and what is signed is what came."""
        stretch, signature, hashes = self._signed[peer].get(t, ()), voucher[:SIGNATURE], voucher[SIGNATURE:]
        came, name = self._unvouched[peer], self.run.nodes[peer]
        mine = self._vouched(self.run.nodes[self.me], stretch, hashes)
        whole = len(hashes) == CHECK * len(stretch) > 0 and hashes.endswith(digest)
        if not whole or not self.envelope.verify(peer, signature, *mine):
            raise Refused(
                Code.VOUCHER,
                f"node '{name}' does not sign for what it sent up to {self.run.when(t)}; it is refused, and its message"
                " not used",
            )
        signed = {r: hashes[CHECK * i : CHECK * (i + 1)] for i, r in enumerate(stretch)}
        wrong = [r for r in stretch if came.get(r, signed[r]) != signed[r]]  # what was skipped did not come
        if wrong:
            self._failure = ConflictingMessages(
                f"node '{name}' signed other messages than it sent (of {self.run.when(wrong[0])}); this run cannot be "
                f"finished with node '{name}'"
            )
            self.end = End(RunState.CONTRADICTED, name)
            self.nudge()
            raise self._failure
        self._unvouched[peer], self._unkept[peer] = {}, {}
        self._vouchers.append((peer, t, voucher))

    def _welcome(self, peer: int, value: Any, attached: tuple[bytes, ...]) -> None:
        name = self.run.nodes[peer]
        if not isinstance(value, dict) or value.get("to") != self.run.nodes[self.me]:
            raise Refused(Code.NOTICE, f"a hello of node '{name}' is not to this node; refused")
        if len(attached) > KEPT:
            raise Refused(Code.NOTICE, f"node '{name}' attached more to its hello than can be lacked; refused")
        mine, theirs = self.run.event(peer).sigma, _number(value.get("sigma"))
        if not abs(theirs - mine) <= NOISE_TOLERANCE * mine:
            self._strangers[peer] = UnknownPeer(
                f"node '{name}' would add noise of σ = {theirs}, where the run file gives σ = {mine:.6g}; nothing was "
                "sent"
            )
            raise self._strangers[peer]
        self._strangers.pop(peer, None)
        question = value.get("asks")
        if not isinstance(question, str) or len(question) > 2 * QUESTION:
            raise Refused(Code.NOTICE, f"a hello of node '{name}' lacks a request for an answer; refused")
        self._questions[peer] = question
        try:
            self._check_own(name, value.get("seen"))
        except Unproven as error:
            self._note(peer, error)
        self._check_mixed(peer, value.get("mixed", 0))
        if value.get("answers") == self.question:
            self._notices[peer].add(0)
        else:
            self._unanswering.add(peer)
        for letter in attached:
            if not 1 <= round_of(letter[_about_size(letter) :]) <= self.last:
                raise Refused(
                    Code.NOTICE, f"node '{name}' attached to its hello what is no message of a round; refused"
                )
            try:
                self._take(peer, letter)
            except Refused as error:  # the hello counts all the same, and is answered
                if error.code not in (Code.SECOND, Code.ROUND):
                    raise
                self._note(peer, error)

    def _check_mixed(self, peer: int, mixed: Any) -> None:
        """Stop where a peer has mixed a message in this node's name that this node never made."""
        if type(mixed) is not int or not 0 <= mixed <= self.last or (mixed and mixed not in self._when[peer]):
            name = self.run.nodes[peer]
            raise Refused(Code.CLAIM, f"node '{name}' does not say what it mixed of this node; refused")
        if mixed == 0 or self._released(mixed) is not None:
            return
        name = self.run.nodes[peer]
        self._failure = Disputed(
            f"node '{name}' holds messages in this node's name that it never made (of {self.run.when(mixed)}): this "
            f"folder is old, the key was stolen, or node '{name}' lies. Starting again will not help: restore the "
            "folder as it was last, or begin a run of another name"
        )
        self.end = End(RunState.DISPUTED, name)
        self.nudge()
        raise self._failure

    def _check_own(self, name: str, seen: Any) -> None:
        """Stop for good where a peer proves that it saw a message that this node's ledger does not know."""
        if seen is None:
            return
        if not (
            isinstance(seen, list)
            and len(seen) == 3
            and type(seen[0]) is int
            and 1 <= seen[0] <= self.last
            and all(isinstance(part, str) and part.isascii() for part in seen[1:])
        ):
            raise Refused(Code.CLAIM, f"node '{name}' does not say what it saw of this node; refused")
        t, digest, proof = seen
        if self._released(t) == digest:
            return
        if proof != own_proof(self._secret, self._digest, t, digest).hex():
            raise Unproven(
                Code.CLAIM,
                f"node '{name}' claims to have seen {self.run.when(t)} of this node, which this node's ledger does not "
                "know, and cannot prove it; the claim is not used",
            )
        self._failure = StaleCopy(
            f"node '{name}' has seen {self.run.when(t)} of this node, which this node's ledger does not know: the "
            "folder is an old copy, or someone else has its key. The round would be released twice, so "
            "this node stops for good in this run"
        )
        self.end = End(RunState.OLD_COPY)
        self.nudge()
        raise self._failure

    # -- the exchange --

    def heard(self, t: int, peer: int) -> bytes | None:
        """Return the peer's message of a step if it is here; raise if this node must stop. Needs no lock."""
        if t == CONFERENCE:
            return None  # it is said anew every time
        error = self._failure or self._strangers.get(peer)
        if error is not None:
            raise error
        if t == MEETING:
            return _HERE if self.envelope.knows(peer) else None
        return self._inbox[peer].get(t) or (_HERE if t in self._notices[peer] else None)

    def wait(self, seconds: float) -> None:
        """Until something changes, at most so long."""
        with self._lock:
            self._waiting += 1
            try:
                self._changed.wait(seconds)
            finally:
                self._waiting -= 1

    def nudge(self) -> None:
        """Something changed that an exchange may wait for."""
        with self._lock:
            if self._waiting:
                self._changed.notify_all()

    def fail(self, error: SottovoceError) -> None:
        """Let every exchange of this node end with an error."""
        with self._lock:
            self._failure = error
            self.nudge()

    def mixed(self, t: int) -> None:
        """All messages up to a step are mixed and can be forgotten; at the end, once they are on the disk."""
        with self._lock:
            self._mixed = t
            if t > self._said:
                self._said = t
            for peer, box in self._inbox.items():
                if box:
                    for old in [r for r in box if r <= t]:
                        del box[old]
                        self._mixed_of[peer] = max(self._mixed_of[peer], old)

    @property
    def seen(self) -> dict[int, Mark]:
        """The latest message of every peer."""
        with self._lock:
            return dict(self._seen)

    def vouchers(self) -> list[tuple[int, int, bytes]]:
        """Return (peer, round, voucher) of all that came since the last call."""
        with self._lock:
            found, self._vouchers = self._vouchers, []
            return found

    def unvouched(self) -> list[tuple[int, int, str]]:
        """Return (peer, step, hash) of what came since the last call and is not signed for yet."""
        with self._lock:
            found = [(peer, t, digest.hex()) for peer, got in self._unkept.items() for t, digest in got.items()]
            for got in self._unkept.values():
                got.clear()
            return found

    def signed(self) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, str]]]:
        """Both at one moment: a voucher that came between them would take with it the hashes that it is for."""
        with self._lock:
            return self.vouchers(), self.unvouched()


def _stretches(steps: list[int]) -> dict[int, list[int]]:
    """The steps of one direction by the vouchers that are for them, each by its last one, with which it comes."""
    found = [steps[first : first + STRETCH] for first in range(0, len(steps), STRETCH)]
    return {stretch[-1]: stretch for stretch in found}


def _packed(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _about_size(letter: bytes) -> int:
    return _ABOUT.size + (_ABOUT.unpack_from(letter)[1] if len(letter) >= _ABOUT.size else 0)


def _number(value: Any) -> float:
    """What a peer wrote as a number; NaN for anything else, and for a whole number that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
