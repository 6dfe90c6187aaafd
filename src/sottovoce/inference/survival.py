"""Survival curves and a log-rank test from one release of counts.

Every record falls into one cell: its group, the public interval in which it left, and whether by an event or censored;
one more cell of each group is of those who were still there at the end. Another record moves two counts by 1: all
counts together are one release with sensitivity √2. Everything here is post-processing of the noisy counts.

Within an interval of d events and c censored, of n who entered it, n − c/2 are at risk (the actuarial rule), and

    S_k = Π_{i≤k} (1 − d_i/n_i),    Var log S_k = Σ_{i≤k} d_i/(n_i (n_i − d_i)) + s² (‖J‖² − (ΣJ)²/M)

where n_i are those at risk, J is the gradient of log S_k in the counts and s the deviation of the noise in each. The
number of all records is public, so the mean of the noise is known and taken off; that is the last term, M being the
number of all counts. Counts below 0 stay: setting them to 0 would bias everything that is added up from them.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array
from sottovoce.errors import PrivacyError

FEWEST, FEWEST_DEVIATIONS = 10.0, 5.0
"""At risk, at least, for a curve to go on: so many, and so many deviations of the noise in a count."""
STEEP = 2.0
"""Intervals are on the log(−log) scale where −log S is over so many of its standard errors, else on that of log S."""


class Counts(NamedTuple):
    """Noisy counts, whose sum is the number of records.

    Attributes
    ----------
    events, censored : (groups, K) by interval
    beyond : (groups,) those still there after the last interval
    deviation : s, of the noise in each count, before its mean was taken off
    cells : M, how many counts were released
    """

    events: Array
    censored: Array
    beyond: Array
    deviation: float
    cells: int

    @property
    def at_risk(self) -> Array:
        """(groups, K) by the actuarial rule, from the end: those who leave later, and half of the censored."""
        left = self.events + self.censored
        later = np.cumsum(left[:, ::-1], axis=1)[:, ::-1] + self.beyond[:, None]
        return np.asarray(later - self.censored / 2.0)

    def known(self, risk: Array) -> Array:
        """Up to which intervals so many at risk are enough: a mask that stays false once it is."""
        enough = risk >= max(FEWEST_DEVIATIONS * self.deviation, FEWEST)
        return np.asarray(np.logical_and.accumulate(enough, axis=-1))


def counts_of(released: Array, groups: int, records: int, deviation: float) -> Counts:
    """Counts from what was released, in the order of `cell_numbers`.

    Parameters
    ----------
    released : (groups · (2K + 1) + 1,) noisy; the last one is of records that cannot be used
    groups, records : how many there are; public
    deviation : s
    """
    corrected = released - (released.sum() - records) / len(released)
    table = corrected[:-1].reshape(groups, -1)
    K = (table.shape[1] - 1) // 2
    return Counts(table[:, :K], table[:, K : 2 * K], table[:, -1], deviation, len(released))


class Curve(NamedTuple):
    """A survival curve at the ends of the intervals, as far as it is known.

    Attributes
    ----------
    times : ends of intervals
    survival, low, high : S and its pointwise interval
    error : standard error of log S
    sampling_error : the same without privacy noise
    at_risk, events : estimates by interval
    """

    times: Array
    survival: Array
    low: Array
    high: Array
    error: Array
    sampling_error: Array
    at_risk: Array
    events: Array

    def at(self, time: float) -> tuple[float, float, float]:
        """S and its interval at a time: those of the last interval that ends by then; refused after the last one."""
        if not 0 <= time <= self.times[-1]:
            raise PrivacyError(f"the curve is known from 0 to {self.times[-1]:g}; {time:g} is beyond")
        place = int(np.searchsorted(self.times, time, side="right"))
        if place == 0:
            return 1.0, 1.0, 1.0
        return float(self.survival[place - 1]), float(self.low[place - 1]), float(self.high[place - 1])

    @property
    def median(self) -> float:
        """The end of the first interval with S at most ½; infinite where the curve stays above."""
        below = np.flatnonzero(self.survival <= 0.5)
        return float(self.times[below[0]]) if len(below) else math.inf


def survival_curve(counts: Counts, group: int, times: Array, confidence: float = 0.95) -> Curve:
    """The Kaplan–Meier curve of a group, with intervals that count sampling and privacy noise.

    Examples
    --------
    >>> counts = Counts(np.array([[50.0, 40.0]]), np.array([[20.0, 0.0]]), np.array([890.0]), 0.0, 6)
    >>> curve = survival_curve(counts, 0, np.array([1.0, 2.0]))
    >>> curve.survival.round(4), curve.at_risk
    (array([0.9495, 0.9087]), array([990., 930.]))
    """
    d, n = counts.events[group], counts.at_risk[group]
    count = int(np.sum(counts.known(n) & np.logical_and.accumulate(n - d > 0)))
    if count == 0:
        raise PrivacyError(
            f"too few are left beside the noise of deviation {counts.deviation:.3g} in every count; take fewer groups "
            "or a larger epsilon"
        )
    d, n = d[:count], n[:count]
    log_survival = np.cumsum(np.log1p(-d / n))
    rise = d / (n * (n - d))  # of log S_i in n_i
    sampling = np.cumsum(np.maximum(d, 0.0) / (n * (n - d)))
    total = np.cumsum(rise)
    private = np.empty(count)
    for k in range(count):
        # by the interval of the event, of the censored, and by those who leave after k
        events = total[: k + 1] - 1.0 / (n[: k + 1] - d[: k + 1])
        censored = total[: k + 1] - rise[: k + 1] / 2.0
        later = 2 * (counts.events.shape[1] - k - 1) + 1
        squares = events @ events + censored @ censored + later * total[k] ** 2
        private[k] = squares - (events.sum() + censored.sum() + later * total[k]) ** 2 / counts.cells
    variance = sampling + counts.deviation**2 * np.maximum(private, 0.0)
    error = np.sqrt(variance)
    low, high = interval_of_survival(log_survival, error, float(scipy.special.ndtri((1.0 + confidence) / 2.0)))
    S = np.minimum(np.exp(log_survival), 1.0)
    return Curve(np.asarray(times)[:count], S, low, high, error, np.sqrt(sampling), n, d)


def interval_of_survival(log_survival: Array, error: Array, z: float) -> tuple[Array, Array]:
    """Low and high ends of S."""
    hazard = np.maximum(-log_survival, 1e-300)
    steep = hazard > STEEP * error
    factor = np.exp(z * error / np.where(steep, hazard, 1.0))
    low = np.where(steep, np.exp(-hazard * factor), np.exp(log_survival - z * error))
    high = np.where(steep, np.exp(-hazard / factor), np.exp(log_survival + z * error))
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


class LogRank(NamedTuple):
    """A log-rank test of equal hazards in all groups.

    Attributes
    ----------
    statistic, freedom, p_value : χ², its degrees of freedom, and the p-value
    observed_less_expected : by group
    intervals : how many intervals it uses
    """

    statistic: float
    freedom: int
    p_value: float
    observed_less_expected: Array
    intervals: int

    def __str__(self) -> str:
        """One line."""
        return f"log-rank χ² = {self.statistic:.3g} with {self.freedom} degrees of freedom, p = {self.p_value:.3g}"


def log_rank(counts: Counts) -> LogRank:
    """The test from noisy counts: the variance of observed less expected events counts sampling and privacy noise.

    Examples
    --------
    >>> counts = Counts(np.array([[50.0], [20.0]]), np.zeros((2, 1)), np.array([450.0, 480.0]), 0.0, 7)
    >>> print(log_rank(counts))
    log-rank χ² = 13.8 with 1 degrees of freedom, p = 0.000202
    """
    G, K = counts.events.shape
    if G < 2:
        raise PrivacyError("a log-rank test needs two groups or more; fit with groups=[…]")
    used = int(np.sum(np.all(counts.known(counts.at_risk), axis=0)))
    if used == 0:
        raise PrivacyError("too few are left beside the noise in some group; take fewer groups or a larger epsilon")
    flat = np.concatenate([counts.events.ravel(), counts.censored.ravel(), counts.beyond])

    def difference(values: Array) -> Array:
        made = counts._replace(
            events=values[: G * K].reshape(G, K),
            censored=values[G * K : 2 * G * K].reshape(G, K),
            beyond=values[2 * G * K :],
        )
        n, d = made.at_risk[:, :used], made.events[:, :used]
        return np.asarray(np.sum(d - n * d.sum(axis=0) / n.sum(axis=0), axis=1))

    n, d = counts.at_risk[:, :used], np.maximum(counts.events[:, :used].sum(axis=0), 0.0)
    whole = n.sum(axis=0)
    shares = n / whole
    rate = d * (whole - d) / np.maximum(whole - 1.0, 1.0)
    variance = np.diag((shares * rate).sum(axis=1)) - (shares * rate) @ shares.T
    J = np.stack([difference(flat + e) - difference(flat - e) for e in 0.5 * np.eye(len(flat))], axis=1)
    private = counts.deviation**2 * (J @ J.T - np.outer(J.sum(axis=1), J.sum(axis=1)) / counts.cells)
    U, V = difference(flat), variance + private
    statistic = float(U[:-1] @ np.linalg.solve(V[:-1, :-1], U[:-1]))
    return LogRank(statistic, G - 1, float(scipy.special.chdtrc(G - 1, statistic)), U, used)
