"""Kits made by FLARE's own tools, what we put into them, and `node check`, which finds what is wrong with one."""

import json
import shutil
import socket
import sqlite3
import threading
from datetime import datetime
from importlib.util import find_spec

import pytest

from sottovoce.cli import consortium as consortium_command
from sottovoce.cli import main as cli
from sottovoce.consortium import check, flare
from sottovoce.consortium.check import check_kit, command, server_of
from sottovoce.consortium.job import ALLOWED
from sottovoce.consortium.project import provision
from sottovoce.errors import SpecError

pytestmark = pytest.mark.skipif(find_spec("nvflare") is None, reason="the extra 'flare' is not installed")


@pytest.fixture(scope="module")
def original(small_at, tmp_path_factory):
    """Made once: keys take a second."""
    folder = tmp_path_factory.mktemp("original")
    made = small_at(folder, rounds=4)
    kits = provision(made.agreement, folder / "consortium.toml", folder / "kits")
    for name in made.names:
        made.settle(kits[name], name)
    return made, kits


@pytest.fixture
def provisioned(original, tmp_path):
    """A copy to spoil."""
    made, kits = original
    return made, {name: shutil.copytree(kit, tmp_path / name) for name, kit in kits.items()}


def local(kit, name):
    return json.loads((kit / "local" / name).read_text())


def test_a_job_can_start_our_classes_only_and_nobody_can_look_in(provisioned):
    made, kits = provisioned
    for name in made.names:
        resources = local(kits[name], "resources.json")
        assert resources["class_allow_list"] == ALLOWED["site"]
        assert resources["class_list_enforcement_mode"] == "enforce" and resources["allow_log_streaming"] is False
        assert not any("log" in component["id"] for component in resources["components"])
        for rights in local(kits[name], "authorization.json")["permissions"].values():
            assert all(rights.get(right, "none") == "none" for right in ("byoc", "shell_commands"))
        settings = json.loads((kits[name] / "startup" / "fed_client.json").read_text())
        assert settings["client"]["connection_security"] == "mtls"
    command(kits["localhost"])  # a server's kit that was moved keeps its jobs inside again
    server = local(kits["localhost"], "resources.json")
    assert server["class_allow_list"] == ALLOWED["server"]
    assert str(kits["localhost"].resolve()) in json.dumps(server) and "/tmp/nvflare" not in json.dumps(server)


def test_the_allowed_classes_are_there_and_take_a_digest_only():
    from sottovoce.consortium.controller import GossipController
    from sottovoce.consortium.executor import GossipExecutor

    for kind, cls in (("server", GossipController), ("site", GossipExecutor)):
        assert ALLOWED[kind] == [f"{cls.__module__}.{cls.__name__}"]
        assert cls("ab").digest == "ab"


def test_every_member_gets_a_page_and_a_command(provisioned):
    made, kits = provisioned
    for kit in kits.values():
        assert made.agreement.name in (kit / "README.md").read_text()
    page = (kits["ash"] / "README.md").read_text()
    assert made.agreement.run.digest in page and "(ε = 2, δ = 1e-05)" in page and "4 noisy messages" in page
    assert "site" in command(kits["ash"]) and "secure_train=true" in command(kits["ash"])
    assert "server" in command(kits["localhost"])
    with pytest.raises(SpecError, match="no kit"):
        command(kits["lead@example.org"])


def test_a_good_site_is_ready_and_a_database_too(provisioned, tmp_path):
    made, kits = provisioned
    assert all(finding.good for finding in check_kit(kits["ash"]))
    lines = [line.split(",") for line in (made.root / "birch.csv").read_text().splitlines()]
    with sqlite3.connect(tmp_path / "birch.db") as database:
        database.execute("CREATE TABLE people (a REAL, b REAL, kind TEXT, outcome TEXT)")
        rows = [(float(a), float(b) if b else None, kind or None, y) for a, b, kind, y in lines[1:]]
        database.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    database.close()
    source = kits["birch"] / "local" / "site.toml"
    where = f'database = "sqlite:///{tmp_path}/birch.db"\nquery = "SELECT * FROM people"\n'
    source.write_text(f'dataset = "people"\nstate = "../state"\n{where}')
    findings = check_kit(kits["birch"])
    assert all(finding.good for finding in findings), findings


def replace(kit, file, old, new):
    path = kit / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


