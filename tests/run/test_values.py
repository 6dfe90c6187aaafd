"""Text at the border, values inside: what is read, how often, and that two spellings of one run are one run."""

import collections
import pickle
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import sottovoce
from sottovoce import AlgorithmSpec, Execution, ProblemSpec, PublicInputs, Spec, plan, registry, solve
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.method import COUNTED, SEQUENCES
from sottovoce.algorithm.methods import METHODS
from sottovoce.errors import NetworkError, SottovoceError, SpecError
from sottovoce.network.activation import ACTIVATIONS
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS
from sottovoce.privacy.calibration import NOISES
from sottovoce.privacy.release import ADVERSARIES, LAWS
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.problem import objective
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.regularizers import DISTANCES, REGULARIZERS, Euclidean, l2
from sottovoce.run.spec import PARTS

SPELLINGS = {
    "loss": (LOSSES, ["hinge", "huber(0.50)", "huber:5e-1", "quantile(0.9)", "softmax"]),
    "h": (
        REGULARIZERS,
        ["l2(5e-4)", "l2:0.0005", "l1(0.1)", "elastic_net(0.1, 2)", "box(-1, 1)", "box(-1, 1, 0.5)", "non_negative",
         "non_negative(mu=2)", "none", "separable(0.1, 0, -1, 2)", "l2_ball(2)", "l1_ball(0.5)", "simplex"],
    ),
    "weights of nodes": (objective.WEIGHTS, ["nodes", "records", "records(100)", "records:1e2"]),
    "graph": (GRAPHS, ["complete", "grid(rows=2)", "small_world(4, p=0.20)", "small_world(k=4, p=2e-1)",
                       "erdos_renyi(p=0.3, seed=2)", "random_regular(degree=4)", "edge_list:a file, with = in it"]),
    "activation": (ACTIVATIONS, ["edges(2)", "edges:2", "edges( k=2 )", "matching(3)", "nodes(1)", "everyone"]),
    "rule": (WEIGHTS, ["metropolis", "uniform", "max_degree", "lazy", "alone"]),
    "method": (METHODS, ["dual_averaging", "descent", "stale(2)", "muffliato(3, 1.2)", "muffliato(omega=1.2, gossip=3)",
                         "admm(lo=0.7)", "scaffold", "output_perturbation"]),
    "sequence": (SEQUENCES, ["constant(20)", "constant:2e1", "linear", "linear(1.0)", "inverse(6, 1)", "geometric(2)"]),
    "counted rounds": (COUNTED, ["all", "tail(0.5)", "tail(0.25)"]),
    "distance": (DISTANCES, ["euclidean", "euclidean(0.5, -1)", "entropy"]),
    "sampling": (SAMPLINGS, ["one", "fixed(1)", "fixed(8)", "poisson(64)", "poisson(0.05)", "poisson:5e-2", "full",
                             "cyclic(4)"]),
    "noise": (NOISES, ["none", "gaussian(0.5)", "gaussian(1, 2, 3)", "private(1)", "private:1.0", "theorem1(0.5)",
                       "theorem1(0.5, 0.01)"]),
    "law": (LAWS, ["gaussian", "laplace", "tree", "pairs(3)", "pairs(3, 0, 2)"]),
    "adversary": (ADVERSARIES, ["transcript", "central", "hidden_participation"]),
}  # fmt: skip
EVERY = [(table, text) for table, texts in SPELLINGS.values() for text in texts]
SAME = [
    (REGULARIZERS, "l2(5e-4)", "l2:0.0005"), (REGULARIZERS, "elastic_net(0, 2)", "l2(2.0)"),
    (LOSSES, "huber", "huber(1.0)"), (objective.WEIGHTS, "records(100)", "records:1e2"),
    (GRAPHS, "small_world", "small_world(k=4, p=0.1, seed=0)"), (SEQUENCES, "linear", "linear(1)"),
    (ACTIVATIONS, "edges:2", " edges( 2 ) "), (SAMPLINGS, "one", "fixed(1)"), (NOISES, "private(1)", "private:1.0"),
    (NOISES, "theorem1(0.5)", "theorem1(0.5, 0.01)"), (METHODS, "muffliato(3, 1.2)", "muffliato(omega=1.2, gossip=3)"),
]  # fmt: skip
TOY = Spec(AlgorithmSpec(30), seed=3)


@pytest.mark.parametrize(("table", "text"), EVERY, ids=[text for _, text in EVERY])
def test_reading_and_writing_are_each_others_inverse(table, text):
    value = table.read(text)
    assert table.read(str(value)) == value and hash(table.read(str(value))) == hash(value)
    assert str(table.read(str(value))) == str(value)  # one canonical text
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(("table", "one", "other"), SAME, ids=[one for _, one, _ in SAME])
def test_two_spellings_are_one_value(table, one, other):
    assert table.read(one) == table.read(other) and str(table.read(one)) == str(table.read(other))


