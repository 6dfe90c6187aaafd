"""FLARE's cells as far as we use them, inside one process, and nodes of a run on top of them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from nvflare.fuel.f3.cellnet.core_cell import Message, MessageHeaderKey, ReturnCode, make_reply
from nvflare.fuel.f3.cellnet.registry import Callback, Registry

from sottovoce.consortium.flare import Channel
from sottovoce.consortium.node import ConsortiumNode
from sottovoce.engine.secure import SecureDraws
from sottovoce.node.keys import own_keys, own_secret
from sottovoce.node.store import Store
from sottovoce.problem.shards import Shards

sys.path.append(str(Path(__file__).parent.parent / "node"))
from simulation import simulated_from

JOB = "job-1"


class Cells:
    """A network that keeps a copy of everything that passes; `meddle` is what a hostile relay does to a message."""

    def __init__(self):
        self.cells, self.passed, self.meddle = {}, [], lambda message: message

    def cell(self, site, secure=True):
        self.cells[f"{site}.{JOB}"] = cell = Cell(self, f"{site}.{JOB}", secure)
        return cell

    def carry(self, topic, message):
        """Over the relay: bytes that are encrypted cannot be changed, only replaced."""
        self.passed.append((topic, message.get_header(MessageHeaderKey.ENCRYPTED, False), message.payload))
        return self.meddle(message)


class Cell:
    """As FLARE's: filters, then decryption where SECURE and ENCRYPTED are both set, else none; then the handler."""

    def __init__(self, net, name, secure):
        self.net, self.name, self.secure, self.handlers = net, name, secure, {}
        self.in_filter_reg = Registry()

    def is_secure(self):
        return self.secure

    def supports_secure_messages(self):
        return self.secure

    def add_incoming_filter(self, channel, topic, cb, *args, **kwargs):
        self.in_filter_reg.append(channel, topic, Callback(cb, args, kwargs))

    def register_request_cb(self, channel, topic, cb):
        self.handlers[topic] = cb

    def receive(self, message):
        """Whether a message gets past the filters; what FLARE decrypts loses its header ENCRYPTED."""
        channel, topic = (message.get_header(key, "") for key in (MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC))
        for filter in self.in_filter_reg.find(channel, topic) or ():
            if filter.cb(message, *filter.args, **filter.kwargs):
                return False
        if message.get_header(MessageHeaderKey.SECURE, False):
            message.remove_header(MessageHeaderKey.ENCRYPTED)
        return True

    def handle(self, message):
        """The reply to a request that came here; none where the request was dropped."""
        topic, secure = (message.get_header(key) for key in (MessageHeaderKey.TOPIC, MessageHeaderKey.SECURE))
        if not self.receive(message):
            return None
        reply = self.handlers[topic](message)
        headers = {key: message.get_header(key) for key in (MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC)}
        reply.add_headers({**headers, MessageHeaderKey.ORIGIN: self.name, MessageHeaderKey.SECURE: secure})
        reply.set_header(MessageHeaderKey.ENCRYPTED, bool(secure))
        return self.net.carry(topic, reply)

    def send_request(self, channel, topic, target, request, timeout, secure=False, optional=False):
        other = self.net.cells.get(target)
        if other is None or topic not in other.handlers:
            return make_reply(ReturnCode.COMM_ERROR)
        headers = {
            MessageHeaderKey.CHANNEL: channel,
            MessageHeaderKey.TOPIC: topic,
            MessageHeaderKey.ORIGIN: self.name,
            MessageHeaderKey.SECURE: secure,
            MessageHeaderKey.ENCRYPTED: secure,
        }
        request = self.net.carry(topic, Message(headers, request.payload))
        reply = None if request is None else other.handle(request)
        if reply is None or not self.receive(reply):
            return make_reply(ReturnCode.TIMEOUT)
        return reply


def join(small, kits, net=None, stopped=lambda name: False):
    """All nodes of a run, ready."""
    net = net or Cells()
    digest = small.agreement.run.digest
    return {
        name: ConsortiumNode(kit, name, digest, Channel(net.cell(name), JOB), lambda name=name: stopped(name))
        for name, kit in kits.items()
    }


def run(nodes):
    """Run them at once: what each reported the server, or its error."""

    def play(node):
        try:
            return node.take_part()
        except ValueError as error:
            return error
        finally:
            node.close()

    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(play, nodes.values()), strict=True))


def keys(run, folders):
    """The nodes' keys, out of their folders."""
    found = []
    for folder in folders:
        store = Store(folder, reading=True)
        sequence = store.ledger.opened(run.digest)["sequence"]
        found.append(own_keys(own_secret(folder), run.digest, store.ledger.nonce(), sequence))
        store.close()
    return found


def simulated_by_engine(run, problems, own):
    """The models of a secure simulation of all records, as their nodes pose them, with all that is released."""
    parts = [problem.shards for problem in problems]
    X, y, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "weights"))
    offsets = np.cumsum([0, *(len(part.y) for part in parts)])
    return simulated_from(run, Shards.of(X, y, offsets, weights=weights), own).models


def simulated(run, problems, own):
    """The models of the same run in one process, from the same records and draws."""
    job = run.plan
    draws = [run.draws(i, p, own[i]) for i, p in enumerate(problems)]

    def zeta(i, t, x):
        drawn = SecureDraws.drawn(draws[i], np.array([i]), np.array([t]), np.array([True]))
        return drawn.gradient(problems[i], job.release, np.array([0]))(x)

    state = job.method.start(run.n, run.m)
    for t in range(1, run.T + 1):
        nodes, speaks = job.schedule.nodes(t).astype(np.int64), job.schedule.speaks(t, t)

        def released(x, t=t, nodes=nodes):
            return np.concatenate([zeta(i, t, row[None]) for i, row in zip(nodes.tolist(), x, strict=True)])

        before, mix = state.at(nodes), partial(job.schedule.mix, t, unit=job.method.stride(t))
        state.put(nodes, job.method.step(before, t, nodes, speaks, released, np.zeros_like(before.z), mix).state)
    return job.method.average(state, run.T)
