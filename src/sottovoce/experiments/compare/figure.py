"""A picture of a comparison: a panel for each adversary, suboptimality left, test accuracy right, 95 % intervals."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sottovoce.experiments.compare.summary import ADVERSARIES, COLUMNS, Line, order
from sottovoce.privacy.adversaries import make_adversary

COLOURS = {"transcript": "#0072b2", "secret_pairs": "#009e73", "central": "#d55e00"}
MARKS = "osD^vP"


def draw(lines: list[Line], path: Path) -> Path:
    """Draw one data set's lines; the best of each adversary is on top of its panel."""
    shown = [line for line in lines if not line.tuned]
    seen = [name for name in ADVERSARIES if any(line.adversary == name for line in shown)]
    listed = {name: order([line for line in shown if line.adversary == name]) for name in seen}
    heights = [len(listed[name]) + 1.2 for name in seen]
    figure = Figure(figsize=(10, 1.6 + 0.27 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(seen), 2, squeeze=False, sharex="col", gridspec_kw={"height_ratios": heights})
    budgets = sorted({line.epsilon for line in shown})
    for row, adversary in zip(axes, seen, strict=True):
        for axis, column in zip(row, COLUMNS, strict=True):
            for k, epsilon in enumerate(budgets):
                mine = [x for x in shown if x.adversary == adversary and x.epsilon == epsilon]
                _points(axis, mine, listed[adversary], column, adversary, k, len(budgets))
            axis.set_yticks(range(len(listed[adversary])), listed[adversary] if column == "suboptimality" else [])
            axis.set_ylim(len(listed[adversary]) - 0.5, -0.5)
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=8)
        row[0].set_title(f"'{adversary}' sees {make_adversary(adversary).sees}", loc="left", fontsize=8)
    for axis, (column, title) in zip(axes[-1], COLUMNS.items(), strict=True):
        axis.set_xlabel(title, fontsize=9)
        if column == "suboptimality":
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
    if len(budgets) > 1:
        axes[0, 1].legend(fontsize=8)
    seeds = max(line.objective.seeds for line in shown)
    budget = ", ".join(f"{e:g}" for e in budgets)
    figure.suptitle(
        f"{shown[0].data}: ε = {budget}, δ = {shown[0].delta:g}, {seeds} seeds, 95 % intervals", fontsize=10
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _points(axis: Any, lines: list[Line], names: list[str], column: str, adversary: str, k: int, of: int) -> None:
    shift = 0.0 if of == 1 else 0.5 * (k / (of - 1) - 0.5)
    for line in lines:
        found = getattr(line, column)
        low, high = found.half, found.half
        if column == "suboptimality":  # a logarithm has no room for less than nothing
            low = min(low, 0.9 * abs(found.mean))
        elif 0 <= found.mean <= 1:
            low, high = min(low, found.mean), min(high, 1.0 - found.mean)
        axis.errorbar(
            found.mean,
            names.index(line.algorithm) + shift,
            xerr=[[low], [high]],
            fmt=MARKS[k % len(MARKS)],
            color=COLOURS[adversary],
            alpha=1.0 if of == 1 else 0.4 + 0.6 * k / (of - 1),
            ms=4,
            capsize=2,
            label=f"ε = {line.epsilon:g}" if line.algorithm == names[0] else None,
        )
