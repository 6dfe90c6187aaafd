"""Engines and the averagings: pairs' noise from counters, means that it is gone from, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from contract import BASE, check, cloud, difference, job_of, with_sigma

from sottovoce.engine import ENGINES, compiled, reference
from sottovoce.errors import SpecError
from sottovoce.privacy.release import Gaussian
from sottovoce.run.build import prepare
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Spec

PAIRS = {"privacy__law": "pairs(10)", "privacy__adversary": "secret_pairs(1)"}
EVERYONE = BASE | {"activation": "everyone"}
CASES = {
    "a mean of all": {},
    "exact": {"averaging": "exact", "mixing": "lazy"},
    "lazy": {"mixing": "lazy"},
    "gossip twice": {"mixing": "lazy", "averaging": "gossip(2)"},
    "clipped": {"averaging": "clipped(3)"},
    "ring": {"graph": "ring"},
    "some nodes": {"activation": "nodes(4)", "mixing": "lazy"},
    "some nodes, exactly": {"activation": "nodes(4)", "averaging": "exact"},
    "an edge": {"activation": "edges(1)"},
    "a lazy edge": {"activation": "edges(1)", "mixing": "lazy"},
    "two edges": {"activation": "edges(2)"},
    "a matching": {"activation": "matching(2)"},
    "ticks": {"activation": "ticks"},
    "descent": {"method": "descent"},
    "combine first": {"method": "combine_first"},
    "uneven": {"uneven": True, "weights": "records", "mixing": "lazy"},
    "uneven means": {"uneven": True, "weights": "records", "averaging": "exact"},
    "csr": {"data": "csr", "mixing": "lazy"},
    "classes": {"loss": "softmax", "outputs": 3, "mixing": "lazy"},
}


@pytest.mark.parametrize("name", CASES)
def test_pairs_from_counters(name, make_shards):
    job = job_of(EVERYONE | CASES[name], make_shards, 15, **PAIRS)
    assert compiled.has_noise_terms_counted(job) and check(ENGINES["compiled"], job, 15)


def test_pairs_over_many_coordinates_and_in_stacks():
    """More coordinates than a block has; each run of a stack ends as it would alone."""
    job = job_of(EVERYONE | {"mixing": "lazy", "data": "dense"}, cloud(5001), 6, **PAIRS)
    jobs = [with_sigma(job, factor) for factor in (1.0, 0.5)]
    states = compiled.run_many(jobs, [one.start() for one in jobs], 1, 6)
    for one, state in zip(jobs, states, strict=True):
        alone = compiled.run(one, one.start(), 1, 6)
        assert all(np.array_equal(a, b) for a, b in zip(state, alone, strict=True))
        assert difference(state, reference.run(one, one.start(), 1, 6)) < 1e-5


def test_what_is_gone_from_a_mean_is_not_made(make_shards):
    """With the mean of all, a run with pairs is the run without, to the last bit; else it is another."""
    for case, same in (({"averaging": "exact"}, True), ({"mixing": "lazy"}, False)):
        job = job_of(EVERYONE | case, make_shards, 15, **PAIRS)
        release = replace(job.release, law=Gaussian())
        plain = replace(job, release=release, draws=replace(job.draws, release=release))
        ends = [compiled.run(each, each.start(), 1, 15).z for each in (job, plain)]
        assert np.array_equal(*ends) == same
        with pytest.raises(SpecError, match="noise mechanism"):
            compiled.check_stackable([job, plain])


def test_sparse_secrets_are_injected(make_shards):
    law = {"privacy__law": "pairs(2, graph=ring)", "privacy__adversary": "secret_pairs(1)"}
    job = job_of(EVERYONE | {"averaging": "exact"}, make_shards, 10, **law)
    assert not compiled.has_noise_terms_counted(job) and check(ENGINES["compiled"], job, 10)


def test_several_exchanges_end_as_one_in_every_engine(make_shards):
    """On a complete graph with equal weights, gossip, gossip again and the exact mean are one and the same."""
    ends = [
        ENGINES[engine].run([job], [job.start()], 1, 20)[0].z
        for averaging in ("gossip", "gossip(3)", "exact")
        for job in [job_of(EVERYONE | {"averaging": averaging, "noise": "none"}, make_shards, 20)]
        for engine in ("reference", "nodes", "compiled")
    ]
    assert all(np.allclose(end, ends[0], rtol=1e-12, atol=1e-12) for end in ends[1:])


def test_every_node_ends_with_the_same_model_after_an_exact_mean(make_shards):
    job = job_of(EVERYONE | {"averaging": "exact"}, make_shards, 20)
    for engine in ("reference", "nodes", "compiled"):
        (state,) = ENGINES[engine].run([job], [job.start()], 1, 20)
        assert np.array_equal(state.z, np.broadcast_to(state.z[0], state.z.shape))


@pytest.mark.parametrize("case", [{}, {"method": "descent", "graph": "ring"}, {"activation": "matching(2)"}])
def test_rounded_messages_end_the_same_in_every_engine_that_knows_them(make_shards, case):
    """The compiled engine refuses it; the nodes engine rounds what it hears, one by one."""
    ends, case = {}, EVERYONE | {"weights": "nodes"} | case
    for averaging in ("gossip", "quantized(6)"):
        job = job_of(case | {"averaging": averaging, "noise": "none"}, make_shards, 12)
        ends[averaging] = [ENGINES[name].run([job], [job.start()], 1, 12)[0].z for name in ("reference", "nodes")]
    one, other = ends["quantized(6)"]
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert not np.allclose(one, ends["gossip"][0], rtol=1e-6)
    assert "averaging Quantized" in ENGINES["compiled"].refusal(job)


def test_a_history_counts_the_bytes_of_rounded_messages(make_shards):
    spec = Spec(AlgorithmSpec(4), seed=1).replace(network__activation="everyone", privacy__noise="gaussian(1)")
    shards = make_shards(n=4, q=5)
    sent = {}
    for text in ("gossip", "quantized(4)"):
        result = solve(spec.replace(network__averaging=text), shards)
        sent[text] = result.history.last["bytes"], result.statement.epsilon
    m = prepare(spec, shards).job.problem.m
    assert sent["gossip"][0] == 4 * 12 * 8 * m and sent["quantized(4)"][0] == 4 * 12 * (-(-4 * m // 8) + 8)
    assert sent["gossip"][1] == sent["quantized(4)"][1]  # post-processing costs no privacy


def test_robust_averaging_is_refused_where_it_means_nothing(make_shards):
    spec = Spec(AlgorithmSpec(5, "tracking")).replace(network__activation="everyone", network__averaging="clipped(1)")
    with pytest.raises(SpecError, match=r"'clipped\(1\)' averaging is for dual averaging and descent"):
        prepare(spec, make_shards(n=4, q=5))
    with pytest.raises(SpecError, match="is gone from the mean of all only"):
        job_of(EVERYONE | {"averaging": "trimmed(1)"}, make_shards, 5, **PAIRS)


def test_a_liar_is_bounded_in_a_run(make_shards):
    """One node sends a million times what it should: gossip follows it, the robust ones do not."""
    case = EVERYONE | {"method": "dual_averaging", "noise": "none", "sampling": "full", "weights": "nodes"}
    far = {}
    for averaging in ("gossip", "clipped(2)", "trimmed(1)"):
        job = job_of(case | {"averaging": averaging}, make_shards, 30)
        lying = job.method.scale.copy()
        lying[5] = 1e6
        liar = replace(job, method=replace(job.method, scale=lying))
        far[averaging] = reference.run(liar, liar.start(), 1, 30).z[:5]
        for engine in ("nodes", "compiled"):
            (state,) = ENGINES[engine].run([liar], [liar.start()], 1, 30)
            assert np.allclose(state.z[:5], far[averaging], rtol=1e-9, atol=1e-9)
    pushed, L = float(job.method.steps.A[-1]), job.release.clip  # honest ones push by a_t L in round t
    assert np.abs(far["gossip"]).max() > 1e3 * pushed * L
    assert np.linalg.norm(far["clipped(2)"].mean(axis=0)) <= pushed * (L + 2 / 6)  # and a liar by a_t·radius·w
    assert np.abs(far["trimmed(1)"]).max() <= pushed * L  # it stays among the honest
