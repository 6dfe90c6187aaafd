"""The accountant against published values, other people's code, quadrature, and its own properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import fixed, full, laplace, poisson
from scipy import stats
from scipy.integrate import quad
from scipy.signal import lfilter
from scipy.special import ndtr

from sottovoce.errors import PrivacyError
from sottovoce.privacy import composition as pld
from sottovoce.privacy import profiles
from sottovoce.privacy.accounting import (
    Account,
    account,
    delta,
    epsilon,
    epsilon_lower,
    epsilon_rdp,
    merge,
    tradeoff,
    whole,
)
from sottovoce.privacy.composition import Cells, Part, _decaying, _log_size, _rises, compose, moments
from sottovoce.privacy.profiles import LaplacePair, PoissonPair, RealizedPair
from sottovoce.privacy.release import Release, Transcript
from sottovoce.privacy.sampling import Fixed
from sottovoce.privacy.theorem1 import Theorem1

FEW_EXAMPLES = settings(max_examples=12, deadline=None)
POINTS = 1 << 24
"""Grid points that one account may transform: four times as many as the largest here, about a second."""
REFERENCE = [
    (full(1.0, 1), 1e-5, 4.377, 1e-3),
    (full(10.0, 100), 1e-5, 4.377, 1e-3),
    (fixed(0.01, 1.0, 1000), 1e-5, 2.199, 5e-3),
    (fixed(1 / 20000, 0.45, 60000), 1e-5, 2.219, 5e-3),
    (fixed(1 / 20000, 0.557, 60000), 1e-6, 0.805, 1e-2),
    (fixed(5e-5, 0.5, 600000), 1e-5, 2.071, 5e-3),
    (fixed(5e-5, 1.0, 600000), 1e-5, 0.2176, 1e-2),
    (fixed(5e-5, 2.0, 600000), 1e-5, 0.0727, 1e-2),
    (fixed(5e-5, 1.0, 3000000, 0.2), 1e-5, 0.2177, 1e-2),
    (fixed(1 / 20000, 1.010 / 2, 60000), 1e-5, 0.990, 1e-2),
    # 0.066 on a grid of 1e-4; a plain convolution on 2²³ points gives 0.0617
    (fixed(1 / 20000, 1.0, 60000), 1e-5, 0.06171, 2e-3),
]


@pytest.fixture
def transformed(monkeypatch):
    """The sizes of all Fourier transforms from now on: the work of an account."""
    sizes = []
    rfft, irfft = pld.scipy.fft.rfft, pld.scipy.fft.irfft

    def forward(x, **how):
        sizes.append(len(x))
        return rfft(x, **how)

    def backward(x, size):
        sizes.append(size)
        return irfft(x, size)

    monkeypatch.setattr(pld.scipy.fft, "rfft", forward)
    monkeypatch.setattr(pld.scipy.fft, "irfft", backward)
    return sizes


@pytest.mark.parametrize(("mechanism", "at", "value", "within"), REFERENCE)
def test_reference_values_on_grids_of_bounded_size(mechanism, at, value, within, transformed):
    assert epsilon([mechanism], at) == pytest.approx(value, rel=within)
    assert sum(transformed) <= POINTS


@pytest.mark.parametrize(("mechanism", "at", "value", "within"), REFERENCE[2:8])
@pytest.mark.parametrize("change", [{"rate": 0.5}, {"rate": 2.0}, {"multiplier": 2.0}, {"multiplier": 0.5}])
def test_a_wrong_rate_or_sensitivity_would_be_noticed(mechanism, at, value, within, change):
    """Mutations: γ off by 2, sensitivity halved or doubled. Where privacy is overstated the realized pair objects."""
    wrong = fixed(
        mechanism.pair.rate * change.get("rate", 1),
        mechanism.pair.multiplier * change.get("multiplier", 1),
        mechanism.count,
    )
    mutant = epsilon([wrong], at)
    assert mutant != pytest.approx(value, rel=10 * within)
    if change in ({"rate": 0.5}, {"multiplier": 2.0}):
        assert mutant < epsilon_lower([mechanism], at)


@pytest.mark.parametrize(
    ("rate", "z", "rounds", "at", "value"), [(0.01, 1.0, 1000, 1e-5, 1.828), (0.001, 0.8, 10000, 1e-6, 0.947)]
)
def test_realised_pair_is_poisson_add_or_remove(rate, z, rounds, at, value):
    assert epsilon_lower([fixed(rate, z, rounds)], at) == pytest.approx(value, rel=3e-3)


# epsilon: q = 20000; rcv1: q = 33869; (q, ι, claimed ε, hidden low, hidden high, visible low, visible high), δ = 1e-5
THEOREM1 = [
    (20000, 0.1, 0.2, 270, 273, 297, 300),
    (20000, 0.1, 1.0, 10054, 10057, 10084, 10087),
    (20000, 0.2, 0.6, 1690, 1693, 1711, 1714),
    (20000, 1.0, 0.2, 4.12, 4.17, 4.12, 4.17),
    (20000, 1.0, 0.4, 70.6, 72.5, 70.6, 72.5),
    (20000, 1.0, 1.0, 901, 904, 901, 904),
    (33869, 0.1, 1.0, 17135, 17138, 17165, 17168),
    (33869, 1.0, 0.2, 11.05, 11.3, 11.05, 11.3),
]


@pytest.mark.parametrize(("q", "iota", "claimed", "hidden_low", "hidden_high", "low", "high"), THEOREM1)
def test_what_theorem1_really_gives(q, iota, claimed, hidden_low, hidden_high, low, high, transformed):
    rounds = round(3 * q / iota)
    z = Theorem1(claimed, 0.01, iota, 1.0, q, rounds).sigma / 2
    seen = account([fixed(1 / q, z, rounds, iota)], 1e-5)
    assert sum(transformed) <= POINTS
    assert seen.epsilon == pytest.approx(high, rel=4e-3)
    assert epsilon_lower([fixed(1 / q, z, 3 * q)], 1e-5) == pytest.approx(low, rel=4e-3)
    hidden = [fixed(iota / q, z, rounds)]
    assert epsilon(hidden, 1e-5) == pytest.approx(hidden_high, rel=4e-3)
    assert epsilon_lower(hidden, 1e-5) == pytest.approx(hidden_low, rel=4e-3)


def sym_profile(e, rate, z):
    """γ δ_Gauss(ε') and its mirror image, written out with the normal distribution function."""
    if e < 0:
        return 1 - math.exp(e) + math.exp(e) * sym_profile(-e, rate, z)
    inner = math.log1p(math.expm1(e) / rate)
    return rate * (ndtr(0.5 / z - inner * z) - math.exp(inner) * ndtr(-0.5 / z - inner * z))


def twice_fixed(e, rate, z):
    """δ of two rounds: ∫ δ(ε − ℓ) dP(ℓ), over the positive losses, their mirror image and the atom at 0."""
    start, end = 0.5 / z, 0.5 / z + 12 + 1 / z

    def density(x):
        loss = math.log(1 - rate + rate * math.exp(x / z - 0.5 / z**2))
        p = (1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x - 1 / z)
        return loss, p

    def integrand(x):
        loss, p = density(x)
        return p * (sym_profile(e - loss, rate, z) + math.exp(-loss) * sym_profile(e + loss, rate, z))

    atom = 1 - quad(lambda x: density(x)[1] * (1 + math.exp(-density(x)[0])), start, end, epsabs=1e-14)[0]
    points = [x for x in (start + 0.5, start + 2) if x < end]
    return quad(integrand, start, end, epsabs=1e-14, limit=400, points=points)[0] + atom * sym_profile(e, rate, z)


@pytest.mark.parametrize(("rate", "z"), [(0.1, 0.7), (0.02, 1.5), (0.5, 0.4)])
def test_upper_bound_is_one_and_is_tight_against_quadrature(rate, z):
    for e in (0.05, 0.3, 1.0, 2.5):
        for rounds, truth in ((1, sym_profile(e, rate, z)), (2, twice_fixed(e, rate, z))):
            if truth > 1e-9:
                found = delta([fixed(rate, z, rounds)], e)
                assert truth * (1 - 1e-7) <= found <= truth * 1.01
                low = epsilon_lower([fixed(rate, z, rounds)], truth)
                assert low <= e * (1 + 1e-6) <= epsilon([fixed(rate, z, rounds)], truth) * (1 + 2e-6)


def test_poisson_profile_against_its_integral():
    x = np.linspace(-40, 40, 400001)
    for rate, z in ((0.1, 0.7), (0.01, 2.0), (0.6, 0.3)):
        p, q = ((1 - rate) * stats.norm.pdf(x, 0, z) + rate * stats.norm.pdf(x, s, z) for s in (1, -1))
        for e in (0.0, 0.1, 1.0):
            direct = np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x)
            assert PoissonPair(z, rate).delta(e)[0] == pytest.approx(direct, rel=1e-5, abs=1e-12)
            assert delta([poisson(rate, z, 1)], e) >= direct * (1 - 1e-5)


