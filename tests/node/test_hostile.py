"""A network and peers that nobody can trust: whose keys are whose, how long a message can be, who writes to folders."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from net import Net, envelopes, keys, models, open_node, records, run_of, secret_of, simulated, whole_run

from sottovoce.errors import NetworkError, PeerTimeout, SpecError, StoreError
from sottovoce.node import store as stores
from sottovoce.node.bounds import longest_messages
from sottovoce.node.envelope import LONGEST, Envelope, PublicKeys, RunKeys, introduction
from sottovoce.node.identity import Certified, OwnKey
from sottovoce.node.keys import identity_seed, own_secret
from sottovoce.node.message import Code, Header, Refused, pack
from sottovoce.node.node import DurableNode, Outcome
from sottovoce.node.store import FILE, Store, file_system
from sottovoce.node.transport import MpiTransport

RUN = run_of(rounds=12)
TABLES = records(RUN)
NAMES = ("north", "south", "east")


def envelope(me, run_keys=None, identity=None, run="ab" * 32):
    return Envelope(run, NAMES, me, run_keys or RunKeys.born(), identity or OwnKey(secret_of(me)))


def refused(code, call, *arguments):
    with pytest.raises(Refused) as caught:
        call(*arguments)
    assert caught.value.code is code, caught.value


# -- introductions --


def test_a_node_is_believed_once(tmp_path):
    one, other = envelope(0), envelope(1)
    one.meet(1, other.introduction)
    one.meet(1, other.introduction)
    refused(Code.KEYS, one.meet, 1, envelope(1).introduction)
    refused(Code.SENDER, one.meet, 2, other.introduction)  # one node's, in another's name
    for peer in (0, 3, -1):
        refused(Code.SENDER, one.meet, peer, other.introduction)
    other.meet(0, one.introduction)
    assert one.fingerprints() == other.fingerprints() and len(set(one.fingerprints().values())) == 2


@pytest.mark.parametrize("part", range(3), ids=PublicKeys._fields)
def test_a_key_that_another_node_has_is_refused(part):
    """Else a malicious node registers another's key, and its noise with a third cancels that of the other."""
    one, other, mine = envelope(0), envelope(1), RunKeys.born()
    one.meet(1, other.introduction)
    stolen = list(mine.public)
    stolen[part] = list(one._members[1])[part]
    forged = introduction(OwnKey(secret_of(2)), one.run, "east", PublicKeys(*stolen))
    refused(Code.KEYS, one.meet, 2, forged)
    own = list(mine.public)
    own[part] = list(one._members[0])[part]
    refused(Code.KEYS, one.meet, 2, introduction(OwnKey(secret_of(2)), one.run, "east", PublicKeys(*own)))
    assert not one.knows(2)


@pytest.mark.parametrize("point", [0, 1, 2**255 - 19, 2**255 - 18, 2**255 - 20])
def test_a_key_that_gives_a_secret_which_everybody_knows_is_refused(point):
    weak = RunKeys.born().public._replace(agreement=point.to_bytes(32, "little"))
    one = envelope(0)
    refused(Code.KEYS, one.meet, 1, introduction(OwnKey(secret_of(1)), one.run, "south", weak))
    assert not one.knows(1)


def test_secrets_of_a_pair_depend_on_everything_that_names_it():
    mine, theirs = RunKeys.born(), RunKeys.born()

    def secret(first=mine, second=theirs, run="ab" * 32):
        one, other = envelope(0, first, run=run), envelope(1, second, run=run)
        one.meet(1, other.introduction)
        other.meet(0, one.introduction)
        assert one.pair_secret(1) == other.pair_secret(0)
        return one.pair_secret(1)

    changed = [
        secret(),
        secret(run="cd" * 32),
        secret(first=mine._replace(nonce=os.urandom(32))),
        secret(second=theirs._replace(nonce=os.urandom(32))),
        secret(first=mine._replace(signing=os.urandom(32))),
        secret(first=mine._replace(agreement=os.urandom(32))),
    ]
    assert len(set(changed)) == len(changed) and secret() == changed[0]
    one, *_ = envelopes(RUN)
    assert len({one._pairs[1].noise, one._pairs[1].hedge}) == 2


