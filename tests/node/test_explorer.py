"""No order of messages, crashes and early lies leaves a run in a state that no start leads out of."""

from collections import Counter

import pytest
from net import models, records, run_of, whole_run

from explorer import SHARED, SPOKEN, explored, walked, world_of
from sottovoce.node import links
from sottovoce.node.links import Links
from sottovoce.node.state import RunState

ENDED = {RunState.CONTRADICTED, RunState.DISPUTED, RunState.PEER_ENDED}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A voucher for two messages: a run of three rounds has two of them."""
    monkeypatch.setattr(links, "STRETCH", 2)


def checked(world):
    """Explore a world: the ends of all nodes after a restart from every disk that can be, by how often."""
    ends, disks = Counter(), set()
    for now in explored(world, limit=200_000):
        assert not any(site.deceived for site in now.sites), "a lie is in a model"
        if now.disks not in disks:
            disks.add(now.disks)
            end = now.settled(restart=True)
            assert all(site.state.final for site in end.sites), [site.state for site in end.sites]
            ends[tuple(site.state for site in end.sites)] += 1
    return ends


def test_without_a_lie_every_run_ends_with_all_models():
    ends = checked(world_of(rounds=2, crashes=1))
    assert set(ends) == {(RunState.DONE, RunState.DONE)}


def test_one_node_alone_may_stop_at_any_time():
    """Without a restart of the others: a crash of one is found out by its hello, and nobody waits for ever."""
    for now in explored(world_of(rounds=1, crashes=1)):
        assert all(site.state is RunState.DONE for site in now.settled(restart=False).sites)


def test_a_crash_after_a_lie_was_found_leaves_nobody_waiting():
    """What a node found is on its disk before its peers are informed, and leave."""
    ends = checked(world_of(rounds=2, lies=1, crashes=1, copies=0))
    assert set(ends) >= {(RunState.DONE, RunState.DONE), (RunState.DONE, RunState.CONTRADICTED)}


def test_an_early_lie_ends_the_run_or_costs_nothing():
    ends = checked(world_of(rounds=3, lies=1, crashes=1, copies=1))
    assert (RunState.DONE, RunState.DONE) in ends and (RunState.PEER_ENDED, RunState.CONTRADICTED) in ends
    assert all(state is RunState.DONE or state in ENDED for states in ends for state in states)
    assert all(set(states) == {RunState.DONE} or set(states) <= ENDED for states in ends)


@pytest.mark.slow
def test_three_nodes_end_whatever_a_liar_says_and_when():
    ends = checked(world_of(names=("north", "east", "south"), rounds=2, lies=1, crashes=0, copies=0))
    assert (RunState.DONE,) * 3 in ends and len(ends) > 3
    assert all(set(states) == {RunState.DONE} or set(states) & ENDED for states in ends)


@pytest.mark.parametrize("seed", range(12))
def test_three_nodes_end_after_any_restart_along_random_walks(seed):
    """More than can be explored: walks by fixed seeds, and a restart of everybody from what the disks hold."""
    world = world_of(names=("north", "east", "south"), rounds=3, lies=seed % 2, crashes=2, copies=1)
    assert len(checked_walk(world, seed, steps=120)) >= 2


def checked_walk(world, seed, steps):
    """Walk; from every disk on the way, a restart leads to final states, and no model holds a lie."""
    disks = set()
    for now in walked(world, seed, steps):
        assert not any(site.deceived for site in now.sites), "a lie is in a model"
        if now.disks not in disks:
            disks.add(now.disks)
            end = [site.state for site in now.settled(restart=True).sites]
            assert all(state.final for state in end), end
            assert set(end) == {RunState.DONE} or set(end) & ENDED
    return disks


def test_a_node_is_not_changed_by_what_happens_to_it():
    """Else what happens in one world would happen in another; and a turn that is remembered is the turn of its name."""
    world = world_of(rounds=2, lies=1, crashes=1, copies=1)
    for _ in range(12):
        before = [site.key() for site in world.sites]
        after = [world.after(*action) for action in world.actions()]
        assert [site.key() for site in world.sites] == before
        for site in world.sites:
            for (name, *arguments), (made, answer) in list(site.turns.items()):
                again = site.clone()
                assert getattr(again, name)(*arguments) == answer and again.key() == made.key()
        world = max(after, key=lambda made: sum(site.t + (site.state is RunState.EXCHANGING) for site in made.sites))
    assert SHARED | SPOKEN < set(vars(world.sites[0].links))


def test_the_explorer_s_loop_is_the_node_s(tmp_path, monkeypatch):
    """What a node requires of its links in a whole run, one call after another, is what the explorer's does."""
    traces = {}

    def traced(name):
        plain = getattr(Links, name)

        def call(self, *arguments):
            traces.setdefault(self.me, []).append((name, *(a for a in arguments if isinstance(a, int))))
            return plain(self, *arguments)

        monkeypatch.setattr(Links, name, call)

    for name in ("post", "mixed", "signed", "stale"):
        traced(name)
    run = run_of(rounds=5, nodes={"north": 12, "east": 12}, network__activation="everyone")
    models(whole_run(run, records(run), tmp_path))
    real = dict(traces)
    traces.clear()
    world = world_of(rounds=5).settled(restart=False)
    assert all(site.state is RunState.DONE for site in world.sites)
    assert len(real) == 2 and real == traces
