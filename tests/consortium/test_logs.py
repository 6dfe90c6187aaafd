"""Logs: one JSON object a line, files that rotate, no forged lines, and a level of the site's own."""

import json
import logging
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from sottovoce.cli import consortium as verbs
from sottovoce.consortium import logs
from sottovoce.consortium.logs import FILE, FORM, LEVEL, Form, Level


@pytest.fixture(autouse=True)
def restored():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)


def lines(folder):
    for handler in logging.getLogger().handlers:
        handler.flush()
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_a_line_is_one_object_whatever_is_in_it(tmp_path, capsys):
    logs.configure(tmp_path)
    log = logging.getLogger("sottovoce.test")
    nasty = 'north\n2026 ERROR forged\r\x1b[2J\x9b31m\u2028"{}'
    log.warning("a message of %s was refused", nasty)
    try:
        raise ValueError("a\nb")
    except ValueError:
        log.exception("it failed")
    log.debug("not at this level")
    first, second = lines(tmp_path)
    assert first["message"] == f"a message of {nasty} was refused" and first["level"] == "warning"
    assert datetime.fromisoformat(first["time"]).tzinfo is not None and first["logger"] == "sottovoce.test"
    assert second["level"] == "error" and "Traceback" in second["error"]
    out = capsys.readouterr().out.splitlines()
    assert "north\\x0a2026 ERROR forged\\x0d\\x1b[2J\\x9b31m\\x2028" in out[0] and out[1].endswith("it failed")
    assert not any("\x1b" in line for line in out) and not any(line.startswith("2026 ERROR") for line in out)


@pytest.mark.parametrize("level", list(Level))
def test_the_site_chooses_level_and_form(tmp_path, monkeypatch, capsys, level):
    monkeypatch.setenv(LEVEL, level.value)
    monkeypatch.setenv(FORM, Form.JSON.value)
    logs.configure(tmp_path)
    for each in Level:
        logging.getLogger("sottovoce.test").log(getattr(logging, each.name), each.value)
    expected = list(Level)[list(Level).index(level) :]
    assert [line["message"] for line in lines(tmp_path) if line["logger"] == "sottovoce.test"] == expected
    assert [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()] == expected


def test_files_rotate_and_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 2000)
    logs.configure(tmp_path)
    for i in range(400):
        logging.getLogger("sottovoce.test").info("line %d", i)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == sorted([FILE, *(f"{FILE}.{k}" for k in range(1, logs.KEPT + 1))])
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert lines(tmp_path)[-1]["message"] == "line 399"


FLARES = """
import logging, os, sys
from types import SimpleNamespace
from sottovoce.consortium.logs import use_own_logs
use_own_logs()
from nvflare.fuel.utils import log_utils
workspace = SimpleNamespace(get_log_root=lambda job: sys.argv[1])
log_utils.configure_logging(workspace, "job")
log_utils.dynamic_log_config("verbose", sys.argv[1], sys.argv[1])
log_utils.apply_log_config({"version": 1, "handlers": {"h": {"()": "os.mkdir", "path": sys.argv[1] + "/done"}}}, "")
logging.getLogger("nvflare.test").info("said")
print(os.listdir(sys.argv[1]))
"""


def test_flare_writes_no_log_of_its_own(tmp_path):
    pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
    line = [sys.executable, "-c", FLARES, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"['{FILE}']" and "nvflare.test: said" in done.stdout
    assert lines(tmp_path)[-1]["message"] == "said"


def test_start_hands_level_and_form_to_the_processes(monkeypatch, tmp_path):
    found = {}

    class Lock:
        def __init__(self, kit):
            self.file = None

        def release(self):
            found["released"] = True

    monkeypatch.setattr(verbs, "command", lambda kit: ["line"])
    monkeypatch.setattr(verbs, "KitLock", Lock)
    monkeypatch.setattr(verbs, "_run_kit", lambda kit, line, lock, settings: found.update(settings))
    verbs.start(Path(tmp_path), level=Level.DEBUG, form=Form.JSON, metrics=None)
    assert found == {LEVEL: "debug", FORM: "json", "released": True}
