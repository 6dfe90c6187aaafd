"""`reproduce` on the GPU engine gives what the processors give."""

import pytest

from sottovoce.data.standins import epsilon_like
from sottovoce.engine import ENGINES
from sottovoce.experiments.data import Dataset
from sottovoce.experiments.paper import runs as collecting
from sottovoce.experiments.paper.runs import groups
from sottovoce_gpu import make_engine


@pytest.mark.parametrize("machine", ["host", pytest.param("device", marks=pytest.mark.gpu)], indirect=True)
def test_runs_on_a_device_are_those_of_the_processors(machine, tmp_path, monkeypatch):
    """With accounts from processes, F* beside them, and all seeds of a scheme in one call."""
    table = epsilon_like(400, 12)
    monkeypatch.setitem(ENGINES, "gpu", make_engine(machine))
    assert collecting.fastest_engine() == "gpu"
    dataset = Dataset("epsilon-like", table, epsilon_like(50, 12, test=True), "tiny", ordered=False)
    wanted = [group for group in groups(["fig3"], 2) if group.scheme != "edges(1)"]
    found, expected = (
        collecting.collect(dataset, wanted, ("paper",), tmp_path / name, 2, None, name) for name in ("auto", "compiled")
    )
    assert len(found) == len(expected) and all(row["device"] == machine.name for row in found)
    assert {row["suboptimality"] > 0 for row in expected} == {True}
    for one, other in zip(found, expected, strict=True):
        for name in (*collecting.KEY, "true_epsilon", "sigma", "round", "epoch", "messages"):
            assert one[name] == other[name]
        for name in ("objective", "suboptimality", "test_accuracy", "consensus_error"):
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=2e-6)
