"""What privacy costs in accuracy, on real data: every method at the same (ε, δ), with error bars.

    python benchmarks/utility.py                                     # all of it, slowly; resumes where it stopped
    python benchmarks/utility.py --data a9a --epsilon 1 --seeds 10   # a part
    python benchmarks/utility.py --quick                             # two small sets, two seeds: does it work?
    python benchmarks/utility.py --engine gpu --seeds 100            # all seeds of a cell together, on a CUDA device
    python benchmarks/utility.py --unbalanced                        # one class of few records, and class_weight
    python benchmarks/utility.py --judge                             # paired differences, from the table
    python benchmarks/utility.py --redraw                            # docs/utility.md and its figure, from the table;
                                                                     # AUC, precision, balanced accuracy are printed

Needs the folder of real data sets in SOTTOVOCE_DATA. Rows go to benchmarks/utility.parquet as they are made; what is
there already is not made again. Accuracies are on held-out records and not private.
"""

import argparse
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from traceback import print_exception
from typing import NamedTuple

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.experiments.table import Row, Runs, save_rows
from sottovoce.figure import Curve, Figure, Interval, Panel, draw
from utility_methods import DATA, METHODS, POOLED, UNBALANCED, WEIGHTS, dealings, load, on_device

HERE = Path(__file__).parent
TABLE, PAGE, FIGURE = (
    HERE / "utility.parquet",
    HERE.parent / "docs/utility.md",
    HERE.parent / "docs/images/utility.png",
)
EPSILONS, SEEDS = (0.2, 0.5, 1.0, 2.0, 4.0), 10
USUAL = 100
"""Seeds of most cells, which the page says once for all."""
CELLS = {"a9a": (EPSILONS, (20, 100)), "mushrooms": (EPSILONS, (20, 100)), "epsilon-like": (EPSILONS, (20,))}
"""ε and nodes of a set, unless others are asked for; of large sets there are fewer."""
FEWER = (0.2, 1.0), (20,)
QUICK = {
    "data": ["mushrooms", "epsilon-like"], "epsilon": [1.0], "nodes": [20], "seeds": 2,
    "method": ["planned", "pairs", "majority", "centre", "noisier", "first"],
}  # fmt: skip
RARE = {
    "data": list(UNBALANCED), "epsilon": [1.0], "nodes": [20],
    "method": ["centre", "pairs", "noisier", "majority", *WEIGHTS],
}  # fmt: skip
PAIRS = (
    ("pairs", "centre"),
    ("majority", "noisier"),
    ("majority", "centre"),
    ("centre", "first"),
    ("pairs", "first"),
    ("pairs", "first nodes"),
    ("pairs", "first pairs"),
    ("planned", "first nodes"),
)
"""Methods whose difference is judged, seed by seed."""
BEGIN, END = "<!-- made by benchmarks/utility.py -->", "<!-- end -->"
BEGIN_RARE, END_RARE = "<!-- unbalanced, made by benchmarks/utility.py -->", "<!-- end of unbalanced -->"
AGAINST_FIRST = {
    "less 0.1 at a centre": ("pairs", "first", 20),
    "less 0.1 with pairs": ("pairs", "first pairs", 20),
    "less 0.1, nobody trusted": ("pairs", "first nodes", 20),
}
SAVED = 15.0  # seconds between writings of the table, which has many rows
SOME = 5  # runs of a cell that a processor makes in one go, beside a device
Cell = tuple[str, str, int, float]
"""Data, method, nodes, ε."""
KEY = ("data", "method", "nodes", "epsilon", "seed")
"""What makes a run what it is."""


def wanted(arguments: argparse.Namespace) -> list[Row]:
    """The runs that were asked for, cheap questions first."""
    asked = []
    for name in arguments.data:
        epsilons, nodes = CELLS.get(name, FEWER)
        for method in arguments.method:
            for n in arguments.nodes or nodes:
                for epsilon in arguments.epsilon or epsilons:
                    for seed in range(arguments.seeds):
                        free = (METHODS | WEIGHTS)[method].adversary == "none"
                        where = 1 if method in POOLED else n
                        row = {"data": name, "method": method, "nodes": where, "epsilon": 0.0 if free else epsilon}
                        asked.append(row | {"seed": 0 if free else seed})
    return list({tuple(row.values()): row for row in asked}.values())


