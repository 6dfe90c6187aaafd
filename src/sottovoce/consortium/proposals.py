"""A new agreement for kits that exist: another run, without new kits and without a restart.

A *proposal* is one file: a consortium.toml with its schema, signed by the key of the member who proposes it. Every
owner reviews what it says, what it costs and what would be left of the budget, and accepts it or does not. Accepting
puts both files, and the page that follows from them, into the kit; processes that run read them for the next job. A
job of a run that a site has not accepted is refused there, as any job for another agreement.

Members stay the same: names, organizations, server and administrator are in certificates and in FLARE's configuration.
The list of revoked certificates may change, so that a member can be shut out, too.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.bounded import read_bounded
from sottovoce.consortium.agreement import FILE, Agreement, made_agreement, read_agreement
from sottovoce.consortium.certificates import held
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.project import CERTIFICATES, certificate_files, kind_of, site_page
from sottovoce.data.schema import schema_of
from sottovoce.errors import NetworkError, SpecError
from sottovoce.node.budget import (
    HELD_OUT,
    Spending,
    budgets,
    check_affordable,
    counted_spendings,
    joint_epsilon,
    spendings,
)
from sottovoce.node.envelope import joined
from sottovoce.node.identity import Certified
from sottovoce.node.ledger import Row
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import read_site
from sottovoce.node.store import Store

FORMAT = "sottovoce proposal 1"
MAX_BYTES = 4 << 20
"""Of a proposal: a schema lists what columns may hold."""


class Proposed(NamedTuple):
    """A proposal whose signature was checked."""

    by: str
    agreement: Agreement
    text: str
    schema_text: str


class Cost(NamedTuple):
    """What a run costs one owner."""

    dataset: str
    before: float
    after: float
    """ε of everything, without the run and with it."""
    limit: float
    delta: float


def _signed(text: str, schema_file: str, schema_text: str) -> bytes:
    return joined(FORMAT.encode(), text.encode(), schema_file.encode(), schema_text.encode())


def _identity(kit: Path, agreement: Agreement) -> Certified:
    certificate, key, authority = (kit / path for path in certificate_files(kind_of(kit)))
    return Certified(certificate, key, authority, agreement.revoked)


def _members(agreement: Agreement) -> tuple[Any, ...]:
    sites = tuple((site.name, site.org) for site in agreement.sites)
    return agreement.name, agreement.host, agreement.port, agreement.admin, agreement.admin_org, sites


def _check_same_members(new: Agreement, old: Agreement) -> None:
    """Certificates and FLARE's configuration name the members, so that others need kits."""
    names = ("name", "server's host", "server's port", "administrator", "administrator's organization", "sites")
    for what, mine, its in zip(names, _members(old), _members(new), strict=True):
        if mine != its:
            raise SpecError(
                f"the proposal has another {what} ({its!r}, here {mine!r}); that needs new kits: "
                "sottovoce consortium init"
            )


def propose(file: Path, kit: Path) -> bytes:
    """A proposal of an agreement, signed by the member whose kit this is."""
    here, agreement = read_agreement(kit / "local" / FILE), read_agreement(file)
    _check_same_members(agreement, here)
    certificate, key, authority = (kit / path for path in certificate_files(kind_of(kit)))
    by = held(certificate, key, authority, here.revoked).name
    text, schema_text = file.read_text(encoding="utf-8"), (file.parent / agreement.schema_file).read_text("utf-8")
    identity = _identity(kit, here)
    signature = identity.sign(_signed(text, agreement.schema_file, schema_text))
    found = {
        "format": FORMAT,
        "by": by,
        "agreement": text,
        "schema_file": agreement.schema_file,
        "schema": schema_text,
        "certificate": identity.proof.hex(),
        "signature": signature.hex(),
    }
    return (json.dumps(found, ensure_ascii=False, indent=1) + "\n").encode()


