"""Two threads beside one: a sweep of two groups, from specs to results, and what the machine gives at that moment."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from baselines import build_floor, floor
from measure import Line, Target, Work, in_turn
from sottovoce.experiments.sweep import sweep
from sottovoce.run.presets import paper_l2
from sottovoce.run.spec import Execution
from workloads import dense, job

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
LOOKS = 8
TWICE = Target(low=1.7)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """One after the other, and side by side: by the wall clock, and so judged only where a second core is free."""
    rounds = 10_000 if quick else 600_000  # the paper's: accounts take as long for few rounds as for many
    shards, seeds = dense(), count(1)
    how = Execution("compiled", LOOKS)

    def runs(jobs: int) -> Callable[[], object]:
        """Two seeds never seen before, so that nothing is known: neither schedules nor noise nor accounts."""

        def work() -> None:
            pair = (next(seeds), next(seeds))
            base = paper_l2(rounds)
            # seeds may have equal numbers of turns, and so equal accounts: each has budgets of its own
            specs = [base.but(privacy__noise=f"private({e + 1e-6 * s})", seed=s) for s in pair for e in EPSILONS]
            sweep(specs, shards, execution=how, jobs=jobs)

        return work

    lib, one = build_floor(), job(shards, rounds)
    alike = [floor(lib, one, rounds), floor(lib, one, rounds)]

    def in_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda work: work(), alike))

    sweep([paper_l2(2).but(seed=0)], shards, execution=Execution("compiled", 1))  # compile
    times = in_turn(
        {
            "two floors": Work(lambda: [work() for work in alike], 1),
            "in threads": Work(in_threads, 1),
            "one": Work(runs(1), 1),
            "two": Work(runs(2), 1),
        },
        max(2, repeats // 2),
        time.perf_counter,
    )
    seconds = {name: value / 1e6 for name, value in times.items()}
    compared = "one thread / two threads"
    machine = Line("two C floors, by the wall clock", compared, seconds["two floors"], seconds["in threads"], "s")
    yield machine
    busy = machine.ratio < TWICE.low  # then there is no second core to be had, and nothing to judge
    what = f"sweep: 2 seeds × 5 ε, {rounds:,} rounds{', not judged' if busy else ''}"
    yield Line(what, compared, seconds["one"], seconds["two"], "s", None if busy else TWICE)
