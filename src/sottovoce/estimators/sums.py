"""What estimators share whose whole budget goes to sums that are released once: counts, curves and tables of estimates.

`SumsEstimator` has who owns which record, the noise, the statement and the budget; `TableEstimator` also releases the
stages of a procedure (`inference.estimate`) and prints the table that follows from them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy  # not its parts: they load when first used
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sottovoce._types import Array, IntArray
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators import settings
from sottovoce.estimators.base import owners
from sottovoce.estimators.composition import charge_budget, digest, remember
from sottovoce.estimators.unusable import number_cells, warn_owner
from sottovoce.evaluation.tally import Tally, seeded
from sottovoce.features import Additive
from sottovoce.inference.estimate import Estimate, Procedure
from sottovoce.inference.statistics import Noisy, Stage
from sottovoce.inference.table import CoefficientTable
from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy.calibration import single
from sottovoce.privacy.events import Event
from sottovoce.privacy.filter import Observer, release_against
from sottovoce.privacy.release import (
    ADVERSARIES,
    LAWS,
    Adversary,
    Gaussian,
    MechanismContext,
    NoiseMechanism,
    SecretPairs,
)
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PrivacyStatement, statement_of
from sottovoce.problem.shards import Shards, owner_of_rows
from sottovoce.run.inference import StageSums, driven
from sottovoce.run.one_shot import OneShotRelease
from sottovoce.streams import Streams

RATIO = 30.0
"""What pairs of nodes share, in units of what each adds alone: the mean's noise is within 0.1 % of the least."""


class Planned(NamedTuple):
    """A release before it is made, from public numbers.

    Attributes
    ----------
    tally, statement : its noise, and what it guarantees
    offsets, order, owner : records by node; the order is None where they are in order already
    seed : None where noise is secret
    epsilon, multiplier, factor : ε, z₁ of one release, and by what the noise of several owners is larger
    """

    tally: Tally
    statement: PrivacyStatement
    offsets: IntArray
    order: IntArray | None
    owner: IntArray
    seed: int | None
    epsilon: float
    multiplier: float
    factor: float

    def against(self, target: Observer) -> list[Event]:
        """The events of all nodes against another adversary."""
        return release_against(self.tally.release, target).events(
            self.tally.sizes, np.ones(len(self.tally.sizes), dtype=np.int64)
        )


class SumsEstimator(BaseEstimator):
    """An estimator whose parameters include epsilon, delta, trust, n_nodes, random_state and budget."""

    instead: ClassVar[str]
    """What to take without privacy."""
    purchase: ClassVar[str]
    """What a budget pays for."""

    def _planned(self, records: int, nodes: Any) -> Planned:
        seed = settings.seed(self.random_state)
        offsets, order, self.nodes_ = owners(records, nodes, self.n_nodes, seeded=seed is not None)
        sizes = np.diff(offsets)
        epsilon, delta = settings.budget(self.epsilon, self.delta, records)
        if epsilon is None:
            raise SpecError(f"{type(self).__name__} counts the noise of a budget: give epsilon, or take {self.instead}")
        adversary = ADVERSARIES.read(str(settings.watching(self.trust, "auto", len(sizes)))).among(len(sizes))
        tally = Tally.of(sizes, epsilon, delta, adversary, law_of(adversary, sizes))
        statement = statement_of(tally.events, delta, str(adversary), seed is not None, secure=seed is None)
        z1 = single(epsilon, delta)
        factor = float(np.linalg.norm(sizes * np.array(tally.release.sigma))) / z1
        return Planned(tally, statement, offsets, order, owner_of_rows((offsets, order)), seed, epsilon, z1, factor)

    @contextmanager
    def _paid(self, planned: Planned, known: bytes) -> Iterator[None]:
        """Pay first; then the release is made and remembered."""
        statement = planned.statement
        with charge_budget(self.budget, self.purchase) as budget_check:
            if budget_check is not None:
                budget_check(statement)
            yield
        self.privacy_ = statement
        self.spent_ = remember(known, statement, planned.owner, against=planned.against)


