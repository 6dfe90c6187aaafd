r"""Logs of a server or a site: one JSON object a line in a file that rotates, and lines for a terminal or a journal.

The file is `log.json` in the kit, and in the folder of each job. It stays at the site: FLARE's own configuration of
logs, which an administrator's commands could change, is not used. Level and form of the lines on standard output come
from the environment, where `sottovoce consortium start` puts its options. A control character is written as `\x1b`, so
that no text of a peer moves a terminal's cursor or begins a line of its own.
"""

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from sottovoce.consortium.flare_patches import patch

FILE = "log.json"
MAX_FILE_BYTES = 10_000_000
KEPT = 5
"""Older files that are kept beside the one that is written."""
LEVEL, FORM = "SOTTOVOCE_LOG_LEVEL", "SOTTOVOCE_LOG_FORMAT"
"""The environment variables with the level and the form on standard output."""


class Level(StrEnum):
    """What is logged: messages of this level and above."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Form(StrEnum):
    """How a line on standard output is written."""

    TEXT = "text"
    JSON = "json"


class JsonLine(logging.Formatter):
    """One JSON object: time, level, logger, process, message, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=True)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TextLine(logging.Formatter):
    """Time, level, logger and message, and below them the traceback of an error."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without the traceback."""
        return _CONTROL.sub(lambda sign: f"\\x{ord(sign[0]):02x}", super().formatMessage(record))


def configure(folder: Path) -> None:
    """Let this process write its log into a folder, and to standard output."""
    file = RotatingFileHandler(folder / FILE, maxBytes=MAX_FILE_BYTES, backupCount=KEPT, encoding="utf-8")
    file.setFormatter(JsonLine())
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(JsonLine() if os.environ.get(FORM) == Form.JSON else TextLine())
    level = os.environ.get(LEVEL, Level.INFO)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(file)
    root.addHandler(console)
    root.setLevel(level.upper() if level in list(Level) else logging.INFO)
    logging.captureWarnings(True)


def use_own_logs() -> None:
    """Let FLARE configure logs by `configure`, and by nothing else."""

    def configure_job(workspace: Any, job_id: str | None = None, file_prefix: str = "") -> None:
        configure(Path(workspace.get_log_root(job_id)))

    patch("fuel.utils.log_utils:configure_logging", lambda _: configure_job)
    patch("fuel.utils.log_utils:apply_log_config", lambda _: lambda *_, **__: None)
