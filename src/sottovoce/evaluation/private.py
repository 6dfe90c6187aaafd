"""Private evaluation: what noisy tallies over held-out records say of a model, with intervals.

Whatever the metrics, a node releases one tally (`tally`), and all figures are made of the sums:

`right`: how many answers are right. `confusion`: by class and by answer. `scores`, of two classes: a rough histogram of
all scores for a fifth of the budget, from which bins are made that hold about as many records each, and then either
class's histogram in those bins; the bins' number follows from public numbers, and the decision's threshold is an edge.
`squares`, of a regression: Σ of squared errors, targets and squared targets, all clipped to public ranges.

An interval counts two things: the noise, of known size, and that the held-out records are a sample. Both are simulated
again from what is known; no further access to a record is needed. Of a mean of squares the sample's part is at most
that of numbers that are all 0 or 1 (Bhatia and Davis 2000), which is taken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sottovoce._renamed import old_arguments, old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.casts import class_numbers, whole_units
from sottovoce.display import Shown
from sottovoce.errors import SpecError
from sottovoce.evaluation import curves
from sottovoce.evaluation.figures import LIMITS, NOT_DETERMINED, RATE, WIDE, number_text
from sottovoce.evaluation.tally import NO_CELL, RIGHT, Keys, Part, Tally, by_node, cells
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.registry import Choices

ROOT = math.sqrt(2.0)
ROUGH, SPENT_ROUGH = 128, 0.2
"""Cells of the first histogram of scores, and what of the budget it has."""
MIN_BINS, MAX_BINS = 8, 64
"""Bins of the second one."""
FAINT = 2.5
"""A rough cell counts as empty below so many deviations of its noise."""
AGAIN = 400
"""How often what could have come out is simulated, for an interval."""
SEED = 20
"""Of that: it is no secret, and two readers get the same interval."""
ROUNDING = 1e-9
"""By which a score may exceed its public bound: what does falls into the last bin in any case."""
FINE = 2.0**-20
"""What squares are rounded to, toward zero, each by itself."""


class Model(NamedTuple):
    """What is public of a model, and may be used to ask.

    Attributes
    ----------
    classes : how many; 0 for a regression
    low, high : between which all its scores lie
    link : (a, b) of its probabilities, of two classes; None where it has none
    threshold : the score from which on its answer is the second of two classes
    labels : the names of the classes, in the order of their numbers; None where they have none
    positive : the number of the positive class, of two classes
    targets : of a regression, the range in the units of the target that [−1, 1] stands for
    """

    classes: int
    low: float = -1.0
    high: float = 1.0
    link: tuple[float, float] | None = None
    threshold: float = 0.0
    labels: tuple[Any, ...] | None = None
    positive: int = 1
    targets: tuple[float, float] = (-1.0, 1.0)

    @property
    def positive_label(self) -> Any:
        """The positive class by its name; None where there is none."""
        return None if self.classes != 2 or self.labels is None else self.labels[self.positive]

    def with_positive(self, label: Any) -> "Model":
        """The same with this class as the positive one; None leaves it as it is.

        Examples
        --------
        >>> Model(2, labels=("no", "yes")).with_positive("no").positive
        0
        """
        if label is None:
            return self
        if self.classes != 2:
            raise SpecError("only a classifier of two classes has a positive class; leave `positive` out")
        labels = (0, 1) if self.labels is None else self.labels
        found = [k for k, name in enumerate(labels) if name == label] or [
            k for k, name in enumerate(labels) if str(name) == str(label)
        ]
        if len(found) != 1:
            raise SpecError(
                f"positive is {label!r}, which is not a class of the model; give {labels[0]!r} or {labels[1]!r}"
            )
        return self._replace(positive=found[0])


class Held(NamedTuple):
    """Held-out records, as they are queried: whose each is, what the model says of it, and what is true.

    Attributes
    ----------
    owner : node numbers
    scores : of two classes (records,), of K (records, K), or predictions within [−1, 1]; from
        `problem.scores.row_scores`, so that no record's score depends on another record
    targets : class numbers, or numbers within [−1, 1]; a record whose target is neither counts as a record, and adds
        nothing to a sum over targets
    """

    owner: IntArray
    scores: Array
    targets: Array


class Estimate(NamedTuple):
    """A figure with one standard error of it, noise and sample together.

    Attributes
    ----------
    value, error : not a number where the noise hides the figure
    lowest, highest : the range that the figure has by definition
    """

    value: float
    error: float
    lowest: float = -math.inf
    highest: float = math.inf

    @property
    def determined(self) -> bool:
        """Whether the noise leaves anything to be known of it."""
        return math.isfinite(self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, within the range that the figure has by definition."""
        low, high = self.value - WIDE * self.error, self.value + WIDE * self.error
        return (max(low, self.lowest), min(high, self.highest)) if self.determined else (math.nan, math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None where the figure is not determined."""
        if not self.determined:
            return {"value": None, "standard_error": None, "interval": None}
        return {"value": self.value, "standard_error": self.error, "interval": list(self.interval)}

    def __str__(self) -> str:
        """0.842 (0.836 to 0.848)."""
        if not self.determined:
            return NOT_DETERMINED
        return f"{number_text(self.value)} ({' to '.join(map(number_text, self.interval))})"


@old_attributes
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Shown):
    """What is known of a model from noisy sums over held-out records.

    Attributes
    ----------
    metrics : 'right', 'confusion', 'scores' or 'squares'
    records : how many were held out, all nodes together; public
    sums : the noisy answers, summed over nodes
    noise : the standard deviation in each number of it
    model : what was public before
    edges : between the bins of scores, where there are any
    statement : what is guaranteed, the model's training and this together; None where nobody has said yet
    spent : ε of all evaluations of these records that the asking process knows of, together; at the statement's δ
    """

    metrics: str
    records: int
    sums: Array
    noise: float
    model: Model
    edges: Array | None = None
    statement: PrivacyStatement | None = None
    spent: float | None = None

    def _entries(self) -> dict[str, str]:
        figures = {name.replace("_", " "): str(estimate) for name, estimate in self.figures.items()}
        statement = {} if self.statement is None else {"verdict": self.statement.verdict()}
        return {"records": f"{self.records:,}"} | figures | statement

    @property
    def confusion(self) -> Array:
        """Records by class and by answer, with noise."""
        if self.edges is not None:
            return curves.confusion(self.sums, self._first)
        if self.metrics != "confusion":
            raise SpecError(f"'{self.metrics}' does not count by class; evaluate with metrics='confusion' or 'scores'")
        return self.sums

    @cached_property
    def figures(self) -> dict[str, Estimate]:
        """All figures by name."""
        drawn = [self._simulated(np.random.default_rng((SEED, k))) for k in range(AGAIN)]
        found = {}
        for name, formula in self._formulas().items():
            error = float(np.std([formula(sums) for sums in drawn]))
            found[name] = Estimate(formula(self.sums), error, *LIMITS.get(name, RATE))
        if "r2" in found and not self._r2_is_determined(found["r2"], drawn):
            found["r2"] = found["r2"]._replace(value=math.nan, error=math.nan)
        return found

    def value(self, figure: str) -> float:
        """A figure without its error, which takes a while."""
        return float(self._formulas()[figure](self.sums))

    def __getattr__(self, name: str) -> Any:
        """A figure by its name, such as `accuracy` or `auc`."""
        if name.startswith("_") or name == "figures":
            raise AttributeError(name)
        try:
            return self.figures[name]
        except KeyError:
            known = ", ".join(self.figures)
            raise AttributeError(f"this evaluation has no '{name}', but {known}; ask for another") from None

    def threshold(self, *, recall: float | None = None, rate: float | None = None, positive: Any = None) -> float:
        """The score from which on to answer with the second class, for a wanted recall or rate of the positive class.

        It is an edge of the noisy histogram, and costs nothing beyond it.

        Parameters
        ----------
        recall : the share of the positive class that is to be answered with it
        rate : or the share of all records that is; the nearest edge is taken, and `rate_at` says which rate it has
        positive : which class that is; by default the positive class of this evaluation
        """
        if self.edges is None:
            raise SpecError("a threshold needs the scores of two classes; evaluate with metrics='scores'")
        if (recall is None) == (rate is None) or not 0 < (recall if rate is None else rate) < 1:  # type: ignore[operator]
            raise SpecError("a threshold is for a recall or for a rate, a number between 0 and 1; give one of them")
        which = self.model.with_positive(positive).positive
        first = curves.first_bin(curves.with_positive(self.sums, which), recall=recall, rate=rate)
        return float(self._ends[first if which == 1 else len(self._ends) - 1 - first])

    def rate_at(self, threshold: float, positive: Any = None) -> float:
        """The share of all records that is answered with the positive class at a threshold, from the noisy histogram.

        Parameters
        ----------
        threshold : one that `threshold` returned
        positive : which class that is; by default the positive class of this evaluation
        """
        at = self.at_threshold(threshold)
        which = self.model.with_positive(positive).positive
        table = curves.with_positive(self.sums, which)
        first = at._first if which == 1 else table.shape[1] - at._first
        return float(curves.shares_above(np.maximum(table, 0.0).sum(axis=0))[first])

    def at_threshold(self, threshold: float) -> "Evaluation":
        """The same sums as an evaluation of the model with another threshold, one that `threshold` returned."""
        if self.edges is None or threshold not in (self.model.low, *self.edges.tolist(), self.model.high):
            raise SpecError(
                "figures are known at thresholds that `threshold` returned, after metrics='scores'; give one"
            )
        return replace(self, model=self.model._replace(threshold=float(threshold)))

    def link(self) -> tuple[float, float]:
        """(a, b) of calibrated probabilities 1/(1 + e^−(a s + b)), from the same histogram."""
        if self.edges is None:
            raise SpecError("calibration needs the scores of two classes; evaluate with metrics='scores'")
        return curves.platt(self.centers, self.sums, self.noise, self.model.link or (1.0, 0.0))

    @property
    def centers(self) -> Array:
        """The middle of every bin."""
        return (self._ends[1:] + self._ends[:-1]) / 2

    @property
    def _ends(self) -> Array:
        """Of all bins."""
        assert self.edges is not None
        return np.concatenate([[self.model.low], self.edges, [self.model.high]])

    @property
    def _first(self) -> int:
        """The bin from which on scores are at or over the threshold in force, which is an edge if it is in range."""
        assert self.edges is not None
        at = self.model.threshold
        if at in self.edges:
            return int(np.searchsorted(self.edges, at)) + 1
        return 0 if self.model.low >= at else len(self.edges) + 1

    def _formulas(self) -> Mapping[str, Callable[[Array], float]]:
        if self.metrics == "right":
            return {"accuracy": lambda sums: min(max(float(sums[0]) / self.records, 0.0), 1.0)}
        if self.metrics == "squares":
            return self._formulas_of_squares()
        if self.edges is None:
            return self._formulas_of_answers(lambda sums: sums)
        first, link, which = self._first, self.model.link, self.model.positive
        found = dict(self._formulas_of_answers(lambda sums: curves.confusion(sums, first)))
        found["auc"] = curves.auc
        found["average_precision"] = lambda sums: curves.average_precision(curves.with_positive(sums, which))
        if link is not None:
            said = curves.sigmoid(self.centers, link)
            found["calibration_error"] = lambda sums: curves.calibration_error(said, sums)
        return found

    def _formulas_of_answers(self, table: Callable[[Array], Array]) -> Mapping[str, Callable[[Array], float]]:
        """What a confusion matrix gives, with the accuracy of the most frequent class beside the model's."""
        which = self.model.positive
        found: dict[str, Callable[[Array], float]] = {
            "accuracy": lambda sums: curves.accuracy(table(sums)),
            "baseline_accuracy": curves.majority,
            "balanced_accuracy": lambda sums: curves.balanced_accuracy(table(sums)),
        }
        if self.model.classes == 2:
            found["recall"] = lambda sums: curves.recall(table(sums), which)
            found["precision"] = lambda sums: curves.precision(table(sums), which)
        return found

    def _formulas_of_squares(self) -> Mapping[str, Callable[[Array], float]]:
        """Squared errors in the units of the target, of the model and of the best constant; R² has none."""
        low, high = self.model.targets
        square = ((high - low) / 2.0) ** 2

        def mean_squared_error(sums: Array) -> float:
            return square * max(float(sums[0]) / self.records, 0.0)

        def baseline(sums: Array) -> float:
            return square * max(self._spread(sums) / self.records, 0.0)

        return {
            "r2": self._r2,
            "mean_squared_error": mean_squared_error,
            "baseline_mean_squared_error": baseline,
            "root_mean_squared_error": lambda sums: math.sqrt(mean_squared_error(sums)),
            "baseline_root_mean_squared_error": lambda sums: math.sqrt(baseline(sums)),
        }

    def _spread(self, sums: Array) -> float:
        """The total sum of squares of the targets about their mean, within [−1, 1]."""
        return float(sums[2]) - float(sums[1]) ** 2 / self.records

    def _r2(self, sums: Array) -> float:
        return 1.0 - max(float(sums[0]), 0.0) / max(self._spread(sums), FINE * self.records)

    def _r2_is_determined(self, r2: Estimate, drawn: Sequence[Array]) -> bool:
        """Whether the targets surely differ by more than the noise, and the interval says more than nothing."""
        lowest = self._spread(self.sums) - WIDE * float(np.std([self._spread(sums) for sums in drawn]))
        low, high = r2.interval
        return lowest > 0.0 and high - low <= 1.0

    def _simulated(self, rng: np.random.Generator) -> Array:
        """Sums as they could have come out: of another sample, with other noise."""
        if self.metrics == "squares":
            means = np.clip(self.sums / self.records, (0.0, -1.0, 0.0), 1.0)
            highest = np.array([means[0] * (1 - means[0]), means[2] - means[1] ** 2, means[2] * (1 - means[2])])
            spread = np.sqrt(np.maximum(highest, 0.0) * self.records + np.square(self.noise * SQUARES))
            return np.asarray(self.sums + spread * rng.normal(size=3))
        flat = np.maximum(self.sums.ravel(), 0.0)
        if self.metrics == "right":
            flat = np.array([flat[0], max(self.records - flat[0], 0.0)])
        shares = flat / flat.sum() if flat.sum() > 0 else np.full(len(flat), 1.0 / len(flat))
        drawn = rng.multinomial(self.records, shares).astype(np.float64)[: self.sums.size]
        return np.asarray((drawn + self.noise * rng.normal(size=len(drawn))).reshape(self.sums.shape))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "asked": self.metrics,
            "records": self.records,
            "noise": self.noise,
            "sums": self.sums.tolist(),
            "edges": None if self.edges is None else self.edges.tolist(),
            "classes": self.model.classes,
            "labels": None if self.model.labels is None else list(self.model.labels),
            "positive": self.model.positive_label,
            "decision_threshold": self.model.threshold if self.model.classes == 2 else None,
            "range": [self.model.low, self.model.high],
            "target_range": None if self.model.classes else list(self.model.targets),
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
            "privacy": None if self.statement is None else self.statement.to_dict(),
        }

    def __str__(self) -> str:
        """Every figure with its interval."""
        named = "" if self.model.positive_label is None else f"positive class {self.model.positive_label!r}: "
        return named + ", ".join(f"{name.replace('_', ' ')} {figure}" for name, figure in self.figures.items())


