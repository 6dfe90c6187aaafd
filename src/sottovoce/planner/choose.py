"""The planner: a whole spec from public numbers alone. It sees no data.

What may be known is `PublicInputs`; every candidate is accounted by the predicted loss of accuracy (`predict`), and the
cheapest of the best is taken. `Choice` says which it is, why in plain sentences, and what else there was.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sottovoce import limits
from sottovoce._renamed import old_arguments, old_attributes
from sottovoce.algorithm.method import ALL, COUNTED, SEQUENCES, Sequence, constant
from sottovoce.display import Shown
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.network.activation import ACTIVATIONS, Activation, Everyone, Matching
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import GRAPHS, Family
from sottovoce.network.mixing import GOSSIP, METROPOLIS, WEIGHTS, Averaging, Gossip, activation_rate, beta
from sottovoce.planner import predict
from sottovoce.planner.network import HOUR, SAMPLED, NetworkModel, traffic
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.one_shot import MOMENTS, QUANTILES, Balance, Moments
from sottovoce.privacy.release import ADVERSARIES, LAWS, Adversary, GaussianChoice, SecretPairs, check_runnable
from sottovoce.privacy.sampling import SAMPLINGS, Full, Poisson, Sampling
from sottovoce.problem import objective
from sottovoce.problem.losses import LOSSES, Joint, Loss
from sottovoce.problem.objective import ByRecords, Weights
from sottovoce.problem.regularizers import REGULARIZERS, Regularizer, Separable, elastic_net, l1, l2
from sottovoce.registry import Choices, Field
from sottovoce.run.plan import make_lipschitz
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

PENALTIES = ("l2", "l1", "elastic_net", "none")
MAX_ROUNDS = 1000
"""More rounds than this hardly raise the accuracy of anything tried, and each costs a round trip."""


@old_arguments
@old_attributes
@dataclass(frozen=True)
class PublicInputs:
    """What may be known of a problem before anybody examines a record.

    Attributes
    ----------
    sizes : q_i, the records (or persons, where they are the unit of privacy) of each node
    features : the columns of a record, the intercept's included
    outputs : the classes that have weights of their own; 1 for two classes and for regression
    row_norm, intercept : R and B, the public bounds of a row
    penalty : 'l2', 'l1', 'elastic_net' or 'none'
    max_rounds, max_bytes, max_seconds : what may be spent on the network; None for the default of 1000 rounds, and any
        bytes
    network : what the network is like
    weight : what a record's loss is multiplied by on average, at most 1: so much less is learned beside the same noise
    private_scaling : whether a share of the budget may be spent on moments of the data, where that pays
        (`privacy.moments`)
    quantiles : the same of a regression's targets, whose public range may be too wide (`privacy.quantiles`)
    dropout_rate : the share of releases that will never appear, a public guess; what pairs share with them stays
        uncancelled
    may_lose : how many nodes may be lost during the run, while the others go on
    sparse : whether records are stored sparse; they stay so, which they would not with their mean taken off
    free : what of 'loss' (a hinge) and 'penalty' (l2), of two classes, the planner may choose better than it is
        informed
    rarest : the share of the rarest class among records or in their weight, by a public prior; None without one
    stretch : by how much noise counts more in the choice of how far to go: rows that a map has brought to a common
        length are as long as their bound on average, and not at most
    threshold : whether counts of the scores of two classes may move the constant term where no prior is known
    balance : of two classes of which the rare one is to weigh more, how likely the second is and what part of all
        weight it is to have; None where no threshold may take the place of weights (`privacy.balance`)
    """

    sizes: tuple[int, ...]
    features: int
    epsilon: float
    delta: float
    loss: Field[Loss] = Field(LOSSES, LOSSES.make("hinge"))
    outputs: int = 1
    adversary: Field[Adversary] = Field(ADVERSARIES, ADVERSARIES.make("transcript"))
    graph: Field[Family] = Field(GRAPHS, GRAPHS.make("complete"))
    row_norm: float = 1.0
    intercept: float = 0.0
    penalty: str = "l2"
    max_rounds: int | None = None
    max_bytes: float | None = None
    weight: float = 1.0
    private_scaling: bool = False
    quantiles: bool = False
    dropout_rate: float = 0.0
    sparse: bool = False
    free: tuple[str, ...] = ()
    rarest: float | None = None
    stretch: float = 1.0
    threshold: bool = False
    balance: tuple[float, float] | None = None
    may_lose: int = 0
    network: NetworkModel = NetworkModel()  # noqa: RUF009 - immutable
    max_seconds: float = HOUR

    def __post_init__(self) -> None:
        """Inputs that no problem has are errors."""
        if not self.sizes or min(self.sizes) < 1:
            raise SpecError("a plan needs nodes, each with at least one record; give the numbers of their records")
        if not 0 < self.epsilon < math.inf:
            raise SpecError(f"a plan needs an ε that is finite and over 0, not {self.epsilon}")
        check_delta(self.delta)
        pairs = isinstance(self.adversary, SecretPairs)
        check_runnable(self.adversary, pairs, self.n)
        if pairs and self.honest < 2:
            raise PrivacyError(
                f"against '{self.adversary}' two of the {self.n} nodes must stay honest, for their secrets to hide "
                "anybody; let fewer collude, take more nodes, or trust nobody ('transcript')"
            )
        least = 2 + (self.n - self.honest if pairs else 0)
        if not isinstance(self.may_lose, int) or not 0 <= self.may_lose <= max(self.n - least, 0):
            raise SpecError(
                f"of {self.n} nodes 0 to {max(self.n - least, 0)} may be lost, for two honest ones to go on, not "
                f"{self.may_lose}"
            )
        if not 0 <= self.dropout_rate < 1:
            raise SpecError(f"the share of releases that are lost is at least 0 and below 1, not {self.dropout_rate}")
        for name, value in (
            ("features", self.features),
            ("outputs", self.outputs),
            ("row_norm", self.row_norm),
            ("weight", self.weight),
            ("max_rounds", self.rounds),
            ("max_seconds", self.max_seconds),
            ("max_bytes", math.inf if self.max_bytes is None else self.max_bytes),
        ):
            if not value > 0:
                raise SpecError(f"{name} must be over 0, not {value}")
        limits.check_epsilon(self.epsilon)
        limits.check_count("the number of nodes", self.n, limits.NODES)
        limits.check_count("the largest number of records", max(self.sizes), limits.RECORDS)
        limits.check_count("the number of features", self.features, limits.FEATURES)
        limits.check_count("the number of outputs", self.outputs, limits.FEATURES)
        limits.check_count("max_rounds", self.rounds, limits.ROUNDS)
        limits.check_length("row_norm", self.row_norm)
        limits.check_length("intercept", self.intercept, zero=True)
        if self.penalty not in PENALTIES:
            raise SpecError(f"there is no penalty '{self.penalty}'; choose one of {', '.join(PENALTIES)}")

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.sizes)

    @property
    def honest(self) -> int:
        """How many nodes keep their secrets, where pairs share some: n − k; 0 where they share none."""
        k = self.adversary.among(self.n).k if isinstance(self.adversary, SecretPairs) else None
        return self.n - k if isinstance(k, int) else 0

    @property
    def m(self) -> int:
        """Dimension of the model."""
        return self.features * self.outputs

    @property
    def rounds(self) -> int:
        """The most rounds there may be."""
        return MAX_ROUNDS if self.max_rounds is None else self.max_rounds


class Plan(NamedTuple):
    """One way to run, and what is foreseen of it."""

    activation: Activation
    sampling: Sampling
    rounds: int
    reach: float
    """τ: the model is −τ times the weighted mean of the gradients that were released."""
    noise: float
    """c, the deviation that the noise leaves in each coordinate of that mean."""
    loss: float
    """Predicted loss of accuracy."""
    bytes: float
    averaging: Averaging = GOSSIP
    ratio: float = 0.0
    """r: what a pair of nodes shares over what a node adds alone; 0 where pairs share nothing."""
    waits: float = 1.0
    """Exchanges of a round that wait for one another."""
    seconds: float = 0.0
    """How long it takes on the network."""


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """A plan, why it was chosen, and what else there was."""

    spec: Spec
    """All of a run but its seed."""
    reasons: list[str]
    predicted: float
    """Share of records that the model will get wrong beyond the best linear model's, foreseen roughly."""
    alternatives: list[dict[str, Any]]
    """The chosen plan and the best of the others: activation, sampling, rounds, noise, predicted loss, bytes."""

    def _entries(self) -> dict[str, str]:
        reasons = {f"reason {k}": reason for k, reason in enumerate(self.reasons, 1)}
        lost = f"{100 * self.predicted:.1f} percentage points more errors than the best linear model, foreseen roughly"
        spec = self.spec
        return {
            "method": f"{spec.algorithm.method}, {spec.algorithm.rounds} rounds, {spec.privacy.sampling} a round",
            "loss": f"{spec.problem.loss} + {spec.problem.h}",
            "noise": str(spec.privacy.noise),
            "cost of privacy": lost,
            **reasons,
        }


