"""Replacing one record or person of a file moves each exact sum by at most what is accounted, and changes no output."""

import numpy as np
import pytest
import replaced_files
from sklearn.datasets import load_svmlight_file

from sottovoce.data.lines import Sparse

EACH = 2
"""Replacements of each cell of the table. `python tests/privacy/replaced_files.py` makes more."""


@pytest.mark.parametrize(("entry", "kind", "unit"), replaced_files.CELLS)
def test_replacing_one_changes_sums_by_what_is_accounted_and_nothing_else(entry, kind, unit):
    cell, rng = replaced_files.Cell(entry, kind, unit), np.random.default_rng([2, *f"{entry}{kind}".encode()])
    for _ in range(EACH):
        cell.replace(rng)
    cell.close()


def test_a_reader_that_evaluates_records_is_found(monkeypatch):
    """As 0.2.0 read svmlight: an index 0 in one record shifted the rows of all others."""

    def guessing(path, first_index, features):
        X, y = load_svmlight_file(str(path), n_features=features + 1, zero_based="auto")
        return Sparse(X[:, :features], y, np.zeros(len(y), dtype=bool))

    monkeypatch.setattr("sottovoce.data.schema.read_svmlight", guessing)
    cell = replaced_files.Cell("train", "svmlight, options", "record")
    with pytest.raises(AssertionError, match="moved by more than is accounted"):
        cell.compared([*cell.rows[:7], b"1 0:0.3 1:0.1", *cell.rows[8:]], {})
    cell.close()
