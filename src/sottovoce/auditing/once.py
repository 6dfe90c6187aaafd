"""Releases that are made once: shape of the data, counts of targets and of scores, statistics, tallies, searches.

`attacked` takes any test that gives one number a run, the larger the more like the second of two records: of a search,
say, a coefficient of its best model. `audit_look`, `audit_targets`, `audit_balance`, `audit_statistics` and, of
held-out records, `audit_tally` have such tests for releases of the package, as strong as there are: both records are
known, and so is what each would let out without noise, so that along the line between the two nothing is lost. Many
runs are made as one, each at a node of its own with its own noise, by the code that makes real ones.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Method, Round
from sottovoce.auditing.attack import RUNS, Audit, attained, best_threshold, concluded
from sottovoce.auditing.bounds import CONFIDENCE, Family, check_confidence
from sottovoce.auditing.worst import WIDTH
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.evaluation import Held, Model, Tally, evaluate, seeded
from sottovoce.evaluation.tally import Keys, Part
from sottovoce.privacy.balance import NO_BALANCE, STEPS
from sottovoce.privacy.events import Priced
from sottovoce.privacy.moments import NO_MOMENTS, Moments
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.quantiles import NO_QUANTILES
from sottovoce.privacy.release import Gaussian, Release
from sottovoce.privacy.statistics import Products
from sottovoce.problem.moments import packed_moments
from sottovoce.problem.shards import Shards
from sottovoce.run.balance import Scores
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.shape import Look, look_release, statistic
from sottovoce.run.spec import Spec
from sottovoce.run.targets import Count
from sottovoce.run.targets import means as quantile_means
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

Played = Callable[[IntArray, int], Array]
"""(which record each of some runs has, a key that is nobody else's) -> one number a run."""
TOGETHER = 1024
"""Runs that are made as one."""
FEW = 64
"""The same, where all of them speak to one another."""
TURNS = 64
"""Directions that are tried for the second record."""


def attacked(
    event: Priced,
    delta: float,
    played: Played,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    choosing: float = 0.5,
    together: int = TOGETHER,
    seed: int | None = None,
    **told: Any,
) -> Audit:
    """What a test finds of a release.

    Parameters
    ----------
    event, delta : what is stated
    played : makes runs, and says how much like the second record each is
    runs : with either record
    confidence : of the bound
    choosing : the share of the runs that choose the threshold
    together : how many runs are asked for at a time
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
        for first in range(0, 2 * count, together):
            some = np.arange(first, min(first + together, 2 * count)) % 2
            key = secrets.randbits(62) if seed is None else int(rng.integers(1 << 62))
            scores.append(played(some, key))
            worlds.append(some)
        return np.concatenate(scores), np.concatenate(worlds)

    threshold, _ = best_threshold(*made(pilot), family)
    scores, worlds = made(runs - pilot)
    alarms = scores > threshold
    wrong = int(np.sum(alarms & (worlds == 0))), int(np.sum(~alarms & (worlds == 1)))
    counted = int(np.sum(worlds == 0)), int(np.sum(worlds == 1))
    test: dict[str, Any] = {"score": "likelihood ratio", "threshold": threshold, "attained": attained(scores, worlds)}
    return concluded(event, delta, wrong, counted, confidence, **(test | told))


@dataclass(frozen=True, eq=False)
class _Copies:
    """What a run lets out once, by many runs side by side: copies of one node and of those whose noise it shares.

    Copy r of the p-th of them is node p·R + r. Of Gaussian noises with precision P, node i's given all others' is
    theirs times −P_ij/P_ii, and its variance 1/P_ii: the best straight line takes that out of the node's own release.

    Attributes
    ----------
    release : the run's own
    nodes : the one that is attacked, and those it shares noise with, but for the coalition, whose seeds are known
    coalition : that which leaves least of its noise
    records : q of the node; what the others hold is not asked for, and they have one record each
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
        """Of the node that is hidden least; where all are alike, where runs are the least work."""
        release = look_release(spec, sizes, features, spec.network.graph(len(sizes)))
        law, events = release.law, release.events(sizes, np.ones(len(sizes), dtype=np.int64))
        hidden = [round(math.log(event.noise_multiplier), 9) for event in events]
        node = min(range(len(sizes)), key=lambda i: (hidden[i], sizes[i]))
        q = int(sizes[node])
        if not isinstance(law, Pairs):
            if not isinstance(law, Gaussian):
                raise SpecError("only Gaussian noise of what is let out once is attacked; audit another law")
            return cls(release, [node], (), q, np.ones(1), release.sigma[node])
        coalition = law.worst(node, release.sigma)
        nodes = [node, *(i for i in range(len(sizes)) if i != node and i not in coalition)]
        factors = 1.0 / np.take(release.sigma, nodes) if law.scale is None else law.scale[nodes]
        between = law.covariance(coalition, release.sigma)[np.ix_(nodes, nodes)]
        precision = np.linalg.inv(between / np.outer(factors, factors))[0]
        return cls(release, nodes, coalition, q, precision / precision[0], float(precision[0]) ** -0.5)

    @property
    def event(self) -> Priced:
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
        return _alike(X, y, np.append(kinds.ravel(), np.zeros(R * others, dtype=np.int64)), sizes)

    def heard(self, seen: Array) -> Array:
        """(R, width) what all releases together tell of the node's, but for a constant."""
        return np.asarray(np.tensordot(self.weights, seen.reshape(len(self.nodes), -1, seen.shape[1]), 1))

    def attacked(
        self, spec: Spec, played: Played, note: str, stated: Priced | None, most: int, given: dict[str, Any]
    ) -> Audit:
        """What a test finds, `most` runs at a time, or fewer where nodes share noise: a run has many more then."""
        notes = [note]
        if len(self.nodes) > 1:
            notes.append("all nodes' releases together, whose noise is shared")
        if self.coalition:
            several = len(self.coalition) > 1
            nodes = f"node{'s' * several} {', '.join(map(str, self.coalition))}"
            notes.append(f"with what {nodes} {'know' if several else 'knows'}")
        told: dict[str, Any] = {"node": self.nodes[0], "notes": tuple(notes)}
        told["together"] = most if len(self.nodes) == 1 else min(most, FEW)
        return attacked(stated or self.event, spec.privacy.delta, played, **(told | given))


# -- the look at the shape of the data --


def audit_look(spec: Spec, sizes: IntArray, features: int, *, stated: Priced | None = None, **how: Any) -> Audit:
    """Attack what is let out of the shape of the data before the first round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with moments; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    features : columns of a record, without the intercept's
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).but(privacy__noise="private(2)", privacy__moments="moments(0, 0.4)")
    >>> found = audit_look(spec, np.array([30]), 3, runs=2000, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    spec = spec.but(privacy__balance=NO_BALANCE)  # what comes after the rounds is attacked by itself
    moments, sizes = spec.privacy.moments, np.asarray(sizes)
    if moments == NO_MOMENTS:
        raise SpecError("this run takes no look at the shape of its data, and there is nothing to audit before it")
    copies, bound = _Copies.of(spec, sizes, features), spec.problem.row_norm
    rows = bound * _worst_rows(moments, features)
    one, other = statistic(moments, rows, bound) / copies.records
    line = (other - one) / copies.sigma**2
    numbers = features, bound, spec.problem.intercept, spec.problem.outputs

    def played(worlds: IntArray, key: int) -> Array:
        shards = copies.shards(rows, np.ones(2), worlds)
        look = Look(moments, copies.released(len(worlds)), shards.sizes, *numbers)
        keys = fresh() if spec.seed is None else None
        seen = look.released(make_problem(spec.problem, shards), Streams(key), keys)
        return np.asarray(copies.heard(seen) @ line)

    note, most = "what is let out of the shape of the data, by itself", _copies(copies.records, features)
    return copies.attacked(spec, played, note, stated, most, how)


def _worst_rows(moments: Moments, features: int) -> Array:
    """A row of length 1, and that row which lets out what is furthest from what the first does."""
    first = np.zeros((1, features))
    first[0, 0] = 1.0
    turns = np.linspace(0.0, math.pi, TURNS + 1)
    others = np.zeros((TURNS + 2, features))
    others[:-1, 0] = np.cos(turns)
    if features > 1:
        others[:-1, 1] = np.sin(turns)
    apart = np.linalg.norm(statistic(moments, others, 1.0) - statistic(moments, first, 1.0), axis=1)
    return np.concatenate([first, others[[int(np.argmax(apart))]]])


# -- the counts of targets --


def audit_targets(spec: Spec, sizes: IntArray, *, stated: Priced | None = None, **how: Any) -> Audit:
    """Attack the noisy counts of a regression's targets, let out before the first round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with quantiles; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).but(
    ...     privacy__noise="private(8)", privacy__quantiles="quantiles(0.4)", problem__loss="absolute"
    ... )
    >>> found = audit_targets(spec, np.array([30]), runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    quantiles, sizes = spec.privacy.quantiles, np.asarray(sizes)
    if quantiles == NO_QUANTILES:
        raise SpecError("this run counts no targets, and there is nothing to audit before it")
    copies = _Copies.of(spec, sizes, 1)
    X, y, bounds = np.zeros((2, 1)), np.array([-1.0, 1.0]), (spec.problem.row_norm, spec.problem.intercept)
    # one target at either end: in other cells of all sizes
    one, other = quantile_means(quantiles, _alike(X, y, np.arange(2), [1, 1])) / copies.records
    line = (other - one) / copies.sigma**2

    def played(worlds: IntArray, key: int) -> Array:
        shards = copies.shards(X, y, worlds)
        count = Count(quantiles, copies.released(len(worlds)), shards.sizes, *bounds)
        keys = fresh() if spec.seed is None else None
        seen = count.released(make_problem(spec.problem, shards), Streams(key), keys)
        return np.asarray(copies.heard(seen) @ line)

    note, most = "noisy counts of targets, by themselves", min(FEW, _copies(copies.records))
    return copies.attacked(spec, played, note, stated, most, how)


# -- the counts of scores --


def audit_balance(spec: Spec, sizes: IntArray, *, stated: Priced | None = None, **how: Any) -> Audit:
    """Attack the noisy counts of two classes' scores, let out after the last round; `how` as in `attacked`.

    Parameters
    ----------
    spec : a run with a balance; without a seed its releases are secure ones, as in a real run
    sizes : records of every node
    stated : what is stated, where that is not what the run itself would state

    Examples
    --------
    >>> from sottovoce import AlgorithmSpec
    >>> spec = Spec(AlgorithmSpec(2), seed=1).but(
    ...     privacy__noise="private(8)", privacy__balance="balance(0.4, 0.1)", problem__intercept=0.25
    ... )
    >>> found = audit_balance(spec, np.array([30]), runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    spec = spec.but(privacy__moments=NO_MOMENTS)  # what comes before the rounds is attacked by itself
    balance, sizes = spec.privacy.balance, np.asarray(sizes)
    if balance == NO_BALANCE:
        raise SpecError("this run counts no scores, and there is nothing to audit after it")
    copies = _Copies.of(spec, sizes, 1)
    X, ends = np.zeros((2, 1)), np.array([-1.0, 1.0])  # scores in other cells of all sizes, of either class
    edges = np.linspace(-0.5, 0.5, len(STEPS))  # whatever the first part said

    def told(shards: Shards, release: Release, streams: Streams, keys: tuple[Keys, Keys] | None) -> Array:
        asked = Scores(balance, release, shards.sizes, spec.algorithm.rounds)
        problem, scores = make_problem(spec.problem, shards), shards.y
        first, second = (None, None) if keys is None else keys
        where = asked.where(problem, scores, streams, first)
        return np.concatenate([where, asked.by_class(problem, scores, edges, streams, second)], axis=1)

    alone = _alike(X, ends, np.arange(2), [1, 1])
    one, other = (
        told(alone, replace(copies.release, sigma=(0.0, 0.0), law=Gaussian()), Streams(0), None) / copies.records
    )
    line = (other - one) / copies.sigma**2

    def played(worlds: IntArray, key: int) -> Array:
        shards, keys = copies.shards(X, ends, worlds), (fresh(), fresh()) if spec.seed is None else None
        return np.asarray(copies.heard(told(shards, copies.released(len(worlds)), Streams(key), keys)) @ line)

    note, most = "noisy counts of scores, by themselves", min(FEW, _copies(copies.records))
    return copies.attacked(spec, played, note, stated, most, how)


# -- sufficient statistics --


class _Heard:
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


def audit_statistics(spec: Spec, sizes: IntArray, features: int, *, stated: Priced | None = None, **how: Any) -> Audit:
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
    >>> spec = Spec(AlgorithmSpec(1, method="statistics"), seed=1).but(
    ...     privacy__noise="private(4)", privacy__sampling="full", network__activation="everyone",
    ...     problem__loss="squared", network__graph="complete"
    ... )
    >>> found = audit_statistics(spec, np.array([12]), 3, runs=1500, seed=1)
    >>> found.broken, found.stated / 2 < found.at_least < found.stated
    ('', True)
    """
    q, width = int(np.min(sizes)), max(min(features, WIDTH), 2)
    made = prepare(spec.but(seed=0), _alike(np.zeros((1, width)), np.zeros(1), np.zeros(q, dtype=np.int64), [q])).job
    products = made.release.sampling
    if not isinstance(products, Products):
        raise SpecError(f"'{spec.algorithm.method}' lets out no statistics; audit its rounds")
    if made.release.law.secrets:
        raise SpecError("statistics whose noise nodes share are not attacked by themselves; audit noise of nodes' own")
    R2, apart = products.row_norm**2, products.weight**2 - products.intercept**2
    cosine = float(np.clip(apart / R2, -1.0, 1.0))  # with opposite targets two records are then at right angles
    X = np.zeros((2, width))
    X[:, :2] = products.row_norm * np.array([[1.0, 0.0], [cosine, math.sqrt(1.0 - cosine**2)]])
    y = np.array([1.0, -1.0])

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        kinds = np.zeros((R, q), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        job = prepare(spec.but(seed=None if spec.seed is None else key), _alike(X, y, kinds.ravel(), [q] * R)).job
        heard = _Heard(job.method)
        ENGINES["reference"].run([replace(job, method=cast(Method, heard))], [job.start()], 1, 1)
        shards, at = job.problem.shards, (products.weight, products.row_norm, products.columns)
        one, other = (packed_moments(shards, int(np.argmax(worlds == k)), *at) / q for k in (0, 1))
        return np.asarray((heard.zeta - (one + other) / 2) @ (other - one) / job.release.sigma[0] ** 2)

    told: dict[str, Any] = {"notes": ("sufficient statistics, let out once",), "loud": True}
    return attacked(stated or made.release.event(0, q, 1), spec.privacy.delta, played, together=FEW, **(told | how))


def _alike(X: Array, y: Array, kinds: IntArray, sizes: Sequence[int] | IntArray) -> Shards:
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


class _Overheard(Tally):
    """A tally on which somebody listens: all that it ever let out, and what it would have been without noise."""

    def listen(self) -> list[tuple[Part, IntArray, Array]]:
        """What was heard so far."""
        return self.__dict__.setdefault("heard", [])

    def answers(self, part: Part, sums: IntArray, keys: Keys, nodes: IntArray | None = None) -> Array:
        """As they are, overheard."""
        found = super().answers(part, sums, keys, nodes)
        self.listen().append((part, sums, found))
        return found


def audit_tally(
    records: int, epsilon: float, delta: float, ask: str = "right", *, stated: Priced | None = None, **how: Any
) -> Audit:
    """Attack the noisy tally of a node's held-out records, all of its parts together; `how` as in `attacked`.

    Parameters
    ----------
    records : how many the node has held out
    epsilon, delta : the guarantee of the evaluation
    ask : 'right', 'confusion', 'scores' or 'squares', as in `evaluate`
    stated : what is stated, where that is not what the tally itself would state

    Examples
    --------
    >>> found = audit_tally(20, 2.0, 1e-5, "confusion", runs=2000, seed=1)
    >>> round(found.stated, 2), found.broken, found.at_least > 1
    (2.0, '', True)
    """
    if ask not in APART:
        raise SpecError(f"there is no attack on '{ask}'; choose one of {', '.join(APART)}")
    model, first, second = APART[ask]
    event = Tally.of(np.array([records]), epsilon, delta).events[0]
    secret = how.get("seed") is None

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        made = Tally.of(np.full(R, records), epsilon, delta)
        tally = _Overheard(made.release, made.sizes)
        kinds = np.zeros((R, records), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        asked = np.array([first, second])[kinds.ravel()]
        held = Held(np.repeat(np.arange(R), records), asked[:, 0], asked[:, 1])
        evaluate(tally, held, model, seeded(None if secret else key), ask)
        score = np.zeros(R)
        for part, sums, answers in tally.listen():
            one, other = (sums[worlds == world][0] * part.unit for world in (0, 1))
            score += (answers - (one + other) / 2) @ (other - one) / float(tally.noise(part)[0]) ** 2
        return score

    told: dict[str, Any] = {"notes": (f"an evaluation by '{ask}', by itself",), "loud": True}
    return attacked(stated or event, delta, played, together=_copies(records), **(told | how))


def _copies(records: int, width: int = 16) -> int:
    """Runs that are made as one, an even number: so many that their records, each of so many numbers, fit."""
    return max(2, min(TOGETHER, (1 << 24) // (max(records, 1) * width)) // 2 * 2)
