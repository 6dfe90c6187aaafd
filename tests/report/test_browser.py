"""The report as a reader has it: opened from disk in Chromium, without a network, and clicked at."""

import csv
import io

import pytest

from sottovoce import report
from sottovoce.experiments.compare.page import write_page
from sottovoce.experiments.compare.ranking import summarize
from sottovoce.experiments.compare.study import Study, compare
from sottovoce.experiments.data import load
from sottovoce.problem.losses import LOSSES
from sottovoce.report.history import SIMULATION


def until(page, true, seconds=10):
    """Wait for JavaScript to become true; the page's policy forbids Playwright's own way, which evaluates text."""
    for _ in range(20 * seconds):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {true}")


@pytest.fixture(scope="module")
def files(one, several, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {
        "one": report.write(one, folder / "one.html", title="<b>A</b> run"),
        "several": report.write(several, folder / "several.html"),
        "compared": compared(folder / "compared.html"),
    }


def compared(path):
    """A comparison of two algorithms at two budgets."""
    data = load("breast_cancer", loss=LOSSES.make("logistic"))
    settings = {"h": "l2(0.1)", "batch": 16, "epochs": 2.0}
    rows = compare(Study.of(data, ["dsgd", "dda"], settings, nodes=5, epsilons=(1.0, 2.0), seeds=2))
    return write_page(path, rows, summarize(rows), {"objective": "<b>why</b>"})


@pytest.fixture(scope="module")
def context(browser):
    return browser.new_context(offline=True, viewport={"width": 1280, "height": 900}, accept_downloads=True)


@pytest.fixture(scope="module")
def wrong():
    """What pages complained about, ran though they should not, or requested a network for."""
    return []


@pytest.fixture(scope="module")
def pages(context, files, wrong):
    """All reports, opened once."""
    opened = {}
    for name, path in files.items():
        page = opened[name] = context.new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None)
        page.goto(path.as_uri())
        until(page, "Bokeh.documents.length && 'ready' in document.documentElement.dataset")
        until(page, "Bokeh.documents[0].is_idle")
    return opened


@pytest.fixture
def visit(pages, wrong):
    """A report in front, for a test that must not make it complain."""

    def go(name):
        pages[name].bring_to_front()  # a browser slows down what lies behind
        return pages[name]

    yield go
    assert not wrong


def figure(name, then):
    """JavaScript that examines the figure of this name, bound to `f`."""
    return f"(() => {{ const f = Bokeh.documents[0].get_model_by_name({name!r}); return {then}; }})()"


def test_figures_are_drawn_and_names_stay_text(visit):
    page = visit("one")
    roots = page.evaluate("Bokeh.documents[0].roots().map(f => f.name)")
    assert roots == ["budget", "objective", "suboptimality", "train_accuracy", "consensus_error", "network", "weights"]
    for box in page.locator("figure .bk-Figure").all():
        size = box.bounding_box()
        assert size["width"] > 300 and size["height"] > 200
    assert page.locator("h1").inner_text() == "<b>A</b> run"
    assert page.get_by_text(SIMULATION).count() == 1
    assert page.locator("img").count() == 0
    # the hover of a node with markup for its name shows the name
    spot = page.evaluate(
        """() => {
          const f = Bokeh.documents[0].get_model_by_name("network"), view = Bokeh.index.get_by_id(f.id);
          const data = f.renderers.find(r => "spoke" in r.data_source.data).data_source.data;
          view.el.scrollIntoView({block: "center"});
          const at = view.el.getBoundingClientRect(), {x_scale, y_scale} = view.frame;
          return [at.x + x_scale.compute(data.x[1]), at.y + y_scale.compute(data.y[1])];
        }"""
    )
    page.mouse.move(*spot)
    tip = page.locator(".bk-Tooltip").filter(has_text="records").first
    tip.wait_for()
    assert "<script>" in tip.evaluate("tip => tip.shadowRoot.textContent") and tip.locator("script, img").count() == 0


