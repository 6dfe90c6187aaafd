"""The paper's convergence results as functions, in its own form and, where that is wrong or loose, in a better one.

Every function takes a `form`: "printed" is the paper to the letter; "corrected" fixes an error of it and is what a
test may assert; "sharper" is proven with less slack. Where a form does not exist it is an error, so that nobody
quotes a bound under the wrong name. All are 10² to 10³ times the truth on small problems: they catch wrong signs and
scales, and do not rank plans.

Corrections used: Corollary 2 and 4 lost a γ² (the first term is γ d(x*)/(ι√t)); Corollary 3 and 4's constants belong
to another noise than Theorem 1's. Sharpenings: the noise of n nodes is independent, so its mean has variance σ²/n,
not σ²; and it is a martingale difference, so that it is forgotten like 1/√(1 − β²), not 1/(1 − β).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from sottovoce.algorithm.method import StepSizes
from sottovoce.errors import SpecError


@dataclass(frozen=True)
class BoundInputs:
    """The constants of Assumptions 1-3: L, σ, m, n, ι, β, μ, and d(x*)."""

    L: float
    m: int
    n: int
    iota: float
    beta: float
    mu: float = 0.0
    sigma: float = 0.0
    d_star: float = 0.0

    @property
    def M(self) -> float:
        """M = ιL²/2 + 2√ι L²/(1 − β), of Theorem 2."""
        return self.iota * self.L**2 / 2 + 2 * math.sqrt(self.iota) * self.L**2 / (1 - self.beta)

    @property
    def M_noisy(self) -> float:
        """M + mισ²/2 + 2√(mι) Lσ/(1 − β): the bracket of eq. (9)."""
        return (
            self.M
            + self.m * self.iota * self.sigma**2 / 2
            + 2 * math.sqrt(self.m * self.iota) * self.L * self.sigma / (1 - self.beta)
        )

    @property
    def M_sharper(self) -> float:
        """ιL²/2 + mσ²/2n + 2√ι L²/(1 − β) + 2√(mι) Lσ/√(1 − β²)."""
        return (
            self.M
            + self.m * self.sigma**2 / (2 * self.n)
            + 2 * math.sqrt(self.m * self.iota) * self.L * self.sigma / math.sqrt(1 - self.beta**2)
        )


def _form(form: str, *known: str) -> str:
    if form not in known:
        raise SpecError(f"this bound exists as {' and '.join(known)}, not as {form!r}")
    return form


def lemma5(inputs: BoundInputs, steps: StepSizes, t: int, form: str = "printed", squared: bool = False) -> float:
    """Lemma 5, eqs. (18) and (19): n⁻¹ Σ E‖x_i − y‖ in round t, or n⁻¹ Σ E‖x_i − y‖² if `squared`.

    Holds for recomputed x, not for the stale x of line 8.
    """
    s = inputs
    modulus = s.mu * s.iota * steps.A[t] + steps.gamma[t - 1]
    if _form(form, "printed", "sharper") == "sharper":
        previous = steps.a[t - 2] if t > 1 else 0.0
        spread = s.L / (1 - s.beta) + math.sqrt(s.m) * s.sigma / math.sqrt(1 - s.beta**2)
        root = float(previous * math.sqrt(s.iota) * spread / modulus)
        return root**2 if squared else root
    a = steps.a[t - 1]
    if squared:
        return float(a**2 * (s.L**2 + s.m * s.sigma**2) * s.iota / ((1 - s.beta) * modulus) ** 2)
    return float(a * (s.L + math.sqrt(s.m) * s.sigma) * math.sqrt(s.iota) / ((1 - s.beta) * modulus))


def theorem2(inputs: BoundInputs, steps: StepSizes, t: int, form: str = "printed") -> float:
    """Theorem 2, eq. (9): E[F(ỹ^(t)) − F*], already divided by A_t."""
    bracket = inputs.M_noisy if _form(form, "printed", "sharper") == "printed" else inputs.M_sharper
    moduli = inputs.mu * inputs.iota * steps.A[1 : t + 1] + steps.gamma[:t]
    total = steps.gamma[t - 1] / inputs.iota * inputs.d_star + np.sum(steps.a[:t] ** 2 / moduli) * bracket
    return float(total / steps.A[t])


def corollary1(inputs: BoundInputs, t: int) -> float:
    """Corollary 1, eq. (10), as printed: n⁻¹ Σ E‖x̃_i − x*‖² without noise, for a_t = t and γ_t = 0."""
    return corollary3(replace(inputs, sigma=0.0), t)


def corollary2(inputs: BoundInputs, gamma: float, t: int, form: str = "corrected") -> float:
    """Corollary 2, eq. (11): E[F(ỹ^(t)) − F*] without noise, for a_t = 1 and γ_t = γ√t; printed is wrong for γ > 1."""
    return corollary4(replace(inputs, sigma=0.0), gamma, t, form)


def corollary2_consensus(inputs: BoundInputs, gamma: float, t: int) -> float:
    """Corollary 2, eq. (12), with or without noise: n⁻¹ Σ E‖x̃_i − ỹ‖ ≤ 2(L + √m σ)√ι/(γ(1 − β)√t)."""
    s = inputs
    return 2 * (s.L + math.sqrt(s.m) * s.sigma) * math.sqrt(s.iota) / (gamma * (1 - s.beta) * math.sqrt(t))


def corollary3_objective(inputs: BoundInputs, T: int) -> float:
    """The first display in Corollary 3's proof before σ is filled in: E[F(ỹ^(T)) − F*] ≤ 4M'/(μι(T + 1)), γ = 0."""
    return 4 * inputs.M_noisy / (inputs.mu * inputs.iota * (T + 1))


def corollary3(inputs: BoundInputs, T: int) -> float:
    """Corollary 3 for a given σ: n⁻¹ Σ E‖x̃_i − x*‖², for a_t = t and γ_t = 0.

    16(L² + mσ²)(log T + 1)/(μ²ι(1 − β)²T(T + 1)) + 16M'/(μ²ι(T + 1)).
    """
    s = inputs
    consensus = (s.L**2 + s.m * s.sigma**2) * (math.log(T) + 1) / ((1 - s.beta) ** 2 * T)
    return 16 / (s.mu**2 * s.iota * (T + 1)) * (consensus + s.M_noisy)


def corollary3_utility(
    inputs: BoundInputs, T: int, q: int, epsilon: float, delta0: float, form: str = "corrected"
) -> float:
    """Corollary 3 with Theorem 1's σ filled in: E[F(ỹ^(T)) − F*]; the printed constants fit σ² = 40…, not 32…."""
    s, log = inputs, math.log(2 / delta0)
    second, third = (80, 16 * math.sqrt(10)) if _form(form, "printed", "corrected") == "printed" else (64, 32 * 2**0.5)
    return (
        4 * s.M / (s.mu * s.iota * (T + 1))
        + second * s.m * log * (s.iota * s.L) ** 2 / (s.mu * (q * epsilon) ** 2)
        + third * math.sqrt(s.m * log * s.iota) * s.L**2 / (s.mu * q * epsilon * (1 - s.beta) * math.sqrt(T + 1))
    )


