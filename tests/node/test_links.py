"""What a node takes in: every message that does not fit is refused with its reason, and never handed on."""

import threading
import time

import numpy as np
import pytest
from net import envelopes, linked, run_of, secret_of

from sottovoce.errors import ConflictingMessages, Disputed, PeerEnded, PeerTimeout, StaleCopy, StoreError, UnknownPeer
from sottovoce.node import transport
from sottovoce.node.dropped_edges import Skips
from sottovoce.node.envelope import Envelope, RunKeys
from sottovoce.node.identity import OwnKey
from sottovoce.node.links import _ABOUT, KEPT, MESSAGE, REFUSES, STRETCH, own_proof
from sottovoce.node.message import CHECK, Code, Header, Refused, array_of, pack, pack_text, read, unpack_text
from sottovoce.node.store import Mark, Saved, Store
from sottovoce.node.transport import RequestTransport, Stopwatch

RUN = run_of(rounds=30)
ME, PEER = 0, 2
FIRST, SECOND, THIRD = RUN.neighbors(ME)[PEER][0][:3]
EMPTY = Saved(0, None, {}, {}, {})
ENVELOPES = envelopes(RUN)
AA = "aa" * 32


def proof(t, digest, of=ME):
    return own_proof(secret_of(of), RUN.digest, t, digest)


def message(t, value=1.0, sender=PEER, shape=(1, 3)):
    return pack(Header(RUN.mark, t, sender), np.full(shape, value))


def letter(payload, voucher=b"", proven=bytes(16)):
    return _ABOUT.pack(proven, len(voucher)) + voucher + payload


def sealed(payload, sender=PEER, receiver=ME, reply=False, **more):
    return ENVELOPES[sender].seal(receiver, MESSAGE, letter(b"", **more), payload, reply)


def hello(to="north", seen=None, attached=(), **changes):
    value = {"to": to, "version": "1", "sigma": RUN.event(PEER).sigma, "seen": seen, "asks": "ab"}
    return pack_text(Header(RUN.mark, 0, PEER), value | changes, tuple(attached))


@pytest.fixture
def box():
    released = {FIRST: AA}
    made = linked(RUN, ME, ENVELOPES[ME], EMPTY, released.get)
    made.post(FIRST, message(FIRST, sender=ME))
    return made


def refused(box, data, code, peer=PEER, reply=False):
    with pytest.raises(Refused) as caught:
        box.deliver(peer, data, reply)
    assert caught.value.code is code, caught.value
    assert box.refused[-1] == str(caught.value)


def test_the_first_message_of_a_round_counts_and_no_other(box):
    box.deliver(PEER, sealed(message(FIRST)))
    box.deliver(PEER, sealed(message(FIRST)))  # sent again, it is no news
    refused(box, sealed(message(FIRST, 2.0)), Code.SECOND)
    assert box.heard(FIRST, PEER) == message(FIRST) and array_of(box.heard(FIRST, PEER))[0, 0] == 1.0
    box.mixed(FIRST)
    refused(box, sealed(message(FIRST, 2.0)), Code.SECOND)
    box.deliver(PEER, sealed(message(FIRST)))
    assert box.heard(FIRST, PEER) is None
    assert box.seen == {PEER: Mark(FIRST, message(FIRST)[-32:].hex(), bytes(16).hex())}


