"""The threshold between two classes: a constant that is added to a model's scores after the last round.

`privacy.balance` releases noisy statistics of the scores: the median and the spread of all of them, then the number of
each class in each of ten cells. They show the common class well: its share below each edge, and so the position g of
each edge in units of a normal law. For the rare class one number is estimated, its shift Δ upwards in the same units,
since noisy counts of a few hundred records show no more. Before
anything was counted every AUC was as likely as any other, and AUC is Φ(Δ/√2); after it a Δ is as likely as Bayes' rule
says, noise and sample both normal. The threshold is the t with the largest expected weighted accuracy,

    t = argmax  a E Φ(Δ − t) + (1 − a) Φ(t)          a: the part of all weight that the rare class has

halfway between the classes where Δ is known and a = ½; where noise exceeds the counts, the best available guess.
Where no prior is known (`threshold_without_prior`), the range is that of the normal law whose shares in cells of every
size are nearest to the noisy ones. Three numbers are then estimated beside Δ in the same way, all values equally likely
before anything was counted: how likely the second class is, where the first one lies, and how wide both are. All
records count the same: t is where most answers are right, among those at which either class is answered sometimes.

Scores are moved by −t, in every node's model equally, so that the predicted class changes at 0, as with class
weights. As there, probabilities are those of the weighted classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.privacy.one_shot import BRANCHES, NESTED_CELLS, SCORE_CELLS, SCORE_EDGES, Balance
from sottovoce.problem.scores import row_scores
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared
from sottovoce.run.one_shot import CellShares, Found, Noisy, OneShotRelease, Query
from sottovoce.run.spec import Spec
from sottovoce.run.target_range import cells
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

DEVIATION = 0.158655
"""Share of a normal law that is more than one deviation below its middle."""
SHIFTS = np.arange(0.0, 4.001, 0.05)
"""Δ that are thought of."""
TRIED = np.linspace(-2.5, 2.5, 501)
"""Thresholds that are tried, in units of the common class's law."""
SHARE_DEVIATIONS = 3.0
"""Deviations of noise by which a share is surely something."""
FARTHEST = 1e-4
"""Share of the common class beyond an edge that is believed, at the least."""
LEAST = 0.1
"""Deviations of the common class between two edges, at the least; by what the edges were made from it is about ½."""
MIDDLES, SPREADS = np.linspace(-1.0, 1.0, 161), np.geomspace(0.004, 0.5, 22)
"""Normal laws of all scores that are thought of, in units of their public range."""
PRIORS, PLACES, WIDTHS = np.linspace(0.02, 0.98, 25), np.linspace(-2.5, 1.5, 17), np.array([0.5, 0.75, 1.0])
"""Without a prior: how likely the second class may be, where the first may lie between the edges, and how wide both."""
LEAST_ANSWERS = 0.1
"""Answers of a class over how many records it has, at the least: a model that never names it is of no use."""
WIDE_SHIFTS = np.linspace(0.0, 3.5, 15)
"""Δ that are thought of there, in deviations of all scores together."""


def threshold(counts: Array, edges: Array, noise: float, records: float, prior: float, weight: float) -> float:
    """The score from which on to answer with the second class.

    Parameters
    ----------
    counts : (2, B) noisy, by class and by cell
    edges : (B − 1,) between the cells
    noise : the deviation in each count
    records : how many there are, all nodes together
    prior, weight : how likely the second class is, and what part of all weight it is to have

    Examples
    --------
    >>> edges, normal = np.linspace(-2, 2, 9), scipy.special.ndtr
    >>> each = [np.diff(np.concatenate([[0], normal(edges - mean), [1]])) for mean in (0.0, 2.0)]
    >>> round(threshold(np.array([9000, 1000])[:, None] * each, edges, 1.0, 10_000, 0.1, 0.5), 2)
    1.0
    """
    if prior > 0.5:  # the first class is the rare one: seen from the other end
        return -threshold(counts[::-1, ::-1], -edges[::-1], noise, records, 1.0 - prior, 1.0 - weight)
    common = records * (1.0 - prior)
    g = _places(counts[0] / common, edges, noise / common)
    below, ends = scipy.special.ndtr(g[None, :] - SHIFTS[:, None]), np.zeros((len(SHIFTS), 1))
    expected = records * prior * np.diff(np.concatenate([ends, below, ends + 1.0], axis=1), axis=1)
    variance = noise**2 + expected
    fit = np.sum(np.square(counts[1] - expected) / variance + np.log(variance), axis=1)
    likely = -fit / 2.0 - np.square(SHIFTS) / 4.0  # the density of Δ where that of AUC is even
    likely = np.exp(likely - likely.max())
    found = scipy.special.ndtr(SHIFTS[None, :] - TRIED[:, None]) @ (likely / likely.sum())
    best = TRIED[int(np.argmax(weight * found + (1.0 - weight) * scipy.special.ndtr(TRIED)))]
    return float(np.interp(best, g, edges))


