"""The compiled engine: the reference's trajectories from the same draws, its own noise, stacked runs."""

from dataclasses import replace

import numpy as np
import pytest
from contract import BASE, CASES, NAMES, cloud, difference, injected, job_of, normal_rows, with_sigma
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from sottovoce import _native
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import StepSizes
from sottovoce.engine import compiled, native, reference
from sottovoce.errors import SpecError
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.problem.regularizers import Separable
from sottovoce.problem.shards import Shards
from sottovoce.streams import Purpose, Streams

BLOCK = 1024  # counters whose normals are made at a time


def key(streams, purpose=Purpose.NOISE):
    return np.concatenate(streams._keys[purpose])


# --- trajectories


@pytest.mark.parametrize("case", CASES[::3], ids=NAMES[::3])
def test_equals_the_reference_over_a_long_run(case, make_shards):
    """Step sizes under which the run is stable: a_t = t with an h that is not strongly convex amplifies rounding."""
    if not case["h"].startswith(("l2(", "elastic_net")) and case["curvature"] == 0:
        case = case | {"steps": ("constant(1)", "sqrt(0.5)")}
    job = job_of(case, make_shards, rounds=2000)
    expected = reference.run(job, job.start(), 1, 2000)
    assert difference(compiled.run(injected(job), job.start(), 1, 2000), expected) < 1e-9


@pytest.mark.parametrize("h", ["l2(0.1)", "l1(0.05)", "box(-0.1, 0.1)", "l2_ball(0.7)", "simplex"])
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("activation", ["edges(1)", "nodes(3)"])
def test_every_path_of_the_loops(h, kind, activation):
    """Edges and larger sets, one record and many, both primals, with more coordinates than a block of noise."""
    for sampling, primal, intercept in (
        ("one", "recompute", 0.5),
        ("one", "as_written", 0.0),
        ("poisson(3)", "recompute", 0.5),
    ):
        case = BASE | {"h": h, "activation": activation, "sampling": sampling, "primal": primal, "intercept": intercept}
        job = job_of(case | {"steps": ("constant(1)", "sqrt(0.5)")}, cloud(2 * BLOCK + 277, kind), 30)
        expected = reference.run(job, job.start(), 1, 30)
        assert difference(compiled.run(injected(job), job.start(), 1, 30), expected) < 1e-11
        assert difference(compiled.run(job, job.start(), 1, 30), expected) < 1e-5


@pytest.mark.parametrize("draws", ["counters", "injected"])
@pytest.mark.parametrize("case", CASES[1::9], ids=NAMES[1::9])
def test_cutting_a_run_into_pieces_changes_no_bit(case, draws, make_shards, monkeypatch):
    job = job_of(case, make_shards, rounds=30)
    job = injected(job) if draws == "injected" else job
    whole = compiled.run(job, job.start(), 1, 30)
    monkeypatch.setattr(compiled, "INJECTED_BLOCK", 7)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        state = compiled.run(job, state, first, last)
    assert all(np.array_equal(a, b) for a, b in zip(whole, state, strict=True))


@pytest.mark.parametrize("boxed", [False, True])
@given(data=st.data())
def test_lazy_sums_of_any_separable_h(boxed, data):
    """Bounds on either side of zero, thresholds, jumps of γ: coordinates that change on the way are searched right."""
    lo = data.draw(st.sampled_from([-np.inf, -0.3, 0.0, 0.2])) if boxed else -np.inf
    hi = data.draw(st.sampled_from([0.25, 0.5, np.inf] if lo > 0 else [0.1, 0.5, np.inf])) if boxed else np.inf
    h = Separable(data.draw(st.sampled_from([0.0, 0.02, 0.3])), data.draw(st.sampled_from([0.0, 0.1])), lo, hi)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    T, m = 60, 150
    job = job_of(BASE, cloud(m), rounds=T)
    a, gamma = np.sort(rng.uniform(0.5, 3, T)), np.sort(rng.uniform(0.1, 9, T))
    counted = None if rng.random() < 0.5 else np.where(np.arange(T) < rng.integers(T), 0.0, a)
    job = replace(job, method=replace(job.method, h=h, steps=StepSizes(a, gamma, counted)))
    expected = reference.run(job, job.start(), 1, T)
    found = compiled.run(injected(job), job.start(), 1, T)
    assert difference(found, expected) < 1e-10


@pytest.mark.parametrize("data", ["dense", "float32", "csr"])
@pytest.mark.parametrize("sampling", ["one", "full"])
def test_every_record_is_clipped(data, sampling, make_shards):
    """One round without noise, from zero: no node's ζ is longer than the clip, far below these rows' norms."""
    case = BASE | {"loss": "squared", "data": data, "noise": "none", "sampling": sampling}
    job = job_of(case, make_shards, rounds=5)
    clip = 1e-3
    job = replace(job, release=replace(job.release, clip=clip))
    first = job.schedule.nodes(1)
    z = compiled.run(job, job.start(), 1, 1).z[first]
    assert 0.5 * clip * (sampling == "one") < np.linalg.norm(z, axis=1).max() <= clip * (1 + 1e-12)
    assert difference(compiled.run(job, job.start(), 1, 5), reference.run(job, job.start(), 1, 5)) < 1e-12