def run(row: Row) -> list[Row]:
    """One run, and what it took."""
    began = time.perf_counter()
    found = (METHODS | WEIGHTS)[row["method"]].run(load(row["data"]), row["nodes"], row["epsilon"], row["seed"])
    return [row | {"rounds": 0, "bytes": 0.0, "seconds": time.perf_counter() - began} | found]


def measure(arguments: argparse.Namespace) -> None:
    """Make what is missing, several at a time, and keep each row at once."""
    if arguments.again:
        save_rows(
            [row for row in Runs(KEY, arguments.table).rows if row["method"] not in arguments.again], arguments.table
        )
    runs = Runs(KEY, arguments.table)
    missing = [row for row in wanted(arguments) if not runs.find(**row)]
    if arguments.engine == "gpu":
        together(missing, arguments, runs)
    else:
        runs.fill(missing, run, jobs=arguments.jobs, done=tell)


def together(missing: list[Row], arguments: argparse.Namespace, runs: Runs) -> None:
    """Make cells on the device, all of their seeds anew, and beside them what it cannot run, a few seeds at a time.

    What takes longest is the host's: so several processes share the device. They are copies of this one, which has
    read the sets and dealt them out; half of them do what is the processor's as long as there is any. Cells are begun
    in the order in which methods were asked for.
    """
    began = kept = time.perf_counter()
    by_cell: dict[Cell, list[Row]] = {}
    for row in sorted(missing, key=lambda row: arguments.method.index(row["method"])):
        by_cell.setdefault((row["data"], row["method"], row["nodes"], row["epsilon"]), []).append(row)
    for name, _, n, _ in by_cell:
        for nodes in (1, n):
            dealings(name, nodes, arguments.seeds)
    print(f"{len(by_cell)} cells; data read and dealt out in {time.perf_counter() - began:.0f} s", flush=True)
    there, here, found, failed = deque(by_cell), deque[list[Row]](), list[Row](), 0
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("fork")) as pool:
        busy: dict[Future[tuple[Cell, list[Row]]], bool] = {}  # and whether it is the processor's
        while busy or there or here:
            while len(busy) < arguments.jobs and (there or here):
                if here and (not there or sum(busy.values()) < arguments.jobs // 2):
                    busy[pool.submit(one_by_one, here.popleft())] = True
                else:
                    busy[pool.submit(made, there.popleft(), arguments.seeds)] = False
            for done in wait(busy, return_when=FIRST_COMPLETED).done:
                del busy[done]
                if done.exception() is not None:
                    print_exception(done.exception())
                    failed += 1
                    continue
                cell, rows = done.result()
                found += rows
                if not rows:
                    here += [by_cell[cell][first : first + SOME] for first in range(0, len(by_cell[cell]), SOME)]
            now = time.perf_counter()
            if now - began > arguments.within:
                there.clear()
                here.clear()
            if now - kept > SAVED or not (busy or there or here):
                runs.add(found)
                kept, found = now, []
    if failed:
        raise SystemExit(f"{failed} works failed, and are not in the table")
    print(f"all of it in {time.perf_counter() - began:.0f} s", flush=True)


def made(cell: Cell, seeds: int) -> tuple[Cell, list[Row]]:
    """The rows of a cell, from the device; none where it cannot run them."""
    began = time.perf_counter()
    try:
        rows = on_device(*cell, seeds)
    except SpecError as refused:
        print(*cell, f"not on the device: {refused}", flush=True)
        return cell, []
    accuracy = np.mean([row["accuracy"] for row in rows])
    print(*cell, f"{accuracy:.4f} {len(rows)} runs {time.perf_counter() - began:.2f} s", flush=True)
    return cell, rows


def one_by_one(asked: list[Row]) -> tuple[Cell, list[Row]]:
    """Some runs of a cell, from the processor."""
    rows = [row for one in asked for row in run(one)]
    for count, row in enumerate(rows, 1):
        tell(count, len(rows), row)
    return (rows[0]["data"], rows[0]["method"], rows[0]["nodes"], rows[0]["epsilon"]), rows


def tell(count: int, of: int, row: Row) -> None:
    """A line for each run."""
    print(
        f"{count}/{of}", *(row[name] for name in KEY), f"{row['accuracy']:.4f}", f"{row['seconds']:.1f} s", flush=True
    )


class Gain(NamedTuple):
    """What one method has over another in a cell, in points of accuracy and of AUC, paired by seed."""

    accuracy: Interval
    auc: Interval

    def __str__(self) -> str:
        """+0.24 ± 0.17 / +0.25 ± 0.19 (10)."""
        each = (f"{i.mean:+.2f} ± {i.half:.2f}" if i.seeds > 1 else f"{i.mean:+.2f}" for i in self)
        return (" / ".join(each) + counted(self.accuracy)).replace("-", "−")


def gains(found: list[Row], one: str, other: str) -> dict[tuple[str, int, float], Gain]:
    """By data, nodes and ε, where both methods have seeds in common."""
    known: dict[tuple[str, str, int, float], dict[int, Row]] = {}
    for row in found:
        if row["method"] in (one, other) and row["data"] in DATA:
            known.setdefault((row["data"], row["method"], row["nodes"], row["epsilon"]), {})[row["seed"]] = row
    made = {}
    for (name, method, n, epsilon), mine in sorted(known.items()):
        its = known.get((name, other, 1 if other in POOLED else n, epsilon), {})
        both = sorted(mine.keys() & its.keys())
        if method == one and both:
            each = [[100 * (mine[s].get(k, np.nan) - its[s].get(k, np.nan)) for s in both] for k in ("accuracy", "auc")]
            made[name, n, epsilon] = Gain(*map(Interval.of, each))
    return made


def judge(found: list[Row]) -> str:
    """Differences between methods, with the interval of their mean."""
    lines = ["| data | nodes | ε | difference | accuracy / AUC |", "|---|---|---|---|---|"]
    for one, other in PAIRS:
        made = gains(found, one, other)
        lines += [f"| {name} | {n} | {e:g} | {one} − {other} | {gain} |" for (name, n, e), gain in made.items()]
        for epsilon in sorted({e for *_, e in made}):
            mine = [gain for (*_, e), gain in made.items() if e == epsilon]
            lines.append(f"| mean of {len(mine)} | | {epsilon:g} | {one} − {other} | {mean(mine)} |")
    return "\n".join(lines)


def mean(some: list[Gain]) -> str:
    """Over data sets."""
    each = (np.nanmean([gain[k].mean for gain in some]) for k in (0, 1))
    return " / ".join(f"{value:+.2f}" for value in each).replace("-", "−")


def worth(found: list[Row], pairs: dict[str, tuple[str, str, int]]) -> str:
    """A table of gains at ε = 0.2 and 1: heading -> (method, other, nodes)."""
    made = {(e, head): gains(found, one, other) for e in FEWER[0] for head, (one, other, _) in pairs.items()}
    lines = ["", "| | " + " | ".join(f"ε = {e:g}{head and ': ' + head}" for e, head in made) + " |"]
    lines += ["|---|" + "---|" * len(made)]
    columns = [{n: g for (n, k, e_), g in v.items() if (k, e_) == (pairs[h][2], e)} for (e, h), v in made.items()]
    for name in sorted(DATA):
        if any(name in column for column in columns):
            lines.append(f"| {name} | " + " | ".join(str(column.get(name, "–")) for column in columns) + " |")
    lines.append("| mean | " + " | ".join(mean(list(column.values())) if column else "–" for column in columns) + " |")
    return "\n".join(lines)


def groups(found: list[Row], figure: str = "accuracy") -> dict[tuple[str, str, int, float], list[float]]:
    """A figure of all seeds, by (data, method, nodes, ε)."""
    made: dict[tuple[str, str, int, float], list[float]] = {}
    for row in found:
        value = row.get(figure)
        if value is not None and value == value:
            made.setdefault((row["data"], row["method"], row["nodes"], row["epsilon"]), []).append(value)
    return made


def cell(values: list[float] | None) -> str:
    """0.842 ± 0.001 (10): mean, interval, seeds; a narrow interval has a digit more."""
    if not values:
        return "–"
    found = Interval.of(values)
    if found.seeds == 1:
        return f"{found.mean:.3f}"
    digits = 3 if found.half >= 0.001 else 4
    return f"{found.mean:.{digits}f} ± {found.half:.{digits}f}{counted(found)}"


def counted(found: Interval) -> str:
    """How many seeds, where it is not the usual number."""
    return "" if found.seeds == USUAL else f" ({found.seeds})"


def table(found: list[Row], figure: str = "accuracy") -> str:
    """A Markdown table for each data set and number of nodes: methods down, ε across."""
    made, lines = groups(found, figure), []
    for name in DATA:
        for n in sorted({nodes for data, method, nodes, _ in made if data == name and method == "planned"}):
            epsilons = sorted({e for data, method, nodes, e in made if (data, method, nodes) == (name, "planned", n)})
            lines += ["", f"**{name}**, {n} nodes", ""]
            lines += ["| method | against | " + " | ".join(f"ε = {e:g}" for e in epsilons) + " |"]
            lines += ["|---|---|" + "---|" * len(epsilons)]
            for method, (_, adversary, says, _) in METHODS.items():
                where = 1 if method in POOLED else n
                cells = [cell(made.get((name, method, where, 0.0 if method == "none" else e))) for e in epsilons]
                if set(cells) != {"–"}:
                    lines.append(f"| {says} | {adversary} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


LIFTS = (
    ("plain", "weighed"),
    ("plain", "rated"),
    ("silent", "silent, weighed"),
    *((name, f"free, weighed, {name.removeprefix('free, ')}") for name in WEIGHTS if name.startswith("free, C")),
)
"""What is not weighed, and the same with weights or another threshold."""


def unbalanced(found: list[Row]) -> str:
    """Two tables of the sets with a rare class: AUC by whom one trusts, and what weighing classes does."""
    areas, balanced = groups(found, "auc"), groups(found, "balanced_accuracy")
    methods = ("centre", "pairs", "noisier", "majority", "free, C = 1000")

    def place(name: str, method: str) -> tuple[str, str, int, float]:
        return (name, method, 1 if method in POOLED else 20, 0.0 if method.startswith("free") else 1.0)

    def by_seed(name: str, method: str) -> dict[int, float]:
        mine = [r for r in found if (r["data"], r["method"], r["nodes"], r["epsilon"]) == place(name, method)]
        return {int(r["seed"]): float(r["balanced_accuracy"]) for r in mine}

    lines = ["", "| AUC, ε = 1 | " + " | ".join((METHODS | WEIGHTS)[m].says for m in methods) + " |"]
    lines += ["|---|" + "---|" * len(methods)]
    for name in UNBALANCED:
        lines.append(f"| {name} | " + " | ".join(cell(areas.get(place(name, m))) for m in methods) + " |")
    lines += ["", "| balanced accuracy, and what class_weight lifts it by | " + " | ".join(UNBALANCED) + " |"]
    lines += ["|---|" + "---|" * len(UNBALANCED)]
    for number, (one, other) in enumerate(LIFTS):
        told = number > 0 and LIFTS[number - 1][0] == one
        for method in (other,) if told else (one, other):
            cells = [cell(balanced.get(place(name, method))) for name in UNBALANCED]
            lines.append(f"| {WEIGHTS[method].says} | " + " | ".join(cells) + " |")
        lifts = [(by_seed(name, one), by_seed(name, other)) for name in UNBALANCED]
        gains = [
            cell([after[seed] - before[seed] for seed in sorted(before.keys() & after)]) for before, after in lifts
        ]
        lines.append("| *lift* | " + " | ".join(gains) + " |")
    return "\n".join(lines)


def marks(what: str) -> tuple[str, str]:
    """Between which today's defaults are compared to those of version 0.1."""
    return f"<!-- gains, {what}, made by benchmarks/utility.py -->", f"<!-- end of gains, {what} -->"


def rewrite(begin: str, end: str, text: str) -> None:
    """Put a text between two marks of the page."""
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}")


def redraw() -> None:
    """The page's tables, between its two marks, and the figure."""
    found = Runs(KEY, TABLE).rows
    rewrite(BEGIN, END, table(found))
    rewrite(BEGIN_RARE, END_RARE, unbalanced(found))
    rewrite(*marks("one node"), worth(found, {"": ("centre", "first", 1)}))
    rewrite(*marks("20 nodes"), worth(found, AGAINST_FIRST))
    for figure_ in ("auc", "average_precision", "balanced_accuracy"):
        if groups(found, figure_):
            print(figure_.replace("_", " "), table(found, figure_), sep="\n")
    draw(figure(groups(found)), FIGURE)


def figure(made: dict[tuple[str, str, int, float], list[float]]) -> Figure:
    """Accuracy against ε, a panel for each data set, 95 % intervals."""
    names = [name for name in DATA if any(data == name for data, *_ in made)]
    panels = [Panel(name, name, "test accuracy", curves(made, name), whiskers=True) for name in names]
    return Figure(
        "utility",
        "",
        tuple(tuple(panels[start : start + 3]) for start in range(0, len(panels), 3)),
        {"epsilon": "ε (δ = 1e-5)"},
        log_x=True,
        ticks=EPSILONS,
        size=(4.0, 3.2),
    )


def curves(made: dict[tuple[str, str, int, float], list[float]], name: str) -> tuple[Curve, ...]:
    """A data set's curves, each method in the colour that it has in every panel."""
    drawn = []
    for place, (method, (_, adversary, says, _)) in enumerate(METHODS.items()):
        where = 1 if method in POOLED else 20
        mine = {e: values for (d, m, k, e), values in made.items() if (d, m, k) == (name, method, where)}
        if method == "none" and mine:
            level = np.full(len(EPSILONS), np.mean(mine[0.0]))
            drawn.append(Curve(says, {"epsilon": np.array(EPSILONS)}, level, style=("black", "dotted")))
        elif mine:
            dash, mark = ("solid", "o") if adversary == "transcript" else ("dashed", "s")
            found = [Interval.of(mine[e]) for e in sorted(mine)]
            drawn.append(Curve.of(says, {"epsilon": np.array(sorted(mine))}, found, (f"C{place}", dash), mark))
    return tuple(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=[*DATA, *UNBALANCED])
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=[*METHODS, *WEIGHTS])
    parser.add_argument("--epsilon", nargs="+", type=float, help="some for all sets")
    parser.add_argument("--nodes", nargs="+", type=int, help="some for all sets")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--engine", default="auto", choices=["auto", "gpu"], help="gpu: all seeds of a cell together")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--within", type=float, default=np.inf, help="seconds, after which no cell is begun (gpu)")
    parser.add_argument("--again", nargs="+", default=[], choices=list(METHODS), help="forget what these had before")
    parser.add_argument("--redraw", action="store_true", help="only write the page and the figure")
    parser.add_argument("--judge", action="store_true", help="only print paired differences")
    parser.add_argument("--unbalanced", action="store_true", help="sets with a rare class, at ε = 1")
    parser.add_argument("--quick", action="store_true", help="a small part, into a table of its own")
    parser.add_argument("--table", type=Path, default=TABLE, help="where rows are kept")
    arguments = parser.parse_args()
    if arguments.quick:
        parser.set_defaults(**QUICK, table=TABLE.with_name("quick.parquet"))
        arguments = parser.parse_args()
    if arguments.unbalanced:
        parser.set_defaults(**RARE)
        arguments = parser.parse_args()
    if not arguments.redraw and not arguments.judge:
        measure(arguments)
    if arguments.table == TABLE and not arguments.judge:
        redraw()
    else:
        print(judge(Runs(KEY, arguments.table).rows))


if __name__ == "__main__":
    main()
