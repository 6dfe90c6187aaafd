"""What the paper ran (its section 5), as data: schemes, regularisers, noises; and the table of these runs.

Twenty nodes, complete graph, Metropolis weights, hinge loss, three passes over the data. Where the paper is silent the
reading is that of `docs/paper.md`: h = μ‖x‖²/2, equal passes for all schemes, the exact ι, F* with a certificate.
Figures are views of these runs.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Timer
from typing import Any, NamedTuple

import numpy as np

from sottovoce._types import IntArray
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.experiments.data import Dataset
from sottovoce.experiments.table import Done, Row, Runs, each, load_rows
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.accounting import price
from sottovoce.privacy.calibration import GivenNoise, Noise, PaperNoise, Private
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared, make_problem, prepare, renoised, rounds_for_epochs
from sottovoce.run.presets import liu2022, paper_l1, paper_l2
from sottovoce.run.result import environment
from sottovoce.run.solve import asked, together
from sottovoce.run.spec import Execution, Spec

DATA = ("epsilon-like", "rcv1-like", "rcv1", "a9a", "covtype")
"""The paper's two sets by their stand-ins, and real ones beside them."""
EPOCHS = 3.0
EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0)
DELTA0 = 0.01
DELTA = 1e-5
NOISES: dict[str, Callable[[float], Noise]] = {"paper": lambda epsilon: PaperNoise(epsilon, DELTA0), "honest": Private}
SCHEMES = {
    "edges(1)": "one edge, ι = 0.1",
    "edges(2)": "two edges, ι = 4/21",
    "matching(2)": "two disjoint edges, ι = 0.2",
    "everyone": "Liu 2022, ι = 1",
}
"""Who is active, and what the figures call it."""
REGULARISERS = {"l2": (paper_l2, tuple(SCHEMES)), "l1": (paper_l1, ("edges(1)", "edges(2)", "matching(2)"))}
"""Each with the preset and the schemes that the paper shows it with."""

GAPS = {"tiny": 1e-6, "small": 1e-5, "full": 1e-4}
LOOKS = {"tiny": 16, "small": 20, "full": 12}
REHEARSED = 200
"""Rounds before the runs, while these are accounted: enough for every shape of a round to come up."""
PATIENCE = 1.0
"""Seconds after which the next group comes, though the one before is still being asked for."""
KEY = ("data", "size", "h", "scheme", "noise", "epsilon", "seed")
"""What makes a run what it is; it has a row for each look."""


@dataclass(frozen=True)
class View:
    """A figure of the paper: which runs, which ε for curves (None: all, at their end)."""

    name: str
    h: str
    epsilon: float | None
    title: str


FIGURES = {
    "fig1": View("fig1", "l2", 0.8, "l2-regularised SVM, ε = 0.8"),
    "fig2": View("fig2", "l2", None, "privacy and utility, l2-regularised SVM"),
    "fig3": View("fig3", "l1", 0.4, "l1-regularised SVM, ε = 0.4"),
    "fig4": View("fig4", "l1", None, "privacy and utility, l1-regularised SVM"),
}


@dataclass(frozen=True)
class Group:
    """Runs that share their draws: one regulariser, one scheme, one seed; all ε and noises."""

    h: str
    scheme: str
    seed: int

    def heads(self, dataset: Dataset, noises: Sequence[str]) -> list[Row]:
        """What its runs are known by."""
        head = {"data": dataset.name, "size": dataset.size, "h": self.h, "scheme": self.scheme}
        return [
            head | {"noise": noise, "epsilon": epsilon, "seed": self.seed} for noise in noises for epsilon in EPSILONS
        ]

    def specs(self, sizes: IntArray, noises: tuple[str, ...]) -> list[tuple[str, float, Spec]]:
        """(noise, ε, spec) of every run."""
        preset = liu2022 if (self.h, self.scheme) == ("l2", "everyone") else REGULARISERS[self.h][0]
        base = preset(1).but(network__activation=self.scheme, privacy__delta=DELTA, seed=self.seed)
        base = base.but(algorithm__rounds=rounds_for_epochs(base, sizes, EPOCHS))
        return [
            (noise, epsilon, base.but(privacy__noise=NOISES[noise](epsilon)))
            for noise in noises
            for epsilon in EPSILONS
        ]


Crowd = tuple[Group, ...]
"""Groups that are the same but for their seeds."""
Turn = Callable[[Crowd], AbstractContextManager[None]]


class Account(NamedTuple):
    """What a run's noise is, and what it guarantees."""

    sigma: tuple[float, ...]
    epsilon: float
    """The true one."""


class Accounted(NamedTuple):
    """The runs of a scheme and a seed, whatever their h: who speaks when, and an account each, in a group's order."""

    schedule: Schedule
    runs: list[Account]


Accounts = dict[tuple[str, int], Accounted]


