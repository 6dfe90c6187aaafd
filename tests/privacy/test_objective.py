"""The cost of a perturbed objective, against the true laws of its minimizer in one and two dimensions."""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtr

from sottovoce.errors import PrivacyError
from sottovoce.privacy import objective
from sottovoce.privacy.accounting import compute_epsilon, risk
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.composite_events import ObjectiveEvent, read_event
from sottovoce.privacy.events import FullEvent
from sottovoce.privacy.profiles import gaussian_delta


def log_density(theta, X, y, mu, s):
    """log of the density of argmin Σ log(1 + e^{−y⟨c, θ⟩}) + (Nμ/2)|θ|² + ⟨B, θ⟩ at the rows of theta."""
    margins = theta @ X.T
    slopes = -y * expit(-y * margins)
    B = -slopes @ X - len(y) * mu * theta
    curvature = expit(margins) * expit(-margins)
    hessian = np.einsum("ti,ij,ik->tjk", curvature, X, X) + len(y) * mu * np.eye(X.shape[1])
    return (
        np.linalg.slogdet(hessian)[1]
        - np.sum(B**2, axis=1) / (2 * s**2)
        - X.shape[1] * math.log(s * math.sqrt(2 * math.pi))
    )


def neighbors(m, kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3, m))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.array([1.0, -1.0, 1.0])
    Z, w = X.copy(), y.copy()
    if kind == "label":
        w[0] = -1.0
    else:
        Z[0] = np.roll(-X[0], 1)
    return (X, y), (Z, w)


@pytest.mark.parametrize("kind", ["label", "row"])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize(("mu", "s"), [(1.0, 3.0), (0.2, 1.5)])
def test_no_pair_of_neighbours_costs_more(m, mu, s, kind):
    one, other = neighbors(m, kind)
    half = {1: np.linspace(-25, 25, 20_001), 2: np.linspace(-18, 18, 501)}[m] / (1 if mu == 1.0 else 0.6)
    grid = np.stack(np.meshgrid(*[half] * m), axis=-1).reshape(-1, m)
    cell = (half[1] - half[0]) ** m
    extra = math.log1p(0.25 / (3 * mu))
    rho = 2.0 / s
    laws = [np.exp(log_density(grid, X, y, mu, s)) * cell for X, y in (one, other)]
    assert all(law.sum() == pytest.approx(1, abs=1e-3) for law in laws)
    for own in (STEP * rho + rho**2 / 2 for STEP in (1.75, 2.5, 3.2)):
        claimed = 2 * gaussian_delta(own, 1 / rho)
        for p, q in (laws, laws[::-1]):
            assert np.sum(np.maximum(p - math.exp(extra + own) * q, 0)) <= claimed * (1 + 1e-6)


def test_without_the_extra_it_would_be_wrong():
    """A record with a large curvature at a small Λ: the determinant is really part of the cost."""
    X, y = np.array([[1.0]]), np.array([1.0])
    grid = np.linspace(-4000, 4000, 400_001)[:, None]
    mu, s = 0.02, 20.0
    p, q = (log_density(grid, *data, mu, s) for data in ((X, y), (0.05 * X, y)))
    loss = np.max((p - q)[np.abs(grid[:, 0]) < 1])
    noise_alone = compute_epsilon([ObjectiveEvent(1, 1, 1.0, s, 1, extra=1e-9)], 1e-5).epsilon
    assert noise_alone < loss < math.log1p(0.25 / mu) + noise_alone


def test_the_tail_of_two_correlated_normals_is_that_of_one():
    """Step 3: P(|u| + |v| > t) ≤ 2Φ(−t/2) for t ≥ 2√3, whatever the correlation; not for all t."""
    rng = np.random.default_rng(0)
    u, w = rng.normal(size=(2, 400_000))
    for r in (-1.0, -0.7, 0.0, 0.5, 0.95, 1.0):
        both = np.abs(u) + np.abs(r * u + math.sqrt(1 - r * r) * w)
        for t in (2 * math.sqrt(3), 4.5):
            assert np.mean(both > t) <= 2 * ndtr(-t / 2) + 4 / math.sqrt(400_000) * math.sqrt(2 * ndtr(-t / 2))
    assert np.mean(np.abs(u) + np.abs(w) > 1.0) > 2 * ndtr(-0.5)


def test_calibration_meets_its_target_and_the_statement_s_cost():
    extra = objective.extra_epsilon(0.25, 30.0)
    unit = ObjectiveEvent(3000, 3000, 1.0, 1.0, 1, extra=extra)
    needed = sigma(unit, 1.0, 1e-5)
    event = ObjectiveEvent(3000, 3000, 1.0, needed, 1, extra=extra)
    found = compute_epsilon([event], 1e-5)
    assert 0.999 < found.epsilon <= 1.0 and found.epsilon_lower == 0 and found.epsilon_rdp >= found.epsilon
    assert 0.01 < risk([event], 0.01) < math.e * 0.01 + 1e-4
    plain = sigma(FullEvent(3000, 3000, 1.0, 1.0, 1), 1.0, 1e-5)
    assert plain < needed < 1.1 * plain  # hardly more than a Gaussian mechanism


def test_what_is_not_proved_is_refused():
    unit = ObjectiveEvent(3000, 3000, 1.0, 1.0, 1, extra=0.2)
    with pytest.raises(PrivacyError, match="no noise gives"):
        sigma(unit, 0.1, 1e-5)
    with pytest.raises(PrivacyError, match="composes with nothing"):
        compute_epsilon([unit, unit], 1e-5)
    loose = ObjectiveEvent(100, 100, 1.0, 0.02, 1, extra=0.2)  # ρ = 1
    assert (
        compute_epsilon([loose], 0.5).epsilon
        == compute_epsilon([loose], 0.4).epsilon
        == pytest.approx(0.2 + math.sqrt(3) + 0.5)
    )
    with pytest.raises(PrivacyError, match="smooth loss"):
        objective.extra_epsilon(math.inf, 10.0)
    with pytest.raises(PrivacyError, match="perturbed objective"):
        ObjectiveEvent(100, 100, 1.0, 1.0, 1, extra=0.0)
    with pytest.raises(PrivacyError, match="'extra' does not go with the law 'gaussian'"):
        read_event(FullEvent(100, 100, 1.0, 1.0, 1).to_dict() | {"extra": 0.2})
    assert compute_epsilon([ObjectiveEvent(100, 100, 1.0, 0.0005, 1, extra=0.2)], 1e-5).epsilon == math.inf
