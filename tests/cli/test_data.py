"""`sottovoce data`: list, make, fetch."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from sottovoce.cli import data, screen
from sottovoce.cli import main as cli
from sottovoce.data.fetch import SOURCES, DataSource
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.data.tables import load_table


@pytest.fixture(autouse=True)
def data_verbs(monkeypatch, tmp_path):
    """The verbs under `sottovoce data`, and no folder but the test's own."""
    if "data" not in {group.name for group in cli.app.registered_groups}:
        cli.app.add_typer(data.app, name="data")
    monkeypatch.delenv("SOTTOVOCE_DATA", raising=False)
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The address of a server of two small files."""
    (tmp_path / "served").mkdir()
    for name, records in (("tiny", 3), ("tiny.t", 2)):
        (tmp_path / "served" / name).write_text("+1 1:0.5 2:1\n" * records)
        monkeypatch.setitem(SOURCES, name, DataSource(name, records, 2, None, "for this test"))
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
    thread.join(5)


def test_list(sottovoce, tmp_path):
    code, out, _ = sottovoce("data", "list")
    assert code == 0 and all(name in out for name in (*SOURCES, "epsilon-like", "rcv1-like", "400,000 × 2,000"))
    code, out, _ = sottovoce("data", "list", "--json")
    listed = json.loads(out)
    assert code == 0 and [row["name"] for row in listed["files"]] == list(SOURCES)
    assert all(row["path"] is None for row in listed["files"]) and listed["folder"] == str(tmp_path / "cache")


@pytest.mark.parametrize(("name", "maker"), [("epsilon-like", epsilon_like), ("rcv1-like", rcv1_like)])
def test_make(sottovoce, tmp_path, name, maker):
    code, out, _ = sottovoce("data", "make", name, "--records", 20, "--seed", 3, "--out", "a.npz", "--json")
    made, table = json.loads(out), load_table(tmp_path / "a.npz")
    assert code == 0 and made["records"] == table.n_records == 20 and made["features"] == table.m
    assert made["name"] == table.name == name and made["bytes"] == (tmp_path / "a.npz").stat().st_size
    again = maker(20, seed=3)
    assert (table.X != again.X).sum() == 0 and np.array_equal(table.y, again.y)
    code, out, _ = sottovoce("data", "make", name, "--records", 20, "--seed", 3, "--test")
    assert code == 0 and f"{name}.t.npz" in out and "20 × " in out
    assert not np.array_equal(load_table(tmp_path / f"{name}.t.npz").y, table.y)


def test_make_errors(sottovoce, tmp_path):
    code, out, err = sottovoce("data", "make", "epsilon-like", "--records", 0, "--json")
    assert code == 2 and json.loads(out)["kind"] == "SpecError" and "at least one record" in err
    code, _, err = sottovoce("data", "make", "rcv1-like", "--records", 5, "--out", "x/y.npz")
    assert code == 3 and "choose a folder that exists" in err
    assert sottovoce("data", "make", "mnist-like")[0] == 2


def test_fetch_takes_the_test_file_along(sottovoce, base, tmp_path):
    code, out, _ = sottovoce("data", "fetch", "tiny", "--base", base, "--json")
    files = json.loads(out)["files"]
    assert code == 0 and [row["name"] for row in files] == ["tiny", "tiny.t"] and all(row["fetched"] for row in files)
    assert (tmp_path / "cache" / "tiny.t").read_text().count("\n") == files[1]["records"] == 2
    code, out, _ = sottovoce("data", "fetch", "tiny", "--base", base)
    assert code == 0 and out.count("was here already") == 2
    listed = json.loads(sottovoce("data", "list", "--json")[1])["files"]
    assert {row["name"] for row in listed if row["bytes"]} == {"tiny", "tiny.t"}


def test_fetch_one_into_a_folder(sottovoce, base, tmp_path):
    code, out, _ = sottovoce("data", "fetch", "tiny", "--one", "--base", base, "--folder", tmp_path / "mine")
    assert code == 0 and "tiny: fetched, 3 × 2" in out and not (tmp_path / "cache").exists()
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["tiny", "tiny.sha256"]


def test_fetch_errors(sottovoce, base, tmp_path):
    code, out, err = sottovoce("data", "fetch", "a9b", "--base", base, "--json")
    assert code == 2 and "choose one of epsilon" in json.loads(out)["error"] and err.count("\n") == 1
    code, _, err = sottovoce("data", "fetch", "a9a", "--base", base)
    assert code == 3 and "no such file on the server" in err
    code, _, err = sottovoce("data", "fetch", "tiny", "--base", "ftp://127.0.0.1")
    assert code == 2 and "begins with http" in err


@pytest.mark.parametrize("stop", [False, True])
def test_progress_bar_on_a_terminal(sottovoce, base, monkeypatch, stop):
    monkeypatch.setattr(type(screen.err), "is_terminal", True)
    if stop:
        monkeypatch.setattr(data, "save_table", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    code, _, err = sottovoce("data", "make", "rcv1-like", "--records", 9000, "--out", "b.npz")
    assert code == (130 if stop else 0) and ("nothing was written" in err) == stop
    if not stop:
        assert sottovoce("data", "fetch", "tiny", "--base", base)[0] == 0
