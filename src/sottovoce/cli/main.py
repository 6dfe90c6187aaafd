"""The command's entry: the verbs, and what becomes of an error."""

import json
import sys
from typing import Annotated

import typer

from sottovoce._version import __version__
from sottovoce.cli import consortium, data, node, screen
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
app.add_typer(node.ledger, name="ledger")
app.add_typer(consortium.app, name="consortium")
node.app.command()(consortium.check)


def main() -> None:
    """Run the command; an error that the user can mend is one sentence on stderr and an exit code of its own."""
    try:
        app()
    except SottovoceError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": str(error), "kind": type(error).__name__}, ensure_ascii=False))
        screen.fail(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        sys.exit(0)
