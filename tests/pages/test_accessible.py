"""Everybody can read the pages: axe finds nothing, by day and by night, on a desk and on a telephone."""

from pathlib import Path

import pytest
from browsing import serving, settled, violations

from sottovoce import AlgorithmSpec, Shards, Spec, embedded, even, report, solve
from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.submit import Status
from sottovoce.pages import planner, watch

pytest.importorskip("axe_playwright_python", reason="axe is not installed")
AGREED = Path(__file__).parents[2] / "examples" / "consortium" / "consortium.toml"


@pytest.fixture(params=["light", "dark"])
def seen(request, tab):
    tab.emulate_media(color_scheme=request.param)
    yield tab
    paper = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(paper) < 60) == (request.param == "dark")  # the page is dark by night, and paper by day


def test_the_planner(seen):
    with serving(planner.page()) as served:
        seen.goto(served.address)
        settled(seen)
        assert violations(seen) == {}


def test_the_watch(seen):
    agreement = read_agreement(AGREED)
    row = {"round": 3, "rounds": agreement.run.T, "waits": {"round": 4, "for": agreement.run.nodes[1], "seconds": 9.0}}
    status = Status("b5f9", "RUNNING", {agreement.run.nodes[0]: row})
    with serving(watch.page(lambda: watch.of_run(agreement, status, [agreement.run.nodes[2]]), agreement)) as served:
        seen.goto(served.address)
        settled(seen)
        assert violations(seen) == {}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    table = embedded("breast_cancer")
    shards = Shards.of(table.X, table.y, even(len(table.y), 5)[0])
    spec = Spec(AlgorithmSpec(rounds=50), seed=1).replace(privacy__noise="private(2.0)")
    return report.write(solve(spec, shards), tmp_path_factory.mktemp("report") / "report.html", title="A run")


def test_a_report(seen, written):
    seen.goto(written.as_uri())
    seen.wait_for_timeout(1500)
    assert violations(seen) == {}


def test_axe_would_see_a_fault(tab):
    tab.set_content("<!doctype html><html><body><img src='x'><p style='color: #ccc'>pale</p></body></html>")
    assert {"image-alt", "html-has-lang", "color-contrast"} <= set(violations(tab))
