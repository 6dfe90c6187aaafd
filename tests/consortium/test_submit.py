"""What an administrator requires of a server, without one: who is there, what runs, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from sottovoce.cli import consortium as verbs
from sottovoce.consortium import check, submit
from sottovoce.consortium.lock import LOCK, KitLock
from sottovoce.consortium.submit import Administrator, Connected
from sottovoce.errors import FolderInUse, NetworkError, StoreError

JOB = "12345678-1234-1234-1234-1234567890ab"
OTHER = JOB.replace("1", "2")


class Server:
    """A session in which some sites say every time that they are there."""

    def __init__(self, alive=(), dead=(), jobs=()):
        self.alive, self.dead, self.running, self.requested, self.ended = alive, dead, dict(jobs), 0, []

    def get_system_info(self):
        self.requested += 1
        heard = {name: 100.0 + self.requested for name in self.alive} | dict.fromkeys(self.dead, 100.0)
        return SimpleNamespace(client_info=[SimpleNamespace(name=n, last_connect_time=t) for n, t in heard.items()])

    def list_jobs(self, **_):
        return [{"job_id": job, "status": state} for job, state in self.running.items()]

    def abort_job(self, job):
        self.ended.append(job)

    def get_job_meta(self, job):
        return {"status": self.running[job]}

    def submit_job(self, folder):
        return OTHER

    def close(self):
        pass


@pytest.fixture
def agreement(small):
    return small().agreement


@pytest.fixture
def kit(agreement, monkeypatch):
    def administrator(server):
        class Session:
            def __init__(self, *_):
                pass

            def __enter__(self):
                return Administrator(server, agreement)

            def __exit__(self, *_):
                pass

        monkeypatch.setattr(verbs, "administrator", Session)
        monkeypatch.setattr(verbs, "SITE_TIMEOUT", 0.0)

    return administrator


def test_the_connected_peer_is_the_one_that_is_heard(agreement, monkeypatch):
    """A server keeps a dead site in its list for ten minutes, with the time at which it was last heard."""
    slept = []
    ticks = count()  # a clock that only sleeping moves by more than a tick
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6 + sum(slept), sleep=slept.append)
    monkeypatch.setattr(submit, "time", clock)
    first, second, third = (site.name for site in agreement.sites)
    found = Administrator(Server([first], [second]), agreement).who(0.0)
    assert found == [Connected(first, False, 101.0), Connected(second, False, 100.0), Connected(third, False, None)]
    found = Administrator(Server([first], [second]), agreement).who(0.3)
    assert found[0].connected and found[0].heard > 101 and found[1] == Connected(second, False, 100.0)
    slept.clear()
    assert all(each.connected for each in Administrator(Server([first, second, third]), agreement).who(30))
    assert len(slept) == 1  # it returns once all are heard


def test_a_submit_names_who_is_missing_and_starts_nothing(agreement, monkeypatch):
    first, second, third = (site.name for site in agreement.sites)
    server = Server([first], [second], {JOB: "RUNNING"})
    monkeypatch.setattr(server, "submit_job", None)
    with pytest.raises(NetworkError, match=f"not connected: {second}, {third}; nothing was stopped"):
        Administrator(server, agreement).submit(0.3)
    assert server.ended == []  # a healthy job goes on
    assert Administrator(Server([first, second, third]), agreement).submit(30) == OTHER


def test_stop_ends_what_runs_and_nothing_else(agreement):
    server = Server(jobs={JOB: "RUNNING", OTHER: "FINISHED:COMPLETED"})
    assert Administrator(server, agreement).stop() == [JOB] == server.ended
    assert Administrator(Server(), agreement).stop() == []


def test_a_job_that_is_not_started_says_why_and_is_ended(agreement):
    first, second, third = (site.name for site in agreement.sites)
    admin = Administrator(Server([first], [second], {JOB: "SUBMITTED"}), agreement)
    admin.session.requested = 1000  # the second was last heard long ago, the third never
    found = admin.status(JOB)
    assert found.state == "SUBMITTED" and f"waits for {second}, {third}" in found.why and not found.over
    last = list(admin.follow(JOB, every=0.0, limit=0.0))[-1]
    assert last.over and "not started within 0 s" in last.why and admin.session.ended == [JOB]
    busy = Administrator(Server([first, second, third], jobs={JOB: "SUBMITTED"}), agreement)
    assert "another job may run" in busy.status(JOB).why


def test_the_verbs_show_it(agreement, kit, capsys):
    first, *_ = (site.name for site in agreement.sites)
    kit(Server([first], jobs={JOB: "RUNNING"}))
    verbs.stop()
    assert f"ended {JOB}" in capsys.readouterr().out
    verbs.who()
    said = capsys.readouterr().out
    assert f"{first}: missing; the server last heard of it: 19" in said and "never, since it started" in said


STARTED = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
STARTER = """
import os, sys
from sottovoce.cli.main import ending_on_signals
from sottovoce.consortium.check import foreground
from sottovoce.errors import Interrupted
reading, writing = os.pipe()
try:
    with ending_on_signals():
        foreground([sys.executable, "-c", sys.argv[1]], os.environ, reading)
except Interrupted as error:
    print(error, flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_server_or_site_that_is_stopped_leaves_no_process(sent):
    line = [sys.executable, "-c", STARTER, STARTED]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        job = int(process.stdout.readline())
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3 and out.startswith("stopped") and err == ""
    with pytest.raises(ProcessLookupError):
        os.kill(job, 0)


LOCKED = """
import os, sys
from pathlib import Path
from sottovoce.consortium.check import foreground
from sottovoce.consortium.lock import KitLock
lock = KitLock(Path(sys.argv[2]))
reading, writing = os.pipe()
os.environ["SOTTOVOCE_PARENT"] = str(os.getpid())
foreground([sys.executable, "-c", sys.argv[1]], os.environ, reading, lock.file)
"""
CHILD = """
import os, time
from sottovoce.consortium import process
process.PARENT_CHECK = 0.05
process.end_with(int(os.environ["SOTTOVOCE_PARENT"]))
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_kit_is_run_once_and_its_processes_end_with_the_one_that_started_them(tmp_path):
    line = [sys.executable, "-c", LOCKED, CHILD, str(tmp_path)]
    assert KitLock.holder(tmp_path) is None
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        job = int(process.stdout.readline())
        assert KitLock.holder(tmp_path) == process.pid
        with pytest.raises(FolderInUse, match=f"is run by process {process.pid} already"):
            KitLock(tmp_path)
        process.kill()
        process.wait()
        for _ in range(600):  # what it started keeps the lock until it ends, by itself
            try:
                KitLock(tmp_path).release()
                break
            except FolderInUse as error:
                assert "which is gone" in str(error)
                time.sleep(0.05)
        else:
            pytest.fail("the lock is never free")
    gone = not Path(f"/proc/{job}").exists()
    assert gone or Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert (tmp_path / LOCK).stat().st_mode & 0o077 == 0


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        KitLock(tmp_path)
    assert KitLock.holder(tmp_path) is None and not (tmp_path / "elsewhere").exists()


def test_what_ends_by_itself_shows_its_exit_code():
    reading, writing = os.pipe()
    assert check.foreground([sys.executable, "-c", "raise SystemExit(4)"], os.environ, reading) == 4
    os.close(writing)


def test_signs_of_life_are_far_more_often_than_anybody_is_given_up():
    assert submit.SITE_TIMEOUT >= 3 * 10 > submit.BEAT and submit.SITE_TIMEOUT < 60
