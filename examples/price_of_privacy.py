"""How much accuracy an ε costs, and how much more it costs when the records are spread over more owners.

Every line is a simulation, three seeds each: on real records such a table would itself have to be paid for.
"""

import numpy as np
from sklearn.model_selection import train_test_split

from sottovoce import PrivateClassifier
from sottovoce.data import two_gaussians


def main() -> None:
    table = two_gaussians(8_000, 20, seed=3)
    X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.5, random_state=0)
    print("    ε   one owner   ten owners   (δ = 1e-5, against whoever sees every message, for one record)")
    for epsilon in (0.1, 1.0, None):
        accuracies = [
            np.mean(
                [
                    PrivateClassifier(epsilon, 1e-5, n_nodes=n, row_norm=1.0, classes=(-1, 1), random_state=seed)
                    .fit(X, y)
                    .score(X_test, y_test)
                    for seed in range(3)
                ]
            )
            for n in (1, 10)
        ]
        print(f"{'none' if epsilon is None else epsilon:>5}   {accuracies[0]:9.3f}   {accuracies[1]:10.3f}")


if __name__ == "__main__":
    main()
