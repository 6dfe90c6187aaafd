"""One record changes one encoded row, whatever is in it; nothing else about a file depends on a record."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce.data.dialect import Dialect
from sottovoce.data.layout import Layout
from sottovoce.data.lines import check_encoding
from sottovoce.data.policy import GUARANTEE, SIMULATION, ReadPolicy
from sottovoce.data.schema import Label, plain_columns, schema_of
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import row_norms

RECORDS = 40
RNG = np.random.default_rng(7)
TABLES = {
    "label": {"column": "y", "classes": ["no", "yes"]},
    "columns": {
        "age": {"type": "number", "low": 0, "high": 120, "missing": 50},
        "dose": {"type": "number", "low": -1, "high": 5},
        "ward": {"type": "category", "categories": ["A", "B"], "missing": "none"},
        "smoker": {"type": "flag", "categories": ["no", "yes"]},
        "seen": {"type": "date", "low": "2015-01-01", "high": "2025-01-01", "missing": "2020-01-01"},
        "note": {"type": "text", "buckets": 8},
    },
}
NAMES = ["age", "dose", "ward", "smoker", "seen", "note", "y"]
MESSY = schema_of(TABLES)
PEOPLE = schema_of(TABLES | {"unit": "who"})
PLAIN = plain_columns(["a", "b", "c", "y"], Label("", ("-1", "1")), Layout(), "r.csv")
NUMBERED = schema_of(
    {"label": {"column": "y", "classes": [-1, 1]}, "features": 6, "low": -2, "high": 2, "first_index": 1}
)
SPARSE_PLAIN = schema_of(
    {"label": {"column": "y", "low": -1, "high": 1}, "features": 6, "low": -2, "high": 2, "first_index": 0}
)


def messy_line(k, rng):
    ward, smoker = "AB"[k % 2], ("no", "yes")[k % 3 == 0]
    return f'{rng.integers(0, 120)},{rng.uniform(-1, 5):.3f},{ward},{smoker},2019-0{1 + k % 9}-11,"fever, {k}",{smoker}'


SOURCES = {
    "csv by a schema": (MESSY, "r.csv", ",".join(NAMES), lambda k, rng: messy_line(k, rng)),
    "csv of people": (PEOPLE, "r.csv", ",".join([*NAMES, "who"]), lambda k, rng: f"{messy_line(k, rng)},p{k}"),
    "csv by options": (
        PLAIN,
        "r.csv",
        "a,b,c,y",
        lambda k, rng: ",".join([*(f"{v:.4f}" for v in rng.uniform(-1, 1, 3)), "-1" if k % 2 else "1"]),
    ),
    "svmlight by a schema": (
        NUMBERED,
        "r.svm",
        None,
        lambda k, rng: f"{'-1' if k % 2 else '1'} 1:{rng.uniform(-1, 1):.4f} {2 + k % 5}:{rng.uniform(-1, 1):.4f}",
    ),
    "svmlight of a regression": (
        SPARSE_PLAIN,
        "r.svm",
        None,
        lambda k, rng: f"{rng.uniform(-1, 1):.3f} 0:{rng.uniform(-1, 1):.4f} {1 + k % 5}:{rng.uniform(-1, 1):.4f}",
    ),
}

WICKED = [
    b"", b" ", b",", b",,,,,,", b",,,,,,,", b'"', b'""', b'"""', b'1,"2', b'"a,b', b"\xff\xfe", b"\x00", b"\r",
    b"1\r2,3,4,5", "1,5;2;3".encode("utf-16-le"), b"\xe9,1,A,no,2019-01-01,x,yes", b"1;2;3;4;5;6;7",
    b"nan,nan,nan,nan,nan,nan,nan", b"inf,-inf,inf,inf,inf,inf,yes", b"1e308,-1e308,A,no,9999-12-31,x,yes",
    b"-1e999,1e999,B,yes,0001-01-01,y,no", b"1,2,A,no,2019-01-01,x,perhaps", b"1,2,A,no,2019-01-01,x,",
    b"1_0,0x10,A,no,31.12.2019,x,yes", b"1,2,Z,maybe,soon,x,yes", b'1,2,A,no,2019-01-01,"x ""y""",yes',
    b'5,2,A,no,2019-01-01,"line\\nend",yes,p1', b"5,2,A,no,2019-01-01,x,yes,", b"1e308,1e308,1e308,1", b"0,0,0,7",
    b"1,,2,-1", b"1,2,3,", b"1,2,3,1.0", b"#", b"# comment", b"1 0:5 1:2", b"1 1:1e308 2:-1e308", b"1 1:nan 2:inf",
    b"1", b"nan 1:1", b"inf 1:1", b"x 1:1", b"1 7:1", b"1 99999999999999999999:1", b"1 -1:2", b"1 3:1 2:1",
    b"1 2:1 2:1", b"1 qid:3 1:1", b"1,1 1:1", b"3 1:1", b"1e308 1:1", b"1 1:", b"1 :1", b"1 1000000000:1",
    b"1 1:1 # note", b"\xef\xbb\xbf1 1:1", b"\xef\xbb\xbf1,2,A,no,2019-01-01,x,yes", b"\xef\xbb\xbf1,1,1,1",
]  # fmt: skip
"""Lines that someone's record could be."""
lines = st.one_of(
    st.sampled_from(WICKED),
    st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b"")),
    st.lists(
        st.one_of(
            st.floats().map(repr), st.integers().map(str), st.text(max_size=6), st.sampled_from(["A", "no", '"', "1:2"])
        ),
        max_size=9,
    ).map(lambda cells: ",".join(cells).encode("utf-8", "surrogatepass").replace(b"\n", b"")),
)


