"""The real thing, against the worst of servers: kits, mutual TLS, three sites and a relay that does what it likes.

The server runs FLARE's own program, without our filter, and is hostile (`hostile/sitecustomize.py`): it reads
everything behind TLS, commands the sites, deploys what an administrator brings, forges, replays, reflects. A site is
killed in the midst of it. What comes out is the model of a simulation in one process, from the same draws.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from sottovoce.consortium import evaluation as evaluate
from sottovoce.consortium.check import Trial, check_kit
from sottovoce.consortium.job import Code, write_job
from sottovoce.consortium.node import own_records
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, administrator
from sottovoce.errors import NetworkError
from sottovoce.node.envelope import MARK
from sottovoce.node.message import MAGIC, Header, pack
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytestmark = pytest.mark.slow
ROUNDS = 180
RELEASES = 'moments = "moments(0.05, 0.1, 0.1)"\nbalance = "balance(0.1, 0.3)"'
"""Before the first round, and twice after the last one."""
SECRET = "swordfish-7f3a"
FLARES = "nvflare.private.fed.app.server.server_train"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def missing(admin, patience=10):
    return [each.site for each in admin.who(patience) if not each.connected]


def wait_for_all(admin):
    until = time.monotonic() + 120
    while missing(admin):
        assert time.monotonic() < until, f"{missing(admin)} did not connect"


class Running(NamedTuple):
    made: object
    kits: dict
    trial: Trial
    admin: object
    hostile: Path

    def order(self, *orders):
        """Let the server send commands to sites: (return code, answer) of each."""
        (self.hostile / "answers.json").unlink(missing_ok=True)
        (self.hostile / "orders.part").write_text(json.dumps(orders))
        (self.hostile / "orders.part").rename(self.hostile / "orders.json")
        until = time.monotonic() + 60
        while not (self.hostile / "answers.json").exists():
            assert time.monotonic() < until, "the server does not obey"
            time.sleep(0.1)
        return json.loads((self.hostile / "answers.json").read_text())


@pytest.fixture(scope="module")
def running(small_at, cells, tmp_path_factory):
    folder = tmp_path_factory.mktemp("provisioned")
    made = small_at(folder, rounds=ROUNDS, port=free_port(), timeout=120, sampling="fixed(4)", private=RELEASES)
    agreement = made.agreement
    kits = provision(agreement, folder / "consortium.toml", folder / "kits")
    for name in made.names:
        made.settle(kits[name], name)
        findings = check_kit(kits[name])
        assert all(finding.good for finding in findings), findings
        assert agreement.run.digest in (kits[name] / "README.md").read_text()
    hostile = folder / "hostile"
    path = os.pathsep.join([str(Path(__file__).parent / "hostile"), os.environ.get("PYTHONPATH", "")])
    kit = kits[agreement.host]
    rights = kit / "local" / "authorization.json"
    rights.write_text(rights.read_text().replace('"byoc": "none"', '"byoc": "any"'))
    server = [sys.executable, "-u", "-m", FLARES, "-m", str(kit), "-s", "fed_server.json", "--set"]
    server += ["secure_train=true", f"org={agreement.admin_org}", "config_folder=config"]
    with Trial(kits, folder / "logs") as trial:
        trial.start(agreement.host, environment={"PYTHONPATH": path, "HOSTILE": str(hostile)}, line=server)
        for name in made.names:
            trial.start(name, environment={"PGPASSWORD": SECRET, "PLANTED": SECRET})
        with administrator(kits[agreement.admin], patience=120) as admin:
            wait_for_all(admin)
            yield Running(made, kits, trial, admin, hostile)


def test_a_server_s_commands_are_not_obeyed(running):
    """Shell, logging, environment, statistics, network tools: nothing of FLARE's is done that a run does not need."""
    logs = {"version": 1, "handlers": {"h": {"()": "subprocess.getoutput", "cmd": f"touch {running.hostile}/done"}}}
    admin = [
        ("sys.shell", "cat local/site.toml"),
        ("sys.shell", "ls"),
        ("sys.report_env", ""),
        ("sys.sys_info", ""),
        ("sys.configure_site_log", json.dumps(logs)),
        ("train.configure_job_log", json.dumps(logs)),
        ("info.show_errors", ""),
        ("train.shutdown", ""),
        ("train.restart", ""),
        ("train.delete_run", ""),
        ("train.deploy", "no archive"),
        ("train.start_job", ""),
    ]
    answers = running.order(*(["ash", "admin", "admin", command, body] for command, body in admin))
    said = {answer for _, answer in answers}
    assert len(answers) == len(admin) and said <= {repr(f"NVFLARE_ERROR: {code}") for code in Code}, answers
    net = ["process_info", "config_vars", "comm_config", "list_pools", "msg_stats", "peers", "change_root", "stop"]
    answers = running.order(*(["ash", "_net_manager", topic, None, None] for topic in net))
    answers += running.order(["ash", "aux_communication", "anything", None, {}], ["ash", "none", "none", None, {}])
    assert {code for code, _ in answers} == {"process_exception"}, answers  # FLARE's word where nobody listens
    assert not (running.hostile / "done").exists() and missing(running.admin) == []


