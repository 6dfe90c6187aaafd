"""The threshold between two classes: a constant that is added to a model's scores after the last round.

What is known of the scores is what `privacy.balance` lets out: of all of them where their median is and how far they
spread, then how many of either class are in each of ten cells. The common class is known well by that: its share below
each edge, and so where each edge is in units of a normal law, g. Of the rare class one number is made, by how much it
lies higher, Δ, in the same units: a shift, since counts of a few hundred records with noise tell no more. Before
anything was counted every AUC was as likely as any other, and AUC is Φ(Δ/√2); after it a Δ is as likely as Bayes' rule
says, noise and sample both normal. The threshold is the t with the largest expected weighted accuracy,

    t = argmax  a E Φ(Δ − t) + (1 − a) Φ(t)          a: the part of all weight that the rare class has

halfway between the classes where Δ is known and a = ½; where noise drowns the counts, as good a guess as there is.
Scores are moved by −t, in every node's model alike, so that the answer changes at 0, as it does where classes are
weighed; and so probabilities are, as there, those of classes as the weights make them.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.privacy.balance import STEPS, WIDTH, Balance
from sottovoce.privacy.quantiles import BRANCHES, CELLS
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem
from sottovoce.run.build import Prepared
from sottovoce.run.shape import Keys, let_out
from sottovoce.run.targets import cells, exact_shares, mean_shares
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

DEVIATION = 0.158655
"""Share of a normal law that is more than one deviation below its middle."""
SHIFTS = np.arange(0.0, 4.001, 0.05)
"""Δ that are thought of."""
TRIED = np.linspace(-2.5, 2.5, 501)
"""Thresholds that are tried, in units of the common class's law."""
SURE = 3.0
"""Deviations of noise by which a share is surely something."""
FARTHEST = 1e-4
"""Share of the common class beyond an edge that is believed, at the least."""
LEAST = 0.1
"""Deviations of the common class between two edges, at the least; by what the edges were made from it is about ½."""


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
    sure = np.minimum(below, 1.0 - below) > np.maximum(SURE * deviation * np.sqrt(added), FARTHEST)
    sure &= np.diff(below, prepend=-np.inf) > 0
    if sure.sum() < 2:
        return np.array(STEPS)
    g, at = scipy.special.ndtri(below[sure]), edges[sure]
    slope = float(np.polyfit(at, g, 1, w=np.exp(-np.square(g) / 2.0))[0])  # shares tell the most about the middle
    slope = max(slope, LEAST / (edges[1] - edges[0]))
    outside = np.where(edges < at[0], g[0] + slope * (edges - at[0]), g[-1] + slope * (edges - at[-1]))
    return np.asarray(np.where((edges >= at[0]) & (edges <= at[-1]), np.interp(edges, at, g), outside))


@dataclass(frozen=True, eq=False)
class Scores:
    """The counts of scores, in units of their public range, [−1, 1]: what nodes let out, and what is made of it.

    Attributes
    ----------
    balance : for which share of the budget, and to which end
    release : with which noise; its events are the ones that are accounted
    sizes : q_i
    last : the number of rounds, after which noise is addressed
    """

    balance: Balance
    release: Release
    sizes: IntArray
    last: int

    def where(self, problem: Problem, scores: Array, streams: Streams, keys: Keys | None) -> Array:
        """(n, Σ cells) every node's noisy mean of the first part."""
        of = self.balance.where.factor, problem.shards, cells(scores), CELLS
        counted = partial(mean_shares, *of), partial(exact_shares, *of)
        return let_out(self.release, problem, sum(CELLS), *counted, streams, keys, self.last + 1)

    def edges(self, where: Array) -> Array:
        """Between the cells of the second part: deviations from the median, as the first says."""
        levels = np.split(self._mean(where) / self.balance.where.factor, np.cumsum(CELLS)[:-1])
        low, middle, high = (_quantile(levels, share) for share in (DEVIATION, 0.5, 1.0 - DEVIATION))
        spread = max((high - low) / 2.0, 1.0 / CELLS[-1])
        return np.asarray(2.0 * (middle + spread * np.array(STEPS)) - 1.0)

    def by_class(self, problem: Problem, scores: Array, edges: Array, streams: Streams, keys: Keys | None) -> Array:
        """(n, 2 · cells) every node's noisy mean of the second part."""
        cell = np.searchsorted(edges, scores, side="right") + WIDTH // 2 * (problem.shards.y > 0)
        of = self.balance.factor, problem.shards, [cell], (WIDTH,)
        counted = partial(mean_shares, *of), partial(exact_shares, *of)
        return let_out(self.release, problem, WIDTH, *counted, streams, keys, self.last + 2)

    def threshold(self, by_class: Array, edges: Array) -> float:
        """The score from which on to answer with the second class."""
        records, factor = float(self.sizes.sum()), self.balance.factor
        noise = float(np.linalg.norm(self.sizes * np.array(self.release.sigma)))  # what pairs share is gone from a sum
        counts = records * self._mean(by_class).reshape(2, -1) / factor
        return threshold(counts, edges, noise / factor, records, self.balance.prior, self.balance.weight)

    def _mean(self, released: Array) -> Array:
        return np.asarray(self.sizes / self.sizes.sum() @ released)


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
    return (cell + 0.5) / CELLS[-1]


def balanced(prepared: Prepared, state: State, secure: bool = True) -> Prepared:
    """The run after its last round, with the constant that is added to its scores.

    Parameters
    ----------
    prepared, state : the run, and where it ended
    secure : as in `run.build.prepare`: whether releases of a run without a seed are to be secure ones
    """
    spec, problem, before = prepared.spec, prepared.original, prepared.job.release.before
    assert before is not None
    model = prepared.models(state, spec.algorithm.rounds).mean(axis=0)
    constant = spec.problem.intercept * float(model[-1])
    reach = max(spec.problem.row_norm * float(np.linalg.norm(model[:-1])), np.finfo(float).tiny)
    scores = np.clip((problem.margins(model) - constant) / reach, -1.0, 1.0)
    asked = Scores(spec.privacy.balance, before, problem.shards.sizes, spec.algorithm.rounds)
    streams, secret = Streams(spec.seed), secure and not prepared.seeded
    edges = asked.edges(asked.where(problem, scores, streams, fresh() if secret else None))
    by_class = asked.by_class(problem, scores, edges, streams, fresh() if secret else None)
    moved = -(constant + reach * asked.threshold(by_class, edges))
    public = prepared.public.copy()
    public["moved"] = moved
    return replace(prepared, public=public, moved=moved)
