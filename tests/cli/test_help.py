"""Help begins with an example, shows first what users set first, and all of it on request."""

import re
import shlex

import click
import pytest
import typer

from sottovoce.cli import help as helping
from sottovoce.cli.main import app
from sottovoce.errors import SpecError

COMMAND = typer.main.get_command(app)


def options_of(text):
    return set(re.findall(r"--[a-z][a-z-]*", text))


def printed(capsys, *arguments):
    """What a command line prints, of a command made anew."""
    with pytest.raises(SystemExit) as end:
        helping.run(typer.main.get_command(app), arguments)
    assert not end.value.code
    return capsys.readouterr().out


def test_train_shows_fifteen_options_and_all_on_request(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    table = [line for line in printed(capsys, "train", "--help").splitlines() if re.search(r"│.*--[a-z]", line)]
    shown = {min(options_of(line), key=line.index) for line in table}
    assert shown == helping.FIRST["train"] and len(shown) == 15
    everything = options_of(printed(capsys, "train", "--help-all"))
    assert len(everything) > 50 and shown <= everything


def verbs(command, group=""):
    """All verbs by their words: 'train', 'data fetch'."""
    for name, verb in command.commands.items():
        if hasattr(verb, "commands"):
            yield from verbs(verb, f"{name} ")
        if not hasattr(verb, "commands") or group + name in helping.EXAMPLES:
            yield group + name, verb


VERBS = dict(verbs(COMMAND))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_begins_with_an_example_whose_options_there_are(verb):
    example, found = helping.EXAMPLES[verb], VERBS[verb]
    assert example.startswith(f"sottovoce {verb}")
    if not hasattr(found, "commands"):
        known = {name for p in found.params for name in [*p.opts, *p.secondary_opts]}
        assert options_of(example) <= known
    given = shlex.split(example)[1 + len(verb.split()) :]
    left = found.make_parser(click.Context(found)).parse_args(given)[1]
    assert not left, "an argument that the verb does not have"
    helping.arranged(COMMAND)
    assert found.help.startswith("Example: ") and not found.get_short_help_str().startswith("Example")


def test_every_example_has_its_verb():
    assert set(helping.EXAMPLES) == set(VERBS)


def test_set_is_any_option():
    given = ["train", "f.csv", "--set", "rounds=5", "--set", "no_intercept=true", "--set", "unit_rows=no", "--json"]
    assert helping.expanded(given, COMMAND) == ["train", "f.csv", "--rounds=5", "--no-intercept", "--json"]
    with pytest.raises(SpecError, match="--set takes name=value"):
        helping.expanded(["train", "--set", "rounds"], COMMAND)


def test_symbols_of_the_paper_are_printed_on_request_alone(sottovoce, svm):
    given = ("train", svm, "--nodes", 4, "--epsilon", 2, "--rounds", 20, "--seed", 1)
    code, plain, _ = sottovoce(*given)
    assert code == 0 and "held-out" not in plain and "messages sent" in plain and "true-positive rate" in plain
    assert not any(symbol in plain for symbol in ("ι", "β =", "σ =", "F − F*"))
    code, whole, _ = sottovoce(*given, "--verbose")
    assert code == 0 and all(symbol in whole for symbol in ("ι = ", "β = ", "σ = "))
