"""Data flows one way, and functions are short: this test fails when an import goes against the arrows.

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
BASE = {
    *"_native _renamed _text _types _version bounded casts display errors extension".split(),
    *"features limits matrices plugins registry streams".split(),
}
MAY_IMPORT: dict[str, set[str]] = {
    part: set(others.split())
    for part, others in {
        "problem": "",
        "network": "",
        "privacy": "",
        "data": "",
        "secure": "",
        "inference": "secure",
        "algorithm": "problem",
        "engine": "problem network privacy secure algorithm",
        "run": "problem network privacy secure algorithm engine inference",
        "planner": "problem network privacy algorithm run inference",
        "auditing": "problem network privacy secure algorithm engine run evaluation",
        "figure": "",
        "report": "figure network privacy run evaluation inference",
        "export": "data privacy run evaluation",
        "experiments": "data problem network privacy algorithm engine run planner figure report evaluation",
        "evaluation": "problem privacy secure",
        "estimators": "data problem network privacy algorithm planner run figure evaluation report node inference",
        "node": "data problem network privacy secure algorithm engine run",
        "consortium": "node data problem privacy secure run evaluation planner",
        "pages": "privacy planner node consortium",
        "cli": (
            "pages auditing consortium node experiments data problem network privacy algorithm engine planner run "
            "figure report evaluation estimators export"
        ),
        "testing": "problem network privacy algorithm engine run experiments",
        "__init__": "auditing data problem privacy planner run node experiments estimators",
    }.items()
}
# a library that only one place may know, so that it can be replaced there
ONLY_IN = {
    "bokeh": {"report"},
    "matplotlib": {"figure.py", "cli/plan.py"},
    "networkx": {"network/graphs.py"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pyarrow": {"data", "run/result.py", "experiments/table.py"},
    "sklearn": {"data", "estimators"},
    "sqlalchemy": {"data/sql.py"},
    "sqlite3": {"node/store.py", "node/ledger.py"},
    "mpi4py": {"node/transport.py"},
    "nvflare": {"consortium/controller.py", "consortium/executor.py"},  # elsewhere through consortium/flare.py
    "prometheus_client": {"consortium/metrics.py"},
    "cryptography": {
        "consortium/certificates.py",
        "consortium/connections.py",
        "secure/generator.py",
        "node/envelope.py",
        "node/identity.py",
    },
    "flint": {"secure"},
    "onnx": {"export/graph.py"},
    "cupy": set(),  # plugins/gpu alone
    "cupyx": set(),
    "sottovoce_gpu": set(),  # the core knows no plug-in
}
PLUGINS = ROOT / "plugins"
PLUGIN_MAY_IMPORT: dict[str, set[str]] = {"gpu": {"problem", "network", "privacy", "algorithm", "engine"}}
FILES = sorted(PACKAGE.rglob("*.py"))
PLUGIN_FILES = sorted(PLUGINS.glob("*/src/**/*.py"))
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


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda p: str(p.relative_to(PLUGINS)))
def test_plug_ins_import_what_lies_under_their_kind(path: Path) -> None:
    plugin = path.relative_to(PLUGINS).parts[0]
    wrong = names(path) & (BASE | set(MAY_IMPORT)) - PLUGIN_MAY_IMPORT[plugin] - BASE
    assert not wrong, f"{plugin} must not import {', '.join(sorted(wrong))}"


def test_every_part_has_its_arrows() -> None:
    assert {path.name for path in PLUGINS.iterdir() if path.is_dir()} == set(PLUGIN_MAY_IMPORT)
    assert {part(p) for p in FILES} | {"_native"} == set(MAY_IMPORT) | BASE


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
        details
        for details in re.findall(r"(?<![\w/.*{-])[\w-]+(?:/[\w-]+)*/[\w-]+\.(?:py|md)\b", path.read_text())
        if not any((start / details).exists() for start in (ROOT, PACKAGE, path.parent, path.parent.parent))
    }
    assert not missing, f"there is no {', '.join(sorted(missing))}"


def test_a_private_import_and_a_lost_file_would_be_seen() -> None:
    """These checks can fail, too."""
    text = ">>> from sottovoce.data.embedded import embedded\nfrom sottovoce import (\n    Spec,\n    solve,\n)\n"
    assert imported(text) == {("sottovoce.data.embedded", "embedded"), ("sottovoce", "Spec"), ("sottovoce", "solve")}
    assert not hasattr(importlib.import_module("sottovoce.data.embedded"), "__all__")


MOST_LINES, MOST_BRANCHES, MOST_PARAMETERS = 80, 15, 8
# by name; an option of a command is a parameter, and so is a setting of an estimator
MANY_PARAMETERS = {
    "auditing/attack.py::audit",
    "auditing/one_shot.py::attacked",
    "cli/",
    "data/load.py::load",
    "estimators/",
    "gpu/src/sottovoce_gpu/rounds.py::_numbered",
    "privacy/statement.py::make_statement",
    "run/solve.py::solve",
}
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case)


def measured(path: Path, text: str) -> dict[str, tuple[int, int, int]]:
    """Lines, branches and parameters of every function of a file, the most of those of one name.

    What a function defines inside counts apart.
    """
    place = path.relative_to(PLUGINS if path.is_relative_to(PLUGINS) else PACKAGE).as_posix()
    found: dict[str, tuple[int, int, int]] = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        branches, waiting = 0, list(ast.iter_child_nodes(node))
        while waiting:
            inside = waiting.pop()
            if not isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                branches += isinstance(inside, BRANCHES)
                waiting += ast.iter_child_nodes(inside)
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        several = (node.args.vararg is not None) + (node.args.kwarg is not None)
        parameters = len([name for name in names if name not in ("self", "cls")]) + several
        size = (node.end_lineno or 0) - node.lineno + 1, branches, parameters
        other = found.get(f"{place}::{node.name}", size)
        found[f"{place}::{node.name}"] = max(size[0], other[0]), max(size[1], other[1]), max(size[2], other[2])
    return found


@pytest.mark.parametrize("path", [*FILES, *PLUGIN_FILES], ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_are_paragraphs(path: Path) -> None:
    for name, (lines, branches, parameters) in measured(path, path.read_text()).items():
        short = lines <= MOST_LINES and branches <= MOST_BRANCHES
        assert short, f"{name}: {lines} lines, {branches} branches"
        many = any(name.startswith(each) for each in MANY_PARAMETERS)
        assert parameters <= MOST_PARAMETERS or many, f"{name} has {parameters} parameters"


def test_a_long_function_would_be_seen() -> None:
    text = "def f(a, b, *, c, **d):\n" + "    if a:\n        b = [x if x else 1 for x in b]\n" * 50 + "    return b\n"
    assert measured(PACKAGE / "bad.py", text) == {"bad.py::f": (102, 100, 4)}
    twice = "class A:\n    def f(self, a):\n        pass\nclass B:\n    def f(self):\n        if 1:\n            pass\n"
    assert measured(PACKAGE / "bad.py", twice) == {"bad.py::f": (3, 1, 1)}


def test_exceptions_are_needed() -> None:
    files = [*FILES, *PLUGIN_FILES]
    known = {name: size for path in files for name, size in measured(path, path.read_text()).items()}
    many = {each for each in MANY_PARAMETERS if "::" in each}
    assert all(known[each][2] > MOST_PARAMETERS for each in many)
