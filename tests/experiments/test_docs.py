"""docs/algorithms.md has every baseline, and the example of docs/extending.md is a real file."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sottovoce.algorithm import bounds
from sottovoce.algorithm.methods import METHODS
from sottovoce.experiments.baselines import BASELINES
from sottovoce.privacy.release import Transcript
from sottovoce.privacy.theorem1 import Theorem1, compare

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
    page = (ROOT / "docs" / "extending.md").read_text()
    (path, code), *_ = re.findall(
        r"a whole one, from `(src/[\w/]+\.py)`.*?```{code-block} python\n(.*?)```", page, re.DOTALL
    )
    assert "class Tracking" in code and code in (ROOT / path).read_text()
    plain = re.search(r"(def tracking\(inputs.*?\n)```", page, re.DOTALL)[1]
    assert plain in (ROOT / "src/sottovoce/experiments/baselines.py").read_text()


def test_a_reconstruction_says_so_where_it_is_written():
    text = "".join(path.read_text() for path in sorted((ROOT / "src/sottovoce/algorithm").glob("*.py")))
    details = {
        "huang": "Huang, Mitra and Vaidya 2015",
        "admm": "Xiao and Devadas 2021, linearised",
        "mixup": "Xiao and Devadas 2021, decentralised",
    }
    assert set(details) <= set(METHODS)
    for words in details.values():
        assert "*reconstruction*" in text.split(words)[1][:1500], words


def test_lemmas_have_the_papers_numbers():
    """The paper numbers six lemmas through: consensus is the fifth, the dual-averaging inequality the sixth."""
    table = (ROOT / "docs" / "notation.md").read_text()
    assert "| Lemma 5, (18), (19) | consensus | `bounds.lemma5` |" in table
    assert "| Lemma 6, (20) | pathwise inequality |" in table
    assert "Lemma 5, eqs. (18) and (19)" in bounds.lemma5.__doc__ and not hasattr(bounds, "lemma4")


def test_the_corrigendum_can_be_checked_by_hand(capsys):
    """The page's code runs by itself and prints what the page says; it is the package's own bound."""
    page = (ROOT / "docs" / "corrigendum.md").read_text()
    code, said = re.search(r"```python\n(.*?)```\n\n((?: {4}\d+\n)+)", page, re.DOTALL).groups()
    names = {}
    exec(code, names)
    assert capsys.readouterr().out.split() == said.split()
    for epsilon, iota, rounds in ((1.0, 0.1, 600_000), (0.8, 1.0, 60_000)):
        claim = Theorem1(epsilon, 0.01, iota, 1.0, 20_000, rounds)
        mine = names["by_hand"](20, 20_000, iota, rounds, epsilon, 0.01)
        assert claim.elementary_epsilon(20, 1e-5) == pytest.approx(mine, rel=1e-9)
        assert mine < compare(claim, Transcript(), 1e-5).epsilon_lower  # a bound, and a loose one


def test_the_bound_by_hand_holds_in_a_simulation():
    """At sizes that can be simulated: the event has about the probabilities that the bound is made of (seeded)."""
    rng, q, T, sigma, runs = np.random.default_rng(0), 20, 60, 0.3, 4000
    drawn = rng.random((runs, T)) < 1 / q
    noise = sigma * rng.normal(size=(runs, T))
    found = [np.mean(np.max(np.where(drawn & held, 1.0, -1.0) + noise, axis=1) > 0) for held in (True, False)]
    lower = (1 - (1 - 1 / q) ** T) * stats.norm.cdf(1 / sigma)
    upper = T * stats.norm.cdf(-1 / sigma)
    assert found[0] >= lower - 5 * np.sqrt(0.25 / runs) and found[1] <= upper + 5 * np.sqrt(upper / runs)


def test_correlated_noise_cannot_help_a_last_sum_with_full_participation():
    """For any factorization: noise of the sum times sensitivity is at least the sum of its weights (random C, a)."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        T = int(rng.integers(2, 12))
        C, a = rng.normal(size=(T + int(rng.integers(0, 5)), T)), rng.random(T)
        least = np.linalg.norm(a @ np.linalg.pinv(C)) * np.linalg.norm(C @ np.ones(T))
        assert least >= a.sum() * (1 - 1e-9)
    root = np.diag(np.sqrt(a))
    assert np.linalg.norm(a @ np.linalg.inv(root)) * np.linalg.norm(root @ np.ones(T)) == pytest.approx(a.sum())
