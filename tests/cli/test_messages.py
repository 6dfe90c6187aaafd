"""What a new user is informed first: the advice that fixes, no option that is not there, and nothing left behind."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from sottovoce import PrivateClassifier, PrivateRegressor, Spec, load
from sottovoce.errors import NetworkError

RNG = np.random.default_rng(2)
AGE, INCOME = RNG.integers(18, 95, 600), RNG.gamma(3.0, 12000.0, 600)
SICK = np.where(AGE + RNG.normal(0, 5, 600) > 55, "ja", "nein")


def table(path, header="alter;einkommen;krank", separator=";", encoding="utf-8"):
    rows = [separator.join([str(a), f"{i:.2f}", s]) for a, i, s in zip(AGE, INCOME, SICK, strict=True)]
    path.write_bytes("\n".join([header.replace(";", separator), *rows, ""]).encode(encoding))
    return path


def one_line(err):
    return " ".join(err.split())


def test_raw_columns_are_sent_to_a_schema_and_not_to_unit_rows(sottovoce, tmp_path):
    path = table(tmp_path / "r.csv")
    code, _, err = sottovoce("train", path, "--label", "krank", "--nodes", 2, "--seed", 1)
    assert code == 3 and "common scale by their public bounds, in a schema (sottovoce schema FILE)" in one_line(err)
    assert "--unit-rows is for rows that are directions" in one_line(err)
    public = ("--classes", "nein,ja", "--separator", "semicolon", "--rounds", 3)
    code, _, err = sottovoce("train", path, "--label", "krank", "--nodes", 2, *public)  # a refusal would reveal records
    assert code == 0 and "common scale by a schema" in one_line(err) and "600 records" in one_line(err)


@pytest.mark.parametrize("words", [("--unit-rows",), ("--row-norm", 200_000)])
def test_a_plan_for_raw_columns_does_not_promise_what_it_cannot_know(sottovoce, tmp_path, words):
    path = table(tmp_path / "r.csv")
    code, _, err = sottovoce("train", path, "--label", "krank", "--nodes", 2, "--seed", 1, *words)
    assert code == 0 and "Raw columns in different units may lose nearly" in one_line(err)
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[label]\ncolumn = "krank"\nclasses = ["nein", "ja"]\n[columns.alter]\nlow = 0\nhigh = 120\n'
        "[columns.einkommen]\nlow = 0\nhigh = 100000\n"
    )
    code, by_schema, err = sottovoce("train", path, "--schema", schema, "--nodes", 2, "--seed", 1, "--json")
    code, raw, _ = sottovoce("train", path, "--label", "krank", "--nodes", 2, "--seed", 1, "--json", *words)
    details = [json.loads(text)["last"]["train_accuracy"] for text in (by_schema, raw)]
    assert details[0] > 0.85 > details[1] and "Raw columns in different units" not in err


def test_a_guarantee_finds_no_dialect_from_records(sottovoce, tmp_path):
    path = table(tmp_path / "r.csv")
    words = ("train", path, "--label", "krank", "--classes", "nein,ja", "--nodes", 2)
    words += ("--row-norm", 200_000, "--rounds", 3)
    code, _, err = sottovoce(*words)
    assert code == 3 and "there is no label column 'krank'" in one_line(err)  # it is read with commas
    assert sottovoce(*words, "--separator", "semicolon")[0] == 0
    assert sottovoce(*words, "--seed", 1)[0] == 0  # a simulation has nothing to leak


def test_labels_in_latin_1_are_classes(sottovoce, tmp_path):
    path = tmp_path / "r.csv"
    rows = "\n".join(f"{x:.3f},{'größer' if x > 0 else 'kleiner'}" for x in RNG.uniform(-1, 1, 200))
    path.write_bytes(f"x,y\n{rows}\n".encode("latin-1"))
    code, _, err = sottovoce("train", path, "--nodes", 2, "--seed", 1, "--out", tmp_path / "run")
    assert code == 0, err
    assert set(sottovoce("predict", tmp_path / "run", path)[1].split()) == {"größer", "kleiner"}


def test_a_csv_by_another_name_gets_its_format_suggested(sottovoce, tmp_path):
    path = table(tmp_path / "r.txt")
    code, _, err = sottovoce("train", path, "--label", "krank")
    assert code == 2 and "--format csv" not in err  # a label has no place in svmlight
    code, _, err = sottovoce("train", path, "--seed", 1)
    assert code == 3 and "its first line is that of a CSV file; give --format csv" in one_line(err)
    assert sottovoce("schema", path, "--label", "krank", "--format", "csv")[0] == 0


def test_a_failed_train_leaves_no_folder(sottovoce, tmp_path):
    out = tmp_path / "deep" / "run"
    for words in (("--classes", "nein,ja"), ("--seed", 1)):
        assert sottovoce("train", table(tmp_path / "r.csv"), "--label", "gone", "--out", out, *words)[0] == 3
        assert sottovoce("train", table(tmp_path / "r.csv"), "--label", "krank", "--out", out, *words)[0] == 3
        assert not out.parent.exists()


def test_compare_takes_what_it_suggests(sottovoce, tmp_path):
    path = tmp_path / "r.csv"
    x = RNG.uniform(-0.7, 0.7, (240, 2))
    rows = "\n".join(f"{a:.3f};{b:.3f};{'nord' if k % 3 else 'süd'};{int(a > b)}" for k, (a, b) in enumerate(x))
    path.write_text(f"a;b;site;y\n{rows}\n")
    code, _, err = sottovoce("compare", "--data", path, "--algorithms", "dsgd", "--seeds", 1, "--epochs", 1)
    assert code == 3 and "--group" in err
    few = ("--algorithms", "dsgd", "--seeds", 1, "--epochs", 1, "--batch", 8, "--intercept", 0.25, "--json")
    code, said, err = sottovoce("compare", "--data", path, "--group", "site", *few)
    assert code == 0, err
    schema = tmp_path / "schema.toml"
    schema.write_text(
        'group = "site"\n[label]\ncolumn = "y"\nclasses = [0, 1]\n'
        "[columns.a]\nlow = -1\nhigh = 1\n[columns.b]\nlow = -1\nhigh = 1\n"
    )
    code, said, err = sottovoce("compare", "--data", path, "--schema", schema, *few)
    assert code == 0 and json.loads(said)["ranking"][0]["algorithm"] == "dsgd"


def test_compare_starts_from_the_plan_of_train(sottovoce, tmp_path):
    """Of a file: its loss, its intercept and what its h shrinks by; what is given stays as it is given."""
    path, out = tmp_path / "r.csv", tmp_path / "runs.parquet"
    x = RNG.uniform(-0.7, 0.7, (3000, 2))
    path.write_text("a,b,y\n" + "\n".join(f"{a:.3f},{b:.3f},{int(a > b)}" for a, b in x) + "\n")
    own = (path, "--label", "y", "--nodes", 2, "--epsilon", 1)
    code, _, err = sottovoce("train", *own, "--seed", 1, "--rounds", 20, "--out", tmp_path / "run")
    assert code == 0, err
    planned = load(tmp_path / "run").spec_.problem
    few = ("--data", *own, "--algorithms", "dsgd", "--seeds", 1, "--epochs", 1, "--batch", 8)
    assert sottovoce("compare", *few, "--out", out)[0] == 0
    mine = Spec.from_json(pq.read_table(out)["spec"][0].as_py()).problem
    assert (mine.loss.name, mine.intercept) == (planned.loss.name, planned.intercept)
    other = tmp_path / "given.parquet"
    assert sottovoce("compare", *few, "--loss", "smoothed_hinge", "--regularizer", "l2(0.5)", "--out", other)[0] == 0
    given = Spec.from_json(pq.read_table(other)["spec"][0].as_py()).problem
    assert given.loss.name == "smoothed_hinge" and str(given.h) == "l2(0.5)"


@pytest.mark.parametrize(
    ("estimator", "public"), [(PrivateClassifier, {"classes": [0, 1]}), (PrivateRegressor, {"target_bounds": (0, 1)})]
)
def test_a_single_owner_reads_the_activation_too(estimator, public):
    x = RNG.uniform(-0.5, 0.5, (100, 2))
    with pytest.raises(NetworkError, match="no activation scheme 'foo'"):
        estimator(activation="foo", row_norm=1.0, **public).fit(x, (x[:, 0] > 0).astype(int))
