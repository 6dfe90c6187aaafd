"""Four ranks of `sottovoce node` under mpirun: one is killed, the job dies with it, the same command ends the run."""

import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from net import SIZES, envelopes, keys, linked, records, run_file, run_of, simulated

from sottovoce.cli.main import main
from sottovoce.errors import SottovoceError
from sottovoce.node.runfile import make_run
from sottovoce.node.store import Saved, Store
from sottovoce.node.transport import AT_ONCE, HELD, MpiTransport, world
from sottovoce.run.result import Result

BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(BESIDE) if BESIDE.exists() else shutil.which("mpirun")
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None, reason="mpirun and mpi4py are not installed"
)
RUN_TOML = """
run = "first"
schedule_seed = 5
timeout = 60.0
features = ["a", "b", "c"]
label = "sick"
classes = ["no", "yes"]
[nodes]
north = 12
east = 9
south = 15
west = 10
[spec.algorithm]
rounds = 200
gamma = "constant(2)"
[spec.problem]
h = "l2(0.05)"
[spec.network]
activation = "edges(2)"
correct = true
[spec.privacy]
sampling = "poisson(4)"
noise = "gaussian(0.5)"
"""


def start(root, *more, flags=("--oversubscribe",)):
    """By mpirun; without flags by `--all`, which knows how many and starts them in a container of two cores, too."""
    program = [sys.executable, "-c", "from sottovoce.cli.main import main; main()"]
    command = [MPIRUN, *flags, "-n", "4", *program] if flags else program
    more = more if flags else (*more, "--all")
    options = ["node", "--spec", root / "run.toml", "--data", root / "{node}.csv", "--folder", root / "nodes", "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if flags else {}
    arguments = [*command, *map(str, options), *more]
    return subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pid_of(folder):
    """The process that holds a node's lock."""
    inode = (folder / "node.sqlite").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and int(fields[5].split(":")[2]) == inode:
            return int(fields[4])
    raise AssertionError("nobody holds the lock")


def released(folder):
    try:
        store = Store(folder, reading=True)
    except SottovoceError:  # not made yet
        return {}
    try:
        return {row.round: row.message for row in store.rows() if row.kind == "release"}
    finally:
        store.close()


class Request:
    """A message on its way."""

    def __init__(self, left):
        self.left = left

    def Test(self):
        return self.left


@pytest.fixture
def mpi(monkeypatch):
    """In place of the library, which would start in this very process."""
    made = SimpleNamespace(Status=object, ANY_SOURCE=-1, BYTE=None, COMM_WORLD="all")
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=made))


def test_what_has_left_is_forgotten_and_what_has_not_is_held(mpi):
    """One that never leaves holds few others up: a slow peer costs no memory."""
    run, sent = run_of(rounds=30), []

    def Isend(data, peer, tag):
        sent.append((Request(left=len(sent) > 0), data))
        return sent[-1][0]

    comm = SimpleNamespace(Isend=Isend, Improbe=lambda *_: None)
    links = linked(run, 0, envelopes(run)[0], Saved(0, None, {}, {}, {}))
    transport = MpiTransport(links, SimpleNamespace(), comm)
    for _ in range(3 * HELD):
        transport.send(1, links.hello(1))
        assert sent[0] in transport._sending and len(transport._sending) <= HELD + 1
    sent[0][0].left = True
    transport.flush()
    assert not transport._sending and len(sent) == 3 * HELD


def test_who_requests_and_never_receives_is_answered_once(mpi, monkeypatch):
    """As many hellos as it likes: one answer is on its way at a time, and the next when that has left."""
    run, sent, coming = run_of(rounds=30), [], []

    class Status:
        def Get_count(self, kind):
            return len(coming[0])

        def Get_source(self):
            return 1

    class Coming:
        def Recv(self, buffer):
            buffer[:] = coming.pop(0)

    def Isend(data, peer, tag):
        sent.append(Request(left=False))
        return sent[-1]

    monkeypatch.setattr(sys.modules["mpi4py"].MPI, "Status", Status)
    comm = SimpleNamespace(Isend=Isend, Improbe=lambda *_: Coming() if coming else None)
    nodes = [linked(run, i, envelope, Saved(0, None, {}, {}, {})) for i, envelope in enumerate(envelopes(run))]
    transport = MpiTransport(nodes[0], SimpleNamespace(), comm)
    for _ in range(5):
        nodes[1].question = os.urandom(8).hex()
        coming.append(nodes[1].sealed(0, nodes[1].hello(0)))
        transport.wait(0.0)
        transport.wait(0.0)
    assert not coming and len(sent) == 1 and nodes[0].owes_hello(1)
    sent[0].left = True
    transport.wait(0.0)
    assert len(sent) == 2 and not nodes[0].owes_hello(1)


@pytest.mark.parametrize(("given", "then"), [(None, str(AT_ONCE)), ("4096", "4096")])
def test_messages_are_handed_over_at_once_unless_the_environment_says_otherwise(mpi, monkeypatch, given, then):
    name = "OMPI_MCA_btl_sm_eager_limit"
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)
    assert world() == "all" and os.environ[name] == then


@needs_mpi
@pytest.mark.slow
def test_a_job_that_dies_continues_and_equals_the_simulation(tmp_path, monkeypatch, capsys):
    run = make_run(run_file(rounds=200, timeout=60.0))
    (tmp_path / "run.toml").write_text(RUN_TOML)
    tables = records(run)
    for name, table in tables.items():
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            names = ["c", "b", "a", "sick"]  # columns are found by their names
            csv.writer(file).writerows([names, *zip(*(table[column] for column in names), strict=True)])
    job = start(tmp_path, "--budget", "1e6")
    victim = tmp_path / "nodes" / "east"
    while len(before := released(victim)) < 10:
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    os.kill(pid_of(victim), signal.SIGKILL)
    job.communicate(timeout=300)
    assert job.returncode != 0
    before = {name: released(tmp_path / "nodes" / name) for name in SIZES}
    assert not any((tmp_path / "nodes" / name / f"result-{run.digest[:12]}").exists() for name in SIZES)

    job = start(tmp_path, flags=())
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    said = {row["node"]: row for row in map(json.loads, out.splitlines())}
    assert {row["run"] for row in said.values()} == {run.digest} and set(said) == set(SIZES)
    for i, name in enumerate(run.nodes):
        after = released(tmp_path / "nodes" / name)
        assert list(after) == run.rounds(i).tolist()
        assert before[name].items() <= after.items()  # nothing that was out before came out differently
    models = np.stack([Result.load(said[name]["saved"]).model for name in run.nodes])
    expected = simulated(run, tables, keys(run, tmp_path / "nodes"))
    assert np.allclose(models, expected, rtol=1e-9, atol=1e-9)

    monkeypatch.setattr(sys, "argv", ["sottovoce", "ledger", "verify", str(victim), "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code and json.loads(capsys.readouterr().out)["holds"]


def test_a_run_that_may_lose_nodes_is_refused(tmp_path, monkeypatch, capsys):
    """Its ranks would die together."""
    spec = RUN_TOML.replace("timeout = 60.0", "timeout = 60.0\nlost_after = 9.0") + "may_lose = 1\n"
    (tmp_path / "run.toml").write_text(spec)
    comm = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 1)
    monkeypatch.setattr("sottovoce.cli.node.world", lambda: comm)
    words = ["node", "--spec", str(tmp_path / "run.toml"), "--data", "none.csv", "--folder", str(tmp_path / "folder")]
    monkeypatch.setattr(sys, "argv", ["sottovoce", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code and "a rank that dies takes all others with it" in " ".join(capsys.readouterr().err.split())
