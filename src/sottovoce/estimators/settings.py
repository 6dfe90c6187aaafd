"""From an estimator's parameters to a spec.

Every word is checked, and everything left on "auto" is chosen by the planner. The problem that is solved is scale-free:
rows are divided by their public bound, targets of a regression mapped from their public range to [−1, 1]. So the
planner's numbers, and the user's `alpha`, mean the same in every unit of measure.
"""

import functools
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator

from sottovoce.errors import SpecError
from sottovoce.features import every_pair
from sottovoce.planner.network import HOUR, NetworkModel
from sottovoce.planner.shared_settings import INTERCEPT, SMALL_INTERCEPT, budget, is_number, target_scale
from sottovoce.planner.trust import read_trust
from sottovoce.privacy import sampling as release
from sottovoce.privacy.release import Adversary
from sottovoce.problem.regularizers import REGULARIZERS, Regularizer, elastic_net

__all__ = [
    "INTERCEPT",
    "PLAN_OPTIONS",
    "SMALL_INTERCEPT",
    "PlanOptions",
    "accepts_moved",
    "budget",
    "caller_stacklevel",
    "fixed",
    "names_pairs",
    "numeric_columns",
    "numeric_pairs",
    "over_zero",
    "penalty_name",
    "regularizer",
    "seed",
    "warm_start_seed",
    "watching",
    "whole",
    "with_moved",
]  # fmt: skip

PACKAGE = str(Path(__file__).parent.parent)


def caller_stacklevel() -> int:
    """The `stacklevel` of a warning that is of the code that called an estimator, however deep in here it is given."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


class PlanOptions(BaseEstimator):
    """Parts of the plan that are fixed by hand, for `plan=` of an estimator; the planner chooses what is "auto".

    Parameters
    ----------
    adversary : the adversary by name, such as "transcript"; "auto" follows from the estimator's `trust`
    graph, activation : who is linked with whom, and who speaks in a round, such as "ring" and "matching(2)"
    batch, rounds, sampling : records a round, how many rounds; "poisson", "fixed" or "full"
    engine : "auto", "reference" or "nodes"; "compiled" is for runs that are not secure
    track : whether to keep `history_`, in simulations only
    network : "auto", or what the network is like on which the plan is to run: a `NetworkModel`, or its fields, as
        {"rtt": 0.05, "relay": 250.0}
    max_seconds : how long the run may take on it

    Examples
    --------
    >>> from sottovoce import PrivateClassifier
    >>> PrivateClassifier(plan=PlanOptions(rounds=50)).set_params(plan__batch=10).plan
    PlanOptions(batch=10, rounds=50)
    """

    def __init__(
        self,
        *,
        adversary: str = "auto",
        graph: str = "auto",
        activation: str = "auto",
        batch: int | str = "auto",
        rounds: int | str = "auto",
        sampling: str = "auto",
        engine: str = "auto",
        track: bool = False,
        network: Any = "auto",
        max_seconds: float = HOUR,
    ) -> None:
        self.adversary = adversary
        self.graph = graph
        self.activation = activation
        self.batch = batch
        self.rounds = rounds
        self.sampling = sampling
        self.engine = engine
        self.track = track
        self.network = network
        self.max_seconds = max_seconds

    @property
    def network_model(self) -> NetworkModel:
        """What the network is like."""
        given = self.network
        if isinstance(given, NetworkModel):
            return given
        if given == "auto":
            return NetworkModel()
        if not isinstance(given, Mapping) or not set(given) <= {f.name for f in fields(NetworkModel)}:
            raise SpecError(
                "network must be 'auto', a NetworkModel, or its fields, such as {'rtt': 0.05, 'bandwidth': 1e7, "
                f"'relay': 250.0}}, not {given!r}"
            )
        return NetworkModel(**given)


PLAN_OPTIONS = frozenset(PlanOptions().get_params()) - {"network", "max_seconds"}
"""Their names, which were parameters of the estimators until 0.3."""


def with_moved(plan: Any, moved: Mapping[str, Any], owner: str) -> Any:
    """Return the plan's options with those that were given in the old way, as parameters of the estimator itself."""
    if not moved:
        return plan
    names = ", ".join(f"{name}=…" for name in moved)
    warnings.warn(f"{names} of {owner} moved: write plan=PlanOptions({names})", DeprecationWarning, caller_stacklevel())
    return PlanOptions(**({} if plan is None else plan.get_params()) | dict(moved))


