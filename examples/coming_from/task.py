"""The task of all of these: 20 hospitals, ten columns, two classes.

Rows have length 2 at most; of 10,000 records 2,500 are held out.
"""

import numpy as np

HOSPITALS = 20


def records(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(10_000, 10))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / 2)
    score = X @ np.linspace(1, -1, 10) + 0.3 * rng.normal(size=len(X))
    y = (score > 0).astype(int)
    hospital = np.arange(7500) % HOSPITALS
    return X[:7500], y[:7500], X[7500:], y[7500:], hospital
