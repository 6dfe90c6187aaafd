"""From an estimator to a folder and back: the same numbers, the same statement, and nothing that was tampered with."""

import json
import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import sottovoce
from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV, PublicScaler, load
from sottovoce.cli.main import app
from sottovoce.data.schema import read_schema
from sottovoce.errors import DataError, PrivacyError, SottovoceError, SpecError
from sottovoce.run.result import Result
from sottovoce.run.verify import again

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 3))
SIGN = np.where(X[:, 0] + 0.2 > X[:, 1], "yes", "no")
THREE = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(3, 3)), axis=1)]
REAL = 100 + 20 * X[:, 0] - 10 * X[:, 1]
FAR = 7 * X
"""Rows over the bound."""
HOSPITAL = np.array(["north", "south"])[np.arange(400) % 2]
TWO = PrivateClassifier(2.0, row_norm=1.5, classes=["no", "yes"])
MORE = PrivateClassifier(2.0, row_norm=1.5, classes=["a", "b", "c"])
NUMBER = PrivateRegressor(2.0, row_norm=1.5, target_bounds=(60, 140), method="statistics")
FITS = {
    "two classes": (TWO, {}, SIGN),
    "logistic without an intercept": (TWO, {"loss": "logistic", "fit_intercept": False}, SIGN),
    "three classes": (MORE, {}, THREE),
    "one against the rest": (MORE, {"loss": "hinge"}, THREE),
    "numbers as classes": (TWO, {"classes": (0, 3), "class_weight": {0: 1.0, 3: 2.0}}, np.where(SIGN == "no", 0, 3)),
    "a rare class, by counts of scores": (
        TWO,
        {"class_weight": "balanced", "prior": (0.93, 0.07), "epsilon": 8.0},
        np.where(X[:, 0] > 0.86, "yes", "no"),
    ),
    "truth values": (TWO, {"classes": [False, True], "random_state": np.random.default_rng(3)}, SIGN == "yes"),
    "statistics": (NUMBER, {}, REAL),
    "descent, no intercept": (NUMBER, {"method": "descent", "fit_intercept": False}, REAL),
}


def fitted(name, **changes):
    model, more, y = FITS[name]
    return clone(model).set_params(**more | changes).fit(X, y, nodes=HOSPITAL)


def outputs(model, rows):
    """Everything that a model says of records."""
    requested = ("predict", "decision_function", "predict_proba", "predict_log_proba", "predict_interval")
    return {name: getattr(model, name)(rows) for name in requested if hasattr(model, name) and _can(model, name)}


def _can(model, name):
    return name != "predict_interval" or model.statistics_ is not None


def command(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit | SottovoceError):
        raise done.exception
    return (0, done.output) if done.exception is None else (done.exception.exit_code, str(done.exception))


