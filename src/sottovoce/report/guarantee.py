"""The privacy statement in words and numbers, and what privacy costs.

A verdict, what it means, and the numbers that it rests on; and the final figures of every setting against its true ε.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal
from xml.etree.ElementTree import Element

from bokeh.models import ColumnDataSource

from sottovoce.figure import Interval
from sottovoce.privacy.release import ADVERSARIES, Central, HiddenParticipation, SecretPairs
from sottovoce.privacy.statement import Group, PrivacyStatement, number
from sottovoce.report.budget import terms
from sottovoce.report.document import Plot, Section, pairs, table, tag
from sottovoce.report.history import QUANTITIES, SIMULATION, Quantity
from sottovoce.report.settings import RunGroup
from sottovoce.report.theme import COLOURS, chart, plain, tips

Level = Literal["good", "open", "weak", "bad"]
MOST_GROUPS, MOST_NAMES = 12, 6
MARKS = {"good": "✓", "open": "~", "weak": "!", "bad": "✕"}
WEAK_RISK, WEAK_DELTA = 0.5, 0.1


def level(statement: PrivacyStatement) -> Level:
    """Whether a guarantee holds, whether it is worth much, and whether it is of what ran or only would be."""
    if not statement.private:
        return "bad"
    if statement.delta >= WEAK_DELTA or statement.risk(0.01) > WEAK_RISK:
        return "weak"
    return "open" if statement.kind else "good"


def badge(statement: PrivacyStatement) -> str:
    """The same in a word or two."""
    words = {"good": "private", "open": "", "weak": "weak", "bad": "not private"}[level(statement)]
    return ", ".join(word for word in (statement.kind, words) if word)


VERIFIED = "before this page was drawn: planned and accounted again, from the spec and public numbers alone"


def verdict(statement: PrivacyStatement, verified: bool = False) -> Element:
    """The verdict in one line, colored, and below it everything that an ε may not be shown without."""
    found = level(statement)
    lines = [tag("p", statement.verdict(), class_="verdict-line")]
    if found == "weak":
        lines.append(tag("p", "A weak guarantee: with this ε and δ an attacker may well succeed."))
    adversary = ADVERSARIES.read(statement.adversary)
    about = {
        "Adversary": f"{adversary}: sees {adversary.sees}",
        "Trusted": trusted(statement),
        "Neighboring data": statement.adjacency,
        "Unit": statement.unit,
    }
    if statement.others:
        about["If others colluded"] = statement.collusion
    if statement.software:
        about["Software"] = statement.software
    if verified:
        about["Verified"] = VERIFIED
    if statement.simulation:
        about["Simulation"] = "a seed was given, and anyone who knows it can remove the noise"
    return banner(found, [*lines, pairs(about)])


def trusted(said: PrivacyStatement) -> str:
    """Whom the owners of the records have to trust for it, beside their own nodes."""
    if not math.isfinite(said.epsilon):
        return "everybody who sees a message or the model: there is no noise"
    adversary = ADVERSARIES.read(said.adversary)
    if isinstance(adversary, SecretPairs):
        nodes = sum(len(group.nodes) for group in said.groups)
        k = adversary.among(nodes).k
        if k is None:
            return "the other nodes, but for the coalition that the statement names, and nobody on the network"
        return f"that no more than {k} of {nodes} nodes, whichever, collude; nobody on the network"
    if isinstance(adversary, Central):
        return "the one place that holds all records"
    if isinstance(adversary, HiddenParticipation):
        return "anyone who could show which node sent a message"
    return "nobody: neither the other nodes nor the network"


def banner(found: Level, content: Sequence[Element]) -> Element:
    """A box whose color and mark both show the verdict."""
    mark = tag("span", MARKS[found], class_="mark", aria_hidden="true")
    return tag("div", mark, tag("div", *content), class_=f"verdict {found}")


def statement(said: PrivacyStatement, names: Sequence[str] | None = None, title: str = "Privacy statement") -> Section:
    """The statement's own words, its numbers for every group of nodes, what it rests on and what it leaves out."""
    return Section(title, (meaning(said), conditions(said), numbers(said, names)))


def meaning(said: PrivacyStatement) -> Element:
    """What the statement says in plain words, without the verdict, which stands above."""
    return tag("p", said.paragraph().split("\n\n")[0].removeprefix(said.verdict()).strip(), class_="lead")


