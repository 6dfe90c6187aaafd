"""A private model of real records at its defaults: how good it is, and how many rounds it takes."""

import numpy as np
import pytest

from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real, real_path

pytestmark = pytest.mark.skipif(real_path("a9a") is None, reason="needs the data sets of SOTTOVOCE_DATA")


@pytest.mark.data
@pytest.mark.slow
def test_defaults_on_a9a_are_good_in_a_thousand_rounds():
    train, test = load_real("a9a"), load_real("a9a.t")
    private = PrivateClassifier(epsilon=1.0, row_norm=4.0, classes=(-1, 1))  # fourteen ones a row
    assert np.mean([private.fit(train.X, train.y).score(test.X, test.y) for _ in range(3)]) > 0.84
    assert private.spec_.algorithm.rounds <= 1000
    assert private.privacy_.epsilon <= 1.0 and private.privacy_.delta <= 1e-5 and not private.privacy_.simulation
