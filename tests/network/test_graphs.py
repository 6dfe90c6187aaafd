"""Graphs: every row against NetworkX or a hand-made list, and every refusal."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csgraph

from sottovoce.errors import NetworkError
from sottovoce.network.activation import ACTIVATIONS, Periodic
from sottovoce.network.graphs import GRAPHS, Graph, _pieces, undirected
from sottovoce.network.mixing import metropolis
from sottovoce.planner import PublicInputs
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, Spec

NEEDS = {"random_regular": {"degree": 4}}


def as_networkx(graph: Graph) -> nx.Graph:
    other = nx.Graph()
    other.add_nodes_from(range(graph.n))
    other.add_edges_from(graph.edges.tolist())
    return other


@pytest.mark.parametrize(
    ("name", "n", "parameters", "expected"),
    [
        ("complete", 7, {}, nx.complete_graph(7)),
        ("ring", 7, {}, nx.cycle_graph(7)),
        ("path", 7, {}, nx.path_graph(7)),
        ("star", 7, {}, nx.star_graph(6)),
        ("grid", 12, {}, nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4), ordering="sorted")),
        ("grid", 12, {"rows": 2}, nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 6), ordering="sorted")),
        (
            "torus",
            12,
            {},
            nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4, periodic=True), ordering="sorted"),
        ),
        ("torus", 6, {"rows": 1}, nx.cycle_graph(6)),
        ("erdos_renyi", 6, {"p": 1.0}, nx.complete_graph(6)),
        ("small_world", 8, {"k": 2, "p": 0.0}, nx.cycle_graph(8)),
    ],
)
def test_the_links_are_those_of_networkx(name, n, parameters, expected):
    graph = GRAPHS.make(name, **parameters)(n)
    assert {tuple(e) for e in graph.edges.tolist()} == {tuple(sorted(e)) for e in expected.edges}


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_pieces_are_those_of_scipy(drawn):
    n, pairs = drawn
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    assert np.array_equal(_pieces(n, edges), csgraph.connected_components(links, directed=False)[1])


def test_the_pieces_of_a_long_path_in_disorder():
    order = np.random.default_rng(0).permutation(5000)
    assert _pieces(5000, np.stack([order[:-1], order[1:]], axis=1)).max() == 0
    assert _pieces(5000, np.stack([order[:-2:2], order[1::2][: len(order[:-2:2])]], axis=1)).max() > 2000


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - {"edge_list"}))
@pytest.mark.parametrize("n", [5, 6, 20, 49])
def test_every_graph_is_connected_and_its_parts_agree(name, n):
    graph = GRAPHS.make(name, **NEEDS.get(name, {}))(n)
    assert nx.is_connected(as_networkx(graph))
    assert np.all(graph.edges[:, 0] < graph.edges[:, 1])
    assert np.array_equal(graph.edges, np.unique(graph.edges, axis=0))
    A = graph.adjacency()
    assert np.array_equal(A, A.T) and not A.diagonal().any() and A.sum() == 2 * len(graph.edges)
    assert np.array_equal(A.sum(axis=1), graph.degrees)
    for i in range(n):
        assert np.array_equal(graph.neighbors(i), np.flatnonzero(A[i]))
    assert graph.is_complete == bool(np.all(A | np.eye(n, dtype=bool)))


def test_random_graphs_follow_their_seed_and_their_parameters():
    for name, parameters in (("erdos_renyi", {}), ("random_regular", {"degree": 3}), ("small_world", {"p": 0.5})):
        once, again, other = (GRAPHS.make(name, seed=s, **parameters)(20).edges for s in (3, 3, 4))
        assert np.array_equal(once, again) and not np.array_equal(once, other)
    assert np.all(GRAPHS.make("random_regular", degree=3)(20).degrees == 3)
    assert len(GRAPHS.make("small_world", k=6, p=0.3)(20).edges) == 60
    sizes = [len(GRAPHS.make("erdos_renyi", seed=s)(60).edges) for s in range(30)]
    assert abs(np.mean(sizes) / (1.5 * np.log(60) * 59 / 2) - 1) < 0.1  # p = 1.5 log n / n, a little more if connected
    # a p at which most draws fall apart still ends connected
    assert all(GRAPHS.make("erdos_renyi", p=0.12, seed=s)(20).n == 20 for s in range(5))


@pytest.mark.parametrize("name", ["complete", "ring", "path", "star", "grid", "torus", "erdos_renyi"])
def test_one_node_and_two_nodes(name):
    assert GRAPHS.make(name)(1).edges.shape == (0, 2)
    assert GRAPHS.make(name)(1).degrees.tolist() == [0] and GRAPHS.make(name)(1).is_complete
    assert GRAPHS.make(name)(2).edges.tolist() == [[0, 1]]


def test_edge_list(tmp_path):
    file = tmp_path / "links.txt"
    file.write_text("# a triangle and a tail\n2 0\n0 1  # named twice\n0 1\n\n1\t2\n 3 2\n")
    graph = GRAPHS.make("edge_list", path=file)(4)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 2 3\n", r"line 2 of .* is '1 2 3', but a link is two node ids"),
        ("0 1\n1 b\n", "line 2"),
        ("0 -1\n", "line 1"),
        ("0 1\n1 3\n", r"line 2 of .* names node 3, .* 0 to 2"),
        ("0 1\n2 2\n", r"line 2 of .* links node 2 to itself"),
        ("0 1\n1 0\n1 2\n", r"one direction only; directed graphs are not supported .*link \[1, 2\]"),
        ("0 -> 1\n", r"line 1 of .* is '0 -> 1': this graph has links in one direction only"),
        ("0 1\n", "falls into 2 pieces .node 2 cannot be reached"),
        ("", "falls into 3 pieces"),
    ],
)
def test_bad_edge_lists(tmp_path, text, message):
    file = tmp_path / "links.txt"
    file.write_text(text)
    with pytest.raises(NetworkError, match=message):
        GRAPHS.make("edge_list", path=file)(3)


def test_an_unreadable_file(tmp_path):
    with pytest.raises(NetworkError, match=r"cannot read the links in .*one link a line"):
        GRAPHS.make("edge_list", path=tmp_path / "nowhere")(3)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NetworkError, match="cannot read the links"):
        GRAPHS.make("edge_list", path=tmp_path / "binary")(3)


@pytest.mark.parametrize(
    ("name", "n", "parameters", "message"),
    [
        ("blob", 5, {}, "no graph 'blob'; write one of complete, ring"),
        ("ring", 0, {}, "number of nodes must be between 1 and 1000000, not 0"),
        ("ring", 2.5, {}, "number of nodes must be a whole number, not 2.5"),
        ("ring", 5, {"p": 0.5}, "'ring.p=0.5.' is malformed; write ring"),
        ("random_regular", 5, {}, "malformed; write random_regular.degree, seed=0."),
        ("random_regular", 5, {"degree": 3}, "5 × 3 is odd"),
        ("random_regular", 5, {"degree": 5}, "degree must be between 0 and 4, not 5"),
        ("random_regular", 6, {"degree": 1}, "none of 50 draws of random_regular with degree 1 on 6 nodes"),
        ("erdos_renyi", 20, {"p": 0.01}, "none of 50 draws .* ask for more links, or for another seed"),
        ("erdos_renyi", 20, {"p": 1.5}, "p must be a probability between 0 and 1, not 1.5"),
        ("erdos_renyi", 20, {"p": "many"}, "'many' for graph 'erdos_renyi' is not a number"),
        ("erdos_renyi", 20, {"seed": -1}, "seed must be at least 0"),
        ("small_world", 20, {"k": 3}, "k must be even"),
        ("small_world", 20, {"k": 20}, "k must be between 2 and 19"),
        ("small_world", 2, {}, "small world must be at least 3"),
        ("grid", 12, {"rows": 5}, "12 nodes do not fill 5 rows evenly"),
        ("torus", 12, {"rows": 0}, "rows must be between 1 and 12"),
    ],
)
def test_refusals(name, n, parameters, message):
    with pytest.raises(NetworkError, match=message):
        GRAPHS.make(name, **parameters)(n)


@pytest.mark.parametrize(
    ("n", "edges", "message"),
    [
        (3, [[0, 1], [1, 3]], "a link names node 3, but nodes are numbered 0 to 2"),
        (3, [[0, 1], [-1, 2]], "a link names node -1"),
        (3, [[0, 1], [2, 2]], "node 2 is linked to itself"),
        (4, [[0, 1], [2, 3]], r"falls into 2 pieces \(node 2 cannot be reached from node 0\)"),
        (3, [[0.0, 1.0], [1.0, 2.0]], "pairs of whole numbers"),
        (3, [0, 1, 2], "pairs of whole numbers"),
        (3, [[0, 1, 2]], "pairs of whole numbers"),
        (0, [], "number of nodes must be between 1 and 1000000"),
    ],
)
def test_a_graph_of_ones_own_is_checked(n, edges, message):
    with pytest.raises(NetworkError, match=message):
        Graph("mine", n, np.array(edges))


def test_a_directed_graph_is_refused_and_never_made_undirected():
    import networkx as nx

    directed = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    with pytest.raises(NetworkError, match=r"directed graphs are not supported .*to_undirected"):
        Graph("mine", 3, directed)
    assert Graph("mine", 3, directed.to_undirected()).links == 3
    both = [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert Graph("mine", 3, np.array(both)).links == 2  # every link in both directions: none is directed
    with pytest.raises(NetworkError, match=r"link \[1, 2\] is named in one"):
        Graph("mine", 3, np.array(both[:3]))
    with pytest.raises(NetworkError, match="directed graphs are not supported"):
        metropolis(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))


@pytest.mark.parametrize("made", [nx.DiGraph, nx.MultiDiGraph])
def test_a_directed_graph_of_networkx_is_refused_wherever_a_graph_is_given(made):
    """Specs and public inputs took any object, and failed later with a TypeError."""
    graph = made([(0, 1), (1, 2), (2, 0)])
    for give in (
        lambda: Graph("mine", 3, graph),
        lambda: NetworkSpec(graph=graph),
        lambda: Spec(AlgorithmSpec(3)).replace(network__graph=graph),
        lambda: PublicInputs((5, 5, 5), 2, 1.0, 1e-5, graph=graph),
        lambda: GRAPHS.read(graph),
        lambda: undirected(3, graph),
        lambda: _Rounds((graph,)).outcomes(GRAPHS.read("complete")(3)),
    ):
        with pytest.raises(NetworkError, match="directed graphs are not supported"):
            give()
    with pytest.raises(NetworkError, match=r"give 'edge_list\(FILE\)', or register"):
        NetworkSpec(graph=nx.Graph([(0, 1)]))


@dataclass(frozen=True)
class _Rounds(Periodic):
    given: tuple

    def pairs(self, graph):
        return list(self.given)


def test_a_directed_round_of_a_sequence_is_refused(tmp_path):
    """A link in both directions beside one in a single direction was made undirected silently."""
    complete = GRAPHS.read("complete")(3)
    with pytest.raises(NetworkError, match=r"link \[1, 2\] is named in one"):
        _Rounds((np.array([(0, 1), (1, 0), (1, 2)]),)).outcomes(complete)
    once, twice = (_Rounds((np.array(pairs),)).outcomes(complete) for pairs in ([(0, 1), (1, 2)], [(0, 1), (1, 0)]))
    assert once.shape == (1, 2) and np.unique(twice).size == 1
    path = tmp_path / "rounds.txt"
    for text, words in (("1 0 -> 1\n", "line 1 of"), ("1 0 1\n1 1 0\n1 1 2\n", "is named in one")):
        path.write_text(text)
        with pytest.raises(NetworkError, match=f"(?s)directed graphs are not supported.*{words}"):
            ACTIVATIONS.read(f"cycle({path})").outcomes(complete)


def test_links_are_put_in_order_and_cannot_be_changed():
    graph = Graph("mine", 3, np.array([[2, 1], [1, 0], [2, 1]]))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    with pytest.raises(ValueError, match="read-only"):
        graph.edges[0, 0] = 2


@given(st.integers(2, 24), st.integers(0, 99))
def test_shift_invariance_proves_that_no_node_is_special(n, seed):
    """Whenever it is claimed, NetworkX finds an automorphism from node 0 to every other node."""
    rng = np.random.default_rng(seed)
    links = np.concatenate([GRAPHS.make("ring")(n).edges, rng.integers(n, size=(2, 2))])
    graph = Graph("mine", n, np.sort(links[links[:, 0] != links[:, 1]], axis=1))
    if graph.shift_invariant:
        G = as_networkx(graph)
        for i in range(1, n):
            marked = [G.copy(), G.copy()]
            for copy, special in zip(marked, (0, i), strict=True):
                nx.set_node_attributes(copy, {v: v == special for v in copy}, "special")
            assert nx.is_isomorphic(*marked, node_match=lambda a, b: a == b)


def test_shift_invariance_is_seen_and_not_invented():
    seen = [
        GRAPHS.make("complete")(9),
        GRAPHS.make("ring")(9),
        GRAPHS.make("torus")(12),
        GRAPHS.make("torus", rows=2)(12),
    ]
    assert all(graph.shift_invariant for graph in seen)
    two_triangles = Graph("mine", 6, np.array([[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [4, 5], [3, 5]]))
    assert not two_triangles.shift_invariant and not GRAPHS.make("grid")(9).shift_invariant
    cubic = GRAPHS.make("random_regular", degree=3)(12)  # regular, and yet its nodes differ
    assert not cubic.shift_invariant
