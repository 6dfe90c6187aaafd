"""Fits, predictions and the command need no POSIX module: those are imported by real nodes only."""

import subprocess
import sys

import pytest

BLOCKED = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
FIT = """
import numpy as np
from sottovoce import PrivateClassifier
X = np.tile(np.eye(4), (50, 1))
y = np.tile([0, 1, 0, 1], 50)
model = PrivateClassifier(row_norm=1.0, classes=[0, 1], random_state=0).fit(X, y)
assert set(model.predict(X)) <= {0, 1}
"""
COMMAND = """
import sys
from sottovoce.cli.main import main
sys.argv = ["sottovoce", "demo", "--data", "breast_cancer", "--nodes", "5", "--json"]
try:
    main()
except SystemExit as done:
    assert done.code in (0, None), done.code
"""


def without(code, *modules):
    blocked = f"import sys\nfor name in {modules!r}:\n    sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", [FIT, COMMAND], ids=["fit", "command"])
def test_nothing_but_a_real_node_needs_posix(code):
    done = without(code, *BLOCKED)
    assert done.returncode == 0, done.stderr


def test_without_the_extension_everything_else_works():
    """A fit with a guarantee and one with a seed run on NumPy, and the version says what is missing."""
    code = FIT.replace("random_state=0", "random_state=None") + FIT
    hidden = "import importlib.util as u\nfind = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name == 'sottovoce._native' else find(name, *rest)\n"
    done = without(hidden + code, "sottovoce._native")
    assert done.returncode == 0, done.stderr
    version = "from sottovoce.cli.main import _version\ntry:\n    _version(True)\nexcept BaseException:\n    pass\n"
    done = without(hidden + version, "sottovoce._native")
    assert "without its native extension" in done.stdout, done.stderr
    slow = """
import warnings
from dataclasses import replace
import numpy as np
from sottovoce import AlgorithmSpec, Shards, Spec
from sottovoce.engine import ENGINES, choose
from sottovoce.run.build import prepare
shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
job = prepare(Spec(AlgorithmSpec(rounds=3), seed=0).replace(privacy__noise="gaussian(1.0)"), shards).job
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert choose("auto", job, runs=10_000).name == "reference"
assert "no native extension" in str(seen[0].message)
"""
    done = without(hidden + slow, "sottovoce._native")
    assert done.returncode == 0, done.stderr


def test_the_check_can_fail():
    assert without("import fcntl", "fcntl").returncode != 0
