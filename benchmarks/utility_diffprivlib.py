"""One fit of diffprivlib's LogisticRegression, run by benchmarks/utility_methods.py in an environment of its own.

python utility_diffprivlib.py data.npz EPSILON SEED
"""

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

with np.load(sys.argv[1]) as file:
    X, y, X_test, y_test = (file[name] for name in ("X", "y", "X_test", "y_test"))
began = time.perf_counter()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of a bound that rounding passes by 1e-16
    model = LogisticRegression(epsilon=float(sys.argv[2]), data_norm=1.0 + 1e-6, random_state=int(sys.argv[3]))
    model.fit(X.astype(np.float64), y)
score = float(np.mean(model.predict(X_test.astype(np.float64)) == y_test))
print(json.dumps({"accuracy": score, "seconds": time.perf_counter() - began}))
