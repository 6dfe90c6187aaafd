"""The native loops: slopes beside the table's formulas, threads, instruction sets, and wrong arguments."""

import ast
import inspect
import multiprocessing
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contract import BASE, CASES, NAMES, cloud, difference, injected, job_of, normal_rows, with_sigma
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import _native, extension
from sottovoce.engine import ENGINES, compiled, native, reference
from sottovoce.engine.native import code_of
from sottovoce.errors import SottovoceError
from sottovoce.problem.coordinate import Dual
from sottovoce.problem.losses import LOSSES, Joint

ROUNDS = 12
EVERYONE = BASE | {"activation": "everyone", "sampling": "full", "noise": "gaussian(0.1)"}
SHARED = {
    "rows": EVERYONE,
    "drawn": EVERYONE | {"sampling": "poisson(60)"},
    "several outputs": EVERYONE | {"outputs": 3, "loss": "softmax"},
    "people": EVERYONE | {"people": True},
    "sparse": EVERYONE | {"data": "csr", "intercept": 0.75},
    "after": EVERYONE | {"method": "combine_first"},
    "descent": EVERYONE | {"method": "descent", "h": "l1(0.05)"},
    "robust": EVERYONE | {"averaging": "clipped(0.5)"},
    "trimmed after": EVERYONE | {"averaging": "trimmed(1)", "method": "combine_first"},
    "some of them": EVERYONE | {"activation": "nodes(3)", "averaging": "gossip(2)"},
}
EDGES = [
    BASE | {"activation": activation, "sampling": sampling, "data": data, "intercept": intercept} | more
    for activation, sampling, data, intercept in (
        ("edges(1)", "one", "dense", 0.0),
        ("edges(1)", "poisson(3)", "csr", 0.5),
        ("edges(1)", "fixed(3)", "dense", 0.5),
        ("ticks", "one", "csr", 0.5),
        ("ticks", "cyclic(3)", "dense", 0.0),
    )
    for more in (
        {},
        {"mixing": "lazy"},
        {"primal": "as_written"},
        {"method": "descent", "h": "l1(0.05)"},
        {"method": "combine_first"},
        {"noise": "none"},
    )
]


@pytest.fixture
def every_set():
    """The instruction sets of this processor; the best one is taken again afterwards."""
    best = _native.instruction_set()
    yield _native.instruction_sets()
    _native.use(best)


def ends(job, threads, monkeypatch, parts=None):
    monkeypatch.setattr(compiled, "available", lambda: threads)
    packed = compiled._pack([job])
    packed.run.work = 1e12  # as if there were enough to share
    if parts:
        packed.run.parts = parts
    assert packed.run.threads(threads) == min(threads, max(packed.run.parts, packed.plan.widest))
    return compiled.run(job, job.start(), 1, ROUNDS)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# --- formulas