def csv(path, rows, names="abc"):
    path.write_text("\n".join([",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]))
    return path


@pytest.mark.parametrize("name", FITS)
def test_a_model_comes_back_as_it_was(name, tmp_path):
    model = fitted(name)
    again = load(model.save(tmp_path / "run"))
    assert type(again) is type(model) and not list((tmp_path / "run").glob("*.pkl"))
    for rows in (X, FAR, sparse.csr_array(X)):
        mine, its = outputs(model, rows), outputs(again, rows)
        assert mine.keys() == its.keys() and all(np.array_equal(mine[key], its[key]) for key in mine)
        assert all(mine[key].dtype == its[key].dtype for key in mine)
    for kept in ("coef_", "intercept_", "node_coef_", "node_intercept_", "nodes_"):
        assert np.array_equal(getattr(model, kept), getattr(again, kept))
    assert again.privacy_ == model.privacy_ and again.spec_ == model.spec_ and not hasattr(again, "spent_")
    given = {key: value for key, value in model.get_params().items() if key != "random_state"}
    assert {key: again.get_params()[key] for key in given} == given
    assert again.schema_ is None and again.n_features_in_ == 3
    twice = load(again.save(tmp_path / "twice"))
    assert np.array_equal(twice.predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["two classes", "three classes", "statistics", "descent, no intercept"])
def test_the_command_takes_a_saved_model(name, tmp_path):
    model = fitted(name)
    if name == "two classes":
        model.threshold_ = 0.1
    folder, file = model.save(tmp_path / "run"), csv(tmp_path / "new.csv", FAR)
    code, out = command("predict", folder, file, "--json")
    assert code == 0, out
    details, expected = json.loads(out), model.predict(FAR)
    if expected.dtype.kind == "f":
        assert details["predictions"] == pytest.approx(expected.tolist(), rel=1e-9)
    else:
        assert details["predictions"] == expected.tolist()
    if hasattr(model, "decision_function"):
        assert np.allclose(details["decisions"], model.decision_function(FAR), rtol=1e-9)
    assert command("account", "--verify", folder)[0] == 0
    assert command("report", folder)[0] == 0 and (folder / "report.html").exists()


def test_a_trained_folder_loads_as_an_estimator(tmp_path):
    rows = X / 2
    lines = ["a,b,c,label", *(f"{','.join(map(repr, row))},{y}" for row, y in zip(rows.tolist(), SIGN, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    more = ["--label", "label", "--classes", "no,yes", "--nodes", 2, "--intercept", 0.7, "--seed", 1]
    code, out = command("train", tmp_path / "t.csv", *more, "--out", tmp_path / "run")
    assert code == 0, out
    model, result = load(tmp_path / "run"), Result.load(tmp_path / "run")
    assert isinstance(model, PrivateClassifier) and model.classes_.tolist() == ["no", "yes"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of columns, which arrays have not
        for some in (rows, FAR):
            assert np.allclose(model.decision_function(some), result.decide(some), rtol=1e-12)
            assert np.array_equal(model.predict(some), result.predict(some))
    assert model.intercept_[0] == result.intercept and model.privacy_ == result.statement
    assert np.mean(model.node_coef_, axis=0) == pytest.approx(model.coef_)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    again = load(model.save(tmp_path / "again"))
    assert np.array_equal(again.coef_, model.coef_)
    assert replace(Result.load(tmp_path / "again"), scale=result.scale) == result
    model.set_params(random_state=4).fit(X, SIGN)  # and can be fitted anew
    assert model.predict(FAR).tolist() == model.predict(1e6 * X).tolist()  # as an estimator that bounds rows


SCHEMA = """
row_norm = 1.0
[label]
column = "sick"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 100
[columns.ward]
type = "category"
categories = ["A", "B"]
"""


def test_with_its_schema_a_model_takes_raw_files(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    ages, wards = rng.integers(0, 100, 300), rng.choice(["A", "B"], 300)
    sick = np.where(ages + 20 * (wards == "A") > 60, "yes", "no")
    lines = ["age,ward,sick", *(f"{a},{w},{s}" for a, w, s in zip(ages, wards, sick, strict=True))]
    (tmp_path / "raw.csv").write_text("\n".join(lines))
    schema = read_schema(tmp_path / "schema.toml")
    encoded = schema.read(tmp_path / "raw.csv")
    model = PrivateClassifier(5.0, row_norm=1.0, classes=["no", "yes"], random_state=1).fit(encoded.X, sick)
    folder = model.save(tmp_path / "run", schema=tmp_path / "schema.toml")
    again = load(folder)
    assert again.schema_ == schema and np.array_equal(again.predict(encoded.X), model.predict(encoded.X))
    code, out = command("predict", folder, tmp_path / "raw.csv", "--json")
    assert code == 0 and json.loads(out)["predictions"] == model.predict(encoded.X).tolist()
    assert load(again.save(tmp_path / "again")).schema_ == schema
    (tmp_path / "wide.toml").write_text(SCHEMA.replace('["A", "B"]', '["A", "B", "C"]'))
    with pytest.raises(SpecError, match="makes 4 features of a record, and the model has 3"):
        model.save(tmp_path / "wide", schema=tmp_path / "wide.toml")
    (folder / "schema.toml").write_text(SCHEMA.replace("high = 100", "high = 1000"))
    with pytest.raises(DataError, match="not the file that the result was saved with"):
        load(folder)
    trained = ["train", tmp_path / "raw.csv", "--schema", tmp_path / "schema.toml", "--nodes", 2, "--seed", 1]
    assert command(*trained, "--out", tmp_path / "trained")[0] == 0
    assert load(tmp_path / "trained").schema_ == schema


TAMPERINGS = {
    "a statement that is too good": lambda head: head["privacy"] | {"epsilon": 0.01},
    "another noise": lambda head: json.loads(json.dumps(head["privacy"]).replace('"sigma": ', '"sigma": 1')),
    "a simulation that is none": lambda head: head["privacy"] | {"simulation": False},
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_folder_is_refused(name, tmp_path):
    folder = fitted("two classes", random_state=1).save(tmp_path / "run")
    head = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(head | {"privacy": TAMPERINGS[name](head)}))
    with pytest.raises(PrivacyError):
        load(folder)
    assert command("account", "--verify", folder)[0] == 5


@pytest.mark.parametrize("file", ["model.npz", "estimator.json"])
def test_a_folder_that_is_not_whole_is_refused(file, tmp_path):
    folder = fitted("two classes", random_state=1).save(tmp_path / "run")
    content = (folder / file).read_bytes()
    for wrong in (content[:-20], content[: len(content) // 2], b"", pickle.dumps({"models": 1})):
        (folder / file).write_bytes(wrong)
        with pytest.raises(DataError, match=r"no readable result|not the file"):
            load(folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match=r"no readable result|no whole result"):
        load(folder)


def test_words_that_describe_no_estimator_are_refused(tmp_path):
    result = fitted("two classes", random_state=1).to_result()
    for wrong in (b"[]", b"{}", b'{"estimator": "eval", "params": {}}', b'{"params": {"epsilon": {"code": 1}}}'):
        folder = result.save(tmp_path / "run", beside={"estimator.json": wrong})
        with pytest.raises(DataError, match=r"describes no estimator|holds no JSON object"):
            load(folder)


def test_what_is_no_model_of_ours_is_one_sentence(tmp_path):
    model = fitted("two classes", random_state=1)
    pipe = make_pipeline(PublicScaler([-1] * 3, [1] * 3), model)
    with pytest.raises(SpecError, match=r"a pipeline is not kept as one: save its last step, pipeline\[-1\]"):
        sottovoce.save(pipe, tmp_path)
    with pytest.raises(SpecError, match="PublicScaler is no model with a statement"):
        sottovoce.save(pipe[0], tmp_path)
    with pytest.raises(ValueError, match="not fitted"):
        PrivateClassifier().save(tmp_path)
    days = np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")
    odd = PrivateClassifier(2.0, row_norm=1.5, classes=days, random_state=1).fit(X, days[(SIGN == "yes").astype(int)])
    with pytest.raises(SpecError, match="cannot be kept in a file"):
        odd.save(tmp_path)
    with pytest.raises(DataError, match="holds no readable result"):
        load(tmp_path / "nowhere")


def test_a_release_is_not_overwritten(tmp_path):
    fitted("two classes").save(tmp_path / "run")
    other = fitted("two classes")
    with pytest.raises(SpecError, match="another one would take its place"):
        other.save(tmp_path / "run")
    other.save(tmp_path / "run", force=True)
    assert np.array_equal(load(tmp_path / "run").coef_, other.coef_)


def test_a_search_is_kept_with_the_statement_of_all_of_it(tmp_path):
    tuned = PrivateSearchCV(TWO, {"rounds": [10, 20]}, runs=2, epsilon=4.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned.fit(X, SIGN)
    again = load(tuned.save(tmp_path / "run"))
    assert again.privacy_ == tuned.privacy_ and np.array_equal(again.predict(X), tuned.predict(X))
    assert np.array_equal(tuned.predict_log_proba(X), np.log(again.predict_proba(X)))
    assert tuned.report(tmp_path / "page.html").stat().st_size > 1e6


def test_a_warm_start_continues_from_a_loaded_model(tmp_path):
    model = fitted("two classes", random_state=1, warm_start=True)
    model.fit(X, SIGN, nodes=HOSPITAL)
    again = load(model.save(tmp_path / "run"))
    for each in (model, again):
        each.fit(X, SIGN, nodes=HOSPITAL)
    assert np.array_equal(again.coef_, model.coef_)  # also the noise is that of a third fit


def words(path):
    """The text of a page, without the figures' numbers."""
    page = path.read_text()
    return re.sub(r"<[^>]*>", " ", re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S)).split()


def test_the_page_is_the_one_that_the_command_makes(tmp_path):
    model = fitted("two classes", random_state=1)
    folder = model.save(tmp_path / "run")
    model.report(tmp_path / "mine.html", title="Mine")
    assert command("report", folder, "--title", "Mine", "--out", tmp_path / "its.html")[0] == 0
    assert words(tmp_path / "mine.html") == words(tmp_path / "its.html")
    model.privacy_ = replace(model.privacy_, simulation=False)
    with pytest.raises(PrivacyError, match="simulation"):
        model.report(tmp_path / "forged.html")
    assert not (tmp_path / "forged.html").exists()


def test_a_run_that_took_its_center_off_verifies_whatever_the_noise():
    """A plan is made again on records that hold nothing, whose noisy mean may yet seem long: one time of twelve."""
    result = fitted("two classes").to_result()
    assert result.spec.privacy.moments.center
    for schedule in (18, 19, 39):
        again(result.spec, result.public | {"schedule_seed": schedule}, people=False)


def test_an_evaluation_is_kept_with_the_model_and_covered_by_its_statement(tmp_path):
    rows, y = rng.uniform(-1, 1, (200, 3)), np.array(["no", "yes"])[rng.integers(0, 2, 200)]
    model = fitted("two classes")
    found = model.evaluate(rows, y, nodes=HOSPITAL[:200], disjoint=True)
    model.use_threshold(found, rate=0.3)
    folder = model.save(tmp_path / "run")
    again = load(folder)
    assert again.privacy_ == found.statement and again.privacy_.held_out and again.threshold_ == model.threshold_
    details = json.loads((folder / "evaluation.json").read_text())
    assert details["figures"]["accuracy"]["value"] == found.accuracy.value
    assert command("account", "--verify", folder)[0] == 0 and command("report", folder)[0] == 0
    assert f"{found.accuracy.value:.4f}" in (folder / "report.html").read_text()
    twice = again.save(tmp_path / "again")
    assert (twice / "evaluation.json").read_bytes() == (folder / "evaluation.json").read_bytes()
    with pytest.raises(PrivacyError, match="evaluate a model once"):
        again.evaluate(rows[:150], y[:150], nodes=HOSPITAL[:150], disjoint=True)
    again.evaluate(rows[:150], y[:150], nodes=HOSPITAL[:150])
    with pytest.raises(SpecError, match="evaluated 2 times"):
        again.save(tmp_path / "more")
    model.evaluate(rows[:150], y[:150], nodes=HOSPITAL[:150])
    with pytest.raises(SpecError, match="evaluated 2 times, and its threshold or probabilities come from one"):
        model.save(tmp_path / "twice")
    model.threshold_ = 0.0
    kept = load(model.save(tmp_path / "twice"))
    assert kept.privacy_ == model.privacy_ and not (tmp_path / "twice" / "evaluation.json").exists()
