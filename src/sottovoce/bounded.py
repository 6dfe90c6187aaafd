"""Read files that someone else may have written: regular files only, and at most a bounded number of bytes."""

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

MAX_TOML_BYTES = 2**20
"""Of a run file, a schema, an agreement or a site.toml."""
MAX_JSON_BYTES = 2**26
"""Of what a result says about itself, and of what is next to it as JSON."""


def read_bounded(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file of at most so many bytes; raise `OSError` for a pipe, a device, or more.

    Examples
    --------
    >>> read_bounded("/dev/null", 10)
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] it is a pipe, a device or a folder, and no file: '/dev/null'
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe would wait
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe, a device or a folder, and no file", str(path))
        content = file.read(most + 1) if about.st_size <= most else b""
        if about.st_size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return content


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the contents of a TOML file; whatever cannot be parsed raises `tomllib.TOMLDecodeError`."""
    text = read_bounded(path, MAX_TOML_BYTES).decode("utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deep") from None
    except ValueError as error:  # a number of thousands of digits
        raise tomllib.TOMLDecodeError(str(error)) from None
