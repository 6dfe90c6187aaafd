"""The losses' own formulas as C: they are called with terms in place of numbers, and what they do is written down.

So a loss is still one row of `LOSSES`. What a formula does beyond the ufuncs below is not known here, and its loss is
refused by name.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from sottovoce.problem.losses import Formula, Loss

WRITTEN: dict[Any, str] = {
    np.add: "({} + {})",
    np.subtract: "({} - {})",
    np.multiply: "({} * {})",
    np.divide: "({} / {})",
    np.negative: "(-{})",
    np.square: "square({})",
    np.absolute: "fabsf({})",
    np.sign: "sign({})",
    np.exp: "expf({})",
    np.log: "logf({})",
    np.log1p: "log1pf({})",
    np.sqrt: "sqrtf({})",
    np.tanh: "tanhf({})",
    np.minimum: "fminf({}, {})",
    np.maximum: "fmaxf({}, {})",
    np.less: "({} < {} ? 1.0f : 0.0f)",
    np.less_equal: "({} <= {} ? 1.0f : 0.0f)",
    np.greater: "({} > {} ? 1.0f : 0.0f)",
    np.greater_equal: "({} >= {} ? 1.0f : 0.0f)",
}
"""What each ufunc is in C, in float32."""


class Term(NDArrayOperatorsMixin):
    """An expression in C that stands for a number."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        """The expression of what the ufunc would give."""
        if method != "__call__" or named or ufunc not in WRITTEN:
            return NotImplemented
        return Term(WRITTEN[ufunc].format(*map(_text, given)))


def _text(value: Any) -> str:
    if isinstance(value, Term):
        return value.text
    number = float(value)
    if not np.isfinite(number):
        raise TypeError(f"no number can be written down for {number}")
    return f"{number!r}f" if number >= 0 else f"({number!r}f)"


def written(formula: Formula) -> str | None:
    """A formula of (u, y, parameter) as a C expression in u, y and k; None where it does what is not known here.

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> written(LOSSES.make("hinge").slope_formula)
    '((-y) * ((y * u) < 1.0f ? 1.0f : 0.0f))'
    """
    try:
        found = formula(Term("u"), Term("y"), Term("k"))  # type: ignore[arg-type]
    except Exception:  # whatever it is that a formula cannot do with terms
        return None
    return found.text if isinstance(found, Term) else None


def known(losses: Mapping[str, Loss]) -> dict[str, Loss]:
    """The losses of one output whose slopes can be written down, by name."""
    return {name: loss for name, loss in losses.items() if loss.targets != "classes" and written(loss.slope_formula)}


def slopes(losses: Mapping[str, Loss]) -> str:
    """One C function of all these slopes; the code of a loss is its place."""
    lines = [f"  if (code == {k}) return {written(loss.slope_formula)};" for k, loss in enumerate(losses.values())]
    head = "INSIDE float slope(int code, float u, float y, float k) {"
    return "\n".join([head, *lines, "  return 0.0f / 0.0f;", "}"])
