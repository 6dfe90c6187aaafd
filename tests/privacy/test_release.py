import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.release import ADVERSARIES, Draws, Release, Transcript, check_runnable
from sottovoce.privacy.sampling import SAMPLINGS, Fixed, Full, Poisson
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.registry import parse, write
from sottovoce.streams import Streams

TRANSCRIPT = Transcript()


def draws(sampling, q, rounds, sigma=(1.0,)):
    return Draws(Release(sampling, 1.0, sigma, TRANSCRIPT), Streams(4), np.array([q] * len(sigma)), 6), range(
        1, rounds + 1
    )


def one(d, t):
    return d.records(np.array([0]), np.array([t]))[0]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50))
def test_fixed_draws_are_distinct_records(q, b, t):
    b = min(b, q)
    d, _ = draws(Fixed(b), q, 1)
    picked = one(d, t)
    assert len(picked) == len(set(picked.tolist())) == b and 0 <= picked.min() and picked.max() < q


def test_every_fixed_batch_is_equally_likely():
    d, rounds = draws(Fixed(2), 5, 4000)
    pairs = [tuple(sorted(one(d, t).tolist())) for t in rounds]
    counts = np.unique([10 * a + b for a, b in pairs], return_counts=True)[1]
    assert len(counts) == 10 and stats.chisquare(counts).pvalue > 1e-3


def test_one_record_is_uniform():
    d, rounds = draws(SAMPLINGS.read("one"), 8, 4000)
    counts = np.bincount([one(d, t)[0] for t in rounds], minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_poisson_draws_are_independent_inclusions():
    """Binomial batch sizes, rate b/q for each record, pairs uncorrelated; a wrong rate is rejected."""
    q, b, T = 30, 6, 3000
    d, rounds = draws(Poisson(b), q, T)
    used = np.zeros((T, q))
    for t in rounds:
        picked = one(d, t)
        assert np.all(np.diff(picked) > 0)
        used[t - 1, picked] = 1
    sizes = np.bincount(used.sum(axis=1).astype(int), minlength=q + 1)

    def pvalue(rate):
        expected = stats.binom.pmf(np.arange(q + 1), q, rate) * T
        keep = expected > 5
        observed = np.append(sizes[keep], sizes[~keep].sum())
        expected = np.append(expected[keep], expected[~keep].sum())
        return stats.chisquare(observed, expected).pvalue

    assert pvalue(b / q) > 1e-3 and pvalue(1.1 * b / q) < 1e-6
    assert np.max(np.abs(used.mean(axis=0) - b / q)) < 4.5 * math.sqrt(b / q * (1 - b / q) / T)
    correlation = np.corrcoef(used.T) - np.eye(q)
    assert np.max(np.abs(correlation)) < 5 / math.sqrt(T)


def test_draws_do_not_depend_on_how_many_are_made_at_once():
    for sampling in (Fixed(3), Poisson(2)):
        d, rounds = draws(sampling, 50, 40, (1.0, 2.0))
        nodes, ts = np.tile([1, 0], 40), np.repeat(np.array(rounds), 2)
        together = d.records(nodes, ts)
        for pair in range(80):
            assert np.array_equal(together[pair], d.records(nodes[[pair]], ts[[pair]])[0])


def test_poisson_continues_when_the_first_stretch_runs_out(monkeypatch):
    d, _ = draws(Poisson(5), 40, 1)
    expected = [one(d, t) for t in range(1, 60)]
    monkeypatch.setattr(Poisson, "stretch", 1)
    assert all(np.array_equal(one(d, t), e) for t, e in zip(range(1, 60), expected, strict=True))


def test_poisson_with_every_record_and_full_agree():
    d, _ = draws(Poisson(7), 7, 1)
    assert np.array_equal(one(d, 1), np.arange(7))
    assert one(draws(Full(), 7, 1)[0], 1) is None


def test_noise_has_the_scale_of_the_event_and_no_other():
    """The σ that is accounted is re-measured from the draws; 3 % more or less would be noticed."""
    sigma = (0.7, 2.5)
    d = Draws(Release(Fixed(1), 1.0, sigma, TRANSCRIPT), Streams(8), np.array([9, 9]), 500)
    for node in (0, 1):
        sample = np.concatenate([d.noise(np.array([node]), np.array([t]))[0] for t in range(1, 401)])
        event = d.release.event(node, 9, 400)
        assert stats.kstest(sample / event.sigma, "norm").pvalue > 1e-3
        assert stats.kstest(sample / (1.03 * event.sigma), "norm").pvalue < 1e-4


def test_event_carries_the_fields_of_the_draws():
    release = Release(Poisson(8), 2.0, (0.5, 1.5), TRANSCRIPT)
    event = release.event(1, 400, 77)
    assert (event.sampling, event.records, event.batch, event.rounds) == ("poisson", 400, 8, 77)
    assert event.rate == 8 / 400 and event.noise_multiplier == pytest.approx(1.5 * 8 / 2.0)
    assert Release(Fixed(8), 2.0, (1.5,), TRANSCRIPT).event(0, 400, 1).noise_multiplier == pytest.approx(1.5 * 8 / 4.0)
    full = Release(Full(), 2.0, (1.5,), TRANSCRIPT).event(0, 400, 1)
    assert full.rate == 1.0 and full.noise_multiplier == pytest.approx(1.5 * 400 / 4.0)


def test_no_noise_is_said_and_drawn():
    release = Release(Fixed(1), 1.0, (0.0, 0.0), TRANSCRIPT)
    assert not release.noise(Streams(1), np.array([0, 1]), 1, 5).any()


@pytest.mark.parametrize("name", ADVERSARIES)
def test_only_the_transcript_adversary_can_be_run(name):
    row = ADVERSARIES.read(name)
    if row.name == "transcript":
        check_runnable(row)
    else:
        with pytest.raises(PrivacyError, match=f"'{row.name}' only"):
            check_runnable(row)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: SAMPLINGS.read("shuffle(3)"), SpecError, "no sampling 'shuffle'"),
        (lambda: SAMPLINGS.read("fixed(1,2,3)"), SpecError, "malformed"),
        (lambda: SAMPLINGS.read("poisson(0)"), SpecError, "at least 1"),
        (lambda: Fixed(9).batch(4), SpecError, "9 records needs nodes with at least as many, but one has 4"),
        (lambda: ADVERSARIES.read("nobody"), PrivacyError, "no adversary 'nobody'"),
        (lambda: Release(Fixed(1), math.inf, (1.0,), TRANSCRIPT), PrivacyError, "give a clip"),
        (lambda: Release(Fixed(1), 1.0, (-1.0,), TRANSCRIPT), PrivacyError, "not negative"),
        (lambda: Theorem1(1.5, 0.01, 0.1, 1.0, 10, 10), PrivacyError, r"epsilon in \(0, 1\]"),
        (lambda: Theorem1(0.5, 0.0, 0.1, 1.0, 10, 10), PrivacyError, r"delta0 in \(0, 1\]"),
        (lambda: SAMPLINGS.read("fixed(two)"), SpecError, "not a number"),
        (lambda: parse("(2)"), SpecError, "not a choice"),
    ],
)
def test_bad_choices_are_one_sentence(build, error, words):
    with pytest.raises(error, match=words):
        build()


