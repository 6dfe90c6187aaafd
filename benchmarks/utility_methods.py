"""The methods of benchmarks/utility.py: (data, n, ε, seed) -> accuracy on held-out records, and what it took.

Each names the adversary that its guarantee is against: methods under different ones do not belong into one column.
Adding a method is a function and a row of METHODS.
"""

import json
import subprocess
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.facts import Facts as Public
from sottovoce.experiments.oneshot import ONESHOT, perturb
from sottovoce.notation import write
from sottovoce.planner import Facts, choose
from sottovoce.problem.shards import Shards
from sottovoce.run.build import rounds_for_epochs
from sottovoce.run.presets import paper_l2
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec
from utility_data import Data

DELTA = 1e-5
INTERCEPT = 0.5
PINNED = ("diffprivlib==0.6.6", "scikit-learn==1.7.2", "numpy==2.4.6", "scipy==1.17.1")
"""Versions that work together, for an environment of its own."""
CACHE = Path.home() / ".cache" / "sottovoce" / "diffprivlib"

Row = dict[str, Any]


class Method(NamedTuple):
    """How it is run, and against whom it protects."""

    run: Callable[[Data, int, float, int], Row]
    adversary: str
    says: str


def _run(spec: Spec, shards: Shards, data: Data, seed: int) -> Row:
    spec, test = spec.but(seed=seed), data.test()
    if spec.algorithm.method in ONESHOT:
        result = perturb(spec, shards, test=test)
    else:
        result = solve(spec, shards, test=test, execution=Execution("compiled", 1))
    last = result.history.last
    assert result.statement.private and result.statement.epsilon <= float(spec.privacy.noise[8:-1]) * (1 + 1e-9)
    return {
        "accuracy": float(last["test_accuracy"]),
        "rounds": spec.algorithm.rounds,
        "bytes": float(last["bytes"]),
        "seconds": result.environment["seconds"],
    }


def _facts(shards: Shards, data: Data, epsilon: float) -> Facts:
    return Facts(
        sizes=tuple(shards.sizes.tolist()),
        features=data.X.shape[1] + 1,
        loss="hinge" if data.classes == 2 else "softmax",
        epsilon=epsilon,
        delta=DELTA,
        outputs=data.outputs,
        intercept=INTERCEPT,
    )


def planned(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """Everything by the planner."""
    shards = data.shards(n, seed)
    return _run(choose(_facts(shards, data, epsilon)).spec, shards, data, seed)


def paper(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """Section 5.2 to the letter, but for the noise: three epochs of single records over one edge a round."""
    shards = data.shards(n, seed)
    spec = paper_l2(1).but(privacy__noise=write("private", epsilon), privacy__delta=DELTA)
    if data.classes > 2:
        spec = spec.but(problem__loss="softmax", problem__outputs=data.classes)
    return _run(spec.but(algorithm__rounds=rounds_for_epochs(spec, shards.sizes, 3.0)), shards, data, seed)


def alone(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """The first node, with its own records and nobody else's, by the planner."""
    mine = data.shards(n, seed)
    rows = mine.rows(0)
    shards = Shards.of(mine.X[rows], mine.y[rows], np.array([0, mine.sizes[0]]))
    return _run(choose(_facts(shards, data, epsilon)).spec, shards, data, seed)


def centre(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """All records in one trusted place, and the same algorithm there, by the planner."""
    shards = data.shards(1, seed)
    return _run(choose(_facts(shards, data, epsilon)).spec, shards, data, seed)


def baseline(name: str) -> Callable[[Data, int, float, int], Row]:
    """A row of the table of algorithms, untuned: logistic, h = l2(0.001), ten epochs, 64 records a node in a batch."""
    row = make_baseline(name)

    def run(data: Data, n: int, epsilon: float, seed: int) -> Row:
        if data.classes > 2:
            return {"accuracy": float("nan")}  # these have one output
        shards = data.shards(1 if row.central else n, seed)
        m = data.X.shape[1] + 1
        facts = Public(tuple(data.shards(n, seed).sizes.tolist()), m, epsilon, DELTA, intercept=INTERCEPT)
        return _run(row.spec(facts), shards, data, seed)

    return run


def no_privacy(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """scikit-learn's logistic regression on all records, without noise and almost without a penalty."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e3, max_iter=500, solver="lbfgs")
    return {"accuracy": float(model.fit(data.X, data.y).score(data.X_test, data.y_test))}


def diffprivlib(data: Data, n: int, epsilon: float, seed: int) -> Row:
    """IBM's library: logistic regression by objective perturbation on all records, δ = 0; dense records only."""
    if sparse.issparse(data.X) and data.X.shape[1] > 1000:
        return {"accuracy": float("nan")}
    python = CACHE / "bin" / "python"
    if not python.exists():
        venv.create(CACHE, with_pip=True)
        subprocess.run([CACHE / "bin" / "pip", "install", "--quiet", *PINNED], check=True)
    with tempfile.TemporaryDirectory() as folder:
        dense = [X.toarray() if sparse.issparse(X) else X for X in (data.X, data.X_test)]
        np.savez(Path(folder, "data.npz"), X=dense[0], y=data.y, X_test=dense[1], y_test=data.y_test)
        script = Path(__file__).with_name("utility_diffprivlib.py")
        words = [python, script, Path(folder, "data.npz"), str(epsilon), str(seed)]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: Row = json.loads(said.splitlines()[-1])
    return found


METHODS: dict[str, Method] = {
    "planned": Method(planned, "transcript", "sottovoce, defaults"),
    "paper": Method(paper, "transcript", "the paper's algorithm, honest noise"),
    "dsgd": Method(baseline("dsgd"), "transcript", "decentralised DP-SGD"),
    "alone": Method(alone, "transcript", "a node alone"),
    "centre": Method(centre, "trusted centre", "a trusted centre, same algorithm"),
    "dpsgd": Method(baseline("dpsgd"), "trusted centre", "DP-SGD"),
    "objective": Method(baseline("objective"), "trusted centre", "objective perturbation"),
    "output": Method(baseline("output"), "trusted centre", "output perturbation"),
    "diffprivlib": Method(diffprivlib, "trusted centre", "diffprivlib, trusted centre, δ = 0"),
    "none": Method(no_privacy, "none", "no privacy"),
}
POOLED = ("centre", "dpsgd", "objective", "output", "diffprivlib", "none")
"""Those for which the number of nodes makes no difference."""
