"""What an audit finds: defects that are planted in real runs, honest runs, and the paper's own noise.

    python benchmarks/audit.py defects       a table of what was planted, stated and found, and how many runs that took
    python benchmarks/audit.py honest        how often 200 audits of honest runs pass the statement
    python benchmarks/audit.py attainable    what an audit of an honest run finds of ε = 1 and ε = 4
    python benchmarks/audit.py paper         Theorem 1's noise, attacked

Each prints a table for benchmarks/results/audit.md. A defect is planted by putting a broken part in the place of the
engine's own; the statement is made by the software as it is, or by the mistaken accounting that the defect is.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from sottovoce import AlgorithmSpec, Spec
from sottovoce.auditing import Audit, Family, audit, concluded, plain_epsilon, rates
from sottovoce.auditing.attack import best_threshold
from sottovoce.auditing.runner import AuditRunner
from sottovoce.auditing.scores import by_round
from sottovoce.auditing.worst_case import FIRST, WorstCase
from sottovoce.engine.job import Job
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.calibration import sigma
from sottovoce.privacy.events import AccountedEvent, CyclicEvent, FixedEvent, FullEvent, Hidden
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import Draws, Gaussian, Release, Transcript
from sottovoce.privacy.sampling import Fixed, Full
from sottovoce.problem.objective import clipped_mean
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce.streams import Streams

LADDER = (200, 500, 1000, 2000, 5000, 10_000, 20_000)
"""Runs with either record that are tried, sequentially, until a defect is found."""

STILL = Spec(AlgorithmSpec(rounds=4, gamma="constant(1e6)"), seed=1).replace(
    privacy__noise="private(2)", network__activation="everyone", privacy__sampling="full"
)
"""A run whose model hardly moves, so that a hinge is never satisfied and every subgradient is of full length."""


@dataclass(frozen=True)
class Defect:
    """Something wrong.

    Attributes
    ----------
    name : what was planted
    spec, sizes : in which run
    plant : what is broken in its job
    node : whose record it is, where it matters
    stated : what the mistaken accounting says, where the defect is one of accounting
    broken : what is put in the place of a part of the software while it runs
    """

    name: str
    spec: Spec
    sizes: tuple[int, ...] = (6, 6)
    plant: Callable[[Job, int], Job] | None = None
    node: int | None = None
    stated: AccountedEvent | None = None
    broken: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)

    def audited(self, runs: int, seed: int = 1, **more: Any) -> Audit:
        """An audit of it."""
        more |= {"plant": self.plant, "node": self.node, "stated": self.stated}
        with self.broken():
            return audit(self.spec, self.sizes, 4, runs=runs, seed=None if self.spec.seed is None else seed, **more)


def with_draws(job: Job, kind: type[Draws]) -> Job:
    """The same job, its draws of another kind."""
    old = job.draws
    assert isinstance(old, Draws)
    return replace(job, draws=kind(old.release, old.streams, old.sizes, old.m))


def half_the_noise(job: Job, copies: int) -> Job:
    """What is drawn has half of the σ that is stated."""
    old = job.draws
    assert isinstance(old, Draws)
    return replace(job, draws=replace(old, release=replace(old.release, sigma=tuple(s / 2 for s in old.release.sigma))))


def no_clip(job: Job, copies: int) -> Job:
    """Subgradients as long as they come."""
    return replace(job, release=replace(job.release, clip=1e9))


def once_for_all(job: Job, copies: int) -> Job:
    """The noise of round 1 in every round."""

    class Once(Draws):
        def noise(self, nodes, t):
            return super().noise(nodes, np.ones_like(t))

    return with_draws(job, Once)


def one_seed_for_two(job: Job, copies: int) -> Job:
    """Every node draws the noise of the first one."""

    class Twins(Draws):
        def noise(self, nodes, t):
            return super().noise(nodes % copies, t)

    return with_draws(job, Twins)


def fixed_for_poisson(job: Job, copies: int) -> Job:
    """Batches of a fixed size are drawn where each record should be in or out on its own."""
    release = replace(job.release, sampling=Fixed(1))
    old = job.draws
    assert isinstance(old, Draws)
    return replace(job, release=release, draws=replace(old, release=release))


def without_pair_noise(job: Job, copies: int) -> Job:
    """The record's node leaves out what it should share with others."""

    class OneEnd(Draws):
        def noise(self, nodes, t):
            whole, mine = super().noise(nodes, t), nodes < copies
            whole[mine] = Gaussian().draw(self.streams, nodes[mine], t[mine], self.m, self.release.sigma)
            return whole

    return with_draws(job, OneEnd)