@pytest.mark.parametrize("name", sorted(set(native.LOSSES) - {"softmax"}))
def test_slopes_are_those_of_the_table(name, every_set):
    """On a grid, at kinks, at the extremes, and where a margin is no number; for every instruction set."""
    loss = native.LOSSES[name]
    u = np.concatenate(
        [np.linspace(-5, 5, 401), [1.0 + 1e-15, 1e-300, -1e6, 1e6, 1e308, -1e308, np.inf, -np.inf, np.nan]]
    )
    for k in (loss.parameter, 0.25 if loss.parameter_name else loss.parameter):
        for y in (-1.0, 1.0):
            with np.errstate(all="ignore"):
                expected = loss.slope_formula(u, np.full_like(u, y), k)
            for instructions in every_set:
                _native.use(instructions)
                found = u.copy()
                _native.slopes(code_of(loss), k, found, np.full_like(u, y))
                assert np.allclose(found, expected, rtol=1e-14, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("name", [name for name, loss in native.LOSSES.items() if loss.targets != "real"])
@pytest.mark.parametrize("outputs", [2, 3, 10])
def test_slopes_of_several_outputs_are_those_of_the_table(name, outputs, every_set):
    loss, rng = native.LOSSES[name], np.random.default_rng(0)
    u, y = rng.normal(size=(77, outputs)) * 10.0 ** rng.integers(-2, 3, (77, 1)), rng.integers(0, outputs, 77)
    expected = Joint(loss, outputs).slope(u, y.astype(float))
    for instructions in every_set:
        _native.use(instructions)
        found = np.ascontiguousarray(u.T)
        _native.slopes(code_of(loss), float(loss.parameter), found, y.astype(float))
        assert np.allclose(found.T, expected, rtol=1e-13, atol=1e-15)


# --- loops


@pytest.mark.parametrize("case", EDGES, ids=lambda case: "-".join(map(str, case.values()))[:70])
def test_edges_and_batches_are_the_same_rounds(case):
    """The loop of edges beside that of batches, with the same noise."""
    case = case | {"steps": ("constant(1)", "sqrt(0.5)")}
    job = job_of(case, cloud(700, case["data"]), 40)
    jobs = [with_sigma(job, factor) for factor in (1.0, 0.5)]
    packed = compiled._pack(jobs)
    assert packed.run.edges
    found = compiled.run_many(jobs, [one.start() for one in jobs], 1, 40)
    packed.run.edges = False
    for one, other in zip(found, compiled.run_many(jobs, [one.start() for one in jobs], 1, 40), strict=True):
        assert difference(one, other) < 1e-11


@pytest.mark.parametrize("activation", ["edges(1)", "ticks"])
def test_runs_with_much_state_end_as_they_would_alone(activation):
    """They go one by one inside the loops: their state would not stay in a cache."""
    job = job_of(BASE | {"data": "csr", "activation": activation}, cloud(180_000, "csr"), 6)
    jobs = [with_sigma(job, factor) for factor in (1.0, 0.5)]
    assert 2 * 6 * 180_000 > 1 << 21  # FAR_STATE of src/native/job.hpp
    found = compiled.run_many(jobs, [one.start() for one in jobs], 1, 6)
    for one, end in zip(jobs, found, strict=True):
        assert same(end[:3], compiled.run(one, one.start(), 1, 6)[:3])


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("parts", [1, 5])
def test_numbers_do_not_depend_on_threads(name, parts, make_shards, monkeypatch):
    job = job_of(SHARED[name], lambda **given: make_shards(**given | {"q": 200}), ROUNDS)
    one, two, three = (ends(job, count, monkeypatch, parts) for count in (1, 2, 3))
    assert same(one, two) and same(one, three)
    silent = job_of(SHARED[name] | {"noise": "none"}, lambda **given: make_shards(**given | {"q": 200}), ROUNDS)
    found = ends(silent, 3, monkeypatch, parts)
    assert difference(found, reference.run(silent, silent.start(), 1, ROUNDS)) < 1e-12


def test_parts_follow_from_the_data_and_threads_from_the_work(make_shards):
    for records, parts in ((31, 1), (32, 2), (95, 2), (96, 3), (1000, 8)):
        job = job_of(EVERYONE, lambda records=records, **given: make_shards(**given | {"q": records}), ROUNDS)
        run = compiled._pack([job]).run
        assert run.parts == parts and run.threads(16) == 1  # too little work to share
    few = compiled._pack([job_of(BASE, make_shards, ROUNDS)]).run
    assert few.edges and few.threads(4) == 1


@pytest.mark.parametrize("case", CASES[::4], ids=NAMES[::4])
def test_instruction_sets_agree_within_the_tolerance(case, every_set, make_shards):
    job = job_of(case, make_shards, rounds=30)
    expected = reference.run(job, job.start(), 1, 30)
    for instructions in every_set:
        _native.use(instructions)
        assert difference(compiled.run(injected(job), job.start(), 1, 30), expected) < 1e-11


def test_normals_have_the_same_bits_for_every_instruction_set(every_set):
    found = []
    for instructions in every_set:
        _native.use(instructions)
        found.append(normal_rows([3, 5], range(50), range(1, 51), 1999).view(np.uint32))
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("case", [BASE, EVERYONE | {"people": True, "data": "csr"}], ids=["rows", "people"])
def test_secure_releases_have_the_same_bits_for_every_instruction_set(case, every_set, make_shards):
    job = job_of(case, make_shards, rounds=8, seed=None)
    assert job.secure and job.draws.compiled and job.draws.sums.compiled
    plain = replace(job.draws, compiled=False, sums=replace(job.draws.sums, compiled=False))
    expected = reference.run(replace(job, draws=plain), job.start(), 1, 8)
    for instructions in every_set:
        _native.use(instructions)
        assert same(reference.run(job, job.start(), 1, 8), expected)


def test_there_is_no_other_instruction_set(every_set):
    with pytest.raises(ValueError, match="no instruction set 'z80'"):
        _native.use("z80")


def forked(job, expected, queue):
    queue.put(same(compiled.run(job, job.start(), 1, ROUNDS), expected))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_process_may_be_forked_between_runs(make_shards, monkeypatch):
    job = job_of(EVERYONE, lambda **given: make_shards(**given | {"q": 200}), ROUNDS)
    expected = ends(job, 3, monkeypatch)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=forked, args=(job, expected, queue))
    child.start()
    assert queue.get(timeout=120)
    child.join(120)
    assert child.exitcode == 0 and same(ends(job, 3, monkeypatch), expected)


