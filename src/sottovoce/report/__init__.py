"""Reports: one self-contained HTML file for a run, a comparison, a sweep or a reproduction.

`write` makes a whole report from results. Its pieces can be put together otherwise: `curves`, `burn_down`, `claims`,
`audited`, `network`, `weights`, `statement`, `compared` and `what_was_run` make sections, `page` the file of them.
"""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.figure import Curve
from sottovoce.report.audits import audited
from sottovoce.report.budget import burn_down, claims
from sottovoce.report.document import Plot, Section, page, tag
from sottovoce.report.figures import controls, panel, shown
from sottovoce.report.graph import network
from sottovoce.report.guarantee import statement, tradeoff, verdict
from sottovoce.report.history import curves
from sottovoce.report.model import weights
from sottovoce.report.reports import write
from sottovoce.report.settings import RunGroup, settings_of
from sottovoce.report.tables import compared, what_was_run

__all__ = [
    "Curve",
    "Plot",
    "RunGroup",
    "Section",
    "audited",
    "burn_down",
    "claims",
    "compared",
    "controls",
    "curves",
    "network",
    "page",
    "panel",
    "settings_of",
    "shown",
    "statement",
    "tag",
    "tradeoff",
    "verdict",
    "weights",
    "what_was_run",
    "write",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
