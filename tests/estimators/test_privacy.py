"""Nothing but the mechanism sees the records: with one of them changed, only its own node's releases move."""

import numpy as np
import pytest
from sklearn.base import clone

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.engine import reference
from sottovoce.engine.job import gradients
from sottovoce.engine.nodes import Node
from sottovoce.problem.objective import Problem
from sottovoce.run.build import prepare

ROWS, CHANGED = 120, 17
NODES = np.arange(ROWS) % 3
HOME = int(NODES[CHANGED])

CASES = {
    "hinge": PrivateClassifier(private_scaling=False, classes=(0, 1), row_norm=1.0),
    "poisson": PrivateClassifier(
        private_scaling=False, classes=(0, 1), row_norm=1.0, sampling="poisson", batch=8, loss="logistic"
    ),
    "pairs": PrivateClassifier(
        private_scaling=False, classes=(0, 1), row_norm=1.0, activation="edges(1)", sampling="fixed", batch=4
    ),
    "softmax": PrivateClassifier(private_scaling=False, classes=(0, 1, 2), row_norm=1.0),
    "one-vs-rest": PrivateClassifier(private_scaling=False, classes=(0, 1, 2), row_norm=1.0, loss="hinge"),
    "huber": PrivateRegressor(target_bounds=(0, 2), row_norm=1.0),
    "people": PrivateClassifier(private_scaling=False, classes=(0, 1, 2), row_norm=1.0),
}


@pytest.fixture(params=CASES)
def case(request):
    """An estimator, and its run on two tables that differ in one record, or in all records of one person."""
    rng = np.random.default_rng(1)
    estimator = clone(CASES[request.param]).set_params(random_state=5, rounds=12, epsilon=3.0)
    X, y = rng.normal(size=(ROWS, 3)), rng.integers(0, len(getattr(estimator, "classes", (0, 1))), ROWS)
    user_ids = np.arange(ROWS) // 12 * 3 + NODES if request.param == "people" else None  # four rows a person and node
    mine = np.arange(ROWS) == CHANGED if user_ids is None else user_ids == user_ids[CHANGED]
    other_X, other_y = X.copy(), y.copy()
    other_X[mine], other_y[mine] = 100 * rng.normal(size=3), 1 - np.minimum(y[mine], 1)
    tables = (X, y), (other_X, other_y)
    return estimator, [estimator._prepare(*table, NODES, user_ids) for table in tables]


def jobs(runs):
    return [prepare(run.spec, run.shards) for run in runs]


def test_plan_noise_and_schedule_do_not_move(case):
    _, runs = case
    one, other = jobs(runs)
    assert runs[0].spec == runs[1].spec and runs[0].choice == runs[1].choice and runs[0].nodes == runs[1].nodes
    assert one.job.release == other.job.release and one.public == other.public
    for name in ("active", "starts"):
        assert np.array_equal(getattr(one.job.schedule, name), getattr(other.job.schedule, name))
    assert one.statement == other.statement


class Replay:
    """A network on which everybody else says what they said in a recorded run."""

    def __init__(self, heard):
        self.heard, self.sent = heard, []

    def exchange(self, t, payload, peers):
        self.sent += [(t, peer, payload) for peer in peers]
        return {peer: self.heard[t][peer].tobytes() for peer in peers}


def messages(job):
    heard = {}
    for step in reference.rounds(job, job.start(), 1, job.method.steps.T):
        heard[step.t] = dict(zip(step.nodes.tolist(), step.round.message.copy(), strict=True))
    return heard


def said(job, node, heard):
    """All that a node sends when its incoming messages are the recorded ones."""
    shard = Problem(
        job.problem.loss, job.problem.h, job.problem.shards.node(node), job.problem.weights, job.problem.outputs
    )
    transport = Replay(heard)
    mine = [t for t, spoken in heard.items() if node in spoken]
    alone = Node(node, shard, job.method, job.schedule, job.release, job.draws, transport)
    alone.take_turns(job.start().at(np.array([node])), np.array(mine))
    return transport.sent


def test_with_incoming_messages_replayed_only_the_records_own_node_speaks_differently(case):
    _, runs = case
    one, other = (prepared.job for prepared in jobs(runs))
    heard = messages(one)
    for node in range(3):
        before, after = said(one, node, heard), said(other, node, heard)
        assert len(before) > 0
        assert all(np.allclose(np.frombuffer(p), heard[t][node], rtol=1e-9, atol=1e-12) for t, _, p in before)
        assert (before == after) is (node != HOME)


def test_its_release_moves_by_no_more_than_is_accounted_for(case):
    _, runs = case
    one, other = (prepared.job for prepared in jobs(runs))
    furthest = 0.0
    for step in reference.rounds(one, one.start(), 1, one.method.steps.T):
        nodes = step.nodes
        records = one.draws.records(nodes, np.full(len(nodes), step.t))
        moved = [gradients(job.problem, job.release, nodes, records)(step.round.x) for job in (one, other)]
        far = np.linalg.norm(moved[0] - moved[1], axis=1)
        assert np.all(far[nodes != HOME] == 0)
        furthest = max(furthest, float(far.max()))
    event = one.release.event(HOME, int(one.problem.shards.sizes[HOME]), 1)
    assert 0 < furthest <= 2 * event.clip / event.batch * (1 + 1e-9)


