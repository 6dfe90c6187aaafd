"""Which map of columns a fit uses, from public numbers: linear, or how many functions for every numeric column.

The rule has one number for classification, Q = 1/(2c), where c is the noise that one release of all records would leave
in a mean of numbers within [−1, 1] (`predict.level` with L = ½): the precision of such a mean. Measured by
benchmarks/additive.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.features import LINEAR, PAIR_ORDER, Additive, Features, every_pair
from sottovoce.planner import predict
from sottovoce.privacy.distribution import Distribution
from sottovoce.problem.objective import ByRecords

WANTED = ("auto", "additive", "linear")
RELEASE_SHARE = 0.05
"""Share of μ² for the distribution of the numeric columns."""
MEAN = 0.03
"""Share of μ² for the mean of the other columns."""
DROWNED = 0.2
"""Noise in the share of the records in a cell, at most, with which the distribution is searched for."""
FAINT = 0.1
"""Noise in the square of the mean of the other columns, at most."""
PER_COLUMN, PER_COLUMN_OF_FEW = 8.0, 25.0
"""Q for each numeric column from which on a classifier gets many functions of a column, of many records and of fewer
than `SMALL`: where the truth is nearly linear, few records lose more below it than others gain."""
FEW_FUNCTIONS, GENTLE_DEGREE, GENTLE_DECAY = 7.0, 4, 1.5
"""Below it, and from this Q for each column on, a few polynomials that hardly lengthen a row: the best of nine maps on
five tables, where they gain 3 points of AUC (spam7, credit_data) and lose 0.2 (flchain). Below that, a straight line.
"""
RECORDS = 80
"""Records for each numeric column from which on an additive regression is better than a linear one."""
SIMILAR_COLUMNS = 16
"""Numeric columns with the same bounds from which on they are taken for pixels or the like, and stay linear."""
BASIS = "cosine"
DEGREE, DECAY, SMOOTHER, CLEAR = 16, 0.75, 1.25, 100.0
"""Functions of a column, and how their weights decay: slowly from this Q for each numeric column on, else faster."""
SMALL, SMOOTHEST = 10_000, 2.0
"""Records up to which weights decay fastest, and how: rough functions of few records follow chance beside noise. There
F is half of what cosines are of, and no function of its own, which would add as much noise as all others together."""
DEGREE_OF_REGRESSION, DECAY_OF_REGRESSION = 4, 1.0
RECORDS_FOR_PAIRS, WIDEST_WITH_PAIRS = 1_000, 1_500
"""Where the products of all pairs of numeric columns are added, though none was named: records for each pair of a
regression, at the least (a classification needs a Q of `CLEAR` for each column), and features of the model, at most."""
WIDEST = 4000
"""Features of an additive model, at most."""


@dataclass(frozen=True)
class Columns:
    """What is public of the columns of records.

    Attributes
    ----------
    count : how many there are
    numeric : (place, low, high) of those whose bounds are known
    rest : public bound on the norm of all others together
    encoded : whether numeric columns are in [−1, 1] already, as a schema encodes them
    pairs : pairs of numeric columns that interact, by their places among `numeric`; None where the rule is to say
    obstacle : why no map of these columns is possible, in a clause; empty where one is
    """

    count: int
    numeric: tuple[tuple[int, float, float], ...] = ()
    rest: float = 0.0
    encoded: bool = False
    pairs: tuple[tuple[int, int], ...] | None = None
    obstacle: str = ""


class Encoding(Protocol):
    """What a schema says of the features that it makes."""

    @property
    def numbered(self) -> int:
        """How many features there are by their numbers alone; 0 where they have names."""

    @property
    def plain(self) -> bool:
        """Whether they are taken as they are."""

    @property
    def row_norm(self) -> float:
        """The public bound on a row."""

    @property
    def parts(self) -> int:
        """How many parts of a row there are, each of length 1 at most."""

    @property
    def numeric_pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of numeric columns that interact."""

    @property
    def m(self) -> int:
        """How many features there are."""

    @property
    def numeric_features(self) -> Sequence[int]:
        """Places of the numeric ones."""

    @property
    def widest(self) -> float:
        """The largest norm that a row can have."""


