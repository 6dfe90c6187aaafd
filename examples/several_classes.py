"""
Ten digits
==========

One softmax model, against ten models of one class against the rest in a single release.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sottovoce import PrivateClassifier, PublicScaler

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)

# %%
# Pixels go from 0 to 16, which is public; so are the ten classes. A seed makes this a simulation, and the verdict
# says so.
models = {
    loss: make_pipeline(
        PublicScaler(bounds=(0, 16), feature_range=(0, 1)),
        PrivateClassifier(epsilon=4.0, loss=loss, row_norm=4.0, classes=range(10), random_state=0),
    ).fit(X, y)
    for loss in ("softmax", "hinge")
}
for loss, model in models.items():
    bound = model[-1].privacy_.worst.event.clip
    print(f"{loss}: accuracy {model.score(X_test, y_test):.3f}; a record's gradient has length {bound:.3f} at most")
    print(model[-1].privacy_.verdict())

# %%
# The softmax model's weights for each digit: noisy, and still legible.
figure, axes = plt.subplots(1, 10, figsize=(10, 1.5), layout="constrained")
for digit, axis in enumerate(axes):
    axis.imshow(models["softmax"][-1].coef_[digit].reshape(8, 8), cmap="RdBu_r")
    axis.set(title=str(digit), xticks=[], yticks=[])
plt.show()
