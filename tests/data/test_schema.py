"""A schema encodes every record by itself, within public bounds, whatever the values are."""

import math
import tomllib
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.data.draft import draft, read_codebook
from sottovoce.data.policy import SIMULATION
from sottovoce.data.schema import plain_schema, read_schema, schema_of
from sottovoce.data.tables import Table, save_table
from sottovoce.data.values import from_lists, read_columns
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import row_norms

TABLES = {
    "row_norm": 1.2,
    "unit": "who",
    "label": {"column": "y", "classes": ["no", "yes"]},
    "columns": {
        "age": {"type": "number", "low": 0, "high": 120, "missing": 50},
        "dose": {"low": -1e-3, "high": 5},
        "ward": {"type": "category", "categories": ["A", "B", 3], "missing": "none"},
        "smoker": {"type": "flag", "categories": [False, True], "missing": "false"},
    },
}
SCHEMA = schema_of(TABLES)

record = st.fixed_dictionaries(
    {
        "age": st.one_of(st.none(), st.floats(allow_infinity=False), st.integers(-(10**6), 10**6)),
        "dose": st.floats(allow_nan=False, allow_infinity=False),
        "ward": st.sampled_from(["A", "B", 3, "3", 3.0, None, "elsewhere", ""]),
        "smoker": st.sampled_from([True, False, "true", "false", None]),
        "who": st.text("abc", min_size=1),
        "y": st.sampled_from(["no", "yes"]),
    }
)


def encode(records, schema=SCHEMA):
    values = {name: [r[name] for r in records] for name in records[0]}
    return schema.encode(from_lists(values, "test", schema.numbers, schema.texts))


@given(st.lists(record, min_size=1, max_size=8), st.randoms())
def test_a_record_is_encoded_the_same_beside_any_other(records, random):
    together = encode(records)
    for i, each in enumerate(records):
        alone = encode([each])
        assert np.array_equal(together.X[i], alone.X[0]) and together.y[i] == alone.y[0]
    order = list(range(len(records)))
    random.shuffle(order)
    assert np.array_equal(encode([records[i] for i in order]).X, together.X[order])


@given(st.lists(record, min_size=1, max_size=8))
def test_rows_stay_within_the_public_bound(records):
    found = encode(records)
    assert np.all(row_norms(found.X) <= SCHEMA.row_norm) and np.all(np.abs(found.X) <= 1.0)
    free = schema_of(TABLES | {"row_norm": 0})
    assert free.row_norm == 2.0 and np.all(row_norms(encode(records, free).X) <= free.row_norm)


@given(st.floats(0, 120), st.sampled_from(["A", "B", "3"]))
def test_encoding_is_what_the_schema_says(age, ward):
    free = schema_of(TABLES | {"row_norm": 0})
    one = {"age": age, "dose": 5.0, "ward": ward, "smoker": True, "who": "a", "y": "yes"}
    X = encode([one], free).X[0]
    assert math.isclose(X[0], age / 60 - 1, abs_tol=1e-12) and X[1] == 1.0
    assert X[2:5].tolist() == [float(ward == value) for value in ("A", "B", "3")] and X[5] == 1.0
    assert free.features == ("age", "dose", "ward=A", "ward=B", "ward=3", "smoker")


def test_what_the_schema_has_no_place_for_is_refused():
    good = {"age": 1.0, "dose": 1.0, "ward": "A", "smoker": True, "who": "a", "y": "yes"}
    for change in ({"dose": None}, {"dose": "much"}, {"dose": math.inf}, {"y": "perhaps"}, {"y": None}, {"who": None}):
        with pytest.raises(DataError):
            encode([good, good | change])
    with pytest.raises(DataError, match="dose"):
        encode([{k: v for k, v in good.items() if k != "dose"}])