def test_processors_are_those_that_were_given(monkeypatch):
    monkeypatch.setattr(extension.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for said, expected in {"": 8, "3": 3, "3,2": 3, "many": 8, "0": 8, "99": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert extension.available() == expected
    monkeypatch.delenv("OMP_NUM_THREADS")
    with extension.shared(2):
        assert extension.available() == 4
        with extension.shared(3):
            assert extension.available() == 1
    assert extension.available() == 8


# --- arguments


def given_to(job):
    packed = compiled._pack([job])
    return packed.data, packed.plan, packed.model, packed.steps, packed.noise


def make(data, plan, model, steps, noise, m):
    return _native.Run(_native.Records(data), plan, model, steps, noise, m)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_wrong_arguments_are_refused_or_harmless(kind, seed):
    """One array or number of a run is changed at random: an error, or a run within its arrays."""
    rng = np.random.default_rng(seed)
    case = BASE | {"data": kind, "sampling": "poisson(3)", "activation": rng.choice(["edges(1)", "everyone"])}
    job = job_of(case, cloud(40, kind), 10)
    parts = list(given_to(job))
    which = int(rng.integers(len(parts)))
    name = str(rng.choice(parts[which]._fields))
    value = getattr(parts[which], name)
    if isinstance(value, np.ndarray) and value.size:
        changed = value.copy()
        way = int(rng.integers(4))
        if way == 0:
            changed = changed.ravel()[: int(rng.integers(value.size))].copy()
        elif way == 1:
            with np.errstate(invalid="ignore"):
                changed = changed.astype(rng.choice(["i1", "f4", "f8", "i8", "u2", "?"]))
        elif way == 2 and changed.dtype != bool:
            changed.ravel()[int(rng.integers(value.size))] = rng.choice([0, 1, 3, 100]) if way else 0
        else:
            changed = np.concatenate([changed, changed])
    elif isinstance(value, bool):
        changed = not value
    elif isinstance(value, int):
        changed = int(rng.integers(-3, 60))
    else:
        changed = value
    parts[which] = parts[which]._replace(**{name: changed})
    state = np.zeros((1, 6, 40)), np.zeros((1, 6, 40)), np.ones(6, np.int64)
    try:
        make(*parts, 40).rounds(*state, 1, 10, 1)
    except (ValueError, TypeError):
        return
    assert state[0].shape == (1, 6, 40)


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        (0, {"offsets": np.array([0, 9, 5, 24, 32, 40, 48])}, "offsets must rise"),
        (0, {"order": np.full(48, 48)}, "order must name rows"),
        (0, {"y": np.ones(47)}, "numbers|row"),
        (1, {"active": np.full(20, 6, np.int32)}, "active nodes must be nodes"),
        (1, {"active": np.zeros(20, np.int32)}, "only once in a round"),
        (1, {"bound": -1.0}, "bound of averages"),
        (1, {"pattern": np.full(10, 99, np.int32)}, "must have a pattern"),
        (2, {"loss": 99}, "no such loss"),
        (3, {"which": np.array([1])}, "must name a sequence"),
        (4, {"batch": np.full(6, 9)}, "a batch must have a record"),
        (4, {"sigma": np.ones((1, 5))}, "must have 6 numbers"),
    ],
)
def test_indices_are_checked_before_the_loops(part, change, words):
    parts = list(given_to(job_of(BASE, cloud(40), 10)))
    parts[part] = parts[part]._replace(**change)
    with pytest.raises(ValueError, match=words):
        make(*parts, 40)


