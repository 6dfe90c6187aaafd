"""How the figures of an evaluation are shown: the same names and numbers in the terminal, the card and the report."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

WIDE = 1.959963984540054
"""Standard errors on either side of a 95 % interval."""
NOT_DETERMINED = "not determined at this ε"

RATE = (0.0, 1.0)
LIMITS: dict[str, tuple[float, float]] = {
    "r2": (-math.inf, 1.0),
    "mean_squared_error": (0.0, math.inf),
    "baseline_mean_squared_error": (0.0, math.inf),
    "root_mean_squared_error": (0.0, math.inf),
    "baseline_root_mean_squared_error": (0.0, math.inf),
}
"""The range that a figure has by definition; those that are not here are rates."""

NAMES = {
    "auc": "area under the ROC curve",
    "baseline_accuracy": "accuracy of the most frequent class",
    "calibration_error": "expected calibration error",
    "r2": "R² (0 for the mean of the targets)",
    "mean_squared_error": "mean squared error (units²)",
    "baseline_mean_squared_error": "mean squared error of the mean (units²)",
    "root_mean_squared_error": "root mean squared error (units)",
    "baseline_root_mean_squared_error": "root mean squared error of the mean",
}
OF_POSITIVE = ("recall", "precision", "auc", "average_precision")
"""Figures that belong to one class of two, or change their meaning with it."""


class Row(NamedTuple):
    """One figure as it is shown."""

    name: str
    value: str
    interval: str


def number_text(value: float | None) -> str:
    """A number with about five digits.

    Examples
    --------
    >>> number_text(0.84213), number_text(17.7612), number_text(2109676.4), number_text(None)
    ('0.8421', '17.761', '2,109,676', 'not determined at this ε')
    """
    if value is None or not math.isfinite(value):
        return NOT_DETERMINED
    size = abs(value)
    if 0.0 < size < 1e-3:
        return f"{value:.3g}"
    digits = 4 if size < 10.0 else max(0, 4 - math.floor(math.log10(size)))
    return f"{value:,.{digits}f}"


def name_of(figure: str, found: Mapping[str, Any]) -> str:
    """The name of a figure of a written evaluation, with its positive class or its units.

    Examples
    --------
    >>> name_of("average_precision", {"positive": "yes"}), name_of("accuracy", {})
    ("average precision of 'yes'", 'accuracy')
    """
    if figure == "mean_squared_error" and found.get("target_range") is None:
        return "mean squared error, of targets within [−1, 1]"  # written by version 0.2
    name = NAMES.get(figure, figure.replace("_", " "))
    positive = found.get("positive")
    return f"{name} of '{positive}'" if positive is not None and figure in OF_POSITIVE else name


def interval_of(figure: str, said: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval of a written figure; None where the figure is not determined.

    Examples
    --------
    >>> interval_of("auc", {"value": 0.9, "standard_error": 0.1})[1], interval_of("r2", {"value": None})
    (1.0, None)
    """
    if said["value"] is None:
        return None
    if said.get("interval") is not None:
        low, high = said["interval"]
        return float(low), float(high)
    value, error = float(said["value"]), float(said["standard_error"])  # version 0.2 wrote no interval
    lowest, highest = LIMITS.get(figure, RATE)
    return max(value - WIDE * error, lowest), min(value + WIDE * error, highest)


def rows_of(found: Mapping[str, Any], figures: str = "figures") -> list[Row]:
    """Every figure of a written evaluation (`Evaluation.to_dict`), ready to be shown.

    Parameters
    ----------
    found : the evaluation
    figures : which of its figures: 'figures', or 'threshold_figures' for those at the threshold that it found
    """
    rows = []
    for figure, said in found[figures].items():
        ends = interval_of(figure, said)
        shown = "" if ends is None else " to ".join(map(number_text, ends))
        rows.append(Row(name_of(figure, found), number_text(said["value"]), shown))
    return rows


def notes_of(found: Mapping[str, Any]) -> list[str]:
    """What a reader must know beside the figures: the positive class and what they are compared with."""
    notes = []
    if found.get("positive") is not None:
        notes.append(f"The positive class is '{found['positive']}'.")
    if found.get("target_range") is not None:
        low, high = found["target_range"]
        notes.append(
            f"Errors are in the units of the target, clipped to the public range {low:g} to {high:g}; an error over "
            "half of it counts as half of it. 'Of the mean' is the model that always answers the mean."
        )
    if found.get("asked") == "right":
        notes.append(
            "The accuracy of the most frequent class is not counted with 'right'; ask for 'confusion' to have it."
        )
    return notes
