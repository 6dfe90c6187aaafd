"""The command as its users call it: what it prints, what it saves, how it fails."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from sottovoce.privacy.calibration import PaperNoise
from sottovoce.run.result import Result
from sottovoce.run.spec import Spec


def csv(path, X, y, owners=None, header=True):
    names = [f"c{j}" for j in range(X.shape[1])] + (["hospital"] if owners is not None else []) + ["sick"]
    lines = [",".join(names)] if header else []
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        cells = [repr(float(v)) for v in row] + ([owners[i]] if owners is not None else []) + [str(label)]
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")
    return path


RUN = ("--nodes", 4, "--rounds", 60, "--seed", 1, "--regularizer", "l2:0.05", "--observations", 3)
FAST = (*RUN, "--noise", "none", "--preset", "paper-l2")
PUBLIC = ("--classes=-1,1", "--features", 5, "--first-index", 1)
"""What an svmlight file does not say of itself, and its records must not."""


def test_train_prints_saves_and_predicts(sottovoce, svm, rows, tmp_path):
    out = tmp_path / "run"
    code, text, _ = sottovoce("train", svm, *FAST, "--out", out, "--certify")
    assert code == 0
    for words in (
        "nodes, records, features",
        "NOT PRIVATE",
        "adversary: transcript",
        "training accuracy",
        "distance to the optimum",
    ):
        assert words in text
    assert "not private: computed from the data outside the mechanism" in re.sub(r"\s+", " ", text)
    result = Result.load(out)
    assert result.models.shape == (4, 5) and not (out / "checkpoint.npz").exists()
    code, text, _ = sottovoce("predict", out, svm)
    predicted = np.array(text.split(), dtype=float)
    assert np.array_equal(predicted, result.predict(rows[0]))
    assert np.mean(predicted == rows[1]) > 0.8
    code, text, _ = sottovoce("predict", out, svm, "--out", tmp_path / "labels.txt")
    assert np.array_equal(np.loadtxt(tmp_path / "labels.txt"), predicted)


def test_json_is_one_object_on_stdout(sottovoce, svm, tmp_path):
    code, text, _ = sottovoce("train", svm, *FAST, "--noise", "theorem1:0.5", "--json")
    found = json.loads(text)
    assert code == 0 and found["privacy"]["adversary"] == "transcript" and found["last"]["round"] == 60
    assert found["last"]["suboptimality"] is None and "not private" in found["last"]["label"]
    assert found["public"]["theorem1"][0]["rounds_condition_holds"] is False
    assert found["privacy"]["private"] is False and found["privacy"]["epsilon"] > found["privacy"]["claimed"] == 0.5
    code, text, _ = sottovoce("train", tmp_path / "no.svm", *FAST, "--json")
    assert code == 3 and json.loads(text)["kind"] == "DataError"


def test_a_run_without_a_seed_is_secure_unless_requested_otherwise(sottovoce, svm):
    flags = [*PUBLIC, *(flag for flag in FAST if flag not in ("--seed", 1)), "--noise", "gaussian:2", "--json"]
    for more, secure, begins in (([], True, "Every record has"), (["--no-secure"], False, "NOT HARDENED")):
        code, text, err = sottovoce("train", svm, *flags, *more)
        privacy = json.loads(text)["privacy"]
        assert code == 0 and privacy["secure"] is secure and privacy["verdict"].startswith(begins), err
    code, _, err = sottovoce("train", svm, *flags[:-1], "--engine", "compiled")
    assert code != 0 and "--no-secure" in err


def test_groups_are_nodes_and_text_labels_survive(sottovoce, rows, tmp_path):
    X, y = rows
    owners = np.array(["north", "south", "east"])[np.arange(120) % 3]
    labels = np.where(y > 0, "yes", "no")
    path = csv(tmp_path / "patients.csv", X, labels, owners)
    out = tmp_path / "run"
    code, _, err = sottovoce(
        "train", path, "--label", "sick", "--group", "hospital", "--rounds", 200, "--seed", 2, "--out", out,
        "--regularizer", "l2:0.05", "--noise", "none", "--preset", "paper-l2",
    )  # fmt: skip
    assert code == 0, err
    result = Result.load(out)
    assert result.nodes == ("east", "north", "south") and result.classes == ("no", "yes")
    assert result.features == ("c0", "c1", "c2", "c3", "c4")
    fresh = csv(tmp_path / "new.csv", X, labels)
    code, text, _ = sottovoce("predict", out, fresh, "--label", "sick", "--json")
    assert set(json.loads(text)["predictions"]) == {"no", "yes"}
    code, _, err = sottovoce("predict", out, csv(tmp_path / "odd.csv", X[:, :4], labels), "--label", "sick")
    assert code == 3 and "Error:" in err


def test_a_rerun_with_the_same_seed_is_the_same(sottovoce, svm):
    def last():
        return json.loads(sottovoce("train", svm, *FAST, "--noise", "gaussian:2", "--json")[1])["last"]

    assert last() == last()


@pytest.mark.parametrize(
    "extra",
    [
        ("--preset", "paper-l1"),
        ("--preset", "liu2022"),
        ("--preset", "conventional-dda"),
        ("--activation", "matching:2", "--sampling", "poisson:4"),
        ("--loss", "logistic", "--regularizer", "elastic_net:0.01,0.05", "--intercept", 1),
        ("--graph", "star", "--debias", "--partition", "dirichlet:0.5", "--node-weights", "records", "--epsilon", 3),
        ("--loss", "squared_hinge", "--clip", 0.5, "--engine", "nodes"),
        ("--primal", "as_written"),
        ("--epsilon", 2, "--delta", 1e-4),
    ],
    ids=lambda e: "-".join(map(str, e)),
)
def test_options_reach_the_run(sottovoce, svm, extra):
    code, text, err = sottovoce("train", svm, *RUN, *extra, "--json")
    assert code == 0, err
    assert json.loads(text)["last"]["train_accuracy"] > 0.4


def edit(path, change):
    path.write_text(change(path.read_text()))
    return path


WRONG = [
    (
        lambda svm, tmp: [svm, *PUBLIC, "--test", svm],
        2,
        "--test is for figures .* outside the mechanism.*--not-private-history",
    ),
    (lambda svm, tmp: [svm, *PUBLIC, "--certify"], 2, "--certify is for figures"),
    (lambda svm, tmp: [svm, "--noise", "none", "--epsilon", 1], 2, "--epsilon and --noise contradict"),
    (lambda svm, tmp: [svm, "--rounds", 5, "--epochs", 1], 2, "--rounds and --epochs contradict"),
    (lambda svm, tmp: [svm, "--out", svm], 2, "cannot be written to"),
    (lambda svm, tmp: [svm, "--clip", 0], 2, "clip must be finite"),
    (lambda svm, tmp: [tmp / "missing.svm"], 3, "missing.svm"),
    (lambda svm, tmp: [edit(svm, lambda t: t.replace("1:", "x:", 1))], 3, "svmlight"),
    (lambda svm, tmp: [edit(svm, lambda t: t.replace("-1 ", "3 ", 1)), "--positive", 1], 2, "of several there is none"),
    (lambda svm, tmp: [svm, "--classes", "-1,1,2", "--target-bounds", "0,1"], 2, "go with classes"),
    (lambda svm, tmp: [svm, "--target-bounds", "1,0"], 2, "the lower one first"),
    (lambda svm, tmp: [svm, "--class-weight", "yes=2"], 2, "names 'yes', which is no class"),
    (lambda svm, tmp: [svm, "--class-weight", "balanced"], 5, "give a public prior"),
    (lambda svm, tmp: [svm, "--intercept", 1, "--no-intercept"], 2, "contradict"),
    (lambda svm, tmp: [svm, "--user-id", "person"], 2, "no named columns"),
    (lambda svm, tmp: [svm, "--nodes", 20], 3, "node '0' has too few records .n_samples = 6.: .* fewer than 8 drown"),
    (lambda svm, tmp: [edit(svm, lambda t: re.sub(r"1:\S+", "1:nan", t, count=1))], 3, "NaN|nan|not finite"),
    (lambda svm, tmp: [svm, "--row-norm", 0.5], 3, "over the public bound 0.5"),
    (lambda svm, tmp: [svm, "--nodes", 500], 3, "500 nodes cannot share 120 records"),
    (lambda svm, tmp: [svm, "--nodes", 0], 3, "at least one node"),
    (lambda svm, tmp: [svm, "--nodes", 4, "--graph", f"edge_list:path={_split(tmp)}"], 4, "connected"),
    (lambda svm, tmp: [svm, "--loss", "hinges"], 2, "no loss 'hinges'"),
    (lambda svm, tmp: [svm, "--nodes", 4, "--epochs", 0], 2, "epochs must be over 0"),
    (lambda svm, tmp: [svm, "--nodes", 4, "--adversary", "central"], 5, "in clear"),
    (lambda svm, tmp: [svm, "--partition", "poker"], 2, "no way of partitioning records  'poker'"),
    (lambda svm, tmp: [svm, "--test", tmp / "none.csv", "--seed", 1], 3, "none.csv"),
]


def _split(folder):
    path = folder / "two-islands.txt"
    path.write_text("0 1\n2 3\n")
    return path


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=range(len(WRONG)))
def test_errors_are_one_sentence_with_their_own_exit_code(sottovoce, svm, tmp_path, arguments, code, words):
    given = arguments(svm, tmp_path)
    if PUBLIC[0] not in given:  # without them only a simulation reads this file
        given += PUBLIC if code == 5 else ("--seed", 1)
    found, out, err = sottovoce("train", *given)
    assert found == code, err
    assert err.startswith("Error: ") and len(err.strip().splitlines()) == 1 and "Traceback" not in err and not out
    assert re.search(words, err), err


def test_interrupting_says_how_to_go_on(sottovoce, svm, monkeypatch, tmp_path):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sottovoce.cli.train.solve", interrupt)
        code, _, err = sottovoce("train", svm, *FAST, "--out", tmp_path / "run")
    assert code == 130 and "last checkpoint" in err


def test_demo(sottovoce, tmp_path):
    code, text, _ = sottovoce("demo", "--data", "breast_cancer", "--nodes", 5, "--json", "--out", tmp_path)
    found = json.loads(text)
    quiet, paper, honest, batches = found.values()
    assert code == 0 and quiet["last"]["suboptimality"] >= -1e-6 and quiet["last"]["train_accuracy"] > 0.85
    assert paper["privacy"]["claimed"] == 0.8 and paper["privacy"]["epsilon"] > 0.8
    for run in (honest, batches):
        assert run["privacy"]["private"] and 0.79 < run["privacy"]["epsilon"] <= 0.8
    assert Result.load(tmp_path / "paper-noise").spec.privacy.noise == PaperNoise(0.8)


def test_version_and_help(sottovoce):
    from sottovoce import __version__

    assert sottovoce("--version")[1].strip() == f"sottovoce {__version__}"
    code, text, _ = sottovoce("train", "--help-all")
    assert code == 0 and "--noise" in text


def test_sweep_compares_noises_over_seeds(sottovoce, svm, tmp_path):
    out = tmp_path / "runs.parquet"
    args = ("sweep", svm, "--nodes", 4, "--epsilon", 1, "--epsilon", 4, "--noise", "none", "--seeds", 2,
            "--regularizer",
            "l2:0.05", "--sampling", "poisson:8", "--epochs", 20, "--certify", "--out", out)  # fmt: skip
    code, text, err = sottovoce(*args, "--json")
    assert code == 0, err
    rows = json.loads(text)["runs"]
    assert [(r["noise"], r["seed"]) for r in rows] == [
        (n, s) for n in ("private(1)", "private(4)", "none") for s in (0, 1)
    ]
    assert all(r["epsilon"] is None for r in rows[4:]) and 3.9 < rows[2]["epsilon"] <= 4
    assert rows[4]["suboptimality"] < rows[2]["suboptimality"]
    table = pq.read_table(out)
    assert table.num_rows == 6 and b"not private" in table.schema.metadata[b"privacy"]
    for row in table.to_pylist():  # each run can be made again, and drawn
        assert str(Spec.from_json(row["spec"]).privacy.noise) == row["noise"] and len(row["history"]) > 5
        assert row["history"][-1]["objective"] == row["objective"]
    code, _, err = sottovoce(*args)
    assert code == 2 and "--force" in err and pq.read_table(out).num_rows == 6  # a table is not lost
    code, text, _ = sottovoce(*args, "--force")
    assert "±" in text and "95 % interval" in text and "neighboring data" in text
    assert sottovoce("sweep", svm)[0] == 2
