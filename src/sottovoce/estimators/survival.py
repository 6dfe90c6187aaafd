"""PrivateKaplanMeier: survival curves by group and a log-rank test from one private release of counts."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sottovoce._types import Array, IntArray
from sottovoce.casts import class_numbers
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.composition import digest
from sottovoce.estimators.sums import SumsEstimator
from sottovoce.estimators.unusable import class_codes, own_values, real_numbers, warn_owner
from sottovoce.evaluation.tally import Part, cells, seeded
from sottovoce.inference.survival import Counts, Curve, LogRank, counts_of, log_rank, survival_curve

COUNTS = Part(1, float(np.sqrt(2.0)))
"""One release of counts: another record leaves one cell and enters another."""


class PrivateKaplanMeier(SumsEstimator):
    """Kaplan–Meier curves by group and a log-rank test, with (ε, δ)-differential privacy for every record.

    One release of counts is all that leaves the owners: how many records of each group left in each public interval, by
    an event or censored. Curves, their intervals and the test are computed from these counts, at no further cost. A
    record is one person; give each person one row.

    Parameters
    ----------
    epsilon, delta : the guarantee; δ "auto" is 1e-5, or half of one over the number of records if that is less
    times : public ends of the intervals, increasing and over 0, such as every 180 days. Curves are known at these
        times; within an interval half of the censored count as at risk
    groups : public names of the groups; None for one curve
    trust : whom the owners trust: "nobody", "majority" or a number of nodes that may collude, or "center"
    n_nodes : to how many simulated owners rows are assigned where `fit` is given no `nodes`; "auto" is one owner
    random_state : None draws secret noise; a whole number makes a simulation, and the statement says so
    budget : a `Budget(epsilon, delta, path)` that the release is paid from, before it is made

    Attributes
    ----------
    counts_ : noisy counts, from which everything follows
    privacy_ : the `PrivacyStatement`
    spent_ : what all fits of this process on these records cost together
    nodes_ : names of the nodes

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> left, censored = rng.exponential(10, 5000), rng.uniform(0, 15, 5000)
    >>> model = PrivateKaplanMeier(1.0, times=np.arange(1, 11), random_state=0)
    >>> model = model.fit(np.minimum(left, censored), left <= censored)
    >>> survival, low, high = model.curve().at(5)
    >>> bool(low < np.exp(-0.5) < high), high - low < 0.06
    (True, True)
    """

    instead, purchase = "lifelines", "survival curve"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        *,
        times: Any = None,
        groups: Any = None,
        trust: int | str = "nobody",
        n_nodes: int | str = "auto",
        random_state: Any = None,
        budget: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.times = times
        self.groups = groups
        self.trust = trust
        self.n_nodes = n_nodes
        self.random_state = random_state
        self.budget = budget

    def fit(self, time: Any, event: Any, group: Any = None, nodes: Any = None) -> Self:
        """Release the counts.

        Parameters
        ----------
        time : when each record left, in the units of `times`
        event : whether by an event (1 or True) or censored (0 or False)
        group : of each record, one of `groups`
        nodes : the owner of each record; without it the table has one owner, or `n_nodes` simulated ones
        """
        times, groups = public_times(self.times), self._groups()
        private = settings.seed(self.random_state) is None
        left, ended, place = self._columns(time, event, group, groups, private)
        planned = self._planned(len(left), nodes)
        tally, known = planned.tally, digest(np.stack([left, ended], axis=1), place)
        with self._paid(planned, known):
            number = cell_numbers(left, ended, place, times, len(groups))
            exact = cells(planned.owner, len(tally.sizes), number, len(groups) * (2 * len(times) + 1) + 1)
            released = tally.answers(COUNTS, exact, seeded(planned.seed)).sum(axis=0)
        self.counts_: Counts = counts_of(released, len(groups), len(left), tally.noise_of_sum(COUNTS))
        return self

    def curve(self, group: Any = None, confidence: float = 0.95) -> Curve:
        """The survival curve of a group, with pointwise intervals; it ends where too few are left beside the noise.

        Parameters
        ----------
        group : one of `groups`; None where there is one curve
        confidence : of each interval
        """
        check_is_fitted(self)
        if not 0 < confidence < 1:
            raise SpecError(f"confidence is a probability strictly between 0 and 1, not {confidence!r}")
        groups = self._groups()
        if group not in groups:
            raise SpecError(f"there is no group {group!r}; choose one of {', '.join(map(repr, groups))}")
        return survival_curve(self.counts_, groups.index(group), public_times(self.times), confidence)

    def log_rank(self) -> LogRank:
        """The log-rank test of equal hazards in all groups."""
        check_is_fitted(self)
        return log_rank(self.counts_)

    def to_frame(self, confidence: float = 0.95) -> Any:
        """All curves as a pandas data frame, one row for each group and time."""
        import importlib

        try:
            pd = importlib.import_module("pandas")
        except ImportError:
            raise SpecError("a data frame needs pandas; install it, or take curve()") from None
        frames = []
        for group in self._groups():
            curve = self.curve(group, confidence)
            frames.append(pd.DataFrame({"group": [group] * len(curve.times), **curve._asdict()}))
        return pd.concat(frames, ignore_index=True)

    def _groups(self) -> list[Any]:
        if self.groups is None:
            return [None]
        found = list(np.asarray(self.groups).tolist())
        if len(set(found)) < len(found) or len(found) < 2:
            raise SpecError("groups must be two or more different names, public; leave it out for one curve")
        return found

    def _columns(
        self, time: Any, event: Any, group: Any, groups: Sequence[Any], private: bool
    ) -> tuple[Array, Array, IntArray]:
        """Times, events (NaN where they cannot be used) and places of groups (−1 of none)."""
        left, ended = exits(time, event)
        if (group is None) != (groups == [None]):
            raise SpecError("give a group for each record and groups=[…], the public names; or neither")
        place = np.zeros(len(left), dtype=np.int64)
        if group is not None:
            names = own_values(group)
            if names.shape != left.shape:
                raise DataError(f"there are {len(left)} records but {names.size} groups; give one group a record")
            place = class_numbers(class_codes(groups, names), len(groups))
        usable = np.isfinite(left) & (place >= 0)
        bad = int(np.count_nonzero(~usable))
        if private:
            warn_owner(bad, "records have no usable time, event or group and count in no curve")
        elif bad:
            raise DataError(
                f"{bad} records have no usable time, event or group: times are numbers from 0, events 0 or 1, groups "
                f"among {groups}; correct or drop them"
            )
        return np.where(usable, left, np.nan), ended, place


def cell_numbers(left: Array, ended: Array, place: IntArray, times: Array, groups: int) -> NDArray[np.int64]:
    """The cell of every record: of each group its events by interval, its censored, those still there; then the rest.

    Examples
    --------
    >>> times = np.array([1.0, 2.0])
    >>> cell_numbers(np.array([0.5, 2.0, 9.0, np.nan]), np.array([1.0, 0, 1, 0]), np.zeros(4, dtype=int), times, 1)
    array([0, 3, 4, 5])
    """
    K = len(times)
    usable = np.isfinite(left)
    interval = np.searchsorted(times, np.where(usable, left, 0.0), side="left")
    cell = np.where(interval == K, 2 * K, interval + np.where(ended > 0, 0, K))
    return np.where(usable, place * (2 * K + 1) + cell, groups * (2 * K + 1))


def public_times(times: Any) -> Array:
    """Ends of intervals that a user gave."""
    if times is None:
        raise SpecError("times must be given: public ends of the intervals, such as times=np.arange(180, 3600, 180)")
    try:
        found = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    if found.ndim != 1 or not len(found) or not np.all(np.isfinite(found)):
        raise SpecError("times must be a list of public numbers")
    if not found[0] > 0 or np.any(np.diff(found) <= 0):
        raise SpecError("times must be over 0 and increasing")
    return found


def exits(time: Any, event: Any) -> tuple[Array, Array]:
    """When each record left, NaN where that or the event cannot be used, and whether by an event."""
    left, ended = (real_numbers(each) for each in (time, event))
    if left.ndim != 1 or left.shape != ended.shape or not len(left):
        raise DataError("time and event must be two columns of one number a record")
    usable = np.isfinite(left) & (left >= 0) & np.isin(ended, (0.0, 1.0))
    return np.where(usable, left, np.nan), np.where(usable, ended, 0.0)
