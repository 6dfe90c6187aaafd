"""What is found in the runs: the paper's readings of its figures, its claims of ε, and its two open questions.

A reading compares two kinds of runs, and is judged by the 95 % interval of their paired differences: the runs of a
seed share records and noise term. The open questions get a first answer each: how far from the mean a run may be, and
what happens when nodes differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm import bounds
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.data.synthetic import two_gaussians
from sottovoce.experiments.paper.figures import chosen, final
from sottovoce.experiments.paper.measure import UNSEEN, CostCase
from sottovoce.experiments.paper.runs import CURVES, DELTA, EPSILONS, SCHEMES
from sottovoce.experiments.table import Row
from sottovoce.figure import Interval
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import GivenNoise, NoNoise, sigma
from sottovoce.privacy.events import ADJACENCY, FixedEvent
from sottovoce.privacy.statement import number
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem, prepare
from sottovoce.run.solve import Run, RunOptions, run_batch
from sottovoce.run.spec import Spec


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, the numbers, and the verdict."""

    claim: str
    noise: str
    numbers: str
    verdict: str
    """'shown' (the interval of the paired differences is on the claim's side of 0), 'reversed', 'not distinguished'."""


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Every ordering that the paper reads off its figures, for each noise and regularizer that was run."""
    kinds, noises = (sorted({row[name] for row in rows}, reverse=True) for name in ("h", "noise"))
    result = []
    for h in kinds:
        for noise in noises:
            mine = chosen(rows, h=h, noise=noise)
            result += [
                *_by_activity(mine, h, noise),
                *_by_speed(mine, h, noise),
                *_by_epsilon(mine, h, noise),
                *_by_lead(mine, h, noise),
            ]
    return result


def _loss(rows: Sequence[Row], scheme: str, epsilon: float) -> Array:
    return final(rows, "suboptimality", scheme=scheme, epsilon=epsilon)


def _schemes(rows: Sequence[Row]) -> list[str]:
    there = {row["scheme"] for row in rows}
    return [scheme for scheme in SCHEMES if scheme in there]


def _pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Fewer active nodes and more; the two readings of ι = 0.2 are not compared with each other."""
    return [p for p in combinations(_schemes(rows), 2) if p != ("edges(2)", "matching(2)")]


def _by_activity(rows: Sequence[Row], h: str, noise: str) -> list[Finding]:
    """Fewer active nodes lose less at the end, after the same passes over the data."""
    epsilon = CURVES[h]
    return [
        _less(
            f"{h}, ε = {epsilon}, after three passes: {SCHEMES[few]} loses less than {SCHEMES[many]}",
            noise,
            _loss(rows, few, epsilon),
            _loss(rows, many, epsilon),
        )
        for few, many in _pairs(rows)
    ]


