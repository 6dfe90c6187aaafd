"""Every command of the guide is run as it stands there, and the site is built without a warning."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if "```console" in path.read_text(encoding="utf-8")]


def commands(path):
    """The lines after '$ ' of a page's console blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_there_are_commands():
    assert {path.stem for path in PAGES} >= {"start", "data", "trust", "planning", "statement"}
    assert all(line.startswith("sottovoce ") for path in PAGES for line in commands(path))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_commands_of_a_page_run(path, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples" / "patients", tmp_path / "examples" / "patients")
    monkeypatch.chdir(tmp_path)
    for line in commands(path):
        found = CliRunner().invoke(app, shlex.split(line)[1:])
        assert found.exit_code == 0, f"{line}\n{found.output}"
