"""Votes on lost nodes: what counts as evidence, what all agree on, and that nobody waits for ever."""

from collections import Counter

import pytest
from removal_explorer import Limits, World, explored, walked

from sottovoce.node.removal import FREEZE, SUSPECT, Statement, Votes, quorum


def suspicions(signers, node, done=3, removed=()):
    return [Statement(SUSPECT, i, removed, done, str(node)) for i in signers]


def froze(signer, removed, done, state="0"):
    return Statement(FREEZE, signer, removed, done, (state * 64)[:64])


def test_two_quorums_share_an_honest_member():
    for n in range(2, 40):
        for liars in range(n // 3):
            assert 2 * quorum(n, liars) - n > liars


def test_a_quorum_of_one_time_removes_a_node_and_no_fewer():
    votes = Votes("run", 7, 0, 2, 0)
    for said in suspicions((0, 2, 3), 6):
        votes.take(said)
    votes.take(Statement(SUSPECT, 4, (), 5, "6"))  # of another time
    votes.take(Statement(SUSPECT, 4, (1,), 3, "6"))  # in another epoch
    votes.take(Statement(SUSPECT, 6, (), 3, "6"))  # of itself
    assert votes.target == ()
    votes.take(Statement(SUSPECT, 5, (), 4, "6"))  # one round further
    assert votes.target == (6,)


def test_suspicions_of_rounds_long_past_do_not_add_up():
    """Four nodes were slow to hear of node 6 at different times: it stays."""
    votes = Votes("run", 7, 0, 2, 0)
    for done, signer in enumerate((1, 2, 3, 4)):
        votes.take(*suspicions([signer], 6, done=10 * done))
    assert votes.target == ()


@pytest.mark.parametrize(
    "wrong",
    [
        suspicions((0, 1, 2), 6),
        [*suspicions((0, 1, 2), 6), *suspicions((3,), 5)],
        [*suspicions((0, 1, 2), 6), *suspicions((3,), 6, done=5)],
        [*suspicions((0, 1, 2), 6), *suspicions((3,), 6, removed=(4,))],
        suspicions((0, 1, 2, 6), 6),
        suspicions((0, 0, 1, 2), 6),
        suspicions((0, 1, 2, 4), 6, removed=(4,)),
        suspicions((0, 1, 2, 3), 6, removed=(4, 5, 6)),
        [froze(6, (), 3), froze(6, (), 3)],
        [froze(6, (), 3), froze(5, (), 4)],
        [froze(6, (1,), 3), froze(6, (), 4)],
        [froze(6, (), 3), *suspicions((0,), 6)],
    ],
)
def test_what_is_no_evidence(wrong):
    votes = Votes("run", 7, 0, 2, 0)
    votes.accept(6, tuple(wrong))
    assert votes.target == ()


def test_two_freezes_for_one_set_are_evidence_against_their_signer():
    votes = Votes("run", 7, 0, 2, 0)
    votes.accept(6, tuple(suspicions((0, 1, 2, 3), 6)))
    votes.take(froze(5, (6,), 3))
    assert votes.target == (6,)
    votes.take(froze(5, (6,), 3, "1"))
    assert votes.target == (5, 6)


def decided(rounds, liars=0, states=None):
    """What n members agree on that completed so many rounds, once node n is lost."""
    n = len(rounds)
    votes = Votes("run", n + 1, 0, 1, liars)
    votes.accept(n, tuple(suspicions(range(n), n)))
    for i, done in enumerate(rounds):
        assert votes.decision is None
        votes.take(froze(i, (n,), done, (states or {}).get(i, "0")))
    return votes.decision


def test_the_next_epoch_begins_after_the_last_round_that_any_member_completed():
    assert decided([3, 4, 3, 3, 3]).done == 4 and decided([3, 4, 3, 3, 3]).holders == (1,)
    assert decided([3, 3, 3, 3, 3]).holders == (0, 1, 2, 3, 4)


def test_no_liar_moves_the_next_epoch_by_more_than_a_round():
    assert decided([3, 3, 4, 3, 3, 3, 9], liars=1).done == 4
    assert decided([3, 3, 3, 3, 3, 3, 5], liars=1).done == 3
    assert decided([3, 3, 4, 3, 3, 3, 0], liars=1).done == 4


def test_one_liar_and_three_removals_undo_a_round_and_none_counts_removed_nodes_as_there():
    """Ten nodes: some enter an epoch by a state that only the liar has, twice; the others never do."""
    votes, done, states = {i: Votes("run", 10, i, 3, 1) for i in range(9)}, dict.fromkeys(range(9), 4), {}
    known = {i: {} for i in range(9)}
    for place, (lost, lie, entering) in enumerate([(8, 5, range(4)), (7, 6, range(4)), (6, 0, range(6))]):
        before, removed = tuple(range(9 - place, 9)), tuple(range(lost, 9))
        said = [
            *(froze(i, removed, done[i], states.get(i, "0")) for i in range(lost)),
            froze(9, removed, lie, "abc"[place]),
        ]
        for i in range(lost):
            votes[i].accept(
                lost, tuple(Statement(SUSPECT, j, before, max(done.values()), str(lost)) for j in (*range(lost), 9))
            )
            for one in said:
                votes[i].take(one)
        decision = votes[0].decision
        assert decision.removed == removed and decision.done == (5, 6, 4)[place]
        for i in entering:
            known[i] = dict(decision.missing(known[i]))
            done[i], states[i] = decision.done, decision.state[0]
            votes[i].enter(decision)
    assert all(max(first.values()) == 5 for i, first in known.items() if i < 6)


def test_most_members_decide_which_state_is_the_one():
    assert decided([3, 3, 3, 3, 3], states={0: "x"}).holders == (1, 2, 3, 4)


def test_the_name_of_an_epoch_is_of_all_that_was_agreed():
    names = {decided([3] * 5).epoch, decided([3, 3, 3, 3, 2]).epoch, decided([3] * 5, states={4: "x"}).epoch}
    assert len(names) == 3 and decided([3] * 5).epoch in names


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["suspect", 0, [], 3, "6"],
        ["suspect", 0, [], 3, "7", "00" * 64],
        ["suspect", 0, [], 3, "06", "00" * 64],
        ["suspect", 0, [], 3, "\u0663", "00" * 64],
        ["suspect", 9, [], 3, "6", "00" * 64],
        ["suspect", 0, [2, 1], 3, "6", "00" * 64],
        ["suspect", 0, [1.0], 3, "6", "00" * 64],
        ["suspect", 0, [], -1, "6", "00" * 64],
        ["suspect", 0, [], True, "6", "00" * 64],
        ["suspect", 0, [], 2**70, "6", "00" * 64],
        ["suspect", 0, [], 3, 6, "00" * 64],
        ["suspect", 0, [], 3, "6", "00" * 63],
        ["freeze", 0, [], 3, "6", "00" * 64],
        ["freeze", 0, [], 3, "\ud800" * 64, "00" * 64],
        ["other", 0, [], 3, "6", "00" * 64],
    ],
)
def test_what_is_no_statement_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        Statement.read(value, 7)
    whole = froze(3, (1, 2), 5)._replace(signature=bytes(64))
    assert Statement.read(whole.listed(), 7) == whole


