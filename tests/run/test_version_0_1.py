"""What version 0.1 printed and left behind: the same numbers are printed, and its folders load and verify."""

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.run.result import Result
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
    assert not differences(PRINTED[name]["printed"], json.loads(done.stdout))


def test_a_difference_would_be_seen():
    assert differences({"a": [1.0, {"b": 2.0}]}, {"a": [1.0, {"b": 2.1}]}) and differences({"a": 1}, {})
    assert not differences({"a": 1.0, "seconds": 3}, {"a": 1.0 + 1e-9, "new": 5})


@pytest.mark.parametrize("name", ["planned", "paper", "centred"])
def test_its_results_load_verify_and_run_again(name, tmp_path):
    old = Result.load(OLD / name)
    old.statement.verify()
    assert old.statement.epsilon > 0 and len(old.history) > 5
    again = Result.load(old.save(tmp_path / name))
    assert again == old
