"""Exchanges a second over MPI: the node's own exchange (packed, sealed, checked, asked again) against a bare ping.

Starts itself under mpirun with 8 ranks, which form pairs; both are measured in the same run, in turn, and the better of
two is taken of each. So is the loop with secure releases really drawn: exact sum, noise, rounding, step, exchange, mix.
With --durable the whole loop is measured too: a transaction on the disk for every round.

    python benchmarks/exchange.py [--ranks 8] [--bytes 16000] [--exchanges 3000] [--durable]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=16_000)
    parser.add_argument("--exchanges", type=int, default=3000)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def launch():
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        print("there is no mpirun; install sottovoce[mpi]")
        return 1
    ranks = str(options().ranks)
    command = [mpirun, "--oversubscribe", "-n", ranks, sys.executable, __file__, "--inside", *sys.argv[1:]]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, check=False).returncode


def run_for(ranks, numbers, rounds):
    """Every node in every round, in disjoint pairs: ranks / 2 exchanges a round."""
    from sottovoce.node.runfile import make_run

    spec = {
        "algorithm": {"rounds": rounds},
        "network": {"activation": f"matching({ranks // 2})"},
        "privacy": {"noise": "gaussian(1.0)"},
    }
    nodes = {f"node{i}": 20 for i in range(ranks)}
    data = {"run": "bench", "schedule_seed": 1, "features": numbers, "classes": [-1, 1], "nodes": nodes, "spec": spec}
    return make_run(data)


def per_second(comm, work, exchanges):
    """Exchanges a second of all pairs together."""
    comm.Barrier()
    began = time.perf_counter()
    work()
    comm.Barrier()
    return exchanges * comm.Get_size() / 2 / (time.perf_counter() - began)


def ping(comm, size, peers):
    """The least that two ranks can do to have each other's bytes."""
    out, buffer = bytes(size), bytearray(size)
    for peer in peers:
        comm.Sendrecv(out, peer, 0, buffer, peer, 0)


def measure():
    from sottovoce.node.envelope import Envelope, RunKeys
    from sottovoce.node.identity import OwnKey
    from sottovoce.node.links import Links
    from sottovoce.node.message import Header, array_of, pack
    from sottovoce.node.skips import Skips
    from sottovoce.node.store import Saved
    from sottovoce.node.transport import MpiTransport, world

    args, comm = options(), world()
    me, numbers = comm.Get_rank(), args.bytes // 8
    run = run_for(comm.Get_size(), numbers, 2 * args.exchanges)
    envelope = Envelope(run.digest, run.nodes, me, RunKeys.born(), OwnKey(os.urandom(32)))
    for peer, introduction in enumerate(comm.allgather(envelope.introduction)):
        if peer != me:
            envelope.meet(peer, introduction)
    links = Links(run, me, Saved(0, None, {}, {}, {}), lambda t: None, envelope, os.urandom(32))
    transport = MpiTransport(links, Skips(run, me, None, {}, 0, envelope), comm)
    vector = np.random.default_rng(me).normal(size=(1, numbers))
    peers = {t: run.links(t, me)[0][0] for t in run.rounds(me).tolist()}

    def exchanges(first, last):
        for t in range(first, last + 1):
            payload = pack(Header(run.mark, t, me), vector)
            links.post(t, payload)
            heard = transport.exchange(t, payload, [peers[t]])
            array_of(heard[peers[t]])
            links.mixed(t)

    node = drawing(run, me, transport)
    half, bare, ours, real = args.exchanges // 2, [], [], []
    for first, last in ((1, half), (half + 1, args.exchanges)):
        count = last - first + 1
        partners = [peers[t] for t in range(first, last + 1)]
        bare.append(per_second(comm, partial(ping, comm, args.bytes, partners), count))
        ours.append(per_second(comm, partial(exchanges, first, last), count))
    for first, last in ((args.exchanges + 1, args.exchanges + half), (args.exchanges + half + 1, 2 * args.exchanges)):
        state, turns = run.prepared.job.method.start(1, run.m), np.arange(first, last + 1)
        real.append(per_second(comm, partial(node.take_turns, state, turns), len(turns)))
    found = {"ranks": comm.Get_size(), "bytes": args.bytes, "bare_ping": max(bare), "exchange": max(ours)}
    found["drawn"] = max(real)
    if args.durable:
        found["durable_loop"] = durable(comm, numbers)
    if me == 0:
        print(json.dumps({k: round(v) for k, v in found.items()} | {"ratio": round(max(ours) / max(bare), 2)}))


def own_records(run, me):
    from sottovoce.node.site import own_problem

    X = np.random.default_rng(me).normal(size=(20, run.m)) / (2 * run.m**0.5)
    return own_problem(run, run.nodes[me], run.schema.encode_numbered(X, np.where(X[:, 0] > 0, 1.0, -1.0)))


def own_draws(run, me, problem):
    from sottovoce.node.entropy import own_keys

    return run.draws(me, problem, own_keys(os.urandom(32), run.digest, os.urandom(32)))


def drawing(run, me, transport):
    """A node without a disk."""
    from sottovoce.engine.nodes import Node
    from sottovoce.node.message import Header, array_of, pack

    class Drawing(Node):
        def let_out(self, t, message):
            payload = pack(Header(run.mark, t, me), message)
            self.transport.links.post(t, payload)
            return payload, message

        def take_in(self, payload, mine):
            return array_of(payload)

        def turn(self, state, t):
            state = super().turn(state, t)
            self.transport.links.mixed(t)
            return state

    job, problem = run.prepared.job, own_records(run, me)
    draws = own_draws(run, me, problem)
    return Drawing(me, problem, job.method, job.schedule, job.release, draws, transport)


def durable(comm, numbers, rounds=100):
    """The whole loop: draw, step, a transaction, exchange, mix."""
    from sottovoce.node.budget import Budget
    from sottovoce.node.node import DurableNode
    from sottovoce.node.store import Store
    from sottovoce.node.transport import MpiTransport

    run = replace(run_for(comm.Get_size(), numbers, rounds), name="durable")
    name = run.nodes[comm.Get_rank()]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / name)
        store.set_budget(Budget(float("inf"), 1e-5).detail("records"))
        node = DurableNode(run, name, own_records(run, comm.Get_rank()), store)
        node.transport = transport = MpiTransport(node.links, node.skips, comm)
        speed = per_second(comm, node.take_part, rounds)
        transport.flush()
        store.close()
    return speed


if __name__ == "__main__":
    if options().inside:
        measure()
    else:
        sys.exit(launch())
