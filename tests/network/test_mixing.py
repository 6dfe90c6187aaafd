"""β against the audit's table, brute force, sampling and the proposition; evenness and its correction."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import NetworkError
from sottovoce.network import mixing
from sottovoce.network.activation import ACTIVATIONS, Edges, Everyone, Matching, Nodes
from sottovoce.network.graphs import GRAPHS, Graph
from sottovoce.network.mixing import METROPOLIS, Mixing, activation_rate, beta, correction, uneven

K20 = GRAPHS.make("complete")(20)
KITE = Graph("kite", 6, np.array([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4], [4, 5]]))


def metropolis_by_hand(n, links):
    W = np.eye(n)
    d = [sum(i in e for e in links) for i in range(n)]
    for i, j in links:
        w = 1 / (1 + max(d[i], d[j]))
        W[i, j] += w
        W[j, i] += w
        W[i, i] -= w
        W[j, j] -= w
    return W


def beta_by_hand(graph, activation):
    edges, n = [tuple(e) for e in graph.edges.tolist()], graph.n
    if isinstance(activation, Everyone):
        outcomes = [edges]
    elif isinstance(activation, Nodes):
        outcomes = [
            [e for e in edges if set(e) <= set(chosen)] for chosen in itertools.combinations(range(n), activation.k)
        ]
    else:
        outcomes = list(itertools.combinations(edges, activation.k))
        if isinstance(activation, Matching):
            outcomes = [links for links in outcomes if len(set(itertools.chain(*links))) == 2 * activation.k]
    moment = np.mean([(W := metropolis_by_hand(n, links)).T @ W for links in outcomes], axis=0)
    rho = np.max(np.abs(np.linalg.eigvals(moment - 1 / n)))
    return math.sqrt(rho)


@pytest.mark.parametrize(
    ("scheme", "iota", "rho", "expected"),
    [
        ("edges(1)", 0.1, 18 / 19, 0.973329),
        ("edges(2)", 4 / 21, 0.899192, 0.948258),
        ("matching(2)", 0.2, 17 / 19, 0.945905),
    ],
)
def test_the_table_of_the_audit(scheme, iota, rho, expected):
    got = beta(K20, ACTIVATIONS.read(scheme), METROPOLIS)
    assert got.exact and got.error == 0.0
    assert got.beta == pytest.approx(expected, abs=1e-6) and got.beta**2 == pytest.approx(rho, abs=1e-6)
    rate, factors = activation_rate(K20, ACTIVATIONS.read(scheme), correct=False)
    assert rate == pytest.approx(iota, abs=1e-15) and np.array_equal(factors, np.ones(20))


SMALL = [KITE, GRAPHS.make("complete")(6), GRAPHS.make("ring")(7), GRAPHS.make("path")(5), GRAPHS.make("star")(6)]


@pytest.mark.parametrize(
    "scheme", ["edges(1)", "edges(2)", "edges(4)", "matching(1)", "matching(2)", "nodes(2)", "nodes(4)", "everyone"]
)
@pytest.mark.parametrize("graph", SMALL, ids=lambda g: g.name)
def test_exact_beta_is_brute_force(graph, scheme):
    activation = ACTIVATIONS.read(scheme)
    if graph.name == "star" and scheme == "matching(2)":
        return
    got = beta(graph, activation, METROPOLIS)
    expected = beta_by_hand(graph, activation)
    assert got.exact and got.beta == pytest.approx(expected, abs=1e-7 if expected < 1e-6 else 1e-11)


def test_symmetry_agrees_with_the_list():
    """The shortcut on complete graphs against the enumeration that other graphs get."""
    K7 = GRAPHS.make("complete")(7)
    for weights in ("metropolis", "max_degree", "lazy"):
        for scheme in ("edges(1)", "edges(2)", "edges(3)", "matching(2)", "matching(3)", "nodes(3)", "everyone"):
            activation = ACTIVATIONS.read(scheme)
            short = beta(K7, activation, mixing.WEIGHTS.read(weights))
            rule = mixing.WEIGHTS.read(weights)
            long = mixing._second_moment(K7, activation, rule, activation.outcomes(K7))
            assert short.exact
            assert short.beta**2 == pytest.approx(np.linalg.eigvalsh(long)[-1], abs=1e-12)


@pytest.mark.parametrize("scheme", ["edges(2)", "matching(2)", "nodes(4)"])
@pytest.mark.parametrize(
    "graph",
    [KITE, GRAPHS.make("ring")(12), GRAPHS.make("path")(9), GRAPHS.make("torus")(16), GRAPHS.make("complete")(9)],
    ids=lambda g: g.name,
)
def test_sampled_beta_lies_within_its_error_bar(monkeypatch, graph, scheme):
    activation = ACTIVATIONS.read(scheme)
    exact = beta(graph, activation, METROPOLIS).beta
    monkeypatch.setattr(mixing, "LIMIT", 0)
    monkeypatch.setattr(type(activation), "typical", lambda self, graph: None)
    for seed in range(3):
        got = beta(graph, activation, METROPOLIS, 8000, np.random.default_rng(seed))
        assert not got.exact and abs(got.beta - exact) <= 5 * got.error + 1e-12
        assert got.error < 0.2 * (1 - exact)  # a bar that covers everything would prove nothing


def test_the_error_bar_is_the_spread_of_the_estimate():
    """Of edges(4) on K20, which is sampled in earnest."""
    runs = [beta(K20, Edges(4), METROPOLIS, 2000, np.random.default_rng(seed)) for seed in range(40)]
    assert not any(run.exact for run in runs)
    spread, bar = np.std([run.beta for run in runs], ddof=1), np.mean([run.error for run in runs])
    assert 0.65 < spread / bar < 1.4
    assert beta(K20, Edges(4), METROPOLIS) == beta(K20, Edges(4), METROPOLIS)  # no generator: a fixed one


@st.composite
def graphs(draw):
    n = draw(st.integers(3, 7))
    tree = [[i, draw(st.integers(0, i - 1))] for i in range(1, n)]
    pairs = [[i, j] for i in range(n) for j in range(i)]
    return Graph("random", n, np.array(tree + draw(st.lists(st.sampled_from(pairs), max_size=n)), dtype=np.int64))


@settings(deadline=None)
@given(
    graphs(), st.sampled_from(["edges(1)", "edges(2)", "matching(1)", "nodes(2)", "nodes(3)", "everyone"]), st.data()
)
def test_renumbering_the_nodes_changes_nothing(graph, scheme, data):
    activation = ACTIVATIONS.read(scheme)
    new = np.array(data.draw(st.permutations(range(graph.n))))
    other = Graph("renumbered", graph.n, new[graph.edges])
    assert beta(graph, activation, METROPOLIS).beta == pytest.approx(beta(other, activation, METROPOLIS).beta, abs=1e-7)
    np.testing.assert_allclose(activation.iota(other)[new], activation.iota(graph), rtol=1e-14)


@settings(deadline=None)
@given(
    graphs(),
    st.sampled_from(["edges(1)", "edges(2)", "matching(1)", "nodes(2)", "nodes(3)", "everyone"]),
    st.sampled_from(["metropolis", "max_degree", "lazy"]),
)
def test_the_proposition_of_the_audit(graph, scheme, weights):
    """β² ≥ (n(1 − ι) + p − 1)/(n − 1) ≥ 1 − ι; someone is active in every round of every scheme, so p = 1."""
    activation, n = ACTIVATIONS.read(scheme), graph.n
    iota = float(np.mean(activation.iota(graph)))
    floor = n * (1 - iota) / (n - 1)
    assert floor >= 1 - iota
    assert beta(graph, activation, mixing.WEIGHTS.read(weights)).beta ** 2 >= floor - 1e-12


def test_the_proposition_is_attained_by_full_averaging():
    for scheme in ("edges(1)", "nodes(5)"):  # Metropolis among k nodes that are all linked is 1/k
        activation = ACTIVATIONS.read(scheme)
        iota = activation.iota(K20)[0]
        assert beta(K20, activation, METROPOLIS).beta ** 2 == pytest.approx(20 * (1 - iota) / 19, abs=1e-13)


def test_limits():
    assert beta(GRAPHS.make("complete")(1), Everyone(), METROPOLIS) == Mixing(0.0, 0.0, exact=True)
    assert beta(K20, Everyone(), METROPOLIS).beta == 0.0
    ring = beta(GRAPHS.make("ring")(10), Everyone(), METROPOLIS).beta
    assert ring == pytest.approx((1 + 2 * math.cos(2 * math.pi / 10)) / 3, abs=1e-12)
    lazy = beta(GRAPHS.make("ring")(10), Everyone(), mixing.WEIGHTS.read("lazy")).beta
    assert lazy == pytest.approx((1 + ring) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("graph", "scheme", "weights", "message"),
    [
        (K20, "nodes(1)", "metropolis", r"'nodes\(1\)' with metropolis weights never mixes on graph 'complete'"),
        (GRAPHS.make("path")(4), "matching(2)", "metropolis", "never mixes on graph 'path' .β = 1."),
        (GRAPHS.make("path")(4), "edges(9)", "metropolis", "needs 9 links"),
        (GRAPHS.make("complete")(1), "edges(1)", "metropolis", "needs 1 links"),
        (GRAPHS.make("path")(4), "edges(2)", "uniform", "uniform weights are doubly stochastic only"),
        (K20, "edges(1)", "best", "no weight rule 'best'"),
    ],
)
def test_refusals(graph, scheme, weights, message):
    with pytest.raises(NetworkError, match=message):
        beta(graph, ACTIVATIONS.read(scheme), mixing.WEIGHTS.read(weights))


def test_too_few_samples(monkeypatch):
    with pytest.raises(NetworkError, match="5 samples are too few for an error bar; take at least 40"):
        beta(K20, Edges(4), METROPOLIS, samples=5)
    monkeypatch.setattr(mixing, "LIMIT", 0)
    with pytest.raises(NetworkError, match=r"40 sampled rounds .* do not mix graph 'ring'; take more samples"):
        beta(GRAPHS.make("ring")(100), Edges(2), METROPOLIS, samples=40)


def test_an_uneven_scheme_is_refused_or_corrected():
    star = GRAPHS.make("star")(20)
    with pytest.raises(NetworkError, match=r"activates node 1 with probability 0.0526 and node 0 with 1, .*correction"):
        activation_rate(star, Edges(1), correct=False)
    rate, factors = activation_rate(star, Edges(1), correct=True)
    assert rate == pytest.approx(0.1)
    np.testing.assert_allclose(factors * Edges(1).iota(star), rate)
    assert factors[0] == pytest.approx(0.1) and factors[1] == pytest.approx(1.9)
    for scheme in (Nodes(3), Everyone()):  # even on any graph, with or without leave to correct
        for correct in (False, True):
            rate, factors = activation_rate(star, scheme, correct)
            assert rate == scheme.iota(star)[0] and np.array_equal(factors, np.ones(20))


def test_uneven_and_correction():
    assert not uneven(np.full(3, 0.1) * (1 + 1e-15 * np.arange(3))) and uneven(np.array([0.1, 0.1 + 1e-9]))
    with pytest.raises(NetworkError, match="node 2 is never active"):
        correction(np.array([0.5, 0.5, 0.0]))
    fork = Graph("fork", 5, np.array([[0, 1], [1, 2], [2, 3], [1, 4]]))  # its two 2-matchings share the link 2-3
    assert Matching(2).iota(fork).tolist() == [0.5, 1, 1, 1, 0.5]
    assert activation_rate(fork, Matching(2), correct=True)[0] == 0.8
