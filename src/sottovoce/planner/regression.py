"""Plans for regression: a descent that is stable by public bounds, statistics in one round, or the mean of the targets.

A loss of curvature 1 is stable for steps below 2/λmax, with λmax ≤ R² + B² by the public bound of a row; with longer
steps the iterates grow. So no step is longer than 1.6/λmax, whatever the noise; the formula for classifiers (`predict`)
takes steps τ/T of up to 32, which a hinge bears.

*Descent.* With γ constant and a_t = 1 dual averaging is plain descent, x_{t+1} = x_t − ζ_t/γ. A plan is a number of
rounds T, a reach τ = T/γ up to the cap, the share s of the rounds, the last ones, that count in the model, and for the
squared loss the clip: a record pulls no harder than one that errs by k, so that noise shrinks with k. *Statistics*
need one round, no clip and no step (`algorithm.statistics`), but their noise is that of all products of m numbers. *The
mean* needs three numbers.

All three are compared by the R² that they are foreseen to lose against least squares without noise, from one picture of
the data that holds on average. Targets have a variance of 0.1 in units of half their range, and a mean 0.2 off the
middle of the range. A linear model can explain 0.6 of the variance: nine tenths of it in directions with eigenvalues ∝
j^(−1/2) that add up to 0.8, one tenth in faint directions, which need a long reach. Errors at the optimum are 0.2. In a
direction with curvature αλ, α the share of records within the clip, a descent of reach τ leaves e^{−(1−s)x} (1 −
e^{−sx})/(sx) of the way, x = αλτ, and noise c²τ²λ/(3/(3 − 2s) + sx²). The iterates, which no average has calmed, swing
by c²τ/(2α) in each direction (at most c²τ²λ); errors are the larger for it, and α the smaller: a clip that is too small
for the noise lets the model drift. Statistics under a ridge r leave r/(λ + r), and noise v λ/(λ + r)². Where the best
foreseen is no better than a constant, the plan is the constant, and says so.

*Never all rounds.* s is a half or three quarters. With s = 1, 1/x of the way is left, however far it was, and where
bounds are ten times too wide and all targets at one end of them that is more than targets differ by. The picture does
not foresee it, and took s = 1 where noise is neither large nor small: there more budget was worse. A tail forgets the
way exponentially, for at most a third more noise.

*The range of the targets*, where the owners allow it, is searched for first (`privacy.quantiles`): the share of the
budget is so large that noise in the share of targets in a cell has a deviation of 0.01, within limits, and where the
largest share would leave more than `DROWNED` nothing is spent. All else is planned as if the range had been known.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import FLOAT_BYTES, Array
from sottovoce.algorithm.method import ALL, COUNTED, constant
from sottovoce.algorithm.methods import METHODS
from sottovoce.algorithm.statistics import WIDEST
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.network.activation import Everyone
from sottovoce.planner import predict
from sottovoce.planner.choose import (
    ACCURACY_PER_SECOND,
    MAX_ROUNDS,
    Choice,
    PublicInputs,
    _Network,
    _networks,
    _scale,
    _shared,
    _short,
    search,
)
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.distribution import Distribution
from sottovoce.privacy.inference import Inference
from sottovoce.privacy.one_shot import LEVELS, Moments, Quantiles
from sottovoce.privacy.release import LAWS, GaussianChoice
from sottovoce.privacy.sampling import Full
from sottovoce.problem.losses import Loss
from sottovoce.problem.moments import packed_size
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.regularizers import Regularizer, Separable, elastic_net, l1
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

WAYS = ("auto", "descent", "statistics", "mean")
STABLE = 1.6
"""Longest step times the largest curvature; 2 is where descent stops converging."""
TAILS = (0.5, 0.75)
"""Shares of the rounds, the last ones, whose mean may be the model."""
FARTHEST = 0.2
"""By how much, in units of half the targets' range, a step of a loss with kinks may move a prediction."""
CLIPS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 2.0)
"""Errors beyond which a record pulls no harder, for the squared loss; 2 is the width of the range."""
USUAL = 0.25
"""The bound of a loss's slope that people give, in units of half the targets' range."""
ROUNDS = (200, 300, 500, 1000, 2000, 4000)
TYPICAL = 1000.0
"""Rounds over which noise that has not mixed yet is spread."""
REACHES = np.concatenate([np.geomspace(1e-9, 5e-3, 20), np.geomspace(0.01, 1.0, 25)])
"""Shares of the farthest reach that are tried; the smallest are for noise that leaves nothing to be learned."""
SPREAD, EXPLAINED, TRACE, OFF, RESIDUAL = 0.1, 0.6, 0.8, 0.2, 0.2
"""The picture of the data: variance of the targets, share that can be explained, Σλ, their mean, errors at the best."""
FAINT = {0.03: 0.012, 0.01: 0.012, 0.003: 0.012, 0.001: 0.012, 0.0003: 0.012}
"""Faint directions: their eigenvalues over R², and the share of the targets' variance that lies in each."""
LEAST_SHARE, LARGEST_SHARE, FAITHFUL, DROWNED = 0.02, 0.1, 0.01, 0.04
"""Of the budget for the range of targets; the noise in the share of targets in a cell that is aimed at, and the most
with which it is searched for at all."""
NOTHING = 0.9
"""A plan that is foreseen to lose this share of what the middle of the range loses teaches nothing."""
LATE = 1e6
"""What a plan costs besides that takes longer than it may."""
DIRECTIONS = 400
"""Directions that are distinguished; more are taken together."""


