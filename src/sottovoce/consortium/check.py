"""`sottovoce node check`: everything that can be wrong at a site, found before it joins. No record leaves it.

And starting a kit: the command that FLARE's own start script would run, with this Python; for trying things out,
several kits at once on this machine.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

from sottovoce import limits
from sottovoce.consortium import certificates, flare_hardening
from sottovoce.consortium.agreement import FILE, Agreement, read_agreement
from sottovoce.consortium.certificates import Held, held
from sottovoce.consortium.evaluation import Examiner
from sottovoce.consortium.flare import VERSION, flare, installed
from sottovoce.consortium.node import own_records
from sottovoce.consortium.project import (
    RESOURCES,
    STARTUP,
    as_if_here,
    certificate_files,
    expected_files,
    kind_of,
    site_page,
)
from sottovoce.consortium.submit import BEAT, wait_for
from sottovoce.data.policy import Note, ReadPolicy
from sottovoce.errors import Interrupted, NetworkError, SottovoceError, SpecError
from sottovoce.node.node import DurableNode
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import Site, read_site
from sottovoce.node.store import Store
from sottovoce.planner.uneven import hindrances

CONNECTION = "connection"
GREETING = 5.0  # seconds that a server may take to answer
MAX_ROUND_TRIPS = 1000


def round_trips(address: str, count: int) -> list[float]:
    """Seconds from the request for a connection to its answer, so many times: a round trip each."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise SpecError(f"give HOST:PORT, as gossip.example.org:8002, not '{address}'")
    limits.check_count("--count", count, MAX_ROUND_TRIPS)
    found = []
    for _ in range(count):
        began = time.perf_counter()
        try:
            with socket.create_connection((host, int(port)), timeout=GREETING):
                found.append(time.perf_counter() - began)
        except (OSError, UnicodeError) as error:
            raise NetworkError(
                f"nobody answers at {address} ({error}); start the server, or check the address"
            ) from None
    return found


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    good: bool
    detail: str
    notice: str = ""
    """What is good now and will not stay so."""


def check_kit(kit: Path, note: Note | None = None) -> list[Finding]:
    """Run all checks; skip those that depend on a failed one. `note` is called about unusable records."""
    findings: list[Finding] = []

    def run_check(what: str, at: Callable[[], tuple[Any, ...]]) -> Any:
        try:
            value, *said = at()
        except SottovoceError as error:
            findings.append(Finding(what, False, str(error)))
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            findings.append(Finding(what, False, f"{type(error).__name__}: {error}"))
            return None
        findings.append(Finding(what, True, *said))
        return value

    run_check("FLARE", _flare)
    agreement: Agreement | None = run_check("agreement", lambda: _agreement(kit))
    if agreement is None:
        return findings
    mine: Held | None = run_check("certificate", lambda: _certificate(kit, agreement))
    if mine is None:
        return findings
    name = mine.name
    run_check("kit", lambda: _kit(kit, agreement, name))
    run_check(CONNECTION, lambda: _connection(kit, agreement))
    site: Site | None = run_check("site.toml", lambda: _site(kit))
    if site is None:
        return findings
    store: Store | None = run_check("state", lambda: _state(site))
    if store is None:
        return findings
    try:
        own: tuple[DurableNode, Examiner | None] | None
        own = run_check("records and budget", lambda: _records(agreement, name, site, store, note))
        if own is not None:
            run_check("run", lambda: _run(kit, agreement, name))
            run_check("keys", lambda: (None, own[0].envelope.fingerprints()[name]))
    finally:
        store.close()
    return findings


def _flare() -> tuple[str, str]:
    flare("apis")
    return VERSION, f"nvflare {installed()}"


def _agreement(kit: Path) -> tuple[Agreement, str]:
    agreement = read_agreement(kit / "local" / FILE)
    sites = ", ".join(site.name for site in agreement.sites)
    return (
        agreement,
        f"{agreement.name}: {sites}; {agreement.schema.m} features, rows within {agreement.schema.row_norm:g}",
    )


def member(kit: Path, agreement: Agreement) -> Held:
    """Return the member whose kit this is, by a valid certificate of a name in the agreement."""
    kind = kind_of(kit)
    certificate, key, authority = (kit / path for path in certificate_files(kind))
    found = held(certificate, key, authority, agreement.revoked)
    named = {"server": {agreement.host}, "admin": {agreement.admin}, "site": {site.name for site in agreement.sites}}
    if found.name not in named[kind]:
        raise SpecError(
            f"the certificate is of '{found.name}', and the agreement has no such {kind}; ask for a new kit"
        )
    return found