# --- records


@pytest.mark.parametrize(
    "sampling", ["one", *(f"{k}({b})" for k in ("fixed", "poisson", "cyclic") for b in (1, 3, 20, 50, 64))]
)
def test_records_are_those_of_the_sampler(sampling):
    sampler, streams = SAMPLINGS.read(sampling), Streams(5)
    kind, q, b = native.SAMPLERS[type(sampler)], 64, sampler.size
    scale = 0.0 if b == q else 1 / np.log1p(-b / q)
    records = np.empty(q, np.int64)
    for node in range(5):
        for t in range(1, 200):
            count = _native.draw_records(kind, key(streams, Purpose.RECORDS), node, t, q, b, scale, records)

            def uniforms(first, some, node=node, t=t):
                return streams.uniforms(np.array([node]), t, first, some)[0]

            expected = sampler.draw(uniforms, q, t)
            found = np.arange(q) if count < 0 else records[:count]
            assert np.array_equal(found, expected)


# --- noise


@given(st.integers(0, 2**64), st.integers(0, 10**6), st.integers(1, 2**32 - 1), st.integers(1, 2500))
def test_normals_are_those_of_the_streams(seed, node, t, m):
    """1e-5 relative to the value itself (3e-7 in truth); 1e-15 stands for the rounding of π in the reference."""
    streams = Streams(seed)
    expected = streams.normals(np.array([node]), t, m)[0]
    found = normal_rows(key(streams), [node], [t], m)[0]
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-15)


def _sample(nodes=20, rounds=500, m=400):
    grid = np.mgrid[0:nodes, 1 : rounds + 1].reshape(2, -1)
    return normal_rows(key(Streams(11)), grid[0], grid[1], m).reshape(nodes, rounds, m).astype(np.float64)


def test_noise_is_standard_normal_and_a_wrong_scale_is_rejected():
    draws = _sample(rounds=50).ravel()
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    assert stats.kstest(draws / 0.97, "norm").pvalue < 1e-6
    many = _sample().ravel()
    N = len(many)
    for power, mean in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        spread = np.sqrt((stats.norm.moment(2 * power) - mean**2) / N)
        assert abs(np.mean(many**power) - mean) < 5 * spread


def test_tails_beyond_five_sigma():
    """2.4e8 draws: 69 beyond 5σ and 4.6 beyond 5.5σ are expected; none beyond √(2 ln 2³³)."""
    counts, N, most = np.zeros(3), 0, 0.0
    for t in range(1, 31):
        draws = np.abs(normal_rows(key(Streams(2)), np.arange(2000), np.full(2000, t), 4000))
        counts += [np.count_nonzero(draws > level) for level in (4.0, 5.0, 5.5)]
        N, most = N + draws.size, max(most, float(draws.max()))
    for count, level in zip(counts, (4.0, 5.0, 5.5), strict=True):
        expected = 2 * stats.norm.sf(level) * N
        low, high = stats.poisson.interval(1 - 1e-4, expected)
        assert N >= 2e8 and low <= count <= high
    assert 5.5 < most < 6.77


def test_no_correlation_between_nodes_rounds_and_neighbours():
    draws = _sample(rounds=200)
    N = draws.size
    for name, product in {
        "nodes": draws[1:] * draws[:-1],
        "rounds": draws[:, 1:] * draws[:, :-1],
        "coordinates": draws[:, :, 1:] * draws[:, :, :-1],
        "cosine and sine": draws[:, :, :200] * draws[:, :, 200:],
        "squares": (draws[:, :, :200] ** 2 - 1) * (draws[:, :, 200:] ** 2 - 1) / 2,
    }.items():
        assert abs(np.mean(product)) < 5 / np.sqrt(product.size), name
    assert N > 1e6


# --- many runs at once


@pytest.mark.parametrize("case", CASES[2::9], ids=NAMES[2::9])
def test_stacked_runs_equal_separate_ones_bit_for_bit(case, make_shards):
    job = job_of(case | {"noise": "gaussian(0.3)"}, make_shards, rounds=40)
    jobs = [with_sigma(job, factor) for factor in (1.0, 0.0, 2.5)]
    jobs.append(replace(job, release=replace(job.release, clip=0.1)))
    if isinstance(job.method, DualAveraging):
        steps = StepSizes(job.method.steps.a, job.method.steps.gamma + 1)
        jobs.append(replace(job, method=replace(job.method, steps=steps)))
    else:
        jobs.append(replace(job, method=replace(job.method, eta=job.method.eta / 2)))
    if isinstance(job.method.h, Separable):
        h = replace(job.method.h, phi=job.method.h.phi + 0.01, mu=job.method.h.mu + 0.1)
        jobs.append(replace(job, method=replace(job.method, h=h)))
    starts = [j.start() for j in jobs]
    together = compiled.run_many(jobs, starts, 1, 25)
    together = compiled.run_many(jobs, together, 26, 40)
    for one, found in zip(jobs, together, strict=True):
        alone = compiled.run(one, one.start(), 1, 40)
        assert all(np.array_equal(a, b) for a, b in zip(found, alone, strict=True))
    assert len({state.z.tobytes() for state in together}) > 1


