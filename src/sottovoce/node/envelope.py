"""A run's own keys, the introductions by which nodes learn each other's, and the envelope around all that they say.

Whatever carries the bytes (FLARE's server, MPI, a test) is trusted with nothing but to carry them. It sees who speaks
with whom, sizes and times; it can delay and drop, and everything else that it does is refused.

*Keys.* Each node has, for each run, an Ed25519 pair to sign with, an X25519 pair to agree with, and a nonce. They are
born with the run's row in the ledger and erased when the run is over: a later thief of the folder reads nothing.
An *introduction* is the public part with the run's digest and the node's name, signed by the node's identity
(`identity.py`). A node believes one introduction of each other node in a run, and never a second one. Two nodes with
the same key are refused: else one could have registered the other's. So is a shared secret of zeros.

*Secrets of a pair* are HKDF-SHA256 of the X25519 secret, with both nonces for salt; `info` says what for, and names
version, run, both nodes in order and all of their public keys. Each direction has an encryption key of its own, so that
a message cannot come back to its sender, reach another receiver, or belong to another run: it would not open. What
pairs draw noise from is another such secret (`pair_secret`).

*The envelope.*

    mark    nonce      AES-256-GCM of (a letter: what goes with a message, and the message)
    svoe    12 bytes   …, 16 bytes of tag; topic, and whether it is a reply, are authenticated with it

Run, round, sender, receiver, shape and payload are inside (`message.py`), so that nobody else reads them.

*Nonces never repeat* under a key, but for chance: they are 96 bits of BLAKE2b, keyed, of 12 fresh bytes from the
operating system and of the letter's digest. After q envelopes under one key two nonces are equal with a probability of
at most q²/2⁹⁷ (2⁻⁴¹ for 2²⁸ of them), with no state that a restart, a restored folder or a copied machine could turn
back. Should the system's bytes repeat, as in a copy of a virtual machine, then equal nonces still mean equal letters,
and so equal envelopes. A letter that is sent again is sealed again: an envelope that comes twice is a replay.

*What is signed.* Opening an envelope proves to its receiver who sealed it, at 3 µs for 16 kB, where signing and
checking a signature takes 150. So single messages are not signed: a *voucher* signs a stretch of them on a link
(`links.py`), and what a third party must believe (a promise to leave an edge out) is signed by itself.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sottovoce.errors import UnknownPeer
from sottovoce.node.identity import KEY, Identity
from sottovoce.node.message import CHECK, Code, Refused

WIRE = 1
"""Version of envelopes and introductions."""
MARK, INTRODUCES = b"svoe", b"svoi"
NONCE, TAG, SIGNATURE = 12, 16, 64
OVERHEAD = len(MARK) + NONCE + TAG
LONGEST = 1 << 14
"""Bytes of an introduction: a certificate takes some thousand."""
_HEAD = len(MARK) + NONCE
REMEMBERED = 1024
"""Envelopes of a peer that would be known again; older ones are of rounds that are over."""


def joined(*parts: bytes | str | int) -> bytes:
    """Parts with their lengths: two different lists of parts never give the same bytes.

    Examples
    --------
    >>> joined("a", "bc") == joined("ab", "c")
    False
    """
    whole = []
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        whole.append(len(data).to_bytes(8, "little") + data)
    return b"".join(whole)


class RunKeys(NamedTuple):
    """The secret part of a node's keys in one run."""

    signing: bytes
    agreement: bytes
    nonce: bytes
    """Not secret, but as old as the keys."""

    @classmethod
    def born(cls) -> "RunKeys":
        """Fresh ones."""
        return cls(os.urandom(KEY), os.urandom(KEY), os.urandom(KEY))

    @property
    def public(self) -> "PublicKeys":
        """What others may know."""
        signing = Ed25519PrivateKey.from_private_bytes(self.signing).public_key().public_bytes_raw()
        agreement = X25519PrivateKey.from_private_bytes(self.agreement).public_key().public_bytes_raw()
        return PublicKeys(signing, agreement, self.nonce)

    def __repr__(self) -> str:
        """Nothing that a log could keep."""
        return "RunKeys(…)"