def corollary_rounds(inputs: BoundInputs, q: int, epsilon: float, delta0: float) -> float:
    """The T of Corollaries 3 and 4, with 1 for the constant: q²ε²/(ι³(1 − β)² m log(1/δ₀)).

    The paper prints T = O(·); every term of the bound falls with T, so that Ω(·) is what it needs.

    Examples
    --------
    >>> one_edge = BoundInputs(L=1.0, m=2000, n=20, iota=0.1, beta=0.973329)
    >>> f"{corollary_rounds(one_edge, 20_000, 1.0, 0.01):.1e}"  # the paper ran 600,000
    '6.1e+10'
    """
    s = inputs
    return (q * epsilon) ** 2 / (s.iota**3 * (1 - s.beta) ** 2 * s.m * math.log(1 / delta0))


def corollary3_condition(inputs: BoundInputs) -> bool:
    """Whether β is in (1 − √(1/e), 1), as Corollary 3 requests; 1 itself is excluded by Assumption 2."""
    return 1 - math.sqrt(1 / math.e) < inputs.beta < 1


def corollary4_condition(inputs: BoundInputs) -> bool:
    """Whether ι ≤ 1 − β, as Corollary 4 requests: since 1 − β ≤ 1 − √(1 − ι) < ι, never for ι < 1."""
    return inputs.iota <= 1 - inputs.beta


def corollary4(inputs: BoundInputs, gamma: float, T: int, form: str = "corrected") -> float:
    """Corollary 4 for a given σ: E[F(ỹ^(T)) − F*] ≤ (γ²d(x*) + 2ιM')/(ιγ√T), for a_t = 1 and γ_t = γ√t.

    The paper prints d(x*) for γ²d(x*), which is wrong for γ > 1, and requests ι ≤ 1 − β, which never holds for ι < 1.
    """
    s = inputs
    weight = 1.0 if _form(form, "printed", "corrected") == "printed" else gamma**2
    return (weight * s.d_star + 2 * s.iota * s.M_noisy) / (s.iota * gamma * math.sqrt(T))


def corollary4_utility(
    inputs: BoundInputs, gamma: float, T: int, q: int, epsilon: float, delta0: float, form: str = "corrected"
) -> float:
    """Corollary 4 with Theorem 1's σ filled in; the printed constants contradict each other."""
    s, log = inputs, math.log(2 / delta0)
    printed = _form(form, "printed", "corrected") == "printed"
    second, third = (80, 8 * math.sqrt(10)) if printed else (32, 16 * 2**0.5)
    clean = replace(s, sigma=0.0)
    return (
        corollary4(clean, gamma, T, form)
        + third * math.sqrt(s.m * s.iota * log) * s.iota * s.L**2 / (gamma * q * epsilon * (1 - s.beta))
        + second * s.m * s.iota**3 * s.L**2 * log * math.sqrt(T) / (gamma * (q * epsilon) ** 2)
    )
