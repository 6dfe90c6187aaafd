"""The terms that estimators and the command share before a run is planned, from public numbers alone.

What δ is where nobody says, which nodes are too small to be heard, how large the intercept's column is, what may be
spent on the range of targets, and what classes count: weights and priors that the user knows, never ones that were
counted in the records.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.casts import class_numbers
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.limits import check_epsilon
from sottovoce.privacy import calibration
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.one_shot import MAX_SHARE, Quantiles
from sottovoce.problem.regularizers import Euclidean
from sottovoce.problem.shards import Shards
from sottovoce.run.spec import Spec

INTERCEPT = 0.5
"""B, the value of the intercept's column beside rows of norm at most 1: L grows by a ninth, the intercept can move."""
SMALL_INTERCEPT = 0.25
"""B where what counts is the side of 0 on which a score lies: L grows by 3 %, and a score of 1 is not so far."""
STEEPEST = 2.0
"""Where a loss has no bounded slope, slopes are clipped to that of an error of the width of [−1, 1]."""


def budget(epsilon: Any, delta: Any, units: int) -> tuple[float | None, float]:
    """ε (None for no noise) and δ, by default 1e-5 or half a record's share, whichever is smaller.

    Examples
    --------
    >>> budget(1.0, "auto", 1000), budget(float("inf"), 1e-6, 1000)
    ((1.0, 1e-05), (None, 1e-06))
    """
    if isinstance(epsilon, float | int | np.number) and not epsilon > 0:
        raise PrivacyError(f"epsilon must be over 0 (None for no privacy at all), not {epsilon}")
    if epsilon is not None and not is_number(epsilon):
        raise PrivacyError(f"epsilon must be a number over 0 (None for no privacy at all), not {epsilon!r}")
    if delta == "auto":
        delta = min(1e-5, 0.5 / units)
    elif not is_number(delta):
        raise PrivacyError(f"delta must be 'auto' or a number between 0 and 1, not {delta!r}")
    check_delta(float(delta))
    if epsilon is None or math.isinf(epsilon):
        return None, float(delta)
    return check_epsilon(float(epsilon), error=PrivacyError), float(delta)


def is_number(value: Any) -> bool:
    """Whether it is one, and no truth value."""
    return isinstance(value, float | int | np.number) and not isinstance(value, bool) and value == value


def target_scale(given: Any) -> Quantiles | None:
    """What may be spent on the range of a regression's targets: nothing, a share, or (None) what the planner chooses.

    Examples
    --------
    >>> print(target_scale("public"), target_scale("private"), target_scale(0.05))
    none None quantiles(0.05)
    """
    if given == "private":
        return None
    if given != "public" and not (is_number(given) and 0 < given <= MAX_SHARE):
        raise SpecError(
            f"target_scale must be 'public', 'private' or a share of the budget over 0 and at most {MAX_SHARE:g}, not "
            f"{given!r}"
        )
    return Quantiles() if given == "public" else Quantiles(float(given))


def check_node_sizes(
    sizes: tuple[int, ...], names: tuple[str, ...], epsilon: float | None, delta: float, of: str, weighed: bool = True
) -> list[str]:
    """Return what is to be said of nodes whose noise is larger than anything they could say.

    In a single release of all q records, the least that can be required of a node, the noise has a deviation of 2Lz/q
    in each coordinate, where L bounds every gradient. Weighed by its records and their precision such a node counts
    next to nothing. Where it would count as much as others, or there are no larger nodes, it is refused.
    """
    if epsilon is None:
        return []
    least = math.ceil(2 * calibration.single(epsilon, delta))
    small = [(name, q) for q, name in zip(sizes, names, strict=True) if q < least]
    if not small:
        return []
    name, q = small[0]
    if not weighed or len(small) == len(sizes):
        raise DataError(
            f"node '{name}' has too few {of} (n_samples = {q}): at epsilon = {epsilon:g} and delta = {delta:g} "
            f"fewer than {least} drown in their own noise; leave the node out, merge it with another, or give a "
            "larger epsilon"
        )
    listed = ", ".join(f"'{name}' ({q} {of})" for name, q in small)
    return [
        f"Nodes that cannot help: {listed}. At ε = {epsilon:g} fewer than {least} drown in their own noise; they count "
        "next to nothing, and receive the model."
    ]


def steepest(outputs: int, row: float, intercept: float) -> float:
    """The clip of a loss without a bounded slope."""
    return STEEPEST * math.sqrt(outputs) * math.hypot(row, intercept)