class PublicKeys(NamedTuple):
    """The public part."""

    signing: bytes
    agreement: bytes
    nonce: bytes

    def to_dict(self) -> dict[str, str]:
        """In hexadecimal, as ledgers and introductions have them."""
        return {name: value.hex() for name, value in self._asdict().items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PublicKeys":
        """What `to_dict` gave; a ValueError where it is something else."""
        found = cls(*(bytes.fromhex(data[name]) for name in cls._fields))
        if any(len(value) != KEY for value in found):
            raise ValueError("keys and nonces have 32 bytes")
        return found

    def fingerprint(self, run: str, node: str) -> str:
        """128 bits that stand for a node's keys in a run, to be compared by telephone.

        Examples
        --------
        >>> PublicKeys(bytes(32), bytes(32), bytes(32)).fingerprint("ab", "north")
        '43f7 3995 14d4 5891 79fb a8cc db50 50f2'
        """
        text = sha256(joined("fingerprint", run, node, *self)).hexdigest()[:32]
        return " ".join(text[i : i + 4] for i in range(0, 32, 4))


def introduction(identity: Identity, run: str, node: str, keys: PublicKeys) -> bytes:
    """What a node says in clear before anything else: whose keys are whose, signed."""
    proof = identity.proof
    signature = identity.sign(_statement(run, node, keys))
    said = {
        "wire": WIRE,
        "run": run,
        "node": node,
        **keys.to_dict(),
        "proof": proof.hex(),
        "signature": signature.hex(),
    }
    return INTRODUCES + json.dumps(said).encode()


def _statement(run: str, node: str, keys: PublicKeys) -> bytes:
    return joined("sottovoce introduction", WIRE, run, node, *keys)


def _read(data: bytes, name: str) -> tuple[str, str, PublicKeys, bytes, bytes]:
    """(run, node, keys, signature, proof) of an introduction."""
    if len(data) > LONGEST:
        raise Refused(Code.SIZE, f"an introduction of {len(data)} bytes came from node '{name}'; refused")
    try:
        said = json.loads(data[len(INTRODUCES) :])
        if said["wire"] != WIRE:
            raise Refused(Code.VERSION, f"node '{name}' speaks another version; install the same sottovoce everywhere")
        run, node = said["run"], said["node"]
        if not (isinstance(run, str) and isinstance(node, str)):
            raise ValueError
        joined(run, node)  # half of a surrogate pair is a text, and has no bytes that could be signed
        keys = PublicKeys.from_dict(said)
        return run, node, keys, bytes.fromhex(said["signature"]), bytes.fromhex(said["proof"])
    except Refused:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(Code.FORMAT, f"an introduction of node '{name}' cannot be read; refused") from None


class _Pair:
    """What this node and another one share."""

    def __init__(self, secret: Callable[[str], bytes], out: str, back: str) -> None:
        self.seals, self.opens = AESGCM(secret(out)), AESGCM(secret(back))
        self.hedge = secret(f"nonces of {out}")
        self.nonces = blake2b(key=self.hedge, digest_size=NONCE)
        self.noise = secret("noise")
        self.recent: set[bytes] = set()
        self.order: deque[bytes] = deque()
        """Nonces of envelopes that were opened."""


class Envelope:
    """One node's keys in one run, what it knows of the others', and what it seals and opens with them.

    Parameters
    ----------
    run : the run's digest
    nodes : names of all nodes, in order
    me : this node's number
    keys : its own
    identity : what vouches for them, and judges the others'
    known : introductions that were believed before, by node
    keep : called with every newly accepted introduction, before it counts
    epoch : the digest of the epoch, after nodes were removed: what is sealed, signed and shared is of it alone

    Examples
    --------
    >>> from sottovoce.node.identity import OwnKey
    >>> names = ("north", "south")
    >>> one, other = (Envelope("ab", names, i, RunKeys.born(), OwnKey(bytes([i] * 32))) for i in (0, 1))
    >>> one.meet(1, other.introduction)
    >>> other.meet(0, one.introduction)
    >>> other.open(0, "message", one.seal(1, "message", b"what goes with it", b"and a message"))
    b'what goes with itand a message'
    >>> one.pair_secret(1) == other.pair_secret(0)
    True
    """

    def __init__(
        self,
        run: str,
        nodes: tuple[str, ...],
        me: int,
        keys: RunKeys,
        identity: Identity,
        known: Mapping[int, bytes] | None = None,
        keep: Callable[[int, bytes], None] = lambda peer, data: None,
        epoch: str = "",
    ) -> None:
        self.epoch = epoch or run
        self.run, self.nodes, self.me, self.identity, self._keep = run, nodes, me, identity, keep
        self._agreement = X25519PrivateKey.from_private_bytes(keys.agreement)
        self._signing = Ed25519PrivateKey.from_private_bytes(keys.signing)
        self.introduction = introduction(identity, run, nodes[me], keys.public)
        """What this node says first."""
        self._members = {me: keys.public}
        self._verifying: dict[int, Ed25519PublicKey] = {}
        self._pairs: dict[int, _Pair] = {}
        for peer, data in (known or {}).items():
            self._believe(peer, _read(data, nodes[peer])[2])

    # -- who the others are --

    def knows(self, peer: int) -> bool:
        """Whether a node has introduced itself."""
        return peer in self._pairs

    def meet(self, peer: int, data: bytes) -> None:
        """Take a node's introduction in: the first that is proven counts, the same again is no news."""
        if not 0 <= peer < len(self.nodes) or peer == self.me:
            raise Refused(Code.SENDER, f"there is no other node {peer} in this run; refused")
        name = self.nodes[peer]
        run, node, keys, signature, proof = _read(data, name)
        if self._members.get(peer) == keys and (run, node) == (self.run, name):
            return
        if node != name:
            raise Refused(Code.SENDER, f"an introduction of another node came in the name of node '{name}'; refused")
        self.identity.verify(name, _statement(run, node, keys), signature, proof)
        if run != self.run:
            raise UnknownPeer(
                f"node '{name}' does not take part in the same run; give all nodes the same run file and version of "
                "sottovoce"
            )
        if peer in self._members:
            raise Refused(
                Code.KEYS,
                f"node '{name}' uses other keys than at the start of the run; its folder is not the one that began it: "
                "restore that folder, or begin a run of another name",
            )
        self._believe(peer, keys, lambda: self._keep(peer, data))

    def _believe(self, peer: int, keys: PublicKeys, keep: Callable[[], None] = lambda: None) -> None:
        name = self.nodes[peer]
        for other, theirs in self._members.items():
            if any(a == b for a, b in zip(keys, theirs, strict=True)):
                raise Refused(
                    Code.KEYS,
                    f"nodes '{name}' and '{self.nodes[other]}' have the same key or nonce: one of them is not who it "
                    "says; nothing is exchanged with the later one",
                )
        pair = self._pair(peer, keys)
        keep()
        self._members[peer], self._pairs[peer] = keys, pair

    def _pair(self, peer: int, keys: PublicKeys) -> _Pair:
        weak = Refused(Code.KEYS, f"the key of node '{self.nodes[peer]}' gives a secret that everybody knows; refused")
        try:
            shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(keys.agreement))
        except ValueError:
            raise weak from None
        if not any(shared):
            raise weak
        both = sorted([(self.me, self._members[self.me]), (peer, keys)])
        salt = b"".join(theirs.nonce for _, theirs in both)
        who = [part for i, theirs in both for part in (self.nodes[i], theirs.signing, theirs.agreement)]

        def secret(purpose: str) -> bytes:
            info = joined("sottovoce pair", WIRE, self.epoch, purpose, *who)
            return HKDF(SHA256(), KEY, salt, info).derive(shared)

        return _Pair(secret, f"{self.me} to {peer}", f"{peer} to {self.me}")

    def fingerprints(self) -> dict[str, str]:
        """Of this node's keys and of all that it knows, by name."""
        return {self.nodes[i]: keys.fingerprint(self.run, self.nodes[i]) for i, keys in sorted(self._members.items())}

    def pair_secret(self, peer: int) -> bytes:
        """32 bytes that this node and another one share, and nobody else has; for noise, and never sent."""
        return self._known(peer).noise

    def _known(self, peer: int) -> _Pair:
        try:
            return self._pairs[peer]
        except KeyError:
            raise Refused(Code.UNKNOWN, f"node {peer} has not introduced itself yet; it must do so first") from None

    # -- what is said --

    def seal(self, peer: int, topic: str, about: bytes, message: bytes, reply: bool = False) -> bytes:
        """A letter for one node: what goes with a message, and the message, which ends with its own checksum."""
        pair, context = self._pairs.get(peer) or self._known(peer), _context(topic, reply)
        hedged = pair.nonces.copy()
        hedged.update(os.urandom(NONCE) + context + about + message[-CHECK:])
        nonce = hedged.digest()
        return MARK + nonce + pair.seals.encrypt(nonce, about + message, context)

    def open(self, peer: int, topic: str, sealed: bytes | memoryview, reply: bool = False) -> bytes:
        """The letter in an envelope that this very node sealed for this one, under this topic, and only once."""
        pair = self._pairs.get(peer) or self._known(peer)
        head = bytes(sealed[:_HEAD])
        if len(sealed) < OVERHEAD or not head.startswith(MARK):
            raise Refused(Code.FORMAT, "this is no envelope of sottovoce: it does not begin with its mark")
        nonce = head[len(MARK) :]
        if nonce in pair.recent:
            raise Refused(Code.REPLAY, f"an envelope of node '{self.nodes[peer]}' came a second time; refused")
        try:
            letter = pair.opens.decrypt(nonce, memoryview(sealed)[_HEAD:], _context(topic, reply))
        except InvalidTag:
            raise Refused(
                Code.SEAL,
                f"an envelope in the name of node '{self.nodes[peer]}' does not open: it was not sealed by that node "
                "for this one, in this run and for this purpose, or was changed on its way; refused",
            ) from None
        pair.recent.add(nonce)
        pair.order.append(nonce)
        if len(pair.order) > REMEMBERED:
            pair.recent.discard(pair.order.popleft())
        return letter

    # -- what a third party must believe --

    def sign(self, *statement: bytes | str | int) -> bytes:
        """A statement of this node in this run, signed."""
        return self._signing.sign(joined("sottovoce", WIRE, self.epoch, self.nodes[self.me], *statement))

    def verify(self, peer: int, signature: bytes, *statement: bytes | str | int) -> bool:
        """Whether another node signed a statement in this run."""
        if peer not in self._members:
            return False
        try:
            if peer not in self._verifying:
                self._verifying[peer] = Ed25519PublicKey.from_public_bytes(self._members[peer].signing)
            self._verifying[peer].verify(signature, joined("sottovoce", WIRE, self.epoch, self.nodes[peer], *statement))
        except (InvalidSignature, ValueError):
            return False
        return True


@cache
def _context(topic: str, reply: bool) -> bytes:
    return f"{WIRE} {topic} {'reply' if reply else 'request'}".encode()
