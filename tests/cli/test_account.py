"""The privacy verbs, as an auditor would call them."""

import json

import numpy as np
import pytest

from sottovoce import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Shards, Spec, even, solve
from sottovoce.run.result import Result


def report(sottovoce, *args):
    code, out, err = sottovoce(*args, "--json")
    assert code == 0, err
    return json.loads(out)


def test_account_prints_the_three_epsilons(sottovoce):
    found = report(
        sottovoce, "account", "--records", 20000, "--rounds", 60000, "--sigma", 0.9, "--delta", 1e-5
    )  # z = σ/2L = 0.45
    assert found["epsilon"] == pytest.approx(2.219, rel=5e-3)
    assert 0.9 * found["epsilon"] < found["epsilon_lower"] <= found["epsilon"] < found["epsilon_rdp"]
    assert found["adversary"] == "transcript" and found["delta"] == 1e-5 and found["adjacency"].startswith("replace")


def test_uneven_nodes_report_the_worst_and_list_each(sottovoce):
    found = report(sottovoce, "account", "--records", 500, "--records", 5000, "--rounds", 100, "--batch", 10,
                   "--sampling", "poisson", "--sigma", 0.3)  # fmt: skip
    assert [n["records"] for n in found["nodes"]] == [500, 5000]
    assert found["epsilon"] == max(n["epsilon"] for n in found["nodes"]) == found["nodes"][0]["epsilon"]


def test_calibrate_and_account_are_inverse(sottovoce):
    plan = ("--records", 2000, "--rounds", 300, "--batch", 20, "--sampling", "poisson", "--activity", 0.5)
    sigma = report(sottovoce, "calibrate", *plan, "--epsilon", 0.7)["sigma"]
    back = report(sottovoce, "account", *plan, "--sigma", sigma)["epsilon"]
    assert 0.995 * 0.7 < back <= 0.7
    several = report(sottovoce, "calibrate", *plan, "--records", 500, "--epsilon", 0.7)["sigma"]
    assert len(several) == 2 and several[1] > several[0] == pytest.approx(sigma)


def test_hidden_participation_is_a_what_if(sottovoce):
    plan = ("account", "--records", 1000, "--rounds", 3000, "--activity", 0.1, "--sigma", 1.5)
    hidden = report(sottovoce, *plan, "--adversary", "hidden_participation")
    assert hidden["epsilon"] < report(sottovoce, *plan)["epsilon"] and "linked" in hidden["what_if"]
    _, text, _ = sottovoce(*plan, "--adversary", "hidden_participation")
    assert "A what-if only" in text


def test_theorem1_is_judged(sottovoce):
    found = report(
        sottovoce, "account", "--theorem1", "--nodes", 20, "--records", 20000, "--epsilon-claimed", 1, "--epochs", 3
    )
    assert found["epsilon"] >= 10_000 and found["claimed_epsilon"] == 1 and not found["rounds_condition_holds"]
    assert found["proof"]["without_slips"][0] == pytest.approx(2.62, abs=0.01)
    _, text, _ = sottovoce(
        "account", "--theorem1", "--records", 20000, "--epsilon-claimed", 0.2, "--activation", "everyone"
    )
    assert "Not private as claimed" in text and "4.1" in text


def test_theorem1_is_judged_in_any_setting(sottovoce):
    """For any n, q, ι, T, ε and δ₀: what the claim needs, which the accountant confirms, and the bound by hand."""
    setting = ("--nodes", 7, "--records", 1000, "--iota", 0.3, "--rounds", 5000, "--epsilon-claimed", 0.5)
    found = report(sottovoce, "account", "--theorem1", *setting, "--delta0", 0.05)
    sigma = np.sqrt(32 * 0.3**2 * 5000 * np.log(2 / 0.05)) / (1000 * 0.5)
    assert found["iota"] == 0.3 and found["rounds"] == 5000 and found["sigma_printed"] == pytest.approx(sigma)
    assert found["epsilon_by_hand"] < found["epsilon_lower"] <= found["epsilon"]
    needed = ("--records", 1000, "--rounds", 5000, "--activity", 0.3, "--sigma", found["sigma_needed"])
    assert 0.49 < report(sottovoce, "account", *needed)["epsilon"] <= 0.5 + 1e-6
    passes = report(sottovoce, "account", "--theorem1", "--records", 1000, "--iota", 0.3, "--epochs", 3)
    assert passes["rounds"] == 10_000  # 3q/ι
    code, _, err = sottovoce("account", "--theorem1", "--records", 1000, "--iota", 1.5)
    assert code == 2 and "over 0 and at most 1, not 1.5" in err


