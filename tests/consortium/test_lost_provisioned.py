"""The real thing with sites that are lost for good: kits, mutual TLS, a relay, and two of the site processes killed."""

import random
import socket
import time

import numpy as np
import pytest

from sottovoce.consortium.check import Trial
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, administrator
from sottovoce.node.ledger import runs_of
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytestmark = pytest.mark.slow
NAMES = ("ash", "birch", "cedar", "dogwood", "elm")
ROUNDS, LOST_AFTER = 150, 15.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def missing(admin):
    return [each.site for each in admin.who(10) if not each.connected]


def test_killed_sites_are_left_out_and_the_others_finish(small_at, tmp_path):
    draws = random.Random(11)
    made = small_at(
        tmp_path,
        names=NAMES,
        rounds=ROUNDS,
        port=free_port(),
        timeout=240,
        averaging="exact",
        more=f"lost_after = {LOST_AFTER}",
        private='law = "pairs(10)"\nadversary = "secret_pairs(1)"\nmay_lose = 2',
    )
    agreement, run = made.agreement, made.agreement.run
    kits = provision(agreement, tmp_path / "consortium.toml", tmp_path / "kits")
    for name in NAMES:
        made.settle(kits[name], name)
    victims = {name: draws.randrange(5, ROUNDS // 2) for name in draws.sample(NAMES, 2)}
    with Trial(kits, tmp_path / "logs") as trial:
        trial.start(agreement.host)
        with administrator(kits[agreement.admin], patience=240) as admin:  # before so many processes start at once
            trial.start(*NAMES)
            until = time.monotonic() + 240
            while missing(admin):
                assert time.monotonic() < until, f"{missing(admin)} did not connect"
            job, alive, killed_at = admin.submit(), dict(victims), 0.0
            for status in admin.follow(job, 0.3):
                done = max((row["round"] for row in status.progress.values()), default=0)
                for name in [name for name, t in alive.items() if done >= t]:
                    del alive[name]
                    trial.kill(name)
                    killed_at = time.monotonic()
            assert status.state == COMPLETED, status
            report = admin.results(job)
    print(f"over {time.monotonic() - killed_at:.1f} s after the last site was killed")
    assert not alive and sorted(report["removed"]) == sorted(victims) and "failed" not in report
    left = [name for name in NAMES if name not in victims]
    kept = [Result.load(kits[name] / "state" / "results" / "first") for name in left]
    assert all(np.array_equal(one.models, kept[0].models) for one in kept)
    assert kept[0].statement == statement(agreement)
    for name in left:
        store = Store(kits[name] / "state", reading=True)
        rows = store.rows()
        whole = runs_of(rows)
        count = sum(row.kind == "release" and whole.get(row.run, row.run) == run.digest for row in rows)
        assert ROUNDS <= count <= ROUNDS + 2 and store.ledger_faults() == []
        store.close()