def test_a_monte_carlo_of_three_rounds_agrees():
    """δ(ε) = E[(1 − e^{ε−L})₊] with L drawn from the mechanism itself (the realized pair)."""
    rate, z, rounds, e = 0.2, 0.6, 3, 0.5
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400000, rounds)) + (rng.random((400000, rounds)) < rate) / z
    losses = np.log(1 - rate + rate * np.exp(x / z - 0.5 / z**2)).sum(axis=1)
    draws = np.maximum(-np.expm1(e - losses), 0)
    truth, error = draws.mean(), 4 * draws.std() / math.sqrt(len(draws))
    mechanism = [fixed(rate, z, rounds)]
    assert delta(mechanism, e) >= truth - error
    assert epsilon_lower(mechanism, truth + error) <= e <= epsilon_lower(mechanism, truth - error) * 1.01


MECHANISMS = st.builds(
    lambda kind, rate, z, rounds: kind(rate, z, rounds),
    st.sampled_from([fixed, poisson]),
    st.floats(-4, -0.1).map(lambda v: 10.0**v),
    st.floats(-0.6, 1.0).map(lambda v: 10.0**v),
    st.floats(0, 4).map(lambda v: int(10.0**v)),
)


@FEW_EXAMPLES
@given(MECHANISMS, st.sampled_from([1e-7, 1e-5, 1e-3]))
def test_lower_upper_and_renyi_are_in_order(mechanism, at):
    found = account([mechanism], at)
    assert found.epsilon_lower <= found.epsilon * (1 + 1e-9) <= found.epsilon_rdp * (1 + 1e-6)
    # `account` takes the smaller of two upper bounds; the composed distribution must be the smaller one by itself
    if 0.05 < found.epsilon < 1e4 and not mechanism.gaussian:
        composed, log = whole(merge([mechanism])), math.log(at)
        about = moments(composed, log, found.epsilon)
        value = compose(composed, about, (found.epsilon, log), 2**18).epsilon(at)
        assert value <= found.epsilon_rdp * (1 + 1e-2)
    if isinstance(mechanism.pair, PoissonPair) and found.epsilon > 1e-3:
        assert found.epsilon_lower == pytest.approx(found.epsilon, rel=1e-2)


