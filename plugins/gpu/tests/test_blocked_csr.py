"""States that do not fit the chip, over CSR rows: spans of turns end where the reference does."""

import numpy as np
import pytest
import scipy.sparse
from contract import BASE, difference, job_of, with_sigma

from sottovoce.engine import reference
from sottovoce.problem.shards import Shards
from sottovoce_gpu import blocked_csr, make_engine, rounds


@pytest.fixture
def went(machine, monkeypatch, overhear):
    """Whether spans were processed, call by call."""
    monkeypatch.setattr(blocked_csr, "PLACES", 24)
    monkeypatch.setattr(blocked_csr, "WORKERS", min(blocked_csr.WORKERS, 1024 * machine.lanes))
    monkeypatch.setattr(blocked_csr, "LISTED", 1_000_000)
    return overhear(rounds, "run_spans")


def text(m=10_001, uneven=False):
    """Six nodes with rows of few words, some of them in many rows; so long that a chip has no room for their states."""
    rng = np.random.default_rng(0)
    sizes = [40, 50, 30, 45, 20, 55] if uneven else [40] * 6
    X = rng.random((240, m)) * (rng.random((240, m)) < 0.6 * np.exp(-np.linspace(0, 30, m)))
    X /= np.maximum(1.0001 * np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    y = np.where(rng.random(240) < 0.5, 1.0, -1.0)
    return Shards.of(scipy.sparse.csr_array(X), y, np.concatenate([[0], np.cumsum(sizes)]))


CASES = [
    {},
    {"h": "l1(0.05)"},
    {"h": "box(-0.5, 0.5)"},
    {"loss": "logistic"},
    {"activation": "edges(2)"},
    {"activation": "edges(2)", "h": "l1(0.05)"},
    {"activation": "matching(2)", "h": "elastic_net(0.05, 0.1)"},
    {"activation": "everyone"},
    {"activation": "everyone", "h": "l1(0.05)"},
    {"activation": "nodes(3)"},
    {"primal": "as_written"},
    {"noise": "none"},
    {"mixing": "lazy"},
    {"mixing": "lazy", "activation": "edges(2)", "h": "l1(0.05)"},
    {"intercept": 0.75},
    {"sampling": "cyclic(1)", "graph": "ring", "averaging": "gossip(2)"},
    {"loss": "squared", "uneven": True, "weights": "records"},
]


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_spans_end_where_the_reference_does(case, machine, went):
    job = job_of(BASE | case, lambda **_: text(uneven=case.get("uneven", False)), rounds=90)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 90)
    assert went == [True]
    assert difference(found, reference.run(job, job.start(), 1, 90)) < 1e-5


@pytest.mark.parametrize("who", ["edges(2)", "everyone"])
def test_runs_together_end_as_each_alone(who, machine, went):
    """Several seeds, several noises that share a seed's normals, and two step sizes: that makes four teams."""
    shards = text()
    case = BASE | {"activation": who, "h": "l1(0.05)"}
    ours = [
        job_of(case, lambda **_: shards, rounds=24, seed=seed, algorithm__gamma=gamma)
        for seed in (1, 2)
        for gamma in ("constant(5)", "constant(4)")
    ]
    jobs = [with_sigma(job, factor) for job in ours for factor in (1.0, 0.0)]
    engine = make_engine(machine)
    states = engine.run(jobs, [job.start() for job in jobs], 1, 24)
    assert went == [True]
    for job, state in zip(jobs, states, strict=True):
        (alone,) = engine.run([job], [job.start()], 1, 24)
        assert all(np.array_equal(a, b) for a, b in zip(state, alone, strict=True))
    assert not np.array_equal(states[0].z, states[1].z) and not np.array_equal(states[0].z, states[4].z)


def test_cutting_into_pieces_changes_rounding_alone(machine, went):
    """A span ends where the piece does, and what earlier records of a span add is summed in another order."""
    engine, job = make_engine(machine), job_of(BASE, lambda **_: text(), rounds=60)
    (whole,) = engine.run([job], [job.start()], 1, 60)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 49), (50, 60)):
        (state,) = engine.run([job], [state], first, last)
    assert all(went) and len(went) == 5
    assert difference(state, whole) < 1e-6


def test_everybody_from_where_each_stands(machine, went):
    """The kernel of all nodes needs nodes that stand at the same point."""
    job = job_of(BASE | {"activation": "everyone"}, lambda **_: text(), rounds=20)
    start = job.start()
    start = start._replace(z=np.random.default_rng(1).normal(size=start.z.shape).astype(np.float32).astype(float))
    (found,) = make_engine(machine).run([job], [start], 1, 20)
    assert went == [True]
    assert difference(found, reference.run(job, start, 1, 20)) < 1e-5


UNKNOWN = [{"method": "descent"}, {"sampling": "fixed(3)"}, {"primal": "as_written", "h": "l1(0.05)"}]


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("case", UNKNOWN, ids=str)
def test_what_spans_do_not_know_is_streamed(case, machine, went):
    job = job_of(BASE | case, lambda **_: text(), rounds=30)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 30)
    assert not went
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5


def test_states_of_too_many_nodes_are_streamed(machine, went, monkeypatch):
    monkeypatch.setattr(blocked_csr, "shaped", lambda *_: None)
    job = job_of(BASE, lambda **_: text(), rounds=30)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 30)
    assert went == [False]
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5
