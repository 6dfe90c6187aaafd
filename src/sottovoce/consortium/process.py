"""How every process of a consortium is started: the gate closes first, and only then does FLARE's own program begin.

`sottovoce consortium start` runs it for a server or a site, and these run it for their jobs; nothing in a kit names a
command. The interpreter is given `-P`, so that no file beside the kit can stand for a module.
"""

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from sottovoce.consortium import gate, vault

PROGRAMS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
    "site-job": "nvflare.private.fed.app.client.worker_process",
}


def line(role: str, *arguments: str) -> list[str]:
    """The command of a process."""
    return [sys.executable, "-P", "-u", "-m", __spec__.name if __name__ == "__main__" else __name__, role, *arguments]


def sealed_environment(kit: Path, environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """What such a process gets to see, and the pipe that it inherits."""
    return vault.sealed({**environment, "PYTHONSAFEPATH": "1"}, vault.named(kit))


def main() -> None:
    """Close the gate, then be FLARE's program of that role."""
    role, arguments = sys.argv[1], sys.argv[2:]
    kit = Path(arguments[arguments.index("-m") + 1])
    os.umask(0o077)
    vault.unseal()
    gate.close(role, kit)
    sys.argv = [PROGRAMS[role], *arguments]
    runpy.run_module(PROGRAMS[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