FIXED = (
    "sampling", "batch", "rounds", "activation", "alpha", "l1_ratio", "gamma", "a", "clip", "weights", "h", "mixing",
    "correct", "on_violation", "primal", "averaging", "counted", "moments", "quantiles",
    "distribution", "inference", "method",
)  # fmt: skip
TABLES: dict[str, Choices[Any]] = {
    "sampling": SAMPLINGS,
    "activation": ACTIVATIONS,
    "gamma": SEQUENCES,
    "a": SEQUENCES,
    "weights": objective.WEIGHTS,
    "h": REGULARIZERS,
    "mixing": WEIGHTS,
    "averaging": AVERAGINGS,
    "counted": COUNTED,
    "moments": MOMENTS,
    "quantiles": QUANTILES,
}
"""Where the settings that may be given as text are read."""
ROUNDS = (2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10_000)
FEWEST = 200
"""Rounds that a plan has at the least, if the budget allows: the average over few rounds is of models that had hardly
begun, and 200 instead of 20 gave 1 to 3 points of accuracy where there is much noise (mushrooms, rcv1)."""
ACCURACY_PER_SECOND = 0.01 / 600
"""What a second on the network is worth in accuracy: a point for ten minutes."""
APART = 0.002
"""What nodes that gossip in pairs lose by not agreeing, besides noise: nothing on a9a, 0.009 on epsilon-like data."""
FAINTEST = 0.5
"""Deviations of the noise that a coordinate of the mean gradient must pass to count, of two classes. Half of one gained
0.7 points of AUC on epsilon-like data and costs 0.1 at most. Of ten classes one deviation cost 0.4 points on MNIST, and
of wide data half of one cost a point of accuracy on rcv1 at ε = 0.2: in texts many words say a little each."""
MARGIN = 1.0
"""Deviation of the noise in a margin up to which a model is made longer, where faint coordinates do not count. A hinge
sees no difference between margins below 1, so that up to there going further costs nothing but length, and from there
on records that are right let go. With 100 seeds and 20 nodes, at ε = 0.1 on a9a, mushrooms and epsilon-like data: +0.8,
+4.3 and +0.6 points of accuracy, -0.0, -0.3 and +0.4 of AUC; at ε = 0.2 0, +2.2 and +1.8, and 0, +0.1 and +1.0."""
RARE = 0.1
"""Share of a class that is rare. Of the problems of the fit, those with 7 % positives are ordered better by a logistic
loss beside noise (AUC +0.1 to +0.8 points, as accurate), those with 25 % are not. So are classes that are balanced by
weights: covtype with 1 % positives +0.9 points of AUC and +1.8 of balanced accuracy, a rare topic of rcv1 the same."""
BALANCE = 0.04
"""Of μ², for the threshold of two classes that half of the weights and a release balance (`privacy.balance`). Of
problems like those of the fit, with 1 to 7 % positives, 0.02 and 0.08 make 0.2 points less and 0.1 more."""
DROWNED = 0.003
"""Noise in a coordinate of the mean gradient, beside records of weight 1, from which on whole weights drown. There such
problems gain 3 points of balanced accuracy by the release, and one of AUC; beside less noise one or less of both."""
UNSURE, BLIND = 0.004, 0.02
"""Noise in a mean of numbers within [0, 1] from which on the constant term may be lost in the rounds, and from which on
no count shows it. Of two classes without a prior, accuracy at an AUC that is the same: breast cancer at ε = 4 of 20
owners 0.63, and 0.92 with it; spam7 at ε = 0.2 of one owner 0.77 and 0.81. Below `UNSURE` nothing is gained (wa_churn,
credit_data); beyond `BLIND` the common class alone is right as often."""
BALANCE_WITHOUT_PRIOR = 0.1
"""Of μ², for the threshold of two classes without a prior: 0.04 finds worse ones on eight of nine tables."""
MAX_COUNT_NOISE = 0.3
"""Noise in a count of the rare class's scores, over how many records it has, at most. Up to there it loses over 3
points on none of 270 problems; beyond, over 4 on none of 130, but it is worse on one in four."""
STRONG = 0.1
"""Share of the shrinkage 1/τ that is given to h as μ; the rest is γ. Which of the two hardly matters."""
WORK = 5e9
"""Multiplications a run may need before records are sampled: some seconds."""
ENTRIES = 200
"""Entries that a row is counted with at the most, where m is larger: such data is sparse as a rule."""
SHARES = (0.005, 0.03, 0.05)
"""Of μ², for the mean square length of rows, for their mean, and for the mean squares of their columns."""
LARGER = (0.02, 0.1)
"""The same of lengths and of their mean, where few records need more for them. Without a center the constant term is
lost where columns lie far from the middle of their bounds: breast cancer at ε = 1 has an accuracy of 0.69, and 0.92
with it, at an AUC of 0.98 in either case."""
FAINT = 0.1
"""Noise in a mean square length, at most (the bound's is 1), and in the square of a mean."""
WIDE = 4000
"""Columns up to which a mean is taken off, since sparse rows become dense by it, and faint coordinates do not count."""
TAIL = COUNTED.make("tail", 0.5)
"""The rounds that count in the model: the early ones are of models that had hardly begun."""
EXACT = AVERAGINGS.make("exact")
MANY = 1024
"""Nodes beyond which nobody sends to all others, if all can be linked: the mean of all is made by doubling."""
EXCHANGES = (1, 2, 4, 8, 16, 32)
"""Exchanges for each gradient that are tried where pairs share noise and the graph is given."""
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""r that are tried; with 10 the noise is within 0.5 % of what it is without limit."""
UNEVEN = 1.1
"""From which ratio of the largest to the smallest node on sizes make a difference."""
GENTLER = {"logistic": 0.5, "softmax": 0.5}
"""Clip as a share of the slope bound where steep slopes are rare: at the start all of them are at or below it."""


@dataclass(frozen=True)
class _Network:
    """A way to activate nodes, and what follows from it."""

    activation: Activation
    iota: float
    beta: float
    messages: float
    averaging: Averaging = GOSSIP
    waits: float = 1.0


@dataclass(frozen=True)
class _Scale:
    """The problem in units of its public bounds: gradients and rows have norm at most 1."""

    lipschitz: float
    clip: float | None
    row: float
    weights: Weights
    z1: float
    noise: float
    """c of full batches, over L, beside gradients of weight 1; with pairs, if what they share were without limit."""
    weight: float = 1.0
    moments: Moments | None = None
    honest: int = 0
    """n − k, where pairs share noise; 0 where they do not."""

    @property
    def reach(self) -> float:
        """What τ is to be divided by."""
        return self.lipschitz * self.row * self.weight


def choose(inputs: PublicInputs, **fixed: Any) -> Choice:
    """The best plan for the facts that agrees with everything that is fixed; settings that are None are not fixed.

    Parameters
    ----------
    inputs : public numbers
    sampling, batch : a sampler such as 'poisson(64)' or 'full'; or a batch size alone, for Poisson sampling
    rounds, activation, gamma, a, clip, weights, mixing, correct, averaging, on_violation, primal : as in a spec
    method : of a regression with targets in [−1, 1], which may then be other than descent: see `regression.WAYS`
    h, alpha, l1_ratio : a whole regularizer; or the weight of the penalty, and which share of it is l1

    Examples
    --------
    >>> inputs = PublicInputs(sizes=(1600,) * 20, features=123, loss="hinge", epsilon=1.0, delta=1e-5)
    >>> choice = choose(inputs)
    >>> print(choice.spec.network.activation, choice.spec.privacy.sampling)
    everyone full
    >>> choose(inputs, rounds=50, sampling="poisson(64)").spec.algorithm.rounds
    50
    """
    odd = sorted(set(fixed) - set(FIXED))
    if odd:
        raise SpecError(f"the planner has no setting '{odd[0]}'; it knows {', '.join(FIXED)}")
    given = {name: _read(name, value) for name, value in fixed.items() if value is not None}
    if inputs.loss.targets == "real":
        from sottovoce.planner import regression  # which is made of what stands here

        return regression.choose(inputs, given)
    return search(inputs, given)


def search(inputs: PublicInputs, given: dict[str, Any]) -> Choice:
    """The same for settings that were read: all plans there are, and the best of them."""
    inputs = _with_loss(_balanced(inputs, given), given)
    scale = _scale(inputs, given)
    networks = _networks(inputs, given)
    plans = [_plan(inputs, given, scale, network, T) for network in networks for T in _rounds(inputs, given)]
    if min(plan.seconds for plan in plans) > inputs.max_seconds and "rounds" not in given:
        fewer = [T for T in ROUNDS if T < min(plan.rounds for plan in plans)]
        plans += [_plan(inputs, given, scale, network, T) for network in networks for T in fewer]
    afford = [p for p in plans if inputs.max_bytes is None or p.bytes <= inputs.max_bytes]
    if not afford:
        least = min(plan.bytes for plan in plans)
        raise SpecError(f"no plan fits into {inputs.max_bytes:g} bytes: the smallest sends {least:g}; allow more")
    in_time = [p for p in afford if p.seconds <= inputs.max_seconds] or [min(afford, key=lambda p: p.seconds)]
    best = min(in_time, key=lambda p: p.loss + ACCURACY_PER_SECOND * _seconds(p))
    iota = next(network.iota for network in networks if network.activation == best.activation)
    spec = _spec(inputs, given, scale, best, iota)
    shortest = len(in_time) == len(plans) or best.rounds < max(p.rounds for p in in_time)
    return Choice(spec, reasons(inputs, given, best, spec, shortest), best.loss, others(afford, best))


def _with_loss(inputs: PublicInputs, given: dict[str, Any]) -> PublicInputs:
    """Logistic in place of the hinge, where the planner may say so and noise hardly matters, or one class is rare.

    Beside much noise a hinge is the better loss, by 0.1 to 0.4 points on most kinds of synthetic problems. Beside
    little the two are as accurate, and the logistic one orders records better: +0.6 points of AUC on covtype. Of a rare
    class it does so beside any noise, since the other class pulls on, where a hinge is content with a constant.
    """
    two = inputs.loss.name == "hinge" and inputs.outputs == 1
    if "loss" not in inputs.free or not two or "clip" in given:
        return inputs
    scale = _scale(inputs, given)
    spent = 0.0 if scale.moments is None else scale.moments.total
    noise = scale.noise * math.sqrt(1.0 - spent)  # or more records, with which gates open, could undo it
    smooth = predict.calm(noise, inputs.features, inputs.rounds) or is_rare(inputs)
    return replace(inputs, loss=LOSSES.make("logistic")) if smooth else inputs


def _balanced(inputs: PublicInputs, given: dict[str, Any]) -> PublicInputs:
    """With half of the weights, and a threshold by a release, where a rare class that is to weigh more would drown.

    What comes back has `balance` if, and only if, that is the plan, and then the mean weight that is left.
    """
    if inputs.balance is None:
        return inputs
    share = Balance(BALANCE, *inputs.balance)
    sizes, z1 = np.array(inputs.sizes), predict.single(inputs.epsilon, inputs.delta)
    noise = predict.level(ByRecords()(sizes), lipschitz=1.0, sizes=sizes, z1=z1, honest=inputs.honest)
    counted = noise / (2.0 * share.factor) / min(share.prior, 1.0 - share.prior)
    complete = inputs.n == 1 or inputs.graph(inputs.n).is_complete
    may = inputs.private_scaling and complete and inputs.intercept and inputs.outputs == 1 and is_rare(inputs)
    if may and not inputs.may_lose and not {"h", "alpha", "activation", "mixing"} & set(given):
        if noise / inputs.weight >= DROWNED and counted <= MAX_COUNT_NOISE:
            return replace(inputs, weight=share.mean_weight)
    return replace(inputs, balance=None)


def _threshold(inputs: PublicInputs, given: dict[str, Any]) -> Balance:
    """What is released of the scores after the last round; false where nothing is."""
    if inputs.balance is not None:
        return Balance(BALANCE, *inputs.balance)
    complete = inputs.n == 1 or inputs.graph(inputs.n).is_complete
    may = inputs.threshold and complete and inputs.intercept and inputs.outputs == 1 and not inputs.may_lose
    if not may or inputs.loss.targets != "binary" or {"h", "alpha", "activation", "mixing"} & set(given):
        return Balance()
    return Balance(BALANCE_WITHOUT_PRIOR) if UNSURE <= _mean_noise(inputs) <= BLIND else Balance()


def _mean_noise(inputs: PublicInputs) -> float:
    """Noise that one release of all records would leave in a mean of numbers within [0, 1]."""
    sizes, z1 = np.array(inputs.sizes), predict.single(inputs.epsilon, inputs.delta)
    return predict.level(ByRecords()(sizes), sizes, 0.5, z1, inputs.honest)


def is_rare(inputs: PublicInputs) -> bool:
    """Whether a public prior says that one class has few of the records, or little of their weight."""
    return inputs.rarest is not None and inputs.rarest <= RARE


def _longest(inputs: PublicInputs) -> float:
    """τ/T at most: twice as much where slopes fade before they turn."""
    return predict.LONGEST_STEP * (2.0 if inputs.loss.name == "logistic" else 1.0)


def _seconds(plan: Plan) -> float:
    """How long a plan keeps the network busy, with rounds up to the fewest for nothing."""
    return plan.seconds * max(1.0, FEWEST / plan.rounds)


def _scale(inputs: PublicInputs, given: dict[str, Any]) -> _Scale:
    loss, row = inputs.loss, math.hypot(inputs.row_norm, inputs.intercept)
    joint, clip = Joint(loss, inputs.outputs), given.get("clip")
    if clip is None and (loss.name in GENTLER or joint.one_vs_rest) and math.isfinite(loss.slope_bound):
        # one class against the rest: as if one of them were wrong at a time
        clip = loss.slope_bound * row * GENTLER.get(loss.name, 1.0)
    problem = ProblemSpec(loss, outputs=inputs.outputs, row_norm=inputs.row_norm, intercept=inputs.intercept)
    lipschitz = make_lipschitz(Spec(AlgorithmSpec(1), problem, privacy=PrivacySpec(clip=clip)))
    sizes, z1 = np.array(inputs.sizes), predict.single(inputs.epsilon, inputs.delta)
    uneven = max(inputs.sizes) > UNEVEN * min(inputs.sizes) and not inputs.honest  # with pairs all add as much noise
    weights = given.get("weights", ByRecords(round(predict.typical_size(z1), 1) if uneven else 0.0))
    level = partial(predict.level, sizes=sizes, z1=z1, honest=inputs.honest)
    moments = _moments(inputs, given, level(ByRecords()(sizes), lipschitz=0.5))
    left = 1.0 if moments is None else 1.0 - moments.total
    left -= sum(given[name].total for name in ("quantiles", "distribution", "inference") if name in given)
    left -= _threshold(inputs, given).total
    noise = level(weights(sizes), lipschitz=1.0) / inputs.weight / math.sqrt(left)
    return _Scale(lipschitz, clip, row, weights, z1, noise, inputs.weight, moments, inputs.honest)


def _moments(inputs: PublicInputs, given: dict[str, Any], noise: float) -> Moments | None:
    """Which moments to release: those that their noise would not drown, by public numbers.

    `noise` is the deviation that is left in each coordinate of the nodes' mean of φ.
    """
    if "moments" in given or "distribution" in given:
        return given.get("moments")
    features = inputs.features - (inputs.intercept > 0)
    complete = inputs.n == 1 or inputs.graph(inputs.n).is_complete
    if (
        not inputs.private_scaling
        or inputs.may_lose  # real nodes make no release before round 1 that can go on without one of them
        or not complete
        or features < 1
        or {"h", "alpha", "activation", "mixing"} & set(given)
    ):
        return None
    may = inputs.intercept > 0 and not inputs.sparse and features <= WIDE
    center = _share(SHARES[1], LARGER[1] if may else 0.0, 2.0 * noise * math.sqrt(features), math.sqrt(FAINT))
    center = center if may else 0.0
    length = _share(SHARES[0], LARGER[0] if center == LARGER[1] else 0.0, noise, FAINT)
    scale = SHARES[2] if 2 * math.sqrt(2.0) * noise / math.sqrt(SHARES[2]) < 1 / features else 0.0
    return Moments(length, center, scale)


def _share(usual: float, most: float, noise: float, bearable: float) -> float:
    """The usual share of the budget, or the larger one, with which the noise is bearable; 0 where neither does.

    Parameters
    ----------
    usual, most : the shares
    noise : the deviation that all of the budget would leave
    bearable : the deviation at most

    Examples
    --------
    >>> [_share(0.03, 0.1, noise, 0.3) for noise in (0.01, 0.09, 0.5)]
    [0.03, 0.1, 0.0]
    """
    return next((share for share in (usual, most) if share and noise / math.sqrt(share) <= bearable), 0.0)


def _networks(inputs: PublicInputs, given: dict[str, Any]) -> list[_Network]:
    """Everyone, or what is fixed; on the complete graph also pairs, who send n messages a round and not n(n − 1).

    Where pairs of nodes share noise that only the mean of all is rid of, that mean is made exactly, or by several
    exchanges over the links that there are.
    """
    scheme: Activation = given.get("activation", Everyone()) if inputs.n > 1 else Everyone()
    graph, rule = inputs.graph(inputs.n), given.get("mixing", METROPOLIS)
    fewer = graph.is_complete and graph.n > MANY and isinstance(scheme, Everyone)  # messages, for the same mean
    ways: list[tuple[Activation, Averaging]] = [(scheme, given.get("averaging", EXACT if fewer else GOSSIP))]
    if inputs.may_lose and not {"activation", "averaging"} & set(given):
        ways = [(scheme, EXACT)]
    elif inputs.honest and "averaging" not in given:
        ways = [(scheme, EXACT)] if graph.is_complete else [(scheme, Gossip(k)) for k in EXCHANGES]
    elif not {"activation", "averaging"} & set(given) and graph.is_complete and inputs.n > 3:
        ways.append((Matching(inputs.n // 2), GOSSIP))
        if inputs.network.relay is not None and not fewer:  # then messages cost more than waiting
            ways.append((scheme, EXACT))
    found = []
    for scheme, averaging in ways:
        iota, _ = activation_rate(graph, scheme, bool(given.get("correct")))
        mixing = beta(graph, scheme, rule, averaging=averaging).beta
        messages, waits = traffic(graph, scheme, rule, averaging, SAMPLED)
        found.append(_Network(scheme, iota, mixing, messages, averaging, waits))
    return found


def _rounds(inputs: PublicInputs, given: dict[str, Any]) -> list[int]:
    if "rounds" in given:
        return [int(given["rounds"])]
    fewest = 1 if inputs.max_bytes else FEWEST  # few bytes may allow only few rounds
    return [T for T in ROUNDS if fewest <= T < inputs.rounds] + [inputs.rounds]


def _plan(inputs: PublicInputs, given: dict[str, Any], scale: _Scale, network: _Network, T: int) -> Plan:
    """The best plan with this activation and T rounds."""
    iota = network.iota
    releases = max(1.0, iota * T)
    sampling = _sampling(inputs, given, scale, releases)
    full = isinstance(sampling, Full)
    sizes = np.array(inputs.sizes)
    rates = [1.0 if full else sampling.batch(int(q)) / q for q in sizes]
    more = max(predict.excess(sampling.kind, rate, releases, scale.z1) for rate in set(rates))
    a = given.get("a", constant(1))(T)
    uneven = T * float(np.sum(a**2)) / float(np.sum(a)) ** 2  # weights that grow use the releases unevenly
    drawn = 0.0 if full else 1 / (inputs.features * releases * float(np.dot(rates, sizes)))
    ratio, shared = _shared(inputs, network, releases)
    anew = math.sqrt(1.0 + inputs.may_lose / T)  # for releases that are made anew
    c = math.sqrt((scale.noise * more * shared * anew) ** 2 * uneven + drawn)
    reach = _reach(inputs, given, scale, c, T, iota)
    foreseen = float(predict.loss(reach, c, inputs.features, releases)) + (APART if network.beta > 0 else 0.0)
    if _faint(inputs) and not {"h", "alpha", "gamma"} & set(given):
        reach = max(reach, min(MARGIN / c, _longest(inputs) * releases))
    sent = network.messages * T * network.averaging.message_bytes(inputs.m)
    noise = c * scale.lipschitz * inputs.weight
    seconds = inputs.network.seconds(T, network.waits, network.messages, sent, inputs.n)
    way = network.averaging, ratio, network.waits, seconds
    return Plan(network.activation, sampling, T, reach / scale.reach, noise, foreseen, sent, *way)


def _shared(inputs: PublicInputs, network: _Network, releases: float) -> tuple[float, float]:
    """r, and by what the network and r multiply the noise of a mean that is exact, of pairs that share without limit.

    Recent noise has not mixed yet: of own noises, n β²/(1 − β²) rounds' worth, of those that pairs share 1 + r²n times
    as much. And the pairs of a release that is lost stay uncancelled: r²(n − 1) own noises more.
    """
    recent = inputs.n * network.beta**2 / (releases * (1 - network.beta**2)) if network.beta < 1 else math.inf
    if not inputs.honest:
        return 0.0, math.sqrt(1 + recent)

    def factor(ratio: float) -> float:
        stray = 1 + recent * (1 + ratio**2 * inputs.n) + inputs.dropout_rate * ratio**2 * (inputs.n - 1)
        return predict.shared(inputs.honest, ratio) * math.sqrt(stray)

    best = min(RATIOS, key=factor)
    return best, factor(best)


def _sampling(inputs: PublicInputs, given: dict[str, Any], scale: _Scale, releases: float) -> Sampling:
    if "sampling" in given:
        return given["sampling"]
    if "batch" in given:
        return Poisson(int(given["batch"]))
    work = releases * sum(inputs.sizes) * min(inputs.features, ENTRIES) * inputs.outputs
    rate = max(predict.enough(releases, scale.z1), float(f"{WORK / work:.1g}")) if work > WORK else 1.0
    return Poisson(rate) if rate < 1 else Full()


def _reach(inputs: PublicInputs, given: dict[str, Any], scale: _Scale, c: float, T: int, iota: float) -> float:
    """τ in units of the bounds: the best one, or what the user's γ and μ leave of it."""
    A = iota * float(np.sum(given.get("a", constant(1))(T)))
    mu = _modulus(inputs, given)
    if "gamma" in given:
        held = mu + float(given["gamma"](T)[-1]) / A
        if not held > 0:
            raise SpecError(
                f"γ is over 0 at the end of a run whose h shrinks nothing, not '{given['gamma']}'; raise it"
            )
        return scale.reach / held
    longest = _longest(inputs)
    best, _ = predict.best_reach(c * inputs.stretch, inputs.features, max(1, round(iota * T)), longest)
    return 1 / max(1 / best, mu / scale.reach + 1 / (longest * iota * T)) if mu else best