def ends_of(worlds):
    return Counter(world.check() for world in worlds)


def test_three_nodes_of_which_one_is_lost_always_end():
    ends = ends_of(explored(World(Limits(3, 1, rounds=1, deaths=1, crashes=0)), limit=10_000))
    assert set(ends) == {("done",) * 2, ("done",) * 3}


@pytest.mark.slow
def test_three_nodes_that_also_restart_always_end():
    ends = ends_of(explored(World(Limits(3, 1, rounds=2, deaths=1, crashes=1)), limit=100_000))
    assert set(ends) == {("done",) * 2, ("done",) * 3}


SETTINGS = {
    "two of five die": Limits(5, 2, rounds=3, deaths=2, crashes=2),
    "two of five die, others are suspected falsely": Limits(5, 2, rounds=3, deaths=2, crashes=2, suspicions=2),
    "a liar among five": Limits(5, 1, 1, rounds=3, deaths=1, crashes=1, suspicions=1, lies=4),
    "a liar among six": Limits(6, 2, 1, rounds=3, deaths=1, crashes=2, suspicions=1, lies=8),
    "a liar among six, and two die": Limits(6, 2, 1, rounds=3, deaths=2, crashes=2, suspicions=2, lies=6),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_nobody_waits_for_ever_and_nobody_is_apart(name, seed):
    """Along random walks by fixed seeds; only where more are gone than was agreed, the run pauses or ends."""
    setting = SETTINGS[name]
    worlds = [world for step, world in enumerate(walked(World(setting), seed, 120)) if step % 8 == 0]
    ends = ends_of(worlds)
    assert sum(ends.values()) > 4
    if setting.deaths + setting.liars <= setting.most and not setting.suspicions:
        assert {state for states in ends for state in states} <= {"done"}
