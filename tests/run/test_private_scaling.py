"""Private scaling: what is released is as sensitive, noisy and costly as stated, and what is made of it linear."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import Shards, solve
from sottovoce.errors import PrivacyError, SottovoceError, SpecError
from sottovoce.planner import PublicInputs, choose
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.one_shot import MOMENTS, Moments
from sottovoce.problem.objective import clipped_mean
from sottovoce.run.build import one_shot_of, prepare
from sottovoce.run.one_shot import BEFORE, SHRINK, sums_grid
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.private_scaling import PrivateScaling, RowMoments
from sottovoce.run.result import Result
from sottovoce.run.solve import run_batch
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec
from sottovoce.streams import Streams

ALL = Moments(0.01, 0.03, 0.05)
SPEC = Spec(
    AlgorithmSpec(12, a="constant(1)", gamma="constant(2)", counted="tail(0.5)"),
    ProblemSpec(h="none", weights="records", intercept=0.25),
    NetworkSpec(activation="everyone"),
    PrivacySpec("full", "private(2)", moments=ALL),
    seed=1,
)


def data(n=3, q=200, m=4, far=2.0, seed=0):
    """Columns of different spreads, with a mean off the origin; rows within 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * q, m)) * np.array([1.0, 0.5, 0.25, 0.125])[:m]
    y = np.where(X @ np.array([1.0, -2.0, 4.0, 8.0])[:m] > 0, 1.0, -1.0)
    X = X + far * np.eye(m)[0]
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.000001
    return Shards.of(X, y, q * np.arange(n + 1))


def one_shot(spec, shards):
    return one_shot_of(plan_public(Request(spec, shards.sizes, int(shards.X.shape[1]), shards.people)))


# --- how far one record moves it


@given(
    shares=st.tuples(*[st.sampled_from([0.0, 0.01, 0.15])] * 3).filter(any),
    rows=st.lists(st.lists(st.floats(-3, 3), min_size=3, max_size=3), min_size=2, max_size=2),
)
def test_no_record_moves_it_by_more_than_is_accounted(shares, rows):
    moments = Moments(*shares)
    one, other = RowMoments(moments, len(rows[0]), 1.0).phi(np.array(rows))
    assert np.linalg.norm(one - other) <= 2 * moments.clip * (1 + 1e-12)
    grid = 2.0**-30
    whole = [np.trunc(part * (SHRINK / grid)) * grid for part in (one, other)]
    assert np.linalg.norm(whole[0] - whole[1]) <= 2 * moments.clip


