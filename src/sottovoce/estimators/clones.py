"""Several releases by clones of one estimator, as scikit-learn's own tools make them.

`cross_val_score`, `GridSearchCV`, `CalibratedClassifierCV`, bagging and one-against-rest clone an estimator and fit
each clone. Without a seed each of these fits is a release, and their ε add up for every record that is in several. So
scikit-learn's hook `__sklearn_clone__` makes an estimator and its clones one family, and from its second fit on, where
scikit-learn calls it, a warning says what all of its fits cost together. Nothing is said of fits that a caller writes
out, which `spent_` adds up, or that a budget pays for.

The family is known in one process only: a pool of processes (`n_jobs`) pickles clones, and a pickle has no family. A
`Budget` with a ledger counts everywhere.
"""

import sys
import threading
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import sklearn

from sottovoce.errors import RepeatedReleaseWarning
from sottovoce.estimators.composition import Accounted, Fit, Records, is_unpublished
from sottovoce.estimators.settings import PACKAGE, caller_stacklevel
from sottovoce.privacy.statement import PrivacyStatement, number

FAMILY = "_family"
"""The attribute of an estimator and its clones that is the same object in all of them."""
SCIKIT_LEARN = str(Path(sklearn.__file__).parent)
Estimator = TypeVar("Estimator")


@dataclass
class Family:
    """The fits of an estimator and its clones, as if one record was in all of them."""

    records: Records = field(default_factory=lambda: Records(np.zeros(1, dtype=np.int64)))
    lock: Any = field(default_factory=threading.Lock)


def cloned(original: Any, clone: Estimator) -> Estimator:
    """The clone as one of its original's family."""
    family = vars(original).setdefault(FAMILY, Family())
    setattr(clone, FAMILY, family)
    return clone


def count_clone(estimator: Any, statement: PrivacyStatement, against: Accounted) -> None:
    """Count a fit in its family, and warn of the total from the second release on."""
    family: Family | None = vars(estimator).get(FAMILY)
    if family is None or statement.simulation or estimator.budget is not None or is_unpublished():
        return
    with family.lock:
        family.records.add(Fit(statement, against), np.array([statement.worst.nodes[0]]))
        spent = family.records.spent()
    if spent.fits > 1 and _called_by_scikit_learn():
        warnings.warn(
            f"{spent.fits} fits of clones of one {type(estimator).__name__} (as by cross_val_score, calibration) are "
            f"{spent.fits} releases: together a record in all of them has ε = {number(spent.epsilon)} at "
            f"δ = {spent.delta:g}, not {number(statement.epsilon)}; use PrivateSearchCV or evaluate(), or random_state "
            "for a simulation",
            RepeatedReleaseWarning,
            stacklevel=caller_stacklevel(),
        )


def _called_by_scikit_learn() -> bool:
    """Whether the code that called this package is scikit-learn's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(SCIKIT_LEARN)
