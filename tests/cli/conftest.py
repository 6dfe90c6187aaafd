"""A small file to train on; `attempts` is a module beside the tests, not a package."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.0000001
    return X, np.where(X @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]) > 0, 1, -1)


@pytest.fixture
def svm(rows, tmp_path):
    path = tmp_path / "data.svm"
    dump_svmlight_file(*rows, str(path), zero_based=False)
    return path
