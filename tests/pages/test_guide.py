"""Every command and every Python line of the README and the guides is run as it stands there, or it says why not."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from commands import NOT_RUN, PAGES, ROOT, bare, blocks, commands, ground, nobody_looks, run

LONGER = {
    "README": "tests/pages/test_readme.py",
    "start": "tests/pages/test_stranger.py",
    "consortium": "tests/pages/test_clinics.py",
    "operations": "tests/consortium/test_services.py",
}
"""Pages whose commands a file of their own runs, and examines what comes out."""
BEFORE = {
    "report": [
        "sottovoce train clean.csv --label sick --classes no,yes --group hospital --epsilon 2 --out runs/second"
    ],
    "audit": [
        "sottovoce train patients.csv --label sick --classes no,yes --group hospital --rounds 5 --out runs/first"
    ],
}
"""What a page supposes to have been done."""
KINDS = {"bash", "python", "toml", "text"}


def test_the_pages_are_those_of_the_guide():
    assert set(PAGES) >= {"README", "start", "data", "planning", "statement", "audit", "consortium", "report"}
    assert sum(len(commands(path)) for path in PAGES.values()) > 50


@pytest.mark.parametrize("page", PAGES)
def test_what_is_set_apart_says_what_it_is(page):
    """So that no command hides in a block that nobody runs."""
    for block in blocks(PAGES[page].read_text(encoding="utf-8")):
        assert block.kind in KINDS or block.kind.startswith("{") or not block.kind, f"{block.kind}: {block.lines[:2]}"
        assert block.kind != "" or not block.lines, f"a block without a kind: {block.lines[:2]}"
        if block.kind in ("toml", "text"):
            assert not any(line.startswith(("sottovoce ", "$ ", "make ", "pip ")) for line in block.lines)


def test_every_reason_is_needed():
    for page, command in NOT_RUN:
        assert command in [bare(line) for line in commands(PAGES[page])], f"{page} has no '{command}' any more"
    assert all((ROOT / file).exists() for file in LONGER.values())


def test_what_nobody_can_run_would_be_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```bash\nsottovoce plan --nodes\nfrobnicate now\n```\n\n    sottovoce hidden\n")
    assert [block.kind for block in blocks(page.read_text())] == ["bash", "indented"]
    for line in commands(page):
        with pytest.raises(AssertionError):
            run(line)


def test_python_with_prompts_is_run_by_doctest():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert {"docs", "README.md"} <= set(settings["testpaths"]) and "--doctest-glob=*.md" in settings["addopts"]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in LONGER])
def test_the_lines_of_a_page_run(page, tmp_path, monkeypatch):
    found = blocks(PAGES[page].read_text(encoding="utf-8"))
    plain = [block for block in found if block.kind == "python" and not any(x.startswith(">>>") for x in block.lines)]
    if not commands(PAGES[page]) and not plain:
        return
    ground(tmp_path)
    monkeypatch.chdir(tmp_path)
    nobody_looks(monkeypatch)
    for line in BEFORE.get(page, []):
        run(line)
    for block in found:
        for line in block.lines if block.kind == "bash" else []:
            if line.strip() and (page, bare(line)) not in NOT_RUN:
                run(line)
        if block in plain:
            exec("\n".join(block.lines), {"X": np.full((2, 3), 0.1)})
    assert page != "report" or Path("public/model.json").exists()
