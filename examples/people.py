"""Visits of patients: a guarantee for a whole patient, not only for a visit."""

import numpy as np

from sottovoce import PrivateClassifier


def main() -> None:
    rng = np.random.default_rng(0)
    patient = rng.integers(0, 3000, 12_000)  # four visits each, on average
    severity = rng.normal(size=3000)[patient]
    X = np.column_stack([severity + rng.normal(size=12_000), rng.normal(size=(12_000, 3))]) / 4
    relapse = severity + 0.5 * rng.normal(size=12_000) > 0
    clinic = np.array(["east", "west"])[patient % 2]  # a patient goes to one clinic
    settings = {"epsilon": 1.0, "row_norm": 1.0, "classes": [False, True], "random_state": 0}
    for name, units in (("visits", None), ("patients", patient)):
        model = PrivateClassifier(**settings).fit(X, relapse, nodes=clinic, units=units)
        print(f"{name}: accuracy {model.score(X, relapse):.3f}")
        print(model.privacy_.verdict())


if __name__ == "__main__":
    main()