def _certificate(kit: Path, agreement: Agreement) -> tuple[Held, str, str]:
    if kind_of(kit) != "site":
        raise SpecError(f"'{kit}' is not the kit of a site")
    found = member(kit, agreement)
    now = certificates.clock()
    detail = f"{found.name}, valid to {found.end:%Y-%m-%d}; clock {now:%Y-%m-%d %H:%M} UTC"
    return found, detail, found.announced(now)


def _kit(kit: Path, agreement: Agreement, name: str) -> tuple[None, str]:
    check_kit_name(kit, agreement, name)
    return None, f"startup and local are what provisioning writes; mutual TLS to {agreement.host}:{agreement.port}"


def check_kit_name(kit: Path, agreement: Agreement, name: str) -> None:
    """Refuse a kit with a byte in startup/ or local/ that does not follow from the agreement and is not the site's own.

    A component, a configuration of logging or a module in a kit would run here. Not compared are
    the agreement and its schema (the digest stands for them, and others have it too), certificate, key and authority
    (`certificates.held`), and site.toml.
    """
    kind = kind_of(kit)
    expected = expected_files(agreement, name, kit)
    own = {f"local/{FILE}", f"local/{agreement.schema_file}", *certificate_files(kind)}
    own |= {f"local/{SITE_FILE}"} if kind == "site" else set()
    found: dict[str, Path] = {}
    for folder in ("startup", "local"):
        for path in sorted((kit / folder).rglob("*")):
            where = path.relative_to(kit).as_posix()
            if path.is_symlink() or not path.is_file():
                raise SpecError(f"'{where}' is a link or a folder, which no kit has; remove it, or ask for a new kit")
            found[where] = path
    odd = sorted(set(found) - set(expected) - own)
    if odd:
        raise SpecError(f"'{odd[0]}' is in no kit; ask the person who made this one why it is there, and remove it")
    missing = sorted((set(expected) | own) - set(found))
    if missing:
        raise SpecError(f"'{missing[0]}' is missing; ask for a new kit")
    for where, content in expected.items():
        here = found[where].read_bytes()
        if (as_if_here(here, kit) if kind == "server" and where == RESOURCES else here) != content:
            raise SpecError(
                f"'{where}' is not, to the byte, what provisioning writes for this agreement, and could make this site "
                "do anything; ask the person who made the kit why, and for a new one"
            )


def _connection(kit: Path, agreement: Agreement) -> tuple[None, str, str]:
    """Greet the server with this site's certificate, as FLARE will; that nobody is there yet is said, and no fault."""
    certificate, key, authority = (kit / path for path in certificate_files(kind_of(kit)))
    trusted = ssl.create_default_context(cafile=str(authority))
    trusted.load_cert_chain(certificate, key)
    trusted.set_alpn_protocols(["h2"])
    where = f"{agreement.host}:{agreement.port}"
    try:
        plain = socket.create_connection((agreement.host, agreement.port), timeout=GREETING)
    except OSError as error:
        return None, f"no server at {where} ({error.strerror or error})", "start the server, or wait until it is"
    try:
        with plain, trusted.wrap_socket(plain, server_hostname=agreement.host) as greeted:
            greeted.settimeout(1.0)
            with suppress(TimeoutError):
                greeted.recv(1)  # in TLS 1.3 a certificate is refused after the greeting
    except (ssl.SSLError, OSError) as error:
        raise SpecError(
            f"the server at {where} does not accept this site's certificate, or is not the consortium's server "
            f"({getattr(error, 'reason', None) or error.strerror or type(error).__name__}); ask the person who runs it"
        ) from None
    return None, f"the server at {where} knows this site's certificate", ""


def _site(kit: Path) -> tuple[Site, str]:
    site = read_site(kit / "local" / SITE_FILE)
    return site, f"data set '{site.dataset}' from {'a query' if site.file is None else site.file}"


def _state(site: Site) -> tuple[Store, str]:
    return Store(site.state), str(site.state)


def _records(
    agreement: Agreement, name: str, site: Site, store: Store, note: Note | None
) -> tuple[tuple[DurableNode, Examiner | None], str]:
    node, examiner = own_records(agreement, name, site, store, policy=ReadPolicy.of(guarantee=True, note=note))
    promised, trained = agreement.site(name).records, agreement.run.sizes[node.number]
    what = "records" if agreement.schema.unit is None else "people, their records"
    return (node, examiner), f"{promised} {what} within bounds: {trained} to train on, {promised - trained} held out"


