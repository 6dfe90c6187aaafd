"""The planner: a whole spec from public numbers alone. It sees no data.

What may be known is `Facts`; every candidate is priced by the predicted loss of accuracy (`predict`), and the cheapest
of the best is taken. `Choice` says which it is, why in plain sentences, and what else there was.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sottovoce import within
from sottovoce._types import FLOAT_BYTES
from sottovoce.algorithm.method import ALL, COUNTED, SEQUENCES, Sequence, constant
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.network.activation import ACTIVATIONS, Activation, Everyone, Matching
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import GRAPHS, Family
from sottovoce.network.mixing import GOSSIP, METROPOLIS, WEIGHTS, Averaging, Gossip, activation_rate, beta
from sottovoce.network.schedule import draw_schedule
from sottovoce.notation import Choices, Field
from sottovoce.planner import predict
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.balance import NO_BALANCE, Balance
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.moments import MOMENTS, NO_MOMENTS, Moments
from sottovoce.privacy.quantiles import NO_QUANTILES, QUANTILES
from sottovoce.privacy.release import ADVERSARIES, LAWS, Adversary, GaussianLaw, SecretPairs, refuse_unless_runnable
from sottovoce.privacy.sampling import SAMPLINGS, Full, Poisson, Sampling
from sottovoce.problem import objective
from sottovoce.problem.losses import LOSSES, Joint, Loss
from sottovoce.problem.objective import ByRecords, Weights
from sottovoce.problem.regularisers import REGULARISERS, Regulariser, Separable, elastic_net, l1, l2
from sottovoce.run.build import make_lipschitz
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

PENALTIES = ("l2", "l1", "elastic_net", "none")
MAX_ROUNDS = 1000
"""More rounds than this hardly raise the accuracy of anything tried, and each costs a round trip."""


@dataclass(frozen=True)
class Facts:
    """What may be known of a problem before anybody looks at a record.

    Attributes
    ----------
    sizes : q_i, the records (or persons, where they are the unit of privacy) of each node
    features : the columns of a record, the intercept's included
    outputs : the classes that have weights of their own; 1 for two classes and for regression
    row_norm, intercept : R and B, the public bounds of a row
    penalty : 'l2', 'l1', 'elastic_net' or 'none'
    max_rounds, max_bytes : what may be spent on the network; None for the default of 1000 rounds, and any bytes
    weight : what a record's loss is multiplied by on average, at most 1: so much less is learned beside the same noise
    shape : whether a share of the budget may be spent on the shape of the data, where that pays (`privacy.moments`)
    quantiles : the same of a regression's targets, whose public range may be too wide (`privacy.quantiles`)
    lost : the share of releases that will never appear, a public guess; what pairs share with them stays uncancelled
    sparse : whether records are stored sparse; they stay so, which they would not with their mean taken off
    free : what of 'loss' (a hinge) and 'penalty' (l2), of two classes, the planner may choose better than it is told
    rarest : the share of the rarest class among records or in their weight, by a public prior; None without one
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
    shape: bool = False
    quantiles: bool = False
    lost: float = 0.0
    sparse: bool = False
    free: tuple[str, ...] = ()
    rarest: float | None = None
    balance: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Facts that no problem has are errors."""
        if not self.sizes or min(self.sizes) < 1:
            raise SpecError("a plan needs nodes, each with at least one record; give the numbers of their records")
        if not 0 < self.epsilon < math.inf:
            raise SpecError(f"a plan needs an ε that is finite and over 0, not {self.epsilon}")
        check_delta(self.delta)
        pairs = isinstance(self.adversary, SecretPairs)
        refuse_unless_runnable(self.adversary, pairs, self.n)
        if pairs and self.honest < 2:
            raise PrivacyError(
                f"against '{self.adversary}' two of the {self.n} nodes must stay honest, for their secrets to hide "
                "anybody; let fewer collude, take more nodes, or trust nobody ('transcript')"
            )
        if not 0 <= self.lost < 1:
            raise SpecError(f"the share of releases that are lost is at least 0 and below 1, not {self.lost}")
        for name, value in (
            ("features", self.features),
            ("outputs", self.outputs),
            ("row_norm", self.row_norm),
            ("weight", self.weight),
            ("max_rounds", self.rounds),
            ("max_bytes", math.inf if self.max_bytes is None else self.max_bytes),
        ):
            if not value > 0:
                raise SpecError(f"{name} must be over 0, not {value}")
        within.check_epsilon(self.epsilon)
        within.check_count("the number of nodes", self.n, within.NODES)
        within.check_count("the largest number of records", max(self.sizes), within.RECORDS)
        within.check_count("the number of features", self.features, within.FEATURES)
        within.check_count("the number of outputs", self.outputs, within.FEATURES)
        within.check_count("max_rounds", self.rounds, within.ROUNDS)
        within.check_length("row_norm", self.row_norm)
        within.check_length("intercept", self.intercept, zero=True)
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


@dataclass(frozen=True)
class Choice:
    """A plan, why it was chosen, and what else there was."""

    spec: Spec
    """All of a run but its seed."""
    reasons: list[str]
    predicted: float
    """Share of records that the model will get wrong beyond the best linear model's, foreseen roughly."""
    alternatives: list[dict[str, Any]]
    """The chosen plan and the best of the others: activation, sampling, rounds, noise, predicted loss, bytes."""


