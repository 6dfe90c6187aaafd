"""Every cell of the threat model, and every closed row of SECURITY.md, names tests that are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PARTIES = (
    "a peer",
    "a coalition",
    "the server",
    "the maker of kits",
    "an administrator",
    "the network",
    "a thief of a node's folder",
    "a thief of a site's key",
    "another user of a site's machine",
    "a revoked member",
    "who gets a run's folder, or an export",
)
NAMED = re.compile(r"`(?:tests/)?([\w/]+\.py)(?:::(\w+))?`")


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """Tests that a page names and that are not there."""
    found = []
    for file, test in NAMED.findall(text):
        path = ROOT / "tests" / file
        if not path.is_file() or (test and test not in functions_of(path)):
            found.append(f"{file}::{test}")
    return found


def rows(text: str, heading: str) -> list[list[str]]:
    table = text[text.index(heading) :].split("\n\n")
    lines = next(part for part in table if part.startswith("|")).splitlines()
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines[2:]]


def test_every_cell_of_the_threat_model_has_tests_that_are_there():
    text = (ROOT / "docs" / "threat-model.md").read_text()
    assert missing(text) == []
    party, seen = "", {}
    for row in rows(text, "| party |"):
        named = re.match(r"\*\*(.+?)\*\*", row[0])
        party = named[1] if named else party
        kind, shown = row[-3].strip("| "), row[-1]
        assert NAMED.search(shown), f"nothing shows what {party} {kind}"
        seen.setdefault(party, []).append(kind)
    assert seen == {party: ["sees", "changes", "stops"] for party in PARTIES}


def test_what_was_found_is_closed_by_a_test_or_said_to_be_open():
    text = (ROOT / "SECURITY.md").read_text()
    folders = [folder for folder in re.findall(r"`(tests/[\w/]+)`", text) if not folder.endswith(".py")]
    assert missing(text) == [] and all((ROOT / folder).is_dir() for folder in folders)
    hostile = rows(text, "### Hostile servers")
    assert len(hostile) >= 12
    for row in hostile:
        assert "**open**" in row[-1] or NAMED.search(row[-1]), row


def test_a_test_that_is_not_there_would_be_found():
    assert missing("`node/test_links.py::test_nothing_of_the_kind`") and missing("`tests/node/nowhere.py`")
    assert not missing("`consortium/test_threats.py::test_a_test_that_is_not_there_would_be_found`")