def test_only_what_is_due_is_taken_in(box):
    """A message of a round needs this node's of the round before: of each peer there are never more than two."""
    refused(box, sealed(message(SECOND)), Code.ROUND)
    box.deliver(PEER, sealed(message(FIRST)))
    box.deliver(PEER, sealed(message(SECOND)))
    refused(box, sealed(message(SECOND, 3.0)), Code.SECOND)
    refused(box, sealed(message(THIRD)), Code.ROUND)  # this node has not said its second one
    assert box.heard(SECOND, PEER) == message(SECOND) and len(box._inbox[PEER]) == 2
    box.post(SECOND, message(SECOND, sender=ME))
    box.deliver(PEER, sealed(message(THIRD)))


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (message(FIRST)[:-5], Code.SIZE),
        (message(FIRST)[:-5] + b"12345", Code.CHECKSUM),
        (message(FIRST, sender=1), Code.SENDER),
        (message(FIRST, shape=(1, 4)), Code.SIZE),
        (message(FIRST, shape=(3, 1)), Code.SHAPE),
        (message(FIRST, np.nan), Code.NUMBERS),
        (message(FIRST, 1.7e308), Code.NORM),
        (message(FIRST, 1e6), Code.NORM),
        (message(10**6), Code.ROUND),
        (message(2**63), Code.ROUND),
        (pack(Header(bytes(16), FIRST, PEER), np.ones((1, 3))), Code.RUN),
        (pack(Header(RUN.mark, 0, PEER), np.ones((1, 3))), Code.SHAPE),
        (pack_text(Header(RUN.mark, 0, PEER), 3), Code.NOTICE),
        (pack_text(Header(RUN.mark, 31, PEER), "almost"), Code.NOTICE),
        (hello(to="east"), Code.NOTICE),
        (hello(seen="all"), Code.CLAIM),
        (hello(asks=None), Code.NOTICE),
        (hello(asks="a" * 99), Code.NOTICE),
        (hello(attached=[b"svoc"]), Code.FORMAT),
        (hello(attached=[letter(message(FIRST, sender=1))]), Code.SENDER),
        (hello(attached=[letter(hello())]), Code.NOTICE),
        (hello(attached=[letter(message(FIRST))] * 3), Code.NOTICE),
        (b"", Code.FORMAT),
        (b"svoc", Code.FORMAT),
    ],
)
def test_what_does_not_fit_is_refused_with_a_code(box, payload, code):
    refused(box, sealed(payload), code)
    assert box._inbox[PEER] == {} and box.seen == {}


@pytest.mark.parametrize("sigma", [0.1, None, True, "0.5", 10**400, -(10**400), 0.0, 1e308])
def test_noise_that_is_no_number_of_the_plan_is_a_stranger_s(box, sigma):
    with pytest.raises(UnknownPeer, match="would add noise of σ"):
        box.deliver(PEER, sealed(hello(sigma=sigma)))


def test_size_is_checked_before_anything_else(box, monkeypatch):
    monkeypatch.setattr(Envelope, "open", lambda *_: pytest.fail("it was opened"))
    refused(box, bytes(box.limit + 1), Code.SIZE)
    assert box.limit < 40_000


# -- envelopes: who, to whom, in which run, what for, and once --


def test_what_was_not_sealed_by_the_sender_for_this_node_is_not_read(box):
    good = message(FIRST)
    refused(box, good, Code.FORMAT)  # in clear
    refused(box, sealed(good, sender=1), Code.SEAL)  # of someone else
    refused(box, sealed(good, receiver=1), Code.SEAL)  # for someone else
    refused(box, box.sealed(PEER, message(FIRST, sender=ME)), Code.SEAL)  # its own, reflected
    refused(box, sealed(good, reply=True), Code.SEAL)  # a reply, where a request is expected
    refused(box, ENVELOPES[PEER].seal(ME, "model", letter(b""), good), Code.SEAL)  # about something else
    refused(box, envelopes(RUN)[PEER].seal(ME, MESSAGE, letter(b""), good), Code.SEAL)  # with other keys
    other = run_of(rounds=29)
    refused(box, envelopes(other)[PEER].seal(ME, MESSAGE, letter(b""), good), Code.SEAL)  # of another run
    assert box._inbox[PEER] == {}
    box.deliver(PEER, sealed(good))
    box.deliver(PEER, sealed(good, reply=True), reply=True)


def test_an_envelope_opens_once_and_not_at_all_where_a_bit_of_it_is_another(box):
    data = sealed(message(FIRST))
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        refused(box, flipped, Code.FORMAT if place < 4 else Code.SEAL)
    box.deliver(PEER, data)
    refused(box, data, Code.REPLAY)


