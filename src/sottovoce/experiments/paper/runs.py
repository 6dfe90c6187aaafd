"""What the paper ran (its section 5), as data: schemes, regularizers, noises; and the table of these runs.

Twenty nodes, complete graph, Metropolis weights, hinge loss, three passes over the data. Where the paper is silent the
reading is that of `docs/paper.md`: h = μ‖x‖²/2, equal passes for all schemes, the exact ι, F* with a certificate.
Figures are views of these runs.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sottovoce import plugins
from sottovoce._types import IntArray
from sottovoce.engine import ENGINES, Engine, engine_named
from sottovoce.errors import SpecError
from sottovoce.experiments.data import Dataset
from sottovoce.experiments.table import Done, Row, Runs, each
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import GivenNoise, Noise, PaperNoise, Private
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem
from sottovoce.run.plan import Plan, Request, plan_public, rounds_for_epochs, with_noise
from sottovoce.run.presets import liu2022, paper_l1, paper_l2
from sottovoce.run.result import environment
from sottovoce.run.solve import RunOptions, run_batch
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
REGULARIZERS = {"l2": (paper_l2, tuple(SCHEMES)), "l1": (paper_l1, ("edges(1)", "edges(2)", "matching(2)"))}
"""Each with the preset and the schemes that the paper shows it with."""

GAPS = {"tiny": 1e-6, "small": 1e-5, "full": 1e-4}
EVALUATIONS = {"tiny": 16, "small": 20, "full": 12}
KEY = ("data", "size", "h", "scheme", "noise", "epsilon", "seed")
"""What makes a run what it is; it has a row for each evaluation."""


@dataclass(frozen=True)
class View:
    """A figure of the paper: which runs, which ε for curves (None: all, at their end)."""

    name: str
    h: str
    epsilon: float | None
    title: str


CURVES = {"l2": 0.8, "l1": 0.4}
"""The ε at which the paper shows curves (Figures 1 and 3)."""
FIGURES = {
    "fig1": View("fig1", "l2", CURVES["l2"], "l2-regularized SVM, ε = 0.8"),
    "fig2": View("fig2", "l2", None, "privacy and utility, l2-regularized SVM"),
    "fig3": View("fig3", "l1", CURVES["l1"], "l1-regularized SVM, ε = 0.4"),
    "fig4": View("fig4", "l1", None, "privacy and utility, l1-regularized SVM"),
}


@dataclass(frozen=True)
class Group:
    """Runs that share their draws: one regularizer, one scheme, one seed; all ε and noises."""

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
        preset = liu2022 if (self.h, self.scheme) == ("l2", "everyone") else REGULARIZERS[self.h][0]
        base = preset(1).replace(network__activation=self.scheme, privacy__delta=DELTA, seed=self.seed)
        base = base.replace(algorithm__rounds=rounds_for_epochs(base, sizes, EPOCHS))
        return [
            (noise, epsilon, base.replace(privacy__noise=NOISES[noise](epsilon)))
            for noise in noises
            for epsilon in EPSILONS
        ]


Batch = tuple[Group, ...]
"""Groups that are the same but for their seeds."""


class Account(NamedTuple):
    """What a run's noise is, and what it guarantees."""

    sigma: tuple[float, ...]
    epsilon: float
    """The true one."""


Accounts = dict[tuple[str, int], list[Account]]
"""The runs of a scheme and a seed, whatever their h: an account each, in a group's order."""


def groups(figures: list[str], seeds: int) -> list[Group]:
    """What must be run for these figures; seed by seed, so that an interrupted work leaves whole seeds."""
    wrong = [name for name in figures if name not in FIGURES]
    if wrong:
        raise SpecError(f"there is no figure '{wrong[0]}'; choose one of {', '.join(FIGURES)}")
    if seeds < 2:
        raise SpecError(f"intervals need at least two seeds, not {seeds}")
    kinds = sorted({FIGURES[name].h for name in figures}, reverse=True)
    return [Group(h, scheme, seed) for seed in range(seeds) for h in kinds for scheme in REGULARIZERS[h][1]]


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
        shards, chosen = dataset.partition(), engine_named(fastest_engine() if engine == "auto" else engine)
        shards.norms  # noqa: B018 - once, before the threads all need them
        with ThreadPoolExecutor(1) as beside:
            best = beside.submit(optima, dataset, shards, {group.h for group in missing}, out, chosen)
            accounts = None
            if chosen.device is not None:
                accounts = accounted(shards.sizes, noises, missing)
            else:
                best.result()  # before the runs want the processors
            run = partial(run_groups, dataset, shards, noises, best, chosen.name, accounts)
            kept.fill(batches(missing, chosen), run, jobs=jobs or os.cpu_count() or 1, threads=True, done=done)
    return read(kept, dataset, wanted)


def fastest_engine() -> str:
    """The GPU engine where its plug-in is installed and finds a device, else the compiled one."""
    return "gpu" if plugins.found("engine", "gpu", ENGINES) and ENGINES["gpu"].lacks() is None else "compiled"


def kept_runs(out: Path, dataset: Dataset) -> Runs:
    """The table of a data set's runs."""
    return Runs(KEY, folder_of(out, dataset) / "runs.parquet")


