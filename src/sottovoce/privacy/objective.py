r"""Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011) with Gaussian noise.

The mechanism releases θ = argmin (1/N) Σ φ(⟨c_i, θ⟩, y_i) + (μ/2)|θ|² + ⟨b, θ⟩ with b ~ N(0, σ²I). Times N that is
J(θ) = Σ φ + (Λ/2)|θ|² + ⟨B, θ⟩ with Λ = Nμ and B ~ N(0, s²I), s = Nσ. Let |φ'| ≤ g, 0 ≤ φ'' ≤ β, |c_i| ≤ R, L = gR.

*Claim.* Replacing one record costs, at every ε with (ε − E − ρ²/2)/ρ ≥ √3, no more than

    δ(ε) = 2 δ_Gauss(ε − E; ρ),     E = log(1 + βR²/Λ),     ρ = 2L/s,

where δ_Gauss(·; ρ) is the profile of N(0, 1) against N(ρ, 1).

*Proof.* θ minimizes J where B = B(θ) = −Σ φ'(⟨c_i, θ⟩)c_i − Λθ. B(θ) is Lipschitz and strongly monotone, hence a
bijection with a Lipschitz inverse, and θ has the density N(B(θ); s²) det(−B'(θ)). For neighboring data let c, c' be
the record and its replacement, a = φ'(⟨c, θ⟩) and a' their slopes, A the Hessian of all other records plus Λ.

1. The determinants: det(A + φ''cc^T)/det(A + φ''c'c'^T) ≤ det(A + φ''cc^T)/det(A) = 1 + φ'' c^T A⁻¹ c ≤ 1 + βR²/Λ.
2. The Gaussians: the other data need B + Δ with Δ = ac − a'c' for the same θ, so that the logarithm of their ratio is
   (2⟨B, Δ⟩ + |Δ|²)/(2s²). Here |Δ| ≤ 2L, and ⟨B, Δ⟩ ≤ g|⟨B, c⟩| + g|⟨B, c'⟩| ≤ L s(|u| + |v|) with u, v standard normal
   and correlated somehow: Δ depends on B through θ, but c and c' do not, which is why this is for linear models.
3. So the loss is at most E + ρ²/2 + (ρ/2)(|u| + |v|). Since |u| + |v| = max(|u + v|, |u − v|), with r the correlation,
   P(|u| + |v| > t) ≤ 2Φ(−t/√(2 + 2r)) + 2Φ(−t/√(2 − 2r)). Φ(−t/√w) is convex in w up to t²/3, hence for t ≥ 2√3 the
   right side is convex in r on [−1, 1] and symmetric: it is largest at r = ±1, where it is 2Φ(−t/2) = P(2|u| > t)
   (and Φ(−t/√0) counts as 0).
4. δ(ε) ≤ E[(1 − e^{ε − loss})₊] = ∫_ε^∞ e^{ε − x} P(loss > x) dx, which therefore is at most what the loss
   E + ρ²/2 + ρ|u| would give; half of that, u > 0, is δ_Gauss(ε − E; ρ).                                        ∎

A computed minimizer is not exact. Stopped at a gradient of norm at most τ, a number fixed beforehand, it is within
r = τ/μ of the exact one, and `NOISE_SCALE`·r of Gaussian noise is added to it. Its law and that of the exact one with
the same noise then differ by a Gaussian shift of at most 1/BLUR standard deviations, which is (ε₂, δ₂)-close for ε₂ =
`CLOSE` and δ₂ < `FAR`. Going there and back costs 2ε₂ in ε, the factor e^{ε₂} in δ, and δ₂(1 + e^{ε + ε₂}): what is
left of δ besides `SHARE` of it is enough for that.
"""

import math

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce.errors import PrivacyError
from sottovoce.privacy import profiles

NOISE_SCALE = 1e4
CLOSE = 1e-3
FAR = 1e-23
SHARE = 0.998
STEEP = math.sqrt(3.0)


def extra_epsilon(smoothness: float, stiffness: float) -> float:
    """E, and what the computed minimizer costs: the ε that no noise covers.

    Parameters
    ----------
    smoothness : βR², the largest curvature that one record has
    stiffness : Λ = Nμ, the curvature of the regularizer in the sum over N records

    Examples
    --------
    >>> round(extra_epsilon(0.25, 30.0), 6)
    0.010299
    """
    if not (0 < smoothness < math.inf and stiffness > 0):
        raise PrivacyError(
            "objective perturbation needs a smooth loss and a strongly convex regularizer; "
            "use logistic or smoothed_hinge, and l2"
        )
    return math.log1p(smoothness / stiffness) + 2.0 * CLOSE


def needed_multiplier(extra: float, epsilon: float, delta: float) -> float:
    """The least noise multiplier 1/ρ: what is left of ε and δ is for the noise, by itself."""
    if epsilon <= extra:
        raise PrivacyError(
            f"the objective's curvature alone costs ε = {extra:.3g}, so that no noise gives ε = {epsilon:g}; "
            "take a larger mu, more records or a larger ε"
        )
    # the sum of the two must not pass ε by rounding
    return profiles.gaussian_multiplier((epsilon - extra) * (1.0 - 1e-12), _half(delta))


def bounds(multiplier: float, extra: float, delta: float) -> tuple[float, float]:
    """ε at δ, and a cross-check that bounds the tail of the loss in place of its profile; 1/multiplier is ρ."""
    rho = 1.0 / multiplier
    own = profiles.gaussian_epsilon(_half(delta), multiplier)
    own = max(own, STEEP * rho + rho**2 / 2)  # below that nothing is proved
    if FAR * (1.0 + math.exp(min(extra + own, 700.0))) > (1.0 - SHARE) * delta:
        return math.inf, math.inf  # nothing is proved for so small a δ at so large an ε
    return extra + own, extra + rho**2 / 2 + rho * -float(scipy.special.ndtri(_half(delta)))


def risk(multiplier: float, extra: float, fpr: float) -> float:
    """TPR ≤ e^ε FPR + δ(ε) at every ε, and 1 − FPR ≤ e^ε (1 − TPR) + δ(ε)."""
    deltas = np.geomspace(1e-9, 0.04, 60)
    points = [(bounds(multiplier, extra, float(d))[0], d) for d in deltas]
    alarms = [min(math.exp(min(e, 700)) * fpr + d, 1.0 - math.exp(-e) * (1.0 - fpr - d)) for e, d in points]
    return float(min(1.0, max(min(alarms), fpr)))


def _half(delta: float) -> float:
    return 0.5 * SHARE * delta * math.exp(-CLOSE)
