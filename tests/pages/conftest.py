"""A tab for pages that are served here; `browsing` is a module beside the tests, not a package."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=[1280, 420])
def tab(request, browser):
    """A tab of a desk's or a telephone's width; a script's error fails the test."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.wanted = request.param
    yield page
    page.close()
    assert not [words for words in said if "theme mode" not in words]  # the site's theme shows that it has a default
