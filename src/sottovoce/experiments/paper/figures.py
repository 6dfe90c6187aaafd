"""The paper's figures from runs that are there: nothing is computed here but means and intervals."""

from collections.abc import Sequence

import numpy as np

from sottovoce._types import Array
from sottovoce.experiments.paper.runs import DELTA, EPSILONS, FIGURES, SCHEMES, View
from sottovoce.experiments.table import Row
from sottovoce.figure import Curve, Figure, Interval, Panel

STYLES = {
    "edges(1)": ("#0072b2", "solid", "o"),
    "edges(2)": ("#d55e00", "dashed", "s"),
    "matching(2)": ("#cc79a7", "dotted", "D"),
    "everyone": ("#555555", "dashdot", "^"),
}
"""Color, dash and mark of each scheme."""
TITLES = {"paper": "the paper's noise (not private as claimed)", "honest": "honest noise for the same ε"}
QUANTITIES = {"suboptimality": "F(mean model) − F*", "test_accuracy": "test accuracy"}
PASSES = {"epoch": "passes over the data", "round": "iterations (rounds)"}
BUDGETS = {"epsilon": "ε (claimed for the paper's noise, true for the honest)"}


def figure(name: str, rows: Sequence[Row], iterations: bool = False) -> Figure:
    """One figure of the paper, for the noises that were run: suboptimality above, accuracy below.

    With `iterations` runs are compared at equal numbers of rounds, as the paper draws them, and not at equal passes:
    Figures 1 and 3 against rounds, Figures 2 and 4 where the scheme with the fewest rounds ends.
    """
    view = FIGURES[name]
    rows = chosen(rows, h=view.h)
    if iterations and view.epsilon is None:
        rows = _first_rounds(rows)
    data, size = rows[0]["data"], rows[0]["size"]
    seeds = len({row["seed"] for row in rows})
    return Figure(
        name=f"{data} ({size})-{name}{'-iterations' * iterations}",
        title=view.title,
        rows=tuple(tuple(_panel(view, rows, noise, quantity) for noise in _noises(rows)) for quantity in QUANTITIES),
        axes=_axes(iterations) if view.epsilon else BUDGETS,
        log_x=view.epsilon is not None,
        ticks=() if view.epsilon else EPSILONS,
        shared=True,
        note=f"{data} ({size}), {_length(rows, view, iterations)}, {seeds} seeds, 95 % intervals, honest δ = {DELTA:g}",
    )


def _axes(iterations: bool) -> dict[str, str]:
    """The first one is drawn."""
    return dict(sorted(PASSES.items(), reverse=iterations))


def _length(rows: Sequence[Row], view: View, iterations: bool) -> str:
    if iterations and view.epsilon is None:
        return f"after {max(row['round'] for row in rows):,} iterations"
    return "three passes"


def _first_rounds(rows: Sequence[Row]) -> list[Row]:
    """What every run has come to at the last round that all schemes reach; between two evaluations, linear in log t."""
    runs: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["round"]):
        runs.setdefault((row["scheme"], row["noise"], row["epsilon"], row["seed"]), []).append(row)
    last = min(by_place[-1]["round"] for by_place in runs.values())
    cut = []
    for by_place in runs.values():
        at = np.log([row["round"] for row in by_place])
        names = (*QUANTITIES, *PASSES)
        ends = {n: float(np.interp(np.log(last), at, [row[n] for row in by_place])) for n in names}
        cut.append(by_place[-1] | ends | {"round": last})
    return cut


def chosen(rows: Sequence[Row], **fields: str | float) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def final(rows: Sequence[Row], column: str, **fields: str | float) -> Array:
    """A column of the last round, one value a seed, of the runs with these values."""
    mine = chosen(rows, **fields)
    end = max(row["round"] for row in mine)
    return np.array([row[column] for row in sorted(mine, key=lambda row: row["seed"]) if row["round"] == end])


def _noises(rows: Sequence[Row]) -> list[str]:
    known = {row["noise"] for row in rows}
    return [noise for noise in TITLES if noise in known]


def _panel(view: View, rows: Sequence[Row], noise: str, quantity: str) -> Panel:
    mine = chosen(rows, noise=noise)
    known = {row["scheme"] for row in mine}
    curves = tuple(_curve(view, chosen(mine, scheme=s), s, quantity) for s in SCHEMES if s in known)
    log = True if quantity == "suboptimality" else None
    return Panel(f"{quantity}-{noise}", TITLES[noise], QUANTITIES[quantity], curves, log)


def _curve(view: View, rows: Sequence[Row], scheme: str, quantity: str) -> Curve:
    """Mean and interval: of the last round against ε, or of all evaluations against passes and rounds."""
    color, dash, mark = STYLES[scheme]
    if view.epsilon is None:
        found = [Interval.of(final(rows, quantity, epsilon=epsilon)) for epsilon in EPSILONS]
        return Curve.of(SCHEMES[scheme], {"epsilon": np.array(EPSILONS)}, found, (color, dash), mark)
    by_place: dict[int, list[Row]] = {}
    for row in sorted(chosen(rows, epsilon=view.epsilon), key=lambda row: (row["round"], row["seed"])):
        by_place.setdefault(row["round"], []).append(row)
    x = {axis: np.array([np.mean([row[axis] for row in some]) for some in by_place.values()]) for axis in PASSES}
    found = [Interval.of([row[quantity] for row in some]) for some in by_place.values()]
    return Curve.of(SCHEMES[scheme], x, found, (color, dash))
