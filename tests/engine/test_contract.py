"""Every engine gives the reference's trajectory from the same draws, or refuses in the words of its record."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from contract import BASE, CASES, IMPOSSIBLE, NAMES, OPTIONS, check, first_job, job_of, pairs_of, with_sigma
from scipy import sparse

from sottovoce.algorithm.methods import METHODS
from sottovoce.engine import ENGINES, Engine, choose, compiled, one_by_one, reference, work
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.privacy.release import Gaussian
from sottovoce.privacy.sampling import Fixed
from sottovoce.problem.regularizers import Euclidean, Separable
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

HERE = sorted(name for name, engine in ENGINES.items() if engine.unavailable is None)
"""Engines that need nothing of a machine; a plug-in's own tests hold its engine to the contract."""
OTHERS = sorted(set(HERE) - {"reference"})


def under(law):
    """With this noise mechanism, and an adversary against whom it may be used."""
    return {"privacy__law": law, "privacy__adversary": "secret_pairs" if law.startswith("pairs") else "transcript"}


def test_the_cover_is_pairwise():
    """Every pair of options runs, but for the thirty-three that have no meaning."""
    covered = set().union(*map(pairs_of, CASES))
    size = sum(len(A) * len(B) for A, B in itertools.combinations(OPTIONS.values(), 2))
    assert len(covered) == size - 33 and len(IMPOSSIBLE) == 33
    other_h = {(("h", h), ("distance", "entropy")) for h in OPTIONS["h"] if h != "simplex"}
    assert other_h < IMPOSSIBLE


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_engine_equals_reference(case, engine, make_shards):
    check(ENGINES[engine], job_of(case, make_shards, rounds=40), 40)


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_run_or_refused(method, engine, make_shards):
    if method.endswith("_perturbation"):  # one round of one place that holds all records
        spec = Spec(AlgorithmSpec(1, method), seed=1).replace(problem__loss="logistic", problem__h="l2(0.1)")
        spec = spec.replace(privacy__sampling="full", privacy__noise="gaussian(0.1)", privacy__adversary="central")
        job, rounds = prepare(spec, make_shards(n=1, q=30, m=4)).job, 1
    elif method in ("statistics", "mean"):  # one round of regression
        case = BASE | {
            "method": method,
            "activation": "everyone",
            "loss": "squared",
            "sampling": "full",
            "intercept": 0.75,
        }
        job, rounds = job_of(case, make_shards, rounds=1, privacy__clip=None), 1
    else:
        job, rounds = job_of(BASE | {"method": method, "activation": "everyone"}, make_shards, rounds=20), 20
    known = ENGINES[engine].methods
    assert check(ENGINES[engine], job, rounds) == (known is None or type(job.method) in known)


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize(
    ("law", "method", "sampling"),
    [("pairs(2)", "descent", "one"), ("laplace", "mixup", "one"), ("tree", "dual_averaging", "cyclic(3)")],
)
def test_every_law_is_run_or_refused(law, method, sampling, engine, make_shards):
    case = BASE | {"method": method, "activation": "everyone", "sampling": sampling}
    job = job_of(case, make_shards, rounds=20, **under(law))
    assert type(job.release.law).__name__ == law.split("(")[0].title()
    check(ENGINES[engine], job, 20)


@pytest.mark.parametrize("engine", OTHERS)
def test_secure_jobs_are_run_or_refused(engine, make_shards):
    job = job_of(BASE, make_shards, rounds=10, seed=None)
    otherwise = ENGINES[engine].refusal(job_of(BASE, make_shards, rounds=10)) is None
    assert job.secure and check(ENGINES[engine], job, 10) == (otherwise and ENGINES[engine].secure)


def test_only_methods_are_refused(make_shards):
    """Of all options that the contract covers, and of all laws, none."""
    jobs = [job_of(case, make_shards, rounds=3) for case in CASES]
    jobs += [job_of(BASE | {"sampling": "cyclic(3)"}, make_shards, 3, **under(law)) for law in ("pairs(2)", "tree")]
    assert not any(ENGINES[name].refusal(job) for name in ("reference", "nodes", "compiled") for job in jobs)


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("law", ["gaussian", "pairs(2)"])
def test_several_jobs_end_as_each_alone(engine, law, make_shards):
    job = first_job(ENGINES[engine], make_shards, rounds=20, **under(law))
    jobs = [with_sigma(job, factor) for factor in (1.0, 0.5)]
    states = ENGINES[engine].run(jobs, [one.start() for one in jobs], 1, 20)
    for one, state in zip(jobs, states, strict=True):
        (alone,) = ENGINES[engine].run([one], [one.start()], 1, 20)
        assert all(np.array_equal(a, b) for a, b in zip(state, alone, strict=True))
    assert not np.array_equal(states[0].z, states[1].z)


