"""Runs put together: what differs only by its seed is one setting, named by what sets it apart from the others."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.errors import DataError
from sottovoce.figure import Interval
from sottovoce.privacy.sampling import Fixed
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.run.result import History, Result
from sottovoce.run.spec import PARTS

# what names a setting first, if it differs; the rest follows in the order of the spec, and the rounds come last
FIRST = ("privacy.noise", "problem.loss", "problem.h", "privacy.sampling", "network.activation", "network.graph")
LAST = ("algorithm.rounds",)
MOST_POINTS = 3000  # of all curves of a panel, …
MOST_OF_ONE, FEWEST_OF_ONE = 300, 25  # … and of each of them


@dataclass(frozen=True)
class Band:
    """A curve over seeds: the mean of each column of the history, and for one of them its 95 % interval."""

    x: dict[str, Array]
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only by their seed."""

    label: str
    runs: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """Any run of the setting, for what all of them share."""
        return self.runs[0]

    @property
    def statement(self) -> PrivacyStatement:
        """The weakest guarantee among the runs."""
        return max((run.statement for run in self.runs), key=lambda s: s.epsilon)

    @property
    def score(self) -> str:
        """What the history calls accuracy."""
        return "accuracy" if self.first.classes is not None else "R²"

    def knows(self, column: str) -> bool:
        """Whether some run has a number in this column of its history."""
        return any(bool(np.any(np.isfinite(run.history[column]))) for run in self.runs)

    def band(self, column: str, points: int = MOST_OF_ONE) -> Band:
        """A column against the others, at no more than `points` of the rounds at which all runs were examined."""
        shared = sorted(set.intersection(*({row["round"] for row in run.history.rows} for run in self.runs)))
        if not shared:
            raise DataError(
                f"the runs of '{self.label}' were never evaluated in the same round; give each its own label"
            )
        chosen = {shared[i] for i in np.unique(np.linspace(0, len(shared) - 1, points).round().astype(int))}
        kept = [History([row for row in run.history.rows if row["round"] in chosen]) for run in self.runs]
        values = np.array([mine[column] for mine in kept], dtype=np.float64)
        x = {name: np.mean([mine[name] for mine in kept], axis=0) for name in ("round", "epoch", "bytes")}
        found = [Interval.of(of_round) for of_round in values.T]
        low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
        return Band(x, values.mean(axis=0), low, high)

    def last(self, column: str) -> Array:
        """The final value of every evaluated run."""
        return np.array([run.history[column][-1] for run in self.runs if len(run.history)])


def settings_of(results: Sequence[Result], labels: Sequence[str] | None = None) -> list[RunGroup]:
    """Put results together by their labels or, without any, by everything in their specs but the seed.

    Examples
    --------
    >>> settings_of([])
    Traceback (most recent call last):
        ...
    sottovoce.errors.DataError: a report needs at least one result
    """
    if not results:
        raise DataError("a report needs at least one result")
    if labels is not None and len(labels) != len(results):
        raise DataError(f"there are {len(results)} results but {len(labels)} labels; give one for each")
    groups: dict[Any, list[Result]] = {}
    keys: Sequence[Any] = labels if labels is not None else [_identity(result) for result in results]
    for result, key in zip(results, keys, strict=True):
        groups.setdefault(key, []).append(result)
    if labels is None:
        names = _names([runs[0] for runs in groups.values()])
    else:
        names = [str(key) for key in groups]
    return [RunGroup(name, tuple(runs)) for name, runs in zip(names, groups.values(), strict=True)]


def flat(result: Result) -> dict[str, Any]:
    """The spec of a run, without its seed, as part.field: value."""
    spec = result.spec
    return {
        f"{part}.{f.name}": getattr(getattr(spec, part), f.name) for part, kind in PARTS.items() for f in fields(kind)
    }


def short(key: str, value: Any) -> str:
    """One choice of a spec in a few words.

    Examples
    --------
    >>> from sottovoce.algorithm.method import constant
    >>> from sottovoce.privacy.calibration import NoNoise, Private
    >>> short("privacy.noise", Private(0.5)), short("privacy.noise", NoNoise()), short("algorithm.gamma", constant(1))
    ('ε = 0.5', 'no noise', 'gamma constant(1)')
    """
    if key == "privacy.noise":
        return str(value.words)
    if value == Fixed(1):
        return "one record"
    return str(value) if key in FIRST else f"{key.split('.')[-1].replace('_', ' ')} {value}"


def _identity(result: Result) -> tuple[Any, ...]:
    public = result.public
    return (*flat(result).values(), public.get("n"), public.get("m"), tuple(public.get("records", ())), result.features)


def _names(results: Sequence[Result]) -> list[str]:
    """The fewest words that distinguish the specs, more of them only where the first ones do not."""
    specs = [flat(r) | {"nodes": r.public.get("n"), "features": r.public.get("m")} for r in results]
    keys = list(dict.fromkeys(key for spec in specs for key in spec))
    middle = [key for key in keys if key not in FIRST + LAST]
    words: list[tuple[str, ...]] = [() for _ in specs]
    for key in (*FIRST, *middle, *LAST):
        for word_ in set(words):
            mine = [i for i, word in enumerate(words) if word == word_]
            if len({repr(specs[i].get(key)) for i in mine}) > 1:
                for i in mine:
                    words[i] = (*word_, short(key, specs[i].get(key)))
    if len(specs) == 1:
        return [short("privacy.noise", specs[0]["privacy.noise"])]
    counts = {word: itertools.count(1) for word in words}
    return [
        ", ".join(word) if words.count(word) == 1 else ", ".join((*word, f"no. {next(counts[word])}")) for word in words
    ]