def test_a_click_on_a_legend_entry_hides_the_curve_everywhere(visit):
    page = visit("several")
    seen = "f.renderers.filter(r => r.name === 'ε = 1').map(r => r.visible)"
    names = ("objective", "suboptimality", "train_accuracy", "test_accuracy", "consensus_error")
    assert all(page.evaluate(figure(name, seen)) == [True, True] for name in names)  # the mean and its band
    legend = page.get_by_label("Objective F", exact=True).get_by_text("ε = 1", exact=True)
    legend.click()
    assert all(page.evaluate(figure(name, seen)) == [False, False] for name in names)
    assert page.evaluate(figure("budget", seen)) == [True]  # other controls, other curves
    legend.click()
    assert page.evaluate(figure("objective", seen)) == [True, True]


def test_a_comparison_ranks_and_hides_a_budget(visit):
    page = visit("compared")
    name = "breast_cancer-transcript-suboptimality"
    assert page.evaluate(figure(name, "f.renderers.map(r => r.visible)")) == [True] * 4  # points and their intervals
    page.get_by_label("F(model) − F*", exact=True).get_by_text("ε = 2", exact=True).click()
    assert page.evaluate(figure(name, "f.renderers.map(r => r.visible)")) == [True, True, False, False]
    assert page.locator("tbody tr").filter(has_text="dsgd").count() == 3  # ranked at two ε, and cited
    assert page.get_by_text("<b>why</b>").count() == 1


def test_axes_change_for_all_panels(visit):
    page = visit("one")
    column = "f.renderers.every(r => r.glyph.x.field === 'bytes')"
    end = page.evaluate(figure("objective", "f.x_range.end"))
    page.locator("[data-x-of]").select_option("bytes")
    assert page.evaluate(figure("objective", column)) and page.evaluate(figure("consensus_error", column))
    until(page, figure("objective", f"f.x_range.end != {end}"))  # it fits the new numbers
    assert "sent" in page.evaluate(figure("objective", "f.below.find(a => a.visible).axis_label"))

    def scales(name):
        shown = "[f.x_scale.type, f.y_scale.type, ...f.below.concat(f.left).filter(a => a.visible).map(a => a.type)]"
        return [kind for kind in page.evaluate(figure(name, shown)) if kind != "Legend"]

    key = page.locator("[data-x-of]").get_attribute("data-x-of")
    assert scales("suboptimality") == ["LinearScale", "LogScale", "LinearAxis", "LogAxis"]
    page.locator(f"[data-log-x-of='{key}']").check()
    page.locator(f"[data-log-y-of='{key}']").uncheck()
    assert scales("suboptimality") == ["LogScale", "LinearScale", "LogAxis", "LinearAxis"]
    assert scales("train_accuracy") == ["LogScale", "LinearScale", "LogAxis", "LinearAxis"]
    page.locator(f"[data-log-y-of='{key}']").check()
    assert scales("train_accuracy")[1] == "LinearScale"  # a score stays as it is
    until(page, "Bokeh.documents[0].is_idle")


def test_downloads_are_the_tables(visit, one, several):
    def rows(page, label):
        with page.expect_download() as download:
            page.get_by_role("button", name=label).click()
        text = download.value.path().read_text("utf-8-sig")
        return download.value.suggested_filename, list(csv.DictReader(io.StringIO(text)))

    page = visit("one")
    name, history = rows(page, "History as CSV")
    assert name == "history-not-private.csv"
    assert [float(row["objective"]) for row in history] == one.history["objective"].tolist()
    _, nodes = rows(page, "Nodes as CSV")
    assert [int(row["spoke"]) for row in nodes] == one.public["participations"]
    assert nodes[1]["node"] == one.nodes[1] and nodes[2]["node"] == "'=HYPERLINK(1)"
    _, weights = rows(page, "All weights as CSV")
    assert sorted(float(row["weight"]) for row in weights) == sorted(one.coef.tolist())
    _, runs = rows(visit("several"), "All runs as CSV")
    assert [float(row["epsilon"]) for row in runs] == [r.statement.epsilon for r in several]


def test_print_has_every_figure_as_a_drawing(visit):
    page = visit("several")
    count = page.locator("figure").count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("figure > svg").count() == count
    assert page.locator("details.printed:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("figure > svg").count() == 0 and page.locator("details.printed[open]").count() == 0
    assert len(page.pdf(format="A4")) > 20_000


def test_a_narrow_screen_needs_no_sideways_scrolling(visit):
    for name in ("one", "several", "compared"):
        page = visit(name)
        page.set_viewport_size({"width": 480, "height": 900})
        until(page, "document.documentElement.scrollWidth <= 480")