HALF = json.dumps(
    {"wire": 1, "run": "\ud800", "node": "south", "proof": "", "signature": ""} | RunKeys.born().public.to_dict()
).encode()
"""A text that has no bytes: half of a surrogate pair."""


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"[" * 5000, b'{"wire": 1}', b"9" * 9000, bytes(LONGEST), b'{"wire": 2, "run": 1}', HALF],
)
def test_an_introduction_that_cannot_be_read_is_refused(data):
    with pytest.raises(Refused):
        envelope(0).meet(1, b"svoi" + data)


def test_listed_keys_let_nobody_else_in():
    """With the keys in the run file a relay that gets in first gets nothing."""
    listed = {name: OwnKey(secret_of(i)).public for i, name in enumerate(NAMES)}
    one = envelope(0, identity=OwnKey(secret_of(0), listed))
    refused(Code.IDENTITY, one.meet, 1, envelope(1, identity=OwnKey(os.urandom(32))).introduction)
    good = envelope(1).introduction
    refused(Code.IDENTITY, one.meet, 1, good.replace(b'"run": "abab', b'"run": "abac'))
    one.meet(1, good)
    first_use = envelope(0)
    first_use.meet(1, envelope(1, identity=OwnKey(os.urandom(32))).introduction)  # this is what listing is for
    assert "first use" in first_use.identity.assumption and "run file" in one.identity.assumption


def test_a_run_with_keys_ends_and_one_with_another_s_key_does_not_begin(tmp_path):
    for name in RUN.nodes:
        Store(tmp_path / name).close()
    listed = {name: OwnKey(identity_seed(own_secret(tmp_path / name))).public for name in RUN.nodes}
    run = run_of(rounds=12, keys=listed)
    assert run.digest != RUN.digest
    models(whole_run(run, TABLES, tmp_path))
    wrong = run_of(rounds=12, run="wrong", timeout=0.5, keys=listed | {"east": OwnKey(bytes(32)).public})
    ends = whole_run(wrong, TABLES, tmp_path)
    assert all(isinstance(end, PeerTimeout) for end in ends.values())
    assert "introduce itself" in str(ends["north"]) and "names another key" in str(ends["north"])
    for name in run.nodes:
        rows = Store(tmp_path / name, reading=True).rows()
        assert not any(row.kind == "release" and row.run == wrong.digest for row in rows)


@pytest.mark.parametrize("listed", [{"north": "aa" * 32}, {**dict.fromkeys(RUN.nodes, "aa" * 32)}, 3, {"north": 5}])
def test_keys_are_everybody_s_own_or_nobody_s(listed):
    with pytest.raises(SpecError, match=r"\[keys\]"):
        run_of(keys=listed)


# -- certificates --


def authority():
    key = ec.generate_private_key(ec.SECP256R1())
    return key, signed("authority", key, "authority", key)


def signed(name, key, issuer, by, days=(-1, 1)):
    now = datetime.now(UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)]
    made = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now + timedelta(days[0])).not_valid_after(now + timedelta(days[1]))
    return made.sign(by, hashes.SHA256())


