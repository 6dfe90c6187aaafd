"""From the worst file that was tried to a model and predictions beside ids, as its owner would."""

import csv

import numpy as np
import pytest

from sottovoce.data.schema import read_schema
from sottovoce.run.result import Result

ROWS = 4000


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """Semicolons, decimal commas, latin-1, a byte-order mark's absence, text, dates, ids, empty cells, ja/nein."""
    rng = np.random.default_rng(3)
    age, size = rng.integers(18, 95, ROWS), rng.normal(1.7, 0.1, ROWS)
    smoker, ward = rng.random(ROWS) < 0.3, rng.choice(["Süd", "Nord", "Ost"], ROWS)
    day = rng.integers(0, 3000, ROWS)
    risk = 0.08 * (age - 55) + 2.0 * smoker + 1.5 * (ward == "Süd") - 0.5 + rng.normal(0, 0.5, ROWS)
    lines = ["Nr;Aufnahme;Alter;Größe;Raucher;Station;Befund;krank"]
    for k in range(ROWS):
        date = (np.datetime64("2015-01-01") + day[k]).astype(object).strftime("%d.%m.%Y")
        note = "Husten, Fieber" if risk[k] > 0 and rng.random() < 0.7 else "kein Befund"
        cells = [
            f"P{k:05d}",
            date,
            "" if rng.random() < 0.05 else str(age[k]),
            f"{size[k]:.2f}".replace(".", ","),
            "ja" if smoker[k] else "nein",
            ward[k],
            note,
            "ja" if risk[k] > 0 else "nein",
        ]
        lines.append(";".join(cells))
    folder = tmp_path_factory.mktemp("messy")
    path = folder / "patienten.csv"
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))
    return path


def test_from_a_messy_file_to_predictions_beside_ids(sottovoce, messy, tmp_path):
    schema = tmp_path / "schema.toml"
    code, said, _ = sottovoce("schema", messy, "--label", "krank", "--out", schema)
    assert code == 0 and "fill in what is marked '?' (7) and compare what was read off the data" in said
    code, _, said = sottovoce("schema", messy, "--label", "krank", "--out", schema)
    assert code == 2 and "there is a file" in said and "--force" in said
    text = schema.read_text()
    assert 'ignored = ["Nr"]' in text
    for name, low, high in (("Aufnahme", "2015-01-01", "2025-01-01"), ("Alter", "0", "120"), ('"Größe"', "1.2", "2.2")):
        head, table = text.split(f"[columns.{name}]")
        table = table.replace('low = "?"', f"low = {low}", 1).replace('high = "?"', f"high = {high}", 1)
        text = f"{head}[columns.{name}]{table}"
    text = text.replace('missing = "?"', "missing = 55")
    schema.write_text(text)
    assert read_schema(schema).label.classes == ("ja", "nein")
    schema.write_text(text.replace('classes = ["ja", "nein"]', 'classes = ["nein", "ja"]'))
    out = tmp_path / "run"
    code, _, err = sottovoce(
        "train", messy, "--schema", schema, "--nodes", 4, "--intercept", 1, "--seed", 1, "--out", out
    )
    assert code == 0, err
    assert Result.load(out).history.last["train_accuracy"] > 0.85
    written = tmp_path / "predictions.csv"
    code, _, err = sottovoce("predict", out, messy, "--id", "Nr", "--scores", "--out", written)
    assert code == 0, err
    with written.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["Nr"] for row in rows[:2]] == ["P00000", "P00001"] and len(rows) == ROWS
    assert all((row["prediction"] == "ja") == (float(row["score"]) >= 0) for row in rows)


def test_the_schema_and_options_do_not_contradict(sottovoce, messy, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[label]\ncolumn = "krank"\nclasses = ["nein", "ja"]\n[columns.Alter]\nlow = 0\nhigh = 120\nmissing = 50\n'
        '[dialect]\nseparator = ";"\nencoding = "latin-1"\n'
    )
    for args, words in (
        (("train", messy, "--schema", schema, "--label", "krank"), "the schema says what --label would"),
        (("train", messy, "--schema", schema, "--loss", "huber:1"), "is for the other kind"),
        (("train", messy, "--schema", schema, "--row-norm", 3), "the schema says what --row-norm would"),
        (("predict", tmp_path, messy, "--out", tmp_path / "none" / "x"), "cannot be written"),
    ):
        code, _, err = sottovoce(*args)
        assert code == 2 and words in err and len(err.strip().splitlines()) == 1
