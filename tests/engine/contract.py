"""The contract of the engines: from the same draws every engine gives the reference's trajectory.

`CASES` is a pairwise cover of all options, the rows of `LOSSES` among them, whichever there are; `check` holds an
engine to the reference in one job: it runs it, or refuses it in the words of its record.
"""

import itertools
import random
from dataclasses import replace

import numpy as np
from scipy import sparse

from sottovoce import _native
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.regularizers import Euclidean
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.testing import Injected, held_to_reference
from sottovoce.testing import difference as difference

OPTIONS = {
    "loss": [*LOSSES, "huber(0.5)"],
    "h": [
        "l2(0.1)",
        "l1(0.05)",
        "elastic_net(0.05, 0.1)",
        "box(-0.5, 0.5)",
        "non_negative",
        "none",
        "l2_ball(0.7)",
        "l1_ball(0.7)",
        "simplex",
    ],
    "method": ["dual_averaging", "descent", "combine_first"],
    "activation": ["edges(1)", "edges(2)", "matching(2)", "nodes(3)", "everyone", "ticks"],
    "sampling": ["one", "fixed(3)", "poisson(3)", "full", "cyclic(3)"],
    "steps": [("linear(1)", "constant(5)"), ("constant(1)", "sqrt(0.5)")],
    "distance": ["euclidean", "centre", "entropy"],
    "primal": ["recompute", "as_written"],
    "graph": ["complete", "ring", "star"],
    "weights": ["nodes", "records"],
    "mixing": ["metropolis", "lazy", "max_degree"],
    "averaging": ["gossip", "gossip(2)", "exact", "clipped(0.5)", "trimmed(1)"],
    "noise": ["none", "gaussian(0.3)", "theorem1(0.5)"],
    "data": ["dense", "float32", "csr"],
    "intercept": [0.0, 0.75],  # not 1: that vertex of the simplex has margins at the kink of the hinge
    "uneven": [False, True],
    "curvature": [0.0, 0.2],
    "outputs": [1, 3],
    "people": [False, True],
}


def allowed(case):
    """Combinations that have no meaning are left out; each is refused with an error, tested elsewhere."""
    entropy, targets = case["distance"] == "entropy", LOSSES.make(case["loss"].split("(")[0]).targets
    others = case["distance"] != "euclidean" or case["primal"] == "as_written" or case["curvature"] > 0
    many = case["activation"] == "everyone" or (case["activation"] == "nodes(3)" and case["graph"] == "complete")
    many = many and case["graph"] != "star"
    return not (
        (entropy and (case["h"] != "simplex" or case["curvature"] > 0))
        or (case["curvature"] > 0 and case["primal"] == "as_written")
        or (case["activation"] == "matching(2)" and case["graph"] == "star")
        or (case["method"] != "dual_averaging" and others)
        or targets == ("real" if case["outputs"] > 1 else "classes")
        or (case["people"] and case["sampling"].startswith("cyclic"))
        or (case["averaging"] == "exact" and case["graph"] != "complete")
        or (case["averaging"] == "trimmed(1)" and not many)
    )


def pairs_of(case):
    return {((i, case[i]), (j, case[j])) for i, j in itertools.combinations(OPTIONS, 2)}


def pairwise_cover():
    """Greedy: complete an uncovered pair at random, many times over, and keep the case that covers most."""
    rng = random.Random(0)
    todo = {
        ((i, a), (j, b))
        for i, j in itertools.combinations(OPTIONS, 2)
        for a, b in itertools.product(OPTIONS[i], OPTIONS[j])
    }
    cases, impossible = [], set()
    while todo:
        pair = min(todo, key=repr)
        tries = []
        for attempts in (200, 5000):  # a pair that hardly anything goes with needs more of them
            drawn = (
                {name: rng.choice(values) for name, values in OPTIONS.items()} | dict(pair) for _ in range(attempts)
            )
            tries = tries or [case for case in drawn if allowed(case)]
        if not tries:
            impossible.add(pair)
            todo.remove(pair)
            continue
        cases.append(max(tries, key=lambda case: len(pairs_of(case) & todo)))
        todo -= pairs_of(cases[-1])
    return cases, impossible