def test_the_carrier_sees_nothing_but_sizes(box):
    """Neither the run, nor the round, nor a number; and the same message is never the same bytes."""
    payload = message(FIRST, 0.25, sender=ME)
    data = [box.sealed(PEER, payload) for _ in range(200)]
    assert len(set(data)) == 200 and len({d[4:16] for d in data}) == 200
    for details in (
        RUN.mark,
        np.float64(0.25).tobytes(),
        payload[-CHECK:],
        b"svoc",
        FIRST.to_bytes(8, "little") + RUN.mark,
    ):
        assert not any(details in d for d in data)
    assert {len(d) for d in data} == {len(payload) + _ABOUT.size + 32}


def test_a_nonce_that_the_system_repeats_is_still_another_for_another_message(monkeypatch):
    """As in a copy of a virtual machine: equal nonces mean equal envelopes."""
    monkeypatch.setattr("os.urandom", bytes)
    first, again, other = (sealed(message(FIRST, value)) for value in (1.0, 1.0, 2.0))
    assert first == again and first[4:16] != other[4:16]


def test_who_is_not_introduced_is_not_heard_and_learns_how(box):
    stranger = linked(RUN, ME, Envelope(RUN.digest, RUN.nodes, ME, RunKeys.born(), OwnKey(secret_of(ME))), EMPTY)
    refused(stranger, sealed(message(FIRST)), Code.UNKNOWN)
    assert stranger.answer(PEER, sealed(message(FIRST))) == stranger.envelope.introduction
    assert stranger.answer(PEER, ENVELOPES[PEER].introduction) == stranger.envelope.introduction
    assert stranger.envelope.knows(PEER)


def test_a_node_that_never_speaks_with_this_one_is_not_heard():
    ring = run_of(rounds=30, network__graph="ring")
    known = envelopes(ring)
    box = linked(ring, 0, known[0], EMPTY)
    assert 2 not in box.peers
    refused(box, known[2].seal(0, MESSAGE, letter(b""), pack(Header(ring.mark, 1, 2), np.ones((1, 3)))), Code.SENDER, 2)


def test_a_hello_brings_what_was_missed_and_checks_what_was_seen(box):
    missed = [letter(message(FIRST)), letter(message(SECOND))]
    box.deliver(PEER, sealed(hello(attached=missed, seen=[FIRST, AA, ""])))
    assert box.heard(FIRST, PEER) == message(FIRST) and box.heard(SECOND, PEER) == message(SECOND)
    reply = linked(RUN, PEER, ENVELOPES[PEER], EMPTY, {SECOND: message(SECOND)[-32:].hex()}.get)
    reply.deliver(ME, box.sealed(PEER, box.hello(PEER)))  # and its own hello brings this node's last message
    assert reply.heard(FIRST, ME) == message(FIRST, sender=ME)
    digest = message(FIRST, sender=ME)[-CHECK:].hex()
    assert reply.seen == {ME: Mark(FIRST, digest, proof(FIRST, digest).hex())}


def test_a_hello_counts_where_it_answers_this_very_process():
    box, said = linked(RUN, ME, ENVELOPES[ME], EMPTY), sealed(hello())
    for answers in (None, "", "ab", 7, linked(RUN, ME, ENVELOPES[ME], EMPTY).question):
        box.deliver(PEER, sealed(hello(answers=answers)))
        assert box.heard(0, PEER) is None and box.repeats_hello(PEER) and not box.repeats_hello(PEER)
    peer = linked(RUN, PEER, ENVELOPES[PEER], EMPTY)
    box.deliver(PEER, peer.answer(ME, box.sealed(PEER, box.hello(PEER))), reply=True)
    assert box.heard(0, PEER) is not None and peer.heard(0, ME) is None and peer.repeats_hello(ME)
    assert box.owes_hello(PEER) and not peer.owes_hello(ME)
    peer.deliver(ME, box.answer(PEER, peer.sealed(ME, peer.hello(ME))), reply=True)
    assert peer.heard(0, ME) is not None and not peer.repeats_hello(ME)
    assert not box.owes_hello(PEER) and not peer.owes_hello(ME)
    box.deliver(PEER, said)  # late, it takes nothing back
    assert box.heard(0, PEER) is not None


