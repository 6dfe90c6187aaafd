"""Intervals of estimators: in the units of the columns, refused before anything is spent, kept in files."""

import numpy as np
import pytest

from sottovoce import Budget, PrivateClassifier, PrivateRegressor, PublicEncoder, load
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.export.model import model as exported

BOUNDS = {"age": (20, 80), "sex": (0, 1)}


def study(N=20_000, seed=0):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.uniform(20, 80, N), "sex": rng.integers(0, 2, N)})
    u = -3 + 0.05 * X["age"] + 0.7 * X["sex"]
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-u)), "yes", "no")
    return X, y, 10 + 3 * u + rng.normal(0, 2, N)


def classifier(**changes):
    return PrivateClassifier(1.0, bounds=BOUNDS, classes=["no", "yes"], inference=True, random_state=0, **changes)


def test_a_table_in_the_units_of_the_columns():
    X, y, _ = study()
    model = classifier().fit(X, y)
    table = model.summary()
    assert table.names == ("age", "sex", "(constant)") and "class 'yes'" in str(table)
    assert np.all(np.abs(table.estimates - [0.05, 0.7, -3]) < 4 * table.errors)
    assert np.all(table.errors > table.sampling_errors) and np.all(table.errors < 2.5 * table.sampling_errors)
    assert "not coef_" in str(table) and str(table).endswith(model.privacy_.verdict())
    frame = table.to_frame()
    assert frame.loc["sex", "odds ratio"] == pytest.approx(np.exp(frame.loc["sex", "estimate"]))
    assert model.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)
    model.to_result().verify()
    low, high = model.mean_interval(X.iloc[:200]).T
    true = 1 / (1 + np.exp(3 - 0.05 * X["age"][:200] - 0.7 * X["sex"][:200]))
    assert np.mean((low < true) & (true < high)) > 0.5 and np.all((low > 0) & (low < high) & (high < 1))


def test_a_schema_gives_the_units_of_the_raw_columns(tmp_path):
    """The same table as from bounds of the raw columns, to rounding, as the rows are the same."""
    X, y, _ = study()
    schema = {
        "label": {"column": "sick", "classes": ["no", "yes"]},
        "columns": {"age": {"low": 20, "high": 80}, "sex": {"low": 0, "high": 1}},
    }
    encoder = PublicEncoder(schema).fit(X)
    model = PrivateClassifier(1.0, **encoder.public_, inference=True, random_state=0).fit(encoder.transform(X), y)
    raw, plain = model.summary(schema=encoder.schema_), classifier().fit(X, y).summary()
    assert np.allclose(raw.errors, plain.errors, rtol=0.1)
    assert np.all(np.abs(raw.estimates - [0.05, 0.7, -3]) < 4 * raw.errors)
    assert np.array_equal(model.summary().estimates, raw.estimates)  # `public_` has the schema
    with pytest.raises(SpecError, match="the schema makes 1 features"):
        model.summary(schema=PublicEncoder(schema | {"columns": {"age": {"low": 20, "high": 80}}}).fit().schema_)


def test_the_other_order_of_classes_is_the_other_sign():
    X, y, _ = study()
    one = classifier().fit(X, y)
    other = classifier().set_params(classes=["yes", "no"]).fit(X, y)
    assert np.allclose(one.summary().estimates, -other.summary().estimates)
    assert np.allclose(one.mean_interval(X[:5]), 1 - other.mean_interval(X[:5])[:, ::-1])


def test_report_and_export_carry_the_table(tmp_path):
    X, y, _ = study()
    model = classifier().fit(X, y)
    table = model.summary()
    page = model.report(tmp_path / "report.html").read_text()
    assert "<h2>Intervals</h2>" in page and all(cell in page for row in table.rows()[1:] for cell in row)
    kept = exported(model.to_result())["intervals"]
    assert kept["names"] == ["age", "sex", "(constant)"] and kept["estimate"] == table.estimates.tolist()
    plain = classifier().set_params(inference=False).fit(X, y)
    assert "intervals" not in exported(plain.to_result())
    assert "<h2>Intervals</h2>" not in plain.report(tmp_path / "other.html").read_text()


def test_a_table_that_noise_hides_is_refused_wherever_it_would_go(tmp_path):
    """Two columns that are nearly equal: public numbers cannot know it, the released curvature does."""
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, 4000)
    X = np.stack([a, a + 0.01 * rng.uniform(-1, 1, 4000)], axis=1)
    y = (rng.random(4000) < 0.5).astype(int)
    model = PrivateClassifier(1.0, bounds=(-2, 2), classes=[0, 1], inference=True, random_state=0).fit(X, y)
    with pytest.raises(PrivacyError, match="there are no intervals: the released curvature is too weak"):
        model.summary()
    with pytest.raises(PrivacyError, match="there are no intervals"):
        model.mean_interval(X[:2])
    assert "there are no intervals" in model.report(tmp_path / "report.html").read_text()
    assert "intervals" not in exported(model.to_result())
    model.to_result().verify()


@pytest.mark.parametrize("owners", [{}, {"n_nodes": 20, "trust": "majority"}])
def test_a_regression(owners, tmp_path):
    X, _, y = study()
    model = PrivateRegressor(1.0, bounds=BOUNDS, target_bounds=(-10, 30), inference=True, **owners).fit(X, y)
    table = model.summary()
    assert np.all(np.abs(table.estimates - [0.15, 2.1, 1.0]) < 4.5 * table.errors)
    assert "odds" not in str(table) and model.privacy_.secure
    low, high = model.mean_interval(X[:3]).T
    assert np.all(low < high) and np.all(high - low < 3)
    model.save(tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert str(again.summary()) == str(table) and again.inference is True
    assert np.allclose(again.mean_interval(X[:3]), np.stack([low, high], axis=1))


def test_a_bound_on_rows_is_enough():
    """Without bounds of columns rows are in units of their norm."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-10, 10, (20_000, 2))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-0.1 * X[:, 0]))).astype(int)
    table = PrivateClassifier(2.0, row_norm=15, classes=[0, 1], inference=True, random_state=3).fit(X, y).summary()
    assert np.all(np.abs(table.estimates - [0.1, 0, 0]) < 4 * table.errors) and table.errors[0] < 0.01


def test_too_few_records_are_refused_before_anything_is_spent(tmp_path):
    X, y, _ = study(400)
    budget = Budget(2.0, 1e-5, tmp_path)
    model = classifier(budget=budget)
    with pytest.raises(PrivacyError, match=r"intervals for 2 columns at ε = 1 need about .* records, .* there are 400"):
        model.fit(X, y)
    assert budget.spent() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "hinge"}, "no intervals for loss 'hinge'"),
        ({"features": "additive"}, "of a linear model"),
        ({"class_weight": {"yes": 2.0}}, "all classes count the same"),
        ({"fit_intercept": False}, "with a constant term"),
        ({"epsilon": None}, "give epsilon"),
        ({"inference": "yes"}, "inference must be True or False"),
    ],
)
def test_what_has_no_intervals_is_refused(changes, message):
    X, y, _ = study(2000)
    with pytest.raises(SpecError, match=message):
        classifier().set_params(**changes).fit(X, y)


def test_a_model_without_intervals_says_how_to_get_them():
    X, y, _ = study(2000)
    model = classifier().set_params(inference=False).fit(X, y)
    with pytest.raises(SpecError, match="fit with inference=True"):
        model.summary()
