"""A page on this machine: one address with a secret in it, one HTML file, one function that answers its questions.

It listens on the loopback address alone. The caller must know the token, which is in the address that is opened, and
must name this very host. So another user of the machine gets no answer, nor does a site open in the same browser. The
page loads nothing from anywhere: its content security policy names its script and style by their hashes.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sottovoce.errors import NetworkError, SottovoceError

HOST = "127.0.0.1"
LONGEST = 4096
"""Bytes of an address that are read; a question is far shorter."""


@dataclass(frozen=True)
class Page:
    """A page by its name (`NAME.html` and `NAME.js` lie here, beside what all share), and what answers its questions.

    Attributes
    ----------
    answer : from the fields of a question, as text, to what the page shows; an error of ours becomes its sentence
    known : answers that are written into the page, for one that is opened from a site, where nobody answers
    """

    name: str
    title: str
    answer: Callable[[Mapping[str, str]], dict[str, Any]]
    known: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def html(self) -> str:
        """The whole file."""
        style, script = _read("page.css"), _read(f"{self.name}.js")
        policy = (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'"
        )
        parts = {
            "POLICY": policy,
            "TITLE": escape(self.title),
            "STYLE": style,
            "BODY": _read(f"{self.name}.html"),
            "KNOWN": json.dumps(self.known, ensure_ascii=False).replace("<", "\\u003c"),
            "SCRIPT": script,
        }
        return re.sub(r"{{([A-Z]+)}}", lambda place: parts[place[1]], _read("page.html"))


def _read(name: str) -> str:
    return resources.files("sottovoce.pages").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a browser counts it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Served(ThreadingHTTPServer):
    """A page at an address of its own; `close` ends it."""

    daemon_threads = True

    def __init__(self, page: Page, port: int = 0) -> None:
        self.page, self.token = page, secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise NetworkError(
                f"a page cannot be served at port {port} of this machine: {error}; name another port, or none"
            ) from None

    @property
    def address(self) -> str:
        """What to open; it holds the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    """GET /TOKEN/ is the page, GET /TOKEN/answer?… what it requests; all else is not there."""

    server: Served
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """Answer, if the caller may know."""
        try:
            url = urlsplit(self.path)
        except ValueError:  # no address at all, from anyone who does not know the token
            self._send(404, "text/plain", "there is nothing here")
            return
        _, token, *rest = [*url.path.split("/"), "", ""]
        here = {f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}"}
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if len(self.path) > LONGEST or self.headers.get("Host") not in here or not known:
            self._send(404, "text/plain", "there is nothing here")
        elif rest[0] == "":
            self._send(200, "text/html", self.server.page.html)
        elif rest[0] == "answer":
            fields = dict(parse_qsl(url.query, keep_blank_values=True))
            try:
                said = self.server.page.answer(fields)
            except SottovoceError as error:
                said = {"error": str(error)}
            self._send(200, "application/json", json.dumps(said, ensure_ascii=False, allow_nan=False))
        else:
            self._send(404, "text/plain", "there is nothing here")

    def _send(self, code: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(code)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the screen: the token is in every line."""


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open a browser by a private file that leads to the address: arguments of a process can be read by everybody."""
    with TemporaryDirectory(prefix="sottovoce-") as folder:
        leads = Path(folder, "open.html")  # the folder is its owner's alone
        leads.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        webbrowser.open(leads.as_uri())
        yield


def serve(page: Page, port: int = 0, show: bool = True, ready: Callable[[str], None] = print) -> None:
    """Serve a page until Ctrl-C; `ready` is given its address, and a browser is opened there if `show`."""
    with Served(page, port) as served, ExitStack() as stack:
        ready(served.address)
        if show:
            stack.enter_context(_opened(served.address))
        try:
            served.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass
