"""Real nodes inside one process: a run file, everybody's records, and a network that can be made to fail."""

import threading
from functools import partial

import numpy as np
from cryptography.exceptions import InvalidTag

from sottovoce.data.values import from_lists
from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import SottovoceError
from sottovoce.node.budget import Budget, budgets
from sottovoce.node.envelope import MARK, NONCE, Envelope, RunKeys, _context
from sottovoce.node.identity import OwnKey
from sottovoce.node.keys import own_keys, own_secret
from sottovoce.node.links import _ABOUT, INTRODUCES, MESSAGE, REFUSES, Links
from sottovoce.node.message import read, unpack_text
from sottovoce.node.node import DurableNode
from sottovoce.node.runfile import make_run
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.node.transport import RequestTransport

SIZES = {"north": 12, "east": 9, "south": 15, "west": 10}


def run_file(rounds=20, **changes):
    """A run file's contents; changes name an entry, or a field of the spec as part__field."""
    data = {
        "run": "first",
        "schedule_seed": 5,
        "timeout": 20.0,
        "features": ["a", "b", "c"],
        "label": "sick",
        "classes": ["no", "yes"],
        "nodes": dict(SIZES),
        "spec": {
            "algorithm": {"rounds": rounds, "gamma": "constant(2)"},
            "problem": {"h": "l2(0.05)"},
            "network": {"activation": "edges(2)", "correct": True},
            "privacy": {"sampling": "poisson(4)", "noise": "gaussian(0.5)"},
        },
    }
    for key, value in changes.items():
        part, _, name = key.partition("__")
        if name:
            data["spec"].setdefault(part, {})[name] = value
        else:
            data[part] = value
    return data


def records(run, seed=0):
    """Everybody's records, by node: columns of plain values."""
    rng = np.random.default_rng(seed)
    schema, found = run.schema, {}
    classes = np.array(schema.label.classes)
    for name, q in zip(run.nodes, run.sizes, strict=True):
        X = rng.normal(size=(q, schema.m))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
        score = X @ np.arange(1.0, schema.m + 1)
        y = classes[np.digitize(score, np.linspace(-1, 1, len(classes) + 1)[1:-1])]
        people = np.arange(q)
        if schema.unit is not None:  # q people, the first of them with three rows, the second with two
            people = np.r_[people, 0, 0, 1]
            X, y = X[people] * np.linspace(1, 0.5, q + 3)[:, None], y[people]
        found[name] = dict(zip(schema.features, X.T.tolist(), strict=True)) | {schema.label.column: y.tolist()}
        if schema.unit is not None:
            found[name][schema.unit] = [f"p{i}" for i in people]
    return found


def encoded(run, name, tables):
    """A node's records, read by the run's schema."""
    schema = run.schema
    return schema.encode(from_lists(tables[name], name, schema.numbers, schema.texts))


def simulated(run, tables, keys, schedule=None, pairs=()):
    """The models of all nodes together, in one process, from the very draws that the nodes make with these keys.

    `pairs` says of each node what it shares.
    """
    job = run.plan
    problems = [own_problem(run, name, encoded(run, name, tables)) for name in run.nodes]
    own = [run.draws(i, p, keys[i], pairs[i] if pairs else None) for i, p in enumerate(problems)]
    schedule, only, loud = schedule or job.schedule, np.array([0]), np.array([True])

    def zeta(i, t, x):
        here, when = np.array([i]), np.array([t])
        return SecureDraws.drawn(own[i], here, when, loud).gradient(problems[i], job.release, only)(x)

    state = job.method.start(run.n, run.m)
    for t in range(1, run.T + 1):
        nodes, speaks = schedule.nodes(t).astype(np.int64), schedule.speaks(t, t)

        def released(x, t=t, nodes=nodes, speaks=speaks):
            rows = zip(nodes.tolist(), speaks, x, strict=True)
            return np.stack([zeta(i, t, row[None])[0] if loud else np.zeros(run.m) for i, loud, row in rows])

        before, mix = state.at(nodes), partial(schedule.mix, t, unit=job.method.stride(t))
        done = job.method.step(before, t, nodes, speaks, released, np.zeros_like(before.z), mix)
        state.put(nodes, done.state)
    return job.method.average(state, run.T)


def secret_of(i):
    return bytes([i + 1]) * 32


def envelopes(run):
    """Those of all nodes, who know each other."""
    made = [Envelope(run.digest, run.nodes, i, RunKeys.born(), OwnKey(secret_of(i))) for i in range(run.n)]
    for one in made:
        for other in made:
            if one is not other:
                one.meet(other.me, other.introduction)
    return made


