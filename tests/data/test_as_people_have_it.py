"""Tables as people have them: workbooks, marks between thousands, currencies, percent, truth values, codes."""

import datetime
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce.data.dialect import Dialect
from sottovoce.data.draft import codebook_template, draft, read_codebook
from sottovoce.data.excel import sheet_names, sheet_table
from sottovoce.data.frames import encode_frame
from sottovoce.data.guess import number_formats
from sottovoce.data.load import load
from sottovoce.data.policy import GUARANTEE, SIMULATION, ReadPolicy
from sottovoce.data.schema import read_schema, schema_of
from sottovoce.data.values import NumberFormat, as_number
from sottovoce.errors import DataError, SpecError

ENGLISH = NumberFormat(".", ",", "$", "%")
GERMAN = NumberFormat(",", ".", "", "€")


@pytest.mark.parametrize(
    ("text", "form", "number"),
    [
        ("$12,345", ENGLISH, 12345.0),
        ("-$12,345.67", ENGLISH, -12345.67),
        ("$-5", ENGLISH, -5.0),
        ("45%", ENGLISH, 45.0),
        ("1234567", ENGLISH, 1234567.0),
        ("1,234,567.5", ENGLISH, 1234567.5),
        ("1,5", ENGLISH, None),  # 1.5 where commas mark decimals: never read as 15
        ("12,34,567", ENGLISH, None),
        ("1,234,56", ENGLISH, None),
        ("$$5", ENGLISH, None),
        ("five $", ENGLISH, None),
        ("53.880,67 €", GERMAN, 53880.67),
        ("880,67", GERMAN, 880.67),
        ("1.5", GERMAN, None),
        ("1 234,5", NumberFormat(",", " "), 1234.5),
        ("1\u202f234,5", NumberFormat(",", " "), 1234.5),
        ("1'234.5", NumberFormat(".", "'"), 1234.5),
        ("1_234", NumberFormat(".", ","), 1234.0),  # as Python reads it
    ],
)
def test_a_number_is_read_with_its_marks_or_not_at_all(text, form, number):
    assert as_number(text, set(), form) == number


@pytest.mark.parametrize("form", [NumberFormat(), ENGLISH, GERMAN, NumberFormat(",", " "), NumberFormat(".", "'")])
def test_what_is_written_is_read(form):
    rng = np.random.default_rng(3)
    for value in np.round(np.concatenate([rng.uniform(-1e7, 1e7, 200), rng.uniform(-2, 2, 50)]), 2):
        marked = f"{abs(value):,.2f}".replace(",", "T").replace(".", form.decimal).replace("T", form.thousands)
        text = f"{'-' if value < 0 else ''}{form.prefix}{marked} {form.suffix}"
        assert as_number(text.strip(), set(), form) == value, text


def test_a_decimal_mark_is_no_mark_of_thousands():
    with pytest.raises(SpecError, match=r"differs from the decimal mark, .*with decimal = ',' write thousands = '\.'"):
        Dialect(";", ",", thousands=",")
    with pytest.raises(SpecError, match="thousands is a comma, a point, a space or '"):
        Dialect(thousands="_")
    assert Dialect(thousands="comma").decimal == "." and Dialect(decimal=",", thousands="space").thousands == " "


SCHEMA = """
[label]
column = "sold"
low = 0
high = 1000000
prefix = "$"
[columns.area]
low = 0
high = 2000
[columns.share]
low = 0
high = 100
suffix = "%"
[columns.pool]
type = "flag"
categories = ["false", "true"]
[dialect]
thousands = ","
"""
ROWS = [("$500,000", "1,000", "50%", "TRUE"), ("$250,000.50", "500", "0%", "False"), ("750000", "2,000", "100", "true")]
EXPECTED = [[0, 0, 1], [-0.5, -1, -1], [1, 1, 1]]


def houses(folder, kind):
    """The same table in a file of this kind."""
    names = ["sold", "area", "share", "pool"]
    path = folder / f"houses.{kind}"
    if kind == "csv":
        path.write_text("\n".join([",".join(names), *(",".join(f'"{cell}"' for cell in row) for row in ROWS), ""]))
    elif kind == "parquet":
        pq.write_table(pa.table(dict(zip(names, zip(*ROWS, strict=True), strict=True))), path)
    else:
        workbook(path, names, ROWS)
    return path


