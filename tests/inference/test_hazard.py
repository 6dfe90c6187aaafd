"""Regression of the hazard: sensitivities of people's sums, links against SciPy, and estimates without noise."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.inference.estimate import MatrixNoise, Pseudo, Settings, solved
from sottovoce.inference.hazard import (
    LINKS,
    Exits,
    Followed,
    PersonCurvature,
    PersonScatter,
    PersonScore,
    basis,
    hazard,
    length_of_rows,
    rounding,
)
from sottovoce.inference.statistics import weighted
from sottovoce.run.inference import driven

K, LONGEST = 3, length_of_rows(2)
ROUND = np.array([[1.5, 0.4, 0.1], [0.4, 2.0, -0.2], [0.0, 0.0, 1.0]])
STEEP = np.array([2.0, -3.0, 0.3, -1.0, 0.5, 0.8])
COUNTED = ["hazard", "odds"]


def parts_of(link, most, theta=STEEP):
    people = Followed(LINKS[link], theta, ROUND, LONGEST, most, K)
    return [PersonScore(people), PersonCurvature(people, 0.5), PersonScatter(people), Exits(K)]


PARTS = [part for link in COUNTED for most in (1.0, 2.5) for part in parts_of(link, most)]
NUMBER = st.floats(-3, 3) | st.sampled_from([-1e200, 1e200, 0.0])
PERSON = st.tuples(NUMBER, NUMBER, st.integers(0, 2 * K + 1))


def rows_of(people):
    """Rows (x, x', 1, 1) with the cell of exit; the last cell is of those who cannot be used."""
    values = np.array(people, dtype=float)
    return weighted(np.concatenate([values[:, :2], np.ones((len(values), 2))], axis=1), values[:, 2], LONGEST)


def drawn(N, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    return rows_of(np.column_stack([spread * rng.normal(size=(N, 2)), rng.integers(0, 2 * K + 1, N)]))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@given(two=st.tuples(PERSON, PERSON))
def test_no_two_people_are_further_apart_than_the_sensitivity(part, two):
    one, other = (part.units(rows_of([person])) for person in two)
    assert np.linalg.norm(one - other) <= part.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("link", COUNTED)
@pytest.mark.parametrize("most", [1.0, 2.5])
def test_sensitivities_hold_on_many_models_and_are_nearly_attained(link, most):
    """The largest distance over many people and models is within the bound and over half of it."""
    rng = np.random.default_rng(0)
    reached = np.zeros(4)
    for _ in range(30):
        theta = rng.normal(size=6) * rng.choice([0.3, 1.0, 3.0])
        for k, part in enumerate(parts_of(link, most, theta)):
            units = part.units(drawn(300, int(rng.integers(1 << 30)), rng.choice([0.5, 3.0])))
            far = scipy.spatial.distance.pdist(units).max() / part.sensitivity
            reached[k] = max(reached[k], far)
    assert np.all(reached <= 1 + 1e-12) and np.all(reached > 0.5), reached


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_fast_sums_are_those_of_the_people_and_each_depends_on_one(part):
    rows = drawn(80, 2)
    units = part.units(rows)
    assert units.shape == (80, part.width)
    assert np.allclose(part.total(rows), units.sum(axis=0), atol=1e-11)
    for k in (0, 33, 79):
        alone = rows._replace(x=rows.x[k : k + 1], y=rows.y[k : k + 1], root=rows.root[k : k + 1], u=rows.u[k : k + 1])
        assert np.array_equal(part.units(alone)[0], units[k])


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_who_cannot_be_used_contributes_zero(part):
    assert not part.units(rows_of([(1.0, 2.0, 2 * K + 1)])).any()


@pytest.mark.parametrize("link", COUNTED)
def test_contributions_are_those_of_person_periods(link):
    """Against a loop over people and intervals, with derivatives of the log-likelihood by differences."""
    people = Followed(LINKS[link], 0.3 * STEEP, ROUND, LONGEST, 1.0, K)
    rows = drawn(40, 3)
    path = people.path(rows, False)
    used = path.rows

    def log_survival(u):
        return -math.exp(u) if link == "hazard" else -math.log1p(math.exp(u))

    def log_hazard(u):
        return math.log(-math.expm1(log_survival(u)))

    for i, cell in enumerate(rows.y.astype(int)):
        left = 1.0
        for k in range(K):
            u = float(used.x[i, :3] @ people.theta[:3] + people.theta[3 + k])
            slope = [(f(u + 1e-5) - f(u - 1e-5)) / 2e-5 for f in (log_hazard, log_survival)]
            rate = -slope[1]
            weight = min(1.0, left / rate)
            left -= weight * rate
            event, censored = cell == k, cell == K + k
            gone = (cell if cell < K else cell - K) < k
            expected = 0.0 if gone else -weight * (slope[0] if event else slope[1] * (0.5 if censored else 1.0))
            assert path.residuals[i, k] == pytest.approx(expected, abs=1e-7)
            chance = math.exp(log_survival(u))
            information = (1 - chance) * slope[0] ** 2 + chance * slope[1] ** 2
            at_risk = 0.0 if gone else weight * (0.5 if censored else 1.0)
            assert path.curvatures[i, k] == pytest.approx(at_risk * information, abs=1e-7)


@pytest.mark.parametrize("link", COUNTED)
def test_links_hold_at_both_ends(link):
    made = LINKS[link]
    u = np.array([-400.0, -40.0, -10.0, -1.0, 0.0, 1.0, 3.0])
    h = made.slope(u, np.zeros_like(u))
    expected = -np.expm1(-np.exp(u)) if link == "hazard" else scipy.special.expit(u)
    assert np.allclose(h, expected, rtol=1e-9, atol=1e-120)
    step = 1e-5
    ahead, behind = made.slope(u + step, 0 * u), made.slope(u - step, 0 * u)
    assert np.allclose(made.curvature(u), (ahead - behind) / (2 * step), atol=1e-8)
    bend = (made.curvature(u + step) - made.curvature(u - step)) / (2 * step)
    assert np.allclose(made.bend(u), bend, atol=1e-8)
    factor = made.at(u)[1]
    assert np.all(factor * (1 - h) <= 1 + 1e-12) and np.all(np.isfinite(factor))
    assert made.score(float(h[3])) == pytest.approx(u[3])


def exits(rng, x, beta, alpha, link):
    cell = np.full(len(x), 2 * K)
    there = np.ones(len(x), dtype=bool)
    for k in range(K):
        u = x @ beta + alpha[k]
        died = there & (rng.random(len(x)) < LINKS[link].slope(u, 0 * u))
        cell[died], there = k, there & ~died
    return cell


@pytest.mark.parametrize("link", COUNTED)
def test_without_noise_it_is_maximum_likelihood(link):
    """Newton's method on person-periods by SciPy; people are followed to the end, so that both use the same."""
    rng = np.random.default_rng(5)
    beta, alpha = np.array([0.8, -0.5]), np.array([-2.5, -2.2, -2.0])
    x = rng.uniform(-1, 1, (6000, 2))
    cell = exits(rng, x, beta, alpha, link)
    rows = weighted(np.concatenate([x, np.ones((6000, 2))], axis=1), cell.astype(float), 3.0)

    def answer(stage):
        return stage.read(stage.total(rows, 1.0) / 6000, 1e-12, 1.0)

    found = driven(hazard(Settings(4, 3.0, 6000), LINKS[link], K, 50.0), answer)
    period = [(i, k, c == k) for i, c in enumerate(cell) for k in range(K) if c >= k]
    i, k, y = (np.array(each) for each in zip(*period, strict=True))
    z = np.concatenate([x[i], np.eye(K)[k]], axis=1)

    def loss(theta):
        u = z @ theta
        if link == "odds":
            return np.sum(np.logaddexp(0, u) - y * u)
        return np.sum(np.where(y, -np.log(-np.expm1(-np.exp(u))), np.exp(u)))

    best = scipy.optimize.minimize(loss, np.append(0 * beta, alpha), method="BFGS", options={"gtol": 1e-4})
    errors = np.sqrt(np.diag(found.covariance))
    assert np.all(np.abs(found.theta - best.x) < 0.05 * errors)
    assert np.allclose(errors, np.sqrt(np.diag(best.hess_inv)), rtol=0.15)
    assert np.all(np.abs(found.theta - np.append(beta, alpha)) < 4.5 * errors)


def test_coordinates_leave_out_what_changes_nothing():
    B, to_time = basis(ROUND, K)
    assert np.allclose(B.T @ B, np.eye(2 + K))
    theta = B @ np.arange(1.0, 6.0)
    raw = to_time @ np.arange(1.0, 6.0)
    x = np.array([0.3, -0.2, 1.0])
    for k in range(K):
        assert (ROUND @ x) @ theta[:3] + theta[3 + k] == pytest.approx(x[:2] @ raw[:2] + raw[2 + k])


def test_rows_are_made_round():
    rng = np.random.default_rng(6)
    x = np.column_stack([rng.multivariate_normal([0.5, -0.3], [[0.3, 0.27], [0.27, 0.3]], 5000), np.ones(5000)])
    made = x @ rounding(x.T @ x / 5000, 0.0).T
    assert np.allclose(made[:, :2].mean(axis=0), 0, atol=1e-9) and np.all(made[:, 2] == 1)
    assert np.allclose(np.cov(made[:, :2].T), np.eye(2) / 3, atol=1e-3)


def test_the_noise_of_a_matrix_with_known_entries():
    """E (BᵀeB d)(BᵀeB d)ᵀ by 20,000 draws, which know each entry to 3 % of the largest."""
    rng = np.random.default_rng(7)
    profile = MatrixNoise.whole(1.0, 5).profile
    profile[3:, 3:] = np.eye(2)
    B = np.linalg.qr(rng.normal(size=(5, 4)))[0]
    d, noise = rng.normal(size=4), MatrixNoise(0.7, profile, B)
    draws = 0.7 * rng.normal(size=(20_000, 5, 5)) * np.sqrt(profile)
    e = np.triu(draws) + np.transpose(np.triu(draws, 1), (0, 2, 1))
    moved = np.einsum("ji,njk,kl,l->ni", B, e, B, d)
    expected = noise.of(np.outer(d, d))
    assert np.allclose(moved.T @ moved / 20_000, expected, atol=0.06 * np.abs(expected).max())
    largest = np.quantile(np.abs(np.linalg.eigvalsh(e)).max(axis=1), 0.5)
    assert 0.7 * noise.level < largest < 1.3 * noise.level
    assert MatrixNoise.whole(0.7, 9).level == pytest.approx(0.7 * math.sqrt(18))


@pytest.mark.parametrize("link", COUNTED)
def test_the_score_of_pseudo_rows_is_solved_from_far(link):
    """Newton's method alone runs away where hazards reach 1: it left slopes of 0.1 in several of these problems."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.concatenate([np.column_stack([rng.normal(size=100), np.tile(np.eye(4)[k], (100, 1))]) for k in range(4)])
        weight = np.repeat(rng.uniform(0.02, 1, 4), 100) / 100
        theta, goal = rng.uniform(-4, 0, 5), rng.uniform(-4, 2.5, 5)
        theta[0], goal[0] = rng.normal(size=2)

        def h(at, x=x):
            return LINKS[link].slope(x @ at, np.zeros(len(x)))

        score = (weight * (h(theta) - h(goal))) @ x
        change = solved(LINKS[link], Pseudo(x, weight), 1e-4, theta, score)
        assert np.abs((weight * (h(theta + change) - h(goal))) @ x + 1e-4 * change).max() < 1e-4