def test_columns_of_sparse_rows_are_checked():
    data, *rest = given_to(job_of(BASE | {"data": "csr"}, cloud(40, "csr"), 10))
    for change, words in (
        ({"indices": np.full(len(data.indices), 40, np.int32)}, "below the number of features"),
        ({"indptr": data.indptr[::-1].copy()}, "indptr must rise"),
        ({"indptr": data.indptr + 1}, "indptr must rise"),
    ):
        with pytest.raises(ValueError, match=words):
            make(data._replace(**change), *rest, 40)


def sums_of_pairs():
    """Arguments of `exact_sums` after the records."""
    ones, whole = np.ones(48), np.arange(3)
    limits = {"step": 16, "limit": 64, "inverse": 2.0**20, "whole": 2.0**20, "length": 2.0**20}
    places = {"base": whole * 8, "sizes": np.full(3, 4), "starts": np.array([-1, 0, 4]), "picks": np.arange(8) % 8}
    of = native.SumsOf(ones * 2.0**20, ones, code_of(native.LOSSES["hinge"]), 0.0, 1, **limits, **places)
    return [of, np.ones((3, 40)), np.zeros((3, 40), np.int64)]


def dual():
    ones = np.ones(48)
    return [
        Dual(ones, ones, ones, -ones, ones, 0.0, False, 0.1, 1.0, -np.inf, np.inf),
        np.arange(48),
        *(np.zeros(48), np.zeros(40), np.zeros(40)),
    ]


def draws(count):
    return np.arange(count, dtype=np.uint64) * 0x9E3779B97F4A7C15


CALLS = {
    "exact_sums": lambda: [_native.Records(given_to(job_of(BASE, cloud(40), 10))[0]), *sums_of_pairs()],
    "dual_pass": lambda: [_native.Records(given_to(job_of(BASE, cloud(40), 10))[0]), *dual()],
    "add_gaussian": lambda: [draws(60).reshape(3, 20), np.ones(3), np.arange(3), 0, np.zeros((3, 21))],
    "add_laplace": lambda: [draws(60).reshape(3, 20), np.ones(3), np.arange(3), 0, np.zeros((3, 21))],
    "poisson_gaps": lambda: [draws(12), np.ones(3), np.full(3, 9), 1e-9, 1 << 20, np.zeros(12, np.int64)],
    "released_rows": lambda: [
        *(np.arange(12), np.full(3, 4), np.ones(20), np.ones(5), np.ones(5), np.arange(3), np.ones(3), np.zeros(12)),
    ],
    "normal_rows": lambda: [np.ones(2, np.uint32), np.arange(3), np.arange(3), np.zeros((3, 7), np.float32)],
    "draw_records": lambda: [1, np.ones(2, np.uint32), 0, 1, 100, 60, -2.0, np.zeros(100, np.int64)],
    "slopes": lambda: [8, 0.0, np.zeros((3, 5)), np.zeros(5)],
    "put_on_grid": lambda: [np.ones(12), 4, np.zeros(12)],
}


