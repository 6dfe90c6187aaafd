"""`sottovoce node check`: everything that can be wrong at a site, found before it joins. Nothing is sent anywhere.

And starting a kit: the command that FLARE's own start script would run, with this Python; for trying things out,
several kits at once on this machine.
"""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

from sottovoce.consortium.agreement import FILE, Agreement, read_agreement
from sottovoce.consortium.evaluation import Examiner
from sottovoce.consortium.flare import VERSION, flare, installed
from sottovoce.consortium.job import ALLOWED
from sottovoce.consortium.node import own_records
from sottovoce.consortium.process import line as process_line
from sottovoce.consortium.process import sealed_environment
from sottovoce.consortium.project import FORBIDDEN, keep_inside
from sottovoce.consortium.submit import wait_for
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.node import DurableNode
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import Site, read_site
from sottovoce.node.store import Store


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    good: bool
    detail: str


def check_kit(kit: Path) -> list[Finding]:
    """Look at everything; what rests on something that is wrong is left out."""
    findings: list[Finding] = []

    def look(what: str, at: Callable[[], tuple[Any, str]]) -> Any:
        try:
            value, detail = at()
        except SottovoceError as error:
            findings.append(Finding(what, False, str(error)))
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            findings.append(Finding(what, False, f"{type(error).__name__}: {error}"))
            return None
        findings.append(Finding(what, True, detail))
        return value

    look("FLARE", _flare)
    agreement: Agreement | None = look("agreement", lambda: _agreement(kit))
    name: str | None = look("certificate", lambda: _certificate(kit))
    look("connection", lambda: _connection(kit))
    look("allow-list", lambda: _allow_list(kit))
    look("permissions", lambda: _permissions(kit))
    if agreement is None or name is None:
        return findings
    site: Site | None = look("site.toml", lambda: _site(kit))
    if site is None:
        return findings
    store: Store | None = look("state", lambda: _state(site))
    if store is None:
        return findings
    try:
        own: tuple[DurableNode, Examiner | None] | None
        own = look("records and budget", lambda: _records(agreement, name, site, store))
        if own is not None:
            look("run", lambda: _run(kit, agreement, name))
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


def _certificate(kit: Path) -> tuple[str, str]:
    """The site's name, from a certificate that the consortium's authority signed and that this clock finds valid."""
    from cryptography import x509  # comes with FLARE

    startup = kit / "startup"
    mine = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
    try:
        mine.verify_directly_issued_by(authority)
    except Exception as error:  # of several kinds, by what is wrong
        raise SpecError(
            f"the certificate is not signed by the consortium's authority ({error}); ask for a new kit"
        ) from None
    now = datetime.now(UTC)
    begin, end = mine.not_valid_before_utc, mine.not_valid_after_utc
    if not begin <= now <= end:
        raise SpecError(
            f"by this machine's clock it is {now:%Y-%m-%d %H:%M} UTC, and the certificate is valid from "
            f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}; set the clock, or ask for a new kit"
        )
    if stat.S_IMODE((startup / "client.key").stat().st_mode) & 0o077:
        raise SpecError("startup/client.key can be read by others than its owner; run: chmod 600 startup/client.key")
    name = str(mine.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)[0].value)
    return name, f"{name}, valid to {end:%Y-%m-%d}; clock {now:%Y-%m-%d %H:%M} UTC"


def _connection(kit: Path) -> tuple[None, str]:
    settings = json.loads((kit / "startup" / "fed_client.json").read_text())
    security = settings["client"]["connection_security"]
    if security != "mtls":
        raise SpecError(f"connections are '{security}', and only mutual TLS is used; ask for a new kit")
    return None, f"mutual TLS to {settings['servers'][0]['service']['target']}"


