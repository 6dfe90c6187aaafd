"""Very many nodes: the compiled large network ends where the reference does, in whatever pieces a run is cut."""

import numpy as np
import pytest
import scipy.sparse

from sottovoce.engine import compiled
from sottovoce.engine.job import ENGINES
from sottovoce.errors import SpecError
from sottovoce.network import mixing, schedule
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

ROUNDS, NODES = 8, 9
OFFSETS = np.array([0, 10, 40, 44, 60, 90, 120, 150, 180, 200])
BASE = Spec(AlgorithmSpec(ROUNDS, a="linear(1)", gamma="constant(20)"), seed=3).replace(
    network__activation="everyone",
    privacy__noise="gaussian(0.3)",
    problem__h="l2(1e-2)",
    privacy__sampling="poisson(0.3)",
)
PAIRS = {"privacy__law": "pairs(3)", "privacy__adversary": "secret_pairs(2)"}
GRAPHS = {"mean": {}, "exact": {"network__averaging": "exact"}, "ring": {"network__graph": "ring"}}


@pytest.fixture(autouse=True)
def every_round_is_crowded(monkeypatch):
    for module in (mixing, schedule):
        monkeypatch.setattr(module, "WIDE", 2)


def shards(sparse=False, outputs=1, user_ids=False):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 7)) * (rng.random((200, 7)) < 0.6)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = np.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0) if outputs == 1 else rng.integers(0, outputs, 200).astype(float)
    ids = np.repeat(np.arange(100), 2) if user_ids else None
    offsets = OFFSETS // 2 * 2 if user_ids else OFFSETS
    return Shards.of(scipy.sparse.csr_array(X) if sparse else X, y, offsets, **({"user_ids": ids} if user_ids else {}))


def agree(spec, data, cuts=((1, 3), (4, 4), (5, ROUNDS))):
    job = prepare(spec, data).job
    assert job.schedule.large_n
    true = ENGINES["reference"].run([job], [job.start()], 1, ROUNDS)[0]
    state = job.start()
    for first, last in cuts:
        state = ENGINES["compiled"].run([job], [state], first, last)[0]
    assert np.array_equal(true.since, state.since)
    for mine, theirs in ((state.z, true.z), (state.total, true.total)):
        assert np.max(np.abs(mine - theirs)) <= 1e-6 * np.max(np.abs(theirs))
    return job, state


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"privacy__sampling": "full", "problem__weights": "records", "problem__intercept": 1.0},
        {"privacy__sampling": "fixed(1)", "problem__h": "l1(0.01)"},
        {"privacy__sampling": "cyclic(3)", "algorithm__primal": "as_written"},
        {"algorithm__method": "descent", "problem__h": "box(-0.1, 0.1)"},
        {"algorithm__method": "combine_first", "problem__h": "l2_ball(0.3)"},
        {"problem__h": "l2_ball(0.3)", "algorithm__counted": "tail(0.5)"},
        {"problem__h": "none", "problem__loss": "logistic", "algorithm__curvature": 0.01},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "plain",
)
def test_large_n_ends_where_the_reference_does(graph, changes):
    agree(BASE.replace(**GRAPHS[graph], **changes), shards())


@pytest.mark.parametrize("graph", ["mean", "ring"])
def test_sparse_records_people_and_classes(graph):
    agree(BASE.replace(**GRAPHS[graph], problem__intercept=0.5), shards(sparse=True))
    agree(BASE.replace(**GRAPHS[graph], privacy__clip=0.3), shards(user_ids=True))
    agree(BASE.replace(**GRAPHS[graph], problem__loss="softmax", problem__outputs=3), shards(outputs=3))


@pytest.mark.parametrize(
    "changes",
    [
        {"network__graph": "ring", "network__averaging": "gossip(2)"},
        {"network__graph": "small_world", "network__averaging": "gossip(3)"},
        {"network__graph": "ring", "network__every": 3},
        {"network__graph": "star", "algorithm__method": "combine_first", "network__every": 2},
        {"network__weights": "lazy"},
        {"network__weights": "lazy", "network__averaging": "gossip(2)", "algorithm__method": "descent"},
        {"network__averaging": "exact", "network__every": 3},
        PAIRS,
        PAIRS | {"network__averaging": "exact", "problem__weights": "records"},
        PAIRS | {"privacy__law": "pairs(3, graph=ring, cut=priced)", "network__averaging": "exact"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_other_ways_of_mixing(changes):
    for cuts in (((1, ROUNDS),), ((1, 2), (3, 5), (6, ROUNDS))):
        agree(BASE.replace(**changes), shards(), cuts)


@pytest.mark.parametrize("graph", GRAPHS)
def test_pieces_are_no_other_run_and_runs_can_be_stacked(graph):
    data = shards()
    spec = BASE.replace(**GRAPHS[graph])
    job, state = agree(spec, data)
    whole = compiled.run(job, job.start(), 1, ROUNDS)
    assert np.allclose(whole.z, state.z, rtol=1e-13, atol=1e-13) and np.allclose(whole.total, state.total, atol=1e-12)
    louder = prepare(spec.replace(privacy__noise="gaussian(0.6)"), data, job.schedule).job
    both = compiled.run_many([job, louder], [job.start(), louder.start()], 1, ROUNDS)
    alone = compiled.run(louder, louder.start(), 1, ROUNDS)
    assert np.array_equal(both[0].z, whole.z) and np.array_equal(both[1].z, alone.z)
    assert not np.allclose(alone.z, whole.z, rtol=1e-3)


def test_nodes_that_differ_are_distinguished():
    job, state = agree(BASE, shards())
    z = state.z.copy()
    z[2] += 1.0  # of a run that was brought here from somewhere else
    moved = state._replace(z=z, since=np.ones_like(state.since))
    true = ENGINES["reference"].run([job], [moved], 1, ROUNDS)[0]
    found = ENGINES["compiled"].run([job], [moved], 1, ROUNDS)[0]
    assert np.max(np.abs(found.z - true.z)) <= 1e-6 * np.max(np.abs(true.z))
    assert np.max(np.abs(found.total - true.total)) <= 1e-6 * np.max(np.abs(true.total))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network__activation": "nodes(4)"}, "rounds of so many nodes, and not always the same ones"),
        ({"network__averaging": "clipped(1)"}, r"averaging 'clipped\(1\)' of so many nodes"),
        (PAIRS | {"network__graph": "ring"}, "noise mechanism Pairs of so many nodes"),
    ],
)
def test_what_large_n_does_not_know_is_said(changes, words):
    job = prepare(BASE.replace(**changes), shards()).job
    with pytest.raises(SpecError, match=words):
        ENGINES["compiled"].run([job], [job.start()], 1, 2)
    assert ENGINES["reference"].run([job], [job.start()], 1, 2)[0].z.shape == (NODES, 7)
