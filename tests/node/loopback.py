"""Nodes as real processes on the loopback interface, and a switch between them that records, cuts, stops and kills.

The switch can be hostile: it forges, replays, reorders, drops, delays and reflects, and hands messages to others than
they are for. So can one of the nodes, which sends lies under its own keys beside what it should. Only for tests and the
soak; between organizations messages go over FLARE.
"""

import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import socketserver
import struct
import threading
import time
import traceback
from bisect import bisect_right
from collections import deque
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
from net import open_node, overheard, records

from sottovoce.consortium.progress import Reporter, read_progress
from sottovoce.errors import SottovoceError, StoreError
from sottovoce.node import transport
from sottovoce.node.envelope import Envelope, RunKeys
from sottovoce.node.identity import OwnKey
from sottovoce.node.keys import identity_seed, own_secret
from sottovoce.node.links import _ABOUT, MESSAGE
from sottovoce.node.message import Header, pack, pack_text
from sottovoce.node.runfile import make_run
from sottovoce.node.state import shown
from sottovoce.node.store import Store
from sottovoce.secure.generator import Generator

HERE = "127.0.0.1"
TIMEOUT = 5.0
DEEDS = ("forge", "replay", "reorder", "reflect", "astray", "change")
"""What a hostile relay does besides losing and delaying."""
MACHINE = ("full", "clock", "local")
"""What a machine does to its node: its disk takes no more, its clock is wrong, and another process of it attacks."""
EXPLAINED = 5.0
"""Seconds within which a node that waits says for whom."""


def send_frame(link, *parts):
    body = b"".join(parts)
    link.sendall(struct.pack("<I", len(body)) + body)


def receive_frame(link):
    def exactly(count):
        got = bytearray()
        while len(got) < count:
            more = link.recv(count - len(got))
            if not more:
                raise ConnectionError
            got += more
        return bytes(got)

    return exactly(struct.unpack("<I", exactly(4))[0])


def request(port, *parts):
    """A frame there and a frame back; None where nobody answers."""
    try:
        with socket.create_connection((HERE, port), timeout=TIMEOUT) as link:
            send_frame(link, *parts)
            return receive_frame(link)
    except OSError:
        return None


class Server(socketserver.ThreadingTCPServer):
    """Answers every frame with what a function makes of it."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answer):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with suppress(OSError):
                    reply = answer(receive_frame(self.request))
                    if reply is not None:
                        send_frame(self.request, reply)

        super().__init__((HERE, 0), Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


def lies(node, peer, rng):
    """What a node with all of its keys may say that is not so: none of it counts."""
    run, links, envelope = node.run, node.links, node.envelope
    rounds = links.peers[peer]
    t = rng.choice(rounds)
    shape = run.shape_at(t)

    def sealed(payload, about=None):
        return envelope.seal(peer, MESSAGE, _ABOUT.pack(bytes(16), 0) if about is None else about, payload)

    said = {"to": run.nodes[peer], "version": "1", "sigma": run.event(node.number).sigma, "asks": "ab"}
    claim = said | {"seen": [rng.choice(run.rounds(peer).tolist()), "ab" * 32, "cd" * 16]}
    match rng.choice(["huge", "not finite", "early", "second", "claim", "sigma", "junk", "many", "unsigned"]):
        case "huge":
            return sealed(pack(Header(run.mark, t, node.number), np.full(shape, 1e9)))
        case "not finite":
            return sealed(pack(Header(run.mark, t, node.number), np.full(shape, np.nan)))
        case "early":
            later = rounds[min(len(rounds) - 1, bisect_right(rounds, links._said) + 2)]
            return sealed(pack(Header(run.mark, later, node.number), np.zeros(run.shape_at(later))))
        case "second":
            # of the last round that this node mixed, the peer may lack the honest message; not of the one before
            before = [0, *(r for r in rounds if r <= links._mixed)]
            chosen = before[max(0, len(before) - 2)]
            return sealed(pack(Header(run.mark, chosen, node.number), np.ones(run.shape_at(chosen or rounds[0]))))
        case "claim":
            return sealed(pack_text(Header(run.mark, 0, node.number), claim))
        case "sigma":
            return sealed(pack_text(Header(run.mark, 0, peer), said | {"sigma": 1e-9, "seen": None}))
        case "junk":
            return sealed(rng.randbytes(rng.randrange(200)), b"")
        case "many":
            return rng.randbytes(links.limit + 1)
        case _:
            return sealed(pack(Header(run.mark, rounds[-1], node.number), np.zeros(run.shape_at(rounds[-1]))))


def reported(node):
    """What a site's own process reports of its node, as in a consortium."""
    run, began = node.run, [-1, time.monotonic()]

    def report():
        left = node.rounds
        t = int(left[0]) if len(left) else run.T + 1
        late, seconds = node.transport.waiting(t)
        if not late:
            late, seconds = node.transport.greeting()
        if t != began[0]:
            began[:] = t, time.monotonic()
        waits = {"for": run.nodes[late[0]], "seconds": round(seconds, 1)} if late else None
        state = shown(node.state, seconds if late else 0.0).value
        age = time.monotonic() - began[1]
        return {
            "name": run.name,
            "round": t - 1,
            "rounds": run.T,
            "waits": waits,
            "state": state,
            "age": age,
            "peers": {},
        }

    return report


