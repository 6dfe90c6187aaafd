"""The engine that sottovoce registers: which jobs it knows, where it runs them, and what it evaluates there."""

from collections.abc import Sequence

import numpy as np

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import State
from sottovoce.engine.job import Engine, Job
from sottovoce.errors import SpecError
from sottovoce.network.averaging import Exact
from sottovoce.network.mixing import Gossip
from sottovoce.plugins import register as register_row
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Gaussian
from sottovoce.problem.losses import SOFTMAX
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import Euclidean, Separable
from sottovoce.problem.shards import Shards
from sottovoce_gpu.layout import LEVEL, SAMPLERS, counted
from sottovoce_gpu.machine import Machine, device

# The other modules read the table of losses when they are imported: import them when the engine is first used.


class OnDevice:
    """The engine's functions, on this process's GPU or on a given machine."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine

    def found(self) -> Machine | str:
        """The machine, or why there is none."""
        return device() if self._machine is None else self._machine

    def machine(self) -> Machine:
        """The machine; an error where there is none."""
        found = self.found()
        if isinstance(found, str):
            raise SpecError(f"the gpu engine cannot run: {found}")
        return found

    def unavailable(self) -> str | None:
        """Why the engine cannot run here; None where it can."""
        found = self.found()
        return found if isinstance(found, str) else None

    def run_batch(self, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
        """Run jobs over the same records that differ in numbers and seeds only."""
        return run_on(self.machine(), jobs, states, start, stop)

    def name(self) -> str:
        """The device's name."""
        found = self.found()
        return found if isinstance(found, str) else found.name

    def judge(self, problem: Problem, models: Array, other: Shards | None = None) -> tuple[Array, Array]:
        """(risk, accuracy) of each model, on the problem's records or on others; does not wait for the device."""
        from sottovoce_gpu.judge import judge_on

        return judge_on(self.machine(), problem, models, other)

    def evaluate_states(self, jobs: Sequence[Job], states: Sequence[State], t: int) -> tuple[Array, Array] | None:
        """(mean model over the nodes, their mean distance from it) per run; None if the states are on the host."""
        from sottovoce_gpu.rounds import averages

        return averages(self.machine(), jobs, states, t)

    def minimize(self, problem: Problem, gap: float) -> tuple[Array, Array] | None:
        """(x, slopes) near the optimum, for `problem.optimum` to certify; None where the device cannot find them."""
        from sottovoce_gpu.minimize import minimize_on

        return minimize_on(self.machine(), problem, gap)


def make_engine(machine: Machine | None = None) -> Engine:
    """The engine on this process's GPU, or on a given machine, as in tests."""
    hooks = OnDevice(machine)
    return Engine(
        "gpu",
        hooks.run_batch,
        methods=(DualAveraging, Descent),
        samplers=SAMPLERS,
        regularizers=(Separable,),
        distances=(Euclidean,),
        averagings=(Gossip, Exact),
        secure=False,
        auto_threshold=2e9,  # a few seconds of the compiled engine
        noise_rtol=3e-7,
        rounding=1e-4,  # float32 throughout
        hidden=True,
        unknown=unknown,
        unavailable=hooks.unavailable,
        device=hooks,
    )


def run_on(machine: Machine, jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Run jobs over the same records that differ in numbers and seeds only."""
    from sottovoce_gpu.products import fits, run_products, same_state
    from sottovoce_gpu.rounds import run_rounds

    jobs, states = list(jobs), list(states)
    for job, state in zip(jobs, states, strict=True):
        if np.any(state.since < 1) or np.any(state.since > max(start, 1)):
            raise SpecError(f"the state is not one from before round {start}; go on from the round after it was left")
        if not 1 <= start <= stop <= min(job.method.T, job.schedule.T):
            raise SpecError(f"rounds {start} to {stop} are not within the schedule's {job.schedule.T} rounds")
    if all(map(fits, jobs)) and same_state(states):
        return run_products(machine, jobs, states, start, stop)
    return run_rounds(machine, jobs, states, start, stop)


def unknown(job: Job) -> str | None:
    """What the kernels do not know of a job, besides the types in the engine's record; in words that follow 'the'."""
    from sottovoce_gpu.products import fits
    from sottovoce_gpu.source import RUNGS

    method, problem, loss = job.method, job.problem, job.problem.loss
    law, release = job.release.law, job.release
    if type(law) not in (Gaussian, Pairs):
        return f"noise mechanism {type(law).__name__}"
    if job.schedule.large_n:
        return "schedule: rounds of more nodes than a matrix is made for"
    if isinstance(method, DualAveraging):
        if method.curvature:
            return "curvature of f"
        if isinstance(method.d, Euclidean) and method.d.center is not None:
            return "center of the distance"
    if problem.shards.people:
        return "units of several rows"
    known = RUNGS.get(loss.name, SOFTMAX)
    if known.name != loss.name or known.slope_formula is not loss.slope_formula:
        return f"loss '{loss.name}' (it knows those that it can write in C)"
    if not counted(job):
        return f"randomness {type(job.draws).__name__}"
    if job.mapped is not None and not fits(job):
        return "map of records that are not mapped yet, unless all nodes average all messages in every round"
    if problem.outputs > 1 and not fits(job):
        return f"{problem.outputs} outputs of a model, unless all nodes average all messages in every round"
    if isinstance(law, Pairs):
        shared = method.scale * law.parts(release.sigma) if isinstance(method, DualAveraging | Descent) else np.zeros(1)
        if not fits(job) or np.ptp(shared) > LEVEL * np.max(shared):
            return "noise of pairs, unless it is gone from the mean of all messages in every round"
    return None


ENGINE = make_engine()


def register() -> None:
    """Register the engine; sottovoce calls this when an engine is requested that it does not have.

    The check of engines is in this package's tests: where there is no device, nothing can be checked.
    """
    register_row("engine", ENGINE, check=False)
