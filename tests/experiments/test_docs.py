"""docs/algorithms.md tells of every baseline, and its example is a real file."""

import re
from pathlib import Path

import pytest

from sottovoce.algorithm.methods import METHODS
from sottovoce.experiments.baselines import BASELINES

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "algorithms.md"
COLUMNS = 8  # bars in a row of the table of baselines: averagings have tables of their own

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the pages are not here")


def test_every_baseline_has_its_row():
    page = PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == COLUMNS]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(BASELINES)
    for row in rows:
        baseline = BASELINES[re.findall(r"`(\w+)`", row.split("|")[1])[0]]
        assert ("Reconstruction" in row) == (baseline.source == "reconstruction")
        assert ("Recalled" in row) == (baseline.source == "recalled" and "the same" not in row)
        assert (row.split("|")[5].strip() == "central") == baseline.central


def test_the_example_is_the_file():
    page = PAGE.read_text()
    (path, code), *_ = re.findall(r"a whole one, from `(src/[\w/]+\.py)`.*?```python\n(.*?)```", page, re.DOTALL)
    assert "class Tracking" in code and code in (ROOT / path).read_text()
    quoted = re.search(r"( {4}def tracking\(facts.*?\n)\n", page, re.DOTALL)[1]
    plain = re.sub(r"^ {4}", "", quoted, flags=re.MULTILINE)
    assert plain in (ROOT / "src/sottovoce/experiments/baselines.py").read_text()


def test_a_reconstruction_says_so_where_it_is_written():
    text = "".join(path.read_text() for path in sorted((ROOT / "src/sottovoce/algorithm").glob("*.py")))
    told = {
        "huang": "Huang, Mitra and Vaidya 2015",
        "admm": "Xiao and Devadas 2021, linearised",
        "mixup": "Xiao and Devadas 2021, decentralised",
    }
    assert set(told) <= set(METHODS)
    for words in told.values():
        assert "*reconstruction*" in text.split(words)[1][:1500], words
