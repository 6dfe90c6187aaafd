"""Every method by name: from its text, and what all methods may need, to an object with `step`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sottovoce._types import Array
from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method
from sottovoce.algorithm.stepsizes import StepSizes
from sottovoce.errors import SpecError
from sottovoce.notation import parse
from sottovoce.problem.distances import Distance, Euclidean
from sottovoce.problem.regularisers import Regulariser


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


def _dual_averaging(i: Ingredients) -> Method:
    return DualAveraging(i.h, StepSizes(i.a, i.gamma), i.iota, i.scale, i.d, i.primal, i.curvature)


def _descent(i: Ingredients, combine_first: bool = False) -> Method:
    return Descent(i.h, i.a, i.eta, i.scale, combine_first)


METHODS: dict[str, Callable[..., Method]] = {
    "dual_averaging": _dual_averaging,
    "descent": _descent,
    "combine_first": lambda i: _descent(i, combine_first=True),
}


def make_method(text: str, ingredients: Ingredients) -> Method:
    """Read a method such as 'dual_averaging' or 'descent'; numbers in brackets are its own parameters."""
    name, args, kwargs = parse(text)
    if name not in METHODS:
        raise SpecError(f"there is no method '{name}'; choose one of {', '.join(METHODS)}")
    others: dict[str, Any] = {"d": Euclidean(), "primal": "recompute", "curvature": 0.0}
    if name != "dual_averaging" and any(getattr(ingredients, k) != v for k, v in others.items()):
        raise SpecError(f"distance, centre, primal and curvature are dual averaging's; leave them out for '{name}'")
    try:
        return METHODS[name](ingredients, *args, **kwargs)
    except TypeError:
        raise SpecError(f"method '{text}' is malformed: it does not take these numbers") from None
