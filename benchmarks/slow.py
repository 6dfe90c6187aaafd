"""One slow site: rounds a second of the others, and what its records are worth.

    python benchmarks/slow.py

Four real nodes with ledgers in one process, noise that pairs share, the exact mean. A release takes every node 20 ms,
and the slow one 200 ms. Then accuracy, in simulations of 20 nodes and 10 seeds, on records of which one part is at the
slow node alone. Rows are written to benchmarks/results/slow.csv.
"""

import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from net import Net, models, open_node, play, records, run_of

from sottovoce import AlgorithmSpec, Shards, Spec, solve
from sottovoce.run.spec import Execution

SITES = {"north": 12, "east": 12, "south": 12, "west": 12}
TAKES, SLOWER, ROUNDS = 0.02, 10, 120
WAYS = {
    "without it": "everyone",
    "wait for it": "everyone",
    "cadence 10": "cadence(2, 10)",
    "cadence 5": "cadence(2, 5)",
}


def rounds_per_second(way: str) -> float:
    """Of a node that is not slow."""
    sites = {name: q for name, q in SITES.items() if way != "without it" or name != "south"}
    run = run_of(
        ROUNDS, nodes=sites, timeout=120.0, network__activation=WAYS[way], network__averaging="exact",
        privacy__sampling="full", privacy__law="pairs(10)", privacy__adversary="secret_pairs(1)",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as root:
        tables = records(run)
        nodes = {name: open_node(run, name, tables, Path(root) / name) for name in run.nodes}
        ends: dict[str, float] = {}
        for name, node in nodes.items():
            takes = TAKES * (SLOWER if name == "south" else 1)
            plain, finish = node.release_message, node.finish

            def release(t, message, plain=plain, takes=takes):
                time.sleep(takes)
                return plain(t, message)

            def finished(finish=finish, name=name):
                ends[name] = time.monotonic()
                finish()

            node.release_message, node.finish = release, finished
        began = time.monotonic()
        models(play(Net(), nodes))
        return ROUNDS / (ends["north"] - began)


def accuracy(way: str, seeds: int = 10) -> float:
    """Of the mean model on all kinds of records; every tenth is of a kind that the slow node alone has."""
    rng = np.random.default_rng(0)
    n, q, m = 20, 200, 6

    def drawn(count, kind):
        X = rng.normal(size=(count, m))
        X[:, : m // 2] *= kind == "common"
        X[:, m // 2 :] *= kind == "rare"
        y = np.sign(X @ np.array([1.0, -1.0, 0.5, 2.0, -1.0, 1.0]))
        return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), y

    parts = [drawn(q, "rare" if i == 2 else "common") for i in range(n) if way != "without it" or i != 2]
    tests = [drawn(2000, kind) for kind in ("common", "rare")]
    shards = Shards.of(np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts]),
                       np.arange(0, q * len(parts) + 1, q))  # fmt: skip
    spec = Spec(AlgorithmSpec(300, gamma="constant(1)")).replace(
        problem__h="l2(1e-3)", problem__loss="logistic", privacy__law="pairs(10)", privacy__adversary="secret_pairs(9)",
        privacy__noise="private(2)", privacy__sampling="full", network__activation=WAYS[way],
        network__averaging="exact",
    )  # fmt: skip
    right = []
    for seed in range(seeds):
        x = solve(spec.replace(seed=seed), shards, execution=Execution(observations=None)).models.mean(axis=0)
        right.append(np.mean([np.mean(np.sign(X @ x) == y) for X, y in tests]))
    return float(np.mean(right))


def main() -> None:
    """All rows."""
    with (Path(__file__).parent / "results" / "slow.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("way", "rounds_per_second", "accuracy"))
        for way in WAYS:
            row = way, round(rounds_per_second(way), 2), round(accuracy(way), 4)
            writer.writerow(row)
            print(*row, flush=True)


if __name__ == "__main__":
    main()