def test_a_saved_run_can_be_verified_and_a_doctored_one_is_caught(sottovoce, svm, tmp_path):
    out = tmp_path / "run"
    code, text, err = sottovoce(
        "train", svm, "--nodes", 4, "--rounds", 30, "--epsilon", 1, "--seed", 1, "--out", out, "--sampling", "poisson:8"
    )
    assert code == 0 and "differential privacy against" in " ".join(text.split()), err
    assert Result.load(out).statement.epsilon <= 1.0
    code, text, _ = sottovoce("account", "--verify", out)
    assert code == 0 and text.startswith("verified")
    head = json.loads((out / "result.json").read_text())
    (tmp_path / "statement.json").write_text(json.dumps(head["privacy"]))
    assert report(sottovoce, "account", "--verify", tmp_path / "statement.json")["verified"]
    head["privacy"]["epsilon"] /= 2
    (out / "result.json").write_text(json.dumps(head))
    code, _, err = sottovoce("account", "--verify", out)
    assert code == 5 and "its own numbers give" in err
    assert sottovoce("account", "--verify", tmp_path / "nothing.json")[0] == 5


def test_plan_chooses_explains_and_draws(sottovoce, tmp_path):
    picture = tmp_path / "plan.png"
    args = ("plan", "--nodes", 5, "--records", 2000, "--features", 20, "--plot", picture)
    found = report(sottovoce, *args)
    assert found["adversary"] == "transcript" and found["spec"]["privacy"]["noise"] == "private(1)"
    best = min(p["loss"] for p in found["plans"])
    assert best <= found["predicted_loss"] <= best + 0.001 and picture.read_bytes().startswith(b"\x89PNG")
    assert found["price"]["rounds"] == found["spec"]["algorithm"]["rounds"] == found["plans"][0]["rounds"]
    code, text, _ = sottovoce(*args)
    assert code == 0 and found["reasons"][1] in text and "neighboring data" in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("account", "--rounds", 10, "--sigma", 1), 2, "--records"),
        (("account", "--records", 10, "--sigma", 1), 2, "--rounds"),
        (("account", "--records", 10, "--rounds", 5), 5, "without noise there is no guarantee"),
        (("account", "--records", 10, "--rounds", 5, "--sigma", 1, "--sampling", "shuffle"), 2, "no sampling"),
        (("account", "--records", 10, "--rounds", 5, "--sigma", 1, "--batch", 11), 2, "does not fit"),
        (("account", "--records", 10, "--rounds", 5, "--sigma", 1, "--adversary", "central"), 5, "cannot be accounted"),
        (("account", "--records", 10, "--rounds", 5, "--sigma", 1, "--delta", 2), 5, "delta"),
        (("account", "--records", 10, "--rounds", 5, "--sigma", 1, "--activity", 0), 5, "activity"),
        (("calibrate", "--records", 10, "--rounds", 5, "--epsilon", -1), 5, "over 0"),
        (("plan", "--nodes", 3, "--records", 5, "--records", 6, "--features", 2), 2, "once for each of the 3"),
        (("plan", "--nodes", 3, "--records", 5, "--features", 2, "--sampling", "poisson:9"), 2, "a batch of 9 records"),
        (("plan", "--nodes", 3, "--records", 5, "--features", 2, "--adversary", "central"), 5, "in clear"),
    ],
)
def test_errors_are_one_sentence(sottovoce, args, code, words):
    found, _, err = sottovoce(*args)
    assert found == code and err.startswith("Error: ") and words in err and len(err.strip().splitlines()) == 1, err


def test_a_run_of_statistics_is_verified_and_drawn(sottovoce, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (300, 4))
    spec = Spec(
        AlgorithmSpec(1, method="statistics(0.7)"),
        ProblemSpec("squared", "none", "records", 0.5),
        NetworkSpec(activation="everyone"),
        PrivacySpec("full", "private(2)"),
    )
    shards = Shards.of(X, X[:, 0], even(300, 3)[0])
    out = solve(spec, shards, execution=Execution(observations=None)).save(tmp_path / "run")
    assert sottovoce("account", "--verify", out)[0] == 0
    assert sottovoce("report", out, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "products of all records" in page
