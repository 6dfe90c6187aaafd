"""How every process of a consortium begins: the gate closes first, and only then does FLARE's own program start.

`sottovoce consortium start` runs it for a server or a site, and these run it for their jobs (`gate.line`).
"""

import os
import runpy
import sys
from pathlib import Path

from sottovoce.consortium import gate, vault

PROGRAMS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
    "site-job": "nvflare.private.fed.app.client.worker_process",
}


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
