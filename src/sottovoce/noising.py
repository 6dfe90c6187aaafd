"""From a spec's words to noise: its law, and a σ_i for every node."""

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError
from sottovoce.network.graphs import Graph
from sottovoce.notation import parse
from sottovoce.privacy.calibration import sigma_for
from sottovoce.privacy.event import Event
from sottovoce.privacy.laws import Gaussian, Laplace, Law, Pairs, Shaped, Tree
from sottovoce.privacy.release import Release
from sottovoce.privacy.sampling import Sampling
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.spec import Spec


def make_law(
    text: str, graph: Graph, shape: tuple[Array, Array] | None, sampling: Sampling, sizes: IntArray, m: int
) -> Law:
    """The law of the noise; `shape` is the method's (gain, spread), where it has one."""
    name, args, named = parse(text)
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


def make_noise(
    spec: Spec, sizes: IntArray, unit: Release, spoken: IntArray, iota: float
) -> tuple[tuple[float, ...], list[Theorem1]]:
    """σ_i for every node, and the claims of Theorem 1 where that is where they come from.

    `unit` is the release at σ = 1.
    """
    name, args, named = parse(spec.privacy.noise)
    n = len(sizes)
    if named:
        name = "malformed"  # no noise has named numbers
    if name == "none" and not args:
        return (0.0,) * n, []
    if name == "gaussian" and len(args) in (1, n):
        return tuple(float(s) for s in (args * n if len(args) == 1 else args)), []
    if name == "private" and len(args) == 1:
        return _private(unit, sizes, spoken, args[0], spec.privacy.delta), []
    if name == "theorem1" and len(args) in (1, 2):
        delta0 = args[1] if len(args) == 2 else 0.01
        claims = [Theorem1(args[0], delta0, iota, unit.clip, int(q), spec.algorithm.rounds) for q in sizes]
        return tuple(claim.sigma for claim in claims), claims
    raise SpecError(
        f"noise '{spec.privacy.noise}' is malformed; write 'private(ε)', 'gaussian(σ)' (one number, or one for each of "
        f"the {n} nodes), 'theorem1(ε, δ₀)' or 'none'"
    )


def _private(unit: Release, sizes: IntArray, spoken: IntArray, epsilon: float, delta: float) -> tuple[float, ...]:
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
