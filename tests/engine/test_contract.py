"""Every engine gives the reference's trajectory from the same draws, over a pairwise cover of all options."""

import itertools
import random

import numpy as np
import pytest
from scipy import sparse

from sottovoce.engine import reference
from sottovoce.errors import SottovoceError
from sottovoce.problem.losses import LOSSES
from sottovoce.run.build import prepare
from sottovoce.run.solve import ENGINES
from sottovoce.run.spec import AlgorithmSpec, Spec

OPTIONS = {
    "loss": [*LOSSES, "huber(0.5)", "softmax"],
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
    "sampling": ["one", "fixed(3)", "poisson(3)", "full"],
    "steps": [("linear(1)", "constant(5)"), ("constant(1)", "sqrt(0.5)")],
    "distance": ["euclidean", "centre", "entropy"],
    "primal": ["recompute", "as_written"],
    "graph": ["complete", "ring", "star"],
    "weights": ["nodes", "records"],
    "mixing": ["metropolis", "lazy", "max_degree"],
    "noise": ["none", "gaussian(0.3)", "theorem1(0.5)"],
    "data": ["dense", "float32", "csr"],
    "intercept": [0.0, 1.0],
    "uneven": [False, True],
    "curvature": [0.0, 0.2],
    "outputs": [1, 3],
    "people": [False, True],
}


def allowed(case):
    """Combinations that have no meaning are left out; each is refused with an error, tested elsewhere."""
    entropy, targets = case["distance"] == "entropy", LOSSES.make(case["loss"].split("(")[0]).targets
    others = case["distance"] != "euclidean" or case["primal"] == "as_written" or case["curvature"] > 0
    return not (
        (entropy and (case["h"] != "simplex" or case["curvature"] > 0))
        or (case["curvature"] > 0 and case["primal"] == "as_written")
        or (case["activation"] == "matching(2)" and case["graph"] == "star")
        or (case["method"] != "dual_averaging" and others)
        or targets == ("real" if case["outputs"] > 1 else "classes")
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


def spec_of(case, rounds, m):
    unbounded = np.isinf(LOSSES.make(case["loss"].split("(")[0]).slope_bound)
    a, gamma = case["steps"]
    return Spec(AlgorithmSpec(rounds, case["method"], a, gamma, eta="inverse_sqrt(0.7)"), seed=7).but(
        problem__loss=case["loss"],
        problem__h=case["h"],
        problem__weights=case["weights"],
        problem__intercept=case["intercept"],
        network__graph=case["graph"],
        network__activation=case["activation"],
        network__weights=case["mixing"],
        network__correct=True,
        algorithm__distance="entropy" if case["distance"] == "entropy" else "euclidean",
        algorithm__centre=tuple(np.linspace(0, 0.5, m)) if case["distance"] == "centre" else None,
        algorithm__primal=case["primal"],
        algorithm__curvature=case["curvature"],
        privacy__sampling=case["sampling"],
        privacy__noise=case["noise"],
        privacy__clip=0.8 if unbounded else None,
        problem__on_violation="clip",
        problem__outputs=case["outputs"],
    )


def job_of(case, make_shards, rounds):
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
    return prepare(spec_of(case, rounds, case["outputs"] * (4 + (case["intercept"] > 0))), shards).job


def test_the_cover_is_pairwise():
    """Every pair of options runs, but for the twenty-five that have no meaning."""
    covered = set().union(*map(pairs_of, CASES))
    size = sum(len(A) * len(B) for A, B in itertools.combinations(OPTIONS.values(), 2))
    assert len(covered) == size - 25 and len(IMPOSSIBLE) == 25
    other_h = {(("h", h), ("distance", "entropy")) for h in OPTIONS["h"] if h != "simplex"}
    assert other_h < IMPOSSIBLE


# the compiled engine makes its noise in float32: tests/engine/test_compiled.py holds it to injected draws
@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"reference", "compiled"}))
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v) for v in c.values())[:90])
def test_engine_equals_reference(case, engine, make_shards):
    job = job_of(case, make_shards, rounds=40)
    start = job.start()
    expected = reference.run(job, start, 1, 40)
    found = ENGINES[engine](job, start, 1, 40)
    for mine, theirs in zip(found, expected, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    assert np.allclose(job.method.average(found, 40), job.method.average(expected, 40), rtol=1e-12, atol=1e-12)
    assert not start.z.any()  # engines leave the state they are given alone


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_cutting_a_run_into_pieces_changes_nothing(engine, make_shards):
    job = job_of(CASES[0], make_shards, rounds=30)
    whole = ENGINES[engine](job, job.start(), 1, 30)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        state = ENGINES[engine](job, state, first, last)
    assert all(np.array_equal(a, b) for a, b in zip(whole, state, strict=True))


def test_reference_noise_blocks_change_nothing(make_shards, monkeypatch):
    job = job_of(CASES[3], make_shards, rounds=25)
    whole = reference.run(job, job.start(), 1, 25)
    monkeypatch.setattr(reference, "NOISE_BLOCK", 7)
    assert all(np.array_equal(a, b) for a, b in zip(whole, reference.run(job, job.start(), 1, 25), strict=True))


def test_a_failing_node_stops_the_others(make_shards):
    """One node's error reaches the caller at once; nobody waits a minute for it."""
    job = job_of(CASES[0] | {"activation": "everyone", "graph": "complete"}, make_shards, rounds=10)

    class Broken:
        def records(self, nodes, t):
            if nodes[0] == 2 and t[0] == 4:
                raise SottovoceError("disk on fire")
            return job.draws.records(nodes, t)

        noise = staticmethod(job.draws.noise)

    broken = type(job)(job.problem, job.method, job.schedule, job.release, Broken())
    with pytest.raises(SottovoceError, match=r"disk on fire|another node failed"):
        ENGINES["nodes"](broken, broken.start(), 1, 10)
