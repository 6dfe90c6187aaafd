"""
Why not StandardScaler
======================

One record changed, and what a pipeline publishes about it before any noise is added.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from sottovoce import PublicScaler

# %%
# Two hundred incomes; in a second table one person, number 17, earns two million.
rng = np.random.default_rng(0)
incomes = rng.lognormal(10, 0.5, (200, 1))
changed = incomes.copy()
changed[17] = 2_000_000
others = np.delete(np.arange(200), 17)

# %%
# A scaler that learns from the data moves everybody else's value: the change is there to be seen, without noise. One
# that knows public bounds moves nobody's.
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
for axis, scaler in zip(axes, (StandardScaler(), PublicScaler(bounds=(0, 200_000))), strict=True):
    before, after = (clone(scaler).fit(table).transform(table)[others, 0] for table in (incomes, changed))
    print(f"{type(scaler).__name__}: everybody else's value moved by up to {np.abs(before - after).max():.2f}")
    axis.scatter(before, after, s=8)
    axis.axline((0, 0), slope=1, color="gray", linewidth=0.8)
    axis.set(title=type(scaler).__name__, xlabel="scaled, before")
axes[0].set_ylabel("scaled, after one record changed")
plt.show()
