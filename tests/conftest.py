"""Shared by all tests: small problems, and Hypothesis settings that fit a slow shared machine."""

import numpy as np
import pytest
from hypothesis import settings

from sottovoce.problem.shards import Shards

settings.register_profile("sottovoce", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("sottovoce")


@pytest.fixture
def make_shards():
    """A classification (or regression) problem with unit-bounded rows, dealt to n nodes; sizes may be uneven."""

    def make(n=5, q=8, m=4, seed=0, real=False, sizes=None, kind=np.asarray, order=None, intercept=0.0):
        rng = np.random.default_rng(seed)
        sizes = [q] * n if sizes is None else sizes
        N = int(np.sum(sizes))
        X = rng.normal(size=(N, m))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
        truth = rng.normal(size=m)
        y = (
            X @ truth + 0.1 * rng.normal(size=N)
            if real
            else np.where(X @ truth + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
        )
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Shards.of(kind(X), y, offsets, order, intercept)

    return make
