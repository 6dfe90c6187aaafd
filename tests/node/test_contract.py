"""What is simulated is what is deployed: real nodes end with the model of one process, from the same draws."""

import numpy as np
import pytest
from net import make_run, open_node, run_file
from simulation import check, live, tables_of

from sottovoce.features import Additive
from sottovoce.node import transport
from sottovoce.privacy.distribution import Distribution

THREE = {"north": 12, "east": 9, "south": 15}
FOUR = THREE | {"west": 10}
PLAIN = {
    "nodes": THREE,
    "privacy__noise": "private(2000)",
    "problem__intercept": 0.5,
    "network__activation": "everyone",
}
REGRESSION = {"label": "dose", "classes": None, "problem__loss": "huber"}
BALANCE = {"problem__loss": "logistic", "privacy__balance": "balance(0.2, 0.3)"}
PAIRS = {"nodes": FOUR, "privacy__sampling": "full", "privacy__law": "pairs(10)", "network__averaging": "exact"}
COUNTED = Additive(3, ((1, -1.0, 1.0), (2, -1.0, 1.0)), 1.0, "cosine", 3, 1.0, distribution=True, pairs=((0, 1),))
ADDITIVE = {"problem__features": str(COUNTED), "privacy__distribution": str(Distribution(0.1, 2, 0.05, 1))}
STATISTICS = REGRESSION | {
    "problem__loss": "squared", "privacy__sampling": "full", "algorithm__method": "statistics",
    "algorithm__gamma": None, "rounds": 1,
}  # fmt: skip
MAJORITY = PAIRS | {"nodes": FOUR | {"center": 11}, "privacy__adversary": "secret_pairs(2)"}
SETTINGS = {
    "two classes, trust nobody": {},
    "several classes": {"classes": ["no", "perhaps", "yes"], "problem__outputs": 3, "problem__loss": "logistic"},
    "regression": REGRESSION,
    "additive, columns counted": ADDITIVE,
    "people, additive": ADDITIVE | {"unit": "person"},
    "people, moments": {"unit": "person", "privacy__moments": "moments(0.05, 0.1, 0.1)"} | BALANCE,
    "uneven sizes": {
        "nodes": {"north": 60, "east": 1500, "south": 20_000},
        "problem__weights": "records(30)",
        "privacy__sampling": "full",
    },
    "trust 1, threshold counts": PAIRS | {"privacy__adversary": "secret_pairs(1)"} | BALANCE,
    "trust majority, moments": MAJORITY | {"privacy__moments": "moments(0.05, 0.1, 0.2)"},
    "moments": {"privacy__moments": "moments(0.05, 0.1, 0.2)", "network__activation": "edges(1)", "rounds": 9},
    "target range": REGRESSION | {"privacy__quantiles": "quantiles(0.2)", "problem__loss": "absolute"},
    "threshold counts": BALANCE,
    "sums for intervals": {"problem__loss": "logistic", "privacy__inference": "inference(0.9, 1.5, 1.8)"},
    "sufficient statistics": STATISTICS | {"privacy__quantiles": "quantiles(0.2)"},
    "trust 1, statistics": STATISTICS
    | PAIRS
    | {"privacy__adversary": "secret_pairs(1)", "network__averaging": "gossip"},
    "several exchanges": {"network__averaging": "gossip(2)", "algorithm__primal": "as_written"},
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transport, "RESEND_MAX", 0.02)


def run_with(rounds=3, **changes):
    """A run of a setting; None takes an entry away."""
    whole = run_file(rounds, **(PLAIN | changes))
    for part in (whole, *whole["spec"].values()):
        for name in [name for name, value in part.items() if value is None]:
            del part[name]
    return make_run(whole)


@pytest.mark.parametrize("killed", [False, True], ids=["calm", "killed at every point"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_nodes_end_with_the_model_of_the_simulation(setting, killed, tmp_path):
    run = run_with(**SETTINGS[setting] | ({"rounds": min(2, SETTINGS[setting].get("rounds", 2))} if killed else {}))
    tables = tables_of(run)
    ends, expected, wire = live(run, tables, tmp_path, killed)
    check(run, tmp_path, ends, expected, wire)
    if expected.published is not None:
        node = open_node(run, "north", tables, tmp_path / "north")
        found = node.public["inference"]
        for mine, its in zip(found["means"], expected.published["means"], strict=True):
            assert np.allclose(mine, its, rtol=1e-12, atol=1e-12 * np.abs(its).max())
        assert found["deviation"] == pytest.approx(expected.published["deviation"])
        node.store.close()
