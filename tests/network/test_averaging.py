"""Averagings: the exact mean for every n, W^k, plans that add up to it, and what a liar can do against the others."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sottovoce.errors import NetworkError
from sottovoce.network import AVERAGINGS, Clipped, Exact, Gossip, Quantized, Trimmed, beta, draw_schedule
from sottovoce.network.activation import ACTIVATIONS
from sottovoce.network.averaging import all_reduce, all_reduced
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS, check_doubly_stochastic
from sottovoce.run.spec import AlgorithmSpec, Spec

EPS = np.finfo(float).eps
SIZES = [*range(2, 301), 10_000]


def followed(averaging, W, messages, unit=1.0):
    """All nodes follow their plans, exchange after exchange; nobody hears what was not sent to him."""
    k = len(messages)
    plans = [averaging.exchanges(W, p) for p in range(k)]
    held = [messages[p][None] for p in range(k)]
    for step in range(max(map(len, plans))):
        sent = {(p, to) for p in range(k) if plans[p] for to in plans[p][step].to}
        assert sent == {(p, q) for q in range(k) if plans[q] for p in plans[q][step].heard}
        held = [
            averaging.combine(p, plans[p][step], held[p], {q: held[q] for q in plans[p][step].heard}, unit)
            if plans[p]
            else held[p]
            for p in range(k)
        ]
    return np.concatenate(held)


def ring(n):
    return WEIGHTS.read("metropolis")(GRAPHS.read("ring")(n).adjacency())


def everybody(n):
    return np.full((n, n), 1 / n)


@pytest.mark.parametrize("n", [1, *SIZES])
def test_the_exact_mean_of_any_number(n):
    values = np.random.default_rng(n).normal(size=(n, 3)) * np.array([1.0, 1e-3, 1e6])
    mean = all_reduced(values)
    assert np.array_equal(mean, np.broadcast_to(mean[0], mean.shape))  # all end with the same bits
    exact = np.array([math.fsum(column) / n for column in values.T])
    assert np.all(np.abs(mean[0] - exact) <= 2 * EPS * (2 + math.log2(n)) * np.mean(np.abs(values), axis=0))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 20, 31, 33, 100, 300])
def test_nodes_that_follow_the_plan_get_the_same_bits(n):
    values = np.random.default_rng(n).normal(size=(n, 2))
    assert np.array_equal(followed(Exact(), everybody(n), values), all_reduced(values))


@pytest.mark.parametrize("n", SIZES)
def test_depth_and_messages_of_the_exact_mean(n):
    d = n.bit_length() - 1
    busiest = range(n) if n <= 300 else (0, 1, n - 2**d - 1, n - 2**d, 2**d - 1, 2**d, n - 1)
    plans = [all_reduce(n, i) for i in busiest]
    deep = {len(plan) for plan in plans}
    assert deep == {d + 2 * (n != 2**d)}
    passed = [sum(len(e.to) + (e.to != e.heard) * len(e.heard) for e in plan) for plan in plans]
    assert max(passed) <= d + 2  # an exchange with one peer is one message each way
    sent = [sum(len(e.to) for e in plan) for plan in plans]
    assert max(sent) <= d + 1
    if n <= 300:
        W = everybody(n)
        assert (Exact().messages(W), Exact().depth(W)) == (sum(sent), deep.pop())


@given(st.integers(2, 12), st.integers(1, 6), st.sampled_from(["metropolis", "lazy", "max_degree"]), st.integers(0, 99))
def test_gossip_again_and_again_is_a_power(n, k, weights, seed):
    rng = np.random.default_rng(seed)
    W = WEIGHTS.read(weights)(GRAPHS.read("path")(n).adjacency())
    values, many = rng.normal(size=(n, 3)), Gossip(k)
    power = np.linalg.matrix_power(W, k)
    np.testing.assert_allclose(many.weights(W), power, atol=1e-15)
    for found in (many.mix(W, values), followed(many, W, values)):
        np.testing.assert_allclose(found, power @ values, atol=1e-13)
    assert (many.messages(W), many.depth(W)) == (2 * (n - 1) * k, k)


def test_beta_follows_the_averaging():
    graph, everyone, rule = GRAPHS.read("ring")(9), ACTIVATIONS.read("everyone"), WEIGHTS.read("metropolis")
    once = beta(graph, everyone, rule).beta
    assert beta(graph, everyone, rule, averaging=Gossip(4)).beta == pytest.approx(once**4, rel=1e-9)
    whole, few = GRAPHS.read("complete")(9), ACTIVATIONS.read("nodes(4)")
    assert beta(whole, everyone, WEIGHTS.read("lazy"), averaging=Exact()).beta == 0
    # four of nine become one: E tr WᵀW = 1 + 5, so β² = 5/8
    assert beta(whole, few, WEIGHTS.read("lazy"), averaging=Exact()).beta ** 2 == pytest.approx(5 / 8)


@pytest.mark.parametrize("averaging", ["gossip", "gossip(3)", "exact", "clipped(1e9)", "trimmed(1)"])
@pytest.mark.parametrize("scheme", ["everyone", "nodes(5)"])
def test_a_schedule_keeps_its_averaging(averaging, scheme):
    graph, rng = GRAPHS.read("complete")(8), np.random.default_rng(1)
    how = AVERAGINGS.read(averaging)
    run = draw_schedule(graph, ACTIVATIONS.read(scheme), WEIGHTS.read("lazy"), 12, rng, how).spaced(2)
    assert run.averaging == how
    k, quiet, values = len(run.nodes(2)), np.random.default_rng(2).normal(size=(len(run.nodes(1)), 3)), np.eye(8)
    assert (
        np.array_equal(run.mix(1, quiet), quiet)
        and not run.messages(1)
        and run.exchanges(1, int(run.nodes(1)[0])) == ()
    )
    found = run.mix(2, values[run.nodes(2)])
    if how.linear:
        check_doubly_stochastic(run.matrix(2))
        np.testing.assert_allclose(found, run.matrix(2)[run.nodes(2)], atol=1e-15)
    asleep = set(range(8)) - set(run.nodes(2).tolist())
    assert all(run.exchanges(2, i) == () for i in asleep)
    sent = sum(len(e.to) for i in range(8) for e in run.exchanges(2, i))
    assert run.messages(2) == sent == int(run.up_to(2)[-1])
    per = {
        "gossip": (k * (k - 1), 1),
        "gossip(3)": (3 * k * (k - 1), 3),
        "exact": (24 if k == 8 else 10, 3 if k == 8 else 4),
    }
    assert (sent, run.depth(2)) == per.get(averaging, (k * (k - 1), 1))
    assert run.depth() == 6 * run.depth(2)


def test_an_exact_mean_over_those_who_are_awake():
    run = draw_schedule(
        GRAPHS.read("complete")(6), ACTIVATIONS.read("edges(2)"), WEIGHTS.read("metropolis"), 50,
        np.random.default_rng(3), Exact(),
    )  # fmt: skip
    sizes = {len(run.nodes(t)) for t in range(1, 51)}
    assert sizes == {3, 4}  # two links, with and without a common node
    for t in range(1, 51):
        k = len(run.nodes(t))
        assert np.array_equal(run.mixtures[run.pattern[t - 1]], np.full((k, k), 1 / k))


# --- robust ones

Messages = st.integers(4, 9).flatmap(
    lambda n: hnp.arrays(np.float64, (n, 3), elements=st.floats(-10, 10, width=32, allow_subnormal=False))
)


@given(Messages, st.sampled_from(["ring", "complete"]))
def test_far_from_the_radius_clipped_gossip_is_gossip(values, graph):
    W = WEIGHTS.read("metropolis")(GRAPHS.read(graph)(len(values)).adjacency())
    for found in (Clipped(100.0).mix(W, values), followed(Clipped(1.0), W, values, unit=100.0)):
        np.testing.assert_allclose(found, W @ values, atol=1e-12)


@given(Messages, st.floats(0.01, 5.0), st.floats(0.1, 3.0), st.sampled_from(["ring", "star", "complete"]))
def test_clipped_gossip_keeps_the_sum_and_nodes_follow_it(values, radius, unit, graph):
    W = WEIGHTS.read("metropolis")(GRAPHS.read(graph)(len(values)).adjacency())
    mixed = Clipped(radius).mix(W, values, unit)
    np.testing.assert_allclose(mixed.sum(axis=0), values.sum(axis=0), atol=1e-11)
    np.testing.assert_allclose(followed(Clipped(radius), W, values, unit), mixed, atol=1e-12)
    assert np.all(np.linalg.norm(mixed - values, axis=1) <= radius * unit * (1 - np.diag(W)) + 1e-12)


@given(Messages, st.integers(2, 32), st.sampled_from(["ring", "star", "complete"]))
def test_rounded_gossip_keeps_the_sum_and_rounds_to_so_many_values(values, bits, graph):
    """Nodes follow it, every coordinate is near its value, and a message has no more values than its bits can say."""
    W = WEIGHTS.read("metropolis")(GRAPHS.read(graph)(len(values)).adjacency())
    one = Quantized(bits)
    mixed, known = one.mix(W, values), one.rounded(values)
    np.testing.assert_allclose(mixed.sum(axis=0), values.sum(axis=0), atol=1e-11)
    np.testing.assert_allclose(followed(one, W, values), mixed, atol=1e-12)
    largest = np.abs(values).max(axis=1, keepdims=True)
    assert np.all(np.abs(known - values) <= largest / (2**bits - 2) * (1 + 1e-9))
    levels = known / np.where(largest > 0, largest, 1.0) * (2 ** (bits - 1) - 1)
    assert np.allclose(levels, np.rint(levels), atol=1e-5) and np.all(np.abs(levels) <= 2 ** (bits - 1))
    assert one.message_bytes(1000) == 125 * bits + 8 and Gossip().message_bytes(1000) == 8000
    spread = np.abs(W).sum(axis=1).max() + 1
    assert np.all(np.abs(mixed - W @ values) <= spread * largest.max() / (2**bits - 2) * (1 + 1e-9) + 1e-12)


LIES = st.sampled_from([math.inf, -math.inf, math.nan, 1e308, -1e200, 1e9, 0.0, 7.0])


@given(Messages, LIES, LIES, st.floats(0.01, 5.0))
def test_a_liar_moves_others_by_twice_the_radius_at_most(values, lie, other, radius):
    """Of two lies, whatever they are; and by once the radius from where they would be without the liar."""
    W, details, again = ring(len(values)), values.copy(), values.copy()
    details[0], again[0] = lie, other
    with np.errstate(all="ignore"):
        one, two = Clipped(radius).mix(W, details)[1:], Clipped(radius).mix(W, again)[1:]
        silent = [Clipped(radius).mix(W * (np.arange(len(W)) > 0), details)[p] for p in range(1, len(W))]
    assert np.all(np.isfinite(one)) and np.all(np.isfinite(two))
    weight = W[1:, 0]
    assert np.all(np.linalg.norm(one - two, axis=1) <= 2 * radius * weight + 1e-9)
    assert np.all(np.linalg.norm(one - np.array(silent), axis=1) <= radius * weight + 1e-9)
    # and gossip bounds nothing
    with np.errstate(all="ignore"):
        naive = ring(len(values)) @ details
    assert abs(lie) < 1e9 or not np.all(np.abs(naive[1]) < 1e8)


def test_the_bound_on_a_liar_is_reached():
    W, values = everybody(4), np.zeros((4, 1))
    values[0] = 1e6
    assert Clipped(2.0).mix(W, values)[1:].ravel().tolist() == [0.5] * 3  # w·radius = ¼·2


@given(Messages, st.integers(1, 3), st.lists(LIES, min_size=3, max_size=3), st.integers(0, 99))
def test_trimmed_means_stay_among_the_honest(values, f, lies, seed):
    n = len(values)
    if 2 * f >= n:
        with pytest.raises(NetworkError, match="drops"):
            Trimmed(f).refuse(everybody(n))
        return
    liars = np.random.default_rng(seed).choice(n, f, replace=False)
    honest = np.setdiff1d(np.arange(n), liars)
    details = values.copy()
    details[liars] = np.array(lies[:f])[:, None]
    with np.errstate(all="ignore"):
        mixed = Trimmed(f).mix(everybody(n), details)
    low, high = values[honest].min(axis=0), values[honest].max(axis=0)
    assert np.all(mixed >= low - 1e-9) and np.all(mixed <= high + 1e-9)
    assert np.array_equal(mixed, followed(Trimmed(f), everybody(n), details), equal_nan=True)


def test_a_trimmed_mean_moves_the_mean_where_values_are_skewed():
    values = np.array([[0.0], [0.0], [0.0], [0.0], [10.0]])
    assert Trimmed(1).mix(everybody(5), values).ravel().tolist() == [0.0] * 5  # and their mean is 2


def test_a_node_left_out_by_all_keeps_its_own():
    exchange = Trimmed(1).exchanges(everybody(5), 0)[0]
    mine = np.array([[3.0]])
    assert Trimmed(1).combine(0, exchange, mine, {1: mine + 1}).tolist() == [[3.0]]
    assert Clipped(1.0).combine(0, exchange, mine, {}).tolist() == [[3.0]]
    assert Gossip().combine(0, exchange, mine, {}).tolist() == [[3.0]]


# --- refusals, and the notation


def test_refusals():
    everyone, rule = ACTIVATIONS.read("everyone"), WEIGHTS.read("metropolis")
    rng = np.random.default_rng(0)
    with pytest.raises(NetworkError, match=r"graph 'ring' has no say in it; leave the graph out .*gossip\(5\)"):
        draw_schedule(GRAPHS.read("ring")(6), everyone, rule, 3, rng, Exact())
    with pytest.raises(NetworkError, match="'alone' nobody hears"):
        beta(GRAPHS.read("complete")(6), everyone, WEIGHTS.read("alone"), averaging=Exact())
    with pytest.raises(NetworkError, match=r"'trimmed\(1\)' drops 2 .* only 2 of them"):
        draw_schedule(GRAPHS.read("complete")(6), ACTIVATIONS.read("matching(3)"), rule, 3, rng, Trimmed(1))
    for wrong, words in (
        ("gossip(0)", "at least 1, not 0"),
        ("gossip(1.5)", "whole number"),
        ("clipped(0)", "finite length over 0"),
        ("clipped(-1)", "finite length over 0"),
        ("trimmed(0.5)", "whole number"),
        ("quantized(1)", "2 to 32 bits, not 1"),
        ("clipped", r"malformed; write clipped\(radius\)"),
        ("all", "there is no averaging 'all'; write one of gossip"),
    ):
        with pytest.raises(NetworkError, match=words):
            AVERAGINGS.read(wrong)


@pytest.mark.parametrize("text", ["gossip", "gossip(7)", "exact", "clipped(0.25)", "trimmed(2)", "quantized(6)"])
def test_what_is_written_is_read(text):
    assert str(AVERAGINGS.read(text)) == text
    spec = Spec(AlgorithmSpec(10)).replace(network__averaging=text)
    assert Spec.from_json(spec.to_json()) == spec
    assert ("averaging" in spec.to_dict()["network"]) == (text != "gossip")  # as version 0.1 wrote it
