"""What privacy costs: the final figures of every setting against its true ε."""

import math
from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource

from sottovoce.report.budget import terms
from sottovoce.report.document import Plot, Section
from sottovoce.report.history import QUANTITIES, SIMULATION, Quantity
from sottovoce.report.html import tag
from sottovoce.report.settings import Setting
from sottovoce.report.theme import COLOURS, chart, plain, tips

FEWEST = 3  # different ε that make a trade-off worth drawing


def tradeoff(settings: Sequence[Setting], title: str = "What privacy costs") -> Section | None:
    """Final objective and accuracy against ε, where there are settings enough with different ε."""
    noisy = sorted((s for s in settings if 0 < s.statement.epsilon < math.inf), key=lambda s: s.statement.epsilon)
    if len({f"{s.statement.epsilon:.3g}" for s in noisy}) < FEWEST:
        return None
    known = {q.column: q for q in QUANTITIES if all(s.knows(q.column) for s in noisy)}
    wanted = (("suboptimality", "objective"), ("test_accuracy", "train_accuracy"))
    chosen = [next(c for c in pair if c in known) for pair in wanted if any(c in known for c in pair)]
    if not chosen:
        return None
    frame = terms([s.statement for s in noisy])
    plots = tuple(
        Plot(known[c].title.format(score=settings[0].score), _against(known[c], noisy), f"True ε {frame}.")
        for c in chosen
    )
    text = "Every setting at the end of its runs; lines reach from the smallest to the largest of its seeds."
    return Section(title, (tag("p", text), plots), SIMULATION)


def _against(quantity: Quantity, settings: Sequence[Setting]) -> Any:
    values = [s.last(quantity.column) for s in settings]
    source = ColumnDataSource(
        {
            "epsilon": [s.statement.epsilon for s in settings],
            "mean": [v.mean() for v in values],
            "low": [v.min() for v in values],
            "high": [v.max() for v in values],
            "label": [plain(s.label) for s in settings],
        }
    )
    positive = all((v > 0).all() for v in values)
    name = f"{quantity.column} against epsilon"
    plot = chart(name, height=270, x="log", y="log" if quantity.log and positive else "linear")
    plot.line("epsilon", "mean", source=source, color=COLOURS[0], line_alpha=0.35, line_width=2)
    plot.segment("epsilon", "low", "epsilon", "high", source=source, line_color=COLOURS[0], line_width=2)
    dots = plot.scatter("epsilon", "mean", source=source, size=9, color=COLOURS[0])
    shown = [("", "@label"), ("ε", "@epsilon{%.4g}"), ("mean", "@mean{%.5g}"), ("range", "@low{%.4g} to @high{%.4g}")]
    plot.add_tools(tips(shown, [dots]))
    plot.xaxis.axis_label = "true ε"
    return plot
