"""Generated, bundled and real data sets."""

import ast
import inspect

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.svm import LinearSVC

from sottovoce.data import embedded as embedded_module
from sottovoce.data.embedded import (
    BREAST_CANCER,
    DIABETES,
    DIABETES_TARGET,
    DIGITS,
    EMBEDDED,
    WINE,
    embedded,
)
from sottovoce.data.fetch import REAL, VARIABLE, load_real, real_path
from sottovoce.data.load import as_signs, read_idx
from sottovoce.data.synthetic import regression, sparse_text, two_gaussians
from sottovoce.errors import DataError, SpecError
from sottovoce.matrices import row_norms

MAKERS = {
    "two_gaussians": lambda seed: two_gaussians(300, 20, seed=seed),
    "sparse_text": lambda seed: sparse_text(300, 2000, 30, seed=seed),
    "regression": lambda seed: regression(300, 20, 0.1, seed=seed),
}


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


@pytest.mark.parametrize("name", MAKERS)
def test_seeds_reproduce(name):
    one, same, other = MAKERS[name](5), MAKERS[name](5), MAKERS[name](6)
    assert dense(one.X).tobytes() == dense(same.X).tobytes() and one.y.tobytes() == same.y.tobytes()
    assert not np.array_equal(dense(one.X), dense(other.X)) and not np.array_equal(one.y, other.y)


@pytest.mark.parametrize("name", MAKERS)
def test_unit_rows_never_above_one(name):
    table = MAKERS[name](1)
    norms = row_norms(table.X)
    assert np.all(norms <= 1) and np.all(norms > 1 - 1e-9)
    assert table.name == name and len(table.features) == table.m and table.n_records == len(table.y) == 300


@pytest.mark.parametrize("separation", [1.0, 2.0, 4.0])
def test_gaussians_overlap_as_said(separation):
    table = two_gaussians(40_000, 10, separation, seed=3)
    assert 0.48 < np.mean(table.y == 1) < 0.52
    model = LinearSVC(C=1.0, fit_intercept=False).fit(table.X, table.y)
    assert 1 - model.score(table.X, table.y) == pytest.approx(norm.cdf(-separation / 2), abs=0.01)


def test_text_is_zipf_sparse_and_learnable():
    table = sparse_text(4000, 5000, 40, seed=2)
    assert table.X.format == "csr" and table.X.has_canonical_format and np.all(table.X.data > 0)
    entries = np.diff(table.X.indptr)
    assert entries.max() <= 40 and entries.min() >= 1
    documents = np.bincount(table.X.indices, minlength=5000)
    chance = 1 / np.arange(1, 5001) / np.sum(1 / np.arange(1, 5001))
    np.testing.assert_allclose(documents[:5] / 4000, 1 - (1 - chance[:5]) ** 40, atol=0.03)
    assert 0.2 < np.mean(table.y == 1) < 0.8 and set(table.y) == {-1.0, 1.0}
    model = LinearSVC(C=10.0, fit_intercept=False).fit(table.X[:3000], table.y[:3000])
    assert model.score(table.X[3000:], table.y[3000:]) > 0.8