def columns_of(schema: Encoding) -> Columns | None:
    """What a schema says of the features that it makes: which are numeric, and how long all others are together."""
    if schema.numbered or schema.plain:
        return None
    numeric = tuple((place, -1.0, 1.0) for place in schema.numeric_features)
    others = math.sqrt(schema.parts - len(numeric))
    short = schema.row_norm < schema.widest
    obstacle = "the schema's row_norm scales rows down, which would move their columns; leave it out" if short else ""
    return Columns(schema.m, numeric, others, True, schema.numeric_pairs or None, obstacle)


class FeatureChoice(NamedTuple):
    """The map, what is released of the columns before the first round, and why."""

    features: Features = LINEAR
    release: Distribution = Distribution()
    reasons: tuple[str, ...] = ()


class Circumstances(NamedTuple):
    """What else the choice depends on.

    Attributes
    ----------
    sizes : numbers of records or people of every node
    z1 : the noise multiplier of one release at (ε, δ)
    honest : how many nodes keep secrets that they share in pairs; 0 where they share none
    real : whether targets are numbers
    may_release : whether anything may be released before the first round
    """

    sizes: tuple[int, ...]
    z1: float
    honest: int = 0
    real: bool = False
    may_release: bool = True

    @property
    def noise(self) -> float:
        """c of one release with L = ½."""
        sizes = np.array(self.sizes)
        return predict.level(ByRecords()(sizes), sizes, 0.5, self.z1, self.honest)


def choose_features(wanted: str, columns: Columns, known: Circumstances) -> FeatureChoice:
    """The map of columns for a fit.

    Examples
    --------
    >>> columns = Columns(3, ((0, 0.0, 120.0), (1, -1.0, 1.0)), rest=1.0)
    >>> found = choose_features("auto", columns, Circumstances((30_000,), 3.73))
    >>> str(found.features), str(found.release)
    ('cosine(16, 0.75, 1, 3, 1, 0, 0, 120, 1, -1, 1, pairs=0x1)', 'distribution(0.05, 2, 0.03, 1)')
    >>> choose_features("auto", columns, Circumstances((100,), 3.73)).features.degree
    1
    >>> choose_features("auto", Columns(3), Circumstances((100,), 3.73)).reasons
    ('The model is linear: no column has known bounds (a schema, an encoder or bounds= gives them).',)
    """
    if wanted not in WANTED:
        raise SpecError(f"features is one of {', '.join(WANTED)}, not {wanted!r}")
    if not columns.numeric:
        if wanted == "additive":
            raise SpecError(
                "features='additive' needs numeric columns with public bounds; give a schema, or "
                "bounds={'age': (0, 120), …} (in a pipeline bounds=encoder.bounds_)"
            )
        why = "The model is linear: no column has known bounds (a schema, an encoder or bounds= gives them)."
        return FeatureChoice(LINEAR, reasons=(why,) if wanted == "auto" else ())
    if columns.obstacle and wanted != "linear":
        if wanted == "additive":
            raise SpecError(f"features='additive' is not possible: {columns.obstacle}")
        return FeatureChoice(LINEAR, reasons=(f"The model is linear: {columns.obstacle}.",))
    if wanted == "linear":
        return FeatureChoice(_scaled(columns))
    better = _better_linear(columns, known) if wanted == "auto" else None
    if better is not None:
        return FeatureChoice(_scaled(columns), reasons=(f"The model is linear: {better}.",))
    if not known.real and not _above(_many_functions(known), columns, known):
        shape = "legendre", GENTLE_DEGREE, GENTLE_DECAY
        features = Additive(columns.count, columns.numeric, columns.rest, *shape, pairs=columns.pairs or ())
        return FeatureChoice(features, reasons=_reasons(features, Distribution()))
    release = _release(columns, known)
    known_as_feature = bool(release) and not known.real and sum(known.sizes) >= SMALL
    features = Additive(columns.count, columns.numeric, columns.rest, BASIS, *_shape(columns, known), known_as_feature)
    features = replace(features, pairs=_pairs(columns, known, features.width))
    return FeatureChoice(features, release, _reasons(features, release))


