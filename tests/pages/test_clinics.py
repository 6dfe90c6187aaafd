"""The page about a consortium, line by line: kits, three sites and a server as processes, a run, new keys.

The agreement is the example's with fewer rounds and a port that is free; every `start` is a process of its own.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import NOT_RUN, PAGES, bare, blocks, ground, run

from sottovoce.run.result import Result

pytest.importorskip("nvflare", reason="FLARE is not installed")
pytestmark = pytest.mark.slow
PAGE = blocks(PAGES["consortium"].read_text(encoding="utf-8"))
COMMAND = [sys.executable, "-c", "from sottovoce.cli.main import main; main()"]
SITES = ("north", "south", "west")
SOURCES = dict(zip(SITES, ("\n".join(block.lines) for block in PAGE if block.kind == "toml"), strict=False))
HERE = "kits/clinics/prod_00"


def lines_with(word: str) -> list[str]:
    """The block that holds this line."""
    (found,) = [block.lines for block in PAGE if block.kind == "bash" and any(word in line for line in block.lines)]
    return found


@pytest.fixture
def clinics(tmp_path, monkeypatch):
    """After the first part of the page: the reader's own folder."""
    ground(tmp_path)
    monkeypatch.chdir(tmp_path)
    for line in lines_with("make_data.py"):
        if ("consortium", bare(line)) not in NOT_RUN:
            run(line)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    file = Path("consortium.toml")
    text = file.read_text().replace("port = 8102", f"port = {port}").replace("rounds = 300", "rounds = 12")
    file.write_text(text)
    return Path.cwd()


@pytest.fixture
def started():
    """Starts `sottovoce consortium start .` where we are, and ends it as Ctrl-C does."""
    running = []

    def start(line):
        with open("start.log", "wb") as log:
            running.append(subprocess.Popen([*COMMAND, *shlex.split(line, comments=True)[1:]], stdout=log, stderr=log))

    yield start
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def test_the_page_runs_from_three_files_to_a_model_and_new_keys(clinics, started):
    plan, init = [block.lines for block in PAGE if block.lines and "consortium init" in block.lines[0]]
    agreed = Path("consortium.toml").read_text()
    Path("consortium.toml").unlink()
    run(" ".join(line.removesuffix("\\") for line in plan))
    assert "[sites.west]" in Path("consortium.toml").read_text()
    Path("consortium.toml").write_text(agreed)  # a short run of the example's instead
    run(*init)
    os.chdir(clinics / HERE / "localhost")
    started("sottovoce consortium start .")  # "Start the server from its kit in the same way"
    for site in SITES:
        os.chdir(clinics)
        for line in lines_with("node check"):
            if line.startswith("$EDITOR"):
                source = SOURCES[site].replace("…", str(clinics))
                Path("local/site.toml").write_text(f'dataset = "records"\nstate = "../state"\n{source}\n')
            elif "consortium start" in line:
                started(line)
            else:
                run(line.replace("/north", f"/{site}"))
    os.chdir(clinics)
    go, submit = lines_with("cd kits/clinics/prod_00/lead@example.org")
    run(go)
    for _ in range(8):  # sites take a while to connect, and who is missing is named: "start it, then submit again"
        words = [*COMMAND, *shlex.split(submit)[1:]]
        said = subprocess.run(words, capture_output=True, text=True, timeout=240)
        if "not connected" not in said.stderr:
            break
    logs = {site: (clinics / HERE / site / "start.log").read_text()[-2000:] for site in ("localhost", *SITES)}
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr}\n{logs}"
    assert "Every person has (ε = 2, δ = 1e-05)-differential privacy against 'transcript'" in said.stdout
    assert "held-out records, give or take" in said.stdout
    os.chdir(clinics / HERE / "north")
    shutil.copy(clinics / "records" / "north.csv", "new-patients.csv")
    for line in lines_with("state/results/first"):
        run(line)
    assert Result.load("state/results/first").statement.private
    os.chdir(clinics)
    run(*lines_with("consortium renew"))
    agreed = Path("consortium.toml")
    for line in lines_with("consortium revoke"):
        if line.startswith("$EDITOR"):
            agreed.write_text(agreed.read_text().replace('run = "first"', 'run = "second"'))
        else:
            run(line)
    assert "revoked" in agreed.read_text()
