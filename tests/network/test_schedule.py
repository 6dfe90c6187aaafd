"""Schedules: every drawn W, the bookkeeping against loops, patterns found once, a million rounds."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import NetworkError
from sottovoce.network.activation import ACTIVATIONS
from sottovoce.network.graphs import GRAPHS, Graph
from sottovoce.network.mixing import WEIGHTS, check_doubly_stochastic
from sottovoce.network.schedule import draw_schedule

K20 = GRAPHS.make("complete")(20)


def drawn(graph, scheme, rounds, weights="metropolis", seed=0):
    return draw_schedule(graph, ACTIVATIONS.read(scheme), WEIGHTS.read(weights), rounds, np.random.default_rng(seed))


@st.composite
def graphs(draw, least=2, most=9):
    n = draw(st.integers(least, most))
    tree = [[i, draw(st.integers(0, i - 1))] for i in range(1, n)]
    pairs = [[i, j] for i in range(n) for j in range(i)]
    return Graph("random", n, np.array(tree + draw(st.lists(st.sampled_from(pairs), max_size=n)), dtype=np.int64))


SCHEMES = ["edges(1)", "edges(2)", "edges(3)", "matching(1)", "matching(2)", "nodes(1)", "nodes(3)", "everyone"]


@given(graphs(), st.sampled_from(SCHEMES), st.sampled_from(["metropolis", "max_degree", "lazy"]), st.integers(0, 99))
def test_every_drawn_W_is_the_rule_on_the_links_of_its_round(graph, scheme, weights, seed):
    activation = ACTIVATIONS.read(scheme)
    try:
        activation.width(graph)
    except NetworkError:
        return
    run = draw_schedule(graph, activation, WEIGHTS.read(weights), 25, np.random.default_rng(seed))
    run.check()
    choice = activation.draw(graph, 25, np.random.default_rng(seed))
    everywhere = graph.adjacency()
    total = np.zeros(graph.n, dtype=int)
    for t in range(1, run.T + 1):
        nodes, W = run.nodes(t), run.matrix(t)
        check_doubly_stochastic(W)
        A = np.zeros_like(everywhere)
        if activation.by_links:
            i, j = graph.edges[choice[t - 1]].T
            A[i, j] = A[j, i] = True
            assert set(nodes.tolist()) == set(i.tolist()) | set(j.tolist())
        else:
            A[np.ix_(nodes, nodes)] = everywhere[np.ix_(nodes, nodes)]
            assert set(nodes.tolist()) == set(choice[t - 1].tolist())
        np.testing.assert_allclose(W, WEIGHTS.read(weights)(A), atol=1e-15)
        assert run.messages(t) == 2 * np.count_nonzero(np.triu(A))
        for node in range(graph.n):
            ids, w = run.peers(t, node)
            row = np.zeros(graph.n)
            row[ids] = w
            np.testing.assert_array_equal(row, W[node])
            assert np.all(w > 0) and node in ids
        total[nodes] += 1
    np.testing.assert_array_equal(run.participations(), total)
    np.testing.assert_array_equal(run.up_to(), np.cumsum([run.messages(t) for t in range(1, run.T + 1)]))
    np.testing.assert_array_equal(run.up_to(7), run.up_to()[:7])


def test_one_pattern_for_one_link_and_for_a_matching():
    one = drawn(K20, "edges(1)", 5000)
    assert len(one.patterns) == 1
    np.testing.assert_array_equal(one.patterns[0], np.full((2, 2), 0.5))
    two = drawn(K20, "matching(2)", 5000)
    assert len(two.patterns) == 1
    np.testing.assert_array_equal(two.patterns[0], np.kron(np.eye(2), np.full((2, 2), 0.5)))


def test_patterns_are_as_many_as_there_are_shapes():
    """Graphs of k links without lonely nodes, up to isomorphism: 1, 2, 5, 11 (OEIS A000664)."""
    for k, shapes in ((1, 1), (2, 2), (3, 5), (4, 11)):
        assert len(drawn(K20, f"edges({k})", 30_000).patterns) == shapes
    path = next(W for W in drawn(K20, "edges(2)", 100).patterns if len(W) == 3)
    np.testing.assert_allclose(path, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3, atol=1e-15)
    assert len(drawn(K20, "nodes(6)", 2000).patterns) == 1
    assert len(drawn(GRAPHS.make("ring")(12), "nodes(4)", 5000).patterns) == 5  # 4; 3+1; 2+2; 2+1+1; 1+1+1+1


def test_patterns_are_distinct():
    run = drawn(GRAPHS.make("erdos_renyi")(12), "nodes(6)", 3000)
    assert len(run.patterns) > 20 and len({W.tobytes() for W in run.patterns}) == len(run.patterns)


def test_everyone_keeps_the_nodes_in_order():
    graph = GRAPHS.make("star")(5)
    run = drawn(graph, "everyone", 3)
    assert run.nodes(2).tolist() == [0, 1, 2, 3, 4] and run.T == 3 and len(run.patterns) == 1
    np.testing.assert_array_equal(run.weights(3), WEIGHTS.read("metropolis")(graph.adjacency()))
    assert run.up_to().tolist() == [8, 16, 24]
    alone = drawn(GRAPHS.make("complete")(1), "everyone", 4)
    assert alone.weights(1).tolist() == [[1.0]] and alone.up_to().tolist() == [0] * 4


def test_a_lonely_active_node_keeps_its_own_state_and_still_counts():
    run = drawn(GRAPHS.make("path")(6), "nodes(2)", 200)
    lonely = [t for t in range(1, 201) if run.messages(t) == 0]
    assert lonely and np.array_equal(run.weights(lonely[0]), np.eye(2))
    assert run.participations().sum() == 400


def test_a_longer_schedule_begins_with_the_shorter_one():
    short, long = drawn(K20, "edges(3)", 50, seed=4), drawn(K20, "edges(3)", 80_000, seed=4)
    for t in range(1, 51):
        np.testing.assert_array_equal(short.matrix(t), long.matrix(t))


@pytest.mark.parametrize(("scheme", "megabytes"), [("edges(1)", 25), ("matching(2)", 33)])
def test_a_million_rounds(scheme, megabytes):
    tracemalloc.start()
    run = drawn(K20, scheme, 1_000_000)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < megabytes * 1e6 and peak < 200e6
    links = {"edges(1)": 1, "matching(2)": 2}[scheme]
    assert run.T == 1_000_000 and run.up_to()[-1] == 2 * links * run.T


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("patterns", lambda a: tuple(0.9 * W for W in a), "sums to 0.9"),
        ("starts", lambda a: a[:-1], "starts do not fit"),
        ("starts", lambda a: a + 1, "starts do not fit"),
        ("pattern", lambda a: a + 9, "do not fit its number of active nodes"),
        ("pattern", lambda a: 1 - a, "do not fit its number of active nodes"),
        ("active", lambda a: a + 1, "nodes outside 0 to 19"),
        ("active", lambda a: a * 0, "names a node twice"),
        ("n", lambda a: 19, "nodes outside 0 to 18"),
    ],
)
def test_a_damaged_schedule_is_refused(field, change, message):
    run = drawn(K20, "edges(2)", 300)
    with pytest.raises(NetworkError, match=message):
        replace(run, **{field: change(getattr(run, field))}).check()


def test_refusals(monkeypatch):
    run = drawn(K20, "edges(1)", 10)
    for t in (0, 11, -1):
        for ask in (run.nodes, run.weights, run.matrix, run.messages, run.up_to):
            with pytest.raises(NetworkError, match=f"there is no round {t}; rounds count from 1 to 10"):
                ask(t)
    with pytest.raises(NetworkError, match="there is no node 20; nodes are numbered 0 to 19"):
        run.peers(1, 20)
    with pytest.raises(NetworkError, match="uniform weights are doubly stochastic only"):
        drawn(K20, "edges(2)", 500, weights="uniform")
    assert len(drawn(K20, "matching(2)", 500, weights="uniform").patterns) == 1
    with pytest.raises(NetworkError, match="no weight rule 'best'"):
        drawn(K20, "edges(2)", 500, weights="best")
    for scheme in ("edges(1)", "everyone"):
        with pytest.raises(NetworkError, match="at least one round, not 0"):
            drawn(K20, scheme, 0)
    monkeypatch.setattr("sottovoce.network.schedule.MEMORY", 1000)
    with pytest.raises(NetworkError, match=r"different weight matrices .* choose fewer active nodes or rounds"):
        drawn(K20, "edges(4)", 1000)


def test_a_rule_that_is_not_doubly_stochastic_is_caught(monkeypatch):
    monkeypatch.setitem(WEIGHTS, "broken", None)  # taken out again afterwards
    WEIGHTS.add("broken", lambda A: (np.asarray(A) + np.eye(len(A))) / (1 + np.sum(A, axis=1))[:, None])
    with pytest.raises(NetworkError, match="column"):
        drawn(K20, "edges(2)", 500, weights="broken")
    with pytest.raises(NetworkError, match="column"):
        drawn(GRAPHS.make("star")(4), "everyone", 5, weights="broken")