def workbook(path, names, rows):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(names)
    for row in rows:
        book.active.append(list(row))
    book.create_sheet("notes").append(["nothing"])
    book.save(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize("policy", [GUARANTEE, SIMULATION])
def test_every_kind_of_file_gives_the_same_rows(tmp_path, kind, policy):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    found = read_schema(tmp_path / "schema.toml").read(houses(tmp_path, kind), policy=policy)
    assert np.allclose(found.X, EXPECTED) and found.y.tolist() == [500000, 250000.5, 750000]
    assert found.usable.all()


def test_a_frame_is_read_like_its_file():
    schema = schema_of(tomllib.loads(SCHEMA))
    columns = dict(zip(["sold", "area", "share", "pool"], map(list, zip(*ROWS, strict=True)), strict=True))
    assert np.allclose(encode_frame(schema, columns), EXPECTED)
    assert np.allclose(encode_frame(schema, columns | {"pool": np.array([True, False, True])}), EXPECTED)


def test_marks_change_no_digest():
    """Sites that hold the same columns, written otherwise, have one schema."""
    plain = tomllib.loads(SCHEMA)
    plain.pop("dialect")
    plain["label"].pop("prefix")
    plain["columns"]["share"].pop("suffix")
    assert schema_of(plain).digest == schema_of(tomllib.loads(SCHEMA)).digest


@pytest.mark.parametrize("classes", [["false", "true"], ["False", "True"], ["FALSE", "TRUE"]])
def test_truth_values_are_classes_however_they_are_spelled(tmp_path, classes):
    schema = schema_of({"label": {"column": "y", "classes": classes}, "columns": {"a": {"low": 0, "high": 1}}})
    (tmp_path / "r.csv").write_text("a,y\n1,True\n0,false\n1,TRUE\n")
    assert schema.read(tmp_path / "r.csv", policy=SIMULATION).y.tolist() == [1, -1, 1]
    pq.write_table(pa.table({"a": [1.0, 0.0], "y": [True, False]}), tmp_path / "r.parquet")
    assert schema.read(tmp_path / "r.parquet", policy=SIMULATION).y.tolist() == [1, -1]


def filled(text, **ends):
    """A draft with bounds for its columns."""
    tables = tomllib.loads(text)
    for name, (low, high) in ends.items():
        tables["columns"][name] |= {"low": low, "high": high}
    return tables


def messy(path, mark=",", group="."):
    rng = np.random.default_rng(1)
    rows = ["id;price;share;cost;zip;country;active;children;firm;sick"]
    for i in range(1200):
        price = f"{rng.uniform(100, 90000):,.2f}".replace(",", "T").replace(".", mark).replace("T", group)
        cost = f"{rng.integers(1000, 99999):,}".replace(",", group)
        rows.append(
            f"{i + 500};{price};{rng.integers(101)}%;€ {cost};0{rng.integers(10, 30)};Land {rng.integers(42)};"
            f"{bool(rng.integers(2))};{rng.integers(5)};one;{'yes' if rng.integers(2) else 'no'}"
        )
    path.write_text("\n".join([*rows, ""]))
    return path


@pytest.mark.parametrize("marks", [(",", "."), (".", ","), (",", " "), (".", "'")])
def test_a_draft_knows_a_messy_table(tmp_path, marks):
    path = messy(tmp_path / "r.csv", *marks)
    text = draft(path, label="sick")
    tables = tomllib.loads(text)
    kinds = {name: entry["type"] for name, entry in tables["columns"].items()}
    assert kinds == {
        "price": "number", "share": "number", "cost": "number", "zip": "category", "country": "category",
        "active": "flag", "children": "number",
    }  # fmt: skip
    assert tables["ignored"] == ["id", "firm"] and "# of one value, which adds nothing" in text
    assert (tables["dialect"]["decimal"], tables["dialect"]["thousands"]) == marks
    assert len(tables["columns"]["country"]["categories"]) == 42 and tables["columns"]["zip"]["categories"][0] == "010"
    assert 'if these are codes: type = "category", categories = ["0", "1", "2", "3", "4"]' in text
    ends = {"price": (0, 100000), "share": (0, 100), "cost": (0, 100000), "children": (0, 4)}
    found = schema_of(filled(text, **ends)).read(path, policy=SIMULATION)
    assert found.usable.all() and np.all(np.std(found.X, axis=0) > 0.1)


def test_all_that_is_left_open_is_named_at_once(tmp_path):
    with pytest.raises(SpecError) as error:
        schema_of(tomllib.loads(draft(messy(tmp_path / "r.csv"), label="price")))
    for part in ("low, high of 'price';", "low, high of 'share'", "low, high of 'cost'", "of 'children'"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_marks_are_those_that_fit_most_columns():
    texts = {"a": ["53.880", "1.200"], "b": ["53.880,67", "12,5"], "c": ["A1", "B2"]}
    assert number_formats(texts, ".,") == {"a": NumberFormat(",", "."), "b": NumberFormat(",", ".")}
    assert number_formats({"a": ["1,234", "999"]}, ",.") == {"a": NumberFormat(",")}  # may be 1.234: as it was guessed
    assert number_formats({"id": ["A123", "A99"]}, ".,") == {}  # a letter is no currency
    assert number_formats({"mixed": ["$1", "€2"]}, ".,") == {}  # two currencies are not one number
    assert number_formats({}, ".,") == {}


def test_an_empty_codebook_names_the_columns_and_nothing_else(tmp_path):
    path = messy(tmp_path / "r.csv")
    text = codebook_template(path)
    names = ["id", "price", "share", "cost", "zip", "country", "active", "children", "firm", "sick"]
    assert [line.split(",")[0] for line in text.splitlines()[1:]] == names
    assert all(set(line.partition(",")[2]) == {","} for line in text.splitlines()[1:])
    (tmp_path / "book.csv").write_text(text)
    assert read_codebook(tmp_path / "book.csv") == {}  # it describes no column yet
    book = text.replace("price,,,", "price,number,0,100000").replace("country,,", "country,category,")
    (tmp_path / "book.csv").write_text(book.replace("share,,", "share,number,"))
    made = draft(path, label="sick", codebook=read_codebook(tmp_path / "book.csv"))
    tables = tomllib.loads(made)["columns"]
    assert tables["price"]["low"] == 0 and tables["country"]["categories"] == ["?"]
    assert tables["share"] == {"type": "number", "low": "?", "high": "?", "suffix": "%"}  # no silent (−1, 1)


def test_names_twice_are_refused_everywhere(tmp_path):
    (tmp_path / "r.csv").write_text("a,b,a,y\n1,2,3,0\n1,2,4,1\n")
    for attempt in (draft, codebook_template, load):
        with pytest.raises(DataError, match="2 columns are called 'a'; give every column a name of its own"):
            attempt(tmp_path / "r.csv")
    schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": {"low": 0, "high": 1}}})
    with pytest.raises(DataError, match="2 columns are called 'a'"):
        schema.read(tmp_path / "r.csv")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(DataError, match="2 columns are called 'a'"):
        encode_frame(schema, frame)


# -- workbooks --


def test_a_workbook_is_read_cell_by_cell(tmp_path):
    path = tmp_path / "r.xlsx"
    day = datetime.datetime(2019, 7, 31)
    rows = [(51, "A", day, True, "no"), (None, "N/A", day.date(), False, "yes"), (60.5, 7, None, None, "no")]
    workbook(path, ["age", "ward", "seen", "well", "sick", None], rows)
    assert sheet_names(path) == ["age", "ward", "seen", "well", "sick"]
    table = sheet_table(path, texts=["age"], missing=["N/A"])
    assert table["age"].to_pylist() == ["51", None, "60.5"] and table["ward"].to_pylist() == ["A", None, "7"]
    assert table["seen"].to_pylist() == ["2019-07-31", "2019-07-31", None]
    text = draft(path, label="sick")
    kinds = {name: entry["type"] for name, entry in tomllib.loads(text)["columns"].items()}
    assert kinds["age"] == "number" and kinds["ward"] == "category"


@pytest.mark.parametrize("format", ["", "%d.%m.%Y"])
def test_a_date_of_a_sheet_needs_no_format(tmp_path, format):
    path, when = tmp_path / "r.xlsx", datetime.datetime(2020, 1, 1)
    workbook(path, ["seen", "y"], [(when, 0), ("01.01.2020" if format else "2020-01-01", 1)])
    seen = {"type": "date", "low": "2019-01-01", "high": "2021-01-01"} | ({"format": format} if format else {})
    schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"seen": seen}})
    X = schema.read(path, policy=SIMULATION).X
    assert X[0] == X[1]


