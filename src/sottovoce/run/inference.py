"""Confidence intervals of a run: the stages that are released after its last round, and the estimate that follows.

`released` makes the stages of a procedure (`inference.estimate`) sequentially, as one-shot releases: with the
run's noise, exact where the run is secure. `replayed` computes the estimate again from what was published, without any
record. Rows are multiplied by the choice's scale and get the constant 1; longer ones are downweighted, not shortened.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.features import Additive
from sottovoce.inference.estimate import Estimate, Procedure, Settings, linear, logistic
from sottovoce.inference.statistics import Noisy, Rows, Stage, weighted
from sottovoce.inference.table import CoefficientTable
from sottovoce.matrices import is_sparse
from sottovoce.privacy.inference import Inference
from sottovoce.privacy.release import Release
from sottovoce.privacy.statement import PERSON
from sottovoce.problem.losses import Loss
from sottovoce.problem.shards import Shards
from sottovoce.run import one_shot
from sottovoce.run.build import Prepared
from sottovoce.run.one_shot import Keys, OneShotRelease, Query
from sottovoce.run.spec import Spec
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

if TYPE_CHECKING:
    from sottovoce.run.result import Result

NUMBERS_AT_ONCE = 1 << 22
"""Numbers of contributions that are made at a time."""
LITTLE = 1e-3
"""A noise by which an audit's stages are chosen; it is none of a release."""
KINDS = {"logistic": logistic, "squared": linear}
"""Losses that have intervals."""


class Published(TypedDict):
    """What a result publishes: the estimate follows from it.

    `start` is θ₀ in the units of the procedure, `means` the noisy mean of every stage, `deviation` that of the noise in
    each of their numbers.
    """

    start: list[float]
    means: list[list[float]]
    deviation: float
    reversed: bool
    """Whether the classes stand in the other order than in the run, so that estimates change their sign."""


@dataclass(frozen=True, eq=False)
class StageSums(Query[Noisy]):
    """A stage as a query: what a unit contributes, in the choice's units.

    Attributes
    ----------
    stage, choice : what is summed, and for which share of the budget
    """

    stage: Stage
    choice: Inference

    @property
    def share(self) -> float:
        """Of the budget, of all stages together."""
        return self.choice.share

    def rows(self, shards: Shards, node: int, units: IntArray) -> Rows:
        """The rows of some units of a node."""
        return rows_of(shards, node, units, self.choice)

    @property
    def width(self) -> int:
        """Of all parts."""
        return self.stage.width

    @property
    def diameter(self) -> float:
        """√(s σ); see `privacy.inference`."""
        return self.stage.diameter(self.share)

    def units(self, shards: Shards, node: int) -> Iterator[Array]:
        """Some units at a time."""
        count = int(shards.sizes[node])
        step = max(1, NUMBERS_AT_ONCE // self.width)
        for begin in range(0, count, step):
            some = np.arange(begin, min(begin + step, count))
            yield self.stage.units(self.rows(shards, node, some), self.share)

    def means(self, shards: Shards) -> Array:
        """By products of matrices: the same to rounding."""
        found = []
        for node in range(shards.n):
            everybody = np.arange(int(shards.sizes[node]))
            found.append(self.stage.total(self.rows(shards, node, everybody), self.share))
        return np.stack(found) / shards.sizes[:, None]

    def finish(self, noisy: one_shot.Noisy) -> Noisy:
        """The parts in their own units."""
        return self.stage.read(noisy.mean, noisy.deviation, self.share)


def rows_of(shards: Shards, node: int, units: IntArray, choice: Inference) -> Rows:
    """The rows of some units with the constant, scaled and weighted; a record's own weight multiplies the row's."""
    places = shards.rows(node, units)
    X = shards.X[places]
    dense = np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64)
    x = np.concatenate([dense * choice.scale, np.ones((len(dense), 1))], axis=1)
    rows = weighted(x, shards.y[places], choice.longest, shards.counts(node, units))
    if shards.weights is None:
        return rows
    root = rows.root * np.sqrt(shards.weights[places])
    return rows._replace(root=root, u=root[:, None] * rows.x)


def check_inference(spec: Spec) -> None:
    """Refuse intervals of a run that has none."""
    choice, problem = spec.privacy.inference, spec.problem
    if problem.loss.name not in KINDS or problem.outputs > 1 or not problem.intercept:
        raise SpecError(
            f"there are no intervals for loss '{problem.loss}' with {problem.outputs} outputs: '{choice}' needs loss "
            "'logistic' with two classes, or 'squared', and an intercept"
        )
    if isinstance(problem.features, Additive) and (problem.features.degree > 1 or problem.features.distribution):
        raise SpecError(f"there are no intervals for functions of columns; take features='linear' with '{choice}'")


