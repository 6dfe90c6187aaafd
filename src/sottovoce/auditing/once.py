"""Releases that are made once: shape of the data, counts of targets and of scores, statistics, tallies, searches.

`attacked` takes any test that gives one number a run, the larger the more like the second of two records: of a search,
say, a coefficient of its best model. `audit_look`, `audit_targets`, `audit_balance`, `audit_statistics` and, of
held-out records, `audit_tally` have such tests for releases of the package, as strong as there are: both records are
known, and so is what each would let out without noise, so that along the line between the two nothing is lost. Many
runs are made as one, each at a node of its own with its own noise, by the code that makes real ones.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
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


def _attackable(spec: Spec, sizes: IntArray, features: int) -> tuple[Release, int]:
    """What a run lets out once, and the node to attack: all are as well hidden; where runs are the least work."""
    release = look_release(spec, sizes, features, spec.network.graph(len(sizes)))
    if not isinstance(release.law, Gaussian):
        raise SpecError("a release whose noise nodes share is not attacked by itself; audit one of noise of nodes' own")
    return release, int(np.argmin(sizes))


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
    release, node = _attackable(spec, sizes, features)
    q, bound = int(sizes[node]), spec.problem.row_norm
    rows = bound * _worst_rows(moments, features)
    means = statistic(moments, rows, bound) / q
    line = (means[2] - means[1]) / release.sigma[node] ** 2
    middle = float(line @ (means[1] + means[2]) / 2)

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        chosen = np.zeros(R * q, dtype=np.int64)
        chosen[::q] = 1 + worlds
        shards = Shards.of(rows[chosen], np.ones(R * q), q * np.arange(R + 1))
        each = type(release)(release.sampling, release.clip, (release.sigma[node],) * R, release.adversary)
        numbers = bound, spec.problem.intercept, spec.problem.outputs
        copies = Look(moments, each, np.full(R, q), features, *numbers)
        keys = fresh() if spec.seed is None else None
        seen = copies.released(make_problem(spec.problem, shards), Streams(key), keys)
        return np.asarray(seen @ line - middle)

    told: dict[str, Any] = {"node": node, "notes": ("what is let out of the shape of the data, by itself",)}
    event = stated or release.event(node, q, 1)
    return attacked(event, spec.privacy.delta, played, together=_copies(q), **(told | how))


def _worst_rows(moments: Moments, features: int) -> Array:
    """Nothing, a row of length 1, and that row which lets out what is furthest from what the first does."""
    first = np.zeros((1, features))
    first[0, 0] = 1.0
    turns = np.linspace(0.0, math.pi, TURNS + 1)
    others = np.zeros((TURNS + 2, features))
    others[:-1, 0] = np.cos(turns)
    if features > 1:
        others[:-1, 1] = np.sin(turns)
    apart = np.linalg.norm(statistic(moments, others, 1.0) - statistic(moments, first, 1.0), axis=1)
    return np.concatenate([np.zeros((1, features)), first, others[[int(np.argmax(apart))]]])


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
    release, node = _attackable(spec, sizes, 1)
    q, numbers = int(sizes[node]), (spec.problem.row_norm, spec.problem.intercept)
    y = np.array([-1.0, 1.0])  # in other cells of all sizes
    one, other = (quantile_means(quantiles, _alike(np.zeros((2, 1)), y, np.full(1, kind), 1)) / q for kind in (0, 1))
    line = (other - one)[0] / release.sigma[node] ** 2

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        kinds = np.zeros((R, q), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        each = type(release)(release.sampling, release.clip, (release.sigma[node],) * R, release.adversary)
        problem = make_problem(spec.problem, _alike(np.zeros((2, 1)), y, kinds.ravel(), R))
        keys = fresh() if spec.seed is None else None
        seen = Count(quantiles, each, np.full(R, q), *numbers).released(problem, Streams(key), keys)
        return np.asarray(seen @ line)

    told: dict[str, Any] = {"node": node, "notes": ("noisy counts of targets, by themselves",)}
    event = stated or release.event(node, q, 1)
    return attacked(event, spec.privacy.delta, played, together=min(FEW, _copies(q)), **(told | how))


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
    release, node = _attackable(spec, sizes, 1)
    q, ends = int(sizes[node]), np.array([-1.0, 1.0])  # scores in other cells of all sizes, of either class
    edges = np.linspace(-0.5, 0.5, len(STEPS))  # whatever the first part said

    def heard(kinds: IntArray, R: int, streams: Streams, keys: tuple[Keys, Keys] | None, sigma: float) -> Array:
        each = type(release)(release.sampling, release.clip, (sigma,) * R, release.adversary)
        asked = Scores(balance, each, np.full(R, len(kinds) // R), spec.algorithm.rounds)
        problem = make_problem(spec.problem, _alike(np.zeros((2, 1)), ends, kinds, R))
        first, second = (None, None) if keys is None else keys
        where = asked.where(problem, ends[kinds], streams, first)
        return np.concatenate([where, asked.by_class(problem, ends[kinds], edges, streams, second)], axis=1)

    one, other = (heard(np.full(1, kind), 1, Streams(0), None, 0.0)[0] / q for kind in (0, 1))
    line = (other - one) / release.sigma[node] ** 2

    def played(worlds: IntArray, key: int) -> Array:
        R = len(worlds)
        kinds = np.zeros((R, q), dtype=np.int64)  # the others are all like the first record
        kinds[:, 0] = worlds
        keys = (fresh(), fresh()) if spec.seed is None else None
        return np.asarray(heard(kinds.ravel(), R, Streams(key), keys, release.sigma[node]) @ line)

    told: dict[str, Any] = {"node": node, "notes": ("noisy counts of scores, by themselves",)}
    event = stated or release.event(node, q, 1)
    return attacked(event, spec.privacy.delta, played, together=min(FEW, _copies(q)), **(told | how))


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
    made = prepare(spec.but(seed=0), _alike(np.zeros((1, width)), np.zeros(1), np.zeros(q, dtype=np.int64), 1)).job
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
        job = prepare(spec.but(seed=None if spec.seed is None else key), _alike(X, y, kinds.ravel(), R)).job
        heard = _Heard(job.method)
        ENGINES["reference"].run([replace(job, method=cast(Method, heard))], [job.start()], 1, 1)
        shards, at = job.problem.shards, (products.weight, products.row_norm, products.columns)
        one, other = (packed_moments(shards, int(np.argmax(worlds == k)), *at) / q for k in (0, 1))
        return np.asarray((heard.zeta - (one + other) / 2) @ (other - one) / job.release.sigma[0] ** 2)

    told: dict[str, Any] = {"notes": ("sufficient statistics, let out once",), "loud": True}
    return attacked(stated or made.release.event(0, q, 1), spec.privacy.delta, played, together=FEW, **(told | how))


def _alike(X: Array, y: Array, kinds: IntArray, nodes: int) -> Shards:
    """Records of these kinds, as many at every node."""
    return Shards.of(X[kinds], y[kinds], len(kinds) // nodes * np.arange(nodes + 1))


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


def _copies(records: int) -> int:
    """Runs that are made as one, an even number: so many that their records fit."""
    return max(2, min(TOGETHER, (1 << 20) // max(records, 1)) // 2 * 2)
