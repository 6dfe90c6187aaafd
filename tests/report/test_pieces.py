"""The pieces of a report: each shows the result's own numbers, whatever they are called."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.errors import DataError
from sottovoce.figure import Curve, Figure, Interval, Panel
from sottovoce.network.graphs import GRAPHS, positions
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.report import burn_down, claims, curves, network, settings_of, statement, verdict, weights
from sottovoce.report.document import csv_text, data_block, render, tag
from sottovoce.report.figures import shown
from sottovoce.report.graph import node_rows
from sottovoce.report.guarantee import VERIFIED, badge, level, meaning, tradeoff, trusted
from sottovoce.report.theme import plain
from sottovoce.run.result import History, Result


def figures(section):
    return {plot.figure.name: plot.figure for part in section.parts if isinstance(part, tuple) for plot in part}


def text_of(section):
    return " ".join(" ".join(part.itertext()) for part in section.parts if not isinstance(part, tuple))


def lines(figure):
    """The curves of a figure: name -> data."""
    return {r.name: r.data_source.data for r in figure.renderers if type(r.glyph).__name__ == "Line"}


class TestSettings:
    def test_runs_that_differ_by_their_seed_are_one_setting(self, several):
        settings = settings_of(several)
        assert [len(s.runs) for s in settings] == [2, 2, 1, 1]
        assert [s.label for s in settings] == ["ε = 0.5", "ε = 1", "Theorem 1 claiming 0.5", "no noise"]

    def test_settings_do_not_depend_on_the_order_of_results(self, several):
        transform = {s.label: {id(r) for r in s.runs} for s in settings_of(several)}
        back = {s.label: {id(r) for r in s.runs} for s in settings_of(several[::-1])}
        assert transform == back

    def test_more_words_only_where_fewer_are_not_distinct(self, make):
        runs = [make(), make(privacy__sampling="poisson(4)"), make(privacy__noise="none")]
        assert [s.label for s in settings_of(runs)] == ["ε = 2, poisson(8)", "ε = 2, poisson(4)", "no noise"]

    def test_other_data_is_another_setting(self, one):
        other = replace(one, public=one.public | {"records": [9] * 5})
        labels = [s.label for s in settings_of([one, other])]
        assert len(set(labels)) == 2

    def test_labels_may_be_given(self, several):
        settings = settings_of(several[:3], ["a", "b", "a"])
        assert [(s.label, len(s.runs)) for s in settings] == [("a", 2), ("b", 1)]
        with pytest.raises(DataError, match="3 results but 1 labels"):
            settings_of(several[:3], ["a"])

    def test_a_band_is_the_mean_and_its_interval_over_seeds(self, several):
        setting = settings_of(several)[0]
        values = np.array([run.history["objective"] for run in setting.runs])
        band = setting.band("objective")
        assert np.allclose(band.mean, values.mean(axis=0)) and np.all(band.low <= band.high)
        found = [Interval.of(column) for column in values.T]
        assert np.allclose(band.low, [one.low for one in found]) and np.allclose(band.high, [one.high for one in found])

    def test_a_long_history_is_thinned_but_keeps_its_ends(self, one):
        rows = [one.history.last | {"round": t} for t in range(1, 5001)]
        band = settings_of([replace(one, history=History(rows))])[0].band("objective")
        assert len(band.mean) <= 300 and band.x["round"][0] == 1 and band.x["round"][-1] == 5000

    def test_runs_without_a_common_round_are_no_setting(self, one):
        other = replace(one, history=History([one.history.last | {"round": 7.5}]))
        with pytest.raises(DataError, match="give each its own label"):
            settings_of([one, other], ["a", "a"])[0].band("objective")


def test_a_switch_is_there_where_it_does_something():
    curve = Curve("a line", {"x": np.array([0.0, 1.0])}, np.array([0.5, 1.0]))
    for log, said in ((None, None), (False, "off"), (True, "on")):
        figure = Figure("f", "", ((Panel("p", "", "y", (curve,), log=log),),), {"x": "x"})
        switch = shown(figure)[0].find(".//input[@data-log-y-of]")
        assert said == (None if switch is None else "off" if switch.get("checked") is None else "on")


class TestStatement:
    def test_an_epsilon_comes_with_delta_adversary_and_adjacency(self, several):
        for result in several:
            said = result.statement
            shown = [" ".join(verdict(said).itertext()), text_of(statement(said))]
            shown += [text_of(claims([s])) for s in settings_of([result]) if said.claimed is not None]
            for text in shown:
                assert f"δ = {said.delta:g}" in text or said.epsilon == np.inf
                assert said.adversary in text and said.adjacency in text

    def test_nothing_of_the_statement_is_left_out(self, one):
        text = text_of(statement(one.statement, one.nodes)) + " ".join(verdict(one.statement).itertext())
        for words_ in (*one.statement.assumptions, *one.statement.not_covered, one.statement.verdict(), *one.nodes):
            assert words_ in text
        plain_words = one.statement.paragraph().split("\n\n")[0].removeprefix(one.statement.verdict()).strip()
        assert plain_words and plain_words in text

    def test_a_page_says_whom_to_trust(self, one):
        for adversary, words_ in (
            ("transcript", "nobody"),
            ("secret_pairs(majority)", "no more than 2 of 5 nodes"),
            ("secret_pairs(1)", "no more than 1 of 5 nodes"),
            ("secret_pairs", "coalition"),
            ("central", "one place"),
            ("hidden_participation", "which node sent"),
        ):
            assert words_ in trusted(replace(one.statement, adversary=adversary))
        assert "everybody" in trusted(replace(one.statement, epsilon=np.inf))
        assert trusted(one.statement) in " ".join(verdict(one.statement).itertext())

    def test_only_what_was_verified_says_so(self, one):
        assert VERIFIED in " ".join(verdict(one.statement, verified=True).itertext())
        assert VERIFIED not in " ".join(verdict(one.statement).itertext())

    def test_colours_follow_the_verdict(self, one, several):
        assert level(one.statement) == "open" and badge(one.statement) == "SIMULATION"
        assert level(replace(one.statement, simulation=False)) == "open"
        assert level(replace(one.statement, simulation=False, secure=True)) == "good"
        assert [level(r.statement) for r in several[-2:]] == ["bad", "bad"]
        assert level(replace(one.statement, delta=0.2)) == "weak"
        assert "verdict bad" in render(verdict(several[-1].statement))
        assert "seed was given" in render(verdict(one.statement))
        assert "seed was given" not in render(verdict(replace(one.statement, simulation=False)))

    def test_a_huge_epsilon_is_readable(self, several):
        worst = several[-2].statement.worst
        huge = PrivacyStatement(
            **{f: getattr(several[-2].statement, f) for f in several[-2].statement.__dataclass_fields__}
            | {"epsilon": 458.0, "groups": (replace(worst, epsilon=458.0),)}
        )
        assert max(map(len, " ".join(meaning(huge).itertext()).split())) < 40


class TestBudget:
    def test_the_last_point_is_the_statement(self, one):
        figure = figures(burn_down(settings_of([one])))["budget"]
        spent, lower, budget = lines(figure).values()
        event = one.statement.worst.event
        assert spent["releases"][0] == 1 and spent["releases"][-1] == event.rounds
        assert spent["y"][-1] == one.statement.epsilon and lower["y"][-1] == one.statement.epsilon_lower
        assert np.all(np.diff(spent["y"]) > 0) and np.all(budget["y"] == 2.0)
        shared, mine, theirs = np.intersect1d(spent["releases"], lower["releases"], return_indices=True)
        assert len(shared) > 2 and np.all(lower["y"][theirs] <= spent["y"][mine])

    def test_a_claim_is_drawn_beside_the_truth(self, several):
        setting = settings_of(several[-2:-1])
        figure = figures(burn_down(setting))["budget"]
        spent, _, claimed = lines(figure).values()
        assert claimed["y"][-1] <= 0.5 < spent["y"][-1]
        dumbbell = figures(claims(setting))["claims"]
        said = next(r.data_source.data for r in dumbbell.renderers if "true" in r.data_source.data)
        assert said["high"] == [0.5] and said["true"] == [several[-2].statement.epsilon]

    def test_without_noise_there_is_no_budget_and_without_claim_no_comparison(self, one, several):
        assert not figures(burn_down(settings_of(several[-1:])))
        silent = replace(one, statement=replace(one.statement, epsilon=0.0))
        assert "nothing was spent" in text_of(burn_down(settings_of([silent])))
        assert claims(settings_of([one])) is None

    def test_the_trade_off_needs_different_epsilons(self, several):
        settings = settings_of(several)
        assert tradeoff(settings[:2]) is None
        found = figures(tradeoff(settings))
        source = found["suboptimality against epsilon"].renderers[0].data_source.data
        assert source["epsilon"] == sorted(s.statement.epsilon for s in settings[:3])


class TestCurves:
    def test_panels_hold_the_history(self, one):
        section = curves(settings_of([one]))
        found = figures(section)
        assert list(found) == ["objective", "suboptimality", "train_accuracy", "consensus_error"]
        for column, figure in found.items():
            data = next(iter(lines(figure).values()))
            assert np.array_equal(data["round"], one.history["round"])
            known = one.history[column] > 1e-12 if column == "consensus_error" else slice(None)
            assert np.array_equal(data["y"][known], one.history[column][known])
        assert list(lines(found["train_accuracy"])) == ["train", "test"]
        assert np.allclose(lines(found["objective"])["optimum F*"]["y"], 0.2)
        assert "not private" in section.label

    def test_what_is_unknown_is_left_out(self, one):
        rows = [row | {"suboptimality": np.nan, "test_accuracy": np.nan} for row in one.history.rows]
        found = figures(curves(settings_of([replace(one, history=History(rows))])))
        assert list(found) == ["objective", "train_accuracy", "consensus_error"]

    def test_nodes_that_agree_have_no_panel_of_disagreement(self, one):
        rows = [row | {"consensus_error": 1e-17} for row in one.history.rows]
        section = curves(settings_of([replace(one, history=History(rows))]))
        assert "consensus_error" not in figures(section) and "agree up to rounding" in text_of(section)

    def test_settings_are_means_with_bands_in_their_own_colours(self, several):
        settings = settings_of(several)
        found = figures(curves(settings, ["objective"]))["objective"]
        assert list(lines(found)) == [s.label for s in settings]
        colors = [r.glyph.line_color for r in found.renderers if type(r.glyph).__name__ == "Line"]
        assert len(set(colors)) == len(settings)
        assert sum(type(r.glyph).__name__ == "VArea" for r in found.renderers) == 2  # those with several seeds


class TestWeights:
    def bars(self, result):
        section = weights(settings_of([result]))
        return figures(section)["weights"].renderers[0].data_source.data, text_of(section)

    def test_the_largest_come_first_with_their_names(self, one):
        data, _ = self.bars(one)
        order = np.argsort(-np.abs(one.coef))
        assert np.array_equal(data["weight"], one.coef[order])
        assert [plain(one.features[j], 200) for j in order] == data["name"]

    def test_columns_without_names_are_numbered(self, one):
        data, _ = self.bars(replace(one, features=None))
        assert data["name"][0] == f"column {1 + int(np.argmax(np.abs(one.coef)))}"

    def test_models_with_several_outputs_are_shown_by_their_norm(self, one):
        class Outputs(Result):
            coef = np.array([[3.0, 0.0, 1.0, 0.0, 0.0, 0.0], [4.0, -2.0, 0.0, 0.0, 0.0, 0.0]])

        data, text = self.bars(Outputs(**vars(one)))
        assert data["weight"][:3].tolist() == [5.0, 2.0, 1.0] and "norms over the outputs" in text
        assert "3 have a weight other than 0" in text
        block = json.loads(next(weights(settings_of([Outputs(**vars(one))])).parts[1].iter("script")).text)
        assert "weight, output 2" in block["text"]

    def test_a_diverged_model_is_said_so(self, one):
        section = weights(settings_of([replace(one, models=np.full_like(one.models, np.nan))]))
        assert "not finite" in text_of(section)

    def test_models_of_other_features_are_not_compared(self, one):
        other = replace(one, features=("a", "b", "c", "d", "e", "f"))
        assert weights(settings_of([one, other])) is None


class TestNetwork:
    def test_every_node_once_with_its_public_numbers(self, one):
        rows = node_rows(one)
        assert [r["node"] for r in rows] == list(one.nodes)
        assert [r["spoke"] for r in rows] == one.public["participations"]
        assert max(r["epsilon"] for r in rows) == one.statement.epsilon
        figure = figures(network(one))["network"]
        dots = next(r.data_source.data for r in figure.renderers if "spoke" in r.data_source.data)
        assert dots["spoke"].tolist() == one.public["participations"] and len(dots["x"]) == 5

    def test_a_single_node_has_no_graph(self, one):
        group = replace(one.statement.worst, nodes=(0,))
        alone = replace(one, public=one.public | {"n": 1, "edges": [], "records": [20], "participations": [60]})
        section = network(replace(alone, nodes=None, statement=replace(one.statement, groups=(group,))))
        assert not figures(section) and "nobody to gossip with" in text_of(section)

    @pytest.mark.parametrize("name", ["complete", "ring", "star", "path", "grid", "small_world", "torus"])
    @pytest.mark.parametrize("n", [2, 9, 100])
    def test_nodes_have_places_of_their_own(self, name, n):
        if name in ("torus", "small_world", "ring") and n < 5:
            name = "path"
        place = positions(n, GRAPHS.make(name)(n).edges)
        assert place.shape == (n, 2) and np.abs(place).max() <= 1 + 1e-9
        assert len(np.unique(place.round(6), axis=0)) == n


class TestHtml:
    def test_text_cannot_become_markup(self):
        evil = '"><script>alert(1)</script>'
        shown = render(tag("p", evil, tag("b", evil), evil, title=evil))
        assert "<script" not in shown.replace("&lt;script", "") or 'title="&quot;&gt;<script' in shown
        assert shown.count("&lt;script&gt;") >= 3
        block = data_block({"x": evil})
        assert "<" not in block.text and json.loads(block.text) == {"x": evil}

    def test_csv_comes_back_as_it_was(self):
        rows = [{"a": 'x,"y"\nz', "b": 1.5}, {"a": "ε", "c": -2}]
        back = list(csv.DictReader(io.StringIO(csv_text(rows))))
        assert [r["a"] for r in back] == ['x,"y"\nz', "ε"] and [r["b"] for r in back] == ["1.5", ""]
        assert back[1]["c"] == "-2"  # a number is no formula

    @pytest.mark.parametrize("name", ["$$x$$", "\\(x\\)", "\\[x\\]", "$$$$"])
    def test_no_name_is_taken_for_mathematics(self, name):
        assert not any(mark in plain(name) for mark in ("$$", "\\(", "\\["))
