"""audit(spec, sizes, features): attack a run as hard as is known how, and say what ε it has at least.

Half of the runs choose the test: which records, which score, which threshold. The other half count how often it is
right, and only they are in the bound. So the bound holds with its confidence whatever was tried, and a run that keeps
its statement passes it in at most one audit of twenty (at 95 %).

A bound below the statement proves nothing: an attacker that was not thought of may do better. A bound over it is a
proof, with that confidence, that the statement is false for the software that ran.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.auditing.bounds import (
    CONFIDENCE,
    Family,
    Rates,
    check_confidence,
    curve,
    most_likely,
    plain_epsilon,
    rates,
)
from sottovoce.auditing.runner import AuditRunner, Plant
from sottovoce.auditing.scores import FINAL, LIKELIHOOD, Line, Sheet, sheet
from sottovoce.auditing.worst_case import FIRST, WIDTH, WorstCase, loudly, spreads
from sottovoce.errors import SpecError
from sottovoce.features import Additive
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.distribution import Distribution
from sottovoce.privacy.events import AccountedEvent, Event
from sottovoce.privacy.statement import number
from sottovoce.run.build import prepare
from sottovoce.run.plan import Request, make_lipschitz, plan_public
from sottovoce.run.spec import Spec

RUNS = 10_000
NO_PROOF = "an audit proves no privacy: it is one attacker's best, and a better one may come"
TRIED = 200
"""Thresholds that are tried."""
RATE_CONFIDENCE = 0.999
"""How certain a rate must be while they are."""
SMOOTH = 6
"""Thresholds on either side that a promise is the mean of."""
NOTHING = 1e3
"""A multiple of the noise that is as good as none refuted."""
BETTER = 0.97
"""By what a score must beat those that were tried before it."""
ATTACKS = ("transcript", "final")

Progress = Callable[[int, int], None]
"""(runs done, of how many)."""


@dataclass(frozen=True)
class Audit:
    """What an attack found.

    Attributes
    ----------
    stated : ε of the statement, for the record's node
    delta : δ of both
    at_least : ε of the mechanism of the stated kind with so little noise that the attack is just possible
    plain : ε of any mechanism whatever for which it is
    scale : the least multiple of the stated noise that is refuted
    confidence : of both bounds, each
    runs : with the first record and with the second, those that were counted
    wrong : false alarms and misses among them
    score, loud, threshold : the test; it was chosen on other runs
    event : what is stated of the node
    node : whose record it is
    engine : what ran
    attained : (false alarms, true alarms) as shares, at many thresholds of the same score
    notes : what was exercised, and what not
    """

    stated: float
    delta: float
    at_least: float
    plain: float
    scale: float
    confidence: float
    runs: tuple[int, int]
    wrong: tuple[int, int]
    score: str
    loud: bool
    threshold: float
    event: AccountedEvent
    node: int = 0
    engine: str = "reference"
    attained: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def broken(self) -> str:
        """'' where the statement stands, 'curve' or 'guarantee' where the stated curve, or (ε, δ) itself, does not."""
        if self.plain > self.stated:
            return "guarantee"
        return "curve" if self.scale <= 1.0 else ""

    @property
    def rates(self) -> Rates:
        """Of errors, at most."""
        return rates(*self.wrong, self.runs, self.confidence)

    def verdict(self) -> str:
        """In one line.

        Examples
        --------
        >>> from sottovoce.privacy.events import FullEvent
        >>> event = FullEvent(10, 10, 1.0, 0.746, 1)
        >>> print(concluded(event, 1e-5, (4500, 4400), (10_000, 10_000)).verdict())
        stated ≤ 1, at least 0.834 (95 %); any mechanism whatever: at least 0.183
        """
        line = (
            f"stated ≤ {number(self.stated)}, at least {number(self.at_least)} ({100 * self.confidence:g} %); any "
            f"mechanism whatever: at least {number(self.plain)}"
        )
        if not self.broken:
            return line
        what = {
            "curve": "the stated trade-off curve is broken; (ε, δ) itself was not seen to be",
            "guarantee": f"the stated (ε, δ) = ({number(self.stated)}, {self.delta:g}) itself is broken",
        }[self.broken]
        return f"{line}. FALSE: {what}"

    def curve(self) -> tuple[tuple[float, float], ...]:
        """(false alarms, true alarms) that the statement allows at most."""
        at = scipy.special.ndtr(np.linspace(-4.0, 4.0, 81))
        return tuple(zip(at.tolist(), curve(self.event)(at).tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is infinite is written as the text 'inf'."""
        event = self.event if isinstance(self.event, Event) else getattr(self.event, "event", None)
        return {
            "stated": self.stated,
            "delta": self.delta,
            "at_least": "inf" if math.isinf(self.at_least) else self.at_least,
            "plain": self.plain,
            "noise_refuted": "inf" if math.isinf(self.scale) else self.scale,
            "confidence": self.confidence,
            "runs": list(self.runs),
            "wrong": list(self.wrong),
            "score": self.score,
            "others_loud": self.loud,
            "threshold": self.threshold,
            "node": self.node,
            "engine": self.engine,
            "event": event.to_dict() if isinstance(event, Event) else str(self.event),
            "attained": [list(point) for point in self.attained],
            "curve": [list(point) for point in self.curve()],
            "broken": self.broken,
            "verdict": self.verdict(),
            "notes": [*self.notes, NO_PROOF],
        }


