"""
What drives default?
====================

An additive model of credit card clients at ε = 1: a curve for every column, learned under differential privacy, and
the shares of one client's score.

The table (30,000 clients in Taiwan, UCI "default of credit card clients") is read from the folder that the environment
variable ``SOTTOVOCE_DATA`` names; without it there is nothing to draw.
"""

import csv
import lzma
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from sottovoce import PrivateClassifier

NUMBERS = {"credit limit": ("LIMIT_BAL", 0, 1_000_000), "age": ("AGE", 18, 80)}
NUMBERS |= {f"delay {k + 1}": (f"PAY_{k + (k > 0)}", -2, 9) for k in range(6)}
NUMBERS |= {f"bill {k}": (f"BILL_AMT{k}", -200_000, 1_000_000) for k in range(1, 7)}
NUMBERS |= {f"paid {k}": (f"PAY_AMT{k}", 0, 1_000_000) for k in range(1, 7)}
FLAGS = [f"EDUCATION_{k}" for k in range(7)] + [f"MARRIAGE_{k}" for k in range(4)]
TABLE = Path(os.environ.get("SOTTOVOCE_DATA", ""), "credit_card.csv.xz")

# %%
# Bounds of the columns are public: from the meaning of a column, never from the records. A delay counts months; −2 is
# "no bill" and −1 is "paid in time".
if TABLE.is_file():
    with lzma.open(TABLE, "rt") as file:
        records = list(csv.DictReader(file))
    named = {name: [float(record[column]) for record in records] for name, (column, _, _) in NUMBERS.items()}
    named |= {flag.lower().replace("_", "="): [float(record[flag]) for record in records] for flag in FLAGS}
    X = np.column_stack(list(named.values()))
    y = np.array([int(record["default-payment-next-month"]) for record in records])
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:22_500], rows[22_500:]
    bounds = [(low, high) for _, low, high in NUMBERS.values()]
    model = PrivateClassifier(
        epsilon=1.0,
        bounds=bounds + [None] * len(FLAGS),
        row_norm=float(np.sqrt(len(bounds) + 2)),  # every number, one education and one marital status: 1 at most
        classes=[0, 1],
        random_state=0,  # a simulation, so that this page is always the same
    )
    model.fit(X[train], y[train])
    print(model.privacy_.verdict())
    print(f"AUC {roc_auc_score(y[test], model.decision_function(X[test])):.3f} on {len(test):,} held-out clients")

# %%
# The most important columns. A client who is two months late is likely to default. The band is an upper bound
# on what the noise of the mechanism adds; it is no confidence interval for other clients.
if TABLE.is_file():
    names = list(named)
    model.plot(most=8, names=names, figure=plt.figure())
    plt.show()
    print(model.terms(names=names).text(most=2))

# %%
# What each column adds to the score of one client, and the constant: they sum to the score.
if TABLE.is_file():
    client = X[test][0]
    shares = model.explain(client, names)
    print(f"score {model.decision_function([client])[0]:+.2f}")
    for name, share in sorted(shares.items(), key=lambda item: -abs(item[1]))[:8]:
        print(f"{name:>12} {share:+.2f}")
