"""A run's folder: whole or refused, one release in it, and nothing in one with a guarantee that is not private."""

import hashlib
import io
import json
import os
import re
import zipfile
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce import solve
from sottovoce.errors import DataError, SpecError
from sottovoce.report import write
from sottovoce.run.build import make_problem
from sottovoce.run.result import (
    EVALUATION,
    HEAD,
    HISTORY,
    MODEL,
    NOT_PRIVATE,
    OPEN_HISTORY,
    History,
    Result,
    _arrays,
    belonging,
    belonging_object,
    write_atomically,
)
from sottovoce.run.scale import Scale
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

SPEC = Spec(AlgorithmSpec(rounds=30), seed=5).replace(problem__h="l2(0.1)", privacy__noise="private(0.5)")
SECRET = SPEC.replace(seed=None)


def numbers_in(folder):
    """Every number in every file of a folder, as text, in a table or in an array."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".html", ".txt", ".md", ".toml"):
            found += map(float, re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", path.read_text()))
        elif path.suffix == ".parquet":
            found += [x for column in pq.read_table(path).to_pydict().values() for x in column]
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                found += [x for name in arrays for x in arrays[name].ravel().tolist()]
    return np.array(found, dtype=float)


def guessed(folder, spec, shards, record):
    """The label of one record, by an attacker who knows all else: whose objective is in the folder, if one is."""
    model, details = Result.load(folder).model, numbers_in(folder)
    values = {}
    for label in (-1.0, 1.0):
        y = shards.y.copy()
        y[record] = label
        values[label] = make_problem(spec.problem, replace(shards, y=y)).value(model)
    near = {label: np.nanmin(np.abs(details - value)) < 1e-12 for label, value in values.items()}
    return next((label for label in near if near[label] and not near[-label]), None)


def test_a_folder_with_a_guarantee_gives_no_label_away(make_shards, tmp_path):
    shards = make_shards()
    for place, record in enumerate((0, 7, 21, 39)):
        result = solve(SECRET, shards, execution=Execution(observations=4))
        assert not result.statement.simulation and len(result.history)
        closed, open_ = tmp_path / f"closed{place}", tmp_path / f"open{place}"
        result.save(closed)
        write([Result.load(closed)], closed / "report.html", "mine")
        assert guessed(closed, SECRET, shards, record) is None
        result.save(open_, not_private_history=True)
        assert guessed(open_, SECRET, shards, record) == shards.y[record]  # the attack is a good one


def test_a_folder_with_a_guarantee_does_not_show_how_long_it_took(make_shards, tmp_path):
    """A record with very many entries takes longer than one with few: a difference that no noise covers."""
    shards, slow = make_shards(), {"seconds": 4711.25}
    for spec, details in ((SECRET, False), (replace(SECRET, seed=1), True)):
        result = solve(spec, shards)
        assert ("seconds" in result.environment) == details
        late = replace(result, environment=result.environment | slow)
        folder = late.save(tmp_path / str(details))
        write([late], folder / "report.html", "mine")
        assert any("4711.25" in path.read_text() for path in folder.iterdir() if path.suffix != ".npz") == details
        assert Result.load(folder).environment == late.environment


def test_a_history_is_kept_where_it_may_be_or_under_its_own_name(make_shards, tmp_path):
    secret = solve(SECRET, make_shards())
    solve(SPEC, make_shards()).save(tmp_path / "simulated")
    secret.save(tmp_path / "secret")
    secret.save(tmp_path / "requested", not_private_history=True)
    names = {folder.name: {path.name for path in folder.iterdir()} for folder in tmp_path.iterdir()}
    whole = {"result.json", MODEL}
    assert names == {"simulated": {*whole, HISTORY}, "secret": whole, "requested": {*whole, OPEN_HISTORY}}
    assert pq.read_schema(tmp_path / "requested" / OPEN_HISTORY).metadata[b"privacy"].decode() == NOT_PRIVATE
    for name in names:  # and nothing needs it
        for file in (HISTORY, OPEN_HISTORY):
            (tmp_path / name / file).unlink(missing_ok=True)
        loaded = Result.load(tmp_path / name)
        loaded.verify()
        assert not len(loaded.history) and write([loaded], tmp_path / "page.html").exists()


def test_a_folder_of_version_0_1_is_refused(make_shards, tmp_path):
    folder = solve(SPEC, make_shards()).save(tmp_path / "one")
    head = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(head | {"format": 1}))
    with pytest.raises(DataError, match=r"was saved by sottovoce 0\.1, which this version does not read; make it anew"):
        Result.load(folder)


@pytest.mark.parametrize("file", [MODEL, "schema.toml", HISTORY])
def test_a_file_that_was_changed_or_is_another_runs_is_refused(make_shards, tmp_path, file):
    folder = solve(SPEC, make_shards()).save(tmp_path / "one", beside={"schema.toml": b"row_norm = 1"})
    other = solve(SPEC.replace(seed=6), make_shards()).save(tmp_path / "two", beside={"schema.toml": b"row_norm = 2"})
    Result.load(folder).verify()
    (folder / file).write_bytes((other / file).read_bytes())
    with pytest.raises(DataError, match="not the file that the result was saved with"):
        Result.load(folder)
    (folder / file).unlink()
    if file == HISTORY:
        assert not len(Result.load(folder).history)
    else:
        with pytest.raises(DataError, match=r"no whole result|no readable result"):
            Result.load(folder)


def test_a_folder_that_was_cut_short_is_no_result(make_shards, tmp_path, monkeypatch):
    """Whenever the machine stops while another release takes the place of one, what is there is a whole one or none."""
    first, second = solve(SECRET, make_shards()), solve(SECRET, make_shards())
    for step in range(6):
        folder = first.save(tmp_path / str(step))
        left = {"steps": step}

        def stops(*args, real, left=left, **more):
            if left["steps"] == 0:
                raise KeyboardInterrupt
            left["steps"] -= 1
            return real(*args, **more)

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(os, "replace", partial(stops, real=os.replace))
            patched.setattr(os, "fsync", partial(stops, real=os.fsync))
            second.save(folder, force=True)
        try:
            found = Result.load(folder)
            assert np.array_equal(found.models, (second if step >= 4 else first).models)
        except DataError as error:
            assert 2 <= step < 4 and "holds no readable result" in str(error)
        assert not list(folder.glob("*.part"))
        second.save(folder, force=True)
        assert np.array_equal(Result.load(folder).models, second.models)


def test_a_place_that_is_taken_by_a_folder_leaves_no_part_behind(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "page.html", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_full_disk_takes_no_release_away(make_shards, tmp_path, monkeypatch):
    first, second = solve(SECRET, make_shards()), solve(SECRET, make_shards())
    folder = first.save(tmp_path / "run")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot be written to .* .No space left on device"):
        second.save(folder, force=True)
    assert np.array_equal(Result.load(folder).models, first.models)
    assert {path.name for path in folder.iterdir()} == {"result.json", MODEL}


def test_a_full_disk_leaves_no_part_behind(tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "page.html", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"] and (tmp_path / "page.html").read_text() == "old"


def test_a_release_is_not_lost_by_accident(make_shards, tmp_path):
    shards = make_shards()
    first, second = solve(SECRET, shards), solve(SECRET, shards)
    folder = first.save(tmp_path / "run")
    (folder / "evaluation.json").write_text("{}")
    with pytest.raises(SpecError, match=r"already, and another one would take its place.*--force"):
        second.save(folder)
    assert Result.load(folder) == replace(first, history=History())
    first.save(folder)  # the same models: nothing is lost
    second.save(folder, force=True)
    assert np.array_equal(Result.load(folder).models, second.models)
    assert not (folder / "evaluation.json").exists()  # it was the first one's
    simulated = solve(SPEC, shards)
    with pytest.raises(SpecError, match="another one would take its place"):
        simulated.save(folder)
    simulated.save(tmp_path / "sim")
    solve(SPEC, shards).save(tmp_path / "sim")  # can be made again at any time
    with pytest.raises(SpecError, match="another one would take its place"):
        solve(SPEC.replace(seed=8), shards).save(tmp_path / "sim")
    (tmp_path / "sim" / "result.json").write_text("[]")
    with pytest.raises(SpecError, match="another one would take its place"):
        simulated.save(tmp_path / "sim")


def test_scaled_records_meet_the_model_as_they_were_trained(make_shards):
    shards = make_shards()
    result = solve(SPEC, shards)
    scale = Scale(bound=2.0, unit=2.0, targets=(10.0, 30.0))
    measured = replace(result, scale=scale)
    X = 2.0 * shards.X
    assert measured.decide(X) == pytest.approx(20.0 + 10.0 * result.decide(shards.X))
    assert measured.decide(100 * X) == pytest.approx(measured.decide(2 * X / np.linalg.norm(X, axis=1)[:, None]))
    assert Scale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale
    for wrong in (
        {},
        [],
        scale.to_dict() | {"unit": 0},
        scale.to_dict() | {"link": [1]},
        scale.to_dict() | {"bound": -1},
    ):
        with pytest.raises(DataError, match="how records meet its model"):
            Scale.from_dict(wrong)
    strict = replace(result, scale=Scale(threshold=float(np.median(result.decide(shards.X)))), classes=("no", "yes"))
    assert np.mean(strict.predict(shards.X) == "yes") == pytest.approx(0.5, abs=0.05)


def test_a_model_without_numbers_predicts_nothing(make_shards):
    result = solve(SPEC, make_shards())
    with pytest.raises(DataError, match="not finite: its run diverged"):
        replace(result, models=result.models * np.nan).predict(np.zeros((1, 4)))


WRONG = {
    "a list": lambda head: [],
    "no spec": lambda head: head | {"spec": None},
    "fewer classes": lambda head: head | {"classes": ["no"]},
    "fewer features": lambda head: head | {"features": ["a"]},
    "no files": lambda head: {name: value for name, value in head.items() if name != "files"},
    "files are a list": lambda head: head | {"files": []},
    "no public numbers": lambda head: head | {"public": None},
    "a scale of words": lambda head: head | {"scale": "wide"},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_result_is_one_sentence(make_shards, tmp_path, name):
    folder = solve(SPEC, make_shards(), classes=("no", "yes"), features=tuple("abcd")).save(tmp_path)
    head = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(WRONG[name](head)))
    with pytest.raises((DataError, SpecError)) as error:
        Result.load(folder)
    assert len(str(error.value).splitlines()) == 1


# -- files that someone else wrote --


@pytest.fixture
def saved(make_shards, tmp_path):
    return solve(SPEC, make_shards()).save(tmp_path / "saved", beside={"schema.toml": b"row_norm = 1"})


def test_files_that_a_result_does_not_list_are_not_read(saved):
    head = json.loads((saved / HEAD).read_text())
    for name in ("schema.toml", HISTORY):
        del head["files"][name]
    (saved / HEAD).write_text(json.dumps(head))
    assert belonging(saved, "schema.toml") is None and not len(Result.load(saved).history)
    (saved / HISTORY).write_bytes(b"not even Parquet")
    assert not len(Result.load(saved).history)


@pytest.mark.parametrize("name", [MODEL, HEAD, "schema.toml", HISTORY])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(saved, name):
    (saved / name).unlink()
    os.mkfifo(saved / name)
    with pytest.raises(DataError):
        Result.load(saved)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"[1]", b"\xff"])
def test_a_file_of_a_result_that_is_no_json_object_is_one_error(saved, content):
    head = json.loads((saved / HEAD).read_text())
    head["files"][EVALUATION] = hashlib.sha256(content).hexdigest()
    (saved / EVALUATION).write_bytes(content)
    (saved / HEAD).write_text(json.dumps(head))
    with pytest.raises(DataError, match="holds no JSON object"):
        belonging_object(saved, EVALUATION)


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(saved):
    """256 MiB of zeros in 256 KiB: far more than noise can be packed."""
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("models.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1, 2**25)})
        for _ in range(256):
            file.write(bytes(2**20))
    head = json.loads((saved / HEAD).read_text())
    head["public"] |= {"n": 1, "m": 2**25}
    head["files"][MODEL] = hashlib.sha256(zeros.getvalue()).hexdigest()
    (saved / HEAD).write_text(json.dumps(head))
    (saved / MODEL).write_bytes(zeros.getvalue())
    assert len(zeros.getvalue()) < 2**19
    with pytest.raises(DataError):
        Result.load(saved)
    with pytest.raises(ValueError, match="unpacks to far more"):
        _arrays(saved / MODEL, head["public"])


def test_a_history_with_more_cells_than_any_has_is_refused(saved):
    ones = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**25, np.int8)), pa.array([1.0]))
    pq.write_table(pa.table({"round": ones}), saved / HISTORY)
    head = json.loads((saved / HEAD).read_text())
    head["files"][HISTORY] = hashlib.sha256((saved / HISTORY).read_bytes()).hexdigest()
    (saved / HEAD).write_text(json.dumps(head))
    assert (saved / HISTORY).stat().st_size < 2**18
    with pytest.raises(DataError, match="no readable result"):
        Result.load(saved)
