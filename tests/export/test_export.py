"""What is published of a run: verified, complete, applied by ten lines of NumPy, and nothing that is not private."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce import PrivateClassifier, PrivateRegressor, load
from sottovoce.cli.main import app
from sottovoce.data.schema import read_schema
from sottovoce.errors import DataError, PrivacyError, SottovoceError, SpecError
from sottovoce.export import publish
from sottovoce.export.card import FILES, card
from sottovoce.run.result import COLUMNS, History, Result

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 3))
SIGN = np.where(X[:, 0] + 0.2 > X[:, 1], "yes", "no")
THREE = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(3, 3)), axis=1)]
REAL = 100 + 20 * X[:, 0] - 10 * X[:, 1]
BOUND = {"row_norm": 1.2}
FITS = {
    "two classes": (PrivateClassifier(2.0, classes=["no", "yes"], **BOUND), SIGN),
    "numbers": (PrivateClassifier(2.0, classes=[0, 1], loss="logistic", **BOUND), (SIGN == "yes").astype(int)),
    "three classes": (PrivateClassifier(2.0, classes=["a", "b", "c"], **BOUND), THREE),
    "one against the rest": (PrivateClassifier(2.0, classes=["a", "b", "c"], loss="hinge", **BOUND), THREE),
    "a regression": (PrivateRegressor(2.0, target_bounds=(60, 140), **BOUND), REAL),
}


def command(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit | SottovoceError):
        raise done.exception
    return (0, done.stdout) if done.exception is None else (done.exception.exit_code, str(done.exception))


PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
HOW = PAGE.split("```python\nimport json")[1].split("```")[0]
"""What docs/report.md gives to apply a published model."""


def applied(path, rows):
    """The model in plain NumPy, by the code of docs/report.md."""
    assert HOW.count('"public/model.json"') == 1
    names = {"X": rows}
    exec("import json" + HOW.replace('"public/model.json"', repr(str(path))), names)
    scores = names["scores"]
    return names["answers"], scores[:, 0] if scores.shape[1] == 1 else scores


@pytest.fixture(scope="module", params=FITS)
def exported(request, tmp_path_factory):
    model, y = FITS[request.param]
    folder = tmp_path_factory.mktemp("export")
    model.fit(X, y)
    if request.param == "two classes":
        model.threshold_ = -0.1
    model.save(folder / "run")
    publish(folder / "run", folder / "public", name="Sick | or <b>not</b>", use="Research only.")
    return model, folder


def test_the_published_model_answers_as_the_estimator_does(exported):
    model, folder = exported
    for rows in (X, 9 * X):
        answers, scores = applied(folder / "public" / "model.json", rows)
        expected = model.predict(rows)
        if answers.dtype.kind == "f":
            assert answers == pytest.approx(expected, rel=1e-12)
        else:
            assert np.array_equal(answers, expected) and np.allclose(scores, model.decision_function(rows), rtol=1e-9)


def test_there_is_what_may_be_published_and_nothing_else(exported):
    model, folder = exported
    names = {path.name for path in (folder / "public").iterdir()}
    assert names - {"model.onnx"} == set(FILES) - {"model.onnx"}
    text = (folder / "public" / "MODEL_CARD.md").read_text()
    said = model.privacy_
    for needed in (
        f"{said.delta:g}", said.adversary, said.adjacency, *said.assumptions, *said.not_covered, "Research only.",
        "600 in all", Result.load(folder / "run").environment["date"], "No private evaluation", r"Sick \| or \<b\>not",
    ):  # fmt: skip
        assert needed in text.replace("\\_", "_").replace("\\[", "[").replace("\\]", "]") or needed in text, needed
    if len(getattr(model, "classes_", ())) == 2:
        assert f"The positive class is **{model.classes_[1]}**" in text
    stated = json.loads((folder / "public" / "statement.json").read_text())
    assert stated == said.to_dict()
    assert command("account", "--verify", folder / "public" / "statement.json")[0] == 0
    assert said.verdict() in (folder / "public" / "statement.txt").read_text()


def numbers_of(value):
    """Every number in plain values, wherever it is, also within texts."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, str):
        return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", value.replace(",", ""))]
    return [each for item in (value.values() if isinstance(value, dict) else value) for each in numbers_of(item)]


def strange_numbers(public, result):
    """Numbers in an export that are none of those that may be in it, as they are or rounded for reading."""
    known = [result.spec.to_dict(), result.public, result.statement.to_dict(), result.scale.to_dict(),
             result.environment["date"], result.environment["sottovoce"], np.atleast_2d(result.coef).tolist(),
             np.atleast_1d(result.intercept).tolist(), result.statement.paragraph(), list(result.classes or ()),
             sum(result.public["records"]), [result.coef.shape[-1], len(result.classes or ()), 1, 0, 2]]  # fmt: skip
    exact = numbers_of(known)
    allowed = {*exact, *(float(f"{value:.{digits}g}") for value in exact for digits in (3, 4, 5, 6))}
    texts = {path.name: path.read_text() for path in public.iterdir() if path.suffix != ".onnx"}
    values = {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()}
    return [(name, number) for name, value in values.items() for number in numbers_of(value) if number not in allowed]


