"""Threads that share the rounds of a run: no number depends on how many there are; and records drawn side by side."""

import math
from itertools import pairwise

import numba
import numpy as np
import pytest
from contract import BASE, difference, from_python, job_of, with_sigma

from sottovoce.engine import compiled, cores, reference
from sottovoce.engine.kernel import POISSON
from sottovoce.engine.kernel import crew as crews
from sottovoce.engine.kernel.arguments import LANES, make_scratch
from sottovoce.engine.kernel.crew import APART, DISTANCE, GONE, apart, make_crew
from sottovoce.engine.kernel.draws import DOUBT, SMALL, UNKNOWN, _gaps, _logarithm, draw_records
from sottovoce.privacy.sampling import Poisson
from sottovoce.streams import Purpose, Streams, threefry

ROUNDS = 12
EVERYONE = BASE | {"activation": "everyone", "sampling": "full", "noise": "gaussian(0.1)"}
CASES = {
    "parts": EVERYONE,
    "drawn": EVERYONE | {"sampling": "poisson(60)"},
    "several outputs": EVERYONE | {"outputs": 3, "loss": "softmax"},
    "people": EVERYONE | {"people": True},
    "sparse": EVERYONE | {"data": "csr", "intercept": 0.75},
    "after": EVERYONE | {"method": "combine_first"},
    "descent": EVERYONE | {"method": "descent", "h": "l1(0.05)"},
    "robust": EVERYONE | {"averaging": "clipped(0.5)"},
    "trimmed after": EVERYONE | {"averaging": "trimmed(1)", "method": "combine_first"},
    "some of them": EVERYONE | {"activation": "nodes(3)", "averaging": "gossip(2)"},
}


@pytest.fixture
def threads(monkeypatch):
    """Sets how many threads a run has, however small it is."""

    def take(count):
        monkeypatch.setattr(compiled, "available", lambda: count)

    monkeypatch.setattr(crews, "ALONE", 0)
    return take


def ends(job, threads, count):
    threads(count)
    end = compiled.run(job, job.start(), 1, ROUNDS)
    return end.z, end.total, end.since


@pytest.fixture
def many(make_shards):
    """Six nodes with many records each."""
    return lambda **given: make_shards(**given | {"q": 200})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("most", [8, 2])  # as many parts as there may be; and more nodes than that: whole ones
def test_numbers_do_not_depend_on_threads(name, most, many, threads, monkeypatch):
    monkeypatch.setattr(crews, "MOST", most)
    monkeypatch.setattr(crews, "WORTH", 1)
    job = job_of(CASES[name], many, ROUNDS)
    one, two, three = (ends(job, threads, count) for count in (1, 2, 3))
    assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in zip(one, two, three, strict=True))
    silent = job_of(CASES[name] | {"noise": "none"}, many, ROUNDS)
    found, expected = compiled.run(silent, silent.start(), 1, ROUNDS), reference.run(silent, silent.start(), 1, ROUNDS)
    assert difference(found, expected) < 1e-12


def test_runs_side_by_side_share_their_threads(many, threads):
    job = job_of(EVERYONE, many, ROUNDS)
    jobs = [with_sigma(job, factor) for factor in (0.5, 2.0)]
    threads(3)
    together = compiled.run_many(jobs, [job.start()] * 2, 1, ROUNDS)
    for each, found in zip(jobs, together, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ends(each, threads, 1), found, strict=False))


