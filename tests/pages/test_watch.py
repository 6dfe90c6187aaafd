"""The watch page: what the server reported, what the ledger holds, and nothing that someone else wrote as markup."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import fits, serving, settled

from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.submit import Status
from sottovoce.node.budget import Budget
from sottovoce.node.store import Store
from sottovoce.pages import watch
from sottovoce.privacy.accounting import compute_epsilon

AGREED = Path(__file__).parents[2] / "examples" / "consortium" / "consortium.toml"


@pytest.fixture(scope="module")
def agreement():
    return read_agreement(AGREED)


def at(agreement, *rounds, waits=None):
    """A status with every site at its round."""
    rows = {
        name: {"round": done, "rounds": agreement.run.T, "waits": waits if name == agreement.run.nodes[0] else None}
        for name, done in zip(agreement.run.nodes, rounds, strict=False)
    }
    return Status("b5f9", "RUNNING", rows)


def test_what_is_spent_grows_to_the_statement(agreement):
    T, last = agreement.run.T, 0.0
    schedule = agreement.run.plan.schedule
    for done in (0, 1, T // 2, T):
        found = watch.of_run(agreement, at(agreement, *[done] * agreement.run.n), [])
        spent = [site["spent"] for site in found["sites"]]
        assert min(spent) >= last and max(spent) > 0  # of the round that comes next it may have spoken already
        last = min(spent)
        groups = {i: group for group in statement(agreement).groups for i in group.nodes}
        for i, one in enumerate(spent):  # never less than what was released by then costs
            count = int(schedule.participations(done)[i]) if done else 0
            assert count == 0 or one >= compute_epsilon([groups[i].event.after(count)], found["delta"]).epsilon
    worst = max(float(group.epsilon) for group in statement(agreement).groups)
    assert max(spent) == pytest.approx(worst, rel=1e-6)
    assert json.dumps(found, allow_nan=False)


def test_who_is_not_heard_of_and_who_waits(agreement):
    second = agreement.run.nodes[1]
    status = at(agreement, 3, 4, waits={"round": 4, "for": second, "seconds": 12.0})
    found = watch.of_run(agreement, status, [agreement.run.nodes[-1]])
    assert found["sites"][0]["waits"] == second and found["sites"][0]["seconds"] == 12
    assert not found["sites"][-1]["here"] and found["sites"][-1]["round"] is None
    assert "δ" in found["verdict"]


def test_a_site_reads_its_own_ledger(agreement, tmp_path):
    with_budget = Store(tmp_path / "state")
    with_budget.set_budget(Budget(3.0, 1e-5).detail("patients"))
    with_budget.close()
    found = watch.of_folder(agreement, tmp_path / "state")
    assert found["state"] == "no run yet" and found["sites"] == []
    (row,) = found["budgets"]
    assert (row["dataset"], row["epsilon"], row["epsilon_budget"]) == ("patients", 0.0, 3.0)


def test_the_page_follows(agreement, tab):
    """It shows numbers as they change, a silent site in words, and a hostile name as text."""
    reads = []

    def read_status():
        reads.append(1)
        status = at(agreement, 10 * len(reads), 5)
        found = watch.of_run(agreement, status, [agreement.run.nodes[-1]])
        found["sites"][1]["name"] = "<img src=x onerror=alert(1)>"
        return found | {"budgets": [{"dataset": "d", "epsilon": 0.25, "epsilon_budget": 1.0, "delta": 1e-5,
                                     "adversary": "transcript", "adjacency": "replace one record"}]}  # fmt: skip

    with serving(watch.page(read_status, agreement)) as served:
        tab.goto(served.address)
        first = settled(tab)
        assert f"10 of {agreement.run.T}" in tab.inner_text("#sites")
        assert "not heard of" in tab.inner_text("#sites") and "<img" in tab.inner_text("#sites")
        assert tab.evaluate("document.querySelectorAll('#sites img').length") == 0
        assert "0.75" in tab.inner_text("#budgets")
        assert "δ = 1e-05, against 'transcript'" in tab.inner_text("#terms")  # no ε without them
        assert statement(agreement).verdict() == tab.inner_text("#verdict")
        settled(tab, first)
        assert f"20 of {agreement.run.T}" in tab.inner_text("#sites")
        assert fits(tab)


def test_a_site_is_missing_once_it_was_not_heard_of_for_a_while():
    silent = watch.Silence()
    assert silent(("a", "b"), {"a": 5.0}, 0.0) == ["b"]
    assert silent(("a", "b"), {"a": 5.0, "b": 6.0}, watch.SILENT) == []
    assert silent(("a", "b"), {"a": 5.0, "b": 7.0}, watch.SILENT + 1) == ["a"]
    assert silent(("a", "b"), {"a": 9.0, "b": 7.0}, watch.SILENT + 2) == []  # it came back


def test_a_servers_kit_is_refused(agreement, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "read_agreement", lambda path: replace(agreement))
    monkeypatch.setattr(watch, "kind_of", lambda kit: "server")
    with pytest.raises(watch.SpecError, match="server's kit"):
        watch.watched_run(tmp_path, None)
