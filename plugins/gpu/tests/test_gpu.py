"""The device's kernels, compiled for the host: their draws, and their trajectories over the contract's cover."""

import gc
import shutil
import subprocess
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
from contract import BASE, CASES, NAMES, cloud, difference, job_of, with_sigma
from scipy.sparse import csr_array

from sottovoce.algorithm.method import State
from sottovoce.auditing import audit
from sottovoce.engine import ENGINES, reference
from sottovoce.errors import SpecError
from sottovoce.experiments.compare.study import Study, compare
from sottovoce.experiments.data import load
from sottovoce.experiments.sweep import sweep
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import REGULARIZERS
from sottovoce.problem.shards import Shards, even
from sottovoce.run.solve import RunOptions, run_batch
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec
from sottovoce.streams import Purpose, Streams
from sottovoce.testing import check_engine
from sottovoce_gpu import make_engine
from sottovoce_gpu.formulas import written
from sottovoce_gpu.judge import judge_on
from sottovoce_gpu.machine import SHORT, device
from sottovoce_gpu.minimize import minimize_on
from sottovoce_gpu.products import fits
from sottovoce_gpu.rounds import averages, cast_of, run_rounds
from sottovoce_gpu.source import filled, source

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


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("case", KNOWN, ids=NAMES)
def test_the_kernels_give_the_reference_s_trajectory(case, machine, make_shards):
    job = job_of(case, make_shards, rounds=40)
    engine = make_engine(machine)
    assert engine.refusal(job) is None
    expected = reference.run(job, job.start(), 1, 40)
    (found,) = engine.run([job], [job.start()], 1, 40)
    assert difference(found, expected) < engine.rounding


def test_the_engine_obeys_the_laws_of_engines(machine):
    assert check_engine(make_engine(machine)) > 3


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
    machine.launch("normal_rows", 64, 256, 0, machine.put(given.view(np.uint8)), {"PER": 1, "MAX_THREADS": 256})
    expected, found = streams.normals(nodes, t, m), machine.get(arrays["out"])
    assert np.max(np.abs(found / expected - 1.0)) < 4e-7


@pytest.mark.parametrize("h", ["l2(0.1)", "l1(0.05)"])
@pytest.mark.parametrize("m", [7, 1000])
def test_rows_of_many_coordinates(h, m, machine):
    """More than a thread has registers for, on the host; and an odd number, whose last normal has no pair."""
    job = job_of(BASE | {"h": h, "activation": "edges(2)"}, cloud(m), rounds=60)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 60)
    assert difference(found, reference.run(job, job.start(), 1, 60)) < 1e-5


@pytest.mark.parametrize("who", ["edges(1)", "edges(2)", "edges(3)", "matching(3)", "everyone"])
@pytest.mark.parametrize("h", ["l2(0.1)", "l1(0.05)", "box(-0.5, 0.5)"])
def test_turns_of_few_nodes_and_of_all(who, h, machine, make_shards):
    """Of records that fit a thread's registers; over more rounds than the kernel has tables of on the chip."""
    case = BASE | {"h": h, "activation": who, "steps": ("constant(1)", "sqrt(0.5)")}
    job = job_of(case, make_shards, rounds=400)
    (found,) = run_rounds(machine, [job], [job.start()], 1, 400)
    assert difference(found, reference.run(job, job.start(), 1, 400)) < 1e-5
    state = job.start()
    for first, last in ((1, 1), (2, 177), (178, 400)):
        (state,) = run_rounds(machine, [job], [state], first, last)
    assert all(np.array_equal(a, b) for a, b in zip(found, state, strict=True))


@pytest.mark.parametrize("who", ["edges(1)", "everyone"])
def test_runs_of_several_seeds_end_as_each_alone(who, machine, make_shards):
    engine = make_engine(machine)
    shards = make_shards(n=6, q=8, m=4)
    case = BASE | {"activation": who, "sampling": "poisson(3)"}
    ours = [job_of(case, lambda **_: shards, rounds=30, seed=seed) for seed in (1, 2)]
    jobs = [with_sigma(job, factor) for job in ours for factor in (1.0, 0.5)]
    states = engine.run(jobs, [job.start() for job in jobs], 1, 30)
    for job, state in zip(jobs, states, strict=True):
        (alone,) = engine.run([job], [job.start()], 1, 30)
        if who == "edges(1)":
            assert all(np.array_equal(a, b) for a, b in zip(state, alone, strict=True))
        else:  # a library's products sum in an order that depends on their width
            assert difference(alone, state) < 1e-6
    assert not np.array_equal(states[0].z, states[2].z)


