"""Every method by name: from its text, and what all methods may need, to an object with `step`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent, Mixup, Stale
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method
from sottovoce.algorithm.stepsizes import StepSizes
from sottovoce.algorithm.synchronous import Admm, Huang, Muffliato, Scaffold, Tracking
from sottovoce.errors import SpecError
from sottovoce.notation import parse
from sottovoce.problem.regularisers import Distance, Euclidean, Regulariser


@dataclass(frozen=True, eq=False)
class Ingredients:
    """What a method is made of; each takes what it needs."""

    h: Regulariser
    a: Array
    gamma: Array
    eta: Array
    iota: float
    scale: Array
    d: Distance = Euclidean()  # noqa: RUF009 - immutable
    primal: str = "recompute"
    curvature: float = 0.0
    every: int = 1


def _dual_averaging(i: Ingredients) -> Method:
    return DualAveraging(i.h, StepSizes(i.a, i.gamma), i.iota, i.scale, i.d, i.primal, i.curvature)


METHODS: dict[str, Callable[..., Method]] = {
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
}
SYNCHRONOUS = ("admm", "huang", "muffliato", "tracking", "scaffold")
"""Methods in which nobody sleeps."""


def make_method(text: str, ingredients: Ingredients) -> Method:
    """Read a method such as 'dual_averaging' or 'descent'; numbers in brackets are its own parameters."""
    name, args, kwargs = parse(text)
    if name not in METHODS:
        raise SpecError(f"there is no method '{name}'; choose one of {', '.join(METHODS)}")
    others: dict[str, Any] = {"d": Euclidean(), "primal": "recompute", "curvature": 0.0}
    if name != "dual_averaging" and any(getattr(ingredients, k) != v for k, v in others.items()):
        raise SpecError(f"distance, centre, primal and curvature are dual averaging's; leave them out for '{name}'")
    if name in SYNCHRONOUS and ingredients.iota < 1:
        raise SpecError(f"in '{name}' every node takes part in every round; use activation 'everyone'")
    try:
        return METHODS[name](ingredients, *args, **kwargs)
    except TypeError:
        raise SpecError(f"method '{text}' is malformed: it does not take these numbers") from None