def changed(value, rng):
    """Another array or number, or the same."""
    if isinstance(value, tuple):
        name = str(rng.choice(value._fields))
        return value._replace(**{name: changed(getattr(value, name), rng)})
    if isinstance(value, float):
        return float(rng.choice([0.0, -1.0, 0.5, 1e9, np.nan]))
    if isinstance(value, int):
        return int(rng.integers(-3, 200))
    if not isinstance(value, np.ndarray):
        return value
    flat = value.ravel().copy()
    match int(rng.integers(4)):
        case 0:
            return flat[: int(rng.integers(flat.size))].copy()
        case 1:
            return value.astype(rng.choice(["i1", "f4", "f8", "i8", "u4"]))
        case 2:
            flat[int(rng.integers(flat.size))] = rng.choice([0, 1, 3, 100])
            return flat.reshape(value.shape)
    return np.concatenate([flat, flat])


@pytest.mark.parametrize("name", CALLS)
def test_calls_as_they_are_made_are_accepted(name):
    getattr(_native, name)(*CALLS[name]())


@pytest.mark.parametrize("name", CALLS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_wrong_arguments_of_every_call_are_refused_or_harmless(name, seed):
    """One argument is changed at random: an error, or a result within the arrays; sanitizers run this test, too."""
    rng, arguments = np.random.default_rng(seed), CALLS[name]()
    which = int(rng.integers(len(arguments)))
    arguments[which] = changed(arguments[which], rng)
    try:
        getattr(_native, name)(*arguments)
    except (ValueError, TypeError):
        return
    assert all(np.asarray(value).size < 10**6 for value in arguments if isinstance(value, np.ndarray))


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("draw_records", 6, 2.0),
        ("draw_records", 6, np.nan),
        ("draw_records", 5, 101),
        ("put_on_grid", 1, 1 << 62),
        ("released_rows", 1, np.full(3, 63)),
        ("released_rows", 5, np.array([0, 1, 5])),
        ("add_gaussian", 3, 2),
        ("dual_pass", 2, np.array([48])),
    ],
)
def test_numbers_that_would_leave_an_array_are_refused(name, place, value):
    arguments = CALLS[name]()
    arguments[place] = value
    with pytest.raises(ValueError):
        getattr(_native, name)(*arguments)


def test_the_stub_names_what_the_extension_has():
    stub = ast.parse(Path(native.__file__).parent.parent.joinpath("_native.pyi").read_text())
    said = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert said.keys() == {name for name in vars(_native) if not name.startswith("_")}
    run = [getattr(node, "name", None) or node.target.id for node in said["Run"].body if not isinstance(node, ast.Expr)]
    assert set(run) - {"__init__"} == {name for name, _ in inspect.getmembers(_native.Run) if not name.startswith("_")}


def test_an_installation_without_the_extension_says_so(make_shards, monkeypatch):
    unavailable = replace(ENGINES["compiled"], unavailable=lambda: "nothing native here")
    monkeypatch.setitem(ENGINES, "compiled", unavailable)
    job = job_of(BASE, make_shards, rounds=3)
    with pytest.raises(SottovoceError, match="the compiled engine cannot run: nothing native here"):
        unavailable.refuse([job])


def test_every_built_in_loss_has_a_code():
    assert [code_of(loss) for loss in native.LOSSES.values()] == list(range(9))


def test_codes_of_losses_are_those_of_the_source():
    """Else a new row of the table would give another loss's slopes."""
    source = (Path(__file__).parents[2] / "src" / "native" / "job.hpp").read_text()
    (listed,) = re.findall(r"enum Loss \{([^}]*)\}", source)
    assert [name.strip().lower() for name in listed.split(",")] == list(native.LOSSES)
    assert [code_of(loss) for loss in native.LOSSES.values()] == list(range(len(native.LOSSES)))


def test_a_loss_without_a_native_slope_runs_on_numpy_alone(make_shards, monkeypatch):
    loss = replace(LOSSES.read("squared"), name="twice", slope_formula=lambda u, y, k: np.tanh(u - y))
    job = job_of(BASE, make_shards, ROUNDS)
    job = replace(job, problem=replace(job.problem, loss=loss))
    assert "twice" in str(ENGINES["compiled"].refusal(job)) and ENGINES["reference"].refusal(job) is None
