"""HTML as a tree: names and titles are text nodes or attributes, and cannot become markup, whoever wrote them."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

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
