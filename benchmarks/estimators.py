"""PrivateClassifier at its defaults on a9a: accuracy, and time as a multiple of LinearSVC's on the same data."""

import time
from collections.abc import Callable

import numpy as np
from sklearn.svm import LinearSVC

from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real

SEEDS = 5


def seconds(fit: Callable[[], object]) -> float:
    """Processor time of the fastest of three calls, after one that compiles and warms up."""
    fit()
    taken = []
    for _ in range(3):
        began = time.process_time()
        fit()
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    train, test = load_real("a9a"), load_real("a9a.t")
    svm = LinearSVC()
    base = seconds(lambda: svm.fit(train.X, train.y))
    print(f"LinearSVC: {svm.score(test.X, test.y):.4f}, {base:.2f} s")
    print("| ε | one owner | five | twenty |\n|---|---|---|---|")
    for epsilon in (0.1, 0.3, 1.0, 3.0, None):
        cells = []
        for n in (1, 5, 20):
            settings = {"row_norm": 4.0, "classes": (-1, 1), "n_nodes": n}
            fits = [PrivateClassifier(epsilon, random_state=s, **settings).fit(train.X, train.y) for s in range(SEEDS)]
            accuracies = [fit.score(test.X, test.y) for fit in fits]
            cells.append(f"{np.mean(accuracies):.3f} ± {np.std(accuracies):.3f}")
        print(f"| {'none' if epsilon is None else epsilon} | {' | '.join(cells)} |", flush=True)
    for n in (1, 5, 20):
        private = PrivateClassifier(1.0, row_norm=4.0, classes=(-1, 1), n_nodes=n)
        print(f"{n} owners: {seconds(lambda model=private: model.fit(train.X, train.y)) / base:.1f} × LinearSVC")


if __name__ == "__main__":
    main()
