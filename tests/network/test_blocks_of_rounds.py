"""Schedules are spelled out a block of rounds at a time: whatever a block is, links are those that were drawn."""

import numpy as np
import pytest

from sottovoce.network import activation
from sottovoce.network.activation import Edges, Matching, Nodes
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import METROPOLIS
from sottovoce.network.schedule import draw_schedule

ROUNDS = 60


@pytest.mark.parametrize("block", [1, 200, 1 << 20])
@pytest.mark.parametrize(
    ("graph", "scheme"),
    [("complete", Matching(4)), ("complete", Edges(2)), ("ring", Edges(3)), ("ring", Nodes(3))],
    ids=str,
)
def test_every_round_has_the_links_that_were_drawn(monkeypatch, graph, scheme, block):
    monkeypatch.setattr(activation, "BLOCK", block)
    whole = GRAPHS.read(graph)(9)
    drawn = draw_schedule(whole, scheme, METROPOLIS, ROUNDS, np.random.default_rng(5))
    choice = scheme.draw(whole, ROUNDS, np.random.default_rng(5))
    assert len(choice) == drawn.T == ROUNDS
    for t, row in enumerate(choice, start=1):
        links = np.zeros((9, 9), dtype=np.bool_)
        if scheme.by_links:
            ends = whole.ends(row)
            links[ends[:, 0], ends[:, 1]] = links[ends[:, 1], ends[:, 0]] = True
            expected = set(ends.ravel().tolist())
        else:
            links[np.ix_(row, row)] = whole.linked(row[:, None], row[None, :])
            expected = set(row.tolist())
        nodes = drawn.nodes(t)
        assert set(nodes.tolist()) == expected and len(nodes) == len(expected)
        assert np.array_equal(drawn.weights(t), METROPOLIS(links[np.ix_(nodes, nodes)]))
