"""Everything that a node takes in, mutated: by a relay that has no keys, and by a peer that has its own.

`Target` is a node without a disk. A relay changes whole envelopes, introductions and refusals; a hostile peer changes
letters before it seals them, messages with their checksums made right, and what is attached to a hello; a controller
changes orders and words. Afterwards the target is as the rules say, whatever came.
"""

import json
import threading
from hashlib import sha256

import numpy as np
from net import envelopes, linked, run_of, secret_of

from sottovoce.errors import SottovoceError, StaleCopy, UnknownPeer
from sottovoce.node.dropped_edges import CONTROLLER, Skips
from sottovoce.node.links import _ABOUT, MESSAGE, REFUSES, own_proof
from sottovoce.node.message import CHECK, Header, array_of, pack, pack_text, read, size_of
from sottovoce.node.store import Saved

RUN = run_of(rounds=30, skip_after=5.0)
ME, PEER = 0, 2
ROUNDS = RUN.neighbors(ME)[PEER][0]
KINDS = ("envelope", "letter", "message", "hello", "introduction", "refusal", "order", "junk")
OPS = ("flip", "cut", "drop", "insert", "repeat", "number", "swap")
NUMBERS = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]


def mutated(data, edits):
    """`edits` are (op, place from 0 to 1, bytes)."""
    data = bytearray(data)
    for op, place, patch in edits:
        at = int(place * len(data))
        if op == "flip" and data:
            at = min(at, len(data) - 1)
            data[at] ^= (patch[0] if patch else 0) or 1
        elif op == "cut":
            del data[at:]
        elif op == "drop":
            del data[at : at + max(1, len(patch))]
        elif op == "insert":
            data[at:at] = patch
        elif op == "repeat":
            data[at:at] = data[at : at + 64]
        elif op == "number":
            data[at : at + 8] = NUMBERS[sum(patch) % len(NUMBERS)].to_bytes(8, "little")
        elif op == "swap":
            data = data[at:] + data[:at]
    return bytes(data)


class Nothing:
    """A store that keeps nothing."""

    def keep_skip(self, *_):
        pass


class Target:
    """A node in the middle of a run."""

    def __init__(self):
        known = envelopes(RUN)
        self.peer, self.said = known[PEER], {ROUNDS[0]: "aa" * 32}
        self.links = linked(RUN, ME, known[ME], Saved(0, None, {}, {}, {}), self.said.get)
        self.skips = Skips(RUN, ME, Nothing(), {}, 0, known[ME])
        self.links.post(ROUNDS[0], pack(Header(RUN.mark, ROUNDS[0], ME), np.ones((1, 3))))
        self.threads = set(threading.enumerate())
        self.refused = self.accepted = 0

    def letter(self, t, value=1.0):
        return _ABOUT.pack(bytes(16), 0) + self.message(t, value)

    def message(self, t, value=1.0):
        return pack(Header(RUN.mark, t, PEER), np.full((1, 3), value))

    def hello(self, seen, attached):
        value = {"to": "north", "version": "1", "sigma": RUN.event(PEER).sigma, "seen": seen, "asks": "ab"}
        return pack_text(Header(RUN.mark, 0, PEER), value, attached)

    def attack(self, kind, edits, choice):
        """What comes in, and whether nothing of it may count: it was not sealed by its sender."""
        t = ROUNDS[choice % 4]
        if kind == "envelope":
            good = self.peer.seal(ME, MESSAGE, b"", self.letter(t))
            bad = mutated(good, edits)
            return bad, bad != good
        if kind == "letter":
            return self.peer.seal(ME, MESSAGE, b"", mutated(self.letter(t), edits)), False
        if kind == "message":
            value = (1.0, np.nan, 1e300, -0.0)[choice % 4]
            body = mutated(self.message(t, value)[:-CHECK], edits)
            about = _ABOUT.pack(bytes(16), 0)
            return self.peer.seal(ME, MESSAGE, about, body + sha256(body).digest()), False
        if kind == "hello":
            seen = [
                None,
                [t, "aa" * 32, ""],
                [2**70, "", ""],
                [t, own_proof(secret_of(1), RUN.digest, t, "").hex(), ""],
            ]
            body = mutated(self.hello(seen[choice % 4], (self.letter(t),))[:-CHECK], edits)
            return self.peer.seal(ME, MESSAGE, _ABOUT.pack(bytes(16), 0), body + sha256(body).digest()), False
        if kind == "introduction":
            return mutated(self.peer.introduction, edits), False
        if kind == "refusal":
            return REFUSES + mutated(json.dumps([t, "aa" * 32, "bb" * 16]).encode(), edits), False
        return mutated(bytes(range(48)), edits), True

    def order(self, edits, choice):
        word = [None, {"word": "promised", "late": True, "signature": "00" * 64}][choice % 2]
        value = {"peer": PEER, "phase": ("ask", "tell")[choice % 2], "word": word}
        body = mutated(pack_text(Header(RUN.mark, ROUNDS[choice % 4], CONTROLLER), value)[:-CHECK], edits)
        return body + sha256(body).digest()

    def endure(self, kind, edits, choice):
        """One attack; an AssertionError, or any error that is not ours, where the rules do not hold afterwards."""
        before = self.state()
        try:
            if kind == "order":
                answer, void = self.skips.answer(self.order(edits, choice)), False
            else:
                data, void = self.attack(kind, edits, choice)
                answer = self.links.answer(PEER, data)
            assert len(answer) <= self.links.limit
            self.accepted += 1
        except StaleCopy:
            raise AssertionError("a node stopped for good on a claim that nobody could prove") from None
        except SottovoceError:
            self.refused += 1
            void = void if kind != "order" else False
        assert not void or self.state() == before, "what was not sealed by its sender changed something"
        self.check()

    def state(self):
        links = self.links
        return {t: p for t, p in links._inbox[PEER].items()}, dict(links._seen), dict(links._strangers)

    def check(self):
        links = self.links
        held = {t: p for t, p in links._inbox[PEER].items() if 1 <= t <= RUN.T}
        assert set(held) <= set(ROUNDS[:2]) and sum(map(len, held.values())) <= 2 * size_of(RUN.shape)
        for t, payload in held.items():
            message = read(payload)
            assert message.header == Header(RUN.mark, t, PEER) and message.array.shape == RUN.shape
            assert np.linalg.norm(array_of(payload)) <= RUN.bounds[t - 1]
        assert all(j == PEER or not box for j, box in links._inbox.items())
        assert len(links.refused) <= 100 and len(links.reasons) <= RUN.n
        assert len(links.envelope._pairs[PEER].recent) <= 1024
        assert not any(self.skips.skipped(t, PEER) for t in ROUNDS)
        assert set(threading.enumerate()) <= self.threads
        try:  # and the node goes on, or is informed that the peer is a stranger
            links.heard(ROUNDS[0], PEER)
        except UnknownPeer:
            links._strangers.clear()
