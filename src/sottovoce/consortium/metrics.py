"""Metrics of a server or a site for Prometheus, on the loopback interface or a Unix socket.

`sottovoce consortium start --metrics` serves them from the process that watches over the others, which lives as long as
the service. They come from files of the kit: certificate, progress report and ledger. Nothing in them is computed from
records: rounds, waits, bytes and starts follow from the public plan and the network, and ε from the ledger.
"""

import os
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sottovoce._version import __version__
from sottovoce.consortium.agreement import current_agreement
from sottovoce.consortium.certificates import valid_until
from sottovoce.consortium.progress import Progress, read_progress
from sottovoce.consortium.project import certificate_files, kind_of
from sottovoce.errors import NetworkError, SottovoceError, SpecError
from sottovoce.node.budget import budgets, overview, spendings
from sottovoce.node.ledger import Row, runs_of
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import read_site
from sottovoce.node.state import RunState
from sottovoce.node.store import Store

HOST = "127.0.0.1"
PATH = "/metrics"
TIMEOUT = 10.0
"""Seconds that a reader may take to ask."""


def library(module: str) -> Any:
    """A module of the Prometheus client."""
    try:
        return import_module(f"prometheus_client{module}")
    except ImportError:
        raise SpecError("metrics need prometheus-client; run: pip install 'sottovoce[flare]'") from None


