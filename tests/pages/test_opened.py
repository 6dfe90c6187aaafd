"""How a browser is led to a page."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sottovoce.pages import server


def test_the_token_is_in_no_process_s_arguments(monkeypatch):
    requested = []

    def opened(address):
        path = Path(unquote(urlsplit(address).path))
        requested.append((address, path.read_text(), path.parent.stat().st_mode & 0o077))

    monkeypatch.setattr("webbrowser.open", opened)
    with server._opened("http://127.0.0.1:8000/secret-token/"):
        ((address, text, rights),) = requested
        assert address.startswith("file://") and "secret-token" not in address and rights == 0
        assert re.search(r'url=http://127\.0\.0\.1:8000/secret-token/"', text)
    assert not Path(urlsplit(address).path).exists()
