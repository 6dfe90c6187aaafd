"""One budget for fits, evaluations, searches and commands: paid once, before anything is released."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from typer.testing import CliRunner

from sottovoce import Budget, PrivateClassifier, PrivateSearchCV, load
from sottovoce.cli.main import app
from sottovoce.errors import FolderInUse, PrivacyError, SottovoceError, SpecError
from sottovoce.node import budget_entries
from sottovoce.node.budget import Spending, counted_spendings, joint_epsilon, spendings
from sottovoce.node.budget_entries import Paid, owners_marks
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.events import FullEvent
from sottovoce.privacy.filter import MAX_CHOICES, any_of_each, sequential_epsilon

rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, (300, 3))
Y = np.where(X[:, 0] > X[:, 1], "yes", "no")
HELD, HELD_Y = rng.uniform(-0.5, 0.5, (200, 3)), np.array(["no", "yes"])[rng.integers(0, 2, 200)]
MODEL = PrivateClassifier(1.0, row_norm=1.0, classes=["no", "yes"])


def fitted(budget, epsilon=1.0, rows=X, y=Y, **more):
    return clone(MODEL).set_params(epsilon=epsilon, budget=budget, **more).fit(rows, y)


def runs_of(path):
    store = Store(path)
    try:
        assert store.verify() == []
        return spendings(store.rows())
    finally:
        store.close()


def command(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit | SottovoceError):
        raise done.exception
    return (0, done.output) if done.exception is None else (done.exception.exit_code, str(done.exception))


@pytest.fixture
def table(tmp_path):
    lines = ["a,b,c,label", *(f"{','.join(map(repr, row))},{y}" for row, y in zip(X.tolist(), Y, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    return tmp_path / "t.csv"


def test_a_fit_in_python_and_one_by_the_command_add_up(table, tmp_path):
    budget = Budget(1.7, 1e-5, tmp_path / "ledger")
    model = fitted(budget)
    train = ("train", table, "--label", "label", "--classes", "no,yes", "--nodes", 1, "--epsilon", 1, "--rounds", 20)
    code, out = command(*train, "--budget", tmp_path / "ledger", "--out", tmp_path / "run", "--json")
    assert code == 0, out
    (details,) = json.loads(out.splitlines()[-1])["budget"]
    trained = load(tmp_path / "run")
    events = [model.privacy_.worst.event, trained.privacy_.worst.event]
    assert details["epsilon"] == pytest.approx(sequential_epsilon(events, 1e-5), rel=1e-9)
    assert 1.2 < budget.spent() == pytest.approx(details["epsilon"]) and details["epsilon_budget"] == 1.7
    assert [(run.name, run.state, run.released) for run in runs_of(budget.path)] == [
        ("fit", "closed", 1), ("train", "closed", 1),
    ]  # fmt: skip
    assert len({run.fingerprint for run in runs_of(budget.path)}) == 1  # the records are known again, in any order
    code, said = command(*train, "--budget", tmp_path / "ledger", "--out", tmp_path / "more")
    assert code == 5 and "this train would bring data set 'records' to ε" in said and "budget of ε = 1.7" in said
    assert not (tmp_path / "more" / "result.json").exists()
    with pytest.raises(PrivacyError, match="this fit would bring"):
        fitted(budget)
    assert len(runs_of(budget.path)) == 2


def test_nothing_is_computed_that_is_not_paid(tmp_path, monkeypatch):
    """A refused fit never reaches an engine, and one that an engine runs is in the ledger by then."""
    from sottovoce.run import solve as module

    budget, seen, choose = Budget(1.3, 1e-5, tmp_path / "ledger"), [], module.choose

    def watched(*args):
        seen.append([(run.released, run.state) for run in runs_of(budget.path)])
        return choose(*args)

    monkeypatch.setattr(module, "choose", watched)
    fitted(budget)
    assert seen == [[(1, "open")]]
    model = clone(MODEL).set_params(budget=budget)
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        model.fit(X, Y)
    assert len(seen) == 1 and not hasattr(model, "coef_")


class Crash(Exception):
    pass


def test_what_was_paid_stays_paid_and_a_resumed_run_is_paid_once(table, tmp_path, monkeypatch):
    from sottovoce.run import checkpoint

    assert command("ledger", "budget", tmp_path / "ledger", "--epsilon", 1.3)[0] == 0
    train = ("train", table, "--label", "label", "--classes", "no,yes", "--nodes", 2, "--epsilon", 1, "--rounds", 30)
    train += ("--seed", 4, "--observations", 5, "--budget", tmp_path / "ledger", "--out", tmp_path / "run")
    write = checkpoint.Checkpoint.write

    def crash(self, t, state, history):
        write(self, t, state, history)
        raise Crash

    monkeypatch.setattr(checkpoint.Checkpoint, "write", crash)
    with pytest.raises(Crash):
        command(*train)
    (left,) = runs_of(tmp_path / "ledger")
    assert (left.state, left.released) == ("open", 1) and (tmp_path / "run" / "checkpoint.npz").exists()
    monkeypatch.undo()
    code, out = command(*train)
    assert code == 0, out
    (done,) = runs_of(tmp_path / "ledger")
    assert done.state == "closed" and done.run == left.run
    assert command(*train)[0] == 0 and len(runs_of(tmp_path / "ledger")) == 1  # the same simulation says nothing new
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        fitted(Budget(path=tmp_path / "ledger"))
    budget = Budget(10.0, 1e-5, tmp_path / "other")

    def dies(*_, **__):
        raise Crash

    monkeypatch.setattr("sottovoce.run.solve.choose", dies)
    with pytest.raises(Crash):
        fitted(budget)  # of secret noise: nothing to resume
    monkeypatch.undo()
    fitted(budget)
    assert [run.state for run in runs_of(budget.path)] == ["open", "closed"] and budget.spent() > 1.2


def test_an_evaluation_adds_up_with_the_training_whichever_records_it_is_of(tmp_path):
    """The ledger reveals nothing about whether records are in both."""
    sums = []
    for name, (rows, targets) in {"same": (X, Y), "turned": (X[::-1], Y[::-1]), "others": (HELD, HELD_Y)}.items():
        budget = Budget(1.6, 1e-5, tmp_path / name)
        fitted(budget).evaluate(rows, targets)
        sums.append(budget.spent())
        assert [each["dataset"] for each in budget.overview()["datasets"]] == ["records"]
        with pytest.raises(PrivacyError, match=r"to ε = 1\.8.* .so far 1\.4"):
            fitted(budget, rows=X[:, :2])
    assert sums == pytest.approx([1.475] * 3, abs=1e-3)
    with pytest.raises(PrivacyError, match="this evaluation would bring"):
        fitted(Budget(1.3, 1e-5, tmp_path / "less")).evaluate(HELD, HELD_Y)


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -1), slice(0, 60)])
def test_what_is_declared_disjoint_has_a_sum_of_its_own_and_is_not_checked(tmp_path, rows):
    budget = Budget(1.3, 1e-5, tmp_path / "ledger")
    model = fitted(budget)
    model.evaluate(X[rows], Y[rows], disjoint=True)
    names = {each["dataset"]: each["epsilon"] for each in budget.overview()["datasets"]}
    assert names == pytest.approx({"records": 1.0, "records (held out)": 1.0}, abs=1e-6)
    assert budget.verdict().count("of 1.3 at") == 2
    assert "provided that none of its records is in 'records', too" in budget.verdict()
    with pytest.raises(PrivacyError, match=r"this evaluation would bring data set 'records .held out.'"):
        model.evaluate(HELD, HELD_Y, disjoint=True)


def test_a_ledger_keeps_no_marks_of_evaluated_records(tmp_path):
    """No row says anything that depends on which records were evaluated."""
    details = []
    for place, rows in enumerate((X, HELD)):
        budget = Budget(9.0, 1e-5, tmp_path / str(place))
        other = fitted(None).set_params(budget=budget)
        other.evaluate(rows[:200], Y[:200], np.repeat("0", 200))
        store = Store(budget.path)
        (detail,) = [row.detail for row in store.rows() if row.kind == "open"]
        store.close()
        details.append({name: value for name, value in detail.items() if name != "fingerprint"})
    assert details[0] == details[1] and "sample" not in details[0]


def test_a_loaded_model_pays_from_the_ledger_that_it_was_fitted_with_and_from_no_other(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fitted(Budget(1.6, 1e-5, "ledger")).save("run")
    monkeypatch.chdir(tmp_path / "there")
    model = load(tmp_path / "here" / "run")
    model.evaluate(HELD, HELD_Y)
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        model.evaluate(HELD, HELD_Y)
    (tmp_path / "here" / "ledger").rename(tmp_path / "here" / "moved")
    with pytest.raises(PrivacyError, match="there is no ledger in"):
        load(tmp_path / "here" / "run").evaluate(HELD, HELD_Y)
    assert not (tmp_path / "there" / "ledger").exists() and not (tmp_path / "here" / "ledger").exists()


def test_a_ledger_has_one_adversary(tmp_path):
    """A run against a weaker one is refused; one against a stronger one counts, and the sum names the weaker one."""
    nodes, budget = np.arange(300) % 5, Budget(9.0, 1e-5, tmp_path / "ledger")
    model = clone(MODEL).set_params(trust="nobody", budget=budget, random_state=0)
    model.fit(X, Y, nodes=nodes)
    with pytest.raises(PrivacyError, match=r"accounted against 'transcript' before, and this fit is against 'secret_"):
        clone(model).set_params(trust=1).fit(X, Y, nodes=nodes)
    assert len(runs_of(budget.path)) == 1
    other = Budget(9.0, 1e-5, tmp_path / "other")
    clone(model).set_params(trust=1, budget=other).fit(X, Y, nodes=nodes)
    clone(model).set_params(budget=other).fit(X, Y, nodes=nodes)
    (details,) = other.overview()["datasets"]
    assert details["adversary"] == "secret_pairs(1)" and details["epsilon"] == pytest.approx(1.475, abs=1e-3)
    assert "against 'secret_pairs(1)' (" in other.verdict() and "transcript" not in other.verdict()


def test_a_ledger_with_adversaries_that_cannot_be_compared_has_no_sum():
    event = FullEvent(100, 100, 1.0, 1.0, 1)
    runs = [Spending(name, name, "records", "f", event, 1, "closed", adversary=name) for name in (
        "secret_pairs", "hidden_participation")]  # fmt: skip
    assert joint_epsilon(runs[:1], 1e-5) < joint_epsilon(runs, 1e-5) == np.inf


def test_a_search_that_is_refused_leaves_nothing(tmp_path):
    budget = Budget(0.5, 1e-5, tmp_path / "ledger")
    search = PrivateSearchCV(MODEL, {"rounds": [10, 20]}, epsilon=4.0, budget=budget)
    with warnings.catch_warnings(), pytest.raises(PrivacyError, match="this search would bring"):
        warnings.simplefilter("ignore")
        search.fit(X, Y, nodes=np.arange(300) % 3)  # of several owners all scores are seen
    assert budget.spent() == 0
    assert vars(search).keys() - search.get_params(deep=False).keys() == {"run_epsilon_", "summary_"}  # public numbers


def test_a_search_is_one_payment(tmp_path):
    budget = Budget(2.5, 1e-5, tmp_path / "ledger")
    inner = clone(MODEL).set_params(budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = PrivateSearchCV(inner, {"rounds": [10, 20]}, runs=2, epsilon=2.0).fit(X, Y)
        (paid,) = runs_of(budget.path)
        assert paid.name == "search" and budget.spent() == pytest.approx(tuned.privacy_.epsilon, rel=1e-6)
        assert tuned.best_estimator_.budget == budget
        with pytest.raises(PrivacyError, match="this search would bring"):
            PrivateSearchCV(MODEL, {"rounds": [10, 20]}, runs=2, epsilon=2.0, budget=budget).fit(X, Y)
        three = PrivateSearchCV(MODEL, {"rounds": [10, 20]}, epsilon=4.0, budget=Budget(5.0, 1e-5, tmp_path / "three"))
        three.fit(X, Y, nodes=np.arange(300) % 3)
        assert three.budget.spent() == pytest.approx(three.privacy_.epsilon, rel=1e-6)


def test_the_commands_evaluate_and_tune_pay_too(table, tmp_path):
    assert command("ledger", "budget", tmp_path / "ledger", "--epsilon", 9)[0] == 0
    paid = ("--label", "label", "--budget", tmp_path / "ledger", "--json")
    tuned = ("tune", table, "--param", "rounds=10,20", "--classes", "no,yes", "--epsilon", 2, "--out", tmp_path / "run")
    code, out = command(*tuned, *paid)
    assert code == 0, out
    assert json.loads(out.splitlines()[-1])["budget"][0]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    fitted(None, random_state=1).save(tmp_path / "model")
    (tmp_path / "held.csv").write_text(
        "\n".join(["x0,x1,x2,label", *(f"{a},{b},{c},{y}" for (a, b, c), y in zip(HELD, HELD_Y, strict=True))])
    )
    code, out = command("evaluate", tmp_path / "model", tmp_path / "held.csv", *paid)
    assert code == 0, out
    assert [run.name for run in runs_of(tmp_path / "ledger")] == ["search", "evaluation"]
    code, said = command("train", table, "--label", "label", "--classes", "no,yes", "--budget", tmp_path / "nowhere")
    assert code == 5 and "there is no ledger" in said and not (tmp_path / "nowhere").exists()


def test_a_ledger_is_read_at_eighty_columns(tmp_path, monkeypatch):
    budget = Budget(30.0, 1e-5, tmp_path / "ledger")
    fitted(budget).evaluate(HELD, HELD_Y, disjoint=True)
    monkeypatch.setenv("COLUMNS", "80")
    code = "from sottovoce.cli.main import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code, "ledger", "show", str(budget.path)], capture_output=True, text=True, check=True
    ).stdout
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    text = " ".join(shown.split())
    for words in ("fit", "evaluation", "closed", "1 of 1", "ε = 1 of 30 at δ = 1e-05 against 'transcript'"):
        assert words in text, shown


BUSY = """
import sys, numpy as np
from sottovoce import Budget, PrivateClassifier
X = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
try:
    model = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1], budget=Budget(1.2, 1e-5, sys.argv[1]))
    model.fit(X, (X[:, 0] > 0).astype(int))
    print("paid")
