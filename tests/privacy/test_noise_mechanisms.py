"""Each law's draws have the spread that its event accounts for, and its event is what the accountant would say."""

import math

import numpy as np
import pytest
from parts import full
from scipy import stats

from sottovoce.errors import PrivacyError
from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy.accounting import epsilon
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.events import CyclicEvent, FixedEvent, FullEvent, PoissonEvent
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Gaussian, Laplace, Shaped, Tree
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.streams import Streams

T = 12
GAIN, SPREAD = 0.9 ** np.arange(T), 0.97 ** np.arange(T)
PLAIN = FullEvent(50, 50, 1.0, 0.3, T)
ONE = np.array([0])


def test_shaped_noise_is_drawn_and_accounted_round_by_round():
    law = Shaped(GAIN, SPREAD)
    for t in (1, 7, 12):
        drawn = law.draw(Streams(1), ONE, np.array([t]), 200_000, (0.3,))[0] / (0.3 * SPREAD[t - 1])
        assert stats.kstest(drawn, "norm").pvalue > 1e-3 > stats.kstest(drawn / 0.97, "norm").pvalue
    z = [0.3 * s / (g * 2 / 50) for g, s in zip(GAIN, SPREAD, strict=True)]
    each = epsilon([full(z_t, 1) for z_t in z], 1e-5)
    assert epsilon([law.event(0, PLAIN).part], 1e-5) == pytest.approx(each, rel=1e-9)
    same = Shaped(np.full(T, 2.0), np.ones(T)).event(0, PoissonEvent(50, 5, 1.0, 0.3, 7))
    assert same.sigma == pytest.approx(0.15)  # twice the signal is half the noise, whatever the sampling


def test_shaped_noise_is_refused_where_it_has_no_cost():
    for plain in (PoissonEvent(50, 5, 1.0, 0.3, T), FullEvent(50, 50, 1.0, 0.3, T - 1)):
        with pytest.raises(PrivacyError, match="every node takes all of its records in every round"):
            Shaped(GAIN, SPREAD).event(0, plain)


def test_laplace_noise_is_laplace_and_pure():
    law = Laplace(GAIN, SPREAD, dimension=9)
    drawn = law.draw(Streams(2), ONE, np.array([5]), 200_000, (0.3,))[0] / (0.3 * SPREAD[4])
    assert stats.kstest(drawn, "laplace").pvalue > 1e-3 > stats.kstest(drawn / 0.97, "laplace").pvalue
    event = law.event(0, PLAIN)
    total = sum(g * 2 * math.sqrt(9) / 50 / (0.3 * s) for g, s in zip(GAIN, SPREAD, strict=True))
    assert 1 / event.noise_multiplier == pytest.approx(total)
    assert epsilon([event.part], 1e-9) <= total * (1 + 1e-9)
    unit = law.event(0, FullEvent(50, 50, 1.0, 1.0, T))
    b = sigma(unit, 0.7, 1e-5)
    assert sum(g * 2 * 3 / 50 / (b * s) for g, s in zip(GAIN, SPREAD, strict=True)) == pytest.approx(0.7)


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_pairs_cancel_in_the_sum_and_only_there(graph):
    n, ratio = 20, math.sqrt(10.0)
    g = GRAPHS.make(graph)(n)
    law = Pairs(n, ratio, g.edges)
    nodes, t = np.arange(n), np.full(n, 3)
    drawn, own = (made.draw(Streams(5), nodes, t, 4000, (0.5,) * n) for made in (law, Gaussian()))
    assert np.allclose(drawn.sum(axis=0), own.sum(axis=0), rtol=1e-12, atol=1e-12)
    # what the others' messages leave of node 0's noise, by regression: 1/[Σ⁻¹]_00
    residual = drawn[0] - np.linalg.lstsq(drawn[1:].T, drawn[0], rcond=None)[0] @ drawn[1:]
    event = law.event(0, FixedEvent(100, 1, 1.0, 0.5, 3))
    found = residual @ residual / (4000 - n + 1)
    assert abs(found / event.sigma**2 - 1) < 5 * math.sqrt(2 / 4000) < 0.2
    known = {"complete": 1.83, "ring": 0.64}[graph]  # for σ² = 0.1 and σ_pair² = 1
    assert event.sigma**2 / 0.25 * 0.1 == pytest.approx(known, abs=0.01)


