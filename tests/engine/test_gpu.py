"""The device's kernels, compiled for the host: their draws, and their trajectories over the contract's cover."""

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contract import BASE, CASES, NAMES, cloud, difference, job_of, with_sigma

from sottovoce.engine import ENGINES, reference
from sottovoce.engine.gpu.formulas import written
from sottovoce.engine.gpu.machine import Cuda, Host, device
from sottovoce.engine.gpu.runs import run_on
from sottovoce.engine.gpu.source import filled
from sottovoce.problem.losses import LOSSES
from sottovoce.streams import Purpose, Streams

HOSTS = ["host", "host with 3 threads"]


@pytest.fixture(scope="module", params=[*HOSTS, pytest.param("device", marks=pytest.mark.gpu)])
def machine(request):
    if request.param == "device":
        found = device()
        return pytest.skip(found) if isinstance(found, str) else Cuda(special=False)
    if shutil.which("g++") is None:
        return pytest.skip("no C++ compiler")
    return Host(3 if request.param == HOSTS[1] else 1)


def engine_on(machine):
    """The engine's own record, run elsewhere."""
    return replace(ENGINES["gpu"], together=partial(run_on, machine), lacking=None)


STEAD = {
    "loss": {"softmax": "logistic"},
    "h": {"l2_ball(0.7)": "l1(0.05)", "l1_ball(0.7)": "elastic_net(0.05, 0.1)", "simplex": "box(-0.5, 0.5)"},
    "distance": {"centre": "euclidean", "entropy": "euclidean"},
    "averaging": {"clipped(0.5)": "gossip", "trimmed(1)": "gossip(2)"},
    "curvature": {0.2: 0.0},
    "outputs": {3: 1},
    "people": {True: False},
}
"""What the engine does not know, and what is put in its place: so that all pairs of what it knows are run."""


def known(case):
    case = {name: STEAD.get(name, {}).get(value, value) for name, value in case.items()}
    return case | {"averaging": "gossip"} if case["averaging"] == "exact" and case["graph"] != "complete" else case


KNOWN = [known(case) for case in CASES]


@pytest.mark.parametrize("case", KNOWN, ids=NAMES)
def test_the_kernels_give_the_reference_s_trajectory(case, machine, make_shards):
    job = job_of(case, make_shards, rounds=40)
    engine = engine_on(machine)
    assert engine.refusal(job) is None
    expected = reference.run(job, job.start(), 1, 40)
    (found,) = engine.run([job], [job.start()], 1, 40)
    assert difference(found, expected) < engine.rounding


def test_normals_are_those_of_the_streams(machine):
    streams, m = Streams(3), 4097
    nodes, t = np.arange(40) % 7, 1 + np.arange(40) ** 2
    given = filled("Normals")
    given["rows"], given["m"] = len(t), m
    given["k0"], given["k1"] = (int(word[0]) for word in streams.key(Purpose.NOISE))
    arrays = {"nodes": machine.put(nodes, np.int32), "rounds": machine.put(t, np.int32)}
    arrays["out"] = machine.put(np.zeros((len(t), m)), np.float32)
    for name, values in arrays.items():
        given[name] = machine.address(values)
    machine.launch("normal_rows", 64, 256, 0, machine.put(given.view(np.uint8)), {"PER": 1, "MOST": 256})
    expected, found = streams.normals(nodes, t, m), machine.get(arrays["out"])
    assert np.max(np.abs(found / expected - 1.0)) < 4e-7


@pytest.mark.parametrize("h", ["l2(0.1)", "l1(0.05)"])
@pytest.mark.parametrize("m", [7, 1000])
def test_rows_of_many_coordinates(h, m, machine):
    """More than a thread has registers for, on the host; and an odd number, whose last normal has no pair."""
    job = job_of(BASE | {"h": h, "activation": "edges(2)"}, cloud(m), rounds=60)
    (found,) = engine_on(machine).run([job], [job.start()], 1, 60)
    assert difference(found, reference.run(job, job.start(), 1, 60)) < 1e-5


def test_runs_of_several_seeds_end_as_each_alone(machine, make_shards):
    engine = engine_on(machine)
    shards = make_shards(n=6, q=8, m=4)
    ours = [job_of(BASE, lambda **_: shards, rounds=30, seed=seed) for seed in (1, 2)]
    jobs = [with_sigma(job, factor) for job in ours for factor in (1.0, 0.5)]
    states = engine.run(jobs, [job.start() for job in jobs], 1, 30)
    for job, state in zip(jobs, states, strict=True):
        (alone,) = engine.run([job], [job.start()], 1, 30)
        assert all(np.array_equal(a, b) for a, b in zip(state, alone, strict=True))
    assert not np.array_equal(states[0].z, states[2].z)


@pytest.mark.parametrize("name", ["one", "poisson(3)"])
def test_cutting_a_run_into_pieces_changes_nothing(name, machine, make_shards):
    engine, job = engine_on(machine), job_of(BASE | {"sampling": name}, make_shards, rounds=30)
    (whole,) = engine.run([job], [job.start()], 1, 30)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        (state,) = engine.run([job], [state], first, last)
    assert all(np.array_equal(a, b) for a, b in zip(whole, state, strict=True))


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.targets != "classes"])
def test_every_slope_is_written_in_c(name):
    """And the C, which is nearly Python, gives the same numbers."""
    formula = LOSSES[name].slope_formula
    text = written(formula)
    assert text is not None and not any(word in text for word in ("None", "lambda"))


def test_what_cannot_be_written_is_refused(machine, make_shards):
    odd = replace(LOSSES["hinge"], name="odd", slope_formula=lambda u, y, k: -y if y * u < 1 else 0.0 * y)
    job = job_of(BASE, make_shards, rounds=5)
    job = replace(job, problem=replace(job.problem, loss=odd))
    assert "loss 'odd'" in engine_on(machine).refusal(job)


def test_without_a_device_the_engine_says_so(make_shards):
    found = device()
    reason = ENGINES["gpu"].refusal(job_of(BASE, make_shards, rounds=5))
    assert reason is None if not isinstance(found, str) else reason == f"the gpu engine cannot run: {found}"