except ValueError as error:
    print("refused" if "over the owner's budget" in str(error) else error)
"""


def test_of_two_at_once_one_is_too_late(tmp_path):
    started = [
        subprocess.Popen([sys.executable, "-c", BUSY, tmp_path / "ledger"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate(timeout=200)[0].strip() for process in started) == ["paid", "refused"]
    assert len(runs_of(tmp_path / "ledger")) == 1


def test_waiting_too_long_is_reported(tmp_path, monkeypatch):
    budget = Budget(1.0, 1e-5, tmp_path / "ledger")
    budget.spent()
    monkeypatch.setattr(budget_entries, "WAIT", 0.05)
    store = Store(budget.path)
    with pytest.raises(FolderInUse, match="another process uses"):
        budget.spent()
    store.close()
    assert budget.spent() == 0.0


def test_a_budget_is_one_value_and_what_is_none_is_refused(tmp_path):
    budget = Budget(1.0, 1e-5, tmp_path / "ledger")
    model = clone(MODEL).set_params(budget=budget)
    assert clone(model).budget == budget and hash(clone(model).budget) == hash(budget)
    saved = load(clone(model).set_params(random_state=3).fit(X, Y).save(tmp_path / "run"))
    assert saved.budget == Budget(1.0, 1e-5, str(tmp_path / "ledger"))
    with pytest.raises(PrivacyError, match="over the owner's budget"):
        saved.fit(X[:200], Y[:200])  # a loaded model still pays
    with pytest.raises(PrivacyError, match=r"has a budget of ε = 1 at δ = 1e-05 .* and ε = 5 at"):
        Budget(5.0, 1e-5, tmp_path / "ledger").spent()
    assert Budget(path=tmp_path / "ledger").spent() == pytest.approx(1.0)
    for wrong, error, words in (
        (lambda: Budget(), PrivacyError, "needs an ε, or the path"),
        (lambda: Budget(-1.0, 1e-5, tmp_path), PrivacyError, "over 0"),
        (lambda: fitted(Budget(1.0)), SpecError, "a Budget with a path"),
        (lambda: fitted(1.0), SpecError, "a Budget with a path"),
        (lambda: Budget(path=tmp_path / "ledger", dataset="others").spent(), PrivacyError, "no budget for data set"),
        (lambda: Budget(1.0).spent(), PrivacyError, "has a path"),
    ):
        with pytest.raises(error, match=words):
            wrong()


@given(st.permutations(range(12)), st.booleans())
def test_records_are_known_in_any_order_and_no_others(order, as_sparse):
    rows, owner = X[:12].copy(), np.arange(12) % 3
    turned = sparse.csr_array(rows[order]) if as_sparse else rows[order]
    marks = owners_marks(bytes(32), rows, owner)
    assert owners_marks(bytes(32), turned, owner[order]) == marks
    assert owners_marks(bytes(32), turned / 7, owner[order]) == marks  # as they are once they were bounded
    rows[5, 1] += 1e-3
    assert {node for node, mark in owners_marks(bytes(32), rows, owner).items() if mark != marks[node]} == {2}
    assert owners_marks(bytes([1]) * 32, turned, owner[order]) != marks


def events(*sigmas):
    return [FullEvent(100, 100, 1.0, sigma, 1) for sigma in sigmas]


def spending_of(name, each):
    return Spending(name, name, "records", "f", each[0][1], 1, "closed", each=tuple(each) if len(each) > 1 else ())


def test_owners_are_added_up_each_by_itself_where_they_are_the_same():
    low, high = events(1.0, 0.3)
    turns = [spending_of("one", [("a", low), ("b", high)]), spending_of("two", [("a", high), ("b", low)])]
    assert joint_epsilon(turns, 1e-5) == sequential_epsilon([high, low], 1e-5)
    assert joint_epsilon(turns, 1e-5) < sequential_epsilon([high, high], 1e-5)
    others = [turns[0], spending_of("two", [("c", high), ("d", low)])]
    assert joint_epsilon(others, 1e-5) == sequential_epsilon([high, high], 1e-5)  # it is unknown who is whose
    alone = [turns[0], spending_of("two", [("", low)])]
    assert joint_epsilon(alone, 1e-5) == sequential_epsilon([high, low], 1e-5)
    assert joint_epsilon([], 1e-5) == 0.0


@given(st.lists(st.lists(st.sampled_from([0.4, 0.7, 1.0, 2.0]), min_size=1, max_size=3), min_size=1, max_size=3))
def test_any_of_each_is_no_less_than_any_choice(sigmas):
    runs = [events(*some) for some in sigmas]
    found = any_of_each(runs, 1e-5)
    assert found >= sequential_epsilon([run[0] for run in runs], 1e-5) - 1e-12
    many = [events(*np.linspace(0.4, 1.0, MAX_CHOICES + 1).tolist()), *runs]
    bound = any_of_each(many, 1e-5)
    assert bound >= sequential_epsilon([event[0] for event in many], 1e-5) - 1e-12
    if len(many) == 2 and len(many[1]) == 1:  # too many choices to examine: summed, and so more
        assert bound >= compute_epsilon([many[0][0]], 1e-5, lower=False).epsilon


def test_runs_of_several_owners_keep_every_owners_event(tmp_path):
    budget = Budget(20.0, 1e-5, tmp_path / "ledger")
    nodes = np.where(np.arange(300) < 60, "small", "large")
    model = clone(MODEL).set_params(budget=budget, sampling="poisson", batch=20).fit(X, Y, nodes=nodes)
    (run,) = runs_of(budget.path)
    assert {event for _, event in run.each} == {group.event for group in model.privacy_.groups} and len(run.each) == 2
    assert budget.spent() == pytest.approx(model.privacy_.epsilon, rel=1e-9)
    records = Paid(X, (nodes == "small").astype(int))
    assert set(owners_marks(bytes(32), records.X, records.owner)) == {0, 1}
    store = Store(budget.path)
    assert len(counted_spendings(store.rows(), "records")) == 1
    store.close()