def concluded(
    event: AccountedEvent,
    delta: float,
    wrong: tuple[int, int],
    runs: tuple[int, int],
    confidence: float = CONFIDENCE,
    **details: Any,
) -> Audit:
    """From counts of false alarms and misses to an audit."""
    family = Family(event, delta)
    found = rates(*wrong, runs, confidence)
    scale = family.scale(found)
    test: dict[str, Any] = {"score": "", "loud": False, "threshold": 0.0} | details
    return Audit(
        family.epsilon(),
        delta,
        family.epsilon(scale),
        plain_epsilon(found, delta),
        scale,
        confidence,
        runs,
        wrong,
        event=event,
        **test,
    )


def errors_of(alarms: NDArray[np.bool_], worlds: IntArray) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (false alarms, misses), and how many runs there were with either record."""
    first = worlds == 0
    wrong = int(np.sum(alarms & first)), int(np.sum(~alarms & ~first))
    return wrong, (int(np.sum(first)), int(np.sum(~first)))


def audit(
    spec: Spec,
    sizes: Sequence[int] | IntArray,
    features: int,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    choosing: float = 0.5,
    attack: str = "transcript",
    engine: str = "reference",
    secure: bool = True,
    people: bool = False,
    node: int | None = None,
    seed: int | None = None,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
    stated: AccountedEvent | None = None,
    plant: Plant | None = None,
) -> Audit:
    """Attack a run of this spec on nodes of these sizes, with records that the attacker chooses.

    Parameters
    ----------
    spec : what is run; without a seed its releases are secure ones, as in a real run
    sizes : records of every node, or people
    features : columns of a record, without the intercept's; more than a few are audited as a few, since noise is drawn
        for each on its own
    runs : with either record
    confidence : of the bound
    choosing : the share of the runs that choose the test; with 0 it is the likelihood ratio at 1, known beforehand
    attack : 'transcript', who sees every release, or 'final', who sees the model at the end
    engine : which one to attack
    secure : as of `solve`
    people : whether units are people
    node : whose record; by default one of those with the largest ε
    seed : of the draws of a simulation, where the spec has a seed
    schedule : who speaks when, where that is drawn already
    progress : called after every stretch of runs
    stated : what is stated of the node, where that is not what the run itself would state
    plant : what to break, for showing that it is found

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec, Spec
    >>> spec = Spec(AlgorithmSpec(rounds=2, gamma="constant(1e6)"), seed=1).replace(
    ...     privacy__sampling="full", privacy__noise="private(2)", network__activation="everyone"
    ... )
    >>> found = audit(spec, [5, 5], features=3, runs=2000, seed=7)
    >>> round(found.stated, 3), found.at_least > 1.0, found.broken
    (2.0, True, '')
    """
    check_confidence(confidence)
    if attack not in ATTACKS:
        raise SpecError(f"an attacker sees the 'transcript' or the 'final' model, not '{attack}'")
    if not 0 <= choosing < 1 or runs < 10:
        raise SpecError(f"give at least 10 runs, and a share of them below 1 for choosing, not {runs} and {choosing}")
    (spec, width), q = _narrowed(spec, features), np.asarray(sizes, dtype=np.int64)
    layouts = loudly(spec.privacy.sampling) if choosing else loudly(spec.privacy.sampling)[:1]
    pilot = math.ceil(choosing * runs)
    share = math.ceil(pilot / len(layouts))
    how = _How(engine, secure, people, plant, 2 * min(share or runs, runs - pilot))
    first = _staged(spec, q, width, layouts[0], node, schedule, how)
    stages = [first, *(_staged(spec, q, width, loud, first.node, first.job.schedule, how) for loud in layouts[1:])]
    if not choosing and (first.whole or attack == "final"):
        raise SpecError("a final model is attacked along a line that some of the runs choose; give them a share")
    stated_event, notes = stated or first.prepared.plan.event(first.node), _notes(first, features)
    family = Family(stated_event, spec.privacy.delta)
    if family.event.noise_multiplier == 0:
        raise SpecError("without noise nothing is stated, and there is nothing to audit; give the spec a noise")
    count, rng, lattice = _Counter(progress, 2 * runs), np.random.default_rng(seed), first.job.secure
    test = _Test(LIKELIHOOD, 0, 0.0, None, 1.0)
    if choosing:
        sheets = [_sheets(stage, share, rng, seed, lattice, count) for stage in stages]
        test = min((_Test.chosen(s, family, k, attack) for k, s in enumerate(sheets)), key=lambda each: each.scale)
    rest = _sheets(stages[test.layout], runs - pilot, rng, seed, lattice, count)
    scores, worlds = test(rest), rest.worlds
    wrong, counted = errors_of(scores > test.threshold, worlds)
    tested = {"score": test.score, "loud": stages[test.layout].worst.loud, "threshold": test.threshold}
    points = {"node": first.node, "engine": engine, "attained": attained(scores, worlds), "notes": notes}
    return concluded(stated_event, spec.privacy.delta, wrong, counted, confidence, **tested, **points)


def _narrowed(spec: Spec, features: int) -> tuple[Spec, int]:
    """The run with as few features as an audit needs, and how many these are.

    An additive model gets one column with a few functions. The rounds see rows within their bound, whatever they are
    functions of, and the counts of columns have the same share of the budget, so that each release of the rounds has
    the same noise. The counts are attacked on their own.
    """
    if not isinstance(spec.problem.features, Additive):
        return spec, min(features, WIDTH)
    counts = spec.privacy.distribution
    narrow = spec.replace(problem__features=Additive(1, ((0, -1.0, 1.0),), degree=WIDTH))
    return narrow.replace(privacy__distribution=Distribution(counts.total, 1)) if counts else narrow, WIDTH


class _How(NamedTuple):
    """How runs are made that are attacked; `most` runs are made as one."""

    engine: str
    secure: bool
    people: bool
    plant: Plant | None
    most: int


def _staged(
    spec: Spec,
    sizes: IntArray,
    features: int,
    loud: bool,
    node: int | None,
    schedule: Schedule | None,
    how: _How,
) -> AuditRunner:
    engine, secure, people, plant, most = how
    plan = plan_public(Request(spec, sizes, features, people), schedule)
    if node is None:
        events = plan.events()
        epsilons = {
            event: compute_epsilon([event], spec.privacy.delta, lower=False).epsilon for event in dict.fromkeys(events)
        }
        node = int(np.argmax([epsilons[event] for event in events]))
    elif not 0 <= node < len(sizes):
        raise SpecError(f"there is no node {node}; nodes are 0 to {len(sizes) - 1}")
    worst = WorstCase(
        spec.problem,
        features,
        loud,
        spreads(plan.release.law),
        people,
        make_lipschitz(spec),
        secure and spec.seed is None and any(plan.release.sigma),
    )
    made = prepare(spec, worst.shards(sizes, {node: FIRST}), plan.schedule, secure=secure)
    return AuditRunner(made, node, worst, engine, plant, most)


def _notes(stage: AuditRunner, features: int) -> tuple[str, ...]:
    """What was exercised, and what not."""
    job, notes = stage.job, []
    if job.secure:
        notes.append("releases were secure ones, with keys of their own for every stretch of runs")
    else:
        notes.append("draws were those of a simulation: their low bits, which no statement covers, were not attacked")
    if stage.lone:
        notes.append("every run was a job of its own")
    else:
        notes.append(f"{stage.copies} runs at a time were one job of as many copies of the same nodes")
    if len(stage.kept) < job.schedule.n:
        notes.append(f"{len(stage.kept)} of {job.schedule.n} nodes were kept: the others' releases hold no such record")
    if getattr(stage.prepared.plan.event(stage.node), "before", None) is not None:
        notes.append("what is released once, before the first round or after the last, was not attacked")
    if stage.worst.features < features:
        notes.append(f"{stage.worst.features} of {features} features were kept: noise is drawn for each on its own")
    return tuple(notes)


class _Counter:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, made: int) -> None:
        self.done = min(self.done + made, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total)


def _sheets(
    stage: AuditRunner, runs: int, rng: np.random.Generator, seed: int | None, lattice: bool, count: _Counter
) -> Sheet:
    """So many runs with either record, or a few more."""
    sheets, made = [], 0
    while made < 2 * runs:
        key = int(rng.integers(1 << 62)) if seed is not None else secrets.randbits(62)
        sheets.append(sheet(stage, stage.play(key), lattice))
        made += len(sheets[-1].worlds)
        count(len(sheets[-1].worlds))
    return Sheet.stacked(sheets)


@dataclass(frozen=True, eq=False)
class _Test:
    """A score and a threshold."""

    score: str
    layout: int
    threshold: float
    line: Line | None
    scale: float
    sign: float = 1.0

    @classmethod
    def chosen(cls, sheet: Sheet, family: Family, layout: int, attack: str) -> "_Test":
        """The one that promises most; the likelihood ratio, unless another is clearly better."""
        names = [*sheet.scores, *(n for n in sheet.features if n != FINAL)]
        names = [FINAL] if attack == "final" or not names else names
        best = None
        half = np.arange(len(sheet.worlds)) % 4 < 2  # a line is tried on runs that it was not put through
        for name in names:
            line, mine = None, np.ones(len(half), dtype=np.bool_)
            if name in sheet.features:
                if sheet.features[name].shape[1] == 0:
                    continue
                line, mine = Line(sheet.features[name][half], sheet.worlds[half]), ~half
            trial = cls(name, layout, 0.0, line, math.inf)
            for sign in (1.0, -1.0) if line is None and name != LIKELIHOOD else (1.0,):
                cut, scale = best_threshold(sign * trial(sheet)[mine], sheet.worlds[mine], family)
                if best is None or scale < BETTER * best.scale:
                    best = cls(name, layout, cut, line, scale, sign)
        assert best is not None
        return best

    def __call__(self, sheet: Sheet) -> Array:
        """The scores of some runs."""
        if self.line is not None:
            return self.sign * self.line(sheet.features[self.score])
        return self.sign * sheet.scores[self.score]


def best_threshold(scores: Array, worlds: IntArray, family: Family) -> tuple[float, float]:
    """The threshold that promises most, and the multiple of the noise that it would refute.

    The best of many thresholds is partly luck, so each is judged with a confidence that allows for all of them.
    """
    low, high = np.sort(scores[worlds == 0]), np.sort(scores[worlds == 1])
    both = np.unique(scores)
    cuts = both if len(both) <= TRIED else np.unique(np.quantile(both, np.linspace(0, 1, TRIED)))
    alarms = len(low) - np.searchsorted(low, cuts, side="right")
    misses = np.searchsorted(high, cuts, side="right")
    scales = family.about(
        most_likely(alarms, len(low), RATE_CONFIDENCE), most_likely(misses, len(high), RATE_CONFIDENCE)
    )
    promise = np.log(np.minimum(scales, NOTHING))
    if len(cuts) >= 5 * SMOOTH:  # what a threshold promises, its neighbors promise nearly as well
        ends = np.pad(promise, SMOOTH, mode="edge")
        promise = np.convolve(ends, np.full(2 * SMOOTH + 1, 1.0 / (2 * SMOOTH + 1)), mode="valid")
    best = int(np.argmin(promise))
    if np.ptp(promise) == 0:  # nothing is certain yet: where both errors are the same
        best = int(np.argmin(np.abs(alarms / len(low) - misses / len(high))))
    return float(cuts[best]), math.exp(float(promise[best]))


def attained(scores: Array, worlds: IntArray) -> tuple[tuple[float, float], ...]:
    """(false alarms, true alarms) at many thresholds."""
    cuts = np.quantile(scores, np.linspace(0.0, 1.0, 101))
    low, high = np.sort(scores[worlds == 0]), np.sort(scores[worlds == 1])
    alarm = 1.0 - np.searchsorted(low, cuts, side="right") / len(low)
    hit = 1.0 - np.searchsorted(high, cuts, side="right") / len(high)
    return tuple((float(a), float(h)) for a, h in zip(alarm, hit, strict=True))