def bring(running, folder, name, files, meta=None):
    """Submit the agreed job with these files added, or taken away where they are None; its name at the server."""
    job = write_job(running.made.agreement, folder / name)
    for path, text in files.items():
        (job / path).parent.mkdir(parents=True, exist_ok=True)
        (job / path).unlink(missing_ok=True)
        if text is not None:
            (job / path).write_text(text)
    if meta:
        (job / "meta.json").write_text(json.dumps(json.loads((job / "meta.json").read_text()) | meta))
    return running.admin._call("submit_job", str(job))


def test_a_job_brings_nothing_but_a_digest(running, tmp_path):
    """HOCON that quotes the environment, and code of its own: sites whose server takes anything refuse it by a code."""
    client = "app/config/config_fed_client"
    jobs = [
        bring(running, tmp_path, "hocon", {f"{client}.json": None, f"{client}.conf": "a = [1] ${PLANTED}\n"}),
        bring(running, tmp_path, "code", {"app/custom/own.py": f"open('{running.hostile}/done', 'w')\n"}),
    ]
    until = time.monotonic() + 90
    while not all(running.admin.status(job).over for job in jobs):
        assert time.monotonic() < until, [running.admin.status(job) for job in jobs]
        time.sleep(0.3)
    assert not any(running.admin.status(job).state == COMPLETED for job in jobs)
    assert not (running.hostile / "done").exists()
    for name in running.made.names:
        assert not any((running.kits[name] / job).exists() for job in jobs), "a site unpacked it"
    seen = (running.hostile / "sniffed").read_bytes()
    assert SECRET.encode() not in seen and str(Code.OTHER_JOB).encode() in seen


def train(admin, trial, victim=None):
    """Submit and follow; kill the victim midway, start it again, submit again. The report, and where it was killed."""
    job = admin.submit()
    for status in admin.follow(job, 0.3):
        done = status.progress.get(victim, {}).get("round", 0)
        if 0 < done < ROUNDS:
            trial.kill(victim)
            with pytest.raises(NetworkError, match=f"not connected: {victim};"):
                admin.submit(10)
            trial.start(victim)
            wait_for_all(admin)
            return train(admin, trial)[0], done
    assert status.state == COMPLETED, status
    return admin.results(job), None


def test_a_killed_site_resumes_to_the_simulation_s_model_though_the_relay_is_hostile(running, cells):
    made, kits, trial, admin, hostile = running
    agreement, run = made.agreement, made.agreement.run
    own_forgery = pack(Header(run.mark, 1, 0), np.full(run.shape, 1e6))
    (hostile / "forge").write_bytes(own_forgery)
    report, killed_at = train(admin, trial, victim="birch")
    assert killed_at is not None, "the run was over before the site could be killed"
    forged = (hostile / "forged").read_text().split("\n")
    for kind in ("clear", "half", "replay", "reflection", "misdirected"):
        assert sum(line.startswith(kind) for line in forged) > 20, f"the relay sent too few of kind '{kind}'"

    # the model is that of an undisturbed simulation from the same draws, and every site has it
    states = {name: Store(kits[name] / "state") for name in made.names}
    own = [own_records(agreement, n, read_site(kits[n] / "local" / "site.toml"), s) for n, s in states.items()]
    expected = cells.simulated_by_engine(
        run, [node.original for node, _ in own], cells.keys(run, [s.path for s in states.values()])
    )
    payloads = [p for s in states.values() for p in s.load(run.digest).outbox.values()]
    for name, store in states.items():
        kept = Result.load(kits[name] / "state" / "results" / "first")
        np.testing.assert_allclose(kept.models, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
        assert kept.statement == evaluate.statement(agreement)
        rows = store.rows()
        assert (
            len([r for r in rows if r.kind == "release" and r.run == run.digest]) == ROUNDS + run.outside == ROUNDS + 3
        )
        store.close()
    assert report["privacy"]["epsilon"] == evaluate.statement(agreement).epsilon
    assert set(report["evaluation"]["sites"]) == set(made.names)

    # the server relayed everything and could read its own part of it, but no vector, whole or in pieces
    seen = (hostile / "sniffed").read_bytes().replace(own_forgery, b"")
    assert run.digest.encode() in seen and b"sottovoce" in seen and len(payloads) >= len(states)
    assert len(seen) > 2 * ROUNDS * min(map(len, payloads))
    assert MAGIC not in seen and MARK not in seen  # FLARE's encryption is around our envelopes
    vectors = [*expected, *(np.frombuffer(p[-32 - 8 * run.m : -32]) for p in payloads)]
    assert not any(number.tobytes() in seen for vector in vectors for number in vector)
    assert SECRET.encode() not in seen

    # what the sites said of themselves is in the report; no log of theirs came to the server
    assert json.dumps(report).count('"finished": true') == len(states)
    assert not list((kits[agreement.host]).rglob("*ERRORLOG*"))
