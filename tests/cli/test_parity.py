"""What the estimators can the command can: the same plan from the same public numbers, and the same model."""

import csv
import json

import numpy as np
import pytest

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.run.result import Result

RNG = np.random.default_rng(5)
N = 1200
X = RNG.normal(size=(N, 3)) * [3.0, 1.0, 2.0] + [4.0, 0.0, -1.0]
SITE = RNG.choice(["north", "south", "west"], N, p=[0.5, 0.3, 0.2])
PERSON = np.char.add(SITE, RNG.integers(0, 100, N).astype(str))
SCORE = X @ [1.0, -2.0, 0.5] - 3.0
TWO = np.where(SCORE > 1.0, "yes", "no")
SMALL_RUN = np.where(np.quantile(SCORE, 0.9) < SCORE, "yes", "no")
THREE = np.array(["high", "low", "middle"])[np.digitize(SCORE, [-2.0, 2.0])]
NUMBER = 50 + 8 * SCORE


def written(path, label):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "c", "person", "site", "outcome"])
        rows.writerows([*map(repr, map(float, x)), p, s, v] for x, p, s, v in zip(X, PERSON, SITE, label, strict=True))
    return path


CASES = {
    "two classes": (TWO, PrivateClassifier, {"classes": ["no", "yes"]}, ["--classes", "no,yes"]),
    "no intercept": (
        TWO, PrivateClassifier, {"classes": ["no", "yes"], "fit_intercept": False, "private_scaling": False},
        ["--classes", "no,yes", "--no-intercept", "--no-private-scaling"],
    ),
    "several classes": (
        THREE, PrivateClassifier, {"classes": ["high", "low", "middle"]}, ["--classes", "high,low,middle"],
    ),
    "one against the rest": (
        THREE, PrivateClassifier, {"classes": ["high", "low", "middle"], "loss": "logistic"},
        ["--classes", "high,low,middle", "--loss", "logistic"],
    ),
    "a loss without a slope bound": (
        TWO, PrivateClassifier, {"classes": ["no", "yes"], "loss": "squared_hinge"},
        ["--classes", "no,yes", "--loss", "squared_hinge"],
    ),
    "weights and a prior": (
        TWO, PrivateClassifier,
        {"classes": ["no", "yes"], "class_weight": "balanced", "prior": {"no": 0.8, "yes": 0.2}},
        ["--classes", "no,yes", "--class-weight", "balanced", "--prior", "no=0.8,yes=0.2"],
    ),
    "half of the weights, and counts of scores": (
        SMALL_RUN, PrivateClassifier,
        {"classes": ["no", "yes"], "class_weight": "balanced", "prior": {"no": 0.9, "yes": 0.1}},
        ["--classes", "no,yes", "--class-weight", "balanced", "--prior", "no=0.9,yes=0.1"],
    ),
    "a regression": (NUMBER, PrivateRegressor, {"target_bounds": (-50, 150)}, ["--target-bounds", "-50,150"]),
    "a robust regression": (
        NUMBER, PrivateRegressor, {"target_bounds": (-50, 150), "loss": "huber(0.2)"},
        ["--target-bounds", "-50,150", "--loss", "huber:0.2"],
    ),
    "a regression in the range of its targets": (
        NUMBER, PrivateRegressor, {"target_bounds": (-5000, 5000), "target_scale": "private"},
        ["--target-bounds", "-5000,5000", "--target-scale", "private"],
    ),
    "the same for a share, with pairs": (
        NUMBER, PrivateRegressor, {"target_bounds": (-500, 500), "target_scale": 0.1, "trust": 1, "loss": "huber(0.5)"},
        ["--target-bounds", "-500,500", "--target-scale", 0.1, "--trust", 1, "--loss", "huber:0.5"],
    ),
    "majority": (
        TWO, PrivateClassifier, {"classes": ["no", "yes"], "trust": "majority"},
        ["--trust", "majority", "--classes", "no,yes"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "people"), [(name, False) for name in CASES] + [("several classes", True)])
def test_the_command_and_the_estimator_make_the_same_run(sottovoce, tmp_path, name, people):
    label, estimator, settings, options = CASES[name]
    path, out = written(tmp_path / "r.csv", label), tmp_path / "run"
    who = ["--user-id", "person"] if people else ["--drop", "person"]
    words = ["--label", "outcome", "--group", "site", "--row-norm", 25, "--epsilon", 2, "--seed", 3, "--out", out]
    code, _, err = sottovoce("train", path, *words, *who, *options)
    assert code == 0, err
    found = Result.load(out)
    model = estimator(2.0, row_norm=25, random_state=3, **settings)
    model.fit(X, label, nodes=SITE, user_ids=PERSON if people else None)
    kept = model.to_result(("a", "b", "c"))
    assert (found.spec.privacy.balance.total > 0) == (label is SMALL_RUN)
    assert found.spec == model.spec_ and found.statement == model.privacy_ and found.public == kept.public
    np.testing.assert_allclose(found.models, kept.models, rtol=1e-6, atol=1e-9)
    assert (found.classes, found.nodes, found.features) == (kept.classes, kept.nodes, kept.features)
    np.testing.assert_allclose(np.ravel(found.intercept), np.ravel(model.intercept_), rtol=1e-6, atol=1e-9)
    written_down = tmp_path / "predicted.txt"
    assert sottovoce("predict", out, path, "--out", written_down)[0] == 0
    said, expected = written_down.read_text().splitlines(), model.predict(X)
    if estimator is PrivateClassifier:
        assert np.mean(np.array(said) == expected) > 0.999
    else:
        np.testing.assert_allclose(np.array(said, dtype=float), expected, rtol=1e-4)


def test_probabilities_are_those_of_the_estimator(sottovoce, tmp_path):
    path, out = written(tmp_path / "r.csv", THREE), tmp_path / "run"
    words = ["--label", "outcome", "--group", "site", "--drop", "person", "--row-norm", 25, "--seed", 3, "--out", out]
    assert sottovoce("train", path, *words)[0] == 0
    model = PrivateClassifier(1.0, row_norm=25, classes=["high", "low", "middle"], random_state=3)
    model.fit(X, THREE, nodes=SITE)
    code, said, _ = sottovoce("predict", out, path, "--probabilities", "--scores", "--id", "person")
    rows = list(csv.DictReader(said.splitlines()))
    assert code == 0 and [row["person"] for row in rows[:3]] == PERSON[:3].tolist()
    details = np.array([[float(row[f"probability {name}"]) for name in model.classes_] for row in rows])
    np.testing.assert_allclose(details, model.predict_proba(X), rtol=1e-5)


def test_a_sweep_starts_from_the_plan_of_train(sottovoce, tmp_path):
    path = written(tmp_path / "r.csv", TWO)
    words = ["--label", "outcome", "--group", "site", "--drop", "person", "--row-norm", 25, "--classes", "no,yes"]
    code, said, err = sottovoce("sweep", path, *words, "--epsilon", 1, "--epsilon", 4, "--seeds", 1, "--json")
    assert code == 0, err
    swept = json.loads(said)["runs"]
    for row, epsilon in zip(swept, (1, 4), strict=True):
        code, said, _ = sottovoce("train", path, *words, "--epsilon", epsilon, "--seed", 0, "--json")
        trained = json.loads(said)
        assert row["h"] == trained["spec"]["problem"]["h"] and row["epsilon"] == trained["privacy"]["epsilon"]
        assert row["objective"] == pytest.approx(trained["last"]["objective"], rel=1e-9)
        assert row["round"] == trained["spec"]["algorithm"]["rounds"]
    assert swept[0]["h"] != swept[1]["h"]


def test_a_shifted_file_needs_the_intercept_that_it_gets(sottovoce, tmp_path):
    """0.81 without, 0.97 with: what version 0.1 lost by default."""
    shifted = np.clip(RNG.normal(0.5, 0.2, (4000, 2)), 0, 1)
    path = tmp_path / "shifted.csv"
    rows = "\n".join(f"{a!r},{b!r},{int(a + b > 1.2)}" for a, b in shifted.tolist())
    path.write_text(f"a,b,y\n{rows}\n")

    def accuracy(*words):
        code, said, err = sottovoce(
            "train", path, "--row-norm", 1.5, "--epsilon", 4, "--nodes", 2, "--seed", 1, "--json", *words
        )
        assert code == 0, err
        return json.loads(said)["last"]["train_accuracy"]

    assert accuracy() > 0.93 and accuracy("--no-intercept", "--no-private-scaling") < 0.9


def test_people_without_a_schema_are_evaluated_as_people(sottovoce, tmp_path):
    path, out = written(tmp_path / "r.csv", TWO), tmp_path / "run"
    words = ["--label", "outcome", "--group", "site"]
    code, _, err = sottovoce(
        "train",
        path,
        *words,
        "--user-id",
        "person",
        "--row-norm",
        25,
        "--epsilon",
        2,
        "--rounds",
        20,
        "--seed",
        3,
        "--out",
        out,
    )
    assert code == 0, err
    bare = tmp_path / "bare.csv"  # a file that does not say whose each record is
    header, *lines = path.read_text().splitlines()
    kept = [j for j, name in enumerate(header.split(",")) if name != "person"]
    bare.write_text("".join(",".join(line.split(",")[j] for j in kept) + "\n" for line in [header, *lines]))
    code, _, err = sottovoce("evaluate", out, bare)
    assert code == 5 and "name the column with --user-id" in " ".join(err.split())
    code, said, err = sottovoce("evaluate", out, path, "--metrics", "right", "--json")  # the run remembers its columns
    assert code == 0 and json.loads(said)["records"] == len(set(PERSON)), err


def test_people_without_owners_are_partitioned_with_all_of_their_rows(sottovoce, tmp_path):
    path, out = written(tmp_path / "r.csv", TWO), tmp_path / "run"
    words = ["--label", "outcome", "--user-id", "person"]
    train = [
        "--drop",
        "site",
        "--row-norm",
        25,
        "--epsilon",
        2,
        "--rounds",
        20,
        "--nodes",
        3,
        "--seed",
        3,
        "--out",
        out,
    ]
    code, _, err = sottovoce("train", path, *words, *train)
    assert code == 0, err
    groups = Result.load(out).statement.groups
    assert sum(group.event.records * len(group.nodes) for group in groups) == len(set(PERSON))
    code, said, err = sottovoce("evaluate", out, path, *words, "--metrics", "right", "--json")
    assert code == 0 and json.loads(said)["records"] == len(set(PERSON)), err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target-scale", "private"], "give --target-bounds"),
        (["--target-bounds", "-50,150", "--target-scale", "narrow"], "target_scale must be"),
        (["--target-bounds", "-50,150", "--target-scale", 0.7], "target_scale must be"),
        (["--target-bounds", "-50,150", "--target-scale", "private", "--preset", "paper_l2"], "no preset"),
    ],
)
def test_a_range_that_cannot_be_searched_for_is_said_in_a_sentence(sottovoce, tmp_path, options, words):
    path = written(tmp_path / "r.csv", NUMBER if "--target-bounds" in options else TWO)
    who = ["--label", "outcome", "--group", "site", "--drop", "person", "--row-norm", 25, "--seed", 3]
    code, _, err = sottovoce("train", path, *who, *options)
    assert code != 0 and words in " ".join(err.split()), err


def test_the_range_that_was_found_is_shown(sottovoce, tmp_path):
    path = written(tmp_path / "r.csv", NUMBER)
    who = ["--label", "outcome", "--group", "site", "--drop", "person", "--row-norm", 25, "--seed", 3, "--epsilon", 4]
    code, said, _ = sottovoce("train", path, *who, "--target-bounds", "-5000,5000", "--target-scale", "private")
    assert code == 0 and "targets clipped to" in said and "from their noisy counts" in said
