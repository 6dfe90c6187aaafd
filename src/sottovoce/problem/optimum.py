"""The reference optimum F*, certified by a duality gap.

The primal is F(x) = Σ w_r φ(⟨c_r, x⟩, y_r) + h(x). For any slopes s in the domain of φ*,
D(s) = −Σ w_r φ*(s_r, y_r) − h*(−Σ w_r s_r c_r) is a lower bound of F*. So F(x) − D(s) bounds the error of x, however
the two points were found. Where h* is an indicator (l1), D is taken over ‖x‖₁ ≤ F(x)/φ instead, which holds every
minimizer because losses are not negative; that makes it finite, and tight in the limit.

The points are found by dual coordinate ascent (`Ascent`, whose passes over the rows are in `coordinate`) with three
additions. Where h is not strongly convex enough, it is run on h + κ‖· − x₀‖²/2 and the center x₀ is moved to each
solution: the proximal point method, which ends after finitely many moves where F is piecewise linear. Once an inner
problem has taken some passes, blocks of passes in one fixed order are extrapolated (Anderson), and the result is kept
where it raises the dual. And the best primal and dual points seen are kept, each by itself.

Several outputs: one class against the rest falls apart into a problem for each class. The dual of softmax has no closed
coordinate step; its points come from accelerated proximal gradient descent (`descend`: Beck and Teboulle 2009, FISTA).
Momentum is dropped whenever it points uphill (O'Donoghue and Candès 2015), which gives the fast linear rate of a
strongly convex F without knowing its modulus. The slopes p − e_y at any point are in the domain of the conjugate, so
that every point brings its own dual bound.

A loss without a conjugate has no dual bound. Where h is μ-strongly convex, F(x) − ‖g‖²/2μ is a lower bound of F* for
any subgradient g of F at x. Where the loss is smooth, proximal gradient steps make one that goes to 0
(`_by_gradients`). That rests on the loss being convex, as `sottovoce.testing.check_loss` checks.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.problem.coordinate import Dual, Passes
from sottovoce.problem.losses import Entropy
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import Regularizer, Separable

PLAIN = 10  # passes of an inner problem before extrapolation: the active set changes too much at first
INNER = 0.02  # an inner problem is solved to this share of the true gap, or to the size of its proximal term
EASE = 0.7  # κ shrinks by this after an inner problem that took only a pass or two
LEAST = 1e-6  # … to no less than this share of where it began
STUCK = 1_000  # after as many passes of one inner problem, go on from where it is with a larger κ
HARDEN = 4.0  # … by this factor: a stiffer inner problem is an easier one
STEPS_PER_CHECK = 10  # steps of the descent between two checks of its gap
UNCHANGED = 100  # checks without progress after which a gap without a dual bound will not be reached
ROUNDED = 1e-9  # by which rounding may lift a dual value over the primal one, relative to 1 and to the value

Progress = Callable[[int, float], None]
"""(passes made, gap)."""


class GapError(SottovoceError):
    """The duality gap was not reached within the passes allowed."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """A point, and the proof of how good it is: lower ≤ F* ≤ value.

    Attributes
    ----------
    x : the model
    slopes : the dual variables, one a row (K of K outputs), each in the domain of φ*
    value : F(x)
    lower : a lower bound of F*: D(slopes), or of a loss without a conjugate what a subgradient of F at x gives
    gap : value − lower
    passes : passes over the data that were made
    """

    x: Array
    slopes: Array
    value: float
    lower: float
    gap: float
    passes: int


def dual_value(problem: Problem, slopes: Array, reach: float = math.inf) -> float:
    """D(s), a lower bound of F over ‖x‖₁ ≤ reach for any slopes in the domain of φ*.

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> from sottovoce.problem.regularizers import REGULARIZERS
    >>> from sottovoce.problem.shards import Shards
    >>> shards = Shards.of(np.eye(2), np.array([1.0, -1.0]), np.array([0, 2]))
    >>> problem = Problem(LOSSES.make("hinge"), REGULARIZERS.make("l2", mu=1.0), shards)
    >>> dual_value(problem, np.array([-1.0, 1.0]))
    0.75
    """
    return _dual_value(problem, slopes, -problem.combined(slopes), reach)


def optimum(
    problem: Problem,
    gap: float = 1e-8,
    max_passes: int = 100_000,
    seed: int = 0,
    progress: Progress | None = None,
    known: tuple[Array, Array] | None = None,
) -> Optimum:
    """Minimize F until the duality gap is at most `gap`.

    Parameters
    ----------
    gap : the absolute error of F that is tolerated
    max_passes : passes over the data after which to give up, with a `GapError`
    seed : of the order in which rows are visited
    progress : called with the passes made and the gap, now and then (class by class where the problem falls apart)
    known : points (x, slopes) that someone has found, for a model of one output: they are certified, or gone on from

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> from sottovoce.problem.regularizers import REGULARIZERS
    >>> from sottovoce.problem.shards import Shards
    >>> shards = Shards.of(np.eye(2), np.array([1.0, -1.0]), np.array([0, 2]))
    >>> best = optimum(Problem(LOSSES.make("hinge"), REGULARIZERS.make("l2", mu=1.0), shards))
    >>> best.x, best.value
    (array([ 0.5, -0.5]), 0.75)
    """
    h = _supported(problem.h)
    if not gap > 0:
        raise SpecError(f"the duality gap to reach must be over 0, not {gap!r}")
    if problem.loss.conjugate_formula is None and not problem.joint.one_vs_rest:
        return _by_gradients(problem, h, gap, max_passes, progress)
    if problem.outputs > 1:
        work = _class_by_class if problem.joint.one_vs_rest else _descent
        return work(problem, h, gap, max_passes, seed, progress)
    best = _Best(problem, h)
    if known is not None:
        low, high = problem.loss.interval(problem.shards.y)
        best.x, best.slopes = known[0], np.clip(known[1], low, high)  # outside, they would prove nothing
        answer = best.certified(0)
        if answer.gap <= gap:
            return answer
    return _ascended(best, Ascent(problem, h, seed), known is not None, gap, max_passes, progress)


def _ascended(
    best: "_Best", ascent: "Ascent", known: bool, gap: float, max_passes: int, progress: Progress | None
) -> Optimum:
    """Ascend in the dual, around a center that moves, until the gap is closed; from the best slopes if `known`."""
    problem, h = ascent.problem, ascent.h
    if known:
        ascent.s = best.slopes.copy()
    kappa = first = 0.0 if h.mu >= ascent.stiffness else ascent.stiffness
    ascent.center_at(np.clip(np.zeros(problem.shards.m), h.lo, h.hi), kappa)
    best.offer(ascent.x, ascent.s, ascent.v)
    made = since = 0  # passes, in all and since the center last moved
    while True:
        if best.gap <= gap:
            answer = best.certified(made)
            if answer.gap <= gap:
                return answer
        if made >= max_passes:
            raise _too_wide(best.gap, made, gap)
        # check the gap often at first, then ever more rarely: an evaluation costs as much as a pass
        count = min(max(1, since // 4) if since < PLAIN else BLOCK * max(1, since // (4 * BLOCK)), max_passes - made)
        ascent.advance(count, extrapolate=since >= PLAIN)
        made, since = made + count, since + count
        value = best.offer(ascent.x, ascent.s, ascent.v)
        if progress is not None:
            progress(made, best.gap)
        if kappa == 0.0:
            continue
        proximal = ascent.proximal_term()
        inner = value + proximal - ascent.inner_dual(ascent.s, ascent.z, ascent.x)
        if inner <= max(proximal, INNER * best.gap) or since >= STUCK:
            if since <= 2:
                kappa = max(EASE * kappa, LEAST * first)
            elif since >= STUCK:
                kappa *= HARDEN
            ascent.center_at(ascent.x, kappa)
            since = 0


def _class_by_class(
    problem: Problem, h: Separable, gap: float, max_passes: int, seed: int, progress: Progress | None
) -> Optimum:
    """h is separable, so F is a sum over the classes; each gets its share of the gap."""
    found = []
    for signs in problem.joint.signs(problem.shards.y).T:
        one = replace(problem, shards=problem.shards.relabeled(signs), outputs=1)
        found.append(optimum(one, gap / problem.outputs, max_passes, seed, progress))
    x, slopes = np.concatenate([one.x for one in found]), np.stack([one.slopes for one in found], axis=1)
    value = problem.value(x)
    lower = _checked_lower_bound(problem, sum(one.lower for one in found), value)
    return Optimum(x, slopes, value, lower, value - lower, sum(one.passes for one in found))


def _checked_lower_bound(problem: Problem, lower: float, value: float) -> float:
    """A lower bound of F* beside a value of F: more than rounding over it, and the conjugate must be wrong."""
    if lower > value + ROUNDED * max(1.0, abs(value)):
        raise SpecError(
            f"the conjugate of loss '{problem.loss.name}' is wrong: it bounds the objective by {lower:.9g} from below, "
            f"and there is a model with {value:.9g}; correct conjugate_formula, or give None"
        )
    return min(lower, value)


def _by_gradients(problem: Problem, h: Separable, gap: float, max_passes: int, progress: Progress | None) -> Optimum:
    """Descend a loss without a conjugate, until a subgradient of F bounds the gap."""
    if h.mu == 0.0:
        raise SpecError(
            f"loss '{problem.loss.name}' has no conjugate, and without one an optimum is certified only where h has an "
            "l2 part; give the loss a Conjugate, or take l2 or elastic_net"
        )
    stiffness = float(np.dot(problem.record_weights, np.square(problem.shards.norms))) or 1.0
    best, since = Optimum(np.empty(0), np.empty(0), math.inf, -math.inf, math.inf, 0), 0
    for made, (x, slopes) in enumerate(descend(problem, np.clip(np.zeros(problem.m), h.lo, h.hi), math.inf), start=1):
        if made % STEPS_PER_CHECK and made < max_passes:
            continue
        gradient = problem.combined(slopes)
        new = h.step(gradient - stiffness * x, 1.0, stiffness)
        _, new_slopes = _risk_and_slopes(problem, new)
        subgradient = problem.combined(new_slopes) - gradient + stiffness * (x - new)
        value, bound = problem.value(new), float(np.dot(subgradient, subgradient)) / (2.0 * h.mu)
        since = since + 1 if bound > 0.9 * best.gap else 0
        if bound < best.gap:
            best = Optimum(new, new_slopes, value, value - bound, bound, made)
        if progress is not None:
            progress(made, best.gap)
        if best.gap <= gap:
            return best
        if made >= max_passes or since >= UNCHANGED:
            raise GapError(
                f"the optimum is known to {best.gap:.2e} after {made} passes, not to the {gap:g} requested; loss "
                f"'{problem.loss.name}' has no conjugate, which a loss with kinks needs: give it a Conjugate, or "
                "accept a wider gap"
            )
    raise AssertionError("the descent has no end of its own")


def _descent(
    problem: Problem, h: Separable, gap: float, max_passes: int, seed: int, progress: Progress | None
) -> Optimum:
    """Softmax: no dual step in closed form, but every primal point has slopes in the dual's domain."""
    best = _Best(problem, h)
    for made, (x, slopes) in enumerate(descend(problem, np.clip(np.zeros(problem.m), h.lo, h.hi)), start=1):
        if made % STEPS_PER_CHECK == 0 or made >= max_passes:
            best.offer(x, slopes, -problem.combined(slopes))
            if progress is not None:
                progress(made, best.gap)
            if best.gap <= gap and (answer := best.certified(made)).gap <= gap:
                return answer
            if made >= max_passes:
                raise _too_wide(best.gap, made, gap)
    raise AssertionError("the descent has no end of its own")


