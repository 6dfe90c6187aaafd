"""A text is the same table in blocks of any size: cut at line ends that are not between quotes, decoded whole."""

import csv
import io
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.data.dialect import Dialect, read_text, text_blocks
from sottovoce.data.load import load
from sottovoce.data.policy import SIMULATION
from sottovoce.data.schema import schema_of
from sottovoce.data.tables import LARGE, Growing
from sottovoce.errors import DataError

WORDS = st.text(alphabet='ab ;,"\n\r\té', max_size=6)
TYPES = {"number": pa.float64(), "word": pa.string()}


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-99, 99), WORDS), min_size=1, max_size=12),
    size=st.integers(1, 60),
    separator=st.sampled_from(",;\t"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16"]),
)
def test_blocks_of_any_size_are_the_whole_file(tmp_path_factory, rows, size, separator, encoding):
    path, text = tmp_path_factory.mktemp("blocks") / "r.csv", io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([("number", "word"), *rows])
    path.write_bytes(text.getvalue().encode(encoding))
    dialect = Dialect(separator, ".", encoding.removesuffix("-sig"))
    parts = list(text_blocks(path, dialect, TYPES, size))
    assert pa.concat_tables(parts).to_pylist() == read_text(path, dialect, TYPES).to_pylist()
    assert sum(part.num_rows for part in parts) == len(rows)


def test_a_number_that_is_none_in_a_later_block_is_reported_with_its_record(tmp_path, monkeypatch):
    path = tmp_path / "r.csv"
    path.write_text("a,y\n" + "1,1\n" * 30 + "x,1\n")
    monkeypatch.setattr(text_blocks, "__defaults__", (None, 40))
    assert len(list(text_blocks(path, Dialect(), {"a": pa.string()}))) > 2
    with pytest.raises(DataError, match="record 31 has 'x'"):
        load(path)
    schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": {"low": 0, "high": 2}}})
    monkeypatch.setattr("sottovoce.data.lines.BLOCK", 40)
    with pytest.raises(DataError, match="holds something else in record 31"):
        schema.read(path, policy=SIMULATION)
    path.write_text("a,y\n" + "1,1\n" * 30 + ",1\n")
    with pytest.raises(DataError, match="has no value in record 31"):
        load(path)
    with pytest.raises(DataError, match="has no value in record 31"):
        schema.read(path, policy=SIMULATION)
    path.write_text("a,y\n" + "1,1\n" * 30 + "1.5,yes\n")
    assert load(path).X[-1, 0] == 1.5 and load(path).y.tolist()[-2:] == ["1", "yes"]


def test_many_numbers_are_kept_in_single_precision_and_never_twice():
    few, many = Growing(), Growing(large=10)
    for rows in (few, many):
        for k in range(4):
            rows.add(np.full((2, 3), k + 0.1))
    assert few.whole().dtype == np.float64
    whole = many.whole()
    assert whole.dtype == np.float32 and whole.shape == (8, 3)
    np.testing.assert_array_equal(whole[:, 0], np.repeat(np.arange(4) + 0.1, 2).astype(np.float32))
    assert LARGE * 4 == 2**27


def test_a_line_of_over_a_megabyte_is_read_and_leaves_no_thread(tmp_path):
    path, width = tmp_path / "wide.csv", 8_000
    header = ",".join(f"f{j}" for j in range(width))
    path.write_text(f"{header},y\n" + f"0.125{'0' * 130}," * width + "1\n" + "-3.5," * width + "2\n")
    assert max(map(len, path.read_text().splitlines())) > 1 << 20
    before = set(threading.enumerate())
    table = load(path)
    assert table.X.shape == (2, width) and table.X[1, -1] == -3.5 and set(threading.enumerate()) <= before


def test_parquet_in_blocks_is_the_whole_file(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    label = np.where(X[:, 0] > 0, "yes", "no")
    columns = {f"f{j}": X[:, j] for j in range(4)} | {"y": label, "site": np.arange(50) % 3}
    pq.write_table(pa.table(columns), tmp_path / "r.parquet", row_group_size=7)
    whole = load(tmp_path / "r.parquet", group="site")
    monkeypatch.setattr("sottovoce.data.columns.NUMBERS", 40)
    details = []
    parts = load(tmp_path / "r.parquet", group="site", on_read=details.append)
    assert len(details) > 5 and details[-1] == 50 and parts.X.dtype == np.float32
    np.testing.assert_array_equal(parts.X, whole.X)
    assert parts.y.tolist() == whole.y.tolist() == label.tolist()
    assert parts.groups.tolist() == whole.groups.tolist()
