"""Releases that are made once: moments, counts of targets and of scores, statistics, tallies, searches.

`attacked` takes any test that gives one number a run, the larger the more like the second of two records: of a search,
say, a coefficient of its best model. `audit_pre_release`, `audit_columns`, `audit_target_range`,
`audit_private_threshold`, `audit_inference`, `audit_statistics` and, of held-out records, `audit_tally` have such tests
for releases of the package, as strong as there are: both records are known, and so is what each would release without
noise, so that along the line between the two nothing is lost. Many runs are made as one, each at a node of its own with
its own noise, by the code that makes real ones.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sottovoce._renamed import old_arguments
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Method, Round
from sottovoce.auditing.attack import RUNS, Audit, attained, best_threshold, concluded, errors_of
from sottovoce.auditing.bounds import CONFIDENCE, Family, check_confidence
from sottovoce.auditing.worst_case import WIDTH
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.evaluation import Held, Model, Tally, evaluate, seeded
from sottovoce.evaluation.tally import Keys, Part
from sottovoce.features import Additive
from sottovoce.privacy.events import AccountedEvent
from sottovoce.privacy.one_shot import SCORE_EDGES, Balance, Moments
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Gaussian, Release
from sottovoce.privacy.statistics import Products
from sottovoce.problem.moments import packed_moments
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.distribution import ColumnCounts
from sottovoce.run.inference import StageSums, stages_at
from sottovoce.run.one_shot import BEFORE, OneShotRelease, Query, one_shot_release
from sottovoce.run.plan import Request, plan_public
from sottovoce.run.private_scaling import RowMoments
from sottovoce.run.private_threshold import ClassCells, ScoreCells
from sottovoce.run.spec import Spec
from sottovoce.run.target_range import TargetCounts
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

Played = Callable[[IntArray, int], Array]
"""(which record each of some runs has, a key that is nobody else's) -> one number a run."""
COPIES_AT_ONCE = 1024
"""Runs that are made as one."""
MAX_COPIES_WITH_PAIRS = 64
"""The same, where all of them speak to one another."""
STEEP = 30.0
"""A weight of a model under which two records that are almost the same have opposite slopes of full size."""
TURNS = 64
"""Directions that are tried for the second record."""


def attacked(
    event: AccountedEvent,
    delta: float,
    played: Played,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    choosing: float = 0.5,
    at_once: int = COPIES_AT_ONCE,
    seed: int | None = None,
    **details: Any,
) -> Audit:
    """What a test finds of a release.

    Parameters
    ----------
    event, delta : what is stated
    played : makes runs, and says how much like the second record each is
    runs : with either record
    confidence : of the bound
    choosing : the share of the runs that choose the threshold
    at_once : how many runs are requested at a time
    seed : of the keys; without one they are secret

    Examples
    --------
    >>> from sottovoce.privacy.events import FullEvent
    >>> def played(worlds, key):
    ...     return worlds + 1.5 * np.random.default_rng(key).standard_normal(len(worlds))
    >>> found = attacked(FullEvent(1, 1, 0.5, 1.5, 1), 1e-5, played, runs=4000, seed=1)
    >>> round(found.stated, 2), 1.9 < found.at_least < found.stated
    (2.75, True)
    """
    check_confidence(confidence)
    if not 0 < choosing < 1 or runs < 10:
        raise SpecError(f"give at least 10 runs, and a share of them for choosing, not {runs} and {choosing}")
    family, rng, pilot = Family(event, delta), np.random.default_rng(seed), math.ceil(choosing * runs)
    if event.noise_multiplier == 0:
        raise SpecError("without noise nothing is stated, and there is nothing to audit; give the release a noise")

    def made(count: int) -> tuple[Array, IntArray]:
        scores, worlds = [], []
        for first in range(0, 2 * count, at_once):
            some = np.arange(first, min(first + at_once, 2 * count)) % 2
            key = secrets.randbits(62) if seed is None else int(rng.integers(1 << 62))
            scores.append(played(some, key))
            worlds.append(some)
        return np.concatenate(scores), np.concatenate(worlds)

    threshold, _ = best_threshold(*made(pilot), family)
    scores, worlds = made(runs - pilot)
    wrong, counted = errors_of(scores > threshold, worlds)
    test: dict[str, Any] = {"score": "likelihood ratio", "threshold": threshold, "attained": attained(scores, worlds)}
    return concluded(event, delta, wrong, counted, confidence, **(test | details))


@dataclass(frozen=True, eq=False)
class _Copies:
    """What a run releases once, by many runs side by side: copies of one node and of those whose noise it shares.

    Copy r of the p-th of them is node p·R + r. Of Gaussian noises with precision P, node i's given all others' is
    theirs times −P_ij/P_ii, and its variance 1/P_ii: the best straight line takes that out of the node's own release.

    Attributes
    ----------
    release : the run's own
    nodes : the one that is attacked, and those it shares noise with, but for the coalition, whose seeds are known
    coalition : that which leaves least of its noise
    records : q of the node; what the others hold is not requested, and they have one record each
    weights : 1, and P_ij/P_ii of the others
    sigma : 1/√P_ii
    """

    release: Release
    nodes: list[int]
    coalition: tuple[int, ...]
    records: int
    weights: Array
    sigma: float

    @classmethod
    def of(cls, spec: Spec, sizes: IntArray, features: int) -> "_Copies":
        """Of the node that is hidden least; where all are the same, where runs are the least work."""
        release = one_shot_release(spec, sizes, features, spec.network.graph(len(sizes)))
        law, events = release.law, release.events(sizes, np.ones(len(sizes), dtype=np.int64))
        hidden = [round(math.log(event.noise_multiplier), 9) for event in events]
        node = min(range(len(sizes)), key=lambda i: (hidden[i], sizes[i]))
        q = int(sizes[node])
        if not isinstance(law, Pairs):
            if not isinstance(law, Gaussian):
                raise SpecError("only Gaussian noise of what is released once is attacked; audit another law")
            return cls(release, [node], (), q, np.ones(1), release.sigma[node])
        coalition = law.worst(node, release.sigma)
        nodes = [node, *(i for i in range(len(sizes)) if i != node and i not in coalition)]
        factors = 1.0 / np.take(release.sigma, nodes) if law.scale is None else law.scale[nodes]
        between = law.covariance(coalition, release.sigma)[np.ix_(nodes, nodes)]
        precision = np.linalg.inv(between / np.outer(factors, factors))[0]
        return cls(release, nodes, coalition, q, precision / precision[0], float(precision[0]) ** -0.5)

    @property
    def event(self) -> AccountedEvent:
        """What is stated of it."""
        return self.release.event(self.nodes[0], self.records, 1)

    def released(self, R: int) -> Release:
        """By R runs."""
        law = self.release.law
        law = law.copies(self.nodes, R, self.coalition) if isinstance(law, Pairs) else law
        return replace(
            self.release, sigma=tuple(np.repeat(np.take(self.release.sigma, self.nodes), R).tolist()), law=law
        )

    def shards(self, X: Array, y: Array, worlds: IntArray) -> Shards:
        """Records of R runs, all like the first but for one of the node's, which is as each run's world says."""
        R, others = len(worlds), len(self.nodes) - 1
        kinds = np.zeros((R, self.records), dtype=np.int64)
        kinds[:, 0] = worlds
        sizes = np.repeat([self.records, 1], [R, R * others])
        return _shards_of_kinds(X, y, np.append(kinds.ravel(), np.zeros(R * others, dtype=np.int64)), sizes)

    def seen(self, query: Query[object], shards: Shards, spec: Spec, key: int, when: int = BEFORE) -> Array:
        """(R, width) what all releases of a query together reveal the node's, but for a constant."""
        runs = len(shards.sizes) // len(self.nodes)
        one_shot = OneShotRelease(query, self.released(runs), shards.sizes, when)
        seen = one_shot.released(shards, Streams(key), fresh() if spec.seed is None else None)
        return np.asarray(np.tensordot(self.weights, seen.reshape(len(self.nodes), -1, seen.shape[1]), 1))

    def attacked(
        self, spec: Spec, played: Played, note: str, stated: AccountedEvent | None, most: int, given: dict[str, Any]
    ) -> Audit:
        """What a test finds, `most` runs at a time, or fewer where nodes share noise: a run has many more then."""
        notes = [note]
        if len(self.nodes) > 1:
            notes.append("all nodes' releases together, whose noise is shared")
        if self.coalition:
            several = len(self.coalition) > 1
            nodes = f"node{'s' * several} {', '.join(map(str, self.coalition))}"
            notes.append(f"with what {nodes} {'know' if several else 'knows'}")
        details: dict[str, Any] = {"node": self.nodes[0], "notes": tuple(notes)}
        details["at_once"] = most if len(self.nodes) == 1 else min(most, MAX_COPIES_WITH_PAIRS)
        return attacked(stated or self.event, spec.privacy.delta, played, **(details | given))

    def attack_queries(
        self,
        spec: Spec,
        queries: Callable[[Shards], Sequence[Query[object]]],
        records: tuple[Array, Array],
        note: str,
        most: int,
        stated: AccountedEvent | None,
        given: dict[str, Any],
        first: int = BEFORE,
    ) -> Audit:
        """Attack what is released from round `first` on, by two records (X, y) as far apart in it as any two can be."""
        alone = _shards_of_kinds(*records, np.arange(2), [1, 1])
        one, other = np.concatenate([query.means(alone) for query in queries(alone)], axis=1) / self.records
        line = (other - one) / self.sigma**2

        def played(worlds: IntArray, key: int) -> Array:
            shards = self.shards(*records, worlds)
            seen = [self.seen(query, shards, spec, key, when) for when, query in enumerate(queries(shards), first)]
            return np.asarray(np.concatenate(seen, axis=1) @ line)

        return self.attacked(spec, played, note, stated, most, given)


# -- moments, before the first round --


def audit_pre_release(
    spec: Spec, sizes: IntArray, features: int, *, stated: AccountedEvent | None = None, **how: Any
) -> Audit:
    """Attack the noisy moments of the records, released before the first round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with moments; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    features : columns of a record, without the intercept's
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).replace(privacy__noise="private(2)", privacy__moments="moments(0, 0.4)")
    >>> found = audit_pre_release(spec, np.array([30]), 3, runs=2000, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    spec = spec.replace(privacy__balance=Balance())  # what comes after the rounds is attacked by itself
    moments, sizes = spec.privacy.moments, np.asarray(sizes)
    if not moments:
        raise SpecError("this run releases no moments, so there is nothing to audit before the rounds")
    copies, query = _Copies.of(spec, sizes, features), RowMoments(moments, features, spec.problem.row_norm)
    rows = spec.problem.row_norm * _worst_rows(moments, features)
    note, most = "moments of the records, on their own", _copies(copies.records, features)
    return copies.attack_queries(spec, lambda _: [query], (rows, np.ones(2)), note, most, stated, how)


def _worst_rows(moments: Moments, features: int) -> Array:
    """A row of length 1, and that row which releases what is furthest from what the first does."""
    first = np.zeros((1, features))
    first[0, 0] = 1.0
    turns = np.linspace(0.0, math.pi, TURNS + 1)
    others = np.zeros((TURNS + 2, features))
    others[:-1, 0] = np.cos(turns)
    if features > 1:
        others[:-1, 1] = np.sin(turns)
    query = RowMoments(moments, features, 1.0)
    apart = np.linalg.norm(query.phi(others) - query.phi(first), axis=1)
    return np.concatenate([first, others[[int(np.argmax(apart))]]])


# -- the counts of columns --


def audit_columns(spec: Spec, sizes: IntArray, *, stated: AccountedEvent | None = None, **how: Any) -> Audit:
    """Attack the noisy counts of an additive model's columns, released before the first round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with a distribution; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).replace(
    ...     privacy__noise="private(8)", privacy__distribution="distribution(0.4, 1)",
    ...     problem__features="cosine(4, 1, 1, 1, 0, 0, -1, 1)", problem__intercept=0.25,
    ... )
    >>> found = audit_columns(spec, np.array([30]), runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    spec, sizes, of = spec.replace(privacy__balance=Balance()), np.asarray(sizes), spec.problem.features
    if not spec.privacy.distribution or not isinstance(of, Additive):
        raise SpecError("this run counts no columns, and there is nothing to audit before it")
    copies = _Copies.of(spec, sizes, of.width)
    query = ColumnCounts(spec.privacy.distribution, of, spec.problem.row_norm)
    rows = np.zeros((2, of.columns))  # at either end of every numeric column, and of the bound of the others
    rows[:, : of.d] = np.array([[-1.0], [1.0]]) / query.unit
    rows[:, of.d : of.d + 1] = np.array([[-of.rest], [of.rest]]) / query.unit
    most = min(MAX_COPIES_WITH_PAIRS, _copies(copies.records, query.width))
    note = "noisy counts of columns, on their own"
    return copies.attack_queries(spec, lambda _: [query], (rows, np.ones(2)), note, most, stated, how)


# -- the counts of targets --


def audit_target_range(spec: Spec, sizes: IntArray, *, stated: AccountedEvent | None = None, **how: Any) -> Audit:
    """Attack the noisy counts of a regression's targets, released before the first round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with quantiles; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).replace(
    ...     privacy__noise="private(8)", privacy__quantiles="quantiles(0.4)", problem__loss="absolute"
    ... )
    >>> found = audit_target_range(spec, np.array([30]), runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    quantiles, sizes = spec.privacy.quantiles, np.asarray(sizes)
    if not quantiles:
        raise SpecError("this run counts no targets, and there is nothing to audit before it")
    copies = _Copies.of(spec, sizes, 1)
    records = np.zeros((2, 1)), np.array([-1.0, 1.0])  # one target at either end: in other cells of all sizes
    note, most = "noisy counts of targets, on their own", min(MAX_COPIES_WITH_PAIRS, _copies(copies.records))
    return copies.attack_queries(spec, lambda _: [TargetCounts(quantiles)], records, note, most, stated, how)


# -- the counts of scores --


def audit_private_threshold(spec: Spec, sizes: IntArray, *, stated: AccountedEvent | None = None, **how: Any) -> Audit:
    """Attack the noisy counts of two classes' scores, released after the last round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with a balance; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).replace(
    ...     privacy__noise="private(8)", privacy__balance="balance(0.4, 0.1)", problem__intercept=0.25
    ... )
    >>> found = audit_private_threshold(spec, np.array([30]), runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    spec = spec.replace(privacy__moments=Moments())  # what comes before the rounds is attacked by itself
    balance, sizes = spec.privacy.balance, np.asarray(sizes)
    if not balance:
        raise SpecError("this run counts no scores, and there is nothing to audit after it")
    copies = _Copies.of(spec, sizes, 1)
    records = np.zeros((2, 1)), np.array([-1.0, 1.0])  # scores in other cells of all sizes, of either class
    edges = np.linspace(-0.5, 0.5, len(SCORE_EDGES))  # whatever the first part said

    def parts(shards: Shards) -> tuple[Query[object], Query[object]]:
        return ScoreCells(balance, shards.y), ClassCells(balance, shards.y, edges)

    note, most = "noisy counts of scores, on their own", min(MAX_COPIES_WITH_PAIRS, _copies(copies.records))
    return copies.attack_queries(spec, parts, records, note, most, stated, how, spec.algorithm.rounds + 1)


# -- sums for confidence intervals --


def audit_inference(
    spec: Spec, sizes: IntArray, features: int, *, stated: AccountedEvent | None = None, **how: Any
) -> Audit:
    """Attack all sums for confidence intervals together, released after the last round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with intervals; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    features : columns of a record, without the intercept's; more than a few are audited as a few
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).replace(
    ...     privacy__noise="private(4)", privacy__inference="inference(0.9, 1, 1.4)", problem__loss="squared",
    ...     problem__intercept=0.25, privacy__clip=1.0
    ... )
    >>> found = audit_inference(spec, np.array([30]), 3, runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    choice, sizes = spec.privacy.inference, np.asarray(sizes)
    if not choice:
        raise SpecError("this run releases no sums for intervals, and there is nothing to audit after it")
    spec, width = spec.replace(privacy__moments=Moments()), max(min(features, WIDTH), 2)
    copies = _Copies.of(spec, sizes, width)
    queries = [StageSums(stage, choice) for stage in stages_at(spec.problem.loss, STEEP * np.eye(width + 1)[1], choice)]
    records = _worst_pair(queries, width, spec.problem.row_norm)
    pair = _shards_of_kinds(*records, np.arange(2), [1, 1])
    numbers = sum(query.means(pair).shape[1] for query in queries)
    note = "noisy sums for intervals, all stages at one model"
    most = min(MAX_COPIES_WITH_PAIRS, _copies(copies.records, numbers))
    return copies.attack_queries(spec, lambda _: queries, records, note, most, stated, how, spec.algorithm.rounds + 1)


def _worst_pair(queries: Sequence[Query[object]], width: int, longest: float) -> tuple[Array, Array]:
    """Of rows in one plane and both targets, the two records whose sums are furthest apart."""
    turns = np.linspace(0.0, 2.0 * math.pi, TURNS + 1)[:-1]
    X = np.zeros((2 * TURNS, width))
    X[:, 0], X[:, 1] = np.tile(longest * np.cos(turns), 2), np.tile(longest * np.sin(turns), 2)
    y = np.repeat([-1.0, 1.0], TURNS)
    each = _shards_of_kinds(X, y, np.arange(len(y)), np.ones(len(y), dtype=np.int64))
    sums = np.concatenate([query.means(each) for query in queries], axis=1)
    apart = np.linalg.norm(sums[:, None, :] - sums[None, :, :], axis=2)
    pair = list(np.unravel_index(int(np.argmax(apart)), apart.shape))
    return X[pair], y[pair]


# -- sufficient statistics --


class _RecordedMethod:
    """A method whose releases are put down; in all else the method itself."""

    def __init__(self, method: Method) -> None:
        self._method, self.zeta = method, np.empty(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def step(self, *given: Any) -> Round:
        """The method's own."""
        done = self._method.step(*given)
        self.zeta = done.zeta
        return done


def audit_statistics(
    spec: Spec, sizes: IntArray, features: int, *, stated: AccountedEvent | None = None, **how: Any
) -> Audit:
    """Attack the sufficient statistics of a regression, or its three numbers; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run of statistics; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    features : columns of a record, without the intercept's; more than a few are audited as a few
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(1, method="statistics"), seed=1).replace(
    ...     privacy__noise="private(4)", privacy__sampling="full", network__activation="everyone",
    ...     problem__loss="squared", network__graph="complete"
    ... )
    >>> found = audit_statistics(spec, np.array([12]), 3, runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    q, width = int(np.min(sizes)), max(min(features, WIDTH), 2)
    made = plan_public(Request(spec, np.array([q]), width, schedule_seed=0))
    products = made.release.sampling
    if not isinstance(products, Products):
        raise SpecError(f"'{spec.algorithm.method}' releases no statistics; audit its rounds")
    if made.release.law.secrets:
        raise SpecError("statistics whose noise nodes share are not attacked on their own; audit noise of nodes' own")
    R2, apart = products.row_norm**2, products.weight**2 - products.intercept**2
    cosine = float(np.clip(apart / R2, -1.0, 1.0))  # with opposite targets two records are then at right angles
    X = np.zeros((2, width))
    X[:, :2] = products.row_norm * np.array([[1.0, 0.0], [cosine, math.sqrt(1.0 - cosine**2)]])
    y = np.array([1.0, -1.0])

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        kinds = np.zeros((R, q), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        job = prepare(
            spec.replace(seed=None if spec.seed is None else key), _shards_of_kinds(X, y, kinds.ravel(), [q] * R)
        ).job
        heard = _RecordedMethod(job.method)
        ENGINES["reference"].run([replace(job, method=cast(Method, heard))], [job.start()], 1, 1)
        shards, at = job.problem.shards, (products.weight, products.row_norm, products.columns)
        one, other = (packed_moments(shards, int(np.argmax(worlds == k)), *at) / q for k in (0, 1))
        return np.asarray((heard.zeta - (one + other) / 2) @ (other - one) / job.release.sigma[0] ** 2)

    details: dict[str, Any] = {"notes": ("sufficient statistics, released once",), "loud": True}
    return attacked(
        stated or made.release.event(0, q, 1),
        spec.privacy.delta,
        played,
        at_once=MAX_COPIES_WITH_PAIRS,
        **(details | how),
    )


def _shards_of_kinds(X: Array, y: Array, kinds: IntArray, sizes: Sequence[int] | IntArray) -> Shards:
    """Records of these kinds, so many at every node."""
    return Shards.of(X[kinds], y[kinds], np.concatenate([[0], np.cumsum(sizes)]))


# -- tallies of held-out records --

APART: dict[str, tuple[Model, tuple[float, float], tuple[float, float]]] = {
    "right": (Model(2), (-1.0, 1.0), (1.0, 1.0)),
    "confusion": (Model(2), (-1.0, 0.0), (1.0, 1.0)),
    "scores": (Model(2), (-0.9, 0.0), (0.9, 1.0)),
    "squares": (Model(0), (-1.0, -1.0), (0.0, 1.0)),
}
"""For every question a model and two records, (score, target), whose answers are as far apart as any two are."""


class _RecordedTally(Tally):
    """A tally on which someone listens: all that it ever released, and what it would have been without noise."""

    def listen(self) -> list[tuple[Part, IntArray, Array]]:
        """What was heard so far."""
        return self.__dict__.setdefault("heard", [])

    def answers(self, part: Part, sums: IntArray, keys: Keys, nodes: IntArray | None = None) -> Array:
        """As they are, overheard."""
        found = super().answers(part, sums, keys, nodes)
        self.listen().append((part, sums, found))
        return found


@old_arguments
def audit_tally(
    records: int,
    epsilon: float,
    delta: float,
    metrics: str = "right",
    *,
    stated: AccountedEvent | None = None,
    **how: Any,
) -> Audit:
    """Attack the noisy tally of a node's held-out records, all of its parts together; `how` as in `attacked`.

    Parameters
    ----------
    records : how many the node has held out
    epsilon, delta : the guarantee of the evaluation
    metrics : 'right', 'confusion', 'scores' or 'squares', as in `evaluate`
    stated : what is stated, where that is not what the tally itself would state

    Examples
    --------
    >>> found = audit_tally(20, 2.0, 1e-5, "confusion", runs=2000, seed=1)
    >>> round(found.stated, 2), found.broken, found.at_least > 1
    (2.0, '', True)
    """
    if metrics not in APART:
        raise SpecError(f"there is no attack on '{metrics}'; choose one of {', '.join(APART)}")
    model, first, second = APART[metrics]
    event = Tally.of(np.array([records]), epsilon, delta).events[0]
    secret = how.get("seed") is None

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        made = Tally.of(np.full(R, records), epsilon, delta)
        tally = _RecordedTally(made.release, made.sizes)
        kinds = np.zeros((R, records), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        values = np.array([first, second])[kinds.ravel()]
        held = Held(np.repeat(np.arange(R), records), values[:, 0], values[:, 1])
        evaluate(tally, held, model, seeded(None if secret else key), metrics)
        score = np.zeros(R)
        for part, sums, answers in tally.listen():
            one, other = (sums[worlds == world][0] * part.unit for world in (0, 1))
            score += (answers - (one + other) / 2) @ (other - one) / float(tally.noise(part)[0]) ** 2
        return score

    details: dict[str, Any] = {"notes": (f"an evaluation by '{metrics}', by itself",), "loud": True}
    return attacked(stated or event, delta, played, at_once=_copies(records), **(details | how))


def _copies(records: int, width: int = 16) -> int:
    """Runs that are made as one, an even number: so many that their records, each of so many numbers, fit."""
    return max(2, min(COPIES_AT_ONCE, (1 << 24) // (max(records, 1) * width)) // 2 * 2)