def written(folder, kind):
    """A file of this kind, and its lines."""
    _, name, header, line = SOURCES[kind]
    rng = np.random.default_rng(3)
    return folder / name, [] if header is None else [header.encode()], [line(k, rng).encode() for k in range(RECORDS)]


def read(path, head, rows, schema):
    path.write_bytes(b"\n".join([*head, *rows, b""]))
    return schema.read(path, policy=GUARANTEE)


def dense(X):
    return X.toarray() if hasattr(X, "toarray") else X


def changed(one, two, at=None):
    """Which rows differ in anything that a run sees; a line without the id of a person, at `at`, is nobody's."""
    if one.user_ids is not None and at is not None and len(two.y) == RECORDS - 1:
        rest = np.arange(RECORDS) != at
        parts = (None if part is None else part[rest] for part in (one.X, one.y, one.user_ids, one.groups, one.usable))
        return changed(type(one)(*parts), two)
    return np.flatnonzero(
        np.any(dense(one.X) != dense(two.X), axis=1)
        | (one.y != two.y)
        | (one.usable != two.usable)
        | (False if one.user_ids is None else one.user_ids != two.user_ids)
    )


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, RECORDS - 1), wicked=lines)
def test_another_record_changes_one_row(tmp_path_factory, kind, at, wicked):
    schema = SOURCES[kind][0]
    path, head, rows = written(tmp_path_factory.mktemp("one"), kind)
    before = read(path, head, rows, schema)
    after = read(path, head, [*rows[:at], wicked, *rows[at + 1 :]], schema)
    assert before.X.shape == (RECORDS, schema.m) and after.X.dtype == before.X.dtype
    assert len(after.y) == RECORDS or before.user_ids is not None
    assert set(changed(before, after, at)) <= {at}
    assert np.all(row_norms(after.X) <= schema.row_norm) and np.all(np.isfinite(after.y))
    assert np.all(np.isfinite(dense(after.X)))


