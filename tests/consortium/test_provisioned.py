"""A provisioned consortium on loopback: a server and three sites as processes, mutual TLS, one site killed midway."""

import json
import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from sottovoce.consortium import evaluation as evaluate
from sottovoce.consortium.check import Trial, check_kit
from sottovoce.consortium.node import own_records
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, administrator
from sottovoce.node.message import MAGIC
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytestmark = pytest.mark.slow
ROUNDS = 250


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def wait_for_all(admin, since=0.0):
    until = time.monotonic() + 120
    while admin.missing(since):
        assert time.monotonic() < until, f"{admin.missing(since)} did not connect"
        time.sleep(0.3)


def train(admin, trial, victim=None):
    """Submit and follow; kill the victim midway, start it again, submit again. The report, and where it was killed."""
    job = admin.submit()
    for status in admin.follow(job, 0.3):
        done = status.progress.get(victim, {}).get("round", 0)
        if 0 < done < ROUNDS:
            trial.kill(victim)
            began = time.time()
            trial.start(victim)
            wait_for_all(admin, began)
            return train(admin, trial)[0], done
    assert status.state == COMPLETED, status
    return admin.results(job), None


def test_a_killed_site_resumes_to_the_simulation_s_model_and_the_server_sees_no_vector(small, cells, tmp_path):
    made = small(rounds=ROUNDS, port=free_port(), timeout=120, sampling="fixed(4)")
    agreement, run = made.agreement, made.agreement.run
    kits = provision(agreement, tmp_path / "consortium.toml", tmp_path / "kits")
    for name in made.names:
        made.settle(kits[name], name)
        findings = check_kit(kits[name])
        assert all(finding.good for finding in findings), findings
        assert run.digest in (kits[name] / "README.md").read_text()
    sniffed = tmp_path / "sniffed"
    path = os.pathsep.join([str(Path(__file__).parent / "sniffer"), os.environ.get("PYTHONPATH", "")])
    with Trial(kits, tmp_path / "logs") as trial:
        trial.start(agreement.host, environment={"PYTHONPATH": path, "SNIFFED": str(sniffed)})
        trial.start(*made.names)
        with administrator(kits[agreement.admin], patience=120) as admin:
            wait_for_all(admin)
            report, killed_at = train(admin, trial, victim="birch")
    assert killed_at is not None, "the run was over before the site could be killed"

    # the model is that of an undisturbed simulation from the same draws, and every site has it
    states = {name: Store(kits[name] / "state") for name in made.names}
    own = [own_records(agreement, n, read_site(kits[n] / "local" / "site.toml"), s) for n, s in states.items()]
    expected = cells.simulated(
        run, [node.problem for node, _ in own], cells.keys(run, [s.path for s in states.values()])
    )
    payloads = [p for s in states.values() for p in s.load(run.digest).outbox.values()]
    for name, store in states.items():
        kept = Result.load(kits[name] / "state" / "results" / "first")
        np.testing.assert_allclose(kept.models, expected, rtol=0, atol=1e-9)
        assert kept.statement == evaluate.statement(agreement)
        rows = store.rows()
        assert len([r for r in rows if r.kind == "release" and r.run == run.digest]) == run.event(0).rounds
        store.close()
    assert report["privacy"]["epsilon"] == evaluate.statement(agreement).epsilon
    assert set(report["evaluation"]["sites"]) == set(made.names)

    # the server relayed everything and could read its own part of it, but no vector, whole or in pieces
    seen = sniffed.read_bytes()
    assert run.digest.encode() in seen and b"sottovoce" in seen and len(payloads) >= len(states)
    assert len(seen) > 2 * ROUNDS * len(payloads[0])
    assert MAGIC not in seen
    vectors = [*expected, *(np.frombuffer(p[-32 - 8 * run.m : -32]) for p in payloads)]
    assert not any(number.tobytes() in seen for vector in vectors for number in vector)

    # what the sites said of themselves is in the report; no log of theirs came to the server
    assert json.dumps(report).count('"finished": true') == len(states)
    assert not list((kits[agreement.host]).rglob("*ERRORLOG*"))
