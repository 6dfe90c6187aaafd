"""Data flows one way: this test fails when an import goes against the arrows.

problem, network, privacy -> algorithm -> engine -> run -> surfaces; `data` stands apart. And what is shown to people
imports public names alone, and speaks of files that are there.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "sottovoce"
# everybody may use these
BASE = {"_text", "_types", "_version", "errors", "notation", "plugins", "rows", "streams", "within"}
MAY_IMPORT: dict[str, set[str]] = {
    part: set(others.split())
    for part, others in {
        "problem": "",
        "network": "",
        "privacy": "",
        "data": "",
        "secure": "",
        "algorithm": "problem",
        "engine": "problem network privacy secure algorithm",
        "run": "problem network privacy secure algorithm engine",
        "planner": "problem network privacy algorithm run",
        "auditing": "problem network privacy secure algorithm engine run evaluation",
        "figure": "",
        "report": "figure network privacy run",
        "export": "data privacy run",
        "experiments": "data problem network privacy algorithm engine run planner figure report evaluation",
        "evaluation": "problem privacy secure",
        "estimators": "data problem network privacy algorithm planner run evaluation report node",
        "node": "data problem network privacy secure algorithm engine run",
        "consortium": "node data problem privacy secure run evaluation",
        "pages": "privacy planner node consortium",
        "cli": (
            "pages auditing consortium node experiments data problem network privacy algorithm engine planner run "
            "figure report evaluation estimators export"
        ),
        "testing": "problem network privacy algorithm engine run",
        "__init__": "auditing data problem privacy planner run node experiments estimators",
    }.items()
}
# a library that only one place may know, so that it can be replaced there
ONLY_IN = {
    "bokeh": {"report"},
    "matplotlib": {"figure.py", "cli/plan.py"},
    "networkx": {"network/graphs.py"},
    "numba": {"problem/coordinate.py", "engine/kernel", "secure/compiled.py"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pyarrow": {"data", "run/result.py", "experiments/table.py"},
    "sklearn": {"data", "estimators"},
    "sqlalchemy": {"data/sql.py"},
    "sqlite3": {"node/store.py", "node/ledger.py"},
    "mpi4py": {"node/transport.py"},
    "nvflare": {"consortium/controller.py", "consortium/executor.py"},  # elsewhere through consortium/flare.py
    "cryptography": {"consortium/certificates.py", "secure/generator.py", "node/envelope.py", "node/identity.py"},
    "flint": {"secure"},
    "onnx": {"export/graph.py"},
    "cupy": {"engine/gpu"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [*PAGES, *sorted((ROOT / "examples").rglob("*.py"))]
IMPORT = re.compile(r"^(?:>>> |\.\.\. |\s)*from (sottovoce[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def modules(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(path: Path) -> str:
    """The folder or top-level file that a source file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def names(path: Path) -> set[str]:
    return {module.split(".")[1] for module in modules(path) if module.startswith("sottovoce.")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    mine = part(path)
    allowed = BASE if mine in BASE else MAY_IMPORT[mine] | BASE | {mine}
    wrong = {name for name in names(path) & (BASE | set(MAY_IMPORT)) if name not in allowed}
    assert not wrong, f"{mine} must not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_libraries_stay_where_they_belong(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    for library, homes in ONLY_IN.items():
        if any(m == library or m.startswith(library + ".") for m in modules(path)):
            assert any(str(place).startswith(home) for home in homes), f"only {homes} may import {library}"


def test_every_part_has_its_arrows() -> None:
    assert {part(p) for p in FILES} == set(MAY_IMPORT) | BASE


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    """The check itself can fail."""
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from sottovoce.engine import reference\n    import networkx.algorithms\n")
    assert names(bad) == {"engine"} and "networkx.algorithms" in modules(bad)
    assert "engine" not in MAY_IMPORT["problem"] | BASE


def imported(text: str) -> set[tuple[str, str]]:
    """(module, name) of everything that a page or an example takes from us."""
    return {(module, name) for module, listed in IMPORT.findall(text) for name in re.findall(r"\w+", listed)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_need_public_names_alone(path: Path) -> None:
    for home, name in imported(path.read_text()):
        said = getattr(importlib.import_module(home), "__all__", ())
        assert name in said or (PACKAGE / name).is_dir(), f"{home} does not say that {name} is public"


@pytest.mark.parametrize("path", [*PAGES, *FILES], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_spoken_of_are_there(path: Path) -> None:
    missing = {
        told
        for told in re.findall(r"(?<![\w/.*{-])[\w-]+(?:/[\w-]+)*/[\w-]+\.(?:py|md)\b", path.read_text())
        if not any((start / told).exists() for start in (ROOT, PACKAGE, path.parent, path.parent.parent))
    }
    assert not missing, f"there is no {', '.join(sorted(missing))}"


def test_a_private_import_and_a_lost_file_would_be_seen() -> None:
    """These checks can fail, too."""
    text = ">>> from sottovoce.data.embedded import embedded\nfrom sottovoce import (\n    Spec,\n    solve,\n)\n"
    assert imported(text) == {("sottovoce.data.embedded", "embedded"), ("sottovoce", "Spec"), ("sottovoce", "solve")}
    assert not hasattr(importlib.import_module("sottovoce.data.embedded"), "__all__")