class Foreseen(NamedTuple):
    """A way to run, and the R² that it is foreseen to lose."""

    loss: float
    rounds: int
    bytes: float
    reach: float = 0.0
    clip: float = 0.0
    counted: float = 1.0


class _Picture(NamedTuple):
    """Eigenvalues, how many directions have each, and the variance of the targets that lies in each."""

    values: Array
    counts: Array
    powers: Array


def choose(inputs: PublicInputs, given: dict[str, Any]) -> Choice:
    """The best plan for a regression with targets in [−1, 1]; `method` in `given` allows more than descent."""
    way = given.get("method", "descent")
    if way not in WAYS:
        raise SpecError(f"there is no way '{way}' to fit a regression; choose one of {', '.join(WAYS)}")
    rest = {"moments": Moments()} | {name: value for name, value in given.items() if name != "method"}
    found_range: list[str] = []
    if inputs.quantiles and "quantiles" not in rest:
        rest["quantiles"], found_range = _quantiles(inputs)
    if "method" not in given and math.isinf(inputs.loss.slope_bound) and "clip" not in given:
        raise PrivacyError(f"the slope of loss '{inputs.loss}' has no bound; give a clip for each record's subgradient")
    found = _foreseen(inputs, rest, way, in_units="method" in given)
    best = min(found, key=lambda name: _cost(inputs, found[name]))
    if "mean" in found and found[best].loss >= NOTHING * _untaught(inputs):
        best = "mean"
    rows = [_row(inputs, name, plan) for name, plan in sorted(found.items(), key=lambda item: item[1].loss)]
    made = _run_descent(inputs, rest, found[best]) if best == "descent" else _run_once(inputs, rest, best)
    spec, first = made
    said = [*found_range, *first, *_why(inputs, best, found, spec)]
    return Choice(spec, said, found[best].loss, sorted(rows, key=lambda row: row["method"] != best))


def _foreseen(inputs: PublicInputs, given: dict[str, Any], way: str, in_units: bool) -> dict[str, Foreseen]:
    """What there is to choose from, by name."""
    found: dict[str, Foreseen] = {}
    if way in ("auto", "descent"):
        found["descent"] = _descent(inputs, given, in_units)
    if way in ("auto", "statistics"):
        why = _no_statistics(inputs, given)
        if why is None:
            found["statistics"] = _statistics(inputs, given)
        elif way == "statistics":
            raise SpecError(f"statistics cannot be taken here: {why}; leave that out, or take method='descent'")
    if way == "mean" or (way == "auto" and "statistics" in found and inputs.intercept):
        if not inputs.intercept or inputs.loss.name != "squared":
            raise SpecError("the mean of the targets is the best constant of the squared loss, with an intercept")
        found["mean"] = _mean(inputs, given)
    return found


