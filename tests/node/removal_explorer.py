"""Nodes that lose some of theirs, without time, keys or a network: all that may happen, in any order, over `Votes`.

A site has its disk (rounds completed, the epoch that it has entered, own freezes, evidence, and what it released) and
its votes. Honest sites follow `DurableNode`: release, complete a round once all members released it in this epoch,
freeze once there is evidence, enter once all members froze for the same. Any statement may arrive or not; sites die,
restart, and suspect others falsely. Liars sign what they like, and say different things to different sites.
"""

import copy
import random
from typing import NamedTuple

from sottovoce.node.removal import FREEZE, SUSPECT, Statement, Votes, quorum


class Limits(NamedTuple):
    """A world, and how much may go wrong in it."""

    n: int
    most: int
    liars: int = 0
    rounds: int = 2
    deaths: int = 1
    crashes: int = 1
    suspicions: int = 0
    lies: int = 0


class Site:
    """One honest node."""

    def __init__(self, setting, me):
        self.setting, self.me, self.dead, self.done = setting, me, False, 0
        self.entered, self.epoch = (), "first"
        self.freezes, self.released, self.state = {}, [], {}
        self.votes = Votes("run", setting.n, me, setting.most, setting.liars)
        self.release()

    @property
    def members(self):
        return self.votes.members(self.entered)

    @property
    def end(self):
        """How this site's part is over, if it is."""
        if self.me in self.votes.target:
            return "left out"
        return "too few" if len(self.votes.target) > self.setting.most else None

    @property
    def due(self):
        return self.votes.target != self.entered

    def release(self):
        if self.done < self.setting.rounds:
            address = self.epoch, self.done + 1
            assert address not in self.released, "released twice"
            self.released.append(address)
            assert len(self.released) <= self.setting.rounds + self.setting.most, "more releases than were accounted"

    def start(self):
        """What is not on the disk is gone."""
        votes, kept = Votes("run", self.setting.n, self.me, self.votes.most, self.votes.liars, self.entered), self.votes
        frozen = {d for removed in self.freezes for d in removed}
        votes.evidence = {d: some for d, some in kept.evidence.items() if d in frozen}
        for said in self.freezes.values():
            votes.take(said)
        self.votes = votes

    def suspect(self, peer):
        self.votes.take(Statement(SUSPECT, self.me, self.votes.target, self.done, str(peer)))

    def freeze(self):
        removed = self.votes.target
        said = Statement(FREEZE, self.me, removed, self.done, self.hash_of(self.done))
        assert self.freezes.setdefault(removed, said) == said, "two freezes for one set"
        self.votes.take(said)

    def hash_of(self, done):
        """The state after a round; one that a liar gave has another hash."""
        return self.state.get(done, f"{done:064d}")

    def enter(self, decision):
        assert len(decision.removed) <= self.setting.most and set(self.entered) < set(decision.removed)
        assert decision.done >= self.done, "a round is undone"
        if decision.done > self.done:
            self.state[decision.done] = decision.state
        self.done, self.entered, self.epoch = decision.done, decision.removed, decision.epoch
        self.votes.enter(decision)
        self.release()

    def key(self):
        votes = self.votes
        return (
            self.dead,
            self.done,
            self.epoch,
            tuple(sorted(self.freezes.items())),
            tuple(sorted(votes.evidence.items())),
            tuple(sorted(votes.suspicions.items())),
            tuple(sorted((removed, tuple(sorted(said.items()))) for removed, said in votes.freezes.items())),
            tuple(self.released),
        )