def test_a_coalition_gives_its_seeds_away():
    n = 6
    edges = GRAPHS.make("complete")(n).edges
    law, betrayed = Pairs(n, 2.0, edges), Pairs(n, 2.0, edges, coalition=(4, 5))
    small = Pairs(4, 2.0, GRAPHS.make("complete")(4).edges)
    plain = FullEvent(10, 10, 1.0, 1.0, 1)
    assert betrayed.event(0, plain).sigma == small.event(0, plain).sigma
    assert betrayed.event(0, plain).sigma < law.event(0, plain).sigma
    assert betrayed.event(4, plain).sigma == pytest.approx(1.0)  # its own independent part only


def test_tree_noise_is_that_of_its_nodes():
    """Noise on a prefix of s batches: one unit for each binary digit of s; a new tree in every pass."""
    law, m = Tree(6), 20_000
    steps = law.draw(Streams(3), np.zeros(12, dtype=int), np.arange(1, 13), m, (0.5,))
    for first in (0, 6):
        prefix = np.cumsum(steps[first : first + 6], axis=0)
        for s in range(1, 7):
            assert np.std(prefix[s - 1]) / 0.5 == pytest.approx(math.sqrt(s.bit_count()), rel=0.03)
    assert abs(np.corrcoef(steps[:6].sum(axis=0), steps[6:].sum(axis=0))[0, 1]) < 0.03


def test_tree_sensitivity_is_met_by_brute_force():
    """All tree nodes that contain a record's batch move by 2L/b at most: √(passes·height) of them together."""
    batches, b, q = 6, 5, 30
    event = Tree(batches).event(0, CyclicEvent(q, b, 1.0, 0.7, 12, uses=2))
    depth = event.height
    nodes = [range(j << k, min((j + 1) << k, 8)) for k in range(depth) for j in range(8 >> k)]
    moved = max(sum(leaf in node for node in nodes) for leaf in range(batches))
    assert moved == depth == 4
    release_rounds = 12
    sampling = SAMPLINGS.read(f"cyclic({b})")
    uses = [sum(r in sampling.draw(None, q, t) for t in range(1, release_rounds + 1)) for r in range(q)]
    assert set(uses) == {2}
    assert event.count == 2 * moved and event.rate == 1.0 and event.rounds == release_rounds
    assert event.noise_multiplier == pytest.approx(0.7 / (2 / b))
    with pytest.raises(PrivacyError, match="fixed order"):
        Tree(6).event(0, PLAIN)


def spec(**changes):
    return Spec(AlgorithmSpec(12, gamma="constant(5)"), seed=1).replace(network__activation="everyone", **changes)


def test_runs_name_the_adversary_that_their_noise_faces(make_shards):
    shards, one = make_shards(n=5, q=20), make_shards(n=1, q=60)
    pairs = spec(privacy__law="pairs(2.0, 4)", privacy__noise="private(1.0)", privacy__sampling="full")
    with pytest.raises(PrivacyError, match=r"'secret_pairs\(k\)' only"):
        prepare(pairs, shards)
    made = prepare(pairs.replace(privacy__adversary="secret_pairs"), shards)
    assert made.statement.epsilon == pytest.approx(1.0, rel=2e-3) and len(set(made.job.release.sigma)) == 1
    assert any("coalition" in line for line in made.statement.assumptions)
    made.statement.verify()
    with pytest.raises(PrivacyError, match="cannot be protected against 'central'"):
        prepare(spec(privacy__adversary="central"), shards)
    central = prepare(spec(privacy__adversary="central", privacy__noise="private(1.0)"), one).statement
    central.verify()
    assert central.private and any("trusted place" in line for line in central.assumptions)
    with pytest.raises(PrivacyError, match="secret_pairs"):
        prepare(spec(privacy__adversary="secret_pairs"), shards)


def test_a_tree_run_is_accounted_as_one_gaussian(make_shards):
    one = make_shards(n=1, q=60)
    changes = {"privacy__law": "tree", "privacy__sampling": "cyclic(10)", "privacy__noise": "private(1.0)"}
    made = prepare(spec(algorithm__a="constant(1)", algorithm__gamma="sqrt(1)", **changes), one)
    assert made.statement.worst.event.count == 2 * 4
    assert made.statement.epsilon == pytest.approx(1.0, rel=2e-3)


def test_nodes_alone_never_speak_and_spaced_rounds_seldom(make_shards):
    shards = make_shards(n=5, q=20)
    assert prepare(spec(network__weights="alone"), shards).job.schedule.up_to()[-1] == 0
    every = prepare(spec(network__every=4), shards).job.schedule
    assert np.array_equal(np.flatnonzero(np.diff(every.up_to(), prepend=0)), [3, 7, 11])
    assert np.array_equal(every.weights(1), np.eye(5)) and np.allclose(every.weights(4), 0.2)
    assert np.all(every.participations() == 12)
