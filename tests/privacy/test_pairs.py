"""Noise that pairs cancel: draws have the accounted covariance, and no coalition sees more than stated."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.engine import reference
from sottovoce.errors import PrivacyError, SottovoceError, SpecError
from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy import coalitions, pairs
from sottovoce.privacy.accounting import compute_epsilon, epsilon
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import FixedEvent, FullEvent, PoissonEvent, envelope
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.profiles import gaussian_epsilon
from sottovoce.privacy.release import ADVERSARIES, LAWS, Attendance, SecretPairs
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.build import prepare
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.result import Result
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.streams import Streams

N = 5
C = np.array([0.6, 1.4, 0.9, 1.3, 0.8])
SIGMA = (0.5, 0.3, 0.4, 0.2, 0.7)
SPOKE = [(0, 1, 2, 3, 4), (0, 1), (1, 2, 4), (0, 3), (0, 1, 2, 4), (0, 1), (2, 3, 4), (0, 1, 3)]
SOME = Attendance(np.cumsum([0, *map(len, SPOKE)]), np.array([i for who in SPOKE for i in who]))
EDGES = {
    "complete": None,
    "ring": GRAPHS.make("ring")(N).edges,
    "path": GRAPHS.make("path")(N).edges,
    "wheel": np.array([[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4], [1, 4]]),
}


def law_of(graph="complete", k=1, ratio=3.0, c=C, attendance=None, uneven=None):
    return Pairs(N, ratio, EDGES[graph], c, k, attendance, uneven=uneven)


def sigma_h(law, sigma, honest):
    """Σ_H from its definition: one column a noise, and the product of the columns."""
    tau = law.scale * np.array(sigma)
    rho, columns = law.ratio * tau.max(), [np.diag(tau)[:, [i]] for i in honest]
    for e, (i, j) in enumerate(law.pairs.tolist()):
        if i in honest and j in honest:
            times = 1.0 if law.uneven is None else law.uneven[e]
            columns.append(rho * times * (np.eye(N)[:, [i]] - np.eye(N)[:, [j]]))
    columns = np.concatenate(columns, axis=1)[sorted(honest)]
    return columns @ columns.T


def hidden(law, sigma, i, coalition, who=range(N)):
    """σ̂_i by a plain inverse."""
    honest = sorted(set(who) - set(coalition))
    inverse = np.linalg.inv(sigma_h(law, sigma, honest))
    return 1.0 / (law.scale[i] * math.sqrt(inverse[honest.index(i), honest.index(i)]))


def without(i, k):
    return itertools.combinations([j for j in range(N) if j != i], k)


# --- draws


def near(found, expected, count, times=5.0):
    """Whether a measured covariance of so many samples is the expected one."""
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    return bool(np.all(np.abs(found - expected) < times * error))


@pytest.mark.parametrize("graph", EDGES)
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("t", [1, 5, 8])
def test_the_noise_of_a_round_has_the_stated_covariance(graph, uneven, t):
    """Times c_i, over the nodes that speak; also one row at a time; and another scale is not taken for it."""
    m, who = 40_000, np.array(SPOKE[t - 1])
    pairs_ = len(law_of(graph).pairs)
    law = law_of(graph, attendance=SOME, uneven=np.resize([1.0, 0.5, 1.75], pairs_) if uneven else None)
    drawn = law.draw(Streams(3), who, np.full(len(who), t), m, SIGMA)
    alone = [law.draw(Streams(3), np.array([i]), np.array([t]), m, SIGMA)[0] for i in who]
    assert np.allclose(drawn, alone, rtol=1e-12, atol=1e-12)
    found, expected = np.cov(C[who, None] * drawn), sigma_h(law, SIGMA, who.tolist())
    assert near(found, expected, m) and not near(found * 1.08, expected, m) and not near(found / 1.08, expected, m)
    assert np.allclose(law.covariance((), SIGMA, t)[np.ix_(who, who)], expected)
    own = np.array(SIGMA)[who, None] * Streams(3).normals(who, np.full(len(who), t), m)
    assert np.allclose(C[who] @ drawn, C[who] @ own, rtol=1e-9, atol=1e-9)  # in the weighted sum nothing else is left


def test_rounds_have_noise_of_their_own():
    law, m = law_of(attendance=SOME), 20_000
    drawn = law.draw(Streams(3), np.array([0, 0, 0]), np.array([1, 2, 4]), m, SIGMA)
    assert np.all(np.abs(np.corrcoef(drawn) - np.eye(3)) < 5 / math.sqrt(m))
    with pytest.raises(PrivacyError, match="does not activate"):
        law.draw(Streams(3), np.array([3]), np.array([2]), 4, SIGMA)


@pytest.mark.parametrize("coalition", [(1,), (3,), (0, 4), (1, 2)])
def test_a_coalition_s_seeds_take_its_noise_out_and_no_more(coalition):
    """Real pairs, drawn one by one: what is left at the others once the known seeds are subtracted has Σ_H."""
    law, m = law_of(uneven=np.ones(10)), 40_000
    who = np.arange(N)
    drawn = C[:, None] * law.draw(Streams(9), who, np.ones(N, dtype=int), m, SIGMA)
    rho = law.ratio * np.max(C * SIGMA)
    for e, (i, j) in enumerate(law.pairs.tolist()):
        if i in coalition or j in coalition:
            known = rho * Streams(9).normals(np.array([N + e]), np.array([1]), m)[0]
            drawn[i] -= known
            drawn[j] += known
    honest = sorted(set(range(N)) - set(coalition))
    found, expected = np.cov(drawn[honest]), sigma_h(law, SIGMA, honest)
    assert near(found, expected, m) and not near(found * 1.08, expected, m)


# --- the account


@pytest.mark.parametrize("graph", EDGES)
@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("ratio", [0.3, 3.0, 1e3])
def test_the_worst_of_all_coalitions_is_found(graph, k, ratio):
    law = law_of(graph, k, ratio)
    found = law.left(SIGMA)
    assert found.exact and not found.levels
    for i in range(N):
        worst = min(hidden(law, SIGMA, i, some) for some in without(i, k))
        assert found.sigma[i] == pytest.approx(worst, rel=1e-6)
        assert found.sigma[i] <= 1.000001 * min(hidden(law, SIGMA, i, some) for some in without(i, max(k - 1, 0)))


def test_the_likelihood_ratio_of_what_is_seen_is_the_stated_one():
    """All messages of a round, many times over, and the best test that there is: the loss of a Gaussian mechanism."""
    law, m, i, coalition, moved = law_of(k=1, uneven=np.ones(10)), 200_000, 2, (1,), 0.3
    honest = [0, 2, 3, 4]
    precision = np.linalg.inv(sigma_h(law, SIGMA, honest))
    rng = np.random.default_rng(1)
    noise = np.linalg.cholesky(sigma_h(law, SIGMA, honest)) @ rng.normal(size=(4, m))
    shift = C[i] * moved * np.eye(4)[1]
    seen = noise + shift[:, None]  # v with the record; without it, noise alone
    loss = seen.T @ precision @ shift - shift @ precision @ shift / 2
    mu = moved / hidden(law, SIGMA, i, coalition)
    assert np.mean(loss) == pytest.approx(mu**2 / 2, abs=5 * mu / math.sqrt(m))
    assert np.std(loss) == pytest.approx(mu, rel=0.01)
    at = gaussian_epsilon(0.05, 1 / mu)
    assert np.mean(np.maximum(1 - np.exp(at - loss), 0)) == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize("graph", EDGES)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("attendance", [None, SOME], ids=["everybody", "some"])
def test_the_stated_epsilon_is_that_of_the_worst_coalition(graph, k, attendance):
    """Gaussian rounds compose by Σ 1/σ̂²: over every coalition, with one coalition for all rounds."""
    law = law_of(graph, k, attendance=attendance)
    rounds = SPOKE if attendance else [range(N)] * 8
    for i in range(N):
        mine = [who for who in rounds if i in who]
        true = 0.0
        for some in without(i, k):
            mu2 = math.fsum((2.0 / 50 / hidden(law, SIGMA, i, some, who)) ** 2 for who in mine)
            true = max(true, gaussian_epsilon(1e-5, mu2**-0.5))
        stated = compute_epsilon([law.event(i, FullEvent(50, 50, 1.0, SIGMA[i], len(mine)), SIGMA)], 1e-5).epsilon
        assert true * (1 - 1e-9) <= stated <= 1.01 * true


@pytest.mark.parametrize("plain", [PoissonEvent(50, 10, 1.0, 0.5, 6), FixedEvent(50, 10, 1.0, 0.5, 6)])
def test_rounds_that_differ_are_composed_as_what_they_are(plain):
    law = law_of(attendance=SOME)
    event = law.event(0, plain, SIGMA)
    assert len(event.levels) > 1 and sum(count for _, count in event.levels) == 6 and not event.realized
    assert event.sigma == event.levels[0][0] and read_event(event.to_dict()) == event
    parts = [Part(replace(plain, sigma=s).pair, count) for s, count in event.levels]
    assert compute_epsilon([event], 1e-5).epsilon == pytest.approx(epsilon(parts, 1e-5))
    one = compute_epsilon([replace(plain, sigma=event.sigma)], 1e-5).epsilon
    assert compute_epsilon([event], 1e-5).epsilon < 0.99 * one
    early = event.after(3)  # at worst the rounds with the least noise came first
    assert early.rounds == 3 and compute_epsilon([early], 1e-5).epsilon < compute_epsilon([event], 1e-5).epsilon
    assert event.after(6) == event and event.after(0).count == 0
    other = replace(plain, rounds=4, note=event.note).leveled(((event.sigma, 3), (9.0, 1)))
    both = event.covering([event, other])
    assert compute_epsilon([both], 1e-5).epsilon >= max(compute_epsilon([one], 1e-5).epsilon for one in (event, other))
    for wrong in (((0.1, 6),), ((0.2, 3), (0.1, 3)), ((event.sigma, 3), (9.0, 4))):
        with pytest.raises(PrivacyError, match="levels"):
            replace(event, levels=wrong)


levels_of = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0, 5.0]), st.integers(1, 4)), min_size=1, max_size=4).map(
    lambda some: tuple(sorted(dict(some).items()))
)


@given(st.lists(levels_of, min_size=1, max_size=4))
def test_an_envelope_has_no_more_noise_in_any_place(several):
    def listed(levels):
        return [s for s, count in levels for _ in range(count)]

    top = listed(envelope(several))
    assert len(top) == max(len(listed(levels)) for levels in several)
    for levels in several:
        assert all(a <= b for a, b in zip(top, listed(levels), strict=False))
    assert envelope([several[0]]) == several[0]


@st.composite
def networks(draw):
    n = draw(st.integers(3, 6))
    weights = np.array(draw(st.lists(st.floats(0, 9), min_size=n * n, max_size=n * n))).reshape(n, n)
    weights = np.triu(np.where(weights < 2, 0.0, weights), 1)
    return np.array(draw(st.lists(st.floats(0.1, 5), min_size=n, max_size=n))), weights + weights.T


@pytest.mark.parametrize("graph", ["complete", "ring"])
@pytest.mark.parametrize("attendance", [None, SOME], ids=["everybody", "some"])
def test_the_worst_coalition_is_named_and_copies_of_what_it_leaves_are_drawn(graph, attendance):
    law, m, t = law_of(graph, 2, attendance=attendance), 40_000, 5
    rounds = SPOKE if attendance else [range(N)] * 8
    for i in range(N):
        mine = [who for who in rounds if i in who]
        costs = {some: math.fsum(hidden(law, SIGMA, i, some, who) ** -2 for who in mine) for some in without(i, 2)}
        assert costs[law.worst(i, SIGMA)] == pytest.approx(max(costs.values()))
    kept = [2, 0, 1, 4, 3]
    two = law.copies(kept, 2, coalition=(1,))
    who = np.array([p * 2 + r for p, node in enumerate(kept) if node in rounds[t - 1] for r in (0, 1)])
    sigma = tuple(np.repeat(np.take(SIGMA, kept), 2).tolist())
    drawn = two.scale[who, None] * two.draw(Streams(4), who, np.full(len(who), t), m, sigma)
    nodes = [node for node in kept if node in rounds[t - 1] and node != 1]
    for r in (0, 1):
        mine = [k for k, place in enumerate(who) if place % 2 == r and kept[place // 2] != 1]
        expected = sigma_h(law, SIGMA, nodes)
        inverse = np.argsort(np.argsort(nodes))
        assert near(np.cov(drawn[mine]), expected[np.ix_(inverse, inverse)], m)
    assert np.all(np.abs(np.corrcoef(drawn)[0::2, 1::2]) < 6 / math.sqrt(m))  # copies have nothing in common


@given(networks(), st.integers(0, 2), st.floats(1.1, 5))
def test_rayleigh(network, other, more):
    """Deleting a node lowers what hides the others, grounding one raises it, and so does more noise of any kind."""
    d, weights = network

    def left(d, weights):
        found = coalitions.conductances(d[None], weights[None])[0]
        M = np.diag(d + weights.sum(axis=0)) - weights
        assert np.allclose(found, 1 / np.diag(np.linalg.inv(M)), rtol=1e-8)
        return found

    before, rest = left(d, weights), np.arange(len(d)) != other
    deleted = left(d[rest], weights[np.ix_(rest, rest)])
    assert np.all(deleted <= before[rest] * (1 + 1e-12))
    grounded = left(d[rest] + weights[rest, other], weights[np.ix_(rest, rest)])
    assert np.all(grounded >= before[rest] * (1 - 1e-12))
    assert np.all(left(d * more, weights) >= before * (1 - 1e-12))
    assert np.all(left(d, weights * more) >= before * (1 - 1e-12))


@given(st.lists(st.floats(0.05, 4), min_size=4, max_size=7), st.integers(0, 2), st.floats(0.01, 1e6), st.integers(0, 3))
def test_on_the_complete_graph_the_loudest_collude(tau, k, ratio, i):
    """In closed form, against every coalition by elimination."""
    d, n = np.square(tau), len(tau)
    weights = ratio**2 * (1 - np.eye(n))
    others = [j for j in range(n) if j != i]
    every = []
    for some in itertools.combinations(others, k):
        rest = [j for j in range(n) if j not in some]
        found = coalitions.conductances(d[rest][None], weights[np.ix_(rest, rest)][None])[0]
        every.append(found[rest.index(i)])
    assert coalitions.complete(d, ratio**2, k)[i] == pytest.approx(min(every), rel=1e-9)


def test_equal_nodes_have_the_formula_of_the_book():
    for n, k, r in ((20, 1, 3.0), (20, 9, 10.0), (3, 1, 100.0), (100, 49, 0.5)):
        h = n - k
        expected = h / (1 + (h - 1) / (1 + r * r * h))
        assert coalitions.complete(np.ones(n), r * r, k) == pytest.approx(np.full(n, expected))
        assert Pairs(n, r, None, np.ones(n), k).left((0.5,) * n).sigma[0] == pytest.approx(0.5 * math.sqrt(expected))


def test_largest_first_is_wrong_on_a_sparse_graph():
    """A path of honest nodes: the neighbor in between hides more than the loudest one at the end."""
    law = law_of("path", ratio=3.0, c=np.ones(N))
    sigma = (0.2, 0.2, 0.2, 0.2, 0.6)
    loudest, cut = hidden(law, sigma, 0, (4,)), hidden(law, sigma, 0, (1,))
    assert cut < 0.8 * loudest and law.left(sigma).sigma[0] == pytest.approx(cut)


@pytest.mark.parametrize(("graph", "n", "k"), [("random_regular(8)", 16, 1), ("random_regular(10)", 14, 2)])
def test_where_coalitions_are_too_many_connectivity_bounds_what_they_leave(graph, n, k, monkeypatch):
    law = Pairs(n, 3.0, GRAPHS.read(graph)(n).edges, np.ones(n), k)
    true = law.left((1.0,) * n)
    monkeypatch.setattr(pairs, "WORK", 0.0)
    bound = replace(law).left((1.0,) * n)
    assert true.exact and not bound.exact
    assert 1.0 < bound.sigma[0] <= min(true.sigma) * (1 + 1e-9)
    assert bound.sigma[0] > 0.8 * min(true.sigma)
    replace(law).check(False)
    ring = Pairs(n, 3.0, GRAPHS.make("ring")(n).edges, np.ones(n), k)
    for ask in (lambda: ring.left((1.0,) * n), lambda: ring.check(False)):
        with pytest.raises(PrivacyError, match="cannot be determined"):
            ask()


def test_where_speakers_are_too_many_to_go_through_each_round_has_its_own_coalition(monkeypatch):
    law = law_of(attendance=SOME, k=2)
    exact = law.left(SIGMA)
    monkeypatch.setattr(pairs, "ROOM", 0.0)
    bound = replace(law).left(SIGMA)
    assert exact.exact and not bound.exact
    for i in range(N):
        below, true = (np.repeat(*zip(*found.worst[i], strict=True)) for found in (bound, exact))
        assert len(below) == len(true) and np.all(below <= true * (1 + 1e-9))
    monkeypatch.setattr(pairs, "WORK", 0.0)
    with pytest.raises(PrivacyError, match="sets of active nodes"):
        law_of("ring", attendance=SOME).left(SIGMA)


# --- runs and their statements


def spec(adversary="secret_pairs(1)", law="pairs(10)", **changes):
    run = Spec(AlgorithmSpec(12, gamma="constant(5)"), seed=1).replace(
        network__activation="everyone", privacy__sampling="full", privacy__noise="private(1.0)"
    )
    return run.replace(privacy__law=law, privacy__adversary=adversary, **changes)


@pytest.mark.parametrize("activation", ["everyone", "nodes(4)", "edges(2)"])
@pytest.mark.parametrize(("method", "weights"), [("dual_averaging", "records"), ("descent", "nodes")])
def test_calibrated_noise_is_what_epsilon_needs(activation, method, weights, make_shards):
    shards = make_shards(sizes=[20, 30, 40, 25, 35, 60], m=3)
    changes = {"network__activation": activation, "problem__weights": weights, "algorithm__method": method}
    made = prepare(spec("secret_pairs(2)", **changes), shards)
    assert made.statement.epsilon == pytest.approx(1.0, rel=2e-3)
    c = shards.n * made.job.problem.node_weights
    assert np.allclose(c * made.job.release.sigma, c[0] * made.job.release.sigma[0])  # nobody adds more than others
    assert np.allclose(made.job.method.scale, c)


def test_pair_noise_leaves_the_sum_of_a_run(make_shards):
    """Σ_i z_i of dual averaging moves by the own noises alone, with weights, no matter who speaks."""
    shards = make_shards(sizes=[20, 30, 40, 25, 35], m=3)
    changes = {"problem__weights": "records", "network__activation": "nodes(3)", "privacy__noise": "gaussian(0.4)"}
    job = prepare(spec(law="pairs(20)", **changes), shards).job
    step = next(reference.rounds(job, job.start(), 1, 1))
    who, c = step.nodes, job.method.scale[step.nodes]
    own = 0.4 * Streams(1).normals(who, np.ones(len(who), dtype=int), 3)
    drawn = job.draws.noise(who, np.ones(len(who), dtype=int))
    assert np.abs(drawn).max() > 5 * np.abs(own).max()
    assert np.allclose(c @ drawn, c @ own, atol=1e-9)
    clean = step.round.zeta - drawn
    assert np.allclose(step.state.z.sum(axis=0), c @ (clean + own), atol=1e-9)


def test_the_statement_names_who_may_collude_and_what_if_others_did(make_shards, tmp_path):
    result = solve(spec("secret_pairs(majority)"), make_shards(n=7, q=20))
    said = result.statement
    assert said.adversary == "secret_pairs(3)" and [g.event.note.collusion for g in said.others] == [1, 0]
    assert said.epsilon > said.others[0].epsilon > said.others[1].epsilon > 0
    assert "'secret_pairs(3)', whichever 3 nodes may help" in said.verdict() and said.epsilon_lower > 0.99
    words = said.paragraph()
    details = (
        "every node that does not collude runs",
        "at most 3 of the nodes",
        "fixed before the run",
        "spoil the model",
    )
    for some in (*details, "computational", "1 curious node", "no curious node"):
        assert some in words
    again = PrivacyStatement.from_json(said.to_json())
    assert again == said
    again.verify()
    result.save(tmp_path)
    Result.load(tmp_path).verify()


def test_a_statement_with_another_k_is_found_out(make_shards):
    result = solve(spec("secret_pairs(2)"), make_shards(n=7, q=20))
    said, plain = result.statement, result.statement.to_dict()
    forged = replace(said, adversary="secret_pairs(3)")
    with pytest.raises(PrivacyError, match=r"accounted for 2 curious nodes"):
        forged.verify()
    events = tuple(replace(g, event=replace(g.event, note=replace(g.event.note, collusion=3))) for g in said.groups)
    with pytest.raises(PrivacyError, match="its own numbers give"):  # the words reveal 2
        replace(forged, groups=events).verify()
    whole = prepare(spec("secret_pairs(3)"), make_shards(n=7, q=20)).statement
    weaker = replace(whole, groups=tuple(replace(g, event=replace(said.groups[0].event, note=g.event.note)) for g in
                                         whole.groups))  # fmt: skip
    weaker.verify()  # consistent in itself: k = 3 with the noise that is left by 2
    with pytest.raises(PrivacyError, match="sigma"):
        noise = prepare(result.spec, make_shards(n=7, q=20)).job.release.sigma[0]
        replace(result, spec=spec("secret_pairs(3)", privacy__noise=f"gaussian({noise!r})"), statement=weaker).verify()
    with pytest.raises(PrivacyError, match="others"):
        replace(said, others=tuple(replace(g, epsilon=g.epsilon / 2) for g in said.others)).verify()
    with pytest.raises(PrivacyError, match="groups of nodes"):
        replace(result, statement=replace(said, others=said.others[:1])).verify()
    plain["groups"][0]["event"]["collusion"] = -1
    with pytest.raises(PrivacyError, match="cannot collude"):
        PrivacyStatement.from_dict(plain)


def test_a_star_with_one_curious_node_says_so(make_shards):
    """Printed was 1, true is over 5: the center alone knows every seed."""
    shards, star = make_shards(n=20, q=20), {"network__graph": "star"}
    old = prepare(spec("secret_pairs", "pairs(1000)", **star), shards)
    assert old.statement.epsilon == pytest.approx(1.0, abs=1e-3) and "no help from any node" in old.statement.verdict()
    assert old.statement.others[0].epsilon == pytest.approx(5.41, abs=0.01)
    assert "ε = 5.41 against 1 curious node" in old.statement.paragraph()
    noise = f"gaussian({old.job.release.sigma[0]!r})"
    accounted = spec("secret_pairs(1)", "pairs(1000, graph=star, cut=priced)", privacy__noise=noise)
    new = prepare(accounted, shards).statement
    assert new.epsilon == pytest.approx(5.41, abs=0.01) and new.others[0].epsilon == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("n", "changes", "words"),
    [
        (2, {}, "it takes two honest"),
        (4, {"privacy__adversary": "secret_pairs(3)"}, "it takes two honest"),
        (6, {"privacy__law": "pairs(3, graph=ring)", "privacy__adversary": "secret_pairs(2)"}, "cut others off"),
        (6, {"privacy__law": "pairs(3, graph=star)"}, "node 0 can cut"),
        (5, {"privacy__law": "pairs(3, 1)"}, "leave them out"),
        (5, {"privacy__law": "pairs(3, graph=ring)", "privacy__adversary": "secret_pairs"}, "how many nodes"),
        (5, {"algorithm__method": "mixup"}, "schedule of its own"),
        (5, {"privacy__adversary": "transcript"}, r"'secret_pairs\(k\)' only"),
        (5, {"privacy__law": "gaussian"}, "independent at every node"),
    ],
)
def test_what_hides_nobody_is_refused(n, changes, words, make_shards):
    with pytest.raises(SottovoceError, match=words):
        prepare(spec(**{"adversary": "secret_pairs(1)"}).replace(**changes), make_shards(n=n, q=20))


def test_what_is_cut_can_be_accounted_as_what_it_is(make_shards):
    shards = make_shards(n=6, q=20)
    ring = spec("secret_pairs(2)", "pairs(3, graph=ring, cut=priced)", privacy__noise="gaussian(0.5)")
    whole = spec("secret_pairs(2)", "pairs(3)", privacy__noise="gaussian(0.5)")
    accounted = prepare(ring, shards)
    assert accounted.statement.worst.event.sigma == pytest.approx(
        0.5
    )  # two neighbors collude: nothing is left of pairs
    assert prepare(whole, shards).statement.epsilon < 0.7 * accounted.statement.epsilon


def test_adversaries_and_laws_are_their_text():
    for text in ("secret_pairs", "secret_pairs(1)", "secret_pairs(12)", "secret_pairs(majority)"):
        assert str(ADVERSARIES.read(text)) == text
    assert ADVERSARIES.read("secret_pairs:3") == ADVERSARIES.read("secret_pairs(k=3)") == SecretPairs(3)
    assert [SecretPairs("majority").among(n).k for n in (2, 3, 4, 5, 20, 100)] == [1, 1, 1, 2, 9, 49]
    for wrong in ("0", "some", "1.5", "-1", "1, 2"):
        with pytest.raises(PrivacyError, match="secret_pairs"):
            ADVERSARIES.read(f"secret_pairs({wrong})")
    for text in ("pairs(3)", "pairs(0.5, graph=ring)", "pairs(3, graph=random_regular(4, seed=2), cut=priced)"):
        assert str(LAWS.read(text)) == text and LAWS.read(text) == LAWS.read(text.replace("(", ":", 1)[:-1])
    assert LAWS.read("pairs(3, graph=complete)") == LAWS.read("pairs(3)")
    for wrong, words in (("pairs(3, cut=maybe)", "malformed"), ("pairs(3, graph=rings)", "no graph 'rings'"),
                         ("pairs(-1)", "ratio over 0")):  # fmt: skip
        with pytest.raises(SottovoceError, match=words):
            LAWS.read(wrong)
    run = spec("secret_pairs(majority)", "pairs(3, graph=random_regular(4, seed=2))")
    assert Spec.from_json(run.to_json()) == run


def test_many_equal_nodes_are_one_computation(make_shards, monkeypatch):
    made = prepare(spec("secret_pairs(majority)"), make_shards(n=100, q=10))
    assert len(made.statement.groups) == 1 and made.statement.groups[0].nodes == tuple(range(100))
    h, r = 51, 10.0
    sigma, left = made.job.release.sigma[0], made.statement.groups[0].event.sigma
    assert left**2 / sigma**2 == pytest.approx((1 + r * r * h) / (1 + r * r))


def matrices(noise_terms, rows):
    """(rows, addresses) what each release has of its own noises, and of those that are shared."""
    own, shared = {}, {}
    for source in noise_terms:
        kept = shared if source.shared else own
        for place, (row, *address) in enumerate(zip(source.rows, source.owners, source.rounds, strict=True)):
            at = kept.setdefault((source.peer is not None, *address), np.zeros(rows))
            at[row] += source.factors[place]
        if source.shared_terms is not None:
            sums = source.shared_terms
            for row, which, factor in zip(source.rows, sums.which, sums.factors, strict=True):
                for member in range(sums.starts[which], sums.starts[which + 1]):
                    at = shared.setdefault((False, sums.owners[member], sums.rounds[member]), np.zeros(rows))
                    at[row] += factor
    return (np.array(list(kept.values())).reshape(-1, rows).T for kept in (own, shared))


@pytest.mark.parametrize("graph", EDGES)
@pytest.mark.parametrize("t", [1, 3, 4])
def test_secure_sources_have_the_accounted_law_and_cancel_exactly(graph, t):
    """Factors of few bits; what is shared is gone from the sum to the last bit; no less noise than is accounted."""
    law, who = law_of(graph, attendance=SOME), np.array(SPOKE[t - 1])
    even = tuple((0.3 / C).tolist())
    for sigma in (even, SIGMA):
        own, shared = matrices(law.noise_terms(who, np.full(len(who), t), sigma), len(who))
        assert np.all(np.frexp(own)[0] * 2.0**26 % 1 == 0) and np.all(np.frexp(shared)[0] * 2.0**26 % 1 == 0)
        if sigma is even:
            assert np.all(shared.sum(axis=0) == 0.0)
        made = (C * sigma)[who, None] * np.concatenate([own, shared], axis=1)
        expected = sigma_h(law, sigma, who.tolist())
        assert np.allclose(made @ made.T, expected, rtol=1e-4, atol=1e-4 * expected.max())
        assert np.all(np.diag(made @ made.T) >= np.diag(expected))


@pytest.mark.parametrize("graph", EDGES)
def test_real_nodes_share_real_pairs(graph):
    """Each requests itself: both ends have the same address with opposite signs, and name each other."""
    law, t, sigma = law_of(graph, attendance=SOME), np.arange(1, 9), SIGMA
    seen = {}
    for i in range(N):
        mine = np.array([when for when in t if i in SPOKE[when - 1]])
        own, *shared = law.with_peers(i, mine, sigma)
        assert own.peer is None and np.all(own.factors == pairs.SPARE) and len(own.rows) == len(mine)
        for source in shared:
            assert np.all((law.pairs[source.owners] == [sorted((i, source.peer))]).all(axis=1))
            for e, when, factor in zip(source.owners, source.rounds, source.factors, strict=True):
                seen.setdefault((int(e), int(when)), []).append(factor * C[i] * sigma[i])
    both = {(e, w) for e, (i, j) in enumerate(law.pairs.tolist()) for w in t.tolist()
            if i in SPOKE[w - 1] and j in SPOKE[w - 1]}  # fmt: skip
    assert set(seen) == both
    rho = law.ratio * np.max(C * sigma)
    for two in seen.values():
        assert len(two) == 2 and two == pytest.approx([rho, -rho], rel=1e-6)


def test_noise_that_is_all_shared_is_refused():
    with pytest.raises(PrivacyError, match="noise of its own"):
        law_of().noise_terms(np.arange(N), np.ones(N, dtype=int), (0.1, 0.0, 0.1, 0.1, 0.1))


def test_factors_of_single_pairs_must_be_short():
    with pytest.raises(SpecError, match="9 bits"):
        law_of(uneven=np.full(10, 1.1))


def test_of_a_part_of_the_rounds_another_coalition_is_the_worst():
    """Node 0 speaks once with node 1 alone, then ten times with 2 and 3: node 1 is the worst only if it ends there."""
    rounds = [(0, 1), *[(0, 2, 3)] * 10]
    starts = np.cumsum([0, *map(len, rounds)])
    law = Pairs(4, 1e3, None, np.ones(4), 1, Attendance(starts, np.concatenate(rounds)))
    whole, first = (law.event(0, FullEvent(9, 9, 1.0, 1.0, spoken), (1.0,) * 4) for spoken in (11, 1))
    assert whole.sigma == pytest.approx(math.sqrt(2), rel=1e-5)
    assert first.sigma == pytest.approx(1.0)


@pytest.mark.parametrize("law", ["pairs(10)", "gaussian"])
def test_a_slow_node_s_root_weight_costs_no_noise(law):
    """Every node adds the same c_iσ_i, and has the same ε, though one speaks in every fourth round only."""
    spec = Spec(AlgorithmSpec(rounds=40), seed=1).replace(
        privacy__law=law,
        privacy__adversary="secret_pairs(2)" if law != "gaussian" else "transcript",
        privacy__noise="private(1)",
        privacy__sampling="full",
        network__activation="cadence(3, 4)",
        network__averaging="exact",
    )
    plans = [
        plan_public(Request(spec.replace(**more), np.full(8, 50), 3))
        for more in (
            {},
            {"network__activation": "everyone"},
            {"network__correct": True},
        )
    ]
    plan, everyone, _ = plans
    added = [np.asarray(plan.method.scale) * plan.release.sigma for plan in plans]
    assert plan.spoken.tolist() == [40, 40, 40, 10, 40, 40, 40, 40]
    assert added[0] == pytest.approx(np.full(8, added[0][0]), rel=0.02)  # z of K rounds is not √K exactly
    noise = [math.sqrt(p.spoken @ mine**2) / (p.spoken @ p.method.scale) for p, mine in zip(plans, added, strict=True)]
    assert noise[0] / noise[1] < 1.09
    full = noise[2] / noise[1]  # what the full weight costs: nothing where noise is each node's own
    assert full < 1.01 if law == "gaussian" else full > 1.2
    stated = [compute_epsilon([event], 1e-5).epsilon for event in plan.events()]
    assert max(stated) <= 1.0 and (law != "gaussian" or min(stated) > 0.99)
    assert plan.statement(True, False).epsilon == pytest.approx(everyone.statement(True, False).epsilon, rel=1e-3)
