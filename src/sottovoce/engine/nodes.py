"""The seam to a real network: exchange(round, peer, bytes) -> bytes.

Both ends of a link call it once a round; each gets the other's bytes, complete, or an error. A node walks through
its links of a round in the order of the pairs (i, j), so that no two nodes ever wait for each other in a circle.

The in-memory node engine: one thread a node, each with its own row and its own shard, messages through queues.

It proves the seam to real nodes: the same `step` as in the reference engine, on one row, with an exchange for `mix`.
A node knows the public schedule, its own records and its own randomness; nothing of anybody else's but messages.
"""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Method, Mix, State
from sottovoce.engine.job import Job, Randomness, draw, gradients
from sottovoce.errors import SottovoceError
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem


class Transport(Protocol):
    """One node's end of the network."""

    def exchange(self, t: int, peer: int, payload: bytes) -> bytes:
        """Send this round's message to a peer and return the peer's; blocks; raises rather than return half of it."""


class Mailboxes:
    """A network inside one process: a queue for each direction of each link."""

    def __init__(self, patience: float = 3600.0) -> None:
        self.patience = patience
        self.stopped = Event()
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[tuple[int, bytes]]] = {}
        self._lock = Lock()

    def end(self, node: int) -> "MailboxEnd":
        """The transport of one node."""
        return MailboxEnd(self, node)

    def box(self, sender: int, receiver: int) -> "queue.SimpleQueue[tuple[int, bytes]]":
        """The queue from one node to another."""
        with self._lock:
            return self._boxes.setdefault((sender, receiver), queue.SimpleQueue())


class MailboxEnd:
    """One node's end of `Mailboxes`."""

    def __init__(self, net: Mailboxes, node: int) -> None:
        self.net, self.node = net, node

    def exchange(self, t: int, peer: int, payload: bytes) -> bytes:
        """Post to the peer's box, then wait for the peer's message of the same round."""
        self.net.box(self.node, peer).put((t, payload))
        waited = 0.0
        while True:
            if self.net.stopped.is_set():
                raise SottovoceError(f"node {self.node} stopped in round {t}: another node failed")
            try:
                round_, answer = self.net.box(peer, self.node).get(timeout=0.05)
                break
            except queue.Empty:
                waited += 0.05
                if waited >= self.net.patience:
                    raise SottovoceError(
                        f"node {self.node} waited {self.net.patience:g} s for node {peer} in round {t}; is it running?"
                    ) from None
        if round_ != t:
            raise SottovoceError(f"node {self.node} expected round {t} from node {peer}, but got round {round_}")
        return answer


ONLY = np.array([0])  # a node's own shard is the only one that it has


class Node:
    """One participant: its data, its draws, its end of the network, and its row of the state."""

    def __init__(
        self,
        name: int,
        problem: Problem,
        method: Method,
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
            state = self.turn(state, t, partial(self._mix, t))
        return state

    def turn(self, state: State, t: int, mix: Mix) -> State:
        """One round: this node's own draws, the one step, and whatever `mix` does to its message."""
        now = np.array([t])
        speaks = np.array([self.schedule.speaks_in(t, self.name)])
        records, noise = draw(self.draws, self._me, now, speaks, state.z.shape[1])
        gradient = gradients(self.problem, self.release, ONLY, records)
        return self.method.step(state, t, self._me, speaks, gradient, noise, mix).state

    def _mix(self, t: int, message: Array) -> Array:
        peers, weights = self.schedule.peers(t, self.name)
        row = dict(zip(peers.tolist(), weights.tolist(), strict=True))
        payload = message.tobytes()

        def others(peer: int) -> Array:
            return np.frombuffer(self.transport.exchange(t, peer, payload)).reshape(message.shape)

        return mixed(self.name, row, message, others)


def mixed(me: int, row: dict[int, float], message: Array, others: Callable[[int], Array]) -> Array:
    """Σ_j w_ij s_j for one node, always summed in the order of the nodes, so that it is the same to the last bit."""
    total = np.zeros_like(message)
    for peer, weight in sorted(row.items()):
        total += weight * (message if peer == me else others(peer))
    return total


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
