"""What others say reaches a report or a terminal piece by piece, or not at all."""

import json
import math
from io import BytesIO
from zipfile import ZIP_BZIP2, ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.cli import screen
from sottovoce.cli.node import _site
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.job import MAX_JOB_BYTES, Code
from sottovoce.consortium.untrusted_input import outcomes, progress_of, progress_of_all, reply_of, report_of
from sottovoce.data.sql import answer_of
from sottovoce.errors import DataError, SpecError
from sottovoce.run.result import Result

ESCAPES = "\x1b[2J\x1b]0;own\x07[link=http://example.org]\u202e\x9b1m"
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "round",
    "rounds",
    "waits",
    "for",
    "seconds",
    "error",
    "digest",
    "finished",
    "right",
    "unheard",
    "skips",
    "sites",
    "failed",
)


@pytest.fixture(scope="module")
def agreement(small_at, tmp_path_factory):
    return small_at(tmp_path_factory.mktemp("said"), rounds=9).agreement


def leaves(value):
    if isinstance(value, dict):
        return [leaf for pair in value.items() for item in pair for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else [value]


def test_progress_is_rounds_and_names_of_this_run(agreement):
    run = agreement.run
    good = {"round": 3, "rounds": 9, "waits": {"round": 4, "for": "birch", "seconds": 2.5}, "state": "waiting"}
    assert progress_of(json.dumps(good), run) == good
    assert progress_of(json.dumps(good | {"state": ESCAPES}), run) == good | {"state": None}
    for t in (0, 10):  # for a hello, and for a final model
        greeting = good | {"waits": {"round": t, "for": "birch", "seconds": 2.5}}
        assert progress_of(json.dumps(greeting), run) == greeting
    for waits in (
        {"round": 11, "for": "birch", "seconds": 1},
        {"round": -1, "for": "birch", "seconds": 1},
        {"round": 4, "for": ESCAPES, "seconds": 1},
        "x",
        [1],
    ):
        assert progress_of(json.dumps(good | {"waits": waits}), run) == good | {"waits": None}
    for seconds in (-1, 1e300, "1", True, None):
        odd = good | {"waits": good["waits"] | {"seconds": seconds}}
        assert progress_of(json.dumps(odd), run) == good | {"waits": None}
    for bad in (
        b"",
        None,
        b"{",
        b"[]",
        b'{"round": 2.5}',
        b'{"round": 10}',
        b'{"round": true}',
        b"\xff",
        b"9" * MAX_JOB_BYTES,
    ):
        assert progress_of(bad, run) is None


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), plain_json, max_size=6))
def test_nothing_but_numbers_names_and_codes_comes_through(agreement, value):
    run, known = agreement.run, {*agreement.run.nodes, agreement.run.digest, *Code, *FIELDS, None, True, False}
    details = json.dumps(value)
    for found in (
        progress_of(details, run),
        reply_of(details, run),
        progress_of_all({"ash": value, ESCAPES: value}, run),
    ):
        for leaf in leaves(found):
            assert leaf in known or (isinstance(leaf, int | float) and math.isfinite(leaf))
    for leaf in leaves(outcomes(value, run)):
        assert leaf in known | {"server"} or isinstance(leaf, int)


def test_a_report_s_guarantee_and_accuracy_are_one_s_own(agreement):
    """A server that writes ε = 0.01 and an accuracy of 1 is not read out."""
    sites = {name: {"finished": True, "right": 5, "unheard": [ESCAPES, "ash"]} for name in agreement.run.nodes}
    lie = {"sites": sites, "privacy": {"verdict": ESCAPES, "epsilon": 0.01}, "evaluation": {"accuracy": 1.0}}
    found = report_of(json.dumps(lie).encode(), agreement)
    assert found["privacy"] == statement(agreement).to_dict() and found["evaluation"]["accuracy"] == 0.5
    assert "failed" not in found and found["sites"]["birch"]["unheard"] == ["ash"]
    sites["ash"] = {"error": ESCAPES}
    found = report_of(json.dumps(lie | {"failed": {"ash": ESCAPES, ESCAPES: "x"}}).encode(), agreement)
    assert found["failed"] == {"ash": Code.UNREADABLE}
    assert report_of(b"no report", agreement) == {"failed": {"server": Code.UNREADABLE}}


def test_text_of_others_moves_no_cursor_and_makes_no_markup():
    shown = screen.plain(ESCAPES + "straße\n")
    assert not any(sign in shown for sign in "\x1b\x07\x9b\u202e") and shown.endswith("straße\n")
    assert shown.count(r"\[") == shown.count("[") == 2


@pytest.mark.parametrize("key", ["password", "PWD", "sslpassword", "auth_token"])
def test_a_password_behind_the_question_mark_is_refused_unseen(key):
    pytest.importorskip("sqlalchemy")
    with pytest.raises(SpecError, match="password") as caught:
        answer_of(f"postgresql+psycopg://reader@host/db?{key}=swordfish", "SELECT 1")
    assert "swordfish" not in str(caught.value)


def test_a_password_on_a_command_line_is_refused_and_a_name_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("OWN", "swordfish")
    for address in ("postgresql://reader:swordfish@host/db", "postgresql+psycopg://reader:${OWN}x@host/db"):
        with pytest.raises(SpecError, match="command line") as caught:
            _site("records", tmp_path, address, "SELECT 1", None)
        assert "swordfish" not in str(caught.value)
    for address, meant in (
        ("postgresql://reader:${OWN}@host/db", "postgresql://reader:swordfish@host/db"),
        ("postgresql://reader@host:5432/db", "postgresql://reader@host:5432/db"),
        ("sqlite:///a.db", "sqlite:///a.db"),
    ):
        assert _site("records", tmp_path, address, "SELECT 1", None).database == meant


def test_a_model_that_unpacks_to_more_than_its_run_is_not_read(small, cells, tmp_path):
    made = small(rounds=2, held_out=0.0)
    kits = made.kits()
    cells.run(cells.join(made, kits))
    folder = kits["ash"] / "state" / "results" / "first"
    models = Result.load(folder).models
    for wrong in (
        {"models": np.zeros((1000, *models.shape))},
        {"models": models, "more": models},
        {"models": models, "statistics": np.zeros((100, 100))},
        {"other": models},
    ):
        np.savez_compressed(folder / "model.npz", **wrong)
        with pytest.raises(DataError, match="no readable result"):
            Result.load(folder)
    with ZipFile(folder / "model.npz", "w", ZIP_BZIP2) as archive:  # it unpacks all at once, whatever size it says
        np.save(whole := BytesIO(), models)
        archive.writestr("models.npy", whole.getvalue())
    with pytest.raises(DataError, match="no readable result"):
        Result.load(folder)
    np.savez_compressed(folder / "model.npz", models=models)
    assert np.array_equal(Result.load(folder).models, models)
