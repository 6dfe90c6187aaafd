"""A node's identity beyond one run: what signs its introduction, and how others verify that signature.

A node's keys live for one run (`envelope.py`). That they are the keys of the node whose name they carry is said by its
*identity*, which lives longer. There are three ways to know one:

`OwnKey` with keys in the run file: every node has an Ed25519 key, derived from the secret of its folder, and the run
file names the public ones (``[keys]``). Anyone who agreed to the run file agreed to them.
`OwnKey` without: trust on first use. The first sender in a node's name is trusted for the whole run, and no one else
afterwards; comparing fingerprints by telephone shows who was first. It is for one trust domain, as under MPI.
`Certified`: the certificate of the site, signed by the consortium's authority (FLARE). Anyone who holds the authority's
key can pose as anybody who did not compare fingerprints.

An identity signs introductions, and nothing else.
"""

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from sottovoce.errors import SpecError
from sottovoce.node.message import Code, Refused

KEY = 32
"""Bytes of a public key."""


class Identity(Protocol):
    """What vouches for a node's keys, and judges those of others."""

    @property
    def assumption(self) -> str:
        """On what a reader of messages relies to know whose keys are whose, in a clause."""

    @property
    def proof(self) -> bytes:
        """What travels with this node's signature: a public key, or a certificate."""

    def sign(self, statement: bytes) -> bytes:
        """Sign as this node."""

    def verify(self, name: str, statement: bytes, signature: bytes, proof: bytes) -> None:
        """Refuse what a node of this name did not sign."""


def unproven(name: str, why: str) -> Refused:
    """Of keys that are not shown to be a node's own."""
    return Refused(Code.IDENTITY, f"the keys that came in the name of node '{name}' are not proven to be its: {why}")


class OwnKey:
    """An Ed25519 key of a node's folder.

    Parameters
    ----------
    seed : 32 secret bytes, of which the key is made
    listed : the public keys of all nodes, in hexadecimal, where they are agreed on; None to trust on first use

    Examples
    --------
    >>> north, south = OwnKey(bytes(32)), OwnKey(bytes([1] * 32))
    >>> listed = OwnKey(bytes(32), {"south": south.public})
    >>> listed.verify("south", b"keys", south.sign(b"keys"), south.proof)
    >>> listed.verify("south", b"keys", north.sign(b"keys"), north.proof)
    Traceback (most recent call last):
    ...
    sottovoce.node.message.Refused: the keys that came in the name of node 'south' are not proven to be its: ...
    """

    def __init__(self, seed: bytes, listed: Mapping[str, str] | None = None) -> None:
        self._key, self._listed = Ed25519PrivateKey.from_private_bytes(seed), listed

    @property
    def assumption(self) -> str:
        """Listed, or first seen."""
        if self._listed is None:
            return "whoever spoke first in a node's name was that node (keys are trusted on first use)"
        return "the keys in the run file are the nodes' own"

    @property
    def proof(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes_raw()

    @property
    def public(self) -> str:
        """The public key, as a run file names it."""
        return self.proof.hex()

    def sign(self, statement: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(statement)

    def verify(self, name: str, statement: bytes, signature: bytes, proof: bytes) -> None:
        """By the listed key, or by the one that comes along."""
        if len(proof) != KEY:
            raise unproven(name, "an identity key has 32 bytes")
        if self._listed is not None and self._listed.get(name) != proof.hex():
            raise unproven(name, "the run file names another key; compare the run files, or the nodes' folders")
        try:
            Ed25519PublicKey.from_public_bytes(proof).verify(signature, statement)
        except (InvalidSignature, ValueError):
            raise unproven(name, "the signature is wrong") from None


class Certified:
    """A certificate, its private key, and the authority that everybody's certificates come from.

    Parameters
    ----------
    certificate, key, authority : PEM files
    revoked : serial numbers that do not count any more
    """

    assumption = "the consortium's authority gave certificates to the right sites, or fingerprints were compared"

    def __init__(self, certificate: Path, key: Path, authority: Path, revoked: Container[int] = ()) -> None:
        try:
            mine = x509.load_pem_x509_certificate(certificate.read_bytes())
            self._authority = x509.load_pem_x509_certificate(authority.read_bytes())
            self._key: Any = load_pem_private_key(key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise SpecError(
                f"the certificate or key in '{certificate.parent}' cannot be read ({type(error).__name__}); ask for a "
                "new kit"
            ) from None
        self._revoked = revoked
        self.proof = mine.public_bytes(Encoding.DER)

    def sign(self, statement: bytes) -> bytes:
        """By the certificate's key, whatever its kind."""
        return bytes(self._key.sign(statement, *_scheme(self._key)))

    def verify(self, name: str, statement: bytes, signature: bytes, proof: bytes) -> None:
        """The chain, the name, the dates, then the signature."""
        try:
            theirs = x509.load_der_x509_certificate(proof)
            self._check_name(theirs, name)
            key: Any = theirs.public_key()
            key.verify(signature, statement, *_scheme(key))
        except InvalidSignature:
            raise unproven(name, "the certificate or its signature is wrong") from None
        except (ValueError, TypeError, IndexError, UnsupportedAlgorithm) as error:
            if isinstance(error, Refused):
                raise
            raise unproven(name, "the certificate cannot be read") from None

    def _check_name(self, theirs: x509.Certificate, name: str) -> None:
        theirs.verify_directly_issued_by(self._authority)
        names = [str(part.value) for part in theirs.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names != [name]:
            raise unproven(name, "the certificate is another site's")
        if not theirs.not_valid_before_utc <= datetime.now(UTC) <= theirs.not_valid_after_utc:
            raise unproven(name, "the certificate is not valid by this machine's clock")
        if theirs.serial_number in self._revoked:
            raise unproven(name, "the certificate was revoked")


def _scheme(key: Any) -> tuple[Any, ...]:
    """How a key of this kind signs: RSA by PSS, elliptic curves by ECDSA, Ed25519 by itself."""
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        length = padding.PSS.DIGEST_LENGTH
        return padding.PSS(padding.MGF1(hashes.SHA256()), length), hashes.SHA256()
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    return ()