@FEW_EXAMPLES
@given(MECHANISMS)
def test_more_of_anything_costs_more(mechanism):
    grid = 1 + 4e-3  # two grids may differ by this
    base = epsilon([mechanism], 1e-5)
    k, r, z, n = type(mechanism.pair), mechanism.pair.rate, mechanism.pair.multiplier, mechanism.count
    assert epsilon([Part(k(z, r), 2 * n)], 1e-5) * grid >= base
    assert epsilon([Part(k(0.8 * z, r), n)], 1e-5) * grid >= base
    assert epsilon([Part(k(z, min(1.3 * r, 1.0)), n)], 1e-5) * grid >= base
    assert epsilon([mechanism], 1e-6) * grid >= base


@pytest.mark.parametrize(
    ("z", "at", "within"),
    [(0.632, 0.2, 0.20), (0.564, 0.4, 0.05), (0.55, 0.49, 0.04), (0.537, 0.6, 0.04), (0.505, 1, 0.04)],
)
def test_the_truth_is_known_to_a_few_percent(z, at, within):
    found = account([fixed(1 / 20000, z, 60000)], 1e-5)
    assert found.epsilon == pytest.approx(at, rel=0.02)
    assert found.epsilon * (1 - within) <= found.epsilon_lower <= found.epsilon


def test_mixture_is_conditioning_on_how_often():
    rate, z, rounds, p = 0.1, 0.8, 20, 0.3
    for e in (0.1, 0.5, 1.5):
        mean = sum(stats.binom.pmf(k, rounds, p) * delta([fixed(rate, z, k)], e) for k in range(rounds + 1))
        assert delta([fixed(rate, z, rounds, p)], e) == pytest.approx(mean, rel=5e-3)