Init = TypeVar("Init", bound=Callable[..., None])


def accepts_moved(init: Init) -> Init:
    """Make an estimator's `__init__` also take what moved to `plan`; its signature stays as it is."""

    @functools.wraps(init)
    def accepting(self: Any, *args: Any, **given: Any) -> None:
        moved = {name: given.pop(name) for name in given.keys() & PLAN_OPTIONS}
        init(self, *args, **given)
        if moved:
            self.plan = with_moved(self.plan, moved, type(self).__name__)

    return cast(Init, accepting)


PENALTIES = {"auto": "l2", "l2": "l2", "l1": "l1", "elasticnet": "elastic_net", "none": "none"}
SAMPLINGS = ("auto", "poisson", "fixed", "full")


def watching(trust: Any, adversary: str, nodes: int) -> Adversary | str:
    """Return the named adversary, or else the one that follows from `trust`."""
    if adversary == "auto":
        return read_trust(trust).adversary(nodes)
    if trust != "nobody":
        raise SpecError("trust and adversary say the same thing in two ways; give one of them")
    return adversary


def fixed(given: Mapping[str, Any], smallest: int) -> dict[str, Any]:
    """What the user fixed among an estimator's parameters, as settings of the planner."""
    found: dict[str, Any] = {}
    if given["activation"] != "auto":
        found["activation"] = given["activation"]
    if given["rounds"] != "auto":
        found["rounds"] = whole(given["rounds"], "rounds")
    found |= _sampling(given["sampling"], given["batch"], smallest)
    if "method" in given:  # of a regression
        found["method"] = given["method"]
    if given["alpha"] != "auto":
        found["h"] = regularizer(penalty_name(given["penalty"]), given["alpha"], given["l1_ratio"])
    elif given["l1_ratio"] != "auto":
        found["l1_ratio"] = _share(given["l1_ratio"])
    if "target_scale" in given and given["epsilon"] is not None and (share := target_scale(given["target_scale"])):
        found["quantiles"] = share
    return found


def regularizer(penalty: str, alpha: Any, l1_ratio: Any) -> Regularizer:
    """h with its weights: α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), as in scikit-learn.

    Examples
    --------
    >>> print(regularizer("elastic_net", 0.01, 0.25))
    elastic_net(0.0025, 0.0075)
    """
    if not is_number(alpha) or not 0 <= alpha < math.inf:
        raise SpecError(f"alpha must be 'auto' or a number that is not negative, not {alpha!r}")
    if penalty != "elastic_net":
        return REGULARIZERS.make(penalty, *([] if penalty == "none" else [float(alpha)]))
    share = 0.5 if l1_ratio == "auto" else _share(l1_ratio)
    return elastic_net(float(alpha * share), float(alpha * (1 - share)))


def penalty_name(penalty: Any) -> str:
    """A penalty under the name that specs know it by."""
    name = "none" if penalty is None else penalty
    if name not in PENALTIES:
        raise SpecError(f"there is no penalty {penalty!r}; choose one of {', '.join(PENALTIES)}")
    return PENALTIES[name]


