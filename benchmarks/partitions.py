"""Every method on a9a, credit and odd digits, by three partitions, as it is and tuned by one protocol.

python benchmarks/partitions.py run RUNS.parquet DATA PARTITION     # one cell; what RUNS holds is not run again
python benchmarks/partitions.py write RUNS.parquet COMMIT           # benchmarks/results/partitions.csv, partitions.md

COMMIT is that of the code that made the runs. A test of `tests/experiments/test_published.py` runs three lines of the
table again and holds them to their intervals.
"""

import csv
import itertools
import sys
from pathlib import Path

from sottovoce import __version__
from sottovoce.experiments.baselines import BASELINES
from sottovoce.experiments.compare.ranking import Line, summarize
from sottovoce.experiments.compare.study import Point, Study, compare
from sottovoce.experiments.data import PARTITIONS, load
from sottovoce.experiments.table import Row, load_rows
from sottovoce.problem.losses import LOSSES

SETS = {"a9a": (10.0, 5), "credit": (10.0, 3), "mnist-odd": (5.0, 3)}
"""Passes over the data, and seeds."""
REST = (
    "liu2022", "muffliato", "huang", "huang_gaussian", "xiao_admm", "xiao_dgd", "scaffold_warm", "decor", "alone",
)  # fmt: skip
"""Methods that hardly move in so few passes, or are another one's variant or limit."""
SLOW = {"credit": REST, "mnist-odd": (*REST, "algorithm1", "output", "objective")}
"""Methods that are left out of a set to save time; a9a has all of them."""
GRID = tuple(Point(step, h) for step in (1 / 3, 1.0, 3.0, 9.0) for h in (1.0, 0.01))
WAYS = ("even", "dirichlet(0.3)", "by_label")
OURS = ("sottovoce", "pairs", "majority", "central_da")
LEGEND = (
    "Test accuracy; the first against each adversary in bold; =: not distinguished from the one ranked before it by "
    "paired differences; –: not run."
)
TARGET = Path(__file__).parent / "results" / "partitions.csv"


def study(data: str, way: str, only: tuple[str, ...] = ()) -> Study:
    """One cell: ε = 1, δ = 1e-5, twenty nodes on the complete graph, logistic loss, h = l2(0.001), batches of 64."""
    records = load(data, loss=LOSSES.make("logistic"))
    names = only or tuple(name for name in BASELINES if name not in SLOW.get(data, ()))
    epochs, seeds = SETS[data]
    what = {"seeds": seeds, "tuned": True, "partition": PARTITIONS.read(way), "grid": GRID}
    return Study.of(records, names, {"epochs": epochs}, **what)


def rows_of(lines: list[Line], runs: list[Row]) -> list[Row]:
    """Flat lines, with the settings that a tuned method was given."""
    settings = {(r["data"], r["partition"], r["algorithm"], r["tuned"]): r for r in runs}
    found = []
    for line in lines:
        mine = settings[line.data, line.partition, line.algorithm, line.tuned]
        row: Row = {name: getattr(line, name) for name in ("data", "partition", "adversary", "tuned", "rank", "tied")}
        row |= {"algorithm": line.algorithm, "step": mine["factor"], "h": mine["shrink"], "seeds": line.objective.seeds}
        for name in ("behind", "suboptimality", "test_accuracy", "test_auc"):
            of = getattr(line, name)
            row |= {name: f"{of.mean:.6g}", f"{name} ±": f"{of.half:.2g}"}
        found.append(row | {"epochs": mine["epochs"], "search_epsilon": f"{line.search_epsilon:.3g}"})
    return found


def table(lines: list[Line]) -> list[str]:
    """Tuned lines, a column for each cell: test accuracy, and behind whom of the same adversary; the first in bold."""
    cells = [(data, way) for data in SETS for way in WAYS]
    known = {(x.adversary, x.algorithm, x.data, x.partition): x for x in lines if x.tuned}
    text = [
        f"| against | method | {' | '.join(f'{data}, {way}' for data, way in cells)} |",
        f"|{'---|' * (2 + len(cells))}",
    ]
    for adversary in dict.fromkeys(x.adversary for x in lines):
        names = {name for who, name, *_ in known if who == adversary}
        for name in sorted(names, key=lambda name: (name not in OURS, name)):
            found = [known.get((adversary, name, *cell)) for cell in cells]
            text.append(f"| {adversary} | `{name}` | {' | '.join(map(_cell, found))} |")
    return text


def _cell(line: Line | None) -> str:
    if line is None:
        return "–"
    shown = f"{line.test_accuracy.mean:.4f} ± {line.test_accuracy.half:.4f}"
    return f"**{shown}**" if line.rank == 1 else f"={shown}" if line.tied else shown


def firsts(lines: list[Line]) -> list[str]:
    """Who is first in each cell, and by how much, paired by seeds; all who are not distinguished from the first."""
    text = ["| data | partition | against | tuned | first | before | by (paired) |", f"|{'---|' * 7}"]
    groups = itertools.groupby(lines, key=lambda x: (x.data, x.partition, x.adversary, x.tuned))
    for (data, way, adversary, tuned), group in groups:
        one, *others = group
        head = f"| {data} | {way} | {adversary} | {'accuracy' if tuned else 'rule, F'} | `{one.algorithm}` |"
        if not others:
            text.append(f"{head} – | |")
            continue
        by = others[0].behind
        said = f"{100 * by.mean:.2f} ± {100 * by.half:.2f} points" if tuned else f"{by.mean:.2g} ± {by.half:.1g}"
        text.append(f"{head} `{others[0].algorithm}` | {said}{', not distinguished' if others[0].tied else ''} |")
    return text


def write(runs_path: Path, commit: str) -> None:
    """Both tables, with what made them above."""
    runs = load_rows(runs_path)
    lines = summarize(runs)
    rows = rows_of(lines, runs)
    tuned = next(r["protocol"] for r in runs if r["tuned"])
    made = (
        f"sottovoce {__version__}, commit {commit}; not private: a simulation's view",
        "python benchmarks/partitions.py run RUNS.parquet DATA PARTITION, for each; then write RUNS.parquet COMMIT",
        str(study.__doc__),
        f"± are 95 % intervals over seeds (Student's t; {', '.join(f'{d}: {n}' for d, (_, n) in SETS.items())}).",
        f"Tuned: {tuned}.",
    )
    with TARGET.open("w", newline="") as file:
        file.writelines(f"# {line}\n" for line in made)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    page = ["# Every method by three partitions", "", *(f"{line}  " for line in made), "", "## Who is first", ""]
    page += ["By paired differences, seed by seed, to the one that follows.", "", *firsts(lines), ""]
    page += ["## Tuned by one protocol", "", LEGEND, "", *table(lines), ""]
    TARGET.with_suffix(".md").write_text("\n".join(page))


if __name__ == "__main__":
    what, out, *rest = sys.argv[1:]
    if what == "run":
        compare(study(*rest), Path(out), done=lambda k, n, row: print(k, n, row["algorithm"], row["tuned"], flush=True))
    else:
        write(Path(out), *rest)
