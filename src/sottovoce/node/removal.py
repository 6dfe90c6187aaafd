"""Going on without a lost node: who is removed, what the others agree on, and in which epoch they go on.

A run that may lose f nodes is cut into *epochs*. An epoch is named by a digest, and has a set D of removed nodes, which
only grows. All that is sealed, signed, drawn or shared in pairs is of one epoch. The nodes agree by signed statements,
which anyone may pass on:

    SUSPECT(D, done, d)     in the epoch without D, after so many rounds: node d is silent for `lost_after` seconds
    FREEZE(D, done, hash)   this node completes no round any more before it enters an epoch without D (or without more
                            nodes); it has completed so many rounds, and this is the hash of its state

*Silent* is a node that answers no request. A node that waits for a message sends requests to all members, and every
process answers them, whatever it waits for itself. So blame reaches the node that is gone, not those who wait for it.

1. *Evidence* against d is a quorum of SUSPECTs by members of one epoch, whose rounds are at most one apart; or two
   different FREEZEs of d for one D, since a node signs one. A quorum of n members with b liars is ⌊(n + b)/2⌋ + 1. Any
   two quorums share an honest member, and b liars need so many false suspicions of honest members that a node which
   answers most of them stays.
2. A node that holds evidence against d adds d to its D, writes its FREEZE down, and sends it with the evidence. With
   more than f nodes in D the run ends.
3. A node *enters* D once it has the FREEZE of every member for this very D. The state that it goes on from is the one
   after round t*: the highest round that a member has completed, if a quorum has completed the round before. Who lacks
   that state gets it from a member that has it, by its hash. The name of the epoch is the digest of all these FREEZEs.
4. Round t* + 1 is made anew. What was released of it before is in the ledger, and is never mixed.

D of a node only grows, and all that makes it grow is signed evidence that the node passes on: nodes that can exchange
messages end with the same D, the union. A node that has entered D and receives evidence against one more freezes again.
No round is completed in an epoch that a member has not entered, because a round takes messages of all. So before D
changes, honest members are at most one round apart, and t* is at least what any honest member has completed. A liar
that alone gives the state of t*, to some, can stretch that by a round a removal; from the third one on, members may
have to go back. They make those rounds anew in the new epoch, with its noise, while T + f allows it.

*Why privacy does not depend on any of it.* A node makes one release at most per address (epoch, round), at most T + f
in all, only in epochs with n − f members at least, and with the noise of that number of members. The ledger holds it to
that, whatever others say. Nodes that were shown other FREEZEs are in epochs of other names, and share no noise.

`Votes` is the state machine alone, without time, keys or a network; `Removal` puts it at a node.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from sottovoce.errors import LeftOut, StaleCopy, TooFew
from sottovoce.node.envelope import SIGNATURE, Envelope, joined
from sottovoce.node.message import Code, Header, Refused, check, pack_text, read, unpack_text

if TYPE_CHECKING:
    from sottovoce.node.transport import Stopwatch

SUSPECT, FREEZE = "suspect", "freeze"
TOPIC = "removal"
CONFERS = b"svor"
"""Begins everything about lost nodes, which has an address in no epoch."""
CONFERENCE = -2
"""In place of its step."""
HASH = 64
STATEMENT = 512
"""Bytes of a statement, as it travels, at most."""
PINGS = 20
"""Requests to a silent member in the time after which it counts as lost; at least half of them must be without answer,
so that a process that was slow itself suspects nobody."""
REMEMBERED = 4096
"""Statements whose signature need not be checked again."""


def quorum(members: int, liars: int) -> int:
    """How many of these members must say a thing, so that two such groups share an honest one.

    Examples
    --------
    >>> quorum(20, 4), quorum(5, 0), quorum(2, 0)
    (13, 3, 2)
    """
    return (members + liars) // 2 + 1


class Statement(NamedTuple):
    """What a member says about lost nodes, signed."""

    kind: str
    signer: int
    removed: tuple[int, ...]
    """Of a suspicion, who is removed already; of a freeze, also who is about to be. In order."""
    done: int
    """Rounds that the signer has completed."""
    about: str
    """The number of the suspected node; or the hash of the signer's state."""
    signature: bytes = b""

    @property
    def content(self) -> tuple[str | int, ...]:
        """What is signed."""
        return TOPIC, self.kind, " ".join(map(str, self.removed)), self.done, self.about

    def listed(self) -> list[Any]:
        """As it travels, and as it is kept."""
        return [*self[:2], list(self.removed), *self[3:5], self.signature.hex()]

    @classmethod
    def read(cls, value: Any, n: int) -> "Statement":
        """What `listed` gave; a ValueError where it is something else."""
        kind, signer, removed, done, about, signature = value
        made = cls(kind, signer, tuple(removed), done, about, bytes.fromhex(signature))
        numbers = (signer, done, *made.removed)
        whole = all(type(number) is int and 0 <= number < 2**40 for number in numbers)
        if not whole or list(made.removed) != sorted(set(made.removed)) or len(made.signature) != SIGNATURE:
            raise ValueError("no statement")
        if signer >= n or any(node >= n for node in made.removed) or not (isinstance(about, str) and about.isascii()):
            raise ValueError("no such node")
        named = kind == SUSPECT and about.isdecimal() and about == str(int(about[:20])) and int(about) < n
        if not (named or (kind == FREEZE and len(about) == HASH)):
            raise ValueError("of no kind")
        return made


