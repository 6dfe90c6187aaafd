"""What a node takes in: every message that does not fit is refused with its reason, and never handed on."""

import time

import numpy as np
import pytest
from net import run_of

from sottovoce.errors import NetworkError, OldCopy, Paused, Stranger
from sottovoce.node import transport
from sottovoce.node.links import Links, Skips
from sottovoce.node.message import Header, array_of, pack, pack_text
from sottovoce.node.store import Mark, Saved
from sottovoce.node.transport import RequestTransport, Stopwatch

RUN = run_of(rounds=30)
ME, PEER = 0, 2
FIRST, SECOND, THIRD = RUN.neighbours(ME)[PEER][:3].tolist()
EMPTY = Saved(0, None, {}, {}, {})


def message(t, value=1.0, sender=PEER, shape=(1, 3)):
    return pack(Header(RUN.mark, t, sender), np.full(shape, value))


def hello(to="north", node="south", seen=None, attached=(), **changes):
    value = {
        "node": node,
        "to": to,
        "digest": RUN.digest,
        "version": "1",
        "sigma": RUN.event(PEER).sigma,
        "seen": seen,
    }
    return pack_text(Header(RUN.mark, 0, PEER), value | changes, tuple(attached))


@pytest.fixture
def box():
    released = {FIRST: "aa" * 32}
    made = Links(RUN, ME, EMPTY, released.get)
    made.post(FIRST, message(FIRST, sender=ME))
    return made


def test_the_first_message_of_a_round_counts_and_no_other(box):
    box.deliver(PEER, message(FIRST))
    box.deliver(PEER, message(FIRST))  # a duplicate is no news
    with pytest.raises(NetworkError, match="second, different message"):
        box.deliver(PEER, message(FIRST, 2.0))
    assert box.heard(FIRST, PEER) == message(FIRST) and array_of(box.heard(FIRST, PEER))[0, 0] == 1.0
    box.mixed(FIRST)
    with pytest.raises(NetworkError, match="second, different message"):
        box.deliver(PEER, message(FIRST, 2.0))
    box.deliver(PEER, message(FIRST))
    assert box.heard(FIRST, PEER) is None and box.seen == {PEER: Mark(FIRST, message(FIRST)[-32:].hex())}


def test_messages_come_in_the_order_of_the_rounds(box):
    with pytest.raises(NetworkError, match=f"sent round {SECOND} before round {FIRST}"):
        box.deliver(PEER, message(SECOND))
    box.deliver(PEER, message(FIRST))
    box.deliver(PEER, message(SECOND))
    with pytest.raises(NetworkError, match="different"):
        box.deliver(PEER, message(SECOND, 3.0))
    assert box.heard(SECOND, PEER) == message(SECOND)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (message(FIRST)[:-5], "cut short"),
        (message(FIRST, sender=1), "came over the link"),
        (message(FIRST, shape=(1, 4)), "same features"),
        (message(FIRST, np.nan), "NaN"),
        (message(10**6), "do not speak"),
        (pack(Header(bytes(16), FIRST, PEER), np.ones((1, 3))), "same run file"),
        (pack(Header(RUN.mark, 0, PEER), np.ones((1, 3))), "uint8"),
        (pack_text(Header(RUN.mark, 0, PEER), 3), "same run"),
        (hello(node="north"), "same run"),
        (hello(digest="00"), "same run"),
        (hello(sigma=0.1), "would add noise"),
        (hello(sigma=None), "would add noise"),
        (hello(to="east"), "came here"),
        (hello(seen="all"), "what it saw"),
        (hello(attached=[b"svoc"]), "cut short"),
        (hello(attached=[message(FIRST, sender=1)]), "came over the link"),
        (hello(attached=[hello()]), "no message of a round"),
    ],
)
def test_what_does_not_fit_is_refused(box, payload, reason):
    with pytest.raises(NetworkError, match=reason):
        box.deliver(PEER, payload)
    assert reason in box.refused[-1] and box._inbox[PEER] == {} and box.seen == {}


def test_a_node_that_never_speaks_with_this_one_is_not_heard():
    ring = run_of(rounds=30, network__graph="ring")
    box = Links(ring, 0, EMPTY, lambda t: None)
    assert 2 not in box.peers
    with pytest.raises(NetworkError, match="never speaks"):
        box.deliver(2, pack(Header(ring.mark, 1, 2), np.ones((1, 3))))


