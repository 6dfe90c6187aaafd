"""The range of targets: counts are as sensitive, noisy and dear as is said, and nothing else shows where they lie."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import Shards, solve
from sottovoce.errors import PrivacyError, SottovoceError, SpecError
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.cost import plan_cost as plan_cost
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.one_shot import LEVELS, NESTED_CELLS, QUANTILES, Quantiles
from sottovoce.run.build import one_shot_of, prepare
from sottovoce.run.one_shot import sums_grid
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.result import Result
from sottovoce.run.solve import run_batch
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec
from sottovoce.run.target_range import TargetCounts, TargetRange, cells, ends
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

SOME = Quantiles(0.1)
SPEC = Spec(
    AlgorithmSpec(1, method="statistics(0.7)"),
    ProblemSpec("squared", "none", "records", intercept=0.5),
    NetworkSpec(activation="everyone"),
    PrivacySpec("full", "private(2)", quantiles=SOME),
    seed=1,
)
DESCENT = SPEC.replace(
    algorithm__method="dual_averaging", algorithm__rounds=12, algorithm__a="constant(1)",
    algorithm__gamma="constant(2)", privacy__clip=0.4,
)  # fmt: skip


def data(n=3, q=400, wide=50.0, at=0.4, seed=0):
    """Targets about `at`, in a range that is so many times narrower than [−1, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * q, 3)) / 4
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.000001
    y = at + (X @ [1.0, -1.0, 0.5] / 2 + rng.normal(size=n * q) / 8) / wide
    return Shards.of(X, y, q * np.arange(n + 1))


def one_node(y, user_ids=None):
    """These targets, at one node."""
    return Shards.of(np.zeros((len(y), 1)), np.array(y, dtype=float), np.array([0, len(y)]), user_ids=user_ids)


# --- how far one record, or one person, moves them


@given(
    targets=st.tuples(*[st.floats(-3, 3)] * 2),
    others=st.lists(st.floats(-1, 1), max_size=3),
    share=st.floats(1e-3, 0.5),
)
def test_no_target_moves_the_counts_by_more_than_is_accounted(targets, others, share):
    quantiles, grid = Quantiles(share), sums_grid(4)
    one, other = ([target, *others] for target in targets)
    moved = [TargetCounts(quantiles).means(one_node(y))[0] * len(y) for y in (one, other)]
    assert np.linalg.norm(moved[0] - moved[1]) <= 2 * quantiles.clip * (1 + 1e-12)
    whole = [TargetCounts(quantiles).exact_sums(one_node(y), grid)[0] * grid for y in (one, other)]
    assert np.linalg.norm(whole[0] - whole[1]) <= 2 * quantiles.clip


def test_some_target_moves_them_as_far_and_adding_it_by_the_root_of_a_half():
    one, other = (TargetCounts(SOME).means(one_node([y]))[0] for y in (-1.0, 1.0))
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(SOME.share), rel=1e-12)
    assert 2 * SOME.clip == math.sqrt(SOME.share)
    two = 2 * TargetCounts(SOME).means(one_node([-1.0, 1.0]))[0]
    assert np.linalg.norm(two - one) == pytest.approx(math.sqrt(SOME.share / 2), rel=1e-12)


@given(
    people=st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=5), min_size=2, max_size=2),
    share=st.floats(1e-3, 0.5),
)
def test_no_person_moves_them_further_however_many_rows_are_theirs(people, share):
    quantiles, grid, found = Quantiles(share), sums_grid(2), []
    for rows in people:
        shards = one_node([*rows, 0.3], user_ids=[*("ann" for _ in rows), "bob"])
        found.append(
            (2 * TargetCounts(quantiles).means(shards)[0], TargetCounts(quantiles).exact_sums(shards, grid)[0] * grid)
        )
    assert np.linalg.norm(found[0][0] - found[1][0]) <= 2 * quantiles.clip * (1 + 1e-12)
    assert np.linalg.norm(found[0][1] - found[1][1]) <= 2 * quantiles.clip


