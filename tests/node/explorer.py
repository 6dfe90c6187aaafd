"""Every order in which messages, crashes and an early lie can meet at two nodes or more, over the real `Links`.

What is left out: time, the numbers of the algorithm, and cryptography (a stub seals and signs; it cannot be forged). A
node's loop is that of `DurableNode`, action by action: `test_explorer.py` holds both together. The network loses,
repeats and reorders: a message may arrive or not, and copies may be kept and delivered at any later time. A liar has
one node's keys and sends another version of its messages, before the node makes its own or after.
"""

import copy
import random
from hashlib import sha256

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
    "_signs _signed limit _lock _changed _waiting last_words".split()
)
"""Attributes of `Links` that do not change, or hold no state."""
SPOKEN = frozenset({"refused", "reasons"})
"""Attributes that nothing depends on but what is said."""


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
    return str(value) if isinstance(value, Exception) else value


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
    """One node: its disk, its links, and where its loop stands."""

    def __init__(self, world, me):
        self.world, self.me, self.disk, self.starts = world, me, Disk(), 0
        self.start()

    def start(self):
        """A process begins; what another one held in memory is gone."""
        run, disk = self.world.run, self.disk
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
        made.disk, made.links, made.mixing = self.disk.clone(), copy.copy(self.links), dict(self.mixing)
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
            if self.t > self.world.run.T:
                self.write(self.world.run.T)
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
        payload = honest(self.world.run, self.me, self.t)
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


def honest(run, node, t):
    return pack(Header(run.mark, t, node), np.full(run.shape, 0.125))


class World:
    """Nodes, what is kept on its way, and how much may still go wrong."""

    def __init__(self, names=("north", "east"), rounds=3, lies=0, crashes=1, copies=1):
        sizes = {name: 12 for name in names}
        self.run = run_of(rounds=rounds, nodes=sizes, network__activation="everyone")
        self.sites = [Site(self, i) for i in range(len(names))]
        self.kept, self.lies, self.crashes, self.copies = (), lies, crashes, copies

    def clone(self):
        made = copy.copy(self)
        made.sites = [site.clone() for site in self.sites]
        for site in made.sites:
            site.world = made
        return made

    def key(self):
        return (*(site.key() for site in self.sites), self.kept, self.lies, self.crashes, self.copies)

    def exchange(self, i, j, answered=True):
        """A request of i reaches j; the reply may get lost."""
        reply = self.sites[j].take(i, self.sites[i].saying(j))
        if answered and reply:
            self.sites[i].hear(j, reply)

    def lie(self, i, j, t):
        """Someone with the keys of i sends j another version of the message of step t."""
        made = pack(Header(self.run.mark, t, i), np.full(self.run.shape, -0.25))
        self.sites[j].take(i, Sealing(i).seal(j, MESSAGE, _ABOUT.pack(bytes(16), 0), made))

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
            for t in range(1, self.run.T + 1):
                yield from (("lie", (0, j, t)) for j in range(1, n))
        for i in range(n):
            if not self.sites[i].state.final:
                yield "advance", (i,)
            if self.crashes:
                yield "crash", (i,)

    def after(self, name, arguments):
        """The world in which an action has happened."""
        made = self.clone()
        match name:
            case "exchange":
                made.exchange(*arguments)
            case "keep":
                i, j = arguments
                made.kept, made.copies = (*self.kept, (i, j, made.sites[i].saying(j))), self.copies - 1
            case "arrive":
                i, j, data = self.kept[arguments[0]]
                made.sites[j].take(i, data)
            case "lie":
                made.lies -= 1
                made.lie(*arguments)
            case "advance":
                made.sites[arguments[0]].advance()
            case "crash":
                made.crashes -= 1
                made.sites[arguments[0]].start()
        return made

    def settled(self, restart, patience=40):
        """Run on with a perfect network, after everybody was started again or as they are; the states at the end."""
        made = self.clone()
        for site in made.sites:
            if restart:
                site.start()
        n = len(made.sites)
        for _ in range(patience):
            for i in range(n):
                while made.sites[i].advance():
                    pass
            if all(site.state.final for site in made.sites):
                break
            for i in range(n):
                for j in range(n):
                    if i != j:
                        made.exchange(i, j)
        return made


def explored(world, limit=10**9):
    """Every world that can be reached, once."""
    seen, left = {world.key()}, [world]
    while left:
        now = left.pop()
        yield now
        for action in now.actions():
            after = now.after(*action)
            key = after.key()
            if key not in seen:
                seen.add(key)
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


def marks(world):
    """Which of what a node mixed was never said by its peer."""
    found = []
    for site in world.sites:
        for (t, peer), digest in site.mixing.items():
            if digest != honest(world.run, peer, t)[-32:].hex():
                found.append((site.me, t, peer))
    return found
