"""Everybody in one batch: runs end where the reference does, however many of them run in a block."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contract import BASE, cloud, difference, job_of, with_sigma

from sottovoce.engine import reference
from sottovoce_gpu import all_nodes, make_engine, rounds
from sottovoce_gpu.rounds import run_rounds

SEVERAL = pytest.mark.parametrize(
    "machine", ["host with 3 threads", pytest.param("device", marks=pytest.mark.gpu)], indirect=True
)
EVERYBODY = BASE | {"activation": "everyone", "graph": "complete"}


@pytest.fixture
def went(overhear):
    """Whether runs went in one batch, call by call."""
    return overhear(rounds, "run_all_nodes")


def engine_on(machine):
    """Without products, which would take so few records as these."""
    return replace(make_engine(machine), run_jobs=partial(run_rounds, machine))


CASES = [
    {},
    {"h": "l1(0.05)"},
    {"h": "box(-0.5, 0.5)"},
    {"loss": "logistic", "h": "elastic_net(0.05, 0.1)"},
    {"method": "descent", "h": "l1(0.05)"},
    {"primal": "as_written", "h": "l1(0.05)"},
    {"noise": "none"},
    {"intercept": 0.75},
    {"uneven": True, "weights": "records"},
    {"sampling": "cyclic(1)"},
]


@SEVERAL
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("odd", [1, 4])
def test_the_kernel_of_all_nodes_ends_where_the_reference_does(case, odd, machine, went):
    """With as many coordinates as threads have room for, and with fewer."""
    job = job_of(
        EVERYBODY | {"steps": ("constant(1)", "sqrt(0.5)")} | case, cloud(4 * machine.threads - odd), rounds=60
    )
    (found,) = engine_on(machine).run([job], [job.start()], 1, 60)
    assert went == [True]
    assert difference(found, reference.run(job, job.start(), 1, 60)) < 1e-5
    state = job.start()
    for first, last in ((1, 1), (2, 33), (34, 60)):
        (state,) = engine_on(machine).run([job], [state], first, last)
    assert went == [True] * 4
    assert all(np.array_equal(a, b) for a, b in zip(found, state, strict=True))


@SEVERAL
@pytest.mark.parametrize("h", ["l2(0.05)", "l1(0.05)"])
def test_how_many_runs_share_a_block_changes_no_bit(h, machine, went, monkeypatch):
    """Two seeds, two step sizes, and seven noises that share a seed's normals, one of them silent."""
    shards = cloud(11)()
    ours = [
        job_of(EVERYBODY | {"h": h}, lambda **_: shards, rounds=24, seed=seed, algorithm__gamma=gamma)
        for seed in (1, 2)
        for gamma in ("constant(5)", "constant(4)")
    ]
    jobs = [with_sigma(job, factor) for job in ours for factor in (1.0, 0.5, 0.0, 2.0, 3.0, 0.1, 0.2)]
    engine = engine_on(machine)
    states = engine.run(jobs, [job.start() for job in jobs], 1, 24)
    monkeypatch.setattr(
        all_nodes, "COUNTERS", 4
    )  # for fewer of them; the room is for as many as the kernel was built for
    fewer = engine.run(jobs, [job.start() for job in jobs], 1, 24)
    alone = [engine.run([job], [job.start()], 1, 24)[0] for job in jobs[::5]]
    assert went == [True] * (2 + len(alone))
    for k, (state, other) in enumerate(zip(states, fewer, strict=True)):
        for a, b, c in zip(state, other, alone[k // 5] if k % 5 == 0 else other, strict=True):
            assert np.array_equal(a, b) and np.array_equal(a, c)
    assert not np.array_equal(states[0].z, states[1].z) and not np.array_equal(states[0].z, states[14].z)


@SEVERAL
def test_nodes_that_differ_are_not_run_together(machine, went):
    """From where they stand it is another kernel's, and from then on: their sums stay apart."""
    job = job_of(EVERYBODY, cloud(9), rounds=40)
    start = job.start()
    other = start._replace(z=start.z + np.arange(len(start.z))[:, None])
    engine = engine_on(machine)
    (state,) = engine.run([job], [other], 1, 20)
    (state,) = engine.run([job], [state], 21, 40)
    assert went == []
    assert difference(state, reference.run(job, other, 1, 40)) < 1e-5


@SEVERAL
def test_nodes_of_the_kernel_have_slept_as_long(machine, went):
    job = job_of(EVERYBODY, cloud(9), rounds=40)
    start = job.start()._replace(since=np.where(np.arange(job.problem.shards.n) == 1, 3, 1))
    (state,) = engine_on(machine).run([job], [start], 3, 40)
    assert went == []
    assert difference(state, reference.run(job, start, 3, 40)) < 1e-5


@pytest.mark.parametrize("case", [{"graph": "ring"}, {"sampling": "fixed(3)"}, {"method": "combine_first"}], ids=str)
def test_what_the_kernel_of_all_nodes_lacks_goes_block_by_block(case, machine, went):
    job = job_of(EVERYBODY | case, cloud(9), rounds=30)
    (found,) = engine_on(machine).run([job], [job.start()], 1, 30)
    assert went == []
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5


def test_rows_that_have_no_room_go_block_by_block(machine, went, monkeypatch):
    monkeypatch.setattr(machine, "room", 6_000)
    job = job_of(EVERYBODY, cloud(4), rounds=30)
    (found,) = engine_on(machine).run([job], [job.start()], 1, 30)
    assert went == [False]
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5
