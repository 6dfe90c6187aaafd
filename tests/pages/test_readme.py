"""The README's commands, run as they stand there: from the worst file to what may be published, and all the others."""

import csv
import json
import math
import os
import runpy
import shlex
import types
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from commands import NOT_RUN, PAGES, PATIENTS, ROOT, bare, blocks, commands, ground, nobody_looks, run
from typer.testing import CliRunner

from sottovoce import PrivateClassifier
from sottovoce.cli.main import app
from sottovoce.data.schema import read_schema
from sottovoce.run.result import Result

LINES = [line for line in commands(PAGES["README"]) if ("README", bare(line)) not in NOT_RUN]
SCHEMA, TRAIN, *_ = LINES


def sottovoce(*words):
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.exception


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder in which everything was run, in order."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("readme")
        ground(folder)
        patch.chdir(folder)
        nobody_looks(patch)
        for line in LINES:
            run(line)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the files and nothing done."""
    ground(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_is_the_one_that_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["make.py", str(tmp_path / "again.csv")])
    runpy.run_path(str(PATIENTS / "make.py"), run_name="__main__")
    assert (tmp_path / "again.csv").read_bytes() == (PATIENTS / "patients.csv").read_bytes()


def test_six_commands_lead_from_the_file_to_a_folder_to_publish(done):
    assert [line.split()[1] for line in LINES[:6]] == ["schema", "train", "report", "predict", "account", "export"]
    result = Result.load(done / "runs" / "first")
    assert result.statement.private and result.statement.secure and result.statement.epsilon <= 1.0
    assert result.nodes == ("Aachen", "Bonn", "Köln") and result.classes == ("nein", "ja")
    with open(done / "predictions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["Besuch"] for row in rows] == [f"V{k:05d}" for k in range(3000)]
    assert all((row["prediction"] == "ja") == (float(row["probability ja"]) >= 0.5) for row in rows)
    truth = [line["krank"] for line in raw()]
    assert np.mean([row["prediction"] == sick for row, sick in zip(rows, truth, strict=True)]) > 0.8
    assert (done / "page.html").stat().st_size > 10_000 and (done / "public").is_dir()
    assert not any("history" in path.name for path in (done / "public").iterdir())


def test_the_other_commands_leave_what_they_say(done):
    assert len(set(pq.read_table(done / "runs" / "all.parquet")["algorithm"].to_pylist())) == 27


@pytest.mark.data
def test_the_first_lines_run_on_the_real_table(monkeypatch, capsys):
    """The census table of SOTTOVOCE_DATA stands for the download; the printed guarantee is the README's own."""
    folder = os.environ.get("SOTTOVOCE_DATA")
    if folder is None:
        pytest.skip("SOTTOVOCE_DATA is not set")
    table = pd.read_csv(Path(folder, "adult.csv.xz")).rename(columns={"income-per-year": "class"})
    frame = types.SimpleNamespace(frame=table)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda name, **settings: frame if name == "adult" else None)
    monkeypatch.chdir(ROOT)
    found = blocks(PAGES["README"].read_text(encoding="utf-8"))
    code, printed, *_ = [block.lines for block in found if block.kind in ("python", "text")]
    names: dict = {}
    exec("\n".join(code), names)
    assert capsys.readouterr().out == "\n".join(printed) + "\n"
    assert names["model"].score(table, table["class"]) > 0.84  # 0.76 is the share of the larger class


def raw() -> list[dict[str, str]]:
    return list(csv.DictReader((PATIENTS / "patients.csv").read_text("latin-1").splitlines(), delimiter=";"))


def by_hand() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same data prepared by someone who knows it: bounds of the codebook, and a search for fever in the notes."""

    def scaled(text: str, low: float, high: float, missing: float) -> float:
        value = float(text.replace(",", ".")) if text else missing
        return max(-1.0, min(1.0, (2 * value - low - high) / (high - low)))

    rows = []
    for line in raw():
        day = datetime.strptime(line["Aufnahme"], "%d.%m.%Y").toordinal()
        ends = [datetime(2018, 1, 1).toordinal(), datetime(2025, 12, 31).toordinal()]
        rows.append(
            [
                (2 * day - sum(ends)) / (ends[1] - ends[0]),
                scaled(line["Alter"], 0, 120, 55),
                scaled(line["Größe"], 1.2, 2.2, 1.7),
                scaled(line["Einkommen"], 0, 100_000, 36_000),
                1.0 if line["Raucher"] == "ja" else -1.0,
                *(float(line["Station"] == ward) for ward in ("Süd", "Nord", "Ost")),
                float("Fieber" in line["Befund"]),
            ]
        )
    return np.array(rows), np.array([x["krank"] for x in raw()]), np.array([x["Klinik"] for x in raw()])


def test_the_model_is_within_a_point_of_the_same_data_prepared_by_hand(here):
    run(SCHEMA)
    encoded = read_schema("schema.toml").read(PATIENTS / "patients.csv")
    hand, sick, clinic = by_hand()
    ours, theirs = [], []
    for seed in range(4):
        settings = {"classes": ["ja", "nein"], "random_state": seed}
        model = PrivateClassifier(1.0, row_norm=math.sqrt(7), **settings).fit(hand, sick, nodes=clinic)
        theirs.append(model.score(hand, sick))
        code, said, _ = sottovoce(*shlex.split(TRAIN)[1:-2], "--seed", seed, "--json")
        assert code == 0
        ours.append(json.loads(said)["last"]["train_accuracy"])
    assert encoded.X.shape[0] == len(hand) and np.mean(theirs) > 0.8
    assert np.mean(ours) > np.mean(theirs) - 0.01


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
def test_the_same_file_in_other_encodings_is_the_same_records(here, encoding):
    path = Path("other.csv")
    path.write_bytes((PATIENTS / "patients.csv").read_text("latin-1").encode(encoding))
    run(SCHEMA.replace("examples/patients/patients.csv", "other.csv"))
    other = read_schema("schema.toml").read(path)
    assert "--force" in str(sottovoce(*shlex.split(SCHEMA)[1:])[2])  # one that someone may have completed is not lost
    run(SCHEMA + " --force")
    np.testing.assert_array_equal(other.X, read_schema("schema.toml").read(PATIENTS / "patients.csv").X)
