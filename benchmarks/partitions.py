"""Every method on a9a, credit and odd digits, by three partitions, as it is and tuned by one protocol.

python benchmarks/partitions.py run RUNS.parquet DATA PARTITION     # one cell; what RUNS holds is not run again
python benchmarks/partitions.py write RUNS.parquet ...              # benchmarks/results/partitions.csv

A test of `tests/experiments/test_published.py` runs three lines of the table again and holds them to their intervals.
"""

import csv
import sys
from pathlib import Path

from sottovoce import __version__
from sottovoce.experiments.baselines import BASELINES
from sottovoce.experiments.compare.ranking import Line, summarize
from sottovoce.experiments.compare.study import Point, Study, compare
from sottovoce.experiments.data import PARTITIONS, load
from sottovoce.experiments.table import Row, load_rows
from sottovoce.problem.losses import LOSSES

SETS = {"a9a": (10.0, 3), "credit": (10.0, 3), "mnist-odd": (5.0, 3)}
"""Passes over the data, and seeds."""
LEFT_OUT = (
    "liu2022", "muffliato", "huang", "huang_gaussian", "xiao_admm", "xiao_dgd", "scaffold_warm", "decor", "alone",
)  # fmt: skip
"""Methods that hardly move in so few passes, or are another one's variant or limit."""
FEW = (
    "objective", "output", "dual_averaging", "adpsgd", "scaffold", "dpftrl", "majority", "decor_majority", "dda",
)  # fmt: skip
SLOW = {"a9a": FEW, "mnist-odd": (*FEW, "algorithm1")}
"""Methods that are left out of a set to save time; each is run on the others."""
GRID = tuple(Point(step, h) for step in (1 / 3, 1.0, 3.0, 9.0) for h in (1.0, 0.01))
WAYS = ("even", "dirichlet(0.3)", "by_label")
TARGET = Path(__file__).parent / "results" / "partitions.csv"


def study(data: str, way: str, only: tuple[str, ...] = ()) -> Study:
    """One cell: ε = 1, δ = 1e-5, twenty nodes on the complete graph, logistic loss, h = l2(0.001), batches of 64."""
    epochs, seeds = SETS[data]
    records = load(data, loss=LOSSES.make("logistic"))
    names = only or tuple(name for name in BASELINES if name not in (*LEFT_OUT, *SLOW.get(data, ())))
    what = {"seeds": seeds, "tuned": True, "partition": PARTITIONS.read(way), "grid": GRID}
    return Study.of(records, names, {"epochs": epochs}, **what)


def rows_of(lines: list[Line], runs: list[Row]) -> list[Row]:
    """Flat lines, with the settings that a tuned method was given."""
    found = []
    for line in lines:
        mine = next(
            r for r in runs if (r["data"], r["partition"], r["algorithm"], r["tuned"])
            == (line.data, line.partition, line.algorithm, line.tuned)
        )  # fmt: skip
        row: Row = {name: getattr(line, name) for name in ("data", "partition", "adversary", "tuned", "rank", "tied")}
        row |= {"algorithm": line.algorithm, "step": mine["factor"], "h": mine["shrink"], "seeds": line.objective.seeds}
        for name in ("suboptimality", "test_accuracy", "test_auc"):
            of = getattr(line, name)
            row |= {name: f"{of.mean:.6g}", f"{name} ±": f"{of.half:.2g}"}
        found.append(row | {"epochs": mine["epochs"], "search_epsilon": f"{line.search_epsilon:.3g}"})
    return found


def write(paths: list[Path]) -> None:
    """The table, with what made it above it."""
    runs = [row for path in paths for row in load_rows(path)]
    rows = rows_of(summarize(runs), runs)
    tuned = next(r["protocol"] for r in runs if r["tuned"])
    with TARGET.open("w", newline="") as file:
        file.write(f"# sottovoce {__version__}; not private: a simulation's view\n")
        file.write(
            "# python benchmarks/partitions.py run RUNS.parquet DATA PARTITION, for each; then write RUNS.parquet\n"
        )
        file.write(f"# {study.__doc__}\n# ± are 95 % intervals over seeds (Student's t). Tuned: {tuned}.\n")
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "run":
        out, *cell = rest
        compare(study(*cell), Path(out), done=lambda k, n, row: print(k, n, row["algorithm"], row["tuned"], flush=True))
    else:
        write([Path(name) for name in rest])