SQUARES = np.array([1.0, 2.0, 2.0])
"""By what the sums of squared errors, targets and squared targets are multiplied after they were released.

Within [−1, 1], and errors clipped to as much, (r², t/2, t²/2) of two records are at most √2 apart: 1 in the first, and
in the others d²(1 + (2 − d)²)/4 ≤ 1 for d = |t − t'|, at most 2."""


def _right(tally: Tally, held: Held, model: Model, keys: Keys) -> Evaluation:
    sums = cells(held.owner, len(tally.sizes), 1 - _is_right(held, model), 2)[:, :1]
    return _evaluation("right", tally, RIGHT, sums, keys, model)


def _confusion(tally: Tally, held: Held, model: Model, keys: Keys) -> Evaluation:
    K = model.classes
    known = class_numbers(held.targets, K)
    cell = np.where(known < 0, NO_CELL, known * K + answers(held.scores, model.threshold))
    part = Part(1, ROOT)
    found = _evaluation("confusion", tally, part, cells(held.owner, len(tally.sizes), cell, K * K), keys, model)
    return Evaluation("confusion", found.records, found.sums.reshape(K, K), found.noise, model)


def _scores(tally: Tally, held: Held, model: Model, keys: Keys) -> Evaluation:
    n, records = len(tally.sizes), int(tally.sizes.sum())
    rough, fine = Part(1, ROOT, SPENT_ROUGH), Part(2, ROOT, 1.0 - SPENT_ROUGH)
    grid = np.linspace(model.low, model.high, ROUGH + 1)
    first = cells(held.owner, n, curves.places(grid[1:-1], held.scores), ROUGH)
    seen = tally.answers(rough, first, keys).sum(axis=0)
    count = bins(records, tally.noise_of_sum(fine))
    edges = _even_edges(grid, seen, tally.noise_of_sum(rough), count, model.threshold)
    B = len(edges) + 1
    known = class_numbers(held.targets, 2)
    cell = np.where(known < 0, NO_CELL, known * B + curves.places(edges, held.scores))
    found = _evaluation("scores", tally, fine, cells(held.owner, n, cell, 2 * B), keys, model)
    return Evaluation("scores", records, found.sums.reshape(2, B), found.noise, model, edges)