@pytest.mark.parametrize("people", [False, True])
def test_exact_sums_are_the_means_and_only_its_own_node_moves(people):
    base = data()
    user_ids = np.repeat(np.arange(600), 2) if people else None
    shards = Shards.of(base.X, base.y, np.array([0, 400, 800, 1200]), user_ids=user_ids)
    grid, sizes = sums_grid(400), shards.sizes[:, None]
    sums = TargetCounts(SOME).exact_sums(shards, grid)
    assert np.allclose(sums * grid / sizes, TargetCounts(SOME).means(shards), atol=1e-12)
    each = np.add.reduceat(sums * grid / SOME.factor, np.concatenate([[0], np.cumsum(NESTED_CELLS)[:-1]]), axis=1)
    assert np.allclose(each, sizes)  # every unit once in cells of each size
    y = base.y.copy()
    y[500] = -1.0  # of node 1
    moved = (
        TargetCounts(SOME).exact_sums(Shards.of(base.X, y, np.array([0, 400, 800, 1200]), user_ids=user_ids), grid)
        - sums
    )
    assert np.flatnonzero(np.any(moved, axis=1)).tolist() == [1]


def test_cells_are_public_and_nested():
    y = np.linspace(-1.2, 1.2, 4001)
    places = cells(y)
    for coarse, fine in itertools.pairwise(places):
        assert np.array_equal(coarse, fine // 4)
    assert [int(each.max()) + 1 for each in places] == list(NESTED_CELLS) and all(each.min() == 0 for each in places)


def one_shot(spec, shards):
    return one_shot_of(plan_public(Request(spec, shards.sizes, int(shards.X.shape[1]), shards.people)))


# --- their noise, and its cost


@pytest.mark.parametrize("secret", [False, True])
def test_noise_is_as_large_as_is_accounted_and_no_other_scale_passes(secret, scale_of):
    shards = data(n=2, q=300)
    counted, still = one_shot(SPEC, shards), TargetCounts(SOME).means(shards)
    runs = [counted.released(shards, Streams(seed), fresh() if secret else None) - still for seed in range(8)]
    sigma = single(2.0, 1e-5) / 300
    assert counted.release.sigma == pytest.approx((sigma, sigma))
    draws = np.stack(runs)
    assert scale_of(draws, sigma) and not scale_of(draws, 1.05 * sigma) and not scale_of(draws, sigma / 1.05)


@pytest.mark.parametrize(("law", "adversary"), [("gaussian", "transcript"), ("pairs(10)", "secret_pairs(1)")])
@pytest.mark.parametrize("spec", [SPEC, DESCENT, SPEC.replace(algorithm__method="mean")])
def test_counts_and_run_together_cost_what_is_stated(law, adversary, spec):
    made = prepare(spec.replace(privacy__law=law, privacy__adversary=adversary), data())
    statement = made.statement
    assert statement.epsilon == pytest.approx(2.0, rel=2e-3) and statement.epsilon <= 2.0
    statement.verify()
    event = statement.groups[0].event
    assert event.before is not None and read_event(event.to_dict()) == event
    assert compute_epsilon([replace(event, before=None)], 1e-5).epsilon < 2.0 * 0.98
    assert event.before.noise_multiplier == pytest.approx(single(2.0, 1e-5) / math.sqrt(SOME.share), rel=1e-9)
    assert "released once noisy means" in statement.paragraph()
    low, high = made.public["targets"]
    assert 0.3 < low < 0.4 < high < 0.5


def test_a_run_is_kept_verified_and_has_the_range_it_says(tmp_path):
    for spec in (SPEC, DESCENT):
        result = solve(spec.replace(seed=None), data())
        read = Result.load(result.save(tmp_path / str(spec.algorithm.method)))
        read.verify()
        assert read.spec.privacy.quantiles == SOME and read.public["targets"] == result.public["targets"]
        assert read.statement.secure
        for wrong in ({}, {"targets": [0.5, 0.4]}, {"targets": [0.1, 1.2]}, {"targets": "all"}):
            kept = {name: value for name, value in read.public.items() if name != "targets"}
            with pytest.raises(PrivacyError, match=r"target range|range of targets"):
                replace(read, public=kept | wrong).verify()
    plain = solve(SPEC.replace(privacy__quantiles="none"), data())
    with pytest.raises(PrivacyError, match="or the reverse"):
        replace(plain, public=plain.public | {"targets": [0.3, 0.5]}).verify()


# --- what is made of them


def shares(y, deviation, rng):
    return [
        np.bincount(each, minlength=k) / len(y) + deviation * rng.normal(size=k)
        for each, k in zip(cells(y), NESTED_CELLS, strict=True)
    ]


@pytest.mark.parametrize("deviation", [0.0, 0.002, 0.01])
@pytest.mark.parametrize("wide", [1, 10, 100])
def test_the_range_is_about_that_of_the_targets_however_wide_the_bounds(wide, deviation):
    rng = np.random.default_rng(wide)
    widths, clipped = [], []
    for _ in range(30):
        y = (rng.normal(size=3000) / 3.2).clip(-1, 1) / wide + 0.61 * (1 - 1 / wide)
        low, high = (2 * end - 1 for end in ends(shares(y, deviation, rng), deviation))
        assert -1 <= low < high <= 1
        widths.append((high - low) / 2 * wide)
        clipped.append(np.mean((y < low) | (y > high)))
    assert np.median(widths) < 1.6 and np.median(clipped) < 0.05 and np.mean(clipped) < 0.08


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.floats(0, 0.3), st.integers(0, 99))
def test_it_is_a_range_whatever_the_counts(y, deviation, seed):
    low, high = ends(shares(np.array(y), deviation, np.random.default_rng(seed)), deviation)
    assert 0 <= low < high <= 1 and high - low >= 0.5 / NESTED_CELLS[-1]
    if deviation > 0.07:
        assert (low, high) == (0, 1)  # nothing is sure beside so much noise
    if deviation == 0:
        assert low <= (np.median(y) + 1) / 2 <= high


