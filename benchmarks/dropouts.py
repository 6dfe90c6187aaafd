"""What lost nodes cost: the noise of the model of a simulated run that loses nodes, over that of an undisturbed run.

    python benchmarks/dropouts.py [--runs 100]

20 nodes of 10 records, 50 features, noise that pairs share against a minority of 9. All records are zero, so that the
model is noise alone. Nodes are lost in random rounds. Rows are written to benchmarks/results/dropouts.csv: the ratio of
root mean squares over all runs and coordinates with its 95 % interval, the most rounds that were made anew, and ε as
printed before the run and after it.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from sottovoce import AlgorithmSpec, Shards, Spec, solve
from sottovoce.planner import PublicInputs, choose
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.spec import Execution

COLUMNS = "rounds,law,may_lose,lost,runs,noise,low,high,made_anew,accounted,epsilon_before,epsilon_after"
NODES, RECORDS, WIDTH = 20, 10, 50
QUIET = Execution(observations=None)
WITH_RATIO = Spec(AlgorithmSpec(300, gamma="constant(1)", a="constant(1)")).replace(
    problem__h="none", privacy__law="pairs(10)", privacy__adversary="secret_pairs(9)", privacy__noise="private(1)",
    privacy__sampling="full", network__activation="everyone", network__averaging="exact",
)  # fmt: skip


def planned(rounds: int, may_lose: int) -> Spec:
    """As the planner has it, without a threshold, under which noise would vanish."""
    inputs = PublicInputs((RECORDS,) * NODES, WIDTH, 1.0, 1e-5, adversary="secret_pairs(9)", may_lose=may_lose)
    spec = choose(inputs, rounds=rounds).spec
    return spec.replace(problem__h="l2(1e-3)", algorithm__gamma="constant(1)", algorithm__counted="all")


def squares(spec: Spec, shards: Shards, runs: int, first: int) -> tuple[np.ndarray, int, set[float]]:
    """(mean square of each run's model, most rounds that were made anew, what was printed afterwards)."""
    found, anew, stated = [], 0, set()
    for seed in range(first, first + runs):
        result = solve(spec.replace(seed=seed), shards, execution=QUIET)
        found.append(np.mean(result.models[0] ** 2))
        anew = max(anew, len({t for _, t in result.public.get("lost", [])}))
        stated.add(result.statement.epsilon)
    return np.array(found), anew, stated


def main() -> None:
    """All rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    count = NODES * RECORDS
    y = np.where(np.arange(count) % 2, 1.0, -1.0)
    shards = Shards.of(np.zeros((count, WIDTH)), y, np.arange(0, count + 1, RECORDS))
    rows = []
    for rounds, lost in ((300, 2), (500, 2), (300, 6), (500, 6)):
        for law in ("pairs(10)", "planned"):
            ready = WITH_RATIO.replace(algorithm__rounds=rounds) if law == "pairs(10)" else planned(rounds, lost)
            ready = ready.replace(privacy__may_lose=lost)
            calm, _, _ = squares(ready.replace(privacy__may_lose=0), shards, runs, 0)
            spec = ready.replace(network__dropouts=f"random({lost})")
            loud, anew, after = squares(spec, shards, runs, runs)
            plan = plan_public(Request(ready.replace(seed=1), np.full(NODES, RECORDS), WIDTH))
            ratio = np.sqrt(loud.mean() / calm.mean())
            spread = 1.96 * ratio / 2 * np.sqrt(sum(v.var() / v.mean() ** 2 / runs for v in (loud, calm)))
            epsilon = plan.statement(simulated=True, secure=False).epsilon
            shown = (f"{value:.4f}" for value in (ratio, ratio - spread, ratio + spread))
            accounted = plan.event(0).rounds
            rows.append((rounds, law, lost, lost, runs, *shown, anew, accounted, epsilon, *sorted(after)))
            print(dict(zip(COLUMNS.split(","), rows[-1], strict=True)), flush=True)
    with (Path(__file__).parent / "results" / "dropouts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS.split(","))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
