"""The plan of a fit, from what is public of it: the one path of estimators and of the command.

A `FitRequest` holds what the user fixed and what is public of the records. `plan_fit` makes the planner's inputs of it,
refuses nodes that would only add noise, and returns the planner's choice, from where public numbers say that the run
may start.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sottovoce.algorithm.method import ALL, constant, linear
from sottovoce.errors import SpecError
from sottovoce.features import Additive, Features
from sottovoce.inference.estimate import SHARE
from sottovoce.inference.requirements import check_enough
from sottovoce.network.graphs import Family
from sottovoce.planner import predict
from sottovoce.planner.choose import Choice, PublicInputs, choose
from sottovoce.planner.features import Circumstances, Columns, choose_features
from sottovoce.planner.network import HOUR, NetworkModel
from sottovoce.planner.shared_settings import Weighing, budget, check_node_sizes, steepest
from sottovoce.privacy.calibration import NoNoise
from sottovoce.privacy.inference import Inference
from sottovoce.privacy.release import Adversary
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByRecords
from sottovoce.run.spec import Spec

QUIET_EPSILON = 10.0
"""Without privacy, a plan as for an ε at which noise hardly matters."""
QUIET_EPSILON_OF_REGRESSION = 1e4
"""The same of a regression, whose plans are right for any ε."""
MAX_REACH = 1e4
"""How long a model may get, in units of mean gradients, in as few rounds as there are."""

CLEAR_OF_NOISE = 50.0
"""Q of `planner.features` from which on the default loss of two classes is logistic where columns have bounds. On seven
tables it orders records better than a hinge, by up to 2.2 points of AUC, or loses 0.4 at most; below, it may lose 4. A
hinge answers the common class nearly always where one in seven records is of the other (benchmarks/additive.py)."""
STRETCH = 1.5
"""`PublicInputs.stretch` of rows that were centered and brought to a common length by a release."""


@dataclass(frozen=True)
class FitRequest:
    """What is public of a fit, and what the user fixed.

    Attributes
    ----------
    sizes, nodes : how many records (or people) each node has, and the nodes' names
    features : columns of a record, without the intercept's
    loss, outputs, intercept, penalty, adversary, graph : as in `PublicInputs`
    epsilon, delta : as the user gave them: ε is None for no noise, δ "auto" for its default
    people : whether people are the units
    fixed : settings of the planner; 'method' among them says that targets are in units of half their range
    weighing : what classes count, and how likely they are
    private_scaling : whether a share of the budget may go to moments of the data
    find_range : whether one may go to the range of the targets
    threshold : whether a threshold may take the place of weights
    sparse : whether records are to stay sparse
    free : what of 'loss' and 'penalty' the planner may choose better
    columns : what is public of the columns; None where nothing is but their number
    wanted : 'auto', 'additive' or 'linear': which map of columns
    inference : whether a share of the budget goes to confidence intervals
    network, max_seconds : what the network is like, and how long the run may take on it
    """

    sizes: tuple[int, ...]
    nodes: tuple[str, ...]
    features: int
    loss: Loss
    epsilon: Any
    delta: Any = "auto"
    outputs: int = 1
    people: bool = False
    adversary: Adversary | str = "transcript"
    graph: Family | str = "complete"
    intercept: float = 0.0
    penalty: str = "l2"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    weighing: Weighing = field(default_factory=Weighing)
    private_scaling: bool = False
    find_range: bool = False
    threshold: bool = True
    sparse: bool = False
    free: tuple[str, ...] = ()
    columns: Columns | None = None
    wanted: str = "linear"
    inference: bool = False
    network: NetworkModel = NetworkModel()  # noqa: RUF009 - immutable
    max_seconds: float = HOUR


def plan_fit(request: FitRequest) -> Choice:
    """The planner's choice for a fit, around what the user fixed.

    Examples
    --------
    >>> from sottovoce.problem.losses import LOSSES
    >>> request = FitRequest((1600,) * 20, tuple(map(str, range(20))), 123, LOSSES.read("hinge"), epsilon=1.0)
    >>> print(plan_fit(request).spec.privacy.noise, plan_fit(replace(request, epsilon=None)).spec.privacy.noise)
    private(1) none
    """
    epsilon, delta = budget(request.epsilon, request.delta, sum(request.sizes))
    request, said = _for_inference(request, epsilon, delta) if request.inference else (request, [])
    fixed, loss = dict(request.fixed), request.loss
    if "method" not in fixed:  # a regression of which nothing can be learned is a constant, and says so
        of = "people" if request.people else "records"
        said += check_node_sizes(request.sizes, request.nodes, epsilon, delta, of, "weights" not in fixed)
        if math.isinf(loss.slope_bound) and loss.targets != "real":
            fixed.setdefault("clip", steepest(request.outputs, 1.0, request.intercept))
    known = _circumstances(request, epsilon, delta, fixed)
    chosen = choose_features(request.wanted, request.columns or Columns(request.features), known)
    width = chosen.features.width if isinstance(chosen.features, Additive) else request.features
    if "loss" in request.free and loss.name == "hinge" and _orders_better(request, chosen.features, known):
        request = replace(request, loss=LOSSES.make("logistic"), free=tuple(n for n in request.free if n != "loss"))
    if chosen.release:
        fixed |= {"distribution": chosen.release}
    inputs = _facts(replace(request, features=width), epsilon, delta, "method" in fixed)
    inputs = replace(inputs, stretch=STRETCH if chosen.release else 1.0)
    choice = choose(inputs, **fixed)
    spec = choice.spec if epsilon is not None else _without_noise(choice.spec, inputs)
    spec = spec.replace(problem__features=chosen.features)
    return replace(
        choice, spec=request.weighing.started(spec, width), reasons=[*chosen.reasons, *said, *choice.reasons]
    )


def _for_inference(request: FitRequest, epsilon: float | None, delta: float) -> tuple[FitRequest, list[str]]:
    """The request with a share for intervals, and why; refused where public numbers say that there can be none."""
    loss = LOSSES.make("logistic") if request.loss.name == "hinge" and "loss" in request.free else request.loss
    if epsilon is None:
        raise SpecError("inference=True counts the noise of a budget: give epsilon, or take statsmodels without one")
    if loss.name not in ("logistic", "squared") or request.outputs > 1:
        raise SpecError(
            f"there are no intervals for loss '{loss}' with {request.outputs} outputs; take two classes with "
            "loss='logistic', or a regression with loss='squared', or leave inference out"
        )
    if not request.intercept or request.wanted == "additive" or request.weighing.weights is not None:
        raise SpecError(
            "intervals are of a linear model with a constant term, in which all classes count the same; leave out "
            "fit_intercept=False, features='additive' and class_weight, or leave out inference"
        )
    columns = request.columns or Columns(request.features)
    d, sizes = len(columns.numeric), np.array(request.sizes)
    scale = math.hypot(math.sqrt(d), columns.rest) if d else math.sqrt(max(1.0, request.features / 2.0))
    longest = math.sqrt(1.0 + d / 2.0 + columns.rest**2) if d else math.hypot(1.0, scale)
    level = predict.level(ByRecords()(sizes), sizes, 0.5, z1 := predict.single(epsilon, delta), _honest(request))
    factor, of = level * int(sizes.sum()) / z1, "people" if request.people else "records"
    check_enough(loss.name, int(sizes.sum()), request.features, z1, epsilon, factor, of)
    fixed = {**request.fixed, "inference": Inference(SHARE, float(f"{scale:.6g}"), float(f"{longest:.6g}"))}
    free = tuple(name for name in request.free if name != "loss")
    request = replace(
        request, loss=loss, fixed=fixed, free=free, wanted="linear", private_scaling=False, find_range=False,
        threshold=False,
    )  # fmt: skip
    why = f"{100 * SHARE:g} % of the budget is for confidence intervals, of estimates that start from a rough fit."
    return request, [why]


def _honest(request: FitRequest) -> int:
    """How many nodes keep secrets that they share in pairs."""
    return _facts(request, 1.0, 1e-5, False).honest


def _circumstances(request: FitRequest, epsilon: float | None, delta: float, fixed: Mapping[str, Any]) -> Circumstances:
    """What the map of columns depends on beside the columns."""
    real = request.loss.targets == "real"
    inputs = _facts(request, epsilon, delta, "method" in fixed)
    together = inputs.n == 1 or inputs.graph(inputs.n).is_complete
    may_release = epsilon is not None and together and not {"quantiles", "moments", "activation", "mixing"} & set(fixed)
    may_release = may_release and not request.find_range and (real or request.private_scaling)
    return Circumstances(inputs.sizes, predict.single(inputs.epsilon, inputs.delta), inputs.honest, real, may_release)


def _orders_better(request: FitRequest, features: Features, known: Circumstances) -> bool:
    """Whether public numbers say that a logistic loss is no worse than a hinge: of a table that is not drowned."""
    curved = isinstance(features, Additive) and features.degree > 1
    table = request.columns is not None and bool(request.columns.numeric)
    return curved or (table and 0.5 / known.noise >= CLEAR_OF_NOISE)


def _facts(request: FitRequest, epsilon: float | None, delta: float, in_units: bool) -> PublicInputs:
    """What the planner may know."""
    private, weighing = epsilon is not None, request.weighing
    quiet = QUIET_EPSILON_OF_REGRESSION if in_units else QUIET_EPSILON
    return PublicInputs(
        sizes=request.sizes,
        features=request.features + (request.intercept > 0),
        epsilon=quiet if epsilon is None else epsilon,
        delta=delta,
        loss=request.loss,
        outputs=request.outputs,
        adversary=request.adversary,
        graph=request.graph,
        intercept=request.intercept,
        penalty=request.penalty,
        private_scaling=private and request.private_scaling,
        quantiles=private and request.find_range,
        weight=weighing.mean,
        rarest=weighing.rarest,
        threshold=private and request.threshold and request.private_scaling and not weighing.known,
        balance=weighing.balance if private and request.threshold else None,
        sparse=request.sparse,
        free=request.free if private else (),
        network=request.network,
        max_seconds=request.max_seconds,
    )


def _without_noise(spec: Spec, inputs: PublicInputs) -> Spec:
    """The same plan without noise: there is nothing to stop early for, and nothing that a clip would save.

    γ is as small as a steady descent allows: with a_t = t the steps a_t/(μA_t + γ) are at most 1/√(2μγ), and curvatures
    at most R² + B² for every loss here that has one. Where that requests more than A_T/MAX_REACH, few rounds had better
    go far than steadily.
    """
    spec = spec.replace(algorithm__counted=ALL)
    if spec.privacy.clip is not None:
        clip = steepest(inputs.outputs, inputs.row_norm, inputs.intercept)
        spec = spec.replace(privacy__clip=None if math.isfinite(inputs.loss.slope_bound) else clip)
    mu = spec.problem.h.modulus
    if mu > 0:
        steady = (inputs.row_norm**2 + inputs.intercept**2) ** 2 / (2 * mu)
        far = spec.algorithm.rounds * (spec.algorithm.rounds + 1) / 2 / MAX_REACH
        spec = spec.replace(algorithm__a=linear(1), algorithm__gamma=constant(min(steady, far)))
    return spec.replace(privacy__noise=NoNoise())