def _squares(tally: Tally, held: Held, model: Model, keys: Keys) -> Evaluation:
    t, p = np.clip(held.targets, -1.0, 1.0), np.clip(held.scores, -1.0, 1.0)
    vectors = ((np.minimum(np.square(t - p), 1.0), 0.0, 1.0), (t / 2, -0.5, 0.5), (np.square(t) / 2, 0.0, 0.5))
    whole = [whole_units(values, FINE, low / FINE, high / FINE) for values, low, high in vectors]
    part = Part(1, ROOT * (1.0 + 2.0**-18), unit=FINE)  # truncated: a unit in each number further apart at the most
    found = _evaluation("squares", tally, part, by_node(held.owner, len(tally.sizes), whole), keys, model)
    return Evaluation("squares", found.records, found.sums * SQUARES, found.noise, model)


def _evaluation(metrics: str, tally: Tally, part: Part, sums: IntArray, keys: Keys, model: Model) -> Evaluation:
    total = tally.answers(part, sums, keys).sum(axis=0)
    return Evaluation(metrics, int(tally.sizes.sum()), total, tally.noise_of_sum(part), model)


Question = Callable[[Tally, Held, Model, Keys], Evaluation]
QUESTIONS: Choices[Question] = Choices(
    "question to held-out records",
    {
        "right": lambda: _right,
        "confusion": lambda: _confusion,
        "scores": lambda: _scores,
        "squares": lambda: _squares,
    },
)
OF_CLASSES, OF_TWO, OF_NUMBERS = ("right", "confusion"), ("right", "confusion", "scores"), ("squares",)


