"""Files in, tables out: every format there and back."""

import bz2
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from sottovoce.data.load import FORMATS, as_reals, as_signs, load
from sottovoce.errors import DataError, SottovoceError, SpecError

PACK = {"": lambda b: b, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
once_per_file = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # each example overwrites the file


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def csv(columns: dict[str, list], delimiter: str = ",") -> str:
    rows = [
        delimiter.join(columns),
        *(delimiter.join(str(v) for v in row) for row in zip(*columns.values(), strict=True)),
    ]
    return "\n".join(rows) + "\n"


def svmlight(X, y, zero_based: bool) -> bytes:
    file = io.BytesIO()
    dump_svmlight_file(X, y, file, zero_based=zero_based)
    return file.getvalue()


# ---- svmlight


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", FORMATS["svmlight"])
def test_svmlight_round_trip(tmp_path, ending, packing):
    X = sparse.csr_array(np.array([[1.5, 0.0, -2.0], [0.0, 0.0, 0.0], [0.0, 0.25, 3.0]]))
    y = np.array([1.0, -1.0, 1.0])
    path = write(tmp_path / f"data{ending}{packing}", PACK[packing](svmlight(X, y, zero_based=False)))
    table = load(path)
    assert sparse.issparse(table.X) and table.X.format == "csr" and table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    np.testing.assert_array_equal(table.y, y)
    assert table.groups is None and table.features is None and table.name == str(path)


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_indices_from_zero_or_one(tmp_path, zero_based):
    X = sparse.csr_array(np.array([[1.0, 2.0, 0.0, 4.0]]))
    table = load(write(tmp_path / "a.svm", svmlight(X, np.array([1.0]), zero_based)))
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())


def test_svmlight_padded_and_refused_when_too_wide(tmp_path):
    path = write(tmp_path / "a.svm", "+1 1:1 3:2\n-1 2:1\n")
    assert load(path).X.shape == (2, 3)
    wide = load(path, n_features=7)
    assert wide.X.shape == (2, 7) and wide.X.nnz == 3 and wide.X.indices.dtype == np.int32
    np.testing.assert_array_equal(wide.X.toarray()[:, 3:], 0)
    with pytest.raises(DataError, match=r"has 3 features where 2 are expected"):
        load(path, n_features=2)


@once_per_file
@given(data=st.data(), n=st.integers(1, 6), m=st.integers(1, 5))
def test_svmlight_round_trip_of_any_matrix(tmp_path, data, n, m):
    dense = np.array(data.draw(st.lists(numbers, min_size=n * m, max_size=n * m))).reshape(n, m)
    dense *= np.array(data.draw(st.lists(st.booleans(), min_size=n * m, max_size=n * m))).reshape(n, m)
    y = np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)))
    lines = []
    for row, target in zip(dense, y, strict=True):
        lines.append(" ".join([repr(float(target)), *(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v)]))
    table = load(write(tmp_path / "any.svm", "\n".join(lines) + "\n"), n_features=m)
    np.testing.assert_array_equal(table.X.toarray(), dense)
    np.testing.assert_array_equal(table.y, y)


# ---- CSV, TSV, Parquet


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize(("ending", "delimiter"), [(".csv", ","), (".tsv", "\t"), (".CSV", ",")])
def test_csv_round_trip(tmp_path, ending, delimiter, packing):
    columns = {"a": [1, 2, 3], "owner": ["007", "7", "x y"], "b": [0.1, -2e-7, 3.5], "t": ["true", "false", "true"]}
    text = csv({**columns, "label": [1, -1, 1]}, delimiter)
    table = load(write(tmp_path / f"d{ending}{packing}", PACK[packing](text.encode())), group="owner")
    np.testing.assert_array_equal(table.X, [[1, 0.1, 1], [2, -2e-7, 0], [3, 3.5, 1]])
    assert table.X.dtype == np.float64 and table.X.flags.c_contiguous
    assert table.features == ("a", "b", "t")
    assert table.groups.dtype.kind == "U" and table.groups.tolist() == ["007", "7", "x y"]
    assert table.y.dtype == np.float64 and table.y.tolist() == [1, -1, 1]