# -- stops --


@pytest.mark.parametrize("seen", [(FIRST, "bb" * 32), (SECOND, AA)])
def test_a_message_that_this_ledger_does_not_know_stops_the_node_if_it_is_proven(box, seen):
    for wrong in ("", "00" * 16, proof(*seen, of=PEER).hex(), proof(THIRD, seen[1]).hex()):
        box.deliver(PEER, sealed(hello(seen=[*seen, wrong])))  # the hello counts, and the claim does not
        assert "cannot prove it" in box.refused[-1]
        box.heard(FIRST, 1)  # and this node goes on
    with pytest.raises(StaleCopy, match="stops for good"):
        box.deliver(PEER, sealed(hello(seen=[*seen, proof(*seen).hex()])))
    with pytest.raises(StaleCopy):  # anyone who waits for anybody learns of it
        box.heard(FIRST, 1)


@pytest.mark.parametrize(
    "seen",
    [
        [2**70, AA, ""],
        [-1, "", ""],
        [0, "", ""],
        [True, "", ""],
        [1.0, "", ""],
        ["1", "", ""],
        [1, AA],
        [1, 2, 3],
        [FIRST, "\ud800", ""],
        {},
        7,
    ],
)
def test_what_a_peer_says_to_have_seen_is_a_round_of_the_run_or_refused(box, seen):
    refused(box, sealed(hello(seen=seen)), Code.CLAIM)
    box.heard(FIRST, PEER)  # and this node goes on


def test_other_keys_in_a_node_s_name_are_refused_and_it_learns_what_was_seen_of_it(box):
    box.deliver(PEER, sealed(message(FIRST), proven=proof(FIRST, message(FIRST)[-CHECK:].hex(), PEER)))
    other = Envelope(RUN.digest, RUN.nodes, PEER, RunKeys.born(), OwnKey(secret_of(PEER)))
    refused(box, other.introduction, Code.KEYS)
    answer = box.answer(PEER, other.introduction)
    assert answer.startswith(REFUSES)
    lost = linked(RUN, PEER, other, EMPTY)
    with pytest.raises(StaleCopy):  # it has the secret that made the proof, and not the ledger
        lost.deliver(ME, answer, reply=True)
    elsewhere = linked(RUN, PEER, other, EMPTY)
    elsewhere._secret = bytes(32)
    for said in (answer, REFUSES + b"null"):  # anybody can say so: it pauses, and can be started again
        elsewhere.deliver(ME, said, reply=True)
        with pytest.raises(UnknownPeer, match="other keys of this node"):
            elsewhere.heard(FIRST, ME)


def test_nobody_can_say_later_that_a_node_is_not_known(box):
    box.deliver(PEER, sealed(hello(answers=box.question)))
    refused(box, REFUSES + b"null", Code.NOTICE)
    box.heard(FIRST, PEER)


@pytest.mark.parametrize("junk", [b"", b"{", b"[" * 10_000, b'[1, "", ""', b"9" * 10_000])
def test_a_refusal_that_cannot_be_read_is_refused(box, junk):
    with pytest.raises(Refused):
        box.deliver(PEER, REFUSES + junk)
    box.heard(FIRST, PEER)


# -- early lies, and ends --


def restarted(box, mixed):
    """The node's links as its folder has them when it is stopped before it has mixed more."""
    unvouched = {}
    for peer, t, digest in box.unvouched():
        unvouched.setdefault(peer, {})[t] = digest
    saved = Saved(mixed, None, {FIRST: message(FIRST, sender=ME)}, box.seen, {}, unvouched=unvouched)
    return linked(RUN, ME, ENVELOPES[ME], saved, {FIRST: AA}.get)


