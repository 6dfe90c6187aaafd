"""Two thousand mutated messages: refused, or accepted by the rules; `benchmarks/fuzz_wire.py` takes 100,000."""

import resource

import pytest
from fuzz import KINDS, OPS, Target, mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

edit = st.tuples(st.sampled_from(OPS), st.floats(0, 1), st.binary(max_size=12))
EACH = 250


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_comes_is_refused_or_accepted_by_the_rules(kind):
    target = Target()

    @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(edit, max_size=4), st.integers(0, 7))
    def attacked(edits, choice):
        target.endure(kind, edits, choice)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attacked()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert target.refused > EACH / 4 and grown < 100_000  # kB


def test_the_fuzzer_would_notice():
    """Without its edits everything is as it was sent, and counts; a relay's change of one bit does not."""
    target = Target()
    target.endure("envelope", [], 0)
    target.endure("letter", [], 1)
    target.endure("hello", [], 0)
    assert target.accepted == 3 and len([t for t in target.links._inbox[2] if t]) == 2
    assert mutated(b"abc", [("flip", 0.5, b"\x01")]) == b"acc"
    target.links._inbox[2][99] = b""
    target.links._inbox[2][5] = b"forged"
    with pytest.raises(AssertionError):
        target.endure("junk", [], 0)
