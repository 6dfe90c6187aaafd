"""Sites of a consortium that are lost for good: the others end with one model, and say who is missing."""

import numpy as np
import pytest

from sottovoce.consortium.controller import GossipController
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.job import Code, code_of, job_meta
from sottovoce.consortium.submit import Status
from sottovoce.consortium.untrusted_input import outcomes, progress_of_all, removed_by
from sottovoce.errors import LeftOut, SpecError, TooFew
from sottovoce.node.ledger import runs_of
from sottovoce.node.store import Store
from sottovoce.pages.watch import of_run
from sottovoce.run.result import Result

NAMES = ("ash", "birch", "cedar", "dogwood", "elm")
PAIRS = 'law = "pairs(10)"\nadversary = "secret_pairs(1)"\nmay_lose = 2'


class Killed(Exception):
    """A process is gone."""


def losing(small, **settings):
    given = {"names": NAMES, "rounds": 8, "averaging": "exact", "timeout": 60, "more": "lost_after = 1.0"}
    return small(**(given | {"private": PAIRS} | settings))


def killed(net, node, t):
    """The process of a site ends in round t, and answers nothing any more."""
    release = node.node.release_message

    def last(now, message):
        if now == t:
            del net.cells[f"{node.name}.job-1"]
            raise Killed
        return release(now, message)

    node.node.release_message = last
    node.take_part = quietly(node.take_part)


def quietly(take_part):
    def taken():
        try:
            return take_part()
        except Killed as error:
            return error

    return taken


@pytest.mark.parametrize("deaths", [{"birch": 3}, {"ash": 4, "elm": 4}, {"cedar": 2, "dogwood": 6}])
def test_the_others_end_with_one_model_and_say_who_is_missing(small, cells, deaths):
    made = losing(small)
    kits, net = made.kits(), cells.Cells()
    nodes = cells.join(made, kits, net)
    for name, t in deaths.items():
        killed(net, nodes[name], t)
    answers = cells.run(nodes)
    left = [name for name in NAMES if name not in deaths]
    assert all(answers[name]["finished"] for name in left), answers
    run = made.agreement.run
    gone = sorted(deaths, key=run.number)
    assert all(sorted(answers[name]["removed"], key=run.number) == gone for name in left)
    kept = [Result.load(kits[name] / "state" / "results" / "first") for name in left]
    for one in kept:
        assert np.array_equal(one.models, kept[0].models) and one.statement == statement(made.agreement)
        one.statement.verify()
        assert sorted(node for node, _ in one.public["lost"]) == [run.number(name) for name in gone]
    for name in left:
        store = Store(kits[name] / "state", reading=True)
        rows = store.rows()
        whole = runs_of(rows)
        made_of = [row for row in rows if row.kind == "release" and whole.get(row.run, row.run) == run.digest]
        assert run.T <= len(made_of) <= run.T + 2 and store.ledger_faults() == []
        assert store.run_keys(run.digest) is None
        store.close()


def test_a_job_needs_all_sites_but_those_that_may_be_lost(small):
    meta = job_meta(losing(small).agreement)
    assert (meta["min_clients"], meta["mandatory_clients"]) == (3, [])
    meta = job_meta(losing(small, private="", more="").agreement)
    assert (meta["min_clients"], meta["mandatory_clients"]) == (5, list(NAMES))


def test_an_agreement_says_after_how_long_a_site_is_lost(small):
    with pytest.raises(SpecError, match="give both may_lose and lost_after"):
        _ = losing(small, more="").agreement.run.plan
    one, other = (losing(small, more=f"lost_after = {seconds}").agreement.run for seconds in (1.0, 2.0))
    assert one.digest != other.digest


def test_what_is_said_of_lost_sites_is_read_with_care(small):
    run = losing(small).agreement.run

    def progress(removed):
        said = {"round": 3, "rounds": 8, "waits": None, "state": "exchanging", "removed": removed}
        return progress_of_all({"ash": said}, run)["ash"].get("removed")

    assert progress(["elm", "birch"]) == ["birch", "elm"]
    for wrong in (["birch", "cedar", "elm"], ["oak"], "elm", [1], {"elm": 1}, [["elm"]]):
        assert progress(wrong) is None
    done = {"finished": True, "removed": ["elm"]}
    rows = {"ash": done, "birch": done, "cedar": {"finished": True}, "dogwood": {"error": Code.SILENT}}
    assert removed_by(rows, run) == ["elm"]
    assert removed_by({"ash": done, "birch": {"finished": True}}, run) == []
    said = {"sites": {name: {"finished": True, "removed": ["elm"]} for name in NAMES[:4]}}
    assert outcomes(said, run)[1] == {}
    assert outcomes({"sites": {name: {"finished": True} for name in NAMES[:4]}}, run)[1] == {"elm": Code.SILENT}
    assert code_of(LeftOut("")) is Code.LEFT_OUT and code_of(TooFew("")) is Code.TOO_FEW


def test_the_controller_goes_on_without_as_many_as_were_agreed(small):
    made = losing(small).agreement
    control, canceled = GossipController(made.run.digest), []
    control._run, control._task = made.run, "task"
    control.cancel_task, control._give_up_later = canceled.append, canceled.append
    for name in ("elm", "birch"):
        control._gone_without(name)
    assert canceled == []
    control._replies = {name: {"finished": True, "removed": ["birch", "elm"]} for name in ("ash", "cedar")}
    control._end_if_settled(made.run)
    assert canceled == []
    control._replies["dogwood"] = {"finished": True, "removed": ["birch", "elm"]}
    control._end_if_settled(made.run)
    assert canceled == ["task"]
    control._gone_without("ash")
    assert canceled == ["task", "task"]


def test_the_page_shows_who_is_missing(small):
    made = losing(small).agreement
    row = {"round": 3, "rounds": 8, "waits": None, "state": "exchanging", "removed": ["birch", "elm"]}
    sites = of_run(made, Status("job", "RUNNING", {"ash": row}), [])["sites"]
    assert sites[0]["state"] == "exchanging, without birch, elm" and sites[1]["state"] is None
