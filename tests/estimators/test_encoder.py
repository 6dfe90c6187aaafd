"""PublicEncoder, PublicScaler and RowNormalizer: public steps of a pipeline, which refuse no record."""

import csv
import warnings
from datetime import date
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from sottovoce import PrivateClassifier, PrivateSearchCV, PublicEncoder, PublicScaler, RowNormalizer
from sottovoce.data.schema import read_schema
from sottovoce.errors import DataError, OwnerWarning, SpecError
from sottovoce.run.terms import terms_of

SCHEMA = """
row_norm = 2.0
[label]
column = "sick"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 120
missing = 50
[columns.ward]
type = "category"
categories = ["A", "B", "C"]
missing = "none"
[columns.smoker]
type = "flag"
categories = ["no", "yes"]
[columns.seen]
type = "date"
low = 2015-01-01
high = 2025-01-01
format = "%d.%m.%Y"
[columns.note]
type = "text"
buckets = 8
"""
RNG = np.random.default_rng(0)
N = 400
COLUMNS = {
    "age": [None if RNG.random() < 0.1 else int(RNG.integers(18, 99)) for _ in range(N)],
    "ward": RNG.choice(["A", "B", "D"], N).tolist(),
    "smoker": RNG.choice(["no", "yes"], N).tolist(),
    "seen": [date(2015 + int(k) % 10, 1 + int(k) % 12, 3) for k in RNG.integers(0, 1000, N)],
    "note": RNG.choice(["cough and fever", "nothing", None], N).tolist(),
    "id": list(range(N)),
}
UNLISTED = pytest.mark.filterwarnings("ignore:.*does not list:sottovoce.errors.OwnerWarning")  # ward D
SICK = np.where([(a or 50) > 55 for a in COLUMNS["age"]], "yes", "no")


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


@UNLISTED
def test_tables_in_memory_are_encoded_as_the_file_is(schema, tmp_path):
    path = tmp_path / "r.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*COLUMNS, "sick"])
        written = [
            [value.strftime("%d.%m.%Y") if isinstance(value, date) else value for value in row]
            for row in zip(*COLUMNS.values(), SICK, strict=True)
        ]
        rows.writerows(written)
    expected = read_schema(schema).read(path).X
    encoder = PublicEncoder(schema).fit()
    np.testing.assert_array_equal(encoder.transform(COLUMNS), expected)
    np.testing.assert_array_equal(encoder.transform(pa.table(COLUMNS)), expected)
    arrays = COLUMNS | {"age": np.array([np.nan if a is None else a for a in COLUMNS["age"]])}
    np.testing.assert_array_equal(encoder.transform(arrays), expected)
    np.testing.assert_array_equal(PublicEncoder(read_schema(schema)).fit_transform(COLUMNS), expected)
    assert encoder.get_feature_names_out().shape == (expected.shape[1],) and encoder.row_norm_ == 2.0
    assert np.linalg.norm(expected, axis=1).max() <= 2.0


@UNLISTED
def test_data_frames_with_missing_values_dates_and_categories(schema):
    pandas = pytest.importorskip("pandas")
    expected = PublicEncoder(schema).fit().transform(COLUMNS)
    frame = pandas.DataFrame(COLUMNS).astype({"ward": "category"})
    frame["seen"] = pandas.to_datetime(frame["seen"])
    np.testing.assert_array_equal(PublicEncoder(schema).fit(frame).transform(frame), expected)
    np.testing.assert_array_equal(PublicEncoder(schema).fit(frame).transform(frame.convert_dtypes()), expected)
    out = PublicEncoder(schema).set_output(transform="pandas").fit(frame).transform(frame)
    assert list(out.columns)[:2] == ["age", "ward=A"]


@UNLISTED
def test_in_a_pipeline_with_a_private_classifier(schema):
    model = make_pipeline(
        PublicEncoder(schema), PrivateClassifier(4.0, row_norm=2.0, classes=["no", "yes"], random_state=0)
    )
    assert clone(model).fit(COLUMNS, SICK).score(COLUMNS, SICK) > 0.8


