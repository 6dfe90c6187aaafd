"""Teams of runs in clusters of blocks: they end where the reference does, however they are laid out."""

import numpy as np
import pytest
from contract import BASE, cloud, difference, job_of, with_sigma
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.engine import reference
from sottovoce_gpu import clusters, make_engine
from sottovoce_gpu.machine import Cuda, Host


@pytest.fixture
def went(overhear):
    """How teams were laid out, call by call; None where they were too large."""
    return overhear(clusters, "layout")


CASES = [
    {},
    {"h": "l1(0.05)"},
    {"h": "box(-0.5, 0.5)"},
    {"loss": "logistic", "h": "elastic_net(0.05, 0.1)"},
    {"activation": "edges(2)"},
    {"activation": "edges(2)", "h": "l1(0.05)", "mixing": "lazy"},
    {"activation": "matching(2)"},
    {"activation": "nodes(3)", "graph": "ring"},
    {"activation": "edges(2)", "method": "combine_first"},
    {"method": "descent", "h": "l1(0.05)"},
    {"primal": "as_written", "h": "l1(0.05)"},
    {"noise": "none"},
    {"intercept": 0.75},
    {"sampling": "cyclic(1)", "graph": "ring", "averaging": "gossip(2)", "activation": "edges(2)"},
]


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("m", [5, 48])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_clusters_end_where_the_reference_does(case, m, machine, went):
    """Over more rounds than there are tables of on the chip; with a tile that is full, and with some that are not."""
    case = BASE | {"steps": ("constant(1)", "sqrt(0.5)")} | case
    job = job_of(case, cloud(m), rounds=200)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 200)
    assert len(went) == 1 and went[0] is not None
    assert difference(found, reference.run(job, job.start(), 1, 200)) < 1e-5
    state = job.start()
    for first, last in ((1, 1), (2, 77), (78, 200)):
        (state,) = make_engine(machine).run([job], [state], first, last)
    assert all(np.array_equal(a, b) for a, b in zip(found, state, strict=True))


@pytest.mark.parametrize("who", ["edges(1)", "edges(2)"])
def test_how_runs_are_laid_out_changes_no_bit(who, machine, went, monkeypatch):
    """Several seeds, noises that share a seed's normals, and two step sizes: four teams, and then cut."""
    case, data = BASE | {"activation": who, "h": "l1(0.05)"}, cloud(4 * machine.lanes * 5 + 3)
    shards = data()
    ours = [
        job_of(case, lambda **_: shards, rounds=24, seed=seed, algorithm__gamma=gamma)
        for seed in (1, 2)
        for gamma in ("constant(5)", "constant(4)")
    ]
    jobs = [with_sigma(job, factor) for job in ours for factor in (1.0, 0.5, 0.0)]
    engine = make_engine(machine)
    states = engine.run(jobs, [job.start() for job in jobs], 1, 24)
    whole = went[-1]
    alone = [engine.run([job], [job.start()], 1, 24)[0] for job in jobs]
    monkeypatch.setattr(machine, "cluster", 1)
    monkeypatch.setattr(clusters, "WARPS", (8,))  # fewer of them together
    cut = engine.run(jobs, [job.start() for job in jobs], 1, 24)
    assert len({each.blocks for each in went}) > 1 and whole.seats == 3 and went[-1].seats == 2
    for state, one, other in zip(states, alone, cut, strict=True):
        for a, b, c in zip(state, one, other, strict=True):
            assert np.array_equal(a, b) and np.array_equal(a, c)
    assert not np.array_equal(states[0].z, states[1].z) and not np.array_equal(states[0].z, states[6].z)


@pytest.mark.parametrize(
    "case", [{"sampling": "poisson(1)"}, {"activation": "edges(3)"}, {"sampling": "fixed(3)"}], ids=str
)
def test_what_clusters_do_not_know_goes_block_by_block(case, machine, went):
    job = job_of(BASE | case, cloud(9), rounds=30)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 30)
    assert not went
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5


def test_states_too_large_for_a_cluster_go_block_by_block(machine, went, monkeypatch):
    monkeypatch.setattr(machine, "room", 2_000)
    job = job_of(BASE, cloud(90), rounds=30)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 30)
    assert went == [None]
    assert difference(found, reference.run(job, job.start(), 1, 30)) < 1e-5


@given(
    st.sampled_from([Host, Cuda]),
    st.integers(1, 100),
    st.integers(1, 30_000),
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
    st.sampled_from([2, 4]),
    st.booleans(),
)
def test_layouts_have_room_for_what_they_hold(kind, n, m, sizes, upto, linear):
    """Every counter has a warp, every team its seats, and every block its room; and no fewer seats than needed."""
    machine = kind.__new__(kind)
    machine.room, machine.blocks, machine.cluster = getattr(kind, "room", 232_448), 132, 8
    found = clusters.layout(machine, n, m, sizes, upto, linear)
    if found is None:
        assert 8 * n * m > 0.3 * machine.room or m > 4 * 14 * machine.lanes
        return
    assert found.room <= machine.room and found.warps <= 16 and upto < found.depth <= 8
    assert 2 * 4 * machine.lanes * found.tiles * found.blocks >= m
    assert 2 * 4 * machine.lanes * found.tiles * (found.blocks - 1) < m
    assert found.room >= 4 * n * found.seats * 2 * 4 * machine.lanes * found.tiles
    assert 1 <= found.seats <= max(sizes)