CASES, IMPOSSIBLE = pairwise_cover()
NAMES = ["-".join(str(v) for v in case.values())[:90] for case in CASES]
BASE = CASES[0] | {
    "loss": "hinge",
    "h": "l2(0.1)",
    "method": "dual_averaging",
    "weights": "nodes",
    "mixing": "metropolis",
    "activation": "edges(1)",
    "sampling": "one",
    "steps": ("linear(1)", "constant(5)"),
    "distance": "euclidean",
    "primal": "recompute",
    "graph": "complete",
    "averaging": "gossip",
    "noise": "gaussian(0.3)",
    "data": "dense",
    "intercept": 0.0,
    "uneven": False,
    "curvature": 0.0,
    "outputs": 1,
    "people": False,
}


def spec_of(case, rounds, m):
    unbounded = np.isinf(LOSSES.make(case["loss"].split("(")[0]).slope_bound)
    (a, gamma), center = case["steps"], Euclidean(tuple(np.linspace(0, 0.5, m)))
    return Spec(AlgorithmSpec(rounds, case["method"], a, gamma, eta="inverse_sqrt(0.7)"), seed=7).replace(
        problem__loss=case["loss"],
        problem__h=case["h"],
        problem__weights=case["weights"],
        problem__intercept=case["intercept"],
        network__graph=case["graph"],
        network__activation=case["activation"],
        network__weights=case["mixing"],
        network__averaging=case["averaging"],
        network__correct=True,
        algorithm__distance={"centre": center}.get(case["distance"], case["distance"]),
        algorithm__primal=case["primal"],
        algorithm__curvature=case["curvature"],
        privacy__sampling=case["sampling"],
        privacy__noise=case["noise"],
        privacy__clip=0.8 if unbounded else None,
        problem__on_violation="clip",
        problem__outputs=case["outputs"],
    )


def job_of(case, make_shards, rounds, **changes):
    name = case["loss"].split("(")[0]
    kind = {"dense": np.asarray, "float32": np.float32, "csr": sparse.csr_array}[case["data"]]
    sizes = [4, 12, 7, 9, 20, 5] if case["uneven"] else None
    shards = make_shards(
        n=6,
        q=8,
        m=4,
        real=LOSSES.make(name).targets == "real",
        sizes=sizes,
        kind=kind,
        outputs=case["outputs"],
        people=case["people"],
    )
    spec = spec_of(case, rounds, case["outputs"] * (4 + (case["intercept"] > 0)))
    return prepare(spec.replace(**changes), shards).job


def cloud(m, kind="dense"):
    """In place of `make_shards`: six nodes with rows of m coordinates, of which CSR rows fill two in a hundred."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(48, m)) / np.sqrt(m) / 2
    if kind == "csr":
        X = sparse.csr_array(X * (rng.random(X.shape) < 0.02))
    shards = Shards.of(X, np.sign(rng.normal(size=48)), np.arange(0, 49, 8))
    return lambda **_: shards


def first_job(engine, make_shards, rounds, **changes):
    """Of the simplest case that the engine does not refuse."""
    jobs = (job_of(case, make_shards, rounds, **changes) for case in (BASE, BASE | {"method": "descent"}, *CASES))
    return next(job for job in jobs if engine.refusal(job) is None)


def injected(job):
    return replace(job, draws=Injected(job.draws))


def normal_rows(key, nodes, ts, m):
    """Standard normals in float32, a row of m for each (node, round), as the native loops make them."""
    out = np.empty((len(nodes), m), np.float32)
    _native.normal_rows(np.asarray(key, np.uint32), np.asarray(nodes, np.int64), np.asarray(ts, np.int64), out)
    return out


def with_sigma(job, factor):
    release = replace(job.release, sigma=tuple(factor * s for s in job.release.sigma))
    return replace(job, release=release, draws=replace(job.draws, release=release))


def check(engine, job, rounds):
    """Hold an engine to the reference, in one job; gives whether it runs it."""
    return held_to_reference(engine, job, rounds)
