"""What counts of scores say of a classifier of two classes: AUC, precision, calibration, thresholds.

Everything here is a function of counts h (2, B): how many records of either class have a score in each of B bins, in
the order of the scores. Exact counts have a bin for each score; noisy ones come from a tally, few and wide, and may be
negative. Ties count half. Sums and products of sums use counts as they are, since noise in them is right on average;
ratios along the curve use what is left of them once they are brought to 0 or over.
"""

from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray


def exact(scores: Array, positive: Any) -> tuple[Array, Array]:
    """The distinct scores, and the counts of either class at each.

    Examples
    --------
    >>> exact(np.array([0.5, -1.0, 0.5]), np.array([1, 0, 0]))
    (array([-1. ,  0.5]), array([[1., 1.], [0., 1.]]))
    """
    values, place = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    mine = np.asarray(positive).astype(bool)
    counts = [np.bincount(place[which], minlength=len(values)) for which in (~mine, mine)]
    return values, np.array(counts, dtype=np.float64)


def auc(h: Array) -> float:
    """The chance that a positive has a higher score than a negative.

    Examples
    --------
    >>> auc(np.array([[2.0, 1.0], [1.0, 3.0]]))
    0.7083333333333334
    """
    below = np.cumsum(h[0]) - h[0] / 2
    return _share(float(np.dot(h[1], below)), float(h[0].sum() * h[1].sum()))


def average_precision(h: Array) -> float:
    """Σ (recall gained) × (precision there), down the scores.

    Examples
    --------
    >>> average_precision(np.array([[2.0, 0.0], [1.0, 3.0]]))
    0.9166666666666666
    """
    kept = np.maximum(h, 0.0)[:, ::-1]
    found, said = np.cumsum(kept[1]), np.cumsum(kept.sum(axis=0))
    precision = np.divide(found, said, out=np.zeros_like(found), where=said > 0)
    return _share(float(np.dot(kept[1], precision)), float(kept[1].sum()))


def confusion(h: Array, first: int) -> Array:
    """(2, 2) by class and by answer, where bins from `first` on are answered with the second class."""
    return np.stack([h[:, :first].sum(axis=1), h[:, first:].sum(axis=1)], axis=1)


def accuracy(table: Array) -> float:
    """Of a confusion matrix (class, answer): the share of right answers."""
    return _share(float(np.trace(table)), float(table.sum()))


def balanced_accuracy(table: Array) -> float:
    """The mean over classes of the share of right answers in each.

    Examples
    --------
    >>> balanced_accuracy(np.array([[90.0, 10.0], [5.0, 5.0]]))
    0.7
    """
    return float(np.mean([_share(float(row[k]), float(row.sum())) for k, row in enumerate(table)]))


def recall(table: Array, positive: int = 1) -> float:
    """The share of the records of the positive class that are answered with it, from a confusion matrix.

    Examples
    --------
    >>> recall(np.array([[90.0, 10.0], [5.0, 15.0]]))
    0.75
    """
    return _share(float(table[positive, positive]), float(table[positive].sum()))


def precision(table: Array, positive: int = 1) -> float:
    """The share of the answers with the positive class that are right, from a confusion matrix.

    Examples
    --------
    >>> precision(np.array([[90.0, 10.0], [5.0, 15.0]]))
    0.6
    """
    return _share(float(table[positive, positive]), float(table[:, positive].sum()))


def majority(h: Array) -> float:
    """The accuracy of always answering with the most frequent class, from counts whose first axis is the class.

    Examples
    --------
    >>> round(majority(np.array([[90.0, 10.0], [5.0, 15.0]])), 4)
    0.8333
    """
    of_class = h.reshape(len(h), -1).sum(axis=1)
    return _share(float(of_class.max()), float(of_class.sum()))


def with_positive(h: Array, positive: int) -> Array:
    """Counts of scores as seen for this positive class: its own counts second, and scores that favor it last.

    Examples
    --------
    >>> with_positive(np.array([[2.0, 1.0], [0.0, 3.0]]), 0)
    array([[3., 0.],
           [1., 2.]])
    """
    return h if positive == 1 else h[::-1, ::-1]


def calibration_error(probability: Array, h: Array) -> float:
    """Expected calibration error: how far, on average over records, a bin's share of positives is from what was said.

    Parameters
    ----------
    probability : what the model says, one for each bin
    h : counts

    Examples
    --------
    >>> round(calibration_error(np.array([0.1, 0.9]), np.array([[90.0, 20.0], [10.0, 80.0]])), 3)
    0.05
    """
    kept = np.maximum(h, 0.0)
    return _share(float(np.abs(kept[1] - probability * kept.sum(axis=0)).sum()), float(kept.sum()))


BINS = 15
"""Of equal width in which exact calibration errors are measured."""


def calibration_error_of(probability: Array, positive: Any) -> float:
    """The same from exact records: in bins of equal width, with the mean of what was said in each.

    Examples
    --------
    >>> calibration_error_of(np.array([0.0, 1.0, 1.0, 1.0]), np.array([0, 1, 1, 0]))
    0.25
    """
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    said, true = (np.bincount(place, weights=w, minlength=BINS) for w in (probability, np.asarray(positive, float)))
    return float(np.abs(said - true).sum() / len(probability))


