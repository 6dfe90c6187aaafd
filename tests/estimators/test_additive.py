"""Additive models: from bounds to a model, its picture, its folder, its export; the same for any storage."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

from applied import expanded
from sottovoce import PrivateClassifier, PrivateRegressor, PublicEncoder, PublicScaler, load
from sottovoce.errors import PrivacyLeakWarning, SpecError
from sottovoce.export import publish
from sottovoce.planner.features import Circumstances, Columns, choose_features
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.problem.losses import LOSSES
from sottovoce.run.terms import COVERED, terms_of

rng = np.random.default_rng(0)
N = 6000
X = np.column_stack([rng.uniform(0, 10, N), rng.uniform(-1, 1, N), rng.integers(0, 2, N)])
BENT = np.abs(X[:, 0] - 5) + 0.5 * X[:, 2] + 0.2 * rng.normal(size=N)
SIGN = np.where(BENT > 2.7, "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(BENT, [1.7, 3.5])]
BOUNDS = [(0, 10), (-1, 1), None]
WHOLE = float(np.sqrt(3))
PUBLIC = {"bounds": BOUNDS, "row_norm": WHOLE}
FITS = {
    "two classes": (PrivateClassifier(2.0, classes=["no", "yes"], **PUBLIC), SIGN),
    "three classes": (PrivateClassifier(4.0, classes=["a", "b", "c"], **PUBLIC), THREE),
    "a regression": (PrivateRegressor(4.0, target_bounds=(0, 6), **PUBLIC), BENT),
}


@pytest.fixture(scope="module", params=FITS)
def fitted(request, tmp_path_factory):
    """A secure model, its folder and its export."""
    model, y = FITS[request.param]
    folder = tmp_path_factory.mktemp("additive")
    model.fit(X, y).save(folder / "run")
    publish(folder / "run", folder / "public")
    return model, y, folder


def test_what_is_bent_is_learned(fitted):
    model, y, _ = fitted
    assert model.features_ == "additive" and model.score(X, y) > 0.8
    model._result.verify()
    assert "cosines" in model.privacy_.features and "cosines" in model.privacy_.paragraph()
    assert model.privacy_.epsilon <= model.epsilon * (1 + 1e-6) and model.privacy_.secure


def test_a_saved_model_answers_the_same(fitted):
    model, _, folder = fitted
    again = load(folder / "run")
    assert np.array_equal(again.predict(X), model.predict(X)) and again.features_ == "additive"
    assert again.privacy_ == model.privacy_ and again.spec_ == model.spec_
    assert again.terms().text() == model.terms().text()


def test_ten_lines_of_numpy_apply_the_published_model(fitted):
    model, _, folder = fitted
    m = json.loads((folder / "public" / "model.json").read_text())
    assert m["kind"].startswith("additive") and m["row_bound"] is None
    rows = np.concatenate([X, 3 * X - 5])
    scores = expanded(rows, m["map"]) @ np.array(m["coefficients"]).T + np.array(m["intercepts"])
    expected = model.predict(rows) if m["classes"] is None else model.decision_function(rows)
    assert np.allclose(scores[:, 0] if scores.shape[1] == 1 else scores, expected, rtol=1e-9, atol=1e-9)
    assert "additive" in (folder / "public" / "MODEL_CARD.md").read_text()


def test_onnx_applies_the_published_model(fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, y, folder = fitted
    session = onnxruntime.InferenceSession((folder / "public" / "model.onnx").read_bytes())
    name = "prediction" if y is BENT else "score"
    (scores,) = session.run([name], {"X": X.astype(np.float32)})
    expected = model.predict(X) if y is BENT else model.decision_function(X)
    assert np.allclose(scores.reshape(expected.shape), expected, atol=2e-3)


def test_shares_of_a_score_sum_to_it(fitted):
    model, y, _ = fitted
    for row in X[:3]:
        shares = model.explain(row)
        expected = model.predict([row]) if y is BENT else model.decision_function([row])
        assert np.allclose(np.sum([*shares.values()], axis=0), expected[0])
    assert [*shares][-1] == "constant" and len(shares) == len(model.terms().terms) + 1


def test_the_picture_shows_what_is_bent(fitted):
    pytest.importorskip("matplotlib")
    model, y, _ = fitted
    terms = model.terms()
    first = terms.terms[0]
    assert first.name == "column 1" and first.kind == "curve" and (first.x[0], first.x[-1]) == (0, 10)
    assert [*model.importances_] == [term.name for term in terms]
    if y is SIGN or y is BENT:  # a valley
        middle, ends = first.values[0, len(first.x) // 2], first.values[0, [0, -1]]
        assert np.all(ends > middle)
    if y is SIGN:
        assert np.all(first.band > 0) and "noise of the rounds only" in terms.text()
    assert len(model.plot(most=2).axes) == 2


def test_bands_cover_the_noise_of_the_rounds_and_no_more_is_said():
    """Of 20 seeds, with the map and the center of the first: their own centers move a steep curve by more."""
    draw = np.random.default_rng(0)
    rows = draw.beta(2, 3, (4000, 7)) * 2 - 1
    y = 4 * rows[:, 0] - rows[:, 2] + 0.7 * draw.logistic(size=4000) > 0
    settings = {"features": "additive", "bounds": (-1.0, 1.0), "classes": [False, True], "pairs": ()}
    models = [PrivateClassifier(1.0, random_state=seed, **settings).fit(rows, y) for seed in range(20)]
    given = models[0]._result.public["distribution"]
    own, fixed = [], []
    for model in models:
        result, public = model._result, model._result.public.copy()
        public["distribution"] = given
        own.append(terms_of(result))
        fixed.append(terms_of(replace(result, public=public)))

    def widest(found):
        """The largest ratio of 1.96 deviations over seeds and a band's half-width, of any column and value."""
        ratios = []
        for name in [term.name for term in own[0]]:
            terms = [next(term for term in each if term.name == name) for each in found]
            spread = COVERED * np.std([term.values[0] for term in terms], axis=0, ddof=1)
            ratios.append(np.max(spread / np.mean([term.band for term in terms], axis=0)))
        return max(ratios)

    assert widest(fixed) < 1 < widest(own)
    said = own[0].text()
    assert "not the noise in counts of columns" in said and "upper bound" not in said