def _quantiles(inputs: PublicInputs) -> tuple[Quantiles, list[str]]:
    """How much of the budget goes to the range of the targets, by public numbers, and why."""
    if inputs.n > 1 and not inputs.graph(inputs.n).is_complete:
        return Quantiles(), [
            f"Targets keep their public range: on the graph '{inputs.graph}' their counts would not reach everybody at "
            "once."
        ]
    sizes, z1 = np.array(inputs.sizes), predict.single(inputs.epsilon, inputs.delta)
    noise = predict.level(ByRecords()(sizes), sizes, 0.5, z1, inputs.honest) * math.sqrt(2.0 * LEVELS)  # share 1
    share = _short(min(max((noise / FAITHFUL) ** 2, LEAST_SHARE), LARGEST_SHARE))
    left = noise / math.sqrt(share)
    if left > DROWNED:
        return Quantiles(), [
            f"Targets keep their public range: {100 * share:.2g} % of the budget would leave noise of {left:.2g} in "
            f"the share of them that is in a cell, and over {DROWNED:g} hides where they are; a share "
            "that is given is spent in any case."
        ]
    return Quantiles(share), [
        f"First {100 * share:.2g} % of the budget for noisy counts of the targets in public cells, released once: "
        "targets are clipped to the narrower range that follows from them, and all that comes after is in its units."
    ]


def _seconds(inputs: PublicInputs, plan: Foreseen) -> float:
    """How long a plan keeps the network busy; rounds over the usual number count ten times."""
    return _takes(inputs, plan, plan.rounds + 9 * max(0, plan.rounds - MAX_ROUNDS))


def _takes(inputs: PublicInputs, plan: Foreseen, rounds: int) -> float:
    """Seconds of so many rounds in which everybody sends to everybody."""
    return inputs.network.seconds(rounds, 1.0, inputs.n * (inputs.n - 1), plan.bytes, inputs.n)


def _cost(inputs: PublicInputs, plan: Foreseen) -> float:
    """What is lost and what time costs; a plan that takes too long is taken only where all do."""
    late = LATE if _takes(inputs, plan, plan.rounds) > inputs.max_seconds else 0.0
    return plan.loss + ACCURACY_PER_SECOND * _seconds(inputs, plan) + late


def _no_statistics(inputs: PublicInputs, given: dict[str, Any]) -> str | None:
    """Why statistics cannot be taken, in a clause; None where they can."""
    if inputs.loss.name != "squared":
        return f"they are of the squared loss, not of '{inputs.loss}'"
    if inputs.features > WIDEST:
        return f"{inputs.features} columns are {packed_size(inputs.features):,} numbers to release"
    if inputs.n > 1 and not inputs.graph(inputs.n).is_complete:
        return f"on the graph '{inputs.graph}' no exchange gives everybody the mean of all"
    odd = [name for name in ("rounds", "batch", "sampling", "activation", "clip", "gamma", "a") if name in given]
    if odd and not (odd == ["sampling"] and isinstance(given["sampling"], Full)):
        return f"they need no {odd[0]}, which was fixed"
    return "records have weights of their own" if inputs.weight != 1.0 else None


def _network(inputs: PublicInputs, given: dict[str, Any]) -> tuple[_Network, float, float]:
    """Who speaks and how messages are averaged, r of what pairs share, and by what both multiply the noise."""
    ways = [(network, *_shared(inputs, network, TYPICAL)) for network in _networks(inputs, given)]
    return min(ways[: 1 if not inputs.honest else None], key=lambda way: way[2])


def _picture(inputs: PublicInputs) -> _Picture:
    """The directions of the rows, and the one of the intercept."""
    m = max(1, inputs.features - bool(inputs.intercept))
    ends = np.unique(np.round(np.geomspace(1, m + 1, min(m, DIRECTIONS) + 1)).astype(np.int64))
    counts = np.diff(ends).astype(np.float64)
    values = ((ends[:-1] + ends[1:] - 1) / 2.0) ** -0.5
    values *= TRACE * inputs.row_norm**2 / float(counts @ values)
    powers = np.sqrt(values)
    powers *= (EXPLAINED - sum(FAINT.values())) * SPREAD / float(counts @ powers)
    values = np.append(values, inputs.row_norm**2 * np.array([*FAINT]))
    powers, counts = np.append(powers, SPREAD * np.array([*FAINT.values()])), np.append(counts, np.ones(len(FAINT)))
    if inputs.intercept:
        values, counts, powers = (
            np.append(part, one) for part, one in ((values, inputs.intercept**2), (counts, 1.0), (powers, OFF**2))
        )
    return _Picture(values, counts, powers)


