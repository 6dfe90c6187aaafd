"""What an attack on the run attained, beside what is stated that nobody can."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sottovoce.figure import Curve, Figure, Panel
from sottovoce.privacy.statement import number
from sottovoce.report.document import Section, tag
from sottovoce.report.figures import shown

AXES = {"fpr": "false alarms, as a share"}


def picture(audit: Mapping[str, Any]) -> Figure:
    """The stated trade-off curve, and the points that an attack attained, from `Audit.to_dict`."""
    stated, attained = (np.array(sorted(map(tuple, audit[name]))).T for name in ("curve", "attained"))
    guess = np.array([0.0, 1.0])
    lines = (
        Curve("stated: no attack is over this", {"fpr": stated[0]}, stated[1], style=("#0072b2", "solid")),
        Curve("attained by the attack", {"fpr": attained[0]}, attained[1], style=("#d55e00", "dotted"), mark="."),
        Curve("guessing", {"fpr": guess}, guess, style=("#999999", "dashed")),
    )
    title = f"stated ε ≤ {number(audit['stated'])}, attained at least {number(float(audit['at_least']))}"
    note = (
        f"δ = {audit['delta']:g}, {audit['runs'][0]:,} runs with either record, {100 * audit['confidence']:g} % certain"
    )
    panel = Panel("trade-off", "", "true alarms, as a share", lines)
    return Figure("audit", title, ((panel,),), AXES, note=note, size=(5.5, 4.2))


def audited(audit: Mapping[str, Any], title: str = "Attacked") -> Section:
    """A section about an audit, from `Audit.to_dict`."""
    text = (
        "The run was attacked by someone who chooses all records, knows all but one, and sees what the adversary "
        f"sees: {audit['verdict']}. The attack was the score '{audit['score']}'; it was chosen on other runs than "
        "those "
        "that count."
    )
    return Section(title, (tag("p", text), *shown(picture(audit)), tag("ul", *(tag("li", n) for n in audit["notes"]))))
