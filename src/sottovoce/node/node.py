"""A real node: the loop over its own records, from the round that its folder records.

For every round t in which this node takes part: the one `step` of the algorithm makes the message from the node's own
secure release, or passes on what it heard where it only listens; the state that the round begins with, the
message and its row in the ledger go to the disk in one transaction; only then do peers get to see it. A round whose
message is on the disk already is never made anew: the stored bytes are sent, and the step is repeated only for what
else it computes. A one-shot release before the first round (`run.one_shot`) is round 0 and treated the same: written
down with its row in the ledger, then sent to every other node; the mean of all nodes' releases is written down before
the first round, and the public map that follows from it is made again from that. Where the averaging takes several
exchanges a round, what is passed on in each is written down before it is seen, too, and a restart goes on from the last
of them. These are no releases, but functions of messages that were sent before.

Where counts of scores follow the last round (`run.private_threshold`), nodes exchange their models first, since scores
are those of the mean of all models; then every node releases its counts, twice, as it releases in round 0.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce._renamed import old_attributes
from sottovoce._types import Array, IntArray
from sottovoce.algorithm.method import State
from sottovoce.engine.nodes import Node
from sottovoce.errors import (
    ConflictingMessages,
    LeftOut,
    NetworkError,
    PeerEnded,
    PeerTimeout,
    PrivacyError,
    SottovoceError,
    StaleCopy,
    StoreError,
    TooFew,
)
from sottovoce.node import budget
from sottovoce.node import keys as node_keys
from sottovoce.node.budget import DATASET as DATASET
from sottovoce.node.dropped_edges import Skips
from sottovoce.node.envelope import Envelope, RunKeys
from sottovoce.node.identity import Identity, OwnKey
from sottovoce.node.links import FOR_GOOD, MESSAGE, End, Links
from sottovoce.node.message import Header, array_of, pack, unpack
from sottovoce.node.removal import Decision, Removal, Votes, state_hash
from sottovoce.node.runfile import Run
from sottovoce.node.state import NEXT, RunState
from sottovoce.node.store import Saved, Store
from sottovoce.node.transport import CHECK_SECONDS, Frozen, NodeTransport, Stopwatch
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.objective import Problem
from sottovoce.run.build import Map, make_problem
from sottovoce.run.distribution import Expanded
from sottovoce.run.inference import Published, StageSums, next_stage, start_of
from sottovoce.run.one_shot import OneShotRelease
from sottovoce.run.plan import Public
from sottovoce.run.private_threshold import Scored, last_queries
from sottovoce.secure.generator import Generator, Purpose

LONG_PARTING, SHORT_PARTING = 5.0, 1.0
"""Seconds in which a stopping node sends its peers the reason: if it stops for good, and until the next start."""
SLACK = 1.0 + 1e-6  # rounding
SAME = 1e-9  # σ comes from a search, which another processor rounds differently


class Outcome(NamedTuple):
    """What a node has at the end."""

    model: Array
    """(m,) x̃_i, this node's model."""
    unheard: tuple[str, ...]
    """Peers that did not say that they are done too: should one come back, it needs this node once more."""
    skips: int = 0
    """How many of this node's edges were left out of a round."""


