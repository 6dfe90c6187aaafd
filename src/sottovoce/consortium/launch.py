"""Starting a kit: the command that FLARE's own start script would run, with this Python."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Self

from sottovoce.consortium.flare import flare
from sottovoce.consortium.project import keep_inside
from sottovoce.consortium.submit import wait_for
from sottovoce.errors import SpecError

PATIENCE = 180.0  # seconds that a server on this machine may take to start
_START = re.compile(r"^\s*exec python3 -u -m (nvflare\S+) -m \S+ -s (\S+) --set (.*)$", re.MULTILINE)


def command(kit: Path) -> list[str]:
    """What runs the server or the site that a kit is for; it stays in the foreground."""
    flare("apis")
    try:
        found = _START.search((kit / "startup" / "sub_start.sh").read_text())
    except OSError:
        found = None
    if found is None:
        raise SpecError(f"'{kit}' is no kit of a server or a site; give a folder that `sottovoce consortium init` made")
    module, config, settings = found.groups()
    if "server" in module:
        keep_inside(kit)
    (kit / "transfer").mkdir(exist_ok=True)
    return [sys.executable, "-u", "-m", module, "-m", str(kit.resolve()), "-s", config, "--set", *shlex.split(settings)]


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

    def start(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Start some of them, with more in their environment if need be; sites once their server listens.

        A site of FLARE gives up after some seconds without a server, which a busy machine may need to start one.
        """
        settings = {**os.environ, **(environment or {})}
        for name in names:
            server = server_of(self.kits[name])
            if server is not None:
                wait_for(*server, time.monotonic() + PATIENCE)
            with open(self.logs / f"{name}.log", "ab") as log:
                self._running[name] = subprocess.Popen(command(self.kits[name]), stdout=log, stderr=log, env=settings)

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
