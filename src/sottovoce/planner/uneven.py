"""Nodes that bring more noise than they take away, in plans whose weights do not know how many records each has.

With weights by records a small node counts little, and its noise with it. With equal weights its noise counts as much
as all records of a large one: the mean of all is then worse than without it, however good its records are.
"""

from typing import NamedTuple

import numpy as np

from sottovoce.run.plan import Plan

WORSE = 1.25
"""From which ratio on, of the noise with a node to that without it, the node is named."""


class Hindrance(NamedTuple):
    """A node that the mean of all would be better without."""

    node: int
    ratio: float
    """Noise in the mean of all releases, over what it would be without this node."""

    def words(self, names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
        """What to say of it."""
        return (
            f"'{names[self.node]}' has {sizes[self.node]:,} of {sum(sizes):,} records, and by its weight the noise of "
            f"all is {self.ratio:.1f} times what it would be without it; write weights = 'records' in [problem], or "
            "plan anew: sottovoce consortium init --site …"
        )


def hindrances(plan: Plan) -> list[Hindrance]:
    """The nodes of a plan without which there would be less noise, the worst first.

    Where pairs of nodes share noise, all are needed: what one leaves is no smaller without it.
    """
    n, release = plan.problem.n, plan.release
    if n < 2 or release.law.secrets or not any(release.sigma):
        return []
    weights = np.asarray(plan.problem.node_weights, dtype=np.float64)
    noise = np.square(weights * np.asarray(release.sigma))
    found = []
    for i in range(n):
        others = float(noise.sum() - noise[i]) / max(1.0 - float(weights[i]), 1e-300) ** 2
        ratio = float(np.sqrt(noise.sum() / others)) if others > 0 else 1.0
        if ratio > WORSE:
            found.append(Hindrance(i, ratio))
    return sorted(found, key=lambda one: -one.ratio)