def _shape(columns: Columns, known: Circumstances) -> tuple[int, float]:
    """How many functions a column gets, and how their weights decay."""
    if known.real:
        return DEGREE_OF_REGRESSION, DECAY_OF_REGRESSION
    if sum(known.sizes) < SMALL:
        return DEGREE, SMOOTHEST
    return DEGREE, DECAY if _above(CLEAR, columns, known) else SMOOTHER


def _pairs(columns: Columns, known: Circumstances, width: int) -> tuple[tuple[int, int], ...]:
    """The pairs that were named or, where none were, all of them if records are many and columns few."""
    if columns.pairs is not None:
        return columns.pairs
    every = every_pair(len(columns.numeric))
    if width + PAIR_ORDER**2 * len(every) > WIDEST_WITH_PAIRS:
        return ()
    if known.real:
        return every if sum(known.sizes) >= RECORDS_FOR_PAIRS * len(every) else ()
    return every if _above(CLEAR, columns, known) else ()


def _above(least: float, columns: Columns, known: Circumstances) -> bool:
    """Whether Q is at least so much for each numeric column."""
    return 0.5 / known.noise >= least * len(columns.numeric)


def _many_functions(known: Circumstances) -> float:
    """Q for each column from which on it gets many functions."""
    return PER_COLUMN_OF_FEW if sum(known.sizes) < SMALL else PER_COLUMN


def _scaled(columns: Columns) -> Features:
    """Numeric columns brought to [−1, 1] by their bounds, and nothing more."""
    if columns.encoded:
        return LINEAR
    return Additive(columns.count, columns.numeric, columns.rest, degree=1)


def _better_linear(columns: Columns, known: Circumstances) -> str | None:
    """Why public numbers say that a linear model is better; None where they do not."""
    d, total = len(columns.numeric), sum(known.sizes)
    bounds = {(low, high) for _, low, high in columns.numeric}
    if d >= SIMILAR_COLUMNS and len(bounds) == 1 and not columns.encoded:
        return f"all {d} numeric columns have the same bounds, as pixels have"
    if columns.count + (DEGREE + 1) * d > WIDEST:
        return f"{d} numeric columns would become more than {WIDEST:,} features"
    if known.real and total < RECORDS * d:
        return f"{total:,} records are fewer than {RECORDS} for each of {d} numeric columns"
    if not known.real and not _above(FEW_FUNCTIONS, columns, known):
        return (
            f"noise of {known.noise:.2g} in a mean of all records would hide more than a straight line in each of {d} "
            "numeric columns"
        )
    return None


def _release(columns: Columns, known: Circumstances) -> Distribution:
    """What is released of the columns before the first round, where its noise would not drown it."""
    d, others = len(columns.numeric), columns.count - len(columns.numeric)
    if not known.may_release or known.noise * math.sqrt(2.0 * d / RELEASE_SHARE) > DROWNED:
        return Distribution()
    details = others > 0 and not known.real and others * (2.0 * known.noise) ** 2 / MEAN <= FAINT
    return Distribution(RELEASE_SHARE, d, MEAN if details else 0.0, others if details else 0)


def _reasons(features: Additive, release: Distribution) -> tuple[str, ...]:
    """One line for each thing that was chosen."""
    kind = "Legendre polynomials" if features.basis == "legendre" else "cosines"
    found = [
        f"The model is additive: {features.degree} {kind} with weights k^−{features.decay:g} for each of {features.d} "
        f"numeric columns, from their public bounds; the other {len(features.others)} columns stay as they are."
    ]
    if features.pairs:
        found.append(f"Products of two columns are added for {len(features.pairs)} pairs of numeric columns.")
    if release:
        found.append(
            f"First {100 * release.total:.2g} % of the budget for noisy counts of the columns, released once: "
            "functions follow where values lie, and rows are centered and brought to a common length."
        )
    else:
        found.append("Counts of the columns would drown in noise, or have no place: functions follow bounds alone.")
    return tuple(found)
