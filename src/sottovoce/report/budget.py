"""ε in figures: how it is spent as a node speaks, and what was claimed of it against what is true."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker

from sottovoce.figure import Curve
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.statement import PrivacyStatement, number
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.report.document import Plot, Section, tag
from sottovoce.report.figures import controls, panel
from sottovoce.report.settings import RunGroup
from sottovoce.report.theme import COLOURS, INK, add_legend, chart, plain, style, tips

COUNTS = 20  # of a node's releases, at which ε is computed
LOWER = 8  # the same for the lower bound, which takes longer


def terms(statements: Sequence[PrivacyStatement]) -> str:
    """What an ε may not be shown without: δ, adversary and adjacency, of all statements together."""
    deltas = " or ".join(f"{d:g}" for d in sorted({s.delta for s in statements}))
    against = " or ".join(sorted({s.against for s in statements}))
    adjacency = " or ".join(sorted({s.adjacency for s in statements}))
    return f"at δ = {deltas}, against {against}, {adjacency}"


def burn_down(settings: Sequence[RunGroup], title: str = "Budget") -> Section:
    """ε spent by the worst node of each setting against the number of its releases, from the accountant."""
    noisy = [s for s in settings if 0 < s.statement.epsilon < math.inf]
    if not noisy:
        silent = all(s.statement.epsilon == 0 for s in settings)
        text = "Nobody spoke, so nothing was spent." if silent else "No noise was added: there is no budget to spend."
        return Section(title, (tag("p", text),))
    single = len(settings) == 1
    lines = [_spent(s, "proven, at most" if single else s.label, settings.index(s)) for s in noisy]
    if single:
        lines += _beside(noisy[0])
    log = not single or noisy[0].statement.claimed is not None
    axes = {"releases": "releases of the worst node"}
    plot = panel("budget", lines, axes, title, log=log, log_x=not single, height=320)
    plot.yaxis.axis_label = "ε spent"
    frame = terms([s.statement for s in noisy])
    note = f"ε {frame}. Each point is computed anew from the node's event: sampling, batch, bound, σ and the count."
    return Section(
        title, (tag("p", _words(noisy)), controls(title, axes, log, not single), (Plot("ε spent", plot, note),))
    )


def claims(settings: Sequence[RunGroup], title: str = "Claimed against true ε") -> Section | None:
    """The ε that a formula claims and the ε that its noise gives, where any setting was run on a claim."""
    claimed = [s for s in settings if s.statement.claimed is not None and math.isfinite(s.statement.epsilon)]
    if not claimed:
        return None
    rows = [(s.label, s.statement) for s in settings if 0 < s.statement.epsilon < math.inf]
    frame = terms([statement for _, statement in rows])
    note = f"True ε {frame}; the thick line reaches from what an attacker reaches on the worst data to what is proven."
    plots = (Plot("ε, claimed and true", _dumbbells(rows), note),)
    worst = max((s.statement for s in claimed), key=lambda s: s.epsilon / (s.claimed or 1.0))
    ratio = worst.epsilon / (worst.claimed or 1.0)
    verb = "is" if ratio > 1 else "keeps within"
    text = f"Theorem 1 claims ε = {worst.claimed:g}, for “some constant δ in (0, 1]”. The truth {verb} "
    text += f"ε = {number(worst.epsilon)} {terms([worst])}"
    text += f": {number(ratio)} times the claim." if ratio > 1 else "."
    return Section(title, (tag("p", text), plots))


def _words(noisy: Sequence[RunGroup]) -> str:
    worst = [s.statement.worst for s in noisy]
    if len(noisy) == 1:
        group = worst[0]
        return (
            f"The node whose records are protected least spoke {group.event.rounds:,} times. Every release spends; "
            "silence costs nothing."
        )
    return "For each setting, the node whose records are protected least. Every release spends; silence costs nothing."


def _spent(setting: RunGroup, label: str, index: int) -> Curve:
    statement = setting.statement
    event = statement.worst.event
    counts = _counts(event.rounds, COUNTS)
    values = [compute_epsilon([event.after(int(k))], statement.delta, lower=False).epsilon for k in counts[:-1]]
    return Curve(label, {"releases": counts}, np.array([*values, statement.worst.epsilon]), style=style(index))


def _beside(setting: RunGroup) -> list[Curve]:
    """What a single run's curve is compared with: the lower bound, and what was promised or claimed."""
    statement = setting.statement
    event = statement.worst.event
    counts = _counts(event.rounds, LOWER)
    lines = []
    if event.realized:
        lower = [compute_epsilon([event.after(int(k))], statement.delta).epsilon_lower for k in counts[:-1]]
        low = np.array([*lower, statement.epsilon_lower])
        lines.append(Curve("at least (worst data)", {"releases": counts}, low, style=(COLOURS[5], "dashed")))
    noise = setting.first.spec.privacy.noise
    if statement.claimed is not None:
        claim = Theorem1(statement.claimed, 0.01, 1.0, 1.0, 1, event.rounds)  # eq. (7) examines ε and t/T only
        many = _counts(event.rounds, 3 * COUNTS)
        hat = np.array([claim.spent(int(k)) for k in many])
        lines.append(Curve("claimed, eq. (7)", {"releases": many}, hat, style=(COLOURS[1], "dashdot")))
    elif isinstance(noise, Private):
        whole = np.full(len(counts), noise.epsilon)
        lines.append(Curve("the budget", {"releases": counts}, whole, style=(INK, "dotted")))
    return lines