def groups(figures: list[str], seeds: int) -> list[Group]:
    """What must be run for these figures; seed by seed, so that an interrupted work leaves whole seeds."""
    wrong = [name for name in figures if name not in FIGURES]
    if wrong:
        raise SpecError(f"there is no figure '{wrong[0]}'; choose one of {', '.join(FIGURES)}")
    if seeds < 2:
        raise SpecError(f"intervals need at least two seeds, not {seeds}")
    kinds = sorted({FIGURES[name].h for name in figures}, reverse=True)
    return [Group(h, scheme, seed) for seed in range(seeds) for h in kinds for scheme in REGULARISERS[h][1]]


def folder_of(out: Path, dataset: Dataset) -> Path:
    """Where the runs on a data set are kept."""
    return out / f"{dataset.name}-{dataset.size}"


def collect(
    dataset: Dataset,
    wanted: list[Group],
    noises: tuple[str, ...],
    out: Path,
    jobs: int | None = None,
    done: Done | None = None,
    engine: str = "auto",
) -> list[Row]:
    """Run the groups that are not there yet and give the rows of all of them; on a device, if there is one."""
    kept = kept_runs(out, dataset)
    missing = [group for group in wanted if not all(kept.find(**head) for head in group.heads(dataset, noises))]
    if missing:
        shards = dataset.deal()
        engine = ("compiled" if ENGINES["gpu"].lacks() else "gpu") if engine == "auto" else engine
        device, works, cores = ENGINES[engine].seeds, crowds(missing, engine), jobs or os.cpu_count() or 1
        shards.norms  # noqa: B018 - once, before the threads all need them
        accounts = None
        with ThreadPoolExecutor(2) as beside:
            pointed = Event()
            best = beside.submit(optima, dataset, shards, {group.h for group in missing}, out, engine, pointed)
            if device:
                rehearsal = beside.submit(rehearse, dataset, shards, noises, engine, works)
                accounts = accounted(shards.sizes, noises, missing)
                rehearsal.result()
                pointed.wait()  # the device is for the runs
            else:
                best.result()  # before the runs want the processors
            turn = in_line(works) if device else None
            run = partial(run_groups, dataset, shards, noises, best, engine, accounts, turn)
            kept.fill(works, run, jobs=cores, threads=True, done=done)
    return read(kept, dataset, wanted)


def kept_runs(out: Path, dataset: Dataset) -> Runs:
    """The table of a data set's runs; an earlier version kept each group in a file of its own."""
    folder = folder_of(out, dataset)
    kept = Runs(KEY, folder / "runs.parquet")
    if not kept.rows:
        older = [row for path in sorted(folder.glob("l[12]-*.parquet")) for row in load_rows(path)]
        if older:
            kept.add(older)
    return kept


def read(kept: Runs, dataset: Dataset, wanted: Iterable[Group]) -> list[Row]:
    """The rows of these groups with all the noises that they were run with; nothing is run."""
    found = [[row for head in group.heads(dataset, tuple(NOISES)) for row in kept.find(**head)] for group in wanted]
    absent = sum(not rows for rows in found)
    if absent:
        raise SpecError(f"{absent} of {len(found)} groups of runs are not in '{kept.path}'; run them first")
    return [row for rows in found for row in rows]


def optima(
    dataset: Dataset,
    shards: Shards,
    kinds: set[str],
    out: Path,
    engine: str = "compiled",
    pointed: Event | None = None,
) -> dict[str, float]:
    """F* of each regulariser, certified; computed once and kept. `pointed` is set when a device has done its part."""
    try:
        kept = Runs(("h",), folder_of(out, dataset) / "optima.parquet")
        older = folder_of(out, dataset) / "optima.json"  # where an earlier version kept them
        if older.exists() and not kept.rows:
            kept.add([{"h": h, "f_star": value} for h, value in json.loads(older.read_text()).items()])
        absent = [h for h in sorted(kinds) if not kept.find(h=h)]
        problems = {h: make_problem(REGULARISERS[h][0](1).problem, shards) for h in absent}
        gap, near, cores = GAPS[dataset.size], ENGINES[engine].minimise, max(1, len(absent))
        known: dict[str, Any] = {}
        if near is not None:
            known |= each(absent, lambda h: (h, near(problems[h], gap)), cores, threads=True)
    finally:
        if pointed is not None:
            pointed.set()

    def certify(h: str) -> list[Row]:
        return [{"h": h, "f_star": optimum(problems[h], gap=gap, known=known.get(h)).value}]

    kept.fill(absent, certify, jobs=cores, threads=True)
    return {h: kept.find(h=h)[0]["f_star"] for h in kinds}


def crowds(missing: Sequence[Group], engine: str) -> list[Crowd]:
    """What is run side by side: a group, or those of all seeds where the engine takes them together.

    What takes longest comes first, since it would be waited for: l1, and beside the first of it everyone, on few chips.
    """
    if not ENGINES[engine].seeds:
        return [(group,) for group in missing]
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in missing:
        alike.setdefault((group.h, group.scheme), []).append(group)
    kinds = sorted(alike, key=lambda kind: (kind[1] == "everyone", kind[0]))
    few = [kind for kind in kinds if kind[1] == "everyone"]
    many = kinds[: len(kinds) - len(few)]
    return [tuple(alike[kind]) for kind in (*many[:1], *few, *many[1:])]


