"""What someone who was sent out to break it found, each as it was: none of it may come back."""

import json

import numpy as np
import pytest
from scipy import sparse

from sottovoce import AlgorithmSpec, PrivateClassifier, Result, Shards, Spec, solve
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators.base import owners
from sottovoce.node.keys import own_keys
from sottovoce.run.build import prepare
from sottovoce.secure.generator import Purpose
from sottovoce.secure.grids import choose_grids, on_grid


def test_one_persons_rows_decide_nobody_elses_node():
    """Partitioned by first appearance, one more visit in row 0 moved everybody by a node: 40 of 40 guesses right."""
    others = [f"p{k:02}" for k in range(12)]
    nodes = []
    for ids in (["p99", *others, "p99"], [*others, "p99"], [*others[:5], "p99", *others[5:]], [*others[::-1], "p99"]):
        offsets, order, _ = owners(len(ids), None, 2, np.array(ids), seeded=True)
        rows = np.arange(len(ids)) if order is None else order
        mine = {ids[r]: int(np.searchsorted(offsets, place, side="right")) - 1 for place, r in enumerate(rows)}
        nodes.append({name: mine[name] for name in others})
    assert nodes[0] == nodes[1] == nodes[2] == nodes[3]
    assert {*nodes[0].values()} == {0, 1}


def test_people_are_partitioned_in_simulations_only():
    """By the rank of their ids, another id in one person's place moves all between the two to another node."""
    rng = np.random.default_rng(0)
    X, y, ids = rng.uniform(-0.5, 0.5, (400, 2)), np.arange(400) % 2, np.arange(400) // 2
    settings = {"row_norm": 1.0, "classes": [0, 1], "rounds": 5}
    with pytest.raises(SpecError, match="people cannot be partitioned over 2 simulated nodes"):
        PrivateClassifier(5.0, n_nodes=2, **settings).fit(X, y, user_ids=ids)
    PrivateClassifier(5.0, n_nodes=2, random_state=0, **settings).fit(X, y, user_ids=ids)
    PrivateClassifier(5.0, **settings).fit(X, y, user_ids=ids)
    PrivateClassifier(5.0, **settings).fit(X, y, nodes=ids % 2, user_ids=ids)


def test_people_in_the_order_of_their_rows_are_refused():
    """Without its first row a person moved everybody else to another batch: printed 0.5, true at least 10."""
    shards = Shards.of(np.eye(6), np.ones(6), np.array([0, 6]), user_ids=np.array([0, 0, 1, 2, 3, 4]))
    spec = Spec(AlgorithmSpec(5), seed=1).replace(privacy__sampling="cyclic(1)", privacy__noise="private(1)")
    with pytest.raises(PrivacyError, match="one person moves all others"):
        prepare(spec, shards)
    prepare(spec.replace(privacy__sampling="poisson(2)"), shards)


def test_a_schedule_that_nobody_can_draw_again_is_not_verified(make_shards, tmp_path):
    """With the schedule's seed taken out, every K_i could be written anew: 2.59 became a verified 1.95."""
    spec = Spec(AlgorithmSpec(40)).replace(privacy__noise="gaussian(0.5)")
    folder = solve(spec, make_shards(n=5)).save(tmp_path / "run")
    Result.load(folder).verify()
    saved = json.loads((folder / "result.json").read_text())
    assert saved["public"].pop("schedule_seed") is not None
    (folder / "result.json").write_text(json.dumps(saved))
    with pytest.raises(PrivacyError, match="lack schedule_seed"):
        Result.load(folder).verify()


def test_models_out_of_reach_of_exact_sums_are_refused():
    """At 1.7e308 margins overflowed, and adding one record moved a sum by three times its bound."""
    grids = choose_grids(10, clip=1.0, bound=1.0)
    for large in (1.7e308, 1e300, 2.0**801):
        with pytest.raises(PrivacyError, match="nothing can be computed exactly"):
            grids.model(np.array([0.0, -large]))
    assert np.all(np.isfinite(grids.model(np.array([1e200, 1.0]))))


def test_sparse_records_that_name_a_column_twice_are_refused():
    """However their flag stands: two entries of one column are one that is longer than either."""
    X = sparse.csr_array((np.full(4, 0.5), np.array([0, 1, 0, 2]), np.array([0, 2, 2, 4])), shape=(3, 3))
    grids = choose_grids(3, clip=1.0, bound=1.0)
    assert on_grid(X, grids).X.shape == (3, 3)
    assert X.has_canonical_format
    X.indices[1] = 0
    with pytest.raises(DataError, match="a column once a row"):
        on_grid(X, grids)
    X.indices[:2] = [2, 1]
    with pytest.raises(DataError, match="a column once a row"):
        on_grid(X, grids)


def test_other_records_get_other_noise_under_the_same_key_and_ledger():
    """Folders restored from before a run, one record changed: the difference of two messages was that record."""
    here = np.array([0])
    one, again, other = (own_keys(bytes(32), "aa", bytes(32), records)[Purpose.NOISE] for records in ("x", "x", "y"))
    words = [key.words(here, here, 0, 8) for key in (one, again, other)]
    assert np.array_equal(words[0], words[1]) and not np.any(words[0] == words[2])