def make_room():
    """What the tests themselves write is written also where the disk is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def node_process(root, file, name, switch, hostile=False):
    """One node: its own folder, its own records, a port of its own; exits with the error's code.

    A hostile one lies to its peers, behind the switch's back, and does its part besides.
    """
    transport.RESEND_MAX = 0.1
    root = Path(root)
    if (root / f"{name}.clock").exists():
        shift, right = float((root / f"{name}.clock").read_text()), time.time
        time.time = lambda: right() + shift
    run = make_run(json.loads(Path(file).read_text()))
    try:
        node = open_node(run, name, records(run), root / name)
        me, links = node.number, node.links

        def answer(frame):
            try:
                return links.answer(frame[0], frame[1:])
            except SottovoceError:
                return None

        make_room()
        beside = root / f"{name}.port.part"
        beside.write_text(str(Server(answer).port))
        os.replace(beside, root / f"{name}.port")
        rng = random.Random(os.getpid())

        def ask(peer, data):
            if hostile and node.envelope.knows(peer) and rng.random() < 0.3:
                with suppress(OSError, ValueError):
                    port = int((root / f"{run.nodes[peer]}.port").read_text())
                    request(port, bytes([me]), lies(node, peer, rng))
            return request(switch, bytes([me, peer]), data)

        node.transport = transport.RequestTransport(links, node.skips, ask)
        Reporter(root / name, run.digest, reported(node)).start()
        outcome = node.take_part()
        make_room()
        beside = root / f"{name}.part.npy"
        np.save(beside, outcome.model)
        os.replace(beside, root / f"{name}-{run.digest[:12]}.npy")
        node.store.close()
    except SottovoceError as error:
        make_room()
        (root / f"{name}.error").write_text(f"{type(error).__name__}: {error}")
        os._exit(error.exit_code)
    except Exception:  # no error that a node may end with
        make_room()
        (root / f"{name}.error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


@contextmanager
def preloading():
    """The fork server searches for what it is to preload where PYTHONPATH says, and nowhere else."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


