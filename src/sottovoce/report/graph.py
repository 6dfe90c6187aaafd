"""The gossip graph: who may talk to whom, and who spoke how often."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, LinearColorMapper
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Cividis256

from sottovoce.network.graphs import positions
from sottovoce.report.budget import terms
from sottovoce.report.document import Plot, Section, download, tag
from sottovoce.report.theme import COLOURS, FONT, INK, chart, plain, tips
from sottovoce.run.result import Result

MOST_LINKS, MOST_NODES = 3000, 1000  # drawn: more would be neither readable nor small
NAMED = 24  # up to so many nodes, names are written beside them


def network(result: Result, title: str = "Network") -> Section:
    """The graph of a run, its nodes colored by how often they spoke, with everything public about them on hover."""
    rows = node_rows(result)
    public = result.public
    edges = np.asarray(public.get("edges", []), dtype=np.int64).reshape(-1, 2)
    spoken = [row["spoke"] for row in rows]
    times = f"{spoken[0]:,}" if min(spoken) == max(spoken) else f"{min(spoken):,} to {max(spoken):,}"
    get = download("Nodes as CSV", "nodes.csv", rows)
    if len(rows) == 1:
        text = f"One node holds all records and has nobody to gossip with; it released {times} noisy gradients. "
        return Section(
            title,
            (
                tag("p", text),
                tag("p", get),
            ),
        )
    linked = f" with {len(edges):,} links" if "edges" in public else ""
    text = f"{len(rows):,} nodes{linked}, graph {result.spec.network.graph}. Each spoke {times} times. "
    if "iota" in public and "beta" in public:
        text += f"A node is active in a share ι = {public['iota']:.4g} of the rounds; the gossip mixes at β = "
        text += f"{public['beta']:.4g}, where 0 is at once and 1 never. "
    note = f"Size: records. Color: rounds in which the node spoke. On hover: σ, and ε {terms([result.statement])}."
    if len(rows) > MOST_NODES:
        text += f"Too many nodes to draw: all {len(rows):,} are in the table. "
        return Section(
            title,
            (
                tag("p", text),
                tag("p", get),
            ),
        )
    if len(edges) > MOST_LINKS:
        note += f" {MOST_LINKS:,} of {len(edges):,} links are drawn."
    return Section(title, (tag("p", text), tag("p", get), (Plot("Who spoke how often", _graph(rows, edges), note),)))


def node_rows(result: Result) -> list[dict[str, Any]]:
    """One row a node: what is public about it, and its guarantee."""
    statement, public = result.statement, result.public
    names = node_names(result)
    rows: list[dict[str, Any]] = [{} for _ in names]
    for group in statement.groups:
        for i in group.nodes:
            rows[i] = {
                "node": names[i],
                "records": public["records"][i],
                "spoke": public["participations"][i],
                "batch": group.event.batch,
                "sampling": group.event.sampling,
                "sigma": group.event.sigma,
                "epsilon": group.epsilon,
                "delta": statement.delta,
                "adversary": statement.adversary,
                "adjacency": statement.adjacency,
            }
    return rows


def node_names(result: Result) -> Sequence[str]:
    """The nodes' names, or their numbers where not all are known: a real node's result names itself alone."""
    if result.nodes is not None and len(result.nodes) == result.public["n"]:
        return [str(name) for name in result.nodes]
    return [f"node {i}" for i in range(result.public["n"])]


def _graph(rows: Sequence[dict[str, Any]], edges: Any) -> Any:
    place = positions(len(rows), edges)
    records = np.array([row["records"] for row in rows], dtype=float)
    spoke = np.array([row["spoke"] for row in rows], dtype=float)
    biggest = float(np.clip(420 / np.sqrt(len(rows)) / 4, 9, 34))
    source = ColumnDataSource(
        {
            "x": place[:, 0],
            "y": place[:, 1],
            "size": np.maximum(biggest * np.sqrt(records / records.max()), 6),
            "name": [plain(row["node"]) for row in rows],
            "records": records,
            "spoke": spoke,
            "sigma": [row["sigma"] for row in rows],
            "epsilon": [row["epsilon"] if np.isfinite(row["epsilon"]) else float("nan") for row in rows],
        }
    )
    keep = edges[np.linspace(0, len(edges) - 1, min(len(edges), MOST_LINKS)).round().astype(int)]
    links = ColumnDataSource(
        {
            "x0": place[keep[:, 0], 0],
            "y0": place[keep[:, 0], 1],
            "x1": place[keep[:, 1], 0],
            "y1": place[keep[:, 1], 1],
        }
    )
    plot = chart("network", height=460, match_aspect=True)
    plot.x_range.range_padding = plot.y_range.range_padding = 0.1
    plot.axis.visible = False
    plot.grid.visible = False
    faint = float(np.clip(30 / len(keep), 0.06, 0.6))
    plot.segment("x0", "y0", "x1", "y1", source=links, line_color=INK, line_alpha=faint, line_width=1.2)
    even = spoke.min() == spoke.max()
    mapper = LinearColorMapper(palette=Cividis256[::-1], low=spoke.min(), high=spoke.max())
    color = COLOURS[0] if even else {"field": "spoke", "transform": mapper}
    dots = plot.scatter("x", "y", source=source, size="size", fill_color=color, line_color=INK, line_width=0.8)
    if not even:
        plot.add_layout(
            ColorBar(color_mapper=mapper, title="times spoken", width=220, height=8, location="center"), "below"
        )
    if len(rows) <= NAMED:
        sides = np.where(place[:, 0] < -0.1, "right", np.where(place[:, 0] > 0.1, "left", "center"))
        source.data["side"] = sides
        source.data["aside"] = np.select([sides == "right", sides == "left"], [-1.0, 1.0], 0.0) * (biggest / 2 + 4)
        source.data["above"] = np.where(sides == "center", -np.sign(place[:, 1] + 1e-9) * (biggest / 2 + 9), 0.0)
        source.data["short"] = [plain(row["node"], 14) for row in rows]
        plot.scatter(
            [-1.6, 1.6, 0, 0], [0, 0, -1.15, 1.15], alpha=0
        )  # keeps room for the names: ranges fit glyphs only
        plot.text(
            "x", "y", "short", source=source, x_offset="aside", y_offset="above", text_align="side",
            text_baseline="middle", text_font=value(FONT), text_font_size="12px", text_color=INK,
        )  # fmt: skip
    shown = [
        ("", "@name"),
        ("records", "@records{0,0}"),
        ("spoke", "@spoke{0,0} times"),
        ("σ", "@sigma{%.4g}"),
        ("ε", "@epsilon{%.4g}"),
    ]
    plot.add_tools(tips(shown, [dots]))
    return plot