@once_per_file
@given(data=st.data(), n=st.integers(1, 6), m=st.integers(1, 5))
def test_csv_round_trip_of_any_numbers(tmp_path, data, n, m):
    X = np.array(data.draw(st.lists(numbers, min_size=n * m, max_size=n * m))).reshape(n, m)
    y = data.draw(st.lists(numbers, min_size=n, max_size=n))
    columns = {f"x{j}": [repr(float(v)) for v in X[:, j]] for j in range(m)}
    table = load(write(tmp_path / "any.csv", csv({"y": [repr(v) for v in y], **columns})))
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    assert table.features == tuple(columns)


@pytest.mark.parametrize("ending", FORMATS["parquet"])
def test_parquet_round_trip(tmp_path, ending):
    columns = {
        "i": pa.array([1, 2, 3], pa.int8()),
        "f": pa.array([0.5, 1.5, -2.5], pa.float32()),
        "b": pa.array([True, False, True]),
        "owner": pa.array(["p", "q", "p"]).dictionary_encode(),
        "class": pa.array(["no", "yes", "no"]).dictionary_encode(),
    }
    folder = tmp_path / "year=2020"  # no column may be made up from this folder's name
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / f"d{ending}")
    table = load(folder / f"d{ending}", group="owner")
    np.testing.assert_array_equal(table.X, [[1, 0.5, 1], [2, 1.5, 0], [3, -2.5, 1]])
    assert table.X.dtype == np.float64 and table.features == ("i", "f", "b")
    assert table.groups.tolist() == ["p", "q", "p"] and table.y.tolist() == ["no", "yes", "no"]


def test_parquet_of_single_precision_stays_single(tmp_path):
    X = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": np.arange(5)}), tmp_path / "d.parquet", row_group_size=2)
    table = load(tmp_path / "d.parquet")
    assert table.X.dtype == np.float32 and table.y.dtype == np.float64
    np.testing.assert_array_equal(table.X, X)


@pytest.mark.parametrize("label", ["label", "y", "target", "class"])
def test_usual_label_names_are_found(tmp_path, label):
    table = load(write(tmp_path / "d.csv", csv({"a": [1, 2], label: [3, 4], "b": [5, 6]})))
    assert table.features == ("a", "b") and table.y.tolist() == [3, 4]


def test_named_label_leaves_usual_names_to_the_features(tmp_path):
    path = write(tmp_path / "d.csv", csv({"y": [1, 2], "outcome": [3, 4], "class": [5, 6]}))
    table = load(path, label="outcome")
    assert table.features == ("y", "class") and table.y.tolist() == [3, 4]


def test_owners_are_kept_as_written_even_under_a_label_s_name(tmp_path):
    path = write(tmp_path / "d.csv", csv({"a": [1, 2, 3], "class": ["007", "7", "1.50"], "y": [1, 2, 3]}))
    table = load(path, group="class")
    assert table.groups.tolist() == ["007", "7", "1.50"] and table.features == ("a",) and table.y.tolist() == [1, 2, 3]


def test_file_to_predict_needs_no_label(tmp_path):
    path = write(tmp_path / "d.csv", csv({"a": [1, 2], "b": [3, 4]}))
    assert load(path, require_label=False).y is None
    assert load(path, require_label=False, label="outcome", positive="x", n_features=2).y is None
    with pytest.raises(DataError, match="has 2 features where 3 are expected"):
        load(path, require_label=False, n_features=3)


def test_format_given_overrides_the_name(tmp_path):
    path = write(tmp_path / "d.dat", csv({"a": [1, 2], "y": [3, 4]}))
    assert load(path, format="csv").features == ("a",)
    assert load(write(tmp_path / "e.csv", "a\ty\n1\t2\n"), format="tsv").y.tolist() == [2]


def test_positive_class_maps_labels_at_loading(tmp_path):
    path = write(tmp_path / "d.csv", csv({"a": [1, 2, 3], "y": ["no", "yes", "no"]}))
    assert load(path, positive="no").y.tolist() == [1, -1, 1]


def test_columns_numbered_by_their_place_are_names(tmp_path):
    assert load(write(tmp_path / "d.csv", "0,1\n5,6\n"), label="1").y.tolist() == [6]
    assert load(write(tmp_path / "d.csv", "1,2\n5,6\n"), label="1").y.tolist() == [5]


def test_byte_order_mark_and_carriage_returns(tmp_path):
    table = load(write(tmp_path / "d.csv", "\ufefflabel,a\r\n1,2\r\n-1,3\r\n"))
    assert table.features == ("a",) and table.y.tolist() == [1, -1]


# ---- nothing but our own errors