def over_zero(value: Any, name: str) -> float:
    """A public bound: finite and over 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise SpecError(f"{name} must be a public number that is finite and over 0, not {value!r}")
    return float(value)


def numeric_columns(bounds: Any, count: int, names: Any) -> tuple[tuple[int, float, float], ...]:
    """(place, low, high) of every column whose public bounds are given.

    Examples
    --------
    >>> numeric_columns({"age": (0, 120)}, 2, ["ward", "age"])
    ((1, 0.0, 120.0),)
    >>> numeric_columns([(0, 1), None], 2, None), numeric_columns((0, 255), 2, None)
    (((0, 0.0, 1.0),), ((0, 0.0, 255.0), (1, 0.0, 255.0)))
    """
    if bounds is None:
        return ()
    listed: Any = bounds
    if isinstance(bounds, Mapping):
        known = list(range(count)) if names is None else [*names]
        odd = [name for name in bounds if name not in known]
        if odd:
            raise SpecError(f"bounds names {odd[0]!r}, which is no column; the columns are {_listed(known)}")
        listed = [bounds.get(name) for name in known]
    elif len(bounds) == 2 and all(is_number(end) for end in bounds):
        listed = [bounds] * count
    if len(listed) != count:
        raise SpecError(f"bounds has {len(listed)} entries, and there are {count} columns; give one pair or None each")
    found = []
    for place, pair in enumerate(listed):
        if pair is None:
            continue
        low, high = pair if len(pair) == 2 else (math.nan, math.nan)
        if not (is_number(low) and is_number(high) and -math.inf < low < high < math.inf):
            raise SpecError(f"the bounds of column {place + 1} must be finite with low < high, not {pair!r}")
        found.append((place, float(low), float(high)))
    return tuple(found)


def names_pairs(pairs: Any) -> bool:
    """Whether pairs of columns are wanted by name."""
    return pairs is not None and not (isinstance(pairs, str) and pairs == "auto")


def numeric_pairs(
    pairs: Any, numeric: tuple[tuple[int, float, float], ...], names: Any
) -> tuple[tuple[int, int], ...] | None:
    """Pairs of numeric columns, by their places among these; None where public numbers are to say.

    Examples
    --------
    >>> numeric_pairs([("dose", "age")], ((0, 0.0, 120.0), (2, 0.0, 400.0)), ["age", "ward", "dose"])
    ((0, 1),)
    """
    if pairs is None:
        return ()
    if not names_pairs(pairs):
        return None
    if isinstance(pairs, str) and pairs == "all":
        return every_pair(len(numeric))
    known = {place if names is None else names[place]: j for j, (place, _, _) in enumerate(numeric)}
    found = set()
    for pair in pairs if isinstance(pairs, list | tuple) else [pairs]:
        ends = [known.get(end) for end in pair] if isinstance(pair, list | tuple) else []
        if len(ends) != 2 or None in ends or ends[0] == ends[1]:
            raise SpecError(
                f"pairs must be 'auto', 'all' or a list of pairs of two different numeric columns, and {pair!r} is "
                f"none; the numeric columns are {_listed([*known])}"
            )
        found.add((min(ends), max(ends)))  # type: ignore[type-var]
    return tuple(sorted(found))  # type: ignore[arg-type]


def _listed(names: list[Any]) -> str:
    """A few names for a message."""
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def whole(value: Any, name: str) -> int:
    """A whole number over 0."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise SpecError(f"{name} must be 'auto' or a whole number over 0, not {value!r}")
    return int(value)


def seed(random_state: Any) -> int | None:
    """None for a secret key from the operating system; anything else makes a simulation."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    raise SpecError(
        "random_state must be None, or, for a SIMULATION, a whole number that is not negative or one of NumPy's "
        f"generators, not {random_state!r}"
    )


def warm_start_seed(key: int | None, fits: int) -> int | None:
    """The seed of a fit that goes on from others: the same noise twice would add up, where accounts take it as new."""
    return None if key is None else int(np.random.SeedSequence((key, fits)).generate_state(1, np.uint64)[0])


def _sampling(kind: Any, batch: Any, smallest: int) -> dict[str, Any]:
    if kind not in SAMPLINGS:
        raise SpecError(f"there is no sampling {kind!r}; choose one of {', '.join(SAMPLINGS)}")
    batch = batch if batch == "auto" else whole(batch, "batch")
    if kind == "full" and batch != "auto":
        raise SpecError("sampling='full' uses every record in every round; leave batch out")
    if kind in ("auto", "full"):
        return ({} if kind == "auto" else {"sampling": "full"}) | ({} if batch == "auto" else {"batch": batch})
    return {"sampling": release.SAMPLINGS.make(kind, min(64, smallest) if batch == "auto" else batch)}


def _share(value: Any) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise SpecError(f"l1_ratio must be 'auto' or a number between 0 and 1, not {value!r}")
    return float(value)
