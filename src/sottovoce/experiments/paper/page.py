"""A reproduction as one page that can be handed on: the figures, interactive, and what they show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.experiments.paper.experiments import DELTA, DELTA0, EPSILONS, FIGURES, SCHEMES, Figure
from sottovoce.experiments.paper.figures import AXES, COLOURS, DASHES, TITLES
from sottovoce.experiments.paper.intervals import Interval
from sottovoce.experiments.paper.orderings import Finding, final
from sottovoce.experiments.paper.truth import TITLE, truths
from sottovoce.report.document import Part, Plot, Section, download, page, table, tag
from sottovoce.report.history import SIMULATION, Curve, controls, panel
from sottovoce.run.result import write_atomically

BOKEH_DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}


def write_page(
    path: Path,
    runs: dict[str, pa.Table],
    figures: Sequence[str],
    claims: dict[str, list[Finding]],
    tables: dict[str, list[dict[str, Any]]],
) -> Path:
    """Write the page: runs and findings by data set, and further tables by title."""
    sections = [_about()]
    for name, rows in runs.items():
        sections += [_truths(name, rows), _findings(name, claims[name])]
        sections += [_figure(name, FIGURES[figure], rows) for figure in figures]
    sections += [_table(title, rows) for title, rows in tables.items() if rows]
    if runs:
        last = [row for rows in runs.values() for row in _last(rows)]
        parts: tuple[Part, ...] = (download("final values of all runs (CSV)", "runs.csv", last),)
        sections.append(Section("The numbers", parts, SIMULATION))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page("The paper, reproduced and judged", sections).encode())
    return path


def _about() -> Section:
    text = (
        "Liu, Johansson and Shi, Distributed Empirical Risk Minimization With Differential Privacy: its experiments, "
        f"with the noise of its Theorem 1 (δ₀ = {DELTA0:g}; it claims ε) and, beside it, with the noise that a true ε "
        f"at δ = {DELTA:g} needs against somebody who sees every message (replace one record of one node). Both run "
        "from the same draws of records and from the same unit noise."
    )
    return Section("What this is", (tag("p", text),))


def _truths(name: str, rows: pa.Table) -> Section:
    """Public: nothing but sizes, counts and noise goes into it."""
    found = truths(rows)
    if not found:
        return Section(f"Claimed and true ε: {name}", (tag("p", "No run here has the paper's noise."),))
    heads = list(found[0])
    body = table(heads, [list(row.values()) for row in found], f"{TITLE}.", words=["scheme"])
    return Section(f"Claimed and true ε: {name}", (body,))


def _findings(name: str, found: Sequence[Finding]) -> Section:
    heads = ("the paper's reading of its figures", "noise", "F − F*, means with 95 % intervals", "here")
    rows = [[f.claim, f.noise, f.numbers, f.verdict] for f in found]
    return Section(f"What the paper says, and what was found: {name}", (table(heads, rows, words=heads),), SIMULATION)


def _figure(name: str, figure: Figure, rows: pa.Table) -> Section:
    rows = rows.filter(pc.equal(rows["h"], figure.h))
    noises = [noise for noise in TITLES if noise in set(rows["noise"].to_pylist())]
    key = f"{name}-{figure.name}"
    axes = {"epsilon": "ε"} if figure.epsilon is None else {"epoch": "passes over the data", "round": "rounds"}
    parts: list[Part] = [controls(key, axes, log_x=figure.epsilon is not None)]
    for quantity, text in AXES.items():
        plots = []
        for noise in noises:
            mine = rows.filter(pc.equal(rows["noise"], noise))
            lines = [
                _line(mine, figure, scheme, quantity) for scheme in SCHEMES if scheme in set(mine["scheme"].to_pylist())
            ]
            log = True if quantity == "suboptimality" else None
            drawn = panel(f"{quantity}-{noise}", lines, axes, key, log=log, log_x=figure.epsilon is not None)
            plots.append(Plot(f"{text}: {TITLES[noise]}", drawn))
        parts.append(tuple(plots))
    return Section(f"Figure {figure.name[3:]}, {figure.title}: {name}", tuple(parts), SIMULATION)


def _line(rows: pa.Table, figure: Figure, scheme: str, quantity: str) -> Curve:
    if figure.epsilon is None:
        x = {"epsilon": np.array(EPSILONS)}
        values = np.array([final(rows, quantity, scheme=scheme, epsilon=e) for e in EPSILONS])
    else:
        keep = pc.and_(pc.equal(rows["scheme"], scheme), pc.equal(rows["epsilon"], figure.epsilon))
        mine = rows.filter(keep).sort_by([("round", "ascending"), ("seed", "ascending")])
        seeds = len(set(mine["seed"].to_pylist()))
        x = {name: mine[name].to_numpy().reshape(-1, seeds).mean(axis=1) for name in ("epoch", "round")}
        values = mine[quantity].to_numpy().reshape(-1, seeds)
    found = [Interval.of(row) for row in values]
    mean, low, high = (np.array([getattr(i, end) for i in found]) for end in ("mean", "low", "high"))
    floor = float(mean[mean > 0].min()) / 10 if quantity == "suboptimality" and np.any(mean > 0) else -np.inf
    look = COLOURS[scheme], BOKEH_DASHES[DASHES[scheme]]
    return Curve(SCHEMES[scheme], x, mean, np.maximum(low, floor), high, look)  # a log axis has no place for 0


def _table(title: str, rows: list[dict[str, Any]]) -> Section:
    return Section(title, (table(list(rows[0]), [[_text(v) for v in row.values()] for row in rows]),), SIMULATION)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _last(rows: pa.Table) -> list[dict[str, Any]]:
    """The final row of every run."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows.to_pylist():
        key = tuple(row[name] for name in ("h", "scheme", "noise", "epsilon", "seed"))
        if key not in last or row["round"] > last[key]["round"]:
            last[key] = row
    return list(last.values())