def threshold_without_prior(classes: Array, shares: Array, edges: Array, noise: float, records: float) -> float:
    """The score from which on to answer with the second class, where only counts say how likely it is.

    Parameters
    ----------
    classes : (2,) noisy shares of the classes
    shares : (2, B) noisy, of all records, by class and by cell
    edges : (B − 1,) between the cells, evenly spaced
    noise : the deviation in each share
    records : how many there are, all nodes together

    Examples
    --------
    >>> edges, normal = np.linspace(-2, 2, 9), scipy.special.ndtr
    >>> each = [np.diff(np.concatenate([[0], normal((edges - mean) / 0.5), [1]])) for mean in (-1.0, 1.0)]
    >>> half = np.array([0.5, 0.5])
    >>> abs(round(threshold_without_prior(half, half[:, None] * each, edges, 0.001, 10_000), 1))
    0.0
    """
    unit = np.array(SCORE_EDGES)
    prior, place, shift, width = (
        each.reshape(-1, 1) for each in np.meshgrid(PRIORS, PLACES, WIDE_SHIFTS, WIDTHS, indexing="ij")
    )
    fit = -np.square(shift / width) / 4.0  # the density of Δ where that of AUC is even
    fit = fit - (np.square(classes[0] - 1.0 + prior) + np.square(classes[1] - prior)) / (2.0 * noise**2)
    for noisy, part, middle in zip(shares, (1.0 - prior, prior), (place, place + shift), strict=True):
        below = scipy.special.ndtr((unit - middle) / width)
        expected = part * np.diff(below, axis=1, prepend=0.0, append=1.0)
        variance = noise**2 + expected / records
        fit = fit - np.sum(np.square(noisy - expected) / variance + np.log(variance), axis=1, keepdims=True) / 2.0
    likely = np.exp(fit - fit.max())
    likely /= likely.sum()
    tried = TRIED[::10]
    first, second = np.array(
        [
            (float(np.sum(likely * part * scipy.special.ndtr((at - middle) / width))))
            for part, middle in ((1.0 - prior, place), (prior, place + shift))
            for at in tried
        ]
    ).reshape(2, -1)  # shares of all records: of either class and below
    common = float(np.sum(likely * prior))
    below = first + second
    enough = (below >= LEAST_ANSWERS * (1.0 - common)) & (1.0 - below >= LEAST_ANSWERS * common)
    right = np.where(enough, first + common - second, -1.0)
    at = tried[int(np.argmax(right))]  # it may be beyond the edges, where these are too narrow
    middle = len(edges) // 2
    return float(edges[middle] + at * (edges[-1] - edges[0]) / (unit[-1] - unit[0]))