def _modulus(inputs: PublicInputs, given: dict[str, Any]) -> float:
    """μ, where the user has fixed it; 0 where it is the planner's to choose."""
    if "h" in given:
        return float(given["h"].modulus)
    if "alpha" not in given:
        return 0.0
    share = {"l2": 1.0, "elastic_net": 1 - given.get("l1_ratio", 0.5)}.get(inputs.penalty, 0.0)
    return float(given["alpha"]) * share


def _penalty(inputs: PublicInputs, given: dict[str, Any], plan: Plan) -> Regularizer:
    """h: what the user fixed; else a tenth of the shrinkage, and a threshold of one deviation of the noise for l1.

    Where l2 was nobody's wish, and there is noise to speak of, there is a threshold of half a deviation beside it: what
    does not pass that is noise, more likely than not.
    """
    if "h" in given:
        return given["h"]
    ratio = {"l2": 0.0, "l1": 1.0}.get(inputs.penalty, given.get("l1_ratio", 0.5))
    phi, mu = (given["alpha"],) * 2 if "alpha" in given else (_short(plan.noise), _short(STRONG / plan.reach))
    if _faint(inputs) and "alpha" not in given:
        return elastic_net(_short(FAINTEST * plan.noise), mu)
    if inputs.penalty == "elastic_net":
        return elastic_net(float(ratio * phi), float((1 - ratio) * mu))
    return {"none": Separable(), "l1": l1(float(phi)), "l2": l2(float(mu))}[inputs.penalty]


