"""What privacy costs in accuracy, on real data: every method at the same (ε, δ), with error bars.

    python benchmarks/utility.py                                     # all of it, slowly; resumes where it stopped
    python benchmarks/utility.py --data a9a --epsilon 1 --seeds 10   # a part
    python benchmarks/utility.py --redraw                            # docs/utility.md and its figure, from the table

Needs the folder of real data sets in SOTTOVOCE_DATA. Rows go to benchmarks/utility.parquet as they are made; what is
there already is not made again. Accuracies are on held-out records and not private.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import Parallel, delayed
from scipy import stats

from utility_data import DATA, load
from utility_methods import METHODS, POOLED

HERE = Path(__file__).parent
TABLE, PAGE, FIGURE = (
    HERE / "utility.parquet",
    HERE.parent / "docs/utility.md",
    HERE.parent / "docs/images/utility.png",
)
EPSILONS, SEEDS, NODES = (0.2, 0.5, 1.0, 2.0, 4.0), 10, (20,)
BEGIN, END = "<!-- made by benchmarks/utility.py -->", "<!-- end -->"
SCHEMA = pa.schema(
    [
        ("data", pa.string()), ("method", pa.string()), ("nodes", pa.int64()), ("epsilon", pa.float64()),
        ("seed", pa.int64()), ("accuracy", pa.float64()), ("rounds", pa.int64()), ("bytes", pa.float64()),
        ("seconds", pa.float64()),
    ]
)  # fmt: skip

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    """What has been measured so far."""
    return pq.read_table(path).to_pylist() if path.exists() else []


def keep(found: list[Row], path: Path) -> None:
    """Write the table anew, whole."""
    beside = path.with_suffix(".part")
    pq.write_table(pa.Table.from_pylist(found, schema=SCHEMA), beside)
    beside.replace(path)


def key(row: Row) -> tuple[Any, ...]:
    """What makes a run what it is."""
    return tuple(row[name] for name in ("data", "method", "nodes", "epsilon", "seed"))


def wanted(arguments: argparse.Namespace) -> list[Row]:
    """The runs that were asked for, cheap questions first."""
    asked = []
    for name in arguments.data:
        for method in arguments.method:
            for n in arguments.nodes:
                for epsilon in arguments.epsilon:
                    for seed in range(arguments.seeds):
                        free = method == "none"
                        where = 1 if method in POOLED else n
                        row = {"data": name, "method": method, "nodes": where, "epsilon": 0.0 if free else epsilon}
                        asked.append(row | {"seed": 0 if free else seed})
    return list({key(row): row for row in asked}.values())


def run(row: Row) -> Row:
    """One run, and what it took."""
    began = time.perf_counter()
    found = METHODS[row["method"]].run(load(row["data"]), row["nodes"], row["epsilon"], row["seed"])
    return row | {"rounds": 0, "bytes": 0.0, "seconds": time.perf_counter() - began} | found


def measure(arguments: argparse.Namespace) -> None:
    """Make what is missing, several at a time, and keep each row at once."""
    made = rows(TABLE)
    there = {key(row) for row in made}
    todo = [row for row in wanted(arguments) if key(row) not in there]
    results = Parallel(arguments.jobs, return_as="generator_unordered")(delayed(run)(row) for row in todo)
    for number, row in enumerate(results, 1):
        made.append(row)
        keep(made, TABLE)
        print(f"{number}/{len(todo)}", *key(row), f"{row['accuracy']:.4f}", f"{row['seconds']:.1f} s", flush=True)


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t over the seeds."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    return mean, float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def groups(found: list[Row]) -> dict[tuple[str, str, int, float], list[float]]:
    """Accuracies of all seeds, by (data, method, nodes, ε)."""
    made: dict[tuple[str, str, int, float], list[float]] = {}
    for row in found:
        if row["accuracy"] == row["accuracy"]:
            made.setdefault((row["data"], row["method"], row["nodes"], row["epsilon"]), []).append(row["accuracy"])
    return made


def cell(values: list[float] | None) -> str:
    """0.842 ± 0.001 (10): mean, interval, seeds."""
    if not values:
        return "–"
    mean, half = interval(values)
    return f"{mean:.3f}" if len(values) == 1 else f"{mean:.3f} ± {half:.3f} ({len(values)})"


def table(found: list[Row]) -> str:
    """A Markdown table for each data set and number of nodes: methods down, ε across."""
    made, lines = groups(found), []
    for name in DATA:
        for n in sorted({nodes for data, method, nodes, _ in made if data == name and method == "planned"}):
            epsilons = sorted({e for data, method, nodes, e in made if (data, method, nodes) == (name, "planned", n)})
            lines += ["", f"**{name}**, {n} nodes", ""]
            lines += ["| method | against | " + " | ".join(f"ε = {e:g}" for e in epsilons) + " |"]
            lines += ["|---|---|" + "---|" * len(epsilons)]
            for method, (_, adversary, says) in METHODS.items():
                where = 1 if method in POOLED else n
                cells = [cell(made.get((name, method, where, 0.0 if method == "none" else e))) for e in epsilons]
                if set(cells) != {"–"}:
                    lines.append(f"| {says} | {adversary} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def redraw() -> None:
    """The page's tables, between its two marks, and the figure."""
    found = rows(TABLE)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n\n{END}{rest.partition(END)[2]}")
    draw(groups(found))


def draw(made: dict[tuple[str, str, int, float], list[float]]) -> None:
    """Accuracy against ε, a panel for each data set, 95 % intervals."""
    from matplotlib.figure import Figure

    names = [name for name in DATA if any(data == name for data, *_ in made)]
    colours = {method: f"C{place}" for place, method in enumerate(METHODS)}  # the same in every panel
    figure = Figure(figsize=(4 * min(3, len(names)), 3.2 * -(-len(names) // 3)), layout="constrained")
    for place, name in enumerate(names):
        axis = figure.add_subplot(-(-len(names) // 3), min(3, len(names)), place + 1)
        for method, (_, _, says) in METHODS.items():
            where = 1 if method in POOLED else 20
            mine = {e: values for (d, m, k, e), values in made.items() if (d, m, k) == (name, method, where)}
            if not mine:
                continue
            if method == "none":
                axis.axhline(np.mean(mine[0.0]), color="black", linestyle=":", label=says)
                continue
            points = [(e, *interval(mine[e])) for e in sorted(mine)]
            x, mean, half = zip(*points, strict=True)
            style = "-o" if METHODS[method].adversary == "transcript" else "--s"
            look = {"fmt": style, "color": colours[method], "markersize": 3, "capsize": 2}
            axis.errorbar(x, mean, np.nan_to_num(half), label=says, **look)
        axis.set(title=name, xscale="log", xlabel="ε (δ = 1e-5)", ylabel="test accuracy")
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    handles = {}
    for axis in figure.axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(FIGURE, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--nodes", nargs="+", type=int, default=list(NODES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--redraw", action="store_true", help="only write the page and the figure")
    arguments = parser.parse_args()
    if not arguments.redraw:
        measure(arguments)
    redraw()


if __name__ == "__main__":
    main()
