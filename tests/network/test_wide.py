"""Very many nodes: what is never listed is what would be listed, link by link and weight by weight."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import NetworkError
from sottovoce.network import activation, mixing, schedule
from sottovoce.network.activation import ACTIVATIONS
from sottovoce.network.averaging import AVERAGINGS, Exact
from sottovoce.network.graphs import GRAPHS, Complete, Graph
from sottovoce.network.mixing import METROPOLIS, WEIGHTS, Rule, beta, check_doubly_stochastic, wide
from sottovoce.network.schedule import Schedule, Steady, draw_schedule
from sottovoce.network.wide import Wide, by_shifts

MANY = 100_000


@pytest.fixture
def nothing_is_small(monkeypatch):
    """Every round of more than two nodes counts as one of very many."""
    for module in (activation, mixing, schedule):
        monkeypatch.setattr(module, "WIDE", 2)


@given(st.integers(1, 40))
def test_the_complete_graph_is_the_one_that_lists_its_links(n):
    graph, listed = Complete(n), Graph("mine", n, np.stack(np.triu_indices(n, 1), axis=1))
    assert np.array_equal(graph.edges, listed.edges) and graph.links == listed.links
    assert np.array_equal(graph.ends(np.arange(graph.links)), listed.edges.reshape(-1, 2))
    assert np.array_equal(graph.degrees, listed.degrees) and np.array_equal(graph.adjacency(), listed.adjacency())
    assert graph.is_complete and graph.shift_invariant and listed.shift_invariant
    i, j = np.meshgrid(np.arange(-1, n), np.arange(-1, n))
    assert np.array_equal(graph.linked(i, j), listed.linked(i, j))
    assert all(np.array_equal(graph.neighbors(k), listed.neighbors(k)) for k in range(n))


def test_a_complete_graph_of_very_many_is_a_formula():
    graph = GRAPHS.read("complete")(MANY)
    e = np.array([0, 99_998, 99_999, 2_345_678_901, graph.links - 1])
    i, j = graph.ends(e).T
    assert np.array_equal(activation.pair_index(MANY, graph.ends(e)), e) and np.all((0 <= i) & (i < j) & (j < MANY))
    with pytest.raises(NetworkError, match="4,999,950,000 links of a complete graph of 100,000 nodes are not listed"):
        graph.edges  # noqa: B018


@st.composite
def graphs(draw) -> Graph:
    n = draw(st.integers(2, 9))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    pairs = [(i, j) for j in range(n) for i in range(j)]
    return Graph("random", n, np.array(tree + draw(st.lists(st.sampled_from(pairs), max_size=n)), dtype=np.int64))


@given(graphs() | st.integers(2, 9).map(Complete), st.sampled_from(sorted(WEIGHTS)), st.data())
def test_weights_without_a_matrix_are_those_of_the_matrix(graph, name, data):
    rule: Rule = WEIGHTS.read(name)
    try:
        W = rule(graph.adjacency())
    except NetworkError as error:
        with pytest.raises(NetworkError, match=str(error)[:40]):
            wide(rule, graph.n, graph.edges)
        return
    for ends in [graph.edges, *([None] if graph.is_complete else [])]:
        V = wide(rule, graph.n, ends)
        check_doubly_stochastic(V.listed())
        assert np.allclose(V.listed(), W, rtol=0, atol=1e-15)
        assert np.allclose(V @ W, W @ W, rtol=0, atol=1e-14)
        assert np.array_equal(V.linked, mixing.linked(W)) and V.links == METHOD.messages(W)
        assert V.flat == bool(np.ptp(W) < 1e-12) or ends is not None
        assert V.squares == pytest.approx(np.sum(W * W), abs=1e-12)
        at = data.draw(st.integers(0, graph.n - 1))
        places, weights = V.row(at)
        assert np.allclose(weights, W[at, places], atol=1e-15) and weights.sum() == pytest.approx(1.0)
        mine, theirs = mixing.with_all(V, at), mixing.with_all(W, at)
        assert mine.to == theirs.to and mine.row == pytest.approx(theirs.row, abs=1e-15)


METHOD = mixing.GOSSIP


@pytest.mark.parametrize(
    "name", ["ring", "torus", "grid", "star", "small_world", "random_regular(degree=4)", "complete"]
)
@pytest.mark.parametrize("rule", ["metropolis", "max_degree", "lazy"])
def test_the_second_eigenvalue_is_that_of_the_matrix(name, rule):
    graph = GRAPHS.read(name)(48)
    W = WEIGHTS.read(rule)(graph.adjacency())
    true = np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]
    V = wide(WEIGHTS.read(rule), 48, None if graph.is_complete else graph.edges)
    assert V.second() == pytest.approx(true, rel=1e-9, abs=1e-12)
    assert V.second(graph.columns) == pytest.approx(true, rel=1e-9, abs=1e-12)
    assert (graph.columns is not None) == (name in ("ring", "torus", "complete"))


@pytest.mark.parametrize(
    ("graph", "scheme", "averaging"),
    [
        ("complete", "everyone", "gossip"),
        ("complete", "everyone", "exact"),
        ("complete", "matching(4)", "gossip"),
        ("complete", "edges(3)", "gossip"),
        ("complete", "nodes(5)", "gossip"),
        ("complete", "nodes(5)", "exact"),
        ("ring", "everyone", "gossip(3)"),
        ("torus", "edges(1)", "gossip"),
        ("small_world", "everyone", "gossip"),
        ("small_world", "nodes(6)", "gossip"),
        ("star", "ticks", "gossip"),
        ("grid", "everyone", "clipped(0.5)"),
    ],
)
def test_schedules_and_speed_are_those_of_the_matrices(monkeypatch, graph, scheme, averaging):
    made, how, way = GRAPHS.read(graph)(12), ACTIVATIONS.read(scheme), AVERAGINGS.read(averaging)

    def drawn():
        return draw_schedule(made, how, METROPOLIS, 30, np.random.default_rng(5), way)

    small, messages = drawn(), np.random.default_rng(0).normal(size=(30, 12, 2))
    speed = beta(made, how, METROPOLIS, averaging=way)
    for module in (mixing, schedule):  # the draws stay as they are
        monkeypatch.setattr(module, "WIDE", 2)
    large = drawn()
    assert any(isinstance(W, Wide) for W in large.patterns) == (max(map(len, small.patterns)) > 2)
    assert np.array_equal(small.participations(), large.participations()) and small.T == large.T
    assert np.array_equal(small.up_to(), large.up_to()) and small.depth() == large.depth()
    for t in range(1, 31):
        mine, theirs = small.nodes(t), large.nodes(t)
        assert sorted(mine.tolist()) == sorted(theirs.tolist())
        one, other = (np.zeros((12, 2)) for _ in range(2))
        one[mine], other[theirs] = (s.mix(t, messages[t - 1][at], 1.0) for s, at in ((small, mine), (large, theirs)))
        assert np.allclose(one, other, rtol=0, atol=1e-14)
        for i in (0, 7):
            assert dict(zip(*map(np.ndarray.tolist, small.peers(t, i)), strict=True)) == pytest.approx(
                dict(zip(*map(np.ndarray.tolist, large.peers(t, i)), strict=True))
            )
    if scheme != "nodes(6)":  # of which sampled rounds are queried, and there are too many to list on a large graph
        far = beta(made, how, METROPOLIS, averaging=way)
        assert far.exact or not speed.exact
        assert far.beta == pytest.approx(speed.beta, rel=1e-8, abs=1e-9 if speed.exact else 0.05)


def test_a_steady_schedule_is_the_one_that_lists_every_round():
    steady = draw_schedule(
        GRAPHS.read("ring")(6), ACTIVATIONS.read("everyone"), METROPOLIS, 9, np.random.default_rng(0)
    )
    assert isinstance(steady, Steady)
    for one in (steady, steady.spaced(3)):
        listed = Schedule(one.n, one.starts, one.active, one.pattern, one.patterns, 0, one.averaging)
        assert np.array_equal(listed.participations(4), one.participations(4)) and listed.mixes == one.mixes
        assert all(np.array_equal(listed.turns(i), one.turns(i)) for i in range(6))
        assert all(np.array_equal(listed.nodes(t), one.nodes(t)) for t in range(1, 10))
        assert np.array_equal(listed.listed(3, 7), one.listed(3, 7)) and np.array_equal(listed.active, one.active)
        assert np.array_equal(listed.speaks(2, 5), one.speaks(2, 5)) and listed.speaks_in(2, 3) == one.speaks_in(2, 3)
        one.check()
    with pytest.raises(NetworkError, match="there is no round 10"):
        steady.nodes(10)


@pytest.mark.parametrize(("graph", "slow"), [("complete", 0.0), ("torus", 1 - (2 - 2 * np.cos(2 * np.pi / 400)) / 5)])
def test_a_hundred_thousand_nodes(graph, slow):
    made = GRAPHS.read(graph)(MANY)
    run = draw_schedule(made, ACTIVATIONS.read("everyone"), METROPOLIS, 1000, np.random.default_rng(0))
    found = beta(made, ACTIVATIONS.read("everyone"), METROPOLIS).beta
    assert found == pytest.approx(slow, rel=1e-12, abs=0.0)
    assert run.participations(7).tolist() == [7] * MANY
    assert run.up_to(3)[-1] == 3 * 2 * made.links
    mean = draw_schedule(Complete(MANY), ACTIVATIONS.read("everyone"), METROPOLIS, 3, np.random.default_rng(0), Exact())
    values = np.arange(float(MANY))[:, None]
    assert np.allclose(mean.mix(1, values), values.mean()) and mean.depth(1) == 18
    half = ACTIVATIONS.read(f"matching({MANY // 2})")
    pairs = draw_schedule(Complete(MANY), half, METROPOLIS, 3, np.random.default_rng(0))
    assert len(pairs.patterns) == 1 and pairs.mix(1, values[pairs.nodes(1)]).mean() == pytest.approx(values.mean())
    fast = beta(Complete(MANY), half, METROPOLIS)
    assert fast.exact and fast.beta == pytest.approx(np.sqrt((MANY / 2 - 1) / (MANY - 1)))


def test_what_very_many_nodes_cannot_have(nothing_is_small, monkeypatch):
    ring, everyone = GRAPHS.read("ring")(8), ACTIVATIONS.read("everyone")
    with pytest.raises(NetworkError, match=r"'trimmed\(1\)' of 8 nodes in one round is not made"):
        draw_schedule(ring, everyone, METROPOLIS, 3, np.random.default_rng(0), AVERAGINGS.read("trimmed(1)"))
    own = replace(METROPOLIS, function=lambda links: mixing.metropolis(links))  # ours by name only
    with pytest.raises(NetworkError, match="are known as a matrix only, and 8 nodes in one round are too many"):
        draw_schedule(ring, everyone, own, 3, np.random.default_rng(0))
    with pytest.raises(NetworkError, match="an exact mean of some of 3 nodes, with others linked to nobody"):
        Exact().weights(wide(METROPOLIS, 3, np.array([[0, 1]])))
    with pytest.raises(NetworkError, match=r"how fast 'nodes\(4\)' mixes the 24 nodes of graph 'grid' is out of reach"):
        monkeypatch.setattr(mixing, "FARTHEST", 1000)
        beta(GRAPHS.read("grid")(24), ACTIVATIONS.read("nodes(4)"), METROPOLIS)


def test_shifts_of_a_rectangle():
    row = np.zeros(6)
    row[[0, 1, 5]] = 1 / 3
    assert by_shifts(row, 6) == pytest.approx((1 + 2 * np.cos(np.pi / 3)) / 3)