class KitCollector:
    """The metrics of a kit for Prometheus, computed anew for each request.

    Parameters
    ----------
    kit : of a server or a site
    """

    def __init__(self, kit: Path) -> None:
        core = library(".core")
        self._gauge, self._counter = core.GaugeMetricFamily, core.CounterMetricFamily
        self._kit, self._kind, self._began = kit, kind_of(kit), time.time()
        self._known: tuple[Any, list[dict[str, Any]]] | None = None

    def describe(self) -> list[Any]:
        """Nothing: registering a collector reads no kit."""
        return []

    def collect(self) -> Iterator[Any]:
        """Every metric of the kit."""
        yield self._one("sottovoce_info", "Version of sottovoce.", 1.0, version=__version__, role=self._kind)
        yield self._one("sottovoce_start_time_seconds", "When the service started, since 1970.", self._began)
        certificate, _, authority = (self._kit / path for path in certificate_files(self._kind))
        with suppress(OSError, ValueError):
            end = valid_until(certificate, authority).timestamp()
            yield self._one("sottovoce_certificate_expiry_seconds", "When the certificate ends, since 1970.", end)
        if self._kind == "site":
            yield from self._of_site()

    def _of_site(self) -> Iterator[Any]:
        holds = partial(self._one, "sottovoce_ledger_holds", "1 if the ledger holds, 0 if it cannot be used.")
        try:
            folder = read_site(self._kit / "local" / SITE_FILE).state
            rows, sets, good = self._ledger(folder)
        except (SottovoceError, OSError):
            yield holds(0.0)
            return
        yield holds(float(good))
        yield from self._spent(sets)
        run, whole = current_agreement(self._kit).run.digest, runs_of(rows)
        made = sum(row.kind == "release" and whole.get(row.run, row.run) == run for row in rows)
        yield self._total("sottovoce_releases", "Messages that the node has released in the run.", made)
        report = read_progress(folder)
        if report is not None:
            yield from self._progress(report)

    def _ledger(self, folder: Path) -> tuple[Sequence[Row], list[dict[str, Any]], bool]:
        """The rows, what each data set has cost, and whether the ledger holds; accounted anew where that may change."""
        store = Store(folder, reading=True)
        try:
            rows = store.rows()
            what = [(run.run, run.released > 0, run.state) for run in spendings(rows)], budgets(rows)
            if self._known is None or self._known[0] != what:
                self._known = what, overview(store)["datasets"]
            return rows, self._known[1], not store.ledger_faults()
        finally:
            store.close()

    def _spent(self, sets: list[dict[str, Any]]) -> Iterator[Any]:
        labels = ["dataset", "delta", "adversary"]
        spent = self._gauge("sottovoce_epsilon_spent", "ε of everything released of a data set.", labels=labels)
        left = self._gauge("sottovoce_epsilon_left", "ε of the owner's budget that is left.", labels=labels)
        for each in sets:
            values = [each["dataset"], f"{each['delta']:g}", each["adversary"]]
            spent.add_metric(values, each["epsilon"])
            left.add_metric(values, each["epsilon_budget"] - each["epsilon"])
        yield from (spent, left)

    def _progress(self, report: Progress) -> Iterator[Any]:
        yield self._one("sottovoce_round", "Rounds that the node has finished.", report.round)
        yield self._one("sottovoce_rounds", "Rounds of the run.", report.rounds)
        yield self._one("sottovoce_round_age_seconds", "Seconds since the node finished a round.", report.age)
        yield self._one("sottovoce_report_age_seconds", "Seconds since the node's process reported.", report.reported)
        yield self._one("sottovoce_job_running", "1 if the process of a job runs.", float(report.alive))
        yield self._one("sottovoce_removed_nodes", "Nodes that the others went on without.", len(report.removed))
        yield self._total("sottovoce_starts", "How often the node was started in the run.", report.starts)
        state = self._gauge("sottovoce_state", "1 for the state that the node is in.", labels=["state"])
        for each in RunState:
            state.add_metric([each.value], float(each.value == report.state))
        yield state
        families = {
            "sent": self._counter("sottovoce_sent_bytes", "Bytes sent to a peer by this process.", labels=["peer"]),
            "received": self._counter("sottovoce_received_bytes", "Bytes received from a peer.", labels=["peer"]),
            "waited": self._counter("sottovoce_waited_seconds", "Seconds waited for a peer.", labels=["peer"]),
        }
        waits = self._gauge("sottovoce_waiting_seconds", "Seconds that the node waits for a peer now.", labels=["peer"])
        late = report.waits or {"for": None, "seconds": 0.0}
        for name, peer in report.peers.items():
            for what, family in families.items():
                family.add_metric([name], getattr(peer, what))
            waits.add_metric([name], late["seconds"] if late["for"] == name else 0.0)
        yield from (*families.values(), waits)

    def _one(self, name: str, help: str, value: float, **labels: str) -> Any:
        family = self._gauge(name, help, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _total(self, name: str, help: str, value: float) -> Any:
        family = self._counter(name, help)
        family.add_metric([], value)
        return family


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: Prometheus sends several requests a minute."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SocketServer(_Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Bind without the name lookups of an address."""
        self.socket.bind(str(self.server_address))
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """A connection; it has no address."""
        return self.socket.accept()[0], ("local", 0)


class Metrics:
    """Metrics of a kit, served until they are closed; use it in a `with` block.

    Parameters
    ----------
    kit : of a server or a site
    where : a port of the loopback interface, or the path of a Unix socket
    """

    def __init__(self, kit: Path, where: str) -> None:
        client = library("")
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(KitCollector(kit))
        self._path = None if where.isdecimal() else Path(where)
        try:
            self._server = self._bound(where)
        except (OSError, OverflowError) as error:
            raise NetworkError(f"metrics cannot be served at '{where}' ({error}); give another port or path") from None
        self._server.set_app(self._guarded(client.make_wsgi_app(registry)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def _bound(self, where: str) -> _Server:
        if self._path is None:
            return _Server((HOST, int(where)), _Handler)
        if not self._path.is_absolute():
            raise SpecError(f"metrics are served at a port or at the full path of a socket, not at '{where}'")
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(self._path).st_mode):  # of an earlier process; anything else stays
                self._path.unlink()
        server = _SocketServer(str(self._path), _Handler)  # type: ignore[arg-type]
        self._path.chmod(0o660)
        return server

    def _guarded(self, app: Callable[..., Any]) -> Callable[..., Any]:
        """Answer one path, and only those who ask for this host: no page in a browser of this machine reads it."""
        port = self._server.server_port
        hosts = {f"{HOST}:{port}", f"localhost:{port}"}

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            here = self._path is not None or environ.get("HTTP_HOST") in hosts
            if not here or environ["REQUEST_METHOD"] != "GET" or environ["PATH_INFO"] != PATH:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"there is nothing here\n"]
            return app(environ, start_response)

        return answer

    @property
    def address(self) -> str:
        """Where the metrics are."""
        return f"http://{HOST}:{self._server.server_port}{PATH}" if self._path is None else f"unix:{self._path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


@contextmanager
def served(kit: Path, where: str | None) -> Iterator[str | None]:
    """Serve the metrics of a kit inside the block; yield their address, or None if metrics are off."""
    if where is None:
        yield None
        return
    with Metrics(kit, where) as metrics:
        yield metrics.address
