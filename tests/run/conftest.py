"""What tests of runs have in common."""

import numpy as np
import pytest
import scipy.stats


@pytest.fixture(scope="session")
def scale_of():
    """Whether so many draws have that deviation, as far as 1 in 10⁶ chance lets one say."""

    def tested(draws, sigma):
        low, high = scipy.stats.chi2(draws.size).ppf([5e-7, 1 - 5e-7])
        return low < float(np.sum(draws**2)) / sigma**2 < high

    return tested
