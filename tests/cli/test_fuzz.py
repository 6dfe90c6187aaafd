"""Whatever the command is given, it ends in success or in one line; `benchmarks/fuzz_command.py` tries 10,000."""

import hashlib
import json
import shutil
import sys

import numpy as np
import pytest
from attempts import STRANGE, Ground, changed, judged, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sottovoce import Result, SottovoceError

ATTEMPTS = 10_000


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("fuzz") / "ground")


def test_attempts_end_in_a_sentence(ground):
    codes = []
    for seed in range(ATTEMPTS):
        wrong, code, shown = judged(ground, seed)
        codes.append(code)
        assert wrong is None, f"attempt {seed}: {wrong}: sottovoce {shown!r}"
    assert {0, 2, 3, 5, 6} <= set(codes)
    assert sum(code != 0 for code in codes) > ATTEMPTS / 2  # most attempts are on something


@settings(max_examples=400, database=None, suppress_health_check=list(HealthCheck))
@given(st.floats(0, 1), st.sampled_from([*range(len(STRANGE)), "cut", "gone"]))
def test_any_value_at_any_place_of_a_saved_run(ground, where, what):
    """It is refused, or it is one that a run can have."""
    shutil.rmtree(ground.spoilt, ignore_errors=True)
    shutil.copytree(ground.good / "run", ground.spoilt / "run")
    head = ground.spoilt / "run" / "result.json"
    changed(head, where, what if isinstance(what, str) else STRANGE[what])
    try:
        result = Result.load(ground.spoilt / "run")
        result.verify()
    except SottovoceError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert np.all(np.isfinite(result.models)) and result.statement.verdict()


KNOWN = [
    "train DATA --label label --nodes 3 --gamma constant:0",
    "train DATA --label label --nodes 3 --gamma constant:-1 --noise none --rounds 5",
    "train DATA --label label --nodes 3 --a constant:0 --noise none --rounds 5",
    "train DATA --label label --nodes 3 --epsilon 1e308",
    "train DATA --label label --nodes 3 --rounds 100000000000",
    "train DATA --label label --nodes 3 --rounds 1000000000 --noise none",
    "train DATA --label label --nodes 3 --noise none --epochs 1e12",
    "plan --nodes 10000000 --records 50 --features 3",
    "sweep DATA --label label --epsilon 1 --jobs 0",
    "compare --data DATA --label label --jobs 0",
    "reproduce table2 --size tiny --out DATA",
    "predict RUN DATA --out GOOD/nowhere/p.csv",
    "predict RUN DATA --out GOOD",
    "report RUN --out GOOD",
    "calibrate --epsilon 1 --rounds 10 --records 50 --lipschitz 1e308",
]


@pytest.mark.parametrize("line", KNOWN)
def test_what_once_ended_in_a_traceback(ground, line):
    shutil.rmtree(ground.spoilt, ignore_errors=True)
    ground.spoilt.mkdir()
    code, _, err, warned = run([ground.placed(word) for word in line.split()])
    assert code in (2, 3, 5) and err.count("Error: ") == 1 and not warned, err
    assert not ground.left_behind()


LEFT = [("result.json", "[]"), ("result.json", '{"spec": null}'), ("model.npz", "")]


@pytest.mark.parametrize(("file", "content"), LEFT)
def test_what_is_left_of_a_saved_run_is_refused(ground, tmp_path, file, content):
    shutil.copytree(ground.good / "run", tmp_path / "run")
    (tmp_path / "run" / file).write_text(content)
    for verb in (["predict", tmp_path / "run", ground.good / "data.csv"], ["report", tmp_path / "run"]):
        code, _, err, _ = run([*map(str, verb)])
        assert code == 3 and "result" in err and err.count("Error: ") == 1


def test_a_model_that_is_no_number_predicts_nothing(ground, tmp_path):
    shutil.copytree(ground.good / "run", tmp_path / "run")
    model, head = tmp_path / "run" / "model.npz", tmp_path / "run" / "result.json"
    with np.load(model) as kept:
        np.savez(model, **{name: np.full(values.shape, np.nan) for name, values in dict(kept).items()})
    said = json.loads(head.read_text())
    said["files"]["model.npz"] = hashlib.sha256(model.read_bytes()).hexdigest()
    head.write_text(json.dumps(said))
    code, out, err, _ = run(["predict", str(tmp_path / "run"), str(ground.good / "data.csv")])
    assert code == 3 and not out and "not a number" in err


def test_the_attempts_would_notice(ground, monkeypatch):
    """A bug and a half-written file are seen for what they are."""
    plans = (s for s in range(1000) if judged(ground, s)[1] == 0 and ground.last[0][0] == "plan")
    seed = next(s for s in plans if "--open" not in ground.last[0])  # which only shows a page

    def broken(*given, **fixed):
        raise KeyError("within")

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["sottovoce.cli.plan"], "choose", broken)
        assert "exit code 70" in judged(ground, seed)[0]
    (ground.folder / "model.npz.part").touch()
    assert "half written" in judged(ground, seed)[0] and judged(ground, seed)[0] is None