def _allow_list(kit: Path) -> tuple[None, str]:
    """Only our class, enforced, and no log that leaves the site."""
    resources = json.loads((kit / "local" / "resources.json").read_text())
    if (
        resources.get("class_allow_list") != ALLOWED["site"]
        or resources.get("class_list_enforcement_mode") != "enforce"
    ):
        raise SpecError(f"local/resources.json must allow {ALLOWED['site'][0]} and nothing else, and enforce it")
    streams = [c["id"] for c in resources["components"] if "log" in c["id"]]
    if resources.get("allow_log_streaming") is not False or streams:
        raise SpecError("local/resources.json lets logs be sent to the server, and they may quote records; forbid it")
    return None, "our executor alone; no log leaves the site"


def _permissions(kit: Path) -> tuple[None, str]:
    policy = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    for role, rights in policy.items():
        loose = [r for r in FORBIDDEN if not isinstance(rights, dict) or rights.get(r, "none") != "none"]
        if loose:
            raise SpecError(
                f"local/authorization.json gives '{role}' the right to {', '.join(loose)} here; take it away"
            )
    return None, "nobody may bring code, or run commands here"


def _site(kit: Path) -> tuple[Site, str]:
    site = read_site(kit / "local" / SITE_FILE)
    return site, f"data set '{site.dataset}' from {'a query' if site.file is None else site.file}"


def _state(site: Site) -> tuple[Store, str]:
    return Store(site.state), str(site.state)


def _records(
    agreement: Agreement, name: str, site: Site, store: Store
) -> tuple[tuple[DurableNode, Examiner | None], str]:
    node, examiner = own_records(agreement, name, site, store)
    promised, trained = agreement.site(name).records, agreement.run.sizes[node.number]
    what = "records" if agreement.schema.unit is None else "people, their records"
    return (node, examiner), f"{promised} {what} within bounds: {trained} to train on, {promised - trained} held out"


def _run(kit: Path, agreement: Agreement, name: str) -> tuple[None, str]:
    """The digest, which is also on the page that the kit was made with; other sites compare it."""
    run, page = agreement.run, kit / "README.md"
    if page.is_file() and run.digest not in page.read_text(encoding="utf-8"):
        raise SpecError(
            f"local/{FILE} or its schema is not what this kit was made with: its digest is {run.digest} now; agree "
            "with the other sites, and ask for a new kit"
        )
    event = run.event(run.number(name))
    return None, f"{event.rounds} messages with σ = {event.sigma:.4g}; digest {run.digest}"


PARTS = {"server": "fed_server.json", "site": "fed_client.json"}
"""What runs in the foreground, by the file of FLARE's in its kit."""
PATIENCE = 180.0  # seconds that a server on this machine may take to start


def command(kit: Path) -> list[str]:
    """What runs the server or the site that a kit is for; it stays in the foreground. The kit names no command."""
    flare("apis")
    role = next((role for role, file in PARTS.items() if (kit / "startup" / file).exists()), None)
    if role is None:
        raise SpecError(f"'{kit}' is no kit of a server or a site; give a folder that `sottovoce consortium init` made")
    agreement = read_agreement(kit / "local" / FILE)
    settings = ["secure_train=true", "config_folder=config"]
    if role == "server":
        keep_inside(kit)
        settings.append(f"org={agreement.admin_org}")
    else:
        name = _certificate(kit)[0]
        settings += [f"uid={name}", f"org={agreement.site(name).org}"]
    (kit / "transfer").mkdir(exist_ok=True)
    return process_line(role, "-m", str(kit.resolve()), "-s", PARTS[role], "--set", *settings)


def server_of(kit: Path) -> tuple[str, int] | None:
    """Where the server of a site's kit listens; None for other kits."""
    path = kit / "startup" / "fed_client.json"
    if not path.exists():
        return None
    host, _, port = str(json.loads(path.read_text())["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


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
                wait_for(*server, time.monotonic() + PATIENCE)
            kit = self.kits[name]
            sealed, pipe = sealed_environment(kit, settings)
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
        for name, process in self._running.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            self._signal(name, signal.SIGKILL)
            process.wait()
        self._running.clear()
