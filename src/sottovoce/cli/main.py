"""The command's entry: the verbs, and what becomes of an error."""

import os
import sys
from typing import Annotated

import typer

from sottovoce._version import __version__
from sottovoce.cli import consortium, data, ledger, node, screen, voice
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

app = typer.Typer(
    name="sottovoce",
    help="Train linear models over many owners' private data, by gossip between their nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sottovoce {__version__}")
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


STOPPED, TERMINATED, BUG = 130, 143, 70
TRACE = "SOTTOVOCE_TRACEBACK"
"""Set in the environment, it shows where a bug is."""


def main() -> None:
    """Run the command; an error that the user can mend is one sentence on stderr and an exit code of its own."""
    code = 0
    try:
        with voice.speaking():
            code = _spoken()
    except voice.Unheard as error:
        if not error.gone:
            screen.fail(str(error))
            code = error.exit_code
    sys.exit(code)


def _spoken() -> int:
    """The exit code of the command, once everything is said."""
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code == STOPPED:
            return _ended("stopped", end)
        return code
    except voice.Unheard:
        raise
    except SottovoceError as error:
        code = error.exit_code
        _said(str(error), type(error).__name__)
        return TERMINATED if code == STOPPED and voice.was_terminated(error) else code
    except KeyboardInterrupt as error:  # between two of Typer's own lines
        return _ended("stopped", error)
    except MemoryError:
        _said("there is not enough memory; take fewer rounds, nodes or features, or a larger machine", "Memory")
        return 1
    except OSError as error:
        named = "" if error.filename is None else f"'{os.fsdecode(error.filename)}' cannot be used: "
        _said(f"{named}{error.strerror or error}; give another place, or make room there", "OSError")
        return voice.Unheard.exit_code
    except Exception as error:
        if os.environ.get(TRACE):
            raise
        _said(
            f"this is a bug in sottovoce ({type(error).__name__}: {error}); please report it, with what the same "
            f"command prints where {TRACE}=1 is set",
            "Bug",
        )
        return BUG
    return 0


def _ended(sentence: str, error: BaseException) -> int:
    screen.fail(sentence)
    return TERMINATED if voice.was_terminated(error) else STOPPED


def _said(sentence: str, kind: str) -> None:
    if "--json" in sys.argv:
        screen.say_json({"error": sentence, "kind": kind})
    screen.fail(sentence)