def test_files_and_lists_give_the_same_columns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {"age": [3.5, None, 7.0], "ward": ["A", None, "007"], "extra": [1, 2, 3]}
    (tmp_path / "r.csv").write_text("ward,age,extra\nA,3.5,1\nNA,,2\n007,7,3\n")
    (tmp_path / "r.tsv").write_text("ward\tage\textra\nA\t3.5\t1\nNA\t\t2\n007\t7\t3\n")
    pq.write_table(pa.table(values), tmp_path / "r.parquet")
    expected = from_lists(values, "list", ["age"], ["ward"])
    for format in ("csv", "tsv", "parquet"):
        found = read_columns(tmp_path / f"r.{format}", format, ["age"], ["ward"])
        assert np.array_equal(found.numbers["age"], expected.numbers["age"], equal_nan=True)
        assert found.texts["ward"].tolist() == ["A", None, "007"] and found.records == 3
        with pytest.raises(DataError, match="gone"):
            read_columns(tmp_path / f"r.{format}", format, ["gone"], [])


@given(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_numbered_features_are_clipped_and_zeros_stay_zeros(rows):
    schema = schema_of({"label": {"column": "y", "low": -1, "high": 1}, "features": 4, "low": -1.0, "high": 0.5})
    X = sparse.csr_array(np.array(rows))
    found = schema.encode_numbered(X, np.full(len(rows), 7.0))
    assert found.X.shape == (len(rows), 4) and found.y.tolist() == [1.0] * len(rows)
    assert np.array_equal(found.X.toarray()[:, :3], np.clip(rows, -1.0, 0.5))
    assert np.all(row_norms(found.X) <= schema.row_norm + 1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"label": {"column": "y"}},
        {"label": {"column": "y", "classes": ["a", "a"]}},
        {"label": {"column": "y", "classes": ["a", "b", "a"]}},
        {"label": {"column": "y", "classes": ["a"]}},
        {"columns": {}},
        {"columns": {"y": {"low": 0, "high": 1}}},
        {"columns": {"a": {"low": 1, "high": 0}}},
        {"columns": {"a": {"low": 0, "high": math.inf}}},
        {"columns": {"a": {"type": "date"}}},
        {"columns": {"a": {"type": "category"}}},
        {"columns": {"a": {"type": "flag", "categories": ["x", "y", "z"]}}},
        {"columns": {"a": {"type": "category", "categories": ["x"], "missing": "w"}}},
        {"columns": {"a": {"low": 0, "high": 1, "colour": "red"}}},
        {"row_norm": -1.0},
        {"features": 3},
        {"colour": "red"},
    ],
)
def test_a_schema_that_bounds_nothing_is_refused(change):
    with pytest.raises(SpecError, match="schema"):
        schema_of(TABLES | change)


def test_the_digest_is_of_what_is_said_not_of_how(tmp_path):
    text = '[label]\ncolumn = "y"\nclasses = [0, 1]\n[columns.a]\nlow = 0\nhigh = 1\n'
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "two.toml").write_text("# a remark\n" + text.replace("low = 0\nhigh = 1", "high = 1.0\nlow = 0.0"))
    (tmp_path / "three.toml").write_text(text.replace("high = 1", "high = 2"))
    one, two, three = (read_schema(tmp_path / f"{name}.toml").digest for name in ("one", "two", "three"))
    assert one == two != three