def test_a_lie_that_was_not_mixed_decides_nothing_after_a_restart(box):
    box.deliver(PEER, sealed(message(FIRST, 2.0)))
    refused(box, sealed(message(FIRST)), Code.SECOND)
    again = restarted(box, FIRST - 1)
    again.deliver(PEER, sealed(message(FIRST)))
    assert again.heard(FIRST, PEER) == message(FIRST) and again.seen[PEER].message == message(FIRST)[-32:].hex()
    refused(again, sealed(message(FIRST, 2.0)), Code.SECOND)
    mixed = restarted(box, FIRST)
    refused(mixed, sealed(message(FIRST)), Code.SECOND)


def test_a_hello_with_a_second_version_is_answered(box):
    box.deliver(PEER, sealed(message(FIRST, 2.0)))
    reply = box.answer(PEER, sealed(hello(attached=[letter(message(FIRST))], answers=box.question)))
    assert reply and box.heard(0, PEER) is not None and "second, different" in box.refused[-1]


@pytest.mark.parametrize("mixed", [-1, True, "1", None, 2**70, min({*range(1, 31)} - {*RUN.neighbors(PEER)[ME][0]})])
def test_what_a_peer_says_to_have_mixed_is_a_step_of_the_link(box, mixed):
    refused(box, sealed(hello(mixed=mixed)), Code.CLAIM)


def test_who_mixed_what_this_node_never_made_ends_this_start(box):
    box.deliver(PEER, sealed(hello(mixed=FIRST)))
    with pytest.raises(Disputed, match=r"'south' holds messages in this node's name that it never made"):
        box.deliver(PEER, sealed(hello(mixed=SECOND)))
    with pytest.raises(Disputed):
        box.heard(FIRST, 1)


def test_a_hello_says_what_is_mixed(box):
    def said():
        value, _ = unpack_text(read(box.hello(PEER)))
        return value["mixed"]

    assert said() == 0
    box.deliver(PEER, sealed(message(FIRST)))
    assert said() == 0
    box.mixed(FIRST)
    assert said() == FIRST
    saved = Saved(SECOND, None, {}, {}, {(SECOND, PEER): "skip"})
    box = linked(RUN, ME, ENVELOPES[ME], saved)
    assert said() == FIRST  # what was left out was not mixed


def ended(end, about=None, answers=None):
    return sealed(pack_text(Header(RUN.mark, RUN.T + 1, PEER), {"end": end, "about": about, "answers": answers}))


def test_the_end_of_a_peer_ends_the_wait_for_it(box):
    for wrong in (ended("tired"), ended("paused", "nobody"), ended("paused"), ended("disputed", answers="ab")):
        refused(box, wrong, Code.NOTICE)  # the last two: anybody may have kept them from another start
    box.heard(FIRST, 1)
    box.deliver(PEER, ended("paused", "west", box.question))
    with pytest.raises(PeerTimeout, match="'south' stopped: it is paused and waits for node 'west'"):
        box.heard(FIRST, 1)


def test_that_a_peer_contradicts_is_final_and_is_passed_on(box):
    box.deliver(PEER, ended("contradicted", "west"))
    with pytest.raises(PeerEnded, match="node 'west' signed other messages than it sent"):
        box.heard(FIRST, 1)
    value, _ = unpack_text(read(box.parting(1)))
    assert value["end"] == "peer ended" and value["about"] == "south" and box.parted(PEER)


def test_a_node_that_has_mixed_all_continues_without_one_that_stopped(box):
    box.mixed(box.last)
    box.deliver(PEER, ended("paused", None, box.question))
    assert box.heard(FIRST, 1) is None and not box.parted(PEER)  # it may be back, and need this node
    box.deliver(PEER, ended("contradicted", "west"))
    assert box.parted(PEER)


# -- vouchers --