def _too_wide(gap: float, made: int, wanted: float) -> GapError:
    return GapError(
        f"the duality gap is still {gap:.2e} after {made} passes, over the {wanted:g} requested; "
        "raise max_passes or accept a wider gap"
    )


def _dual_value(problem: Problem, slopes: Array, v: Array, reach: float) -> float:
    """D(s) with v = −Σ w_r s_r c_r at hand."""
    conjugates = problem.joint.conjugate(slopes, problem.shards.y)
    return -float(np.dot(problem.record_weights, conjugates)) - problem.h.conjugate(v, reach)


def _supported(h: Regularizer) -> Separable:
    """Refuse regularizers under which the dual bound may be −∞ or the ascent has no closed step."""
    if not isinstance(h, Separable):
        raise SpecError(
            f"the optimum is certified for separable regularizers (l2, l1, elastic_net, box) only, "
            f"not {type(h).__name__}; choose one of those"
        )
    boxed = -math.inf < h.lo and h.hi < math.inf
    if not (h.mu > 0 or boxed or (h.phi > 0 and h.lo <= 0.0 <= h.hi)):
        raise SpecError(
            "the optimum is certified only where h has an l2 part, an l1 part around 0 or a box bounded on both sides; "
            "add one of them (a tiny mu is enough)"
        )
    return h


