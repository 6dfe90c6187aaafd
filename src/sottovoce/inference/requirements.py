"""How many records intervals need, from public numbers, before anything is spent.

The released curvature has to be over its own noise in every direction: strength = λ_min(Ĥ)/(s_H √(2p)) is at least
1.5. With s_H = z₁ √2 R² w_max/(N √share), w_max = 2 w̄ and k = R²/(p λ_min(G)) that is

    strength ≈ N √share / (4 z₁ k p^1.5)

for a logistic model and, with the statistics' own sensitivity √2 · 2R², for a linear one. k is 4 to 5 where columns
are hardly correlated and about 15 where two have a correlation of 0.9.
"""

import math

from sottovoce.errors import PrivacyError
from sottovoce.inference.estimate import LINEAR_SHARES, LOGISTIC_SHARES, SHARE, WEAKEST
from sottovoce.inference.hazard import SHARES as HAZARD_SHARES
from sottovoce.inference.hazard import W_MEANS

HARDLY_CORRELATED = 4.5
"""k of columns that are hardly correlated: data with less than this needs are refused before anything is spent."""


def expected_strength(
    loss: str, units: float, features: int, multiplier: float, factor: float = 1.0, k: float = HARDLY_CORRELATED
) -> float:
    """The strength that public numbers let expect.

    Parameters
    ----------
    loss : 'logistic', 'squared', 'poisson' or 'hazard'
    units, features : N, and columns without the constant
    multiplier : z₁ of one release at (ε, δ)
    factor : by what the noise of several owners is larger than that of one
    k : R²/(p λ_min(G))
    """
    share = {
        "squared": SHARE * LINEAR_SHARES["gram"],
        "logistic": SHARE * LOGISTIC_SHARES["curvature"],
        "poisson": LOGISTIC_SHARES["curvature"] * (2.0 / 3.0) ** 2,  # has the whole budget, and w_max = 3 w̄
        "hazard": HAZARD_SHARES["curvature"] * (2.0 / W_MEANS) ** 2,
    }[loss]
    return units * math.sqrt(share) / (4.0 * multiplier * factor * k * (features + 1) ** 1.5)


def records_needed(loss: str, features: int, multiplier: float, factor: float = 1.0) -> int:
    """The smallest number of records that is not refused, rounded up to two digits.

    Examples
    --------
    >>> records_needed("logistic", 5, 3.73), records_needed("logistic", 20, 3.73)
    (3100, 20000)
    """
    exact = WEAKEST / expected_strength(loss, 1.0, features, multiplier, factor)
    digit = 10.0 ** (math.floor(math.log10(exact)) - 1)
    return int(math.ceil(exact / digit - 1e-9) * digit)


def check_enough(
    loss: str,
    units: int,
    features: int,
    multiplier: float,
    epsilon: float,
    factor: float = 1.0,
    of: str = "records",
    intervals: int = 1,
) -> None:
    """Refuse intervals that cannot be had, before anything is spent; every interval of time has a constant.

    Examples
    --------
    >>> check_enough("logistic", 12_000, 20, 3.73, 1.0)
    Traceback (most recent call last):
    sottovoce.errors.PrivacyError: intervals for 20 columns at ε = 1 need about 20,000 records, and more if columns ...
    """
    needed = records_needed(loss, features + intervals - 1, multiplier, factor)
    if units >= needed:
        return
    kept = max(1, int((features + intervals - 1) * (units / needed) ** (2.0 / 3.0)))
    what = f"{features} columns" if intervals == 1 else f"{features} columns and {intervals} times"
    keep = f"about {kept} columns" if intervals == 1 else f"about {kept} columns and times together"
    raise PrivacyError(
        f"intervals for {what} at ε = {epsilon:g} need about {needed:,} {of}, and more if columns are "
        f"correlated; there are {units:,}: keep {keep}, take ε ≈ {epsilon * needed / units:.2g}, or "
        "leave inference out"
    )
