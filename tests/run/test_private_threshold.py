"""The threshold between two classes: counts of scores are as sensitive, noisy and dear as is said, and do what for."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from sottovoce import PrivateClassifier, Shards, solve
from sottovoce.errors import NetworkError, PrivacyError, SpecError
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.cost import plan_cost as plan_cost
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.one_shot import BALANCES, NESTED_CELLS, SCORE_CELLS, SCORE_EDGES, Balance
from sottovoce.problem.objective import Problem
from sottovoce.run.build import prepare
from sottovoce.run.one_shot import OneShotRelease, sums_grid
from sottovoce.run.private_threshold import ClassCells, ScoreCells, threshold, threshold_without_prior
from sottovoce.run.result import Result
from sottovoce.run.solve import run_batch
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec
from sottovoce.run.target_range import cells
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

SOME = Balance(0.1, 0.1)
EDGES = np.linspace(-0.5, 0.5, len(SCORE_EDGES))
SPEC = Spec(
    AlgorithmSpec(12, a="constant(1)", gamma="constant(2)"),
    ProblemSpec("logistic", "none", "records", intercept=0.25),
    NetworkSpec(activation="everyone"),
    PrivacySpec("full", "private(2)", balance=SOME),
    seed=1,
)
WITH_PAIRS = {"privacy__law": "pairs(10)", "privacy__adversary": "secret_pairs(1)", "network__averaging": "exact"}


def data(n=3, q=1000, share=0.1, seed=0, first=False):
    """A rare class that lies higher along one column; with `first`, the other class is the rare one."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n * q) < share, 1.0, -1.0)
    X = rng.normal(size=(n * q, 3)) / 4
    X[:, 0] += 0.4 * (y > 0)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.000001
    return Shards.of(X, -y if first else y, q * np.arange(n + 1))


def problem(y, user_ids=None, n=1):
    """Records of these classes, at nodes of the same size."""
    offsets = np.linspace(0, len(y), n + 1).astype(int)
    shards = Shards.of(np.zeros((len(y), 1)), np.array(y, dtype=float), offsets, user_ids=user_ids)
    return Problem(SPEC.problem.loss, SPEC.problem.h, shards.with_intercept(0.25), SPEC.problem.weights)


def heard(balance, some, scores):
    """Both parts of what the first node would release, without noise, times its units: floating point, and exact."""
    queries, grid = parts_of(balance, scores), sums_grid(8)
    plain = np.concatenate([query.means(some.shards)[0] for query in queries]) * some.shards.sizes[0]
    return plain, np.concatenate([query.exact_sums(some.shards, grid)[0] * grid for query in queries])


def parts_of(balance, scores):
    return ScoreCells(balance, scores), ClassCells(balance, scores, EDGES)


def released(query, when, release, some, seed, keys):
    return OneShotRelease(query, release, some.shards.sizes, when).released(some.shards, Streams(seed), keys)


def apart(balance, one, other):
    return [np.linalg.norm(a - b) for a, b in zip(heard(balance, *one), heard(balance, *other), strict=True)]


# --- how far one record, or one person, moves them

RECORD = st.tuples(st.floats(-1, 1), st.sampled_from([-1.0, 1.0]))


PRIORS = st.sampled_from([0.0, 0.1])
"""Without and with a prior."""


@given(two=st.tuples(RECORD, RECORD), others=st.lists(RECORD, max_size=3), share=st.floats(1e-3, 0.5), prior=PRIORS)
def test_no_record_moves_the_counts_by_more_than_is_accounted(two, others, share, prior):
    balance = Balance(share, prior)
    found = []
    for record in two:
        scores, y = np.array([record, *others]).T
        found.append((problem(y), scores))
    moved, exactly = apart(balance, *found)
    assert moved <= math.sqrt(share) * (1 + 1e-12) and exactly <= math.sqrt(share)


def test_some_record_moves_them_as_far():
    one, other = ((problem([y]), np.array([y])) for y in (-1.0, 1.0))
    for balance in (SOME, Balance(0.1)):
        assert apart(balance, one, other)[0] == pytest.approx(math.sqrt(balance.share), rel=1e-12)
        assert sum(query.width for query in parts_of(balance, np.zeros(1))) == balance.width()
    assert prepare(SPEC, data()).job.release.before.clip == math.sqrt(SOME.share) / 2
    both = prepare(SPEC.replace(privacy__moments="moments(0.05)"), data()).job.release.before
    assert both.clip == pytest.approx(math.sqrt(0.15) / 2)