def test_what_is_no_workbook_is_named(tmp_path):
    pytest.importorskip("openpyxl")
    (tmp_path / "r.xlsx").write_text("a,y\n1,2\n")
    with pytest.raises(DataError, match=r"no workbook that can be read .*save it as .xlsx again, or as CSV"):
        load(tmp_path / "r.xlsx")
    with pytest.raises(DataError, match=r"\.xls files are not read; save the sheet as \.xlsx or CSV"):
        load(tmp_path / "r.xls")
    with pytest.raises(DataError, match="there is no such file"):
        load(tmp_path / "gone.xlsx")
    workbook(tmp_path / "empty.xlsx", ["a", "y"], [])
    with pytest.raises(DataError, match="holds no records"):
        load(tmp_path / "empty.xlsx", label="y")


def test_without_openpyxl_the_error_says_what_to_install(tmp_path, monkeypatch):
    import importlib

    def gone(name):
        raise ImportError(name)

    (tmp_path / "r.xlsx").write_bytes(b"PK")
    monkeypatch.setattr(importlib, "import_module", gone)
    with pytest.raises(DataError, match=r"type pip install 'sottovoce\[excel\]', or save the sheet as CSV"):
        load(tmp_path / "r.xlsx")


def test_one_cell_changes_one_row(tmp_path):
    """With a guarantee a value of another type in one cell moves no other record."""
    schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": {"low": 0, "high": 9}}})
    rows = [(k % 10, k % 2) for k in range(50)]
    workbook(tmp_path / "r.xlsx", ["a", "y"], rows)
    whole = schema.read(tmp_path / "r.xlsx")
    for odd in ("a text", True, None, datetime.datetime(2020, 1, 1), "1,5", 1e308):
        workbook(tmp_path / "s.xlsx", ["a", "y"], [*rows[:-1], (odd, 1)])
        other = schema.read(tmp_path / "s.xlsx")
        assert np.array_equal(other.X[:-1], whole.X[:-1]) and len(other.y) == len(whole.y), odd