@pytest.mark.parametrize(
    "check",
    [
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_estimator_cloneable",
        "check_get_params_invariance",
        "check_set_params",
        "check_estimator_repr",
        "check_valid_tag_types",
    ],
)
def test_the_checks_of_scikit_learn_that_do_not_need_plain_arrays(check):
    encoder = PublicEncoder({"label": {"column": "y", "classes": [0, 1]}, "columns": {"a": {"low": 0, "high": 1}}})
    if check == "check_parameters_default_constructible":
        assert clone(encoder).get_params() == encoder.get_params()
    else:
        getattr(estimator_checks, check)("PublicEncoder", encoder)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (np.eye(2), "by name"),
        ({"age": [1]}, "'ward', which is not there"),
        (COLUMNS | {"age": [1]}, "one for each record"),
    ],
)
def test_what_the_schema_has_no_place_for_is_one_sentence(schema, frame, words):
    with pytest.raises(DataError, match=words):
        PublicEncoder(schema).fit().transform(frame)


def test_no_schema_is_refused(tmp_path):
    for odd in (3, tmp_path / "none.toml", {"label": {"column": "y", "classes": [0, 1]}, "features": 3}):
        with pytest.raises(SpecError):
            PublicEncoder(odd).fit()


def test_a_scaler_takes_missing_values_where_it_learns_what_they_count_as():
    X = np.array([[np.nan, 10.0], [30.0, np.nan]])
    scaled = PublicScaler(bounds=[(0, 120), (0, 40)], missing=[60, 30]).fit_transform(X)
    np.testing.assert_allclose(scaled, [[0.0, -0.5], [-0.5, 0.5]])
    np.testing.assert_allclose(PublicScaler(bounds=(0, 120)).fit_transform(X)[0], [np.nan, -5 / 6])
    np.testing.assert_allclose(PublicScaler(bounds=(0, 120), missing=1).fit_transform([[np.inf]]), [[1.0]])
    for odd in (np.nan, [1, 2, 3], "none"):
        with pytest.raises(SpecError, match="missing must be"):
            PublicScaler(bounds=(0, 120), missing=odd).fit(X)


ODD_TEXTS = ["old", b"A", b"\xff", "x\ud800", "1e400", "9" * 5000]
ODD = [*ODD_TEXTS, None, 10**400, True, date(2020, 1, 1), {}, (1,), 1 + 2j, 1e308, -np.inf]


@pytest.mark.parametrize("kind", [dict, "frame", "arrow"])
@pytest.mark.filterwarnings("ignore::sottovoce.errors.OwnerWarning")
def test_an_odd_cell_refuses_nothing_and_changes_no_other_row(schema, kind):
    """The encoder does not know whether a guarantee follows: a refusal, or another type of a column, reveals one."""
    encoder, others = PublicEncoder(schema).fit(), np.arange(N) != 1
    expected, tried = encoder.transform(COLUMNS), 0
    for name, odd in product(COLUMNS, ODD):
        table = COLUMNS | {name: [odd if row == 1 else value for row, value in enumerate(COLUMNS[name])]}
        try:
            given = table if kind is dict else as_frame(table) if kind == "frame" else pa.table(table)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            continue  # no such table can be made
        rows = encoder.transform(given)
        np.testing.assert_array_equal(rows[others], expected[others], err_msg=f"{name}: {odd!r}")
        assert np.isnan(rows[1]).all() or np.linalg.norm(rows[1]) <= encoder.row_norm_
        tried += 1
    assert tried > 20