def test_parts_make_a_whole_in_any_order():
    part = fixed(0.01, 1.0, 250)
    assert epsilon([part] * 4, 1e-5) == epsilon([fixed(0.01, 1.0, 1000)], 1e-5)
    mixed = [
        part,
        poisson(0.02, 2.0, 300),
        full(20.0, 9),
        laplace(40.0, 5),
    ]
    assert epsilon(mixed, 1e-5) == epsilon(mixed[::-1], 1e-5)
    assert epsilon(mixed, 1e-5) > max(epsilon([m], 1e-5) for m in mixed)
    assert epsilon_lower(mixed, 1e-5) <= epsilon(mixed, 1e-5) <= epsilon_rdp(mixed, 1e-5)
    # nearly equal parts are composed one by one, and must come to the same
    split = [part, fixed(0.01, 1.0 + 1e-9, 750)]
    assert epsilon(split, 1e-5) == pytest.approx(epsilon([part] * 4, 1e-5), rel=1e-6)


def test_full_batches_follow_the_formula_and_so_do_rates_near_one():
    exact = epsilon([full(5.0, 7), fixed(1.0, 5.0, 3)], 1e-5)
    assert exact == profiles.gaussian_epsilon(1e-5, 5.0 / math.sqrt(10)) == epsilon_lower([full(5.0, 10)], 1e-5)
    assert epsilon([fixed(1 - 1e-12, 5.0, 10)], 1e-5) == pytest.approx(exact, rel=1e-3)
    assert epsilon([poisson(1.0, 10.0, 10)], 1e-5) == pytest.approx(exact, rel=1e-9)


def test_laplace_is_never_worse_than_the_sum_and_composes():
    assert epsilon([laplace(2.0, 3)], 1e-300) <= 1.5
    assert delta([laplace(2.0, 3)], 1.5) == 0
    many = account([laplace(10.0, 100)], 1e-5)
    assert many.epsilon_lower == pytest.approx(4.2203, rel=1e-3) and 4.22 < many.epsilon < 4.4


def test_extremes_are_finite_on_grids_of_bounded_size(transformed):
    for mechanism in (
        fixed(1e-6, 0.02, 3000000),
        fixed(0.5, 100.0, 3000000),
        poisson(0.3, 5.0, 1000000),
        fixed(1e-6, 100.0, 3000000),
        fixed(0.9, 0.02, 300),
    ):
        transformed.clear()
        found = account([mechanism], 1e-6)
        assert sum(transformed) <= POINTS and math.isfinite(found.epsilon)
        assert 0.99 * found.epsilon <= found.epsilon_lower <= found.epsilon <= found.epsilon_rdp


@pytest.mark.parametrize(
    ("mechanisms", "at"),
    [
        # each of these once had a lower bound over the upper one, or none
        ([poisson(0.3113, 0.0762, 83529)], 7.8e-8),
        ([fixed(5e-5, 0.557, 60000)], 1e-6),
        ([full(5.0, 1000, 0.3)], 1e-5),
        ([full(0.318, 129465), fixed(0.0008, 14.1, 291)], 1.2e-6),
        # rare huge losses that δ absorbs must not blow up the window
        ([poisson(2.71e-6, 0.0338, 28), fixed(0.00869, 9.43, 201)], 1.77e-3),
    ],
)
def test_awkward_compositions_stay_in_order(mechanisms, at):
    found = account(mechanisms, at)
    assert 0.89 * found.epsilon <= found.epsilon_lower <= found.epsilon <= found.epsilon_rdp
    assert found.error < 5e-3


def test_a_finer_grid_changes_nothing_that_matters(monkeypatch):
    mechanism = [fixed(5e-5, 0.5, 600000)]
    rough, lower = epsilon(mechanism, 1e-5), epsilon_lower(mechanism, 1e-5)
    monkeypatch.setattr("sottovoce.privacy.accounting._STILL", 0.0)
    assert rough == pytest.approx(epsilon(mechanism, 1e-5), rel=5e-3)
    assert rough >= epsilon(mechanism, 1e-5) and lower <= epsilon_lower(mechanism, 1e-5) * (1 + 1e-6)


