"""Intervals of a run: released with the accounted noise, verified, and computed again from what is published."""

import copy
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.inference.estimate import Settings, logistic
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.problem.shards import Shards
from sottovoce.run.inference import StageSums, driven, estimate_of, replayed, rows_of, stages_at
from sottovoce.run.one_shot import OneShotRelease, one_shot_release
from sottovoce.run.result import Result
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec
from sottovoce.run.verify import verify

COVERAGE = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
SPEC = Spec(AlgorithmSpec(10), seed=1).replace(
    problem__loss="logistic", problem__intercept=0.25, privacy__noise="private(2)", privacy__sampling="full",
    privacy__inference="inference(0.9, 1.5, 1.6)", network__activation="everyone",
)  # fmt: skip


def shards_of(N=6000, n=3, seed=0, people=False, real=False):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, 2)) / np.sqrt(2)
    u = 2 * X[:, 0] - X[:, 1] + 0.3
    y = u / 5 + rng.normal(0, 0.1, N) if real else np.where(rng.random(N) < 1 / (1 + np.exp(-u)), 1.0, -1.0)
    return Shards.of(X, y, np.linspace(0, N, n + 1).astype(int), user_ids=np.arange(N) // 2 if people else None)


def ran(spec=SPEC, **how):
    return solve(spec, shards_of(**how), execution=Execution(observations=None))


def test_a_spec_with_intervals_is_written_down_and_read_back():
    assert Spec.from_json(SPEC.to_json()) == SPEC
    assert "inference" not in SPEC.replace(privacy__inference="none").to_dict()["privacy"]
    with pytest.raises(SpecError, match="after the last round, not both"):
        SPEC.replace(privacy__balance="balance(0.02, 0.2)")
    with pytest.raises(SpecError, match=r"0\.95 is the most"):
        SPEC.replace(privacy__moments="moments(0.06)")
    with pytest.raises(SpecError, match="malformed"):
        SPEC.replace(privacy__inference="inference(0.9, 1, 0.5)")


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("seed", [1, None])
def test_a_run_publishes_what_its_estimate_follows_from(seed, people, tmp_path):
    result = ran(SPEC.replace(seed=seed), people=people)
    result.verify()
    assert result.statement.epsilon == pytest.approx(2.0, rel=1e-6) and result.statement.secure == (seed is None)
    found = estimate_of(result)
    truth = np.array([2, -1, 0.3]) / np.array([1.5, 1.5, 1])
    assert np.all(np.abs(found.theta - truth) < 5 * np.sqrt(np.diag(found.covariance)))
    again = Result.load(result.save(tmp_path / "run"))
    again.verify()
    assert np.array_equal(estimate_of(again).theta, found.theta)


def test_a_regression_has_intervals_too():
    result = ran(SPEC.replace(problem__loss="squared", privacy__clip=0.5), real=True)
    result.verify()
    found = estimate_of(result)
    truth = np.array([0.4, -0.2, 0.06]) / np.array([1.5, 1.5, 1])
    assert np.all(np.abs(found.theta - truth) < 5 * np.sqrt(np.diag(found.covariance)))


def test_the_published_sums_are_exact_sums_with_the_accounted_noise():
    """A mean of χ² over 25 runs: the deviation to 6 %, three of which are the limit."""
    shards, squares = shards_of(), []
    for seed in range(25):
        result = solve(SPEC.replace(seed=seed), shards, execution=Execution(observations=None))
        published = result.public["inference"]
        left = iter(published["means"])

        def answer(stage, left=left, published=published):
            mean, query = np.array(next(left)), StageSums(stage, SPEC.privacy.inference)
            exact = query.means(shards).mean(axis=0)
            squares.extend(((mean - exact) / published["deviation"]) ** 2)
            return stage.read(mean, published["deviation"], 0.9)

        driven(logistic(Settings(3, 1.6, 6000), np.array(published["start"])), answer)
    assert np.mean(squares) == pytest.approx(1.0, abs=6 * np.sqrt(2 / len(squares)))
    assert published["deviation"] == pytest.approx(single(2.0, 1e-5) / 2000 / np.sqrt(3), rel=1e-6)


def test_the_whole_budget_is_one_statement():
    """Rounds and intervals compose: neither alone is all of it."""
    result = ran()
    (group,) = result.statement.groups
    assert compute_epsilon([group.event], 1e-5).epsilon == pytest.approx(2.0, rel=1e-6)
    shards = shards_of()
    release = one_shot_release(SPEC, shards.sizes, 2, SPEC.network.graph(3))
    part = OneShotRelease(StageSums(stages_at(SPEC.problem.loss, np.zeros(3), SPEC.privacy.inference)[0],
                                    SPEC.privacy.inference), release, shards.sizes)  # fmt: skip
    assert compute_epsilon([part.events()[0]], 1e-5).epsilon < 2.0
    assert part.events()[0].noise_multiplier == pytest.approx(single(2.0, 1e-5) / np.sqrt(0.9), rel=1e-6)


def test_verify_sees_other_numbers():
    result = ran()
    for name, change in (
        ("deviation", lambda sums: sums.update(deviation=sums["deviation"] / 2)),
        ("not those of this run", lambda sums: sums["means"][1].pop()),
        ("more released sums", lambda sums: sums["means"].append([0.0])),
        ("noise in sums|cannot be read", lambda sums: sums.pop("start")),
    ):
        public = copy.deepcopy(dict(result.public))
        change(public["inference"])
        with pytest.raises(PrivacyError, match=name if name != "deviation" else "noise in sums"):
            verify(result.spec, public, result.statement, result.environment)
    public = {key: value for key, value in result.public.items() if key != "inference"}
    with pytest.raises(PrivacyError, match="states sums for intervals"):
        verify(result.spec, public, result.statement, result.environment)


def test_classes_in_the_other_order_change_the_signs():
    result = replace(ran(), classes=("no", "yes"))
    other = result.with_classes(("yes", "no"))
    assert np.allclose(estimate_of(other).theta, -estimate_of(result).theta)
    assert "class 'no'" in str(other.summary()) and "class 'yes'" in str(other.with_classes(("no", "yes")).summary())
    other.verify()


@pytest.mark.parametrize(
    "changes",
    [{"problem__loss": "hinge"}, {"problem__intercept": 0.0}, {"problem__loss": "softmax", "problem__outputs": 3}],
)
def test_other_models_have_none(changes):
    with pytest.raises(SpecError, match="there are no intervals for loss"):
        ran(SPEC.replace(**changes))


def test_records_of_weight_zero_count_nothing():
    shards = shards_of(n=1)
    half = replace(shards, weights=(np.arange(6000) % 2).astype(float))
    choice = SPEC.privacy.inference
    odd = rows_of(Shards.of(shards.X[1::2], shards.y[1::2], np.array([0, 3000])), 0, np.arange(3000), choice)
    for stage in stages_at(SPEC.problem.loss, np.ones(3), choice):
        assert np.allclose(stage.total(rows_of(half, 0, np.arange(6000), choice), 0.9), stage.total(odd, 0.9))


def test_a_simulation_of_coverage_uses_the_same_noise_and_functions():
    """The benchmark's noise is that of plans, and its loop is the run's."""
    spec = importlib.util.spec_from_file_location("coverage_benchmark", COVERAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    noise = json.loads(module.NOISE.read_text())
    for epsilon in module.EPSILONS:
        assert noise[f"{epsilon:g} one"] == pytest.approx(single(epsilon, 1e-5), rel=1e-6)
        assert noise[f"{epsilon:g} majority"] == pytest.approx(single(epsilon, 1e-5) * np.sqrt(20 / 11), rel=5e-3)
    shards, choice = shards_of(n=1), SPEC.privacy.inference
    rows = rows_of(shards, 0, np.arange(6000), choice)
    deviation, settings, start = 3.0 / 6000, Settings(3, choice.longest, 6000), np.array([0.5, -0.2, 0.0])
    simulated = module.drive(logistic(settings, start), rows, deviation, np.random.default_rng(0))
    rng, means = np.random.default_rng(0), []

    def answer(stage):
        mean = StageSums(stage, choice).means(shards)[0]
        means.append((mean + deviation * rng.standard_normal(len(mean))).tolist())
        return stage.read(np.array(means[-1]), deviation, choice.share)

    driven(logistic(settings, start), answer)
    published = {"start": start.tolist(), "means": means, "deviation": deviation, "reversed": False}
    again = replayed(SPEC, published, 2, 6000, people=False)
    assert np.allclose(again.theta, simulated.theta) and np.allclose(again.covariance, simulated.covariance)