FIXED = (
    "sampling", "batch", "rounds", "activation", "alpha", "l1_ratio", "gamma", "a", "clip", "weights", "h", "mixing",
    "correct", "on_violation", "primal", "averaging", "counted", "moments", "quantiles", "method",
)  # fmt: skip
TABLES: dict[str, Choices[Any]] = {
    "sampling": SAMPLINGS,
    "activation": ACTIVATIONS,
    "gamma": SEQUENCES,
    "a": SEQUENCES,
    "weights": objective.WEIGHTS,
    "h": REGULARISERS,
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
LATENCY, BANDWIDTH = 0.05, 1e7
"""Seconds a round, bytes a second of each node: a plain network, to weigh rounds against bytes."""
PATIENCE = 0.01 / 600
"""What a second on that network is worth in accuracy: a point for ten minutes."""
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
TOLD = 0.3
"""Noise in a count of the rare class's scores, over how many records it has, at most. Up to there it loses over 3
points on none of 270 problems; beyond 0.35 it may lose 27, where what pictures have in common hides the rare ones."""
STRONG = 0.1
"""Share of the shrinkage 1/τ that is given to h as μ; the rest is γ. Which of the two hardly matters."""
WORK = 5e9
"""Multiplications a run may need before records are sampled: some seconds."""
ENTRIES = 200
"""Entries that a row is counted with at the most, where m is larger: such data is sparse as a rule."""
SHARES = (0.005, 0.03, 0.05)
"""Of μ², for the mean square length of rows, for their mean, and for the mean squares of their columns."""
FAINT = 0.1
"""Noise in a mean square length, at most (the bound's is 1), and in the square of a mean."""
WIDE = 4000
"""Columns up to which a mean is taken off, since sparse rows become dense by it, and faint coordinates do not count."""
TAIL = COUNTED.make("tail", 0.5)
"""The rounds that count in the model: the early ones are of models that had hardly begun."""
SAMPLE = 200
"""Rounds of a schedule from which its messages are counted."""
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
    moments: Moments = NO_MOMENTS
    honest: int = 0
    """n − k, where pairs share noise; 0 where they do not."""

    @property
    def reach(self) -> float:
        """What τ is to be divided by."""
        return self.lipschitz * self.row * self.weight


def choose(facts: Facts, **fixed: Any) -> Choice:
    """The best plan for the facts that agrees with everything that is fixed; settings that are None are not fixed.

    Parameters
    ----------
    facts : public numbers
    sampling, batch : a sampler such as 'poisson(64)' or 'full'; or a batch size alone, for Poisson sampling
    rounds, activation, gamma, a, clip, weights, mixing, correct, averaging, on_violation, primal : as in a spec
    method : of a regression with targets in [−1, 1], which may then be other than descent: see `regression.WAYS`
    h, alpha, l1_ratio : a whole regulariser; or the weight of the penalty, and which share of it is l1

    Examples
    --------
    >>> facts = Facts(sizes=(1600,) * 20, features=123, loss="hinge", epsilon=1.0, delta=1e-5)
    >>> choice = choose(facts)
    >>> print(choice.spec.network.activation, choice.spec.privacy.sampling)
    everyone full
    >>> choose(facts, rounds=50, sampling="poisson(64)").spec.algorithm.rounds
    50
    """
    odd = sorted(set(fixed) - set(FIXED))
    if odd:
        raise SpecError(f"the planner has no setting '{odd[0]}'; it knows {', '.join(FIXED)}")
    given = {name: _read(name, value) for name, value in fixed.items() if value is not None}
    if facts.loss.targets == "real":
        from sottovoce.planner import regression  # which is made of what stands here

        return regression.choose(facts, given)
    return search(facts, given)


def search(facts: Facts, given: dict[str, Any]) -> Choice:
    """The same for settings that were read: all plans there are, and the best of them."""
    facts = _with_loss(_balanced(facts, given), given)
    scale = _scale(facts, given)
    networks = _networks(facts, given)
    plans = [_plan(facts, given, scale, network, T) for network in networks for T in _rounds(facts, given)]
    afford = [p for p in plans if facts.max_bytes is None or p.bytes <= facts.max_bytes]
    if not afford:
        least = min(plan.bytes for plan in plans)
        raise SpecError(f"no plan fits into {facts.max_bytes:g} bytes: the smallest sends {least:g}; allow more")
    best = min(afford, key=lambda p: p.loss + PATIENCE * _seconds(facts, p))
    iota = next(network.iota for network in networks if network.activation == best.activation)
    spec = _spec(facts, given, scale, best, iota)
    shortest = len(afford) == len(plans) or best.rounds < max(p.rounds for p in afford)
    return Choice(spec, reasons(facts, given, best, spec, shortest), best.loss, others(afford, best))


def _with_loss(facts: Facts, given: dict[str, Any]) -> Facts:
    """Logistic in place of the hinge, where the planner may say so and noise hardly matters, or one class is rare.

    Beside much noise a hinge is the better loss, by 0.1 to 0.4 points on most kinds of synthetic problems. Beside
    little the two are as accurate, and the logistic one orders records better: +0.6 points of AUC on covtype. Of a rare
    class it does so beside any noise, since the other class pulls on, where a hinge is content with a constant.
    """
    two = facts.loss.name == "hinge" and facts.outputs == 1
    if "loss" not in facts.free or not two or "clip" in given:
        return facts
    scale = _scale(facts, given)
    noise = scale.noise * math.sqrt(1.0 - scale.moments.total)  # or more records, with which gates open, could undo it
    smooth = predict.calm(noise, facts.features, facts.rounds) or is_rare(facts)
    return replace(facts, loss=LOSSES.make("logistic")) if smooth else facts


def _balanced(facts: Facts, given: dict[str, Any]) -> Facts:
    """With half of the weights, and a threshold by a release, where a rare class that is to weigh more would drown.

    What comes back has `balance` if, and only if, that is the plan, and then the mean weight that is left.
    """
    if facts.balance is None:
        return facts
    asked = Balance(BALANCE, *facts.balance)
    sizes, z1 = np.array(facts.sizes), predict.single(facts.epsilon, facts.delta)
    noise = predict.level(ByRecords()(sizes), lipschitz=1.0, sizes=sizes, z1=z1, honest=facts.honest)
    counted = noise / (2.0 * asked.factor) / min(asked.prior, 1.0 - asked.prior)
    together = facts.n == 1 or facts.graph(facts.n).is_complete
    may = facts.shape and together and facts.intercept and facts.outputs == 1 and is_rare(facts)
    if may and not {"h", "alpha", "activation", "mixing"} & set(given):
        if noise / facts.weight >= DROWNED and counted <= TOLD:
            return replace(facts, weight=asked.mean_weight)
    return replace(facts, balance=None)


def is_rare(facts: Facts) -> bool:
    """Whether a public prior says that one class has few of the records, or little of their weight."""
    return facts.rarest is not None and facts.rarest <= RARE


def _longest(facts: Facts) -> float:
    """τ/T at most: twice as much where slopes fade before they turn."""
    return predict.LONGEST_STEP * (2.0 if facts.loss.name == "logistic" else 1.0)


def _seconds(facts: Facts, plan: Plan) -> float:
    """How long a plan keeps a plain network busy."""
    return max(plan.rounds, FEWEST) * plan.waits * LATENCY + plan.bytes / facts.n / BANDWIDTH


def _scale(facts: Facts, given: dict[str, Any]) -> _Scale:
    loss, row = facts.loss, math.hypot(facts.row_norm, facts.intercept)
    joint, clip = Joint(loss, facts.outputs), given.get("clip")
    if clip is None and (loss.name in GENTLER or joint.one_vs_rest) and math.isfinite(loss.slope_bound):
        # one class against the rest: as if one of them were wrong at a time
        clip = loss.slope_bound * row * GENTLER.get(loss.name, 1.0)
    problem = ProblemSpec(loss, outputs=facts.outputs, row_norm=facts.row_norm, intercept=facts.intercept)
    lipschitz = make_lipschitz(Spec(AlgorithmSpec(1), problem, privacy=PrivacySpec(clip=clip)))
    sizes, z1 = np.array(facts.sizes), predict.single(facts.epsilon, facts.delta)
    uneven = max(facts.sizes) > UNEVEN * min(facts.sizes) and not facts.honest  # with pairs all add as much noise
    weights = given.get("weights", ByRecords(round(predict.typical_size(z1), 1) if uneven else 0.0))
    level = partial(predict.level, sizes=sizes, z1=z1, honest=facts.honest)
    moments = _moments(facts, given, level(ByRecords()(sizes), lipschitz=0.5))
    left = 1.0 if moments == NO_MOMENTS else 1.0 - moments.total
    left -= given["quantiles"].total if "quantiles" in given else 0.0
    left -= 0.0 if facts.balance is None else BALANCE
    noise = level(weights(sizes), lipschitz=1.0) / facts.weight / math.sqrt(left)
    return _Scale(lipschitz, clip, row, weights, z1, noise, facts.weight, moments, facts.honest)


def _moments(facts: Facts, given: dict[str, Any], noise: float) -> Moments:
    """Which moments to let out: those that their noise would not drown, by public numbers.

    `noise` is the deviation that is left in each coordinate of the nodes' mean of φ.
    """
    if "moments" in given:
        return given["moments"]
    features = facts.features - (facts.intercept > 0)
    together = facts.n == 1 or facts.graph(facts.n).is_complete
    if not facts.shape or not together or features < 1 or {"h", "alpha", "activation", "mixing"} & set(given):
        return NO_MOMENTS
    deviations = [noise * reach / math.sqrt(share) for reach, share in zip((1, 2, math.sqrt(2)), SHARES, strict=True)]
    length, centre, scale = SHARES
    told = features <= WIDE and features * deviations[1] ** 2 <= FAINT
    centred = facts.intercept > 0 and not facts.sparse and told
    return Moments(
        length if deviations[0] <= FAINT else 0.0,
        centre if centred else 0.0,
        scale if 2 * deviations[2] < 1 / features else 0.0,
    )


def _networks(facts: Facts, given: dict[str, Any]) -> list[_Network]:
    """Everyone, or what is fixed; on the complete graph also pairs, who send n messages a round and not n(n − 1).

    Where pairs of nodes share noise that only the mean of all is rid of, that mean is made exactly, or by several
    exchanges over the links that there are.
    """
    scheme: Activation = given.get("activation", Everyone()) if facts.n > 1 else Everyone()
    graph, rule = facts.graph(facts.n), given.get("mixing", METROPOLIS)
    fewer = graph.is_complete and graph.n > MANY and isinstance(scheme, Everyone)  # messages, for the same mean
    ways: list[tuple[Activation, Averaging]] = [(scheme, given.get("averaging", EXACT if fewer else GOSSIP))]
    if facts.honest and "averaging" not in given:
        ways = [(scheme, EXACT)] if graph.is_complete else [(scheme, Gossip(k)) for k in EXCHANGES]
    elif not {"activation", "averaging"} & set(given) and graph.is_complete and facts.n > 3:
        ways.append((Matching(facts.n // 2), GOSSIP))
    found = []
    for scheme, averaging in ways:
        iota, _ = activation_rate(graph, scheme, bool(given.get("correct")))
        rounds = predict.sampled_rounds(SAMPLE, facts.n)
        sample = draw_schedule(graph, scheme, rule, rounds, np.random.default_rng(0), averaging)
        mixing = beta(graph, scheme, rule, averaging=averaging).beta
        messages, waits = float(sample.up_to()[-1]) / rounds, max(1.0, sample.depth() / rounds)
        found.append(_Network(scheme, iota, mixing, messages, averaging, waits))
    return found


def _rounds(facts: Facts, given: dict[str, Any]) -> list[int]:
    if "rounds" in given:
        return [int(given["rounds"])]
    fewest = 1 if facts.max_bytes else FEWEST  # few bytes may allow only few rounds
    return [T for T in ROUNDS if fewest <= T < facts.rounds] + [facts.rounds]


def _plan(facts: Facts, given: dict[str, Any], scale: _Scale, network: _Network, T: int) -> Plan:
    """The best plan with this activation and T rounds."""
    iota = network.iota
    releases = max(1.0, iota * T)
    sampling = _sampling(facts, given, scale, releases)
    full = isinstance(sampling, Full)
    sizes = np.array(facts.sizes)
    rates = [1.0 if full else sampling.batch(int(q)) / q for q in sizes]
    more = max(predict.excess(sampling.kind, rate, releases, scale.z1) for rate in set(rates))
    a = given.get("a", constant(1))(T)
    uneven = T * float(np.sum(a**2)) / float(np.sum(a)) ** 2  # weights that grow use the releases unevenly
    drawn = 0.0 if full else 1 / (facts.features * releases * float(np.dot(rates, sizes)))
    ratio, shared = _shared(facts, network, releases)
    c = math.sqrt((scale.noise * more * shared) ** 2 * uneven + drawn)
    reach = _reach(facts, given, scale, c, T, iota)
    foreseen = float(predict.loss(reach, c, facts.features, releases)) + (APART if network.beta > 0 else 0.0)
    if _faint(facts) and not {"h", "alpha", "gamma"} & set(given):
        reach = max(reach, min(MARGIN / c, _longest(facts) * releases))
    sent = network.messages * T * facts.m * FLOAT_BYTES
    noise = c * scale.lipschitz * facts.weight
    way = network.averaging, ratio, network.waits
    return Plan(network.activation, sampling, T, reach / scale.reach, noise, foreseen, sent, *way)


def _shared(facts: Facts, network: _Network, releases: float) -> tuple[float, float]:
    """r, and by what the network and r multiply the noise of a mean that is exact, of pairs that share without limit.

    Recent noise has not mixed yet: of own noises, n β²/(1 − β²) rounds' worth, of those that pairs share 1 + r²n times
    as much. And the pairs of a release that is lost stay uncancelled: r²(n − 1) own noises more.
    """
    recent = facts.n * network.beta**2 / (releases * (1 - network.beta**2)) if network.beta < 1 else math.inf
    if not facts.honest:
        return 0.0, math.sqrt(1 + recent)

    def factor(ratio: float) -> float:
        stray = 1 + recent * (1 + ratio**2 * facts.n) + facts.lost * ratio**2 * (facts.n - 1)
        return predict.shared(facts.honest, ratio) * math.sqrt(stray)

    best = min(RATIOS, key=factor)
    return best, factor(best)


def _sampling(facts: Facts, given: dict[str, Any], scale: _Scale, releases: float) -> Sampling:
    if "sampling" in given:
        return given["sampling"]
    if "batch" in given:
        return Poisson(int(given["batch"]))
    work = releases * sum(facts.sizes) * min(facts.features, ENTRIES) * facts.outputs
    rate = max(predict.enough(releases, scale.z1), float(f"{WORK / work:.1g}")) if work > WORK else 1.0
    return Poisson(rate) if rate < 1 else Full()


def _reach(facts: Facts, given: dict[str, Any], scale: _Scale, c: float, T: int, iota: float) -> float:
    """τ in units of the bounds: the best one, or what the user's γ and μ leave of it."""
    A = iota * float(np.sum(given.get("a", constant(1))(T)))
    mu = _modulus(facts, given)
    if "gamma" in given:
        held = mu + float(given["gamma"](T)[-1]) / A
        if not held > 0:
            raise SpecError(
                f"γ is over 0 at the end of a run whose h shrinks nothing, not '{given['gamma']}'; raise it"
            )
        return scale.reach / held
    longest = _longest(facts)
    best, _ = predict.best_reach(c, facts.features, max(1, round(iota * T)), longest)
    return 1 / max(1 / best, mu / scale.reach + 1 / (longest * iota * T)) if mu else best


def _modulus(facts: Facts, given: dict[str, Any]) -> float:
    """μ, where the user has fixed it; 0 where it is the planner's to choose."""
    if "h" in given:
        return float(given["h"].modulus)
    if "alpha" not in given:
        return 0.0
    share = {"l2": 1.0, "elastic_net": 1 - given.get("l1_ratio", 0.5)}.get(facts.penalty, 0.0)
    return float(given["alpha"]) * share


def _penalty(facts: Facts, given: dict[str, Any], plan: Plan) -> Regulariser:
    """h: what the user fixed; else a tenth of the shrinkage, and a threshold of one deviation of the noise for l1.

    Where l2 was nobody's wish, and there is noise to speak of, there is a threshold of half a deviation beside it: what
    does not pass that is noise, more likely than not.
    """
    if "h" in given:
        return given["h"]
    ratio = {"l2": 0.0, "l1": 1.0}.get(facts.penalty, given.get("l1_ratio", 0.5))
    phi, mu = (given["alpha"],) * 2 if "alpha" in given else (_short(plan.noise), _short(STRONG / plan.reach))
    if _faint(facts) and "alpha" not in given:
        return elastic_net(_short(FAINTEST * plan.noise), mu)
    if facts.penalty == "elastic_net":
        return elastic_net(float(ratio * phi), float((1 - ratio) * mu))
    return {"none": Separable(), "l1": l1(float(phi)), "l2": l2(float(mu))}[facts.penalty]


def _faint(facts: Facts) -> bool:
    """Whether faint coordinates do not count: two classes beside noise, as `_with_loss` leaves it, not in wide data."""
    noisy = facts.loss.name == "hinge" and facts.outputs == 1 and facts.features <= WIDE
    return noisy and "penalty" in facts.free and facts.penalty == "l2"


def _spec(facts: Facts, given: dict[str, Any], scale: _Scale, plan: Plan, iota: float) -> Spec:
    a: Sequence = given.get("a", constant(1))
    h = _penalty(facts, given, plan)
    A = iota * float(np.sum(a(plan.rounds)))
    gamma = given.get("gamma") or constant(_short(A * (1 / plan.reach - h.modulus)))
    counted = given.get("counted", ALL if {"a", "gamma"} & set(given) else TAIL)
    spec = Spec(
        AlgorithmSpec(plan.rounds, a=a, gamma=gamma, counted=counted),
        ProblemSpec(facts.loss, h, scale.weights, facts.intercept, facts.row_norm, outputs=facts.outputs),
        NetworkSpec(facts.graph, plan.activation, averaging=plan.averaging),
        PrivacySpec(
            sampling=plan.sampling,
            noise=Private(facts.epsilon),
            delta=facts.delta,
            law=LAWS.make("pairs", plan.ratio) if plan.ratio else GaussianLaw(),
            clip=scale.clip,
            adversary=facts.adversary,
            moments=scale.moments,
            quantiles=given.get("quantiles", NO_QUANTILES),
            balance=NO_BALANCE if facts.balance is None else Balance(BALANCE, *facts.balance),
        ),
    )
    changes = {
        "network__weights": given.get("mixing"),
        "network__correct": given.get("correct"),
        "problem__on_violation": given.get("on_violation"),
        "algorithm__primal": given.get("primal"),
    }
    return spec.but(**{name: value for name, value in changes.items() if value is not None})


def _short(value: float) -> float:
    """Four digits: a plan is to be read."""
    return float(f"{value:.4g}")


def _read(name: str, value: Any) -> Any:
    """A setting as a value: text is read here, and a plain γ or a is the same in every round."""
    if name in ("a", "gamma") and isinstance(value, int | float):
        return constant(float(value))
    if name == "rounds":
        return within.check_count("the number of rounds", value, within.ROUNDS)
    if name == "clip":
        return within.check_length("the clip", value)
    return TABLES[name].read(value) if name in TABLES and isinstance(value, str) else value


def reasons(facts: Facts, given: dict[str, Any], plan: Plan, spec: Spec, shortest: bool) -> list[str]:
    """One sentence for each thing that was chosen or fixed."""
    n, total = facts.n, sum(facts.sizes)
    said = [
        f"ε = {facts.epsilon:g} and δ = {facts.delta:g} against '{facts.adversary}' leave noise of deviation "
        f"{plan.noise:.2g} in each coordinate of the mean gradient, however many rounds there are.",
        *_why_these_secrets(facts, plan),
        _why_these_speak(given, plan, n),
        _why_these_records(given, plan, total),
        _why_these_rounds(facts, given, plan, shortest),
        _why_these_steps(given, plan, spec),
        *_why_this_loss(facts, spec),
        *_why_this_threshold(spec),
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


def _why_these_secrets(facts: Facts, plan: Plan) -> list[str]:
    if not facts.honest:
        return []
    dear = math.sqrt(facts.n / facts.honest)
    return [
        f"Every two nodes share noise that cancels in the mean, {plan.ratio:g} times what each adds alone: the "
        f"{facts.honest} of {facts.n} nodes that keep their secrets hide one another, and the mean has {dear:.2f} "
        "times the noise of a trusted centre's."
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


def _why_these_rounds(facts: Facts, given: dict[str, Any], plan: Plan, shortest: bool) -> str:
    sent = f"{plan.rounds:,} rounds send {plan.bytes / 1e6:,.1f} MB"
    if "rounds" in given:
        return f"{sent}: as fixed."
    if plan.rounds == facts.rounds or not shortest:
        return f"{sent}: as many as the budget allows."
    return f"{sent}: more would gain less than they cost, at a point of accuracy for ten minutes."


def _why_these_steps(given: dict[str, Any], plan: Plan, spec: Spec) -> str:
    chosen = [f"γ = {spec.algorithm.gamma}"] if "gamma" not in given else []
    chosen += [f"h = {spec.problem.h}"] if not {"h", "alpha"} & set(given) else []
    what = " and ".join(chosen) or "the fixed γ and h"
    return (
        f"With {what} the model follows the mean gradient for τ = {plan.reach:.3g}: shorter would miss the optimum by "
        f"more, longer would pick up more noise. Predicted loss of accuracy: {100 * plan.loss:.1f} points."
    )


def _why_this_threshold(spec: Spec) -> list[str]:
    if spec.privacy.balance == NO_BALANCE:
        return []
    return [
        "Weights that balance the classes would leave little beside the noise: they go half of the way, and noisy "
        f"counts of scores after the last round say where to draw the line, for {100 * BALANCE:g} % of the budget."
    ]


def _why_this_loss(facts: Facts, spec: Spec) -> list[str]:
    if "loss" in facts.free and facts.loss.name == "logistic" and is_rare(facts):
        return ["One class is rare, by the prior: the loss is logistic, which orders such records best."]
    if "loss" in facts.free and facts.loss.name == "logistic":
        return ["Noise will add little to what is lost in any case: the loss is logistic, which orders records best."]
    if "penalty" in facts.free and getattr(spec.problem.h, "phi", 0.0) > 0:
        return ["A coordinate counts by what it has over half a deviation of the noise: that is h's l1 part."]
    return []


def others(plans: Iterable[Plan], best: Plan, count: int = 8) -> list[dict[str, Any]]:
    """The chosen plan, and for each number of rounds near it the best of the rest."""
    near = sorted((p for p in plans if p is not best), key=lambda p: (abs(math.log(p.rounds / best.rounds)), p.loss))[
        : count - 1
    ]
    return [_told(p) for p in (best, *sorted(near, key=lambda p: p.loss))]


def _told(plan: Plan) -> dict[str, Any]:
    """A plan for a table or JSON: choices in their notation."""
    texts = {name: str(getattr(plan, name)) for name in ("activation", "sampling", "averaging")}
    return plan._asdict() | texts