LONG = run_of(rounds=2 * STRETCH + 22, nodes={"north": 12, "east": 9}, network__activation="everyone")


def test_every_message_is_signed_for_in_stretches():
    """128 on a link under one signature, the last ones too; a restarted sender signs the same from its ledger."""
    one, other = envelopes(LONG)
    digests = {}
    mine, theirs = linked(LONG, 0, one, EMPTY, digests.get), linked(LONG, 1, other, EMPTY)
    for t in range(1, LONG.T + 1):
        payload = pack(Header(LONG.mark, t, 0), np.full((1, 3), float(t)))
        digests[t] = payload[-CHECK:].hex()
        mine.post(t, payload)
        theirs.post(t, pack(Header(LONG.mark, t, 1), np.zeros((1, 3))))
        if t == STRETCH - 2:
            mine = linked(LONG, 0, one, EMPTY, digests.get)
            mine.post(t, payload)
        theirs.deliver(0, mine.sealed(1, payload))
        theirs.mixed(t)
    assert [(peer, t) for peer, t, _ in theirs.vouchers()] == [(0, STRETCH), (0, 2 * STRETCH), (0, LONG.T)]
    assert theirs.vouchers() == []


def test_what_is_not_signed_for_is_refused():
    one, other = envelopes(LONG)
    theirs = linked(LONG, 1, other, EMPTY)
    stretch = list(range(1, STRETCH + 1))
    payloads = {t: pack(Header(LONG.mark, t, 0), np.full((1, 3), float(t))) for t in stretch}
    for t in stretch[:-1]:
        theirs.post(t, pack(Header(LONG.mark, t, 1), np.zeros((1, 3))))
        theirs.deliver(0, one.seal(1, MESSAGE, letter(b""), payloads[t]))
        theirs.mixed(t)
    hashes = b"".join(payloads[t][-CHECK:] for t in stretch)
    right = one.sign(*theirs._vouched("east", stretch, hashes)) + hashes
    for voucher in (b"", right[:-1], bytes(64) + hashes, bytes(64) + hashes[CHECK:] + hashes[:CHECK]):
        refused(theirs, one.seal(1, MESSAGE, letter(b"", voucher), payloads[STRETCH]), Code.VOUCHER, 0)
        assert theirs.heard(STRETCH, 0) is None
    theirs.deliver(0, one.seal(1, MESSAGE, letter(b"", right), payloads[STRETCH]))
    assert theirs.heard(STRETCH, 0) == payloads[STRETCH]


def test_what_came_before_a_restart_is_signed_for_too(tmp_path):
    """Half of a stretch, a restart out of the folder, the other half: a voucher for anything else is refused."""
    one, other = envelopes(LONG)
    store, run, stretch = Store(tmp_path), LONG.digest, list(range(1, STRETCH + 1))
    store.enter(run, "long", "east", LONG.nodes, ["fingerprint"])
    payloads = {t: pack(Header(LONG.mark, t, 0), np.full((1, 3), float(t))) for t in stretch}
    theirs = linked(LONG, 1, other, EMPTY)
    for t in stretch[:-1]:
        if t == STRETCH // 2:
            saved = store.load(run)._replace(round=t - 1)
            assert len(saved.unvouched[0]) == t - 1
            theirs = linked(LONG, 1, other, saved)
            changed = pack(Header(LONG.mark, t - 1, 0), np.zeros((1, 3)))
            refused(theirs, one.seal(1, MESSAGE, letter(b""), changed), Code.SECOND, 0)
        theirs.post(t, pack(Header(LONG.mark, t, 1), np.zeros((1, 3))))
        theirs.deliver(0, one.seal(1, MESSAGE, letter(b""), payloads[t]))
        theirs.mixed(t)
        with store.transaction():
            store.keep_vouchers(run, *theirs.signed())
    theirs.post(STRETCH, pack(Header(LONG.mark, STRETCH, 1), np.zeros((1, 3))))
    hashes = b"".join(payloads[t][-CHECK:] for t in stretch)
    lie = bytes(CHECK) + hashes[CHECK:]  # of the very first
    voucher = one.sign(*theirs._vouched("east", stretch, lie)) + lie
    again = linked(LONG, 1, other, store.load(run)._replace(round=STRETCH - 1))
    again.post(STRETCH, pack(Header(LONG.mark, STRETCH, 1), np.zeros((1, 3))))
    with pytest.raises(ConflictingMessages, match=r"'north' signed other messages than it sent \(of round 1\)"):
        again.deliver(0, one.seal(1, MESSAGE, letter(b"", voucher), payloads[STRETCH]))
    voucher = one.sign(*theirs._vouched("east", stretch, hashes)) + hashes
    theirs.deliver(0, one.seal(1, MESSAGE, letter(b"", voucher), payloads[STRETCH]))
    with store.transaction():
        store.keep_vouchers(run, *theirs.signed())
    assert store.load(run).unvouched == {} and [t for _, t, _ in store.vouchers(run)] == [STRETCH]
    store.close()