@dataclass(frozen=True, eq=False)
class Weighing:
    """What the classes count, and how likely they are: public numbers in the order of the classes, or None.

    Examples
    --------
    >>> weighing = Weighing.of(["no", "yes"], "balanced", {"no": 0.9, "yes": 0.1})
    >>> weighing.of_classes([0, 1, 1]), round(weighing.mean, 3)
    (array([0.11111111, 1. , 1. ]), 0.2)
    """

    weights: Array | None = None
    prior: Array | None = None

    @classmethod
    def of(cls, classes: Sequence[Any], class_weight: Any, prior: Any) -> "Weighing":
        """From a user's words: {class: number}, numbers in the order of the classes, or 'balanced'."""
        shares = None
        if prior is not None:
            shares = _of_classes(prior, classes, "prior", None)
            if not math.isclose(shares.sum(), 1.0, abs_tol=1e-3):
                raise SpecError(
                    f"the shares of a prior sum to 1, not to {shares.sum():g}; give the share of every class"
                )
            shares = shares / shares.sum()
        if class_weight is None:
            return cls(None, shares)
        if isinstance(class_weight, str):
            if class_weight != "balanced":
                raise SpecError(f"class_weight must be None, 'balanced' or a dictionary, not {class_weight!r}")
            if shares is None:
                raise PrivacyError(
                    "class_weight='balanced' needs how likely each class is, which would have to be read off the data; "
                    "give a public prior, such as prior={'no': 0.97, 'yes': 0.03}"
                )
            return cls(1.0 / (len(shares) * shares), shares)
        return cls(_of_classes(class_weight, classes, "class_weight", 1.0), shares)

    @property
    def known(self) -> bool:
        """Whether anything is said of the classes."""
        return self.weights is not None or self.prior is not None

    @property
    def largest(self) -> float:
        """The largest weight, which counts as 1 in the mechanism."""
        return 1.0 if self.weights is None else float(self.weights.max())

    @property
    def mean(self) -> float:
        """The mean weight, by the prior or, without one, by that which the weights would balance: so they are meant."""
        if self.weights is None:
            return 1.0
        prior = self.prior
        if prior is None:
            prior = (1.0 / self.weights) / np.sum(1.0 / self.weights)
        return float(np.dot(prior, self.weights) / self.weights.max())

    @property
    def shares(self) -> Array | None:
        """What of the weight of all records each class has, by the prior; None without one."""
        if self.prior is None or self.weights is None:
            return self.prior
        return np.asarray(self.prior * self.weights / np.dot(self.prior, self.weights))

    @property
    def rarest(self) -> float | None:
        """The share of the rarest class, among the records or in their weight, whichever is less; None without a prior.

        Weights that balance classes make none of them less rare: what is known of it comes from as few records.
        """
        if self.prior is None or self.shares is None:
            return None
        return float(min(np.min(self.prior), np.min(self.shares)))

    @property
    def balance(self) -> tuple[float, float] | None:
        """Of two classes, how likely the second is and what part of the weight it has, where the rare one gains."""
        if self.prior is None or self.shares is None or self.weights is None or len(self.prior) != 2:
            return None
        rare = int(np.argmin(self.prior))
        return (float(self.prior[1]), float(self.shares[1])) if self.shares[rare] > self.prior[rare] else None

    def weighted(self, spec: Spec, shards: Shards) -> Shards:
        """The records as a plan has them: where a threshold balances classes, weights go only half of the way."""
        if not spec.privacy.balance or shards.weights is None:
            return shards
        classes = self.of_classes((shards.y + 1.0) / 2.0)
        half = np.where(shards.y > 0, *spec.privacy.balance.weights[::-1])
        return replace(shards, weights=np.minimum(shards.weights / (1.0 if classes is None else classes) * half, 1.0))

    def of_classes(self, numbers: Any) -> Array | None:
        """What records of these class numbers count, at most 1; None where all count the same."""
        if self.weights is None:
            return None
        return np.asarray((self.weights / self.weights.max())[class_numbers(numbers, len(self.weights))])

    def started(self, spec: Spec, features: int) -> Spec:
        """With a prior the constant terms start at the log-odds of each class, as the rounds' weights leave them."""
        shares, balance = self.shares, spec.privacy.balance
        if shares is None or not spec.problem.intercept:
            return spec
        if balance and balance.prior:  # weights go half of the way
            shares = np.array([(1.0 - balance.prior) * balance.weights[0], balance.prior * balance.weights[1]])
        odds = np.log(shares[1:] / shares[:1]) if len(shares) == 2 else np.log(shares / (1 - shares))
        if spec.problem.loss.name == "softmax":
            odds = np.log(shares) - np.mean(np.log(shares))
        if np.allclose(odds, 0.0):
            return spec
        center = np.zeros((len(odds), features + 1))
        center[:, -1] = odds / spec.problem.intercept
        return spec.replace(algorithm__distance=Euclidean(tuple(center.ravel().tolist())))


def _of_classes(given: Any, classes: Sequence[Any], name: str, default: float | None) -> Array:
    """One public number over 0 a class, from a dictionary or a list in the order of the classes."""
    known = np.asarray(classes).tolist()
    if isinstance(given, Mapping):
        odd = [key for key in given if key not in known]
        missing = [label for label in known if label not in given] if default is None else []
        if odd or missing:
            what = f"names {odd[0]!r}, which is no class" if odd else f"says nothing of the class {missing[0]!r}"
            raise SpecError(f"{name} {what}; the classes are {known}")
        values = [given.get(label, default) for label in known]
    else:
        values = list(given) if np.ndim(given) == 1 else []
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape != (len(known),) or not np.all((numbers > 0) & np.isfinite(numbers)):
        raise SpecError(
            f"{name} must be a public number over 0 for each of the {len(known)} classes, by their labels or in "
            f"their order, not {given!r}"
        )
    return numbers
