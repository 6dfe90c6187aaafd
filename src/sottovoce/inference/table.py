"""A table of estimates with standard errors, intervals and p-values, as statistics packages print it."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import SpecError

WHY = (
    "Estimates are corrected ones, not coef_: coef_ is regularized, stopped early and noisy, so intervals around it "
    "would rarely cover the truth. Standard errors count sampling and privacy noise."
)


@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Estimates in the units of the columns, with intervals.

    Attributes
    ----------
    names : of the columns and, last, of the constant terms
    estimates, covariance : with everything that moves them: sampling and privacy noise
    sampling : the part of the covariance that there would be without privacy
    units, unit : how many records or people there are
    outcome : what is modelled
    confidence : of the intervals
    ratio : 'odds ratio', 'rate ratio' or '', what e^estimate is
    statement : the privacy statement in one line
    note : what the estimates and standard errors are
    constants : how many constant terms there are

    Examples
    --------
    >>> table = CoefficientTable(
    ...     ("age", "(constant)"), np.array([0.5, -1.0]), np.diag([0.04, 0.01]), np.diag([0.01, 0.01]), 900, "record",
    ...     "class 'yes'", 0.95, "odds ratio", "Every record has (ε = 1, δ = 1e-05)-differential privacy."
    ... )
    >>> print(table)
    Intervals for class 'yes' · 900 records · 95 % confidence
                estimate  std. error       z  P>|z|  [0.025  0.975]  odds ratio  [0.025  0.975]
    age              0.5         0.2    2.50  0.012   0.108   0.892        1.65    1.11    2.44
    (constant)        -1         0.1  -10.00  0.000    -1.2  -0.804       0.368   0.302   0.448
    Estimates are corrected ones, not coef_: coef_ is regularized, stopped early and noisy, so intervals around it ...
    Every record has (ε = 1, δ = 1e-05)-differential privacy.
    """

    names: tuple[str, ...]
    estimates: Array
    covariance: Array
    sampling: Array
    units: int
    unit: str
    outcome: str
    confidence: float
    ratio: str
    statement: str
    note: str = WHY
    constants: int = 1

    def __post_init__(self) -> None:
        """A confidence that is one."""
        if not 0 < self.confidence < 1:
            raise SpecError(f"confidence is a probability strictly between 0 and 1, not {self.confidence!r}")

    @property
    def errors(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def sampling_errors(self) -> Array:
        """What standard errors would be without privacy, as far as the releases show."""
        return np.sqrt(np.maximum(np.diag(self.sampling), 0.0))

    @property
    def intervals(self) -> Array:
        """(estimates, 2) low and high ends."""
        width = float(scipy.special.ndtri((1.0 + self.confidence) / 2.0)) * self.errors
        return np.stack([self.estimates - width, self.estimates + width], axis=1)

    @property
    def z(self) -> Array:
        """Estimates in units of their standard errors."""
        return np.asarray(self.estimates / np.maximum(self.errors, np.finfo(float).tiny))

    @property
    def p_values(self) -> Array:
        """Of the hypothesis that a coefficient is 0, two-sided."""
        return np.asarray(2.0 * scipy.special.ndtr(-np.abs(self.z)))

    def in_raw_units(self, bounds: Sequence[tuple[float, float] | None]) -> "CoefficientTable":
        """The same table for columns that a schema brought to [−1, 1], in the units that they had before.

        Parameters
        ----------
        bounds : what −1 and 1 of every column stand for (`Schema.raw_bounds`); None for columns that stay as they are

        Examples
        --------
        >>> table = CoefficientTable(
        ...     ("age", "(constant)"), np.array([2.0, 1.0]), np.eye(2), np.eye(2), 900, "record", "target", 0.95, "", ""
        ... )
        >>> raw = table.in_raw_units([(20.0, 60.0)])
        >>> raw.estimates, raw.errors.round(3)
        (array([ 0.1, -3. ]), array([0.05 , 2.236]))
        """
        columns = len(self.names) - self.constants
        if len(bounds) != columns:
            raise SpecError(f"the table has {columns} columns, but the schema makes {len(bounds)} features")
        A = np.eye(len(self.names))
        for j, ends in enumerate(bounds):
            if ends is not None:
                low, high = ends
                A[j, j], A[columns:, j] = 2.0 / (high - low), -(high + low) / (high - low)
        covariance, sampling = (A @ each @ A.T for each in (self.covariance, self.sampling))
        return replace(self, estimates=A @ self.estimates, covariance=covariance, sampling=sampling)

    def columns(self) -> dict[str, Array]:
        """The numbers by column, as `to_frame` and `to_dict` have them."""
        low, high = self.intervals.T
        found = {
            "estimate": self.estimates,
            "std. error": self.errors,
            "std. error without privacy": self.sampling_errors,
            "z": self.z,
            "P>|z|": self.p_values,
            "low": low,
            "high": high,
        }
        if self.ratio:
            with np.errstate(over="ignore"):
                ends = np.exp(np.stack([self.estimates, low, high]))
            found |= {self.ratio: ends[0], f"{self.ratio} low": ends[1], f"{self.ratio} high": ends[2]}
        return found

    def to_frame(self) -> Any:
        """A pandas data frame, one row a coefficient."""
        try:
            pd = importlib.import_module("pandas")
        except ImportError:
            raise SpecError("a data frame needs pandas; install it, or take to_dict()") from None
        return pd.DataFrame(self.columns(), index=list(self.names))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {name: values.tolist() for name, values in self.columns().items()}
        return {
            "names": list(self.names), "units": self.units, "unit": self.unit, "outcome": self.outcome,
            "confidence": self.confidence, "statement": self.statement, "note": self.note,
        } | plain  # fmt: skip

    def rows(self) -> list[list[str]]:
        """The cells of the printed table, its head first."""
        ends = [f"[{(1 - self.confidence) / 2:.4g}", f"{(1 + self.confidence) / 2:.4g}]"]
        numbers = self.columns()
        shown = ["estimate", "std. error", "z", "P>|z|", "low", "high"]
        shown += [self.ratio, f"{self.ratio} low", f"{self.ratio} high"] if self.ratio else []
        head = ["", "estimate", "std. error", "z", "P>|z|", *ends, *([self.ratio, *ends] if self.ratio else [])]
        form = {"z": "{:.2f}", "P>|z|": "{:.3f}"}
        body = [
            [name, *(form.get(column, "{:.3g}").format(numbers[column][k]) for column in shown)]
            for k, name in enumerate(self.names)
        ]
        return [head, *body]

    def __str__(self) -> str:
        """As statistics packages print it, with the statement beneath."""
        rows = self.rows()
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(row, widths, strict=True)) for row in rows)
        ]
        plural = "people" if self.unit == "person" else f"{self.unit}s"
        title = f"Intervals for {self.outcome} · {self.units:,} {plural} · {100 * self.confidence:g} % confidence"
        return "\n".join([title, *lines, self.note, self.statement])

    __repr__ = __str__
