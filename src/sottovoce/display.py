"""How statements, plans, specs and evaluations are shown in a console and in a notebook."""

import html
from collections.abc import Mapping

STYLE = "text-align:left;vertical-align:top;padding:0.15em 0.8em 0.15em 0"


class Shown:
    """A mixin: `repr` is a title with one line for each entry, in a notebook a table.

    Examples
    --------
    >>> class Cost(Shown):
    ...     def _entries(self):
    ...         return {"epsilon": "1", "for": "every <record>"}
    >>> Cost()
    Cost
      epsilon  1
      for      every <record>
    >>> "<td" in Cost()._repr_html_() and "every &lt;record&gt;" in Cost()._repr_html_()
    True
    """

    def _entries(self) -> Mapping[str, str]:
        """What to show, by name."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """The title and one line for each entry."""
        entries = self._entries()
        width = max(map(len, entries), default=0)
        return "\n".join([type(self).__name__, *(f"  {name:{width}}  {text}" for name, text in entries.items())])

    def _repr_html_(self) -> str:
        """The same as a table."""
        rows = "".join(
            f'<tr><th scope="row" style="{STYLE}">{html.escape(name)}</th>'
            f'<td style="{STYLE}">{html.escape(text)}</td></tr>'
            for name, text in self._entries().items()
        )
        caption = f'<caption style="text-align:left">{html.escape(type(self).__name__)}</caption>'
        return f"<table>{caption}<tbody>{rows}</tbody></table>"