@pytest.mark.parametrize(("name", "who"), [("one", "edges(1)"), ("poisson(3)", "edges(1)"), ("poisson(3)", "everyone")])
def test_cutting_a_run_into_pieces_changes_nothing(name, who, machine, make_shards):
    engine, job = make_engine(machine), job_of(BASE | {"sampling": name, "activation": who}, make_shards, rounds=30)
    (whole,) = engine.run([job], [job.start()], 1, 30)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        (state,) = engine.run([job], [state], first, last)
    assert all(np.array_equal(a, b) for a, b in zip(whole, state, strict=True))


def test_launches_of_few_rounds_change_nothing(machine, make_shards, monkeypatch):
    engine, job = make_engine(machine), job_of(BASE | {"activation": "edges(2)"}, make_shards, rounds=30)
    (whole,) = engine.run([job], [job.start()], 1, 30)
    monkeypatch.setattr("sottovoce_gpu.rounds.PLACES", 9)
    (cut,) = engine.run([job], [job.start()], 1, 30)
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))
    monkeypatch.setattr("sottovoce_gpu.rounds.ROOM", machine.room_left() / 2_000)  # and fetched in parts
    job = job_of(BASE | {"activation": "edges(2)"}, make_shards, rounds=30)
    (parts,) = engine.run([job], [job.start()], 1, 30)
    assert cast_of(machine, [job]).draws.first > 1
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.targets != "classes"])
def test_every_slope_is_written_in_c(name):
    """And the C, which is nearly Python, gives the same numbers."""
    formula = LOSSES[name].slope_formula
    text = written(formula)
    assert text is not None and not any(word in text for word in ("None", "lambda"))


EVERYBODY = BASE | {"activation": "everyone", "graph": "complete"}
OTHERS = {"loss": ["hinge", "logistic", "huber(0.5)"], "h": ["l2(0.1)", "l1(0.05)", "box(-0.5, 0.5)"]}
OTHERS |= {"sampling": ["full", "poisson(3)", "fixed(3)", "cyclic(3)"], "method": ["dual_averaging", "descent"]}
OTHERS |= {"data": ["csr"], "intercept": [0.75], "uneven": [True], "primal": ["as_written"], "weights": ["records"]}
OTHERS |= {"noise": ["none", "theorem1(0.5)"], "averaging": ["exact"]}
MEANS = [EVERYBODY | {name: value} for name, values in OTHERS.items() for value in values]
MEANS = [case | {"sampling": "full"} if case["sampling"] == "one" else case for case in MEANS]
MEANS += [EVERYBODY | {"outputs": 3, "loss": loss, "sampling": "poisson(3)"} for loss in ("softmax", "logistic")]


@pytest.mark.parametrize("case", MEANS, ids=str)
def test_everybody_by_products(case, machine, make_shards):
    job = job_of(case, make_shards, rounds=40)
    assert fits(job)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 40)
    assert difference(found, reference.run(job, job.start(), 1, 40)) < 1e-5


@pytest.mark.parametrize("sampling", ["poisson(3)", "fixed(3)"])
def test_marks_of_few_rounds_at_a_time_change_nothing(sampling, machine, make_shards, monkeypatch):
    engine, job = make_engine(machine), job_of(EVERYBODY | {"sampling": sampling}, make_shards, rounds=10)
    (whole,) = engine.run([job], [job.start()], 1, 10)
    monkeypatch.setattr("sottovoce_gpu.products.MARKED", (3 * len(job.problem.shards.y), 1.0))
    (cut,) = engine.run([job], [job.start()], 1, 10)
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))


def test_noise_of_pairs_is_gone_from_the_mean(machine, make_shards):
    law = {"privacy__law": "pairs(2)", "privacy__adversary": "secret_pairs"}
    job = job_of(EVERYBODY | {"sampling": "full"}, make_shards, rounds=20, **law)
    (found,) = make_engine(machine).run([job], [job.start()], 1, 20)
    assert difference(found, reference.run(job, job.start(), 1, 20)) < 1e-5
    edge = job_of(BASE | {"sampling": "full"}, make_shards, rounds=20, **law)
    assert "noise of pairs, unless" in make_engine(machine).refusal(edge)


