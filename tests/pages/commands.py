"""The commands of a page: every line of its `bash` blocks, a ground to run them on, and how."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.pages.server import Served

ROOT = Path(__file__).parents[2]
PATIENTS = ROOT / "examples" / "patients"
SECTIONS = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("tutorials", "howto"))
GUIDE = re.findall(r"^[a-z-]+$", SECTIONS, re.MULTILINE)
PAGES = {"README": ROOT / "README.md"} | {name: ROOT / "docs" / f"{name}.md" for name in GUIDE}
"""The README, the tutorials and the how-to guides: what people follow line by line."""
INSTALLS = "tests/pages/test_stranger.py installs the wheel and runs it in an empty environment"
NETWORK = "fetches packages; `make dist` and the workflow do it"
MACHINE = "changes the machine; tests/consortium/test_services.py does the same in namespaces"
ENGINE = "needs a container engine; tests/consortium/test_services.py runs the same command without one"
NOT_RUN = {
    ("README", "make demo"): "sets up an environment from the network; tests/cli/test_cli.py runs `sottovoce demo`",
    ("README", "make test"): "this is it",
    ("README", "pip install ."): INSTALLS,
    ("README", "make consortium-demo"): "three provisioned sites; tests/consortium/test_provisioned.py runs them",
    ("start", "pip install ."): INSTALLS,
    ("consortium", "pip install --require-hashes -r constraints.txt"): NETWORK,
    ("consortium", "pip install --no-deps --no-build-isolation ."): NETWORK,
    ("operations", "sudo useradd --system --home-dir /var/lib/sottovoce --shell /usr/sbin/nologin sottovoce"): MACHINE,
    ("operations", "sudo install -d -m 0711 -o sottovoce -g sottovoce /var/lib/sottovoce"): MACHINE,
    ("operations", "sudo python3 -m venv /opt/sottovoce"): MACHINE,
    ("operations", "sudo /opt/sottovoce/bin/pip install --require-hashes -r deploy/requirements.txt"): NETWORK,
    ("operations", "sudo /opt/sottovoce/bin/pip install --no-deps --no-build-isolation ."): NETWORK,
    ("operations", "sudo install -m 0644 -t /etc/systemd/system deploy/systemd/sottovoce@.service"): MACHINE,
    ("operations", "sudo install -m 0644 -t /etc/systemd/system deploy/systemd/sottovoce-health@.*"): MACHINE,
    ("operations", "sudo systemctl daemon-reload"): MACHINE,
    ("operations", "export KITS=$PWD/kits/clinics/prod_00 RECORDS=$PWD/records"): ENGINE,
    ("operations", "export MEMBER_UID=$(id -u) MEMBER_GID=$(id -g)"): ENGINE,
    ("operations", "docker compose -f ../deploy/compose.yaml up --build --detach relay north south west"): ENGINE,
    ("operations", "docker compose -f ../deploy/compose.yaml run --rm lead"): ENGINE,
    ("operations", "docker compose -f ../deploy/compose.yaml down"): ENGINE,
}
"""Page and command, without what its line says beside it -> why it is not run here."""
FENCE = re.compile(r"^(`{3,}|:{3,})(.*)$")
EDITOR = """import pathlib, sys
path = pathlib.Path(sys.argv[1])
text = path.read_text()
for number in ('low = "?"', "low = 0"), ('high = "?"', "high = 120"), ('missing = "?"', "missing = 50"):
    text = text.replace(*number)
