"""Runs of several outputs and of people, from spec to saved result; noiseless ones end where scikit-learn ends."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce import solve
from sottovoce.algorithm import bounds
from sottovoce.data.fetch import VARIABLE, load_real, real_path
from sottovoce.errors import DataError, SpecError
from sottovoce.experiments.sweep import sweep
from sottovoce.matrices import unit_rows
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.result import Result
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

MU, T = 0.1, 6000
LONG = Spec(AlgorithmSpec(rounds=T, a="linear(1)", gamma="constant(0)"), seed=2).replace(
    problem__h=f"l2({MU})", problem__outputs=3
)
SHORT = Spec(AlgorithmSpec(rounds=60), seed=5).replace(
    problem__h="l2(0.1)", problem__outputs=3, problem__loss="softmax", privacy__noise="gaussian(0.2)"
)
FEW_OBSERVATIONS = Execution("compiled", 4)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "hinge"])
@pytest.mark.parametrize("people", [False, True])
def test_reaches_the_certified_optimum_at_the_stated_rate(loss, people, make_shards):
    shards = make_shards(n=5, q=20, m=6, outputs=3, people=people)
    spec = LONG.replace(problem__loss=loss)
    best = optimum(make_problem(spec.problem, shards), gap=1e-9)
    prepared = prepare(spec, shards)
    result = solve(spec, shards, f_star=best.value, execution=FEW_OBSERVATIONS)
    public = prepared.public
    setting = bounds.BoundInputs(L=public["lipschitz"], m=18, n=5, iota=public["iota"], beta=public["beta"], mu=MU)
    assert np.mean(np.sum((result.models - best.x) ** 2, axis=1)) <= bounds.corollary1(setting, T)
    assert -1e-7 < result.history.last["suboptimality"] < 4e-3
    assert result.history.last["suboptimality"] < 0.03 * result.history["suboptimality"][0]


def test_softmax_reaches_scikit_learn(make_shards):
    shards = make_shards(n=5, q=20, m=6, outputs=3)
    model = LogisticRegression(C=1 / (MU * 100), fit_intercept=False, tol=1e-12, max_iter=10**5).fit(shards.X, shards.y)
    spec = LONG.replace(problem__loss="softmax", network__activation="everyone", privacy__sampling="full")
    result = solve(spec.replace(algorithm__rounds=2000), shards, execution=FEW_OBSERVATIONS)
    assert np.allclose(result.coef, model.coef_, atol=2e-3)
    assert np.mean(result.predict(shards.X) == model.predict(shards.X)) > 0.98


@pytest.mark.parametrize("intercept", [0.0, 2.0])
@pytest.mark.parametrize("classes", [None, ("ash", "birch", "cedar")])
def test_models_have_a_row_for_each_class_and_survive_saving(intercept, classes, make_shards, tmp_path):
    shards, test = make_shards(outputs=3), make_shards(n=1, q=30, seed=9, outputs=3)
    result = solve(
        SHORT.replace(problem__intercept=intercept), shards, test=test, execution=FEW_OBSERVATIONS, classes=classes
    )
    assert result.coef.shape == (3, 4) and result.intercept.shape == (3,)
    assert result.models.shape == (5, 3 * (4 + (intercept > 0))) and result.public["m"] == result.models.shape[1]
    decision = shards.X @ result.coef.T + result.intercept
    assert np.array_equal(result.decide(shards.X), decision) and decision.shape == (40, 3)
    names = np.arange(3) if classes is None else np.array(classes)
    assert np.array_equal(result.predict(shards.X), names[np.argmax(decision, axis=1)])
    last = result.history.last
    assert last["train_accuracy"] == np.mean(np.argmax(decision, axis=1) == shards.y)
    assert last["test_accuracy"] == np.mean(np.argmax(result.decide(test.X), axis=1) == test.y)
    assert last["bytes"] == last["messages"] * result.models.shape[1] * 8
    loaded = Result.load(result.save(tmp_path))
    assert loaded == result and loaded.spec.problem.outputs == 3 and loaded.classes == classes
    assert np.array_equal(loaded.predict(test.X), result.predict(test.X))
    with pytest.raises(DataError, match="the model has 4 features, but these records have 3"):
        result.decide(test.X[:, :3])


def test_test_data_gets_the_intercept_too(make_shards):
    """One output as well: the intercept's column belongs to the problem, not to the records."""
    shards, test = make_shards(), make_shards(n=1, q=30, seed=9)
    result = solve(SHORT.replace(problem__loss="hinge", problem__outputs=1, problem__intercept=1.0), shards, test=test)
    assert result.history.last["test_accuracy"] == np.mean(np.sign(result.decide(test.X)) == test.y)