@given(people=st.tuples(*[st.lists(RECORD, min_size=1, max_size=5)] * 2), share=st.floats(1e-3, 0.5), prior=PRIORS)
def test_no_person_moves_them_further_however_many_rows_are_theirs(people, share, prior):
    found = []
    for rows in people:
        scores, y = np.array([*rows, (0.3, 1.0)]).T
        found.append((problem(y, user_ids=[*("ann" for _ in rows), "bob"]), scores))
    moved, exactly = apart(Balance(share, prior), *found)
    assert moved <= math.sqrt(share) * (1 + 1e-12) and exactly <= math.sqrt(share)


# --- their noise, and its cost


@pytest.mark.parametrize("secret", [False, True])
def test_noise_is_as_large_as_is_accounted_and_no_other_scale_passes(secret, scale_of):
    some, scores = problem(np.ones(600), n=2), np.linspace(-1, 1, 600)
    release = prepare(SPEC, some.shards).job.release.before
    first, second = parts_of(SOME, scores)
    still = first.means(some.shards), second.means(some.shards)
    sigma = single(2.0, 1e-5) / 300
    assert release.sigma == pytest.approx((sigma, sigma))
    draws = [[], []]
    for seed in range(100):
        keys = (fresh(), fresh()) if secret else (None, None)
        if seed < 8:
            draws[0].append(released(first, 13, release, some, seed, keys[0]) - still[0])
        draws[1].append(released(second, 14, release, some, seed, keys[1]) - still[1])
    for part, wrong in zip(map(np.stack, draws), (1.05, 1.12), strict=True):
        assert scale_of(part, sigma) and not scale_of(part, wrong * sigma) and not scale_of(part, sigma / wrong)


def test_the_two_parts_and_the_rounds_have_noises_of_their_own():
    shards = data(n=1, q=200)
    made = prepare(SPEC, shards)
    before, (one, _), (_, two) = made.job.release.before, *(parts_of(SOME, np.full(200, at)) for at in (0.0, 1.0))
    first = released(one, 13, before, made.original, 1, None)[0, -SCORE_CELLS:]
    second = released(two, 14, before, made.original, 1, None)[0]
    streams = Streams(1)
    others = [before.noise(streams, np.array([0]), np.array([t]), SCORE_CELLS)[0] for t in range(13)]
    assert not any(np.isclose(one, two).any() for one in (first, second) for two in others)


@pytest.mark.parametrize("pairs", [{}, WITH_PAIRS])
@pytest.mark.parametrize("moments", ["none", "moments(0.05, 0.02)"])
def test_counts_and_run_together_cost_what_is_stated(pairs, moments):
    made = prepare(SPEC.replace(privacy__moments=moments, **pairs), data())
    statement = made.statement
    assert statement.epsilon == pytest.approx(2.0, rel=2e-3) and statement.epsilon <= 2.0
    statement.verify()
    event, spent = statement.groups[0].event, made.spec.privacy.shares
    assert event.before is not None and read_event(event.to_dict()) == event
    assert compute_epsilon([replace(event, before=None)], 1e-5).epsilon < 2.0 * 0.98
    assert event.before.noise_multiplier == pytest.approx(single(2.0, 1e-5) / math.sqrt(spent), rel=1e-9)
    assert "targets or scores" in statement.paragraph()
    alone = prepare(made.spec.replace(privacy__balance="none"), data())
    assert alone.job.release.sigma[0] < made.job.release.sigma[0]  # the rounds paid for it
    needed = plan_cost(made.spec, np.full(3, 1000), 4, 2.0)
    assert needed.moments_sigma == pytest.approx(made.job.release.before.sigma[0]) and "balance" in needed.moments


@pytest.mark.parametrize("more", [{}, WITH_PAIRS, {"seed": None}, {"seed": None, **WITH_PAIRS}])
def test_a_run_is_moved_kept_and_verified(tmp_path, more):
    result = solve(SPEC.replace(**more), data())
    read = Result.load(result.save(tmp_path / "run"))
    read.verify()
    assert read.public["moved"] == result.public["moved"] != 0
    assert read.statement.secure == ("seed" in more) and read.spec.privacy.balance == SOME
    kept = {name: value for name, value in read.public.items() if name != "moved"}
    with pytest.raises(PrivacyError, match="the result moves scores"):
        replace(read, public=kept).verify()
    for wrong in ("x", float("nan"), float("inf"), [0.1, 0.2], True, 1):  # no place to hide anything in
        with pytest.raises(PrivacyError, match="one finite number"):
            replace(read, public=kept | {"moved": wrong}).verify()
    plain = solve(SPEC.replace(privacy__balance="none"), data())
    with pytest.raises(PrivacyError, match="the result moves scores"):
        replace(plain, public=plain.public | {"moved": 0.3}).verify()