def test_regression_noise():
    for noise in (0.0, 0.5):
        table = regression(5000, 8, noise, seed=4)
        residual = table.y - LinearRegression(fit_intercept=False).fit(table.X, table.y).predict(table.X)
        assert np.std(residual) == pytest.approx(noise, abs=0.02)
    assert 0.2 < np.std(table.y) < 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: two_gaussians(0, 3), "at least one record and one feature, not 0 × 3"),
        (lambda: regression(3, 0), "not 3 × 0"),
        (lambda: regression(3, 1, -1.0), "noise must be 0 or more, not -1"),
        (lambda: sparse_text(3, 5, 0), "at least one word, not 0"),
    ],
)
def test_problems_without_meaning(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_smallest_problems():
    for table in (two_gaussians(1, 1), sparse_text(3, 1, 2), regression(1, 1)):
        np.testing.assert_allclose(row_norms(table.X), 1)


# ---- bundled


@pytest.mark.parametrize(
    ("name", "shape", "positives"),
    [("breast_cancer", (569, 30), 357), ("digits", (1797, 64), 891), ("wine", (178, 13), 59)],
)
def test_bundled_classification(name, shape, positives):
    table = embedded(name)
    assert table.X.shape == shape and len(table.features) == shape[1] and table.name == name
    assert np.all(np.linalg.norm(table.X, axis=1) <= 1)
    assert set(table.y) == {-1.0, 1.0} and np.sum(table.y == 1) == positives
    assert LinearSVC(C=1.0).fit(table.X, table.y).score(table.X, table.y) > 0.88


def test_bundled_regression():
    table = embedded("diabetes")
    assert table.X.shape == (442, 10) and np.all(np.linalg.norm(table.X, axis=1) <= 1)
    assert table.y.min() == -1 and table.y.max() == 1
    assert LinearRegression().fit(table.X, table.y).score(table.X, table.y) > 0.45


def test_bundled_synthetic():
    table = embedded("synthetic")
    assert table.X.shape == (20_000, 50) and np.all(row_norms(table.X) <= 1) and set(table.y) == {-1.0, 1.0}
    assert table.name == "synthetic" and set(EMBEDDED) == {"breast_cancer", "digits", "wine", "diabetes", "synthetic"}


def test_bounds_are_those_of_the_documentation():
    from sklearn import datasets

    for bounds, bunch in (
        (BREAST_CANCER, datasets.load_breast_cancer()),
        (WINE, datasets.load_wine()),
        (DIGITS, datasets.load_digits()),
        (DIABETES, datasets.load_diabetes()),
    ):
        low, high = np.array(bounds).T
        slack = 0.03 * (high - low)  # the documentation rounds
        assert low.shape == (bunch.data.shape[1],) and np.all(low < high)
        assert np.all(bunch.data >= low - slack) and np.all(bunch.data <= high + slack)
    for bounds, text in ((BREAST_CANCER, datasets.load_breast_cancer().DESCR), (WINE, datasets.load_wine().DESCR)):
        rows = [line.split(":") for line in text.split(":Summary Statistics:")[1].split("=\n\n")[0].splitlines()]
        stated = [tuple(map(float, row[1].split()[:2])) for row in rows if len(row) == 2]
        assert stated == list(bounds)
    assert "25 - 346" in datasets.load_diabetes.__doc__ and DIABETES_TARGET == (25, 346)


def test_bounds_are_typed_not_computed():
    called = {
        node.attr for node in ast.walk(ast.parse(inspect.getsource(embedded_module))) if isinstance(node, ast.Attribute)
    }
    assert not called & {"min", "max", "mean", "std", "var", "ptp", "median", "quantile", "percentile", "amin", "amax"}


def test_a_bundled_record_is_scaled_by_itself_alone(monkeypatch):
    whole, bundled = embedded("wine").X, embedded_module._bundled

    def half(name):
        bunch = bundled(name)
        bunch.data, bunch.target = bunch.data[::2], bunch.target[::2]
        return bunch

    monkeypatch.setattr(embedded_module, "_bundled", half)
    np.testing.assert_array_equal(embedded("wine").X, whole[::2])


def test_values_beyond_their_bounds_are_clipped():
    box = embedded_module._to_unit_box(np.array([[-9.0, 5.0], [2.0, 99.0]]), ((0.0, 4.0), (4.0, 6.0)))
    np.testing.assert_array_equal(box, [[-1, 0], [0, 1]])


def test_unknown_bundled():
    with pytest.raises(DataError, match="no data set called 'iris' comes along; choose one of breast_cancer, digits"):
        embedded("iris")


# ---- real


def real(name):
    if real_path(name) is None:
        pytest.skip(f"{name} is not in {VARIABLE}")
    return load_real(name)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "nnz", "labels"),
    [
        ("a9a", (32561, 123), 451592, {-1: 24720, 1: 7841}),
        ("a9a.t", (16281, 123), 225731, {-1: 12435, 1: 3846}),
        ("mushrooms", (8124, 112), 170604, {1: 3916, 2: 4208}),
        ("epsilon100", (100, 2000), 200000, {-1: 54, 1: 46}),
        ("rcv1", (23727, 47236), 1781871, {-1: 11907, 1: 11820}),
    ],
)
def test_real(name, shape, nnz, labels):
    table = real(name)
    assert table.X.shape == shape and table.X.nnz == nnz and table.X.format == "csr" and table.name == name
    assert dict(zip(*(v.tolist() for v in np.unique(table.y, return_counts=True)), strict=True)) == labels
    signs, names = as_signs(table.y)
    assert names == tuple(sorted(labels)) and np.sum(signs == 1) == labels[max(labels)]
    if name in ("rcv1", "epsilon100"):
        np.testing.assert_allclose(row_norms(table.X), 1, atol=1e-5)


