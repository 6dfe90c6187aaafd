"""The paper's experiments: their specifications, their runs kept and found again, their readings and drawings."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.data.fetch import VARIABLE, real_path
from sottovoce.errors import SpecError
from sottovoce.experiments.data import load
from sottovoce.experiments.paper import runs as collecting
from sottovoce.experiments.paper.figures import figure
from sottovoce.experiments.paper.findings import after, findings
from sottovoce.experiments.paper.measure import LINE, CostCase, conditions, cost, describe, slope
from sottovoce.experiments.paper.runs import EPSILONS, FIGURES, SCHEMES, Group, groups, kept_runs
from sottovoce.figure import Interval
from sottovoce.privacy.calibration import NOISES
from sottovoce.privacy.theorem1 import Theorem1


def test_the_runs_are_the_papers():
    """n = 20 on 400,000 records: 600,000, 300,000·(1.05) and 60,000 rounds, and Theorem 1's own σ."""
    sizes = np.full(20, 20_000)
    rounds = {s: Group("l2", s, 0).specs(sizes, ("paper",))[0][2].algorithm.rounds for s in SCHEMES}
    assert rounds == {"edges(1)": 600_000, "edges(2)": 315_000, "matching(2)": 300_000, "everyone": 60_000}
    for noise, epsilon, spec in Group("l1", "edges(1)", 3).specs(sizes, ("paper", "honest")):
        chosen = spec.problem.h, spec.algorithm.a, spec.algorithm.gamma, spec.problem.loss, spec.privacy.sampling
        assert list(map(str, chosen)) == ["l1(0.0005)", "constant(1)", "sqrt(0.01)", "hinge", "fixed(1)"]
        text = f"theorem1({epsilon}, 0.01)" if noise == "paper" else f"private({epsilon})"
        assert spec.privacy.noise == NOISES.read(text) and spec.seed == 3
    claim = Theorem1(0.8, 0.01, 0.1, 1.0, 20_000, 600_000)
    assert claim.sigma == pytest.approx(0.063, abs=5e-4)
    assert {group.h for group in groups(["fig1"], 2)} == {"l2"} and len(groups(list(FIGURES), 10)) == 70


def made(means, spread=0.01, noise="paper", h="l2"):
    """Runs in which scheme s at ε ends at means[s]/ε² (± spread over seeds)."""
    rng = np.random.default_rng(0)
    rows = []
    for scheme, mean in means.items():
        for epsilon in EPSILONS:
            for seed in range(10):
                for t in (10, 100):
                    value = mean / epsilon**2 * (1 + spread * rng.normal()) * (2 if t == 10 else 1)
                    head = {"h": h, "scheme": scheme, "noise": noise, "epsilon": epsilon, "seed": seed, "round": t}
                    rows.append(head | {"suboptimality": value})
    return rows


def test_readings_distinguish_shown_from_reversed_from_neither():
    up = {"edges(1)": 1.0, "edges(2)": 2.0, "matching(2)": 2.1, "everyone": 9.0}
    assert {f.verdict for f in findings(made(up))} == {"shown"}
    down = dict(zip(up, reversed(up.values()), strict=True))
    by_activity = [f.verdict for f in findings(made(down)) if "after three passes" in f.claim]
    assert set(by_activity) == {"reversed"} and len(by_activity) == 5
    same = dict.fromkeys(up, 1.0)
    assert "shown" not in {f.verdict for f in findings(made(same, spread=0.3)) if "loses less than" in f.claim}


def test_verdicts_are_of_paired_differences():
    """Seeds that differ tenfold and schemes that differ by a tenth: apart seed by seed, not by their intervals."""
    rows = made({"edges(1)": 1.0, "everyone": 1.1}, spread=0.0)
    rows = [row | {"suboptimality": row["suboptimality"] * (1 + row["seed"])} for row in rows]
    one = next(f for f in findings(rows) if "after three passes" in f.claim)
    assert one.verdict == "shown" and "difference" in one.numbers
    few, many = (
        Interval.of([r["suboptimality"] for r in rows if (r["scheme"], r["epsilon"], r["round"]) == (s, 0.8, 100)])
        for s in ("edges(1)", "everyone")
    )
    assert few.high > many.low


def test_speed_is_judged_after_as_many_iterations():
    """One scheme takes ten times the rounds: better at its end, worse after as many rounds as the other has."""
    head = {"h": "l2", "noise": "paper"}
    rows = []
    for seed in range(4):
        for epsilon in EPSILONS:
            key = head | {"epsilon": epsilon, "seed": seed}
            many = [(10, 4.0), (100, 2.0)]
            few = [(10, 8.0), (100, 4.0), (1000, 1.0)]
            for scheme, snapshots in (("edges(1)", few), ("everyone", many)):
                rows += [key | {"scheme": scheme, "round": t, "suboptimality": v + 0.01 * seed} for t, v in snapshots]
    by_claim = {f.claim: f.verdict for f in findings(rows)}
    assert by_claim["l2, ε = 0.8, after three passes: one edge, ι = 0.1 loses less than Liu 2022, ι = 1"] == "shown"
    for t in (10, 100):
        claim = f"l2, ε = 0.8, after {t} iterations: one edge, ι = 0.1 loses less than Liu 2022, ι = 1"
        assert by_claim[claim] == "reversed"
    half = after(rows, 32, scheme="edges(1)", epsilon=0.8)  # 32 is half-way between 10 and 100 in log t
    assert half == pytest.approx([6.0, 6.01, 6.02, 6.03], abs=0.03)


