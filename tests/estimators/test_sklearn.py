"""The habits of scikit-learn: its own checks, clones, pipelines, cross-validation, pickles, frames, routing."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV, PublicScaler, RowNormalizer
from sottovoce.errors import PrivacyLeakWarning

# Checks that contradict privacy, each with its reason.
NO_CELL_IS_REFUSED = {
    "check_dtype_object": "an error would reveal one record: a cell that holds no number is NaN",
    "check_complex_data": "so is a complex one, which makes all others complex",
}

CONTRADICT_PRIVACY = {
    "check_regressors_train": "it wants R² > 0.5 from 200 records of 10 features, more than ε = 1 can give",
    "check_pipeline_consistency": "without a seed the noise is secret and no two fits agree; skipped by its tag",
    "check_dtype_object": "an error would reveal one record: a cell that holds no number counts as 0",
    "check_supervised_y_no_nan": "an error would reveal one record: a record without a target contributes zero",
}

NUMBERS_ARE_PUBLIC = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a record of weight 0 is not one that is not there: the number "
    "of records is public, and plan and noise follow from it"
    for kind in ("dense", "sparse")
} | {"check_all_zero_sample_weights_error": "weights are private numbers: an error would reveal them"}

A_CONSTANT = {"check_regressors_train": "it wants R² > 0.5, which no constant has"}


def few(kind, **more):
    """Of few rounds, so that it is quick."""
    return kind(epsilon=1e3, random_state=0, rounds=100, **more)


# With a large ε, because checks want accurate models of ten records, and a seed, because they want them twice.
# Weights of classes are of named classes, which checks change all the time; scikit-learn has one check for them.
CHECKED = [
    (PrivateClassifier(epsilon=1e3, random_state=0, max_weight=2.0), NUMBERS_ARE_PUBLIC),
    (PrivateClassifier(epsilon=1e3, random_state=0, loss="logistic", n_nodes=2), NUMBERS_ARE_PUBLIC),
    (few(PrivateClassifier, loss="logistic", penalty="l1", private_scaling=False, trust="centre"), NUMBERS_ARE_PUBLIC),
    (few(PrivateClassifier, loss="smoothed_hinge", trust="majority", n_nodes=3), NUMBERS_ARE_PUBLIC),
    (PrivateRegressor(epsilon=1e3, random_state=0), {}),
    (PrivateRegressor(), CONTRADICT_PRIVACY),
    (PrivateRegressor(epsilon=1e3, random_state=0, method="statistics", penalty="elasticnet", alpha=1e-4), {}),
    (PrivateRegressor(epsilon=1e3, random_state=0, method="mean"), A_CONSTANT),
    (few(PrivateRegressor, loss="absolute", trust="majority", n_nodes=3), {}),
    (few(PrivateRegressor, method="descent", fit_intercept=False, penalty="l1"), {}),
    (few(PrivateRegressor, method="descent", target_bounds=(-1e3, 1e3), target_scale="private"), {}),
    (PrivateRegressor(epsilon=1e3, random_state=0, method="statistics", target_scale=0.1), {}),
    (PrivateSearchCV(PrivateClassifier(rounds=50), {"penalty": ["l1", "l2"]}, epsilon=1e3, runs=2, random_state=0), {}),
    (
        PrivateSearchCV(
            PrivateRegressor(method="statistics"), {"penalty": ["l1", "l2"]}, epsilon=1e3, runs=2, random_state=0
        ),
        {},
    ),
    (PublicScaler(bounds=(-1.0, 1.0)), NO_CELL_IS_REFUSED),
    (RowNormalizer(), NO_CELL_IS_REFUSED),
]


@pytest.mark.parametrize(("estimator", "expected"), CHECKED, ids=str)
def test_scikit_learn_finds_nothing_else_wrong(estimator, expected, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it one more check is skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what checks leave to inference
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    wrong = {r["check_name"]: f"{r['status']}: {r['exception']}" for r in results if r["status"] != "passed"}
    assert wrong.keys() == expected.keys(), wrong
    assert all(wrong[name].startswith(("xfail", "skipped")) for name in wrong) and len(results) > 40


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"age": rng.uniform(20, 80, 600), "dose": rng.uniform(0, 5, 600)})
    y = np.where(X["age"] / 60 + X["dose"] / 5 + 0.1 * rng.normal(size=600) > 1.4, "sick", "well")
    return X, y, rng.choice(["north", "south", "west"], 600)


def model(**more):
    settings = {"epsilon": 8.0, "row_norm": 1.5, "classes": ["sick", "well"], "random_state": 0}
    return PrivateClassifier(**(settings | more))


def pipeline(**more):
    return make_pipeline(PublicScaler(bounds={"age": (20, 80), "dose": (0, 5)}), model(**more))


def test_clone_and_pickle_keep_everything(table):
    X, y, nodes = table
    fitted = pipeline().fit(X, y, privateclassifier__nodes=nodes)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))
    assert again[-1].privacy_ == fitted[-1].privacy_ and again[-1].plan_ == fitted[-1].plan_
    fresh = clone(fitted)
    assert fresh[-1].get_params() == fitted[-1].get_params() and not hasattr(fresh[-1], "coef_")
    refitted = fresh.fit(X, y, privateclassifier__nodes=nodes)
    assert np.array_equal(refitted[-1].coef_, fitted[-1].coef_)


def test_cross_validation_with_routed_nodes(table):
    X, y, nodes = table
    assert np.mean(cross_val_score(pipeline(), X, y, cv=3)) > 0.85
    with sklearn.config_context(enable_metadata_routing=True):
        routed = pipeline()
        routed[-1].set_fit_request(nodes=True)
        found = cross_validate(
            routed, X, y, cv=GroupKFold(3), params={"nodes": nodes, "groups": nodes}, return_estimator=True
        )
    assert [len(fitted[-1].nodes_) for fitted in found["estimator"]] == [2, 2, 2]
    assert np.mean(found["test_score"]) > 0.85


def test_a_grid_search_goes_through_parameters(table):
    from sklearn.model_selection import GridSearchCV

    X, y, _ = table
    search = GridSearchCV(pipeline(), {"privateclassifier__alpha": [1e-4, 10.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"privateclassifier__alpha": 1e-4}


def test_frames_have_names_and_scalers_keep_them(table):
    X, y, nodes = table
    scaler = PublicScaler(bounds={"age": (20, 80), "dose": (0, 5)}).set_output(transform="pandas").fit(X)
    scaled = scaler.transform(X)
    assert list(scaled.columns) == ["age", "dose"] and scaled.to_numpy().min() >= -1
    fitted = model().fit(scaled, y, nodes=pd.Series(nodes))
    assert fitted.feature_names_in_.tolist() == ["age", "dose"] and fitted.n_features_in_ == 2
    assert fitted.nodes_.tolist() == ["north", "south", "west"] and fitted.node_coef_.shape == (3, 1, 2)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(scaled[["dose", "age"]])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array, sparse.csc_array])
def test_sparse_and_dense_are_the_same(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 6)) * (rng.random((300, 6)) < 0.4)
    y = (X.sum(axis=1) > 0).astype(int)
    settings = {"row_norm": 0.8, "classes": (0, 1), "random_state": 2, "n_nodes": 3}
    dense, thin = PrivateClassifier(**settings).fit(X, y), PrivateClassifier(**settings).fit(kind(X), y)
    assert np.allclose(dense.coef_, thin.coef_, rtol=1e-9)
    assert np.allclose(dense.decision_function(X), thin.decision_function(kind(X)), rtol=1e-9)


def test_single_precision_and_lists_are_welcome():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (200, 3)), rng.uniform(-1, 1, 200)
    settings = {"row_norm": 2.0, "target_bounds": (-1, 1), "random_state": 2}
    reference = PrivateRegressor(**settings).fit(X, y).coef_
    assert np.allclose(PrivateRegressor(**settings).fit(X.astype(np.float32), y).coef_, reference, rtol=1e-4)
    assert np.array_equal(PrivateRegressor(**settings).fit(X.tolist(), y.tolist()).coef_, reference)


def test_importing_the_package_does_not_load_scikit_learn():
    import subprocess
    import sys

    code = (
        "import sys, sottovoce; assert 'sklearn' not in sys.modules; "
        "sottovoce.PrivateClassifier; assert 'PublicScaler' in dir(sottovoce)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    import sottovoce

    with pytest.raises(AttributeError, match="no attribute 'PrivateForest'"):
        _ = sottovoce.PrivateForest


def test_what_is_inferred_is_warned_of_once(table):
    X, y, _ = table
    with pytest.warns(PrivacyLeakWarning) as caught:
        PrivateClassifier(random_state=0).fit(X, y)
    assert sorted(str(w.message).split()[0] for w in caught) == ["classes", "row_norm"]
    assert all(w.filename == __file__ for w in caught)  # the caller's line
    with pytest.warns(PrivacyLeakWarning) as caught:
        PrivateRegressor(random_state=0).fit(X, np.arange(len(y)))
    assert sorted(str(w.message).split()[0] for w in caught) == ["row_norm", "target_bounds"]
    model(row_norm=90.0).fit(X, y)  # warnings are errors here: nothing to warn of
