"""Replace one record, or one person, by an adversarial one, and compare all that two runs compute and release.

A run is recorded: every exact sum before its noise, and what was released of it. Then one record or person is replaced
and the run is made again with the same random numbers, every release answered with the recorded one. So both runs are
in the same state before each sum, whatever was released before. Then, as differential privacy demands of each sum,

- each exact sum has moved by at most the sensitivity that the run accounts for;
- everything else that comes out of the run is the same to the last bit: model, plan, statement, figures, and no error.

`python tests/privacy/replacement.py --replacements 20000` prints a table; the tests run some of each row.
"""

import argparse
import hashlib
import itertools
import math
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from scipy import sparse

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV, Shards, solve
from sottovoce.errors import OwnerWarning
from sottovoce.estimators import search
from sottovoce.estimators.clones import FAMILY
from sottovoce.evaluation.holdout import secret_order
from sottovoce.evaluation.tally import Tally
from sottovoce.run.one_shot import OneShotRelease
from sottovoce.run.spec import AlgorithmSpec, PrivacySpec, ProblemSpec, Spec
from sottovoce.secure import generator
from sottovoce.secure.noise import Noise

ROUNDING = 1.0 + 1e-12
"""Differences of sums are measured in floats here."""
RECORDS, FEATURES, BOUND = 240, 3, 0.5
MODEL = "model"


class Table(NamedTuple):
    """Records, their targets, and whose each is (None where every row is a record of its own)."""

    X: Any
    y: Any
    people: Any = None
    nodes: Any = None


class Exact(NamedTuple):
    """One exact sum, a row a node, with the sensitivity that is accounted.

    That of an evaluation before or after the rounds is for all evaluations of the fit together. That of rounds is known
    later.
    """

    what: str
    sums: Any
    reach: float
    when: int = 0


class Trace:
    """What a run computed and released, and the releases with which it is answered, if it is a replay."""

    def __init__(self, answers: list[Any] | None = None) -> None:
        self.exact: list[Exact] = []
        self.released: list[Any] = []
        self.answers = answers
        self.warned = set[str]()

    def answer(self, what: str, sums: Any, reach: float, release: Callable[[], Any], when: int = 0) -> Any:
        """Note the exact sum, and give the release of it, or the recorded one."""
        place = len(self.exact)
        self.exact.append(Exact(what, np.array(sums), reach, when))
        if self.answers is None:
            self.released.append(release())
            return self.released[-1]
        assert place < len(self.answers), "another number of releases"
        assert np.shape(self.answers[place])[-1] == np.shape(sums)[-1], "a release of another size"
        return self.answers[place]


class SharedRandomness:
    """The same random numbers in every run."""

    def __init__(self) -> None:
        self.count = itertools.count()

    def bytes(self, size: int | None = None) -> bytes:
        return hashlib.shake_256(str(next(self.count)).encode()).digest(size or 32)

    def bits(self, count: int) -> int:
        return int.from_bytes(self.bytes(32), "little") >> (256 - count) if count < 256 else 0