def _run(kit: Path, agreement: Agreement, name: str) -> tuple[None, str, str]:
    """The digest, which is also on the page that the kit was made with; other sites compare it."""
    run, page = agreement.run, kit / "README.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != site_page(agreement, agreement.site(name)):
        raise SpecError(
            f"local/{FILE} or its schema is not what this kit was made with: its digest is {run.digest} now; agree "
            "with the other sites, and ask for a new kit"
        )
    event = run.event(run.number(name))
    uneven = " ".join(found.words(run.nodes, run.sizes) for found in hindrances(run.plan))
    return None, f"{event.rounds} messages with σ = {event.sigma:.4g}; digest {run.digest}", uneven


START_TIMEOUT = 180.0  # seconds that a server on this machine may take to start


def command(kit: Path) -> list[str]:
    """What runs the server or the site that a kit is for; it stays in the foreground. The kit names no command."""
    flare("apis")
    kind = kind_of(kit)
    if kind == "admin":
        raise SpecError(f"'{kit}' is no kit of a server or a site, but an administrator's: submit with it")
    agreement = read_agreement(kit / "local" / FILE)
    settings = ["secure_train=true", "config_folder=config"]
    name = member(kit, agreement).name
    if kind == "server":
        settings.append(f"org={agreement.admin_org}")
    else:
        settings += [f"uid={name}", f"org={agreement.site(name).org}", f"heart_beat_interval={BEAT}"]
    check_kit_name(kit, agreement, name)
    (kit / "transfer").mkdir(exist_ok=True)
    return flare_hardening.line(kind, "-m", str(kit.resolve()), "-s", STARTUP[kind], "--set", *settings)


def server_of(kit: Path) -> tuple[str, int] | None:
    """Where the server of a site's kit listens; None for other kits."""
    path = kit / "startup" / "fed_client.json"
    if not path.exists():
        return None
    host, _, port = str(json.loads(path.read_text())["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


ENDING = 10.0  # seconds that processes may take to end on their own


def foreground(line: list[str], environment: Mapping[str, str], pipe: int, lock: int | None = None) -> int:
    """Run a server or a site until it ends or is stopped; leave no process behind. Return its exit code."""
    kept = (pipe,) if lock is None else (pipe, lock)
    with subprocess.Popen(line, env=environment, pass_fds=kept, start_new_session=True) as process:
        os.close(pipe)
        try:
            return process.wait()
        except KeyboardInterrupt:
            end(process)
            raise Interrupted("stopped; all that was done is kept: started again, it takes up where it was") from None


def end(process: "subprocess.Popen[bytes]", patience: float = ENDING) -> None:
    """End a server or a site, its jobs and all: kindly first, then at once."""
    psutil = import_module("psutil")  # comes with FLARE
    left: list[Any] = []
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        left = [*parent.children(recursive=True), parent]  # a job has a session of its own
    for number in (signal.SIGTERM, signal.SIGKILL):
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)
        _, left = psutil.wait_procs(left, patience)
    process.wait()


class Trial:
    """Kits that run as processes of this machine, for trying things out; use it in a `with` block.

    Parameters
    ----------
    kits : folders by name
    logs : a folder for what they print
    """

    def __init__(self, kits: Mapping[str, Path], logs: Path) -> None:
        self.kits, self.logs = dict(kits), logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, *names: str, environment: Mapping[str, str] | None = None, line: list[str] | None = None) -> None:
        """Start some of them, with more in their environment, or by another command; sites once their server listens.

        A site of FLARE gives up after some seconds without a server, which a busy machine may need to start one.
        """
        settings = {**os.environ, **(environment or {})}
        for name in names:
            server = server_of(self.kits[name])
            if server is not None:
                wait_for(*server, time.monotonic() + START_TIMEOUT)
            kit = self.kits[name]
            sealed, pipe = flare_hardening.sealed_environment(kit, settings)
            with open(self.logs / f"{name}.log", "ab") as log:
                self._running[name] = subprocess.Popen(
                    command(kit) if line is None else line, stdout=log, stderr=log, env=sealed, pass_fds=(pipe,)
                )
            os.close(pipe)

    def kill(self, name: str) -> None:
        """End a server or a site at once, its job and all (SIGKILL): what a power cut does."""
        self._signal(name, signal.SIGKILL)
        self._running.pop(name).wait()

    def _signal(self, name: str, number: int) -> None:
        psutil = import_module("psutil")  # comes with FLARE
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._running[name].pid)
            for process in [*parent.children(recursive=True), parent]:  # a job has a session of its own
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._running:
            self._signal(name, signal.SIGTERM)
        for process in self._running.values():
            end(process, 5.0)
        self._running.clear()