def test_tradeoff_bounds_the_best_attack():
    gauss = [full(2.0, 4)]
    near = [fixed(1 - 1e-9, 2.0, 4)]
    for fpr in (1e-4, 0.01, 0.3):
        best = stats.norm.cdf(1.0 + stats.norm.ppf(fpr))
        assert tradeoff(gauss, fpr) == pytest.approx(best, rel=1e-9)
        assert best * (1 - 1e-6) <= tradeoff(near, fpr) <= best * 1.02
    assert tradeoff([fixed(5e-5, 0.0252, 60000)], 1e-9) > 0.9
    assert tradeoff([], 0.1) == 0.1 and tradeoff([full(0.0, 1)], 0.1) == 1.0
    with pytest.raises(PrivacyError, match="probability"):
        tradeoff(gauss, 1.5)


def test_nothing_spoken_costs_nothing_and_no_noise_costs_everything():
    assert account([fixed(0.1, 1.0, 0)], 1e-5) == Account(0.0, 0.0, 0.0, 1e-5, 0.0)
    assert account([], 1e-5).epsilon == 0 and delta([], 1.0) == 0
    bare = account([fixed(0.1, 0.0, 1)], 1e-5)
    assert bare.epsilon == bare.epsilon_lower == bare.epsilon_rdp == math.inf
    assert delta([fixed(0.1, 0.0, 1)], 5.0) == 1.0


def test_an_event_is_accounted_with_its_own_numbers():
    event = Release(Fixed(4), 2.0, (0.5,), Transcript()).event(0, 400, 77)
    assert event.part == fixed(0.01, 0.5, 77)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0.0, 1.0, 1), "rate"),
        ((1.5, 1.0, 1), "rate"),
        ((0.1, -1.0, 1), "multiplier"),
        ((0.1, math.inf, 1), "multiplier"),
        ((0.1, math.nan, 1), "multiplier"),
        ((0.1, 1.0, -1), "rounds"),
        ((0.1, 1.0, 1.5), "rounds"),
        ((0.1, 1.0, 1, 0.0), "activity"),
    ],
)
def test_what_is_not_known_is_an_error(arguments, word):
    for kind in (fixed, poisson):
        with pytest.raises(PrivacyError, match=word):
            kind(*arguments)


def test_a_delta_or_an_epsilon_out_of_range_is_an_error():
    for bad in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(PrivacyError, match="delta"):
            epsilon([fixed(0.1, 1.0, 1)], bad)
    with pytest.raises(PrivacyError, match="epsilon"):
        delta([fixed(0.1, 1.0, 1)], -1.0)


@pytest.mark.parametrize("pair", [RealizedPair(1.0, 0.01), PoissonPair(1.0, 0.01), LaplacePair(2.0)])
@pytest.mark.parametrize("step", [1e-2, 1e-3])
def test_the_lower_grid_is_a_pair_under_the_curve(pair, step):
    loss = pld.optimistic(pair, step, math.ceil(3.5 / step))
    masses = loss.masses.copy()
    masses[-loss.low] = 1 - masses.sum()
    at = loss.shift + step * (loss.low + np.arange(len(masses)))
    assert masses.min() >= 0 and masses @ np.exp(-at) == pytest.approx(1.0, abs=1e-9)
    for e in np.linspace(-0.3, 2.0, 47):
        assert masses @ np.maximum(-np.expm1(e - at), 0) <= pair.delta(e)[0] + 1e-12


def test_agrees_with_dp_accounting():
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    def theirs(relation, rate, z, rounds, at):
        accountant = PLDAccountant(getattr(dpa.NeighboringRelation, relation), value_discretization_interval=1e-4)
        event = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(z))
        return accountant.compose(dpa.SelfComposedDpEvent(event, rounds)).get_epsilon(at)

    for rate, z, rounds in ((0.01, 1.0, 1000), (0.1, 2.0, 200), (0.003, 0.6, 2000)):
        independent, sized = poisson(rate, z, rounds), fixed(rate, z, rounds)
        assert epsilon([independent], 1e-5) == pytest.approx(theirs("REPLACE_ONE", rate, z, rounds, 1e-5), rel=2e-3)
        add_remove = theirs("ADD_OR_REMOVE_ONE", rate, z, rounds, 1e-5)
        assert epsilon_lower([sized], 1e-5) == pytest.approx(add_remove, rel=3e-3)
    # the stock bound for sampling without replacement is valid, and looser than ours by the same route
    stock = RdpAccountant(neighboring_relation=dpa.NeighboringRelation.REPLACE_ONE)
    event = dpa.SampledWithoutReplacementDpEvent(20000, 1, dpa.GaussianDpEvent(0.45))
    bound = stock.compose(dpa.SelfComposedDpEvent(event, 60000)).get_epsilon(1e-5)
    ours = account([fixed(1 / 20000, 0.45, 60000)], 1e-5)
    assert bound == pytest.approx(4.885, rel=1e-3) and ours.epsilon < ours.epsilon_rdp < bound