def balanced_accuracy(result, some):
    right = np.where(result.decide(some.X) >= 0, 1.0, -1.0) == some.y
    return np.mean([right[some.y == side].mean() for side in (-1.0, 1.0)])


@pytest.mark.parametrize("first", [False, True])
def test_it_balances_whichever_class_is_rare_and_changes_nothing_else(first):
    some, test = data(first=first), data(seed=1, first=first)
    spec = SPEC.replace(privacy__balance=Balance(0.1, 0.9 if first else 0.1))
    moved, plain = solve(spec, some), solve(SPEC.replace(privacy__balance="none"), some)
    right = [balanced_accuracy(result, test) for result in (moved, plain)]
    assert right[0] > 0.7 and right[0] > right[1] + 0.1
    bare = prepare(spec, some)
    assert np.array_equal(moved.models[:, :-1], solve(spec, some).models[:, :-1])
    assert not bare.moved and "moved" not in bare.public  # before there are scores there is nothing to examine
    shift = 0.25 * (moved.models[:, -1] - moved.models[:, -1][0])
    assert np.allclose(shift, 0.0, atol=1e-9)  # in every node's model equally


@pytest.mark.parametrize("engine", ["reference", "nodes", "compiled"])
def test_every_engine_ends_at_the_same_threshold_and_shows_it_last(engine):
    some, test = data(), data(seed=1)
    result = solve(SPEC, some, test=test, execution=Execution(engine, 3))
    other = solve(SPEC, some, execution=Execution("reference", None))
    assert result.public["moved"] == pytest.approx(other.public["moved"], rel=1e-4)
    right = np.mean(np.where(result.decide(test.X) >= 0, 1.0, -1.0) == test.y)
    assert result.history.last["test_accuracy"] == pytest.approx(right)


def test_runs_side_by_side_have_each_their_own_counts_and_cost():
    specs = [SPEC.replace(privacy__noise=noise) for noise in ("private(2)", "private(4)")]
    for run, alone in zip(run_batch(specs, data()), [solve(spec, data()) for spec in specs], strict=True):
        one = run.result()
        assert one.statement == alone.statement and one.public == alone.public
        assert np.allclose(one.models, alone.models, rtol=1e-6)


def test_a_resumed_run_ends_as_if_it_had_never_stopped(tmp_path):
    whole = solve(SPEC, data(), checkpoint=tmp_path / "run")
    again = solve(SPEC, data(), checkpoint=tmp_path / "run")  # all rounds are over, the threshold is to come
    assert np.array_equal(whole.models, again.models) and whole.public["moved"] == again.public["moved"]


# --- what is made of them