class _Best:
    """The best primal point and the best dual point seen so far, which need not come together."""

    def __init__(self, problem: Problem, h: Separable) -> None:
        self.problem, self.h = problem, h
        self.value, self.lower = math.inf, -math.inf
        self.x, self.slopes = np.empty(0), np.empty(0)

    @property
    def gap(self) -> float:
        return self.value - self.lower

    @property
    def reach(self) -> float:
        """A bound of ‖x*‖₁: φ‖x*‖₁ ≤ F* ≤ F(x), because losses are not negative."""
        return self.value / self.h.phi if self.h.phi > 0 else math.inf

    def offer(self, x: Array, slopes: Array, v: Array) -> float:
        """Keep what is better; gives F(x)."""
        value = self.problem.value(x)
        if value < self.value:
            self.value, self.x = value, x.copy()
        shares = [1.0]
        steepest = float(np.max(np.abs(v)))
        if self.h.mu == 0.0 and 0.0 < self.h.phi < steepest:
            shares.append(self.h.phi / steepest)  # slopes pulled back to where h* is 0: 0 is in every interval
        for share in shares:
            lower = _dual_value(self.problem, share * slopes, share * v, self.reach)
            if lower > self.lower:
                self.lower, self.slopes = lower, share * slopes
        return value

    def certified(self, passes: int) -> Optimum:
        """Both values computed afresh from the points alone, so that no running sum is part of the proof."""
        self.value = self.problem.value(self.x)
        self.lower = _checked_lower_bound(self.problem, dual_value(self.problem, self.slopes, self.reach), self.value)
        return Optimum(self.x, self.slopes, self.value, self.lower, self.gap, passes)