@pytest.mark.parametrize("kind", SOURCES)
def test_every_wicked_line_changes_one_row(tmp_path, kind):
    schema = SOURCES[kind][0]
    path, head, rows = written(tmp_path, kind)
    before = read(path, head, rows, schema)
    assert np.all(before.usable)
    for k, wicked in enumerate(WICKED):
        at = k % RECORDS
        after = read(path, head, [*rows[:at], wicked, *rows[at + 1 :]], schema)
        assert len(after.y) == RECORDS or before.user_ids is not None
        assert set(changed(before, after, at)) <= {at}, wicked
    everywhere = read(path, head, [WICKED[k % len(WICKED)] for k in range(RECORDS)], schema)
    alone = [read(path, head, [WICKED[k % len(WICKED)]], schema) for k in range(RECORDS)]
    assert np.array_equal(dense(everywhere.X), np.vstack([dense(one.X) for one in alone]))
    assert np.array_equal(everywhere.usable, np.concatenate([one.usable for one in alone]))


@pytest.mark.parametrize("kind", SOURCES)
def test_blocks_and_chunks_decide_nothing(tmp_path, kind, monkeypatch):
    schema = SOURCES[kind][0]
    path, head, rows = written(tmp_path, kind)
    mixed = [WICKED[k % len(WICKED)] if k % 3 == 0 else row for k, row in enumerate(rows)]
    whole = read(path, head, mixed, schema)
    monkeypatch.setattr("sottovoce.data.lines.BLOCK", 64)
    monkeypatch.setattr("sottovoce.data.lines.CHUNK_LINES", 3)
    parts = read(path, head, mixed, schema)
    assert not changed(whole, parts).size


def test_an_index_0_moves_one_row(tmp_path):
    """One record that gained index 0 used to shift every row of the file."""
    path, head, rows = written(tmp_path, "svmlight by a schema")
    before = read(path, head, rows, NUMBERED)
    after = read(path, head, [rows[0].replace(b" ", b" 0:0.5 ", 1), *rows[1:]], NUMBERED)
    assert changed(before, after).tolist() == [0] and not after.usable[0]
    silent = schema_of({"label": {"column": "y", "classes": [-1, 1]}, "features": 7, "low": -2, "high": 2})
    with pytest.raises(SpecError, match="first_index in the schema"):
        silent.read(path)
    guessed = [silent.read(path, policy=SIMULATION)]
    path.write_bytes(b"\n".join(rows))
    guessed.append(silent.read(path, policy=SIMULATION))
    assert np.count_nonzero(np.any(dense(guessed[0].X) != dense(guessed[1].X), axis=1)) > RECORDS / 2  # what it was