def test_different_choices_are_different_values():
    for table, texts in SPELLINGS.values():
        values = {table.read(text) for text in texts}
        assert len(values) == len({str(value) for value in values})


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ProblemSpec(loss="hingee"), SpecError, "no loss 'hingee'; write one of hinge, smoothed_hinge"),
        (lambda: TOY.replace(problem__loss="hingee"), SpecError, "no loss 'hingee'"),
        (lambda: ProblemSpec(loss=3), SpecError, "no loss 3"),
        (lambda: ProblemSpec(h="l2(mu)"), SpecError, "'mu' for regularizer 'l2' is not a number"),
        (lambda: TOY.replace(network__activation="edges(0)"), NetworkError, "at least 1"),
        (lambda: TOY.replace(privacy__delta=2.0), SottovoceError, "between 0 and 1"),
        (lambda: AlgorithmSpec(rounds=0), SpecError, "at least one round"),
        (lambda: AlgorithmSpec(3, primal="whatever"), SpecError, "recompute"),
        (lambda: PublicInputs((20,), 3, 1.0, 1e-5, "hingee"), SpecError, "no loss"),
    ],
)
def test_what_is_wrong_fails_where_it_is_written(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_spec_holds_values_and_writes_text():
    spec = TOY.replace(problem__h="l2(0.5)", algorithm__distance="euclidean(1, 2)")
    assert spec.problem.h == l2(0.5) and spec.algorithm.distance == Euclidean((1.0, 2.0))
    assert spec == TOY.replace(problem__h=l2(0.5), algorithm__distance=Euclidean((1.0, 2.0)))
    assert spec.to_dict()["problem"]["h"] == "l2(0.5)" and Spec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec and hash(Spec.from_json(spec.to_json())) == hash(spec)
    plain = (int, float, str, bool, list, type(None))
    assert all(isinstance(v, plain) for part in PARTS for v in spec.to_dict()[part].values())
    for part, kind in PARTS.items():  # no field of a choice holds a text
        texts = [f.name for f in fields(kind) if isinstance(getattr(getattr(spec, part), f.name), str)]
        assert set(texts) <= {"on_violation", "primal"}


def test_two_spellings_resume_each_others_checkpoint(make_shards, tmp_path):
    shards = make_shards()
    one = TOY.replace(problem__h="l2(0.0005)", privacy__noise="gaussian(0.5)", network__activation="edges(1)")
    other = TOY.replace(problem__h="l2:5e-4", privacy__noise="gaussian:5e-1", network__activation=" edges( 1 ) ")
    few = Execution("reference", 5)

    def stop(t, T, row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(one, shards, execution=few, progress=stop, checkpoint=tmp_path)
    reached = []
    resumed = solve(other, shards, execution=few, progress=lambda t, T, row: reached.append(t), checkpoint=tmp_path)
    whole = solve(one, shards, execution=few)
    assert np.array_equal(resumed.models, whole.models) and str(resumed.history.rows) == str(whole.history.rows)
    assert len(reached) == len(whole.history) - 1  # the first evaluation was not taken again


def entered(work):
    """Our modules in which some function was called, and how often each text was parsed."""
    root = str(Path(sottovoce.__file__).parent)
    modules, texts = set(), collections.Counter()
    parse = registry.parse

    def count(text):
        texts[text] += 1
        return parse(text)

    def watch(frame, event, _):
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and file.startswith(root) and name != "<module>":
            modules.add(file[len(root) + 1 :])

    work()  # once before: what is loaded on first use is no part of the run
    registry.parse = count
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        registry.parse = parse
    return modules, texts


def test_a_toy_run_enters_few_rooms_and_reads_each_text_once(make_shards):
    shards = make_shards(n=2, q=20, m=8)

    def work():
        choice = plan(
            PublicInputs((20, 20), 8, 1.0, 1e-5, "logistic"), rounds=20, gamma="constant(2)", sampling="poisson(4)"
        )
        assert solve(choice.spec.replace(seed=1), shards).statement.private

    modules, texts = entered(work)
    modules -= {"_renamed.py", "plugins.py"}  # aliases of 0.2, and what is entered once another test has registered
    assert len(modules) <= 36, sorted(modules)
    assert texts and max(texts.values()) == 1, texts


class Slow(Descent):
    """Descent by half of every step: a method that nobody has heard of."""

    def step(self, state, t, nodes, speaks, gradient, noise, mix):
        return super().step(state, t, nodes, speaks, lambda x: 0.5 * gradient(x), 0.5 * noise, mix)


def test_a_method_is_one_row(make_shards, monkeypatch, tmp_path):
    """Known to specs, statements, checkpoints and engines by its name; refused by the compiled one in a sentence."""
    monkeypatch.setitem(METHODS, "slow", None)  # taken out again afterwards
    METHODS.add("slow", lambda i, factor=1.0: Slow(i.h, i.a, factor * i.eta, i.scale))
    shards = make_shards()
    spec = TOY.replace(algorithm__method="slow(2)", problem__h="none", privacy__noise="private(1)")
    assert Spec.from_json(spec.to_json()) == spec and str(spec.algorithm.method) == "slow(2)"
    result = solve(spec, shards, checkpoint=tmp_path)
    assert result.statement.epsilon == pytest.approx(1.0, rel=1e-3)
    plain = solve(spec.replace(algorithm__method="descent"), shards)
    assert np.allclose(result.models, plain.models, atol=1e-12)  # half of twice the step
    assert np.array_equal(solve(spec, shards, execution=Execution("nodes")).models, result.models)
    with pytest.raises(SpecError, match="the compiled engine does not know the method Slow"):
        solve(spec, shards, execution=Execution("compiled"))
    with pytest.raises(SpecError, match=r"write one of .*slow\(factor=1.0\)"):
        TOY.replace(algorithm__method="slower")
