"""What a round costs as the problem grows: linear in active nodes × m, and nothing for more nodes or records."""

from collections.abc import Iterator
from itertools import pairwise

from measure import Line, Target, Work, in_turn
from sottovoce.engine.job import Job
from sottovoce.problem.shards import Shards
from workloads import DENSE, NODES, RECORDS, WORDS, alone, dense, job, text

LINEAR = Target(1.5, 2.5)  # twice the cost, within a quarter
NO_MORE = Target(high=1.25)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Everything twice as large, one thing at a time; and more active nodes."""
    rounds = 1000 if quick else 3000
    compared = "twice as many / as many"
    for what, small, large, target in (
        ("dense, m: 4000, 2000", dense(), dense(m=2 * DENSE), LINEAR),
        ("dense, nodes n: 200, 100", dense(nodes=5 * NODES), dense(nodes=10 * NODES), NO_MORE),
        ("dense, records N: 16,000, 8000", dense(records=2 * RECORDS), dense(records=4 * RECORDS), NO_MORE),
    ):
        times = _pair(small, large, rounds, repeats)
        yield Line(f"a round of {what}", compared, times["large"], times["small"], "µs", target)
    times = _pair(text(), text(2 * WORDS), rounds // 10, repeats)
    yield Line("a round of CSR, words of a row: 146, 73", compared, times["large"], times["small"], "µs", NO_MORE)
    yield from _active(rounds // 4, repeats)


def _pair(small: Shards, large: Shards, rounds: int, repeats: int) -> dict[str, float]:
    works = {"small": alone(job(small, rounds), rounds), "large": alone(job(large, rounds), rounds)}
    return in_turn(works, repeats)


def _active(rounds: int, repeats: int) -> Iterator[Line]:
    """Each scheme beside the one before it; in K20 everybody hears everybody, and messages, not nodes, are the cost."""
    shards = dense()
    schemes = {
        "edges(1)": ("edges(1)", "complete", None),
        "edges(2)": ("edges(2)", "complete", NO_MORE),
        "edges(4)": ("edges(4)", "complete", NO_MORE),
        "everyone, ring": ("everyone", "ring", NO_MORE),
        "everyone, K20": ("everyone", "complete", None),
    }
    jobs = {
        name: job(shards, rounds, network__activation=activation, network__graph=graph)
        for name, (activation, graph, _) in schemes.items()
    }
    times = in_turn({name: _by_active(one, rounds) for name, one in jobs.items()}, repeats)
    for before, name in pairwise(schemes):
        compared = f"{name} / {before}, an active node"
        yield Line("active nodes, dense, m = 2000", compared, times[name], times[before], "µs", schemes[name][2])


def _by_active(one: Job, rounds: int) -> Work:
    return Work(alone(one, rounds).do, len(one.schedule.active))