def first_bin(h: Array, *, recall: float | None = None, rate: float | None = None) -> int:
    """From which bin on to answer with the second class, for this share of its records, or of all, to be so answered.

    For a recall: the highest threshold that reaches it. For a rate of positive answers: the one between two bins that
    comes nearest to it, since the bins at the ends may hold more than that rate, or than all but it.

    Examples
    --------
    >>> h = np.array([[60.0, 30.0, 10.0], [1.0, 4.0, 5.0]])
    >>> first_bin(h, recall=0.9), first_bin(h, rate=0.2), first_bin(h, rate=0.01)
    (1, 2, 2)
    """
    kept = np.maximum(h, 0.0)
    of = kept[1] if recall is not None else kept.sum(axis=0)
    above = shares_above(of)
    if recall is not None:
        return int(np.flatnonzero(above >= recall - 1e-12)[-1]) if of.sum() else 0
    assert rate is not None
    between = np.arange(1, len(of)) if len(of) > 1 else np.array([0, 1])
    return int(between[np.argmin(np.abs(above[between] - rate))])


def shares_above(counts: Array) -> Array:
    """The share of counts in each bin and over it, and 0 above all bins.

    Examples
    --------
    >>> shares_above(np.array([6.0, 3.0, 1.0])).round(3)
    array([1. , 0.4, 0.1, 0. ])
    """
    kept = np.maximum(counts, 0.0)
    return np.append(np.cumsum(kept[::-1])[::-1], 0.0) / (float(kept.sum()) or 1.0)


def platt(centers: Array, h: Array, noise: float, public: tuple[float, float]) -> tuple[float, float]:
    """(a, b) of the probabilities 1/(1 + e^−(a s + b)) that fit the counts best (Platt 1999), held back by the noise.

    The loss is a sum over counts, so that noise in them does not bend it; the more of it, the more is (a, b) held back
    near what it was before anything was counted.
    """
    scale = float(np.sqrt(np.average(np.square(centers), weights=np.maximum(h.sum(axis=0), 0.0) + 1e-9))) or 1.0
    u, hold, start = centers / scale, max(5.0 * noise, 1.0), np.array([public[0] * scale, public[1]])

    def loss(at: Array) -> float:
        a, b = at
        fit = np.dot(h[1], np.logaddexp(0.0, -(a * u + b))) + np.dot(h[0], np.logaddexp(0.0, a * u + b))
        return float(fit + hold * np.sum(np.square(at - start)) / 4) / max(float(np.abs(h).sum()), 1.0)

    found = scipy.optimize.minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, 30.0), (-15.0, 15.0)]).x
    return float(found[0] / scale), float(found[1])


STEEP = 1.5
"""Slope of the probabilities of losses that have none of their own, at margins of about 1."""


def public_link(loss: str) -> tuple[float, float]:
    """(a, b) of a loss's probabilities before anything was counted: its own, or, of hinges, as good a guess as any.

    On a9a, mushrooms and MNIST that is as well calibrated as the logistic loss, which is less accurate on the last two
    (docs/estimators.md).
    """
    return (1.0 if loss in ("logistic", "softmax") else STEEP), 0.0


def probabilities(scores: Array, loss: str, link: tuple[float, float] | None = None) -> Array:
    """(records, classes) the probability of every class, from one score a record or one a class.

    Parameters
    ----------
    scores : of a linear model
    loss : by the name of which the link is known, where it is not given
    link : (a, b) of 1/(1 + e^−(a s + b))

    Examples
    --------
    >>> probabilities(np.array([0.0, 2.0]), "logistic").round(3)
    array([[0.5 , 0.5 ], [0.119, 0.881]])
    """
    special = scipy.special
    if loss == "softmax":
        return np.asarray(special.softmax(scores, axis=1))
    slope, shift = public_link(loss) if link is None else link
    likely = special.expit(slope * scores + shift)
    if scores.ndim == 1:
        return np.column_stack([1 - likely, likely])
    return np.asarray(likely / np.maximum(likely.sum(axis=1, keepdims=True), np.finfo(float).tiny))


def figures(scores: Array, positive: Any, probability: Array | None = None) -> dict[str, float]:
    """All figures of exact records at the threshold 0: **not private**.

    Examples
    --------
    >>> found = figures(np.array([-2.0, -1.0, 1.0, 0.5]), np.array([0, 1, 1, 0]))
    >>> found["auc"], found["balanced_accuracy"]
    (0.75, 0.5)
    """
    values, h = exact(scores, positive)
    table = confusion(h, int(np.searchsorted(values, 0.0)))
    found = {
        "accuracy": accuracy(table),
        "balanced_accuracy": balanced_accuracy(table),
        "auc": auc(h),
        "average_precision": average_precision(h),
    }
    return found if probability is None else found | {"calibration_error": calibration_error_of(probability, positive)}


def sigmoid(scores: Array, link: tuple[float, float]) -> Array:
    """1/(1 + e^−(a s + b))."""
    return np.asarray(scipy.special.expit(link[0] * scores + link[1]))


def places(edges: Array, scores: Array) -> IntArray:
    """The bin of every score: bin k is from edge k − 1, which it holds, to edge k."""
    return np.searchsorted(edges, scores, side="right").astype(np.int64)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.5