@old_arguments
def evaluate(tally: Tally, held: Held, model: Model, keys: Keys, metrics: str = "auto") -> Evaluation:
    """Ask the held-out records of every node, and released the noisy answers.

    Parameters
    ----------
    tally : sizes and noise
    held : the records; each is examined here, and nowhere else
    model : what is public
    keys : secret generators, for this evaluation alone
    metrics : 'right', 'confusion' or 'scores' of two classes, 'squares' of a regression; 'auto' is the most telling

    Examples
    --------
    >>> from sottovoce.evaluation.tally import seeded
    >>> rng = np.random.default_rng(0)
    >>> targets = rng.integers(0, 2, 5000).astype(float)
    >>> held = Held(np.zeros(5000, dtype=int), np.clip(rng.normal(targets - 0.5, 0.5), -3, 3), targets)
    >>> tally = Tally.of(np.array([5000]), epsilon=1.0, delta=1e-5)
    >>> found = evaluate(tally, held, Model(2, -3.0, 3.0), seeded(1))
    >>> abs(found.auc.value - 0.921) < 3 * found.auc.error < 0.05
    True
    """
    fits = OF_NUMBERS if not model.classes else OF_TWO if model.classes == 2 else OF_CLASSES
    metrics = fits[-1] if metrics == "auto" else metrics
    question = QUESTIONS.read(metrics)
    if metrics not in fits:
        raise SpecError(f"'{metrics}' cannot be computed for this model; ask for one of {', '.join(fits)}")
    return question(tally, held, model, keys)


