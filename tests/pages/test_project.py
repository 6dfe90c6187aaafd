"""What the project says of itself, in places that have to agree: release, Pythons, checks, no address that is none."""

import re
import tomllib

import yaml
from commands import ROOT

from sottovoce import __version__


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
WORKFLOW = yaml.safe_load(text(".github/workflows/test.yml"))


def test_the_changelog_the_citation_and_the_package_are_of_one_release():
    released = re.findall(r"^## (\d+\.\d+\.\d+) — (\d{4}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE)
    cited = yaml.safe_load(text("CITATION.cff"))
    assert released[0] == (__version__, str(cited["date-released"])) and cited["version"] == __version__
    assert released == sorted(released, key=lambda r: tuple(map(int, r[0].split("."))), reverse=True)


def test_pythons_are_those_that_are_tested():
    said = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert said == set(WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]) == {"3.11", "3.12", "3.13", "3.14"}
    assert PROJECT["requires-python"] == ">=3.11"
    assert [step["run"] for step in WORKFLOW["jobs"]["test"]["steps"] if "run" in step] == [".ci/run"]


def test_a_release_is_published_by_identity_with_attestations():
    """By the index's trust in the workflow: no token is stored, and nobody can publish from a branch."""
    publish = yaml.safe_load(text(".github/workflows/publish.yml"))
    assert publish[True] == {"release": {"types": ["published"]}}  # YAML reads `on` as true
    assert publish["permissions"] == {"contents": "read"} and "secrets." not in text(".github/workflows/publish.yml")
    job = publish["jobs"]["publish"]
    assert job["environment"] == "pypi" and job["permissions"]["id-token"] == "write"
    (upload,) = [step for step in job["steps"] if "gh-action-pypi-publish" in step.get("uses", "")]
    assert upload["with"]["attestations"] is True
    used = [step["uses"] for each in publish["jobs"].values() for step in each["steps"] if "uses" in step]
    assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= {name.split("@")[0] for name in used}
    commands = [step["run"] for each in publish["jobs"].values() for step in each["steps"] if "run" in step]
    assert any("make sbom" in line for line in commands) and any("make dist" in line for line in commands)


def test_figures_and_workbooks_are_extras():
    """Fit, predict and report need neither."""
    named = {re.split(r"[^a-z-]", line)[0] for line in PROJECT["dependencies"]}
    assert not named & {"matplotlib", "openpyxl"}
    assert PROJECT["optional-dependencies"]["figures"] and PROJECT["optional-dependencies"]["excel"]


def test_the_version_is_the_newest_one_that_was_released():
    """In the changelog, and in the citation once that names one; what is unreleased is not a version yet."""
    released = re.findall(r"^## (\d+\.\d+\.\d+) — ", text("CHANGELOG.md"), re.MULTILINE)
    assert released and released[0] == __version__
    assert yaml.safe_load(text("CITATION.cff")).get("version", __version__) == __version__


def test_a_commit_is_checked_as_make_lint_checks():
    (hook,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert hook["entry"] == "make lint" and not hook["pass_filenames"]
    assert "make test" in text(".ci/run")


def test_forms_for_issues_ask_what_is_needed():
    for form in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[iw]*.yml")):
        requested = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert requested["name"] and requested["description"]
        assert any(part.get("validations", {}).get("required") for part in requested["body"])


def test_the_package_names_no_address_that_nobody_has():
    """Until there is one: CONTRIBUTING says who adds it, and when."""
    assert "urls" not in PROJECT and "repository-code" not in text("CITATION.cff")
    assert "**Addresses.**" in text("CONTRIBUTING.md")


def test_what_a_project_has_is_there():
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "CHANGELOG.md", "LICENSE"):
        assert len(text(name)) > 300
        assert name in text("pyproject.toml"), f"{name} is not in the sdist"
