"""All baselines, by name. Adding one is a row of a family's `ROWS`."""

from sottovoce.baselines import central, dual, federated, gossip, planned
from sottovoce.baselines.baseline import Baseline
from sottovoce.errors import SpecError

BASELINES: dict[str, Baseline] = {
    row.name: row for row in (*planned.ROWS, *dual.ROWS, *gossip.ROWS, *federated.ROWS, *central.ROWS)
}


def make_baseline(name: str) -> Baseline:
    """Look a baseline up by name.

    Examples
    --------
    >>> make_baseline("dsgd").title
    'decentralised DP-SGD, the control'
    """
    if name not in BASELINES:
        raise SpecError(f"there is no algorithm '{name}'; choose one of {', '.join(BASELINES)}")
    return BASELINES[name]