def answers(scores: Array, threshold: float = 0.0) -> IntArray:
    """Class numbers: on which side of the threshold one score is, or which of several is the largest."""
    return np.asarray((scores >= threshold) if scores.ndim == 1 else np.argmax(scores, axis=1), dtype=np.int64)


def _is_right(held: Held, model: Model) -> IntArray:
    return np.asarray(answers(held.scores, model.threshold) == held.targets, dtype=np.int64)


def bins(records: int, noise: float) -> int:
    """Of a histogram of so many records with so much noise: the more that can be distinguished, the more of them."""
    return int(np.clip(math.sqrt(records / max(noise, 1.0)), MIN_BINS, MAX_BINS))


def _even_edges(grid: Array, seen: Array, noise: float, count: int, threshold: float) -> Array:
    """Edges between bins that hold about as many records each, by a noisy histogram; so is the threshold, if within."""
    kept = np.where(seen > FAINT * noise, seen, 0.0)
    kept = kept if kept.sum() > 0 else np.ones(len(seen))
    level = np.concatenate([[0.0], np.cumsum(kept)]) / kept.sum()
    climbs = np.concatenate([[True], np.diff(level) > 0])
    edges = np.interp(np.arange(1, count) / count, level[climbs], grid[climbs])
    edges = np.unique(edges[(edges > grid[0]) & (edges < grid[-1])])
    if grid[0] < threshold < grid[-1]:
        if len(edges):
            edges = np.delete(edges, int(np.argmin(np.abs(edges - threshold))))
        edges = np.union1d(edges, [threshold])
    return edges