def _untaught(inputs: PublicInputs) -> float:
    """What the middle of the targets' range loses, which is public."""
    picture = _picture(inputs)
    return float(picture.powers @ picture.counts) / SPREAD


def _descent(inputs: PublicInputs, given: dict[str, Any], in_units: bool) -> Foreseen:
    """The best clip, rounds, reach and average.

    Where targets are not known to be in units of half their range, a loss of bounded slope shows how wide that is: the
    bound is taken to be an eighth of the range. τ is the same in any unit.
    """
    picture, row = _picture(inputs), math.hypot(inputs.row_norm, inputs.intercept)
    clips = _clips(inputs, given, row, in_units)
    unit = 1.0 if in_units or math.isinf(inputs.loss.smoothness) else clips[0] / USUAL
    network, _, shared = _network(inputs, given)
    noise = _scale(inputs, given | {"clip": clips[0] * row}).noise * shared
    best = Foreseen(math.inf, 0, 0.0)
    for T in [int(given["rounds"])] if "rounds" in given else _rounds(inputs):
        releases = max(1.0, network.iota * T)
        sent = network.messages * T * network.averaging.message_bytes(inputs.m)
        for clip in clips:
            step, c = longest_step(inputs.loss, row, clip), noise * clip / unit * row
            for counted in TAILS if releases >= 2 else (1.0,):
                reaches = _fixed_reach(given, releases, step * releases)
                alpha = _within(inputs.loss, clip / unit, picture, reaches, c)
                losses = _descent_loss(picture, reaches, c, alpha, counted)
                place = int(np.argmin(losses))
                plan = Foreseen(float(losses[place]), T, sent, float(reaches[place]), clip, counted)
                best = plan if _cost(inputs, plan) < _cost(inputs, best) else best
    return best


def _rounds(inputs: PublicInputs) -> list[int]:
    if inputs.max_rounds is not None:
        return [T for T in ROUNDS if T < inputs.max_rounds] + [inputs.max_rounds]
    return list(ROUNDS)


def _clips(inputs: PublicInputs, given: dict[str, Any], row: float, in_units: bool) -> tuple[float, ...]:
    """The errors beyond which a record pulls no harder, in units of half the range: the loss's, or to be chosen.

    A loss whose slope bends beyond the width of the range is the squared one, wherever targets and middle are.
    """
    bound = inputs.loss.slope_bound
    if "clip" in given:
        return (min(float(given["clip"]) / row, bound),)
    return CLIPS if in_units and bound >= CLIPS[-1] else (bound,)


def _fixed_reach(given: dict[str, Any], releases: float, longest: float) -> Array:
    """τ to be tried: up to the cap, or what the user's γ leaves."""
    if "gamma" in given:
        return np.array([releases / max(float(given["gamma"](2)[-1]), 1e-300)])
    return longest * REACHES


def longest_step(loss: Loss, row: float, clip: float) -> float:
    """The longest step that is stable by public bounds: rows of norm at most `row`, slopes of at most `clip`.

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> longest_step(LOSSES.read("squared"), 1.0, 0.25), longest_step(LOSSES.read("absolute"), 1.0, 1.0)
    (1.6, 0.2)
    """
    if math.isfinite(loss.smoothness):
        return STABLE / (loss.smoothness * row**2)
    return FARTHEST / (clip * row**2)


def _within(loss: Loss, clip: float, picture: _Picture, reaches: Array, c: float) -> Array:
    """α: the mean curvature of the loss over the errors of the iterates, for each reach."""
    alpha, tau = np.ones(len(reaches)), reaches[:, None]
    for _ in range(8):
        swing = np.minimum(c**2 * tau**2 * picture.values, c**2 * tau / (2.0 * alpha[:, None])) @ picture.counts
        size = np.sqrt(RESIDUAL**2 + swing)
        if math.isfinite(loss.smoothness):
            alpha = loss.smoothness * scipy.special.erf(clip / size / math.sqrt(2.0))
        else:
            alpha = 2.0 * loss.slope_bound / (math.sqrt(2.0 * math.pi) * size)
    return np.asarray(alpha)


def _descent_loss(picture: _Picture, reaches: Array, c: float, alpha: Array, counted: float) -> Array:
    """R² lost by descents of these reaches, with noise c in the mean gradient, of which a last share counts."""
    values = picture.values
    x = np.maximum(alpha[:, None] * values * reaches[:, None], 1e-12)
    left = np.exp(-(1.0 - counted) * x) * -np.expm1(-counted * x) / (counted * x)
    noise = values * c**2 * reaches[:, None] ** 2 / (3.0 / (3.0 - 2.0 * counted) + counted * x**2)
    return np.asarray((picture.powers * left**2 + noise) @ picture.counts / SPREAD)


