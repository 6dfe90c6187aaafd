"""Runs that go on without lost nodes: σ̂ stays what it was, T + f releases are accounted, and nothing else leaks."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.engine import ENGINES
from sottovoce.errors import NetworkError, PrivacyError, SpecError
from sottovoce.network.dropouts import DROPOUTS
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Epochs
from sottovoce.run.build import prepare
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.result import Result
from sottovoce.run.solve import Execution, solve
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.streams import Streams

PAIRS = Spec(AlgorithmSpec(rounds=12, gamma="constant(1)"), seed=1).replace(
    privacy__law="pairs(3)",
    privacy__adversary="secret_pairs(2)",
    privacy__noise="private(2)",
    privacy__sampling="poisson(4)",
    network__activation="everyone",
    network__averaging="exact",
    privacy__may_lose=2,
)
LOST = PAIRS.replace(network__dropouts="at(1, 5, 4, 9)")


def law_of(n=8, k=2, f=2, ratio=3.0, lost=(2, 5)):
    """A law of equal nodes, epoch after epoch one node fewer."""
    members = np.ones((1 + len(lost), n), dtype=bool)
    for e, node in enumerate(lost):
        members[e + 1 :, node] = False
    first = np.array([1, *range(4, 4 + 3 * len(lost), 3)])
    epochs = Epochs(first, members, np.ones(len(first)), 20)
    return Pairs(n, ratio, None, np.ones(n), k).preparing(f, epochs)


def noises(ratio, n, members, raised, speakers, where):
    """Columns of one address: the noise of every speaker, from own and pair normals; `where` names the address."""
    rows = {}
    for i in speakers:
        row = {("own", i, where): raised}
        for j in members:
            if j != i:
                row["pair", min(i, j), max(i, j), where] = raised * ratio * (1 if i < j else -1)
        rows[i] = row
    return rows


def joint_cost(rows, node):
    """The squared distance, in noise, between node's releases with one record and with another that moves each by 1."""
    names = {name: c for c, name in enumerate(dict.fromkeys(name for _, row in rows for name in row))}
    A = np.zeros((len(rows), len(names)))
    for r, (_, row) in enumerate(rows):
        for name, size in row.items():
            A[r, names[name]] = size
    v = np.array([float(i == node) for i, _ in rows])
    return float(v @ np.linalg.solve(A @ A.T, v))


@pytest.mark.parametrize("seed", range(200))
def test_no_history_that_a_minority_makes_costs_more_than_is_accounted(seed):
    """Views may differ, messages be withheld, anybody be removed: an exact account of what all addresses show.

    The adversary gives each honest node a chain of member lists of its own choice (never the node itself before the
    end, each a subset of the one before), and ends an epoch after any round. Nodes with the same chain share addresses.
    """
    draws = random.Random(seed)
    n, f, rounds = draws.randint(5, 7), draws.randint(1, 2), 3
    k = draws.randint(0, n - f - 2)
    ratio = draws.choice([0.3, 1.0, 3.0, 10.0])
    law = Pairs(n, ratio, None, np.ones(n), k).preparing(f)
    honest = draws.sample(range(n), n - k)
    addresses = {}
    for i in honest:
        chain, t = (tuple(range(n)),), 1
        while t <= rounds:
            addresses.setdefault((chain, t), set()).add(i)
            others = [j for j in chain[-1] if j != i]
            if len(chain[-1]) > n - f and draws.random() < 0.6:
                gone = draws.sample(others, draws.randint(1, len(chain[-1]) - n + f))
                chain = (*chain, tuple(j for j in chain[-1] if j not in gone))  # the round is made anew
                if draws.random() < 0.2:
                    break  # and is then cut off
            else:
                t += 1
    pairs_known = [j for j in range(n) if j not in honest]
    rows = []
    for (chain, t), speakers in addresses.items():
        members = [j for j in chain[-1] if j not in pairs_known]  # colluding nodes' pair noise is known
        raised = math.sqrt(law.raise2(n - len(chain[-1])))
        seen = [i for i in speakers if i in members]
        rows += noises(ratio, n, members, raised, seen, (chain, t)).items()
    for i in honest:
        made = sum(who == i for who, _ in rows)
        assert made <= rounds + f
        bound = made / law.left(()).sigma[i] ** 2
        assert joint_cost(rows, i) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_account_is_the_worst_list_of_members_against_any_coalition(k):
    """By plain inverses; also for a coalition of another size than noise is raised for."""
    made = law_of()
    for other in range(made.n):
        worst = math.inf
        for gone, colluding in itertools.product(range(made.may_lose + 1), [other]):
            h = max(made.n - gone - colluding, 1)
            matrix = made.raise2(gone) * ((1 + 9.0 * h) * np.eye(h) - 9.0 * np.ones((h, h)))
            worst = min(worst, 1 / np.linalg.inv(matrix)[0, 0])
        assert made.against(other).left(()).sigma == pytest.approx([math.sqrt(worst)] * made.n, rel=1e-9)
    plain = Pairs(8, 3.0, None, np.ones(8), 2)
    assert made.left(()).sigma == pytest.approx(plain.left(()).sigma, rel=1e-12) and made.left(()).exact