def kit(folder, name, root, key=None, **more):
    """A certificate of a site, with its key, on disk."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    folder.mkdir(parents=True, exist_ok=True)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "a.crt").write_bytes(signed(name, key, "authority", root[0], **more).public_bytes(pem))
    (folder / "a.key").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    (folder / "root.pem").write_bytes(root[1].public_bytes(pem))
    return [folder / file for file in ("a.crt", "a.key", "root.pem")]


def test_certificates_say_whose_keys_are_whose(tmp_path):
    root, other = authority(), authority()
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # as FLARE's are
    north = Certified(*kit(tmp_path / "north", "north", root))
    south = Certified(*kit(tmp_path / "south", "south", root, rsa_key))
    one = envelope(0, identity=north)
    one.meet(1, envelope(1, identity=south).introduction)
    for who, why in (
        (Certified(*kit(tmp_path / "x", "east", other)), "wrong"),  # another authority's
        (Certified(*kit(tmp_path / "y", "south", root)), "another site's"),
        (Certified(*kit(tmp_path / "z", "east", root, days=(-3, -1))), "not valid by this machine's clock"),
        (OwnKey(bytes(32)), "cannot be read"),
    ):
        with pytest.raises(Refused, match=why) as caught:
            one.meet(2, envelope(2, identity=who).introduction)
        assert caught.value.code is Code.IDENTITY
    east = Certified(*kit(tmp_path / "east", "east", root))
    data = envelope(2, identity=east).introduction
    serial = x509.load_der_x509_certificate(east.proof).serial_number
    with pytest.raises(Refused, match="revoked"):
        envelope(0, identity=Certified(*kit(tmp_path / "n", "north", root), revoked={serial})).meet(2, data)
    wrong = introduction(south, one.run, "east", RunKeys.born().public)
    refused(Code.IDENTITY, one.meet, 2, wrong)
    one.meet(2, data)
    with pytest.raises(SpecError, match="cannot be read"):
        Certified(tmp_path / "none", tmp_path / "none", tmp_path / "none")


# -- keys in a folder --


def holds(folder, secret):
    return any(secret in file.read_bytes() for file in folder.iterdir())


def test_keys_are_born_with_the_run_kept_through_restarts_and_erased_when_it_is_over(tmp_path):
    node = open_node(RUN, "north", TABLES, tmp_path / "north")
    first = node.store.run_keys(RUN.digest)
    born = [row for row in node.store.rows() if row.kind == "keys"]
    assert len(born) == 1 and born[0].detail == first.public.to_dict() and "RunKeys(…)" in repr(first)
    node.store.close()
    node = open_node(RUN, "north", TABLES, tmp_path / "north")
    assert node.store.run_keys(RUN.digest) == first and holds(tmp_path / "north", first.agreement)
    node.store.close()
    models(whole_run(RUN, TABLES, tmp_path))
    store = Store(tmp_path / "north")
    assert store.run_keys(RUN.digest) is None and store.verify() == []
    assert sum(row.kind == "keys" for row in store.rows()) == 1
    with pytest.raises(StoreError, match="erased"):
        store.born_keys(RUN.digest)
    store.close()
    assert not any(holds(tmp_path / "north", part) for part in first[:2])


def test_an_erased_key_is_overwritten_also_where_it_was_the_last_of_its_page(tmp_path):
    store, runs = Store(tmp_path / "north"), [f"{k:064x}" for k in range(40)]
    keys = {run: store.born_keys(run) for run in runs}
    for run in runs[::2] + runs[1::2]:
        assert holds(tmp_path / "north", keys[run].signing)
        store.erase_keys(run)
        assert not any(holds(tmp_path / "north", part) for part in keys[run][:2])
    store.close()


def test_keys_are_kept_while_a_peer_may_need_this_node(tmp_path):
    """Who has not said that it is done may come back for a last message."""
    run, net = run_of(rounds=12, timeout=4.0), Net()
    lost = {"on": True}

    def deaf(sender, receiver, payload):  # nobody hears west's last words
        done = 3 in net.links and net.links[3]._mixed >= run.T
        return [] if lost["on"] and done and 3 in (sender, receiver) else [payload]

    net.fault = deaf
    ends = whole_run(run, TABLES, tmp_path, net)
    kept = {name: Store(tmp_path / name, reading=True).run_keys(run.digest) is not None for name in run.nodes}
    assert ends["north"].unheard == ("west",) and kept["north"] and kept["west"]
    shutil.copytree(tmp_path / "north", tmp_path / "weary")
    store = Store(tmp_path / "weary")  # anyone who will not wait for west any longer need not keep keys for it
    store.abandon(run.digest)
    assert store.run_keys(run.digest) is None and not store.ledger.has("stop", run.digest) and store.verify() == []
    with pytest.raises(StoreError, match="over already"):
        store.abandon(run.digest)
    store.close()
    lost["on"] = False
    again = whole_run(run, TABLES, tmp_path)
    assert all(end.unheard == () for end in again.values())
    assert all(Store(tmp_path / name, reading=True).run_keys(run.digest) is None for name in run.nodes)


# -- how long a message can be --


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"network__activation": "everyone", "privacy__sampling": "full"},
        {"algorithm__method": "descent", "algorithm__eta": "constant(0.5)"},
        {"algorithm__method": "combine_first", "algorithm__eta": "inverse_sqrt(0.5)", "problem__h": "box(1, 2)"},
        {"algorithm__method": "stale(2)", "algorithm__eta": "constant(0.5)"},
        {"algorithm__method": "mixup(0.5)", "privacy__sampling": "full", "network__activation": "everyone"},
        {"algorithm__method": "tracking", "network__activation": "everyone"},
        {"algorithm__method": "scaffold", "network__activation": "everyone", "network__every": 2},
        {"algorithm__curvature": 0.01, "problem__loss": "logistic"},
        {"problem__h": "simplex(1)", "algorithm__gamma": "constant(1)", "algorithm__curvature": 0.01},
    ],
    ids=str,
)
def test_honest_messages_are_within_their_bound_and_not_far_within(changes, tmp_path, monkeypatch):
    """Everything that nodes send passes; and with a bound that is 50 times smaller something would not."""
    run = run_of(rounds=12, **changes)
    sent, release = [], DurableNode._release

    def noticed(self, t, message):
        sent.append(float(np.linalg.norm(message)) / self.run.bounds[t - 1])
        return release(self, t, message)

    monkeypatch.setattr(DurableNode, "_release", noticed)
    found = models(whole_run(run, TABLES, tmp_path))
    assert max(sent) <= 1.0 and max(sent) > 1 / 50
    longest = max(np.linalg.norm(model) for model in found)  # a set that confines models is not in their bound
    assert run.model_bound / 1000 < longest <= run.model_bound
    assert np.all(np.diff(run.bounds) >= 0)


def test_the_bound_is_closed_under_what_liars_send():
    """A node that mixed the longest accepted messages and adds its own longest release is within the next bound."""
    job = RUN.plan
    r = longest_messages(job.method, job.release, np.array(RUN.sizes), RUN.m)
    steps = np.diff(np.concatenate([[0.0], r]))
    a, sigma = job.method.steps.a, max(job.release.sigma)
    assert np.all(steps >= a * sigma * np.sqrt(RUN.m))


def test_a_method_without_a_bound_is_refused():
    class Other:
        exchanges = 1

    with pytest.raises(SpecError, match="no such bound is known"):
        longest_messages(Other(), None, None, 3)


def lying(monkeypatch, numbers):
    """One node, with all of its keys, sends what it likes."""
    release = DurableNode._release

    def lie(self, t, message):
        return release(self, t, numbers(self, t) if self.name == "north" else message)

    monkeypatch.setattr(DurableNode, "_release", lie)


@pytest.mark.parametrize("factor", [1.01, 1e6, "largest"])
def test_a_peer_that_sends_what_no_honest_node_can_is_refused_by_all(factor, tmp_path, monkeypatch):
    run = run_of(rounds=12, timeout=2.0, network__activation="everyone")

    def numbers(self, t):
        norm = -1.7e308 if factor == "largest" else factor * self.run.bounds[t - 1] / np.sqrt(self.run.m)
        return np.full((1, self.run.m), norm)

    lying(monkeypatch, numbers)
    ends = whole_run(run, TABLES, tmp_path)
    for name in ("east", "south", "west"):
        assert isinstance(ends[name], PeerTimeout) and "no honest node's are over" in str(ends[name])
        store = Store(tmp_path / name, reading=True)
        assert {row.round for row in store.rows() if row.kind == "release"} == {1}
        store.close()


def test_a_liar_within_the_bound_moves_honest_models_no_further_than_it(tmp_path, monkeypatch):
    """What the bound cannot do: the run ends, with a finite model that is wrong. Robust averaging is another matter."""
    run = run_of(rounds=12, network__activation="everyone")
    lying(monkeypatch, lambda self, t: np.full((1, self.run.m), 0.99 * self.run.bounds[t - 1] / np.sqrt(self.run.m)))
    ends = whole_run(run, TABLES, tmp_path)
    assert all(isinstance(end, Outcome) and np.all(np.isfinite(end.model)) for end in ends.values())
    assert not np.allclose(ends["east"].model, simulated(run, TABLES, keys(run, tmp_path))[1], rtol=0.1)


def test_a_state_that_is_not_finite_lets_nothing_more_out(tmp_path):
    node = open_node(RUN, "north", TABLES, tmp_path)
    node._state = node._state._replace(z=np.full_like(node._state.z, np.nan))
    with pytest.raises(NetworkError, match="not finite"):
        node._release(int(node.rounds[0]), node._state.z)
    with pytest.raises(NetworkError, match="not finite after round 3"):
        node._finite(node._state, 3)
    assert not any(row.kind == "release" for row in node.store.rows())
    node.store.close()


# -- who may write to a folder --


def test_no_lock_beside_the_database_has_to_stay(tmp_path):
    """What is locked is the database: other files can be removed, and a second writer is still refused."""
    store = Store(tmp_path / "a")
    for file in (tmp_path / "a").iterdir():
        if file.name == "lock":
            file.unlink()
    code = f"from sottovoce.node.store import Store; Store({str(tmp_path / 'a')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process uses the folder" in done.stderr
    store.close()


def test_a_database_that_is_replaced_under_a_writer_is_not_written_to(tmp_path):
    store = Store(tmp_path / "a")
    copy = shutil.copyfile(tmp_path / "a" / FILE, tmp_path / "copy")
    os.replace(copy, tmp_path / "a" / FILE)
    with pytest.raises(StoreError, match="was replaced while this node runs"):
        store.set_budget({"dataset": "records", "epsilon": "1.0", "delta": 1e-5})
    store.close()


def test_a_folder_that_other_machines_can_write_to_is_refused(tmp_path, monkeypatch):
    assert file_system(Path("/proc/self")) == "proc" and file_system(tmp_path) not in stores.REMOTE
    text = f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {tmp_path} rw shared:1 - nfs4 server:/home rw\n"
    text += f"3 1 0:3 / {tmp_path}/donn\u00e9es\\040la rw - cifs server:/home rw\n"
    monkeypatch.setattr(Path, "read_bytes", lambda self: text.encode())
    assert file_system(tmp_path) == file_system(tmp_path / "below") == "nfs4" and file_system(Path("/")) == "ext4"
    assert file_system(tmp_path / "donn\u00e9es la" / "north") == "cifs"
    with pytest.raises(StoreError, match=r"network file system \(nfs4\)"):
        Store(tmp_path / "node")


def test_a_forged_message_in_clear_is_not_mixed(tmp_path):
    """What a modified server did to version 0.1: a vector of 1e6 in a site's name, with a right checksum."""
    net, codes = Net(), set()

    def forge(sender, receiver, payload):
        for t in range(1, 5):
            try:
                net.links[receiver].deliver(sender, pack(Header(RUN.mark, t, sender), np.full((1, 3), 1e6)))
            except Refused as error:
                codes.add(error.code)
        return [payload]

    net.fault = forge
    ends = whole_run(RUN, TABLES, tmp_path, net)
    assert np.allclose(models(ends), simulated(RUN, TABLES, keys(RUN, tmp_path)), rtol=1e-9, atol=1e-9)
    assert codes == {Code.FORMAT, Code.UNKNOWN}


