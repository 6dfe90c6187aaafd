"""The stage: the real run, many times over, as one job with many nodes.

Runs that share all but the record in question and their draws are copies of the same few nodes. A job with R copies of
each node, copies that never hear of one another, is R runs; an engine runs it as it runs any job, with its own draws at
the addresses (node, round) of R times as many nodes. So what is attacked are the engine's own samplers, clips, sums,
noise and steps: nothing of the mechanism is written a second time here. What is new for each stretch of R runs is the
key of their draws.

Of many nodes two are kept, the record's own and one that it talks to: what the others send does not depend on the
record, and the weight of a link that is left out stays with its ends, as in a real run. Where noise is shared between
nodes, all are kept. Rounds in which the record's node is silent are left out.

What is seen of a run is every release ζ of the nodes that are kept, and the final model. The reference engine and the
engine of nodes let a step be watched; of one whose rounds are hidden (compiled, gpu) the state is read after every one,
and what was released is worked out from how it moved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Gradient, Method, Mix, Round, Speaks, State
from sottovoce.auditing.worst_case import FIRST, SECOND, Means, WorstCase
from sottovoce.engine import engine_named
from sottovoce.engine.job import Job
from sottovoce.engine.secure import ExactSums, SecureDraws
from sottovoce.errors import SpecError
from sottovoce.network.mixing import listed
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Draws, NoiseMechanism, Shaped, Tree
from sottovoce.run.build import Prepared
from sottovoce.secure.generator import fresh
from sottovoce.streams import Streams

MAX_NODES_KEPT = 3
"""So many nodes are all kept."""
RUNS_AT_ONCE = 512
"""Nodes that are active at a time in one job."""
PLACES = 1 << 24
"""Of a schedule: copies times rounds."""

Plant = Callable[[Job, int], Job]
"""(job, copies) -> a job with something wrong in it: for showing that an audit finds it."""


class Transcript(NamedTuple):
    """What an attacker knows of R runs; k counts the rounds in which the record's node speaks.

    Attributes
    ----------
    worlds : (R,) which of the two the record was: what is to be guessed
    zeta : (R, k, m) what the record's node released
    absent, first, second : (R, k, m) the same without noise, if the record was not used; if it was, either of the two
    others : (R, k, m) what another node released in the same rounds, without its own mean; not a number where silent
    nodes : (R, k, n, m) the same of all nodes, where noise is shared between them; else empty
    final : (R, m) the model of the record's node at the end
    """

    worlds: IntArray
    zeta: Array
    absent: Array
    first: Array
    second: Array
    others: Array
    nodes: Array
    final: Array


@dataclass(frozen=True, eq=False)
class AuditRunner:
    """A prepared run and the record in question.

    Attributes
    ----------
    prepared : the run, over the worst records
    node : whose record it is
    worst : the records
    engine : by name
    plant : what to break, for showing that it is found
    most : runs that are wanted in one job at most
    """

    prepared: Prepared
    node: int
    worst: WorstCase
    engine: str = "reference"
    plant: Plant | None = None
    most: int = RUNS_AT_ONCE

    def __post_init__(self) -> None:
        """What cannot be watched is refused."""
        reason = engine_named(self.engine).refusal(self.prepared.job)
        if reason is not None:
            raise SpecError(reason)

    @property
    def job(self) -> Job:
        """The run itself."""
        return self.prepared.job

    @property
    def hidden(self) -> bool:
        """Whether the engine lets nothing be watched but its states."""
        return engine_named(self.engine).hidden

    @property
    def whole(self) -> bool:
        """Whether a model is put out at once, so that there is nothing to see but that."""
        return not self.job.method.released.iterates

    @property
    def lone(self) -> bool:
        """Whether copies cannot stand in one job: the noise, or the method, knows one node only."""
        return self.whole or isinstance(self.job.release.law, Tree)

    @cached_property
    def rounds(self) -> IntArray:
        """In which the record's node speaks, in order, each given-up attempt before the round that is made anew."""
        attempts = [(t, 1, t) for t in self.job.schedule.turns(self.node).tolist()]
        attempts += [(t, 0, address) for address, (t, who) in self.given_up.items() if self.node in who]
        return np.array([address for _, _, address in sorted(attempts)], dtype=np.int64)

    @cached_property
    def given_up(self) -> dict[int, tuple[int, list[int]]]:
        """Address -> (round, who spoke) of what was released and then made anew, where nodes were lost."""
        law = self.job.release.law
        epochs = law.epochs if isinstance(law, Pairs) else None
        if epochs is None:
            return {}
        who = [np.flatnonzero(members).tolist() for members in epochs.members]
        return {epochs.rounds + e: (int(epochs.first[e]), who[e - 1]) for e in range(1, len(who))}

    def round_of(self, address: int) -> int:
        """The round of an address: itself, unless it is a release that was given up."""
        return self.given_up[address][0] if address in self.given_up else address

    @cached_property
    def kept(self) -> list[int]:
        """The record's node, and those that are kept with it."""
        n, schedule = self.job.schedule.n, self.job.schedule
        if self.hidden or schedule.speakers:
            if self.job.release.law.secrets:
                raise SpecError("noise that nodes share is audited by engine='reference', which shows every node")
            return [self.node]
        if n <= MAX_NODES_KEPT or self.job.release.law.secrets:
            return [self.node, *(i for i in range(n) if i != self.node)]
        met = [i for i in schedule.nodes(int(self.rounds[0])).tolist() if i != self.node]
        return [self.node, *met[:1]]

    @cached_property
    def coalition(self) -> tuple[int, ...]:
        """The nodes that help the attacker: where noise is shared, those that leave least of the record's node's."""
        law = self.job.release.law
        return law.worst(self.node, self.job.release.sigma) if isinstance(law, Pairs) else ()

    @cached_property
    def copies(self) -> int:
        """R, an even number, half of them with either record; 1 where copies cannot stand in one job."""
        if self.lone:
            return 1
        n = len(self.kept)
        most = min(self.most, RUNS_AT_ONCE // n, PLACES // max(1, len(self.rounds) * n))
        return max(2, most // 2 * 2)

    @cached_property
    def means(self) -> Means:
        """What the record's node releases but for its noise."""
        sizes = self.job.problem.shards.sizes
        return Means(self.worst, self.job.release.sampling, int(sizes[self.node]))

    @cached_property
    def spreads(self) -> Array:
        """(k,) the scale of the noise in each ζ of the record's node."""
        release, method = self.job.release, self.job.method
        scales = np.full(len(self.rounds), float(release.sigma[self.node]))
        if isinstance(release.law, Shaped):
            scales = scales * release.law.spread[self.rounds - 1]
        if not method.released.at_once:
            scales = scales * cast(Any, method).scale[self.node]
        return scales

    # -- the job --

    def _schedule(self, R: int) -> Schedule:
        """Of R copies of the kept nodes; copy r of the p-th of them is node p·R + r."""
        old, places = self.job.schedule, {node: p for p, node in enumerate(self.kept)}
        T = old.T + len(self.given_up)
        active, pattern, counts, patterns = [], np.zeros(T, np.int32), np.zeros(T, np.int64), list[Array]()
        known: dict[bytes, int] = {}
        for t in np.sort(self.rounds).tolist():
            nodes = self.given_up[t][1] if t in self.given_up else old.nodes(t).tolist()
            here = [k for k, node in enumerate(nodes) if node in places]
            if t in self.given_up:  # its messages are mixed by nobody
                W = np.eye(len(here))
            elif old.speakers or self.hidden:
                W = np.eye(1)
            else:
                W = listed(old.weights(t))[np.ix_(here, here)]
                W = W + np.diag(1.0 - W.sum(axis=1))
            key = W.tobytes()
            if key not in known:
                known[key] = len(patterns)
                patterns.append(np.asarray(np.kron(W, np.eye(R)), dtype=np.float64))
            pattern[t - 1], counts[t - 1] = known[key], R * len(here)
            active += [places[nodes[k]] * R + np.arange(R, dtype=np.int32) for k in here]
        starts = np.concatenate([[0], np.cumsum(counts)])
        return Schedule(R * len(self.kept), starts, np.concatenate(active), pattern, tuple(patterns))

    @cached_property
    def _template(self) -> tuple[Job, IntArray]:
        """The job of R copies, and the record of each; its draws are still to be keyed."""
        job, R = self.job, self.copies
        if self.lone:
            return job, np.zeros(1, dtype=np.int64)
        worlds = np.arange(R) % 2
        sizes = np.repeat(job.problem.shards.sizes[self.kept], R)
        shards = self.worst.shards(sizes, dict(enumerate(np.where(worlds, SECOND, FIRST).tolist())))
        problem = replace(job.problem, shards=shards.with_intercept(job.problem.shards.intercept))
        method = replace(cast(Any, job.method), scale=np.repeat(cast(Any, job.method).scale[self.kept], R))
        sigma = tuple(np.repeat(np.take(job.release.sigma, self.kept), R).tolist())
        release = replace(job.release, sigma=sigma, law=_copied(job.release.law, self.kept, R, self.coalition))
        return replace(job, problem=problem, method=method, schedule=self._schedule(R), release=release), worlds

    def _keyed(self, job: Job, key: int | None) -> Job:
        """With draws that are nobody else's."""
        sizes, m = job.problem.shards.sizes, job.problem.m
        if self.job.secure:
            old = cast(SecureDraws, self.job.draws)
            was = cast(ExactSums, old.sums)
            sums = ExactSums(job.problem, was.clip, was.bound, was.intercept, was.largest)
            job = replace(job, draws=SecureDraws(job.release, sums, fresh(), sizes, m, compiled=old.compiled))
        else:
            job = replace(job, draws=Draws(job.release, Streams(key), sizes, m))
        return job if self.plant is None else self.plant(job, self.copies)

    # -- running it --

    def play(self, key: int | None) -> Transcript:
        """R runs with draws of their own, half of them with either record."""
        if self.lone:
            return _stacked([self._alone(key, world) for world in (0, 1)])
        job, worlds = self._template
        return self._watched(self._keyed(job, key), worlds)

    def _alone(self, key: int | None, world: int) -> Transcript:
        job = self.job
        chosen = {self.node: SECOND if world else FIRST}
        shards = self.worst.shards(job.problem.shards.sizes, chosen)
        problem = replace(job.problem, shards=shards.with_intercept(job.problem.shards.intercept))
        method = replace(cast(Any, job.method), problem=problem.public, data=problem) if self.whole else job.method
        each = None if key is None else 2 * key + world
        return self._watched(self._keyed(replace(job, problem=problem, method=method), each), np.array([world]))

    def _watched(self, job: Job, worlds: IntArray) -> Transcript:
        """Run the job and put down what it released."""
        engine = engine_named(self.engine)
        state, R = job.start(), len(worlds)
        seen = _Observed(self, R, job.problem.m)
        if not self.hidden:
            job = replace(job, method=cast(Method, _Watched(job.method, seen)))
        for k, t in enumerate(self.rounds.tolist()):
            before = state
            state = engine.run([job], [state], t, t)[0]
            if t in self.given_up:
                state = before
            if self.hidden:
                seen.work_out(job, before, state, t, k)
        final = job.method.average(state, self.job.schedule.T)[:R]
        return seen.transcript(worlds, final)


def _copied(law: NoiseMechanism, kept: Sequence[int], R: int, coalition: Sequence[int]) -> NoiseMechanism:
    """The law of R copies of these nodes; what a coalition shares with others it knows, and takes out again."""
    if not isinstance(law, Pairs):
        return law
    return law.copies(kept, R, coalition)


class _Observed:
    """What is put down while copies run."""

    def __init__(self, stage: AuditRunner, R: int, m: int) -> None:
        k, n = len(stage.rounds), len(stage.kept)
        self.stage, self.R, self.places = stage, R, {t: p for p, t in enumerate(stage.rounds.tolist())}
        self.plain = stage.job.method.released.shape is None
        self.zeta = np.full((n, R, k, m), np.nan)
        self.x = np.full((R, k, m), np.nan)
        self.means = np.full((3, R, k, m), np.nan)

    def step(
        self, method: Method, state: State, t: int, nodes: IntArray, speaks: Speaks, done: Round, identity: Mix
    ) -> None:
        """A step of some rows, as a method's `step` made it."""
        k = self.places.get(t)
        if k is None or self.stage.whole:
            return
        self.zeta[nodes // self.R, nodes % self.R, k] = done.zeta
        mine = np.flatnonzero(nodes < self.R)
        if not len(mine):
            return
        self.x[nodes[mine], k] = done.x[mine]
        if not self.plain:  # what is released is worked out by the method itself, from each of the three means
            none = np.zeros_like(state.z)
            for place, row in enumerate((None, FIRST, SECOND)):

                def gradient(x: Array, row: int | None = row) -> Array:
                    return self.stage.means(x, t, row)

                known = method.step(state, t, nodes, speaks, gradient, none, identity)
                self.means[place, nodes[mine], k] = known.zeta[mine]

    def work_out(self, job: Job, before: State, after: State, t: int, k: int) -> None:
        """What nodes that heard nobody released, from how their state moved: it does so along a line."""
        nodes, method = job.schedule.nodes(t).astype(np.int64), job.method
        old, speaks = before.at(nodes), np.ones(len(job.schedule.nodes(t)), dtype=np.bool_)

        def moved(noise: float) -> Round:
            return method.step(old, t, nodes, speaks, np.zeros_like, np.full_like(old.z, noise), lambda s: s)

        zero, one, two = moved(0.0), moved(1.0), moved(2.0)
        rise = one.state.z - zero.state.z
        if not np.allclose(two.state.z - one.state.z, rise, rtol=1e-9):
            raise SpecError(
                f"the {self.stage.engine} engine shows a state that does not show what was released, with this "
                "regularizer; audit engine='reference', which makes the same draws"
            )
        self.zeta[0, nodes, k] = (after.z[nodes] - zero.state.z) / rise
        self.x[nodes, k] = zero.x

    def transcript(self, worlds: IntArray, final: Array) -> Transcript:
        """All of it."""
        stage, m = self.stage, self.x.shape[-1]
        if stage.whole:
            empty = np.zeros((self.R, 0, m))
            return Transcript(worlds, empty, empty, empty, empty, empty, np.zeros((self.R, 0, 0, m)), final)
        if self.plain:
            for k, t in enumerate(stage.rounds.tolist()):
                for place, row in enumerate((None, FIRST, SECOND)):
                    known = row if stage.means.uses(t) else None
                    self.means[place, :, k] = stage.means(self.x[:, k], t, known)
        everybody = np.moveaxis(self.zeta, 0, 2) if stage.job.release.law.secrets else np.zeros((self.R, 0, 0, m))
        others = self.zeta[1] if len(self.zeta) > 1 else np.full_like(self.zeta[0], np.nan)
        absent, first, second = self.means
        return Transcript(worlds, self.zeta[0], absent, first, second, others, everybody, final)


class _Watched:
    """A method whose steps are put down; in all else the method itself."""

    def __init__(self, method: Method, seen: _Observed) -> None:
        self._method, self._seen = method, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def stride(self, t: int) -> float:
        """Of the round."""
        return self._method.stride(self._seen.stage.round_of(t))

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """The method's own."""
        done = self._method.step(state, self._seen.stage.round_of(t), nodes, speaks, gradient, noise, mix)
        self._seen.step(self._method, state, t, np.asarray(nodes), speaks, done, lambda s: s)
        return done


def _stacked(some: Sequence[Transcript]) -> Transcript:
    return Transcript(*(np.concatenate(parts) for parts in zip(*some, strict=True)))
