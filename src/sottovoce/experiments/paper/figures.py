"""Drawings of runs that are there: nothing is computed here but means and intervals."""

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce._types import Array
from sottovoce.experiments.paper.experiments import DELTA, EPSILONS, FIGURES, SCHEMES, Figure
from sottovoce.experiments.paper.intervals import Interval
from sottovoce.experiments.paper.orderings import final

matplotlib.use("Agg")


COLOURS = {"edges(1)": "#0072b2", "edges(2)": "#d55e00", "matching(2)": "#cc79a7", "everyone": "#555555"}
DASHES = {"edges(1)": "-", "edges(2)": "--", "matching(2)": ":", "everyone": "-."}
MARKS = {"edges(1)": "o", "edges(2)": "s", "matching(2)": "D", "everyone": "^"}
TITLES = {"paper": "the paper's noise (not private as claimed)", "honest": "honest noise for the same ε"}
AXES = {"suboptimality": "F(mean model) − F*", "test_accuracy": "test accuracy"}


def draw(name: str, table: pa.Table, path: Path) -> Path:
    """One figure of the paper, for the noises in the table: suboptimality above, accuracy below."""
    figure = FIGURES[name]
    table = table.filter(pc.equal(table["h"], figure.h))
    noises = [noise for noise in TITLES if noise in set(table["noise"].to_pylist())]
    drawing, axes = plt.subplots(2, len(noises), figsize=(4.6 * len(noises), 6.2), layout="constrained", squeeze=False)
    for column, noise in enumerate(noises):
        mine = table.filter(pc.equal(table["noise"], noise))
        schemes = [s for s in SCHEMES if s in set(mine["scheme"].to_pylist())]
        for row, quantity in enumerate(AXES):
            axis = axes[row, column]
            for scheme in schemes:
                (_curve if figure.epsilon else _end)(axis, mine, figure, scheme, quantity)
            _dress(axis, figure, quantity)
        axes[0, column].set_title(TITLES[noise], fontsize=9)
    for row in axes:
        _share(row)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    about = table.slice(0, 1).to_pylist()[0]
    seeds = len(set(table["seed"].to_pylist()))
    drawing.suptitle(
        f"{figure.title}\n{about['data']} ({about['size']}), three passes, {seeds} seeds, 95 % intervals, "
        f"honest δ = {DELTA:g}",
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=140)
    plt.close(drawing)
    return path


def _curve(axis: Any, table: pa.Table, figure: Figure, scheme: str, quantity: str) -> None:
    """Mean and interval against passes over the data."""
    keep = pc.and_(pc.equal(table["scheme"], scheme), pc.equal(table["epsilon"], figure.epsilon))
    mine = table.filter(keep).sort_by([("round", "ascending"), ("seed", "ascending")])
    seeds = len(set(mine["seed"].to_pylist()))
    values, epochs = (mine[name].to_numpy().reshape(-1, seeds) for name in (quantity, "epoch"))
    _band(axis, epochs.mean(axis=1), values, scheme)


def _end(axis: Any, table: pa.Table, figure: Figure, scheme: str, quantity: str) -> None:
    """Mean and interval of the last round against ε."""
    rows = np.array([final(table, quantity, scheme=scheme, epsilon=e) for e in EPSILONS])
    _band(axis, np.array(EPSILONS), rows, scheme, marker=MARKS[scheme])


def _band(axis: Any, x: Array, values: Array, scheme: str, **style: str) -> None:
    found = [Interval.of(row) for row in values]
    mean, low, high = (np.array([getattr(i, end) for i in found]) for end in ("mean", "low", "high"))
    colour = COLOURS[scheme]
    axis.plot(x, mean, DASHES[scheme], color=colour, label=SCHEMES[scheme], lw=1.4, ms=4, **style)
    axis.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)


def _dress(axis: Any, figure: Figure, quantity: str) -> None:
    axis.grid(alpha=0.25, which="major")
    axis.tick_params(labelsize=8)
    axis.set_ylabel(AXES[quantity], fontsize=8)
    if quantity == "suboptimality":
        axis.set_yscale("log")
    if figure.epsilon:
        axis.set_xscale("log")
        axis.set_xlabel("passes over the data", fontsize=8)
    else:
        axis.set_xticks(EPSILONS)
        axis.set_xlabel("ε (claimed for the paper's noise, true for the honest)", fontsize=8)


def _share(row: Any) -> None:
    """The same range for the same quantity, so that the two noises can be compared by eye."""
    lows, highs = zip(*(axis.get_ylim() for axis in row), strict=True)
    room = 1.25 if row[0].get_yscale() == "log" else 1.0  # so that no mark lies on the frame
    for axis in row:
        axis.set_ylim(min(lows) / room, max(highs) * room)