@pytest.mark.parametrize("multiplier", [1e-12, 1e-6, 2e-5, 1e-3])
def test_noise_that_is_next_to_none_is_no_traceback(multiplier):
    found = account([fixed(0.01, multiplier, 10)], 1e-5)
    assert found.epsilon_lower <= found.epsilon and found.epsilon > 1e4


def test_the_paper_s_extremes_need_grids_of_bounded_size(transformed):
    for mechanism in (
        fixed(1 / 20000, 0.45, 60_000),
        fixed(5e-5, 0.5, 600_000),
        fixed(1 / 20000, 0.0252, 600_000, activity=0.1),
        fixed(1e-6, 0.3, 1_000_000),
        poisson(0.5, 30.0, 1_000_000),
    ):
        transformed.clear()
        account([mechanism], 1e-5)
        assert 0 < sum(transformed) <= POINTS


@pytest.mark.parametrize("fall", [0.0, 1e-300, 0.3, 1.0 - 1e-6, 1.0])
def test_decaying_sums_are_a_linear_filter(fall):
    rng = np.random.default_rng(0)
    masses = np.exp(rng.uniform(-700.0, 0.0, 20_000))
    kept = masses.copy()
    assert np.allclose(_decaying(fall, masses), lfilter([fall], [1.0, -fall], masses), rtol=1e-12, atol=0.0)
    assert np.array_equal(masses, kept)
    assert _decaying(fall, masses[:1]) == fall * masses[0]


@pytest.mark.parametrize(
    "parts",
    [
        [poisson(0.0063, 0.0797, 7560), full(1.136, 921_708)],
        [fixed(0.9999998855, 0.03, 4301)],
        [full(4.5e-05, 1634), poisson(0.999999999999, 1.8e-05, 160_943)],
    ],
)
def test_losses_over_every_grid_are_reported_and_no_number_is_nan(parts):
    """Such rounds promise nothing at any ε that is requested; what is said of them is still a bound."""
    assert delta(parts, 0.0) == delta(parts, 1e4) == 1.0
    above, below = epsilon(parts, 1e-9), epsilon_lower(parts, 1e-9)
    assert above > 1e5 and 0 <= below <= above


def test_moments_of_small_orders_are_those_of_all_orders():
    rng = np.random.default_rng(1)
    losses = np.sort(rng.uniform(1e-6, 6.0, 300))
    masses = rng.uniform(0.0, 1e-3, 300)
    orders = np.geomspace(1e-10, 50.0, 200)
    exact = np.float128 if hasattr(np, "float128") else np.float64
    t, p, at = losses.astype(exact), masses.astype(exact), orders.astype(exact)[:, None]
    mirror = p * np.exp(-t)
    above = (np.expm1(at * t) * p + np.expm1(-at * t) * mirror).sum(axis=1)
    below = (np.expm1(-at * t) * p + np.expm1(at * t) * mirror).sum(axis=1)
    found = _rises(orders, Cells(losses, masses, 0.0))
    assert np.allclose(found[0], above.astype(float), rtol=1e-11, atol=0.0)
    assert np.allclose(found[1], below.astype(float), rtol=1e-11, atol=0.0)


def test_sizes_of_one_plus_a_wave_keep_what_is_small_and_what_nearly_cancels():
    rng = np.random.default_rng(2)
    turns = np.exp(2j * np.pi * rng.uniform(size=6000))
    w = np.exp(rng.uniform(-40.0, 3.0, 6000)) * turns
    w[5000:] = -1.0 + 10.0 ** rng.uniform(-9.0, -1.0, 1000) * turns[5000:]
    x, y, tiny = w.real.astype(np.longdouble), w.imag.astype(np.longdouble), np.abs(w) < 1e-3
    true = np.where(tiny, np.log1p(np.where(tiny, x * (2 + x) + y * y, 0)) / 2, np.log(np.hypot(1 + x, y)))
    # a relative error where w is small, since rounds are many; elsewhere no more than that of 1 + w
    slip = 4.0 * np.finfo(float).eps * np.where(tiny, np.abs(w), 1.0 + 1.0 / np.abs(1.0 + w))
    assert np.all(np.abs(_log_size(w) - true.astype(float)) <= slip)