def test_only_runs_that_share_everything_but_numbers_are_stacked(make_shards):
    job = job_of(BASE, make_shards, rounds=10)
    for change, word in (
        ({"loss": "logistic"}, "loss"),
        ({"h": "l2_ball(0.7)"}, "regularizer"),
        ({"primal": "as_written"}, "method"),
        ({"method": "descent"}, "method"),
        ({"sampling": "fixed(3)"}, "sampling"),
        ({"data": "float32"}, "data"),
        ({"activation": "edges(2)"}, "schedule"),
    ):
        other = job_of(BASE | change, make_shards, rounds=10)
        with pytest.raises(SpecError, match=word):
            compiled.run_many([job, other], [job.start(), other.start()], 1, 10)
    other = replace(job, draws=replace(job.draws, streams=Streams(8)))
    with pytest.raises(SpecError, match="randomness"):
        compiled.run_many([job, other], [job.start()] * 2, 1, 10)
    with pytest.raises(SpecError, match="counters"):
        compiled.run_many([injected(job)] * 2, [job.start()] * 2, 1, 10)
    with pytest.raises(SpecError, match="same round"):
        compiled.run_many([job] * 2, [job.start(), compiled.run(job, job.start(), 1, 2)], 3, 10)
    with pytest.raises(SpecError, match="at least one"):
        compiled.run_many([], [], 1, 10)


# --- packing, refusals


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array, lambda X: sparse.csr_array(np.float32(X))])
def test_the_data_is_not_copied(kind, make_shards):
    shards = make_shards(n=6, kind=kind)
    job = job_of(BASE, lambda **_: shards, rounds=10)
    data = compiled.pack([job]).data
    if sparse.issparse(shards.X):
        assert np.shares_memory(data.values, shards.X.data)
        assert np.shares_memory(data.indices, shards.X.indices)
    else:
        assert np.shares_memory(data.values, shards.X)
    assert np.shares_memory(data.y, shards.y)
    assert all(not a.flags.writeable for a in data if isinstance(a, np.ndarray))
    assert np.shares_memory(compiled.pack([job]).plan.active, job.schedule.active)


def test_rows_out_of_order_and_wide_indices(make_shards):
    """A permutation of the rows, and 64-bit CSR indices."""

    def wide(X):
        X = sparse.csr_array(np.float32(X))
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return X

    order = np.random.default_rng(0).permutation(48)
    for kind in (np.float32, wide):
        shards = make_shards(n=6, kind=kind, order=order)
        job = job_of(BASE | {"sampling": "fixed(3)"}, lambda shards=shards, **_: shards, rounds=20)
        assert difference(compiled.run(job, job.start(), 1, 20), reference.run(job, job.start(), 1, 20)) < 1e-5


@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
def test_a_sparse_matrix_that_changed_in_place_is_read_anew(make_shards):
    """SciPy drops zeros and adds entries in place: the columns of the run before are not those of this one."""
    first = make_shards(n=6, kind=sparse.csr_array)
    X = first.X

    def apart():
        shards = Shards.of(X, first.y, first.offsets)
        job = job_of(BASE | {"sampling": "full"}, lambda **_: shards, rounds=20)
        return difference(compiled.run(job, job.start(), 1, 20), reference.run(job, job.start(), 1, 20))

    assert apart() < 1e-5
    X.data[X.indices == 1] = 0.0
    X.eliminate_zeros()
    assert apart() < 1e-5
    X[0, 1] = 0.25
    assert apart() < 1e-5


def test_what_would_lead_it_astray_it_refuses(make_shards):
    job = job_of(BASE, make_shards, rounds=10)
    start = job.start()

    shards = job.problem.shards
    columns = replace(job.problem, shards=replace(shards, X=np.asfortranarray(shards.X)))
    for wrong, word in (
        (replace(job, problem=columns), "row by row"),
        (replace(job, draws=replace(job.draws, m=3)), "other data"),
    ):
        with pytest.raises(SpecError, match=word):
            compiled.run(wrong, start, 1, 10)
    with pytest.raises(SpecError, match="not within"):
        compiled.run(job, start, 1, 11)
    with pytest.raises(SpecError, match="not one from before"):
        compiled.run(job, compiled.run(job, start, 1, 10), 1, 10)
    with pytest.raises(SpecError, match="rows of"):
        compiled.run(job, start._replace(z=start.z[:, :2]), 1, 10)
    bad = injected(job)
    bad.draws.records = lambda nodes, t: [np.array([99])] * len(nodes)
    with pytest.raises(SpecError, match="does not have"):
        compiled.run(bad, start, 1, 10)


def test_a_job_is_packed_once(make_shards):
    job = job_of(BASE, make_shards, rounds=10)
    compiled.run(job, job.start(), 1, 5)
    packed = compiled._packed[job][1]
    compiled.run(job, job.start(), 1, 10)
    assert compiled._packed[job][1] is packed
