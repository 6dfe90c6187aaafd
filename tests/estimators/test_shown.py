"""What a user sees of a fit: `verbose`, reprs, tables in notebooks, pickles, and a warning about several releases."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from sottovoce import PrivateClassifier, PrivateRegressor, PublicScaler
from sottovoce.errors import RepeatedReleaseWarning
from sottovoce.privacy.filter import any_of_each

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (400, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def classifier(seed=None, **more):
    return PrivateClassifier(1.0, row_norm=2.0, classes=["no", "yes"], random_state=seed, **more)


def regressor(seed=None, **more):
    return PrivateRegressor(1.0, row_norm=2.0, target_bounds=(-1, 1), random_state=seed, **more)


@pytest.mark.parametrize("seed", [None, 3])
def test_verbose_prints_plan_progress_and_guarantee(capsys, seed):
    model = classifier(seed, verbose=True).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[PrivateClassifier] ") for line in lines)
    assert any("the plan, from public numbers alone" in line for line in lines)
    done = [line for line in lines if re.search(r"[\d,]+ of [\d,]+ rounds", line)]
    rounds = f"{model.spec_.algorithm.rounds:,}"
    assert 1 <= len(done) <= 4 and done[-1].endswith(f"{rounds} of {rounds} rounds")
    assert lines[-1].endswith(model.privacy_.verdict())
    assert not re.search(r"\d s\b|seconds", "\n".join(done))  # a time depends on the records
    classifier(seed).fit(X, Y)
    assert capsys.readouterr().out == ""


def test_verbose_changes_no_bit_of_a_simulation(capsys):
    quiet, loud = classifier(7).fit(X, Y), classifier(7, verbose=1).fit(X, Y)
    assert quiet.coef_.tobytes() == loud.coef_.tobytes() and quiet.intercept_.tobytes() == loud.intercept_.tobytes()
    capsys.readouterr()


def test_what_is_shown_can_be_read():
    model = classifier(1).fit(X, Y)
    for value in (model.privacy_, model.plan_, model.spec_, model.evaluate(X, Y)):
        text, table = repr(value), value._repr_html_()
        assert text.startswith(type(value).__name__) and " at 0x" not in text and "lambda" not in text
        assert max(map(len, text.splitlines())) < 700
        assert table.startswith("<table>") and table.count("<tr>") == len(text.splitlines()) - 1
        assert "<lambda>" not in table and " at 0x" not in table
    assert model.privacy_.verdict() in repr(model.privacy_) and "adjacency" in repr(model.privacy_)
    assert f"rounds={model.spec_.algorithm.rounds}" in repr(model.spec_) and "1: a simulation" in repr(model.spec_)
    assert "accuracy" in repr(model.evaluate(X, Y)) and model.plan_.reasons[0] in repr(model.plan_)


def test_html_of_names_is_escaped():
    shown = classifier(1).fit(X, Y).evaluate(X, Y)
    object.__setattr__(shown, "records", 400)
    object.__setattr__(shown, "figures", {"<script>": "<b>"})
    assert "<script>" not in shown._repr_html_() and "&lt;script&gt;" in shown._repr_html_()


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("seed", [None, 2])
def test_a_fitted_model_goes_through_pickle(make, seed):
    target = Y if make is classifier else X[:, 0]
    pipeline = make_pipeline(PublicScaler((-1, 1)), make(seed)).fit(X, target)
    for again in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        assert np.array_equal(again.predict(X), pipeline.predict(X))
        assert again[-1].privacy_ == pipeline[-1].privacy_ and again[-1].spec_ == pipeline[-1].spec_


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_fitted_model_goes_through_skops(make, tmp_path):
    skops = pytest.importorskip("skops.io")
    model = make(2).fit(X, Y if make is classifier else X[:, 0])
    skops.dump(model, tmp_path / "model.skops")
    trusted = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(name.split(".")[0] in ("sottovoce", "numpy", "sklearn", "builtins", "functools") for name in trusted)
    again = skops.load(tmp_path / "model.skops", trusted=trusted)
    assert np.array_equal(again.predict(X), model.predict(X)) and again.privacy_ == model.privacy_


def several(make):
    """The warnings about repeated releases of a call."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        make()
    return [str(each.message) for each in heard if each.category is RepeatedReleaseWarning]


def test_cross_validation_says_what_it_costs():
    found = several(lambda: cross_val_score(classifier(), X, Y, cv=3))
    assert len(found) == 2 and found[-1].startswith("3 fits of clones of one PrivateClassifier")
    statement = classifier().fit(X, Y).privacy_
    fold = PrivateClassifier(1.0, row_norm=2.0, classes=["no", "yes"]).fit(X[:266], Y[:266]).privacy_
    whole = any_of_each(((fold.worst.event,),) * 3, fold.delta)
    printed = float(re.search(r"has ε = ([\d.]+)", found[-1])[1])
    assert printed == pytest.approx(whole, rel=0.02) and printed > 1.5 * statement.epsilon


def test_calibration_and_pipelines_are_counted_too():
    pipeline = make_pipeline(PublicScaler((-1, 1)), classifier())
    assert len(several(lambda: cross_val_score(pipeline, X, Y, cv=2))) == 1
    assert len(several(lambda: CalibratedClassifierCV(classifier(), cv=2).fit(X, Y))) == 1


def test_one_fit_a_simulation_and_separate_estimators_are_not_warned_of():
    assert several(lambda: classifier().fit(X, Y)) == []
    assert several(lambda: clone(classifier()).fit(X, Y)) == []
    assert several(lambda: cross_val_score(classifier(0), X, Y, cv=3)) == []
    assert several(lambda: [classifier().fit(X, Y) for _ in range(2)]) == []  # spent_ adds these up
    model = classifier()
    assert several(lambda: [clone(model).fit(X, Y) for _ in range(2)]) == []


def test_a_family_is_in_no_pickle():
    model = classifier()
    clone(model)
    assert "_family" in vars(model) and "_family" not in vars(pickle.loads(pickle.dumps(model)))
    assert model.get_params() == clone(model).get_params()
