"""FLARE's cells as far as we use them, inside one process, and nodes of a run on top of them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from nvflare.fuel.f3.cellnet.core_cell import Message, MessageHeaderKey, ReturnCode, make_reply

from sottovoce.consortium.flare import Channel
from sottovoce.consortium.node import ConsortiumNode
from sottovoce.engine import reference
from sottovoce.engine.job import Job
from sottovoce.node.entropy import own_streams
from sottovoce.privacy.release import Draws
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards

JOB = "job-1"


class Cells:
    """A network that keeps a copy of everything that passes."""

    def __init__(self):
        self.cells, self.passed = {}, []

    def cell(self, site, secure=True):
        self.cells[f"{site}.{JOB}"] = cell = Cell(self, f"{site}.{JOB}", secure)
        return cell


class Cell:
    def __init__(self, net, name, secure):
        self.net, self.name, self.secure, self.handlers = net, name, secure, {}

    def is_secure(self):
        return self.secure

    def supports_secure_messages(self):
        return self.secure

    def register_request_cb(self, channel, topic, cb):
        self.handlers[topic] = cb

    def send_request(self, channel, topic, target, request, timeout, secure=False, optional=False):
        other = self.net.cells.get(target)
        if other is None or topic not in other.handlers:
            return make_reply(ReturnCode.COMM_ERROR)
        self.net.passed.append((topic, secure, request.payload))
        message = Message({MessageHeaderKey.ORIGIN: self.name, MessageHeaderKey.SECURE: secure}, request.payload)
        reply = other.handlers[topic](message)
        reply.set_header(MessageHeaderKey.SECURE, secure)
        self.net.passed.append((topic, secure, reply.payload))
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
    """Run them at once: what each told the server, or its error."""

    def play(node):
        try:
            return node.take_part()
        except ValueError as error:
            return error
        finally:
            node.close()

    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(play, nodes.values()), strict=True))


class Injected:
    """The nodes' own secret draws, all in one place."""

    def __init__(self, run, secrets):
        release, sizes = run.prepared.job.release, np.array(run.sizes)
        self.own = [Draws(release, own_streams(secret, run.digest), sizes, run.m) for secret in secrets]

    def records(self, nodes, t):
        return [self.own[i].records(np.array([i]), np.array([s]))[0] for i, s in zip(nodes, t, strict=True)]

    def noise(self, nodes, t):
        return np.stack([self.own[i].noise(np.array([i]), np.array([s]))[0] for i, s in zip(nodes, t, strict=True)])


def whose(shard):
    """The number of the person of each row of a node."""
    ids = np.empty(len(shard.y), dtype=np.int64)
    for person in range(int(shard.sizes[0])):
        ids[shard.rows(0, np.array([person]))] = person
    return ids


def simulated(run, problems, secrets):
    """The models of the same run in the reference engine, from the same records and draws."""
    shards = [problem.shards for problem in problems]
    X, y = np.vstack([s.X for s in shards]), np.concatenate([s.y for s in shards])
    offsets = np.concatenate([[0], np.cumsum([len(s.y) for s in shards])])
    units = np.concatenate([whose(s) for s in shards]) if shards[0].people else None
    whole = Shards.of(X, y, offsets, None, shards[0].intercept, units)
    job = run.prepared.job
    problem = Problem(job.problem.loss, job.problem.h, whole, job.problem.weights, job.problem.outputs)
    again = Job(problem, job.method, job.schedule, job.release, Injected(run, secrets))
    return job.method.average(reference.run(again, again.start(), 1, run.T), run.T)
