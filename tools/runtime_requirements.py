"""Print the part of constraints.txt that running the package needs: with hashes, without what development needs.

    python tools/runtime_requirements.py                                     # for `make demo`
    python tools/runtime_requirements.py flare sql > deploy/requirements.txt # for a server or a site, by `make lock`

The result holds the dependencies of the package, of the named extras, of the build backend, and all that these depend
on, as the comments of constraints.txt say.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("cmake", "ninja")
"""What scikit-build-core runs; pip installs them in an isolated build alone."""


def normalized(requirement: str) -> str:
    """The name of a package, as package indexes write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0]).lower()


def wanted(project: dict, chosen: list[str]) -> set[str]:
    """What pyproject.toml names, with the extras that were chosen."""
    extras = project["project"]["optional-dependencies"]
    named = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    named += [each for extra in chosen for each in extras[extra]]
    return {normalized(each) for each in (*named, *TOOLS)}


def selected(constraints: str, names: set[str]) -> str:
    """The blocks of these packages, and of all that they depend on."""
    blocks = [part for part in re.split(r"\n(?=\S)", constraints) if re.match(r"[A-Za-z0-9]", part)]
    users = {part: {normalized(user) for user in re.findall(r"#\s+(?:via\s+)?([\w.-]+)", part)} for part in blocks}
    found, grown = set(names), True
    while grown:
        more = {normalized(part) for part in blocks if users[part] & found} - found
        found, grown = found | more, bool(more)
    return "".join(f"{part.rstrip()}\n" for part in blocks if normalized(part) in found)


def main() -> None:
    """Print the selection."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sys.stdout.write(selected((ROOT / "constraints.txt").read_text(encoding="utf-8"), wanted(project, sys.argv[1:])))


if __name__ == "__main__":
    main()
