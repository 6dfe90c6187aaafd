"""Database passwords: removed from the environment, passed on by a pipe, and set only while records are read.

An environment may leak by any output of a process, and every child process inherits it. So two kinds of variables are
removed from it where a site is started: those that `local/site.toml` names as `${NAME}`, and those that database
drivers read (`DRIVERS`). They go through a pipe to the site's process and on to that of a job. There it is in the
environment only inside `lent`, around the query; the environment that a process was started with never has it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sottovoce.errors import SpecError

DRIVERS = ("PGPASSWORD", "PGPASSFILE", "PGSSLPASSWORD", "MYSQL_PWD")
"""What PostgreSQL's and MySQL's own libraries take from the environment."""
PIPE = "SOTTOVOCE_CREDENTIALS_PIPE"
MAX_SECRETS_BYTES = 32768  # bytes that fit into any system's pipe at once
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_kept: dict[str, str] = {}


def named(kit: Path) -> set[str]:
    """The names of what is secret at a site."""
    found = set(DRIVERS)
    with suppress(OSError, UnicodeDecodeError):  # a kit that is not filled in yet
        found |= set(_VARIABLE.findall((kit / "local" / "site.toml").read_text(encoding="utf-8")))
    return found


def sealed(environment: Mapping[str, str], names: set[str]) -> tuple[dict[str, str], int]:
    """The environment of a process to be started, without these names, and the open pipe that holds them for it."""
    secrets = {name: value for name, value in environment.items() if name in names} | _kept
    data = json.dumps(secrets).encode()
    if len(data) > MAX_SECRETS_BYTES:
        raise SpecError("passwords are longer than a pipe holds; give shorter ones")
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    os.set_inheritable(reading, True)
    return {key: value for key, value in environment.items() if key not in secrets} | {PIPE: str(reading)}, reading


def unseal() -> None:
    """In the process that was started: take over what the pipe holds."""
    pipe = os.environ.pop(PIPE, None)
    if pipe is not None:
        with os.fdopen(int(pipe), "rb") as reading:
            _kept.update(json.loads(reading.read()))


@contextmanager
def lent() -> Iterator[None]:
    """Inside, the environment has the secrets."""
    os.environ.update(_kept)
    try:
        yield
    finally:
        for name in _kept:
            os.environ.pop(name, None)