def _faint(inputs: PublicInputs) -> bool:
    """Whether faint coordinates do not count: two classes beside noise, as `_with_loss` leaves it, not in wide data."""
    noisy = inputs.loss.name == "hinge" and inputs.outputs == 1 and inputs.features <= WIDE
    return noisy and "penalty" in inputs.free and inputs.penalty == "l2"


def _spec(inputs: PublicInputs, given: dict[str, Any], scale: _Scale, plan: Plan, iota: float) -> Spec:
    a: Sequence = given.get("a", constant(1))
    h = _penalty(inputs, given, plan)
    A = iota * float(np.sum(a(plan.rounds)))
    gamma = given.get("gamma") or constant(_short(A * (1 / plan.reach - h.modulus)))
    counted = given.get("counted", ALL if {"a", "gamma"} & set(given) else TAIL)
    share = {"moments": scale.moments, "balance": _threshold(inputs, given) or None}
    share |= {name: given.get(name) for name in ("quantiles", "distribution", "inference")}
    one_shot: dict[str, Any] = {name: value for name, value in share.items() if value is not None}
    spec = Spec(
        AlgorithmSpec(plan.rounds, a=a, gamma=gamma, counted=counted),
        ProblemSpec(inputs.loss, h, scale.weights, inputs.intercept, inputs.row_norm, outputs=inputs.outputs),
        NetworkSpec(inputs.graph, plan.activation, averaging=plan.averaging),
        PrivacySpec(
            sampling=plan.sampling,
            noise=Private(inputs.epsilon),
            delta=inputs.delta,
            law=LAWS.make("pairs", plan.ratio) if plan.ratio else GaussianChoice(),
            clip=scale.clip,
            adversary=inputs.adversary,
            may_lose=inputs.may_lose,
            **one_shot,
        ),
    )
    changes = {
        "network__weights": given.get("mixing"),
        "network__correct": given.get("correct"),
        "problem__on_violation": given.get("on_violation"),
        "algorithm__primal": given.get("primal"),
    }
    return spec.replace(**{name: value for name, value in changes.items() if value is not None})


