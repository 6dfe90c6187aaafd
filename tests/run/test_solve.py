"""From spec to result: reproducible, resumable, saved and loaded without loss, and clear when something is wrong."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from sottovoce import solve
from sottovoce.errors import DataError, NetworkError, PrivacyError, SpecError
from sottovoce.problem.optimum import optimum
from sottovoce.problem.regularizers import Euclidean
from sottovoce.run.build import prepare, reuse_with_noise
from sottovoce.run.plan import rounds_for_epochs
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import COLUMNS, NOT_PRIVATE, Result
from sottovoce.run.solve import observation_rounds
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

SPEC = Spec(AlgorithmSpec(rounds=120), seed=5).replace(problem__h="l2(0.1)", privacy__noise="gaussian(0.2)")


def run(spec, shards, **more):
    return solve(spec, shards, execution=Execution(observations=6), **more)


def test_a_seed_reproduces_and_the_engine_does_not_matter(make_shards):
    shards = make_shards()
    a, b = run(SPEC, shards), solve(SPEC, shards, execution=Execution("nodes", 3))
    assert np.array_equal(a.models, run(SPEC, shards).models)
    assert np.allclose(a.models, b.models, rtol=1e-12)
    assert not np.allclose(a.models, run(SPEC.replace(seed=6), shards).models)
    unseeded = run(SPEC.replace(seed=None), shards)
    assert not np.allclose(a.models, unseeded.models)
    assert a.statement.simulation and not unseeded.statement.simulation


def test_history_is_tidy_and_true(make_shards):
    shards, test = make_shards(), make_shards(n=1, q=30, seed=9)
    job = prepare(SPEC, shards).job
    best = optimum(job.problem, gap=1e-9)
    result = run(SPEC, shards, test=test, f_star=best.value)
    last = result.history.last
    assert list(result.history.rows[0]) == list(COLUMNS)
    assert last["round"] == 120 and last["objective"] == pytest.approx(job.problem.value(result.model))
    assert last["suboptimality"] == pytest.approx(last["objective"] - best.value)
    assert last["messages"] == 240 and last["bytes"] == 240 * 4 * 8
    assert last["epoch"] == pytest.approx(240 / 40)
    assert last["train_accuracy"] == np.mean(np.sign(result.decide(shards.X)) == shards.y)
    assert last["test_accuracy"] == np.mean(np.sign(result.decide(test.X)) == test.y)
    assert np.all(np.diff(result.history["round"]) > 0)


@pytest.mark.parametrize("classes", [None, ("ham", "spam")])
def test_saved_and_loaded_are_equal(make_shards, tmp_path, classes):
    result = run(SPEC, make_shards(), classes=classes, features=tuple("abcd"), nodes=tuple("vwxyz"))
    loaded = Result.load(result.save(tmp_path / "deep" / "run"))
    assert loaded == result and loaded.history.rows == [pytest.approx(r, nan_ok=True) for r in result.history.rows]
    other = replace(result, models=result.models + 1e-15)
    assert other != result
    head = json.loads((tmp_path / "deep" / "run" / "result.json").read_text())
    assert head["format"] == 2 and head["spec"] == json.loads(SPEC.to_json())
    metadata = pq.read_schema(tmp_path / "deep" / "run" / "history.parquet").metadata
    assert metadata[b"privacy"].decode() == NOT_PRIVATE


def test_loading_something_else_is_one_sentence(make_shards, tmp_path):
    with pytest.raises(DataError, match="holds no readable result"):
        Result.load(tmp_path)
    folder = run(SPEC, make_shards()).save(tmp_path)
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace('"format": 2', '"format": 99'))
    with pytest.raises(DataError, match="another version"):
        Result.load(folder)
    (folder / "result.json").write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match="holds no readable result"):
        Result.load(folder)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("engine", ["reference", "nodes"])
def test_an_interrupted_run_continues_as_if_nothing_had_happened(make_shards, tmp_path, engine):
    shards, how = make_shards(), Execution(engine, 8)

    def stop(t, T, row):
        if t >= 40:
            raise Stopped

    with pytest.raises(Stopped):
        solve(SPEC, shards, execution=how, progress=stop, checkpoint=tmp_path)
    rounds = []
    resumed = solve(SPEC, shards, execution=how, progress=lambda t, T, row: rounds.append(t), checkpoint=tmp_path)
    whole = solve(SPEC, shards, execution=how)
    assert rounds and min(rounds) > 40
    assert np.array_equal(resumed.models, whole.models)
    assert resumed.history.rows == [pytest.approx(r, nan_ok=True) for r in whole.history.rows]


def test_a_checkpoint_of_another_run_is_refused(make_shards, tmp_path):
    run(SPEC, make_shards(), checkpoint=tmp_path)
    with pytest.raises(SpecError, match="belongs to another run"):
        run(SPEC.replace(seed=6), make_shards(), checkpoint=tmp_path)
    with pytest.raises(SpecError, match="belongs to another run"):
        run(SPEC, make_shards(sizes=[7, 9, 8, 8, 8]), checkpoint=tmp_path)
    other = make_shards()
    other.X[3, 1] += 1e-12
    with pytest.raises(SpecError, match="belongs to another run"):
        run(SPEC, other, checkpoint=tmp_path)
    with pytest.raises(SpecError, match="cannot be resumed"):
        run(SPEC.replace(seed=None), make_shards(), checkpoint=tmp_path / "new")
    (tmp_path / "checkpoint.npz").write_bytes(b"half a file")
    with pytest.raises(DataError, match="no readable checkpoint"):
        run(SPEC, make_shards(), checkpoint=tmp_path)


BAD = [
    ({"problem__loss": "hinges"}, SpecError, "no loss 'hinges'"),
    ({"problem__loss": "huber(1, 2)"}, SpecError, "malformed; write huber.threshold=1.0."),
    ({"problem__loss": "squared"}, PrivacyError, "no bound; give a clip"),
    ({"problem__h": "l9(1)"}, SpecError, "no regularizer 'l9'"),
    ({"problem__h": "none", "algorithm__gamma": "constant(0)"}, SpecError, "needs a strongly convex h"),
    ({"problem__weights": "people"}, SpecError, "no weights of nodes 'people'; write one of nodes, records"),
    ({"problem__row_norm": 0.5}, DataError, "over the public bound 0.5"),
    ({"problem__row_norm": -1.0}, SpecError, "finite and over 0"),
    ({"problem__intercept": -1.0}, SpecError, "intercept's column needs a value over 0"),
    ({"problem__on_violation": "pray"}, SpecError, "'raise' or 'clip'"),
    ({"network__graph": "blob"}, NetworkError, "blob"),
    ({"network__graph": "random_regular(4, 1, 2)"}, NetworkError, "write random_regular.degree, seed=0."),
    ({"network__graph": "star"}, NetworkError, "biases the objective"),
    ({"network__activation": "edges(0)"}, NetworkError, "edges"),
    ({"network__weights": "heavy"}, NetworkError, "heavy"),
    ({"algorithm__distance": "cosine"}, SpecError, "no distance 'cosine'"),
    ({"algorithm__distance": "entropy"}, SpecError, "unit simplex only"),
    ({"algorithm__distance": "entropy(0)"}, SpecError, "malformed; write entropy"),
    ({"algorithm__distance": "euclidean(0, 1)"}, SpecError, "2 coordinates, but the model has 4"),
    ({"algorithm__rounds": 0}, SpecError, "at least one round"),
    ({"privacy__sampling": "fixed(9)"}, SpecError, "9 records needs nodes"),
    ({"privacy__noise": "gaussian"}, SpecError, "gaussian"),
    ({"privacy__noise": "private(-1)"}, PrivacyError, "over 0, not -1"),
    ({"privacy__noise": "private(1, delta=2)"}, SpecError, "malformed"),
    ({"privacy__clip": 0.0}, SpecError, "clip must be finite and over 0"),
    ({"privacy__clip": float("nan")}, SpecError, "clip must be finite and over 0"),
    ({"problem__h": "l2(mu=x)"}, SpecError, "not a number"),
    ({"privacy__sampling": "fixed(inf)"}, SpecError, "whole number"),
    ({"algorithm__rounds": 20.5}, SpecError, "whole number of rounds"),
    ({"algorithm__curvature": float("nan")}, SpecError, "finite and not negative"),
    ({"algorithm__distance": "euclidean(0, 1, nan, 0)"}, SpecError, "finite coordinates"),
    ({"privacy__delta": 1.0}, PrivacyError, "strictly between 0 and 1"),
    ({"privacy__noise": "gaussian(1, 2)"}, SpecError, "one for each of the 5 nodes"),
    ({"privacy__noise": "theorem1(3)"}, PrivacyError, r"\(0, 1\]"),
    ({"privacy__adversary": "nobody"}, PrivacyError, "no adversary"),
    ({"privacy__adversary": "hidden_participation"}, PrivacyError, "can always be linked"),
    ({"privacy__adversary": "central"}, PrivacyError, "in clear"),
]


@pytest.mark.parametrize(("changes", "error", "words"), BAD, ids=lambda v: str(v)[:40])
def test_what_makes_no_sense_is_refused_before_any_work(changes, error, words, make_shards):
    with pytest.raises(error, match=words):
        solve(SPEC.replace(**changes), make_shards())


def test_rows_over_the_bound_can_be_clipped_instead(make_shards):
    shards = make_shards()
    spec = SPEC.replace(problem__row_norm=0.5, problem__on_violation="clip", privacy__noise="none")
    prepared = prepare(spec, shards)
    assert prepared.public["lipschitz"] == 0.5 and np.max(shards.norms) > 0.5
    from sottovoce.engine import reference

    for step in reference.rounds(prepared.job, prepared.job.start(), 1, 60):
        assert np.all(np.linalg.norm(step.round.zeta, axis=1) <= 0.5 * (1 + 1e-12))


def test_lipschitz_constant_counts_the_intercept_and_the_clip(make_shards):
    def L(**changes):
        return prepare(SPEC.replace(**changes), make_shards()).public["lipschitz"]

    assert L() == 1.0
    assert L(problem__intercept=2.0) == pytest.approx(math.sqrt(5))
    assert L(problem__loss="smoothed_hinge", privacy__clip=0.3) == 0.3
    assert L(privacy__clip=7.0) == 1.0  # a looser clip than the slope bound adds no noise
    assert L(problem__loss="squared_hinge", privacy__clip=7.0) == 7.0


def test_every_run_ends_with_its_statement(make_shards):
    wanted = {
        "none": ("NOT PRIVATE: no noise", False),
        "gaussian(5.0)": ("differential privacy against 'transcript'", True),
        "theorem1(0.5)": ("NOT PRIVATE as claimed: Theorem 1 claims ε = 0.5", False),
        "private(0.7)": ("differential privacy against 'transcript'", True),
    }
    for noise, (words, private) in wanted.items():
        result = run(SPEC.replace(privacy__noise=noise, algorithm__rounds=40), make_shards())
        s = result.statement
        assert words in s.verdict() and s.private is private
        assert s.adversary == "transcript" and s.adjacency == "replace one record of one node" and s.delta == 1e-5
        for group in s.groups:
            spoken = [result.public["participations"][i] for i in group.nodes]
            assert group.event.rounds == max(spoken)
        assert sorted(i for group in s.groups for i in group.nodes) == list(range(5))
        s.verify()
    assert 0.99 * 0.7 < s.epsilon <= 0.7


def test_private_noise_is_what_was_requested_every_node(make_shards):
    shards = make_shards(sizes=[4, 8, 12, 8, 8])
    spec = SPEC.replace(privacy__noise="private(1.0)", privacy__delta=1e-4)
    prepared = prepare(spec, shards)
    assert prepared.statement.delta == 1e-4 and 0.99 < prepared.statement.epsilon <= 1.0
    sigma = dict(zip(shards.sizes.tolist(), prepared.job.release.sigma, strict=True))
    assert sigma[4] > sigma[8] > sigma[12]  # fewer records, more noise


def test_uneven_nodes_get_their_own_noise_and_weight(make_shards):
    shards = make_shards(sizes=[4, 8, 12, 8, 8])
    prepared = prepare(SPEC.replace(privacy__noise="theorem1(0.5)", problem__weights="records"), shards)
    sigma = np.array(prepared.job.release.sigma)
    assert np.allclose(sigma * shards.sizes, sigma[0] * 4)
    assert np.allclose(prepared.job.method.scale, shards.sizes / 8)
    assert [claim["noise_condition_holds"] for claim in prepared.public["theorem1"]] == [True] * 5


def test_uneven_activation_is_corrected_when_requested(make_shards):
    job = prepare(SPEC.replace(network__graph="star", network__correct=True), make_shards()).job
    iota = np.array([1.0, 0.25, 0.25, 0.25, 0.25])
    assert job.method.iota == pytest.approx(iota.mean()) and np.allclose(job.method.scale, iota.mean() / iota)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_run(name, make_shards):
    spec = PRESETS.make(name)(30).replace(seed=1)
    assert run(spec, make_shards(q=70)).models.shape == (5, 4)
    if name in ("liu2022", "conventional-dda"):
        assert prepare(spec, make_shards()).public["iota"] == 1.0


def test_conventional_dda_is_the_papers_equation(make_shards):
    """Eqs. (2)-(3) written out: a_t = 1, everyone, W(z + g), t·h."""
    shards = make_shards(n=4, q=6)
    spec = PRESETS.make("conventional-dda")(40).replace(
        seed=1, network__graph="ring", problem__h="l1(0.05)", algorithm__gamma="sqrt(0.5)", privacy__sampling="full"
    )
    job = prepare(spec, shards).job
    z, total, W = np.zeros((4, 4)), np.zeros((4, 4)), job.schedule.matrix(1)
    for t in range(1, 41):
        x = -np.sign(z) * np.maximum(np.abs(z) - 0.05 * t, 0) / (0.5 * math.sqrt(t))
        total += x
        g = np.stack([
            -(shards.y[r] * (shards.y[r] * (shards.X[r] @ x[i]) < 1)) @ shards.X[r] / 6
            for i, r in enumerate(shards.rows(i) for i in range(4))
        ])  # fmt: skip
        z = W @ (z + g)
    assert np.allclose(run(spec, shards).models, total / 40, atol=1e-12)


def test_epochs_become_rounds():
    spec = Spec(AlgorithmSpec(rounds=1))
    assert rounds_for_epochs(spec, np.full(20, 20000), 3) == 600_000
    assert rounds_for_epochs(spec.replace(network__activation="matching(2)"), np.full(20, 20000), 3) == 300_000
    assert rounds_for_epochs(spec.replace(network__activation="everyone"), np.full(20, 20000), 3) == 60_000
    assert rounds_for_epochs(spec.replace(privacy__sampling="poisson(100)"), np.full(20, 20000), 3) == 6_000
    assert rounds_for_epochs(spec.replace(privacy__sampling="full"), np.full(20, 50), 3) == 30


def test_where_the_run_is_evaluated():
    for T in (1, 2, 7, 1000):
        for count in (1, 2, 5, 40):
            rounds = observation_rounds(T, count)
            assert rounds[-1] == T and rounds[0] >= 1 and len(rounds) <= max(count, 1) and np.all(np.diff(rounds) > 0)
    with pytest.raises(SpecError, match="at least one evaluation"):
        observation_rounds(5, 0)


def test_spec_round_trip_refuses_unknown_fields():
    data = SPEC.to_dict()
    data["network"]["colour"] = "blue"
    with pytest.raises(SpecError, match="colour missing or unknown"):
        Spec.from_dict(data)
    centered = SPEC.replace(algorithm__distance=Euclidean((1.0, 2.0)))
    assert Spec.from_json(centered.to_json()) == centered
    old = SPEC.to_dict()
    old["algorithm"] |= {"distance": "euclidean", "centre": [1.0, 2.0]}  # as version 0.1 wrote it
    assert Spec.from_dict(old) == centered


def test_unknown_engine(make_shards):
    with pytest.raises(SpecError, match="no engine 'quantum'"):
        solve(SPEC, make_shards(), execution=Execution("quantum"))


@pytest.mark.parametrize("noise", ["none", "gaussian(0.3)", "theorem1(0.5)", "private(2)"])
@pytest.mark.parametrize("law", ["gaussian", "pairs(2)"])
def test_another_noise_is_what_a_run_prepared_with_it_has(noise, law, make_shards):
    """Sharing problem, schedule and method changes no number; what is not the same but for noise is not shared."""
    shards = make_shards(sizes=[6, 9, 9, 12, 6])
    adversary = "secret_pairs" if law.startswith("pairs") else "transcript"
    base = Spec(AlgorithmSpec(30, a="constant(1)", gamma="sqrt(0.5)"), seed=4).replace(
        network__activation="everyone",
        privacy__sampling="poisson(2)",
        privacy__law=law,
        privacy__adversary=adversary,
        privacy__noise="gaussian(1)",
    )
    first, wanted = prepare(base, shards), base.replace(privacy__noise=noise)
    found, expected = reuse_with_noise(first, wanted), prepare(wanted, shards)
    assert found.spec == wanted and found.public == expected.public
    assert found.job.release.sigma == expected.job.release.sigma and found.job.method is first.job.method
    assert found.statement == expected.statement
    nodes, t = np.arange(5), np.full(5, 3)
    assert np.array_equal(found.job.draws.noise(nodes, t), expected.job.draws.noise(nodes, t))
    assert (
        reuse_with_noise(first, wanted.replace(seed=5)) is None
        and reuse_with_noise(first, wanted.replace(privacy__clip=0.5)) is None
    )
