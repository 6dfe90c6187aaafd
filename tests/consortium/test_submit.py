"""What an administrator asks of a server, without one: who is there, what runs, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from sottovoce.cli import consortium as verbs
from sottovoce.consortium import check, submit
from sottovoce.consortium.submit import Administrator, Connected
from sottovoce.errors import NetworkError

JOB = "12345678-1234-1234-1234-1234567890ab"
OTHER = JOB.replace("1", "2")


class Server:
    """A session in which some sites say every time that they are there."""

    def __init__(self, alive=(), dead=(), jobs=()):
        self.alive, self.dead, self.running, self.asked, self.ended = alive, dead, dict(jobs), 0, []

    def get_system_info(self):
        self.asked += 1
        heard = {name: 100.0 + self.asked for name in self.alive} | dict.fromkeys(self.dead, 100.0)
        return SimpleNamespace(client_info=[SimpleNamespace(name=n, last_connect_time=t) for n, t in heard.items()])

    def list_jobs(self, **_):
        return [{"job_id": job, "status": state} for job, state in self.running.items()]

    def abort_job(self, job):
        self.ended.append(job)

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
        monkeypatch.setattr(verbs, "PATIENCE", 0.0)

    return administrator


def test_who_is_connected_is_who_is_heard_while_we_look(agreement):
    """A server keeps a dead site in its list for ten minutes, with the time at which it was last heard."""
    first, second, third = (site.name for site in agreement.sites)
    found = Administrator(Server([first], [second]), agreement).who(0.0)
    assert found == [Connected(first, False, 101.0), Connected(second, False, 100.0), Connected(third, False, None)]
    found = Administrator(Server([first], [second]), agreement).who(0.3)
    assert found[0].connected and found[0].heard > 101 and found[1] == Connected(second, False, 100.0)
    began = time.monotonic()
    assert all(each.connected for each in Administrator(Server([first, second, third]), agreement).who(30))
    assert time.monotonic() - began < 5


def test_a_submit_names_who_is_missing_and_starts_nothing(agreement, monkeypatch):
    first, second, third = (site.name for site in agreement.sites)
    server = Server([first], [second], {JOB: "RUNNING"})
    monkeypatch.setattr(server, "submit_job", None)
    with pytest.raises(NetworkError, match=f"not connected: {second}, {third}; start what is missing"):
        Administrator(server, agreement).submit(0.3)
    assert server.ended == [JOB]
    assert Administrator(Server([first, second, third]), agreement).submit(30) == OTHER


def test_stop_ends_what_runs_and_nothing_else(agreement):
    server = Server(jobs={JOB: "RUNNING", OTHER: "FINISHED:COMPLETED"})
    assert Administrator(server, agreement).stop() == [JOB] == server.ended
    assert Administrator(Server(), agreement).stop() == []


def test_the_verbs_tell_it(agreement, kit, capsys):
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
from sottovoce.cli import voice
from sottovoce.consortium.check import foreground
from sottovoce.errors import Interrupted
reading, writing = os.pipe()
try:
    with voice.speaking():
        foreground([sys.executable, "-c", sys.argv[1]], os.environ, reading)
except Interrupted as error:
    print(error, flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_server_or_site_that_is_stopped_leaves_no_process(sent):
    line = [sys.executable, "-c", STARTER, STARTED]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        job = int(process.stdout.readline())
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3 and out.startswith("stopped") and err == ""
    with pytest.raises(ProcessLookupError):
        os.kill(job, 0)


def test_what_ends_by_itself_tells_its_exit_code():
    reading, writing = os.pipe()
    assert check.foreground([sys.executable, "-c", "raise SystemExit(4)"], os.environ, reading) == 4
    os.close(writing)


def test_signs_of_life_are_far_more_often_than_anybody_is_given_up():
    assert submit.PATIENCE >= 3 * 10 > submit.BEAT and submit.PATIENCE < 60
