"""Shared by all tests: small problems, the command, a browser, and settings of Hypothesis that fit a slow machine."""

import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from sottovoce.problem.shards import Shards

# what a shell starts in its background ignores interrupts, and so would every command that a test starts and interrupts
sys.path.append(str(Path(__file__).parent))  # for `applied`
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("sottovoce", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("sottovoce")


@pytest.fixture
def make_shards():
    """A classification (or regression) problem with unit-bounded rows, partitioned to n nodes; sizes may be uneven.

    With `outputs` K ≥ 2 targets are class numbers; with `people` a node has q people with two rows each on average.
    """

    def make(
        n=5,
        q=8,
        m=4,
        seed=0,
        real=False,
        sizes=None,
        kind=np.asarray,
        order=None,
        intercept=0.0,
        outputs=1,
        people=False,
    ):
        rng = np.random.default_rng(seed)
        sizes = [q] * n if sizes is None else sizes
        ids = None
        if people:
            ids = np.concatenate([rng.permutation(np.r_[0:q, rng.integers(0, q, q)]) for q in sizes])
            sizes = [2 * q for q in sizes]
        N = int(np.sum(sizes))
        X = rng.normal(size=(N, m))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
        truth = rng.normal(size=m)
        y = (
            X @ truth + 0.1 * rng.normal(size=N)
            if real
            else np.where(X @ truth + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
        )
        if outputs > 1:
            y = np.argmax(X @ rng.normal(size=(m, outputs)) + 0.2 * rng.normal(size=(N, outputs)), axis=1)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Shards.of(kind(X), y, offsets, order, intercept, ids)

    return make


@pytest.fixture
def sottovoce(monkeypatch, capsys):
    """Run the command in this process: (exit code, stdout, stderr)."""
    from sottovoce.cli import main as cli

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sottovoce", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests that examine pages: a second start of Playwright in a process is an error."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    quiet = "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"
    with playwright.sync_playwright() as api:
        chromium = api.chromium.launch(
            executable_path=program, headless=True, args=["--no-sandbox", "--disable-gpu", *quiet]
        )
        yield chromium
        chromium.close()
