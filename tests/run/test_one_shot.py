"""The protocol of one-shot releases: what is said of a query holds of its sums, and any query can be released."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import NetworkError, PrivacyError, SpecError
from sottovoce.features import Additive
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import single
from sottovoce.privacy.distribution import Distribution
from sottovoce.privacy.inference import Inference
from sottovoce.privacy.one_shot import SCORE_EDGES, Balance, Moments, Quantiles
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.shards import Shards
from sottovoce.run.distribution import ColumnCounts
from sottovoce.run.inference import StageSums, stages_at
from sottovoce.run.one_shot import OneShotRelease, Query, one_shot_release, sums_grid
from sottovoce.run.private_scaling import RowMoments
from sottovoce.run.private_threshold import ClassCells, ScoreCells
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.run.target_range import TargetCounts
from sottovoce.secure.generator import generators
from sottovoce.streams import Streams

EDGES = 0.4 * np.array(SCORE_EDGES)
SPEC = Spec(AlgorithmSpec(5), seed=1).replace(privacy__noise="private(2)", privacy__moments="moments(0.05, 0.2)")


def queries(shards):
    """One of each kind."""
    scores = np.clip(shards.X[:, 0], -1, 1)
    return [
        RowMoments(Moments(0.05, 0.1, 0.2), int(shards.X.shape[1]), 1.0),
        RowMoments(Moments(0.05), int(shards.X.shape[1]), 1.0),
        TargetCounts(Quantiles(0.1)),
        ScoreCells(Balance(0.1, 0.2), scores),
        ClassCells(Balance(0.1, 0.2), scores, EDGES),
        ColumnCounts(Distribution(0.05, 1, 0.1, 1), Additive(2, ((0, -1.0, 1.0),), 1.0, distribution=True), 1.0),
        ColumnCounts(Distribution(0.1, 2), Additive(2, ((0, -1.0, 1.0), (1, -2.0, 2.0))), 1.0),
        *stages("logistic"),
        *stages("squared"),
    ]


def stages(loss):
    """All sums for intervals, at a model under which slopes are steep."""
    choice = Inference(0.9, 1.5, 1.4)
    return [StageSums(stage, choice) for stage in stages_at(LOSSES.read(loss), np.array([0.3, 20.0, -0.5]), choice)]


KINDS = range(len(queries(Shards.of(np.eye(2), np.ones(2), np.array([0, 2])))))
RECORD = st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.floats(-1, 1))


def shards_of(*nodes, people=False):
    """Nodes of records (x, x', y); with people a node is one person."""
    rows = np.array([row for node in nodes for row in node], dtype=np.float64)
    offsets = np.concatenate([[0], np.cumsum([len(node) for node in nodes])])
    ids = np.repeat(np.arange(len(nodes)), [len(node) for node in nodes]) if people else None
    return Shards.of(rows[:, :2], rows[:, 2], offsets, user_ids=ids)


@pytest.mark.parametrize("kind", KINDS)
@given(two=st.tuples(*[st.lists(RECORD, min_size=1, max_size=4)] * 2))
def test_no_two_units_are_further_apart_than_the_diameter(kind, two):
    """Records or, of several rows, people; in floating point and, to the last bit, in exact sums."""
    people = shards_of(*two, people=True)
    query, grid = queries(people)[kind], sums_grid(1)
    assert people.sizes.tolist() == [1, 1]
    one, other = query.means(people)
    assert np.linalg.norm(one - other) <= query.diameter * (1 + 1e-12)
    whole = query.exact_sums(people, grid)
    assert math.dist(*(whole * grid)) <= query.diameter
    one, other = (np.concatenate([*query.units(people, node)]) for node in (0, 1))
    assert np.linalg.norm(one - other) <= query.diameter * (1 + 1e-12)


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_means_are_those_of_the_units(kind, people, make_shards):
    shards = make_shards(n=3, q=30, m=2, people=people)
    query, grid = queries(shards)[kind], sums_grid(30)
    units = [np.concatenate([*query.units(shards, node)]) for node in range(3)]
    assert all(len(some) == 30 and some.shape[1] == query.width for some in units)
    means = np.stack([some.mean(axis=0) for some in units])
    assert np.allclose(query.means(shards), means, atol=1e-12)
    assert np.allclose(query.exact_sums(shards, grid) * grid / 30, means, atol=1e-12)


class Share(Query[float]):
    """What a stranger would write: the share of records whose first column is over 0."""

    width, diameter = 1, 0.5

    def units(self, shards, node):
        yield 0.5 * (np.asarray(shards.X)[shards.rows(node), :1] > 0)

    def finish(self, noisy):
        return float(noisy.mean[0]) / 0.5


def release_of(spec, sizes):
    return one_shot_release(spec, sizes, 2, spec.network.graph(len(sizes)))


@pytest.mark.parametrize("secret", [False, True])
def test_a_query_of_ones_own_is_released_with_the_noise_that_is_accounted(secret, make_shards):
    shards = make_shards(n=2, q=400, m=2)
    mine = OneShotRelease(Share(), release_of(SPEC, shards.sizes), shards.sizes)
    true = float(np.mean(shards.X[:, 0] > 0))
    keys = [generators(bytes([k]) * 32, b"", bytes(32)) for k in range(60)]
    found = [mine.finish(mine.released(shards, Streams(k), keys[k] if secret else None)) for k in range(60)]
    deviation = 2 * single(2.0, 1e-5) / 400 / math.sqrt(2)
    # a mean of 60, and a standard deviation that 60 draws know to 9 %: both five times as far off at the most
    assert abs(np.mean(found) - true) < 5 * deviation / math.sqrt(60)
    assert 0.54 < np.std(found) / deviation < 1.46
    (event, same) = mine.events()
    assert event == same and compute_epsilon([event], 1e-5).epsilon < 2.0
    assert event.noise_multiplier == pytest.approx(single(2.0, 1e-5) / math.sqrt(0.25), rel=1e-9)


def test_a_node_can_make_its_own_part_alone(make_shards):
    """From its own records and keys: what all nodes release together is made of these parts, bit for bit."""
    shards, keys = make_shards(n=3, q=50, m=2), generators(bytes(32), b"", bytes(32))
    query = RowMoments(Moments(0.05, 0.2), 2, 1.0, 0.5)
    whole = OneShotRelease(query, release_of(SPEC, shards.sizes), shards.sizes)
    together = whole.released(shards, Streams(None), keys)
    for node in range(3):
        own = shards.node(node)
        draws = SecureDraws(whole.release, whole.sums(own), keys, shards.sizes, query.width, only=node)
        assert np.array_equal(whole.secured(draws, np.array([node])), together[node : node + 1])


def test_all_of_them_take_their_shares_of_one_budget():
    both = SPEC.replace(privacy__balance="balance(0.1, 0.2)", problem__intercept=0.5)
    assert [str(requested) for requested in both.privacy.one_shot] == ["moments(0.05, 0.2)", "balance(0.1, 0.2, 0.5)"]
    assert both.privacy.pre_release == both.privacy.moments and both.privacy.post_release == both.privacy.balance
    assert both.privacy.shares == pytest.approx(0.35)
    assert release_of(both, np.array([40, 40])).clip == pytest.approx(math.sqrt(0.35) / 2)
    none = SPEC.replace(privacy__moments="none")
    assert none.privacy.one_shot == () and none.privacy.pre_release is none.privacy.post_release is None
    with pytest.raises(SpecError, match="no one-shot release"):
        release_of(none, np.array([40]))
    with pytest.raises(PrivacyError, match="has no budget: write noise"):
        release_of(SPEC.replace(privacy__noise="gaussian(1)"), np.array([40]))
    with pytest.raises(NetworkError, match="links between any two nodes"):
        release_of(SPEC.replace(network__graph="ring"), np.array([40] * 4))
