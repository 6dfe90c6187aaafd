"""Downloads, against a server on this machine."""

import bz2
import errno
import hashlib
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from sottovoce.data import fetch as module
from sottovoce.data.fetch import SOURCES, DataSource, cache_folder, fetch, found
from sottovoce.errors import DataError, SpecError

RNG = np.random.default_rng(0)
TEXT = "".join(f"{'+1' if i % 2 else '-1'} 1:{RNG.random()} 5:{RNG.random()}\n" for i in range(400)).encode()
PACKED = bz2.compress(TEXT)


class Handler(BaseHTTPRequestHandler):
    """Files from memory; `cuts` lists after how many bytes each of the next answers ends."""

    def __init__(self, server_state, *args):
        self.state = server_state
        super().__init__(*args)

    def log_message(self, *args):
        pass

    def do_GET(self):
        state, wanted = self.state, self.headers.get("Range")
        state["ranges"].append(wanted)
        body = state["files"].get(self.path.strip("/").split("/")[-1])
        if body is None or state["codes"]:
            self.send_error(state["codes"].pop(0) if state["codes"] else 404)
            return
        total, start = len(body), 0
        if wanted and state["honours_range"]:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= total:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{total}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        else:
            self.send_response(200)
        if state["sends_length"]:
            self.send_header("Content-Length", str(total - start))
        self.end_headers()
        body = body[start:]
        self.wfile.write(body[: state["cuts"].pop(0)] if state["cuts"] else body)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch, tmp_path):
    for variable in ("SOTTOVOCE_DATA", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "TIMEOUT", 10.0)
    monkeypatch.setattr(module, "CHUNK", 512)
    monkeypatch.setitem(SOURCES, "tiny", DataSource("tiny.bz2", 400, 5, None, "for this test"))
    monkeypatch.setitem(
        SOURCES, "known", DataSource("known.t", 400, 5, hashlib.sha256(TEXT).hexdigest(), "for this test")
    )
    state = {
        "files": {"tiny.bz2": PACKED, "known.t": TEXT},
        "ranges": [],
        "codes": [],
        "cuts": [],
        "honours_range": True,
        "sends_length": True,
    }
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, state))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state["base"] = f"http://127.0.0.1:{http.server_port}/files/"
    yield state
    http.shutdown()
    http.server_close()
    thread.join(5)


