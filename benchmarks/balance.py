"""Whole weights against half of them and a threshold by a release, on synthetic problems with a rare class.

    python benchmarks/balance.py 3            # seeds; some minutes each, a line a problem and then the means
    python benchmarks/balance.py 3 rows.txt   # rows are kept, and what is there is not made again

The problems are those that the planner was fitted on (benchmarks/fit_planner.py), with 1, 3 and 7 % positives in 8,000
records, at ε = 0.3, 1 and 3 with one owner, wherever the planner's gates would be: where they are follows from this.
"""

import sys
from pathlib import Path

import numpy as np

import fit_planner
from sottovoce import PrivateClassifier
from sottovoce.evaluation.curves import figures
from sottovoce.planner import predict
from sottovoce.privacy.one_shot import Balance

fit_planner.TRAIN, fit_planner.TEST = 8000, 12_000
PLANNER = sys.modules["sottovoce.planner.choose"]
GATES = PLANNER.DROWNED, PLANNER.MAX_COUNT_NOISE
KINDS = (
    ("dense", 20), ("dense", 100), ("dense", 1000), ("correlated", 100), ("correlated", 500), ("categorical", 60),
    ("categorical", 300), ("text", 2000), ("picture", 100), ("picture", 784),
)  # fmt: skip
SHARES, EPSILONS, DELTA = (0.01, 0.03, 0.07), (0.3, 1.0, 3.0), 1e-5
FEWEST = 20
"""Records of the rare class, in training and in test."""


class Whole(PrivateClassifier):
    """Weights do all of it."""

    def _balance(self):
        return None


def problem(kind, m, share, seed):
    """Rows and labels to train on and to test on."""
    known = kind in ("text", "picture")  # of which classes are drawn first, and some labels turned round then
    shards, tests, truth = fit_planner.problem(kind, m, ((0.3 if known else 0.6) * share, share), seed + 17 * m)
    X, y = shards.X, np.asarray(shards.y)
    if kind == "picture":  # a tenth are of one kind: most of these are left out
        kept = (y < 0) | (np.random.default_rng(seed).random(len(y)) < 9 * share / (1 - share))
        X, y = X[kept], y[kept]
    return X, y, np.asarray(tests)[:, :-1], np.asarray(truth) > 0


def measured(rows, seeds):
    """A row a problem and ε: noise by which the gates go, and AUC and balanced accuracy of both ways."""
    done = {tuple(row[:5]) for row in rows}
    for seed in range(seeds):
        for kind, m in KINDS:
            for share in SHARES:
                wanted = [(kind, str(m), str(share), str(seed), str(epsilon)) for epsilon in EPSILONS]
                if done.issuperset(wanted):
                    continue
                X, y, tests, truth = problem(kind, m, share, seed)
                if min(np.sum(y > 0), truth.sum()) < FEWEST:
                    continue
                prior = float(f"{np.mean(y > 0):.2g}")
                for epsilon, key in zip(EPSILONS, wanted, strict=True):
                    noise = 2 * predict.single(epsilon, DELTA) / len(y)
                    counted = noise / (2 * Balance(PLANNER.BALANCE, prior).factor) / prior
                    found = []
                    for way in (Whole, PrivateClassifier):
                        model = way(
                            epsilon, DELTA, row_norm=1.0, classes=(-1.0, 1.0), class_weight="balanced",
                            prior={-1.0: 1 - prior, 1.0: prior}, random_state=seed,
                        ).fit(X, y)  # fmt: skip
                        assert bool(model.spec_.privacy.balance.total) == (way is PrivateClassifier)
                        judged = figures(model.decision_function(tests), truth)
                        found += [judged["auc"], judged["balanced_accuracy"]]
                    yield [*key, f"{noise / (2 * prior):.5f}", f"{counted:.4f}", *(f"{value:.4f}" for value in found)]


def details(name, gains):
    """A line of means, with their standard errors, and the worst, where there are any."""
    if len(gains) < 2:
        return
    means, errors = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    auc, balanced = (f"{mean:+.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True))
    worst, better = gains[:, 1].min(), 100 * np.mean(gains[:, 1] > 0)
    print(f"{name:28s} {len(gains):4d}  AUC {auc}  balanced {balanced}, {worst:+.1f} at worst, {better:.0f} % better")


def main():
    seeds, path = int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    rows = [line.split() for line in path.read_text().splitlines()] if path is not None and path.exists() else []
    PLANNER.DROWNED, PLANNER.MAX_COUNT_NOISE = 0.0, np.inf
    for row in measured(list(rows), seeds):
        rows.append(row)
        print(*row, flush=True)
        if path is not None:
            path.write_text("\n".join(" ".join(row) for row in rows) + "\n")
    numbers = np.array([row[5:] for row in rows], dtype=float)
    noise, counted = numbers[:, :2].T
    gains = 100 * (numbers[:, 4:] - numbers[:, 2:4])
    within = (noise >= GATES[0]) & (counted <= GATES[1])
    details("where the planner does it", gains[within])
    for kind in dict.fromkeys(kind for kind, _ in KINDS):
        details(f"  {kind}", gains[within & np.array([row[0] == kind for row in rows])])
    for low, high in ((0, 0.002), (0.002, 0.003), (0.003, 0.005), (0.005, 0.01), (0.01, 0.03), (0.03, 1)):
        details(f"noise {low:g} to {high:g}", gains[(noise >= low) & (noise < high) & (counted <= GATES[1])])
    details("counts that show less", gains[counted > GATES[1]])


if __name__ == "__main__":
    main()
