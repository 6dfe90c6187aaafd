"""The node's loop: draw, step, write down, exchange, mix; from wherever the folder says that the run stands.

For every round t in which this node speaks: the one `step` of the algorithm makes the message from the node's own
records and its own secret draws; the state that the round begins with, the message and its row in the ledger go to
the disk in one transaction; only then do peers get to see it. A round whose message is on the disk already is never
made anew: the stored bytes are sent, and the step is repeated only for what else it computes.
"""

from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine.job import Randomness
from sottovoce.engine.nodes import Node, mixed
from sottovoce.errors import StoreError
from sottovoce.node import budget, entropy
from sottovoce.node.exchange import Carrier, Exchange, Paused, Skipped, Stopwatch
from sottovoce.node.plan import Plan
from sottovoce.node.postbox import OldCopy, Postbox
from sottovoce.node.skips import Skips
from sottovoce.node.store import Store
from sottovoce.node.wire import Header, pack, unpack
from sottovoce.privacy.release import Draws
from sottovoce.problem.objective import Problem

SAME = 1e-9  # a repeated step agrees with the stored message up to the rounding of another processor
DATASET = "records"
"""The data set's name in the ledger, where the owner gives none."""


class Outcome(NamedTuple):
    """What a node has at the end."""

    model: Array
    """(m,) x̃_i, this node's model."""
    unheard: tuple[str, ...]
    """Peers that did not say that they are done too: should one come back, it needs this node once more."""


