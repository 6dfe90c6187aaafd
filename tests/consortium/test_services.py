"""Three sites and their relay as services, in networks of their own, brought up as docs/operations.md says.

Attacked by another user of a site's machine, and by a member whose certificate was revoked.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from services import (
    ROOT,
    STRANGER,
    USER,
    Networks,
    block_with,
    confined,
    container_line,
    listening,
    need,
    own,
    run,
    systemd_line,
)

pytestmark = pytest.mark.slow
pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
SITES = {"north": "north.csv", "south": "south.parquet", "west": "west.db"}
PORT, METRICS, SECRET = 8102, 9464, "swordfish-7f3a"
ROUNDS = 300
MANNERS = {
    "north": {"SOTTOVOCE_METRICS": str(METRICS)},
    "south": {"manner": container_line, "SOTTOVOCE_METRICS": "metrics.sock"},
    "west": {"manner": container_line, "processes": True},
}
"""How a member is run: as the unit says, or as the image says, the last with processes of its own."""
STRANGERS = """
import json, os, signal, socket, ssl, sys
from pathlib import Path
kit, owner = Path(sys.argv[1]), int(sys.argv[2])
got = []

def tried(what, act):
    try:
        act()
        got.append(what)
    except OSError:
        pass

for path in ("startup/client.key", "local/site.toml", "log.json", "state/secret.key", "metrics.sock", ".lock"):
    tried(f"read {path}", lambda: (kit / path).read_bytes())
theirs = [path for path in Path("/proc").glob("[0-9]*") if path.stat().st_uid == owner]
for path in theirs:
    for file in ("environ", "maps", "fd"):
        tried(f"read {file}", lambda: list((path / file).iterdir()) if file == "fd" else (path / file).read_bytes())
    tried("end a process", lambda: os.kill(int(path.name), signal.SIGTERM))
    if sys.argv[3].encode() in (path / "cmdline").read_bytes():
        got.append("a password")
ports = {int(line.split()[1].split(":")[1], 16) for file in ("tcp", "tcp6")
         for line in Path("/proc/net", file).read_text().splitlines()[1:] if line.split()[3] == "0A"}
links = []
for port in sorted(ports - {int(sys.argv[4])}):
    for turn in range(50):  # kept open, and filled with what a cell of FLARE might send in clear
        try:
            link = socket.create_connection(("localhost", port), timeout=5)
            link.sendall(bytes([turn]) * 65536)
            links.append(link)
        except OSError:
            pass
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(socket.create_connection(("localhost", port), timeout=5)) as link:
            link.sendall(b"x")
            if link.recv(1):
                got.append("an answer without a certificate")
    except OSError:
        pass
