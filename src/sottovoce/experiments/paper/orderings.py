"""What the paper says of its figures, one comparison of means at a time, and whether the runs say so too."""

from dataclasses import dataclass
from itertools import combinations, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce._types import Array
from sottovoce.experiments.paper.experiments import EPSILONS, SCHEMES
from sottovoce.experiments.paper.intervals import Interval


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, the numbers, and the verdict."""

    claim: str
    noise: str
    numbers: str
    verdict: str
    """'shown' (intervals apart), 'reversed' (apart, the other way), or 'not told apart'."""


def final(table: pa.Table, column: str, **chosen: str | float) -> Array:
    """A column of the last round, one value a seed, of the runs with these fields."""
    for name, value in chosen.items():
        table = table.filter(pc.equal(table[name], value))
    last = table.filter(pc.equal(table["round"], pc.max(table["round"])))
    return last.sort_by("seed")[column].to_numpy()


def findings(table: pa.Table) -> list[Finding]:
    """Every ordering that the paper reads off its figures, for each noise and regulariser in the table."""
    kinds, noises = (sorted(set(table[name].to_pylist()), reverse=True) for name in ("h", "noise"))
    result = []
    for h in kinds:
        for noise in noises:
            mine = table.filter(pc.and_(pc.equal(table["h"], h), pc.equal(table["noise"], noise)))
            result += [*_by_activity(mine, h, noise), *_by_epsilon(mine, h, noise), *_by_lead(mine, h, noise)]
    return result


def _loss(table: pa.Table, scheme: str, epsilon: float) -> Interval:
    return Interval.of(final(table, "suboptimality", scheme=scheme, epsilon=epsilon))


def _schemes(table: pa.Table) -> list[str]:
    there = set(table["scheme"].to_pylist())
    return [scheme for scheme in SCHEMES if scheme in there]


def _by_activity(table: pa.Table, h: str, noise: str) -> list[Finding]:
    """Fewer active nodes lose less; the two readings of ι = 0.2 are not compared with each other."""
    epsilon = 0.8 if h == "l2" else 0.4
    pairs = [p for p in combinations(_schemes(table), 2) if p != ("edges(2)", "matching(2)")]
    return [
        _less(
            f"{h}, ε = {epsilon}: {SCHEMES[few]} loses less than {SCHEMES[many]}",
            noise,
            _loss(table, few, epsilon),
            _loss(table, many, epsilon),
        )
        for few, many in pairs
    ]


def _by_epsilon(table: pa.Table, h: str, noise: str) -> list[Finding]:
    """A larger ε loses less, from each value of the grid to the next."""
    result = []
    for scheme in _schemes(table):
        losses = [_loss(table, scheme, epsilon) for epsilon in EPSILONS]
        steps = [_less("", noise, later, earlier).verdict for earlier, later in pairwise(losses)]
        shown = steps.count("shown")
        verdict = steps[0] if len(set(steps)) == 1 else f"shown in {shown} of {len(steps)} steps"
        numbers = ", ".join(f"{loss.mean:.3g}" for loss in losses)
        result.append(Finding(f"{h}, {SCHEMES[scheme]}: a larger ε loses less", noise, numbers, verdict))
    return result


def _by_lead(table: pa.Table, h: str, noise: str) -> list[Finding]:
    """The lead over everybody speaking grows as ε falls."""
    if "everyone" not in _schemes(table):
        return []

    def lead(epsilon: float) -> Interval:
        behind, ahead = (final(table, "suboptimality", scheme=s, epsilon=epsilon) for s in ("everyone", "edges(1)"))
        return Interval.of(behind - ahead)

    claim = f"{h}: the lead of {SCHEMES['edges(1)']} over {SCHEMES['everyone']} is larger at ε = 0.2 than at ε = 1"
    return [_less(claim, noise, lead(EPSILONS[-1]), lead(EPSILONS[0]))]


def _less(claim: str, noise: str, small: Interval, large: Interval) -> Finding:
    verdict = "not told apart"
    if small.high < large.low:
        verdict = "shown"
    elif small.low > large.high:
        verdict = "reversed"
    return Finding(claim, noise, f"{small} against {large}", verdict)
