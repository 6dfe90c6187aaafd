"""Sweeps: the same numbers as one run after another, wherever a run lands."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import sottovoce.run.solve as solving
from sottovoce import solve
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.sweep import sweep
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

BASE = Spec(AlgorithmSpec(rounds=60), seed=0).replace(network__activation="matching(2)", privacy__sampling="poisson(3)")
GRID = [
    BASE.replace(privacy__noise=noise, problem__h=h, seed=seed)
    for noise in ("none", "private(1.0)", "private(4.0)")
    for h in ("l2(0.1)", "l2(0.01)")
    for seed in (0, 1)
]


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_sweep_is_its_runs(engine, make_shards):
    shards, how = make_shards(), Execution(engine, 3)
    found = sweep(GRID, shards, execution=how, jobs=2)
    for spec, result in zip(GRID, found, strict=True):
        alone = solve(spec, shards, execution=how)
        assert result.spec == spec and result.statement == alone.statement
        assert np.array_equal(result.models, alone.models)
        assert result.history.rows == [pytest.approx(row, nan_ok=True) for row in alone.history.rows]


def test_runs_of_one_seed_share_their_noise(make_shards):
    """Twice the noise is twice the deviation from the quiet run, where the loss is linear: common random numbers."""
    shards = make_shards(real=True)
    shards.y[:] = 1e6  # far from the kink: every slope is the same
    linear = BASE.replace(problem__loss="absolute", problem__h="l2(0.1)", privacy__sampling="full")
    quiet, one, two = sweep(
        [linear.replace(privacy__noise=n) for n in ("none", "gaussian(0.5)", "gaussian(1.0)")], shards
    )
    assert np.allclose(two.models - quiet.models, 2 * (one.models - quiet.models), rtol=1e-9, atol=1e-12)


def test_optimal_values_reach_their_runs(make_shards):
    results = sweep(GRID[:3], make_shards(), f_star=[0.1, 0.2, 0.3])
    for result, best in zip(results, (0.1, 0.2, 0.3), strict=True):
        assert result.history.last["suboptimality"] == pytest.approx(result.history.last["objective"] - best)


def test_groups_side_by_side_share_the_cores_between_their_products(make_shards, monkeypatch):
    seen = []

    def take_snapshot(*arguments):
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return theirs(*arguments)

    theirs = solving.take_snapshot
    monkeypatch.setattr(solving, "take_snapshot", take_snapshot)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = threadpool_info()
    sweep(GRID[:2], make_shards(), jobs=2)
    assert seen and set(seen) == {1} and threadpool_info() == before


def test_what_a_sweep_refuses(make_shards):
    with pytest.raises(SpecError, match="each needs a seed"):
        sweep([BASE.replace(seed=None)], make_shards())
    with pytest.raises(SpecError, match="no engine 'warp'"):
        sweep([BASE], make_shards(), execution=Execution("warp"))
    with pytest.raises(SpecError, match="no Dask scheduler"):
        sweep([BASE], make_shards(), cluster="tcp://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_a_cluster_gives_the_same_numbers(make_shards):
    distributed = pytest.importorskip("distributed")
    shards, how = make_shards(), Execution("reference", 2)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        found = sweep(GRID, shards, execution=how, cluster=cluster.scheduler_address)
    for result, here in zip(found, sweep(GRID, shards, execution=how), strict=True):
        assert np.array_equal(result.models, here.models) and result.statement == here.statement