def test_draws_have_the_stated_covariance_in_every_epoch_and_of_a_release_that_is_given_up():
    law, m = law_of(), 60_000
    sigma = (0.5,) * law.n
    for t, gone in ((1, 0), (4, 1), (7, 2), (20, 2), (21, 0), (22, 1)):
        nodes = np.flatnonzero(law.epochs.members[gone])
        drawn = law.draw(Streams(3), nodes, np.full(len(nodes), t), m, sigma)
        expected = law.covariance((), sigma, t)[np.ix_(nodes, nodes)]
        deviation = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / m)
        assert np.all(np.abs(np.cov(drawn) - expected) < 6 * deviation)
        assert np.var(drawn.sum(axis=0)) == pytest.approx(len(nodes) * 0.25 * law.raise2(gone), rel=0.05)
    first, again = (law.draw(Streams(3), np.array([0, 1]), np.full(2, t), m, sigma) for t in (21, 4))
    assert np.all(np.abs(np.corrcoef(first, again)[:2, 2:]) < 6 / math.sqrt(m))  # fresh noise for the same round


def test_a_run_is_opened_with_its_losses_and_costs_the_same_whether_they_come_or_not():
    sizes = np.full(8, 40)
    plans = [plan_public(Request(spec, sizes, 3)) for spec in (PAIRS, LOST)]
    one, other = (plan.statement(simulated=True, secure=False) for plan in plans)
    assert [group.event for group in one.groups] == [group.event for group in other.groups]
    event = plans[0].event(0)
    assert event.rounds == 14 and one.epsilon == other.epsilon == pytest.approx(2.0, rel=1e-4) and one.epsilon <= 2
    assert one.epsilon == compute_epsilon([event], PAIRS.privacy.delta).epsilon
    assert [group.event.rounds for group in one.others] == [14, 14]  # fewer may collude
    unprepared = plan_public(Request(PAIRS.replace(privacy__may_lose=0), sizes, 3)).event(0)
    assert unprepared.rounds == 12 and 1 < event.sigma / unprepared.sigma < math.sqrt(14 / 12) * 1.01
    assert plans[1].public["lost"] == [[1, 5], [4, 9]] and "lost" not in plans[0].public


