"""
Regression with a public range
==============================

Disease progression after a year, from ten measurements of 442 patients: targets have a public range, and one
release of noisy sums serves every strength of regularization.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from sottovoce import PrivateRegressor

X, y = load_diabetes(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
open_model = RidgeCV(np.logspace(-4, 2, 20)).fit(X, y)
print(f"without privacy: R² = {open_model.score(X_test, y_test):.2f}")

# %%
# From the documentation: targets go from 25 to 346; ten columns whose squares sum to 1 over 442 rows, so that a
# typical row has length 0.15, and longer ones than 0.2 may well be scaled down. Five seeds: with so few patients one
# draw of the noise matters.
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
settings = {"row_norm": 0.2, "target_bounds": (25, 346)}
found = [
    [PrivateRegressor(epsilon, random_state=seed, **settings).fit(X, y).score(X_test, y_test) for seed in range(5)]
    for epsilon in EPSILONS
]
for epsilon, scores in zip(EPSILONS, found, strict=True):
    print(f"ε = {epsilon:g}, δ = 1e-5: R² = {np.mean(scores):.2f}")

# %%
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
axis.plot(EPSILONS, np.mean(found, axis=1), "o-", label="private, mean of five")
axis.fill_between(EPSILONS, np.min(found, axis=1), np.max(found, axis=1), alpha=0.2)
axis.axhline(open_model.score(X_test, y_test), color="gray", label="without privacy")
axis.set(xscale="log", xlabel="ε (δ = 1e-5)", ylabel="R² on held-out patients")
axis.legend(frameon=False)
plt.show()