def _by_speed(rows: Sequence[Row], h: str, noise: str) -> list[Finding]:
    """The paper's "convergence speed": its axis is iterations, so losses are compared after as many rounds."""
    epsilon, found = CURVES[h], []
    for few, many in _pairs(rows):
        last = max(row["round"] for row in chosen(rows, scheme=many, epsilon=epsilon))
        for t in (last // 10, last):
            claim = f"{h}, ε = {epsilon}, after {t:,} iterations: {SCHEMES[few]} loses less than {SCHEMES[many]}"
            losses = [after(rows, t, scheme=scheme, epsilon=epsilon) for scheme in (few, many)]
            found.append(_less(claim, noise, *losses))
    return found


def after(rows: Sequence[Row], t: int, **fields: str | float) -> Array:
    """F − F* after t rounds, one value a seed; between two evaluations it is linear in log t."""
    values = []
    mine = sorted(chosen(rows, **fields), key=lambda row: (row["seed"], row["round"]))
    for _, runs in groupby(mine, key=lambda row: row["seed"]):
        snapshots = [(row["round"], row["suboptimality"]) for row in runs]
        rounds, losses = np.array(snapshots).T
        values.append(float(np.interp(np.log(max(t, 1)), np.log(rounds), losses)))
    return np.array(values)


def _by_epsilon(rows: Sequence[Row], h: str, noise: str) -> list[Finding]:
    """A larger ε loses less, from each value of the grid to the next."""
    result = []
    for scheme in _schemes(rows):
        losses = [_loss(rows, scheme, epsilon) for epsilon in EPSILONS]
        steps = [_less("", noise, later, earlier).verdict for earlier, later in pairwise(losses)]
        shown = steps.count("shown")
        verdict = steps[0] if len(set(steps)) == 1 else f"shown in {shown} of {len(steps)} steps"
        numbers = ", ".join(f"{np.mean(loss):.3g}" for loss in losses)
        result.append(Finding(f"{h}, {SCHEMES[scheme]}: a larger ε loses less", noise, numbers, verdict))
    return result


def _by_lead(rows: Sequence[Row], h: str, noise: str) -> list[Finding]:
    """The lead over everybody speaking grows as ε falls."""
    if "everyone" not in _schemes(rows):
        return []

    def lead(epsilon: float) -> Array:
        return _loss(rows, "everyone", epsilon) - _loss(rows, "edges(1)", epsilon)

    claim = f"{h}: the lead of {SCHEMES['edges(1)']} over {SCHEMES['everyone']} is larger at ε = 0.2 than at ε = 1"
    return [_less(claim, noise, lead(EPSILONS[-1]), lead(EPSILONS[0]))]


def _less(claim: str, noise: str, small: Array, large: Array) -> Finding:
    """Judge by the differences of runs with the same seed."""
    apart = Interval.of(large - small)
    verdict = "shown" if apart.low > 0 else "reversed" if apart.high < 0 else "not distinguished"
    numbers = f"{Interval.of(small)} against {Interval.of(large)}; difference {apart}"
    return Finding(claim, noise, numbers, verdict)


TRUTH = (
    f"What the paper's noise claims, and the true ε at δ = {DELTA:g} against 'transcript' ({ADJACENCY}; the node that "
    "spoke most, largest over seeds)"
)


def truths(rows: Sequence[Row]) -> list[dict[str, str]]:
    """What Theorem 1's noise truly gives: a row a scheme, a column a claimed ε; empty without runs of that noise."""
    largest: dict[tuple[str, float], float] = {}
    for row in chosen(rows, noise="paper"):
        at = row["scheme"], row["epsilon"]
        largest[at] = max(largest.get(at, 0.0), row["true_epsilon"])
    claimed = sorted({epsilon for _, epsilon in largest})
    return [
        {"scheme": text} | {f"claims {epsilon:g}": number(largest[scheme, epsilon]) for epsilon in claimed}
        for scheme, text in SCHEMES.items()
        if any(who == scheme for who, _ in largest)
    ]


QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Spread:
    """Final suboptimality over many seeds, beside the bound on its mean."""

    noise: str
    seeds: int
    mean: float
    quantiles: dict[float, float]
    bound: float
    """Theorem 2 in its sharper form: of the expectation."""


def high_probability(seeds: int, noises: tuple[str, ...] = ("paper", "honest")) -> list[Spread]:
    """Quantiles of F − F* over seeds (draws of records, noise and schedule; the data stays)."""
    setting, shards = CostCase(), _shards(np.full(20, 500))
    found = []
    for noise in noises:
        spec = setting.spec(noise, 0)
        prepared = prepare(spec, shards)
        job, method = prepared.job, prepared.job.method
        assert isinstance(method, DualAveraging)
        best = optimum(job.problem, gap=1e-7).value
        values = np.array([_end(spec.replace(seed=seed), shards)[0] for seed in range(seeds)]) - best
        case = bounds.BoundInputs(
            L=job.release.clip,
            m=job.problem.m,
            n=shards.n,
            iota=method.iota,
            beta=prepared.public["beta"],
            mu=method.h.modulus,
            sigma=max(job.release.sigma),
        )
        bound = bounds.theorem2(case, method.steps, method.T, "sharper")
        quantiles = {p: float(np.quantile(values, p)) for p in QUANTILES}
        found.append(Spread(noise, seeds, float(np.mean(values)), quantiles, bound))
    return found


@dataclass(frozen=True)
class Uneven:
    """What happens when nodes differ."""

    case: str
    suboptimality: Interval
    sigma: tuple[float, float]
    """Smallest and largest σ_i."""
    epsilon: float
    """True ε of the worst node."""


def uneven_nodes(seeds: int, epsilon: float = 1.0) -> list[Uneven]:
    """Equal nodes; q_i over a factor of 100; L_i over a factor of 100 with one clip for all, or each its own.

    Everyone has its own honest noise for the same ε. Under uneven q_i the objective weighs records equally.
    """
    equal = np.full(20, 500)
    sizes = np.round(np.geomspace(20, 2000, 20)).astype(int)
    sizes = np.round(sizes * equal.sum() / sizes.sum()).astype(int)
    lengths = np.geomspace(0.01, 1.0, 20)
    base = CostCase(epsilon=epsilon).spec("honest", 0)
    records = base.replace(problem__weights=ByRecords())
    cases = [
        ("equal nodes", base, _shards(equal), None),
        ("q_i over 100 ×, nodes weighed equally", base, _shards(sizes), None),
        ("q_i over 100 ×, records weighed equally", records, _shards(sizes), None),
        ("‖rows‖ over 100 ×, one clip", base, _shards(equal, lengths), None),
        ("‖rows‖ over 100 ×, each node its own clip", base, _shards(equal, lengths), lengths),
    ]
    return [_uneven(case, spec, shards, clips, seeds, epsilon) for case, spec, shards, clips in cases]


def _uneven(case: str, spec: Spec, shards: Shards, clips: Array | None, seeds: int, epsilon: float) -> Uneven:
    values, worst, scales = [], 0.0, (0.0, 0.0)
    best = optimum(make_problem(spec.problem, shards), gap=1e-6).value
    for seed in range(seeds):
        mine = spec.replace(seed=seed)
        if clips is not None:  # σ_i in proportion to L_i: rows are short enough that nothing is clipped
            spoken = prepare(mine.replace(privacy__noise=NoNoise()), shards).job.schedule.participations()
            most = int(spoken.max())
            q = int(shards.sizes[0])
            needed = [sigma(FixedEvent(q, 1, float(L), 1.0, most), epsilon, spec.privacy.delta) for L in clips]
            mine = mine.replace(privacy__noise=GivenNoise(tuple(float(f"{s:.9g}") for s in needed)))
        value, run = _end(mine, shards)
        values.append(value - best)
        sigmas, spoken = run.prepared.job.release.sigma, run.prepared.job.schedule.participations()
        scales = min(sigmas), max(sigmas)
        for i in range(shards.n) if seed == 0 else []:
            L = 1.0 if clips is None else float(clips[i])
            event = FixedEvent(int(shards.sizes[i]), 1, L, float(sigmas[i]), int(spoken[i]))
            worst = max(worst, compute_epsilon([event], spec.privacy.delta, lower=False).epsilon)
    return Uneven(case, Interval.of(values), scales, worst)


def _shards(sizes: IntArray, lengths: Array | None = None) -> Shards:
    table = two_gaussians(int(sizes.sum()), 20, seed=0)
    X = np.asarray(table.X)
    if lengths is not None:
        X = X * np.repeat(lengths, sizes)[:, None]
    assert table.y is not None
    return Shards.of(X, table.y, np.concatenate([[0], np.cumsum(sizes)]))


def _end(spec: Spec, shards: Shards) -> tuple[float, Run]:
    """F of the mean model at the end, and the run."""
    (run,) = run_batch([spec], shards, RunOptions(UNSEEN))
    return run.prepared.job.problem.value(run.models.mean(axis=0)), run