print(json.dumps({"got": sorted(set(got)), "processes": len(theirs), "ports": len(ports)}))
"""


class Services:
    """The processes of the trial."""

    def __init__(self, folder, networks):
        self.folder, self.networks, self.running = folder, networks, {}
        shutil.copytree(ROOT / "examples" / "consortium", folder / "clinics")
        agreement = folder / "clinics" / "consortium.toml"
        agreement.write_text(
            agreement.read_text().replace('"localhost"', '"relay"').replace("rounds = 300", f"rounds = {ROUNDS}")
        )
        run(sys.executable, folder / "clinics" / "make_data.py", folder / "records")
        self.admin, self.place_of_kits = "lead@example.org", folder / "var"
        self.place_of_kits.mkdir()
        self.sent = self.provision("kits")
        self.kits = {name: self.place_of_kits / name for name in ("relay", *SITES)} | {
            self.admin: self.sent[self.admin]
        }
        for path in (folder / "records").iterdir():
            path.chmod(0o644)

    def provision(self, out):
        made = self.sottovoce("consortium", "init", "clinics/consortium.toml", "--out", out, "--json")
        kits = {name: self.folder / path for name, path in json.loads(made)["kits"].items()}
        self.give(*kits.values())
        return kits

    def follow(self, name, kit):
        """Install the kit that a member was sent, line by line as the guide says; `settle` is the member's editor."""
        for words in block_with("sudo cp -r north"):
            here = [word.replace("/var/lib/sottovoce", str(self.place_of_kits)) for word in words]
            match [word.replace("north", name) for word in here]:
                case ["sudo", "cp", "-r", sent, target]:
                    assert sent == name and Path(target) == self.kits[name]
                    shutil.copytree(kit, target)
                case ["sudo", "$EDITOR", path]:
                    self.settle(name, path)
                case ["sudo", "chown", "-R", "sottovoce:sottovoce", folder]:
                    self.give(Path(folder))
                case ["sudo", "-u", "sottovoce", "/opt/sottovoce/bin/sottovoce", *arguments] if name in SITES:
                    line, records = own(["sottovoce", *arguments]), [self.records(name)]
                    command = confined(line, {"PATH": "/usr/bin:/bin"}, self.kits[name], records=records)
                    run(*command)
                case ["sudo", "-u", "sottovoce", *_]:
                    assert name == "relay"  # no budget, and nothing to check
                case ["sudo", "systemctl", "enable", "--now", unit, timer]:
                    assert (unit, timer) == (f"sottovoce@{name}", f"sottovoce-health@{name}.timer")
                    self.start(name, **MANNERS.get(name, {}))
                case ["sudo", "systemctl", "status", _]:
                    assert self.running[name].poll() is None
                case other:
                    raise AssertionError(f"it is unknown how to follow {other}")

    def records(self, site):
        return self.folder / "records" / SITES[site]

    def settle(self, name, path):
        """What the owner of a site writes."""
        if name in SITES:
            source = f'file = "{self.records(name)}"\n'
            if name == "west":
                source = f'database = "sqlite:///{self.records(name)}"\nquery = "SELECT * FROM patients"\n'
            Path(path).write_text(f'dataset = "records"\nstate = "../state"\n{source}')

    def give(self, *folders):
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, USER, USER)

    def sottovoce(self, *words):
        done = subprocess.run(
            own(["sottovoce", *map(str, words)]), cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def place(self, site):
        """Options of `confined` for what runs where a site, or the relay, is."""
        if site == "relay":
            return {"network": self.networks.relay, "hosts": "127.0.0.1 relay"}
        return {"network": self.networks.sites[site], "hosts": f"{self.networks.address(site)} relay"}

    def start(self, name, kit=None, manner=systemd_line, processes=False, **environment):
        kit = kit or self.kits[name]
        line, given = manner(kit)
        if environment.get("SOTTOVOCE_METRICS") == "metrics.sock":
            environment["SOTTOVOCE_METRICS"] = str(kit / "metrics.sock")
        records = [self.records(name)] if name in SITES else []
        given = given | {"PATH": "/usr/bin:/bin", "PGPASSWORD": SECRET} | environment
        command = confined(line, given, kit, records=records, processes=processes, **self.place(name))
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def first_process(self, name):
        """The one that got the command: in a namespace of processes it is below `unshare`."""
        psutil = import_module("psutil")
        found = psutil.Process(self.running[name].pid)
        return found.children()[0] if found.name() == "unshare" else found

    def end(self, name, number):
        """Send a signal; the exit code, once no process of it is left."""
        first = self.first_process(name)
        family = [first, *first.children(recursive=True)]
        first.send_signal(number)
        code = self.running.pop(name).wait(60)
        left = import_module("psutil").wait_procs(family, 30)[1]
        assert not left, left
        return code

    def inside(self, site, line, kit=None, user=USER, **environment):
        """Run a command where a site is, to its end."""
        command = confined(line, {"PATH": "/usr/bin:/bin", **environment}, kit, user, **self.place(site))
        return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)

    def lead(self, *words, site="north"):
        line = own(["sottovoce", "consortium", words[0], self.kits[self.admin], *words[1:]])
        done = self.inside(site, line, self.kits[self.admin])
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.said())
        return done.stdout

    def health(self, name):
        line, _ = systemd_line(self.kits[name], "sottovoce-health@.service")
        done = self.inside(name, line, self.kits[name])
        return done.returncode, json.loads(done.stdout.splitlines()[0])

    def said(self):
        return {path.name: path.read_text()[-1500:] for path in self.folder.glob("*.log")}

    def wait_until(self, true, what, seconds=180.0):
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, (what, self.said())
            time.sleep(1.0)

    def connected(self):
        return [each["site"] for each in json.loads(self.lead("who", "--json"))["sites"] if each["connected"]]


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    need(network=True)
    with Networks(f"sv{os.getpid()}", SITES) as networks:
        made = Services(tmp_path_factory.mktemp("services"), networks)
        try:
            for name in ("relay", *SITES):
                made.follow(name, made.sent[name])
            made.wait_until(lambda: made.health("relay")[0] == 0, "the relay does not start")
            made.wait_until(lambda: set(made.connected()) == set(SITES), "the sites do not connect")
            yield made
        finally:
            for name in list(made.running):
                made.end(name, signal.SIGKILL)