def test_parts_follow_from_the_data_and_threads_from_the_work(many):
    job = job_of(EVERYONE, many, ROUNDS)
    packed = compiled._pack([job])
    what = packed.data, packed.plan, packed.noise, job.problem.m, 1
    assert {len(make_crew(*what, most, False)) for most in (1, 16)} == {1}  # too little work to share
    assert {make_crew(*what, most, False)[0].parts for most in (1, 2, 16)} == {200 // 32}


@pytest.mark.parametrize(("records", "parts"), [(31, 1), (32, 2), (63, 2), (95, 2), (96, 3), (1000, 8)])
def test_a_node_with_some_records_has_two_parts_from_where_one_is_worth_it(records, parts, make_shards):
    job = job_of(EVERYONE, lambda **given: make_shards(**given | {"q": records}), ROUNDS)
    packed = compiled._pack([job])
    assert make_crew(packed.data, packed.plan, packed.noise, job.problem.m, 1, 2, False)[0].parts == parts


def test_what_threads_write_lies_apart(many):
    job = job_of(EVERYONE, many, ROUNDS)
    packed = compiled._pack([job])
    scratch = make_scratch(packed.data, packed.plan, packed.model, packed.noise, (1, 6, job.problem.m))
    rooms = [apart(scratch) for _ in range(3)]
    for name in APART:
        first, *others = (getattr(room, name) for room in (scratch, *rooms))
        assert all(np.array_equal(first, each, equal_nan=True) and first.dtype == each.dtype for each in others)
    spans = sorted(
        (values.ctypes.data, values.nbytes, who)
        for who, room in enumerate(rooms)
        for values in (getattr(room, name) for name in APART)
        if values.nbytes
    )
    for (begin, size, who), (after, _, other) in pairwise(spans):
        assert begin + size + (DISTANCE if who != other else 0) <= after
    sums = make_crew(packed.data, packed.plan, packed.noise, job.problem.m, 1, 2, False)[0].sums
    assert len(sums) > 1 and sums.strides[0] % DISTANCE == 0 and sums.shape[1] >= job.problem.m


def test_rounds_of_few_records_have_one_thread(many, threads):
    job = job_of(BASE, many, ROUNDS)
    packed = compiled._pack([job])
    assert len(make_crew(packed.data, packed.plan, packed.noise, job.problem.m, 1, 4, True)) == 1


def test_a_thread_that_fails_keeps_nobody_waiting(many, threads, monkeypatch):
    threads(2)
    job, run_rounds, seen = job_of(EVERYONE, many, ROUNDS), compiled.run_rounds, []

    def failing(*given):
        crew = next(each for each in given if isinstance(each, crews.Crew))
        if crew.me == 1:
            seen.append(crew.gate)
            raise MemoryError("no room for a second thread")
        run_rounds(*given)

    monkeypatch.setattr(compiled, "run_rounds", failing)
    with pytest.raises(MemoryError, match="no room"):
        compiled.run(job, job.start(), 1, ROUNDS)
    assert seen[0][GONE] == 1


def test_processors_are_those_that_were_given(monkeypatch):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for said, expected in {"": 8, "3": 3, "3,2": 3, "many": 8, "0": 8, "99": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert cores.available() == expected
    monkeypatch.delenv("OMP_NUM_THREADS")
    with cores.shared(2):
        assert cores.available() == 4
        with cores.shared(3):
            assert cores.available() == 1
    assert cores.available() == 8


@pytest.mark.parametrize(("q", "b"), [(37_000, 26_000), (5_000, 40), (64, 63), (63, 50), (200, 33), (3_000, 2_999)])
def test_records_made_side_by_side_are_those_of_the_sampler(q, b):
    streams, sampling, draw = Streams(3), Poisson(b), from_python(draw_records)
    key = np.concatenate(streams.key(Purpose.RECORDS))
    records, taken, words = np.empty(q, np.int64), np.zeros(q, np.bool_), np.empty(LANES, np.uint32)
    for t in range(1, 6):
        expected = sampling.draw(lambda first, some, t=t: streams.uniforms(np.array([2]), t, first, some)[0], q, t)
        count = draw(POISSON, key, 2, t, q, b, 1.0 / math.log1p(-b / q), records, taken, words)
        assert np.array_equal(records[:count], expected)


@pytest.mark.parametrize(("scale", "doubts"), [(-0.2, 0.001), (-3.0, 0.001), (-1000.0, 0.02), (-3e7, 1.0)])
def test_a_gap_is_the_library_s_or_in_doubt(scale, doubts):
    gaps, make, found = np.empty(LANES, np.uint32), from_python(_gaps), []
    for first in range(0, 100 * LANES, LANES):
        sure, total = make(np.uint32(5), np.uint32(9), first, scale, gaps)
        assert sure == np.all(gaps != UNKNOWN) and (not sure or total == gaps.sum(dtype=np.uint32))
        found += gaps.tolist()
    exact = [math.floor(scale * math.log(from_uniform(5, 9, j))) for j in range(len(found))]
    assert all(gap in (UNKNOWN, true) for gap, true in zip(found, exact, strict=True))
    assert np.mean(np.array(found) == UNKNOWN) <= doubts


def test_what_may_be_wrong_with_a_gap_is_less_than_its_doubt():
    word = np.unique(np.geomspace(SMALL, 2**32 - 1, 100_000).astype(np.uint32))
    word = np.concatenate([word, ~word[word < 2**31]])  # near 1, too
    log = numba.njit(lambda w: _logarithm(w))
    found = np.array([log(one) for one in word], np.float64)
    left = 1.0 - word * 2.0**-32  # of a uniform that begins with this word there is at least 1 − left, and 2⁻³² more
    least, most = -2.0 * np.log1p(2.0**-32 - left), -2.0 * np.log1p(-left)
    margin = float(DOUBT) * (found + 1.0) - 2.0**-22 * found  # what is left of it for a product and its rounding
    assert np.all(found - margin < least) and np.all(found + margin > most)


def from_uniform(k0, k1, position):
    w0, w1 = threefry((np.uint32([k0]), np.uint32([k1])), (np.uint32([position]), 0))
    return float((((w0.astype(np.uint64) << np.uint64(20)) | (w1 >> np.uint32(12))) + 0.5)[0] * 2.0**-52)