def with_a_helper(job: Job, copies: int) -> Job:
    """The middle of a star shows the attacker what it shares with everybody, who takes it out of all that he sees."""
    old = job.draws
    assert isinstance(old, Draws) and isinstance(old.release.law, Pairs)
    known = replace(old.release.law, edges=np.empty((0, 2), dtype=np.int64))
    return replace(job, draws=replace(old, release=replace(old.release, law=known)))


def plain_noise(job: Job, copies: int) -> Job:
    """Noise of 32-bit words in floating point where a secure release is stated."""
    return replace(job, draws=Draws(job.release, Streams(None), job.problem.shards.sizes, job.problem.m))


def by_actual_size() -> AbstractContextManager[Any]:
    """A batch is divided by how many records happen to be in it."""

    def mean(problem, node, x, records, divisor, clip):
        return clipped_mean(problem, node, x, records, divisor if records is None else max(len(records), 1), clip)

    return patch("sottovoce.engine.job.clipped_mean", mean)


def _amplified() -> Defect:
    nodes, q, T = 20, 10, 100
    hidden = Hidden(FixedEvent(q, 1, 1.0, 1.0, T), 2 / nodes)
    scale = sigma(hidden, 2.0, 1e-5)
    stated = Hidden(FixedEvent(q, 1, 1.0, scale, T), 2 / nodes)
    spec = STILL.replace(
        privacy__noise=f"gaussian({scale!r})", privacy__sampling="one", network__activation="edges(1)",
        algorithm__rounds=T,
    )  # fmt: skip
    return Defect("participation counted as amplification, as the paper does", spec, (q,) * nodes, stated=stated)


def _uncounted() -> Defect:
    scale = sigma(FullEvent(6, 6, 1.0, 1.0, 2), 2.0, 1e-5)
    spec = STILL.replace(privacy__noise=f"gaussian({scale!r})", algorithm__rounds=3)
    return Defect("an uncounted round, of 3", spec, stated=FullEvent(6, 6, 1.0, scale, 2))


def _cyclic_once() -> Defect:
    scale = sigma(CyclicEvent(6, 2, 1.0, 1.0, 3, uses=1), 2.0, 1e-5)
    spec = STILL.replace(privacy__noise=f"gaussian({scale!r})", privacy__sampling="cyclic(2)", algorithm__rounds=9)
    return Defect("a fixed order of records counted once, of 3 passes", spec,
                  stated=CyclicEvent(6, 2, 1.0, scale, 3, uses=1))  # fmt: skip