@pytest.mark.parametrize(
    ("moments", "rows"),
    [
        (Moments(length=0.1), [[0.0, 0.0], [1.0, 0.0]]),
        (Moments(center=0.1), [[0.6, 0.8], [-0.6, -0.8]]),
        (Moments(scale=0.1), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_some_record_moves_it_as_far(moments, rows):
    one, other = RowMoments(moments, len(rows[0]), 1.0).phi(np.array(rows))
    assert np.linalg.norm(one - other) == pytest.approx(2 * moments.clip, rel=1e-12)


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_exact_sums_are_the_means_and_know_no_places(kind, people):
    shards = data()
    user_ids = np.repeat(np.arange(300), 2) if people else None
    shards = Shards.of(kind(shards.X), shards.y, np.array([0, 200, 400, 600]), user_ids=user_ids)
    grid = sums_grid(200)
    query = RowMoments(ALL, 4, 1.0)
    found = query.exact_sums(shards, grid)
    assert np.allclose(found * grid / shards.sizes[:, None], query.means(shards), atol=1e-12)
    if not people:
        turned = Shards.of(shards.X[::-1], shards.y[::-1], np.array([0, 200, 400, 600]))
        assert np.array_equal(query.exact_sums(turned, grid), found[::-1])


def test_only_its_own_node_moves():
    shards = data()
    other = replace(shards, X=shards.X.copy())
    other.X[250] = -other.X[250]  # of node 1
    seen = one_shot(SPEC, shards)
    one, two = (seen.released(s, Streams(1), None) for s in (shards, other))
    moved = np.linalg.norm(one - two, axis=1)
    assert np.count_nonzero(moved) == 1 and 0 < moved[1] <= 2 * ALL.clip / 200 * (1 + 1e-9)


# --- its noise, and its cost


@pytest.mark.parametrize(("law", "adversary"), [("gaussian", "transcript"), ("pairs(10)", "secret_pairs(1)")])
@pytest.mark.parametrize("sampling", ["full", "poisson(20)"])
def test_all_releases_together_cost_what_is_stated(law, adversary, sampling):
    spec = SPEC.replace(privacy__law=law, privacy__adversary=adversary, privacy__sampling=sampling)
    statement = prepare(spec, data()).statement
    assert statement.epsilon == pytest.approx(2.0, rel=2e-3) and statement.epsilon <= 2.0
    statement.verify()
    event = statement.groups[0].event
    assert event.before is not None and read_event(event.to_dict()) == event
    alone = compute_epsilon([replace(event, before=None)], 1e-5).epsilon
    assert alone < 2.0 * 0.99 and compute_epsilon([event.before], 1e-5).epsilon < 2.0
    assert event.before.noise_multiplier == pytest.approx(single(2.0, 1e-5) / math.sqrt(ALL.total), rel=1e-9)
    assert (
        compute_epsilon([replace(event.after(0), rounds=0)], 1e-5).epsilon
        == compute_epsilon([event.before], 1e-5).epsilon
    )
    assert "released once noisy means" in statement.paragraph()


@pytest.mark.parametrize(("law", "adversary"), [("gaussian", "transcript"), ("pairs(10)", "secret_pairs(1)")])
@pytest.mark.parametrize("keyed", [False, True])
def test_noise_is_as_large_as_is_accounted(law, adversary, keyed):
    from sottovoce.secure.generator import fresh

    shards, spec = data(q=50), SPEC.replace(privacy__law=law, privacy__adversary=adversary)
    seen, true = one_shot(spec, shards), RowMoments(ALL, 4, 1.0).means(shards)
    drawn = np.stack([seen.released(shards, Streams(k), fresh() if keyed else None) - true for k in range(150)])
    own = np.array(seen.release.sigma)
    in_mean = np.std(drawn.mean(axis=1))
    assert in_mean == pytest.approx(np.linalg.norm(own) / 3, rel=0.1)  # 1350 draws: 2 %, and what pairs share is gone
    assert not in_mean == pytest.approx(np.linalg.norm(own) / 3 * 1.3, rel=0.1)
    alone = np.std(drawn[:, 0])
    hidden = own[0] if law == "gaussian" else own[0] * math.sqrt(1 + 2 * 100)
    assert alone == pytest.approx(hidden, rel=0.1)


def test_rounds_get_other_noise_than_the_pre_release():
    streams = Streams(3)
    look_noise, first = (streams.normals(np.arange(2), np.full(2, t), 5) for t in (BEFORE, 1))
    assert not np.any(look_noise == first)


# --- the map


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), outputs=st.sampled_from([1, 3]), centered=st.booleans(), intercept=st.booleans())
def test_models_are_taken_back_to_the_records(seed, outputs, centered, intercept):
    rng = np.random.default_rng(seed)
    center = rng.normal(size=4) if centered and intercept else None
    shape = PrivateScaling(rng.uniform(0.5, 2, 4), center, 100.0, 0.25 if intercept else 0.0, outputs)
    models = rng.normal(size=(2, outputs * (4 + intercept)))
    shards = Shards.of(rng.normal(size=(6, 4)), np.ones(6), np.array([0, 6]), intercept=shape.intercept)
    by_output = (2, outputs, -1)
    for mine, back in zip(models.reshape(by_output), shape.inverse_transform(models).reshape(by_output), strict=True):
        assert np.allclose(shape.shards(shards).margins(mine), shards.margins(back), rtol=1e-9, atol=1e-9)
    assert np.allclose(shape.transform(shape.inverse_transform(models)), models, atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_rows_stay_within_their_reach(kind):
    X = data(far=0.0).X
    shape = PrivateScaling(2 * np.array([0.9, 1.0, 1.2, 0.5]), None, 0.7, 0.25)
    mapped = shape.shards(Shards.of(kind(X), np.ones(600), np.array([0, 600])))
    assert shape.reach == 1.4
    assert sp.issparse(mapped.X) == sp.issparse(kind(X)) and 1.39 < mapped.norms.max() <= 1.4
    short = np.linalg.norm(X * shape.scale, axis=1) < 1.39
    dense = mapped.X.toarray() if sp.issparse(mapped.X) else mapped.X
    assert 0.1 < short.mean() < 0.9 and np.allclose(dense[short], (X * shape.scale)[short], rtol=1e-6)


def test_no_record_pulls_harder_than_the_clip_however_long_its_mapped_row_is():
    """In floating point and in whole numbers: what bounds a record is its clipped subgradient, and not its row."""
    made = prepare(SPEC, data())
    job, L = made.job, made.job.release.clip
    rng = np.random.default_rng(3)
    norms = job.problem.shards.norms
    assert np.mean(norms > math.hypot(1.0, 0.25)) > 0.1 and L == pytest.approx(math.hypot(1.0, 0.25))
    secret = prepare(SPEC.replace(seed=None), data()).job
    sums = secret.draws.sums
    longest = np.argsort(-norms[:200])[:5]
    for x in 3.0 * rng.standard_normal((4, job.problem.m)):
        for record in longest.tolist():
            pull = clipped_mean(job.problem, 0, x, np.array([record]), 1.0, L)
            assert np.linalg.norm(pull) <= L * (1 + 1e-9)
            whole = sums.total(0, x, np.array([record])) * sums.grids.sum
            assert np.linalg.norm(whole) <= L
    assert np.linalg.norm(clipped_mean(job.problem, 0, np.zeros(job.problem.m), longest[:1], 1.0, 9.0)) > 1.1 * L


@pytest.mark.parametrize("far", [0.0, 2.0])
def test_a_mean_is_taken_off_where_it_is_long(far):
    shape = prepare(SPEC, data(far=far)).row_map
    assert (shape.center is None) is (far == 0.0)
    assert np.all(np.diff(shape.scale[1:]) >= 0) and shape.scale[2] > shape.scale[1]  # of less spread: made longer


def test_short_rows_are_made_longer():
    short = replace(data(far=0.0), X=0.1 * data(far=0.0).X)
    shape = prepare(SPEC.replace(privacy__moments="moments(0.05)"), short).row_map
    assert np.ptp(shape.scale) == 0 and 5 < shape.scale[0] < 25
    assert np.all(prepare(SPEC.replace(privacy__moments="moments(0.05)"), data(far=2.0)).row_map.scale == 1.0)


# --- a whole run


def test_it_helps_where_a_mean_hides_the_rest():
    shards = data(q=2000)
    runs = [[solve(SPEC.replace(seed=s, privacy__moments=how, algorithm__rounds=60), shards, test=shards).history.last
             for s in range(3)] for how in ("none", ALL)]  # fmt: skip
    plain, shaped = (np.mean([run["test_accuracy"] for run in some]) for some in runs)
    assert shaped > plain + 0.03


@pytest.mark.parametrize(("law", "adversary"), [("gaussian", "transcript"), ("pairs(10)", "secret_pairs(1)")])
def test_saved_resumed_verified(law, adversary, tmp_path):
    spec, shards = SPEC.replace(privacy__law=law, privacy__adversary=adversary), data()
    whole = solve(spec, shards, test=shards)
    whole.save(tmp_path / "saved")
    read = Result.load(tmp_path / "saved")
    read.verify()
    assert read.spec == spec and str(read.spec.privacy.moments) == str(ALL)
    group = read.statement.groups[0]
    louder = replace(group.event, before=replace(group.event.before, sigma=2 * group.event.before.sigma))
    forged = replace(read.statement, groups=(replace(group, event=louder), *read.statement.groups[1:]))
    with pytest.raises(PrivacyError):
        replace(read, statement=forged).verify()

    class Stopped(Exception):
        pass

    def stop(t, T, row):
        if t > 5:
            raise Stopped

    with pytest.raises(Stopped):
        solve(spec, shards, test=shards, progress=stop, checkpoint=tmp_path / "kept")
    assert np.array_equal(solve(spec, shards, test=shards, checkpoint=tmp_path / "kept").models, whole.models)


def test_a_secure_run_is_one():
    result = solve(SPEC.replace(seed=None), data())
    assert result.statement.secure and result.statement.epsilon <= 2.0
    result.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network__graph": "ring"}, "links between any two"),
        ({"privacy__noise": "gaussian(1)"}, "has no budget: write noise"),
        ({"privacy__moments": "moments(0.6)"}, "malformed"),
        ({"privacy__moments": "moments(0.1, 0.1, 0.1, 2)"}, "malformed"),
    ],
)
def test_refusals_are_one_sentence(changes, words):
    with pytest.raises(SottovoceError, match=words):
        prepare(SPEC.replace(**changes), data(n=5))


