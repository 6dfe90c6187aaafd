"""Floats become whole numbers in `sottovoce.casts` alone; every other cast to an integer type is of a public array.

NaN cast to an integer is −2⁶³, and infinity too: one record's number would then move a sum by more than is accounted.
So a cast that is not listed here, with the reason why its array is public or was an integer before, fails this test.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.casts import EXACT, class_numbers, whole_units

ROOT = Path(__file__).parent.parent
PACKAGES = [ROOT / "src" / "sottovoce", ROOT / "plugins" / "gpu" / "src"]
FLOATS = {"float", "float32", "float64", "<f8", "<f4", "object", "bool", "bool_", "str", "str_"}
INTEGERS = {"int", "uint", "intp", "uintp", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
SHORT = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
MAKERS = {"array", "asarray", "ascontiguousarray", "asanyarray", "fromiter"}

SCHEDULE = "node and round numbers of the public schedule"
PLACES = "places, offsets and counts of rows: integers before"
WORDS = "random words and their addresses: integers before"
SIZES = "numbers of records, which are public"
DRAWING = "where to draw something that was already released"
KIND = "to the float type of the data"
PUBLIC = {
    "casts.py": "the cast",
    "streams.py": WORDS,
    "network/": SCHEDULE,
    "report/": DRAWING,
    "experiments/": SIZES,
    "data/standins.py": "generated data, nobody's records",
    "data/synthetic.py": "generated data, nobody's records",
    "data/lines.py": PLACES,
    "data/load.py::_from_svmlight": PLACES,
    "data/schema.py::_without": PLACES,
    "data/tables.py::_as_kind": KIND,
    "data/transforms.py::raw_dates": "points of a picture's axis, from public bounds",
    "data/values.py::_numbers": KIND,
    "sottovoce_gpu/": "node, round and byte numbers; secure releases are not made there",
    "engine/compiled.py": SCHEDULE,
    "engine/exact.py::clipped_sums": PLACES,
    "engine/job.py::stretches": SCHEDULE,
    "engine/secure.py::_poisson": SIZES,
    "auditing/attack.py::audit": SIZES,
    "auditing/runner.py::AuditRunner.rounds": SCHEDULE,
    "auditing/runner.py::_Observed.work_out": SCHEDULE,
    "cli/evaluate.py::_owners": SCHEDULE,
    "consortium/evaluation.py::split_held_out": PLACES,
    "estimators/evaluation.py::owners_of": SCHEDULE,
    "estimators/composition.py": PLACES,
    "estimators/transformers.py::PublicScaler.transform": KIND,
    "evaluation/curves.py::calibration_error_of": "bins of noisy counts",
    "evaluation/curves.py::places": "what searchsorted returns: integers before",
    "evaluation/private.py::answers": "comparisons and what argmax returns",
    "evaluation/private.py::_is_right": "comparisons",
    "evaluation/holdout.py::_scores": PLACES,
    "evaluation/tally.py::Tally.answers": "whole numbers, which the line before checks",
    "node/keys.py": PLACES,
    "node/message.py::pack": "a message that was released",
    "node/runfile.py": SCHEDULE,
    "node/budget_entries.py::owners_marks": PLACES,
    "planner/regression.py::_picture": "numbers of coordinates",
    "privacy/pairs.py": SCHEDULE,
    "privacy/release.py::Epochs.of": SCHEDULE,
    "privacy/release.py::Tree.noise_terms": SCHEDULE,
    "privacy/sampling.py": "uniform draws and numbers of records",
    "problem/coordinate.py::Passes.sweep": PLACES,
    "problem/shards.py::Shards.of": PLACES,
    "problem/shards.py::dirichlet": "shares of simulated nodes, in simulations only",
    "problem/shards.py::_offsets": PLACES,
    "problem/people.py": PLACES,
    "run/plan.py::Request.problem": SIZES,
    "run/plan.py::attendance": SCHEDULE,
    "run/result.py::Result.predict": "comparisons",
    "run/distribution.py::ColumnCounts.places": PLACES,
    "run/private_scaling.py::PrivateScaling._mapped": KIND,
    "run/private_scaling.py::shorter": KIND,
    "run/private_threshold.py::ClassCells.cells": "comparisons",
    "run/solve.py::observation_rounds": SCHEDULE,
    "run/terms.py::Terms.text": DRAWING,
    "secure/functions.py::exp": "an exponent between −1010 and 1010: the argument is clipped before",
    "secure/generator.py": WORDS,
    "secure/noise.py": WORDS + ", and exact sums that are integers before",
    "secure/sampling.py": WORDS,
    "secure/sums.py::clipped_sum": PLACES,
}


def named(node: ast.expr) -> str:
    """The last name of a type as it is written."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_cast(call: ast.Call) -> bool:
    """Whether a call may turn floats into integers."""
    if not isinstance(call.func, ast.Attribute):
        return False
    kinds = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
    if call.func.attr == "astype":
        return any(named(kind) not in FLOATS for kind in [*call.args[:1], *kinds])
    if call.func.attr in MAKERS:
        kinds += call.args[1:2]
        return any(named(kind).lstrip("<>=") in INTEGERS | SHORT for kind in kinds)
    return call.func.attr in INTEGERS and named(call.func.value) == "np"