def _short(value: float) -> float:
    """Four digits: a plan is to be read."""
    return float(f"{value:.4g}")


def _read(name: str, value: Any) -> Any:
    """A setting as a value: text is read here, and a plain γ or a is the same in every round."""
    if name in ("a", "gamma") and isinstance(value, int | float):
        return constant(float(value))
    if name == "rounds":
        return limits.check_count("the number of rounds", value, limits.ROUNDS)
    if name == "clip":
        return limits.check_length("the clip", value)
    return TABLES[name].read(value) if name in TABLES and isinstance(value, str) else value


def reasons(inputs: PublicInputs, given: dict[str, Any], plan: Plan, spec: Spec, shortest: bool) -> list[str]:
    """One line for each thing that was chosen or fixed."""
    n, total = inputs.n, sum(inputs.sizes)
    said = [
        f"ε = {inputs.epsilon:g} and δ = {inputs.delta:g} against '{inputs.adversary}' leave noise of deviation "
        f"{plan.noise:.2g} in each coordinate of the mean gradient, however many rounds there are.",
        *_why_these_secrets(inputs, plan),
        *_what_losses_cost(inputs, plan),
        _why_these_speak(given, plan, n),
        _why_these_records(given, plan, total),
        _why_these_rounds(inputs, given, plan, shortest),
        _why_these_steps(given, plan, spec),
        *_why_this_loss(inputs, spec),
        *_why_this_threshold(spec),
        *_too_little(inputs),
    ]
    if spec.privacy.clip is not None and "clip" not in given:
        said.append(
            f"Each record's gradient is clipped at {spec.privacy.clip:.3g}, below the bound of the loss: few records "
            "are as steep, and the noise is made for the clip."
        )
    weights = spec.problem.weights
    if isinstance(weights, ByRecords) and weights.kappa and "weights" not in given:
        said.append(
            f"Nodes are weighed by their records, those with fewer than some {weights.kappa:.2g} less: their noise "
            "would drown what they have to say."
        )
    return said


