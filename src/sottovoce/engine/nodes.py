"""A node, and its end of the network: the loop over one's own records, in memory here, durable in `sottovoce.node`.

A node knows the public schedule, its own records and its own randomness; nothing of anybody else's but messages. The
one seam to a network is `Transport`: exchange(round, message, peers) -> their messages, all of them or an error. It
is a round at a time, since a round's message is one and the same for all peers, so that it can be on its way to
everybody before anybody's is waited for. Where an averaging takes several exchanges, a node follows the plan of its
round (`Schedule.exchanges`): the first sends its message, each later one what it holds by then.

The in-memory engine runs one thread a node, messages through queues. It proves the seam to real nodes: the same `step`
as in the reference engine, on one row, with an exchange for `mix`; MPI and FLARE are other transports of the same loop.
"""

import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Protocol

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import Method, State
from sottovoce.engine.job import Job, Randomness, draw, once
from sottovoce.errors import NetworkError
from sottovoce.network.mixing import Exchange
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.release import Release
from sottovoce.problem.objective import Problem


class Transport(Protocol):
    """One node's end of the network."""

    def exchange(
        self, t: int, payload: bytes, peers: Sequence[int], hears: Sequence[int] | None = None, part: int = 0
    ) -> Mapping[int, bytes]:
        """Give this round's message to every peer and return theirs; blocks; whole messages, or an error.

        A peer is missing from the answer only where both ends agreed to leave their edge out of this round; each
        then keeps its weight to itself.

        Parameters
        ----------
        t : the round
        payload : what this node holds
        peers : who gets it
        hears : who is waited for, where that is someone else than the peers
        part : which exchange of the round it is, from 0
        """


class MemoryNetwork:
    """A network inside one process: a queue for each direction of each link."""

    def __init__(self, patience: float = 3600.0) -> None:
        self.patience = patience
        self.stopped = Event()
        self._queues: dict[tuple[int, int], queue.SimpleQueue[tuple[tuple[int, int], bytes]]] = {}
        self._lock = Lock()

    def end(self, node: int) -> "MemoryTransport":
        """The transport of one node."""
        return MemoryTransport(self, node)

    def queue(self, sender: int, receiver: int) -> "queue.SimpleQueue[tuple[tuple[int, int], bytes]]":
        """The queue from one node to another."""
        with self._lock:
            return self._queues.setdefault((sender, receiver), queue.SimpleQueue())


class MemoryTransport:
    """One node's end of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, node: int) -> None:
        self.network, self.node = network, node

    def exchange(
        self, t: int, payload: bytes, peers: Sequence[int], hears: Sequence[int] | None = None, part: int = 0
    ) -> dict[int, bytes]:
        """Put the message into every peer's queue, then wait for theirs of the same exchange."""
        for peer in peers:
            self.network.queue(self.node, peer).put(((t, part), payload))
        return {peer: self._next((t, part), peer) for peer in (peers if hears is None else hears)}

    def _next(self, at: tuple[int, int], peer: int) -> bytes:
        waited, t = 0.0, at[0]
        while True:
            if self.network.stopped.is_set():
                raise NetworkError(f"node {self.node} stopped in round {t}: another node failed")
            try:
                found, answer = self.network.queue(peer, self.node).get(timeout=0.05)
                break
            except queue.Empty:
                waited += 0.05
                if waited >= self.network.patience:
                    raise NetworkError(
                        f"node {self.node} waited {self.network.patience:g} s for node {peer} in round {t}; is it "
                        "running?"
                    ) from None
        if found != at:
            raise NetworkError(
                f"node {self.node} expected exchange {at[1]} of round {t} from node {peer}, but got exchange "
                f"{found[1]} of round {found[0]}"
            )
        return answer


ONLY = np.array([0])  # a node's own shard is the only one that it has


