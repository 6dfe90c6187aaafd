"""
A guarantee for a whole patient
===============================

Patients come more than once. A guarantee for a visit is weaker than it sounds for a patient who came ten times; ids
make it one for the patient.
"""

import matplotlib.pyplot as plt
import numpy as np

from sottovoce import PrivateClassifier

# %%
# Three thousand patients, four visits each on average; a patient goes to one of two clinics.
rng = np.random.default_rng(0)
patient = rng.integers(0, 3000, 12_000)
severity = rng.normal(size=3000)[patient]
X = np.column_stack([severity + rng.normal(size=12_000), rng.normal(size=(12_000, 3))]) / 4
relapse = severity + 0.5 * rng.normal(size=12_000) > 0
clinic = np.array(["east", "west"])[patient % 2]

# %%
# The same ε, for visits and for patients.
EPSILONS = (0.05, 0.1, 0.3, 1.0)
curves: dict[str, list[float]] = {}
for name, user_ids in (("visits", None), ("patients", patient)):
    for epsilon in EPSILONS:
        model = PrivateClassifier(epsilon, row_norm=1.0, classes=[False, True], random_state=0)
        model.fit(X, relapse, nodes=clinic, user_ids=user_ids)
        curves.setdefault(name, []).append(model.score(X, relapse))
    print(f"{name}: accuracy {curves[name][-1]:.3f}")
    print(model.privacy_.verdict())

# %%
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, accuracies in curves.items():
    axis.plot(EPSILONS, accuracies, "o-", label=f"every one of the {name} protected")
axis.set(xscale="log", xlabel="ε (δ = 1e-5)", ylabel="accuracy")
axis.legend(frameon=False)
plt.show()