def _why_these_secrets(inputs: PublicInputs, plan: Plan) -> list[str]:
    if not inputs.honest:
        return []
    dear = math.sqrt(inputs.n / inputs.honest)
    return [
        f"Every two nodes share noise that cancels in the mean, {plan.ratio:g} times what each adds alone: the "
        f"{inputs.honest} of {inputs.n} nodes that keep their secrets hide one another, and the mean has {dear:.2f} "
        "times the noise of a trusted center's."
    ]


def losses_cost(n: int, honest: int, ratio: float, rounds: int, may_lose: int) -> tuple[float, float]:
    """By what the noise of the mean grows: at once, to be prepared; and in all, if all may_lose nodes are gone at once.

    Without pairs (`honest` is 0) no noise need be raised.

    Examples
    --------
    >>> losses_cost(20, 11, 10.0, 500, 2)[0].__round__(4), losses_cost(20, 11, 10.0, 500, 2)[1].__round__(3)
    (1.002, 1.168)
    """
    fewer = n / (n - may_lose)
    prepared = math.sqrt(1.0 + may_lose / rounds)
    raised = (1.0 + ratio**2 * honest) / (1.0 + ratio**2 * (honest - may_lose)) if honest else 1.0
    return prepared, prepared * math.sqrt(fewer * raised)


