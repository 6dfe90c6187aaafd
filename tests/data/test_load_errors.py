"""Every file that cannot be used says so in one line: what was wrong, what was expected, what to do."""

import datetime
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce.data.load import load
from sottovoce.errors import DataError

GOOD = b"1 1:1 2:3\n-1 2:1\n" * 50
REFUSED = {
    # name of the file: content, arguments, message
    "empty.svm": (b"", {}, r"the file is empty; it should hold lines of 'label index:value …'"),
    "comments.svm": (b"# nothing\n\n", {}, r"the file is empty"),
    "empty.csv": (b"", {}, r"the file is empty; it should hold text with a header line"),
    "empty.parquet": (b"", {}, r"the file is empty; it should hold a Parquet file"),
    "empty.csv.gz": (gzip.compress(b""), {}, r"cannot be read as csv \(Empty CSV file\)"),
    "header.csv": (b"a,label\n", {}, r"holds no records, only the names of its columns; add"),
    "text.txt": (
        b"a,b,c\n1,2,3\n",
        {},
        r"cannot be read as svmlight \(.*'a,b,c'\); .*: its first line is that of .* --format csv",
    ),
    "nolabel.svm": (b"1:2 2:3\n", {}, r"cannot be read as svmlight .* with a number for a label"),
    "falling.svm": (b"1 3:1 2:1\n", {}, r"sorted and unique.* rising indices"),
    "huge.svm": (b"1 99999999999999999999:1\n", {}, r"cannot be read as svmlight"),
    "binary.svm": (bytes(range(256)), {}, r"cannot be read as svmlight"),
    "nan.svm": (
        b"1 1:1\n1 1:1 2:nan\n",
        {},
        r"record 2 has the value nan in its entry 2; every value must be",
    ),
    "inf.svm": (b"1\n1 1:-inf\n", {}, r"record 2 has the value -inf in its entry 1"),
    "nanlabel.svm": (b"1 1:1\nnan 1:1\n", {}, r"the label of record 2 is nan; give it a finite number"),
    "not.svm.xz": (GOOD, {}, r"cannot be read as svmlight \(Input format not supported"),
    "not.svm.bz2": (GOOD, {}, r"cannot be read as svmlight \(bz2 decompress failed"),
    "not.svm.gz": (GOOD, {}, r"cannot be read as svmlight \(zlib inflate failed"),
    "short.svm.gz": (gzip.compress(GOOD)[:-12], {}, r"cannot be read as svmlight"),
    "broken.svm.gz": (gzip.compress(GOOD)[:10] + b"\xff" * 20, {}, r"cannot be read as svmlight \(zlib inflate failed"),
    "broken.csv.gz": (gzip.compress(GOOD)[:12] + b"\xff" * 20, {}, r"cannot be read as csv"),
    "ragged.csv": (
        b"a,label\n1,2\n3\n",
        {},
        r"cannot be read as csv \(CSV parse error: Row #3: Expected 2 columns, got 1",
    ),
    "bytes.csv": (b"a,label\n" + b"1,2\n" * 80_000 + "é,2\n".encode("latin-1"), {}, "letters are not utf-8; name its"),
    "not.parquet": (b"a,label\n1,2\n", {}, r"cannot be read as parquet \(.*\); it should hold a Parquet file"),
    "packed.parquet.gz": (b"", {}, r"parquet files are not read from \.gz; decompress"),
    "odd.scale": (
        GOOD,
        {},
        r"the ending '\.scale' is of no format known here; say --format svmlight",
    ),
    "odd.scale.xz": (GOOD, {}, r"the ending '\.scale' is of no format"),
    "unlabelled.csv": (
        b"a,b\n1,2\n",
        {},
        r"no column is called 'label', 'y', 'target' or 'class'; name the label with --label, one of 'a' and 'b'$",
    ),
    "otherlabel.csv": (b"a,y\n1,2\n", {"label": "z"}, r"no label column 'z'; name with --label one of 'a' and 'y'$"),
    "twolabels.csv": (b"y,a,class\n1,2,3\n", {}, r"'y' and 'class' could each be the label; name the right one"),
    "nogroup.csv": (b"a,y\n1,2\n", {"group": "z"}, r"no column 'z' to group by; name with --group one of 'a' and 'y'$"),
    "many.csv": (
        ",".join(f"f{j}" for j in range(30)).encode() + b"\n" + b",".join([b"1"] * 30) + b"\n",
        {},
        r"'f10', 'f11' and 18 more$",
    ),
    "text.csv": (
        b"a,city,land,y\n1,Oslo,no,2\n",
        {},
        r"column 'city' holds text; describe it in a schema .* \(record 1 has 'Oslo'\)$",
    ),
    "slip.csv": (b"a,y\n1,1\n2,1\n3O,1\n", {}, r"column 'a' holds text; .* \(record 3 has '3O'\)$"),
    "date.csv": (b"a,y\n2020-01-01,1\n", {}, r"column 'a' holds dates or times; describe it in a schema"),
    "missing.csv": (b"a,b,y\n1,2,3\n4,5,6\n7,,9\n", {}, r"column 'b' has no value in record 3; say in a schema"),
    "na.csv": (b"a,y\n1,3\nNA,6\n", {}, r"column 'a' has no value in record 2"),
    "hollow.csv": (b"a,b,y\n1,,3\n1,,3\n", {}, r"column 'b' has no value in record 1"),
    "hole.csv": (b"a,b,y\nx,1,3\n ,1,3\n", {}, r"column 'a' has no value in record 2"),
    "nolabelvalue.csv": (b"a,y\n1,yes\n1,\n", {}, r"column 'y' has no value in record 2"),
    "noowner.csv": (b"a,g,y\n1,p,1\n1,,2\n", {"group": "g"}, r"column 'g' has no value in record 2"),
    "inf.csv": (b"a,y\n1,1\n-inf,1\n", {}, r"column 'a' has the value -inf in record 2; every value must be a finite"),
    "inflabel.csv": (b"a,y\n1,1\n1,inf\n", {}, r"column 'y' has the value inf in record 2"),
    "headerless.csv": (
        b"1,0.5,2\n1,2,3\n",
        {"require_label": False},
        r"first line holds numbers .*; add a header",
    ),
    "index.csv": (b",a,y\n0,1,2\n", {}, r"column 1 is an index without a name, which is no feature; .*index=False"),
    "quote.csv": (b'"a,y\n1,2\n"\n1\n', {}, r"name of column 1 holds a tab or a line break; check the quotes"),
    "lines.csv": (b'a,y\n"p\nq",2\n', {}, r"column 'a' holds text; .* \(record 1 has 'p�q'\)$"),
    "twice.csv": (b"a,b,a,y\n1,2,3,4\n", {}, r"2 columns are called 'a'; give every column a name of its own"),
    "alone.csv": (b"g,y\n1,2\n", {"group": "g"}, r"no columns besides the label and the owner; add at least one"),
}
PARQUET = {
    "text": ({"a": ["x"], "y": [1]}, {}, r"column 'a' holds text; describe it in a schema"),
    "digits": ({"a": ["12"], "y": [1]}, {}, r"column 'a' holds text; describe .* \(record 1 has '12'\)"),
    "null": ({"a": [1, None], "y": [1, 2]}, {}, r"column 'a' has no value in record 2"),
    "nan": ({"a": [0.0, 1.0, float("nan")], "y": [1, 2, 3]}, {}, r"column 'a' has no value in record 3"),
    "nulls": ({"a": pa.nulls(2), "y": [1, 2]}, {}, r"column 'a' has no value in record 1"),
    "lists": ({"a": [[1, 2]], "y": [1]}, {}, r"column 'a' holds values of type list<.*>; describe"),
    "dates": ({"a": [datetime.datetime(2020, 1, 1)], "y": [1]}, {}, r"column 'a' holds dates or times"),
    "owners": ({"a": [1], "g": [[1]], "y": [1]}, {"group": "g"}, r"column 'g' holds values of type list<"),
    "index": ({"a": [1], "y": [1], "__index_level_0__": [7]}, {}, r"column 3 is an index without a name"),
    "latin": (
        {"a": [1], "y": pa.array([b"\xe9"]).view(pa.string())},
        {},
        r"cannot be read as parquet \((Invalid UTF8|'utf-8' codec)",
    ),
    "none": ({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, {}, r"holds no records"),
    "nothing": ({}, {}, r"the file has no columns; it should have the label"),
}


def check(path, arguments, message):
    with pytest.raises(DataError, match=message) as caught:
        load(path, **arguments)
    text = str(caught.value)
    assert text.startswith(str(path)) and "\n" not in text and "; " in text
    assert caught.value.__cause__ is None and (caught.value.__context__ is None or caught.value.__suppress_context__)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    content, arguments, message = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    check(tmp_path / name, arguments, message)


@pytest.mark.parametrize("name", PARQUET)
def test_refused_parquet(tmp_path, name):
    columns, arguments, message = PARQUET[name]
    pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    check(tmp_path / f"{name}.parquet", arguments, message)


def test_truncated_parquet(tmp_path):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"a": list(range(100)), "y": list(range(100))}), path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-8] + b"\xff" * 4 + whole[-4:], b"PAR1" + b"\x00" * 60 + b"PAR1"):
        path.write_bytes(content)
        check(path, {}, r"cannot be read as parquet")


@pytest.mark.parametrize("ending", [".svm", ".csv", ".parquet", ".svm.xz", ""])
def test_missing_file_and_folder(tmp_path, ending):
    check(tmp_path / f"absent{ending}", {}, r"there is no such file; check the path")
    (tmp_path / f"folder{ending}").mkdir()
    check(tmp_path / f"folder{ending}", {}, r"this is a folder, and a file is needed; name a file in it")


def test_forbidden_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "secret.svm"
    path.write_bytes(GOOD)
    monkeypatch.setattr("sottovoce.data.load.opened", refuse)  # root, who may run this, can read every file
    check(path, {}, r"the file may not be read; give yourself permission")
