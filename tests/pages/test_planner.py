"""The planner's page: its numbers are the command's, and only who has its address gets them."""

import http.client
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
from browsing import fits, serving, settled
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.pages.planner import STATIC, Question, answer, page

QUESTIONS = (
    Question(),
    Question(5, 300, 20, 0.5, 1e-6, "majority"),
    Question(20, 1000, 100, 2.0, trust="centre"),
    Question(10, 500, 10, 1.0, trust="1", max_bytes=1e5),
)


def printed(question):
    """What the command of the page prints."""
    found = CliRunner().invoke(app, [*question.command.split()[1:], "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_the_page_says_what_its_command_prints(question):
    page, command = answer(question), printed(question)
    assert page["loss"] == command["predicted_loss"]
    for name in ("sigma", "rounds", "messages", "bytes", "sampling", "activation"):
        assert page[name] == command["price"][name]
    assert page["reasons"] == command["reasons"]
    assert (page["epsilon"], page["delta"], page["adversary"]) == (
        question.epsilon,
        question.delta,
        command["adversary"],
    )
    assert page["loss_low"] < page["loss"] < page["loss_high"]


@pytest.mark.parametrize("trust", ["nobody", "1", "majority"])
def test_the_lines_of_the_page_run(trust, capsys):
    question = Question(4, 500, 3, 2.0, trust=trust)
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    known = {"X": X, "y": X[:, 0] > X[:, 1], "owners": np.arange(2000) % 4}
    exec(question.python, known)
    assert known["model"].privacy_.adversary == str(question.inputs.adversary.among(4))
    assert "It rests on this" in capsys.readouterr().out


def test_more_budget_costs_less_accuracy():
    losses = [loss for _, loss, *_ in answer(Question())["curve"]]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
def test_an_attacker_notices_no_less_than_a_gaussian_shows(epsilon):
    """The bound by (ε, δ) alone is over the exact chance against one Gaussian with this (ε, δ), and never over 100."""
    from scipy.stats import norm

    from sottovoce.privacy.profiles import gaussian_multiplier

    exact = 100 * norm.cdf(norm.ppf(0.01) + 1 / gaussian_multiplier(epsilon, 1e-5))
    assert exact <= answer(Question(epsilon=epsilon))["notices"] <= 100


FIELDS = ["nodes", "records", "features", "epsilon", "delta", "trust", "max_bytes", "x"]
VALUES = ["", "0", "-1", "1e400", "nan", "inf", "seven", "10000000000", "2", "centre"]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES)))
def test_any_question_is_read_or_refused_in_a_sentence(fields):
    try:
        Question.read(fields)
    except SottovoceError as error:
        assert str(error)


def test_a_question_without_an_answer_is_reported():
    with pytest.raises(SpecError, match="nodes goes from 1"):
        Question(nodes=0)


def get(address, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_only_who_has_the_address_is_answered():
    with serving(page()) as served:
        assert served.server_address[0] == "127.0.0.1"
        assert get(served.address)[0] == 200
        status, said = get(served.address + "answer?nodes=5&records=100&features=5")
        assert status == 200 and json.loads(said)["command"].startswith("sottovoce plan --nodes 5 ")
        assert "everybody" in json.loads(get(served.address + "answer?trust=everybody")[1])["error"]
        port = served.server_port
        for wrong in (f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{port}/{'x' * 22}/", served.address + "other"):
            assert get(wrong)[0] == 404
        assert get(served.address, Host="example.org")[0] == 404  # a name that was made to point here
        assert get(served.address + "answer?nodes=" + "1" * 5000)[0] == 404
        line = http.client.HTTPConnection("127.0.0.1", port)
        line.putrequest("GET", "http://[/", skip_host=True)  # no address at all
        line.endheaders()
        assert line.getresponse().status == 404
        line.close()


def test_a_slider_moves_the_numbers(tab):
    with serving(page()) as served:
        tab.goto(served.address)
        first = settled(tab)
        assert tab.inner_text("#command") == Question().command
        shown = tab.inner_text("#loss")
        tab.locator("#epsilon").focus()
        tab.keyboard.press("ArrowLeft")
        settled(tab, first)
        requested = Question(epsilon=0.5)
        assert tab.inner_text("#command") == requested.command
        assert tab.inner_text("#loss") != shown
        assert float(tab.inner_text("#loss")) == pytest.approx(100 * answer(requested)["loss"], rel=5e-3)
        assert tab.evaluate("document.querySelectorAll('#curve polyline').length") == 1
        assert fits(tab)


def test_the_page_of_a_site_answers_by_itself(tab, tmp_path):
    chosen = {name: values[:1] for name, values in STATIC.items()} | {"epsilon": STATIC["epsilon"][:2]}
    places = [{name: values[0] for name, values in chosen.items()} | {"epsilon": e} for e in chosen["epsilon"]]
    answers = {f"0 0 0 {k} 0 0 nobody": answer(Question(**place)) for k, place in enumerate(places)}
    known = {"places": chosen, "trust": ["nobody"], "answers": answers}
    file = tmp_path / "planner.html"
    file.write_text(page(known).html, encoding="utf-8")
    tab.goto(file.as_uri())
    first = settled(tab)
    before = tab.inner_text("#loss")
    tab.locator("#epsilon").focus()
    tab.keyboard.press("ArrowRight")
    settled(tab, first)
    assert float(tab.inner_text("#loss")) < float(before)
    assert fits(tab)