def linked(run, me, envelope, saved, released=lambda t: None):
    return Links(run, me, saved, released, envelope, secret_of(me))


def overheard(envelope, sender, data):
    """The messages of rounds in what a node was sent, with its own keys; its links do not notice."""
    if not data or envelope is None or data.startswith((INTRODUCES, REFUSES)):
        return []
    start = len(MARK) + NONCE
    for reply in (False, True):
        try:
            cipher = envelope._pairs[sender].opens
            return messages(cipher.decrypt(data[len(MARK) : start], data[start:], _context(MESSAGE, reply)))
        except (InvalidTag, KeyError):
            continue
    return []


def messages(letter):
    """The message in a letter, and those that are attached to it."""
    message = read(letter[_ABOUT.size + _ABOUT.unpack_from(letter)[1] :])
    if message.array.dtype != np.uint8:
        return [message]
    return [one for part in unpack_text(message)[1] for one in messages(part)]


class Following(RequestTransport):
    """Enters each epoch with its node."""

    net = None

    def follow(self, links, skips):
        super().follow(links, skips)
        if self.net is not None:
            self.net.links[links.me] = links


class Net:
    """Requests and replies between nodes of one process; every release that crosses it is recorded."""

    def __init__(self):
        self.links = {}
        self.wire = {}
        self.fault = lambda sender, receiver, payload: [payload]

    def ask(self, sender, receiver, payload):
        reply = b""
        for arrived in self.fault(sender, receiver, payload):
            if receiver not in self.links:
                return None
            try:
                reply = self.links[receiver].answer(sender, arrived)
            except SottovoceError:  # refused, or the node has just closed its folder
                return None
        return next(iter(self.fault(receiver, sender, reply)), None) if reply else reply

    def join(self, node):
        me = node.number
        self.links[me] = node.links
        node.transport = Following(node.links, node.skips, lambda peer, payload: self.ask(me, peer, payload))
        node.transport.net = self


def open_node(run, name, tables, folder, budget=1e6, **more):
    """A node over its folder, with a budget."""
    store = Store(folder)
    if budget and not budgets(store.rows()):
        store.set_budget(Budget(budget, 1e-5).detail("records"))
    try:
        return DurableNode(run, name, own_problem(run, name, encoded(run, name, tables)), store, **more)
    except BaseException:
        store.close()
        raise


def play(net, nodes):
    """Run all of them at once; name -> outcome or error."""
    ends = {}

    def one(name, node):
        try:
            ends[name] = node.take_part()
        except Exception as error:
            ends[name] = error
        finally:
            net.links.pop(node.number, None) if isinstance(ends[name], Exception) else None
            node.store.close()

    threads = [threading.Thread(target=one, args=item) for item in nodes.items()]
    for p in nodes.values():
        net.join(p)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def whole_run(run, tables, root, net=None, names=None, **more):
    """Open every node and run them."""
    names = names or run.nodes
    return play(net or Net(), {name: open_node(run, name, tables, root / name, **more) for name in names})


def run_of(rounds=20, **changes):
    return make_run(run_file(rounds, **changes))


def keys(run, root, tables=None):
    """The nodes' keys, out of their folders: of the secret, the ledger's nonce, and which records they are of."""
    found = []
    for name in run.nodes:
        store = Store(root / name, reading=True)
        sequence = store.ledger.opened(run.digest).get("sequence")
        nonce = store.ledger.nonce()
        store.close()
        if sequence is None:  # version 0.1 did not write it down
            node = open_node(run, name, tables, root / name)
            sequence = node.sequence
            node.store.close()
        found.append(own_keys(own_secret(root / name), run.digest, nonce, sequence))
    return found


def models(ends):
    """Everybody's model; the first error, if someone failed."""
    for end in ends.values():
        if isinstance(end, Exception):
            raise end
    return np.stack([ends[name].model for name in sorted(ends, key=list(SIZES).index)])


def latest(store, run):
    """The last round of a run that is in a ledger as released; 0 where none is."""
    return max((row.round for row in store.rows() if row.kind == "release" and row.run == run.digest), default=0)


def assert_as_simulated(run, tables, root, ends, schedule=None):
    """The nodes' models are those of the reference engine, from the nodes' own keys."""
    expected = simulated(run, tables, keys(run, root), schedule)
    assert np.allclose(models(ends), expected, rtol=1e-9, atol=1e-9)
