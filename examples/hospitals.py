"""
From a CSV file with a column of owners to a model and a statement
==================================================================

The table is real (breast tumours, 569 records, bundled with scikit-learn); the three hospitals are made up.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sottovoce import PrivateClassifier, PublicScaler

# %%
# Four of the thirty measurements, with bounds from what they mean: they are public, and nobody's record set them.
COLUMNS = {"mean radius": (5, 30), "mean texture": (5, 40), "mean smoothness": (0.05, 0.2), "mean concavity": (0, 0.5)}


def write_table(path: Path) -> None:
    bunch = load_breast_cancer(as_frame=True)
    table = bunch.data[list(COLUMNS)].assign(diagnosis=bunch.target.map({0: "malignant", 1: "benign"}))
    table["hospital"] = [("north", "south", "west")[row % 3] for row in range(len(table))]
    table.to_csv(path, index=False)


with tempfile.TemporaryDirectory() as folder:
    write_table(Path(folder, "tumours.csv"))
    table = pd.read_csv(Path(folder, "tumours.csv"))
train, test = train_test_split(table, test_size=0.25, random_state=0)

# %%
# Public bounds bring the columns to a common scale; the classifier plans rounds and noise from public numbers, and
# says why.
model = make_pipeline(
    PublicScaler(bounds=COLUMNS),
    PrivateClassifier(epsilon=2.0, row_norm=2.0, classes=["benign", "malignant"], random_state=0),
)
model.fit(train[list(COLUMNS)], train["diagnosis"], privateclassifier__nodes=train["hospital"])
private = model[-1]
print(f"{len(private.nodes_)} hospitals, {len(train)} records")
print(f"accuracy on {len(test)} held-out records: {model.score(test[list(COLUMNS)], test['diagnosis']):.3f}")
print("\n".join(private.plan_.reasons))

# %%
# The guarantee, in words. A seed makes this a simulation: leave `random_state` out for a real one.
print(private.privacy_.paragraph())

# %%
# The weights of the model.
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
axis.barh(list(COLUMNS), private.coef_[0])
axis.set(xlabel="weight (positive: malignant)")
plt.show()
