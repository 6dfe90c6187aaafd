"""The simulation that real nodes are held against: one process, all records, the engine, and the nodes' own draws."""

import threading
from contextlib import ExitStack
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from net import Net, encoded, keys, open_node, overheard, play, records

from sottovoce.engine import ENGINES
from sottovoce.node.node import DurableNode
from sottovoce.node.store import Store
from sottovoce.privacy.pairs import Pairs
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_job, pre_release
from sottovoce.run.distribution import Expanded
from sottovoce.run.inference import release_stages, start_of
from sottovoce.run.one_shot import OneShotRelease
from sottovoce.run.private_scaling import PrivateScaling
from sottovoce.run.private_threshold import Scored
from sottovoce.run.target_range import TargetRange
from sottovoce.secure.generator import Generator, Purpose


def tables_of(run):
    """Records whose columns have means off the origin and other widths, so that a map of them is one."""
    if run.schema.label.classes is None:
        rng = np.random.default_rng(3)
        rows = {name: rng.uniform(-0.5, 0.5, (q, run.schema.m)) for name, q in zip(run.nodes, run.sizes, strict=True)}
        return {
            name: dict(zip(run.schema.features, X.T.tolist(), strict=True)) | {"dose": (X.sum(axis=1) / 9).tolist()}
            for name, X in rows.items()
        }
    found = records(run)
    for table in found.values():
        for k, column in enumerate(run.schema.features):
            table[column] = [0.3 + value / 3 ** (k + 1) for value in table[column]]
    return found


def joined(run, tables):
    """Everybody's records in one table, with the weights of a run whose threshold balances two classes."""
    each = [encoded(run, name, tables) for name in run.nodes]
    X, y, usable = (np.concatenate([getattr(one, part) for one in each]) for part in ("X", "y", "usable"))
    of, weights, user_ids = run.spec.problem.features, None, None
    X = of.rows(X) * (run.spec.problem.row_norm / of.norm) if of else X
    if run.schema.unit is not None:
        user_ids = np.concatenate([[f"{i} {person}" for person in one.user_ids] for i, one in enumerate(each)])
    if run.schema.label.classes is not None:
        weights = usable.astype(np.float64)
    if run.spec.privacy.balance:
        weights *= np.where(y > 0, *run.spec.privacy.balance.weights[::-1])
    return Shards.of(X, y, np.cumsum([0, *(len(one.y) for one in each)]), user_ids=user_ids, weights=weights)


class Everybodys:
    """One generator in place of every node's own."""

    def __init__(self, each):
        self.each = each

    def words(self, nodes, rounds, first, count, level=0):
        rows = [
            self.each[i].words(np.array([i]), np.array([t]), first, count, level)
            for i, t in zip(np.asarray(nodes).tolist(), np.asarray(rounds).tolist(), strict=True)
        ]
        return np.concatenate(rows)

    def continuation(self, node, round, block):
        return self.each[node].continuation(node, round, block)


def laws_of(run):
    """Those by which pairs of nodes share noise."""
    releases = [run.plan.release, run.plan.release.before]
    return [release.law for release in releases if release is not None and isinstance(release.law, Pairs)]


def introduced(run, tables, root):
    """Let all nodes know each other, before they run; what each pair shares, by the pair's number."""
    nodes = [open_node(run, name, tables, root / name) for name in run.nodes]
    for one in nodes:
        for other in nodes:
            if one is not other:
                one.envelope.meet(other.number, other.envelope.introduction)
    pairs = [law.pairs.tolist() for law in laws_of(run)][:1]
    shared = {e: Generator(nodes[i].envelope.pair_secret(j)) for each in pairs for e, (i, j) in enumerate(each)}
    for node in nodes:
        node.store.close()
    return shared


class Simulated(NamedTuple):
    """What one process makes of everybody's records."""

    models: np.ndarray
    map: object
    moved: float
    published: dict | None


def simulated(run, tables, root, pairs=None):
    """A secure simulation from the nodes' own keys, and from what each pair of them shares."""
    return simulated_from(run, joined(run, tables), keys(run, root), pairs)


def simulated_from(run, shards, own, pairs=None):
    """The same of everybody's records as the nodes pose them, and of keys."""
    together = {purpose: Everybodys([mine[purpose] for mine in own]) for purpose in Purpose}
    if pairs:
        together[Purpose.PAIRS] = Everybodys(pairs)
    with ExitStack() as stack:
        for law in laws_of(
            run
        ):  # one process would draw what all pairs share at once: of the same law, but other draws
            stack.enter_context(patch.dict(law.__dict__, whole=False))
        return _simulated(run, shards, together)


