"""Every method by name: from what all methods may need to an object with `step`."""

from dataclasses import dataclass
from typing import TypeAlias

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent, Mixup, Stale
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import ALL, Counted, Method, StepSizes
from sottovoce.algorithm.oneshot import ObjectivePerturbation, OutputPerturbation
from sottovoce.algorithm.statistics import Statistics
from sottovoce.algorithm.synchronous import Admm, Huang, Muffliato, Scaffold, Tracking
from sottovoce.errors import SpecError
from sottovoce.problem.objective import PublicProblem
from sottovoce.problem.regularizers import Distance, Euclidean, Regularizer
from sottovoce.registry import Choices, Chosen


@dataclass(frozen=True, eq=False)
class MethodContext:
    """What a method is made of, all of it public; each takes what it needs."""

    problem: PublicProblem
    a: Array
    gamma: Array
    eta: Array
    iota: float
    scale: Array
    d: Distance = Euclidean()  # noqa: RUF009 - immutable
    primal: str = "recompute"
    curvature: float = 0.0
    every: int = 1
    row: float = 1.0
    """√(R² + B²), the public bound of a row."""
    counted: Counted = ALL

    @property
    def h(self) -> Regularizer:
        """The regularizer."""
        return self.problem.h


def _dual_averaging(i: MethodContext) -> Method:
    counted = None if i.counted == ALL else i.counted(i.a)
    return DualAveraging(i.h, StepSizes(i.a, i.gamma, counted), i.iota, i.scale, i.d, i.primal, i.curvature)


MethodChoice: TypeAlias = Chosen[MethodContext, Method]
"""A method with its own numbers, before its ingredients are known."""

METHODS = Choices.of_functions(
    "method",
    {
        "dual_averaging": _dual_averaging,
        "descent": lambda i: Descent(i.h, i.a, i.eta, i.scale),
        "combine_first": lambda i: Descent(i.h, i.a, i.eta, i.scale, combine_first=True),
        "stale": lambda i, turns=1: Stale(i.h, i.a, i.eta, i.scale, turns=turns),
        "mixup": lambda i, lo=0.5: Mixup(i.h, i.a, i.eta, i.scale, lo=lo),
        "admm": lambda i, penalty=1.0, lo=0.5: Admm(i.h, i.a, i.eta, i.scale, penalty, lo),
        "huang": lambda i, rho=0.9: Huang(i.h, i.a, i.eta, i.scale, rho),
        "muffliato": lambda i, gossip=1, omega=1.0: Muffliato(i.h, i.a, i.eta, i.scale, gossip, omega),
        "tracking": lambda i: Tracking(i.h, i.a, i.eta, i.scale),
        "scaffold": lambda i, warm=0: Scaffold(i.h, i.a, i.eta, i.scale, i.every, warm),
        "output_perturbation": lambda i: OutputPerturbation(i.problem, len(i.a), i.row),
        "objective_perturbation": lambda i: ObjectivePerturbation(i.problem, len(i.a), i.row),
        "statistics": lambda i, weight=1.0: Statistics(i.problem, len(i.a), i.scale, weight),
        "mean": lambda i: Statistics(i.problem, len(i.a), i.scale, i.problem.intercept, columns=False),
    },
)
"""Every method by name; numbers in brackets are its own parameters."""


def make_method(chosen: MethodChoice, ingredients: MethodContext) -> Method:
    """The method of these ingredients, unless they have something in them that is not for it."""
    i, method = ingredients, chosen(ingredients)
    if not isinstance(method, DualAveraging) and (i.d, i.primal, i.curvature) != (Euclidean(), "recompute", 0.0):
        raise SpecError(f"distance, center, primal and curvature are dual averaging's; leave them out for '{chosen}'")
    if not isinstance(method, DualAveraging) and i.counted != ALL:
        raise SpecError(f"'{i.counted}' of the rounds to count is dual averaging's; leave it out for '{chosen}'")
    if method.synchronous and i.iota < 1:
        raise SpecError(f"in '{chosen}' every node takes part in every round; use activation 'everyone'")
    return method