class Post:
    """What MPI does between two ranks, as far as a transport notices."""

    def __init__(self):
        self.boxes = {}

    def of(self, rank):
        post = self

        class Comm:
            def Isend(self, data, peer, tag):
                post.boxes.setdefault(peer, []).append((rank, bytes(data)))
                return Done()

            def Improbe(self, source, tag, status):
                box = post.boxes.get(rank)
                if not box:
                    return None
                sender, data = box.pop(0)
                status.Get_count = lambda _: len(data)
                status.Get_source = lambda: sender
                return Letter(data)

        return Comm()


class Done:
    def Test(self):
        return True


class Letter:
    def __init__(self, data):
        self.data = data

    def Recv(self, buffer):
        buffer[:] = self.data


class Status:
    """Of a message that was probed."""


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    made, post = [], Post()
    for i, name in enumerate(RUN.nodes[:2]):
        node = open_node(RUN, name, TABLES, tmp_path / name)
        node.transport = MpiTransport(node.links, node.skips, post.of(i))
        node.transport._status = Status()
        made.append(node)
    yield made
    for node in made:
        node.store.close()


def test_a_rank_that_is_known_from_before_introduces_itself_to_one_that_has_forgotten(ranks):
    """Nothing is answered under MPI: each introduces itself once, to the caller."""
    one, other = ranks
    one.envelope.meet(1, other.envelope.introduction)
    other.transport.send(0, other.envelope.introduction)
    assert one.transport._receive() and not other.envelope.knows(0)
    assert other.transport._receive() and other.envelope.knows(0)
    assert not one.transport._receive() and not other.transport._receive()  # and that is all


