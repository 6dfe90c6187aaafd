"""Without --nodes a file has one owner, as a table has in the estimators."""

import json

import numpy as np
import pytest

from sottovoce import PrivateClassifier


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.uniform(-0.7, 0.7, (300, 2)).round(6)
    lines = [f"{a},{b},{'yes' if a > 0 else 'no'}" for a, b in X]
    (tmp_path / "r.csv").write_text("\n".join(["a,b,y", *lines, ""]))
    return tmp_path / "r.csv"


def test_the_command_and_the_estimator_plan_the_same_run(sottovoce, table):
    code, out, err = sottovoce("train", table, "--seed", 4, "--json")
    assert code == 0, err
    found = json.loads(out)
    rows = np.genfromtxt(table, delimiter=",", skip_header=1, dtype=str)
    model = PrivateClassifier(1.0, row_norm=1.0, classes=["no", "yes"], random_state=4)
    model.fit(rows[:, :2].astype(float), rows[:, 2])
    assert found["public"]["n"] == 1 and len(model.nodes_) == 1
    spec, mine = found["spec"], json.loads(model.spec_.to_json())
    assert spec["algorithm"] == mine["algorithm"] and spec["privacy"]["sampling"] == mine["privacy"]["sampling"]
    assert found["privacy"]["epsilon"] == pytest.approx(model.privacy_.epsilon, rel=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        ("--graph", "ring"), ("--activation", "edges:1"), ("--mixing", "lazy"), ("--averaging", "gossip:3"),
        ("--debias",), ("--trust", "majority"), ("--trust", "1"), ("--preset", "paper-l2"),
    ],
)  # fmt: skip
def test_options_of_several_nodes_say_how_to_have_them(sottovoce, table, words):
    code, _, err = sottovoce("train", table, "--seed", 4, "--rounds", 5, *words)
    assert code == 2 and "is for several nodes, and all records belong to one; give --nodes 20" in " ".join(err.split())
    assert words[0] in err
    assert sottovoce("train", table, "--seed", 4, "--rounds", 5, "--nodes", 3, *words)[0] == 0