def test_the_others_go_on_with_one_model_and_the_lost_may_have_it(make_shards):
    spec = LOST.replace(seed=4)
    shards = make_shards(n=8, q=40, m=3)
    watched = solve(spec, shards, execution=Execution(engine="reference"))
    assert len(np.unique(watched.models, axis=0)) == 1
    nodes = solve(spec, shards, execution=Execution(engine="nodes"))
    np.testing.assert_allclose(nodes.models, watched.models, rtol=0, atol=1e-12)
    prepared = prepare(spec, shards)
    job = prepared.job
    assert job.schedule.participations().tolist() == [12, 4, 12, 12, 8, 12, 12, 12]
    assert "loss of nodes" in ENGINES["compiled"].refusal(job)
    job.schedule.check()


def test_a_secure_run_goes_on_too_and_its_result_verifies(make_shards, tmp_path):
    shards = make_shards(n=8, q=40, m=3)
    result = solve(LOST.replace(seed=None), shards, execution=Execution(observations=None))
    assert result.statement.private and result.statement.secure and len(np.unique(result.models, axis=0)) == 1
    result.save(tmp_path / "run")
    loaded = Result.load(tmp_path / "run")
    loaded.verify()
    assert loaded.public["lost"] == [[1, 5], [4, 9]]
    forged = replace(loaded, spec=loaded.spec.replace(privacy__may_lose=3))
    with pytest.raises(PrivacyError):
        forged.verify()


def test_a_round_is_made_anew_with_independent_noise_too(make_shards):
    spec = LOST.replace(privacy__law="gaussian", privacy__adversary="transcript")
    found = solve(spec, make_shards(n=8, q=40, m=3), execution=Execution(observations=None))
    assert found.statement.groups[0].event.rounds == 14


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"privacy__may_lose": 1}, SpecError, "prepared for 1"),
        ({"privacy__may_lose": 5, "network__dropouts": "none"}, PrivacyError, "two honest ones must stay"),
        ({"privacy__may_lose": 7, "network__dropouts": "none"}, SpecError, "at most 6"),
        ({"network__averaging": "gossip"}, SpecError, "averaging 'exact'"),
        ({"network__activation": "matching(2)"}, SpecError, "activation 'everyone'"),
        ({"privacy__sampling": "cyclic(4)"}, SpecError, "has an order"),
        ({"privacy__law": "pairs(3, graph=ring)"}, PrivacyError, "share with all"),
        ({"privacy__balance": "balance(0.1)", "problem__intercept": 0.25}, SpecError, "by all nodes after the last"),
        ({"network__dropouts": "at(9, 3)"}, NetworkError, "does not fit 8 nodes"),
        ({"network__dropouts": "at(1, 13)"}, NetworkError, "does not fit 8 nodes"),
        ({"privacy__noise": "gaussian(0.5)", "problem__weights": "records"}, PrivacyError, "the same c_iσ_i"),
    ],
)
def test_what_cannot_go_on_is_refused(changes, error, match):
    with pytest.raises(error, match=match):
        plan_public(Request(LOST.replace(**changes), np.array([40] * 7 + [80]), 3)).events()


@pytest.mark.parametrize("text", ["random(0)", "at(1)", "at(1, 2, 1, 3)", "at()", "some"])
def test_choices_that_mean_nothing_are_refused(text):
    with pytest.raises(NetworkError):
        DROPOUTS.read(text)


def test_may_lose_is_a_count():
    for value in (-1, True, 1.5):
        with pytest.raises(SpecError):
            PAIRS.replace(privacy__may_lose=value)
    assert Spec.from_json(LOST.to_json()) == LOST
    assert "may_lose" not in PAIRS.replace(privacy__may_lose=0).to_json()


def test_random_losses_are_public_and_drawn_anew_by_everyone():
    spec = PAIRS.replace(network__dropouts="random(2)")
    found = [plan_public(Request(spec.replace(seed=seed), np.full(8, 40), 3)).public["lost"] for seed in range(20)]
    again = [plan_public(Request(spec.replace(seed=seed), np.full(8, 40), 3)).public["lost"] for seed in range(20)]
    assert found == again and len({str(lost) for lost in found}) > 15 and all(len(lost) == 2 for lost in found)