def test_nothing_is_computed_from_the_data_outside_the_mechanism(monkeypatch, case):
    estimator, _ = case

    def peeked(*_):
        raise AssertionError("someone examined")

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(ROWS, 3)), rng.integers(0, 2, ROWS)
    for name in ("value", "risk", "gradient", "accuracy", "judge"):
        monkeypatch.setattr(Problem, name, peeked)
    estimator.set_params(random_state=None).fit(X, y)
    assert len(estimator.history_) == 0 and not estimator.privacy_.simulation
    with pytest.raises(AssertionError, match="someone examined"):
        estimator.set_params(random_state=0, track=True).fit(X, y)


def test_a_seed_makes_a_simulation_and_only_a_simulation_is_tracked():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    settings = {"classes": (0, 1), "row_norm": 2.0, "rounds": 30}
    secret = [PrivateClassifier(**settings).fit(X, y) for _ in range(2)]
    assert not np.allclose(secret[0].coef_, secret[1].coef_) and not secret[0].privacy_.simulation
    seeded = [PrivateClassifier(random_state=4, track=True, **settings).fit(X, y) for _ in range(2)]
    assert np.array_equal(seeded[0].coef_, seeded[1].coef_) and seeded[0].privacy_.simulation
    assert "simulation" in seeded[0].privacy_.paragraph()
    assert "not private" in repr(seeded[0].history_)
    label = seeded[0].history_.to_table().schema.metadata[b"privacy"]
    assert seeded[0].history_["round"][-1] == 30 and b"not private" in label
    drawn = PrivateClassifier(random_state=np.random.RandomState(3), **settings).fit(X, y)
    assert drawn.privacy_.simulation


def test_the_statement_keeps_what_was_requested_and_verifies():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    nodes = rng.choice(4, 300, p=[0.1, 0.2, 0.3, 0.4])
    for more in ({}, {"sampling": "poisson", "batch": 8}, {"loss": "logistic", "activation": "matching(1)"}):
        model = PrivateClassifier(1.5, 1e-6, classes=(0, 1, 2), row_norm=2.0, rounds=40, **more).fit(X, y, nodes=nodes)
        assert 1.4 < model.privacy_.epsilon <= 1.5 and model.privacy_.delta == 1e-6 and model.privacy_.private
        model.privacy_.verify()
    assert PrivateClassifier(classes=(0, 1, 2), row_norm=2.0).fit(X, y).privacy_.delta == 1e-5
    wide = np.tile(X, (400, 1)), np.tile(y, 400)  # δ stays below one over the number of records
    model = PrivateClassifier(classes=(0, 1, 2), row_norm=2.0, rounds=1).fit(*wide)
    assert model.privacy_.delta == pytest.approx(0.5 / 120_000)


def test_a_person_counts_once_however_many_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    person = np.array([f"p{i}" for i in rng.integers(0, 60, 300)])
    settings = {"classes": (0, 1), "row_norm": 2.0, "random_state": 0, "n_nodes": 2}
    model = PrivateClassifier(**settings).fit(X, y, user_ids=person)
    assert model.privacy_.unit == "one person" and "every person would have" in model.privacy_.verdict()
    assert sum(group.event.records * len(group.nodes) for group in model.privacy_.groups) == len(np.unique(person))
    by_record = PrivateClassifier(**settings).fit(X, y)
    assert model.privacy_.worst.event.sigma > 3 * by_record.privacy_.worst.event.sigma  # sixty people, not 300 records
    everyone_once = PrivateClassifier(**settings).fit(X, y, user_ids=np.arange(300))
    assert np.array_equal(everyone_once.coef_, by_record.coef_)
    tripled = (np.repeat(X, 3, axis=0), np.repeat(y, 3))  # three copies of a record are no more than the record
    thrice = PrivateClassifier(**settings).fit(*tripled, user_ids=np.repeat(np.arange(300), 3))
    assert np.allclose(thrice.coef_, by_record.coef_, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 1.7, 12.0])
def test_no_fit_spends_more_than_it_was_given(epsilon):
    """Not by a rounding error either: anyone who checks the statement compares numbers."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), rng.integers(0, 2, 90)
    for rounds in (1, 3, 7, 250):
        for n in (1, 2, 3):
            model = PrivateClassifier(epsilon, classes=(0, 1), row_norm=2.0, rounds=rounds, n_nodes=n).fit(X, y)
            assert 0.999 * epsilon <= model.privacy_.epsilon <= epsilon


def test_fits_without_a_seed_are_secure_unless_requested_otherwise():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (200, 3)), np.arange(200) % 2
    fixed = {"row_norm": 1.0, "classes": [0, 1], "rounds": 3}
    for secure in ("auto", True):
        fitted = PrivateClassifier(**fixed, secure=secure).fit(X, y)
        assert fitted.privacy_.secure and not fitted.privacy_.simulation
        assert fitted.privacy_.verdict().startswith("Every record has (ε = 1")
    bare = PrivateClassifier(**fixed, secure=False).fit(X, y)
    assert not bare.privacy_.secure and bare.privacy_.verdict().startswith("NOT HARDENED")
    seeded = PrivateClassifier(**fixed, random_state=0).fit(X, y)
    assert not seeded.privacy_.secure and seeded.privacy_.simulation


def test_warm_starts_people_and_classes_are_secure_too():
    rng = np.random.default_rng(0)
    X, y, ids = rng.uniform(-0.5, 0.5, (600, 3)), np.arange(600) % 3, np.arange(600) // 2
    model = PrivateClassifier(row_norm=1.0, classes=[0, 1, 2], rounds=3, warm_start=True)
    for _ in range(2):
        model.fit(X, y, nodes=ids % 2, user_ids=ids)
        assert model.privacy_.secure and model.coef_.shape == (3, 3) and np.all(np.isfinite(model.coef_))
    assert model.spent_.fits == 2
