"""Private tuning against the defaults, at the same total (ε, δ): where it pays, and where it does not.

    python benchmarks/tuning.py                       # all of it: an hour
    python benchmarks/tuning.py --data mushrooms --epsilon 1 --seeds 3

Needs the folder of real data sets in SOTTOVOCE_DATA. One owner. Accuracies are on test records and not private; the
last column is what the best plan of the grid would reach at the whole budget, known in hindsight only.

`mushrooms, bound 20` are the same records with a public bound on rows that is twenty times too large: there the default
is poor, and a smaller bound is among the plans.
"""

import argparse
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from sottovoce import PrivateClassifier, PrivateSearchCV
from sottovoce.experiments.data import Dataset
from sottovoce.figure import Interval
from utility_methods import load

PLANS = {"loss": ["hinge", "logistic"], "rounds": [100, 1000]}
CASES = {
    "a9a": ("a9a", {"row_norm": 1.0}, PLANS),
    "mushrooms": ("mushrooms", {"row_norm": 1.0}, PLANS),
    "mushrooms, bound 20": ("mushrooms", {"row_norm": 20.0}, {"row_norm": [0.2, 1.0, 5.0, 20.0]}),
}


def accuracy(model: PrivateClassifier | PrivateSearchCV, data: Dataset) -> float:
    """On the test records."""
    return float(model.fit(data.records.X, data.y).score(data.held_out.X, data.test.y))


def main() -> None:
    """A row for each set and ε."""
    warnings.simplefilter("ignore")  # the search says itself that it may not pay
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.2, 1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=float, default=5.0)
    given = parser.parse_args()
    print("| data | ε | default | tuned | ε of a run | default, ε of a run, 80 % | best plan, hindsight |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in given.data:
        source, fixed, grid = CASES[name]
        data = load(source)
        for epsilon in given.epsilon:
            default, tuned, less, best = [], [], [], []
            for seed in range(given.seeds):
                model = PrivateClassifier(epsilon, classes=(-1, 1), random_state=seed, **fixed)
                default.append(accuracy(model, data))
                search = PrivateSearchCV(model, grid, epsilon=epsilon, runs=given.runs, random_state=seed)
                tuned.append(accuracy(search, data))
                keep = np.random.default_rng(seed).random(len(data.y)) < 0.8
                cheap = clone(model).set_params(epsilon=search.run_epsilon_).fit(data.records.X[keep], data.y[keep])
                less.append(float(cheap.score(data.held_out.X, data.test.y)))
                if seed == 0:
                    plans = [clone(model).set_params(**plan) for plan in ParameterGrid(grid)]
                    best.append(max(accuracy(plan, data) for plan in plans))
            cells = [str(Interval.of(values)) for values in (default, tuned)]
            last = f"{np.mean(less):.4f} | {best[0]:.4f} |"
            print(f"| {name} | {epsilon:g} | {cells[0]} | {cells[1]} | {search.run_epsilon_:.3g} | {last}", flush=True)


if __name__ == "__main__":
    main()
