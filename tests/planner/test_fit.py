"""The simulator on which the planner's formula is fitted runs the algorithm that the package runs."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from sottovoce import Shards, solve
from sottovoce.planner import predict
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec

FILE = Path(__file__).parents[2] / "benchmarks" / "fit_planner.py"
HERE = importlib.util.spec_from_file_location("fit_planner", FILE)
fit_planner = importlib.util.module_from_spec(HERE)
HERE.loader.exec_module(fit_planner)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_simulator_is_the_package(loss, noise):
    """Without noise the same model; with it the same distance from that, on average."""
    rng = np.random.default_rng(0)
    X = fit_planner.unit_rows(rng.normal(size=(400, 6)))
    y = np.where(X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=400) > 0, 1.0, -1.0)
    T, reach, row = 40, 60.0, float(np.hypot(1, fit_planner.INTERCEPT))
    slope = row if loss == "hinge" else row / 2  # the clip, by which gradients are within 1
    with_column = np.concatenate([X, np.full((400, 1), fit_planner.INTERCEPT)], axis=1).astype(np.float32)
    mine = [
        fit_planner.models(
            with_column, y.astype(np.float32), np.array([reach]), np.array([c]), T, 30, loss != "hinge", s
        )
        for s, c in ((1, 0.0), (1, noise))
    ]
    mine = [np.asarray(found).T / (T / 2) for found in mine]
    tau = reach / (slope * row)
    spec = Spec(
        AlgorithmSpec(T, a="constant(1)", gamma=f"constant({T / tau})", counted="tail(0.5)"),
        ProblemSpec(loss, h="none", intercept=fit_planner.INTERCEPT),
        NetworkSpec(activation="everyone"),
        PrivacySpec("full", clip=slope),
    )
    shards = Shards.of(X, y, np.array([0, 400]))
    runs = [
        solve(
            spec.but(seed=s, privacy__noise=f"gaussian({noise * slope * T**0.5})"),
            shards,
            execution=Execution("reference", 1),
        )
        for s in range(30 if noise else 1)
    ]
    theirs = np.stack([run.model for run in runs])
    still = solve(spec.but(seed=0), shards, execution=Execution("reference", 1)).model
    assert np.allclose(mine[0], still, rtol=1e-4, atol=1e-4 * np.abs(still).max())
    apart = [np.sqrt(np.mean((found - still) ** 2)) for found in (mine[1], theirs)]
    assert apart[0] == pytest.approx(apart[1], rel=0.2, abs=1e-4)  # 210 numbers each: 7 %
    assert not noise or not apart[0] == pytest.approx(1.6 * apart[1], rel=0.2)


def test_the_formula_is_the_one_that_is_fitted():
    constants = np.log([predict.FITTED[name] for name in fit_planner.NAMES])
    tau, c = np.array([3.0, 300.0, 9000.0]), 1e-3
    assert np.allclose(fit_planner.formula(constants, tau, c, 120, 500), predict.loss(tau, c, 120, 500), rtol=1e-12)
    assert fit_planner.written(np.exp(constants)) in fit_planner.FORMULA.read_text()
