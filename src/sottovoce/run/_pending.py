# ruff: noqa
# mypy: ignore-errors
"""Temporary: the tables of privacy until they stand there."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.notation import Choices, write
from sottovoce.privacy import adversaries, sampling
from sottovoce.privacy.adversaries import Adversary
from sottovoce.privacy.calibration import sigma_for
from sottovoce.privacy.theorem1 import Theorem1

for kind in (sampling.Fixed, sampling.Poisson, sampling.Cyclic, sampling.Full):
    kind.__str__ = lambda self: self.text
Adversary.__str__ = lambda self: self.name
Sampling = sampling.Sampling
SAMPLINGS: Choices[Sampling] = Choices(
    "sampling", {n: (lambda: sampling.Fixed(1)) if n == "one" else f for n, f in sampling.SAMPLINGS.items()}
)


def _row(r):
    return lambda: r


ADVERSARIES: Choices[Adversary] = Choices(
    "adversary", {n: _row(r) for n, r in adversaries.ADVERSARIES.items()}, PrivacyError
)


@dataclass(frozen=True)
class LawChoice:
    name: str
    numbers: tuple = ()

    def __str__(self):
        return write(self.name, *self.numbers)

    def on(self, graph, shape, sampling, sizes, m):
        return make_law(str(self), graph, shape, sampling, sizes, m)


LAWS: Choices[LawChoice] = Choices(
    "law of noise",
    {
        "gaussian": lambda: LawChoice("gaussian"),
        "laplace": lambda: LawChoice("laplace"),
        "tree": lambda: LawChoice("tree"),
        "pairs": lambda *n: LawChoice("pairs", n),
    },
)


@dataclass(frozen=True)
class NoNoise:
    def __str__(self):
        return "none"

    words = "no noise"

    def scales(self, unit, sizes, spoken, delta, iota, rounds):
        return (0.0,) * len(sizes), ()


@dataclass(frozen=True)
class Scales:
    sigma: tuple

    def __str__(self):
        return write("gaussian", *self.sigma)

    @property
    def words(self):
        return f"σ = {self.sigma[0]:g}" if len(self.sigma) == 1 else str(self)

    def scales(self, unit, sizes, spoken, delta, iota, rounds):
        n = len(sizes)
        if len(self.sigma) not in (1, n):
            raise SpecError("noise malformed")
        return tuple(float(s) for s in (self.sigma * n if len(self.sigma) == 1 else self.sigma)), ()


@dataclass(frozen=True)
class Private:
    epsilon: float

    def __str__(self):
        return write("private", self.epsilon)

    @property
    def words(self):
        return f"ε = {self.epsilon:g}"

    def scales(self, unit, sizes, spoken, delta, iota, rounds):
        return _private(unit, sizes, spoken, self.epsilon, delta), ()


@dataclass(frozen=True)
class PaperNoise:
    epsilon: float
    delta0: float = 0.01

    def __str__(self):
        return write("theorem1", self.epsilon, self.delta0)

    @property
    def words(self):
        return f"Theorem 1 claiming {self.epsilon:g}"

    def scales(self, unit, sizes, spoken, delta, iota, rounds):
        claims = [Theorem1(self.epsilon, self.delta0, iota, unit.clip, int(q), rounds) for q in sizes]
        return tuple(claim.sigma for claim in claims), tuple(claims)


NOISES: Choices[Any] = Choices(
    "noise", {"none": NoNoise, "gaussian": lambda *sigma: Scales(sigma), "private": Private, "theorem1": PaperNoise}
)


from sottovoce.notation import parse
from sottovoce.privacy.events import Event
from sottovoce.privacy.laws import Gaussian, Laplace, Law, Pairs, Shaped, Tree


def make_law(text: str, graph, shape, sampling, sizes, m: int) -> Law:
    """The law of the noise; `shape` is the method's (gain, spread), where it has one."""
    name, args, named, _ = parse(text)
    if name == "gaussian" and not args and not named:
        return Gaussian() if shape is None else Shaped(*shape)
    if name == "laplace" and not args and not named and shape is not None:
        return Laplace(*shape, m)
    if name == "pairs" and args and not named and shape is None:
        ratio, *coalition = args
        if ratio > 0 and all(isinstance(i, int) and 0 <= i < graph.n for i in coalition):
            return Pairs(graph.n, graph.edges, float(ratio), tuple(int(i) for i in coalition))
    if name == "tree" and not args and not named and shape is None:
        q = int(sizes[0])
        return Tree(-(-q // sampling.batch(q)))
    raise SpecError(
        f"noise law '{text}' is malformed or does not fit the method; write 'gaussian', 'laplace' (for a method with a "
        "schedule of its own for noise), 'pairs(ratio)' with the numbers of the colluding nodes behind it, or 'tree'"
    )


def _private(unit, sizes, spoken, epsilon: float, delta: float) -> tuple[float, ...]:
    """As much as (ε, δ) needs; nodes of one size share a σ, the one that the neediest of them needs."""
    needed: dict[int, float] = {}
    for q in sorted(set(sizes.tolist())):
        events: dict[float, Event] = {}
        for i in np.flatnonzero(sizes == q).tolist():
            event = unit.event(i, q, int(spoken[i]))
            known = events.get(event.noise_multiplier)
            if known is None or known.rounds < event.rounds:
                events[event.noise_multiplier] = event
        needed[q] = max(sigma_for(event, epsilon, delta) for event in events.values())
    if isinstance(unit.law, Pairs):  # what two nodes cancel must have one scale
        return (max(needed.values()),) * len(sizes)
    return tuple(needed[q] for q in sizes.tolist())


class EngineRecord:
    def __init__(self, name):
        self.name = name

    def run(self, jobs, states, start, stop):
        from sottovoce.engine import compiled, nodes, reference

        if self.name == "compiled":
            return compiled.run_many(jobs, states, start, stop)
        return [
            {"reference": reference, "nodes": nodes}[self.name].run(j, s, start, stop) for j, s in zip(jobs, states)
        ]


def choose_engine(name, job):
    from sottovoce.engine.job import compilable

    if name not in ("auto", "reference", "nodes", "compiled"):
        raise SpecError(f"there is no engine '{name}'; choose one of auto, reference, nodes, compiled")
    if name != "auto":
        return EngineRecord(name)
    long = len(job.schedule.active) * (job.problem.m + 5000) > 2e8
    return EngineRecord("compiled" if long and compilable(job) else "reference")


ENGINES = ("reference", "nodes", "compiled")