def _what_losses_cost(inputs: PublicInputs, plan: Plan) -> list[str]:
    if not inputs.may_lose:
        return []
    prepared, worst = losses_cost(inputs.n, inputs.honest, plan.ratio, plan.rounds, inputs.may_lose)
    nodes = f"{inputs.may_lose} node{'s' * (inputs.may_lose > 1)}"
    return [
        f"The run goes on if {nodes} of {inputs.n} are lost. To be prepared costs {prepared:.4f} times the noise; if "
        f"they are lost in the first round the mean has {worst:.3f} times, if later less."
    ]


def _why_these_speak(given: dict[str, Any], plan: Plan, n: int) -> str:
    if "activation" in given:
        return f"Who speaks in a round was fixed: {plan.activation}."
    if n == 1:
        return "A single node has nobody to wait for."
    if plan.averaging == EXACT:
        return (
            f"Everyone speaks in every round, and the mean of all is made exactly, in {plan.waits:.0f} exchanges: "
            + ("what pairs share is gone at once." if plan.ratio else "nobody sends to all others.")
        )
    if plan.ratio and isinstance(plan.averaging, Gossip):
        return f"Everyone speaks in every round, and messages are mixed {plan.averaging.k} times over the graph."
    if isinstance(plan.activation, Everyone):
        return f"Everyone speaks in every round: the noise of {n} nodes averages out, and silence saves no privacy."
    return f"Nodes speak in pairs, {plan.activation}: that sends {n} messages a round and not {n * (n - 1)}."


