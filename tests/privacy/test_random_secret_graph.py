"""Random graphs of shared secrets from public random bits: assumptions, failure rates and statements."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy.accounting import compute_epsilon, risk
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.coalitions import conductances
from sottovoce.privacy.composite_events import JointEvent, SearchEvent, read_event
from sottovoce.privacy.filter import sequential_epsilon
from sottovoce.privacy.random_secret_graph import least_noise_left, linked, throw
from sottovoce.privacy.release import ADVERSARIES, LAWS, Attendance, MechanismContext, Release
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.privacy.statement import PrivacyStatement, make_statement
from sottovoce.streams import Streams

N, K = 60, 20
WATCHING = ADVERSARIES.read(f"secret_pairs({K})")


def law_of(text="pairs(3, peers=57, coins=5, fails=1e-4)", n=N, scale=None, attendance=None, watching=WATCHING):
    sizes = np.full(n, 30)
    setting = MechanismContext(
        GRAPHS.read("complete")(n), SAMPLINGS.read("full"), sizes, 2, None, watching, scale, attendance
    )
    return LAWS.read(text).on(setting)


def second(honest, chance, bits):
    L = np.zeros((honest, honest))
    i, j = throw(honest, chance, bits).T
    L[i, j] = L[j, i] = -1.0
    return np.linalg.eigvalsh(np.diag(-L.sum(axis=1)) + L)[1]


def test_the_second_eigenvalue_is_no_less_than_counted_on_and_more_would_be_too_much():
    honest, chance, fails = 80, 0.5, 0.05
    found = np.array([second(honest, chance, bits) for bits in range(300)])
    counted_on = linked(honest, chance, fails)
    failed = int(np.sum(found < counted_on))
    assert binom.sf(failed - 1, len(found), fails) > 1e-6 or failed == 0
    assert np.mean(found < 3 * counted_on) > 0.5  # a bound that says three times as much would be a false one
    assert counted_on > 0.1 * honest * chance


def test_the_bound_is_tropps():
    honest, chance, fails = 50_001, 180 / 99_999, 1e-9
    peers = honest * chance
    theta = 1 - linked(honest, chance, fails) / peers
    bound = (honest - 1) * (math.exp(-theta) / (1 - theta) ** (1 - theta)) ** (peers / 2)
    assert bound == pytest.approx(fails, rel=1e-6)
    assert linked(honest, 2 * chance, fails) > 2 * linked(honest, chance, fails)
    assert linked(honest, chance, 1e-12) < linked(honest, chance, fails)
    with pytest.raises(PrivacyError, match=r"with 45 honest peers a node, .* take over 64 honest peers"):
        linked(50_001, 90 / 99_999, 1e-9)


def test_what_is_left_is_no_less_than_stated_for_any_coalition():
    chance, rho2 = 57 / 59, 9.0
    d = np.linspace(1.0, 2.0, N)
    said = least_noise_left(d, rho2, chance, 1e-4, K)
    for bits in range(40):
        weights = np.zeros((N, N))
        i, j = throw(N, chance, bits).T
        weights[i, j] = weights[j, i] = rho2
        honest = np.sort(
            np.random.default_rng(bits).permutation(N)[K:]
        )  # settled before: it does not examine random bits
        left = conductances(d[honest][None], weights[np.ix_(honest, honest)][None])[0]
        assert left.min() >= said
    assert said > 8.0  # and it is worth something: independent noise has 1


def test_random_bits_are_fair_and_pairs_differ():
    pairs = np.concatenate([throw(9, 0.3, bits) for bits in range(2000)])
    counts = np.bincount(pairs[:, 0] * 9 + pairs[:, 1], minlength=81).reshape(9, 9)
    i, j = np.triu_indices(9, 1)
    assert counts[np.tril_indices(9)].sum() == 0
    assert np.all(np.abs(counts[i, j] - 600) < 5 * math.sqrt(2000 * 0.3 * 0.7))
    assert np.ptp(counts[i, j]) > 0 and not np.all(np.abs(counts[i, j] - 500) < 5 * math.sqrt(2000 * 0.3 * 0.7))
    once, again, other = throw(50, 0.2, 1), throw(50, 0.2, 1), throw(50, 0.2, 2)
    assert np.array_equal(once, again) and not np.array_equal(once, other)
    assert len(np.unique(once, axis=0)) == len(once)
    big = throw(20_000, 40 / 19_999, 3)
    assert big.max() == 19_999 and abs(len(big) - 400_000) < 5 * math.sqrt(400_000)


def test_what_pairs_share_is_gone_from_the_sum():
    scale = np.linspace(0.5, 2.0, N)
    law = law_of(scale=scale)
    sigma = law.units(N)
    nodes, t = np.tile(np.arange(N), 3), np.repeat(np.arange(1, 4), N)
    drawn = law.draw(Streams(1), nodes, t, 5, sigma).reshape(3, N, 5)
    own = np.take(sigma, nodes)[:, None] * Streams(1).normals(nodes, t, 5)
    assert np.allclose(np.einsum("i,tij->tj", scale, drawn), np.einsum("i,tij->tj", scale, own.reshape(3, N, 5)))
    assert np.std(drawn * scale[:, None]) > 10  # while each has much more than its own
    covariance = law.covariance(coalition=(), sigma=sigma)
    assert np.allclose(covariance.sum(axis=0), 1.0) and np.trace(covariance) > 9 * N


def release_of(sigma=0.02, **changes):
    law = law_of(**changes)
    return Release(SAMPLINGS.read("full"), 1.0, tuple(sigma * u for u in law.units(N)), WATCHING, law)


def test_the_chance_of_failure_is_part_of_delta():
    event = release_of().event(0, 30, 20)
    assert event.slack == 1e-4 and not event.realized and event.note.collusion == K
    plain = release_of().sampling.event(30, 1.0, event.sigma, 20)
    assert (
        compute_epsilon([event], 1e-3).epsilon
        == compute_epsilon([plain], 1e-3 - 1e-4).epsilon
        > compute_epsilon([plain], 1e-3).epsilon
    )
    assert compute_epsilon([event], 1e-4).epsilon == math.inf == compute_epsilon([event], 1e-5).epsilon
    assert compute_epsilon([event, event], 2.5e-4).epsilon == pytest.approx(
        compute_epsilon([plain, plain], 5e-5).epsilon, rel=1e-12
    )
    assert risk([plain], 0.01) < risk([event], 0.01) < risk([plain], 0.011) + 2e-4
    both = JointEvent.of([event, event])
    assert both.slack == 2e-4 and compute_epsilon([both], 1e-3) == compute_epsilon([event, event], 1e-3)
    unit = release_of(1.0).event(0, 30, 20)
    same_event = release_of(1.0).sampling.event(30, 1.0, unit.sigma, 20)
    assert sigma(unit, 1.0, 1e-3) == pytest.approx(sigma(same_event, 1.0, 9e-4))
    assert sigma(unit, 1.0, 1e-3) > sigma(same_event, 1.0, 1e-3)
    with pytest.raises(PrivacyError, match=r"fails with a chance of 0\.0001 cannot be part of δ = 1e-05"):
        sigma(unit, 1.0, 1e-5)
    with pytest.raises(PrivacyError, match="a search is among plain releases"):
        SearchEvent.of([event], 1.0, 0.5)
    assert sequential_epsilon([event, event], 1e-2) > compute_epsilon([event, event], 1e-2).epsilon
    assert read_event(json.loads(json.dumps(event.to_dict()))) == event
    with pytest.raises(PrivacyError, match="is no event of a release"):
        read_event(event.to_dict() | {"slack": 2.0})


def test_the_statement_says_which_model_it_is():
    release, sizes, spoken = release_of(), np.full(N, 30), np.full(N, 20)
    made = make_statement(release, sizes, spoken, 1e-3, (), True)
    said = [text for text in made.assumptions if "public coins" in text]
    assert len(said) == 1 and "a chance of at most 0.0001, which is part of δ" in said[0]
    assert len(made.groups) == 1 and made.collusion.count("ε = ") == 2  # against one, and against none
    again = PrivacyStatement.from_dict(json.loads(made.to_json()))
    again.verify()
    assert again == made
    whole = make_statement(release_of(text="pairs(3)"), sizes, spoken, 1e-3, (), True)
    assert not any("coins" in text for text in whole.assumptions)
    assert whole.epsilon < made.epsilon  # all with all is worth more than some with some, and than a bound


def test_specs_read_back_and_what_is_no_such_law():
    law = LAWS.read("pairs(100, peers=180, coins=7)")
    assert LAWS.read(str(law)) == law and str(law) == "pairs(100, peers=180, coins=7)"
    assert str(LAWS.read("pairs(9, peers=180, fails=1e-12)")) == "pairs(9, peers=180, fails=1e-12)"
    for wrong in ("peers=-1", "peers=5, graph=ring", "peers=5, fails=0", "coins=0.5"):
        with pytest.raises(SpecError, match="malformed"):
            LAWS.read(f"pairs(3, {wrong})")
    assert law_of("pairs(3, peers=59)").whole and law_of("pairs(3, peers=1000)").whole  # all others are
    with pytest.raises(PrivacyError, match="the random bits may cut someone off"):
        law_of("pairs(3, peers=9, coins=1)")
    some = Attendance(np.array([0, N - 1, 2 * N - 1]), np.concatenate([np.arange(1, N), np.arange(N)]))
    with pytest.raises(PrivacyError, match="every node must be active in every round"):
        law_of(attendance=some)
    with pytest.raises(SpecError, match="needs to know how many nodes may collude"):
        law_of(watching=ADVERSARIES.read("secret_pairs"))


def test_random_bits_known_beforehand_are_refused():
    """Who knows the graph surrounds the node with the fewest peers: of its noise nothing but its own is left."""
    n, k, chance = 300, 149, 0.5
    pairs = throw(n, chance, 0)
    links = np.zeros((n, n))
    links[pairs[:, 0], pairs[:, 1]] = links[pairs[:, 1], pairs[:, 0]] = 1.0
    victim = int(np.argmin(links.sum(axis=0)))
    honest = np.setdiff1d(np.arange(n), np.flatnonzero(links[victim])[:k])
    left = conductances(np.ones((1, len(honest))), 1e4 * links[np.ix_(honest, honest)][None])[0]
    assert left[honest.tolist().index(victim)] == pytest.approx(1.0)
    assert least_noise_left(np.ones(n), 1e4, chance, 1e-9, k) > 100.0
    with pytest.raises(SpecError, match=r"has no seed for its random bits.* give it: 'coins=…'"):
        law_of("pairs(3, peers=57, fails=1e-4)")


def test_very_many_nodes_have_a_cost():
    n = 100_000
    watching = ADVERSARIES.read("secret_pairs(majority)")
    law = law_of("pairs(300, peers=200, coins=1)", n, watching=watching)
    left = law.left(law.units(n))
    assert 0.5 < left.sigma[0] ** 2 / 50_001 < 1 and len(set(left.sigma)) == 1