class TableEstimator(SumsEstimator):
    """An estimator of a table of coefficients; also has the parameter bounds."""

    remedy: ClassVar[str]
    """What would help where released numbers refuse intervals."""

    def _columns(self, X: Any) -> Array:
        """The records as numbers: what is none counts as the middle of its bounds, or is refused in a simulation."""
        X = validate_data(self, number_cells(X), dtype=np.float64, ensure_all_finite=False)
        bad = int(np.count_nonzero(np.isnan(X)))
        if settings.seed(self.random_state) is None:
            warn_owner(bad, "numbers are missing and count as the middle of their column's bounds")
        elif bad:
            raise DataError(f"{bad} numbers are missing; fill them in, or leave their records out")
        return np.asarray(X)

    def _release(
        self, planned: Planned, table: Array, y: Array, steps: Procedure, sums: Callable[[Stage], StageSums]
    ) -> None:
        """All stages, one release each, and the estimate.

        Parameters
        ----------
        planned : with which noise
        table, y : records
        steps, sums : the procedure, and how its stages read records
        """
        known = digest(table, y)
        if planned.order is not None:
            table, y = table[planned.order], y[planned.order]
        shards, step = Shards.of(table, y, planned.offsets), 0
        with self._paid(planned, known):
            streams = Streams(planned.seed)
            keys = seeded(None) if planned.seed is None else None

            def answer(stage: Stage) -> Noisy:
                nonlocal step
                step += 1
                part = OneShotRelease(sums(stage), planned.tally.release, planned.tally.sizes, step)
                return part.finish(part.released(shards, streams, keys))

            self._estimate: Estimate = driven(steps, answer)
        self._units = len(y)
        self._bounds = tuple((low, high) for _, low, high in self._map.numeric)

    @property
    def _map(self) -> Additive:
        numeric = settings.numeric_columns(self.bounds, self.n_features_in_, getattr(self, "feature_names_in_", None))
        if len(numeric) < self.n_features_in_:
            raise SpecError("bounds must be given for every column: public numbers, such as bounds={'age': (0, 120)}")
        return Additive(self.n_features_in_, numeric, degree=1)

    @property
    def _theta(self) -> Array:
        """θ₁."""
        return self._estimate.theta

    def _checked(self) -> None:
        """Refuse intervals where released numbers say that noise hides them."""
        check_is_fitted(self)
        if self._estimate.refusal:
            raise PrivacyError(
                f"there are no intervals: {self._estimate.refusal}; more records, fewer or less correlated columns, "
                f"{self.remedy} or a larger epsilon would help"
            )

    def _made_table(
        self, confidence: float, constants: tuple[str, ...], unit: str, outcome: str, ratio: str, note: str
    ) -> CoefficientTable:
        names = getattr(self, "feature_names_in_", None)
        named = [f"column {k + 1}" for k in range(self.n_features_in_)] if names is None else [str(n) for n in names]
        found = CoefficientTable(
            (*named, *constants), self._theta, self._estimate.covariance, self._estimate.sampling, self._units, unit,
            outcome, confidence, ratio, self.privacy_.verdict(), note, len(constants),
        )  # fmt: skip
        return found.in_raw_units(self._bounds)


def quantile(confidence: float) -> float:
    """Of a normal variable, two-sided.

    Examples
    --------
    >>> round(quantile(0.95), 3)
    1.96
    """
    if not 0 < confidence < 1:
        raise SpecError(f"confidence is a probability strictly between 0 and 1, not {confidence!r}")
    return float(scipy.special.ndtri((1.0 + confidence) / 2.0))


def law_of(adversary: Adversary, sizes: IntArray) -> NoiseMechanism:
    """Every node's own noise or, where most are trusted, noise that pairs of nodes cancel."""
    if not isinstance(adversary, SecretPairs):
        return Gaussian()
    context = MechanismContext(
        GRAPHS.read("complete")(len(sizes)), Full(), sizes, 1, adversary=adversary, scale=sizes.astype(float)
    )
    return LAWS.make("pairs", RATIO).on(context)