def in_line(works: Sequence[Crowd]) -> Turn:
    """Lets one thread after the other through, in the order of their works: a device begins with the first at once.

    Threads that prepare runs at the same time take turns in the interpreter, and all would be late. Nobody waits longer
    than `PATIENCE` for the one before: more kernels than a device's queues hold are asked for while it works.
    """
    gates = [Event() for _ in range(len(works) + 1)]
    places = {crowd: place for place, crowd in enumerate(works)}
    gates[0].set()

    @contextmanager
    def turn(crowd: Crowd) -> Iterator[None]:
        mine, following = gates[places[crowd]], gates[places[crowd] + 1]
        mine.wait()
        late = Timer(PATIENCE, following.set)
        late.start()
        try:
            yield
        finally:
            late.cancel()
            following.set()

    return turn


def rehearse(dataset: Dataset, shards: Shards, noises: tuple[str, ...], engine: str, works: Sequence[Crowd]) -> None:
    """The first rounds of all runs, for nobody: records come to the device, and all that it needs is compiled."""

    def begin(crowd: Crowd) -> None:
        specs = [spec for group in crowd for _, _, spec in group.specs(shards.sizes, noises)]
        short = [spec.but(algorithm__rounds=REHEARSED, privacy__noise=GivenNoise((1.0,))) for spec in specs]
        together(short, shards, test=dataset.test, execution=Execution(engine, 2))

    list(each(works, begin, jobs=len(works), threads=True))


def run_groups(
    dataset: Dataset,
    shards: Shards,
    noises: tuple[str, ...],
    f_star: "Future[dict[str, float]]",
    engine: str,
    accounts: Accounts | None,
    turn: Turn | None,
    crowd: Crowd,
) -> list[Row]:
    """All runs of some groups that are the same but for their seeds, side by side: a row for each look at each.

    Where groups take turns, they do so until they are asked for, and not while they are waited for.
    """
    heads = [head for group in crowd for head in group.heads(dataset, noises)]
    known = [one for group in crowd for one in accounts[group.scheme, group.seed].runs] if accounts else None
    with nullcontext() if turn is None else turn(crowd):
        began = time.perf_counter()
        specs = [spec for group in crowd for _, _, spec in group.specs(shards.sizes, noises)]
        if known is not None:  # the noise is calibrated already
            specs = [s.but(privacy__noise=GivenNoise(one.sigma)) for s, one in zip(specs, known, strict=True)]
        drawn: dict[int | None, Schedule] = {}
        if accounts:
            drawn = {group.seed: accounts[group.scheme, group.seed].schedule for group in crowd}
        how = Execution(engine, LOOKS[dataset.size])
        ended = asked(specs, shards, test=dataset.test, execution=how, schedules=drawn)
    runs = ended()
    about = environment(runs[0].engine, time.perf_counter() - began, len(runs))
    best = f_star.result()[crowd[0].h]
    rows = []
    for place, (head, run) in enumerate(zip(heads, runs, strict=True)):
        release = {
            "true_epsilon": most_exposed(run.prepared) if known is None else known[place].epsilon,
            "delta": DELTA,
            "sigma": max(run.prepared.job.release.sigma),
            "iota": run.prepared.public["iota"],
        }
        for look in run.history.rows:
            rows.append(head | release | dict(look) | {"suboptimality": look["objective"] - best} | about)
    return rows


def accounted(sizes: IntArray, noises: tuple[str, ...], wanted: Sequence[Group]) -> Accounts:
    """Calibrate and price the runs of these groups, in processes: it is most of the work that a device leaves.

    Where everybody always speaks, all seeds have one account.
    """
    found: Accounts = {}
    alike: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for scheme, seed in dict.fromkeys((group.scheme, group.seed) for group in wanted):
        alike.setdefault((scheme, 0 if scheme == "everyone" else seed), []).append((scheme, seed))
    works = [Group("l2", *one) for one in alike]
    cores = min(os.cpu_count() or 1, len(works))
    for group, account in each(works, partial(_account, sizes, noises), cores):
        found |= dict.fromkeys(alike[group.scheme, group.seed], account)
    return found


def _account(sizes: IntArray, noises: tuple[str, ...], group: Group) -> tuple[Group, Accounted]:
    """On records that hold nothing: no account looks at them."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    nothing = Shards.of(np.ones((int(offsets[-1]), 1), np.float32), np.ones(int(offsets[-1])), offsets)
    specs = [spec for _, _, spec in group.specs(sizes, noises)]
    first = prepare(specs[0], nothing)
    runs = [first, *(renoised(first, spec) or prepare(spec, nothing, first.job.schedule) for spec in specs[1:])]
    return group, Accounted(first.job.schedule, [Account(p.job.release.sigma, most_exposed(p)) for p in runs])


def most_exposed(prepared: Prepared) -> float:
    """ε at δ of the node that spoke most: all have the same noise, and hardly more than one record's difference."""
    job = prepared.job
    most = int(np.argmax(job.schedule.participations()))
    event = job.release.event(most, int(job.problem.shards.sizes[most]), int(job.schedule.participations()[most]))
    return price([event], DELTA, lower=False).epsilon
