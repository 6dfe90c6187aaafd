"""Output and objective perturbation: not iterations, but a minimiser and one draw of noise.

They go through the same release, calibration and statement as every run: only the way to the model differs.
"""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.experiments.facts import smoothness_of
from sottovoce.privacy import objective
from sottovoce.privacy.adversaries import make_adversary, refuse_unless_runnable
from sottovoce.privacy.calibration import NOISES, Circumstances
from sottovoce.privacy.laws import Gaussian, Objective
from sottovoce.privacy.release import Release
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PERSON, RECORD, make_statement
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import GapError, optimum
from sottovoce.problem.regularisers import Separable
from sottovoce.problem.shards import Shards
from sottovoce.run.build import check_rows, make_lipschitz, make_problem
from sottovoce.run.result import History, Result, environment
from sottovoce.run.spec import Spec
from sottovoce.streams import Streams

ONESHOT = ("output_perturbation", "objective_perturbation")
GAP = 1e-11  # to which the minimiser of output perturbation is certified; in the sensitivity
STILL = 1e-11  # the gradient at which a perturbed objective counts as minimised; in the noise on the minimiser
ONLY = np.array([0])


def perturb(
    spec: Spec, shards: Shards, *, test: Shards | None = None, f_star: float = math.nan, **names: Any
) -> Result:
    """Minimise and perturb, on one node that holds all records.

    Examples
    --------
    >>> from sottovoce.experiments.baselines import output_perturbation
    >>> from sottovoce.experiments.facts import Facts
    >>> from sottovoce.data.embedded import embedded
    >>> table = embedded("breast_cancer")
    >>> shards = Shards.of(table.X, table.y, np.array([0, len(table.y)]))
    >>> spec = output_perturbation(Facts((len(table.y),), 30, epsilon=2.0, h="l2(0.1)"))
    >>> perturb(spec.but(seed=1), shards).statement.verdict()
    "Every record has (ε = 2, δ = 1e-05)-differential privacy against 'central' (replace one record of one node)."
    """
    began = time.perf_counter()
    problem = make_problem(spec.problem, shards)
    h = problem.h
    if shards.n != 1 or spec.algorithm.method not in ONESHOT:
        raise SpecError(
            f"one trusted place with all records runs one of {', '.join(ONESHOT)}; merge the nodes' records"
        )
    if not isinstance(h, Separable) or h.mu == 0:
        raise PrivacyError(f"'{spec.algorithm.method}' needs a strongly convex h with a certified optimum, such as l2")
    L, N = make_lipschitz(problem.loss, spec), int(shards.sizes[0])
    check_rows(replace(spec.problem, on_violation="raise"), problem.shards)
    adversary = make_adversary(spec.privacy.adversary)
    if spec.algorithm.method == "output_perturbation":
        # two minimisers of data that differ in one record are within 2L/(μN), each known to √(2·gap/μ)
        unit = Release(Full(), L / h.mu + N * math.sqrt(2.0 * GAP / h.mu), (1.0,), adversary, Gaussian())
    else:
        if h.phi > 0 or h.bounded or shards.people or problem.outputs > 1 or spec.privacy.clip is not None:
            raise PrivacyError("a perturbed objective is priced for h = l2, one output, no clip, and records as units")
        curvature = smoothness_of(problem.loss) * (spec.problem.row_norm**2 + spec.problem.intercept**2)
        unit = Release(Full(), L, (1.0,), adversary, Objective(objective.extra_epsilon(curvature, N * h.mu)))
    refuse_unless_runnable(adversary, unit.law.secrets, 1)
    once, noise = np.array([1]), spec.privacy.noise
    amount = NOISES.read(noise) if isinstance(noise, str) else noise
    sigma, _ = amount.scales(Circumstances(unit, shards.sizes, once, spec.privacy.delta, 1.0, spec.algorithm.rounds))
    release, streams = replace(unit, sigma=sigma), Streams(spec.seed)
    drawn = release.noise(streams, ONLY, once, problem.m)[0]
    if isinstance(release.law, Objective):
        x, passes = _minimise(problem, drawn, h.mu, curvature)
        x = x + objective.BLUR * STILL / h.mu * streams.normals(ONLY, 2, problem.m)[0] * (sigma[0] > 0)
    else:
        best = optimum(problem, gap=GAP)
        x, passes = best.x + drawn, best.passes
    statement = make_statement(
        release, shards.sizes, once, spec.privacy.delta, (), streams.seeded, PERSON if shards.people else RECORD
    )
    return Result(
        spec=spec,
        models=x[None],
        history=History([_observed(problem, x, passes, test, f_star)]),
        statement=statement,
        public={
            "n": 1,
            "m": problem.m,
            "records": [N],
            "edges": [],
            "iota": 1.0,
            "beta": 0.0,
            "beta_error": 0.0,
            "lipschitz": L,
            "participations": [1],
            "theorem1": [],
        },
        environment=environment("oneshot", time.perf_counter() - began),
        **names,
    )


def _minimise(problem: Problem, b: Array, mu: float, curvature: float) -> tuple[Array, int]:
    """argmin F(x) + ⟨b, x⟩ to a gradient of norm `STILL`, by Nesterov's method for a μ-strongly convex function."""
    root = math.sqrt(mu / (curvature + mu))
    momentum = (1.0 - root) / (1.0 + root)
    x = before = np.zeros_like(b)
    most = math.ceil(100.0 / root)
    for made in range(1, most + 1):
        y = x + momentum * (x - before)
        g = problem.gradient(y) + mu * y + b
        if np.linalg.norm(g) <= STILL:
            return y, made
        before, x = x, y - g / (curvature + mu)
    raise GapError(f"the perturbed objective's gradient is still {np.linalg.norm(g):.1e} after {most} steps")


def _observed(problem: Problem, x: Array, passes: int, test: Shards | None, f_star: float) -> dict[str, float]:
    """The only row of the history; not private."""
    value = problem.value(x)
    return {
        "round": 1,
        "epoch": float(passes),
        "objective": value,
        "suboptimality": value - f_star,
        "train_accuracy": problem.accuracy(x),
        "test_accuracy": math.nan if test is None else problem.accuracy(x, test),
        "consensus_error": 0.0,
        "messages": 0,
        "bytes": 0,
    }
