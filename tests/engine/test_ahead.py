"""Rounds looked at ahead of time, and gone through in parts: faster, and the same to the last bit."""

import itertools

import numpy as np
import pytest
from contract import BASE, allowed, cloud, difference, from_python, injected, job_of, with_sigma
from contract import CASES as COVER
from scipy import sparse

from sottovoce.engine import compiled, reference
from sottovoce.engine.kernel import arguments as kernel_arguments
from sottovoce.engine.kernel import draws as noise
from sottovoce.problem.shards import Shards

NODES, ROUNDS = 6, 60
CASES = [
    BASE
    | {"h": h, "method": method, "activation": activation, "sampling": sampling, "steps": ("constant(1)", "sqrt(0.5)")}
    for (h, method), (activation, sampling) in itertools.product(
        [
            ("l2(0.1)", "dual_averaging"),
            ("l1(0.05)", "dual_averaging"),
            ("box(-0.1, 0.1)", "dual_averaging"),
            ("elastic_net(0.05, 0.1)", "descent"),
            ("l1(0.05)", "combine_first"),
        ],
        [
            ("edges(1)", "one"),
            ("matching(2)", "one"),
            ("nodes(3)", "fixed(2)"),
            ("everyone", "one"),
            ("ticks", "poisson(2)"),
        ],
    )
]
NAMES = ["-".join(case[name] for name in ("h", "method", "activation", "sampling")) for case in CASES]


def text(m):
    """CSR rows, most coordinates of which no other row has."""
    rng = np.random.default_rng(3)
    X = sparse.csr_array(rng.normal(size=(48, m)) / 4 * (rng.random((48, m)) < 8 / m))
    shards = Shards.of(X, np.sign(rng.normal(size=48)), np.arange(0, 49, 8))
    return lambda **_: shards


def louder(job):
    """Three runs that differ in their noise."""
    return [with_sigma(job, factor) for factor in (1.0, 0.0, 2.0)]


@pytest.fixture
def run(monkeypatch):
    """Three runs at once, with some constants of the look ahead; gives their states and the working memory."""

    def run(job, **constants):
        for name, value in constants.items():
            monkeypatch.setattr(kernel_arguments, name, value)
        kept = []
        monkeypatch.setattr(
            compiled, "make_scratch", lambda *given: kept.append(kernel_arguments.make_scratch(*given)) or kept[-1]
        )
        jobs = louder(job)
        return compiled.run_many(jobs, [one.start() for one in jobs], 1, ROUNDS), kept[-1]

    return run


def is_edges(case):
    """Whether two nodes at a time end with the same z, of which x is a multiple."""
    pairs = case["activation"] in ("edges(1)", "matching(2)", "ticks")
    return pairs and case["h"].startswith("l2") and case["method"] == "dual_averaging"


def same(some, others):
    return all(
        np.array_equal(a, b) for one, other in zip(some, others, strict=True) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("m", [noise.BLOCK + 601, 700], ids=["odd", "even"])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_parts_change_no_bit(case, intercept, m, run):
    job = job_of(case | {"intercept": intercept}, text(m), ROUNDS)
    plain, scratch = run(job, LARGE=1 << 60)
    assert scratch.ahead and scratch.tiles is None
    for constants in (
        {"SPOTS": 512, "TOUCHED": 1, "CACHE": 0},  # parts as small as may be, one block
        {"SPOTS": 40, "TOUCHED": 2, "CACHE": 1 << 22},  # several blocks, ended by the number of active nodes
        {"SPOTS": 512, "TOUCHED": 4, "CACHE": 1 << 15},  # ended by the number of coordinates touched
    ):
        parted, scratch = run(job, LARGE=0, REVISITS=0, **constants)
        assert scratch.tiles.stretch > 0 and scratch.tiles.needed.any()  # it was gone through in parts
        assert scratch.tiles.near.normals.any() == scratch.tiles.edges == is_edges(case)  # and in the nearest cache
        assert not scratch.tiles.marked.any()
        assert same(plain, parted)


def test_runs_in_parts_end_as_each_alone(run, monkeypatch):
    """Over the cover of all options, as they are and as edges, so far as rounds are of few records of text."""
    plain = {"data": "csr", "outputs": 1, "people": False, "distance": "euclidean", "curvature": 0.0}
    edges = {"h": "l2(0.1)", "method": "dual_averaging", "averaging": "gossip", "activation": "edges(1)"}
    cases = [case | plain | {"noise": "gaussian(0.3)"} | more for case in COVER for more in ({}, edges)]
    in_parts, in_near = 0, 0
    for case in filter(allowed, cases):
        job = job_of(case, text(300), ROUNDS)
        together, scratch = run(job, LARGE=0, REVISITS=0, TOUCHED=1)
        if scratch.tiles is not None and scratch.tiles.needed.any():
            in_parts += 1
            in_near += scratch.tiles.edges
            monkeypatch.setattr(kernel_arguments, "LARGE", 1 << 60)
            assert same(together, [compiled.run(one, one.start(), 1, ROUNDS) for one in louder(job)]), case
    assert in_near >= 40 and in_parts >= in_near + 10


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"activation": "matching(2)"}, True),
        ({"activation": "ticks"}, True),
        ({"h": "none"}, True),
        ({"mixing": "lazy"}, False),
        ({"activation": "nodes(3)"}, False),
        ({"h": "l1(0.05)"}, False),
        ({"h": "box(-0.5, 0.5)"}, False),
        ({"method": "descent"}, False),
    ],
)
def test_edges_are_known(change, expected, run):
    _, scratch = run(job_of(BASE | change, text(300), ROUNDS), LARGE=0)
    assert scratch.tiles.edges == expected


