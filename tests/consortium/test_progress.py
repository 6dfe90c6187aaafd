"""What a site's own process reports, and what `node health` makes of it."""

import json
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from sottovoce.cli import node as cli
from sottovoce.consortium import progress
from sottovoce.consortium.lock import KitLock
from sottovoce.consortium.progress import FILE, SILENT, Reporter, read_progress
from sottovoce.errors import SottovoceError, StoreError
from sottovoce.node.store import Store

SAID = {
    "name": "first",
    "state": "exchanging",
    "round": 3,
    "rounds": 20,
    "age": 0.5,
    "waits": None,
    "peers": {"birch": {"sent": 10, "received": 20, "waited": 0.25}},
}


def test_a_run_reports_rounds_waits_bytes_and_starts(small, cells, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.02)
    made = small(rounds=12)
    kits = made.kits()
    digest = made.agreement.run.digest
    for start in (1, 2):
        nodes = cells.join(made, kits)
        first = read_progress(kits["ash"] / "state")
        assert (first.run, first.starts, first.process, first.alive) == (digest, start, os.getpid(), True)
        assert all(answer["finished"] for answer in cells.run(nodes).values())
        found = read_progress(kits["ash"] / "state")
        assert (found.state, found.round, found.rounds, found.waits) == ("done", 12, 12, None)
        assert set(found.peers) == {"birch", "cedar"} and found.reported < 60 and found.age < 60
        if start == 1:
            assert all(peer.sent > 12 * 8 and peer.received > 12 * 8 for peer in found.peers.values())
    assert (kits["ash"] / "state" / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("written", [b"", b"[", b"[]", b"{}", b"[" * 100_000, b'{"peers": 3}', b"1" * 5000])
def test_a_report_that_cannot_be_read_is_none(tmp_path, written):
    (tmp_path / FILE).write_bytes(written)
    assert read_progress(tmp_path) is None and read_progress(tmp_path / "nowhere") is None


def test_a_report_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / FILE).mkdir()
    reporter = Reporter(tmp_path, "ab", lambda: SAID)
    reporter.start()
    reporter.close()
    assert len([r for r in caplog.records if "no report could be written" in r.getMessage()]) == 1


def test_the_report_is_not_written_through_a_link(tmp_path):
    (tmp_path / f"{FILE}.part").symlink_to(tmp_path / "elsewhere")
    reporter = Reporter(tmp_path, "ab", lambda: SAID)
    reporter.start()
    reporter.close()
    assert not (tmp_path / "elsewhere").exists()


def test_health_finds_a_process_that_hangs(small, monkeypatch, capsys):
    """A process that holds the folder and does not report: stopped, or stuck."""
    kits = small().kits()
    kit = kits["ash"]
    lock, store = KitLock(kit), Store(kit / "state")
    Reporter(kit / "state", "ab" * 32, lambda: SAID).start()

    def requested():
        try:
            cli.health(kit)
            code = 0
        except SottovoceError as error:
            code = error.exit_code
        return code, json.loads(capsys.readouterr().out)

    code, said = requested()
    assert code == 0 and said["healthy"] and said["at"]["round"] == 3 and said["at"]["state"] == "exchanging"
    late = SimpleNamespace(time=lambda: time.time() + SILENT + 1)
    monkeypatch.setattr(progress, "time", late)
    code, said = requested()
    assert code == 4 and not said["healthy"] and "has not reported for 3" in said["why"]
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    found = read_progress(kit / "state")._replace(process=int(gone.stdout))
    assert not found.alive and not found.hangs  # an old report of a process that ended says nothing
    store.close()
    code, said = requested()
    assert code == 0 and said["at"] is None
    lock.release()


def test_health_of_a_server_says_whether_it_accepts_connections(small, capsys):
    kit = small().kits()["ash"]
    (kit / "startup" / "fed_server.json").write_text("{}")
    agreement = kit / "local" / "consortium.toml"

    def requested():
        try:
            cli.health(kit)
            code = 0
        except SottovoceError as error:
            code = error.exit_code
        return code, json.loads(capsys.readouterr().out)

    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        agreement.write_text(agreement.read_text().replace("port = 8002", f"port = {port}"))
        code, said = requested()
        assert code == 4 and not said["running"] and said["why"] == "no process of it runs"
        lock = KitLock(kit)
        code, said = requested()
        assert code == 0 and said["healthy"] and said["process"] == os.getpid() and said["port"] == port
    code, said = requested()
    assert code == 4 and said["running"] and f"nothing accepts connections at port {port}" in said["why"]
    lock.release()


def test_a_kit_that_cannot_be_written_to_is_one_error(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sottovoce.consortium.lock.os.open", refused)
    with pytest.raises(StoreError, match=r"cannot be written to .* let the user who runs it own the folder"):
        KitLock(tmp_path)