def test_specs_with_outputs_round_trip():
    assert Spec.from_json(SHORT.to_json()) == SHORT and SHORT.problem.outputs == 3
    assert Spec(AlgorithmSpec(rounds=1)).problem.outputs == 1
    data = SHORT.to_dict()
    del data["problem"]["outputs"]
    with pytest.raises(SpecError, match="outputs missing or unknown"):
        Spec.from_dict(data)


@pytest.mark.parametrize("people", [False, True])
def test_interrupted_and_swept_runs_are_the_same_runs(people, make_shards, tmp_path):
    shards = make_shards(outputs=3, people=people)
    how = Execution("compiled", 6)

    def stop(t, rounds, row):
        if t >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(SHORT, shards, execution=how, progress=stop, checkpoint=tmp_path)
    resumed = solve(SHORT, shards, execution=how, checkpoint=tmp_path)
    whole = solve(SHORT, shards, execution=how)
    assert np.array_equal(resumed.models, whole.models)
    louder = SHORT.replace(privacy__noise="gaussian(0.4)")
    for found, spec in zip(sweep([SHORT, louder], shards, execution=how), (SHORT, louder), strict=True):
        assert np.array_equal(found.models, solve(spec, shards, execution=how).models)
    if people:
        other = Shards.of(shards.X, shards.y, np.arange(0, 81, 16), user_ids=np.arange(80) // 2)
        with pytest.raises(SpecError, match="another run or other data"):
            solve(SHORT, other, execution=how, checkpoint=tmp_path)


def test_people_are_counted_and_named_everywhere(make_shards):
    """q_i, batches, rates, noise and epochs are of people; the same noise for as many records says record."""
    shards = make_shards(q=10, people=True)
    spec = SHORT.replace(problem__loss="hinge", problem__outputs=1, privacy__noise="private(1.0)")
    spec = spec.replace(privacy__sampling="poisson(4)")
    result = solve(spec, shards, execution=FEW_OBSERVATIONS)
    statement = result.statement
    assert (
        statement.unit == "one person" and "person" in statement.verdict() and "several nodes" in statement.paragraph()
    )
    assert result.public["records"] == [10] * 5 and all(group.event.records == 10 for group in statement.groups)
    assert result.history.last["epoch"] == pytest.approx(sum(result.public["participations"]) * 4 / 50)
    statement.verify()
    records = solve(spec, make_shards(q=10), execution=FEW_OBSERVATIONS).statement
    assert records.unit == "one record" and records.epsilon == statement.epsilon and records.groups == statement.groups
    with pytest.raises(SpecError, match="11 records needs nodes with at least as many, but one has 10"):
        prepare(spec.replace(privacy__sampling="poisson(11)"), shards)


def test_people_at_two_nodes_are_two_units(make_shards):
    shards = make_shards(n=2, q=4)
    twice = Shards.of(shards.X, shards.y, shards.offsets, user_ids=[1, 2, 3, 4, 1, 2, 3, 4])
    assert twice.sizes.tolist() == [4, 4] and twice.starts is None


@pytest.mark.data
def test_mnist_by_gossip():
    """A thousand people of six digits each; sixty rounds without noise get more than eight in ten right."""
    if real_path("mnist") is None or real_path("mnist.t") is None:
        pytest.skip(f"mnist is not in {VARIABLE}")
    train, test = load_real("mnist"), load_real("mnist.t")
    X, y = unit_rows(train.X[:6000]), train.y[:6000]
    shards = Shards.of(X, y, even(6000, 10)[0], user_ids=np.arange(6000) % 100)
    assert shards.sizes.tolist() == [100] * 10
    spec = Spec(AlgorithmSpec(rounds=60, gamma="constant(1)"), seed=1).replace(
        problem__loss="softmax", problem__outputs=10, problem__h="l2(0.001)", problem__intercept=1.0
    )
    spec = spec.replace(network__activation="everyone", privacy__sampling="full")
    held_out = Shards.of(unit_rows(test.X), test.y, np.array([0, 10000]))
    result = solve(spec, shards, test=held_out, execution=Execution("compiled", 1))
    assert result.history.last["test_accuracy"] > 0.82
