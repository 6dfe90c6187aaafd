"""A run that is killed outright goes on from its last checkpoint and ends with the same model, to the last bit."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from sottovoce.run.result import Result

COMMAND = [sys.executable, "-c", "from sottovoce.cli.main import main; main()"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_sigkill_and_resume(svm, tmp_path, engine):
    args = [
        "train",
        str(svm),
        "--nodes",
        "4",
        "--epsilon",
        "1",
        "--seed",
        "3",
        "--sampling",
        "poisson:8",
        "--regularizer",
        "l2:0.05",
    ]
    args += ["--rounds", "5000", "--observations", "100", "--engine", engine, "--json"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*COMMAND, *args, "--out", str(whole)], check=True, capture_output=True)
    run = subprocess.Popen([*COMMAND, *args, "--out", str(cut)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (cut / "checkpoint.npz").exists() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    run.send_signal(signal.SIGKILL)
    run.wait()
    killed = not (cut / "result.json").exists()
    done = subprocess.run([*COMMAND, *args, "--out", str(cut)], check=True, capture_output=True, text=True)
    if killed:  # on a machine that finished first there was nothing to resume, and the models still agree
        assert "going on from the checkpoint" in done.stderr
    a, b = Result.load(whole), Result.load(cut)
    assert np.array_equal(a.models, b.models) and a.statement == b.statement
    assert b.history.rows == [pytest.approx(row, nan_ok=True) for row in a.history.rows]