class World:
    """All sites; the last `liars` numbers are liars, who are nowhere but in what they say."""

    def __init__(self, setting):
        self.setting = setting
        self.honest = [Site(setting, i) for i in range(setting.n - setting.liars)]
        self.deaths, self.crashes = setting.deaths, setting.crashes
        self.suspicions, self.lies = setting.suspicions, setting.lies

    def site(self, i):
        return self.honest[i] if i < len(self.honest) else None

    def key(self):
        return (tuple(site.key() for site in self.honest), self.deaths, self.crashes, self.suspicions, self.lies)

    def live(self):
        return [site for site in self.honest if not site.dead]

    def may_complete(self, site):
        """Whether the site's round may be over: all honest members have released it in this epoch, liars too."""
        address = site.epoch, site.done + 1
        others = (self.site(j) for j in site.members if j != site.me)
        whole = all(other is None or address in other.released for other in others)
        return not site.due and site.done < self.setting.rounds and whole

    def may_enter(self, site):
        """The decision that the site can follow: it has the state, or a member that is alive gives it."""
        decision = site.votes.decision
        if decision is None or site.end:
            return None
        givers = [i for i in decision.holders if self.site(i) is None or not self.site(i).dead]
        return decision if site.done == decision.done or givers else None

    def actions(self):
        live = self.live()
        for site in live:
            i = site.me
            if site.end:
                continue
            if self.may_complete(site):
                yield "complete", i
            if site.due and site.votes.frozen is None:
                yield "freeze", i
            if self.may_enter(site):
                yield "enter", i
            for j in range(self.setting.n):
                other = self.site(j)
                if j == i or j in site.votes.target:
                    continue
                mine = site.votes.suspicions.get((i, j))
                fresh = mine is None or (mine.removed, mine.done) != (site.votes.target, site.done)
                if fresh and other is not None and other.dead:
                    yield "suspect", i, j
                elif fresh and self.suspicions:
                    yield "suspect falsely", i, j
            yield from (("send", i, other.me) for other in live if other is not site)
        for site in live:
            if self.deaths:
                yield "die", site.me
            if self.crashes:
                yield "crash", site.me
        if self.lies:
            yield from self.lying()

    def lying(self):
        """What liars may say to one site."""
        for site in self.live():
            target = site.votes.target
            for liar in range(len(self.honest), self.setting.n):
                if liar in target:
                    continue
                for done in range(max(0, site.done - 1), site.done + 3):
                    for mark in "0x":
                        yield (
                            "lie",
                            site.me,
                            Statement(FREEZE, liar, target, done, f"{done:064d}".replace("00", "0" + mark, 1)),
                        )
                for j in range(len(self.honest)):
                    yield "lie", site.me, Statement(SUSPECT, liar, target, site.done, str(j))

    def do(self, name, *arguments):
        site = self.site(arguments[0])
        match name:
            case "complete":
                site.done += 1
                site.release()
            case "freeze":
                site.freeze()
            case "enter":
                self.entered(site)
            case "suspect" | "suspect falsely":
                self.suspicions -= name == "suspect falsely"
                site.suspect(arguments[1])
            case "send":
                self.send(site, self.site(arguments[1]))
            case "die":
                site.dead, self.deaths = True, self.deaths - 1
            case "crash":
                site.start()
                self.crashes -= 1
            case "lie":
                self.lies -= 1
                site.votes.take(arguments[1])

    def entered(self, site):
        decision = site.votes.decision
        said = site.votes.freezes[decision.removed]
        honest = [said[i].done for i in site.votes.members(decision.removed) if self.site(i) is not None]
        assert max(honest) <= decision.done <= max(honest) + (self.setting.liars > 0), "an impossible round"
        site.enter(decision)

    def send(self, site, other):
        """All that a site says reaches another one, which passes it on from then on."""
        for d, some in sorted(site.votes.evidence.items(), key=lambda item: len(item[1][0].removed)):
            other.votes.accept(d, some)
        for said in site.votes.saying():
            other.votes.take(said)

    def after(self, action):
        made = copy.copy(self)
        made.honest = [self.cloned(site) for site in self.honest]
        made.do(*action)
        return made

    def cloned(self, site):
        made, votes = copy.copy(site), copy.copy(site.votes)
        made.freezes, made.released, made.state = dict(site.freezes), list(site.released), dict(site.state)
        votes.evidence, votes.suspicions = dict(votes.evidence), dict(votes.suspicions)
        votes.freezes = {removed: dict(said) for removed, said in votes.freezes.items()}
        made.votes = votes
        return made

    def settled(self, patience=60):
        """Nothing goes wrong any more: messages arrive, who is silent is suspected, and liars are silent."""
        made = copy.copy(self)
        made.honest = [self.cloned(site) for site in self.honest]
        for _ in range(patience):
            before = made.key()
            for site in made.live():
                if site.end:
                    continue
                while made.may_complete(site) and all(made.site(j) is not None for j in site.members):
                    made.do("complete", site.me)
                if site.due and site.votes.frozen is None:
                    site.freeze()
                if (decision := made.may_enter(site)) and made.given(site, decision):
                    made.entered(site)
                for j in range(self.setting.n):
                    other = made.site(j)
                    finished = site.done >= self.setting.rounds and not site.due
                    if j not in site.votes.target and (other is None or other.dead) and not finished:
                        site.suspect(j)
                    elif finished and any(
                        d == j and one.removed == site.votes.target for (_, d), one in site.votes.suspicions.items()
                    ):
                        site.suspect(j) if other is None or other.dead else None
            for site in made.live():
                for other in made.live():
                    if site is not other:
                        made.send(site, other)
            if made.key() == before:
                return made
        raise AssertionError("it never settles")

    def given(self, site, decision):
        honest = [i for i in decision.holders if self.site(i) is not None and not self.site(i).dead]
        return site.done == decision.done or bool(honest)

    def check(self):
        """Every honest site that is alive has ended, and those that went on are together."""
        end = self.settled()
        setting, live = self.setting, end.live()
        done = [site for site in live if site.end is None and site.done >= setting.rounds and not site.due]
        stuck = [site for site in live if site.end is None and site not in done]
        lost = setting.n - len(live) + sum(site.end == "left out" for site in live)
        if stuck:  # only where more are gone than the run was prepared for
            assert lost > setting.most or len(live) < quorum(setting.n, setting.liars), [vars(site) for site in stuck]
        return tuple(sorted((site.end or ("done" if site in done else "paused")) for site in live))


def explored(world, limit):
    """Every world that can be reached, once."""
    seen, left = {world.key()}, [world]
    while left:
        now = left.pop()
        yield now
        for action in list(now.actions()):
            after = now.after(action)
            if (key := after.key()) not in seen:
                seen.add(key)
                left.append(after)
        assert len(seen) <= limit, "more states than expected"


WEIGHTS = {"send": 1.0, "complete": 2.0, "freeze": 3.0, "enter": 4.0, "suspect": 2.0, "lie": 0.1}


def walked(world, seed, steps):
    """The worlds along a random walk."""
    draws = random.Random(seed)
    for _ in range(steps):
        yield world
        actions = list(world.actions())
        if not actions:
            return
        world = world.after(draws.choices(actions, [WEIGHTS.get(name, 0.3) for name, *_ in actions])[0])
    yield world