class Participant:
    """One node of one run, over its own folder; connect it to a network, then `run` it.

    Parameters
    ----------
    plan : the public run file
    name : this node
    problem : the node's own records (`site.own_problem`)
    store : the node's own folder
    dataset : under which name the owner budgets these records
    draws : in place of the node's own secret draws, for tests
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        problem: Problem,
        store: Store,
        dataset: str = DATASET,
        draws: Randomness | None = None,
    ) -> None:
        self.plan, self.me, self.store, self.dataset = plan, plan.number(name), store, dataset
        self.fingerprint = entropy.fingerprint(store.secret, problem.shards)
        job = plan.prepared.job
        sizes = np.array(plan.sizes)
        secret = Draws(job.release, entropy.own_streams(store.secret, plan.digest), sizes, plan.m)
        own = draws or entropy.Ahead(secret, plan.rounds(self.me), plan.m)
        saved = store.enter(plan.digest, plan.name, name, plan.nodes, self.fingerprint)
        self._start = job.method.start(1, plan.m)
        self._state, self._round = self._restored(saved.state), saved.round
        self._pending = dict(saved.outbox)
        self.postbox = Postbox(plan, self.me, saved, partial(store.released, plan.digest))
        self.skips = Skips(plan, self.me, store, saved.skips, saved.round)
        self._own = (problem, job.method, job.schedule, job.release, own)
        self._cost = plan.event(self.me), plan.spec.privacy.adversary
        if not store.ledger.has("open", plan.digest):  # nobody else writes here, so what is affordable now stays so
            rows = store.rows()
            adjacency = plan.statement.adjacency
            budget.refuse_unless_affordable(rows, dataset, self.fingerprint, *self._cost, plan.digest, adjacency)

    def _restored(self, arrays: dict[str, Any] | None) -> State:
        """The state as it was saved, field by field, whatever fields the method's state has."""
        start = self._start
        if arrays is None:
            return start
        expected = {name: (a.shape, a.dtype) for name, a in start._asdict().items()}
        if {name: (a.shape, a.dtype) for name, a in arrays.items()} != expected:
            raise StoreError(
                f"the state in '{self.store.path}' does not fit this version of the method; go on with the old one"
            )
        return start._replace(**arrays)

    @property
    def finished(self) -> bool:
        """Whether all of this node's rounds are done, and on the disk."""
        return self.store.ledger.has("close", self.plan.digest)

    @property
    def rounds(self) -> IntArray:
        """The rounds that are left."""
        rounds = self.plan.rounds(self.me)
        return rounds[rounds > self._round]

    def connect(self, carrier: Carrier) -> None:
        """Give the node its end of the network."""
        self.network = Exchange(carrier, self.postbox, self.skips)
        self._node = Node(self.me, *self._own, self.network)

    def run(self) -> Outcome:
        """Greet the peers, take part in every round that is left, and stay until all peers are done."""
        try:
            self.greet(wait=not self.finished)
            for t in self.rounds.tolist():
                self.turn(t)
            self.finish()
        except OldCopy as error:
            self.store.stop(self.plan.digest, str(error))
            raise
        return Outcome(self.model(), self.linger())

    def greet(self, wait: bool = True) -> None:
        """Compare plans and high-water marks with every peer, before the first message.

        A node that has nothing more to release need not wait: it only tells its peers what they may lack.
        """
        for peer in self.postbox.peers:
            if wait:
                self.network.exchange(0, peer, self.postbox.hello(peer))
            else:
                self.network.carrier.send(peer, self.postbox.hello(peer))

    def turn(self, t: int) -> None:
        """Take part in one round."""
        self._state = self._node.turn(self._state, t, partial(self._mix, t))
        self._round = t
        self.postbox.mixed(t)

    def _mix(self, t: int, message: Array) -> Array:
        """Let the message out, get those of the peers, and mix what the weights and the controller say."""
        payload = self._pending.get(t)
        if payload is None:
            payload = self._release(t, message)
        else:
            message = self._as_released(t, payload, message)
        row = self.plan.row(t, self.me)
        peers = [peer for peer in sorted(row) if peer != self.me]
        answers: dict[int, Array] = {}
        self.network.offer(t, peers, payload)
        for peer in peers:
            with suppress(Skipped):
                self.network.exchange(t, peer, payload)
                answers[peer] = self.postbox.message(t, peer, message.shape)
        self.network.settle(t)
        for peer in peers:
            if self.skips.skipped(t, peer):  # both ends keep the edge's weight to themselves
                row[self.me] = row.get(self.me, 0.0) + row.pop(peer)
        return mixed(self.me, row, message, answers.__getitem__)

    def _as_released(self, t: int, payload: bytes, message: Array) -> Array:
        """The message that is out already, in place of the one that was made again."""
        out = unpack(payload, Header(self.plan.run, t, self.me), message.shape)
        if not np.allclose(out, message, rtol=SAME, atol=SAME):
            raise StoreError(
                f"round {t} was released with another message than the records and the key in '{self.store.path}' "
                "give now; nothing more is sent: restore what was changed"
            )
        return out

    def _release(self, t: int, message: Array) -> bytes:
        """Write a round's message down, with all that it comes from; afterwards it may be seen."""
        payload = pack(Header(self.plan.run, t, self.me), message)
        run, ledger = self.plan.digest, self.store.ledger
        seen, drop = self.postbox.seen, self.postbox.stale(t)
        with self.store.transaction():
            if not ledger.has("open", run):
                name, node = self.plan.name, self.plan.nodes[self.me]
                adjacency, messages = self.plan.statement.adjacency, len(self.plan.rounds(self.me))
                detail = budget.opening(name, node, self.dataset, self.fingerprint, *self._cost, adjacency, messages)
                ledger.append("open", run, detail=detail)
            self.store.keep_state(run, self._round, self._state._asdict(), seen)
            self.store.keep_message(run, t, payload, drop)
        self.postbox.post(t, payload)
        return payload

    def finish(self) -> None:
        """Write the last state down and close the run in the ledger."""
        if not self.finished:
            seen = self.postbox.seen
            with self.store.transaction():
                self.store.keep_state(self.plan.digest, self._round, self._state._asdict(), seen)
                self.store.ledger.append("close", self.plan.digest)
        self.postbox.mixed(self.plan.T)

    def linger(self) -> tuple[str, ...]:
        """Stay until every peer has said that it is done; gives the names of those who did not within the timeout."""
        unheard, watch = [], Stopwatch()
        for peer in self.postbox.peers:
            left = max(0.0, self.plan.timeout - watch.read())
            try:
                self.network.exchange(self.plan.T + 1, peer, self.postbox.farewell(), left)
            except Paused:
                unheard.append(self.plan.nodes[peer])
        return tuple(unheard)

    def model(self) -> Array:
        """x̃_i at the end: a function of released messages only, so that it costs nothing to publish it."""
        return self.plan.prepared.job.method.average(self._state, self.plan.T)[0]