def test_no_number_in_it_depends_on_the_data_but_through_the_mechanism(exported, tmp_path):
    """All that is there follows from spec, public numbers, statement, day and the released model."""
    model, folder = exported
    result = Result.load(folder / "run")
    assert strange_numbers(folder / "public", result) == []
    accuracy = float(np.mean(np.abs(model.predict(X) - REAL))) if result.classes is None else 0.8713331
    publish(folder / "run", tmp_path / "public", use=f"It has an accuracy of {accuracy:.7f}.")
    assert strange_numbers(tmp_path / "public", result)  # that would be seen


def test_what_is_not_private_changes_no_byte_of_it(exported, tmp_path):
    _, folder = exported
    result = Result.load(folder / "run")
    pre_released = History([dict.fromkeys(COLUMNS, 0) | {"round": 1, "objective": 0.4711, "train_accuracy": 0.815}])
    slow = result.environment | {"seconds": 4711.0, "cores": 815}
    other = replace(result, history=pre_released, environment=slow)
    other.save(tmp_path / "run", not_private_history=True)
    for run, public in ((folder / "run", "one"), (tmp_path / "run", "two")):
        publish(run, tmp_path / public, name="Model", use="Research only.")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_onnx_answers_the_same(exported):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model, folder = exported
    session = runtime.InferenceSession(str(folder / "public" / "model.onnx"), providers=["CPUExecutionProvider"])
    for rows in (X, 9 * X):
        found = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, {"X": rows.astype(np.float32)}), strict=True)
        )
        if "prediction" in found:
            assert found["prediction"][:, 0] == pytest.approx(model.predict(rows), rel=1e-4)
            continue
        scores = model.decision_function(rows)
        assert np.allclose(found["score"].reshape(scores.shape), scores, atol=1e-4)
        assert np.allclose(found["probabilities"], model.predict_proba(rows), atol=1e-4)
        margin = np.abs(scores - model.threshold_) if scores.ndim == 1 else np.ptp(np.sort(scores)[:, -2:], axis=1)
        clear = margin > 1e-3
        assert np.array_equal(found["label"][clear], model.predict(rows)[clear])
    assert session.get_modelmeta().custom_metadata_map["privacy"] == model.privacy_.verdict()


SCHEMA = """
row_norm = 1.2
[label]
column = "sick"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 100
missing = 50
[columns.ward]
type = "category"
categories = ["A", "B"]
missing = "none"
[columns.smoker]
type = "flag"
categories = ["no", "yes"]
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A file of raw columns, and the folder of a secret run on it."""
    home = tmp_path_factory.mktemp("raw")
    ages, wards, smokes = rng.integers(0, 120, 500), rng.choice(["A", "B", "C"], 500), rng.choice(["no", "yes"], 500)
    sick = np.where(ages + 20 * (wards == "A") > 60, "yes", "no")
    lines = ["age,ward,smoker,sick", *map(",".join, zip(map(str, ages), wards, smokes, sick, strict=True))]
    (home / "raw.csv").write_text("\n".join(lines))
    (home / "schema.toml").write_text(SCHEMA)
    trained = ["train", home / "raw.csv", "--schema", home / "schema.toml", "--nodes", 2, "--epsilon", 4]
    code, out = command(*trained, "--out", home / "run", "--observations", 0)
    assert code == 0, out
    return home, ages, wards, smokes


def test_raw_columns_are_encoded_as_the_file_says(raw, tmp_path):
    home, ages, wards, smokes = raw
    publish(home / "run", tmp_path / "public")
    m = json.loads((tmp_path / "public" / "model.json").read_text())
    values, made = {"age": ages, "ward": wards, "smoker": smokes}, []
    for column in m["columns"]:
        x = values[column["column"]]
        if column["type"] == "number":
            low, high = column["low"], column["high"]
            made.append((np.clip(x, low, high) - (low + high) / 2) / ((high - low) / 2))
        elif column["type"] == "category":
            made += [x == each for each in column["categories"]]
        else:
            made.append(np.where(x == column["categories"][1], 1, -1))
    answers, _ = applied(tmp_path / "public" / "model.json", np.column_stack(made).astype(float))
    code, out = command("predict", home / "run", home / "raw.csv", "--json")
    assert code == 0 and answers.tolist() == json.loads(out)["predictions"]
    assert m["features"] == list(read_schema(home / "schema.toml").features)


