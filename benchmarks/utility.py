"""What privacy costs in accuracy, on real data: every method at the same (ε, δ), with error bars.

    python benchmarks/utility.py                                     # all of it, slowly; resumes where it stopped
    python benchmarks/utility.py --data a9a --epsilon 1 --seeds 10   # a part
    python benchmarks/utility.py --quick                             # two small sets, two seeds: does it work?
    python benchmarks/utility.py --engine gpu --seeds 100            # all of it in minutes, by a CUDA device and all
                                                                     # processors beside it
    python benchmarks/utility.py --unbalanced                        # one class of few records, and class_weight
    python benchmarks/utility.py --judge                             # paired differences, from the table
    python benchmarks/utility.py --redraw                            # the page and its figure, from the table;
                                                                     # AUC, precision, balanced accuracy are printed

Needs the folder of real data sets in SOTTOVOCE_DATA. Rows go to benchmarks/utility.parquet as they are made; what is
there already is not made again. Accuracies are on held-out records and not private.
"""

import argparse
import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from traceback import print_exception
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from sottovoce.engine.job import ENGINES, Job, engine_named
from sottovoce.errors import SpecError
from sottovoce.experiments.table import Row, Runs, save_rows
from sottovoce.figure import Curve, Figure, Interval, Panel, draw
from utility_methods import (
    DATA,
    METHODS,
    ONE_SHOT,
    POOLED,
    UNBALANCED,
    WEIGHTS,
    exists,
    for_device,
    load,
    minimized,
    on_device,
    partitions,
)

HERE = Path(__file__).parent
TABLE, PAGE, FIGURE = (
    HERE / "utility.parquet",
    HERE / "results/utility.md",
    HERE.parent / "docs/images/utility.png",
)
EPSILONS, SEEDS = (0.2, 0.5, 1.0, 2.0, 4.0), 10
USUAL = 100
"""Seeds of most cells, which the page says once for all."""
CELLS = {"a9a": (EPSILONS, (20, 100)), "mushrooms": (EPSILONS, (20, 100)), "epsilon-like": (EPSILONS, (20,))}
"""ε and nodes of a set, unless others are requested; of large sets there are fewer."""
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
    "less 0.1 at a center": ("pairs", "first", 20),
    "less 0.1 with pairs": ("pairs", "first pairs", 20),
    "less 0.1, nobody trusted": ("pairs", "first nodes", 20),
}
SAVED = 15.0  # seconds between writings of the table, which has many rows
SOME = 15.0  # seconds that a processor's work beside a device is to take, if runs take as long as those that are kept
SOME_EPSILONS = 5  # runs of such a work, where it is unknown how long they take
SHARED = 25  # runs of a method that minimizes in one such work: they minimize the same
DEVICE = 6  # processes that share a device: one has it, the others prepare cells and judge them
ELSEWHERE = "diffprivlib"
"""What is not made beside a device."""
Cell = tuple[str, str, int, float]
"""Data, method, nodes, ε."""
KEY = ("data", "method", "nodes", "epsilon", "seed")
"""What makes a run what it is."""


def wanted(arguments: argparse.Namespace) -> list[Row]:
    """The runs that were requested, cheap questions first."""
    rows = []
    for name in arguments.data:
        epsilons, nodes = CELLS.get(name, FEWER)
        for method in arguments.method:
            for n in arguments.nodes or nodes:
                for epsilon in arguments.epsilon or epsilons:
                    for seed in range(arguments.seeds):
                        free = (METHODS | WEIGHTS)[method].adversary == "none"
                        where = 1 if method in POOLED else n
                        row = {"data": name, "method": method, "nodes": where, "epsilon": 0.0 if free else epsilon}
                        rows.append(row | {"seed": 0 if free else seed})
    return list({tuple(row.values()): row for row in rows}.values())


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
        run_batches(missing, arguments, runs)
    else:
        runs.fill(missing, run, jobs=arguments.jobs, done=report_progress)


class Work(NamedTuple):
    """Some runs of a cell: all seeds together on the device, or a few on a processor."""

    cell: Cell
    seeds: list[int]
    device: bool
    expected: float
    """Seconds, by what such runs took last time; 0 where it is unknown."""

    def make(self) -> list[Row]:
        """The rows."""
        name, method, _, epsilon = self.cell
        if self.device:
            return on_device(*self.cell, len(self.seeds))
        if method in ONE_SHOT:
            return minimized(name, method, epsilon, self.seeds)
        return [row for seed in self.seeds for row in run(dict(zip(KEY, (*self.cell, seed), strict=True)))]


def works(missing: list[Row], seeds: int) -> list[Work]:
    """What is missing, longest first: cells on a device get all of their seeds anew, others come in small parts."""
    by_cell: dict[Cell, list[int]] = {}
    for row in missing:
        by_cell.setdefault((row["data"], row["method"], row["nodes"], row["epsilon"]), []).append(row["seed"])
    kept = groups(Runs(KEY, TABLE).rows, "seconds")
    made = []
    for cell, wanted in by_cell.items():
        each = float(np.mean(kept.get(cell, [0.0])))
        if for_device(*cell):
            made.append(Work(cell, list(range(seeds)), True, seeds * each))
        else:
            made += in_parts(cell, wanted, each)
    return sorted(made, key=lambda work: -work.expected)


def in_parts(cell: Cell, wanted: list[int], each: float = 0.0) -> list[Work]:
    """Works for processors."""
    some = SHARED if cell[1] in ONE_SHOT else max(1, round(SOME / each)) if each else SOME_EPSILONS
    parts = [wanted[first : first + some] for first in range(0, len(wanted), some)]
    return [Work(cell, part, False, len(part) * each) for part in parts]


