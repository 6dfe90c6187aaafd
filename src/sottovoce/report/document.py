"""The page: sections in, one HTML file out, with everything in it that it needs.

HTML is a tree of elements here: names and titles are text nodes or attributes, and cannot become markup, no matter who
wrote them. The page's content security policy lets the browser run exactly the scripts that were written here, by their
hashes, and load nothing from anywhere.
"""

import base64
import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element, tostring

from bokeh.embed import components
from bokeh.embed.util import RenderRoot
from bokeh.resources import Resources

from sottovoce._version import __version__
from sottovoce.report.theme import THEME

Child = Element | str | None


def tag(name: str, /, *children: Child, **attributes: Any) -> Element:
    """An element; attributes that are None are left out, `class_` is class and `data_x` is data-x.

    Examples
    --------
    >>> render(tag("p", "ε < ", tag("b", "<script>"), class_="note"))
    '<p class="note">ε &lt; <b>&lt;script&gt;</b></p>'
    """
    known = {k.rstrip("_").replace("_", "-"): str(v) for k, v in attributes.items() if v is not None}
    element = Element(name, known)
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif child is not None and len(element):
            element[-1].tail = (element[-1].tail or "") + child
        elif child is not None:
            element.text = (element.text or "") + child
    return element


def render(element: Element) -> str:
    """The element as HTML text."""
    return tostring(element, encoding="unicode", method="html")


def data_block(content: Any, **attributes: Any) -> Element:
    """Data for the page's own script; a browser never runs it."""
    text = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")  # so that no '</script>' ends it early
    return tag("script", text, type="application/json", **attributes)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Element | str]],
    caption: str = "",
    words: Sequence[str] = (),
) -> Element:
    """A table of numbers, aligned right, but for the columns of words."""
    sides = ["words" if column in words else "number" for column in columns]
    head = tag("tr", *(tag("th", c, class_=side, scope="col") for c, side in zip(columns, sides, strict=True)))
    body = [tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, sides, strict=True))) for row in rows]
    inside = tag("table", tag("thead", head), tag("tbody", *body))
    # below the table and not in it, so that a narrow screen breaks its lines instead of scrolling them
    below = tag("p", caption, class_="caption") if caption else None
    return tag("div", tag("div", inside, class_="scroll", tabindex="0"), below)


def pairs(rows: Mapping[str, str]) -> Element:
    """Names and values, one below the other."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in rows.items()))


def download(label: str, filename: str, rows: Sequence[Mapping[str, Any]]) -> Element:
    """A button that saves the rows as a CSV file; they lie in the page, so that it works from disk."""
    block = data_block({"filename": filename, "text": csv_text(rows)})
    return tag("span", tag("button", label, type="button", data_download=""), block, class_="download")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front.

    Examples
    --------
    >>> csv_text([{"node": "=1+1", "records": 5}]).split()
    ['node,records', "'=1+1,5"]
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name, "")) for name in columns] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


@dataclass(frozen=True)
class Plot:
    """A Bokeh figure with its heading and a line below it."""

    title: str
    figure: Any
    note: str = ""


Part = Element | tuple[Plot, ...]
"""Something in a section: an element, or figures that stand beside each other where there is room."""


@dataclass(frozen=True)
class Section:
    """A heading and what is below it.

    Attributes
    ----------
    title : the heading
    parts : elements and groups of figures, in order
    label : a remark beside the heading, such as that the section is not private
    """

    title: str
    parts: tuple[Part, ...]
    label: str = ""


def page(title: str, sections: Sequence[Section], head: Sequence[Element] = ()) -> str:
    """One self-contained HTML document.

    Examples
    --------
    >>> text = page("Tea & cake", [Section("Tea", (tag("p", "black"),))])
    >>> "<h1>Tea &amp; cake</h1>" in text, "<h2>Tea</h2>" in text
    (True, True)
    """
    plots = [plot for section in sections for part in section.parts if isinstance(part, tuple) for plot in part]
    script = ""
    roots: Sequence[RenderRoot] = ()
    if plots:
        script, roots = components(
            [plot.figure for plot in plots], wrap_script=False, wrap_plot_info=False, theme=THEME
        )
    places = {
        id(plot): tag("div", id=root.elementid, data_root_id=root.id, class_="bokeh", style="display: contents")
        for plot, root in zip(plots, roots, strict=True)
    }
    scripts = [*([_bokeh(), script] if plots else []), _file("page.js")]
    named = [(f"s{number}", section) for number, section in enumerate(sections, 1)]
    links = [tag("a", section.title, href=f"#{name}") for name, section in named]
    main = tag(
        "main",
        tag("header", tag("p", "sottovoce report", class_="kicker"), tag("h1", title), *head),
        tag("nav", *links, aria_label="Sections"),
        tag("noscript", tag("p", "The figures of this report need JavaScript; everything else is here without it.")),
        *(_section(name, section, places) for name, section in named),
        tag("footer", f"Made by sottovoce {__version__}. This file is complete: it loads nothing from any network."),
    )
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", title),
            tag("style", _file("page.css")),
        ),
        tag("body", main, *(tag("script", text) for text in scripts)),
        lang="en",
    )
    return "<!DOCTYPE html>\n" + render(document) + "\n"


def _section(name: str, section: Section, places: dict[int, Element]) -> Element:
    label = tag("span", section.label, class_="label") if section.label else None
    heading = tag("div", tag("h2", section.title), label, class_="heading")
    return tag("section", heading, *(_part(part, places) for part in section.parts), id=name)


def _part(part: Part, places: dict[int, Element]) -> Element:
    if isinstance(part, Element):
        return part
    figures = [
        tag(
            "figure",
            tag("h3", plot.title),
            places[id(plot)],
            tag("figcaption", plot.note) if plot.note else None,
            aria_label=plot.title,
        )
        for plot in part
    ]
    return tag("div", *figures, class_="figures" if len(part) > 1 else "figures one")


def _policy(scripts: Sequence[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"


@lru_cache
def _bokeh() -> str:
    """Bokeh's core, which draws; its widgets, tables, MathJax and WebGL are left out."""
    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


@lru_cache
def _file(name: str) -> str:
    return resources.files("sottovoce.report").joinpath(name).read_text("utf-8")