def test_an_additive_model_of_raw_columns_is_applied_as_the_file_says(raw, tmp_path):
    home, ages, wards, smokes = raw
    schema = home / "free.toml"
    schema.write_text(SCHEMA.replace("row_norm = 1.2", ""))
    trained = ["train", home / "raw.csv", "--nodes", 2, "--epsilon", 4, "--feature-map", "additive", "--schema"]
    refused, message = command(*trained, home / "schema.toml")
    assert refused == 2 and "row_norm" in message
    code, out = command(*trained, schema, "--out", tmp_path / "run", "--observations", 0)
    assert code == 0, out
    assert "What each column adds" in (tmp_path / "run" / "report.html").read_text()
    publish(tmp_path / "run", tmp_path / "public")
    columns = [np.clip(ages / 50 - 1, -1, 1), wards == "A", wards == "B", np.where(smokes == "yes", 1, -1)]
    answers, _ = applied(tmp_path / "public" / "model.json", np.column_stack(columns).astype(float))
    code, out = command("predict", tmp_path / "run", home / "raw.csv", "--json")
    assert code == 0 and answers.tolist() == json.loads(out)["predictions"]
    code, out = command("evaluate", tmp_path / "run", home / "raw.csv", "--json")
    assert code == 0 and json.loads(out)["figures"]["accuracy"]["value"] > 0.6, out


def test_an_evaluation_is_on_the_card_if_it_is_the_runs_own(raw, tmp_path):
    home, *_ = raw
    folder = load(home / "run").save(tmp_path / "run")
    code, out = command("evaluate", folder, home / "raw.csv", "--json")
    assert code == 0, out
    value = json.loads(out)["figures"]["accuracy"]["value"]
    publish(folder, tmp_path / "public")
    text = (tmp_path / "public" / "MODEL_CARD.md").read_text()
    assert f"| accuracy | {value:.4f} |" in text and "as if it was in both training and evaluation" in text
    kept = folder / "evaluation.json"
    kept.write_text(kept.read_text().replace(str(value), "0.999"))
    with pytest.raises(DataError, match="not the file that the result was saved with"):
        publish(folder, tmp_path / "forged")
    kept.unlink()
    publish(folder, tmp_path / "without")
    assert "No private evaluation" in (tmp_path / "without" / "MODEL_CARD.md").read_text()


def test_what_does_not_verify_or_guarantees_nothing_is_not_published(raw, tmp_path):
    home, *_ = raw
    result = Result.load(home / "run")
    forged = replace(result, statement=replace(result.statement, epsilon=0.1)).save(tmp_path / "forged")
    with pytest.raises(PrivacyError, match=r"epsilon is 0\.1"):
        publish(forged, tmp_path / "public")
    seeded = PrivateClassifier(2.0, classes=["no", "yes"], random_state=1, **BOUND).fit(X, SIGN)
    seeded.save(tmp_path / "seeded")
    noiseless = PrivateClassifier(None, classes=["no", "yes"], **BOUND).fit(X, SIGN).save(tmp_path / "noiseless")
    for folder in (tmp_path / "seeded", noiseless):
        with pytest.raises(PrivacyError, match="no guarantee to publish"):
            publish(folder, tmp_path / "public")
    assert not (tmp_path / "public").exists()
    publish(tmp_path / "seeded", tmp_path / "public", without_guarantee=True)
    assert "SIMULATION" in (tmp_path / "public" / "MODEL_CARD.md").read_text()


def test_a_model_that_went_on_from_another_is_not_published_as_the_last_fit_alone(tmp_path):
    model = PrivateClassifier(1.0, classes=["no", "yes"], warm_start=True, **BOUND).fit(X, SIGN)
    publish(model.save(tmp_path / "one"), tmp_path / "first")
    model.fit(X, SIGN)  # its statement says 1, and both together cost 1.47
    assert model.spent_.epsilon > 1.4
    for run in (model.save(tmp_path / "two"), load(tmp_path / "two").save(tmp_path / "again")):
        with pytest.raises(PrivacyError, match="went on from 1 earlier fit "):
            publish(run, tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_an_export_takes_no_place_that_is_taken(raw, tmp_path):
    home, *_ = raw
    assert command("export", home / "run", "--out", tmp_path / "public", "--json")[0] == 0
    code, said = command("export", home / "run", "--out", tmp_path / "public")
    assert code == 2 and "there is an export" in said and "--force" in said
    assert command("export", home / "run", "--out", tmp_path / "public", "--force", "--name", "Two")[0] == 0
    front, page = (tmp_path / "public" / "MODEL_CARD.md").read_text().removeprefix("---\n").split("\n---\n", 1)
    assert page.strip().startswith("# Two") and "pipeline_tag: tabular-classification" in front.splitlines()
    (tmp_path / "public" / "raw.csv").write_text("a secret")
    code, said = command("export", home / "run", "--out", tmp_path / "public", "--force")
    assert code == 2 and "holds other files (raw.csv)" in said and (tmp_path / "public" / "raw.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["public"]
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="is a file"):
        publish(home / "run", tmp_path / "file")
    with pytest.raises(DataError, match="cannot be written"):
        publish(home / "run", tmp_path / "file" / "public")


def test_a_card_is_one_page_of_text_whatever_names_hold(raw):
    home, *_ = raw
    evil = "</script> | `x` **b**\n# heading\x1b[31m"
    text = card(Result.load(home / "run"), evil, evil)
    assert "\n# heading" not in text and "\x1b" not in text and "</script>" not in text and "| `x`" not in text