def shares(path, word="k.A."):
    """Numbers with a sign of percent and dates, one cell of each column a word."""
    rows = [f"{k % 90},{k}%;{1 + k % 28:02}.03.20{10 + k % 15};{'ja' if k % 3 else 'nein'}" for k in range(60)]
    rows[7] = f"{word};{word};ja"
    path.write_text("\n".join(["share;seen;sick", *rows, ""]))
    return path


def test_a_word_for_an_empty_cell_hides_no_number_and_no_date(tmp_path):
    path = shares(tmp_path / "r.csv")
    plain = draft(path, label="sick")
    assert tomllib.loads(plain)["columns"]["share"]["type"] == "text"
    assert '# all but "k.A." are numbers' in plain and '# all but "k.A." are dates' in plain
    assert plain.count("draft again with --missing-value k.A.") == 2
    text = draft(path, label="sick", missing_values=["k.A."])
    tables = tomllib.loads(text)
    assert tables["columns"]["share"]["suffix"] == "%" and tables["columns"]["seen"]["format"] == "%d.%m.%Y"
    assert "k.A." in tables["missing_values"] and "all but" not in text


def test_a_codebook_s_number_has_its_sign_whatever_words_are_in_it(tmp_path):
    path, book = shares(tmp_path / "r.csv"), tmp_path / "book.csv"
    book.write_text("column,type,low,high,values,missing\nshare,number,0,100,,50\nseen,ignored,,,,\n")
    tables = tomllib.loads(draft(path, label="sick", codebook=read_codebook(book)))
    assert tables["columns"]["share"]["suffix"] == "%"
    notes = []
    rows = schema_of(tables).read(path, policy=ReadPolicy(False, False, lambda *note: notes.append(note))).X
    assert rows[0, 0] == pytest.approx(-1.0) and rows[7, 0] == 0.0 and rows[8, 0] == pytest.approx(-0.824)  # 8,8%
    assert [count for _, count in notes] == [1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("shre,number,0,100", r"no column 'shre'; did you mean 'share'\?"),
        ("share,ignore,,", r"'share' has the type 'ignore'; write one of number, .*, ignored"),
        ("share,label,,", "'share' has the type 'label'"),
        ('share,number,"-4,0",100', r"low of 'share' is '-4,0'; write a number with a decimal point, as in -4\.0"),
        ("share,number,0,10.000", r"high of 'share' is '10\.000', .* write 10000 or 10\.0000"),
        ("share,number,100,0", "'share' needs low < high, not 100 and 0"),
        ("share,number,nan,1", "low of 'share' is 'nan'"),
        ("share,number,0,1,,many", "missing of 'share' is 'many'"),
        ("seen,date,1.1.2010,2030-01-01", r"low of 'seen' is '1\.1\.2010'; write a date such as"),
        ("seen,date,2030-01-01,2010-01-01", "'seen' needs low < high"),
    ],
)
def test_a_codebook_is_checked_when_it_is_read(tmp_path, line, words):
    path, book = shares(tmp_path / "r.csv"), tmp_path / "book.csv"
    book.write_text(f"column,type,low,high,values,missing\n{line}\n")
    with pytest.raises(DataError, match=words):
        draft(path, label="sick", codebook=read_codebook(book))


@pytest.mark.parametrize("values", ["", "ja|nein"])
def test_a_draft_says_which_class_is_the_positive_one(tmp_path, values):
    path, book = shares(tmp_path / "r.csv"), tmp_path / "book.csv"
    book.write_text(f"column,type,low,high,values\nsick,{'label' if values else ''},,,{values}\n")
    text = draft(path, label="sick", codebook=read_codebook(book))
    assert "# 'nein' is the positive class" in text.splitlines()[text.splitlines().index("[label]") + 2]