def fitted_range(levels: list[Array], noise: float) -> tuple[float, float]:
    """Middle and deviation of a normal law of all scores: their means, each as likely as noisy shares make it.

    Parameters
    ----------
    levels : noisy shares in cells of every size
    noise : the deviation in each

    Examples
    --------
    >>> cells = [np.bincount([k * 13 // 20], minlength=k) for k in NESTED_CELLS]
    >>> middle, spread = fitted_range(cells, 0.01)
    >>> abs(middle - 0.3) < 0.01, spread < 0.01
    (True, True)
    """
    finest, far = np.linspace(-1.0, 1.0, NESTED_CELLS[-1] + 1), np.zeros((len(SPREADS), len(MIDDLES)))
    for found, spread in zip(far, SPREADS, strict=True):
        below = scipy.special.ndtr((finest - MIDDLES[:, None]) / spread)
        below[:, 0], below[:, -1] = 0.0, 1.0  # scores beyond their range are at its ends
        for noisy in levels:
            found += np.sum(np.square(np.diff(below[:, :: NESTED_CELLS[-1] // len(noisy)], axis=1) - noisy), axis=1)
    likely = np.exp((far.min() - far) / (2.0 * noise**2))
    likely /= likely.sum()
    return float(likely.sum(axis=0) @ MIDDLES), float(np.exp(likely.sum(axis=1) @ np.log(SPREADS)))


def _places(shares: Array, edges: Array, deviation: float) -> Array:
    """Where edges are in units of a normal law, by noisy shares in the cells between them.

    What lies below an edge is added up from the nearer end, and believed where it is surely something, on either side;
    edges further out follow on a straight line, of the slope that the others have together.
    """
    count = len(edges)
    left, right = np.cumsum(shares)[:-1], np.cumsum(shares[::-1])[::-1][1:]
    nearer = np.arange(count) < count / 2
    below = np.maximum.accumulate(np.where(nearer, left, 1.0 - right))
    added = np.where(nearer, np.arange(1, count + 1), np.arange(count, 0, -1))  # cells
    sure = np.minimum(below, 1.0 - below) > np.maximum(SHARE_DEVIATIONS * deviation * np.sqrt(added), FARTHEST)
    sure &= np.diff(below, prepend=-np.inf) > 0
    if sure.sum() < 2:
        return np.array(SCORE_EDGES)
    g, at = scipy.special.ndtri(below[sure]), edges[sure]
    slope = float(np.polyfit(at, g, 1, w=np.exp(-np.square(g) / 2.0))[0])  # shares are most precise in the middle
    slope = max(slope, LEAST / (edges[1] - edges[0]))
    outside = np.where(edges < at[0], g[0] + slope * (edges - at[0]), g[-1] + slope * (edges - at[-1]))
    return np.asarray(np.where((edges >= at[0]) & (edges <= at[-1]), np.interp(edges, at, g), outside))


@dataclass(frozen=True, eq=False)
class ScoreCells(CellShares[Array]):
    """The first part: of all scores, within [−1, 1], in which cells they are. The edges of the second part follow.

    Attributes
    ----------
    balance : for which share of the budget, and to which end
    scores : of every row, in units of their public range
    """

    balance: Balance
    scores: Array
    kinds: ClassVar[Sequence[int]] = NESTED_CELLS

    @property
    def factor(self) -> float:
        """What entries of φ are, where they are not 0."""
        return self.balance.where.factor

    def cells(self, shards: Shards) -> list[IntArray]:
        """Of every score."""
        return cells(self.scores)

    def finish(self, noisy: Noisy) -> Array:
        """Edges between the cells of the second part: deviations from the median, as the counts have it."""
        levels = np.split(noisy.mean / self.factor, np.cumsum(NESTED_CELLS)[:-1])
        if not self.balance.prior:
            center, deviation = fitted_range(levels, noisy.deviation / self.factor)
            return np.asarray(center + deviation * np.array(SCORE_EDGES))
        low, middle, high = (_quantile(levels, share) for share in (DEVIATION, 0.5, 1.0 - DEVIATION))
        spread = max((high - low) / 2.0, 1.0 / NESTED_CELLS[-1])
        return np.asarray(2.0 * (middle + spread * np.array(SCORE_EDGES)) - 1.0)


@dataclass(frozen=True, eq=False)
class ClassCells(CellShares[float]):
    """The second part: of either class, in which cells between the edges its scores are. The threshold follows."""

    balance: Balance
    scores: Array
    edges: Array

    @property
    def kinds(self) -> Sequence[int]:
        """Without a prior the two classes, too."""
        return self.balance.class_kinds

    @property
    def factor(self) -> float:
        """What entries of φ are, where they are not 0."""
        return self.balance.factor

    def cells(self, shards: Shards) -> list[IntArray]:
        """Of every score and class."""
        second = shards.y > 0
        found = [np.searchsorted(self.edges, self.scores, side="right") + SCORE_CELLS // 2 * second]
        return found if self.balance.prior else [second.astype(np.int64), *found]

    def finish(self, noisy: Noisy) -> float:
        """The score from which on to answer with the second class."""
        records, factor = noisy.units, self.factor
        if not self.balance.prior:
            classes, shares = noisy.mean[:2] / factor, noisy.mean[2:].reshape(2, -1) / factor
            return threshold_without_prior(classes, shares, self.edges, noisy.deviation / factor, records)
        counts = records * noisy.mean.reshape(2, -1) / factor
        noise = noisy.sum_deviation / factor
        return threshold(counts, self.edges, noise, records, self.balance.prior, self.balance.weight)


def _quantile(levels: list[Array], share: float) -> float:
    """Where a share of all scores lies below, in [0, 1], from noisy shares in cells of each size.

    Of a cell that holds the place by its own count, the last part does where the parts' counts do not add up to it:
    scores without their constant have their median at 0, as a rule, which is an end of cells of every size.
    """
    cell, below = 0, 0.0
    for shares in levels:
        first = BRANCHES * cell
        sums = below + np.cumsum(shares[first : first + BRANCHES - 1])
        part = int(np.argmax(np.append(sums >= share, True)))
        cell, below = first + part, float(sums[part - 1]) if part else below
    return (cell + 0.5) / NESTED_CELLS[-1]


def last_queries(balance: Balance, scores: Array, edges: Array) -> tuple[ScoreCells, ClassCells]:
    """Both parts, in the order in which they are released: where all scores are, and where those of either class."""
    return ScoreCells(balance, scores), ClassCells(balance, scores, edges)


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores that are counted: of every row, under one public model.

    Attributes
    ----------
    balance : for which share of the budget, and to which end
    scores : in units of their public range, without the constant
    constant, reach : the model's constant term, and that range
    """

    balance: Balance
    scores: Array
    constant: float
    reach: float

    @classmethod
    def of(cls, spec: Spec, shards: Shards, model: Array) -> "Scored":
        """Of records as they came, under a model of such records."""
        problem, constant = spec.problem, spec.problem.intercept * float(model[-1])
        reach = max(problem.row_norm * float(np.linalg.norm(model[:-1])), np.finfo(float).tiny)
        weights = model[:-1] if problem.intercept else model
        return cls(spec.privacy.balance, np.clip(row_scores(shards.X, weights) / reach, -1.0, 1.0), constant, reach)

    def where(self) -> ScoreCells:
        """The first part."""
        return last_queries(self.balance, self.scores, np.empty(0))[0]

    def classes(self, edges: Array) -> ClassCells:
        """The second part, between the edges that follow from the first."""
        return last_queries(self.balance, self.scores, edges)[1]

    def moved(self, found: float) -> float:
        """What is added to every score for the threshold that follows from the second."""
        return -(self.constant + self.reach * found)


def balanced(prepared: Prepared, state: State, secure: bool = True) -> Prepared:
    """The run after its last round, with the constant that is added to its scores.

    Parameters
    ----------
    prepared, state : the run, and where it ended
    secure : as in `run.build.prepare`: whether releases of a run without a seed are to be secure ones
    """
    spec, shards, release = prepared.spec, prepared.original.shards, prepared.job.release.before
    assert release is not None
    T, streams, secret = spec.algorithm.rounds, Streams(spec.seed), secure and not prepared.seeded
    scored = Scored.of(spec, shards, prepared.models(state, T).mean(axis=0))

    def found(query: Query[Found], when: int) -> Found:
        part = OneShotRelease(query, release, shards.sizes, when)
        return part.finish(part.released(shards, streams, fresh() if secret else None))

    moved = scored.moved(found(scored.classes(found(scored.where(), T + 1)), T + 2))
    public = prepared.public.copy()
    public["moved"] = moved
    return replace(prepared, public=public, moved=moved)