path.write_text(text)
"""
"""Someone who knows that everything in the file lies between 0 and 120."""


class Block(NamedTuple):
    """Lines that are set apart, and what they say that they are: 'bash', 'python', …, or nothing: 'indented'."""

    kind: str
    lines: list[str]


def blocks(text: str) -> list[Block]:
    """All that a page sets apart, in order; what a directive holds (cards, tables of contents) is part of it."""
    found: list[Block] = []
    fence, before = "", ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1] == fence and not mark[2]:
                fence = ""
            else:
                found[-1].lines.append(line)
        elif mark:
            fence = mark[1]
            found.append(Block(mark[2].strip(), []))
        elif line.startswith("    ") and (not before.strip() or before.startswith("    ")):
            if not before.startswith("    "):
                found.append(Block("indented", []))
            found[-1].lines.append(line[4:])
        before = "" if mark else line
    return found


def commands(path: Path) -> list[str]:
    """Every line of a page's `bash` blocks."""
    text = path.read_text(encoding="utf-8")
    return [line for block in blocks(text) if block.kind == "bash" for line in block.lines if line.strip()]


def bare(line: str) -> str:
    """A command without what its line says about it."""
    return line.split("  #")[0].strip()


def table(path: Path, records: int, **more: list) -> None:
    """Clean numbers within norm 1, whether someone is sick by them, and further columns."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-0.57, 0.57, (records, 3))
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]} | more
    columns |= {"sick": np.where(X @ [3, -2, 1] > 0, "yes", "no")} if "days" not in more else {}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def ground(folder: Path) -> None:
    """The files that pages speak of: the example, and the reader's own."""
    shutil.copytree(PATIENTS, folder / "examples" / "patients")
    shutil.copytree(ROOT / "examples" / "consortium", folder / "examples" / "consortium")
    hospitals = ["north", "south", "east", "west"]
    table(folder / "clean.csv", 2400, hospital=[hospitals[k % 4] for k in range(2400)])
    shutil.copy(folder / "clean.csv", folder / "patients.csv")
    table(folder / "visits.csv", 900, days=[7 + k % 3 for k in range(900)], patient=[k // 2 for k in range(900)])
    (folder / "data").mkdir()
    for name in ("north", "south"):
        table(folder / "data" / f"{name}.csv", 200)
    (folder / "run.toml").write_text(
        'run = "first"\nschedule_seed = 1\nfeatures = ["a", "b", "c"]\nlabel = "sick"\nclasses = ["no", "yes"]\n'
        "[nodes]\nnorth = 200\nsouth = 200\n[spec.algorithm]\nrounds = 5\n"
        '[spec.network]\nactivation = "everyone"\n[spec.privacy]\nsampling = "full"\nnoise = "private(1.0)"\n'
    )
    mine = np.random.default_rng(5).integers(1, 120, (2000, 2))
    sick = np.where(mine[:, 0] + mine[:, 1] > 120, "yes", "no")
    lines = [f"{age},{pulse if k % 9 else ''},{a}" for k, ((age, pulse), a) in enumerate(zip(mine, sick, strict=True))]
    (folder / "mine.csv").write_text("\n".join(["age,pulse,sick", *lines]) + "\n")
    (folder / "editor.py").write_text(EDITOR)


def run(line: str) -> None:
    """A line as it stands, in the folder where we are; the command in this process, which saves its start."""
    words = shlex.split(line, comments=True)
    match words:
        case ["cd", folder]:
            os.chdir(folder)
        case ["cp", "-r", source, target]:
            shutil.copytree(source, target)
        case ["python", script, *rest]:
            run_script(script, rest)
        case ["$EDITOR", file]:
            run_script("editor.py", [file])
        case ["sottovoce", "node", "--all", *_]:  # it starts processes, which print past us
            code = "from sottovoce.cli.main import main; main()"
            done = subprocess.run([sys.executable, "-c", code, *words[1:]], capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
        case ["sottovoce", *arguments]:
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
        case _:
            raise AssertionError(f"it is unknown how to run '{line}': add how, or a reason to `NOT_RUN`")


def run_script(script: str, arguments: list[str]) -> None:
    """A Python file as the interpreter runs it."""
    before, sys.argv = sys.argv, [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before


def nobody_looks(monkeypatch) -> None:
    """No browser is opened, and what is served until Ctrl-C gets its Ctrl-C at once."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", lambda address: True)
    monkeypatch.setattr(Served, "serve_forever", interrupted)
