"""Records from a database: the same table as from a file, and one line for everything that can go wrong."""

import builtins
import sqlite3

import numpy as np
import pytest

from sottovoce.data.load import load
from sottovoce.data.sql import is_database, load_sql
from sottovoce.errors import DataError, SpecError

pytest.importorskip("sqlalchemy")

ROWS = [(63, 1.5, "ann", "yes"), (41, 2.25, "bob", "no"), (57, -0.5, "cem", "yes")]
QUERY = "SELECT age, bmi, sick FROM patients ORDER BY age"


@pytest.fixture
def clinic(tmp_path):
    with sqlite3.connect(tmp_path / "clinic.db") as db:
        db.execute("CREATE TABLE patients (age INTEGER, bmi REAL, name TEXT, sick TEXT)")
        db.executemany("INSERT INTO patients VALUES (?, ?, ?, ?)", ROWS)
    db.close()
    return f"sqlite:///{tmp_path / 'clinic.db'}"


def test_a_query_gives_the_table_that_a_file_gives(clinic, tmp_path):
    ordered = sorted(ROWS)
    file = tmp_path / "patients.csv"
    file.write_text("age,bmi,sick\n" + "".join(f"{a},{b},{s}\n" for a, b, _, s in ordered))
    mine, theirs = load_sql(clinic, QUERY, label="sick"), load(file, label="sick")
    assert np.array_equal(mine.X, theirs.X) and mine.y.tolist() == theirs.y.tolist()
    assert mine.features == theirs.features == ("age", "bmi")


def test_features_are_chosen_by_name_and_others_left_alone(clinic):
    table = load_sql(clinic, "SELECT * FROM patients", label="sick", columns=("bmi", "age"))
    assert table.features == ("bmi", "age") and table.X[:, 1].tolist() == [63, 41, 57]
    assert table.y.tolist() == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT height FROM patients", "the query failed"),
        ("SELEC age FROM patients", "the query failed"),
        ("CREATE TABLE other (a)", "no rows"),
        ("SELECT age, age, sick FROM patients", "same name"),
        ("SELECT * FROM patients", "holds text"),
        ("SELECT age, sick FROM patients WHERE age > 99", "no records"),
        ("SELECT NULL AS age, sick FROM patients", "no value"),
        ("SELECT CASE WHEN age > 50 THEN 'old' ELSE age END AS age, sick FROM patients", "mixes types"),
    ],
)
def test_what_a_query_gives_wrongly_is_said_in_a_sentence(clinic, query, reason):
    with pytest.raises(DataError, match=reason):
        load_sql(clinic, query, label="sick")


def test_a_database_that_cannot_be_reached_is_a_sentence_without_its_password(clinic):
    with pytest.raises(SpecError, match="no database address"):
        load_sql("clinic", QUERY)
    with pytest.raises(SpecError, match="driver"):
        load_sql("nosuch://user:hunter2@host/registry", QUERY)
    with pytest.raises(DataError, match="the query failed") as caught:
        load_sql("postgresql+psycopg://user:hunter2@127.0.0.1:1/registry", QUERY)
    assert "hunter2" not in str(caught.value) and "***" in str(caught.value)


def test_without_sqlalchemy_the_extra_is_named(clinic, monkeypatch):
    real = builtins.__import__

    def refusing(name, *rest):
        if name.startswith("sqlalchemy"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(SpecError, match=r"sottovoce\[sql\]"):
        load_sql(clinic, QUERY)


def test_addresses_are_distinguished_from_files():
    assert is_database("sqlite:///a.db") and not is_database("C:/records.csv")
