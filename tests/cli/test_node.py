"""`sottovoce node` and `sottovoce ledger`: what they say, what they refuse, what they leave behind."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from attempts import Alone, Nobody

from sottovoce.cli import node as node_command
from sottovoce.node.store import Store
from sottovoce.run.result import Result

RUN = """
run = "alone"
schedule_seed = 1
features = ["age", "bmi"]
label = "sick"
classes = ["no", "yes"]
unit_rows = true
[nodes]
clinic = 40
[spec.algorithm]
rounds = 20
gamma = "constant(1)"
[spec.problem]
h = "l2(0.1)"
[spec.privacy]
sampling = "poisson(8)"
noise = "private(1.0)"
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A run file, the same records as a file and as a database, and no MPI."""
    monkeypatch.setattr(node_command, "world", Alone)
    monkeypatch.setattr(node_command, "MpiTransport", Nobody)
    (tmp_path / "run.toml").write_text(RUN)
    rng = np.random.default_rng(0)
    rows = [(a, b, "x", "yes" if a + b > 0 else "no") for a, b in rng.normal(size=(40, 2)).tolist()]
    lines = "".join(f"{a!r},{name},{b!r},{sick}\n" for a, b, name, sick in rows)
    (tmp_path / "clinic.csv").write_text("age,name,bmi,sick\n" + lines)
    with sqlite3.connect(tmp_path / "clinic.db") as db:
        db.execute("CREATE TABLE patients (age REAL, bmi REAL, name TEXT, sick TEXT)")
        db.executemany("INSERT INTO patients VALUES (?, ?, ?, ?)", rows)
    db.close()
    return tmp_path


@pytest.fixture
def node(sottovoce, site):
    def call(*more, data=None):
        data = data or site / "{node}.csv"
        return sottovoce("node", "--spec", site / "run.toml", "--data", data, "--folder", site / "nodes", *more)

    return call


def test_a_node_runs_and_its_model_predicts(node, sottovoce, site):
    code, out, err = node("--budget", "1.5", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["node"] == "clinic" and said["rounds"] == 20 and "against 'transcript'" in said["verdict"]
    result = Result.load(said["saved"])
    assert result.models.shape == (1, 2) and result.spec.seed is None and not result.statement.simulation
    code, out, _ = sottovoce("predict", said["saved"], site / "clinic.csv", "--json")
    assert code == 0 and set(json.loads(out)["predictions"]) <= {"yes", "no"}
    again = json.loads(node("--json")[1])  # done already: the same model, nothing more released
    assert np.array_equal(Result.load(again["saved"]).model, result.model)


def test_records_from_a_database_give_the_same_fingerprint(node, site):
    pytest.importorskip("sqlalchemy")
    assert node("--budget", "1.5")[0] == 0
    query = "SELECT sick, bmi, age FROM patients"
    code, _, err = node("--query", query, "--json", data=f"sqlite:///{site / 'clinic.db'}")
    assert code == 0, err  # the run is known again by its records, whatever they come from


def test_people_with_several_rows_from_a_file_and_from_a_database(node, sottovoce, site):
    pytest.importorskip("sqlalchemy")
    text = (
        RUN.replace("unit_rows", 'unit = "name"\nunit_rows').replace("clinic = 40", "clinic = 13").replace("(8)", "(4)")
    )
    (site / "run.toml").write_text(text)
    header, *lines = (site / "clinic.csv").read_text().splitlines()
    named = [line.replace(",x,", f",p{i % 13},") for i, line in enumerate(lines)]
    (site / "clinic.csv").write_text("\n".join([header, *named]) + "\n")
    code, out, err = node("--budget", "1.5", "--json")
    assert code == 0, err
    result = Result.load(json.loads(out)["saved"])
    assert result.statement.unit == "one person" and result.statement.worst.event.records == 13
    db = sqlite3.connect(site / "clinic.db")
    with db:
        db.executemany("UPDATE patients SET name = ? WHERE rowid = ?", [(f"p{i % 13}", i + 1) for i in range(40)])
    db.close()
    code, _, err = node("--query", "SELECT * FROM patients", "--json", data=f"sqlite:///{site / 'clinic.db'}")
    assert code == 0, err
    shown = json.loads(sottovoce("ledger", "show", site / "nodes" / "clinic", "--json")[1])
    assert len(shown["runs"]) == 1 and "one person" in shown["datasets"][0]["adjacency"]


def test_the_ledger_is_shown_verified_and_exported(node, sottovoce, site):
    node("--budget", "1.5")
    folder = site / "nodes" / "clinic"
    shown = json.loads(sottovoce("ledger", "show", folder, "--json")[1])
    assert [(run["name"], run["state"], run["released"]) for run in shown["runs"]] == [("alone", "closed", 20)]
    (each,) = shown["datasets"]
    assert each["epsilon"] <= 1.0 and each["epsilon_budget"] == 1.5 and each["delta"] == 1e-5
    assert each["adversary"] == "transcript" and "one record" in each["adjacency"]
    code, out, _ = sottovoce("ledger", "show", folder)
    assert code == 0 and "δ = 1e-05 against 'transcript'" in " ".join(out.split())
    code, out, _ = sottovoce("ledger", "verify", folder)
    assert code == 0 and "holds" in out
    assert sottovoce("ledger", "export", folder, "--out", site / "kept.json")[0] == 0
    assert json.loads(sottovoce("ledger", "export", folder)[1]) == json.loads((site / "kept.json").read_text())
    assert sottovoce("ledger", "verify", folder, "--against", site / "kept.json")[0] == 0


def test_a_restored_folder_and_a_changed_row_fail_verification(node, sottovoce, site):
    folder = site / "nodes" / "clinic"
    sottovoce("ledger", "budget", folder, "--epsilon", "1.5")
    shutil.copytree(folder, site / "early")
    node()
    sottovoce("ledger", "export", folder, "--out", site / "kept.json")
    code, _, err = sottovoce("ledger", "verify", site / "early", "--against", site / "kept.json")
    assert code == 6 and "old copy" in err
    db = sqlite3.connect(folder / "node.sqlite")
    db.executescript("DROP TRIGGER ledger_fixed; UPDATE ledger SET round = 99 WHERE seq = 5;")
    db.close()
    code, out, err = sottovoce("ledger", "verify", folder, "--json")
    assert code == 6 and "row 5 was changed" in json.loads(out)["error"]
    code, _, err = node()
    assert code == 6 and "does not hold" in err


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        ((), 5, "no budget"),
        (("--budget", "0.5"), 5, "over the owner's budget"),
        (("--budget", "1.5", "--node", "hospital"), 2, "no node 'hospital'"),
        (("--query", "SELECT 1"), 2, "--query goes with a database"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(node, more, code, reason):
    found, _, err = node(*more)
    assert found == code and reason in " ".join(err.split())


def test_arguments_that_are_missing_are_named(sottovoce, site):
    code, _, err = sottovoce("node", "--spec", site / "run.toml")
    assert code == 2 and "--data" in err
    code, _, err = sottovoce("ledger", "show", site)
    assert code == 6 and "no node's folder" in err
    code, _, err = sottovoce("ledger", "verify", site, "--against", site / "run.toml")
    assert code == 6
    (site / "run.toml").write_text(RUN.replace("clinic = 40", "clinic = 40\nother = 9"))
    code, _, err = sottovoce("node", "--spec", site / "run.toml", "--data", "a.csv", "--folder", site / "n")
    assert code == 2 and "mpirun -n 2" in err


def test_a_budget_may_be_changed_and_both_stay(sottovoce, tmp_path):
    for epsilon in ("1", "2"):
        code, out, _ = sottovoce("ledger", "budget", tmp_path / "n", "--epsilon", epsilon, "--json")
        assert code == 0 and json.loads(out)["epsilon"] == float(epsilon)
    rows = Store(tmp_path / "n", reading=True).rows()
    assert [row.detail["epsilon"] for row in rows if row.kind == "budget"] == ["1.0", "2.0"]
    assert sottovoce("ledger", "budget", tmp_path / "n", "--epsilon", "-1")[0] == 5


SCHEMA = """
row_norm = 1.0
[label]
column = "sick"
classes = ["no", "yes"]
[columns.age]
low = -3
high = 3
[columns.name]
type = "category"
categories = ["x", "y"]
"""


def test_a_run_file_with_a_schema_trains_and_predicts_from_raw_columns(node, sottovoce, site):
    plain = 'features = ["age", "bmi"]\nlabel = "sick"\nclasses = ["no", "yes"]\nunit_rows = true\n'
    (site / "run.toml").write_text(RUN.replace(plain, 'schema = "kept.toml"\n'))
    (site / "kept.toml").write_text(SCHEMA)
    code, out, err = node("--budget", "1.5", "--json")
    assert code == 0, err
    saved = json.loads(out)["saved"]
    assert Result.load(saved).features == ("age", "name=x", "name=y")
    code, out, err = sottovoce("predict", saved, site / "clinic.csv", "--json")
    assert code == 0 and set(json.loads(out)["predictions"]) <= {"yes", "no"}, err
    (site / "clinic.csv").write_text((site / "clinic.csv").read_text().replace(",x,", ",z,", 1))
    code, _, err = node("--json")  # the record is not refused; that the run's records are others than before is
    assert code == 6 and "does not list" not in err.partition("Error:")[2]


def test_the_key_of_a_folder_is_for_a_run_file(sottovoce, tmp_path):
    """It is the folder's own, and the same whenever one requests."""
    first, again, other = (json.loads(sottovoce("node", "key", tmp_path / a, "--json")[1])["key"] for a in "aab")
    assert first == again != other and len(bytes.fromhex(first)) == 32
    assert first in sottovoce("node", "key", tmp_path / "a")[1]


def test_a_run_can_be_given_up(node, sottovoce, site):
    assert node("--budget", "1.5", "--json")[0] == 0
    code, _, err = sottovoce("ledger", "abandon", site / "nodes" / "clinic", "alone")
    assert code == 6 and "over already" in err
    code, _, err = sottovoce("ledger", "abandon", site / "nodes" / "clinic", "another")
    assert code == 6 and "no run 'another'" in err