def test_storage_makes_no_difference():
    simulated = {"random_state": 3, "classes": ["no", "yes"], "row_norm": WHOLE}
    for features, bounds in (("additive", BOUNDS), ("linear", BOUNDS), ("auto", None)):
        settings = simulated | {"features": features, "bounds": bounds}
        dense, other = (
            PrivateClassifier(1.0, **settings).fit(kind(X), SIGN) for kind in (np.asarray, sparse.csr_array)
        )
        assert np.array_equal(dense.coef_, other.coef_) and dense.spec_ == other.spec_


def test_without_bounds_auto_is_linear_and_says_so():
    settings = {"row_norm": WHOLE, "classes": ["no", "yes"], "random_state": 1}
    model = PrivateClassifier(1.0, **settings).fit(X, SIGN)
    assert model.features_ == "linear" and "bounds" in model.plan_.reasons[0]
    plain = PrivateClassifier(1.0, features="linear", **settings).fit(X, SIGN)
    assert np.array_equal(plain.coef_, model.coef_)
    with pytest.raises(SpecError, match=r"bounds=\{'age'"):
        PrivateClassifier(1.0, features="additive", **settings).fit(X, SIGN)
    with pytest.raises(SpecError, match="auto, additive, linear"):
        PrivateClassifier(1.0, features="splines", **settings).fit(X, SIGN)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [({"age": (0, 1)}, "no column"), ([(0, 1)], "3 columns"), ([(1, 0), None, None], "low < high")],
)
def test_bounds_that_bound_nothing_are_refused(bounds, message):
    with pytest.raises(SpecError, match=message):
        PrivateClassifier(1.0, bounds=bounds, row_norm=1.0, classes=["no", "yes"], random_state=1).fit(X, SIGN)


def test_where_all_columns_have_bounds_no_row_norm_is_missed():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        PrivateClassifier(1.0, bounds=(0, 10), classes=["no", "yes"], random_state=1).fit(X[:, :1], SIGN)


def test_an_encoder_gives_the_bounds():
    schema = {
        "label": {"column": "y", "classes": ["no", "yes"]},
        "columns": {
            "first": {"low": 0, "high": 10},
            "flag": {"type": "category", "categories": ["0", "1"]},
            "day": {"type": "date", "low": "2020-01-01", "high": "2021-01-01"},
        },
    }
    encoder = PublicEncoder(schema).fit()
    assert encoder.bounds_ == [(-1.0, 1.0), None, None, (-1.0, 1.0)]
    assert PublicScaler(bounds=(0, 9), feature_range=(0, 1)).fit(X).bounds_ == [(0.0, 1.0)] * 3


def test_without_noise_the_model_is_that_of_a_large_epsilon():
    settings = {"classes": ["no", "yes"], "random_state": 1, **PUBLIC}
    none, large = (PrivateClassifier(epsilon, **settings).fit(X, SIGN) for epsilon in (None, 10.0))
    assert none.features_ == large.features_ == "additive" and none.loss_ == large.loss_ == "logistic"
    scores = [roc_auc_score(SIGN, model.decision_function(X)) for model in (none, large)]
    assert scores[0] > scores[1] - 0.005