@pytest.mark.parametrize("first", [(0, 1), (0,), (1,)])
def test_ranks_answer_each_other_s_hellos_in_any_order_and_then_are_silent(ranks, first):
    one, other = ranks
    for node in ranks:
        node.transport.send(1 - node.number, node.envelope.introduction)
    while one.transport._receive() or other.transport._receive():
        pass
    for i in first:
        ranks[i].transport.send(1 - i, ranks[i].links.hello(1 - i))
    assert not one.links.heard(0, 1) and not other.links.heard(0, 0)
    left = 10
    while left and (one.transport._receive() or other.transport._receive()):
        left -= 1
    assert left and one.links.heard(0, 1) and other.links.heard(0, 0)


def test_a_rank_that_sends_more_than_is_allowed_stops_this_one_before_memory_is_taken(ranks):
    one, other = ranks
    one.transport._comm.Isend(bytes(other.links.limit + 1), 1, 7)
    assert other.transport._receive()
    with pytest.raises(NetworkError, match="are the most"):
        other.links.heard(0, 0)


def test_a_run_that_is_given_up_has_no_keys_and_never_continues(tmp_path):
    node = open_node(RUN, "north", TABLES, tmp_path)
    node._release(int(node.rounds[0]), np.zeros((1, RUN.m)))
    assert node.store.run_of("first") == RUN.digest
    node.store.abandon(RUN.digest)
    assert node.store.run_keys(RUN.digest) is None and node.store.verify() == []
    with pytest.raises(StoreError, match="over already"):
        node.store.abandon(RUN.digest)
    with pytest.raises(StoreError, match="no run 'second'"):
        node.store.run_of("second")
    node.store.close()
    with pytest.raises(StoreError, match="its owner abandoned it"):
        open_node(RUN, "north", TABLES, tmp_path)