WRONG = {
    "allow-list": lambda kit: replace(kit, "local/resources.json", ALLOWED["site"][0], "sottovoce."),
    "allow-list ": lambda kit: replace(kit, "local/resources.json", '"enforce"', '"warn"'),
    "allow-list  ": lambda kit: replace(
        kit, "local/resources.json", '"allow_log_streaming": false', '"allow_log_streaming": true'
    ),
    "permissions": lambda kit: replace(kit, "local/authorization.json", '"byoc": "none"', '"byoc": "any"'),
    "connection": lambda kit: replace(kit, "startup/fed_client.json", "mtls", "clear"),
    "certificate": lambda kit: (kit / "startup" / "client.key").chmod(0o644),
    "certificate ": lambda kit: shutil.copyfile(kit / "startup" / "client.crt", kit / "startup" / "rootCA.pem"),
    "site.toml": lambda kit: replace(kit, "local/site.toml", "dataset", "datasets"),
    "records and budget": lambda kit: replace(kit, "local/schema.toml", "[columns.a]", "[columns.away]"),
    "records and budget ": lambda kit: replace(kit, "local/consortium.toml", "records = 40", "records = 41"),
    "records and budget  ": lambda kit: replace(kit, "local/site.toml", '"people"', '"others"'),
    "records and budget   ": lambda kit: replace(kit, "local/site.toml", "cedar.csv", "away.csv"),
    "run": lambda kit: replace(kit, "local/consortium.toml", "rounds = 4", "rounds = 3"),
    "agreement": lambda kit: (kit / "local" / "schema.toml").unlink(),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_site_is_found_before_it_joins(provisioned, what):
    _, kits = provisioned
    WRONG[what](kits["cedar"])
    bad = [finding.what for finding in check_kit(kits["cedar"]) if not finding.good]
    assert bad == [what.strip()]


@pytest.mark.parametrize("year", [2000, 2100])
def test_a_clock_that_is_wrong_is_found_before_a_site_joins(provisioned, monkeypatch, year):
    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(year, 1, 1, tzinfo=tz)

    monkeypatch.setattr(check, "datetime", Wrong)
    (bad,) = [finding for finding in check_kit(provisioned[1]["ash"]) if not finding.good]
    assert bad.what == "certificate" and f"it is {year}-01-01" in bad.detail and "set the clock" in bad.detail


def test_the_command_line_makes_and_checks_kits(small, tmp_path, monkeypatch, capsys):
    made = small(rounds=4)

    def call(*args):
        monkeypatch.setattr("sys.argv", ["sottovoce", *map(str, args)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, capsys.readouterr().out

    code, out = call("consortium", "init", tmp_path / "consortium.toml", "--out", tmp_path / "kits", "--json")
    told = json.loads(out)
    assert code == 0 and told["digest"] == made.agreement.run.digest and told["privacy"]["private"]
    code, out = call("node", "check", told["kits"]["ash"], "--json")
    found = json.loads(out.splitlines()[0])
    assert code == 2 and not found["ready"]  # site.toml still names no file
    code, out = call("consortium", "status", told["kits"]["ash"], "--json")
    assert code == 2 and "administrator" in out


def test_without_flare_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(flare, "installed", lambda: None)
    with pytest.raises(SpecError, match=r"sottovoce\[flare\]"):
        flare.flare("apis")
    monkeypatch.setattr(flare, "installed", lambda: "2.8.0")
    with pytest.raises(SpecError, match=r"2\.9\.0"):
        flare.flare("apis")


def test_a_site_waits_for_its_server_and_then_starts(provisioned, monkeypatch):
    """FLARE itself would give up after some seconds."""
    _, kits = provisioned
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    replace(kits["ash"], "startup/fed_client.json", "localhost:8002", f"localhost:{port}")
    assert server_of(kits["ash"]) == ("localhost", port) and server_of(kits["localhost"]) is None
    started, began = threading.Event(), []
    monkeypatch.setattr(
        consortium_command.os, "execve", lambda program, line, environment: (began.append(line), started.set())
    )
    waiting = threading.Thread(target=consortium_command.start, args=(kits["ash"],), daemon=True)
    waiting.start()
    assert not started.wait(1.0)
    with socket.create_server(("localhost", port)):
        assert started.wait(20) and "site" in began[0]
    waiting.join(5)