def test_the_rule_evaluates_public_numbers_alone():
    columns = Columns(12, tuple((k, 0.0, 1.0 + k) for k in range(10)), rest=1.0)
    many, few = (choose_features("auto", columns, Circumstances((q,), 3.73)) for q in (50_000, 400))
    assert many.features.degree > 1 and many.release and few.features.degree == 1 and not few.release
    alone = choose_features("auto", columns, Circumstances((50_000,), 3.73, may_release=False))
    assert not alone.release and not alone.features.distribution
    pixels = Columns(64, tuple((k, 0.0, 16.0) for k in range(64)))
    assert "pixels" in choose_features("auto", pixels, Circumstances((50_000,), 3.73)).reasons[0]
    assert choose_features("additive", pixels, Circumstances((50_000,), 3.73)).features.degree > 1


def test_all_pairs_are_added_where_records_are_many_and_columns_few():
    def pairs(records, d=3, real=False, z1=3.73, pairs=None):
        columns = Columns(d, tuple((k, 0.0, 1.0 + k) for k in range(d)), pairs=pairs)
        return choose_features("auto", columns, Circumstances((records,), z1, real=real)).features.pairs

    assert pairs(100_000) == ((0, 1), (0, 2), (1, 2))
    assert pairs(100_000, z1=200.0) == pairs(1_000) == ()
    assert pairs(100_000, pairs=()) == () and pairs(100_000, pairs=((0, 2),)) == ((0, 2),)
    assert len(pairs(1_000_000, d=12)) == 66 and pairs(10_000_000, d=30) == ()  # that many would be slow
    assert len(pairs(3_000, real=True)) == 3 and pairs(2_999, real=True) == ()


def test_few_records_get_smoother_functions_and_no_distribution_as_one():
    columns = Columns(3, tuple((k, 0.0, 1.0) for k in range(3)))
    few, many = (choose_features("auto", columns, Circumstances((q,), 3.73)).features for q in (9_999, 10_000))
    assert few.decay > many.decay and not few.distribution and many.distribution
    assert few.norm < many.norm
    for records, gate, degrees in ((5_000, 25.0, (16, 4)), (20_000, 8.0, (16, 4)), (5_000, 7.0, (4, 1))):
        z1 = records / (2 * len(columns.numeric) * gate)
        found = [choose_features("auto", columns, Circumstances((records,), z1 * factor)) for factor in (0.95, 1.05)]
        assert tuple(each.features.degree for each in found) == degrees and not found[1].release
        assert degrees[0] == 4 or found[0].features.norm > 1.1 * found[1].features.norm  # few functions hardly lengthen


def test_two_classes_get_a_logistic_loss_where_columns_have_bounds_and_noise_is_bearable():
    columns = Columns(2, ((0, -1.0, 1.0),), rest=1.0, encoded=True)

    def loss(records, free=("loss",), **more):
        known = {"columns": columns, "wanted": "linear", "free": free} | more
        request = FitRequest((records,), ("a",), 2, LOSSES.read("hinge"), epsilon=1.0, intercept=1.0, **known)
        return plan_fit(request).spec.problem.loss.name

    assert loss(5_000) == "logistic" and loss(300) == "hinge"  # Q is 670 and 40
    assert loss(5_000, free=()) == "hinge" and loss(5_000, columns=None) == "hinge"


def test_pairs_learn_what_columns_do_together():
    U = np.random.default_rng(1).uniform(-1, 1, (6000, 2))
    y = U[:, 0] * U[:, 1] > 0
    public = {"bounds": (-1, 1), "classes": [False, True], "random_state": 0}
    alone, together = (PrivateClassifier(2.0, pairs=pairs, **public).fit(U, y) for pairs in (None, [(1, 0)]))
    assert together.score(U, y) > 0.9 > 0.6 > alone.score(U, y)
    term = next(iter(together.terms()))
    assert term.kind == "map" and term.name == "column 1 × column 2"
    assert np.isclose(sum(together.explain(U[0]).values()), together.decision_function(U[:1])[0])
    together._result.verify()
    every = PrivateClassifier(2.0, pairs="all", **public).fit(U, y)
    assert np.array_equal(every.coef_, together.coef_)
    with pytest.raises(SpecError, match="two different numeric columns"):
        PrivateClassifier(2.0, pairs=[(0, 7)], **public).fit(U, y)