def read_proposal(path: Path, kit: Path) -> Proposed:
    """A proposal, signed by a member of this kit's consortium; anything else is refused."""
    here = read_agreement(kit / "local" / FILE)
    names = ("by", "agreement", "schema_file", "schema", "certificate", "signature")
    try:
        data = json.loads(read_bounded(path, MAX_BYTES))
        by, text, schema_file, schema_text, proof, signature = (str(data[name]) for name in names)
        if data["format"] != FORMAT:
            raise ValueError
        signed, shown = bytes.fromhex(signature), bytes.fromhex(proof)
    except OSError as error:
        raise SpecError(f"'{path}' cannot be read ({error.strerror}); give the file of a proposal") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise SpecError(f"'{path}' is no proposal; make one with: sottovoce consortium propose FILE KIT") from None
    if by not in (here.host, here.admin, *(site.name for site in here.sites)):
        raise SpecError(f"the proposal is by '{by}', who is no member of consortium '{here.name}'; do not accept it")
    try:
        _identity(kit, here).verify(by, _signed(text, schema_file, schema_text), signed, shown)
    except NetworkError:
        raise SpecError(
            f"the proposal is not signed by '{by}', or was changed since; do not accept it, and ask '{by}' for it again"
        ) from None
    if schema_file != here.schema_file:
        raise SpecError(f"the proposal's schema is called '{schema_file}', here '{here.schema_file}'; rename it")
    try:
        agreement = made_agreement(tomllib.loads(text), schema_file, schema_of(tomllib.loads(schema_text)))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"the proposal's agreement is no TOML: {error}") from None
    _check_same_members(agreement, here)
    return Proposed(by, agreement, text, schema_text)


def name_of(kit: Path) -> str:
    """Whose kit it is."""
    agreement = read_agreement(kit / "local" / FILE)
    certificate, key, authority = (kit / path for path in certificate_files(kind_of(kit)))
    return held(certificate, key, authority, agreement.revoked).name


def costs(proposed: Proposed, kit: Path) -> list[Cost]:
    """What the run would cost the owner of a site, and an error where it is over the budget; nothing at other kits."""
    if CERTIFICATES[kind_of(kit)] != "client" or not (kit / "local" / SITE_FILE).is_file():
        return []
    site, agreement = read_site(kit / "local" / SITE_FILE), proposed.agreement
    store = Store(site.state, reading=True)
    try:
        rows = store.rows()
    finally:
        store.close()
    run, number = agreement.run, agreement.run.number(name_of(kit))
    found = [_cost(rows, site.dataset, site.dataset, run.event(number), run)]
    promised = statement(agreement)
    tested = [group.event for group in promised.held_out if number in group.nodes]
    return [*found, *(_cost(rows, site.dataset + HELD_OUT, site.dataset, event, run) for event in tested)]


def _cost(rows: Sequence[Row], dataset: str, whole: str, event: Any, run: Any) -> Cost:
    limit = budgets(rows).get(whole)
    if limit is not None and dataset not in budgets(rows):  # a share that is held out has the budget of the whole
        rows = [*rows, Row(len(rows) + 1, "budget", "", 0, "", limit.detail(dataset), b"")]
    known = [s.fingerprint for s in spendings(rows) if s.dataset == dataset]
    latest = known[-1] if known else ""
    adversary, adjacency = run.spec.privacy.adversary, run.statement.adjacency
    after = check_affordable(rows, Spending.planned(run.digest, dataset, latest, event, adversary, adjacency))
    assert limit is not None  # else it was refused
    before = joint_epsilon(counted_spendings(rows, dataset, latest, excluding=run.digest), limit.delta)
    return Cost(dataset, before, after, float("inf") if limit.epsilon is None else limit.epsilon, limit.delta)


def accept(path: Path, kit: Path) -> Proposed:
    """Put a proposal into the kit: the next job here is one of its run."""
    proposed, here = read_proposal(path, kit), read_agreement(kit / "local" / FILE)
    kind = kind_of(kit)
    if kind == "site":
        _check_not_begun(kit, here, proposed.agreement)
        costs(proposed, kit)
    for name, text in ((proposed.agreement.schema_file, proposed.schema_text), (FILE, proposed.text)):
        _write(kit / "local" / name, text)
    if kind == "site":
        _write(kit / "README.md", site_page(proposed.agreement, proposed.agreement.site(name_of(kit))))
    return proposed


def _check_not_begun(kit: Path, here: Agreement, new: Agreement) -> None:
    """A run that has begun must be finished by its own agreement."""
    if new.run.digest == here.run.digest:
        return
    store = Store(read_site(kit / "local" / SITE_FILE).state, reading=True)
    try:
        digest = here.run.digest
        begun = store.ledger.has("release", digest)
        done = store.ledger.has("close", digest) or store.ledger.has("stop", digest)
    finally:
        store.close()
    if begun and not done:
        raise SpecError(
            f"run '{here.run_name}' has begun here and is not done; let it end or abandon it (sottovoce node abandon), "
            "and accept then"
        )


def _write(path: Path, text: str) -> None:
    """All of it, or what was there."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    part.chmod(0o600)
    part.replace(path)
