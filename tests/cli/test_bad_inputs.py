"""Inputs that are wrong: each ends in one line that says what is wrong and what to type, with no internals in it."""

import re

import numpy as np
import pytest

SCHEMA = """[label]
column = "sick"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 120
[columns.ward]
type = "category"
categories = ["A", "B"]
"""
RNG = np.random.default_rng(0)
ROWS = [(RNG.integers(18, 90), "AB"[k % 2], ["no", "yes"][RNG.integers(2)]) for k in range(120)]
GOOD = "age,ward,sick\n" + "".join(f"{a},{w},{s}\n" for a, w, s in ROWS)
NUMBERS = "age,dose,y\n" + "".join(f"{a},{a / 2},{k % 2}\n" for k, (a, _, _) in enumerate(ROWS))
INTERNALS = re.compile(r"Traceback|__\w+__|object at 0x|NoneType|offset|keyword argument|could not convert|Arrow|ι")


def changed(old, new):
    assert old in SCHEMA
    return SCHEMA.replace(old, new)


# what is wrong: the file's content, the schema (None: none), more options, and what the line says
TRAIN = {
    "a column that is not there": (GOOD, None, "--label krank --seed 1", "name with --label one of 'age', 'ward' and"),
    "no seed, no classes": (GOOD, None, "--label sick", "give --classes no,yes .*, or a schema"),
    "text without a schema": (GOOD, None, "--label sick --seed 1", r"describe it in a schema \(sottovoce schema"),
    "an empty file": ("", SCHEMA, "", "the first line must be the names of the columns, separated by ','"),
    "a zip file by the name of a CSV": (b"PK\3\4\0\1\2", SCHEMA, "", r"no text with columns; save it as CSV, or"),
    "bytes": (bytes(range(256)) * 9, SCHEMA, "", "this is no text with columns; save it as CSV"),
    "a short line": (GOOD + "1,2\n", SCHEMA, "--seed 1", "record 121 has another number of fields .*write each record"),
    "an open quote": (GOOD.replace(",A,", ',"A,', 1), SCHEMA, "--seed 1", "a quote that is not closed on its line;"),
    "an empty cell": (GOOD.replace(",A,", ",,", 1), SCHEMA, "--seed 1", "has no value, .*say in the schema what a"),
    "an unknown category": (GOOD.replace(",A,", ",C,", 1), SCHEMA, "--seed 1", "one that the schema does not list"),
    "infinity": (NUMBERS + "inf,1,1\n", None, "--seed 1", "'age' has the value inf in record 121; .*replace it, or"),
    "no features": ("sick\nno\nyes\n", None, "--label sick --seed 1", "no columns besides .*; add at least one"),
    "one class": (NUMBERS.replace(",0\n", ",1\n"), None, "--seed 1", "needs two classes; add records of the other"),
    "a number as a class": (
        "a,y\n" + "".join(f"{k},{k}\n" for k in range(300)), None, "--seed 1", r"300 different values; give",
    ),
    "no header": (
        "".join(f"{k},{k + 0.5}\n" for k in range(9)), None, "--seed 1", "holds numbers where .*; add a header",
    ),
    "names twice": (NUMBERS.replace("dose", "age"), None, "--seed 1", "2 columns are called 'age'; give every"),
    "bounds in the wrong order": (GOOD, changed("low = 0\nhigh = 120", "low = 120\nhigh = 0"), "", "low < high, not"),
    "a bound as text": (GOOD, changed("low = 0", 'low = "zero"'), "", "'low' is a public bound, a number such as"),
    "a bound as a truth value": (GOOD, changed("low = 0", "low = true"), "", "a number such as 120, not True"),
    "an unknown type": (GOOD, changed('"category"', '"categorical"'), "", "its type is one of number, category, flag"),
    "one class in the schema": (GOOD, changed('["no", "yes"]', '["no"]'), "", r"classes are two, \[negative,"),
    "a schema's column that is not there": (GOOD, changed("columns.age", "columns.edad"), "", "there are 'age',"),
    "the label as a feature": (GOOD, changed("columns.ward", "columns.sick"), "", "'sick' is named twice; give each"),
    "a schema without a label": (GOOD, SCHEMA[SCHEMA.index("[columns.age]") :], "", r"a schema has a \[label\] and"),
    "categories that are no list": (GOOD, changed('["A", "B"]', '"A"'), "", r"'categories' of column 'ward' is a"),
    "TOML cut short": (GOOD, changed("high = 120", "high = "), "", "not valid TOML: .*line 6.*; correct that place"),
    "a key of another table": (GOOD, changed("[columns.age]", 'decimal = ","\n[columns.age]'), "", "unknown key"),
    "a misspelled key": (GOOD, changed("categories =", "categorys ="), "", "unknown key 'categorys'; did you mean"),
    "ε of 0": (GOOD, SCHEMA, "--epsilon 0", "epsilon is finite and over 0, not 0.0"),
    "δ over 1": (GOOD, SCHEMA, "--delta 1.5", "must lie strictly between 0 and 1, not 1.5"),
    "more nodes than records": (GOOD, SCHEMA, "--nodes 500", "cannot share 120 records .*; take at most 120 nodes"),
    "an unknown loss": (GOOD, SCHEMA, "--loss hinged", "there is no loss 'hinged'; write one of hinge"),
    "no rounds": (GOOD, SCHEMA, "--rounds 0", "a whole number from 1 to"),
    "a group beside a schema": (GOOD, SCHEMA, "--group ward", r"the schema says what --group would \(group\); leave"),
    "a range in the wrong order": (NUMBERS, None, "--target-bounds 5,1 --seed 1", "the lower one first, as in"),
    "one class by option": (NUMBERS, None, "--classes 0 --seed 1", "names two labels or more, as in no,yes, not '0'"),
    "a column to drop that is not there": (NUMBERS, None, "--drop agee --seed 1", "no column 'agee' to leave out;"),
    "an unknown encoding": (GOOD, SCHEMA, "--encoding utf-99", "no encoding 'utf-99'; say utf-8, cp1252, latin-1"),
    "a separator of two letters": (GOOD, SCHEMA, "--separator ;;", "is one plain letter, such as ',' or ';', not ';;'"),
}  # fmt: skip