@pytest.mark.parametrize("middle", [-0.5, 0.0, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_edges_are_about_the_scores_also_where_these_lie_at_the_end_of_public_cells(middle, epsilon):
    """Scores of centerd records have their median at 0, which is an end of cells of every size."""
    records, spread, balance = 10_000, 0.04, Balance(0.04, 0.03)
    quiet = replace(prepare(SPEC, data()).job.release.before, sigma=(1.0,))
    noise = single(epsilon, 1e-5) / records
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.normal(middle, spread, records).clip(-1, 1)
        counted = [
            np.bincount(each, minlength=k) / records for each, k in zip(cells(scores), NESTED_CELLS, strict=True)
        ]
        first = np.concatenate(counted) * balance.where.factor
        requested = OneShotRelease(ScoreCells(balance, scores), quiet, np.array([records]), 13)
        edges = requested.finish((first + noise * rng.normal(size=len(first)))[None])
        assert abs(edges[len(edges) // 2] - middle) < spread / 2
        assert 0.5 * spread < (edges[-1] - edges[0]) / 4 < 1.7 * spread


def counts(shift, records=10_000, prior=0.03, noise=0.0, rng=None):
    """Of two normal laws in cells of half a deviation."""
    inner = scipy.stats.norm.cdf(np.array(SCORE_EDGES)[None] - np.array([[0.0], [shift]]))
    shares = np.diff(np.concatenate([np.zeros((2, 1)), inner, np.ones((2, 1))], axis=1), axis=1)
    exact = records * np.array([[1 - prior], [prior]]) * shares
    return exact if rng is None else exact + noise * rng.normal(size=exact.shape)


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0, 3.0])
def test_it_is_halfway_where_it_is_known_how_far_the_classes_are_apart(shift):
    found = threshold(counts(shift, 1e6), np.array(SCORE_EDGES), 1.0, 1e6, 0.03, 0.5)
    assert found == pytest.approx(shift / 2, abs=0.03)


@pytest.mark.parametrize("shift", [0.6, 1.0, 2.0])
def test_beside_noise_it_loses_little_of_the_best(shift):
    """300 records of a rare class, the noise of ε = 1: within two points of balanced accuracy, on average."""
    rng, cdf = np.random.default_rng(0), scipy.stats.norm.cdf
    found = np.array([threshold(counts(shift, noise=30.0, rng=rng), np.array(SCORE_EDGES), 30.0, 1e4, 0.03, 0.5)
                      for _ in range(200)])  # fmt: skip
    lost = cdf(shift / 2) - (cdf(shift - found) + cdf(found)) / 2
    assert 0 <= lost.mean() < 0.02 and np.quantile(lost, 0.95) < 0.08


@given(
    st.lists(st.floats(-1e5, 1e5), min_size=SCORE_CELLS, max_size=SCORE_CELLS),
    st.floats(1e-3, 1e6),
    st.floats(0.01, 0.99),
    st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
)
def test_it_is_an_edge_or_between_whatever_the_counts_and_lower_the_more_the_second_class_weighs(h, noise, prior, two):
    table, edges = np.array(h).reshape(2, -1), np.array(SCORE_EDGES)
    light, heavy = (threshold(table, edges, noise, 1e4, prior, weight) for weight in sorted(two))
    assert edges[0] <= heavy <= light + 1e-9 and light <= edges[-1]
    turned = threshold(table[::-1, ::-1], -edges[::-1], noise, 1e4, 1 - prior, 1 - max(two))
    if abs(prior - 0.5) > 1e-6:
        assert turned == pytest.approx(-heavy, abs=0.02)  # the same from the other end


def test_without_anything_to_see_it_is_a_guess_between_the_classes():
    blind = threshold(counts(1.0), np.array(SCORE_EDGES), 1e6, 1e4, 0.03, 0.5)
    assert 0.2 < blind < 0.8  # every AUC is as likely: Δ is 0.95 or less half of the time


@pytest.mark.parametrize("middle", [0.0, 0.01, 0.1, -0.3])
def test_noise_does_not_take_the_edges_away_from_the_scores(middle):
    """Least of all where the median is an end of cells of every size, as 0 is."""
    rng, sizes = np.random.default_rng(0), np.array([5000])
    release = replace(prepare(SPEC, data(n=1, q=100)).job.release.before, sigma=(single(1.0, 1e-5) / 5000,))
    for seed in range(40):
        scores = rng.normal(middle, 0.04, 5000)
        requested = OneShotRelease(ScoreCells(Balance(0.04, 0.03), scores), release, sizes, 13)
        edges = requested.finish(requested.released(problem(np.ones(5000)).shards, Streams(seed), None))
        assert abs(edges[4] - middle) < 0.04 and 0.015 < (edges[8] - edges[0]) / 4 < 0.1


def without_prior(prior, shift, noise, rng, records=5_000):
    """Shares of the classes, and of all records by class and cell: two normal laws, in units of all scores."""
    middle, spread = prior * shift, math.sqrt(1 + prior * (1 - prior) * shift**2)
    inner = scipy.stats.norm.cdf(np.array(SCORE_EDGES)[None] * spread + middle - np.array([[0.0], [shift]]))
    shares = np.diff(np.concatenate([np.zeros((2, 1)), inner, np.ones((2, 1))], axis=1), axis=1)
    shares *= np.array([[1 - prior], [prior]])
    classes = shares.sum(axis=1) + noise * rng.normal(size=2)
    return (classes, shares + noise * rng.normal(size=shares.shape)), middle, spread


def answered(at, prior, shift):
    """Shares of right answers and of answers with the second class, of a threshold in the first one's deviations."""
    cdf = scipy.stats.norm.cdf
    return (1 - prior) * cdf(at) + prior * cdf(shift - at), (1 - prior) * cdf(-at) + prior * cdf(shift - at)


@pytest.mark.parametrize("prior", [0.2, 0.37, 0.63, 0.8])
@pytest.mark.parametrize("noise", [0.002, 0.05])
def test_without_a_prior_it_finds_where_most_answers_are_right(prior, noise):
    rng, shift, edges = np.random.default_rng(0), 2.5, np.array(SCORE_EDGES)
    best = max(answered(at, prior, shift)[0] for at in np.linspace(-3, 6, 200))
    lost = []
    for _ in range(40):
        shares, middle, spread = without_prior(prior, shift, noise, rng)
        found = threshold_without_prior(*shares, edges, noise, 5_000)
        lost.append(best - answered(found * spread + middle, prior, shift)[0])
    assert 0 <= np.mean(lost) < (0.01 if noise < 0.01 else 0.05)
    assert np.mean(lost) < (best - max(prior, 1 - prior)) / 2  # far better than one class only


@pytest.mark.parametrize("prior", [0.1, 0.9])
def test_without_a_prior_either_class_is_answered_though_scores_say_little(prior):
    shares, middle, spread = without_prior(prior, 0.4, 0.002, np.random.default_rng(0))
    found = threshold_without_prior(*shares, np.array(SCORE_EDGES), 0.002, 5_000)
    positive = answered(found * spread + middle, prior, 0.4)[1]
    assert 0.05 * min(prior, 1 - prior) < (positive if prior < 0.5 else 1 - positive) < 0.5


@given(st.lists(st.floats(-1e3, 1e3), min_size=SCORE_CELLS, max_size=SCORE_CELLS), st.floats(1e-4, 1e3))
def test_without_a_prior_it_is_near_the_edges_whatever_the_counts(h, noise):
    edges = np.linspace(0.1, 0.3, len(SCORE_EDGES))
    found = threshold_without_prior(np.array(h[:2]), np.array(h).reshape(2, -1), edges, noise, 100)
    assert 0.07 <= found <= 0.33


@pytest.mark.parametrize("middle", [-0.72, 0.0, 0.12, 0.5])
@pytest.mark.parametrize("records", [400, 4_000])
def test_without_a_prior_edges_are_about_the_scores_of_few_records(middle, records):
    """Of 400 records at ε = 1 noise is a seventh of all in every cell; the law of all scores is found all the same."""
    spread, release = 0.08, prepare(SPEC, data(n=1, q=100)).job.release.before
    release = replace(release, sigma=(single(1.0, 1e-5) / records,))
    for seed in range(20):
        scores = np.random.default_rng(seed).normal(middle, spread, records).clip(-1, 1)
        requested = OneShotRelease(ScoreCells(Balance(0.1), scores), release, np.array([records]), 13)
        edges = requested.finish(requested.released(problem(np.ones(records)).shards, Streams(seed), None))
        assert abs(edges[4] - middle) < 1.5 * spread and 0.4 * spread < (edges[8] - edges[0]) / 4 < 2.5 * spread


# --- where the planner spends on it

RARE = {
    "features": 50,
    "epsilon": 1.0,
    "delta": 1e-5,
    "intercept": 0.25,
    "private_scaling": True,
    "free": ("loss", "penalty"),
}


def planned(records, prior, *, n=1, fixed=None, **more):
    weight = 2 * prior
    settings = RARE | {"weight": weight, "rarest": prior, "balance": (prior, 0.5)} | more
    return choose(PublicInputs((records // n,) * n, **settings), **(fixed or {})).spec


def test_half_of_the_weights_and_a_release_where_whole_weights_would_drown():
    spec = planned(10_000, 0.03)
    assert spec.privacy.balance == Balance(0.04, 0.03, 0.5) and str(spec.problem.loss) == "logistic"
    assert planned(10_000, 0.03, n=20, adversary="secret_pairs(1)").privacy.balance.share
    half = math.sqrt(0.03 / 0.97)
    assert spec.privacy.balance.weights == pytest.approx((half, 1.0))
    assert spec.privacy.balance.mean_weight == pytest.approx(0.03 + 0.97 * half)
    assert Balance(0.04, 0.97, 0.5).weights == pytest.approx((1.0, half))


@pytest.mark.parametrize(
    "spec",
    [
        lambda: planned(60_000, 0.1),  # noise is small beside 6,000 records
        lambda: planned(2_000, 0.01),  # 20 records are not distinguished from noise
        lambda: planned(10_000, 0.03, epsilon=0.1),
        lambda: planned(10_000, 0.3),  # no class is rare
        lambda: planned(10_000, 0.03, private_scaling=False),
        lambda: planned(10_000, 0.03, intercept=0.0),
        lambda: planned(10_000, 0.03, balance=None),
        lambda: planned(10_000, 0.03, fixed={"alpha": 0.01}),
        lambda: planned(10_000, 0.03, n=5, graph="ring"),
    ],
)
def test_no_release_where_it_would_not_pay_or_cannot_be_made(spec):
    assert spec().privacy.balance == Balance()


@pytest.mark.parametrize(
    ("records", "share"), [(180, 0.0), (200, 0.1), (350, 0.1), (400, 0.1), (900, 0.1), (1_000, 0.0)]
)
def test_without_a_prior_it_is_for_records_whose_noise_hides_the_constant_and_no_counts(records, share):
    facts = PublicInputs((records,), threshold=True, **RARE)
    assert choose(facts).spec.privacy.balance == Balance(share)
    assert choose(replace(facts, threshold=False)).spec.privacy.balance == Balance()
    for fixed in ({"alpha": 0.01}, {"activation": "edges(1)"}):
        assert choose(replace(facts, sizes=(records,) * 4), **fixed).spec.privacy.balance == Balance()
    assert choose(replace(facts, intercept=0.0)).spec.privacy.balance == Balance()


def test_the_constant_of_breast_cancer_is_not_lost():
    """20 owners who trust nobody, ε = 4: one class was the answer to nearly every record, at an AUC of 0.97."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X / X.max(axis=0)  # in a test bounds may be read off
    order = np.random.default_rng(0).permutation(len(y))
    X, y, test = X[order], y[order], slice(426, None)
    right = []
    for seed in range(3):
        model = PrivateClassifier(4.0, classes=[0, 1], bounds=(0, 1), n_nodes=20, random_state=seed)
        model.fit(X[:426], y[:426])
        assert model.spec_.privacy.balance == Balance(0.1)
        right.append(model.score(X[test], y[test]))
    assert np.mean(right) > 0.8


def test_a_plan_without_it_is_what_it_was():
    assert planned(60_000, 0.1) == planned(60_000, 0.1, balance=None)


# --- errors, and its notation


def test_it_is_written_and_read_back():
    for balance in (Balance(), SOME, Balance(0.04, 0.3, 0.7), Balance(0.1)):
        assert BALANCES.read(str(balance)) == balance
    assert Balance(0.0, 0.2, 0.1) == Balance()
    assert Spec.from_json(SPEC.to_json()) == SPEC and "balance" not in SPEC.replace(privacy__balance="none").to_json()


@pytest.mark.parametrize("wrong", ["balance(-0.1)", "balance(0.6)", "balance(0.1, -0.1)", "balance(0.1, 0.5, 1)"])
def test_a_share_or_a_prior_that_is_none_is_refused(wrong):
    with pytest.raises(SpecError, match="write 'balance"):
        BALANCES.read(wrong)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"problem__intercept": 0.0}, SpecError, "moves the constant term between two classes"),
        ({"problem__loss": "absolute"}, SpecError, "moves the constant term between two classes"),
        ({"problem__loss": "softmax", "problem__outputs": 2}, SpecError, "moves the constant term between two classes"),
        ({"privacy__noise": "gaussian(1)"}, PrivacyError, "has no budget: write noise"),
        ({"privacy__noise": "none"}, PrivacyError, "has no budget: write noise"),
        ({"network__graph": "ring", "network__activation": "everyone"}, NetworkError, "links between any two"),
    ],
)
def test_runs_that_cannot_have_it_say_so(changes, error, words):
    with pytest.raises(error, match=words):
        some = data(n=5)
        several = "problem__outputs" in changes
        prepare(SPEC.replace(**changes), some.relabeled((some.y + 1) / 2) if several else some)


def test_shares_that_are_too_much_together_are_refused():
    with pytest.raises(SpecError, match=r"together, and 0\.5 is the most"):
        SPEC.replace(privacy__moments="moments(0.3, 0.15)")
    with pytest.raises(SpecError, match="no run has both"):
        SPEC.replace(privacy__quantiles="quantiles(0.1)")
