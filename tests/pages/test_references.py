"""The pages that are made from the code: every option and every key is there and has a description."""

import importlib.util
import inspect
import re
import sys
from dataclasses import fields

import pytest
import typer
from commands import ROOT

from sottovoce import _renamed
from sottovoce.cli.main import app
from sottovoce.consortium import agreement
from sottovoce.data.dialect import Dialect
from sottovoce.data.schema import Column, Label, Schema, schema_of
from sottovoce.errors import SpecError
from sottovoce.experiments.baselines import BASELINES
from sottovoce.node import runfile, site
from sottovoce.run.spec import PARTS


def made():
    spec = importlib.util.spec_from_file_location("docs_references", ROOT / "docs" / "references.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


references = made()
VERBS = dict(references.verbs(typer.main.get_command(app)))
COMMAND, FILES = references.command_page(), references.files_page()


def names(keys):
    return {key.name for key in keys}


def section(page, title):
    """The part of a page below a heading of the second level."""
    return re.split(rf"^## {re.escape(title)}$", page, flags=re.MULTILINE)[1].split("\n## ")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_there_and_says_what_it_does(verb):
    part = section(COMMAND, verb)
    for option in references.options(VERBS[verb]):
        assert f"| `{option.names}`<br>" in part
        assert len(option.meaning) > 1, f"{verb} {option.names} has no help"
    known = {name for p in VERBS[verb].params if p.param_type_name == "option" for name in (*p.opts, *p.secondary_opts)}
    rows = "\n".join(re.findall(r"^\| `(-[^`]*)`<br>", part, re.MULTILINE))
    assert known == set(re.split(r"[,\s]+", rows)) - {""}


def test_an_option_that_is_missing_would_be_seen():
    assert "--epsilon" in section(COMMAND, "train") and "--epsilon" not in section(COMMAND, "report")


@pytest.mark.parametrize("part", PARTS)
def test_every_field_of_a_spec_is_there_and_has_a_description(part):
    keys = references.spec_keys(part)
    assert names(keys) == {field.name for field in fields(PARTS[part])}
    for key in keys:
        described = key.meaning.split("<br>")[0]
        assert len(described) > 2, f"{part}.{key.name} has no text below it in run/spec.py"
        assert f"| `{key.name}`<br>" in section(FILES, f"[{part}]")


def test_keys_are_those_that_the_code_reads():
    assert names(references.RUN_FILE) | names(references.RUN_FILE_PLAIN) == runfile._KNOWN
    assert {key.name for key in references.RUN_FILE if key.default == references.REQUIRED} == set(runfile._NEEDED)
    assert names(references.AGREEMENT) == agreement._KNOWN
    assert names(references.SITE) == site._KNOWN
    assert names(references.DIALECT) == names_of(Dialect)
    assert names(references.LABEL) == names_of(Label) - {"outputs"}
    assert names(references.COLUMN) == names_of(Column) - {"name", "kind"} | {"type"}
    assert names(references.SCHEMA) == names_of(Schema) - {"plain", "numbered"} | {"features"}


def names_of(kind):
    return {field.name for field in fields(kind)}


def test_tables_of_an_agreement_are_read_as_they_are_described():
    text = inspect.getsource(agreement.made_agreement)
    for key in references.AGREEMENT_TABLES:
        table, last = key.name.split(".")[0], key.name.split(".")[-1]
        held = {"server": "server", "admin": "admin", "sites": "t"}[table]
        assert f'{held}["{last}"]' in text
    assert len(re.findall(r'(?:server|admin|\bt)\["', text)) == len(references.AGREEMENT_TABLES)


def test_keys_without_a_description_would_be_seen():
    every = [value for value in vars(references).values() if isinstance(value, tuple) and value]
    keys = [key for group in every for key in group if isinstance(key, references.Key)]
    assert len(keys) > 50 and all(key.kind and key.default and len(key.meaning) > 10 for key in keys)
    for key in keys:
        assert f"| `{key.name}`<br>" in FILES


def test_an_unknown_key_of_a_schema_is_an_error():
    with pytest.raises(SpecError):
        schema_of({"label": {"column": "y", "classes": [0, 1]}, "columns": {"age": {}}, "no_such_key": 1})


def test_every_old_name_has_its_row():
    text = references.renames()
    for old, new in _renamed.OPTIONS.items():
        assert f"| `{old}` | `{new}` |" in text
    for group in (_renamed.NAMES, _renamed.ATTRIBUTES):
        assert all(f".{old}` | `{new}` |" in text for names in group.values() for old, new in names.items())
    assert all(f"({old}=)` | `{new}=` |" in text for names in _renamed.ARGUMENTS.values() for old, new in names.items())
    assert "generated/renames.txt" in (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")


def test_every_algorithm_is_cited():
    text = references.citations()
    assert all(f"`{name}`" in text and baseline.citation in text for name, baseline in BASELINES.items())
    assert "generated/citations.txt" in (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