def test_groups_of_other_sizes_are_no_edges():
    """Four nodes alone and four together have as many weights as five edges."""
    packed = compiled._pack([job_of(BASE, text(300), ROUNDS)])
    sizes, groups = np.array([1, 1, 1, 1, 16]), np.ones(5, np.int64)
    plan = packed.plan._replace(weights=np.full(20, 0.25), corners=np.cumsum(sizes) - sizes, groups=groups)
    assert kernel_arguments._only_edges(packed.plan, packed.model)
    assert not kernel_arguments._only_edges(plan, packed.model)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_how_far_it_looks_changes_no_bit(kind, run):
    job = job_of(BASE | {"data": kind, "intercept": 0.5}, cloud(noise.BLOCK + 77, kind), ROUNDS)
    far, scratch = run(job, LARGE=1 << 60)
    assert scratch.ahead
    near, _ = run(job, SPOTS=7)
    assert same(far, near)
    found = difference(far[0], reference.run(job, job.start(), 1, ROUNDS))
    assert found < 1e-5


def test_it_does_not_look_ahead_where_rounds_are_of_many_records(run):
    for change in ({"sampling": "full"}, {"sampling": "fixed(3)"}, {"h": "simplex"}, {"curvature": 0.2}):
        _, scratch = run(job_of(BASE | change, cloud(40), ROUNDS))
        assert not scratch.ahead and len(scratch.count) < 10
    packed = compiled._pack([injected(job_of(BASE, cloud(40), ROUNDS))])
    shape = (1, NODES, 40)
    assert not kernel_arguments.make_scratch(packed.data, packed.plan, packed.model, packed.noise, shape).ahead


def test_parts_need_less_than_a_third_of_the_memory_of_the_state():
    job = job_of(BASE, text(70_000), 10)
    packed = compiled._pack([with_sigma(job, factor) for factor in range(1, 41)])
    shape = (40, NODES, 70_000)
    scratch = kernel_arguments.make_scratch(packed.data, packed.plan, packed.model, packed.noise, shape)
    assert scratch.tiles.stretch > 0
    arrays = (array for array in (*scratch.tiles, *scratch.tiles.near) if isinstance(array, np.ndarray))
    assert scratch.tiles.edges and sum(array.nbytes for array in arrays) < 16 * np.prod(shape) / 3


def test_a_quarter_turn_makes_sines_of_cosines():
    """To the last bit: copies of a coordinate must go through the numbers that it goes through itself."""
    counters = np.arange(noise.BLOCK, dtype=np.uint32)
    words = np.empty(2 * noise.BLOCK, np.uint32)
    plain, turned = np.zeros(2 * noise.BLOCK, np.float32), np.zeros(2 * noise.BLOCK, np.float32)
    turns = np.full(noise.BLOCK, noise.QUARTER, np.uint32)
    normals = from_python(noise.normals)
    for key in range(200):
        normals(np.uint32(key), np.uint32(5), counters, None, words, plain, plain[noise.BLOCK :])
        normals(np.uint32(key), np.uint32(5), counters, turns, words, turned, turned[noise.BLOCK :])
        assert np.array_equal(turned[: noise.BLOCK], plain[noise.BLOCK :])