def defects() -> list[Defect]:
    """All of them."""
    poisson = STILL.replace(privacy__sampling="poisson(1)", algorithm__rounds=20)
    pairs = STILL.replace(privacy__law="pairs(3)", privacy__adversary="secret_pairs", algorithm__rounds=2)
    return [
        Defect("σ halved", STILL, plant=half_the_noise),
        Defect("the clip left out", STILL.replace(problem__on_violation="clip"), plant=no_clip),
        Defect("the batch's actual size as divisor", poisson.replace(privacy__sampling="poisson(6)"), (120, 120),
               broken=by_actual_size),
        Defect("noise drawn once for all rounds", poisson, (10, 10), plant=once_for_all),
        Defect("one seed for two nodes", STILL, plant=one_seed_for_two),
        Defect("accounted as Poisson, drawn as fixed batches", poisson.replace(algorithm__rounds=40), (20, 20),
               plant=fixed_for_poisson),
        _uncounted(),
        _amplified(),
        Defect("pair noise missing at one end", pairs.replace(privacy__adversary="secret_pairs(1)"), (6,) * 5,
               plant=without_pair_noise),
        Defect("a coalition left out", pairs.replace(network__graph="star"), (6,) * 6, plant=with_a_helper, node=1),
        Defect("32-bit noise in place of the secure release", STILL.replace(seed=None, privacy__noise="private(0.1)"),
               plant=plain_noise),
        _cyclic_once(),
    ]  # fmt: skip


def print_defects() -> None:
    """What was planted, what was stated and found, and how many runs that took."""
    print("| planted | stated ε | found, at least | any mechanism, at least | runs | by the score | broken |")
    print("|---|---|---|---|---|---|---|")
    for defect in defects():
        for runs in LADDER:
            found = defect.audited(runs)
            if found.broken:
                break
        print(
            f"| {defect.name} | {found.stated:.3g} | {_text(found.at_least)} | {_text(found.plain)} | {runs:,} | "
            f"{found.score}{', others loud' if found.loud else ''} | {found.broken or 'NOT FOUND'} |",
            flush=True,
        )


def _text(epsilon: float) -> str:
    return "no noise" if np.isinf(epsilon) else f"{epsilon:.3g}"


def print_honest(audits: int = 200, runs: int = 100) -> None:
    """How often audits of honest runs pass the statement: at 95 % in at most 20 of 200."""
    print("| engine | sampling | audits | passed the statement | mean bound of ε = 4 |")
    print("|---|---|---|---|---|")
    for engine in ("reference", "compiled", "nodes"):
        for sampling in ("full", "poisson(2)", "fixed(2)", "cyclic(2)"):
            spec = STILL.replace(privacy__noise="private(4)", privacy__sampling=sampling, algorithm__rounds=3)
            found = [audit(spec, [6], 2, runs=runs, seed=seed, engine=engine, choosing=0.5) for seed in range(audits)]
            passed = sum(bool(each.broken) for each in found)
            mean = np.mean([each.at_least for each in found])
            print(f"| {engine} | {sampling} | {audits} | {passed} | {mean:.2f} |", flush=True)


def print_attainable(audits: int = 20) -> None:
    """What an audit of an honest run finds of one release of all records, by draws of the release itself.

    What is attainable depends on the law alone, so that the rest of a run may be left out: node r of one job is run r,
    its noise that of the release, and the record moves it by L/q one way or the other.
    """
    print("| ε | runs with either record | threshold known | half of them spent on choosing | any mechanism |")
    print("|---|---|---|---|---|")
    for epsilon in (1, 4):
        event = FullEvent(4, 4, 1.0, 1.0, 1)
        event = replace(event, sigma=sigma(event, epsilon, 1e-5))
        for runs in (10_000, 100_000):
            known, chosen, plain = [], [], []
            for seed in range(audits):
                release = Release(Full(), 1.0, (event.sigma,) * (2 * runs), Transcript())
                draws = Draws(release, Streams(seed), np.full(2 * runs, 4), 1)
                worlds = np.arange(2 * runs) % 2
                noise = draws.noise(np.arange(2 * runs), np.ones(2 * runs, dtype=np.int64))[:, 0]
                scores = noise + np.where(worlds, 1.0, -1.0) / 4
                known.append(_counted(event, scores, worlds, 0.0).at_least)
                first = np.arange(2 * runs) < runs
                cut, _ = best_threshold(scores[first], worlds[first], Family(event, 1e-5))
                chosen.append(_counted(event, scores[~first], worlds[~first], cut).at_least)
                far = float(np.quantile(scores[first], 0.99))
                plain.append(_counted(event, scores[~first], worlds[~first], far).plain)
            cells = " | ".join(f"{np.mean(some):.3f}" for some in (known, chosen, plain))
            print(f"| {epsilon} | {runs:,} | {cells} |", flush=True)


