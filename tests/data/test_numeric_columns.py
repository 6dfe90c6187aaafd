"""Columns of an additive model in a schema: transforms, special and missing values, ordered categories, pairs."""

from dataclasses import replace

import numpy as np
import pytest

from sottovoce import PrivateClassifier, PublicEncoder, report
from sottovoce.cli.records import columns_of
from sottovoce.data.schema import Column, schema_of
from sottovoce.data.transforms import TRANSFORMS, raw_values, unit_interval
from sottovoce.errors import OwnerWarning, SpecError
from sottovoce.report.model import _cells
from sottovoce.run.terms import terms_of

LABEL = {"column": "y", "classes": [0, 1]}


def encoded(columns, table, **more):
    encoder = PublicEncoder({"label": LABEL, "columns": columns, **more}).fit()
    return encoder, np.asarray(encoder.transform(table))


@pytest.mark.parametrize("transform", sorted(TRANSFORMS))
def test_a_transform_keeps_order_bounds_and_can_be_undone(transform):
    low, high = (0.5, 3000.0) if transform in ("log", "sqrt") else (-20.0, 3000.0)
    values = np.linspace(low, high, 1001)
    t = unit_interval(values, low, high, transform)
    assert t[0] == -1.0 and t[-1] == 1.0 and np.all(np.diff(t) > 0)
    assert raw_values(t, low, high, transform) == pytest.approx(values, rel=1e-9, abs=1e-9)
    assert unit_interval(np.array([low - 1e6, high + 1e6]), low, high, transform).tolist() == [-1.0, 1.0]


def test_a_transform_is_what_numpy_says():
    _, X = encoded({"dose": {"low": 1, "high": 100, "transform": "log"}}, {"dose": [1, 10, 100, 1000]})
    assert X[:, 0] == pytest.approx([-1, 0, 1, 1])


def test_special_and_missing_values_have_indicators_and_no_place_on_the_scale():
    column = {"low": 0, "high": 10, "special": [0, 99], "missing": "indicator"}
    encoder, X = encoded({"visits": column}, {"visits": [0, 10, 99, None, 5]})
    assert encoder.get_feature_names_out().tolist() == [
        "visits", "visits is 0", "visits is 99", "visits is missing"
    ]  # fmt: skip
    assert X.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert encoder.bounds_ == [(-1.0, 1.0), None, None, None] and encoder.row_norm_ == pytest.approx(np.sqrt(2))


def test_ordered_categories_are_evenly_spaced():
    column = {"type": "ordered", "categories": ["I", "II", "III"], "missing": "none"}
    with pytest.warns(OwnerWarning, match="1 records: column 'stage' holds a value that the schema does not list"):
        encoder, X = encoded({"stage": column}, {"stage": ["III", "I", "II", None, "?"]})
    assert X[:, 0].tolist() == [1, -1, 0, 0, 0] and encoder.bounds_ == [(-1.0, 1.0)]


def test_no_row_is_longer_than_the_schema_says():
    columns = {
        "a": {"low": 0, "high": 1, "special": [0.5], "missing": "indicator"},
        "b": {"type": "ordered", "categories": ["x", "y"], "missing": "none"},
        "c": {"type": "category", "categories": ["p", "q"], "missing": "none"},
        "d": {"type": "date", "low": "2015-01-01", "high": "2025-01-01", "missing": "indicator"},
    }
    rng, n = np.random.default_rng(0), 500
    table = {
        "a": [None if v > 1 else round(v, 1) for v in rng.uniform(0, 1.2, n)],
        "b": rng.choice(["x", "y", None], n).tolist(),
        "c": rng.choice(["p", "q"], n).tolist(),
        "d": [None if v else "2025-01-01" for v in rng.integers(0, 2, n)],
    }
    encoder, X = encoded(columns, table)
    assert np.linalg.norm(X, axis=1).max() <= encoder.row_norm_ and encoder.row_norm_ == pytest.approx(np.sqrt(6))
    of = columns_of(encoder.schema_)
    others = [place for place, pair in enumerate(encoder.bounds_) if pair is None]
    assert np.linalg.norm(X[:, others], axis=1).max() <= of.rest == pytest.approx(np.sqrt(3))


def test_pairs_of_a_schema_reach_the_model():
    columns = {
        "c": {"type": "category", "categories": ["p", "q"]},
        "a": {"low": 0, "high": 1},
        "b": {"low": 0, "high": 1},
    }
    rng = np.random.default_rng(0)
    table = {"c": ["p"] * 4000, "a": rng.uniform(size=4000), "b": rng.uniform(size=4000)}
    encoder, X = encoded(columns, table, pairs=[["b", "a"]])
    assert encoder.pairs_ == [(2, 3)] and columns_of(encoder.schema_).pairs == ((0, 1),)
    y = (table["a"] > 0.5) ^ (table["b"] > 0.5)
    public = {"row_norm": encoder.row_norm_, "bounds": encoder.bounds_, "pairs": encoder.pairs_}
    model = PrivateClassifier(4.0, classes=[False, True], random_state=0, **public).fit(X, y)
    assert model.score(X, y) > 0.9