def test_plain_numbers_are_taken_as_they_are(tmp_path):
    """In CSV and Parquet equally; single precision stays single, and rows are scaled only where that is requested."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = plain_schema(["a", "b"], "y", ["no", "yes"])
    rows = np.array([[3.0, 4.0], [1e-3, -7.25]])
    values = {"b": rows[:, 1].tolist(), "y": ["yes", "no"], "a": rows[:, 0].tolist()}
    (tmp_path / "r.csv").write_text("b,y,a\n4,yes,+3\n-7.25,no,1e-3\n")  # '+3' is a number to us, and none to Arrow
    pq.write_table(pa.table(values), tmp_path / "r.parquet")
    single = {name: pa.array(v, pa.float32()) if name != "y" else pa.array(v) for name, v in values.items()}
    pq.write_table(pa.table(single), tmp_path / "single.parquet")
    for file in ("r.csv", "r.parquet"):
        found = schema.read(tmp_path / file)
        assert np.array_equal(found.X, rows) and found.X.dtype == np.float64 and found.y.tolist() == [1.0, -1.0]
    found = schema.read(tmp_path / "single.parquet")
    assert found.X.dtype == np.float32 and np.array_equal(found.X, rows.astype(np.float32))
    scaled = plain_schema(["a", "b"], "y", ["no", "yes"], row_norm=1.0).read(tmp_path / "r.csv")
    assert np.all(row_norms(scaled.X) <= 1.0) and np.allclose(scaled.X[0], [0.6, 0.8])


@pytest.mark.parametrize("spelling", [["1", "0"], ["1.0", "0.0"], [1, 0], [1.0, 0.0], [True, False]], ids=str)
def test_classes_that_are_numbers_are_known_in_every_spelling(spelling, tmp_path):
    from decimal import Decimal

    for classes in ([0, 1], ["0", "1"], [0.0, 1.0]):
        schema = plain_schema(["a"], "y", classes)
        for y in (spelling, [Decimal(value) for value in spelling]):
            found = schema.encode(from_lists({"a": [1, 2], "y": y}, "list", schema.numbers, schema.texts))
            assert found.y.tolist() == [1.0, -1.0]
    by_file = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": {"low": 0, "high": 2}}})
    (tmp_path / "r.csv").write_text("a,y\n1,1.0\n2,0\n")
    assert by_file.read(tmp_path / "r.csv").y.tolist() == [1.0, -1.0]


def test_numbered_features_come_from_svmlight_and_npz_and_from_nothing_else(tmp_path):
    (tmp_path / "r.svm").write_text("+1 1:0.5 3:2\n-1 2:1\n")
    dense = np.array([[0.5, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    save_table(Table(dense, np.array([1.0, -1.0]), None, None, "dense"), tmp_path / "r.npz")
    schema = plain_schema(4, classes=[-1, 1], first_index=1)
    sparse_rows, rows = schema.read(tmp_path / "r.svm"), schema.read(tmp_path / "r.npz")
    assert np.array_equal(sparse_rows.X.toarray(), dense) and np.array_equal(rows.X, dense)
    assert sparse_rows.y.tolist() == rows.y.tolist() == [1.0, -1.0]
    (tmp_path / "r.csv").write_text("a,b,c,d,y\n1,2,3,4,1\n")
    with pytest.raises(SpecError, match="numbered features"):
        schema.read(tmp_path / "r.csv")
    with pytest.raises(SpecError, match="named columns"):
        plain_schema(["a"], "y", [-1, 1]).read(tmp_path / "r.svm")
    with pytest.raises(DataError, match="features"):
        plain_schema(2, classes=[-1, 1]).read(tmp_path / "r.svm", policy=SIMULATION)


HOSPITAL = """patient;aufnahme;alter;größe;station;raucher;notiz;haus;krank
p1;31.07.2019;51;1,75;A;ja;Husten und Fieber;Nord;ja
p1;02.08.2019;51;1,75;B;ja;Fieber;Nord;nein
p2;15.01.2020;;1,62;C;nein;;Süd;nein
p3;01.12.2024;130;1,80;;nein;Fieber, Fieber;Süd;ja
"""
MAX_COUNT_NOISE = """
unit = "patient"
group = "haus"
[dialect]
separator = ";"
decimal = ","
[label]
column = "krank"
classes = ["nein", "ja"]
[columns.aufnahme]
type = "date"
low = 2015-01-01
high = 2025-01-01
format = "%d.%m.%Y"
[columns.alter]
low = 0
high = 120
missing = 60
[columns."größe"]
low = 1.0
high = 2.0
[columns.station]
type = "category"
categories = ["A", "B"]
missing = "none"
[columns.raucher]
type = "flag"
categories = ["nein", "ja"]
[columns.notiz]
type = "text"
buckets = 8
"""


def hospital(tmp_path):
    path = tmp_path / "patienten.csv"
    path.write_bytes(HOSPITAL.encode("latin-1"))
    return path


def test_a_messy_file_is_encoded_by_its_schema_alone(tmp_path):
    schema = schema_of(tomllib.loads(MAX_COUNT_NOISE))
    found = schema.read(hospital(tmp_path), policy=SIMULATION)
    assert found.X.shape == (4, schema.m) == (4, 1 + 1 + 1 + 2 + 1 + 8)
    assert found.user_ids.tolist() == ["p1", "p1", "p2", "p3"] and found.groups.tolist() == [
        "Nord",
        "Nord",
        "Süd",
        "Süd",
    ]
    assert found.y.tolist() == [1.0, -1.0, -1.0, 1.0]
    days = (date(2019, 7, 31) - date(2015, 1, 1)).days / (date(2025, 1, 1) - date(2015, 1, 1)).days
    assert found.X[0, 0] == pytest.approx(2 * days - 1)
    assert found.X[:, 1].tolist() == pytest.approx([2 * 51 / 120 - 1] * 2 + [0.0, 1.0])  # missing 60, 130 clipped
    assert found.X[:, 3:5].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    words = np.linalg.norm(found.X[:, 6:], axis=1)
    assert words[[0, 1, 3]] == pytest.approx(1.0) and words[2] == 0.0 and np.all(words <= 1.0)
    assert np.array_equal(np.abs(found.X[1, 6:]) > 0, np.abs(found.X[3, 6:]) > 0)  # the same word, once and twice
    assert np.all(row_norms(found.X) <= schema.row_norm)


def test_a_row_is_encoded_by_itself(tmp_path):
    """The same records in another order, and each alone, give the same rows: nothing is learnt from the others."""
    schema, path = schema_of(tomllib.loads(MAX_COUNT_NOISE)), hospital(tmp_path)
    whole = schema.read(path, policy=SIMULATION).X
    head, *rows = HOSPITAL.splitlines()
    for k, row in enumerate(rows):
        path.write_bytes(f"{head}\n{row}\n".encode("latin-1"))
        alone = replace(schema, dialect=replace(schema.dialect, encoding="latin-1")).read(path)
        assert np.array_equal(alone.X[0], whole[k])


def test_a_column_of_numbers_stays_one_where_a_spreadsheet_wrote_that_it_has_none(tmp_path):
    path = tmp_path / "ages.csv"
    path.write_text("age,sick\n41,no\nn/a,yes\n60,no\n#N/A,yes\n")
    text = draft(path, label="sick")
    assert 'type = "number"' in text and 'missing = "?"' in text
    for place, number in (("low", 0), ("high", 120), ("missing", 60)):
        text = text.replace(f'{place} = "?"', f"{place} = {number}")
    assert schema_of(tomllib.loads(text)).read(path).X[:, 0].tolist() == pytest.approx([-19 / 60, 0, 0, 0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"type": "date", "low": "soon", "high": "2025-01-01"}, "is a date such as"),
        ({"type": "date", "low": "2025-01-01"}, "needs the bounds"),
        ({"type": "text"}, "needs buckets"),
        ({"type": "number", "low": "?", "high": 1}, "fill in, from public knowledge .*: low of 'a'$"),
        ({"low": 0, "high": 1, "buckets": 3}, "which has no buckets"),
    ],
)
def test_columns_that_say_too_little_are_refused(wrong, message):
    with pytest.raises(SpecError, match=message):
        schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": wrong}})


def test_a_draft_becomes_a_schema_once_its_bounds_are_filled_in(tmp_path):
    path, book = hospital(tmp_path), tmp_path / "codebook.csv"
    text = draft(path, label="krank", unit="patient", group="haus")
    with pytest.raises(SpecError, match=r"fill in, .*: low, high of 'aufnahme'; low, high, missing of 'alter'; low"):
        schema_of(tomllib.loads(text))
    assert 'separator = ";"' in text and 'decimal = ","' in text and 'type = "date"' in text and '"%d.%m.%Y"' in text
    book.write_text(
        "column,type,low,high,values\nalter,number,0,120,\ngröße,number,1,2,\nstation,category,,,A|B|C\n"
        "aufnahme,date,2015-01-01,2025-01-01,\n",
        encoding="utf-8",
    )
    text = draft(path, label="krank", unit="patient", group="haus", codebook=read_codebook(book))
    tables = tomllib.loads(text)
    tables["columns"]["aufnahme"]["format"] = "%d.%m.%Y"
    tables["columns"]["alter"]["missing"] = 60
    tables["columns"]["station"]["missing"] = "none"
    assert schema_of(tables).read(path, policy=SIMULATION).X.shape[0] == 4
    pre_released = [line for line in text.splitlines() if "read off the data" in line]
    assert not any(name in line for line in pre_released for name in ("120", 'categories = ["A"'))
