"""The history of runs: objective, suboptimality, accuracy and disagreement against rounds, epochs or what was sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np
from bokeh.models import DataRange1d

from sottovoce.figure import Curve
from sottovoce.report.document import Part, Plot, Section, tag
from sottovoce.report.figures import above_zero, controls, panel
from sottovoce.report.settings import FEWEST_OF_ONE, MOST_OF_ONE, MOST_POINTS, Band, RunGroup
from sottovoce.report.theme import style

SIMULATION = "not private: a simulation's view"


@dataclass(frozen=True)
class Quantity:
    """A column of the history, and how it is shown."""

    column: str
    title: str
    log: bool | None
    note: str = ""


QUANTITIES = (
    Quantity("objective", "Objective F", True, "F of the mean model over all nodes' records."),
    Quantity("suboptimality", "Suboptimality F − F*", True, "Distance of F from its certified optimum."),
    Quantity("train_accuracy", "Training {score}", None, "Of the mean model, on all nodes' records."),
    Quantity("test_accuracy", "Test {score}", None, "Of the mean model, on held-out records."),
    Quantity("consensus_error", "Disagreement of nodes", True, "Mean distance of a node's model from the mean model."),
)
ROUNDING = 1e-12  # nodes whose models are closer agree


def curves(
    settings: Sequence[RunGroup], columns: Sequence[str] | None = None, title: str = "Training"
) -> Section | None:
    """The history of every setting, a panel for each quantity, with one choice of axes for all panels.

    Several runs of a setting are drawn as their mean, with a band for its 95 % interval. A setting keeps
    its color in all panels, and a click on its legend entry hides it in all of them. None where nothing was observed,
    as on real nodes.
    """
    shown = [q for q in QUANTITIES if columns is None or q.column in columns]
    shown = [q for q in shown if any(s.knows(q.column) for s in settings)]
    if not shown:
        return None
    if agree(settings):
        shown = [q for q in shown if q.column != "consensus_error"]
    unit, divisor = _unit(max(float(s.last("bytes").max()) for s in settings if s.knows("bytes")))
    axes = {"round": "rounds", "epoch": "passes over the data", "bytes": f"{unit} sent, all nodes together"}
    if len({s.first.spec.algorithm.rounds for s in settings}) > 1:  # what a round is differs, so that passes say more
        axes = {column: axes[column] for column in ("epoch", "round", "bytes")}
    key = f"{title}: {', '.join(q.column for q in shown)}"  # figures of one page may share their quantities
    score = settings[0].score
    if len(settings) == 1:
        panels = _panels_of_one(settings[0], shown, axes, key, divisor)
    else:
        panels = [
            Plot(
                q.title.format(score=score),
                panel(q.column, _compared(settings, q.column, divisor), axes, key, log=q.log),
                q.note,
            )
            for q in shown
        ]
    linked = DataRange1d(range_padding=0.02)
    for plot in panels:
        plot.figure.x_range = linked
    parts: list[Part] = [_words(settings), controls(key, axes), tuple(panels)]
    return Section(title, tuple(parts), SIMULATION)


def _words(settings: Sequence[RunGroup]) -> Element:
    seeds = max(len(s.runs) for s in settings)
    text = "Computed from the data outside the mechanism, as only a simulation can. Publishing these figures would "
    text += "spend privacy that the statement does not count."
    if agree(settings):
        text += " The nodes agree up to rounding: everyone hears everyone."
    if seeds > 1:
        text += f" Lines are means over up to {seeds} seeds, bands are 95 % intervals of them (Student's t)."
    return tag("p", text)


def _compared(settings: Sequence[RunGroup], column: str, divisor: float) -> list[Curve]:
    points = int(np.clip(MOST_POINTS // len(settings), FEWEST_OF_ONE, MOST_OF_ONE))
    return [
        _curve(s, column, divisor, s.label, style(index), points) for index, s in enumerate(settings) if s.knows(column)
    ]


def _panels_of_one(
    setting: RunGroup, shown: Sequence[Quantity], axes: Mapping[str, str], key: str, divisor: float
) -> list[Plot]:
    """The panels of a single setting: training and test share one, and F is drawn beside F*."""
    found = {q.column: _curve(setting, q.column, divisor, "mean model", style(0)) for q in shown}
    scores = [q for q in shown if q.column.endswith("_accuracy")]
    panels = []
    for q in shown:
        lines, heading, note = [found[q.column]], q.title.format(score=setting.score), q.note
        if q.column == "objective" and "suboptimality" in found:
            best = found["objective"].y[-1] - found["suboptimality"].y[-1]
            line = found["objective"]
            lines.append(Curve("optimum F*", line.x, np.full(len(line.y), best), style=(style(6)[0], "dashed")))
        if q in scores:
            if q != scores[0]:
                continue
            if len(scores) > 1:
                lines = [
                    _curve(setting, s.column, divisor, s.column.split("_")[0], style(i)) for i, s in enumerate(scores)
                ]
                heading, note = setting.score.capitalize(), "Of the mean model, in training and on held-out records."
        panels.append(Plot(heading, panel(q.column, lines, axes, key, log=q.log), note))
    return panels


def _curve(
    setting: RunGroup, column: str, divisor: float, label: str, style: tuple[str, str], points: int = MOST_OF_ONE
) -> Curve:
    band = setting.band(column, points)
    x = band.x | {"bytes": band.x["bytes"] / divisor}
    several = len(setting.runs) > 1
    if column == "consensus_error":
        keep = np.where(band.mean > ROUNDING, 1.0, np.nan)
        band = Band(band.x, band.mean * keep, band.low * keep, band.high * keep)
    return above_zero(Curve(label, x, band.mean, band.low if several else None, band.high if several else None, style))


def agree(settings: Sequence[RunGroup]) -> bool:
    """Whether no two nodes of any run ever differ by more than rounding."""
    return all(row["consensus_error"] <= ROUNDING for s in settings for run in s.runs for row in run.history.rows)


def _unit(largest: float) -> tuple[str, float]:
    """The unit in which this many bytes are a small number."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if largest >= size:
            return unit, size
    return "bytes", 1.0