def run_batches(missing: list[Row], arguments: argparse.Namespace, runs: Runs) -> None:
    """Make what is missing with a device and the processors beside it.

    All seeds of a cell go together on the device; what it does not run, or not quicker, a processor makes, some seeds
    at a time. A few processes share the device, copies of this one, which has read the sets and partitioned them out:
    one has it at a time, while the others prepare and judge, which takes longer. The rest are the processors', and
    those of the device help them when its cells are done. What takes longest is begun first.
    """
    began = kept = time.perf_counter()
    if any(row["method"] == ELSEWHERE for row in missing):
        print(f"{ELSEWHERE} has an environment of its own; ask for it without a device", flush=True)
        missing = [row for row in missing if row["method"] != ELSEWHERE]
    with ThreadPool() as readers:
        readers.map(load, sorted({row["data"] for row in missing}))
    missing = [row for row in missing if exists(row["data"], row["method"])]
    todo = works(missing, arguments.seeds)
    for name, _, n, _ in {work.cell for work in todo}:
        for nodes in (1, n):
            partitions(name, nodes, arguments.seeds)
    cells = len({work.cell for work in todo})
    print(f"{cells} cells; data read and partitioned in {time.perf_counter() - began:.0f} s", flush=True)
    there, here = deque(w for w in todo if w.device), deque(w for w in todo if not w.device)
    found, count, failed, fork = list[Row](), 0, 0, get_context("fork")
    sharing = min(DEVICE, arguments.jobs) if there else 0
    with (
        ProcessPoolExecutor(max(1, sharing), fork, in_turn, (fork.Lock(),)) as device,
        ProcessPoolExecutor(max(1, arguments.jobs - sharing), fork, alone_on_a_core) as processors,
    ):
        about = device.submit(device_at_hand).result() if there else ""
        free = {device: sharing, processors: max(1, arguments.jobs - sharing)}
        busy: dict[Future[list[Row]], tuple[ProcessPoolExecutor, Work]] = {}
        try:
            while busy or there or here:
                for pool, queues in ((device, (there, here)), (processors, (here,))):
                    for queue in queues:
                        while free[pool] and queue:
                            work = queue.popleft()
                            busy[pool.submit(details, work)] = pool, work
                            free[pool] -= 1
                for done in wait(busy, return_when=FIRST_COMPLETED).done:
                    pool, work = busy.pop(done)
                    free[pool] += 1
                    error = done.exception()
                    if error is None:
                        found += done.result()
                        count += len(done.result())
                    elif work.device and isinstance(error, SpecError):
                        print(*work.cell, f"not on the device: {error}", flush=True)
                        here += in_parts(work.cell, work.seeds)
                    else:
                        print(*work.cell, "failed", flush=True)
                        print_exception(error)
                        failed += 1
                now = time.perf_counter()
                if now - began > arguments.within:
                    there.clear()
                    here.clear()
                if now - kept > SAVED:
                    runs.add(found)
                    kept, found = now, []
        finally:
            runs.add(found)
    took, where = time.perf_counter() - began, f"{about}{about and ' and '}{arguments.jobs} processes"
    print(f"{cells} cells, {count} runs in {took:.0f} s: {where}", flush=True)
    if failed:
        raise SystemExit(f"{failed} works failed, and are not in the table")


def in_turn(turn: Any) -> None:
    """Begin a process that shares the device: products, which fill it, wait until nobody else's are there."""
    from sottovoce_gpu.products import fits  # a plug-in

    alone_on_a_core()
    plain = engine_named("gpu")

    def waiting(jobs: Sequence[Job], *given: Any) -> Any:
        with turn if fits(jobs[0]) else nullcontext():
            return plain.run_jobs(jobs, *given)

    ENGINES["gpu"] = replace(plain, run_jobs=waiting)


def device_at_hand() -> str:
    """Its name; an error where there is none."""
    engine = engine_named("gpu")
    lacks = engine.lacks()
    if lacks is not None:
        raise SpecError(f"the gpu engine cannot run: {lacks}")
    return engine.name if engine.device is None else engine.device.name()


def alone_on_a_core() -> None:
    """Begin a process that has no threads beside it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)


def details(work: Work) -> list[Row]:
    """The rows of a work, and a line about them."""
    began = time.perf_counter()
    rows = work.make()
    accuracy, took = np.mean([row["accuracy"] for row in rows]), time.perf_counter() - began
    where = "device" if work.device else "processor"
    print(*work.cell, f"{accuracy:.4f} {len(rows)} runs {took:.2f} s, {where}", flush=True)
    return rows


def report_progress(count: int, of: int, row: Row) -> None:
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


def auto_threshold(found: list[Row], pairs: dict[str, tuple[str, str, int]]) -> str:
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
        details = number > 0 and LIFTS[number - 1][0] == one
        for method in (other,) if details else (one, other):
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
    rewrite(*marks("one node"), auto_threshold(found, {"": ("centre", "first", 1)}))
    rewrite(*marks("20 nodes"), auto_threshold(found, AGAINST_FIRST))
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
    """A data set's curves, each method in the color that it has in every panel."""
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
    parser.add_argument("--jobs", type=int, help="runs at a time; 1, or beside a device one for every processor")
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
    arguments.jobs = arguments.jobs or (os.cpu_count() or 1 if arguments.engine == "gpu" else 1)
    if not arguments.redraw and not arguments.judge:
        measure(arguments)
    if arguments.table == TABLE and not arguments.judge:
        redraw()
    else:
        print(judge(Runs(KEY, arguments.table).rows))


if __name__ == "__main__":
    main()
