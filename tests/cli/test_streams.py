"""What is said reaches anybody, whatever the terminal knows, and an ending is an ending: the command as a process."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-c", "from sottovoce.cli.main import main; main()"]
PLAN = ["plan", "--nodes", "3", "--records", "50", "--features", "3", "--rounds", "10", "--sampling", "full"]
TRAIN = ["--nodes", "2", "--seed", "1", "--features", "5", "--first-index", "1"]


def run(arguments, environment=None, **more):
    kept = {"env": os.environ | (environment or {}), "timeout": 60, "stderr": subprocess.PIPE} | more
    return subprocess.run([*COMMAND, *arguments], **kept)


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "cp1252"}],
    ids=["C", "cp1252"],
)
def test_every_encoding_is_spoken(environment):
    for arguments in (["train", "--help"], PLAN):
        done = run(arguments, environment, stdout=subprocess.PIPE)
        assert done.returncode == 0 and not done.stderr and rb"\u03b5" in done.stdout
    done = run([*PLAN, "--epsilon", "-1", "--json"], environment, stdout=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr.startswith(b"Error: ") and b"Traceback" not in done.stderr
    assert "ε" in json.loads(done.stdout)["error"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to write to")
def test_a_full_disk_and_a_reader_who_leaves():
    with open("/dev/full", "wb") as full:
        done = run(PLAN, stdout=full)
        assert done.returncode == 74 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr
        assert run(["plan", "--epsilon", "x"], stdout=subprocess.DEVNULL, stderr=full).returncode == 74
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(PLAN, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode in (1, 74) and done.stderr == b""


def test_folders_of_any_name(svm, tmp_path):
    out = os.fsencode(tmp_path) + b"/\xff\xfe"
    done = run(["train", str(svm), *TRAIN, "--rounds", "3", "--out", out, "--json"], stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert os.fsencode(json.loads(done.stdout)["saved"]) == out and os.path.exists(out + b"/report.html")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_says_so_and_leaves_nothing_half_done(svm, tmp_path, sent, code):
    line = [*COMMAND, "train", svm, *TRAIN, "--rounds", "2000000", "--engine", "reference", "--out", tmp_path / "run"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code and out == b""
    assert err.count(b"Error: ") == 1 and b"stopped" in err and b"Traceback" not in err
    assert not [*tmp_path.rglob("*.part")] and not (tmp_path / "run" / "result.json").exists()