def test_the_first_voucher_of_a_stretch_counts_and_no_later_one(tmp_path):
    """It comes before this node has mixed: after a restart a second one, for what was never sent, is not kept."""
    one, other = envelopes(LONG)
    store, run, stretch = Store(tmp_path), LONG.digest, list(range(1, STRETCH + 1))
    store.enter(run, "long", "east", LONG.nodes, ["fingerprint"])
    last = pack(Header(LONG.mark, STRETCH, 0), np.ones((1, 3)))
    theirs = linked(LONG, 1, other, EMPTY._replace(round=STRETCH - 1))
    vouchers = []
    for first in (3, 7):
        hashes = bytes([first]) * (CHECK * (STRETCH - 1)) + last[-CHECK:]
        vouchers.append(one.sign(*theirs._vouched("east", stretch, hashes)) + hashes)
        theirs.post(STRETCH, pack(Header(LONG.mark, STRETCH, 1), np.zeros((1, 3))))
        theirs.deliver(0, one.seal(1, MESSAGE, letter(b"", vouchers[-1]), last))
        with store.transaction():
            store.keep_vouchers(run, *theirs.signed())
        theirs = linked(LONG, 1, other, store.load(run)._replace(round=STRETCH - 1))
    assert [kept for *_, kept in store.vouchers(run)] == vouchers[:1]
    store.close()


def test_vouchers_and_what_waits_for_one_are_reported_at_one_moment(monkeypatch):
    """A message that comes meanwhile waits: else a voucher could be missed, and the hashes that it is for let go."""
    theirs = linked(LONG, 1, envelopes(LONG)[1], EMPTY)
    free = []

    def read():
        if theirs._lock.acquire(timeout=0.2):
            free.append(True)
            theirs._lock.release()

    def meanwhile():
        other = threading.Thread(target=read)
        other.start()
        other.join()
        return []

    monkeypatch.setattr(theirs, "vouchers", meanwhile)
    assert theirs.signed() == ([], []) and not free
    meanwhile()
    assert free


@pytest.mark.parametrize("damaged", ["zz", "aa"])
def test_damaged_hashes_are_reported_in_a_line(damaged, tmp_path):
    store = Store(tmp_path)
    store.enter(LONG.digest, "long", "east", LONG.nodes, ["fingerprint"])
    with store.transaction():
        store.keep_vouchers(LONG.digest, [], [(0, 3, damaged)])
    with pytest.raises(StoreError, match="is damaged"):
        store.load(LONG.digest)
    store.close()


