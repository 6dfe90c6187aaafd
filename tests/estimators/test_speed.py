"""A private model of real records takes no more than ten times as long as an open one."""

import time

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real, real_path

pytestmark = pytest.mark.skipif(real_path("a9a") is None, reason="needs the data sets of SOTTOVOCE_DATA")


def seconds(fit, times=3):
    fit()  # compilation and first touches apart
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        fit()
        taken.append(time.perf_counter() - began)
    return min(taken)


@pytest.mark.data
@pytest.mark.slow
def test_defaults_on_a9a_are_fast_and_good():
    train, test = load_real("a9a"), load_real("a9a.t")
    private = PrivateClassifier(epsilon=1.0, row_norm=4.0, classes=(-1, 1))  # fourteen ones a row
    ratio = seconds(lambda: private.fit(train.X, train.y)) / seconds(lambda: LinearSVC().fit(train.X, train.y))
    assert ratio < 10
    assert np.mean([private.fit(train.X, train.y).score(test.X, test.y) for _ in range(3)]) > 0.84
    assert private.privacy_.epsilon <= 1.0 and private.privacy_.delta <= 1e-5 and not private.privacy_.simulation
