"""Two threads beside one: sweeps of two groups, from specs to results, and what the machine gives at that moment."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from baselines import build_floor, floor
from measure import Line, Target, Work, in_turn
from sottovoce.experiments.sweep import sweep
from sottovoce.extension import shared
from sottovoce.problem.shards import Shards
from sottovoce.run.presets import paper_l2, private
from sottovoce.run.spec import Execution, Spec
from workloads import dense, job

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
EVALUATIONS = 8
TWICE = Target(low=1.85)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Sequentially, and side by side: by the wall clock, and so judged only where a second core is free.

    Accounts take as long for few rounds as for many, and most of the time of a sweep of few.
    """
    rounds = 10_000 if quick else 600_000  # the paper's
    shards, lib = dense(), build_floor()
    least = 40_000  # rounds of a floor
    same = [floor(lib, job(shards, least), least) for _ in range(2)]

    def in_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda work: work(), same))

    kinds = {
        "accounts of their own": lambda: _apart(rounds),
        "accounts in common": lambda: _same_specs(rounds // 100),
    }
    sweep(
        [specs()[0].replace(algorithm__rounds=2) for specs in kinds.values()],
        shards,
        execution=Execution("compiled", 1),
    )
    works = {"two floors": Work(lambda: [work() for work in same], 1), "in threads": Work(in_threads, 1)}
    for name, specs in kinds.items():
        works |= {f"{name}, {jobs}": Work(_swept(specs, shards, jobs), 1) for jobs in (1, 2)}
    times = in_turn(works, max(2, repeats // 2), time.perf_counter)
    seconds = {name: value / 1e6 for name, value in times.items()}
    compared = "one thread / two threads"
    machine = Line("two C floors, by the wall clock", compared, seconds["two floors"], seconds["in threads"], "s")
    yield machine
    busy = machine.ratio < TWICE.low  # then there is no second core to be had, and nothing to judge
    for name in kinds:
        what = f"2 seeds × 5 ε, {name}{' (busy)' if busy else ''}"
        yield Line(what, compared, seconds[f"{name}, 1"], seconds[f"{name}, 2"], "s", None if busy else TWICE)


_seeds = count(1)


def _apart(rounds: int) -> list[Spec]:
    """The paper's runs of two seeds never seen before, so that nothing is known: schedules, noise, accounts."""
    pair, base = (next(_seeds), next(_seeds)), paper_l2(rounds)
    # seeds may have equal numbers of turns, and so equal accounts: each has budgets of its own
    return [base.replace(privacy__noise=f"private({e + 1e-6 * s})", seed=s) for s in pair for e in EPSILONS]


def _same_specs(rounds: int) -> list[Spec]:
    """Everyone in every round: what one seed needs, the other needs too."""
    pair, base = (next(_seeds), next(_seeds)), private(rounds)
    return [base.replace(privacy__noise=f"private({e + 1e-6 * pair[0]})", seed=s) for s in pair for e in EPSILONS]


def _swept(specs: Callable[[], list[Spec]], shards: Shards, jobs: int) -> Callable[[], object]:
    def work() -> None:
        with shared(max(1, (os.cpu_count() or 1) // jobs)):  # one thread is one: a run alone would take all
            sweep(specs(), shards, execution=Execution("compiled", EVALUATIONS), jobs=jobs)

    return work