def error_of(err):
    """The one line of an error, at the end of what is printed."""
    line = err.strip().splitlines()[-1]
    assert line.startswith("Error: ") and err.count("Error: ") == 1, err
    assert not INTERNALS.search(line) and len(line) < 420, line
    return line


@pytest.mark.parametrize("name", TRAIN)
def test_a_bad_input_ends_in_one_line(sottovoce, tmp_path, name):
    content, schema, options, words = TRAIN[name]
    path = tmp_path / "r.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "schema.toml").write_text(schema or "")
    given = ("--schema", tmp_path / "schema.toml") if schema is not None else ()
    code, out, err = sottovoce("train", path, *given, *options.split())
    assert code in (2, 3, 5) and out == ""
    assert re.search(words, error_of(err)), err


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (("train", "FOLDER", "--label", "y", "--seed", 1), "this is a folder, and a file is needed"),
        (("train", "r.ods", "--label", "y", "--seed", 1), r"\.ods files are not read; save the sheet as \.xlsx or CSV"),
        (("train", "r.pdf", "--label", "y", "--seed", 1), r"'\.pdf' is of no format known here; say --format svmlight"),
        (("train", "r.csv", "--schema", "gone.toml"), "there is no readable schema there; check the path"),
        (("schema", "r.csv"), "name with --label what is to be predicted, one of age, ward, sick"),
        (("schema", "r.csv", "--label", "sick", "--user-id", "id"), "no column 'id'; name with --user-id one of age"),
        (("schema", "r.csv", "--label", "sick", "--codebook", "r.csv"), "schema FILE --codebook-template writes one"),
        (("schema", "r.svm"), "no named columns to draft a schema from; use CSV, Parquet or .xlsx"),
        (("predict", "r.csv", "r.csv"), "is a file, and no folder; give a folder that train --out wrote"),
        (("predict", "FOLDER", "r.csv"), "no result.json is in it; give a folder that train --out wrote"),
    ],
)
def test_other_verbs_say_what_to_type(sottovoce, tmp_path, verb, words):
    for name in ("r.csv", "r.pdf", "r.ods"):
        (tmp_path / name).write_text(GOOD)
    (tmp_path / "r.svm").write_text("1 1:0.5\n-1 2:1\n")
    (tmp_path / "folder").mkdir()
    places = {"FOLDER": tmp_path / "folder"} | {
        name: tmp_path / name for name in ("r.csv", "r.pdf", "r.ods", "r.svm", "gone.toml")
    }
    code, _, err = sottovoce(*(places.get(word, word) for word in verb))
    assert code in (2, 3) and re.search(words, error_of(err)), err