def test_the_range_is_made_of_what_was_released_and_of_nothing_else():
    """Targets elsewhere in their smallest cells, with the same noise: the same range to the last bit."""
    shards = data()
    inside = np.floor((shards.y + 1) * 512) / 512 - 1
    for spec in (SPEC, DESCENT):
        one, other = (prepare(spec, replace(shards, y=y)) for y in (inside + 1e-5, inside + 1e-3))
        assert one.public["targets"] == other.public["targets"] and one.statement == other.statement
    seen = one_shot(SPEC, shards)
    found = seen.finish(seen.released(shards, Streams(1), None))
    assert [found.low, found.high] == prepare(SPEC, shards).public["targets"]


@given(
    models=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    low=st.floats(-1, 0.9),
    width=st.floats(0.01, 0.1),
    intercept=st.sampled_from([0.0, 0.5]),
)
def test_models_go_there_and_back(models, low, width, intercept):
    narrowed, x = TargetRange(low, low + width, 1.0, intercept), np.array(models)
    assert np.allclose(narrowed.inverse_transform(narrowed.transform(x)), x, atol=1e-9)
    rows = np.random.default_rng(0).normal(size=(5, 4))
    rows[:, -1] = intercept or rows[:, -1]
    middle = narrowed.middle if intercept else 0.0
    assert np.allclose(rows @ narrowed.inverse_transform(x), narrowed.half * (rows @ x) + middle, atol=1e-9)


def test_targets_beyond_the_range_count_as_its_ends_and_rows_stay():
    shards, narrowed = data(), TargetRange(0.396, 0.404, 1.0, 0.5)
    mapped = narrowed.shards(shards)
    assert mapped.X is shards.X and np.abs(mapped.y).max() == 1.0
    inside = np.abs(mapped.y) < 1
    assert np.allclose(narrowed.half * mapped.y[inside] + narrowed.middle, shards.y[inside])
    assert np.array_equal(np.sign(mapped.y[~inside]), np.sign(shards.y[~inside] - 0.4))


@pytest.mark.parametrize("spec", [SPEC, DESCENT.replace(algorithm__rounds=150)])
def test_bounds_fifty_times_too_wide_hardly_matter(spec):
    shards = data(q=2000)
    with_it, without = (solve(each, shards).model for each in (spec, spec.replace(privacy__quantiles="none")))
    rows = np.concatenate([shards.X, np.full((6000, 1), 0.5)], axis=1)
    errors = [float(np.mean((shards.y - rows @ x) ** 2) / np.var(shards.y)) for x in (with_it, without)]
    assert errors[0] < 0.4 and errors[0] < errors[1] / 2