@old_attributes
class DurableNode(Node):
    """One node of one run, over its own folder; connect it to a network, then let it `take_part`.

    Parameters
    ----------
    run : the public run file
    name : this node
    problem : the node's own records (`site.own_problem`)
    store : the node's own folder
    dataset : under which name the owner budgets these records
    identity : what vouches for this node's keys, and judges others'; by default a key of its folder, and the run file's
        keys, or trust on first use
    """

    transport: NodeTransport

    def __init__(
        self,
        run: Run,
        name: str,
        problem: Problem,
        store: Store,
        dataset: str = DATASET,
        identity: Identity | None = None,
    ) -> None:
        me, plan = run.number(name), run.plan
        super().__init__(me, problem, plan.method, plan.schedule, plan.release)
        self.root = self.run = run
        """The run; and its epoch, which is the run until a node is removed."""
        self.name, self.store, self.dataset = name, store, dataset
        self.fingerprint, self.sequence = node_keys.fingerprints(store.secret, problem.shards)
        saved = store.enter(run.digest, run.name, name, run.nodes, (self.sequence, self.fingerprint), -run.before)
        self._map: Map | None = None
        self.original, self._means = problem, dict(saved.means)
        """Its records as they came, where those of the rounds are mapped; and what is known of all nodes' beside."""
        if 0 in self._means:
            self._use(self._means[0])
        self._cost = run.event(me), run.spec.privacy.adversary
        opened = store.ledger.opened(run.digest)
        self._opened = opened is not None
        if opened is None:
            self._check_affordable()
        else:
            self._check_as_planned(opened)
        self._identity = identity or OwnKey(node_keys.identity_seed(store.secret), run.keys)
        later = store.epoch(run.digest)
        self.removal = self._removing(() if later is None else later[1])
        if later is None:
            self._stand(run, saved)
        else:
            self._stand(run.without(later[1], later[0]), store.load(later[0]))
        if self.over:
            answers = store.answers(run.digest)
            self.links.last_words = {
                (i, reply): data for (i, topic, reply), data in answers.items() if topic == MESSAGE
            }
        self.state = RunState.MEETING

    def _stand(self, run: Run, saved: Saved) -> None:
        """Go on in an epoch from where the folder has it."""
        me, store, plan = self.number, self.store, run.plan
        self.run, self.method, self.schedule, self.release = run, plan.method, plan.schedule, plan.release
        for draws in ("_keys", "_secure"):
            self.__dict__.pop(draws, None)
        self._state, self._round = self._restored(saved.state), saved.round
        self._pending, self._passed = dict(saved.outbox), dict(saved.parts)
        first = None if self.removal is None or run.epoch else self.removal.envelope
        self.envelope = first or self._enveloped(self._identity)
        proving = node_keys.proving_key(store.secret)
        self.links = Links(run, me, saved, self._said, self.envelope, proving, self.removal)
        mixed = max([saved.round, *(t for t, _ in saved.parts)])  # what was passed on is mixed of the first messages
        self.skips = Skips(run, me, store, saved.skips, mixed, self.envelope)
        if self.removal is not None and run.removed and self._round < run.begins:
            self.removal.holds(self._round, _bytes(self._state))

    def _removing(self, removed: tuple[tuple[int, int], ...]) -> Removal | None:
        """What goes on without lost nodes, where the run may."""
        run, me = self.root, self.number
        if run.lost_after is None or self.over:
            return None
        gone = tuple(sorted(node for node, _ in removed))
        votes = Votes(run.digest, run.n, me, run.may_lose, run.liars, gone)
        room = sum(array.nbytes for array in self.method.start(1, run.m))
        kept = self.store.freezes(run.digest)
        envelope = self._enveloped(self._identity)
        return Removal(votes, run.nodes, run.mark, envelope, run.lost_after, room, kept)

    def _said(self, step: int) -> str | None:
        """The hash of what this node said at a step, out of its folder."""
        return self.store.said(self.run.digest, *self.run.at(step))

    def _enveloped(self, identity: Identity) -> Envelope:
        """With the run's own keys; a run that is over has none any more, and gets some that nobody will know."""
        run, store, me = self.root, self.store, self.number
        if self.over:
            return Envelope(run.digest, run.nodes, me, RunKeys.born(), identity)
        records = self.sequence if run.shares_with(me) else None
        keys, keep = store.born_keys(run.digest, records), partial(store.keep_member, run.digest)
        return Envelope(run.digest, run.nodes, me, keys, identity, store.members(run.digest), keep, self.run.epoch)

    @property
    def over(self) -> bool:
        """Whether nobody can need this node in this run any more: it is done, and its keys are erased."""
        return self.finished and self.store.run_keys(self.root.digest) is None

    def _check_affordable(self) -> None:
        records, adjacency = (self.dataset, self.fingerprint), self.root.statement.adjacency
        new = budget.Spending.planned(self.root.digest, *records, *self._cost, adjacency)
        budget.check_affordable(self.store.rows(), new)

    def _check_as_planned(self, opened: dict[str, Any]) -> None:
        """A run goes on with the noise, and on the records, that it was opened with."""
        if not opened.get("secure"):
            raise StoreError(
                f"run '{self.run.name}' was begun by sottovoce 0.1, whose runs this version does not continue; begin a "
                "run of another name"
            )
        sigma, planned = read_event(opened["event"]).sigma, self._cost[0].sigma
        if not math.isclose(sigma, planned, rel_tol=SAME):
            raise StoreError(
                f"run '{self.run.name}' was opened with noise of σ = {sigma:.9g}, and its run file gives σ = "
                f"{planned:.9g} now; go on with the version of sottovoce that began it"
            )
        if opened.get("sequence", self.sequence) != self.sequence:
            raise StoreError(self.store.other_records(self.run.name))

    def _use(self, mean: Array) -> None:
        """Map the records by what all nodes released before the first round."""
        first = self.run.first
        assert first is not None
        self._map = first.query.finish(first.noisy(mean))
        self.problem = make_problem(self.run.spec.problem, self._map.shards(self.problem.shards))

    @cached_property
    def _keys(self) -> tuple[Mapping[Purpose, Generator], Mapping[int, Generator]]:
        """The node's own, and those that it shares; made when first used, since a folder of 0.1 has no nonce before."""
        own = node_keys.own_keys(self.store.secret, self.run.digest, self.store.nonce(), self.sequence)
        peers = self.run.shares_with(self.number)
        return own, {peer: Generator(self.envelope.pair_secret(peer)) for peer in peers}

    @cached_property
    def _secure(self) -> node_keys.Ahead:
        """The draws of the rounds; made when first used, after the release before them."""
        longest = None if self._map is None else self._map.reach
        return self.run.draws(self.number, self.problem, *self._keys, longest)

    def _restored(self, arrays: dict[str, Any] | None) -> State:
        """The state as it was saved, field by field, whatever fields the method's state has."""
        start = self.method.start(1, self.run.m)
        if arrays is None:
            return start
        expected = {name: (a.shape, a.dtype) for name, a in start._asdict().items()}
        if {name: (a.shape, a.dtype) for name, a in arrays.items()} != expected:
            raise StoreError(
                f"the state in '{self.store.path}' does not fit this version of the method; go on with the old one"
            )
        return start._replace(**arrays)

    @property
    def statement(self) -> PrivacyStatement:
        """What the run guarantees to this node's records."""
        return self.root.statement

    @property
    def finished(self) -> bool:
        """Whether all of this node's rounds are done, and on the disk."""
        return self.store.ledger.has("close", self.root.digest)

    @property
    def rounds(self) -> IntArray:
        """The rounds that are left."""
        rounds = self.run.rounds(self.number)
        return rounds[rounds > self._round]

    @property
    def exchange(self) -> int:
        """The next exchange after the last round, where rounds are over."""
        return max(self._round, self.run.T) + 1

    def take_part(self, leave: bool = True) -> Outcome:
        """Greet the peers, take part in every round that is left, and stay until all peers are done.

        A caller that has more to exchange in this run, such as models, passes `leave=False` and leaves afterwards.
        """
        if self.over:
            self._enter(RunState.FINISHING)
            self._enter(RunState.DONE)
            for peer in {peer for peer, _ in self.links.last_words}:
                self.transport.send(peer, self.links.farewell())  # it may have been killed before it heard
            return Outcome(self.model(), (), self.skips.count)
        self._check_not_ended()
        if self._round >= self.run.T + self.run.after:  # killed when all was on the disk but this: it needs nobody
            self.finish()
        try:
            while (outcome := self._attempt()) is None:
                self._leave_epoch()
        except SottovoceError as error:
            raise self._ended(error) from None
        self._enter(RunState.DONE)
        if leave:
            self.leave(outcome)
        return outcome

    def _attempt(self) -> Outcome | None:
        """Take part in this epoch to its end; None where another one must follow."""
        try:
            self.transport.confer(0)
            self.greet(wait=not self.finished or bool(self.run.removed))
            self._enter(RunState.FINISHING if self.finished else RunState.EXCHANGING)
            if self._round < 0:
                self._release_first()
            self.take_turns(self._state, self.rounds)
            self._release_last()
            self.finish()
            self._enter(RunState.FINISHING)
            return Outcome(self.model(), self.drain(), self.skips.count)
        except Frozen:
            return None

    def _leave_epoch(self) -> None:
        """Agree with the other members on who is lost, and on where the next epoch begins; and enter it."""
        removal, watch = self.removal, Stopwatch()
        assert removal is not None
        self._enter(RunState.FREEZING)
        while True:
            removal.check()
            if removal.due and not removal.ready:
                self._freeze(removal)
            decision = removal.decision
            if decision is not None and (state := self._agreed(removal, decision)) is not None:
                break
            if watch.read() >= self.root.timeout:
                raise PeerTimeout(
                    f"node '{self.name}' waited {self.root.timeout:g} s for the others to agree on who is lost; the "
                    "run is paused and nothing is lost: start the nodes again, and it goes on from here"
                )
            self.transport.confer(-1, freezing=True)
            self.transport.wait(min(CHECK_SECONDS, self.root.lost_after or CHECK_SECONDS))
        if decision.done < self._round and self.finished:
            raise NetworkError(
                f"the other members go back to round {decision.done} of run '{self.run.name}', which is done here; "
                "nothing more is released: begin a run of another name"
            )
        removed = decision.missing(dict(self.run.removed))
        with self.store.transaction():
            self.store.enter_epoch(self.root.digest, decision.epoch, decision.done, state._asdict(), removed)
        removal.enter(decision)
        self._stand(self.root.without(removed, decision.epoch), self.store.load(decision.epoch))
        self.transport.follow(self.links, self.skips)
        self._enter(RunState.MEETING)

    def _freeze(self, removal: Removal) -> None:
        """Complete nothing more in this epoch: written down first, and then said."""
        state = _bytes(self._state)
        said = removal.freeze(self._round, state)
        seen = self.links.seen  # never within a transaction, as in `_show_model`: two threads would wait for each other
        with self.store.transaction():
            self.store.keep_state(self.run.digest, self._round, self._state._asdict(), seen)
            self.store.keep_freezes(self.root.digest, [*removal.kept(), said.listed()])
        removal.frozen(said, state)

    def _agreed(self, removal: Removal, decision: Decision) -> State | None:
        """The state that the next epoch begins with: this node's, or another one's where this node lacks it."""
        if decision.done == self._round:
            return self._state
        removal.wanted = decision
        if removal.came is None or state_hash(decision.done, removal.came) != decision.state:  # of a decision before
            return None
        start, at, data = self.method.start(1, self.run.m), 0, removal.came
        arrays = {}
        for name, array in start._asdict().items():
            arrays[name] = np.frombuffer(data[at : at + array.nbytes], dtype=array.dtype).reshape(array.shape).copy()
            at += array.nbytes
        state = start._replace(**arrays)
        longest = self.run.bounds[min(decision.done, self.run.T - 1)] * SLACK  # of the next round: no state is longer
        within = float(np.linalg.norm(state.z)) <= longest
        mean = self.method.average(state, max(decision.done, 1))
        if not (all(map(_is_finite, state)) and within and np.linalg.norm(mean) <= self.run.model_bound * SLACK):
            raise NetworkError(
                "the state that a member gives is longer than an honest one can be; begin a run of another name"
            )
        return state

    def _enter(self, state: RunState) -> None:
        """Move along the states of a run."""
        assert state is self.state or state in NEXT[self.state], (self.state, state)
        self.state = state

    def _check_not_ended(self) -> None:
        """Do not restart a run that ended for good; inform the peers once more."""
        ended = self.store.ended(self.root.digest)
        if ended is not None and ended[0] in (RunState.LEFT_OUT, RunState.TOO_FEW):
            self._enter(RunState(ended[0]))
            raise (LeftOut if ended[0] == RunState.LEFT_OUT else TooFew)(ended[2])
        if ended is not None:
            state, about, reason = ended
            self.links.end, self.links.end_kept = End(RunState(state), about), True
            self._enter(RunState(state))
            self.transport.part(LONG_PARTING)
            raise (ConflictingMessages if state == RunState.CONTRADICTED else PeerEnded)(reason)

    def _ended(self, error: SottovoceError) -> SottovoceError:
        """Write down what ends the run, inform the peers, and return the error with what the run has cost."""
        if isinstance(error, LeftOut | TooFew):
            error = type(error)(f"{error}; {self.spent()}")
            state = RunState.LEFT_OUT if isinstance(error, LeftOut) else RunState.TOO_FEW
            self.store.stop(self.root.digest, str(error), (state.value, None))
            self._enter(state)
            return error
        stale = RunState.OLD_COPY if isinstance(error, StaleCopy) else RunState.PAUSED
        end = self.links.end or End(stale, getattr(error, "peer", None))
        state = RunState.PEER_ENDED if isinstance(error, PeerEnded) else end.state
        if isinstance(error, ConflictingMessages | PeerEnded):
            error = type(error)(f"{error}; {self.spent()}")
        if isinstance(error, StaleCopy):
            self.store.stop(self.root.digest, str(error))
        elif end.state in FOR_GOOD:
            self.store.stop(self.root.digest, str(error), (end.state.value, end.about))
        self.links.end, self.links.end_kept = end, True
        self._enter(state)
        self.transport.part(LONG_PARTING if end.state in FOR_GOOD else SHORT_PARTING)
        if isinstance(error, StaleCopy):
            self.store.erase_keys(self.root.digest)
        return error

    def spent(self) -> str:
        """Return what this run has released and cost so far, as a clause."""
        event, statement = self._cost[0], self.statement
        made = self.store.releases(self.root.digest)
        outside = self.run.outside
        planned = event.rounds + outside
        rounds = min(event.rounds, max(0, made - self.run.before))  # what is outside them counts with the first
        epsilon = compute_epsilon([event.after(rounds)], statement.delta).epsilon if made else 0.0
        return (
            f"this node released {made} of {planned} messages, ε = {epsilon:.4g} at δ = {statement.delta:g} "
            f"against '{statement.adversary}'"
        )

    def leave(self, outcome: Outcome, answers: Mapping[tuple[int, str, bool], bytes] = MappingProxyType({})) -> None:
        """Erase this run's keys, unless a peer may still need this node.

        A peer that was killed meanwhile requests again: the farewell, and `answers`, are sealed for it and kept.
        """
        if not outcome.unheard:
            farewell, sealed = self.links.farewell(), self.links.sealed
            mine = {
                (i, MESSAGE, reply): sealed(i, farewell, reply) for i in self.links.peers for reply in (False, True)
            }
            self.store.erase_keys(self.root.digest, mine | dict(answers))

    def _check_same_pairs(self) -> None:
        """A run goes on with the keys that it was opened with: else noise would not cancel, nor be as secret."""
        opened = self.store.ledger.opened(self.root.digest)
        if opened is not None and opened.get("pairs", {}) != self._sharing().get("pairs", {}):
            raise StoreError(
                f"run '{self.run.name}' shares noise with other keys of other nodes than it was opened with; nothing "
                "is sent: restore the folder, or begin a run of another name"
            )

    def greet(self, wait: bool = True) -> None:
        """Introduce this node; compare run files and high-water marks with every peer, before the first message.

        A node that has nothing more to release need not wait: it only sends its peers what they may lack.
        """
        if wait:
            self.transport.meet([peer for peer in self.run.members if peer != self.number])
            self._check_same_pairs()
        for peer in self.links.peers:
            if wait:
                self.transport.swap(0, peer, self.links.hello(peer))
            elif self.envelope.knows(peer):
                self.transport.send(peer, self.links.hello(peer))

    def _release_first(self) -> None:
        """Release what comes before the first round, once, and keep the mean of what all nodes released."""
        first = self.run.first
        assert first is not None
        self._use(self._release_once(first, 0))
        self._round = 0
        self.links.mixed(self.run.step(1) - 1)

    def _release_once(self, once: OneShotRelease[Any], t: int) -> Array:
        """Release a query of all records, as they came, and keep the mean of what all nodes released."""
        me = np.array([self.number])
        own = once.secured(self.run.once_draws(once, self.number, self.original, *self._keys), me)
        every = self._from_all(t, *self.release_message(t, own))
        return self._keep_mean(t, once.weights @ every)

    def _from_all(self, t: int, payload: bytes, own: Array) -> Array:
        """(n, width) what every node sends in an exchange of all with all."""
        me, n = self.number, self.run.n
        heard = self.transport.exchange(t, payload, [peer for peer in range(n) if peer != me])
        return np.concatenate([own if i == me else self.decode(heard[i], own) for i in range(n)])

    def _keep_mean(self, t: int, mean: Array) -> Array:
        """Write down what a restart goes on from, after an exchange outside the rounds."""
        seen, signed = self.links.seen, self.links.signed()
        with self.store.transaction():
            self.store.keep_state(self.run.digest, t, self._state._asdict(), seen)
            self.store.keep_vouchers(self.run.digest, *signed)
            self.store.keep_mean(self.run.digest, t, mean)
        self._means[t] = mean
        return mean

    def _release_last(self) -> None:
        """Exchange models, and release the counts of their mean's scores, one part after the other, each once."""
        T = self.run.T
        if not self.run.after:
            return
        self._round = max(self._round, T)
        for t in range(self._round + 1, T + self.run.after + 1):
            if t == T + 1:
                own = self.method.average(self._state, T)
                every = self._from_all(t, self._passed.get((t, 1)) or self._show_model(t, own), own)
                self._keep_mean(t, every.mean(axis=0))
            else:
                self._release_once(self._counted(t), t)
            self._round = t
            self.links.mixed(min(self.run.step(t + 1), self.links.last) - 1)

    def _show_model(self, t: int, model: Array) -> bytes:
        """Write the final model down, with the last state; afterwards it may be seen."""
        seen = (
            self.links.seen
        )  # never within a transaction: what comes in meanwhile takes its lock first, then the store's
        with self.store.transaction():
            self.store.keep_state(self.run.digest, self.run.T, self._state._asdict(), seen)
        return self.forward(t, 1, model)

    def _counted(self, t: int) -> OneShotRelease[Any]:
        """What is released in a round after the last: of the scores of these records, or for intervals."""
        once = self.run.once_in(t)
        assert once is not None
        if self.run.spec.privacy.inference:
            stage = next_stage(self.run.spec, self._published(t), *self._settings)
            return replace(once, query=StageSums(stage, self.run.spec.privacy.inference))
        scored = self._scored
        return replace(once, query=scored.where() if t == self.run.T + 2 else scored.classes(self._edges))

    @property
    def _settings(self) -> tuple[int, int, bool]:
        """Columns, number of records or people, and whether people are the units."""
        problem = self.run.plan.problem
        return problem.features, int(problem.sizes.sum()), problem.people

    def _published(self, until: int) -> Published:
        """The sums for intervals of all rounds before one, and where they began."""
        T = self.run.T
        model = self._means[T + 1][None, :]
        model = (model if self._map is None else self._map.inverse_transform(model))[0]
        means = [self._means[t].tolist() for t in range(T + 2, until)]
        deviation = self.run.last_releases[0].noisy(np.empty(0)).deviation
        start = start_of(self.run.spec, model).tolist()
        return Published(start=start, means=means, deviation=deviation, reversed=False)

    @cached_property
    def _scored(self) -> Scored:
        """Of these records, as they came, under the mean of all nodes' models."""
        mean = self._means[self.run.T + 1][None, :]
        model = mean if self._map is None else self._map.inverse_transform(mean)
        return Scored.of(self.run.spec, self.original.shards, model[0])

    @property
    def _edges(self) -> Array:
        """Between the cells of the second part."""
        where = self.run.last_releases[0]
        return np.asarray(where.query.finish(where.noisy(self._means[self.run.T + 2])))

    @property
    def moved(self) -> float:
        """What is added to every score after the last round; 0 where nothing was counted, or not yet."""
        last = self.run.T + self.run.after
        if not self.run.spec.privacy.balance or last not in self._means:
            return 0.0
        release = self.run.last_releases[-1]
        query = last_queries(self.run.spec.privacy.balance, np.empty(0), self._edges)[-1]
        return self._scored.moved(query.finish(release.noisy(self._means[last])))

    def turn(self, state: State, t: int) -> State:
        """Take part in one round."""
        self.draws = self._secure
        self._state, self._round = self._finite(super().turn(state, t), t), t
        self.links.mixed(min(self.run.step(t + 1), self.links.last) - 1)  # the last one once it is on the disk
        return self._state

    def _finite(self, state: State, t: int) -> State:
        """Refuse to release anything computed from numbers that are not finite."""
        if not all(map(_is_finite, state)):
            raise NetworkError(
                f"the state of node '{self.name}' is not finite after round {t}: steps are too long, or peers sent "
                "numbers of no ordinary size; nothing more is released: begin a run of another name"
            )
        return state

    def release_message(self, t: int, message: Array) -> tuple[bytes, Array]:
        """The message that is out already, if it is; else write it down, with all that it comes from."""
        payload = self._pending.get(t)
        return (self._release(t, message), message) if payload is None else self._released(t, payload, message)

    def resume(self, t: int, payload: bytes, held: Array) -> tuple[int, bytes, Array]:
        """From the last exchange whose message is on the disk: that message is all that was held by then."""
        part = max([part for at, part in self._passed if at == t], default=0)
        if part == 0:
            return 0, payload, held
        payload = self._passed[t, part]
        return part, payload, unpack(payload, self._header(t, part), held.shape)

    def forward(self, t: int, part: int, held: Array) -> bytes:
        """Write down what this node holds, which is a function of messages that are out; afterwards it may be seen."""
        self._check_finite(t, held)
        payload, run = pack(self._header(t, part), held), self.run.digest
        seen, signed = self.links.seen, self.links.signed()
        with self.store.transaction():
            self.store.keep_seen(run, seen)
            self.store.keep_vouchers(run, *signed)
            self.store.keep_part(run, t, part, payload)
        step = self.run.step(t, part)
        self.links.mixed(step - 1)
        self.links.post(step, payload)
        return payload

    def _header(self, t: int, part: int = 0) -> Header:
        return Header(self.run.mark, self.run.step(t, part), self.number)

    def decode(self, payload: bytes, mine: Array) -> Array:
        """A peer's message; it was checked when it came."""
        return array_of(payload)

    def _released(self, t: int, payload: bytes, message: Array) -> tuple[bytes, Array]:
        """The message that is out already, in place of the one that was made again."""
        out = unpack(payload, self._header(t), message.shape)
        if not np.array_equal(out, message):
            raise StoreError(
                f"round {t} was released with another message than the records and the key in '{self.store.path}' "
                "give now; nothing more is sent: restore what was changed"
            )
        return payload, out

    def _release(self, t: int, message: Array) -> bytes:
        """Write a round's message down; afterwards it may be seen."""
        self._check_finite(t, message)
        payload, step = pack(self._header(t), message), self.run.step(t)
        run, ledger = self.run.digest, self.store.ledger
        seen, drop = self.links.seen, map(self.run.at, self.links.stale(step))
        signed, messages = self.links.signed(), self._messages
        if self.root.may_lose and self.store.releases(self.root.digest) >= messages:
            raise PrivacyError(f"this node has made all {messages} releases that the run was opened with; none follows")
        with self.store.transaction():
            if not self._opened:
                self._check_affordable()  # others may have opened runs on these records since
                detail = budget.opening(
                    self.run.name,
                    self.name,
                    self.dataset,
                    self.fingerprint,
                    *self._cost,
                    self.root.statement.adjacency,
                    messages,
                )
                detail |= {"secure": True, "sequence": self.sequence} | self._sharing()
                ledger.append("open", self.root.digest, detail=detail)
            self.store.keep_state(run, self._round, self._state._asdict(), seen)
            self.store.keep_vouchers(run, *signed)
            self.store.keep_message(run, t, payload, drop)
        self._opened = True
        self.links.post(step, payload)
        return payload

    @property
    def _messages(self) -> int:
        """How many releases the run is opened with: one a round, and one more for every node that may be lost."""
        return self.root.outside + len(self.root.rounds(self.number)) + self.root.may_lose

    def _check_finite(self, t: int, message: Array) -> None:
        if not _is_finite(message):
            raise NetworkError(
                f"the message of node '{self.name}' in round {t} is not finite; nothing more is released"
            )

    def _sharing(self) -> dict[str, Any]:
        """With which keys of which nodes this one draws noise that the two cancel between them."""
        known, peers = self.envelope.fingerprints(), self.run.shares_with(self.number)
        return {"pairs": {self.run.nodes[peer]: known[self.run.nodes[peer]] for peer in peers}} if peers else {}

    @property
    def model_bound(self) -> float:
        """Return a bound on the norm of any node's final model."""
        bound = self.run.model_bound
        bound = bound if self._map is None else self._map.longest(bound)
        return bound + (abs(self.moved) / self.run.spec.problem.intercept if self.moved else 0.0)

    def scored(self, problem: Problem) -> Problem:
        """Return records of this node as its final model meets them."""
        if not isinstance(self._map, Expanded):
            return problem
        return make_problem(self.run.spec.problem, self._map.scored(problem.shards))

    @property
    def public(self) -> Public:
        """The public numbers of the run at this node."""
        found = self.run.plan.public | Public(run=self.root.digest, schedule_seed=self.run.spec.seed)
        found = found if self._map is None else found | self._map.public()
        last = self.run.T + self.run.after
        if self.run.spec.privacy.inference and last in self._means:
            found |= Public(inference=self._published(last + 1))
        return found | Public(moved=self.moved) if self.moved else found

    @property
    def statistics(self) -> Array | None:
        """What all nodes released on average, where those were statistics."""
        return self._state.z[0] if self.method.released.numbers else None

    def finish(self) -> None:
        """Write the last state down and close the run in the ledger."""
        if not self.finished:
            seen, signed = self.links.seen, self.links.signed()
            with self.store.transaction():
                self.store.keep_state(self.run.digest, self._round, self._state._asdict(), seen)
                self.store.keep_vouchers(self.run.digest, *signed)
                self.store.ledger.append("close", self.root.digest)
        self.links.mixed(self.links.last)

    def drain(self) -> tuple[str, ...]:
        """Stay until every peer has said that it is done; gives the names of those who did not within the timeout."""
        unheard, watch = [], Stopwatch()
        for peer in self.links.peers:
            left = max(0.0, self.run.timeout - watch.read())
            try:
                self.transport.swap(self.links.last + 1, peer, self.links.farewell(), left)
            except PeerTimeout:
                unheard.append(self.run.nodes[peer])
        return tuple(unheard)

    def model(self) -> Array:
        """x̃_i at the end: a function of released messages only, so that it costs nothing to publish it."""
        model = self.method.average(self._state, self.run.T)[0]
        model = model if self._map is None else self._map.inverse_transform(model)
        if self.moved:
            model = np.array(model)
            model[-1] += self.moved / self.run.spec.problem.intercept
        if not np.all(np.isfinite(model)):
            raise NetworkError(
                f"the model of node '{self.name}' is not finite: steps are too long, or a peer sent huge "
                "numbers; check the peers' messages, and start a run with another name"
            )
        return model


def _bytes(state: State) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in state)


def _is_finite(array: NDArray[Any]) -> bool:
    """Return whether all numbers are finite, by their sum of squares; if that overflows, check each number."""
    return math.isfinite(np.vdot(array, array)) or bool(np.all(np.isfinite(array)))
