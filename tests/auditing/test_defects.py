"""Planted defects are found: a fast part of the table that `python benchmarks/audit.py defects` makes."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "audit.py"
pytestmark = pytest.mark.skipif(not BENCHMARK.exists(), reason="the benchmarks are not here")
FAST = {
    "σ halved": 600,
    "the clip left out": 200,
    "noise drawn once for all rounds": 100,
    "one seed for two nodes": 200,
    "an uncounted round, of 3": 6000,
    "32-bit noise in place of the secure release": 200,
    "a fixed order of records counted once, of 3 passes": 600,
}
"""Runs with either record that are more than enough."""


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_audit", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses need it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FAST)
def test_a_planted_defect_is_found(benchmark, name):
    defect = next(each for each in benchmark.defects() if each.name == name)
    fast = {"engine": "compiled"} if "uncounted" in name else {}
    found = defect.audited(FAST[name], **fast)
    assert found.broken and found.at_least > found.stated, found.verdict()


def test_without_its_defect_the_same_run_passes(benchmark):
    for name in ("σ halved", "a fixed order of records counted once, of 3 passes"):
        defect = next(each for each in benchmark.defects() if each.name == name)
        honest = benchmark.replace(defect, plant=None, stated=None)
        assert not honest.audited(400).broken


def test_the_table_has_all_defects_of_the_page(benchmark):
    page = (BENCHMARK.parent / "results" / "audit.md").read_text()
    assert len(benchmark.defects()) == 12
    for defect in benchmark.defects():
        assert f"| {defect.name} |" in page, f"benchmarks/results/audit.md does not show '{defect.name}'"
