"""Activation: exact probabilities against counts by hand and against drawn rounds; matchings uniform; refusals."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.errors import NetworkError, SpecError
from sottovoce.network import activation as listing
from sottovoce.network.activation import ACTIVATIONS, Edges, Everyone, Matching, Nodes, cadence_for
from sottovoce.network.graphs import GRAPHS, Graph
from sottovoce.network.mixing import METROPOLIS, activation_rate, beta
from sottovoce.network.schedule import draw_schedule

K20 = GRAPHS.make("complete")(20)
KITE = Graph("kite", 6, np.array([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4], [4, 5]]))


def outcomes_by_hand(graph, activation):
    """All equally likely outcomes as (active nodes, links), from the words of the definition."""
    edges = [tuple(e) for e in graph.edges.tolist()]
    if isinstance(activation, Edges | Matching):
        for links in itertools.combinations(edges, activation.k):
            nodes = set(itertools.chain(*links))
            if isinstance(activation, Edges) or len(nodes) == 2 * activation.k:
                yield nodes, set(links)
    else:
        k = graph.n if isinstance(activation, Everyone) else activation.k
        for chosen in itertools.combinations(range(graph.n), k):
            yield set(chosen), {e for e in edges if set(e) <= set(chosen)}


SCHEMES = ["edges(1)", "edges(2)", "edges(3)", "matching(1)", "matching(2)", "nodes(1)", "nodes(4)", "everyone"]
SOME = [KITE, GRAPHS.make("complete")(6), GRAPHS.make("ring")(7), GRAPHS.make("path")(5), GRAPHS.make("grid")(9)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("graph", SOME, ids=lambda g: g.name)
def test_iota_count_and_outcomes_are_those_of_the_definition(graph, scheme):
    activation = ACTIVATIONS.read(scheme)
    listed = list(outcomes_by_hand(graph, activation))
    share = [sum(i in nodes for nodes, _ in listed) / len(listed) for i in range(graph.n)]
    np.testing.assert_allclose(activation.iota(graph), share, rtol=1e-13)
    assert activation.count(graph) == len(listed)

    def spelt_out(choice):
        for nodes, links in activation.spread(graph, choice):
            for row, A in zip(nodes, links, strict=True):
                here = np.argwhere(np.triu(A))
                yield set(row.tolist()) - {-1}, {tuple(sorted(row[e].tolist())) for e in here}

    ours = list(spelt_out(activation.outcomes(graph)))
    assert sorted(map(str, map(canonical, ours))) == sorted(map(str, map(canonical, listed)))
    if graph.is_complete:
        assert all(canonical(o) in [canonical(x) for x in listed] for o in spelt_out(activation.typical(graph)))


def canonical(outcome):
    return sorted(outcome[0]), sorted(outcome[1])


def test_iota_of_the_audit():
    assert Edges(1).iota(K20)[0] == pytest.approx(0.1, abs=1e-15)
    assert Edges(2).iota(K20)[0] == pytest.approx(4 / 21, abs=1e-15)
    assert Matching(2).iota(K20)[0] == pytest.approx(0.2, abs=1e-15)
    star = Edges(1).iota(GRAPHS.make("star")(20))
    assert star[0] == pytest.approx(1.0) and star[1] == pytest.approx(1 / 19)  # .053 … 1
    huge = Edges(50).iota(GRAPHS.make("complete")(400))
    d, E = 399, 400 * 399 // 2
    assert huge[0] == pytest.approx(-math.expm1(sum(math.log1p(-d / (E - j)) for j in range(50))), rel=1e-10)


def worst_z(graph, activation, iota, rounds=40_000, seed=5):
    """Largest |z| over the nodes, of drawn participation counts against Bin(T, ι_i)."""
    K = draw_schedule(graph, activation, METROPOLIS, rounds, np.random.default_rng(seed)).participations()
    sure = (iota < 1e-12) | (iota > 1 - 1e-12)
    assert np.array_equal(K[sure], np.round(iota[sure]) * rounds)
    z = (K - rounds * iota)[~sure] / np.sqrt(rounds * iota * (1 - iota))[~sure]
    return float(np.max(np.abs(z), initial=0.0))


DRAWN = [
    K20,
    KITE,
    GRAPHS.make("complete")(6),
    GRAPHS.make("star")(9),
    GRAPHS.make("ring")(12),
    GRAPHS.make("torus")(12),
    GRAPHS.make("erdos_renyi", seed=2)(15),
]


@pytest.mark.parametrize("scheme", ["edges(1)", "edges(2)", "edges(4)", "matching(2)", "nodes(3)", "everyone"])
@pytest.mark.parametrize("graph", DRAWN, ids=lambda g: f"{g.name}{g.n}")
def test_drawn_rounds_have_the_exact_frequencies(graph, scheme):
    activation = ACTIVATIONS.read(scheme)
    if graph.name == "star" and scheme == "matching(2)":
        return  # a star has no two disjoint links; see the refusals
    iota = activation.iota(graph)
    assert worst_z(graph, activation, iota) < 4.8
    if scheme != "everyone":  # the same test must see an ι that is 5 % off
        assert worst_z(graph, activation, iota * 0.95, rounds=400_000) > 4.8


def test_the_frequencies_distinguish_four_21sts_from_a_fifth():
    assert worst_z(K20, Edges(2), np.full(20, 0.2), rounds=200_000) > 8


def histogram(graph, choice):
    """How often each set of links was drawn."""
    keys = np.sort(choice, axis=1) @ len(graph.edges) ** np.arange(choice.shape[1])
    return np.unique(keys, return_counts=True)[1]


def greedy_matchings(graph, k, rounds, rng):
    """A plausible mistake: take links one after another among those still free."""
    rows = []
    for _ in range(rounds):
        while True:
            free, chosen = list(range(len(graph.edges))), []
            while free and len(chosen) < k:
                chosen.append(free[rng.integers(len(free))])
                taken = set(graph.edges[chosen].ravel().tolist())
                free = [e for e in free if not taken & set(graph.edges[e].tolist())]
            if len(chosen) == k:
                break
        rows.append(chosen)
    return np.array(rows)


@pytest.mark.parametrize("way", ["list", "rejection"])
@pytest.mark.parametrize("k", [2, 3])
def test_matchings_are_uniform_on_an_irregular_graph(monkeypatch, way, k):
    graph = KITE
    number = len(listing.matchings(graph, k))
    if way == "rejection":
        monkeypatch.setattr(listing, "matchings", lambda graph, k: None)
    counts = histogram(graph, listing.draw_matchings(graph, k, 20_000, np.random.default_rng(1)))
    assert len(counts) == number and stats.chisquare(counts).pvalue > 1e-3
    ends = graph.edges[listing.draw_matchings(graph, k, 500, np.random.default_rng(2))].reshape(500, -1)
    assert all(len(set(row)) == 2 * k for row in ends.tolist())


def test_matchings_are_uniform_on_a_complete_graph_and_the_test_can_fail():
    K6 = GRAPHS.make("complete")(6)
    counts = histogram(K6, Matching(2).draw(K6, 45_000, np.random.default_rng(3)))
    assert len(counts) == 45 and stats.chisquare(counts).pvalue > 1e-3
    biased = histogram(KITE, greedy_matchings(KITE, 2, 5000, np.random.default_rng(4)))
    assert stats.chisquare(biased).pvalue < 1e-6


@pytest.mark.parametrize(("size", "k"), [(5, 1), (5, 2), (5, 3), (5, 5), (6, 4)])
def test_subsets_are_uniform(size, k):
    chosen = np.sort(listing.subsets(size, k, 40_000, np.random.default_rng(6)), axis=1)
    sets, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(sets) == math.comb(size, k) and np.all(np.diff(sets, axis=1) > 0)
    assert k == size or stats.chisquare(counts).pvalue > 1e-3


@given(st.integers(2, 7), st.integers(0, 10**6), st.integers(1, 3))
def test_the_search_finds_every_matching_once(n, seed, k):
    rng = np.random.default_rng(seed)
    extra = rng.integers(n, size=(n, 2))
    tree = np.stack([np.arange(1, n), rng.integers(0, np.arange(1, n))], axis=1)
    graph = Graph("random", n, np.sort(np.concatenate([tree, extra[extra[:, 0] != extra[:, 1]]]), axis=1))
    expected = {
        c
        for c in itertools.combinations(range(len(graph.edges)), k)
        if len(set(graph.edges[list(c)].ravel().tolist())) == 2 * k
    }
    found = [tuple(sorted(row)) for row in listing.matchings(graph, k).tolist()]
    assert len(found) == len(set(found)) and set(found) == expected


def test_perfect_matchings_of_a_large_ring_and_of_a_grid_are_found():
    assert len(listing.matchings(GRAPHS.make("ring")(60), 30)) == 2
    assert len(listing.matchings(GRAPHS.make("grid")(36), 18)) == 6728  # the domino tilings of a 6 × 6 board


def test_many_matchings_on_a_ring_are_rejected_into_shape():
    ring = GRAPHS.make("ring")(60)
    assert Matching(5).count(ring) is None
    np.testing.assert_allclose(Matching(5).iota(ring), 1 / 6)
    assert worst_z(ring, Matching(5), np.full(60, 1 / 6), rounds=20_000) < 4.8


def test_a_longer_draw_begins_with_the_shorter_one():
    for scheme in ("edges(2)", "matching(2)", "nodes(3)"):
        activation = ACTIVATIONS.read(scheme)
        short = activation.draw(K20, 10, np.random.default_rng(9))
        long = activation.draw(K20, 100_000, np.random.default_rng(9))
        assert np.array_equal(long[:10], short) and len(long) == 100_000
        assert not np.array_equal(long[:10], long[10:20])


@pytest.mark.parametrize("text", ["edges(2)", "matching(12)", "nodes(4)", "everyone"])
def test_names_read_back(text):
    assert str(ACTIVATIONS.read(text)) == text and ACTIVATIONS.read(f" {text} ") == ACTIVATIONS.read(text)
    assert {text.split("(")[0]} <= set(ACTIVATIONS)


def test_equal_schemes_are_equal():
    assert Edges(2) == ACTIVATIONS.read("edges( 2 )") and Edges(2) != Edges(3) and Edges(2) != Matching(2)
    assert len({Edges(2), Edges(2), Nodes(2), Everyone()}) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("edge(2)", r"no activation scheme 'edge'; write one of edges\(k\), .*, everyone"),
        ("edges", r"'edges' is malformed; write edges\(k\)"),
        ("edges()", r"'edges' is malformed; write edges\(k\)"),
        ("edges(1.5)", "a whole number of links or nodes, not 1.5"),
        ("everyone(3)", r"'everyone\(3\)' is malformed; write everyone"),
    ],
)
def test_what_is_no_scheme(text, words):
    with pytest.raises(NetworkError, match=words):
        ACTIVATIONS.read(text)


def test_what_is_no_choice_at_all():
    for text in ("", "2"):
        with pytest.raises(SpecError, match="is not a choice"):
            ACTIVATIONS.read(text)
    with pytest.raises(NetworkError, match="at least 1"):
        ACTIVATIONS.read("edges(-1)")


@pytest.mark.parametrize(
    ("graph", "scheme", "message"),
    [
        (GRAPHS.make("path")(4), "edges(4)", r"'edges\(4\)' needs 4 links, but graph 'path' has 3"),
        (GRAPHS.make("complete")(1), "edges(1)", "needs 1 links, but graph 'complete' has 0"),
        (GRAPHS.make("path")(4), "nodes(5)", "needs 5 nodes, but there are 4"),
        (GRAPHS.make("complete")(5), "matching(3)", "needs 3 links without a common node"),
        (GRAPHS.make("star")(9), "matching(2)", "graph 'star' with 9 nodes does not have them"),
    ],
)
def test_schemes_that_a_graph_cannot_serve(graph, scheme, message):
    activation = ACTIVATIONS.read(scheme)
    for ask in (lambda: activation.iota(graph), lambda: activation.draw(graph, 5, np.random.default_rng(0))):
        with pytest.raises(NetworkError, match=message):
            ask()


def test_other_refusals():
    with pytest.raises(NetworkError, match=r"'nodes\(0\)' leaves every node idle"):
        ACTIVATIONS.read("nodes(0)")
    with pytest.raises(NetworkError, match="at least one round, not 0"):
        Edges(1).draw(K20, 0, np.random.default_rng(0))
    large_n = GRAPHS.make("erdos_renyi", p=0.2)(60)
    with pytest.raises(
        NetworkError, match=r"over 200,000 matchings .* exact activation probabilities are out of reach"
    ):
        Matching(4).iota(large_n)
    assert len(Matching(4).draw(large_n, 5, np.random.default_rng(0))) == 5  # yet it can be drawn
    with pytest.raises(NetworkError, match="too many matchings on graph 'erdos_renyi' to list, and fewer than"):
        Matching(28).draw(large_n, 5, np.random.default_rng(0))


SEQUENCE = "1 0 1  # a period of three rounds\n1 2 3\n2 1 2\n\n3 3 4\n3 4 0\n"


@pytest.fixture
def cycle(tmp_path):
    (tmp_path / "rounds.txt").write_text(SEQUENCE)
    return ACTIVATIONS.read(f"cycle({tmp_path / 'rounds.txt'})")


def test_a_sequence_of_graphs_comes_again_and_again(cycle):
    graph = GRAPHS.read("complete")(5)
    run = draw_schedule(graph, cycle, METROPOLIS, 7, np.random.default_rng(0))
    spoke = [sorted(run.active[a:b].tolist()) for a, b in itertools.pairwise(run.starts)]
    assert spoke == [[0, 1, 2, 3], [1, 2], [0, 3, 4]] * 2 + [[0, 1, 2, 3]]
    assert cycle.iota(graph).tolist() == pytest.approx([2 / 3] * 4 + [1 / 3])
    # beta by hand: the matrices of the three rounds, multiplied
    product = np.eye(5)
    for t in (1, 2, 3):
        W, who = np.eye(5), run.active[run.starts[t - 1] : run.starts[t]]
        W[np.ix_(who, who)] = run.weights(t)
        product = W @ product
    found = beta(graph, cycle, METROPOLIS)
    assert found.exact and found.beta == pytest.approx(np.linalg.norm(product - 0.2, 2) ** (1 / 3))


def test_a_hypercube_agrees_after_a_round_for_each_bit():
    graph, scheme = GRAPHS.read("complete")(8), ACTIVATIONS.read("hypercube")
    run = draw_schedule(graph, scheme, METROPOLIS, 3, np.random.default_rng(0))
    z = np.arange(8.0)[:, None]
    for t in (1, 2, 3):
        who = run.active[run.starts[t - 1] : run.starts[t]]
        z[who] = run.weights(t) @ z[who]
    assert np.allclose(z, 3.5) and beta(graph, scheme, METROPOLIS).beta == 0.0
    assert np.all(scheme.iota(graph) == 1.0)
    with pytest.raises(NetworkError, match=r"2, 4, 8, … nodes, not 6"):
        scheme.iota(GRAPHS.read("complete")(6))


@pytest.mark.parametrize(
    ("text", "words"),
    [("1 0 1\n3 1 2\n", "a round without links"), ("1 0\n", "such as '1 0 3'"), ("0 0 1\n", "line 1"), ("", "without")],
)
def test_bad_sequences(tmp_path, text, words):
    (tmp_path / "rounds.txt").write_text(text)
    with pytest.raises(NetworkError, match=words):
        ACTIVATIONS.make("cycle", str(tmp_path / "rounds.txt")).iota(GRAPHS.read("complete")(4))


def test_a_sequence_keeps_to_its_graph(cycle):
    with pytest.raises(NetworkError, match=r"round 3 of .* has the link \[3, 4\]|has the link"):
        cycle.iota(GRAPHS.read("star")(5))
    (apart := Path(cycle.path)).write_text("1 0 1\n2 2 3\n")
    with pytest.raises(NetworkError, match="never mixes"):
        beta(GRAPHS.read("complete")(4), ACTIVATIONS.read(f"cycle({apart})"), METROPOLIS)


def test_a_slow_node_speaks_in_its_rounds_alone_and_counts_by_a_root():
    graph, scheme = GRAPHS.read("complete")(5), ACTIVATIONS.read("cadence(3, 4, 1, 2)")
    run = draw_schedule(graph, scheme, METROPOLIS, 8, np.random.default_rng(0))
    assert [sorted(run.nodes(t).tolist()) for t in (1, 2, 3, 4)] == [
        [0, 2, 4],
        [0, 1, 2, 4],
        [0, 2, 4],
        [0, 1, 2, 3, 4],
    ]
    assert run.participations().tolist() == [8, 4, 8, 2, 8]
    iota, factors = activation_rate(graph, scheme, correct=False)
    assert iota == pytest.approx(np.mean(scheme.iota(graph)))
    assert factors / factors[0] == pytest.approx([1, math.sqrt(2), 1, 2, 1])
    assert np.mean(factors * scheme.iota(graph)) == pytest.approx(iota)
    _, whole = activation_rate(graph, scheme, correct=True)
    assert whole / whole[0] == pytest.approx([1, 2, 1, 4, 1])
    assert beta(graph, scheme, METROPOLIS).beta < 1 and str(scheme) == "cadence(3, 4, 1, 2)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cadence()", "written as"),
        ("cadence(1)", "written as"),
        ("cadence(1, 0)", "written as"),
        ("cadence(1, 2, 1, 3)", "written as"),
        ("cadence(1, 997, 2, 991)", "comes again"),
        ("cadence(5, 2)", "does not fit 5 nodes"),
        ("cadence(0, 2, 1, 2, 2, 2, 3, 2, 4, 2)", "a round without links"),
    ],
)
def test_bad_cadences(text, words):
    with pytest.raises(NetworkError, match=words):
        ACTIVATIONS.read(text).iota(GRAPHS.read("complete")(5))


@pytest.mark.parametrize(
    ("seconds", "scheme"),
    [
        ([1, 1, 1, 10, 1], "cadence(3, 10)"),
        ([1, 2.1, 1, 1, 120], "cadence(1, 2, 4, 200)"),
        ([1, 5], "everyone"),
        ([1, 1, 2000], "cadence(2, 1000)"),
        ([0.5, 0.5, 0.54], "everyone"),
    ],
)
def test_slow_nodes_get_a_pace_that_the_others_need_not_wait_for(seconds, scheme):
    found = cadence_for(seconds)
    assert str(found) == scheme and found.iota(GRAPHS.read("complete")(len(seconds))).min() > 0


@pytest.mark.parametrize("seconds", [[], [1.0], [1.0, 0.0], [1.0, math.inf], [1.0, math.nan]])
def test_seconds_that_say_nothing_are_refused(seconds):
    with pytest.raises(NetworkError, match="seconds that a round takes"):
        cadence_for(seconds)