def test_the_picture_is_in_the_columns_own_units(tmp_path):
    columns = {
        "dose": {"low": 1, "high": 100, "transform": "log"},
        "stage": {"type": "ordered", "categories": ["I", "II", "III"]},
        "visit": {"type": "date", "low": "2020-01-01", "high": "2020-12-31"},
    }
    rng = np.random.default_rng(0)
    table = {"dose": 10 ** rng.uniform(0, 2, 4000), "stage": rng.choice(["I", "II", "III"], 4000).tolist()}
    table["visit"] = rng.choice(["2020-02-29", "2020-12-31"], 4000).tolist()
    encoder, X = encoded(columns, table)
    y = table["dose"] > 10
    public = {"row_norm": encoder.row_norm_, "bounds": encoder.bounds_, "random_state": 0}
    model = PrivateClassifier(4.0, classes=[False, True], **public).fit(X, y)
    names, axes = ["dose", "stage", "visit"], encoder.schema_.axes
    terms = {term.name: term for term in terms_of(model.to_result(), names, axes)}
    assert terms["dose"].kind == "curve" and terms["dose"].x[[0, 100, 200]] == pytest.approx([1, 10, 100])
    assert terms["stage"].kind == "bars" and terms["stage"].x == ["I", "II", "III"]
    assert terms["stage"].values.shape[1] == 3 and "II: " in model.terms(axes, names).text()
    assert terms["visit"].x[[0, 60, 200]].astype(str).tolist() == ["2020-01-01", "2020-04-20", "2020-12-31"]
    result = replace(model.to_result(), features=tuple(names))
    for known, where in ((axes, "2020-12-31: "), (None, "from −1 at the lower")):
        text = report.write(result, tmp_path / "report.html", axes=known).read_text()
        assert where in text and ("\n  100: " in text) == (known is axes)


def test_a_heat_map_has_cells_of_the_columns_own_units():
    columns = {
        "dose": {"low": 1, "high": 100, "transform": "log"},
        "visit": {"type": "date", "low": "2020-01-01", "high": "2020-12-31"},
    }
    axes = schema_of({"label": LABEL, "columns": columns}).axes
    t = np.linspace(-1, 1, 3)
    left, right = _cells(axes["dose"](t))
    assert left == pytest.approx([1, 5.5, 55]) and right == pytest.approx([5.5, 55, 100])
    left, right = _cells(axes["visit"](t))
    milliseconds = np.array(["2020-01-01", "2020-12-31"], dtype="datetime64[ms]").astype(float)
    assert [left[0], right[-1]] == milliseconds.tolist()
    assert [edge.tolist() for edge in _cells(["I", "II"])] == [[-0.5, 0.5], [0.5, 1.5]]


def test_a_heat_map_of_an_ordered_column_has_a_row_for_each_category(tmp_path):
    columns = {"dose": {"low": 0, "high": 1}, "stage": {"type": "ordered", "categories": ["I", "II", "III"]}}
    rng = np.random.default_rng(0)
    table = {"dose": rng.uniform(size=4000), "stage": rng.choice(["I", "II", "III"], 4000).tolist()}
    encoder, X = encoded(columns, table, pairs=[["dose", "stage"]])
    public = {"row_norm": encoder.row_norm_, "bounds": encoder.bounds_, "pairs": encoder.pairs_, "random_state": 0}
    model = PrivateClassifier(4.0, classes=[False, True], **public).fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    axes, names = encoder.schema_.axes, ["dose", "stage"]
    pair = next(term for term in model.terms(axes, names) if term.kind == "map")
    assert pair.x[1] == ["I", "II", "III"] and pair.values.shape == (1, 3, len(pair.x[0]))
    result = model.to_result()
    coarse, fine = pair.values[0], next(term for term in terms_of(result) if term.kind == "map").values[0]
    assert np.allclose(coarse, fine[[0, 20, 40]])
    pytest.importorskip("matplotlib")
    drawn = model.plot(names=names, axes=axes).axes
    assert ["I", "II", "III"] in [[label.get_text() for label in axis.get_yticklabels()] for axis in drawn]
    report.write(result, tmp_path / "report.html", axes={f"column {k + 1}": axes[name] for k, name in enumerate(names)})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"low": 0, "high": 1, "transform": "log"}, "not defined at low = 0"),
        ({"low": -1, "high": 1, "transform": "sqrt"}, "not defined at low = -1"),
        ({"low": 0, "high": 1, "transform": "cube"}, "it is one of log, sqrt, signed_log"),
        ({"low": 0, "high": 1, "special": [1, 1]}, "each named once"),
        ({"type": "ordered", "categories": ["a"]}, "two or more"),
        ({"type": "flag", "categories": ["a", "b"], "transform": "log"}, "has no transform"),
    ],
)
def test_what_makes_no_sense_is_refused(column, message):
    with pytest.raises(SpecError, match=message):
        schema_of({"label": LABEL, "columns": {"v": column}})


def test_pairs_of_what_is_no_number_are_refused():
    columns = {"a": {"low": 0, "high": 1}, "c": {"type": "category", "categories": ["p"]}}
    with pytest.raises(SpecError, match="pairs are of two numeric columns"):
        schema_of({"label": LABEL, "columns": columns, "pairs": [["a", "c"]]})


def test_a_schema_without_any_of_this_keeps_its_digest():
    schema = schema_of({"label": LABEL, "columns": {"age": {"low": 0, "high": 120}}})
    column = Column("age", "number", 0.0, 120.0)
    assert schema.columns == (column,)
    assert schema.digest == "aa7a844b3bb529b82a3ee558f94b59cbc867e788cea2e2dea84b4f3c69d63936"