@pytest.mark.parametrize("h", ["l2(0.1)", "l1(0.05)", "box(-0.5, 0.5)"])
@pytest.mark.parametrize("way", [{}, {"primal": "as_written"}, {"method": "descent"}], ids=str)
def test_averages_match_those_of_the_method(h, way, machine, make_shards):
    jobs = [with_sigma(job_of(BASE | {"h": h} | way, make_shards, rounds=30), factor) for factor in (1.0, 0.5)]
    states = make_engine(machine).run(jobs, [job.start() for job in jobs], 1, 25)
    means, apart = averages(machine, jobs, states, 25)
    for job, state, mean, off in zip(jobs, states, means, apart, strict=True):
        x = job.method.average(State(*map(np.asarray, state)), 25)
        assert np.allclose(mean, x.mean(axis=0), rtol=1e-5, atol=1e-6)
        assert off == pytest.approx(np.mean(np.linalg.norm(x - x.mean(axis=0), axis=1)), rel=1e-5)
    assert averages(machine, jobs, [job.start() for job in jobs], 25) is None


@pytest.mark.parametrize("data", ["dense", "csr"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared"])
def test_models_are_judged_as_the_problem_judges_them(loss, data, machine, make_shards):
    """To 1e-6, relative or, since shares and R² may be near 0, absolute: margins are float32."""
    case = BASE | {"loss": loss, "data": data, "intercept": 0.75, "weights": "records", "uneven": True}
    problem = job_of(case, make_shards, rounds=3).problem
    models = np.random.default_rng(1).normal(size=(5, problem.m))
    other = make_shards(n=1, q=30, m=4, seed=5, real=loss == "squared")
    for held_out in (None, other):
        for mine, theirs in zip(
            judge_on(machine, problem, models, held_out), problem.judge(models, held_out), strict=True
        ):
            assert np.allclose(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_models_of_several_outputs_are_judged_there_too(loss, machine, make_shards):
    case = BASE | {"loss": loss, "outputs": 3, "intercept": 0.75, "weights": "records", "uneven": True}
    problem = job_of(case, make_shards, rounds=3).problem
    models = np.random.default_rng(1).normal(size=(5, problem.m))
    for mine, theirs in zip(judge_on(machine, problem, models), problem.judge(models), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    wrong = judge_on(machine, problem, models[::-1])  # class by class, and not the other way round
    assert not np.allclose(wrong[0], problem.judge(models)[0], rtol=1e-3)


@pytest.mark.parametrize("who", ["edges(1)", "everyone"])
def test_a_sweep_is_its_runs_and_says_on_what(who, machine, make_shards, monkeypatch):
    """Seeds together in one call; statements, which no engine makes, to the last digit."""
    monkeypatch.setitem(ENGINES, "gpu", make_engine(machine))
    base = Spec(AlgorithmSpec(30, a="constant(1)", gamma="sqrt(0.5)")).replace(
        privacy__sampling="poisson(3)", network__activation=who
    )
    grid = [base.replace(privacy__noise=noise, seed=seed) for noise in ("none", "gaussian(0.3)") for seed in (0, 1)]
    shards = make_shards()
    found = sweep(grid, shards, test=shards, execution=Execution("gpu", 3))
    expected = sweep(grid, shards, test=shards, execution=Execution("reference", 3))
    for one, other in zip(found, expected, strict=True):
        assert one.statement == other.statement and one.spec == other.spec
        assert np.allclose(one.models, other.models, rtol=1e-4, atol=1e-5)
        assert one.history.rows == [pytest.approx(row, rel=1e-4, nan_ok=True) for row in other.history.rows]
        assert one.environment["device"] == machine.name and one.environment["runs"] == 4
    with pytest.raises(SpecError, match="the reference engine runs side by side what has the same seed"):
        run_batch(grid, shards, RunOptions(Execution("reference")))


@pytest.mark.parametrize("h", ["l2(0.05)", "l1(0.02)", "elastic_net(0.01, 0.02)", "box(-0.5, 0.5)"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "huber(0.5)"])
def test_points_near_the_optimum_are_certified_as_they_are(loss, h, machine, make_shards):
    shards = make_shards(n=3, q=40, m=6, real=loss.startswith("huber"))
    problem = Problem(LOSSES.read(loss), REGULARIZERS.read(h), shards)
    known = minimize_on(machine, problem, 1e-4)
    assert known is not None
    best = optimum(problem, 1e-4, known=known)
    assert best.passes == 0 and best.gap <= 1e-4
    assert best.lower - 1e-9 <= optimum(problem, 1e-9).value <= best.value + 1e-9


def test_points_from_elsewhere_prove_nothing_by_themselves(make_shards):
    """Slopes outside their interval would give a lower bound that is none."""
    problem = Problem(LOSSES.read("hinge"), REGULARIZERS.read("l2(0.05)"), make_shards(n=3, q=40, m=6))
    true, rng = optimum(problem, 1e-9), np.random.default_rng(1)
    for far in (1.0, 100.0):
        known = rng.normal(size=problem.m), -problem.shards.y * rng.uniform(0.9, far, len(problem.shards.y))
        best = optimum(problem, 1e-6, known=known)
        assert best.lower <= true.value + 1e-9 and best.value - true.value <= 1e-6 and best.passes > 0


def test_fetched_draws_are_freed_with_the_job(machine, make_shards):
    job = job_of(BASE, make_shards, rounds=5)
    make_engine(machine).run([job], [job.start()], 1, 5)
    cast = ref(cast_of(machine, [job]))
    assert cast().draws is not None
    del job
    gc.collect()
    assert cast() is None


def test_what_cannot_be_written_is_refused(machine, make_shards):
    odd = replace(LOSSES["hinge"], name="odd", slope_formula=lambda u, y, k: -y if y * u < 1 else 0.0 * y)
    job = job_of(BASE, make_shards, rounds=5)
    job = replace(job, problem=replace(job.problem, loss=odd))
    assert "loss 'odd'" in make_engine(machine).refusal(job)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("sparse", [None, 0, 1])
def test_the_source_compiles_for_what_it_is_built_for(sparse):
    """The library of the tests is made without options; a device's module is not."""
    special = {"LINEAR": 1, "BOXED": 0, "FROZEN": 0, "DESCENT": 0, "AFTER": 0, "LOSS": 0, "ON_CHIP": 1, "PER": 2}
    options = SHORT if sparse is None else special | {"SPARSE": sparse, "MAX_THREADS": 64}
    flags = [f"-D{name}={value}" for name, value in options.items()]
    command = ["g++", "-w", "-x", "c++", "-fsyntax-only", *flags, "-"]
    made = subprocess.run(command, input=source().encode(), capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()[:500]


def test_without_a_device_the_engine_says_so(make_shards):
    found = device()
    reason = ENGINES["gpu"].refusal(job_of(BASE, make_shards, rounds=5))
    assert reason is None if not isinstance(found, str) else reason == f"the gpu engine cannot run: {found}"


def test_another_intercept_is_another_column(machine, make_shards):
    shards = make_shards()
    for intercept in (0.25, 0.75):
        case = EVERYBODY | {"sampling": "full", "intercept": intercept}
        job = job_of(case, lambda **_: shards, rounds=20)
        (found,) = make_engine(machine).run([job], [job.start()], 1, 20)
        assert difference(found, reference.run(job, job.start(), 1, 20)) < 1e-5


def off_origin(outputs, kind):
    """Rows with a mean, columns of unlike spread and a few that are long: a map takes off, scales and shortens."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 6)) * [0.02, 0.05, 0.1, 0.2, 0.02, 0.1] + [0.5, 0, 0.3, 0, 0, 0.2]
    X[::17] *= -1.2
    y = rng.integers(0, outputs, 120) if outputs > 1 else np.sign(rng.normal(size=120) + X[:, 3])
    return kind(X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]), np.asarray(y, dtype=float)


@pytest.mark.parametrize(
    ("moments", "outputs", "kind", "sampling"),
    [
        ("moments(0.1, 0.1, 0.1)", 1, np.asarray, "full"),
        ("moments(0.1, 0.2)", 3, np.asarray, "full"),
        ("moments(0.1, 0.1, 0.1)", 1, np.asarray, "poisson(6)"),
        ("moments(0.2)", 1, csr_array, "full"),
        ("none", 1, np.asarray, "fixed(6)"),
    ],
)
def test_runs_that_map_and_partition_the_same_records_their_own_ways(
    moments, outputs, kind, sampling, machine, monkeypatch
):
    """Products over the records as they came, against runs on mapped copies, one by one; and the maps do something."""
    monkeypatch.setitem(ENGINES, "gpu", make_engine(machine))
    X, y = off_origin(outputs, kind)
    spec = Spec(AlgorithmSpec(40, a="constant(1)", gamma="constant(2)", counted="tail(0.5)")).replace(
        problem__loss="hinge" if outputs == 1 else "softmax", problem__outputs=outputs, problem__intercept=0.25,
        network__activation="everyone", network__averaging="exact", privacy__sampling=sampling, privacy__clip=0.4,
        privacy__noise="private(30)", privacy__moments=moments, problem__weights="records",
    )  # fmt: skip
    specs = [spec.replace(seed=seed, privacy__noise=f"private({e})") for e in (30, 60) for seed in range(3)]
    partitioned = [Shards.of(X, y, *even(120, 4, np.random.default_rng(seed))) for seed in range(3)] * 2
    found = run_batch(specs, partitioned, RunOptions(Execution("gpu", observations=2)))
    for one, mine, shards in zip(found, specs, partitioned, strict=True):
        (alone,) = run_batch([mine], shards, RunOptions(Execution("reference", observations=2)))
        assert np.allclose(one.models, alone.models, rtol=1e-4, atol=1e-5 * np.max(np.abs(alone.models)))
        assert one.prepared.statement == alone.prepared.statement
        assert one.history.last == pytest.approx(alone.history.last, rel=1e-4, nan_ok=True)
    if moments != "none":
        shape = found[0].prepared.row_map
        assert np.ptp(shape.scale) > 0.1 or abs(shape.scale[0] - 1) > 0.1
        if kind is np.asarray:
            assert shape.center is not None and np.max(alone.prepared.job.problem.shards.norms) > 1.9
        refused = ENGINES["compiled"].refusal(found[0].prepared.job)
        assert refused.startswith("the compiled engine does not know the map of records that are not mapped yet")
        with pytest.raises(SpecError, match="map their own records"):
            run_batch(specs, partitioned, RunOptions(Execution("compiled")))
    swept = sweep(specs[:2], partitioned[0], execution=Execution("gpu", observations=2))
    assert [result.environment["runs"] for result in swept] == [2, 2]
    assert np.allclose(swept[0].models, found[0].models, rtol=1e-4, atol=1e-5 * np.max(np.abs(found[0].models)))
    edges = [each.replace(network__activation="edges(1)", network__averaging="gossip") for each in specs[:2]]
    if outputs == 1 and sampling != "full":  # where products do not fit, each run has its own copy
        alone = sweep(edges, partitioned[0], execution=Execution("gpu", observations=2))
        assert [result.environment["runs"] for result in alone] == ([1, 1] if moments != "none" else [2, 2])
    other = Shards.of(X.copy(), y, partitioned[0].offsets)
    with pytest.raises(SpecError, match="on the same records, in nodes of the same sizes"):
        run_batch(specs[:2], [partitioned[0], other], RunOptions(Execution("gpu")))


def quieter(job, copies):
    """What adds half of the noise that it states."""
    release = replace(job.release, sigma=tuple(0.5 * sigma for sigma in job.release.sigma))
    return replace(job, release=release, draws=replace(job.draws, release=release))


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("sampling", ["full", "poisson(2)"])
def test_an_audit_attacks_the_device_s_own_draws(sampling, machine, monkeypatch):
    """An honest run is nearly caught and not quite; one with half of its noise is."""
    monkeypatch.setitem(ENGINES, "gpu", make_engine(machine))
    spec = Spec(AlgorithmSpec(rounds=4, gamma="constant(1e6)"), seed=1).replace(
        privacy__noise="private(4)", network__activation="everyone", privacy__sampling=sampling
    )
    how = {"runs": 1000, "choosing": 0.0, "seed": 11, "engine": "gpu"}
    found = audit(spec, [6, 6], 3, **how)
    assert not found.broken and found.at_least > 2.0 and found.engine == "gpu"
    assert found.at_least == pytest.approx(audit(spec, [6, 6], 3, **how | {"engine": "reference"}).at_least, abs=0.3)
    assert audit(spec, [6, 6], 3, plant=quieter, **how).broken


def test_a_comparison_takes_the_seeds_of_an_algorithm_together(machine, monkeypatch):
    """And what the engine does not know is run as always, and says so."""
    monkeypatch.setitem(ENGINES, "gpu", make_engine(machine))
    data = load("breast_cancer", loss=LOSSES.make("logistic"))
    settings = {"h": "l2(0.1)", "batch": 16, "epochs": 2.0}
    study = Study.of(data, ["dsgd", "tracking", "dpsgd", "algorithm1"], settings, nodes=5, seeds=2)
    found, expected = compare(study, engine="gpu"), compare(study, engine="reference")
    for one, other in zip(found, expected, strict=True):
        known = one["algorithm"] != "tracking"
        assert (one["engine"] == "gpu") == known and one.get("runs") == (2 if known else None)
        assert one["spec"] == other["spec"] and one["true_epsilon"] == other["true_epsilon"]
        for name in ("objective", "test_accuracy", "test_auc", "suboptimality"):
            assert one[name] == pytest.approx(other[name], rel=1e-4)