class Cluster:
    """The processes of one run, started again whenever they die, and the switch."""

    def __init__(self, root, data, seed=0, hostile=()):
        """`hostile` names nodes that lie."""
        self.hostile, self.kept, self.injected = frozenset(hostile), deque(maxlen=400), {}
        self.machine, self.filled, self.asleep = (), set(), {}
        self.long_waits, self.unexplained = set(), []
        self.root, self.rng = Path(root), random.Random(seed)
        self.root.mkdir(exist_ok=True)
        data = data | ({"keys": self._identities(data["nodes"])} if hostile else {})
        self.run = make_run(data)
        self.file = self.root / f"{self.run.name}.json"
        self.file.write_text(json.dumps(data))
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["loopback"])
        with preloading():
            forkserver.ensure_running()
        self.switch = Server(self._pass_on)
        self.lock, self.wire, self.cuts, self.processes = threading.Lock(), {}, {}, {}
        self.ears = {}
        self.starts = {name: 0 for name in self.run.nodes}
        self.faulty = 0.0

    def _identities(self, names):
        """Of folders that are there already: where someone is hostile, nobody is trusted on first use."""
        for name in names:
            Store(self.root / name).close()
        return {name: OwnKey(identity_seed(own_secret(self.root / name))).public for name in names}

    # -- the switch --

    def _record(self, sender, receiver, data):
        """What was sent, read with its receiver's own keys, out of its folder."""
        for message in overheard(self._ear(receiver, sender), sender, data):
            with self.lock:
                self.wire.setdefault((message.header.sender, message.header.round), set()).add(message.digest.hex())

    def _ear(self, receiver, sender):
        """The receiver's envelope, once it knows the sender."""
        envelope = self.ears.get(receiver)
        if envelope is None or not envelope.knows(sender):
            store = Store(self.root / self.run.nodes[receiver], reading=True)
            try:
                keys, known = store.run_keys(self.run.digest), store.members(self.run.digest)
            finally:
                store.close()
            if keys is not None:
                made = Envelope(self.run.digest, self.run.nodes, receiver, keys, OwnKey(bytes(32)), known)
                envelope = self.ears[receiver] = made
        return envelope

    def _pass_on(self, frame):
        sender, receiver, payload = frame[0], frame[1], frame[2:]
        self._record(sender, receiver, payload)
        self.kept.append((sender, receiver, payload))
        with self.lock:
            blocked = self.cuts.get(frozenset((sender, receiver)), 0.0) > time.monotonic()
            fault = self.rng.random() < self.faulty and self.rng.choice(["lose", "twice", "cut", "slow", "mute"])
        if blocked or fault == "lose":
            return None
        if fault == "slow":
            time.sleep(0.05)
        try:
            port = int((self.root / f"{self.run.nodes[receiver]}.port").read_text())
        except (OSError, ValueError):
            return None
        whole = payload
        if fault == "cut":
            payload = payload[: len(payload) // 2]
        if fault == "twice":
            request(port, bytes([sender]), payload)
        reply = request(port, bytes([sender]), payload)
        if reply:
            self._record(receiver, sender, reply)
            self.kept.append((receiver, sender, reply))
        return None if fault == "mute" or (fault == "cut" and payload != whole) else reply

    # -- the processes --

    def start(self, name):
        self.starts[name] += 1
        process = self.context.Process(
            target=node_process,
            args=(str(self.root), str(self.file), name, self.switch.port, name in self.hostile),
            daemon=True,
        )
        process.start()
        self.processes[name] = process

    def done(self, name):
        return (self.root / f"{name}-{self.run.digest[:12]}.npy").exists()

    def tend(self):
        """Start again what has died and is not done; True while there is something to wait for."""
        for name in self.run.nodes:
            process = self.processes.get(name)
            if process is None or not process.is_alive():
                full = (StoreError.exit_code,) if name in self.filled else ()
                self.filled.discard(name)
                if process is not None and process.exitcode not in (0, 4, -signal.SIGKILL, *full):
                    raise AssertionError((self.root / f"{name}.error").read_text())
                if not all(map(self.done, self.run.nodes)):
                    self.start(name)  # also one that is done: others may need its last messages
        return not all(map(self.done, self.run.nodes))

    def meddle(self, kind):
        """One deed of a hostile relay: bytes that someone's node is given in another's name."""
        i, j = self.rng.sample(range(self.run.n), 2)
        clear = pack(Header(self.run.mark, self.rng.randrange(1, self.run.T), i), np.full(self.run.shape, 1e6))
        frames = [frame for frame in list(self.kept) if frame[2]]
        a, b, payload = self.rng.choice(frames) if frames else (i, j, clear)
        match kind:
            case "forge":
                forger = self._ear(i, j)  # with keys of its own: none of them is the sender's
                own = Envelope(self.run.digest, self.run.nodes, i, RunKeys.born(), OwnKey(bytes(32)))
                sealed = clear
                if forger is not None:
                    with suppress(SottovoceError, KeyError):
                        own._believe(j, forger._members[j])
                        sealed = own.seal(j, MESSAGE, _ABOUT.pack(bytes(16), 0), clear)
                deeds = [(i, j, clear), (i, j, sealed), (i, j, own.introduction)]
            case "replay":
                deeds = [(a, b, payload)] * 3
            case "reorder":
                deeds = [self.rng.choice(frames) for _ in range(5)] if frames else []
            case "reflect":
                deeds = [(b, a, payload)]
            case "astray":
                deeds = [(a, j, payload), (i, b, payload)]
            case "change":
                place = self.rng.randrange(max(1, len(payload)))
                deeds = [(a, b, payload[:place] + self.rng.randbytes(2) + payload[place + 2 :])]
        for sender, receiver, data in deeds:
            with suppress(OSError, ValueError):
                port = int((self.root / f"{self.run.nodes[receiver]}.port").read_text())
                request(port, bytes([sender]), data)
        self.injected[kind] = self.injected.get(kind, 0) + len(deeds)
        return kind

    def disturb(self, kind=None):
        """One event: a process killed or stopped for a while, a link cut for a while, or the relay meddles."""
        kind = kind or self.rng.choice(["kill", "stop", "cut", *(DEEDS if self.hostile else ()), *self.machine])
        if kind in DEEDS:
            return self.meddle(kind)
        name = self.rng.choice(self.run.nodes)
        if kind == "local":
            self._attack_locally(name)
            return kind
        if kind == "cut":
            pair = frozenset(self.rng.sample(range(self.run.n), 2))
            with self.lock:
                self.cuts[pair] = time.monotonic() + self.rng.uniform(0.1, 0.8)
            return kind
        process = self.processes[name]
        with suppress(ProcessLookupError, AttributeError):
            if kind == "full":  # no file of the process grows any more
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
                self.filled.add(name)
            elif kind in ("kill", "clock"):
                if kind == "clock":  # when it is started again
                    (self.root / f"{name}.clock").write_text(str(self.rng.uniform(-3e6, 3e6)))
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            else:
                self.asleep[name] = time.monotonic()
                os.kill(process.pid, signal.SIGSTOP)
                wake = threading.Timer(self.rng.uniform(0.1, 0.8), lambda: self._wake(process))
                wake.daemon = True
                wake.start()
        return kind

    def _attack_locally(self, name):
        """Another process of the machine, without keys: junk, halves and claims at a node's port, and idle links."""
        try:
            port = int((self.root / f"{name}.port").read_text())
        except (OSError, ValueError):
            return
        links = []
        with suppress(OSError):
            for _ in range(20):
                links.append(socket.create_connection((HERE, port), timeout=TIMEOUT))
            links[0].sendall(struct.pack("<I", 2**32 - 1) + b"x" * 1000)
            links[1].sendall(b"\x01")
        for sender in range(self.run.n):
            request(port, bytes([sender]), self.rng.randbytes(self.rng.randrange(300)))
        request(port, b"\xff" + self.rng.randbytes(50))
        for link in links:
            link.close()

    def _look(self):
        """Whether every node that has not gone on for some seconds says for whom it waits."""
        for name in self.run.nodes:
            process, said = self.processes.get(name), read_progress(self.root / name)
            awake = time.monotonic() - self.asleep.get(name, 0.0) > 2 * EXPLAINED
            if said is None or process is None or said.process != process.pid or not process.is_alive() or not awake:
                continue
            if said.age > EXPLAINED and said.round < said.rounds:
                self.long_waits.add((name, said.process, said.round))
                if said.waits is None and said.state != "paused":
                    self.unexplained.append((name, said.state, said.round, round(said.age, 1)))

    @staticmethod
    def _wake(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)

    def endure(self, events=0, every=0.3, limit=300.0):
        """Run to the end with so many events on the way; gives how many of each there were."""
        made = dict.fromkeys(("kill", "stop", "cut", *(DEEDS if self.hostile else ()), *self.machine), 0)
        end, last = time.monotonic() + limit, time.monotonic()
        try:
            while self.tend():
                if time.monotonic() > end:
                    raise AssertionError(f"not done after {limit} s")
                time.sleep(0.02)
                if self.machine:
                    self._look()
                if sum(made.values()) < events and time.monotonic() - last > self.rng.uniform(0.2, 1.8) * every:
                    made[self.disturb(None if any(made.values()) else "kill")] += 1  # one at the least
                    last = time.monotonic()
        finally:
            for process in self.processes.values():
                self._wake(process)
                process.kill()
                process.join()
            self.switch.shutdown()
            self.switch.server_close()
        return made

    # -- what must hold afterwards --

    def pairs(self):
        """What every node shared with every other one, from the keys that the switch read while they were there."""
        ears = [self.ears[i] for i in range(self.run.n)]
        return [
            {peer: Generator(ears[i].pair_secret(peer)) for peer in self.run.shares_with(i)} for i in range(self.run.n)
        ]

    def models(self):
        return np.stack([np.load(self.root / f"{name}-{self.run.digest[:12]}.npy") for name in self.run.nodes])

    def check_wire(self):
        """No round with two different messages, and the ledgers say exactly what crossed the wire.

        What a liar says besides goes past the switch.
        """
        assert all(len(digests) == 1 for digests in self.wire.values())
        run = self.run
        shown = run.step(run.T + 1) if run.after else None  # models are no releases
        for i, name in enumerate(run.nodes):
            store = Store(self.root / name, reading=True)
            rows = [r for r in store.rows() if r.kind == "release" and r.run == run.digest]
            alone = {t for t in run.rounds(i).tolist() if not run.links(t, i)}
            sent = {run.step(row.round): {row.message} for row in rows if row.round not in alone}
            assert sent == {t: said for (sender, t), said in self.wire.items() if sender == i and t != shown}
            outside = range(run.T + 2, run.T + 2 + len(run.last_releases))
            assert [row.round for row in rows] == [*([0] if run.before else []), *run.rounds(i).tolist(), *outside]
            assert store.verify() == []
            store.close()