@contextmanager
def traced(trace: Trace, same_person: dict[str, str]) -> Iterator[None]:
    """Within it all exact sums go through the trace, and all random numbers are those of `SharedRandomness`."""
    secured, answers, released, fixed_bits = OneShotRelease.secured, Tally.answers, Noise.released, SharedRandomness()
    traced_already: list[None] = []

    def pre_release(self: Any, draws: Any, nodes: Any) -> Any:
        def real() -> Any:
            traced_already.append(None)
            try:
                return secured(self, draws, nodes)
            finally:
                traced_already.pop()

        sums = draws.sums.totals(nodes, None, None) * draws.sums.grid
        return trace.answer("pre_release", sums, 2.0 * self.release.clip, real, self.when)

    def tally(self: Tally, part: Any, sums: Any, keys: Any, nodes: Any = None) -> Any:
        return trace.answer("tally", sums * part.unit, part.diameter, lambda: answers(self, part, sums, keys, nodes))

    def mean(self: Noise, sums: Any, grid: float, over: Any, rows: Any = None) -> Any:
        if traced_already:
            return released(self, sums, grid, over, rows)
        return trace.answer("round", sums * grid, math.nan, lambda: released(self, sums, grid, over, rows))

    def order(X: Any, y: Any, user_ids: Any, *rest: Any) -> Any:
        known = None if user_ids is None else np.array([same_person.get(str(unit), str(unit)) for unit in user_ids])
        return secret_order(X, y, known, *rest)  # the replaced person has the secret score of the one before

    with (
        mock.patch.object(OneShotRelease, "secured", pre_release),
        mock.patch.object(Tally, "answers", tally),
        mock.patch.object(Noise, "released", mean),
        mock.patch.object(search, "secret_order", order),
        mock.patch.object(generator.os, "urandom", fixed_bits.bytes),
        mock.patch.object(secrets, "token_bytes", fixed_bits.bytes),
        mock.patch.object(secrets, "randbits", fixed_bits.bits),
        warnings.catch_warnings(record=True) as heard,
    ):
        warnings.simplefilter("always")
        yield
    trace.warned = {f"{each.category.__name__}: {each.message}" for each in heard if each.category is not OwnerWarning}


# -- entry points: each trains, or evaluates, and returns what comes out --


def fitted(model: Any) -> dict[str, Any]:
    """All that a fitted model shows, and the reach of the sums in its rounds."""
    event = model.privacy_.groups[0].event
    products = type(event).__name__ == "ProductsEvent"
    shown = {name: repr(value) for name, value in vars(model).items() if name.endswith("_") and name != "spent_"}
    counted = ("spent_", FAMILY)  # what this process remembers of earlier fits
    state = {name: value for name, value in vars(model).items() if name not in counted}
    return shown | {
        "state": dict(leaves(state, "")),
        "terms": model.terms().text(),
        "reach": (math.sqrt(2.0) if products else 2.0) * event.clip,
        "models": model._result.models,
        "public": {name: str(value) for name, value in model._result.public.items()},
        "statement": str(model.privacy_.to_dict()),
    }


def leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """All plain values within an object, such as would be in its pickle, by where they are."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from leaves(each, f"{name}.{place}")
    elif hasattr(value, "__dict__"):
        yield from leaves(vars(value), name)
    else:
        raw = isinstance(value, np.ndarray) and value.dtype != object
        yield name, f"{value.dtype} {value.shape} {value.tobytes()!r}" if raw else repr(value)


def fit(make: Callable[[], Any]) -> Callable[[Table], dict[str, Any]]:
    return lambda table: fitted(make().fit(table.X, table.y, nodes=table.nodes, user_ids=table.people))


def solving(table: Table) -> dict[str, Any]:
    """`solve`, which is given rows over the bound, and clips."""
    whole, user_ids = np.array([0, len(table.y)]), table.people
    spec = Spec(
        AlgorithmSpec(2),
        ProblemSpec(row_norm=BOUND, on_violation="clip"),
        privacy=PrivacySpec("full", "private(20)", moments="moments(0.01, 0.03, 0.05)"),
    )
    done = solve(spec, Shards.of(table.X, 2.0 * table.y.astype(float) - 1.0, whole, user_ids=user_ids))
    reach = 2.0 * done.statement.groups[0].event.clip
    return {"reach": reach, "models": done.models, "statement": str(done.statement.to_dict())}


def classifier(classes: int = 2, **more: Any) -> Callable[[], Any]:
    settings = {"epsilon": 20.0, "row_norm": BOUND, "classes": list(range(classes)), "rounds": 2} | more
    return lambda: PrivateClassifier(**settings)


def regressor(**more: Any) -> Callable[[], Any]:
    return lambda: PrivateRegressor(**{"epsilon": 20.0, "row_norm": BOUND, "target_bounds": (-1, 1)} | more)


def searching(table: Table) -> dict[str, Any]:
    model = PrivateClassifier(row_norm=BOUND, classes=[0, 1])
    found = PrivateSearchCV(model, {"rounds": [1, 2]}, epsilon=20.0, runs=1.5, held_out=0.4)
    found.fit(table.X, table.y, nodes=table.nodes, user_ids=table.people)
    chosen = {"plan": found.best_params_, "score": repr(found.best_score_), "worth": found.summary_}
    return fitted(found.best_estimator_) | chosen | {"scores": repr(found.scores_), "epsilon": found.run_epsilon_}


class Evaluates:
    """Evaluation of a model that was fitted before, on other records."""

    def __init__(self, make: Callable[[], Any], ask: str) -> None:
        self.make, self.ask, self.models = make, ask, dict[bool, Any]()

    def __call__(self, table: Table) -> dict[str, Any]:
        people = table.people is not None
        if people not in self.models:
            trained = tables(np.asarray, people, self.make().__class__ is PrivateRegressor, seed=7)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = None if table.nodes is None else trained.nodes
                self.models[people] = self.make().fit(trained.X, trained.y, nodes, trained.people)
        model = self.models[people]
        found = model.evaluate(table.X, table.y, table.nodes, table.people, metrics=self.ask, epsilon=5.0)
        model._evaluations.clear()
        shown = {"sums": found.sums, "records": found.records, "noise": found.noise, "edges": found.edges}
        return shown | {"model": repr(found.model), "statement": str(found.statement.to_dict())}


ENTRIES: dict[str, Callable[[Table], dict[str, Any]]] = {
    "fit, 2 classes": fit(classifier(private_scaling=False)),
    "fit, 2 classes, Poisson samples": fit(classifier(batch=40, private_scaling=False)),
    "fit, 2 owners": fit(classifier(private_scaling=False)),
    "fit, 3 classes": fit(classifier(3, loss="softmax")),
    "fit, private scaling": fit(classifier(private_scaling=True)),
    "fit, private threshold": fit(classifier(private_scaling=True, class_weight="balanced", prior=[0.9, 0.1])),
    "fit, regression in rounds": fit(regressor(rounds=2)),
    "fit, private target range": fit(regressor(rounds=2, target_scale=0.1)),
    "fit, statistics": fit(regressor(method="statistics")),
    "fit, additive": fit(classifier(features="additive", bounds=[(-0.4, 0.4)] * FEATURES)),
    "fit, additive, pairs of columns": fit(
        classifier(features="additive", bounds=[(-0.4, 0.4), (0, 1), None], pairs=[(0, 1)])
    ),
    "fit, additive regression": fit(regressor(rounds=2, features="additive", bounds=[(-0.4, 0.4)] * FEATURES)),
    "fit, additive, 2 owners": fit(classifier(3, features="additive", bounds=[(-0.4, 0.4)] * FEATURES)),
    "fit, intervals": fit(classifier(inference=True, epsilon=200.0)),
    "fit, regression with intervals": fit(regressor(rounds=2, inference=True, epsilon=200.0)),
    "fit, majority of 5 owners": fit(classifier(trust="majority", private_scaling=True)),
    "evaluate, right": Evaluates(classifier(), "right"),
    "evaluate, right, 2 owners": Evaluates(classifier(), "right"),
    "evaluate, confusion": Evaluates(classifier(3), "confusion"),
    "evaluate, scores": Evaluates(classifier(), "scores"),
    "evaluate, squares": Evaluates(regressor(), "squares"),
    "search": searching,
    "solve, clipping, finite rows": solving,
}
KINDS: dict[str, Callable[[Any], Any]] = {"dense": np.asarray, "Fortran": np.asfortranarray, "csr": sparse.csr_array}
UNITS = ("record", "person")
CELLS = list(itertools.product(ENTRIES, KINDS, UNITS))


# -- tables and adversaries --


def tables(kind: Callable[[Any], Any], people: bool, real: bool, seed: int = 0, owners: int = 2) -> Table:
    """Ordinary records; a person has one to four rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.4, 0.4, (RECORDS, FEATURES))
    X[rng.random(X.shape) < 0.2] = 0.0
    noisy = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=RECORDS)
    y = noisy if real else (noisy > 0.1).astype(object)
    ids = np.sort(rng.integers(0, RECORDS // 2, RECORDS)) if people else None
    nodes = np.array(["north", "south", "east", "west", "center"])[
        (np.arange(RECORDS) if ids is None else ids) % owners
    ]
    return Table(kind(X), y, None if ids is None else np.array([f"p{i:03}" for i in ids]), nodes)


class How(NamedTuple):
    """What an entry point takes: numbers as targets, a person's rows at any places, rows without NaN and infinity."""

    real: bool
    anywhere: bool
    finite: bool


def odd_row(rng: np.random.Generator, finite: bool) -> Any:
    """A row as nobody would have it."""
    strange = [] if finite else [np.nan, np.inf, -np.inf]
    odd = [*strange, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e-160, 1e154, BOUND, 0.1, 1e9]
    choice = rng.integers(4)
    if choice == 0:
        return np.full(FEATURES, odd[rng.integers(len(odd))])
    if choice == 1:
        return np.array([odd[k] for k in rng.integers(len(odd), size=FEATURES)])
    row = rng.normal(size=FEATURES) * (10.0 ** rng.uniform(-3, 3) if choice == 2 else 1.0)
    return row if choice == 2 else BOUND * row / np.linalg.norm(row)


def odd_target(rng: np.random.Generator, how: How) -> Any:
    """A target as nobody would have it, or another of the ordinary ones."""
    numbers = [1e308, -1e308, np.nan, np.inf, -np.inf, -1.0, 1.0, 0.0, 5e-324]
    labels = [0, 1, 0, 1, None, float("nan"), "strange", 1e308, -1, 2, 0.5, True, "0"]
    if how.finite:
        return int(rng.integers(2))
    return numbers[rng.integers(len(numbers))] if how.real else labels[rng.integers(len(labels))]


def replaced(table: Table, how: How, rng: np.random.Generator) -> tuple[Table, dict[str, str]]:
    """The table with one record or person replaced, and by whose secret score the new person goes.

    Samples of people are drawn by numbers in the order of first rows: where there are samples, a person's first row
    stays where it was, so that the others are drawn as before.
    """
    X = np.array(table.X.toarray() if sparse.issparse(table.X) else table.X)
    y, same = np.array(table.y), dict[str, str]()
    if table.people is None:
        row = rng.integers(len(y))
        X[row], y[row] = odd_row(rng, how.finite), odd_target(rng, how)
        return table._replace(X=X, y=y), same
    people = table.people.astype("<U20")
    who = str(people[rng.integers(len(people))])
    mine = np.flatnonzero(people == who)
    name = who if rng.random() < 0.3 else str(rng.choice(["", "a", "zzz", "p0", "p119x", "−1"]))
    same[name] = who
    keep = np.ones(len(y), dtype=bool)
    keep[mine[1:]] = False
    people[mine[0]] = name
    X[mine[0]], y[mine[0]] = odd_row(rng, how.finite), odd_target(rng, how)
    extra = int(rng.choice([0, 0, 1, 2, 7, 40]))
    changes = rng.random() < 0.3
    rows = [X[mine[0]] if changes else odd_row(rng, how.finite) for _ in range(extra)]
    targets = np.empty(extra, dtype=y.dtype)
    for k in range(extra):
        targets[k] = y[mine[0]] if changes else odd_target(rng, how)
    nodes = None
    if table.nodes is not None:
        nodes = np.concatenate([table.nodes[keep], np.repeat(table.nodes[mine[0]], extra)])
    parts = (X[keep], np.array(rows).reshape(extra, FEATURES)), (y[keep], targets), (people[keep], [name] * extra)
    first = how.anywhere and rng.random() < 0.5
    X, y, people = (np.concatenate(part[::-1] if first else part) for part in parts)
    if nodes is not None and first:
        nodes = np.roll(nodes, extra)
    return Table(X, y, people, nodes), same


def moved(one: Trace, other: Trace, reach: float) -> dict[str, float]:
    """By how much each kind of sum has moved, over what is accounted; examines, which share a budget, together."""
    assert len(one.exact) == len(other.exact), "another number of releases"
    assert one.warned == other.warned, f"other warnings: {one.warned ^ other.warned}"
    found, pre_releases, last = {"round": 0.0, "pre_release": 0.0, "tally": 0.0}, 0.0, -1
    for a, b in zip(one.exact, other.exact, strict=True):
        assert (
            a.what == b.what and a.sums.shape == b.sums.shape and np.array_equal([a.reach], [b.reach], equal_nan=True)
        )
        far = math.hypot(*(a.sums - b.sums).astype(np.float64).ravel().tolist())
        if a.what == "pre_release":
            pre_releases, last = far * far + (pre_releases if a.when > last else 0.0), a.when
            found["pre_release"] = max(found["pre_release"], math.sqrt(pre_releases) / a.reach)
        else:
            share = far / (reach if a.what == "round" else a.reach)
            assert math.isfinite(share), "what a sum may move by is not known"
            found[a.what] = max(found[a.what], share)
    return found


def changes(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The outputs that differ."""
    same = {key: one[key] is other[key] or np.array_equal(one[key], other[key]) for key in one}
    return [key for key in one if not same[key]]


class Cell:
    """One entry point × kind × unit: a recorded run, against which replaced ones are compared."""

    def __init__(self, entry: str, kind: str, unit: str) -> None:
        self.run, self.kind = ENTRIES[entry], KINDS[kind]
        real = any(word in entry for word in ("regression", "target", "statistics", "squares"))
        self.how = How(real, "samples" not in entry, "finite" in entry)
        owners = int(entry.removesuffix(" owners")[-1]) if entry.endswith(" owners") else 1
        self.table = tables(self.kind, unit == "person", real, seed=1, owners=owners)
        if owners == 1:
            self.table = self.table._replace(nodes=None)
        self.trace = Trace()
        if isinstance(self.run, Evaluates):  # its model is fitted before
            self.run(self.table)
        with traced(self.trace, {}):
            self.out = self.run(self.table)
        with traced(Trace(self.trace.released), {}):
            again = self.run(self.table)
        assert not changes(self.out, again), f"the replay itself differs: {changes(self.out, again)}"

    def replace(self, rng: np.random.Generator) -> dict[str, float]:
        """By how much sums move when someone is replaced, over what is accounted; all else must stay the same."""
        table, same = replaced(self.table, self.how, rng)
        trace = Trace(self.trace.released)
        with traced(trace, same):
            out = self.run(table._replace(X=self.kind(table.X)))
        assert not (different := changes(self.out, out)), f"these outputs changed: {different}"
        found = moved(self.trace, trace, self.out.get("reach", math.nan))
        assert max(found.values()) <= ROUNDING, f"a sum moved by more than is accounted: {found}"
        return found


def main() -> None:
    """Print a table of all cells."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--replacements", type=int, default=20_000, help="in all cells together")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="entry points whose name holds this")
    given = options.parse_args()
    cells = [cell for cell in CELLS if given.only in cell[0]]
    each = -(-given.replacements // len(cells))
    print(f"{'entry point':34}{'kind':10}{'unit':8}{'replaced':>9}{'failed':>8}{'rounds':>9}{'pre':>9}{'tallies':>9}")
    failures = 0
    for number, (entry, kind, unit) in enumerate(cells):
        cell, rng, begun = Cell(entry, kind, unit), np.random.default_rng((given.seed, number)), time.monotonic()
        most, failed = dict[str, float](), 0
        for _ in range(each):
            try:
                for what, far in cell.replace(rng).items():
                    most[what] = max(most.get(what, 0.0), far)
            except Exception as error:  # counted, and the first of each cell is shown
                failed += 1
                if failed == 1:
                    print(f"  {type(error).__name__}: {error}")
        failures += failed
        shown = "".join(f"{most.get(what, 0.0):9.4f}" for what in ("round", "pre_release", "tally"))
        print(f"{entry:34}{kind:10}{unit:8}{each:9}{failed:8}{shown}  {time.monotonic() - begun:.1f} s", flush=True)
    print(f"{each * len(cells)} replacements, {failures} failed")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
