"""The files in deploy/: units that systemd verifies, an image and a trial with the same command, metrics that exist."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
from nvflare.lighter.utils import yaml
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from services import CONTAINERFILE, ROOT, UNITS, instruction, unit

from sottovoce.cli.main import app
from sottovoce.consortium import metrics

DEPLOY = ROOT / "deploy"
START = ["consortium", "start", "--foreground"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SITES = ("north", "south", "west")


def test_units_verify(tmp_path):
    """By systemd itself, with a program where the units expect one."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    files = []
    for path in UNITS.iterdir():
        files.append(tmp_path / path.name.replace("@", "@north"))
        files[-1].write_text(path.read_text().replace("/opt/sottovoce/bin/sottovoce", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(tmp_path / "sottovoce@north.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-200:]


def test_everything_calls_the_same_entry_point():
    assert shlex.split(unit("sottovoce@.service")["ExecStart"][0])[1:-1] == START
    assert [*instruction("ENTRYPOINT"), *instruction("CMD")] == ["sottovoce", *START, "/kit"]
    for name in ("relay", *SITES):
        assert COMPOSE["services"][name]["command"] == [*START, "/kit"]
    assert instruction("HEALTHCHECK .* CMD") == ["sottovoce", "node", "health", "/kit"]
    assert shlex.split(unit("sottovoce-health@.service")["ExecStart"][0])[1:3] == ["node", "health"]
    for words in (START, ["node", "health"], ["consortium", "submit"]):
        done = CliRunner().invoke(app, [*words, "--help"])
        assert done.exit_code == 0, done.output


def test_a_container_has_no_rights_and_a_read_only_root():
    assert not instruction("USER").startswith(("0", "root"))
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["init"], name
        assert service["security_opt"] == ["no-new-privileges:true"] and service["ulimits"]["core"] == 0
        assert "ports" not in service and "privileged" not in service
        if name != "lead":
            read_only = [each for each in service["volumes"] if each.endswith(":ro")]
            assert [each.split(":")[-2] for each in read_only][:2] == ["/kit/startup", "/kit/local"]
    for site in SITES:
        assert COMPOSE["services"][site]["networks"] == [site] and COMPOSE["networks"][site] == {"internal": True}


def test_the_image_is_made_of_files_that_are_there():
    for words in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE.read_text(), re.MULTILINE):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists(), source
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    given = (DEPLOY / "requirements.txt").read_text()
    for each in needed:
        assert re.search(rf"^{re.split('[<>=~]', each)[0]}==", given, re.MULTILINE), each


def test_requirements_are_those_of_the_constraints():
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "runtime_requirements.py", "flare", "sql"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made == (DEPLOY / "requirements.txt").read_text()
    blocks = re.split(r"\n(?=\S)", made)
    assert len(blocks) > 40 and all("--hash=sha256:" in block for block in blocks)
    for name in ("nvflare", "prometheus-client", "psycopg", "numpy", "typer"):
        assert re.search(rf"^{name}==", made, re.MULTILINE)
    for name in ("pytest", "mypy", "sphinx", "playwright"):
        assert not re.search(rf"^{name}==", made, re.MULTILINE)


def expressions():
    """Every query of the dashboard and of the alerts."""
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    return found + [rule["expr"] for rule in rules]


def test_dashboard_and_alerts_use_metrics_that_exist():
    source = Path(metrics.__file__).read_text()
    named = re.findall(r'"(sottovoce_\w+)", "[^"]+(?:"|\.)', source)
    counters = set(re.findall(r'(?:_counter|_total)\(\s*"(sottovoce_\w+)"', source))
    exist = {f"{name}_total" if name in counters else name for name in named} | {"sottovoce_ledger_holds"}
    used = {name for each in expressions() for name in re.findall(r"sottovoce_\w+", each)}
    assert len(used) >= 15 and used <= exist, used - exist
    states = {state.value for state in metrics.RunState}
    for each in expressions():
        for group in re.findall(r'state=~"([^"]+)"', each):
            assert set(group.split("|")) <= states


def test_panels_do_not_overlap():
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    cells = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not mine & cells and at["x"] + at["w"] <= 24, panel["title"]
        cells |= mine
