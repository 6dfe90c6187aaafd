"""The in-memory node engine: one thread a node, each with its own row and its own shard, messages through queues.

It proves the seam to real nodes: the same `step` as in the reference engine, on one row, with an exchange for `mix`.
A node knows the public schedule, its own records and its own randomness; nothing of anybody else's but messages.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.dual_averaging import DualAveraging, Mix, State
from sottovoce.engine.job import Job, Randomness, gradients
from sottovoce.engine.transport import Mailboxes, Transport
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem

ONLY = np.array([0])  # a node's own shard is the only one that it has


class Node:
    """One participant: its data, its draws, its end of the network, and its row of the state."""

    def __init__(
        self,
        name: int,
        problem: Problem,
        method: DualAveraging,
        schedule: Schedule,
        release: Release,
        draws: Randomness,
        transport: Transport,
    ) -> None:
        self.name, self.problem, self.method = name, problem, method
        self.schedule, self.release, self.draws, self.transport = schedule, release, draws, transport
        self._me = np.array([name])

    def run(self, state: State, rounds: IntArray) -> State:
        """Take part in the given rounds (those of the schedule in which this node is active)."""
        for t in rounds.tolist():
            now = np.array([t])
            records, noise = self.draws.records(self._me, now), self.draws.noise(self._me, now)
            gradient = gradients(self.problem, self.release, ONLY, records)
            state = self.method.step(state, t, self._me, gradient, noise, self._mixer(t)).state
        return state

    def _mixer(self, t: int) -> Mix:
        peers, weights = self.schedule.peers(t, self.name)

        def mix(message: Array) -> Array:
            mixed = np.zeros_like(message)
            payload = message.tobytes()
            for peer, weight in sorted(zip(peers.tolist(), weights.tolist(), strict=True)):
                if peer == self.name:
                    mixed += weight * message
                else:
                    answer = self.transport.exchange(t, peer, payload)
                    mixed += weight * np.frombuffer(answer).reshape(message.shape)
            return mixed

        return mix


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop on n nodes at once and collect their rows."""
    n = job.problem.shards.n
    net = Mailboxes()
    first, last = int(job.schedule.starts[start - 1]), int(job.schedule.starts[stop])
    active = job.schedule.active[first:last]
    ts = np.repeat(np.arange(start, stop + 1), np.diff(job.schedule.starts[start - 1 : stop + 1]))

    def play(i: int) -> State:
        shard = replace(job.problem, shards=job.problem.shards.node(i))
        node = Node(i, shard, job.method, job.schedule, job.release, job.draws, net.end(i))
        try:
            return node.run(state.at(np.array([i])), ts[active == i])
        except BaseException:
            net.stopped.set()  # nobody waits for a node that is gone
            raise

    with ThreadPoolExecutor(max_workers=n, thread_name_prefix="node") as pool:
        rows = [future.result() for future in [pool.submit(play, i) for i in range(n)]]
    return State(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))
