"""Every test begins with records that nobody has fitted before: this process remembers what it has seen."""

import pytest

from sottovoce.estimators.composition import KNOWN


@pytest.fixture(autouse=True)
def nothing_fitted():
    KNOWN.clear()
