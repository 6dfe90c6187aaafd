"""
What an ε costs
===============

How much accuracy an ε costs, how much more when the records are spread over owners who trust nobody, and how little
more when a majority of them is trusted. Every point is a simulation: on real records such a picture would itself
have to be paid for.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from sottovoce import PrivateClassifier
from sottovoce.data import two_gaussians

table = two_gaussians(8_000, 20, seed=3)
X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.5, random_state=0)


# %%
def accuracy(epsilon: float | None, owners: int, trust: str, seeds: int = 3) -> float:
    settings = {"n_nodes": owners, "trust": trust, "row_norm": 1.0, "classes": (-1, 1)}
    fits = (PrivateClassifier(epsilon, 1e-5, random_state=seed, **settings).fit(X, y) for seed in range(seeds))
    return float(np.mean([fit.score(X_test, y_test) for fit in fits]))


EPSILONS = (0.1, 0.3, 1.0, 3.0)
CASES = {
    "one owner": (1, "nobody"),
    "ten owners, nobody trusted": (10, "nobody"),
    "ten, a majority trusted": (10, "majority"),
}
found = {name: [accuracy(epsilon, *case) for epsilon in EPSILONS] for name, case in CASES.items()}
print("accuracy at δ = 1e-5\n    ε   " + "   ".join(CASES))
for place, epsilon in enumerate(EPSILONS):
    print(f"{epsilon:>5}   " + "   ".join(f"{found[name][place]:{len(name)}.3f}" for name in CASES))

# %%
figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, accuracies in found.items():
    axis.plot(EPSILONS, accuracies, "o-", label=name)
axis.axhline(accuracy(None, 1, "nobody", seeds=1), color="gray", label="no noise")
axis.set(xscale="log", xlabel="ε (δ = 1e-5, for one record, if every message is seen)", ylabel="accuracy")
axis.legend(frameon=False)
plt.show()