def test_only_the_relay_accepts_connections_from_elsewhere(services):
    assert listening(services.networks.relay) == {PORT}
    assert all(listening(network) == set() for network in services.networks.sites.values())


def test_a_second_start_is_refused_and_names_the_first(services):
    line, environment = systemd_line(services.kits["north"])
    done = services.inside("north", line, services.kits["north"], **environment)
    assert done.returncode == 6
    assert f"is run by process {services.first_process('north').pid} already" in done.stderr.replace("\n", " ")


def test_a_run_ends_though_another_user_of_the_machine_attacks(services):
    services.lead("submit", "--json")
    services.wait_until(lambda: services.health("north")[1]["in_run"], "the run does not begin")
    arguments = map(str, (services.kits["north"], USER, SECRET, METRICS))
    done = services.inside("north", [sys.executable, "-c", STRANGERS, *arguments], user=STRANGER)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["got"] == [] and found["processes"] >= 3 and found["ports"] >= 2, found
    services.lead("status", "--follow")
    report = json.loads(services.lead("results", "--json"))
    assert report["privacy"]["private"] and report["evaluation"]["accuracy"] > 0.6
    for site in SITES:
        code, health = services.health(site)
        assert code == 0 and health["ledger"] and health["run"]["state"] == "closed", health
        assert (services.kits[site] / "state" / "results" / "first" / "statement.txt").exists()


def test_metrics_are_read_on_the_machine_alone(services):
    ask = f"import urllib.request as u; print(u.urlopen('http://localhost:{METRICS}/metrics').read().decode())"
    done = services.inside("north", [sys.executable, "-c", ask], user=STRANGER)
    assert f"sottovoce_rounds {ROUNDS}.0" in done.stdout, done.stderr
    done = services.inside("relay", [sys.executable, "-c", ask.replace("localhost", "10.213.1.2")])
    assert done.returncode != 0 and "refused" in done.stderr


def test_logs_are_json_and_stay_private(services):
    for name in ("relay", *SITES):
        lines = (services.kits[name] / "log.json").read_text().splitlines()
        assert lines and all("level" in json.loads(line) for line in lines)
        assert (services.kits[name] / "log.json").stat().st_mode & 0o077 == 0
        assert SECRET not in (services.folder / f"{name}.log").read_text()


def test_a_revoked_member_is_refused_at_the_relay(services):
    """The relay and the others get new kits; the member that was revoked comes with its old one."""
    agreement = services.folder / "clinics" / "consortium.toml"
    services.sottovoce("consortium", "revoke", "clinics/consortium.toml", "west", "--out", "kits")
    agreement.write_text(agreement.read_text().replace('run = "first"', 'run = "second"'))
    before = dict(services.kits)
    assert services.end("relay", signal.SIGTERM) == 143
    services.kits |= {
        name: kit for name, kit in services.provision("kits").items() if name in ("relay", services.admin)
    }
    services.start("relay")
    services.wait_until(lambda: services.health("relay")[0] == 0, "the relay does not start")
    refused = "was revoked, and wanted to connect"
    services.wait_until(lambda: refused in (services.folder / "relay.log").read_text(), "the relay refuses nobody")
    services.wait_until(lambda: {"north", "south"} <= set(services.connected()), "the others do not come back")
    assert "west" not in services.connected()
    services.kits = before


@pytest.mark.parametrize(
    "name, number, codes",
    [("north", signal.SIGHUP, (143,)), ("south", signal.SIGTERM, (143,)), ("west", 9, (-9, 137, 1))],
)
def test_a_signal_ends_a_service_with_all_of_its_processes(services, name, number, codes):
    assert services.end(name, number) in codes
    code, health = services.health(name)
    assert code == 4 and not health["running"] and health["ledger"]