def read(kept: Runs, dataset: Dataset, wanted: Iterable[Group]) -> list[Row]:
    """The rows of these groups with all the noises that they were run with; nothing is run."""
    found = [[row for head in group.heads(dataset, tuple(NOISES)) for row in kept.find(**head)] for group in wanted]
    absent = sum(not rows for rows in found)
    if absent:
        raise SpecError(f"{absent} of {len(found)} groups of runs are not in '{kept.path}'; run them first")
    return [row for rows in found for row in rows]


def optima(dataset: Dataset, shards: Shards, kinds: set[str], out: Path, engine: Engine) -> dict[str, float]:
    """F* of each regularizer, certified; computed once and kept."""
    kept = Runs(("h",), folder_of(out, dataset) / "optima.parquet")
    gap, device = GAPS[dataset.size], engine.device

    def certify(h: str) -> list[Row]:
        problem = make_problem(REGULARIZERS[h][0](1).problem, shards)
        known = None if device is None else device.minimize(problem, gap)
        return [{"h": h, "f_star": optimum(problem, gap=gap, known=known).value}]

    absent = [h for h in sorted(kinds) if not kept.find(h=h)]
    kept.fill(absent, certify, jobs=max(1, len(absent)), threads=True)
    return {h: kept.find(h=h)[0]["f_star"] for h in kinds}


def batches(missing: Sequence[Group], engine: Engine) -> list[Batch]:
    """What is run side by side: a group, or those of all seeds where the engine takes them together.

    What takes longest comes first, since it would be waited for: l1, and beside the first of it everyone, on few chips.
    """
    if engine.device is None:
        return [(group,) for group in missing]
    by_scheme: dict[tuple[str, str], list[Group]] = {}
    for group in missing:
        by_scheme.setdefault((group.h, group.scheme), []).append(group)
    kinds = sorted(by_scheme, key=lambda kind: (kind[1] == "everyone", kind[0]))
    few = [kind for kind in kinds if kind[1] == "everyone"]
    many = kinds[: len(kinds) - len(few)]
    return [tuple(by_scheme[kind]) for kind in (*many[:1], *few, *many[1:])]


def run_groups(
    dataset: Dataset,
    shards: Shards,
    noises: tuple[str, ...],
    f_star: "Future[dict[str, float]]",
    engine: str,
    accounts: Accounts | None,
    batch: Batch,
) -> list[Row]:
    """All runs of some groups that are the same but for their seeds, side by side: a row for each examine each."""
    heads = [head for group in batch for head in group.heads(dataset, noises)]
    known = [one for group in batch for one in accounts[group.scheme, group.seed]] if accounts else None
    began = time.perf_counter()
    specs = [spec for group in batch for _, _, spec in group.specs(shards.sizes, noises)]
    if known is not None:  # the noise is calibrated already
        specs = [s.replace(privacy__noise=GivenNoise(one.sigma)) for s, one in zip(specs, known, strict=True)]
    runs = run_batch(specs, shards, RunOptions(Execution(engine, EVALUATIONS[dataset.size]), dataset.test))
    about = environment(runs[0].engine, time.perf_counter() - began, len(runs))
    best = f_star.result()[batch[0].h]
    rows = []
    for place, (head, run) in enumerate(zip(heads, runs, strict=True)):
        release = {
            "true_epsilon": most_exposed(run.prepared.plan) if known is None else known[place].epsilon,
            "delta": DELTA,
            "sigma": max(run.prepared.job.release.sigma),
            "iota": run.prepared.public["iota"],
        }
        for observation in run.history.rows:
            rows.append(head | release | dict(observation) | {"suboptimality": observation["objective"] - best} | about)
    return rows


def accounted(sizes: IntArray, noises: tuple[str, ...], wanted: Sequence[Group]) -> Accounts:
    """Calibrate and cost the runs of these groups, in processes: it is most of the work that a device leaves.

    Where everybody always speaks, all seeds have one account.
    """
    found: Accounts = {}
    by_scheme: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for scheme, seed in dict.fromkeys((group.scheme, group.seed) for group in wanted):
        by_scheme.setdefault((scheme, 0 if scheme == "everyone" else seed), []).append((scheme, seed))
    works = [Group("l2", *one) for one in by_scheme]
    cores = min(os.cpu_count() or 1, len(works))
    for group, account in each(works, partial(_account, sizes, noises), cores):
        found |= dict.fromkeys(by_scheme[group.scheme, group.seed], account)
    return found


def _account(sizes: IntArray, noises: tuple[str, ...], group: Group) -> tuple[Group, list[Account]]:
    """From public numbers."""
    specs = [spec for _, _, spec in group.specs(sizes, noises)]
    first = plan_public(Request(specs[0], sizes, 1))
    others = (with_noise(first, s) or plan_public(Request(s, sizes, 1), first.schedule) for s in specs[1:])
    return group, [Account(p.release.sigma, most_exposed(p)) for p in (first, *others)]


def most_exposed(plan: Plan) -> float:
    """ε at δ of the node that spoke most: all have the same noise, and hardly more than one record's difference."""
    most = int(np.argmax(plan.spoken))
    event = plan.release.event(most, int(plan.problem.sizes[most]), int(plan.spoken[most]))
    return compute_epsilon([event], DELTA, lower=False).epsilon