def _statistics(inputs: PublicInputs, given: dict[str, Any]) -> Foreseen:
    """What is lost by the best ridge."""
    picture, kappa = _picture(inputs), weight_of_targets(inputs)
    s = _deviation(inputs, given, inputs.row_norm, kappa)
    ridges = s * math.sqrt(2.0 * inputs.features) * np.geomspace(0.05, 1e4, 70)[:, None]
    values = picture.values
    theta = (picture.powers * values / (values + ridges) ** 2) @ picture.counts  # the model's squared length
    v = s**2 / 2.0 * (kappa**-2 + theta[:, None])
    lost = picture.powers * (ridges / (values + ridges)) ** 2 + v * values / (values + ridges) ** 2
    sent = float(inputs.n * (inputs.n - 1) * packed_size(inputs.features) * FLOAT_BYTES)
    return Foreseen(float(np.min(lost @ picture.counts)) / SPREAD, 1, sent)


def _mean(inputs: PublicInputs, given: dict[str, Any]) -> Foreseen:
    """All that columns explain is lost, and what noise does to the mean: its variance, or at worst the mean itself."""
    B = inputs.intercept
    noise = _deviation(inputs, given, 0.0, B) / math.sqrt(2.0) / B**2
    lost = EXPLAINED + noise**2 * OFF**2 / (noise**2 + OFF**2) / SPREAD
    return Foreseen(lost, 1, float(inputs.n * (inputs.n - 1) * packed_size(1) * FLOAT_BYTES))


def _deviation(inputs: PublicInputs, given: dict[str, Any], row_norm: float, kappa: float) -> float:
    """s of statistics with these bounds: a record moves them by √2ρ², where it moves a gradient of norm 1 by 2."""
    noise = _scale(inputs, given | {"clip": 1.0}).noise * _network(inputs, given)[2]
    return noise * (row_norm**2 + inputs.intercept**2 + kappa**2) / math.sqrt(2.0)


def weight_of_targets(inputs: PublicInputs) -> float:
    """κ: what makes noise in Xᵀy, and that of XᵀX times the model, least together, by the picture of the data.

    The sum has the variance (R² + B² + κ²)² (κ⁻² + ‖θ‖²), which is least where 2‖θ‖²κ⁴ + κ² = R² + B².

    Examples
    --------
    >>> weight_of_targets(PublicInputs(sizes=(1000,), features=21, epsilon=1.0, delta=1e-5, intercept=0.5))
    0.6628
    """
    theta, row = SPREAD * inputs.features / inputs.row_norm**2, inputs.row_norm**2 + inputs.intercept**2
    return float(f"{math.sqrt((math.sqrt(1.0 + 8.0 * theta * row) - 1.0) / (4.0 * theta)):.4g}")


def _run_descent(inputs: PublicInputs, given: dict[str, Any], plan: Foreseen) -> tuple[Spec, list[str]]:
    """The run, by the search of `choose` with all of this fixed, and its reasons for what is left."""
    row = math.hypot(inputs.row_norm, inputs.intercept)
    network, _, _ = _network(inputs, given)
    gamma = constant(_short(network.iota * plan.rounds / plan.reach))
    fixed: dict[str, Any] = {"rounds": plan.rounds, "gamma": gamma}
    fixed |= {"activation": network.activation, "averaging": network.averaging} if inputs.n > 1 else {}
    fixed["counted"] = COUNTED.make("tail", plan.counted) if plan.counted < 1 else ALL
    if plan.clip < inputs.loss.slope_bound:
        fixed["clip"] = _short(plan.clip * row)
    if inputs.penalty == "l2" and "alpha" not in given:
        fixed["h"] = Separable()  # τ is what shrinks
    choice = search(inputs, fixed | given)
    return choice.spec, choice.reasons[: 1 + (inputs.n > 1) + (inputs.honest > 0)]