@once_per_file
@given(content=st.one_of(st.binary(max_size=60), st.text('01234.:,-+en\n\t #"ayPAR', max_size=60).map(str.encode)))
@pytest.mark.parametrize("name", ["d.svm", "d.csv", "d.tsv", "d.parquet", "d.csv.gz", "d.svm.xz", "d.svm.bz2"])
def test_whatever_the_bytes_only_our_errors(tmp_path, name, content):
    path = write(tmp_path / name, content)
    for require_label in (True, False):
        try:
            table = load(path, require_label=require_label)
        except SottovoceError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            assert table.n_records > 0 and table.m > 0


# ---- labels


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=2).filter(lambda b: len(set(b)) == 2), numbers, numbers)
def test_signs_follow_the_order_of_the_classes(which, a, b):
    if a == b:
        return
    low, high = sorted((a, b))
    signs, names = as_signs(np.where(which, high, low))
    np.testing.assert_array_equal(signs, np.where(which, 1.0, -1.0))
    assert names == (low, high)
    flipped, swapped = as_signs(np.where(which, high, low), positive=low)
    np.testing.assert_array_equal(flipped, -signs)
    assert swapped == (high, low)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["aye", "nay"]), min_size=1).map(lambda x: [*x, "aye", "nay"]))
def test_signs_of_text(labels):
    expected = [1.0 if label == "nay" else -1.0 for label in labels]
    for y in (np.array(labels), np.array(labels, dtype=object), labels):
        signs, names = as_signs(y)
        assert signs.dtype == np.float64 and signs.tolist() == expected and names == ("aye", "nay")


def test_signs_are_fixed_by_signs():
    y = np.array([1.0, -1.0, -1.0, 1.0])
    np.testing.assert_array_equal(as_signs(y)[0], y)


def test_plus_one_in_text_is_a_number():  # in the alphabet '+' comes before '-'
    assert as_signs(["+1", "-1"])[0].tolist() == [1, -1]


def test_positive_class_from_the_command_line():
    assert as_signs([1, 2], positive="1") == (pytest.approx([1, -1]), (2.0, 1.0))
    assert as_signs([True, False])[0].tolist() == [1, -1]


@pytest.mark.parametrize(
    ("y", "positive", "message"),
    [
        ([], None, r"there are no labels, and classification needs two classes; add"),
        ([3, 3, 3], None, r"all 3 labels are 3\.0, and classification needs two classes; add"),
        (["a", "a"], None, r"all 2 labels are 'a'"),
        ([1, 2, 3], None, r"the labels have 3 classes \(1\.0, 2\.0, 3\.0\), .* between two; keep or merge"),
        (list("abcdef"), None, r"have 6 classes \('a', 'b', 'c', 'd', …\)"),
        ([1, 2], 3, r"no label is 3; the positive class must be 1\.0 or 2\.0"),
        ([1, 2], "yes", r"no label is 'yes'"),
        (["a", "b"], "c", r"no label is 'c'; the positive class must be 'a' or 'b'"),
        ([1, np.nan, 2], None, r"label of record 2 is nan; give"),
        (np.array(["a", 1, "b"], dtype=object), None, r"mix text and numbers"),
        (np.array(["a", None, "b"], dtype=object), None, r"some are missing"),
        (np.array([None, None]), None, r"none may be missing"),
        (np.eye(2), None, r"one a record, not an array of 2 dimensions"),
    ],
)
def test_signs_refused(y, positive, message):
    with pytest.raises(DataError, match=message):
        as_signs(y, positive)


def test_reals():
    np.testing.assert_array_equal(as_reals(["1", "2.5"]), [1, 2.5])
    with pytest.raises(DataError, match=r"targets must be numbers, not text such as 'low'; encode"):
        as_reals(["low", "high"])
    with pytest.raises(DataError, match="record 2 is inf"):
        as_reals([1, np.inf])


def test_arguments_without_meaning(tmp_path):
    path = write(tmp_path / "d.csv", "a,y\n1,2\n")
    with pytest.raises(SpecError, match="'xml' is no format known here; choose one of svmlight, csv, tsv, parquet"):
        load(path, format="xml")
    with pytest.raises(SpecError, match="label and the group cannot both be the column 'y'"):
        load(path, label="y", group="y")
    for named in ({"label": "y"}, {"group": "y"}):
        with pytest.raises(SpecError, match="svmlight files have no named columns"):
            load(tmp_path / "d.svm", **named)
