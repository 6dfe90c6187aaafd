r"""How the command speaks to any terminal, pipe or disk, and how it ends when it is told to.

Our words hold σ, ε, − and ×; a terminal may know cp1252, latin-1 or ASCII only, and a file's name may be no text.
While the command runs, both streams write what they can, and the rest in letters that everybody has: 'ε' as 'epsilon',
anything else as its number, as in '\u4e2d'. A stream that cannot be written to, as on a full disk, is an error in one
sentence; a reader who went away is none. SIGTERM ends the command as Ctrl-C does, with its own exit code.
"""

import codecs
import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sottovoce.errors import SottovoceError

LETTERS = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "ι": "iota",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ρ": "rho", "σ": "sigma", "τ": "tau", "Σ": "sum", "Δ": "Delta", "ῑ": "iota",
    "−": "-", "–": "-", "—": "-", "×": "x", "·": "*", "±": "+-", "≤": "<=", "≥": ">=", "≈": "~", "∞": "inf",
    "√": "sqrt", "∘": "o", "∈": "in", "⟨": "<", "⟩": ">", "‖": "||", "→": "->", "←": "<-", "…": "...",
    "²": "^2", "³": "^3", "⁻": "^-", "¹": "1", "₀": "0", "½": "1/2", "¼": "1/4", "“": '"', "”": '"', "’": "'", "‘": "'",
    "•": "*", "✓": "ok", "\ufffd": "?",
}  # fmt: skip
"""Signs of ours, in letters that every encoding has."""
HANDLER = "sottovoce.letters"


class Unheard(SottovoceError):
    """Standard output cannot be written to."""

    exit_code = 74  # EX_IOERR

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written to ({error.strerror}); nobody has seen the whole of it")
        self.gone = error.errno == errno.EPIPE
        """Whether the reader of a pipe went away, as `head` does."""


class Terminated(KeyboardInterrupt):
    """The machine, or whoever rules it, asked the command to end."""


def was_terminated(error: BaseException | None) -> bool:
    """Whether an ending began with SIGTERM, whatever was made of it on the way up."""
    while error is not None and not isinstance(error, Terminated):
        error = error.__cause__ or error.__context__
    return error is not None


def _in_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(LETTERS.get(sign, _numbered(sign)) for sign in wrong), error.end


def _numbered(sign: str) -> str:
    """As JSON and Python write it."""
    code = ord(sign)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


codecs.register_error(HANDLER, _in_letters)


class Voice:
    """A stream whose failures are sentences; `strict` where they matter."""

    def __init__(self, stream: Any, strict: bool) -> None:
        self._stream, self._strict = stream, strict

    def write(self, text: str) -> int:
        """Write, or say in one sentence why not."""
        try:
            return int(self._stream.write(text))
        except OSError as error:
            return self._failed(error, len(text))

    def flush(self) -> None:
        """The same for what was kept back."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error, 0)

    def _failed(self, error: OSError, length: int) -> int:
        _silence(self._stream)
        if self._strict:
            raise Unheard(error) from None
        return length  # errors that nobody can be told of

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's."""
        return getattr(self._stream, name)


def _silence(stream: Any) -> None:
    """Send what the stream still holds to nowhere, so that the interpreter's last flush does not fail as well."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def speaking() -> Iterator[None]:
    """For as long as the command runs: streams that can say everything, and an ending when it is asked for."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):  # one that encodes
            stream.reconfigure(errors=HANDLER)
    sys.stdout, sys.stderr = (
        None if stream is None else Voice(stream, strict) for stream, strict in zip(before, (True, False), strict=True)
    )
    try:
        with _ending():
            yield
            if sys.stdout is not None:
                sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def _ending() -> Iterator[None]:
    def ended(number: int, frame: Any) -> None:
        raise Terminated

    try:
        kept = signal.signal(signal.SIGTERM, ended)
    except ValueError:  # not in the first thread: whoever called us there looks after signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)