BLOCK = 15  # passes of one extrapolation: more see more of the slow directions, fewer follow changes of the active set


class Ascent:
    """The dual point s of Σ w_r φ(⟨c_r, ·⟩, y_r) + h + κ‖· − x₀‖²/2, with z = v + κx₀ and the primal point x of z."""

    def __init__(self, problem: Problem, h: Separable, seed: int) -> None:
        shards, loss = problem.shards, problem.loss
        self.problem, self.h, self.rng = problem, h, np.random.default_rng(seed)
        self.w, self.y, self.records = problem.record_weights, shards.y, len(shards.y)
        self.low, self.high = (np.ascontiguousarray(end, dtype=np.float64) for end in loss.interval(shards.y))
        self.steps = self.w * np.square(shards.norms)
        self.stiffness = float(np.mean(self.steps)) or 1.0  # R²/N: here a record's own curvature balances the rest
        self.curvature = loss.curvature
        self.s = np.zeros(self.records)
        self._passes = Passes(problem.shards)

    @property
    def v(self) -> Array:
        """−Σ w_r s_r c_r, as the running sum has it."""
        return self.z - self.kappa * self.x0

    def center_at(self, x0: Array, kappa: float) -> None:
        """Move the proximal center, and sum v afresh."""
        self.x0, self.kappa = x0.copy(), kappa
        self.z, self.x = self._primal(self.s)

    def _primal(self, s: Array) -> tuple[Array, Array]:
        z = self.kappa * self.x0 - self.problem.shards.pull(self.w * s)
        return z, self.h.step(-z, 1.0, self.kappa)

    def proximal_term(self) -> float:
        """κ‖x − x₀‖²/2."""
        return 0.5 * self.kappa * float(np.sum(np.square(self.x - self.x0)))

    def inner_dual(self, s: Array, z: Array, x: Array) -> float:
        """The dual value of the problem with the proximal term: (h + κ‖· − x₀‖²/2)* is attained at x."""
        attained = float(np.dot(z, x)) - self.h.value(x)
        attained -= 0.5 * self.kappa * float(np.dot(x, x) + np.dot(self.x0, self.x0))
        return -float(np.dot(self.w, self.problem.loss.conjugate(s, self.y))) - attained

    def advance(self, passes: int, extrapolate: bool) -> None:
        """Make passes: each in an order of its own, or in blocks of one order where they are to be extrapolated."""
        while extrapolate and passes >= BLOCK:
            self._block()
            passes -= BLOCK
        for _ in range(passes):
            self._sweep(self.rng.permutation(self.records))

    def _block(self) -> None:
        """Passes in one order, a fixed map of s, and then the combination of its iterates that moved least."""
        rows = self.rng.permutation(self.records)
        iterates = [self.s.copy()]
        for _ in range(BLOCK):
            self._sweep(rows)
            iterates.append(self.s.copy())
        moves = np.diff(iterates, axis=0)
        gram = moves @ moves.T
        size = float(np.trace(gram))
        if size == 0.0:
            return
        share = np.linalg.solve(gram / size + 1e-12 * np.eye(BLOCK), np.ones(BLOCK))
        s = np.clip(np.tensordot(share / np.sum(share), np.array(iterates[1:]), 1), self.low, self.high)
        z, x = self._primal(s)
        if self.inner_dual(s, z, x) > self.inner_dual(self.s, self.z, self.x):
            self.s, self.z, self.x = s, z, x

    def _sweep(self, rows: IntArray) -> None:
        h, entropy = self.h, isinstance(self.problem.loss.conjugate_formula, Entropy)
        loss = self.y, self.w, self.steps, self.low, self.high, self.curvature, entropy
        self._passes.sweep(Dual(*loss, h.phi, 1.0 / (h.mu + self.kappa), h.lo, h.hi), rows, self.s, self.z, self.x)


CAUTION = 64.0  # the first step is this much longer than the one that is sure to descend, and is cut as need be
ROUNDING = 1e-12  # two values of F that differ by less are not distinguished


class Iterate(NamedTuple):
    """A point and the slopes of the loss there."""

    x: Array
    slopes: Array


def descend(problem: Problem, x: Array, most: float | None = None) -> Iterator[Iterate]:
    """Better and better points, without end; each costs about two passes over the data.

    Parameters
    ----------
    x : where to start
    most : a bound of the curvature of the risk; by default that of softmax
    """
    # the Hessian of logsumexp is at most I/2, so that of the risk is at most Σ w ‖c‖²/2
    usual = 0.5 * float(np.dot(problem.record_weights, np.square(problem.shards.norms))) or 1.0
    sure = usual if most is None else most
    stiffness, ahead, momentum = usual / CAUTION, x, 1.0
    while True:
        risk, slopes = _risk_and_slopes(problem, ahead)
        gradient = problem.combined(slopes)
        while True:
            new = problem.h.step(gradient - stiffness * ahead, 1.0, stiffness)
            move = new - ahead
            model = risk + float(np.dot(gradient, move)) + 0.5 * stiffness * float(np.dot(move, move))
            found, new_slopes = _risk_and_slopes(problem, new)
            if found <= model + ROUNDING * abs(model) or stiffness >= sure:
                break
            stiffness = min(2.0 * stiffness, sure)
        yield Iterate(new, new_slopes)
        if float(np.dot(ahead - new, new - x)) > 0.0:  # the step went against the momentum
            x, ahead, momentum = new, new, 1.0
            continue
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead, x, momentum = new + (momentum - 1.0) / grown * (new - x), new, grown


def _risk_and_slopes(problem: Problem, x: Array) -> tuple[float, Array]:
    """The risk at x and the slopes there, from one product with the data."""
    u, y = problem.margins(x), problem.shards.y
    return float(np.dot(problem.record_weights, problem.joint.value(u, y))), problem.joint.slope(u, y)