def test_old_messages_are_handed_out_and_older_ones_dropped(box):
    """Two for every peer, and not many more in all, however long the run."""
    for t in RUN.rounds(ME).tolist():
        if t > FIRST:
            box.post(t, message(t, sender=ME))
    last = RUN.neighbors(ME)[PEER][0][-2:]
    assert all(t in box._outbox for rounds in box.peers.values() for t in rounds[-2:])
    assert len(box._outbox) <= 4 * len(box.peers) + 3 < len(RUN.rounds(ME))
    reply = linked(RUN, PEER, ENVELOPES[PEER], Saved(last[0] - 1, None, {last[0]: message(last[0])}, {}, {}))
    reply.deliver(ME, box.answer(PEER, sealed(hello())), reply=True)
    assert [reply.heard(t, ME) for t in last] == [message(t, sender=ME) for t in last]
    assert KEPT == 2


def waiting(box, timeout, ask):
    network = RequestTransport(box, Skips(RUN, ME, None, {}, 0, box.envelope), ask)
    network.timeout = timeout
    return network


def test_waiting_does_not_depend_on_the_clock_of_the_wall(box, monkeypatch):
    """Clocks that jump by days change nothing: there is no time in a message, and waiting is monotonic."""
    monkeypatch.setattr(time, "time", lambda: np.random.default_rng().uniform(-1e9, 1e9))
    monkeypatch.setattr(transport, "RESEND_MAX", 0.01)
    requested, peer = [], linked(RUN, PEER, ENVELOPES[PEER], EMPTY)

    def ask(to, data):
        requested.append(data)
        peer.deliver(ME, data)
        return sealed(message(FIRST), reply=True) if len(requested) == 3 else None

    mine = message(FIRST, sender=ME)
    assert waiting(box, 5.0, ask).exchange(FIRST, mine, [PEER]) == {PEER: message(FIRST)}
    assert len(set(requested)) == 3 and peer.heard(FIRST, ME) == mine  # the same message, however often


def test_a_peer_that_never_answers_pauses_the_run_with_the_reason(box, monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.01)
    with pytest.raises(PeerTimeout, match=r"waited 0\.05 s for node 'south' .* round .*does not open"):
        forged = sealed(message(FIRST), reply=True)[:-1] + b"x"
        waiting(box, 0.05, lambda peer, payload: forged).exchange(FIRST, message(FIRST, sender=ME), [PEER])


def test_messages_are_sent_again_after_four_round_trips(box, monkeypatch):
    """By a fake clock: the first round trip is 30 ms; each loss costs twice as long as the one before."""
    now, sent = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def ask(peer, data):
        sent.append(round(now[0], 3))
        now[0] += 0.03
        if len(sent) in (1, 6):
            return sealed(message(FIRST if len(sent) == 1 else SECOND), reply=True)
        return None

    network = waiting(box, 5.0, ask)
    monkeypatch.setattr(network, "wait", lambda seconds: now.__setitem__(0, now[0] + max(seconds, 1e-3)))
    network.exchange(FIRST, message(FIRST, sender=ME), [PEER])
    box.mixed(FIRST)
    box.post(SECOND, message(SECOND, sender=ME))
    network.exchange(SECOND, message(SECOND, sender=ME), [PEER])
    gaps = np.diff(sent[1:])
    assert np.allclose(gaps, [0.15, 0.27, 0.51, 0.53], atol=0.04)  # 4 x 0.03 x (1, 2, 4, …), at most 0.5


def test_a_reply_that_waited_for_its_sender_does_not_count_as_a_long_way():
    again = transport.Resend()
    for seconds in (3.0, 0.04, 5.0, 0.05):
        again.measured(0, seconds)
    assert again.delay(0, 0) == pytest.approx(0.16) and again.delay(0, 3) == transport.RESEND_MAX
    for _ in range(transport.SAMPLES):
        again.measured(0, 1e-4)
    assert again.delay(0, 0) == transport.RESEND_MIN and again.delay(1, 0) == transport.RESEND_MAX


def test_time_in_which_a_process_was_stopped_does_not_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Stopwatch()
    now[0] += 0.5
    assert watch.read() == 0.5
    now[0] += 3600.0  # stopped for an hour
    assert watch.read() <= 0.5 + Stopwatch.LONGEST
