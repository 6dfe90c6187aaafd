"""Whole reports: complete in themselves, small, the same when drawn anew, and written by the command."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from sottovoce import report
from sottovoce.cli.report import saved_runs
from sottovoce.errors import DataError
from sottovoce.report import Section, page
from sottovoce.report.document import tag
from sottovoce.report.guarantee import VERIFIED
from sottovoce.run.result import History, Result
from sottovoce.run.scale import Scale

MAX_PAGE_BYTES = 3_000_000


class Outline(HTMLParser):
    """What a browser would find in the page: tags with their attributes, and the scripts that it would run."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script" and "type" not in dict(attrs)
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def written(one, several, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    paths = [report.write(one, folder / "one.html"), report.write(several, folder / "several.html")]
    return [path.read_text("utf-8") for path in paths]


def test_a_report_loads_nothing_and_runs_only_its_own_scripts(written):
    for text in written:
        outline = Outline(text)
        for name, attributes in outline.tags:
            assert name not in ("link", "img", "iframe", "base", "object")
            assert "src" not in attributes and not any(a.startswith("on") for a in attributes)
            assert attributes.get("href", "#").startswith("#")
        policy = next(a["content"] for _, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in outline.scripts]
        assert rules["default-src"] == "'none'" and rules["script-src"].split() == [f"'sha256-{h}'" for h in hashes]
        assert len(hashes) == 3 and "connect-src" not in rules


def test_names_are_escaped(written):
    for text in written:
        tags = [name for name, _ in Outline(text).tags]
        assert tags.count("script") == len(re.findall("<script[ >]", text)) and "img" not in tags
        assert "alert(1)" in text  # the name is there, as text


def test_reports_are_small(one, several, written, tmp_path):
    assert all(len(text.encode()) < 0.6 * MAX_PAGE_BYTES for text in written)
    # 24 settings of 3 seeds with long histories, many nodes and many features
    rng = np.random.default_rng(0)
    n, m = 300, 50_000
    i, j = np.triu_indices(n, 1)
    public = one.public | {
        "n": n,
        "m": m,
        "edges": np.column_stack([i, j]).tolist(),
        "records": [40] * n,
        "participations": rng.integers(1, 60, n).tolist(),
    }
    group = replace(one.statement.worst, nodes=tuple(range(n)))
    said = replace(one.statement, groups=(group,))
    rows = [one.history.last | {"round": t, "objective": 1 / t} for t in range(1, 1001)]
    huge = replace(
        one,
        public=public,
        statement=said,
        nodes=None,
        features=None,
        history=History(rows),
        models=rng.normal(size=(2, m)),
    )
    specs = [one.spec.replace(privacy__noise=f"private({e})", seed=s) for e in range(1, 25) for s in range(3)]
    for results in (huge, [replace(huge, spec=spec) for spec in specs]):
        assert report.write(results, tmp_path / "huge.html").stat().st_size < MAX_PAGE_BYTES


def visible(text):
    """A page without its scripts, and without the identifiers that Bokeh draws afresh each time."""
    return re.sub(r'id="[^"]*"|<script>.*?</script>|sha256-[^\']*', "", text, flags=re.DOTALL)


def test_a_saved_run_is_drawn_as_it_was(one, written, tmp_path):
    one.save(tmp_path)
    again = report.write(Result.load(tmp_path), tmp_path / "again.html").read_text("utf-8")
    assert visible(again) == visible(written[0])


def test_sizes_that_differ_are_ranges(one, tmp_path):
    longer = replace(one, spec=one.spec.replace(algorithm__rounds=1200))
    text = report.write([one, longer], tmp_path / "r.html").read_text("utf-8")
    assert "5 nodes, 200 records, 6 features, 60 to 1,200 rounds" in text


def test_regression_reports_a_coefficient_of_determination(one, tmp_path):
    text = report.write(replace(one, classes=None), tmp_path / "r.html").read_text("utf-8")
    assert "R² of the mean model" in text and "accuracy of the mean model" not in text


def test_a_run_that_nobody_evaluated_has_a_report_too(one, several, tmp_path):
    """Real nodes keep no history: it is not private."""
    dark = [replace(result, history=History()) for result in several]
    for results in (replace(one, history=History()), dark):
        text = report.write(results, tmp_path / "dark.html").read_text("utf-8")
        assert "not private: a simulation" not in text and "Budget" in text and "sent in" not in text


def test_a_real_nodes_result_has_a_report(one, several, tmp_path):
    """It knows its own name and model alone, of as many nodes as there are."""
    for results in (one, several):
        mine = [
            replace(result, nodes=("north",), models=result.models[:1], history=History())
            for result in ([results] if results is one else results)
        ]
        text = report.write(mine, tmp_path / "node.html").read_text("utf-8")
        assert "node 4" in text


def test_a_report_says_when_and_which_class_is_positive(one, several, tmp_path):
    text = visible(report.write(one, tmp_path / "r.html").read_text("utf-8"))
    assert f"run on {one.environment['date']}" in text and re.fullmatch(r"\d{4}-\d\d-\d\d", one.environment["date"])
    assert "0 or more answers 'yes', the positive class" in text and "a lower one 'no'" in text
    assert "the positive class" in visible(report.write(several, tmp_path / "r.html").read_text("utf-8"))
    moved = replace(one, scale=Scale(threshold=0.25), environment={})
    text = visible(report.write(moved, tmp_path / "r.html").read_text("utf-8"))
    assert "0.25 or more answers 'yes'" in text and "run on" not in text
    three = replace(
        one, classes=("a", "b", "c"), models=np.tile(one.models, 3), spec=one.spec.replace(problem__outputs=3)
    )
    assert "The largest of 3 scores answers: a, b, c." in report.write(three, tmp_path / "r.html").read_text("utf-8")


def test_rows_over_the_bound_are_reported_as_what_became_of_them(one, tmp_path):
    def details(result):
        text = visible(report.write(result, tmp_path / "r.html").read_text("utf-8"))
        return re.search(r"a row over the bound</dt><dd>([^<]*)", text)[1]

    assert details(one) == "refused"
    assert details(replace(one, scale=Scale(bound=1.0))) == "scaled down to it"
    assert details(replace(one, spec=one.spec.replace(problem__on_violation="clip"))) == "its subgradient clipped"


def test_what_was_seen_of_a_run_with_a_guarantee_is_not_drawn(make, tmp_path):
    result = make(seed=None)
    assert len(result.history) and not result.statement.simulation
    for results in (result, [result, make(seed=None, privacy__noise="private(1.0)")]):
        text = report.write(results, tmp_path / "r.html").read_text("utf-8")
        assert "not private: a simulation" not in text and str(result.history.last["objective"])[:12] not in text


def test_pages_can_be_put_together_otherwise(several):
    settings = report.settings_of(several)
    x = {"k": np.arange(1.0, 5.0)}
    plot = report.panel("own", [report.Curve("a", x, x["k"]), report.Curve("b", x, 2 * x["k"])], {"k": "steps"}, "own")
    sections = [
        report.curves(settings, ["suboptimality"], "Figure 1"),
        Section("Figure 2", (tag("p", "by hand"), (report.Plot("left", plot),))),
    ]
    text = page("The paper's figures", sections)
    assert text.count("<figure") == 2 and "Figure 1" in text and "by hand" in text


def test_a_place_that_cannot_be_written_is_an_error_in_one_sentence(one, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        report.write(one, tmp_path / "file" / "report.html")
    with pytest.raises(DataError, match="at least one result"):
        report.write([], tmp_path / "report.html")


class TestCommand:
    def test_one_run_several_runs_and_folders_of_runs(self, sottovoce, several, tmp_path, monkeypatch):
        for k, result in enumerate(several[:2]):
            result.save(tmp_path / "runs" / str(k))
        monkeypatch.chdir(tmp_path)
        code, text, _ = sottovoce("report", "runs/0")
        assert code == 0 and "runs/0/report.html" in text and (tmp_path / "runs/0/report.html").exists()
        code, text, _ = sottovoce("report", "runs", "--json")
        found = json.loads(text)
        assert found == {"report": "runs/report.html", "runs": ["runs/0", "runs/1"]}
        opened = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        code, _, _ = sottovoce("report", "runs/0", "runs/1", "--out", "both.html", "--title", "<b>", "--open")
        assert code == 0 and opened == [(tmp_path / "both.html").as_uri()]
        both = (tmp_path / "both.html").read_text("utf-8")
        assert "<h1>&lt;b&gt;</h1>" in both
        assert VERIFIED in both and VERIFIED in (tmp_path / "runs/0/report.html").read_text("utf-8")

    def test_a_folder_without_a_result_is_an_error(self, sottovoce, tmp_path):
        code, _, err = sottovoce("report", tmp_path)
        assert code == 3 and "there is no result" in err
        with pytest.raises(DataError):
            saved_runs(tmp_path / "none")

    def test_training_and_sweeping_leave_a_report(self, sottovoce, tmp_path):
        data = tmp_path / "data.csv"
        rng = np.random.default_rng(0)
        X = rng.uniform(-0.5, 0.5, size=(80, 2))
        data.write_text("a,b,y\n" + "\n".join(f"{a},{b},{int(a > b)}" for a, b in X))
        few = ("--label", "y", "--nodes", 2, "--regularizer", "l2:0.1")
        code, text, err = sottovoce(
            "train", data, *few, "--classes", "0,1", "--rounds", 5, "--out", tmp_path / "run", "--json"
        )
        assert code == 0, err
        assert json.loads(text)["report"] == str(tmp_path / "run" / "report.html")
        page = (tmp_path / "run" / "report.html").read_text("utf-8")
        assert "data.csv" in page and VERIFIED in page
        out = tmp_path / "sweep.parquet"
        code, text, err = sottovoce(
            "sweep", data, *few, "--sampling", "poisson:8", "--epsilon", 1, "--seeds", 2, "--epochs", 1, "--out", out
        )
        assert code == 0 and "sweep-report.html" in text, err
        assert out.exists() and (tmp_path / "sweep-report.html").exists()