def test_a_one_shot_method_has_no_use_for_it():
    changes = {"algorithm__method": "output_perturbation", "algorithm__counted": "all", "algorithm__rounds": 1}
    with pytest.raises(SpecError, match="no descent"):
        prepare(SPEC.replace(**changes, problem__h="l2(0.1)", privacy__adversary="central"), data(n=1))


def test_runs_side_by_side_share_no_map():
    with pytest.raises(SpecError, match="one by one"):
        run_batch([SPEC, SPEC.replace(privacy__noise="private(1)")], data())


def test_two_spellings_are_one_choice():
    assert MOMENTS.read("moments(0.01, 0.03, 0.05)") == ALL and MOMENTS.read(str(ALL)) == ALL
    assert MOMENTS.read("moments") == MOMENTS.read("none") == Moments(power=0.5)
    assert "moments" not in SPEC.replace(privacy__moments="none").to_dict()["privacy"]
    assert Spec.from_json(SPEC.to_json()) == SPEC


@pytest.mark.parametrize("seed", [2, 6])
def test_where_secrets_are_shared_unevenly_release_and_rounds_together_cost_what_was_requested(seed):
    law = "pairs(20, graph=erdos_renyi(0.4), cut=priced)"
    spec = SPEC.replace(seed=seed, privacy__law=law, privacy__adversary="secret_pairs(1)", privacy__noise="private(1)")
    spec = spec.replace(privacy__moments="moments(0.1, 0.2, 0.2)", network__activation="nodes(3)", algorithm__rounds=6)
    assert prepare(spec, data(6, 50)).statement.epsilon == pytest.approx(1.0, rel=2e-3)


