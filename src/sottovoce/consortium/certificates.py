"""Identify members by certificates: check, renew and revoke them.

The consortium's authority signs a certificate for every member. They end after 360 days; from 30 days before that every
check says so. `renew` makes a new key and certificate for a member, by the same authority, between runs or during
one. `revoke` writes the serial number of a certificate into the agreement: the run's digest covers the list, so that
either every node refuses anyone who comes with that certificate, or the nodes do not run with each other at all.

FLARE keeps authority and certificates in one file, `state/cert.json`, where the kits were made.

A member may make its key by itself (`new_request`) and send a request for a certificate, which is public. The authority
puts the member's own public key into the certificate that FLARE made for it (`certify`); the key that FLARE made is in
no kit then, and never the member's.
"""

import json
import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.errors import SpecError

SOON = timedelta(days=30)
KEPT = "cert.json"
KEY_BITS = 2048
"""Of a member's RSA key, at the least: what FLARE makes."""
_REVOKED = re.compile(r"^revoked\s*=\s*\[[^\]]*\]\n?", re.MULTILINE)


class Held(NamedTuple):
    """A member's certificate, found to be right."""

    name: str
    serial: int
    begin: datetime
    end: datetime
    """Its own, or the authority's, whichever is sooner."""

    def announced(self, now: datetime) -> str:
        """A sentence where it ends soon, else nothing."""
        if self.end - now >= SOON:
            return ""
        days = (self.end - now).days
        return (
            f"the certificate of '{self.name}' ends on {self.end:%Y-%m-%d}, in {days} days; ask the maker of the "
            "kits to run `sottovoce consortium renew`"
        )


def clock() -> datetime:
    """Now, by this machine."""
    return datetime.now(UTC)


def held(certificate: Path, key: Path, authority: Path, revoked: tuple[int, ...] = ()) -> Held:
    """A certificate that the authority signed, whose key is here and whose time is now; anything else is refused."""
    from cryptography import x509  # comes with FLARE
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now = clock()
    try:
        mine = x509.load_pem_x509_certificate(certificate.read_bytes())
        root = x509.load_pem_x509_certificate(authority.read_bytes())
        secret = load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise SpecError(f"a certificate or key cannot be read ({type(error).__name__}); ask for a new kit") from None
    try:
        mine.verify_directly_issued_by(root)
        root.verify_directly_issued_by(root)
        if not root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise ValueError("it is no authority")
    except Exception as error:  # of several kinds, by what is wrong
        raise SpecError(
            f"the certificate is not signed by the consortium's authority ({error}); ask for a new kit"
        ) from None
    if secret.public_key() != mine.public_key():
        raise SpecError("the key is not that of the certificate; ask for a new kit")
    name = _name(mine)
    begin = max(mine.not_valid_before_utc, root.not_valid_before_utc)
    end = min(mine.not_valid_after_utc, root.not_valid_after_utc)
    if not begin <= now <= end:
        raise SpecError(
            f"by this machine's clock it is {now:%Y-%m-%d %H:%M} UTC, and the certificate is valid from "
            f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}; set the clock, or ask for a renewed one"
        )
    if mine.serial_number in revoked:
        raise SpecError("this certificate was revoked, and no node believes it any more; ask for a new kit")
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        raise SpecError(f"{key} can be read by others than its owner; run: chmod 600 {key}")
    return Held(name, mine.serial_number, begin, end)


def _name(certificate: Any) -> str:
    from cryptography import x509

    return str(certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)[0].value)


def name_in(certificate: Path) -> str:
    """Return the member whom a certificate names; whether it is valid is checked when a kit is started (`held`)."""
    from cryptography import x509

    return _name(x509.load_pem_x509_certificate(certificate.read_bytes()))


def valid_until(certificate: Path, authority: Path) -> datetime:
    """Return when a certificate or its authority ends, whichever is sooner."""
    from cryptography import x509

    both = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (certificate, authority))
    return min(each.not_valid_after_utc for each in both)


