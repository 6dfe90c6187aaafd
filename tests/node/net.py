"""A run of real nodes inside one process: a plan, everybody's records, and a network that can be made to fail."""

import threading

import numpy as np

from sottovoce.data.tables import Table
from sottovoce.engine import reference
from sottovoce.errors import SottovoceError
from sottovoce.node.budget import Budget
from sottovoce.node.entropy import own_streams
from sottovoce.node.exchange import Requests
from sottovoce.node.loop import Participant
from sottovoce.node.plan import make_plan
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.privacy.release import Draws
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare

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


def records(plan, seed=0):
    """Everybody's records, by node."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, q in zip(plan.nodes, plan.sizes, strict=True):
        X = rng.normal(size=(q, plan.width))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
        score = X @ np.arange(1.0, plan.width + 1)
        y = np.array(plan.classes)[np.digitize(score, np.linspace(-1, 1, len(plan.classes) + 1)[1:-1])]
        groups = None
        if plan.unit is not None:  # q people, the first of them with three rows, the second with two
            again = np.r_[np.arange(q), 0, 0, 1]
            X, y, groups = X[again] * np.linspace(1, 0.5, q + 3)[:, None], y[again], np.array([f"p{i}" for i in again])
        found[name] = Table(X, y, groups, plan.features, name)
    return found


class PerNode:
    """Each node's own draws, in one object, for the simulation."""

    def __init__(self, each):
        self.each = each

    def records(self, nodes, t):
        return [self.each[i].records(np.array([i]), np.array([r]))[0] for i, r in zip(nodes, t, strict=True)]

    def noise(self, nodes, t):
        return np.concatenate([self.each[i].noise(np.array([i]), np.array([r])) for i, r in zip(nodes, t, strict=True)])


def simulated(plan, tables, secrets, schedule=None):
    """The models of the reference engine from the very draws that the nodes make with these secrets."""
    problems = [own_problem(plan, name, tables[name]) for name in plan.nodes]
    X = np.concatenate([p.shards.X for p in problems])
    y = np.concatenate([p.shards.y for p in problems])
    offsets = np.concatenate([[0], np.cumsum([len(p.shards.y) for p in problems])])
    units = None if plan.unit is None else np.concatenate([tables[name].groups for name in plan.nodes])
    job = prepare(plan.spec, Shards.of(X, y, offsets, units=units)).job
    sizes = np.array(plan.sizes)
    draws = [Draws(job.release, own_streams(s, plan.digest), sizes, plan.m) for s in secrets]
    job = type(job)(job.problem, job.method, schedule or job.schedule, job.release, PerNode(draws))
    return job.method.average(reference.run(job, job.start(), 1, plan.T), plan.T)


class Net:
    """Requests and replies between nodes of one process; every release that crosses it is recorded."""

    def __init__(self):
        self.postboxes = {}
        self.wire = {}
        self.fault = lambda sender, receiver, payload: [payload]

    def ask(self, sender, receiver, payload):
        reply = b""
        for arrived in self.fault(sender, receiver, payload):
            if receiver not in self.postboxes:
                return None
            try:
                reply = self.postboxes[receiver].answer(sender, arrived)
            except SottovoceError:  # refused, or the node has just closed its folder
                return None
        return next(iter(self.fault(receiver, sender, reply)), None) if reply else reply

    def join(self, participant):
        me = participant.me
        self.postboxes[me] = participant.postbox
        participant.connect(Requests(participant.postbox, lambda peer, payload: self.ask(me, peer, payload)))


def open_node(plan, name, tables, folder, budget=1e6, **more):
    """A node over its folder, with a budget."""
    store = Store(folder)
    if budget and not store.rows():
        store.set_budget(Budget(budget, 1e-5).detail("records"))
    try:
        return Participant(plan, name, own_problem(plan, name, tables[name]), store, **more)
    except BaseException:
        store.close()
        raise


def play(net, participants):
    """Run all of them at once; name -> outcome or error."""
    ends = {}

    def one(name, participant):
        try:
            ends[name] = participant.run()
        except Exception as error:
            ends[name] = error
        finally:
            net.postboxes.pop(participant.me, None) if isinstance(ends[name], Exception) else None
            participant.store.close()

    threads = [threading.Thread(target=one, args=item) for item in participants.items()]
    for p in participants.values():
        net.join(p)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def whole_run(plan, tables, root, net=None, names=None, **more):
    """Open every node and run them."""
    names = names or plan.nodes
    return play(net or Net(), {name: open_node(plan, name, tables, root / name, **more) for name in names})


def plan_of(rounds=20, **changes):
    return make_plan(run_file(rounds, **changes))


def secrets(plan, root):
    """The nodes' keys, out of their folders."""
    return [bytes.fromhex((root / name / "secret.key").read_text()) for name in plan.nodes]


def models(ends):
    """Everybody's model; the first error, if somebody failed."""
    for end in ends.values():
        if isinstance(end, Exception):
            raise end
    return np.stack([ends[name].model for name in sorted(ends, key=list(SIZES).index)])


def assert_as_simulated(plan, tables, root, ends, schedule=None):
    """The nodes' models are those of the reference engine, from the nodes' own keys."""
    expected = simulated(plan, tables, secrets(plan, root), schedule)
    assert np.allclose(models(ends), expected, rtol=1e-9, atol=1e-9)