def leftovers(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


def test_whole_download_then_cache(server, tmp_path):
    details = []
    path = fetch("tiny", base=server["base"], progress=lambda done, total: details.append((done, total)))
    assert path == tmp_path / "cache" / "tiny.bz2" and path.read_bytes() == PACKED and found("tiny") == path
    assert details[-1] == (len(PACKED), len(PACKED)) and details == sorted(details) and len(details) > 3
    assert leftovers(tmp_path) == ["tiny.bz2", "tiny.bz2.sha256"]
    assert (tmp_path / "cache" / "tiny.bz2.sha256").read_text().split() == [
        hashlib.sha256(PACKED).hexdigest(),
        "tiny.bz2",
    ]
    assert fetch("tiny", base=server["base"]) == path and server["ranges"] == [None]  # nothing requested again


def test_known_sum_and_folder(server, tmp_path):
    path = fetch("known", folder=tmp_path / "a" / "b", base=server["base"].rstrip("/"))
    assert path == tmp_path / "a" / "b" / "known.t" and path.read_bytes() == TEXT


def test_continues_after_cut_connections(server, tmp_path):
    server["cuts"] += [1000, 700]
    path = fetch("tiny", base=server["base"])
    assert path.read_bytes() == PACKED and server["ranges"] == [None, "bytes=1000-", "bytes=1700-"]


def test_continues_with_a_part_of_an_earlier_call(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    server["cuts"] += [1500, 0]
    with pytest.raises(DataError, match=r"the connection was cut after 1,500 bytes .* start again later"):
        fetch("tiny", base=server["base"])
    assert leftovers(tmp_path) == ["tiny.bz2.part"]
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED and server["ranges"][-1] == "bytes=1500-"


def test_server_without_ranges_begins_anew(server):
    server["honours_range"] = False
    server["cuts"] += [1000]
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED
    assert server["ranges"] == [None, "bytes=1000-"]


def test_server_without_ranges_that_always_cuts_is_given_up(server):
    server["honours_range"] = False
    server["cuts"] += [900] * 20
    with pytest.raises(DataError, match="cut after 900 bytes"):
        fetch("tiny", base=server["base"])
    assert len(server["ranges"]) == 1 + module.ATTEMPTS


def test_part_that_is_already_whole(server, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tiny.bz2.part").write_bytes(PACKED)
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED


def test_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tiny.bz2.part").write_bytes(PACKED + b"more")
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED
    assert server["ranges"][-1] is None


def test_busy_server_is_requested_again(server):
    server["codes"] += [503, 500]
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED


@pytest.mark.parametrize(
    ("code", "message"), [(404, "there is no such file on the server; check --base"), (403, "the server answered 403")]
)
def test_refusals(server, tmp_path, code, message):
    server["codes"] += [code]
    with pytest.raises(DataError, match=message):
        fetch("tiny", base=server["base"])
    assert leftovers(tmp_path) == []


def test_wrong_sum_deletes_the_file(server, tmp_path):
    server["files"]["known.t"] = TEXT.replace(b"0.5", b"0.6")
    with pytest.raises(DataError, match=r"sum \(sha256\) of the file is .* and not .* it was deleted: fetch it again"):
        fetch("known", base=server["base"])
    assert leftovers(tmp_path) == []


def test_truncated_without_a_length_is_noticed(server, tmp_path):
    server["sends_length"] = False
    server["cuts"] += [1200]
    with pytest.raises(DataError, match=r"truncated or damaged .* it was deleted"):
        fetch("tiny", base=server["base"])
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>moved</html>", "truncated or damaged"),
        (bz2.compress(b"<html>moved</html>\n" * 400), "truncated or damaged"),
        (bz2.compress(TEXT[: TEXT.rfind(b"\n", 0, -1) + 1]), "holds 399 records with features up to 5, and should"),
        (bz2.compress(TEXT.replace(b" 5:", b" 6:")), "features up to 6, and should hold 400 with up to 5"),
    ],
)
def test_another_file_under_that_name(server, tmp_path, body, message):
    server["files"]["tiny.bz2"] = body
    with pytest.raises(DataError, match=message):
        fetch("tiny", base=server["base"])
    assert leftovers(tmp_path) == []


def test_corruption_in_the_cache_is_noticed(server, tmp_path):
    path = fetch("tiny", base=server["base"])
    damaged = bytearray(PACKED)
    damaged[700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"sha256.*it was deleted"):
        fetch("tiny", base=server["base"])
    assert leftovers(tmp_path) == []
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED


def test_file_copied_by_hand_is_checked_and_summed(server, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tiny.bz2").write_bytes(PACKED)
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED and server["ranges"] == []
    assert leftovers(tmp_path) == ["tiny.bz2", "tiny.bz2.sha256"]


@pytest.mark.parametrize("ending", ["", ".svm.xz", ".bz2"])
def test_file_in_the_data_folder_is_taken_as_it_is(server, tmp_path, monkeypatch, ending):
    (tmp_path / f"tiny{ending}").write_bytes(b"whatever")
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path))
    assert fetch("tiny", base=server["base"]) == found("tiny") == tmp_path / f"tiny{ending}"
    assert server["ranges"] == [] and found("known") is None
    assert fetch("tiny", folder=tmp_path / "other", base=server["base"]).read_bytes() == PACKED


def test_no_network(server):
    with pytest.raises(DataError, match=r"cannot be reached .*check the network, or copy the file by hand to"):
        fetch("tiny", base="http://127.0.0.1:1/")


def test_full_disk(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(DataError, match="the disk is full; make room or name another folder with --folder"):
        fetch("tiny", base=server["base"])


def test_full_disk_in_the_middle_keeps_the_part(server, tmp_path, monkeypatch):
    def progress(done, total):
        if done > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="the disk is full"):
        fetch("tiny", base=server["base"], progress=progress)
    assert leftovers(tmp_path) == ["tiny.bz2.part"]
    assert fetch("tiny", base=server["base"]).read_bytes() == PACKED and server["ranges"][-1].startswith("bytes=")


def test_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"the download cannot be kept there .* name another folder"):
        fetch("tiny", folder=tmp_path / "file", base=server["base"])


def test_arguments_without_meaning(server):
    with pytest.raises(SpecError, match="no data set to fetch is called 'mnist'; choose one of epsilon, "):
        fetch("mnist")
    with pytest.raises(SpecError, match="begins with http:// or https://, not 'file:///etc'"):
        fetch("tiny", base="file:///etc")


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SOTTOVOCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert cache_folder() == tmp_path / "x" / "sottovoce"
    monkeypatch.setattr(module.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "w"))
    assert cache_folder() == tmp_path / "w" / "sottovoce"


def test_sources_are_the_published_ones():
    assert {"epsilon", "epsilon.t", "rcv1", "rcv1.t", "a9a", "a9a.t", "covtype"} == set(SOURCES)
    assert (SOURCES["epsilon"].records, SOURCES["rcv1.t"].records) == (400_000, 677_399)
    assert module.BASE.startswith("https://")