def test_a_hello_brings_what_was_missed_and_checks_what_was_seen(box):
    box.deliver(PEER, hello(attached=[message(FIRST), message(SECOND)], seen=[FIRST, "aa" * 32]))
    assert box.heard(FIRST, PEER) == message(FIRST) and box.heard(SECOND, PEER) == message(SECOND)
    reply = Links(RUN, PEER, EMPTY, {SECOND: message(SECOND)[-32:].hex()}.get)
    reply.deliver(ME, box.hello(PEER))  # and its own hello brings this node's last message
    assert reply.heard(FIRST, ME) == message(FIRST, sender=ME)


@pytest.mark.parametrize("seen", [[FIRST, "bb" * 32], [SECOND, "aa" * 32]])
def test_a_message_that_this_ledger_does_not_know_stops_the_node(box, seen):
    with pytest.raises(OldCopy, match="stops for good"):
        box.deliver(PEER, hello(seen=seen))
    with pytest.raises(OldCopy):  # whoever waits for anybody learns of it
        box.heard(FIRST, 1)


def test_old_messages_are_handed_out_and_older_ones_dropped(box):
    """Two for every peer, and not many more in all, however long the run."""
    for t in RUN.rounds(ME).tolist():
        if t > FIRST:
            box.post(t, message(t, sender=ME))
    assert box.answer(PEER, hello()) == box.hello(PEER)
    last = RUN.neighbours(ME)[PEER][-2:].tolist()
    assert all(t in box._outbox for rounds in box.peers.values() for t in rounds[-2:])
    assert len(box._outbox) <= 4 * len(box.peers) + 3 < len(RUN.rounds(ME))
    reply = Links(RUN, PEER, Saved(last[0] - 1, None, {}, {}, {}), lambda t: None)
    reply.deliver(ME, box.hello(PEER))
    assert [reply.heard(t, ME) for t in last] == [message(t, sender=ME) for t in last]


def waiting(box, timeout, ask):
    network = RequestTransport(box, Skips(RUN, ME, None, {}, 0), ask)
    network.timeout = timeout
    return network


def test_waiting_does_not_depend_on_the_clock_of_the_wall(box, monkeypatch):
    """Clocks that jump by days change nothing: there is no time in a message, and waiting is monotonic."""
    monkeypatch.setattr(time, "time", lambda: np.random.default_rng().uniform(-1e9, 1e9))
    monkeypatch.setattr(transport, "AGAIN", 0.01)
    asked = []

    def ask(peer, payload):
        asked.append(payload)
        return message(FIRST) if len(asked) == 3 else None

    mine = message(FIRST, sender=ME)
    assert waiting(box, 5.0, ask).exchange(FIRST, mine, [PEER]) == {PEER: message(FIRST)}
    assert asked == [mine] * 3  # the same bytes, however often


def test_a_peer_that_never_answers_pauses_the_run_with_the_reason(box, monkeypatch):
    monkeypatch.setattr(transport, "AGAIN", 0.01)
    began = time.monotonic()
    with pytest.raises(Paused, match=r"waited 0\.05 s for node 'south' .* round .*checksum"):
        waiting(box, 0.05, lambda peer, payload: message(FIRST)[:-1] + b"x").exchange(FIRST, message(FIRST), [PEER])
    assert time.monotonic() - began < 2.0


def test_time_in_which_a_process_was_stopped_does_not_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Stopwatch()
    now[0] += 0.5
    assert watch.read() == 0.5
    now[0] += 3600.0  # stopped for an hour
    assert watch.read() <= 0.5 + Stopwatch.LONGEST


@pytest.mark.parametrize("sigma", [None, True, "0.5", 10**400, -(10**400), 0.0, 1e308])
def test_noise_that_is_no_number_of_the_plan_is_a_stranger_s(box, sigma):
    with pytest.raises(Stranger, match="would add noise of σ"):
        box.deliver(PEER, hello(sigma=sigma))


@pytest.mark.parametrize("seen", [[2**70, "aa" * 32], [-1, ""], [0, ""], [True, ""], [1.0, ""], ["1", ""], [1], {}, 7])
def test_what_a_peer_says_to_have_seen_is_a_round_of_the_run_or_refused(box, seen):
    with pytest.raises(NetworkError, match="does not say what it saw"):
        box.deliver(PEER, hello(seen=seen))
    box.heard(FIRST, PEER)  # and this node goes on
