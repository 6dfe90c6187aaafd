"""What held-out records say of a model: functions of its scores and of the truth, by name; none of it is private."""

from collections.abc import Callable

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import SpecError
from sottovoce.evaluation.curves import figures

Metric = Callable[[Array, Array], float]
"""(scores of the held-out records, whether they are positive) -> a number; of a regression, (predictions, targets)."""
METRICS: dict[str, Metric] = {}
"""Those of plug-ins, in rows as ``test_<name>``, by which no ranking is made."""


def measured(scores: Array, y: Array, binary: bool) -> dict[str, float]:
    """Every metric of these records: ours of two classes, and those of plug-ins.

    Examples
    --------
    >>> found = measured(np.array([0.1, 0.2, 0.9]), np.array([-1.0, -1.0, 1.0]), binary=True)
    >>> found["test_auc"]
    1.0
    """
    truth = y > 0 if binary else y
    found = {}
    if binary:
        of = figures(scores, truth)
        found = {f"test_{name}": of[name] for name in ("auc", "balanced_accuracy", "average_precision")}
    for name, metric in METRICS.items():
        value = metric(np.array(scores), np.array(truth))
        try:
            found[f"test_{name}"] = float(value)
        except (TypeError, ValueError):
            raise SpecError(f"the metric '{name}' gave {value!r}; a metric gives one number") from None
    return found
