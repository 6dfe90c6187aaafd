"""Small runs to report on: made once, with names that try to break out of the page."""

import numpy as np
import pytest

from sottovoce import AlgorithmSpec, Execution, Shards, Spec, solve

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
NODES = ("north & south", EVIL, "=HYPERLINK(1)", "$$x^2$$", 'node\'s "five"')


@pytest.fixture(scope="session")
def shards():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return Shards.of(X, np.where(X @ np.arange(-2.0, 4.0) > 0, 1.0, -1.0), np.array([0, 20, 65, 110, 155, 200]))


@pytest.fixture(scope="session")
def base():
    return Spec(AlgorithmSpec(rounds=60, gamma="constant(1)"), seed=1).replace(
        problem__loss="logistic",
        problem__h="l2(0.01)",
        network__graph="ring",
        network__activation="matching(1)",
        privacy__sampling="poisson(8)",
        privacy__noise="private(2.0)",
    )


@pytest.fixture(scope="session")
def make(shards, base):
    """Run a variation of the base spec."""

    def run(**changes):
        names = {"features": ("age", EVIL, "$$y$$", "age", "bmi", "x" * 300), "nodes": NODES, "classes": ("no", "yes")}
        spec = base.replace(**changes)
        return solve(spec, shards, test=shards, f_star=0.2, execution=Execution(observations=10), **names)

    return run


@pytest.fixture(scope="session")
def one(make):
    return make()


@pytest.fixture(scope="session")
def several(make):
    """Two ε with two seeds each, the paper's noise, and no noise."""
    grid = [make(privacy__noise=f"private({e})", seed=s) for e in (0.5, 1.0) for s in (1, 2)]
    return [*grid, make(privacy__noise="theorem1(0.5)", privacy__sampling="one"), make(privacy__noise="none")]