def _run_once(inputs: PublicInputs, given: dict[str, Any], best: str) -> tuple[Spec, list[str]]:
    """Statistics, or the mean, in one round."""
    kappa, (network, ratio, _) = weight_of_targets(inputs), _network(inputs, given)
    method = METHODS.make("mean") if best == "mean" else METHODS.make("statistics", kappa)
    spec = Spec(
        AlgorithmSpec(1, method=method),
        ProblemSpec(
            inputs.loss,
            _regularizer(inputs, given, kappa),
            _scale(inputs, given | {"clip": 1.0}).weights,
            inputs.intercept,
            inputs.row_norm,
            given.get("on_violation", "clip"),
        ),
        NetworkSpec(inputs.graph, Everyone(), averaging=network.averaging),
        PrivacySpec(
            sampling=Full(),
            noise=Private(inputs.epsilon),
            law=LAWS.make("pairs", ratio) if ratio else GaussianChoice(),
            delta=inputs.delta,
            adversary=inputs.adversary,
            quantiles=given.get("quantiles", Quantiles()),
            distribution=given.get("distribution", Distribution()),
            inference=given.get("inference", Inference()),
        ),
    )
    return spec, []


def _regularizer(inputs: PublicInputs, given: dict[str, Any], kappa: float) -> Regularizer:
    """h: the user's; else nothing for l2, whose ridge follows from the noise, and for l1 one deviation of the noise."""
    if "h" in given:
        return given["h"]
    if inputs.penalty in ("l2", "none") and "alpha" not in given:
        return Separable()
    phi = given.get("alpha", _short(_deviation(inputs, given, inputs.row_norm, kappa) / (math.sqrt(2.0) * kappa)))
    ratio = {"l2": 0.0, "l1": 1.0, "none": 0.0}.get(inputs.penalty, given.get("l1_ratio", 0.5))
    if inputs.penalty == "elastic_net":
        return elastic_net(float(ratio * phi), float((1 - ratio) * phi))
    return l1(float(phi)) if inputs.penalty == "l1" else Separable(mu=float(phi) if inputs.penalty == "l2" else 0.0)


def _why(inputs: PublicInputs, best: str, found: dict[str, Foreseen], spec: Spec) -> list[str]:
    """One line for each thing that was chosen."""
    plan, n = found[best], sum(inputs.sizes)
    budget = f"ε = {inputs.epsilon:g} and δ = {inputs.delta:g} against '{inputs.adversary}'"
    if best == "descent":
        pull = f", a record pulls as if it erred by {plan.clip:g} at most"
        clip = pull if plan.clip < inputs.loss.slope_bound else ""
        said = [
            f"{plan.rounds:,} rounds of descent with steps of {1 / float(spec.algorithm.gamma(1)[0]):.2g}, which are "
            f"stable for rows of length {math.hypot(inputs.row_norm, inputs.intercept):.3g}{clip}; the model is the "
            "mean "
            f"over {f'the last {100 * plan.counted:g} % of them' if plan.counted < 1 else 'all of them'}."
        ]
        if plan.loss >= EXPLAINED:
            said.append(
                f"At {budget} {n:,} records are not foreseen to teach more than the mean of their targets, or part of "
                "it: the model stays near the middle of their range."
            )
    elif best == "statistics":
        said = [
            f"One round: every node releases the {packed_size(inputs.features):,} products of its columns and targets, "
            f"targets weighed by {weight_of_targets(inputs):g}, and the model is solved from their noisy sum, with the "
            "ridge that their known noise requests."
        ]
    else:
        said = [
            f"Nothing can be learned from {inputs.features - 1} columns at {budget} with {n:,} records: the model is a "
            "constant, the noisy mean of the targets, or the middle of their range where even that is lost in noise."
        ]
    others = [f"{p.loss:.2f} by {name}" for name, p in found.items() if name != best and math.isfinite(p.loss)]
    beside = f" ({', '.join(others)})" if others else ""
    return [*said, f"Predicted loss of R² against least squares without noise: {plan.loss:.2f}{beside}."]


def _row(inputs: PublicInputs, name: str, plan: Foreseen) -> dict[str, Any]:
    """A plan for a table or JSON, with the columns of those of `choose`."""
    return {
        "method": name,
        "activation": "everyone",
        "sampling": "full",
        "rounds": plan.rounds,
        "reach": plan.reach,
        "noise": math.nan,
        "loss": plan.loss,
        "bytes": plan.bytes,
        "seconds": _takes(inputs, plan, plan.rounds),
    }
