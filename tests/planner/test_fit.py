"""The runs on which the planner's formula is fitted are those that the formula speaks of."""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sottovoce import Shards
from sottovoce.planner import predict
from sottovoce.run.spec import Execution

FILE = Path(__file__).parents[2] / "benchmarks" / "fit_planner.py"
HERE = importlib.util.spec_from_file_location("fit_planner", FILE)
fit_planner = importlib.util.module_from_spec(HERE)
HERE.loader.exec_module(fit_planner)


def plainly(X, y, reach, noise, T, seeds, smooth):
    """The fit's runs once more, as a loop over matrices, in units of the bounds; a column a seed."""
    row, rng = float(np.hypot(1, fit_planner.INTERCEPT)), np.random.default_rng(5)
    X = np.concatenate([X, np.full((len(X), 1), fit_planner.INTERCEPT)], axis=1)
    z, total, signs = np.zeros((X.shape[1], seeds)), np.zeros((X.shape[1], seeds)), y[:, None]
    for t in range(T):
        x = -z * reach / T / row
        total += x if t >= T - round(T / 2) else 0.0
        margin = signs * (X @ x)
        pull = np.minimum(2 / (1 + np.exp(margin)), 1) if smooth else margin < 1
        z += noise * T**0.5 * rng.standard_normal(z.shape) - X.T @ (signs * pull) / (len(y) * row)
    return total / round(T / 2)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_runs_of_the_fit_are_in_units_of_the_bounds(smooth, noise, monkeypatch):
    """Without noise the same models as by a plain loop; with it the same distance from those, on average."""
    monkeypatch.setattr(fit_planner, "CPU", Execution("reference", None))  # nothing to compile
    rng = np.random.default_rng(0)
    X = fit_planner.unit_rows(rng.normal(size=(400, 6)))
    y = np.where(X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=400) > 0, 1.0, -1.0)
    shards, T, reach = Shards.of(X, y, np.array([0, 400])), 40, 60.0
    run = partial(fit_planner.models, shards, np.array([reach]), T=T, seeds=30, smooth_loss=smooth)
    found, still = (np.asarray(run(noise=np.array([c]))) for c in (noise, 0.0))
    assert np.allclose(still, plainly(X, y, reach, 0.0, T, 1, smooth), rtol=1e-4, atol=1e-4 * np.abs(still).max())
    apart = [np.sqrt(np.mean((v - still) ** 2)) for v in (found, plainly(X, y, reach, noise, T, 30, smooth))]
    assert apart[0] == pytest.approx(apart[1], rel=0.2, abs=1e-4)  # 210 numbers each: 7 %
    assert not noise or not apart[0] == pytest.approx(1.6 * apart[1], rel=0.2)


def test_the_formula_is_the_one_that_is_fitted():
    constants = np.log([predict.FITTED[name] for name in fit_planner.NAMES])
    tau, c = np.array([3.0, 300.0, 9000.0]), 1e-3
    assert np.allclose(fit_planner.formula(constants, tau, c, 120, 500), predict.loss(tau, c, 120, 500), rtol=1e-12)
    assert fit_planner.written(np.exp(constants)) in fit_planner.FORMULA.read_text()
