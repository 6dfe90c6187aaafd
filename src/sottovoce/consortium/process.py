"""How every process of a consortium begins: the filter closes first, and only then does FLARE's own program start.

`sottovoce consortium start` runs it for a server or a site, and these run it for their jobs (`flare_hardening.line`). A
process ends when the one that started it is gone, however that ended: nothing is left running that nobody can stop.
"""

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

from sottovoce.consortium import credentials, flare_hardening

PROGRAMS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
    "server-job": "nvflare.private.fed.app.server.runner_process",
    "site-job": "nvflare.private.fed.app.client.worker_process",
}


PARENT_CHECK = 1.0
"""Seconds between two checks that the parent process is there."""
LAST_MOMENTS = 5.0
"""Seconds that a process without a parent has to end by itself."""


def end_with(parent: int) -> None:
    """End this process once its parent is another one: the first one is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_MOMENTS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main() -> None:
    """Close the filter, then run FLARE's program of that role."""
    end_with(int(os.environ.pop(flare_hardening.PARENT, os.getppid())))
    role, arguments = sys.argv[1], sys.argv[2:]
    kit = Path(arguments[arguments.index("-m") + 1])
    os.umask(0o077)
    credentials.unseal()
    flare_hardening.harden(role, kit)
    sys.argv = [PROGRAMS[role], *arguments]
    runpy.run_module(PROGRAMS[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
