"""Whether released noise has the law that it should: exact probabilities of cells, also in the tail."""

import numpy as np
from scipy import stats

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


def cells_of(scale: float, draws: int, law: str = "gaussian", least: float = 8.0, most: int = 400):
    """Last whole number of every cell but the last: cells about equally likely in the middle, fine in the tails.

    In the tails, cells go on to the last that still expects `least` draws.
    """
    middle = np.linspace(0.0, 1.0, most + 1)[1:-1]
    far = LAWS[law].isf(np.geomspace(least / draws, 1 / most, 12))
    edges = np.concatenate([LAWS[law].ppf(middle), far, -far])
    return np.unique(np.floor(edges * scale).astype(np.int64))


def expected(cells, scale: float, law: str = "gaussian"):
    """The probability of every cell: differences of Φ at half-way points, from the nearer tail."""
    ends = (cells + 0.5) / scale
    below, above = LAWS[law].cdf(ends), LAWS[law].sf(ends)
    low = np.diff(below, prepend=0.0, append=1.0)
    high = -np.diff(above, prepend=1.0, append=0.0)
    return np.where(np.append(ends, np.inf) <= 0, low, high)


def counted(values, cells):
    """How many of these whole numbers lie in every cell."""
    return np.bincount(np.searchsorted(cells, values.ravel(), side="left"), minlength=len(cells) + 1)


def p_value(counts, cells, scale: float, law: str = "gaussian") -> float:
    """Of Pearson's χ²: cells that expect hardly any draws are taken together with the rest of their tail."""
    wanted = expected(cells, scale, law) * counts.sum()
    keep = wanted >= 5.0
    merged = (np.append(counts[keep], counts[~keep].sum()), np.append(wanted[keep], wanted[~keep].sum()))
    if merged[1][-1] < 5.0:
        merged = tuple(np.append(part[:-2], part[-2:].sum()) for part in merged)
    return float(stats.chisquare(*merged).pvalue)
