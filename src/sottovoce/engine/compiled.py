"""The compiled engine: the same trajectories as the reference, at the speed of the machine; and many runs at once.

Where the job's draws are the run's own `Draws`, the kernel makes records and noise from the counters itself (noise in
float32, 3e-7 relative from the reference's); any other `Randomness` is asked for a block of rounds at a time and
injected, and then trajectories agree to rounding.

Runs that share data, schedule and streams and differ in numbers only (σ, the weights of h, step sizes, clip) can be
stacked: `run_many` draws records and unit noise once for all of them, which is cheaper, and compares like with like.
"""

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary, ref

import numpy as np

from sottovoce._types import IntArray
from sottovoce.algorithm.method import Speaks, State
from sottovoce.engine.job import Job, draw
from sottovoce.engine.kernel import run_rounds
from sottovoce.engine.kernel_arguments import Noise, make_scratch
from sottovoce.engine.packing import Packed, counted, pack
from sottovoce.engine.stacking import check_stackable
from sottovoce.errors import SpecError

INJECTED_BLOCK = 1 << 20  # numbers of injected noise held at a time

# the flat arrays of a job live as long as the job: a run is cut into many calls, and packing looks at every round
_packed: WeakKeyDictionary[Job, tuple[tuple["ref[Job]", ...], Packed]] = WeakKeyDictionary()


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop and give the state after them; the given state is left alone."""
    return run_many([job], [state], start, stop)[0]


def run_many(jobs: Sequence[Job], states: Sequence[State], start: int, stop: int) -> list[State]:
    """Run rounds start … stop of several jobs at once; each ends as it would alone, to the last bit.

    Parameters
    ----------
    jobs : runs over the same data, loss, schedule and streams; σ, clip, step sizes and the numbers of h may differ
    states : where each of them stands; left alone
    start, stop : the first and the last round
    """
    jobs, states = list(jobs), list(states)
    _check(jobs, states, start, stop)
    z = np.stack([state.z for state in states])
    total = np.stack([state.total for state in states])
    since = states[0].since.astype(np.int64)  # a copy
    packed = _pack(jobs)
    scratch = make_scratch(packed.data, packed.plan, packed.model, packed.noise, z.shape)
    for first, last, noise in _draws(jobs[0], packed.noise, start, stop):
        run_rounds(packed.data, packed.plan, packed.model, packed.steps, noise, scratch, z, total, since, first, last)
    return [State(z[r], total[r], since.copy(), state.memory.copy()) for r, state in enumerate(states)]


def _pack(jobs: list[Job]) -> Packed:
    """The flat arrays of these jobs, from the last time if they are the same."""
    known = _packed.get(jobs[0])
    if known is not None and len(known[0]) == len(jobs) and all(r() is j for r, j in zip(known[0], jobs, strict=True)):
        return known[1]
    check_stackable(jobs)
    packed = pack(jobs)
    _packed[jobs[0]] = tuple(ref(job) for job in jobs), packed
    return packed


def _draws(job: Job, noise: Noise, start: int, stop: int) -> Iterator[tuple[int, int, Noise]]:
    """Stretches of rounds with their draws: all at once from counters, or injected a block at a time."""
    if counted(job):
        yield start, stop, noise
        return
    starts = job.schedule.starts
    t = start
    while t <= stop:
        room = starts[t - 1] + max(1, INJECTED_BLOCK // job.problem.m)
        last = min(max(int(np.searchsorted(starts, room, side="right")) - 1, t), stop)
        active = job.schedule.active[starts[t - 1] : starts[last]].astype(np.int64)
        ts = np.repeat(np.arange(t, last + 1), np.diff(starts[t - 1 : last + 1]))
        yield t, last, _inject(job, noise, active, ts, job.schedule.speaks(t, last))
        t = last + 1


def _inject(job: Job, noise: Noise, active: IntArray, ts: IntArray, speaks: Speaks) -> Noise:
    """Records and noise of these (node, round) pairs, as the job's own randomness has them."""
    records, rows = draw(job.draws, active, ts, speaks, job.problem.m)
    drawn = np.ascontiguousarray(rows, np.float64).view()
    if drawn.shape != (len(active), job.problem.m) or len(records) != len(active):
        raise SpecError("the randomness must give one list of records and one row of noise for each (node, round)")
    picks = [np.empty(0, np.int64) if some is None else np.asarray(some, np.int64) for some in records]
    counts = np.array([len(some) for some in picks], dtype=np.int64)
    flat = np.concatenate(picks) if picks else np.empty(0, np.int64)
    sizes = job.problem.shards.sizes[active]
    if np.any(counts > sizes) or np.any((flat < 0) | (flat >= np.repeat(sizes, counts))):
        raise SpecError("the randomness names records that a node does not have")
    starts = np.concatenate([[0], np.cumsum(counts)])
    every = np.array([some is None for some in records], dtype=np.bool_)
    for array in (drawn, flat, starts, every):
        array.flags.writeable = False  # as all the kernel's inputs
    return noise._replace(injected=drawn, records=flat, starts=starts, every=every)


def _check(jobs: list[Job], states: list[State], start: int, stop: int) -> None:
    """The kernel trusts its indices: whatever could lead it astray is refused here."""
    if not jobs or len(jobs) != len(states):
        raise SpecError(f"give one state for each run, and at least one run; there are {len(states)} and {len(jobs)}")
    shards, m = jobs[0].problem.shards, jobs[0].problem.m
    if jobs[0].schedule.n != shards.n or jobs[0].method.T < stop or jobs[0].schedule.T < stop or start < 1:
        raise SpecError(
            f"rounds {start} to {stop} are not within the schedule's {jobs[0].schedule.T} rounds on "
            f"{jobs[0].schedule.n} nodes"
        )
    for job, state in zip(jobs, states, strict=True):
        if state.z.shape != (shards.n, m) or state.total.shape != state.z.shape or len(state.since) != shards.n:
            raise SpecError(f"the state of a run over {shards.n} nodes must have {shards.n} rows of {m} numbers")
        if np.any(state.since < 1) or np.any(state.since > max(start, 1)):
            raise SpecError(f"the state is not one from before round {start}; go on from the round after it was left")
        if not np.array_equal(state.since, states[0].since):
            raise SpecError("runs can only be stacked from states left after the same round")
        if job.method.T < stop:
            raise SpecError(f"the step sizes end before round {stop}")
