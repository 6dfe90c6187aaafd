"""Every order in which messages, crashes and an early lie can meet at two nodes or more, over the real `Links`.

What is left out: time, the numbers of the algorithm, and cryptography (a stub seals and signs; it cannot be forged). A
node's loop is that of `DurableNode`, action by action: `test_explorer.py` holds both together. The network loses,
repeats and reorders: a message may arrive or not, and copies may be kept and delivered at any later time. A liar has
one node's keys and sends another version of its messages, before the node makes its own or after.

A node's next state depends on its own state and on what comes, and many worlds share it. So every state of a node is
kept once, with what it turns into, and a world is a tuple of them: `Links` runs once for each.
"""

import copy
import random
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from net import run_of, secret_of

from sottovoce.errors import ConflictingMessages, Disputed, PeerEnded, SottovoceError
from sottovoce.node.envelope import SIGNATURE, joined
from sottovoce.node.links import _ABOUT, FOR_GOOD, MESSAGE, End, Links
from sottovoce.node.message import Header, pack
from sottovoce.node.state import NEXT, RunState
from sottovoce.node.store import Saved

SHARED = frozenset(
    "run me envelope _n last _released _secret _digest _mark _proving peers hears _when _whence _whom "
    "_signs _signed limit _lock _changed _waiting last_words removal".split()
)
"""Attributes of `Links` that do not change, or hold no state."""
SPOKEN = frozenset({"refused", "reasons", "_unanswering"})
"""Attributes that nothing depends on but what is said, and how often."""


class Sealing:
    """An envelope without cryptography: who has a node's keys is who calls it in the node's name."""

    introduction = b"svoi"

    def __init__(self, me):
        self.me = me

    def knows(self, peer):
        return True

    def seal(self, peer, topic, about, message, reply=False):
        return bytes([255, self.me, peer]) + about + message

    def open(self, peer, topic, sealed, reply=False):
        assert bytes(sealed[:3]) == bytes([255, peer, self.me])
        return bytes(sealed[3:])

    def sign(self, *statement):
        return signature(self.me, statement)

    def verify(self, peer, signed, *statement):
        return signed == signature(peer, statement)


def signature(who, statement):
    return (sha256(bytes([who]) + joined(*statement)).digest() * 2)[:SIGNATURE]