def test_engines_agree_on_it():
    one, other = (solve(DESCENT, data(), execution=Execution(engine)) for engine in ("reference", "nodes"))
    assert np.allclose(one.models, other.models, rtol=1e-9) and one.public["targets"] == other.public["targets"]


def test_without_an_intercept_the_range_lies_about_zero():
    low, high = prepare(SPEC.replace(problem__intercept=0.0), data()).public["targets"]
    assert low == -high and 0.4 < high < 0.5


# --- who is refused, and who pays nothing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy__moments": "moments(0.1)"}, "not both"),
        ({"privacy__quantiles": "quantiles(0.6)"}, "malformed"),
        ({"privacy__quantiles": "quantiles(-0.1)"}, "malformed"),
        ({"privacy__noise": "gaussian(1)"}, "has no budget: write noise"),
        ({"network__graph": "path"}, "between any two nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(SottovoceError, match=message):
        prepare(SPEC.replace(**changes), data())


def test_classes_have_no_range():
    shards = data()
    with pytest.raises(SpecError, match="has classes"):
        prepare(DESCENT.replace(problem__loss="hinge"), replace(shards, y=np.sign(shards.y)))


def test_runs_with_counts_share_their_records_with_none():
    with pytest.raises(SpecError, match="one by one"):
        run_batch([DESCENT, DESCENT.replace(privacy__noise="private(1)")], data())


def test_texts_and_files_of_runs_without_it_are_as_before():
    assert QUANTILES.read("quantiles(0.1)") == QUANTILES.read(str(SOME)) == SOME and str(Quantiles()) == "none"
    assert "quantiles" not in SPEC.replace(privacy__quantiles="none").to_dict()["privacy"]
    assert Spec.from_json(SPEC.to_json()) == SPEC


# --- the plan


def planned(epsilon=1.0, sizes=(10_000,), **more):
    inputs = PublicInputs(
        sizes=sizes, features=6, epsilon=epsilon, delta=1e-5, loss="squared", intercept=0.5, quantiles=True
    )
    return choose(replace(inputs, **more), method="auto")


def test_the_share_is_what_noise_requires_and_none_where_it_drowns():
    found = [planned(epsilon).spec.privacy.quantiles.share for epsilon in (0.01, 0.1, 0.5, 1, 10)]
    assert found[0] == 0.0 and found[1] == 0.1 and found[1] > found[2] > found[3] == found[4] == 0.02
    assert "keep their public range" in planned(0.01).reasons[0]
    assert "noisy counts of the targets" in planned(1.0).reasons[0]
    assert planned(1.0, sizes=(500,) * 20).spec.privacy.quantiles.share == 0.1
    assert planned(1.0, graph="ring", sizes=(5000,) * 5).spec.privacy.quantiles.share == 0.0
    assert planned(1.0, quantiles=False).spec.privacy.quantiles.share == 0.0


@pytest.mark.parametrize(
    ("sizes", "adversary"), [((3000,), "transcript"), ((9000, 1500), "transcript"), ((2000,) * 6, "secret_pairs(2)")]
)
def test_the_plan_foresees_the_noise_that_there_is(sizes, adversary):
    spec = planned(0.5, sizes, adversary=adversary).spec
    shards = Shards.of(np.zeros((sum(sizes), 5)), np.zeros(sum(sizes)), np.concatenate([[0], np.cumsum(sizes)]))
    release = one_shot(spec, shards).release
    weights = np.array(sizes) / sum(sizes)
    left = float(np.linalg.norm(weights * release.sigma)) / spec.privacy.quantiles.factor
    details = 0.01 if 0.02 < spec.privacy.quantiles.share < 0.1 else left
    assert left == pytest.approx(details, rel=0.02) and left < 0.04
    assert spec.privacy.quantiles.factor == math.sqrt(spec.privacy.quantiles.share / 2 / LEVELS)


def test_a_cost_counts_the_share():
    spec = planned(1.0, (2000, 1000)).spec.replace(
        algorithm__method="dual_averaging", algorithm__rounds=20, problem__loss="huber(0.2)"
    )
    found, alone = (
        plan_cost(each, np.array([2000, 1000]), 6, 1.0) for each in (spec, spec.replace(privacy__quantiles="none"))
    )
    assert found.moments == str(spec.privacy.quantiles) and found.moments_sigma > 0 == alone.moments_sigma
    assert found.sigma > alone.sigma