class OtherSampler(Fixed):
    """One that no engine has heard of."""


class OtherH(Separable):
    """As above."""


class OtherDistance(Euclidean):
    """As above."""


def test_a_refusal_names_what_is_unknown(make_shards):
    """Each part that a record declares is examined; what it does not declare, it runs."""
    job = job_of(BASE, make_shards, rounds=10)
    formula = replace(job.problem.loss, slope_formula=lambda u, y, k: u)
    for wrong, words in (
        (job_of(BASE | {"method": "stale"}, make_shards, rounds=10), "method Stale"),
        (replace(job, release=replace(job.release, sampling=OtherSampler(1))), "sampler OtherSampler"),
        (replace(job, problem=replace(job.problem, loss=formula)), "loss 'hinge'"),
        (replace(job, problem=replace(job.problem, loss=replace(formula, name="mine"))), "loss 'mine'"),
        (replace(job, method=replace(job.method, h=OtherH(mu=0.1))), "regularizer OtherH"),
        (replace(job, method=replace(job.method, d=OtherDistance())), "distance OtherDistance"),
    ):
        reason = ENGINES["compiled"].refusal(wrong)
        assert reason.startswith(f"the compiled engine does not know the {words}")
        assert not check(ENGINES["compiled"], wrong, 10)
        assert ENGINES["reference"].refusal(wrong) is None
        with pytest.raises(SpecError, match=words):  # nor by the back door
            compiled.run(wrong, wrong.start(), 1, 10)
    gaussian = Engine(
        "mine",
        one_by_one(reference.run),
        unknown=lambda job: None if type(job.release.law) is Gaussian else f"law {type(job.release.law).__name__}",
    )
    assert gaussian.refusal(job) is None
    tree = job_of(BASE | {"sampling": "cyclic(3)", "activation": "everyone"}, make_shards, 10, privacy__law="tree")
    assert "does not know the law Tree" in gaussian.refusal(tree)


def test_auto_takes_what_is_worth_loading_and_does_not_refuse(make_shards, monkeypatch):
    job = job_of(BASE, make_shards, rounds=10)
    assert choose("auto", job).name == "reference" and choose("nodes", job) is ENGINES["nodes"]
    assert choose("auto", job, runs=2_000_000).name == "compiled"
    monkeypatch.setitem(ENGINES, "compiled", replace(ENGINES["compiled"], auto_threshold=work(job) - 1))
    assert choose("auto", job).name == "compiled"
    monkeypatch.setitem(ENGINES, "compiled", replace(ENGINES["compiled"], auto_threshold=work(job)))
    assert choose("auto", job).name == "reference"
    with pytest.raises(SpecError, match="'abacus'; choose one of auto, reference, nodes, compiled"):
        choose("abacus", job)


def test_with_a_guarantee_no_record_decides_which_engine_a_result_names():
    """Of sparse rows that differ in one record's entries alone, which a simulation may examine."""
    spec = Spec(AlgorithmSpec(200)).replace(
        privacy__sampling="full", privacy__noise="gaussian(0.1)", problem__row_norm=1.0
    )
    seen = {}
    for entries in (1, 4000):
        one = sparse.csr_array(np.full((1, entries), 0.01))
        one.resize((1, 4000))
        rest = sparse.csr_array((np.full(49, 0.5), (np.arange(49), np.arange(49))), (49, 4000))
        rows, y = sparse.vstack([one, rest]).tocsr(), np.where(np.arange(50) % 2, 1.0, -1.0)
        shards = Shards.of(rows, y, np.array([0, 50]))
        for seed in (None, 1):
            seen[seed, entries] = work(prepare(spec.replace(seed=seed), shards).job)
    assert seen[None, 1] == seen[None, 4000] and seen[1, 1] < seen[1, 4000]


@pytest.mark.parametrize("engine", HERE)
def test_cutting_a_run_into_pieces_changes_nothing(engine, make_shards):
    job = first_job(ENGINES[engine], make_shards, rounds=30)
    (whole,) = ENGINES[engine].run([job], [job.start()], 1, 30)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        (state,) = ENGINES[engine].run([job], [state], first, last)
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

    broken = replace(job, draws=Broken())
    with pytest.raises(SottovoceError, match=r"disk on fire|another node failed"):
        ENGINES["nodes"].run([broken], [broken.start()], 1, 10)
