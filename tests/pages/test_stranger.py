"""A stranger's path: the wheel in an empty environment, and the site's first commands there, word by word.

The environment holds the wheel and what it says that it needs, and nothing else: what we would import without declaring
it is not there. `tools/try-wheel` (`make dist`) does the same with packages from the network.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from commands import NOT_RUN, PAGES, PATIENTS, ROOT, bare, commands, ground

from sottovoce import __version__

requirements = pytest.importorskip("packaging.requirements", reason="packaging is not installed")
pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
pytest.importorskip("build", reason="build is not installed")
pytestmark = pytest.mark.slow


def needed(wheel: Path) -> set[str]:
    """The distributions that a wheel requests, and those that these ask for."""
    from zipfile import ZipFile

    with ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        lines = file.read(name).decode().split("\n\n")[0].splitlines()
    open_ = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    found: set[str] = set()
    while open_:
        requested = requirements.Requirement(open_.pop())
        extras = {"", *requested.extras}
        if requested.name in found or not any(
            requested.marker is None or requested.marker.evaluate({"extra": e}) for e in extras
        ):
            continue
        found.add(requested.name)
        open_ += distribution(requested.name).requires or []
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment of its own, with the wheel installed by pip beside links to what it needs."""
    folder = tmp_path_factory.mktemp("stranger")
    line = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True, capture_output=True)
    python = folder / "env" / "bin" / "python"
    (packages,) = (folder / "env" / "lib").glob("python3*/site-packages")
    for name in needed(wheel):
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(found.locate_file(top))
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, capture_output=True, env=clean(folder))  # it refuses where something is missing
    return folder


def clean(folder: Path) -> dict[str, str]:
    """The variables of someone who has just opened a terminal there."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR", "OMP_NUM_THREADS") if name in os.environ}
    return kept | {"PATH": f"{folder / 'env' / 'bin'}:/usr/bin:/bin", "EDITOR": "python editor.py", "PYTHONUTF8": "1"}


def test_the_environment_has_what_is_declared_and_nothing_else(environment):
    code = "import json, importlib.metadata as m; print(json.dumps([d.name.lower() for d in m.distributions()]))"
    python = environment / "env" / "bin" / "python"
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, env=clean(environment))
    names = set(json.loads(said.stdout))
    assert {"sottovoce", "numpy", "bokeh"} <= names
    assert not names & {"pytest", "hypothesis", "pandas", "nvflare", "mypy", "sphinx"}
    missing = subprocess.run([python, "-c", "import hypothesis"], capture_output=True, env=clean(environment))
    assert missing.returncode != 0  # an undeclared import fails there


def test_the_first_page_leads_to_a_model_on_ones_own_file(environment, tmp_path):
    ground(tmp_path)
    for name in ("patients.csv", "codebook.csv"):
        shutil.copy(PATIENTS / name, tmp_path / name)
    lines = [line for line in commands(PAGES["start"]) if ("start", bare(line)) not in NOT_RUN]
    script = "\n".join(["sottovoce --version", *lines])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=clean(environment)
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.startswith(f"sottovoce {__version__}\n")
    assert json.loads((tmp_path / "public" / "model.json").read_text())["classes"] == ["nein", "ja"]
    assert (tmp_path / "predictions.csv").stat().st_size > 10_000
    assert "of one node" in done.stdout and (tmp_path / "runs" / "mine" / "result.json").exists()
    assert all((tmp_path / page).stat().st_size > 10_000 for page in ("page.html", "mine.html"))