def as_frame(table):
    """A data frame whose columns have the types that pandas infers."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({name: pandas.Series(values) for name, values in table.items()})


@pytest.mark.filterwarnings("ignore::sottovoce.errors.OwnerWarning")
def test_a_pipeline_with_a_guarantee_trains_on_tables_with_unusable_cells(schema):
    model = make_pipeline(PublicEncoder(schema), PrivateClassifier(4.0, row_norm=2.0, classes=["no", "yes"]))
    model.fit(COLUMNS | {"age": ["old", *COLUMNS["age"][1:]], "smoker": [None, *COLUMNS["smoker"][1:]]}, SICK)
    assert np.isfinite(model[-1].coef_).all()


def test_scalers_and_normalizers_accept_any_value():
    X = np.array([[np.nan, 1.0], [np.inf, 1.0], [3.0, 4.0]])
    np.testing.assert_allclose(RowNormalizer().fit_transform(X)[2], [0.6, 0.8])
    assert np.isnan(RowNormalizer().fit_transform(X)[:2]).any(axis=1).all()
    np.testing.assert_allclose(PublicScaler(bounds=(0, 4)).fit_transform(X)[1:], [[1.0, -0.5], [0.5, 1.0]])


@pytest.mark.filterwarnings("ignore::sottovoce.errors.OwnerWarning")
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_one_text_does_not_change_how_large_whole_numbers_are_spelled(kind):
    """A column of numbers over 2⁵³ was rounded, and one that also held a text was not: 39 of 40 records changed."""
    pandas = pytest.importorskip("pandas")
    codes = np.arange(2**60 + 1, 2**60 + 81, 2).astype(kind)
    columns = {"code": {"type": "text", "buckets": 64}, "kind": {"type": "category", "categories": codes.tolist()}}
    encoder = PublicEncoder({"label": {"column": "y", "classes": [0, 1]}, "columns": columns}).fit()
    frame = pandas.DataFrame({"code": codes, "kind": codes})
    rows = encoder.transform(frame)
    assert np.array_equal(rows[:, 64:].argmax(axis=1), np.arange(40)) and np.all(rows[:, 64:].sum(axis=1) == 1)
    for name in frame:
        odd = frame.astype({name: object})
        odd.loc[3, name] = "x"
        changed = encoder.transform(odd)
        assert np.array_equal(np.delete(changed, 3, axis=0), np.delete(rows, 3, axis=0))


def small(column, **more):
    return PublicEncoder({"label": {"column": "y", "classes": ["no", "yes"]}, "columns": {"x": column}, **more})


@pytest.mark.parametrize("as_table", [dict, pa.table])
@pytest.mark.parametrize("marks", [{"decimal": ","}, {"decimal": ",", "thousands": "."}])
def test_the_decimal_mark_of_the_schema_holds_for_text_in_a_table(marks, as_table):
    encoder = small({"low": 0, "high": 10, "missing": 5}, dialect=marks).fit()
    rows = encoder.transform(as_table({"x": ["1,5", "2,5", "7", None]}))
    assert np.allclose(rows[:, 0], [-0.7, -0.5, 0.4, 0.0])
    assert encoder.transform(as_table({"x": [1.5, 2.5]})) == pytest.approx(np.array([[-0.7], [-0.5]]))


def test_a_point_is_no_decimal_mark_where_the_schema_says_comma():
    encoder = small({"low": 0, "high": 10, "missing": 5}, dialect={"decimal": ","}).fit()
    with pytest.warns(OwnerWarning, match="1 records: column 'x' is a number in the schema"):
        assert encoder.transform({"x": ["1.5", "2,5"]}).tolist() == [[0.0], [-0.5]]


TRUTH = np.array([True, False, True])


@pytest.mark.parametrize("values", [TRUTH, pa.array(TRUTH)])
@pytest.mark.parametrize("kind", ["flag", "category", "ordered"])
def test_a_column_of_truth_values_is_refused_by_its_type_where_no_category_is_true(kind, values):
    column = {"type": kind, "categories": ["nein", "ja"]}
    table = {"x": values} if values is TRUTH else pa.table({"x": values})
    with pytest.raises(DataError, match=r"'x' is of type bool, .* 'nein', 'ja'; write categories = \["):
        small(column).fit().transform(table)
    spelled = {"type": kind, "categories": ["false", "true"]}
    as_text = small(spelled).fit().transform({"x": ["true", "false", "true"]})
    assert np.array_equal(small(spelled).fit().transform(table), as_text)


@pytest.mark.parametrize("kind", ["flag", "category", "ordered"])
def test_values_that_a_schema_does_not_list_are_counted_for_the_owner(kind):
    encoder = small({"type": kind, "categories": ["north", "south"], "missing": "none"}).fit()
    with pytest.warns(OwnerWarning, match="2 records: column 'x' holds a value that the schema does not list"):
        rows = encoder.transform({"x": ["north", "nroth", None, "sout", "south"]})
    assert np.array_equal(rows[1], rows[2])  # what is not listed counts as missing does
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.transform({"x": ["north", None, "south"]})


OWNED = {
    "label": {"column": "sick", "classes": ["yes", "no"]},
    "unit": "patient",
    "group": "hospital",
    "columns": {"age": {"low": 0, "high": 120}},
}


def owned(people: bool = True) -> dict[str, object]:
    rng = np.random.default_rng(1)
    given = {"user_ids": np.arange(N) // 2} if people else {}
    return given | {"nodes": rng.choice(["north", "south"], N)}


@pytest.mark.parametrize("seed", [None, 0])
def test_people_and_owners_of_a_schema_are_not_left_out_of_a_fit(seed):
    encoder = PublicEncoder(OWNED).fit()
    ages = {"age": np.linspace(20, 90, N)}
    sick = np.where(ages["age"] > 55, "yes", "no")
    model = make_pipeline(encoder, PrivateClassifier(1.0, random_state=seed, **encoder.public_))
    with pytest.raises(SpecError, match=r"unit = 'patient'.* privateclassifier__user_ids=table\['patient'\]"):
        model.fit(ages, sick)
    with pytest.raises(SpecError, match=r"group = 'hospital'.* privateclassifier__nodes=table\['hospital'\]"):
        model.fit(ages, sick, privateclassifier__user_ids=owned()["user_ids"])
    search = PrivateSearchCV(model[-1], {"rounds": [1, 2]}, random_state=seed)
    with pytest.raises(SpecError, match="group = 'hospital'"):
        search.fit(encoder.transform(ages), sick, user_ids=owned()["user_ids"])
    given = {f"privateclassifier__{name}": values for name, values in owned().items()}
    assert model.fit(ages, sick, **given)[-1].privacy_.unit == "one person"


def test_a_model_of_records_is_not_saved_with_a_schema_of_people(tmp_path):
    """Without `public_` the fit cannot know; the folder would say of records what the command says of people."""
    encoder = PublicEncoder(OWNED).fit()
    X = encoder.transform({"age": np.linspace(20, 90, N)})
    path = tmp_path / "people.toml"
    path.write_text(
        'unit = "patient"\n[label]\ncolumn = "sick"\nclasses = ["yes", "no"]\n[columns.age]\nlow = 0\nhigh = 120\n'
    )
    model = PrivateClassifier(1.0, row_norm=1.0, classes=["yes", "no"], random_state=0)
    with pytest.raises(SpecError, match=r"guarantee is for single records; fit with user_ids=table\['patient'\]"):
        model.fit(X, SICK, **owned(people=False)).save(tmp_path / "records", schema=path)
    model.fit(X, SICK, **owned()).save(tmp_path / "people", schema=path)


def test_terms_point_to_the_positive_class_as_reports_do():
    """The last class as given is the positive one, in whatever order scikit-learn sorts the classes."""
    ages, drawn = {"age": np.linspace(20, 90, N)}, {}
    sick = np.where(ages["age"] > 55, "yes", "no")
    for classes in (["no", "yes"], ["yes", "no"]):
        encoder = PublicEncoder(OWNED | {"label": {"column": "sick", "classes": classes}}).fit()
        rows = encoder.transform(ages)
        model = PrivateClassifier(1.0, random_state=0, **encoder.public_).fit(rows, sick, **owned())
        found, reported = model.terms(), terms_of(model.to_result(), axes=model.schema.axes)
        assert found.higher == classes[-1] and f"(higher: '{classes[-1]}')" in found.text().splitlines()[0]
        (term,), (other,) = found.terms, reported.terms
        assert term.name == "age" and (term.x[0], term.x[-1]) == (0.0, 120.0)
        assert np.array_equal(term.values, other.values) and np.array_equal(found.constant, reported.constant)
        sign = 1.0 if classes[-1] == model.classes_[1] else -1.0
        assert np.isclose(sum(model.explain(rows[0]).values()), sign * model.decision_function(rows[:1])[0])
        drawn[classes[-1]] = term.values[0]
    assert drawn["yes"][-1] > 0 > drawn["yes"][0] and drawn["no"][-1] < 0 < drawn["no"][0]