def cloned(value):
    if isinstance(value, dict):
        return {key: cloned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [cloned(item) for item in value]
    return set(value) if isinstance(value, set) else value


def frozen(value):
    if isinstance(value, dict):
        return tuple(sorted((key, frozen(item)) for key, item in value.items()))
    if isinstance(value, set):
        return tuple(sorted(value))
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    return type(value) if isinstance(value, Exception) else value


class Disk:
    """What a node's folder holds of the run."""

    def __init__(self):
        self.round, self.outbox, self.seen, self.unvouched = 0, {}, {}, {}
        self.released, self.mixed, self.closed, self.ended, self.words = {}, {}, False, None, {}

    def clone(self):
        made = copy.copy(self)
        for name, value in vars(self).items():
            setattr(made, name, cloned(value))
        return made

    def key(self):
        return tuple(frozen(value) for value in vars(self).values())


class Site:
    """One node: its disk, its links, and where its loop stands. What happens to it makes another one (`after`)."""

    def __init__(self, run, me):
        self.run, self.me, self.disk, self.starts, self.known = run, me, Disk(), 0, {}
        self.turns, self.meetings = {}, {}
        self.start()
        self.known[self.key()] = self

    def after(self, name, *arguments):
        """The node once a method has run, and what it returned; both computed once."""
        found = self.turns.get((name, *arguments))
        if found is None:
            made = self.clone()
            answer = getattr(made, name)(*arguments)
            found = self.turns[name, *arguments] = self.known.setdefault(made.key(), made), answer
        return found

    @cached_property
    def kept(self):
        """What is on its disk, to be compared."""
        return self.disk.key()

    @cached_property
    def deceived(self):
        """Whether it is done, with messages in its model that its peers never made."""
        mixed = ((honest(self.run, peer, t)[-32:].hex(), digest) for (t, peer), digest in self.mixing.items())
        return self.state is RunState.DONE and any(made != digest for made, digest in mixed)

    def start(self):
        """A process begins; what another one held in memory is gone."""
        run, disk = self.run, self.disk
        saved = Saved(disk.round, None, dict(disk.outbox), dict(disk.seen), {}, {}, cloned(disk.unvouched))
        self.links = Links(run, self.me, saved, disk.released.get, Sealing(self.me), secret_of(self.me))
        self.links.question, self.starts = f"{self.me}.{self.starts}", self.starts + 1
        self.t, self.mixing, self.state = disk.round + 1, dict(disk.mixed), RunState.MEETING
        if disk.ended is not None:
            self.links.end, self.links.end_kept = End(RunState(disk.ended[0]), disk.ended[1]), True
            self.enter(self.links.end.state)
        elif disk.words:  # its keys are erased
            self.links.last_words = disk.words
            self.enter(RunState.FINISHING)
            self.enter(RunState.DONE)
        elif disk.closed:
            self.links.mixed(self.links.last)
            self.enter(RunState.FINISHING)

    def enter(self, state):
        assert state is self.state or state in NEXT[self.state], (self.state, state)
        self.state = state

    def clone(self):
        made = copy.copy(self)
        for name in ("kept", "deceived"):
            vars(made).pop(name, None)
        made.disk, made.links, made.mixing = self.disk.clone(), copy.copy(self.links), dict(self.mixing)
        made.turns, made.meetings = {}, {}
        for name, value in vars(self.links).items():
            if name not in SHARED:
                setattr(made.links, name, cloned(value))
        made.links._released = made.disk.released.get
        return made

    def key(self):
        held = [frozen(v) for k, v in sorted(vars(self.links).items()) if k not in SHARED | SPOKEN]
        return (self.state.value, self.t, frozen(self.mixing), self.starts, tuple(held), self.disk.key())

    def saying(self, peer):
        """What this node sends now, and sends again until it goes on."""
        links = self.links
        if links.end_kept:
            return links.sealed(peer, links.parting(peer))
        if self.state is RunState.MEETING:
            return links.sealed(peer, links.hello(peer))
        if self.state is RunState.EXCHANGING:
            return links.sealed(peer, links._outbox[self.t])
        return links.sealed(peer, links.farewell())

    def take(self, peer, data):
        """A request comes in; the reply."""
        try:
            return self.links.answer(peer, data)
        except SottovoceError:
            return b""

    def hear(self, peer, data):
        """A reply comes in."""
        try:
            self.links.deliver(peer, data, reply=True)
        except SottovoceError:
            pass

    def advance(self):
        """Go on where the loop waits, if what it waits for is there; whether anything happened."""
        if self.state.final:
            return False
        step = {RunState.MEETING: 0, RunState.EXCHANGING: self.t}.get(self.state, self.links.last + 1)
        try:
            heard = {peer: self.links.heard(step, peer) for peer in self.links.peers}
        except SottovoceError as error:
            self.end(error)
            return True
        if any(payload is None for payload in heard.values()):
            return False
        if self.state is RunState.FINISHING:
            self.enter(RunState.DONE)
            said, both = self.links.farewell(), (False, True)
            self.disk.words = {(i, r): self.links.sealed(i, said, r) for i in self.links.peers for r in both}
        elif self.state is RunState.MEETING:
            self.enter(RunState.EXCHANGING)
            self.release()
        else:
            self.mixing |= {(self.t, peer): payload[-32:].hex() for peer, payload in heard.items()}
            self.t += 1
            self.links.mixed(min(self.t, self.links.last) - 1)
            if self.t > self.run.T:
                self.write(self.run.T)
                self.disk.closed = True
                self.links.mixed(self.links.last)
                self.enter(RunState.FINISHING)
            else:
                self.release()
        return True

    def write(self, done):
        """The state after a round, and what came by then, to the disk."""
        disk = self.disk
        disk.round, disk.mixed, disk.seen = done, dict(self.mixing), self.links.seen
        vouchers, unvouched = self.links.signed()
        for peer, step, _ in vouchers:
            kept = disk.unvouched.get(peer, {})
            disk.unvouched[peer] = {t: digest for t, digest in kept.items() if t > step}
        for peer, t, digest in unvouched:
            disk.unvouched.setdefault(peer, {})[t] = digest

    def release(self):
        """A round's message: on the disk first, and the same after every restart."""
        if self.t in self.disk.outbox:
            return
        payload = honest(self.run, self.me, self.t)
        drop = self.links.stale(self.t)
        self.write(self.t - 1)
        assert self.t not in self.disk.released, "released twice"
        self.disk.released[self.t] = payload[-32:].hex()
        self.disk.outbox = {t: kept for t, kept in self.disk.outbox.items() if t not in drop} | {self.t: payload}
        self.links.post(self.t, payload)

    def end(self, error):
        """As `DurableNode._ended`."""
        end = self.links.end or End(RunState.PAUSED)
        if end.state in FOR_GOOD:
            self.disk.ended = end.state.value, end.about
        kinds = {
            ConflictingMessages: RunState.CONTRADICTED,
            Disputed: RunState.DISPUTED,
            PeerEnded: RunState.PEER_ENDED,
        }
        self.links.end, self.links.end_kept = end, True
        self.enter(kinds.get(type(error), end.state))


@cache
def honest(run, node, t):
    return pack(Header(run.mark, t, node), np.full(run.shape, 0.125))


@cache
def lied(run, i, j, t):
    """What a liar with the keys of i seals for j in place of the message of step t."""
    made = pack(Header(run.mark, t, i), np.full(run.shape, -0.25))
    return Sealing(i).seal(j, MESSAGE, _ABOUT.pack(bytes(16), 0), made)


class World(NamedTuple):
    """Nodes, what is kept on its way, and how much may still go wrong."""

    sites: tuple[Site, ...]
    kept: tuple[Any, ...]
    lies: int
    crashes: int
    copies: int

    def changed(self, i, site, **more):
        """The world with another state of a node."""
        if site is self.sites[i] and not more:
            return self
        return self._replace(sites=(*self.sites[:i], site, *self.sites[i + 1 :]), **more)

    def said(self, i, j):
        """The world in which i has made what it sends j, and that."""
        site, data = self.sites[i].after("saying", j)
        return self.changed(i, site), data

    def arrived(self, i, j, data):
        """The world in which j has got data of i, and the reply."""
        site, reply = self.sites[j].after("take", i, data)
        return self.changed(j, site), reply

    def exchange(self, i, j, answered=True):
        """A request of i reaches j; the reply may get lost."""
        mine, theirs = self.sites[i], self.sites[j]
        found = mine.meetings.get((theirs, answered))
        if found is None:
            made, data = mine.after("saying", j)
            other, reply = theirs.after("take", i, data)
            found = (made.after("hear", j, reply)[0] if answered and reply else made), other
            mine.meetings[theirs, answered] = found
        if found == (mine, theirs):
            return self
        sites = list(self.sites)
        sites[i], sites[j] = found
        return World(tuple(sites), *self[1:])

    def lie(self, i, j, t):
        """Someone with the keys of i sends j another version of the message of step t."""
        return self.arrived(i, j, lied(self.sites[0].run, i, j, t))[0]._replace(lies=self.lies - 1)

    def actions(self):
        """Everything that can happen next: (name, arguments)."""
        n = len(self.sites)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        for i, j in pairs:
            yield "exchange", (i, j, True)
            yield "exchange", (i, j, False)
            if self.copies:
                yield "keep", (i, j)
        for place in range(len(self.kept)):
            yield "arrive", (place,)
        if self.lies:
            for t in range(1, self.sites[0].run.T + 1):
                yield from (("lie", (0, j, t)) for j in range(1, n))
        for i in range(n):
            if not self.sites[i].state.final:
                yield "advance", (i,)
            if self.crashes:
                yield "crash", (i,)

    def after(self, name, arguments):
        """The world in which an action has happened."""
        match name:
            case "keep":
                made, data = self.said(*arguments)
                return made._replace(kept=tuple(sorted((*self.kept, (*arguments, data)))), copies=self.copies - 1)
            case "arrive":
                return self.arrived(*self.kept[arguments[0]])[0]
            case "advance":
                return self.changed(arguments[0], self.sites[arguments[0]].after("advance")[0])
            case "crash":
                return self.changed(arguments[0], self.sites[arguments[0]].after("start")[0], crashes=self.crashes - 1)
            case _:
                return getattr(self, name)(*arguments)

    @property
    def disks(self):
        """What all disks hold."""
        return tuple(site.kept for site in self.sites)

    def settled(self, restart, patience=40):
        """Run on with a perfect network, after everybody was started again or as they are; the world at the end."""
        made, n = self, len(self.sites)
        for i in range(n if restart else 0):
            made = made.changed(i, made.sites[i].after("start")[0])
        for _ in range(patience):
            for i in range(n):
                going = True
                while going:
                    site, going = made.sites[i].after("advance")
                    made = made.changed(i, site)
            if all(site.state.final for site in made.sites):
                break
            for i in range(n):
                for j in range(n):
                    if i != j:
                        made = made.exchange(i, j)
        return made


def world_of(names=("north", "east"), rounds=3, lies=0, crashes=1, copies=1):
    """Nodes that have just started; all of them speak in every round."""
    run = run_of(rounds=rounds, nodes=dict.fromkeys(names, 12), network__activation="everyone")
    return World(tuple(Site(run, i) for i in range(len(names))), (), lies, crashes, copies)


def explored(world, limit=10**9):
    """Every world that can be reached, once."""
    seen, left = {world}, [world]
    while left:
        now = left.pop()
        yield now
        for action in now.actions():
            after = now.after(*action)
            if after not in seen:
                seen.add(after)
                left.append(after)
        assert len(seen) <= limit, "more states than expected"


def walked(world, seed, steps):
    """The worlds along a random walk: for what is too large to be explored."""
    draws = random.Random(seed)
    for _ in range(steps):
        yield world
        actions = list(world.actions())
        likely = [20 if name == "advance" else 4 if arguments[-1] is True else 1 for name, arguments in actions]
        world = world.after(*draws.choices(actions, likely)[0])
    yield world
