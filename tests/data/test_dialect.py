"""Files as people really write them: every dialect gives the same table."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.data.dialect import Dialect, found
from sottovoce.data.load import load
from sottovoce.data.policy import SIMULATION
from sottovoce.data.values import read_columns
from sottovoce.errors import DataError, SpecError

ROWS = [("1.75", "Köln, Süd", "yes"), ("-0.5", 'the "best"', "no"), ("12", "Bonn|West;", "yes")]


def written(separator, decimal, encoding, end="\n", mark=False):
    """The rows as a file in a dialect, every text in quotes."""
    lines = [separator.join(["größe", "ort", "label"])]
    for size, place, label in ROWS:
        quoted = '"' + place.replace('"', '""') + '"'
        lines.append(separator.join([size.replace(".", decimal), quoted, label]))
    text = end.join(lines) + end
    return (("\ufeff" if mark else "") + text).encode(encoding)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", False), ("utf-8", True), ("cp1252", False), ("utf-16", False)]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_dialect_is_found_and_gives_the_same_table(tmp_path, separator, decimal, encoding, mark, end):
    if separator == decimal:
        pytest.skip("a comma cannot be both")
    path = tmp_path / "places.csv"
    path.write_bytes(written(separator, decimal, encoding, end, mark))
    dialect = found(path, Dialect())
    assert (dialect.separator, dialect.decimal) == (separator, decimal)
    if encoding == "utf-16":  # a line of it ends in the middle of other bytes
        with pytest.raises(SpecError, match="save the file as utf-8"):
            read_columns(path, "csv", ["größe"], ["ort"], policy=SIMULATION)
    else:
        columns = read_columns(path, "csv", ["größe"], ["ort"], policy=SIMULATION)
        assert columns.numbers["größe"].tolist() == [1.75, -0.5, 12.0]
        assert columns.texts["ort"].tolist() == [place for _, place, _ in ROWS]
    table = load(path, group="ort")
    assert table.X.tolist() == [[1.75], [-0.5], [12.0]] and table.y.tolist() == ["yes", "no", "yes"]


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_compressed_files_are_read(tmp_path, ending):
    path, content = tmp_path / f"places.csv.{ending}", written(";", ",", "latin-1")
    squeeze = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": pa.Codec("zstd").compress}[ending]
    path.write_bytes(bytes(squeeze(content)))
    assert load(path, group="ort").X[:, 0].tolist() == [1.75, -0.5, 12.0]
    svm = tmp_path / f"places.svm.{ending}"
    svm.write_bytes(bytes(squeeze(b"1 1:0.5 3:2\n-1 2:1\n")))
    assert load(svm).X.toarray().tolist() == [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]


def test_what_is_given_is_not_guessed(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("a,b;label\n1,5;0\n2,5;1\n")
    assert load(path, dialect=Dialect(separator=";", decimal="comma")).features == ("a,b",)
    with pytest.raises(DataError, match="no column is called"):
        load(path, dialect=Dialect(separator="comma"))


@pytest.mark.parametrize(
    "wrong", [{"separator": "ab"}, {"decimal": ";"}, {"encoding": "klingon"}, {"separator": ",", "decimal": ","}]
)
def test_impossible_dialects_are_refused(wrong):
    with pytest.raises(SpecError):
        Dialect(**wrong)


def test_letters_of_another_encoding_are_named(tmp_path):
    path = tmp_path / "late.csv"
    path.write_bytes(b"a,label\n" + b"1,no\n" * 100_000 + "1,übel\n".encode("latin-1"))
    with pytest.raises(DataError, match="name its encoding, as in --encoding cp1252"):
        load(path)
    assert load(path, dialect=Dialect(encoding="latin-1")).y[-1] == "übel"


def test_a_table_of_any_width_is_read(tmp_path):
    path, m = tmp_path / "wide.csv", 100_000
    names = ",".join(f"feature{j}" for j in range(m))
    path.write_text(f"{names},label\n" + ",".join(["0.5"] * m) + ",1\n" + ",".join(["1"] * m) + ",0\n")
    table = load(path)
    assert table.X.shape == (2, m) and np.all(table.X[0] == 0.5)


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.lists(st.decimals(-999, 999, places=2), min_size=2, max_size=4), min_size=2, max_size=6),
    separator=st.sampled_from(";\t|"),
    decimal=st.sampled_from(".,"),
)
def test_numbers_survive_every_dialect(tmp_path_factory, numbers, separator, decimal):
    width = min(map(len, numbers))
    path = Path(tmp_path_factory.mktemp("numbers"), "numbers.csv")
    lines = [separator.join([*(f"c{j}" for j in range(width)), "y"])]
    lines += [separator.join([*(str(v).replace(".", decimal) for v in row[:width]), "1"]) for row in numbers]
    path.write_text("\n".join(lines) + "\n")
    assert load(path).X.tolist() == [[float(v) for v in row[:width]] for row in numbers]