def procedure(loss: Loss, settings: Settings, start: Array) -> Procedure:
    """The stages for a loss."""
    return logistic(settings, start) if loss.name == "logistic" else linear(settings)


def stages_at(loss: Loss, theta: Array, choice: Inference, people: bool = False) -> list[Stage]:
    """All stages as they are where nothing is noisy and every model is θ: what an audit attacks."""
    settings, found = Settings(len(theta), choice.longest, 1, people), list[Stage]()

    def answer(stage: Stage) -> Noisy:
        found.append(stage)
        return stage.read(np.zeros(stage.width), LITTLE, choice.share)

    driven(procedure(loss, settings, theta), answer)
    return found


def settings_of(spec: Spec, features: int, units: int, people: bool) -> Settings:
    """What is public."""
    return Settings(features + 1, spec.privacy.inference.longest, units, people)


def driven(steps: Procedure, answer: Callable[[Stage], Noisy]) -> Estimate:
    """Send a procedure what is released of each stage until it returns its estimate."""
    try:
        stage = next(steps)
        while True:
            stage = steps.send(answer(stage))
    except StopIteration as done:
        found: Estimate = done.value
        return found


def released(prepared: Prepared, state: State, secure: bool = True) -> Prepared:
    """The run after its last round, with the releases for its intervals.

    Parameters
    ----------
    prepared, state : the run, and where it ended
    secure : as in `run.build.prepare`: whether releases of a run without a seed are to be secure ones
    """
    spec, problem, before = prepared.spec, prepared.original, prepared.job.release.before
    assert before is not None
    start = start_of(spec, prepared.models(state, spec.algorithm.rounds).mean(axis=0))
    keys = fresh() if secure and not prepared.seeded else None
    public = prepared.public.copy()
    public["inference"] = release_stages(spec, problem.shards, before, start, keys)
    return replace(prepared, public=public)


def release_stages(spec: Spec, shards: Shards, before: Release, start: Array, keys: Keys | None) -> Published:
    """Release all stages, sequentially.

    Parameters
    ----------
    spec, shards : the run, and everybody's records as they came
    before : with which noise
    start : θ₀
    keys : secret generators of a secure release; None for a simulation
    """
    choice, T, streams = spec.privacy.inference, spec.algorithm.rounds, Streams(spec.seed)
    means: list[list[float]] = []
    deviation = 0.0

    def answer(stage: Stage) -> Noisy:
        nonlocal deviation
        query = StageSums(stage, choice)
        part = OneShotRelease(query, before, shards.sizes, T + 1 + len(means))
        noisy = part.noisy(part.weights @ part.released(shards, streams, keys))
        means.append(noisy.mean.tolist())
        deviation = noisy.deviation
        return query.finish(noisy)

    settings = settings_of(spec, int(shards.X.shape[1]), int(shards.sizes.sum()), shards.people)
    driven(procedure(spec.problem.loss, settings, start), answer)
    return Published(start=start.tolist(), means=means, deviation=deviation, reversed=False)


def start_of(spec: Spec, model: Array) -> Array:
    """θ₀: a model of records as they came, in the units of the procedure."""
    return np.append(model[:-1] / spec.privacy.inference.scale, model[-1] * spec.problem.intercept)