def casts(path: Path) -> list[tuple[str, int, str]]:
    """(function, line, text) of all casts in a file."""
    found = []

    def walk(node: ast.AST, inside: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            within = (*inside, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else inside
            if isinstance(child, ast.Call) and is_cast(child):
                found.append((".".join(within), child.lineno, ast.unparse(child)))
            walk(child, within)

    walk(ast.parse(path.read_text()), ())
    return found


def reason(file: str, function: str) -> str | None:
    """The entry that allows a cast, or None."""
    whole = f"{file}::{function}"
    return next(
        (key for key in PUBLIC if whole == key or file == key or (key.endswith("/") and file.startswith(key))), None
    )


ALL = [
    (path.relative_to(package).as_posix(), *cast)
    for package in PACKAGES
    for path in sorted(package.rglob("*.py"))
    for cast in casts(path)
]


def test_private_numbers_are_cast_in_one_place():
    strange = [
        f"{file}:{line} in {function}: {text}" for file, function, line, text in ALL if not reason(file, function)
    ]
    assert not strange, "use sottovoce.casts, or list the cast with a reason:\n" + "\n".join(strange)


def test_the_list_of_public_casts_has_no_entry_that_is_not_needed():
    used = {reason(file, function) for file, function, *_ in ALL}
    assert {key for key in PUBLIC if key not in used} == set()


@pytest.mark.parametrize(
    "line",
    ["x.astype(int)", "x.astype('<i8')", "np.int64(x)", "np.asarray(x, dtype=np.int32)", "x.astype(dtype=np.intp)",
     "np.array(x, np.uint8)", "x.astype(kind)"],
)  # fmt: skip
def test_casts_are_found(line):
    assert any(is_cast(node) for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call))


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True)), st.integers(-60, 60))
def test_whole_units_are_within_the_public_range_whatever_comes(values, octave):
    found = whole_units(values, 2.0**octave, -1000.0, 7.0)
    assert np.all((found >= -1000) & (found <= 7))
    for value, whole in zip(values, found.tolist(), strict=True):
        if not np.isfinite(value):
            assert whole == 0
        elif -1000 < value / 2.0**octave < 7:
            assert whole == int(value / 2.0**octave)


def test_the_largest_range_is_within_64_bits():
    assert whole_units([1e308, -1e308, np.nan]).tolist() == [int(EXACT), -int(EXACT), 0]
    assert class_numbers([1e308, -1e308, np.nan, 1], 2).tolist() == [-1, -1, -1, 1]