def test_one_byte_moves_one_row(tmp_path):
    """One byte that is no UTF-8 used to change the encoding of the whole file."""
    tables = {"label": TABLES["label"], "columns": {"note": {"type": "text", "buckets": 64}}}
    schema, path = schema_of(tables), tmp_path / "r.csv"
    rows = [f"größe {k} müde,{'yes' if k % 2 else 'no'}".encode() for k in range(RECORDS)]
    before = read(path, [b"note,y"], rows, schema)
    after = read(path, [b"note,y"], [b"gr\xf6\xdfe,yes", *rows[1:]], schema)
    assert changed(before, after).tolist() == [0]
    guessed = schema.read(path, policy=SIMULATION)
    assert np.count_nonzero(np.any(before.X != guessed.X, axis=1)) > 1  # what it was


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(0, RECORDS - 1),
    age=st.one_of(st.none(), st.floats()),
    text=st.one_of(st.none(), st.text(max_size=8)),
    label=st.sampled_from(["yes", "no", "perhaps", None, ""]),
)
def test_another_record_of_a_parquet_file_changes_one_row(tmp_path_factory, at, age, text, label):
    path = tmp_path_factory.mktemp("parquet") / "r.parquet"
    rng = np.random.default_rng(4)
    values = {
        "age": rng.uniform(0, 120, RECORDS).tolist(),
        "dose": rng.uniform(-1, 5, RECORDS).tolist(),
        "ward": ["AB"[k % 2] for k in range(RECORDS)],
        "smoker": ["no"] * RECORDS,
        "seen": ["2019-07-31"] * RECORDS,
        "note": ["fever"] * RECORDS,
        "y": ["yes", "no"] * (RECORDS // 2),
    }

    def found():
        types = {"age": pa.float64(), "dose": pa.float64()}
        pq.write_table(pa.table({name: pa.array(v, types.get(name, pa.string())) for name, v in values.items()}), path)
        return MESSY.read(path)

    before = found()
    for name, value in (("age", age), ("dose", age), ("y", label)):
        values[name][at] = value
    for name in ("ward", "smoker", "seen", "note"):
        values[name][at] = text
    after = found()
    assert len(after.y) == RECORDS and set(changed(before, after)) <= {at}


def test_the_owner_is_notified_and_nothing_is_refused(tmp_path):
    path, head, rows = written(tmp_path, "csv by a schema")
    details = {}
    path.write_bytes(b"\n".join([*head, b"1,2", b"x,1,A,no,2019-01-01,z,yes", b"1,1,A,no,2019-01-01,z,maybe", *rows]))
    found = MESSY.read(path, policy=ReadPolicy.of(True, lambda what, records: details.update({what: records})))
    assert found.usable[:4].tolist() == [False, True, False, True] and found.X[1, 0] == pytest.approx(2 * 50 / 120 - 1)
    assert sorted(details.values()) == [1, 1, 1] and not any("2019" in what for what in details)
    with pytest.raises(DataError, match="record 1 has another number of fields"):
        MESSY.read(path, policy=SIMULATION)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7", "utf-32", "cp037"])
def test_an_encoding_that_is_no_lines_is_refused_by_its_name(tmp_path, encoding):
    (tmp_path / "r.csv").write_bytes("note,y\nx,yes\n".encode(encoding))
    tables = {"label": TABLES["label"], "columns": {"note": {"type": "text", "buckets": 4}}}
    with pytest.raises(SpecError, match="save the file as utf-8"):
        schema_of(tables | {"dialect": {"encoding": encoding}}).read(tmp_path / "r.csv")


@pytest.mark.parametrize("encoding", ["unicode_escape", "raw_unicode_escape", "iso2022_jp", "hz", "idna", "punycode"])
def test_an_encoding_with_escapes_is_refused(encoding):
    """The two letters backslash and n would be a line end, and shift all rows after this one."""
    with pytest.raises(SpecError, match="cannot be read line by line"):
        check_encoding(Dialect(",", ".", encoding))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "gbk"])
def test_a_mark_before_a_record_is_a_part_of_its_first_cell_wherever_it_lies(tmp_path, encoding, monkeypatch):
    """Arrow took it off the first line of a block: then the length of other records decided what this one is."""
    rows = [b"1,0"] * 5 + [b"\xef\xbb\xbf7,1"] + [b"2,1"] * 3
    (tmp_path / "r.csv").write_bytes(b"\xef\xbb\xbf" * (encoding == "utf-8-sig") + b"a,y\n" + b"\n".join(rows))
    schema = plain_columns(["a", "y"], Label("", ("0", "1")), Layout(encoding=encoding), "r.csv")
    found = []
    for size in (1 << 20, 4, 24, 27):
        monkeypatch.setattr("sottovoce.data.lines.BLOCK", size)
        found.append(schema.read(tmp_path / "r.csv", policy=GUARANTEE))
        assert found[-1].usable.tolist() == [k != 5 for k in range(9)] and not changed(found[0], found[-1]).size


def test_a_wrong_default_fails_at_the_header(tmp_path):
    (tmp_path / "r.csv").write_text("note;y\nx;yes\n")
    schema = schema_of({"label": TABLES["label"], "columns": {"note": {"type": "text", "buckets": 4}}})
    with pytest.raises(DataError, match=r"no column 'y': read with commas .*'note;y'; give --separator semicolon, or"):
        schema.read(tmp_path / "r.csv")