class _Waiting(Exception):
    """A stage of which nothing was released yet."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage


def next_stage(spec: Spec, published: Published, features: int, units: int, people: bool) -> Stage:
    """The stage that follows on what was published of those before it."""
    choice, left = spec.privacy.inference, iter(published["means"])

    def answer(stage: Stage) -> Noisy:
        mean = next(left, None)
        if mean is None:
            raise _Waiting(stage)
        return stage.read(np.asarray(mean), published["deviation"], choice.share)

    start = np.asarray(published["start"], dtype=np.float64)
    try:
        driven(procedure(spec.problem.loss, settings_of(spec, features, units, people), start), answer)
    except _Waiting as waiting:
        return waiting.stage
    raise PrivacyError("all sums for intervals of this run are released; begin a run of another name")


def replayed(spec: Spec, published: Published, features: int, units: int, people: bool) -> Estimate:
    """The estimate that follows from what was published."""
    choice = spec.privacy.inference
    means = [np.asarray(mean, dtype=np.float64) for mean in published["means"]]
    left = iter(means)

    def answer(stage: Stage) -> Noisy:
        mean = next(left, np.empty(0))
        if mean.shape != (stage.width,) or not np.all(np.isfinite(mean)):
            raise PrivacyError("the released sums for intervals are not those of this run; give the result as it was")
        return stage.read(mean, published["deviation"], choice.share)

    start = np.asarray(published["start"], dtype=np.float64)
    if start.shape != (features + 1,):
        raise PrivacyError("the start of the intervals is not a model of this run; give the result as it was")
    found = driven(procedure(spec.problem.loss, settings_of(spec, features, units, people), start), answer)
    if next(left, None) is not None:
        raise PrivacyError("there are more released sums for intervals than the run makes; give the result as it was")
    return found


def estimate_of(result: "Result") -> Estimate:
    """The estimate of a result; refused where it has none, or released numbers say that it is worth nothing."""
    published = result.public.get("inference")
    if published is None:
        raise SpecError("this model was fitted without intervals; fit with inference=True")
    units, people = sum(result.public["records"]), result.statement.unit == PERSON.name
    features = int(result.public["m"]) - 1
    found = replayed(result.spec, published, features, units, people)
    if found.refusal:
        raise PrivacyError(
            f"there are no intervals: {found.refusal}; more records, fewer or less correlated columns or a larger "
            "epsilon would help"
        )
    sign = -1.0 if published["reversed"] else 1.0
    return found._replace(theta=sign * found.theta)


def table_of(result: "Result", confidence: float) -> CoefficientTable:
    """The table of a result."""
    found, scale, logistic = estimate_of(result), result.scale, result.spec.problem.loss.name == "logistic"
    made = in_units(found, result.spec, scale.unit, 1.0 if logistic else scale.half, scale.middle)
    names = result.features or tuple(f"column {k + 1}" for k in range(result.columns))
    outcome = f"class {result.classes[1]!r}" if logistic and result.classes else "target"
    unit = "person" if result.statement.unit == PERSON.name else "record"
    return CoefficientTable(
        (*names, "(constant)"), *made, sum(result.public["records"]), unit, outcome=outcome,
        confidence=confidence, ratio="odds ratio" if logistic else "", statement=result.statement.verdict(),
    )  # fmt: skip


def mean_intervals(result: "Result", rows: Array, confidence: float) -> Array:
    """(rows, 2) ends of intervals for the mean target, or the probability of the second class, at these rows.

    Parameters
    ----------
    result : of a run with intervals
    rows : as the run has them, without the constant
    confidence : of each interval
    """
    if not 0 < confidence < 1:
        raise SpecError(f"confidence is a probability strictly between 0 and 1, not {confidence!r}")
    found, scale = estimate_of(result), result.spec.privacy.inference.scale
    x = np.concatenate([rows * scale, np.ones((len(rows), 1))], axis=1)
    u = x @ found.theta
    margin = float(scipy.special.ndtri((1.0 + confidence) / 2.0)) * np.sqrt(
        np.maximum(np.sum((x @ found.covariance) * x, axis=1), 0.0)
    )
    ends = np.stack([u - margin, u + margin], axis=1)
    if result.spec.problem.loss.name == "logistic":
        return np.asarray(scipy.special.expit(ends))
    return np.asarray(result.scale.middle + result.scale.half * ends)


class InUnits(NamedTuple):
    """An estimate in the units of columns and targets.

    Attributes
    ----------
    coef, covariance : weights of the columns and, last, the constant term
    sampling : the part of the covariance that there would be without noise
    """

    coef: Array
    covariance: Array
    sampling: Array


def in_units(found: Estimate, spec: Spec, unit: float, half: float, middle: float) -> InUnits:
    """The estimate as a model of columns as they came and of targets in their units.

    Parameters
    ----------
    found, spec : the estimate and its run
    unit : what rows were divided by
    half, middle : what [−1, 1] stands for in a regression; 1 and 0 of two classes
    """
    m, choice, of = len(found.theta) - 1, spec.privacy.inference, spec.problem.features
    A = np.zeros((m + 1, m + 1))
    A[-1, -1] = 1.0
    factors = np.full(m, choice.scale / unit)
    shifts, places = np.zeros(m), np.arange(m)
    if isinstance(of, Additive):  # t = (2v − low − high)/(high − low) of each numeric column, then the others
        places = np.array([*(place for place, _, _ in of.numeric), *of.others])
        for j, (_, low, high) in enumerate(of.numeric):
            factors[j] *= 2.0 / (high - low)
            shifts[j] = -(high + low) / 2.0
    A[places, np.arange(m)] = factors
    A[-1, :-1] = factors * shifts
    coef = half * (A @ found.theta)
    coef[-1] += middle
    covariance, sampling = (half**2 * A @ each @ A.T for each in (found.covariance, found.sampling))
    return InUnits(coef, covariance, sampling)
