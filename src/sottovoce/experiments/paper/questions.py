"""The two questions that the paper leaves open, with a first answer each: uneven nodes, and high probability."""

from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm import bounds
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.data.synthetic import two_gaussians
from sottovoce.engine import ENGINES
from sottovoce.experiments.paper.intervals import Interval
from sottovoce.experiments.paper.measure import Setting
from sottovoce.privacy.accounting import price
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.events import FixedEvent
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import Spec

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
    setting, shards = Setting(), _shards(np.full(20, 500))
    found = []
    for noise in noises:
        spec = setting.spec(noise, 0)
        job = prepare(spec, shards).job
        best = optimum(job.problem, gap=1e-7).value
        values = np.array([_final(spec.but(seed=seed), shards)[0] for seed in range(seeds)]) - best
        method = job.method
        assert isinstance(method, DualAveraging)
        case = bounds.Setting(
            L=job.release.clip,
            m=job.problem.m,
            n=shards.n,
            iota=method.iota,
            beta=prepare(spec, shards).public["beta"],
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
    base = Setting(epsilon=epsilon).spec("honest", 0)
    records = base.but(problem__weights="records")
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
    best = optimum(prepare(spec, shards).job.problem, gap=1e-6).value
    for seed in range(seeds):
        mine = spec.but(seed=seed)
        if clips is not None:  # σ_i in proportion to L_i: rows are short enough that nothing is clipped
            spoken = prepare(mine.but(privacy__noise="none"), shards).job.schedule.participations()
            most = int(spoken.max())
            q = int(shards.sizes[0])
            chosen = [sigma(FixedEvent(q, 1, float(L), 1.0, most), epsilon, spec.privacy.delta) for L in clips]
            mine = mine.but(privacy__noise="gaussian(" + ", ".join(f"{s:.9g}" for s in chosen) + ")")
        value, sigmas, participations = _final(mine, shards)
        values.append(value - best)
        scales = min(sigmas), max(sigmas)
        for i in range(shards.n) if seed == 0 else []:
            L = 1.0 if clips is None else float(clips[i])
            event = FixedEvent(int(shards.sizes[i]), 1, L, float(sigmas[i]), int(participations[i]))
            worst = max(worst, price([event], spec.privacy.delta, lower=False).epsilon)
    return Uneven(case, Interval.of(np.array(values)), scales, worst)


def _shards(sizes: IntArray, lengths: Array | None = None) -> Shards:
    table = two_gaussians(int(sizes.sum()), 20, seed=0)
    X = np.asarray(table.X)
    if lengths is not None:
        X = X * np.repeat(lengths, sizes)[:, None]
    assert table.y is not None
    return Shards.of(X, table.y, np.concatenate([[0], np.cumsum(sizes)]))


def _final(spec: Spec, shards: Shards) -> tuple[float, tuple[float, ...], IntArray]:
    """F of the mean model at the end, the noise, and who spoke how often."""
    job = prepare(spec, shards).job
    (state,) = ENGINES["compiled"].run([job], [job.start()], 1, job.schedule.T)
    model = job.method.average(state, job.schedule.T).mean(axis=0)
    return job.problem.value(model), job.release.sigma, job.schedule.participations()
