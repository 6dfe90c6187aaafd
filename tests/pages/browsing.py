"""What tests of pages share: a server that ends with its test, and patience with a browser."""

import threading
from contextlib import contextmanager

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
    """Wait until the page shows the answer to what was asked last."""
    for _ in range(400):
        if int(page.evaluate("document.body.dataset.settled || '0'")) > more_than:
            return int(page.evaluate("document.body.dataset.settled"))
        page.wait_for_timeout(25)
    raise AssertionError("the page never settled")


def fits(page):
    """Nothing is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth") <= page.wanted
