"""The command's entry: the verbs, and what becomes of an error."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from sottovoce._renamed import current_options, error_kind
from sottovoce._version import __version__
from sottovoce.cli import consortium, data, help, ledger, node, screen
from sottovoce.cli.account import account, calibrate
from sottovoce.cli.audit import audit
from sottovoce.cli.compare import compare
from sottovoce.cli.demo import demo
from sottovoce.cli.evaluate import evaluate
from sottovoce.cli.export import export
from sottovoce.cli.plan import plan
from sottovoce.cli.predict import predict
from sottovoce.cli.report import report
from sottovoce.cli.reproduce import reproduce
from sottovoce.cli.schema import schema
from sottovoce.cli.sweep import sweep
from sottovoce.cli.train import train
from sottovoce.cli.tune import tune
from sottovoce.errors import SottovoceError
from sottovoce.extension import AVAILABLE

app = typer.Typer(
    name="sottovoce",
    help="Train linear models over many owners' private data, by gossip between their nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        kind = "" if AVAILABLE else " (without its native extension: large runs are slow)"
        typer.echo(f"sottovoce {__version__}{kind}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train linear models over many owners' private data, by gossip between their nodes."""


for verb in (demo, schema, train, tune, predict, evaluate, sweep, compare, report, export):
    app.command()(verb)
for verb in (plan, account, calibrate, audit, reproduce):
    app.command()(verb)

app.add_typer(data.app, name="data")
app.add_typer(node.app, name="node")
app.add_typer(ledger.app, name="ledger")
app.add_typer(consortium.app, name="consortium")
node.app.command()(consortium.check)


STOPPED, TERMINATED, BUG, UNWRITTEN = 130, 143, 70, 74
TRACE = "SOTTOVOCE_TRACEBACK"
"""Set in the environment, it shows where a bug is."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, or SIGHUP: the command ends as after Ctrl-C, with an exit code of its own."""


def main() -> None:
    """Run the command; user errors print one line on stderr and exit with their own code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that does not know σ or ε gets their numbers
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with ending_on_signals():
        code = _outcome()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:  # a full disk, or a reader who went away
        with suppress(OSError, ValueError, AttributeError):  # the interpreter's last flush shall not fail as well
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _unwritten(error)
    sys.exit(code)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Raise `Terminated` in the block where SIGTERM or SIGHUP comes, as Python raises KeyboardInterrupt for SIGINT."""

    def ended(number: int, frame: Any) -> None:
        raise Terminated

    try:  # a command that `nohup` started does not end with its terminal
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        kept = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGHUP)[: 2 - ignored]}
    except ValueError:  # not in the main thread, which alone may handle signals
        kept = {}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def parser() -> Any:
    """The command and its verbs, as Click reads them."""
    return typer.main.get_command(app)


def _outcome() -> int:
    """Run the command and return its exit code."""
    try:
        help.run(parser(), current_options(sys.argv[1:]))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return _stopped(end) if code == STOPPED else code
    except SottovoceError as error:
        _report(str(error), error_kind(error))
        return TERMINATED if error.exit_code == STOPPED and _was_terminated(error) else error.exit_code
    except KeyboardInterrupt as error:  # between two of Typer's own lines
        return _stopped(error)
    except MemoryError:
        _report("there is not enough memory; take fewer rounds, nodes or features, or a larger machine", "Memory")
        return 1
    except OSError as error:
        return _unwritten(error)
    except Exception as error:
        if os.environ.get(TRACE):
            raise
        _report(
            f"this is a bug in sottovoce ({type(error).__name__}: {error}); please report it, with what the same "
            f"command prints where {TRACE}=1 is set",
            "Bug",
        )
        return BUG
    return 0


def _unwritten(error: OSError) -> int:
    """The exit code where a file, or standard output, cannot be written; of a closed pipe nothing is reported."""
    if error.errno != errno.EPIPE:
        named = "" if error.filename is None else f"'{os.fsdecode(error.filename)}' cannot be used: "
        _report(f"{named}{error.strerror or error}; give another place, or make room there", "OSError")
    return UNWRITTEN


def _was_terminated(error: BaseException | None) -> bool:
    """Whether an ending began with SIGTERM, whatever was made of it on the way up."""
    while error is not None and not isinstance(error, Terminated):
        error = error.__cause__ or error.__context__
    return error is not None


def _stopped(error: BaseException) -> int:
    screen.fail("stopped")
    return TERMINATED if _was_terminated(error) else STOPPED


def _report(sentence: str, kind: str) -> None:
    """Print an error; where neither stream can be written to, the exit code alone reports it."""
    with suppress(OSError):
        if "--json" in sys.argv:
            screen.say_json({"error": sentence, "kind": kind})
    with suppress(OSError):
        screen.fail(sentence)
