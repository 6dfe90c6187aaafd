"""Public numbers by which each record is scaled by itself before it meets the model.

A run uses rows within a bound, and a regression often targets mapped to [−1, 1]. To apply the model to new records,
scale them in the same way; the model itself is the released one, to the last bit.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sottovoce._types import Matrix
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import is_sparse, row_norms


@dataclass(frozen=True)
class Scale:
    """How new records meet a model.

    Attributes
    ----------
    bound : rows longer than this are scaled down to it, each by itself; None where rows are taken as they are
    unit : what rows are divided by then
    targets : the public range that [−1, 1] stands for in a regression; None where the model speaks in targets' units
    threshold : the score from which on the answer is the second of two classes
    link : (a, b) of the probabilities 1/(1 + e^−(a s + b)) of a score s, where they are known

    Examples
    --------
    >>> scale = Scale(bound=5.0, unit=5.0, targets=(0.0, 10.0))
    >>> scale.rows(np.array([[3.0, 4.0], [6.0, 8.0]])).round(6), scale.half, scale.middle
    (array([[3., 4.], [3., 4.]]), 5.0, 5.0)
    """

    bound: float | None = None
    unit: float = 1.0
    targets: tuple[float, float] | None = None
    threshold: float = 0.0
    link: tuple[float, float] | None = None

    @property
    def half(self) -> float:
        """By which a score is multiplied."""
        return 1.0 if self.targets is None else (self.targets[1] - self.targets[0]) / 2

    @property
    def middle(self) -> float:
        """What is added to it."""
        return 0.0 if self.targets is None else (self.targets[0] + self.targets[1]) / 2

    def rows(self, X: Matrix) -> Matrix:
        """Rows within the bound, in the units that they came in."""
        if self.bound is None:
            return X
        norms = row_norms(X)
        factor = np.where(norms > self.bound, self.bound / np.maximum(norms, self.bound), 1.0)
        return X.multiply(factor[:, None]).tocsr() if is_sparse(X) else X * factor[:, None]

    def with_threshold(self, threshold: float) -> "Scale":
        """The same with another public threshold between two classes."""
        if not np.isfinite(threshold):
            raise SpecError(f"the threshold must be a finite number, not {threshold!r}")
        return replace(self, threshold=float(threshold))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> "Scale":
        """Read `to_dict` back; what is no scale is refused."""
        try:
            pairs = {name: None if data[name] is None else _pair(data[name]) for name in ("targets", "link")}
            bound = None if data["bound"] is None else float(data["bound"])
            made = cls(bound, float(data["unit"]), threshold=float(data["threshold"]), **pairs)
            widths = [made.unit, 1.0 if bound is None else bound]
            if not np.all(np.isfinite([made.threshold, *widths])) or min(widths) <= 0:
                raise ValueError
            return made
        except (KeyError, TypeError, ValueError):
            raise DataError("the result says in no readable way how records meet its model; make it anew") from None


AS_IT_IS = Scale()
"""Of models in the units of records and targets."""


def _pair(values: Any) -> tuple[float, float]:
    low, high = (float(value) for value in values)
    if not np.all(np.isfinite([low, high])):
        raise ValueError
    return low, high
