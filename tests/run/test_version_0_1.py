"""What version 0.1 printed: the same numbers are printed."""

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.run.spec import Spec

OLD = Path(__file__).parent.parent / "fixtures" / "v0.1"
PRINTED = json.loads((OLD / "printed.json").read_text())
TIMES = {"seconds", "saved", "report", "environment", "label", "format", "caveat"}


def differences(old, new, where=""):
    """What the new output has not, or has otherwise; specs by what they mean, numbers to six digits."""
    if isinstance(old, dict) and {"algorithm", "problem", "network", "privacy"} <= set(old):
        return [] if Spec.from_dict(old) == Spec.from_dict(new) else [where]
    if isinstance(old, dict) and "verdict" in old and "not_covered" in old:  # statements say more now, never less
        lost = [w for name in ("assumptions", "not_covered") for w in old[name] if w not in new[name]]
        numbers = [w for w in re.findall(r"\(ε = .*?\)|NOT PRIVATE", old["verdict"]) if w not in new["verdict"]]
        said = {"verdict", "assumptions", "not_covered"}
        rest = [{k: v for k, v in side.items() if k not in said} for side in (old, new)]
        return [f"{where} no longer says: {w}" for w in (*lost, *numbers)] + differences(*rest, where)
    if isinstance(old, dict):
        missing = [f"{where}.{key} is gone" for key in old if key not in new and key not in TIMES]
        both = [key for key in old if key in new and key not in TIMES]
        return missing + [found for key in both for found in differences(old[key], new[key], f"{where}.{key}")]
    if isinstance(old, list):
        if len(old) != len(new):
            return [f"{where} has {len(new)} entries, not {len(old)}"]
        return [f for i, (a, b) in enumerate(zip(old, new, strict=True)) for f in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, float) and isinstance(new, int | float):
        same = math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(old) and math.isnan(new))
    else:
        same = old == new
    return [] if same else [f"{where}: {old!r} became {new!r}"]


ANEW = {"plan1", "plan2"}
"""The planner was fitted anew in 0.2, on more problems; what it chooses is other, and the fit has tests of its own."""


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - ANEW))
def test_it_prints_the_same_numbers(name, tmp_path):
    arguments = [*PRINTED[name]["arguments"], "--json"]
    if name == "reproduce":
        arguments += ["--out", str(tmp_path / "repro")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    old, new = PRINTED[name]["printed"], json.loads(done.stdout)
    if name == "reproduce":
        old, new = as_in_0_1(old), as_in_0_1(new, like=old)
    assert not differences(old, new)


def as_in_0_1(printed, like=None):
    """What `reproduce` printed in 0.1: 0.3 judges claims by paired differences, and against iterations, too."""
    findings = {}
    for row in printed["findings"]:
        claim = row["claim"].replace(", after three passes", "")
        findings[row["data"], claim, row["noise"]] = row["numbers"].partition("; difference")[0]
    lines = {(row["h"], row["noise"], row["in"], row["claimed"]): row for row in printed["table1"]}
    if like is not None:
        of_like = as_in_0_1(like)
        findings = {key: value for key, value in findings.items() if str(key) in of_like["findings"]}
        lines = {key: row for key, row in lines.items() if str(key) in of_like["table1"]}
    return printed | {
        "findings": {str(key): value for key, value in findings.items()},
        "table1": {str(key): row for key, row in lines.items()},
    }


def test_a_difference_would_be_seen():
    assert differences({"a": [1.0, {"b": 2.0}]}, {"a": [1.0, {"b": 2.1}]}) and differences({"a": 1}, {})
    assert not differences({"a": 1.0, "seconds": 3}, {"a": 1.0 + 1e-9, "new": 5})
