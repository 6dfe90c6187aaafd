"""The site: built without a warning and without a network, with every public name; searched from disk."""

import importlib.util
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from browsing import fits

import sottovoce

ROOT = Path(__file__).parents[2]
pytest.importorskip("sphinx", reason="Sphinx is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make docs` builds it, but for the pictures of the gallery, whose scripts other tests run."""
    out = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "-D", "plot_gallery=0", "-b", "html"]
    line = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out)]
    offline = os.environ | {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    built = subprocess.run(line, capture_output=True, text=True, env=offline, timeout=600)
    assert built.returncode == 0, built.stderr
    return out


def conf():
    spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "docs" / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_page(site):
    for name in sottovoce.__all__:
        if not name.startswith("__"):
            assert (site / "api" / f"sottovoce.{name}.html").exists(), name
    assert (site / "gallery" / "index.html").exists()


def test_a_name_that_is_undocumented_or_on_no_page_would_be_seen(monkeypatch):
    made = conf()
    assert made.missing_from_the_api() == [] and made.undocumented("") == []

    def silent():
        pass

    monkeypatch.setattr(sottovoce, "silent", silent, raising=False)
    monkeypatch.setattr(sottovoce, "__all__", [*sottovoce.__all__, "silent"])
    assert made.missing_from_the_api() == ["silent"] and made.undocumented("") == ["silent"]


def test_every_folder_has_public_names_and_a_page():
    """But for the command, which is for terminals."""
    folders = {path.parent.name for path in Path(sottovoce.__file__).parent.glob("*/__init__.py")} - {"cli"}
    assert folders == set(conf().ROOMS)
    assert all(import_module(f"sottovoce.{room}").__all__ for room in folders)


@pytest.mark.parametrize("name", ["index", "start", "statement", "api", "generated/command", "gallery/index"])
def test_a_page_is_read_from_disk(site, tab, name):
    tab.goto((site / f"{name}.html").as_uri())
    assert tab.inner_text("h1")
    assert fits(tab)


def test_the_search_finds_without_a_network(site, tab):
    tab.goto((site / "search.html").as_uri() + "?q=epsilon")
    for _ in range(200):
        if tab.locator("#search-results li").count() > 3:  # results appear one by one
            break
        tab.wait_for_timeout(50)
    assert tab.locator("#search-results li").count() > 3