def _counted(event: AccountedEvent, scores: np.ndarray, worlds: np.ndarray, cut: float) -> Audit:
    wrong = int(np.sum((scores > cut) & (worlds == 0))), int(np.sum((scores <= cut) & (worlds == 1)))
    return concluded(event, 1e-5, wrong, (int(np.sum(worlds == 0)), int(np.sum(worlds == 1))))


def print_paper(runs: int = 1000, messages: int = 1500) -> None:
    """Theorem 1's noise at the paper's own size: how many of a node's 60,000 messages refute the claim.

    Someone who has seen fewer messages knows less, so that a claim for the whole run is one for its beginning. Half of
    the runs choose the threshold for each number of messages, the other half count. γ, which neither the theorem nor
    its noise knows of, is so large that the model stays near 0 and the hinge is never satisfied.
    """
    print("| claimed ε | σ/L | accountant: at least | messages needed | runs | ε at least, after them | after all |")
    print("|---|---|---|---|---|---|---|")
    q, nodes = 20_000, 20
    for claimed in CLAIMED:
        spec = paper_l2(3 * q * nodes // 2).replace(
            privacy__noise=f"theorem1({claimed},0.01)", algorithm__gamma="constant(1e9)", seed=1
        )
        worst = WorstCase(spec.problem, 2, loud=True, clip=1.0)
        stage = AuditRunner(prepare(spec, worst.shards(np.full(nodes, q), {0: FIRST})), 0, worst, "compiled")
        stage.__dict__["rounds"] = stage.rounds[:messages]
        truth = stage.job.release.event(0, q, int(stage.job.schedule.participations()[0]))
        ratios, worlds = [], []
        while sum(map(len, worlds)) < 2 * runs:
            seen = stage.play(len(worlds))
            ratios.append(np.cumsum(by_round(stage, seen), axis=1)[:, STEP - 1 :: STEP])
            worlds.append(seen.worlds)
        found = [_after(score, np.concatenate(worlds)) for score in np.concatenate(ratios).T]
        first = next((k for k, epsilon in enumerate(found) if epsilon > claimed), None)
        needed = "not shown" if first is None else f"{STEP * (first + 1):,}"
        print(
            f"| {claimed:g} | {truth.sigma:.3g} | {compute_epsilon([truth], 1e-5).epsilon_lower:,.0f} | {needed} "
            f"| {runs:,} | "
            f"{found[first or -1]:.2f} | {found[-1]:.2f} |",
            flush=True,
        )


CLAIMED = (0.2, 0.4, 0.6, 0.8, 1.0)
STEP = 50
"""Messages after which an attacker examines again."""


def _after(scores: np.ndarray, worlds: np.ndarray) -> float:
    """ε of any mechanism whatever at which someone with these scores is just possible."""
    half = np.arange(len(scores)) % 4 < 2
    low, high = np.sort(scores[half & (worlds == 0)]), scores[half & (worlds == 1)]
    cuts = low[-1] + np.array([1e-9, 0.1, 1.0, 3.0])  # over all false alarms that were seen
    cut = cuts[np.argmax([np.mean(high > c) - 2 * np.mean(low > c) for c in cuts])]
    rest = [scores[~half & (worlds == w)] for w in (0, 1)]
    wrong = int(np.sum(rest[0] > cut)), int(np.sum(rest[1] <= cut))
    return plain_epsilon(rates(*wrong, (len(rest[0]), len(rest[1]))), 1e-5)


if __name__ == "__main__":
    verbs = {
        "defects": print_defects, "honest": print_honest, "attainable": print_attainable, "paper": print_paper,
    }  # fmt: skip
    for verb in sys.argv[1:] or list(verbs):
        verbs[verb]()
        print()