def test_theorems_conditions_in_the_experiments():
    """Corollary 3 requests 10⁴ times as many rounds as were run; Corollary 4's condition holds for no ι < 1."""
    found = {(row["data"], row["scheme"]): row for row in conditions()}
    one = found["epsilon", SCHEMES["edges(1)"]]
    assert (
        one["T"] == 600_000
        and 3.8e10 < one["T, Corollaries 3, 4"] < 4e10
        and one["T, Theorem 1"] == pytest.approx(3.2e10)
    )
    for (_, scheme), row in found.items():
        everyone = scheme == SCHEMES["everyone"]
        assert row["ι ≤ 1 − β"] == everyone and row["β > 0.393"] == (not everyone)
        assert row["T"] < row["T, Theorem 1"] / 300


def test_intervals_are_students():
    values = np.random.default_rng(1).normal(3.0, 2.0, 8)
    found = Interval.of(values)
    assert found.half == pytest.approx(2.3646 * values.std(ddof=1) / np.sqrt(8), rel=1e-4)


def test_an_exponent_is_found_with_its_interval():
    rng = np.random.default_rng(2)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    costs = x[:, None] ** -1.5 * (1 + 0.1 * rng.normal(size=(4, 30)))
    found = slope(x, costs)
    assert found.low < -1.5 < found.high and found.high - found.low < 0.2


def test_more_noise_costs_more():
    costs = [cost(CostCase(m=10, n=20, q=100, epsilon=e), 0, ("paper",))["paper"] for e in (1.0, 0.1)]
    assert 0 < 20 * costs[0] < costs[1]


def test_everything_at_tiny_size_and_again_from_what_was_kept(tmp_path, monkeypatch):
    options = ["--size", "tiny", "--seeds", "2", "--out", str(tmp_path), "--json"]
    first = CliRunner().invoke(app, ["reproduce", "all", *options])
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert len(found["files"]) == 10
    assert all((tmp_path / "epsilon-like-tiny" / f"fig{k}.png").exists() for k in range(1, 5))
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 3e6 and text.count(">Figure ") >= 4 and "Table 1" in text
    tables = (tmp_path / "tables.md").read_text()
    assert all(f"| {row['in']} |" in tables for row in found["table1"]) and found["findings"][0]["claim"] in tables
    assert "Claimed and true ε" in text and [row["scheme"] for row in found["true epsilon"]] == list(SCHEMES.values())
    honest = [f for f in found["findings"] if f["noise"] == "honest"]
    assert honest and len(found["findings"]) == 2 * len(honest)
    assert {row["in"] for row in found["table1"]} == {"m", "n", "q", "ι", LINE, "ε"}
    assert found["table2"][0]["records"] == 2000 and len(found["uneven nodes"]) == 5
    data = load("epsilon-like", "tiny")
    rows = collecting.read(kept_runs(tmp_path, data), data, groups(list(FIGURES), 2))
    assert all(row["true_epsilon"] <= row["epsilon"] * (1 + 1e-6) for row in rows if row["noise"] == "honest")
    ratios = {(r["scheme"], r["epsilon"]): r["true_epsilon"] / r["epsilon"] for r in rows if r["noise"] == "paper"}
    assert min(v for (scheme, _), v in ratios.items() if scheme == "edges(1)") > 2, ratios

    def no_run(*_):
        raise AssertionError("what was kept must not be run again")

    monkeypatch.setattr(collecting, "run_groups", no_run)
    again = CliRunner().invoke(app, ["reproduce", "fig2", *options])
    assert again.exit_code == 0, again.output


def test_a_figure_is_the_means_and_intervals_of_the_runs():
    rows = made({"edges(1)": 1.0, "everyone": 9.0}) + made({"edges(1)": 2.0, "everyone": 3.0}, noise="honest")
    more = {"test_accuracy": 0.5, "data": "made", "size": "tiny"}
    rows = [row | more | {"epoch": row["round"] / 50} for row in rows]
    curves, ends = figure("fig1", rows), figure("fig2", rows)
    names = [
        [f"{quantity}-{noise}" for noise in ("paper", "honest")] for quantity in ("suboptimality", "test_accuracy")
    ]
    assert [[panel.name for panel in row] for row in curves.rows] == names
    one, everyone = ends.rows[0][1].curves
    assert (one.label, everyone.label) == (SCHEMES["edges(1)"], SCHEMES["everyone"])
    assert one.x["epsilon"].tolist() == list(EPSILONS) and np.allclose(one.y * np.square(EPSILONS), 2.0, rtol=0.02)
    mine = [r for r in rows if (r["scheme"], r["noise"], r["epsilon"], r["round"]) == ("everyone", "honest", 0.8, 100)]
    assert Interval.of([r["suboptimality"] for r in mine]).low == everyone.low[3]
    along = curves.rows[0][1].curves[1]
    assert along.x["round"].tolist() == [10, 100] and along.x["epoch"].tolist() == [0.2, 2.0]
    assert along.y[-1] == everyone.y[3] and along.high[-1] == everyone.high[3]
    assert next(iter(curves.axes)) == "epoch" and next(iter(figure("fig1", rows, iterations=True).axes)) == "round"


@pytest.mark.parametrize(
    "arguments",
    [
        ["fig9"],
        ["fig1", "--size", "huge"],
        ["fig1", "--noise", "pink"],
        ["fig1", "--data", "mnist"],
        ["fig1", "--size", "tiny", "--seeds", "1"],
    ],
)
def test_bad_requests_are_one_sentence(arguments, tmp_path):
    with pytest.raises(SpecError):
        CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)], catch_exceptions=False)


@pytest.mark.data
def test_real_samples_have_bounded_rows():
    for name, records in (("a9a", 32_561), ("rcv1", 18_981)):
        if real_path(name) is None:
            pytest.skip(f"{name} is not in {VARIABLE}")
        row = describe(load(name, "tiny"))
        assert row["records"] == records and row["row norms"].endswith(" to 1")