def _simulated(run, shards, together):
    found = pre_release(run.plan, shards, together)
    prepared = make_job(run.plan, shards, together, found)
    assert prepared.job.secure
    (state,) = ENGINES["reference"].run([prepared.job], [prepared.job.start()], 1, run.T)
    models = prepared.models(state, run.T)
    if not run.last_releases:
        return Simulated(models, found, 0.0, None)
    mean, before = models.mean(axis=0), run.plan.release.before
    if run.spec.privacy.inference:
        start = start_of(run.spec, mean)
        published = release_stages(run.spec, prepared.original.shards, before, start, together)
        return Simulated(models, found, 0.0, published)
    scored = Scored.of(run.spec, prepared.original.shards, mean)

    def followed(query, when):
        part = OneShotRelease(query, before, shards.sizes, when)
        return part.finish(part.released(shards, None, together))

    edges = followed(scored.where(), run.T + 1)
    moved = scored.moved(followed(scored.classes(edges), run.T + 2))
    models = np.array(models)
    models[:, -1] += moved / run.spec.problem.intercept
    return Simulated(models, found, moved, None)


def tapped(net, wire):
    """Note what is said at which step, by whom."""

    def listen(sender, receiver, payload):
        known = net.links.get(receiver)
        for message in overheard(known and known.envelope, sender, payload):
            wire.setdefault((sender, message.header.round), set()).add(message.digest.hex())
        return [payload]

    net.fault = listen
    return net


def same(one, other):
    """Whether two maps are equal to the last bit, with all that they hold."""
    if not isinstance(one, PrivateScaling | Expanded | TargetRange):
        return np.array_equal(one, other)
    return all(same(value, getattr(other, field)) for field, value in vars(one).items())


def check(run, root, ends, expected, wire):
    """As simulated, to 1e-12; every release is in the ledger, once, and on the wire as it is there; and accounted."""
    for end in ends.values():
        if isinstance(end, Exception):
            raise end
    found = np.stack([ends[name].model for name in run.nodes])
    assert np.allclose(found, expected.models, rtol=1e-12, atol=1e-12 * np.abs(expected.models).max())
    for i, name in enumerate(run.nodes):
        store = Store(root / name, reading=True)
        rows = {row.round: row.message for row in store.rows() if row.kind == "release"}
        outside = list(range(run.T + 2, run.T + 2 + len(run.last_releases)))
        assert list(rows) == [*([0] if run.before else []), *run.rounds(i).tolist(), *outside]
        assert all(wire.get((i, run.step(t)), {message}) == {message} for t, message in rows.items())
        opened = store.ledger.opened(run.digest)
        assert opened["messages"] == len(rows) and (opened["event"].get("before") is not None) == (run.outside > 0)
        assert store.verify() == []
        if run.before:
            kept = run.first.query.finish(run.first.noisy(store.load(run.digest).means[0]))
            assert same(kept, expected.map)  # to the last bit
        store.close()


class Crash(Exception):
    pass


class Doomed(DurableNode):
    """Dies once at every point: before a message is written, before it is sent, before and after a mean is kept."""

    _round = -1  # until a folder says where it stands

    def __init__(self, *rest, past):
        self.past = past
        super().__init__(*rest)

    def die(self, *point):
        if (self.number, *point) not in self.past:
            self.past.add((self.number, *point))
            raise Crash

    def _release(self, t, message):
        self.die("before writing", t)
        payload = super()._release(t, message)
        self.die("before sending", t)
        return payload

    def _show_model(self, t, model):
        payload = super()._show_model(t, model)
        self.die("model shown", t)
        return payload

    def _keep_mean(self, t, mean):
        self.die("mean known", t)
        found = super()._keep_mean(t, mean)
        self.die("mean kept", t)
        return found

    def turn(self, state, t):
        found = super().turn(state, t)
        self.die("mixed", t)
        return found


def points(run, i):
    """Where a doomed node dies."""
    releases = [*([0] if run.before else []), *run.turns(i).tolist()]
    releases += range(run.T + 2, run.T + 2 + len(run.last_releases))
    means = [t for t in releases if t == 0 or t > run.T] + [run.T + 1] * bool(run.after)
    found = {(f"before {what}", t) for what in ("writing", "sending") for t in releases}
    found |= {(f"mean {what}", t) for what in ("known", "kept") for t in means}
    return (
        found | {("mixed", t) for t in run.rounds(i).tolist()} | ({("model shown", run.T + 1)} if run.after else set())
    )


def live_through(run, tables, root, net, past):
    """Run all nodes, each begun again whenever it dies."""
    ends, ended = {}, []

    def live(name):
        while name not in ends:
            node = open_node(run, name, tables, root / name, past=past)
            net.join(node)
            try:
                ends[name] = node.take_part()
                ended.append(node)
            except Crash:
                net.links.pop(node.number)
                node.store.close()
            except Exception as error:
                ends[name] = error
                node.store.close()

    with patch("net.DurableNode", Doomed):
        threads = [threading.Thread(target=live, args=(name,)) for name in run.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for node in ended:  # until then they answer those that were killed later
        node.store.close()
    return ends


def live(run, tables, root, killed=False):
    """A whole run in one process, calm or killed at every point; what came out, what was simulated, and the wire."""
    wire, past = {}, set()
    pairs = introduced(run, tables, root)
    net = tapped(Net(), wire)
    if killed:
        ends = live_through(run, tables, root, net, past)
        assert past >= {(i, *point) for i in range(run.n) for point in points(run, i)}
    else:
        ends = play(net, {name: open_node(run, name, tables, root / name) for name in run.nodes})
    return ends, simulated(run, tables, root, pairs), wire
