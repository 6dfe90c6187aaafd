"""What tests of pages share: a server that ends with its test, and patience with a browser."""

import importlib.util
import threading
from contextlib import contextmanager
from pathlib import Path

from sottovoce.pages.server import Served


@contextmanager
def serving(page):
    with Served(page) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join()


def settled(page, more_than=0):
    """Wait until the page shows the answer to what was queried last."""
    for _ in range(400):
        if int(page.evaluate("document.body.dataset.settled || '0'")) > more_than:
            return int(page.evaluate("document.body.dataset.settled"))
        page.wait_for_timeout(25)
    raise AssertionError("the page never settled")


def fits(page):
    """Nothing is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth") <= page.wanted


def violations(page):
    """What axe, the accessibility checker, has against a page: rules of WCAG 2 at A and AA, with the elements."""
    axe = Path(importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0], "axe.min.js")
    page.evaluate(axe.read_text(encoding="utf-8"))
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
    return {rule["id"]: [node["html"][:160] for node in rule["nodes"][:3]] for rule in found}