# The audit's table of Theorem 1 in the paper's experiments: q, ι, T, ε -> σ/L, T_min/T
PAPER = [
    (20000, 0.1, 600000, 0.2, 0.2522, 3.33e3),
    (20000, 0.1, 600000, 1.0, 0.0504, 8.33e4),
    (20000, 0.2, 300000, 0.6, 0.1189, 1.5e4),
    (20000, 1.0, 60000, 0.2, 0.7974, 333),
    (33869, 0.1, 1016070, 1.0, 0.0388, 1.41e5),
    (33869, 1.0, 101607, 0.4, 0.3064, 2.26e3),
]


@pytest.mark.parametrize(("q", "iota", "T", "epsilon", "sigma", "ratio"), PAPER)
def test_theorem1_at_the_papers_sizes(q, iota, T, epsilon, sigma, ratio):
    claim = Theorem1(epsilon, 0.01, iota, 1.0, q, T)
    assert claim.sigma == pytest.approx(sigma, abs=6e-5)
    assert claim.rounds_needed / T == pytest.approx(ratio, rel=5e-3)
    assert not claim.rounds_condition() and claim.noise_condition(claim.sigma)
    assert not claim.noise_condition(0.999 * claim.sigma)


def test_the_papers_own_proof():
    """AUDIT A.2: 1.62ε + ε² without the slip, at most 0.925 at ε = 1 with 160, and a δ next to one in either case."""
    claim = Theorem1(1.0, 0.01, 0.1, 1.0, 20000, 600_000)
    epsilon, delta = claim.proof_as_printed()
    assert epsilon == pytest.approx(math.sqrt(0.6) + 0.2) and epsilon <= 1 and delta == 1.0
    assert claim.proof_corrected(32)[0] == pytest.approx(2.62, abs=5e-3)
    assert claim.proof_corrected(160) == (pytest.approx(0.925, abs=1e-3), pytest.approx(0.464, abs=1e-3))
    small = Theorem1(0.2, 0.01, 0.1, 1.0, 20000, 600_000)
    assert small.proof_corrected(32)[0] == pytest.approx(0.364, abs=1e-3)
    assert small.proof_corrected(160)[1] == pytest.approx(0.116, abs=1e-3)


def test_theorem1_conditions_can_hold():
    claim = Theorem1(0.5, 0.01, 1.0, 1.0, 20, 10**6)
    assert claim.rounds_condition()
    assert claim.spent(10**6) == pytest.approx(math.sqrt(0.6) * 0.5 + 0.2 * 0.25)
    assert claim.spent(1000) < claim.spent(2000)


@given(st.sampled_from(["l2", "edges"]), st.lists(st.floats(1e-9, 1e9) | st.integers(0, 99), max_size=3))
def test_notation_round_trip(name, numbers):
    text = write(name, *numbers)
    assert parse(text)[:2] == (name, tuple(numbers))
    if numbers:
        assert parse(text.replace("(", ":").rstrip(")"))[:2] == (name, tuple(numbers))
