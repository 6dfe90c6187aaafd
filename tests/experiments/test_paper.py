"""The paper's experiments: their specifications, their runs kept and found again, their readings and drawings."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.data.fetch import VARIABLE, real_path
from sottovoce.data.standins import epsilon_like
from sottovoce.engine import ENGINES
from sottovoce.engine.gpu.judge import judge_on
from sottovoce.engine.gpu.machine import Host
from sottovoce.engine.gpu.minimise import minimise_on
from sottovoce.engine.gpu.rounds import averages
from sottovoce.engine.gpu.runs import run_on
from sottovoce.errors import SpecError
from sottovoce.experiments.data import Dataset, load
from sottovoce.experiments.paper import runs as collecting
from sottovoce.experiments.paper.figures import figure
from sottovoce.experiments.paper.findings import findings
from sottovoce.experiments.paper.measure import Setting, cost, describe, kept_costs, slope
from sottovoce.experiments.paper.runs import EPSILONS, FIGURES, SCHEMES, Group, groups, kept_runs
from sottovoce.experiments.table import save_rows
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


def test_readings_tell_shown_from_reversed_from_neither():
    up = {"edges(1)": 1.0, "edges(2)": 2.0, "matching(2)": 2.1, "everyone": 9.0}
    assert {f.verdict for f in findings(made(up))} == {"shown"}
    down = dict(zip(up, reversed(up.values()), strict=True))
    by_activity = [f.verdict for f in findings(made(down)) if "loses less than" in f.claim]
    assert set(by_activity) == {"reversed"} and len(by_activity) == 5
    same = dict.fromkeys(up, 1.0)
    assert "shown" not in {f.verdict for f in findings(made(same, spread=0.3)) if "loses less than" in f.claim}


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
    costs = [cost(Setting(m=10, n=20, q=100, epsilon=e), 0, ("paper",))["paper"] for e in (1.0, 0.1)]
    assert 0 < 20 * costs[0] < costs[1]


def test_everything_at_tiny_size_and_again_from_what_was_kept(tmp_path, monkeypatch):
    options = ["--size", "tiny", "--seeds", "2", "--out", str(tmp_path), "--json"]
    first = CliRunner().invoke(app, ["reproduce", "all", *options])
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert len(found["files"]) == 6
    assert all((tmp_path / "epsilon-like-tiny" / f"fig{k}.png").exists() for k in range(1, 5))
    text = (tmp_path / "report.html").read_text()
    assert len(text) < 3e6 and text.count(">Figure ") >= 4 and "Table 1" in text
    tables = (tmp_path / "tables.md").read_text()
    assert all(f"| {row['in']} |" in tables for row in found["table1"]) and found["findings"][0]["claim"] in tables
    assert "Claimed and true ε" in text and [row["scheme"] for row in found["true epsilon"]] == list(SCHEMES.values())
    honest = [f for f in found["findings"] if f["noise"] == "honest"]
    assert honest and len(found["findings"]) == 2 * len(honest)
    assert {row["in"] for row in found["table1"]} == {"m", "n", "q", "ι", "ε"}
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


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_runs_on_a_device_are_those_of_the_processors(tmp_path, monkeypatch):
    """Rehearsed, with accounts and schedules from processes, F* beside them, and rows read when all is asked for."""
    host, table = Host(), epsilon_like(400, 12)
    on = {"together": run_on, "judge": judge_on, "look": averages, "minimise": minimise_on}
    device = replace(ENGINES["gpu"], lacking=None, about=lambda: "here", **{k: partial(f, host) for k, f in on.items()})
    monkeypatch.setitem(ENGINES, "gpu", device)
    dataset = Dataset("epsilon-like", table, epsilon_like(50, 12, test=True), "tiny", ordered=False)
    wanted = [group for group in groups(["fig3"], 2) if group.scheme != "edges(1)"]
    found, expected = (
        collecting.collect(dataset, wanted, ("paper",), tmp_path / name, 2, None, name) for name in ("gpu", "compiled")
    )
    assert len(found) == len(expected) and all(row["device"] == "here" for row in found)
    assert {row["suboptimality"] > 0 for row in expected} == {True}
    for one, other in zip(found, expected, strict=True):
        for name in (*collecting.KEY, "true_epsilon", "sigma", "round", "epoch", "messages"):
            assert one[name] == other[name]
        for name in ("objective", "suboptimality", "test_accuracy", "consensus_error"):
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=2e-6)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_in_which_order_a_device_is_asked_changes_no_bit(tmp_path, monkeypatch):
    """Groups are asked for one after the other, in the order of their works, whatever that is."""
    host, table = Host(3), epsilon_like(400, 10)
    on = {"together": run_on, "judge": judge_on, "look": averages, "minimise": minimise_on}
    device = replace(ENGINES["gpu"], lacking=None, about=lambda: "here", **{k: partial(f, host) for k, f in on.items()})
    monkeypatch.setitem(ENGINES, "gpu", device)
    dataset = Dataset("epsilon-like", table, epsilon_like(50, 10, test=True), "tiny", ordered=False)
    wanted = [group for group in groups(["fig1", "fig3"], 2) if group.scheme in ("edges(2)", "everyone")]
    asked, under_way = [], []

    def asking(specs, *given, **named):
        asked.append((str(specs[0].problem.h), str(specs[0].network.activation)))
        under_way.append(1)
        assert len(under_way) == 1
        found = ask(specs, *given, **named)
        under_way.clear()
        return found

    ask, crowds = collecting.asked, collecting.crowds
    monkeypatch.setattr(collecting, "PATIENCE", 600.0)
    monkeypatch.setattr(collecting, "asked", asking)
    found = collecting.collect(dataset, wanted, ("paper",), tmp_path / "one", 4, None, "gpu")
    monkeypatch.setattr(collecting, "crowds", lambda *given: crowds(*given)[::-1])
    other = collecting.collect(dataset, wanted, ("paper",), tmp_path / "other", 4, None, "gpu")
    assert len(set(asked)) == 3 and asked[:3] == asked[:2:-1]
    names = [name for name in found[0] if name != "seconds"]
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in other]


def test_who_takes_long_to_ask_does_not_keep_the_others_waiting(monkeypatch):
    """Each comes after the one before, or when it has waited long enough; where one fails the others come too."""
    works = [(Group("l2", "edges(1)", seed),) for seed in range(4)]
    monkeypatch.setattr(collecting, "PATIENCE", 0.05)
    turn, came, ready = collecting.in_line(works), [], Event()

    def ask(crowd):
        with turn(crowd):
            came.append(crowd)
            if crowd is works[0]:
                assert ready.wait(30)  # until the last has come
            if crowd is works[1]:
                raise ValueError("no luck")
            if crowd is works[3]:
                ready.set()

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, crowd) for crowd in reversed(works)]
    assert came == works and [type(one.exception()) for one in asked[::-1]].count(ValueError) == 1
    assert ready.is_set() and asked[-1].exception() is None


def test_what_an_earlier_version_kept_is_not_run_again(tmp_path, monkeypatch):
    data, folder = load("epsilon-like", "tiny"), tmp_path / "epsilon-like-tiny"
    group = Group("l2", "everyone", 0)
    (tmp_path / "table1").mkdir()
    folder.mkdir()
    kept = {json.dumps(["l2", 10, 20, 500, 2, 1.0, 0]): {"paper": 0.25, "honest": 0.5}}
    (tmp_path / "table1" / "costs.json").write_text(json.dumps(kept))
    assert kept_costs(tmp_path).find(h="l2", m=10, n=20, q=500, active=2, epsilon=1.0, seed=0)[0]["honest"] == 0.5
    (folder / "optima.json").write_text('{"l2": 0.125}')
    assert collecting.optima(data, data.deal(), {"l2"}, tmp_path) == {"l2": 0.125}
    rows = [head | {"round": 7} for head in group.heads(data, ("paper", "honest"))]
    save_rows(rows, folder / "l2-everyone-0.parquet")
    monkeypatch.setattr(collecting, "run_groups", None)
    assert collecting.collect(data, [group], ("paper", "honest"), tmp_path) == rows


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