@pytest.mark.data
@pytest.mark.parametrize(("name", "records", "nnz"), [("mnist", 60000, 8994156), ("mnist.t", 10000, 1511219)])
def test_real_pictures(name, records, nnz):
    table = real(name)
    assert table.X.shape == (records, 784) and table.X.dtype == np.float32 and np.count_nonzero(table.X) == nnz
    assert table.X.min() == 0 and table.X.max() == 1 and set(table.y) == set(range(10)) and table.name == name


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    path.write_bytes(head + values.astype(np.uint8).tobytes())
    return path


def test_pictures_keep_their_pixels(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    write_idx(tmp_path / "mnist.train-images-idx3-ubyte", pixels)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(DataError, match="labels-idx1-ubyte: there is no such file"):
        load_real("mnist")
    write_idx(tmp_path / "mnist.train-labels-idx1-ubyte", np.array([3, 1, 4, 1, 5]))
    table = load_real("mnist")
    assert np.array_equal(np.rint(table.X * 255), pixels.reshape(5, 784)) and table.y.tolist() == [3, 1, 4, 1, 5]
    write_idx(tmp_path / "mnist.train-labels-idx1-ubyte", np.array([3, 1]))
    with pytest.raises(DataError, match="5 pictures and labels of shape"):
        load_real("mnist")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no idx file of unsigned bytes"),
        (b"P6 7 7 255", "no idx file of unsigned bytes"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0]), "no idx file of unsigned bytes"),
        (bytes([0, 0, 8, 2, 0, 0]), "cut short or too long"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2]), "cut short or too long"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3, 4]), "cut short or too long"),
    ],
)
def test_garbled_idx_files_are_one_sentence(content, words, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_idx(path)
    (tmp_path / "file.xz").write_bytes(b"not compressed")
    with pytest.raises(DataError, match=r"cannot be read \(LZMAError\)"):
        read_idx(tmp_path / "file.xz")


def test_real_is_found_by_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert real_path("a9a") is None
    with pytest.raises(DataError, match="'a9a' is not in the project; set SOTTOVOCE_DATA to the folder that holds it"):
        load_real("a9a")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert real_path("a9a") is None
    with pytest.raises(DataError, match=r"there is no a9a\.svm\.xz for the data set 'a9a'; put it in that folder"):
        load_real("a9a")
    (tmp_path / "a9a.svm").write_text("1 3:1\n-1 4:1\n")
    assert real_path("a9a") == tmp_path / "a9a.svm"
    assert load_real("a9a").X.shape == (2, 123)


def test_unknown_real():
    for function in (real_path, load_real):
        with pytest.raises(DataError, match="no real data set is called 'a9b'; choose one of a9a,"):
            function("a9b")
    assert {"a9a", "a9a.t", "rcv1", "covtype", "mushrooms", "epsilon100"} <= set(REAL)
