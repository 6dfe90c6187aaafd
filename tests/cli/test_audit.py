"""`sottovoce audit`: what it prints, keeps and draws, and its exit code."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce import AlgorithmSpec, Spec
from sottovoce.auditing import concluded
from sottovoce.cli import audit as verb
from sottovoce.cli.main import app
from sottovoce.privacy.events import FullEvent

runner = CliRunner()
PLAN = ["audit", "--plan", "--nodes", "2", "--records", "8", "--features", "3", "--sampling", "full", "--rounds", "3"]
RUN_FILE = """
run = "first"
schedule_seed = 5
features = 3
[nodes]
north = 8
south = 8
[spec.algorithm]
rounds = 3
gamma = "constant(1e6)"
[spec.network]
activation = "everyone"
[spec.privacy]
sampling = "full"
noise = "private(4)"
"""


def broken(*args, **options):
    """An audit that finds what it should not."""
    return concluded(FullEvent(8, 8, 1.0, 1.0, 1), 1e-5, (3, 4), (500, 500), score="likelihood")


def test_a_plan_is_audited_without_any_data():
    details = runner.invoke(app, [*PLAN, "--runs", "150", "--epsilon", "4", "--json"])
    assert details.exit_code in (0, 7), details.output
    found = json.loads(details.stdout)
    assert found["stated"] == pytest.approx(4, rel=1e-2) and found["adversary"] == "transcript"
    assert "secure" in found["notes"][0] and "proves no privacy" in found["notes"][-1]


def test_a_run_file_is_audited_as_nodes_would_run_it(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE)
    plot = tmp_path / "audit.png"
    details = runner.invoke(
        app, ["audit", str(path), "--runs", "200", "--simulate", "--seed", "3", "--plot", str(plot)]
    )
    assert details.exit_code == 0, details.output
    text = " ".join(details.output.split())
    assert "stated ≤ 4, at least" in text and "(95 %)" in text and "proves no privacy" in text
    assert plot.stat().st_size > 1000


def test_a_saved_run_keeps_its_audit_and_the_report_draws_it(tmp_path: Path, monkeypatch):
    data = tmp_path / "data.csv"
    data.write_text("a,b,y\n" + "\n".join(f"{i % 7 / 10},{i % 5 / 10},{'yes' if i % 3 else 'no'}" for i in range(40)))
    out = tmp_path / "run"
    made = runner.invoke(
        app,
        ["train", str(data), "--label", "y", "--nodes", "2", "--rounds", "3", "--sampling", "full", "--epsilon", "2",
         "--activation", "everyone", "--seed", "1", "--out", str(out), "--json"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    details = runner.invoke(app, ["audit", str(out), "--runs", "150", "--simulate", "--seed", "3", "--json"])
    assert details.exit_code == 0, details.output
    kept = json.loads((out / "audit.json").read_text())
    assert kept["stated"] == pytest.approx(2, rel=1e-2) and kept == json.loads(details.stdout)
    assert runner.invoke(app, ["report", str(out)]).exit_code == 0
    page = (out / "report.html").read_text()
    assert "Attacked" in page and "stated: no attack is over this" in page
    (out / "audit.json").write_text("{")
    assert "is not the file that the result was saved with" in str(runner.invoke(app, ["report", str(out)]).exception)


def test_a_statement_that_is_passed_is_exit_code_7(monkeypatch):
    monkeypatch.setattr(verb, "attack_run", broken)
    details = runner.invoke(app, PLAN)
    assert details.exit_code == 7 and "FALSE: the stated" in " ".join(details.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit"], "give a run file or a saved run, or --plan"),
        ([*PLAN, "--engine", "abacus"], "no engine 'abacus'"),
        ([*PLAN, "--seed", "1"], "a seed is for --simulate"),
        ([*PLAN, "--confidence", "2"], "a confidence is"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(arguments, message):
    assert message in str(runner.invoke(app, arguments).exception)


def test_one_shot_releases_are_attacked_too():
    """The audit covers moments and scores beside the rounds, and statistics in their place."""
    spec = Spec(AlgorithmSpec(1), seed=1).replace(
        privacy__noise="private(8)", privacy__sampling="full", network__activation="everyone"
    )
    aim = verb.Target("a test", spec, np.array([12]), 3)
    options = {"runs": 300, "confidence": 0.95, "seed": 1}
    assert verb._audit_one_shot(aim, spec, **options) == {}
    scores = {"privacy__balance": "balance(0.4, 0.1)", "problem__intercept": 0.25}
    for when, changes in {"before": {"privacy__moments": "moments(0, 0.4)"}, "after": scores}.items():
        (found,) = verb._audit_one_shot(aim, spec.replace(**changes), **options).items()
        assert found[0] == when and not found[1].broken and 1.0 < found[1].at_least < found[1].stated < 8.0
    both = spec.replace(privacy__moments="moments(0, 0.1)", **scores)
    assert verb._audit_one_shot(aim, both, **options).keys() == {"before", "after"}
    pairs = both.replace(privacy__law="pairs(3)", privacy__adversary="secret_pairs(1)")
    for one in verb._audit_one_shot(verb.Target("a test", pairs, np.full(4, 12), 3), pairs, **options).values():
        assert not one.broken and 0 < one.at_least < one.stated and "with what node 1 knows" in one.notes
    statistics = spec.replace(algorithm__method="statistics", problem__loss="squared")
    found = verb._run(aim, True, spec=statistics, attack="transcript", engine="reference", **options)
    assert not found.broken and 2.0 < found.at_least < found.stated == pytest.approx(8.0)
