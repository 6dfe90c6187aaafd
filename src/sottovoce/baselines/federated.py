"""Noble, Bellet and Dieuleveut 2022: a server that averages what its users computed in several local steps."""

from sottovoce.baselines.baseline import Baseline
from sottovoce.baselines.facts import Facts
from sottovoce.baselines.steps import stepped
from sottovoce.spec import Spec

LOCAL = 5  # steps between two exchanges
WARM = 2  # exchanges that only build the controls


def _local(facts: Facts, method: str) -> Spec:
    """All users in every round; on the complete graph W = 11ᵀ/n is the server. Only whole exchanges are run."""
    spec = facts.spec(method, 0, network__every=LOCAL, network__graph="complete")
    rounds = max(LOCAL, spec.algorithm.rounds // LOCAL * LOCAL)
    return stepped(facts, spec.but(algorithm__rounds=rounds))


def fedavg(facts: Facts) -> Spec:
    """DP-FedAvg."""
    return _local(facts, "descent")


def scaffold(facts: Facts) -> Spec:
    """DP-SCAFFOLD."""
    return _local(facts, "scaffold")


def scaffold_warm(facts: Facts) -> Spec:
    """DP-SCAFFOLD-warm; without a warm start where the run has no exchanges to spare."""
    spec = _local(facts, "scaffold")
    spare = spec.algorithm.rounds > 2 * WARM * LOCAL
    return spec.but(algorithm__method=f"scaffold({WARM})") if spare else spec


ROWS = (
    Baseline("fedavg", "Noble, Bellet and Dieuleveut 2022, DP-FedAvg", fedavg),
    Baseline("scaffold", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD", scaffold),
    Baseline("scaffold_warm", "Noble, Bellet and Dieuleveut 2022, DP-SCAFFOLD, warm start", scaffold_warm),
)