def _why_these_records(given: dict[str, Any], plan: Plan, total: int) -> str:
    if "sampling" in given or "batch" in given:
        return f"How records are drawn was fixed: {plan.sampling}."
    if isinstance(plan.sampling, Full):
        return f"All {total:,} records are used in every round: sampling would save work, but never noise."
    share = getattr(plan.sampling, "size", 1.0)
    return f"A round uses each record with probability {share:g}: hardly more noise than all of them, less work."


def _why_these_rounds(inputs: PublicInputs, given: dict[str, Any], plan: Plan, shortest: bool) -> str:
    sent = f"{plan.rounds:,} rounds send {plan.bytes / 1e6:,.1f} MB in {plan.seconds:,.0f} s ({inputs.network})"
    if plan.seconds > inputs.max_seconds:
        return f"{sent}: more than the {inputs.max_seconds:,.0f} s allowed, and no plan takes less."
    if "rounds" in given:
        return f"{sent}: as fixed."
    if plan.rounds == inputs.rounds or not shortest:
        return f"{sent}: as many as the budget allows."
    return f"{sent}: more would gain less than they cost, at a point of accuracy for ten minutes."


def _why_these_steps(given: dict[str, Any], plan: Plan, spec: Spec) -> str:
    chosen = [f"gamma {spec.algorithm.gamma}"] if "gamma" not in given else []
    chosen += [f"regularizer {spec.problem.h}"] if not {"h", "alpha"} & set(given) else []
    what = " and ".join(chosen) or "the fixed gamma and regularizer"
    return (
        f"With {what} a model is at most {plan.reach:.3g} times the mean gradient: a smaller multiple would miss the "
        f"optimum by more, a larger one would add more noise. Predicted loss of accuracy: {100 * plan.loss:.1f} "
        f"points; four in five runs on real tables lose {predict.SPREAD[0]:g} to {predict.SPREAD[1]:g} times that."
    )


def _why_this_threshold(spec: Spec) -> list[str]:
    if not spec.privacy.balance:
        return []
    share = f"for {100 * spec.privacy.balance.share:g} % of the budget"
    if not spec.privacy.balance.prior:
        return [
            "Noise may hide how likely the classes are: noisy counts of scores after the last round say where most "
            f"answers are right, {share}."
        ]
    return [
        "Weights that balance the classes would leave little beside the noise: they go half of the way, and noisy "
        f"counts of scores after the last round say where to draw the line, {share}."
    ]


def _too_little(inputs: PublicInputs) -> list[str]:
    """What is to be said where noise hides the constant term, and with it which answers are right."""
    if inputs.outputs > 1 or inputs.loss.targets != "binary" or (noise := _mean_noise(inputs)) <= BLIND:
        return []
    return [
        f"Too little data: noise of {noise:.2g} in a mean of all records hides how likely the classes are, and the "
        "answer may be one class only, whatever the forecast. Take more records, a larger ε, or trust a majority."
    ]


def _why_this_loss(inputs: PublicInputs, spec: Spec) -> list[str]:
    if "loss" in inputs.free and inputs.loss.name == "logistic" and is_rare(inputs):
        return ["One class is rare, by the prior: the loss is logistic, which orders such records best."]
    if "loss" in inputs.free and inputs.loss.name == "logistic":
        return ["Noise will add little to what is lost in any case: the loss is logistic, which orders records best."]
    if "penalty" in inputs.free and getattr(spec.problem.h, "phi", 0.0) > 0:
        return ["The l1 part of the regularizer ignores coordinates below half a deviation of the noise."]
    return []


def others(plans: Iterable[Plan], best: Plan, count: int = 8) -> list[dict[str, Any]]:
    """The chosen plan, and for each number of rounds near it the best of the rest."""
    near = sorted((p for p in plans if p is not best), key=lambda p: (abs(math.log(p.rounds / best.rounds)), p.loss))[
        : count - 1
    ]
    return [_row(p) for p in (best, *sorted(near, key=lambda p: p.loss))]


def _row(plan: Plan) -> dict[str, Any]:
    """A plan for a table or JSON: choices in their notation."""
    texts = {name: str(getattr(plan, name)) for name in ("activation", "sampling", "averaging")}
    return plan._asdict() | texts