def test_sparse_records_stay_sparse():
    """Their mean is not taken off: the plan knows that they are sparse, and a run that would is refused."""
    inputs = PublicInputs((6000,), 5, 1.0, 1e-5, intercept=0.25, private_scaling=True)
    assert choose(inputs).spec.privacy.moments.center > 0
    assert choose(replace(inputs, sparse=True)).spec.privacy.moments.center == 0
    shape = PrivateScaling(np.ones(4), np.ones(4), 1.0, 0.25)
    with pytest.raises(SpecError, match="sparse records do not stay sparse"):
        shape.shards(Shards.of(sp.csr_array(np.eye(4)), np.ones(4), np.array([0, 4])))


def test_wide_sparse_records_are_read_few_at_a_time():
    """Of 20,000 × 50,000, which are 8 GB if they are dense, no more than some megabytes are."""
    X = sp.random_array((20_000, 50_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    shards = Shards.of(X, np.ones(20_000), np.array([0, 20_000]))
    tracemalloc.start()
    found = RowMoments(Moments(0.01, 0.0, 0.0), X.shape[1], 1.0).means(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    squares = X.multiply(X).sum(axis=1)
    assert found[0] == pytest.approx(np.minimum(squares, 1.0).mean() * Moments(0.01, 0.0, 0.0).factors[0], rel=1e-9)
    assert peak < 200e6