def serial_in(pem: bytes) -> int:
    """Return the serial number of a certificate."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).serial_number


# -- a member's own key --


def new_request(name: str, key: Path) -> bytes:
    """A new key, in a file that only its owner may read, and a request for a certificate of it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    made = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    try:
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made.private_bytes(*form))
    except OSError as error:
        raise SpecError(f"no key can be written to '{key}' ({error.strerror}); give another folder") from None
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(made, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def own_key_in(kit: Path, certificate: str, key: str, source: Path) -> None:
    """Put a member's key into its kit, where the kit's certificate is of that key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        secret = source.read_bytes()
        fits = (
            load_pem_private_key(secret, None).public_key()
            == x509.load_pem_x509_certificate((kit / certificate).read_bytes()).public_key()
        )
    except (OSError, ValueError, TypeError) as error:
        raise SpecError(f"the key '{source}' or the kit's certificate cannot be read ({error})") from None
    if not fits:
        raise SpecError(f"'{source}' is not the key of this kit's certificate; give the one that was requested with")
    _write_privately(kit / key, secret.decode("ascii"))


# -- for the maker of the kits --


def certify(state: Path, name: str, request: bytes) -> None:
    """Put the public key of a request into a member's certificate; one that has it already stays as it is."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    kept = _kept(state)
    try:
        read = x509.load_pem_x509_csr(request)
        names = [str(part.value) for part in read.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)]
        key: Any = read.public_key()
        good = read.is_signature_valid and isinstance(key, rsa.RSAPublicKey) and key.key_size >= KEY_BITS
    except (ValueError, TypeError) as error:
        raise SpecError(f"the certificate request of '{name}' cannot be read ({error}); ask for it again") from None
    if names != [name] or not good:
        raise SpecError(
            f"the certificate request for '{name}' is of {names}, or not signed by an RSA key of {KEY_BITS} bits or "
            "more; ask for it again: sottovoce consortium request"
        )
    there = x509.load_pem_x509_certificate(str(kept[name]["cert"]).encode())
    if there.public_key() == key:
        return
    root = x509.load_pem_x509_certificate(str(kept["root_cert"]).encode())
    secret: Any = load_pem_private_key(str(kept["root_pri_key"]).encode(), None)
    builder = x509.CertificateBuilder(
        root.subject, there.subject, key, x509.random_serial_number(), there.not_valid_before_utc,
        there.not_valid_after_utc,
    )  # fmt: skip
    for extension in there.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    made = builder.sign(secret, hashes.SHA256())
    kept[name]["cert"] = made.public_bytes(Encoding.PEM).decode()
    _write_privately(state / KEPT, json.dumps(kept))


def certificate_of(state: Path, name: str) -> tuple[bytes, bool]:
    """A member's certificate, and whether its key is the member's own, which is not here."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    kept = _kept(state)[name]
    pem, key = str(kept["cert"]).encode(), load_pem_private_key(str(kept["pri_key"]).encode(), None)
    return pem, x509.load_pem_x509_certificate(pem).public_key() != key.public_key()


def authority_days(state: Path) -> int:
    """For how long the authority is valid: as an existing one is, else ten years."""
    from cryptography import x509

    if not (state / KEPT).exists():
        return 3650
    root = x509.load_pem_x509_certificate(str(_kept(state)["root_cert"]).encode())
    return (root.not_valid_after_utc - root.not_valid_before_utc).days


def forget(state: Path, name: str) -> int | None:
    """Drop a member's certificate, so that the next kits have a new one; its serial number, if there was one."""
    from cryptography import x509

    kept = _kept(state)
    member = kept.pop(name, None)
    if not isinstance(member, dict):
        return None
    _write_privately(state / KEPT, json.dumps(kept))
    return x509.load_pem_x509_certificate(str(member["cert"]).encode()).serial_number


def _kept(state: Path) -> dict[str, Any]:
    try:
        kept = json.loads((state / KEPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SpecError(
            f"'{state}' does not hold the authority's certificates; give with --out the folder of all kits"
        ) from None
    return dict(kept)


def _write_privately(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def write_revoked(agreement: Path, serials: tuple[int, ...]) -> None:
    """The list of what does not count any more, in consortium.toml, before its first table."""
    text = agreement.read_text(encoding="utf-8")
    entry = "revoked = [" + ", ".join(f'"{serial:x}"' for serial in serials) + "]\n"
    agreement.write_text(entry + _REVOKED.sub("", text, count=1), encoding="utf-8")
