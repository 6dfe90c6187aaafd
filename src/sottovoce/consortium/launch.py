"""Starting a kit: the command that FLARE's own start script would run, with this Python."""

import re
import shlex
import sys
from pathlib import Path

from sottovoce.consortium.flare import flare
from sottovoce.consortium.project import settle_server
from sottovoce.errors import SpecError

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
        settle_server(kit)
    (kit / "transfer").mkdir(exist_ok=True)
    return [sys.executable, "-u", "-m", module, "-m", str(kit.resolve()), "-s", config, "--set", *shlex.split(settings)]