def state_hash(done: int, state: bytes) -> str:
    """By which a state is known."""
    return hashlib.sha256(f"{done} ".encode() + state).hexdigest()


class Decision(NamedTuple):
    """What all members of an epoch agree on before its first round."""

    removed: tuple[int, ...]
    done: int
    """Rounds that count as completed: t*."""
    state: str
    """The hash of the state after them."""
    holders: tuple[int, ...]
    """Members that have that state."""
    epoch: str
    """The digest that names the epoch."""

    def missing(self, known: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        """Every removed node, and the round from which on it is missing, where some are `known` from epochs before.

        That is never after the epoch's first round: liars can bring about that rounds are made anew.

        Examples
        --------
        >>> Decision((1, 2, 4), 3, "", (), "").missing({1: 2, 4: 7})
        ((1, 2), (2, 4), (4, 4))
        """
        first = self.done + 1
        return tuple((node, min(known.get(node, first), first)) for node in self.removed)


class Votes:
    """What one node knows of lost nodes: evidence, suspicions and freezes; every statement in it was verified.

    Parameters
    ----------
    run : the run's digest
    n, me : nodes of the run, and this one
    most : f, how many may be lost
    liars : b, how many members may lie
    entered : who is removed in the node's epoch
    """

    def __init__(self, run: str, n: int, me: int, most: int, liars: int, entered: tuple[int, ...] = ()) -> None:
        self.run, self.n, self.me, self.most, self.liars, self.entered = run, n, me, most, liars, entered
        self.evidence: dict[int, tuple[Statement, ...]] = {}
        self.suspicions: dict[tuple[int, int], Statement] = {}
        self.freezes: dict[tuple[int, ...], dict[int, Statement]] = {}

    def members(self, removed: Sequence[int]) -> tuple[int, ...]:
        """Who is left."""
        return tuple(i for i in range(self.n) if i not in removed)

    @property
    def target(self) -> tuple[int, ...]:
        """Everybody whose removal this node must take part in: who is removed, and who is about to be."""
        return tuple(sorted({*self.entered, *self.evidence}))

    @property
    def frozen(self) -> Statement | None:
        """The own freeze for the target."""
        return self.freezes.get(self.target, {}).get(self.me)

    def take(self, said: Statement) -> None:
        """Add a statement; what comes too early is sent again."""
        if said.signer in said.removed or len(said.removed) > self.most:
            return
        if said.kind == SUSPECT:
            self._suspected(said)
        elif said.removed in (self.target, self.entered):
            first = self.freezes.setdefault(said.removed, {}).setdefault(said.signer, said)
            if first[:5] != said[:5] and said.signer != self.me:
                self.accept(said.signer, (first, said))

    def _suspected(self, said: Statement) -> None:
        node, key = int(said.about), (said.signer, int(said.about))
        if node in said.removed or node == said.signer:
            return
        kept = self.suspicions.get(key)
        if kept is None or (len(kept.removed), kept.done) <= (len(said.removed), said.done):
            self.suspicions[key] = said
        same = [one for (_, d), one in self.suspicions.items() if d == node and one.removed == said.removed]
        for low in (said.done - 1, said.done):
            self.accept(node, tuple(one for one in same if low <= one.done <= low + 1))

    def accept(self, node: int, statements: tuple[Statement, ...]) -> None:
        """Add evidence against a node, if it is some."""
        if node not in self.target and self.proves(node, statements):
            self.evidence[node] = statements
            kept = (self.entered, self.target)
            self.freezes = {removed: said for removed, said in self.freezes.items() if removed in kept}

    def proves(self, node: int, statements: Sequence[Statement]) -> bool:
        """Whether statements are evidence against a node."""
        kinds, lists = {one.kind for one in statements}, {one.removed for one in statements}
        if len(kinds) != 1 or len(lists) != 1:
            return False
        (kind,), (removed,) = kinds, lists
        left, signers = self.members(removed), {one.signer for one in statements}
        if len(removed) > self.most or node not in left or not signers <= set(left):
            return False
        if kind == FREEZE:
            return signers == {node} and len({one[:5] for one in statements}) > 1
        rounds = [one.done for one in statements]
        about = {one.about for one in statements} == {str(node)} and node not in signers
        return about and max(rounds) - min(rounds) <= 1 and len(signers) >= quorum(len(left), self.liars)

    @property
    def decision(self) -> Decision | None:
        """What the members of the target agree on, once all of them froze for it."""
        removed = self.target
        left, said = self.members(removed), self.freezes.get(removed, {})
        if removed == self.entered or len(removed) > self.most or any(i not in said for i in left):
            return None
        rounds = [said[i].done for i in left]
        needed = quorum(len(left), self.liars)
        possible = [t for t in set(rounds) if sum(other >= t - 1 for other in rounds) >= needed]
        if not possible:
            return None
        done = max(possible)
        states = [said[i].about for i in left if said[i].done == done]
        state = max(states, key=lambda one: (states.count(one), -states.index(one)))
        holders = tuple(i for i in left if said[i].done == done and said[i].about == state)
        whole = joined(
            "sottovoce epoch", self.run, *removed, "members", *(part for i in left for part in said[i][1:5:2])
        )
        whole += joined(*(said[i].about for i in left))
        return Decision(removed, done, state, holders, hashlib.blake2b(whole, digest_size=32).hexdigest())

    def enter(self, decision: Decision) -> None:
        """Go on in the next epoch."""
        self.entered = decision.removed

    def saying(self) -> list[Statement]:
        """What others may lack: suspicions in this node's epoch, and freezes for its target."""
        now = [one for one in self.suspicions.values() if one.removed == self.target]
        return [*now, *self.freezes.get(self.target, {}).values()]


class Removal:
    """A node's part: it notices who is silent, signs, exchanges statements, and keeps what it must not forget.

    Parameters
    ----------
    votes : what it knows
    names : of all nodes
    mark : the run in every message
    envelope : of the run's first epoch, which seals and signs
    lost_after : seconds
    room : bytes of a state
    kept : what the node's folder holds (`kept`)
    """

    def __init__(
        self,
        votes: Votes,
        names: Sequence[str],
        mark: bytes,
        envelope: Envelope,
        lost_after: float,
        room: int,
        kept: Iterable[list[Any]] = (),
    ) -> None:
        self.votes, self.names, self.mark, self.envelope, self.lost_after = votes, names, mark, envelope, lost_after
        self.limit = STATEMENT * (votes.most + 4) * votes.n + room + (1 << 14)
        """Bytes that may come in."""
        self._own: dict[tuple[int, ...], Statement] = {}
        self._checked: dict[Statement, bool] = {}
        self._lock = RLock()
        self._fresh: set[int] = set()
        self._heard: dict[int, float] = {}
        self._unanswered: dict[int, int] = {}
        self._at: Any = None
        self._since = self._requested = 0.0
        self._watch: Stopwatch | None = None
        self.state: tuple[str, bytes] = "", b""
        """The state that this node froze with, for who lacks it; and its hash."""
        self.wanted: Decision | None = None
        """Whose state this node lacks."""
        self.came: bytes | None = None
        """That state."""
        self._wants: dict[int, str] = {}
        self._failure: StaleCopy | None = None
        self._restore([Statement.read(one, votes.n) for one in kept])

    def _restore(self, kept: list[Statement]) -> None:
        """What was written down: evidence first, then this node's own freezes."""
        proofs: dict[int, list[Statement]] = {}
        for one in kept:
            if one.kind == FREEZE and one.signer == self.votes.me:
                self._own[one.removed] = one
            else:
                proofs.setdefault(one.signer if one.kind == FREEZE else int(one.about), []).append(one)
        self.votes.evidence = {d: tuple(some) for d, some in proofs.items()}
        for one in self._own.values():
            self.votes.take(one)

    # -- statements --

    def _signed(self, kind: str, done: int, about: str) -> Statement:
        bare = Statement(kind, self.votes.me, self.votes.target, done, about)
        return bare._replace(signature=self.envelope.sign(*bare.content))

    def _valid(self, said: Statement) -> bool:
        if said not in self._checked:
            if len(self._checked) >= REMEMBERED:
                self._checked.clear()
            mine = said.signer == self.votes.me
            whole = self.envelope.sign(*said.content) == said.signature if mine else False
            self._checked[said] = whole or (
                not mine and self.envelope.verify(said.signer, said.signature, *said.content)
            )
        return self._checked[said]

    def freeze(self, done: int, state: bytes) -> Statement:
        """The own freeze for the target; it counts once it is kept (`frozen`)."""
        with self._lock:
            kept = self._own.get(self.votes.target)
            found = state_hash(done, state)
            if kept is not None and (kept.done, kept.about) != (done, found):
                raise StaleCopy(
                    "this node froze with another state than its folder holds: the folder is an old copy; restore the "
                    "one that it had last. This node stops for good in this run"
                )
            return kept or self._signed(FREEZE, done, found)

    def frozen(self, said: Statement, state: bytes) -> None:
        """The freeze is on the disk, and others may see it."""
        with self._lock:
            self._own[said.removed] = said
            self.state = said.about, state
            self.votes.take(said)

    @property
    def ready(self) -> bool:
        """Whether this node froze for its target, and can give its state to who lacks it."""
        with self._lock:
            said = self.votes.frozen
            return said is not None and self.state[0] == said.about

    def holds(self, done: int, state: bytes) -> None:
        """The state that an epoch began with, for who lacks it."""
        with self._lock:
            self.state = state_hash(done, state), state

    def kept(self) -> list[list[Any]]:
        """What must not be forgotten: own freezes, and evidence."""
        with self._lock:
            proofs = [one for some in self.votes.evidence.values() for one in some]
            return [one.listed() for one in (*self._own.values(), *proofs)]

    # -- the exchange --

    def sealed(self, peer: int, reply: bool = False) -> bytes:
        """All that this node has to say about lost nodes, for one peer."""
        with self._lock:
            votes = self.votes
            digest, state = self.state
            value = {
                "evidence": [[d, [one.listed() for one in some]] for d, some in votes.evidence.items()],
                "said": [one.listed() for one in votes.saying()],
                "wants": None if self.wanted is None else self.wanted.state,
            }
            attached = (state,) if digest and self._wants.get(peer) == digest else ()
            payload = pack_text(Header(self.mark, 0, votes.me), value, attached)
        return CONFERS + self.envelope.seal(peer, TOPIC, b"", payload, reply)

    def take(self, peer: int, data: bytes, reply: bool = False) -> None:
        """Take in what a peer says."""
        if len(data) > self.limit:
            raise Refused(Code.SIZE, f"{len(data)} bytes about lost nodes came from node {peer}; refused")
        message = read(self.envelope.open(peer, TOPIC, data[len(CONFERS) :], reply))
        check(message, Header(self.mark, 0, peer), None, "|u1")
        value, attached = unpack_text(message)
        refused = Refused(Code.NOTICE, f"node '{self.names[peer]}' sent statements that cannot be read; refused")
        try:
            n = self.votes.n
            said = [Statement.read(one, n) for one in value["said"][: 4 * n]]
            proofs = [(int(d), tuple(Statement.read(one, n) for one in some[:n])) for d, some in value["evidence"][:n]]
            wants = value["wants"]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise refused from None
        with self._lock:
            self._fresh.add(peer)
            if isinstance(wants, str) and len(wants) == HASH:
                self._wants[peer] = wants
            self._learn(proofs, said)
            if attached and self.wanted is not None and state_hash(self.wanted.done, attached[0]) == self.wanted.state:
                self.came = attached[0]

    def _learn(self, proofs: list[tuple[int, tuple[Statement, ...]]], said: list[Statement]) -> None:
        for one in [*said, *(one for _, some in proofs for one in some)]:
            known = self._own.get(one.removed)
            if one.kind == FREEZE and one.signer == self.votes.me and one != known and self._valid(one):
                self._failure = StaleCopy(
                    "a peer holds a statement of this node that its folder does not know: the folder is an old copy, "
                    "or someone else has its key. This node stops for good in this run"
                )
        for d, some in sorted(proofs, key=lambda proof: len(proof[1][0].removed) if proof[1] else 0):
            if d not in self.votes.target and all(map(self._valid, some)):
                self.votes.accept(d, some)
        for one in said:
            if self._valid(one):
                self.votes.take(one)

    # -- time --

    def check(self) -> None:
        """Raise what ends this node's part."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            target, most = self.votes.target, self.votes.most
            if self.votes.me in target:
                raise LeftOut(
                    f"the other nodes went on without node '{self.names[self.votes.me]}', which was silent for "
                    f"{self.lost_after:g} s; what it released stays counted, and it takes no part in this run any more"
                )
            if len(target) > most:
                names = ", ".join(f"'{self.names[d]}'" for d in target)
                raise TooFew(f"{len(target)} nodes are lost ({names}), and the run was prepared for {most}; it is over")

    @property
    def due(self) -> bool:
        """Whether this node must freeze before it goes on."""
        with self._lock:
            return self.votes.target != self.votes.entered

    @property
    def decision(self) -> Decision | None:
        """What all agree on by now."""
        with self._lock:
            return self.votes.decision

    def tick(self, watch: "Stopwatch", at: Any, done: int, lends: bool, confer: Callable[[int], None]) -> None:
        """Call it while this node waits: requests go out, and who is silent for too long is suspected.

        Parameters
        ----------
        watch : a clock that stands still while the process does
        at : what the node waits for; the time begins anew when it changes
        done : rounds that it has completed
        lends : whether it suspects only whom others suspect: it has all that it needs itself
        confer : sends a member a request
        """
        with self._lock:
            votes, now = self.votes, watch.read()
            others = [i for i in votes.members(votes.target) if i != votes.me]
            if not all(map(self.envelope.knows, others)):
                return  # nobody has been removed from a run that has not begun
            if (watch, at) != (self._watch, self._at):
                self._watch, self._at, self._since, self._requested = watch, at, now, now
                self._heard.clear()
                self._unanswered.clear()
            for peer in self._fresh:
                self._heard[peer], self._unanswered[peer] = now, 0
            self._fresh.clear()
            for peer in others:
                silent = now - max(self._since, self._heard.get(peer, 0.0))
                if silent >= self.lost_after and self._unanswered.get(peer, 0) >= PINGS / 2:
                    self._suspect(peer, done, lends)
            if now - self._requested < self.lost_after / PINGS:
                return
            self._requested = now
            for peer in others:
                self._unanswered[peer] = self._unanswered.get(peer, 0) + 1
        for peer in others:
            confer(peer)

    def _suspect(self, peer: int, done: int, lends: bool) -> None:
        votes = self.votes
        others = [one for (_, d), one in votes.suspicions.items() if d == peer and one.removed == votes.target]
        mine = votes.suspicions.get((votes.me, peer))
        if (lends and not others) or (mine is not None and (mine.removed, mine.done) == (votes.target, done)):
            return
        votes.take(self._signed(SUSPECT, done, str(peer)))

    def enter(self, decision: Decision) -> None:
        """The epoch is on the disk."""
        with self._lock:
            self.votes.enter(decision)
            self.wanted = self.came = None