def _counts(rounds: int, count: int) -> Any:
    """Counts from 1 to all, half of them evenly spaced and half in proportion."""
    both = np.concatenate([np.geomspace(1, rounds, count // 2), np.linspace(1, rounds, count - count // 2)])
    return np.unique(both.round().astype(np.int64))


def _dumbbells(rows: Sequence[tuple[str, PrivacyStatement]]) -> Any:
    """A row for each setting: what is claimed, and the interval in which the truth lies."""
    places = list(range(len(rows)))[::-1]
    true = ColumnDataSource(
        {
            "row": places,
            "label": [plain(label) for label, _ in rows],
            "high": [s.epsilon for _, s in rows],
            "low": [s.epsilon_lower or s.epsilon for _, s in rows],  # a log axis has no 0
            "delta": [s.delta for _, s in rows],
        }
    )
    claimed = [(place, label, s) for place, (label, s) in zip(places, rows, strict=True) if s.claimed is not None]
    said = ColumnDataSource(
        {
            "row": [place for place, _, _ in claimed],
            "label": [plain(label) for _, label, _ in claimed],
            "high": [s.claimed for _, _, s in claimed],
            "true": [s.epsilon for _, _, s in claimed],
        }
    )
    plot = chart("claims", height=120 + 34 * len(rows), x="log", y_range=(-0.6, len(rows) - 0.4))
    plot.segment("high", "row", "true", "row", source=said, line_color=COLOURS[6], line_dash="dotted", line_width=1.5)
    claim = plot.scatter("high", "row", source=said, size=13, marker="diamond", color=COLOURS[1])
    plot.segment("low", "row", "high", "row", source=true, line_color=COLOURS[0], line_width=5)
    truth = plot.scatter("high", "row", source=true, size=12, color=COLOURS[0])
    span = [("true ε, at most", "@high{%.4g}"), ("at least", "@low{%.4g}"), ("δ", "@delta{%g}")]
    plot.add_tools(tips([("", "@label"), ("claimed ε", "@high{%g}")], [claim]), tips([("", "@label"), *span], [truth]))
    plot.xaxis.axis_label = "ε"
    plot.yaxis.ticker = FixedTicker(ticks=sorted(places))
    plot.yaxis.major_label_overrides = {place: plain(label, 30) for place, (label, _) in zip(places, rows, strict=True)}
    plot.ygrid.visible = False
    add_legend(plot, {"claimed": [claim], "true": [truth]})
    return plot