def conditions(said: PrivacyStatement) -> Element:
    """What the statement rests on, and what it does not cover."""
    lists = [
        tag("div", tag("h3", heading), tag("ul", *(tag("li", item) for item in items)))
        for heading, items in (("It rests on this", said.assumptions), ("It does not cover", said.not_covered))
    ]
    return tag("div", *lists, class_="columns")


def numbers(said: PrivacyStatement, names: Sequence[str] | None = None) -> Element:
    """The numbers that the guarantee was computed from, a row for each group of nodes, the worst first."""
    groups = sorted(said.groups, key=lambda group: -group.epsilon)
    columns = ("nodes", "records", "sampling", "releases K", "σ", "bound L", "σ / reach", "ε")
    rows = [_row(group, names) for group in groups[:MOST_GROUPS]]
    caption = f"ε {terms([said])}."
    if math.isfinite(said.epsilon):
        known = said.worst.event.realized
        caption += f" Worst node, on the worst data: at least {number(said.epsilon_lower)};" if known else ""
        caption += (
            " Rényi cross-check "
            f"{number(said.epsilon_rdp)}; numerical error under {max(said.error, 1e-4):.2%}. Accountant: "
            f"{said.accountant}. σ / reach is the noise over the distance by which one record moves a release."
        )
    if len(groups) > MOST_GROUPS:
        caption += f" The {len(groups) - MOST_GROUPS} groups with the smallest ε are left out here."
    return table(columns, rows, caption, words=("nodes", "sampling"))


def _row(group: Group, names: Sequence[str] | None) -> list[str]:
    event = group.event
    return [
        node_list(group.nodes, names),
        f"{event.records:,}",
        event.picked,
        f"{event.rounds:,}",
        f"{event.sigma:.4g}",
        f"{event.clip:.4g}",
        f"{event.noise_multiplier:.4g}",
        shown(group.epsilon),
    ]


def shown(epsilon: float) -> str:
    """ε for reading."""
    return "∞" if math.isinf(epsilon) else number(epsilon)


def node_list(nodes: Sequence[int], names: Sequence[str] | None = None) -> str:
    """Which nodes, shortly.

    Examples
    --------
    >>> node_list([0, 1, 2, 5]), node_list([0, 2], ["north", "south", "east"])
    ('0–2, 5', 'north, east')
    """
    if names is not None:
        listed = [names[i] for i in nodes]
    else:
        starts = [i for i in nodes if i - 1 not in set(nodes)]
        ends = [i for i in nodes if i + 1 not in set(nodes)]
        listed = [str(a) if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True)]
    more = len(listed) - MOST_NAMES
    return ", ".join(listed) if more <= 0 else f"{', '.join(listed[:MOST_NAMES])} and {more} more"


FEWEST = 3  # different ε that make a trade-off worth drawing


def tradeoff(settings: Sequence[RunGroup], title: str = "What privacy costs") -> Section | None:
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
    text = "Every setting at the end of its runs; lines are 95 % intervals over its seeds (Student's t)."
    return Section(title, (tag("p", text), plots), SIMULATION)


def _against(quantity: Quantity, settings: Sequence[RunGroup]) -> Any:
    values = [s.last(quantity.column) for s in settings]
    positive = all((v > 0).all() for v in values)
    found = [Interval.of(v) for v in values]
    floor = min(one.mean for one in found) / 10 if positive else -math.inf  # a log axis has no place for 0
    source = ColumnDataSource(
        {
            "epsilon": [s.statement.epsilon for s in settings],
            "mean": [one.mean for one in found],
            "low": [max(one.low, floor) if one.seeds > 1 else one.mean for one in found],
            "high": [one.high if one.seeds > 1 else one.mean for one in found],
            "label": [plain(s.label) for s in settings],
        }
    )
    name = f"{quantity.column} against epsilon"
    plot = chart(name, height=270, x="log", y="log" if quantity.log and positive else "linear")
    plot.line("epsilon", "mean", source=source, color=COLOURS[0], line_alpha=0.35, line_width=2)
    plot.segment("epsilon", "low", "epsilon", "high", source=source, line_color=COLOURS[0], line_width=2)
    dots = plot.scatter("epsilon", "mean", source=source, size=9, color=COLOURS[0])
    shown = [
        ("", "@label"),
        ("ε", "@epsilon{%.4g}"),
        ("mean", "@mean{%.5g}"),
        ("95 % interval", "@low{%.4g} to @high{%.4g}"),
    ]
    plot.add_tools(tips(shown, [dots]))
    plot.xaxis.axis_label = "true ε"
    return plot
