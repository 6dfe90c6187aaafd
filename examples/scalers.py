"""Why not StandardScaler: one record changed, and what a pipeline publishes about it before any noise is added."""

import numpy as np
from sklearn.preprocessing import StandardScaler

from sottovoce import PublicScaler


def main() -> None:
    rng = np.random.default_rng(0)
    incomes = rng.lognormal(10, 0.5, (200, 1))
    changed = incomes.copy()
    changed[17] = 2_000_000
    for scaler in (StandardScaler(), PublicScaler(bounds=(0, 200_000))):
        before, after = (type(scaler)(**scaler.get_params()).fit(table) for table in (incomes, changed))
        others = np.delete(np.arange(200), 17)
        moved = np.abs(before.transform(incomes) - after.transform(changed))[others].max()
        print(f"{type(scaler).__name__}: everybody else's value moved by up to {moved:.2f}")


if __name__ == "__main__":
    main()
