"""What the noise of Theorem 1 truly gives, beside what it claims, from the runs themselves."""

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.experiments.paper.experiments import DELTA, SCHEMES
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.statement import number

TITLE = (
    f"What the paper's noise claims, and the true ε at δ = {DELTA:g} against 'transcript' ({ADJACENCY}; the node that "
    "spoke most, largest over seeds)"
)


def truths(table: pa.Table) -> list[dict[str, str]]:
    """A row for each scheme, a column for each claimed ε; empty where no run has the paper's noise."""
    mine = table.filter(pc.equal(table["noise"], "paper"))
    largest: dict[tuple[str, float], float] = {}
    for row in mine.select(["scheme", "epsilon", "true_epsilon"]).to_pylist():
        at = row["scheme"], row["epsilon"]
        largest[at] = max(largest.get(at, 0.0), row["true_epsilon"])
    claimed = sorted({epsilon for _, epsilon in largest})
    return [
        {"scheme": text} | {f"claims {epsilon:g}": number(largest[scheme, epsilon]) for epsilon in claimed}
        for scheme, text in SCHEMES.items()
        if any(who == scheme for who, _ in largest)
    ]
