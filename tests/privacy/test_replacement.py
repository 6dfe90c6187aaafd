"""Replacing one record or person moves every exact sum by at most what is accounted, and changes nothing else."""

import numpy as np
import pytest
import replacement

EACH = 6
"""Replacements of each cell of the table: 540 in all. `python tests/privacy/replacement.py` makes more."""


@pytest.mark.parametrize(("entry", "kind", "unit"), replacement.CELLS, ids="-".join)
def test_replacing_one_changes_sums_by_what_is_accounted_and_nothing_else(entry, kind, unit):
    cell, rng = replacement.Cell(entry, kind, unit), np.random.default_rng([2, *entry.encode()])
    most = 0.0
    for _ in range(EACH):
        most = max(most, *cell.replace(rng).values())
    assert most > 0  # replacements are seen at all