class Node:
    """The party that takes part in a run: its records, its draws, and its end of the network.

    Parameters
    ----------
    number : of the node, in the schedule
    problem : its own records
    method, schedule, release : of the run; public
    draws : its own randomness; may be set later, before the first round
    transport : its end of the network; it may be connected later, by setting the attribute
    """

    draws: Randomness
    transport: Transport

    def __init__(
        self,
        number: int,
        problem: Problem,
        method: Method,
        schedule: Schedule,
        release: Release,
        draws: Randomness | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.number, self.problem, self.method = number, problem, method
        self.schedule, self.release = schedule, release
        if draws is not None:
            self.draws = draws
        if transport is not None:
            self.transport = transport
        self._me = np.array([number])

    def take_turns(self, state: State, rounds: IntArray) -> State:
        """Take part in the given rounds (those of the schedule in which this node is active)."""
        for t in rounds.tolist():
            state = self.turn(state, t)
        return state

    def turn(self, state: State, t: int) -> State:
        """One round: this node's own draws, and the one step, which mixes its message with those of the peers."""
        now = np.array([t])
        speaks = np.array([self.schedule.speaks_in(t, self.number)])
        drawn = draw(self.draws, self._me, now, speaks, state.z.shape[1])
        gradient = once(drawn.gradient(self.problem, self.release, ONLY))
        return self.method.step(state, t, self._me, speaks, gradient, drawn.noise, partial(self._mix, t)).state

    def _mix(self, t: int, message: Array) -> Array:
        begun, payload, held = self.resume(t, *self.release_message(t, message))
        unit = self.method.stride(t)
        for part, exchange in enumerate(self.schedule.exchanges(t, self.number)):
            if part < begun:
                continue
            if part > begun:
                payload = self.forward(t, part, held) if exchange.to else b""
            heard = self._exchange(t, part, exchange, payload)
            values = {peer: self.decode(p, message) for peer, p in heard.items()}
            held = self.schedule.averaging.combine(self.number, exchange, held, values, unit)
        return held

    def _exchange(self, t: int, part: int, exchange: Exchange, payload: bytes) -> Mapping[int, bytes]:
        if part == 0 and exchange.to == exchange.heard:
            return self.transport.exchange(t, payload, exchange.to)
        return self.transport.exchange(t, payload, exchange.to, exchange.heard, part)

    def release_message(self, t: int, message: Array) -> tuple[bytes, Array]:
        """A round's message as bytes, and as everybody will see it; afterwards it may be seen."""
        return message.tobytes(), message

    def resume(self, t: int, payload: bytes, held: Array) -> tuple[int, bytes, Array]:
        """From which exchange the round goes on, and what this node says and holds in it: from the first."""
        return 0, payload, held

    def forward(self, t: int, part: int, held: Array) -> bytes:
        """What this node holds in a later exchange of the round, as bytes: a function of messages that are out."""
        return held.tobytes()

    def decode(self, payload: bytes, mine: Array) -> Array:
        """A peer's message, of the same shape as this node's own."""
        return np.frombuffer(payload).reshape(mine.shape)


def run(job: Job, state: State, start: int, stop: int) -> State:
    """Run rounds start … stop on n nodes at once and collect their rows."""
    n = job.problem.shards.n
    network = MemoryNetwork()
    active = job.schedule.listed(start, stop)
    ts = np.repeat(np.arange(start, stop + 1), np.diff(job.schedule.starts[start - 1 : stop + 1]))

    def play(i: int) -> State:
        shard = replace(job.problem, shards=job.problem.shards.node(i))
        node = Node(i, shard, job.method, job.schedule, job.release, job.draws, network.end(i))
        try:
            return node.take_turns(state.at(np.array([i])), ts[active == i])
        except BaseException:
            network.stopped.set()  # nobody waits for a node that is gone
            raise

    with ThreadPoolExecutor(max_workers=n, thread_name_prefix="node") as pool:
        rows = [future.result() for future in [pool.submit(play, i) for i in range(n)]]
    return State(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))
