"""sottovoce: linear models trained over many owners' private data by gossip, with honest differential privacy.

The folders are the paper: `problem` (eq. 1), `network` (Assumption 2), `privacy` (Theorem 1 and what is true),
`algorithm` (Algorithm 1, Theorem 2 and its corollaries), `engine` (who computes it, and where), `run` (a run written
down, run and kept). What people use is named here; a folder's own public names are in its ``__init__``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sottovoce._version import __version__
from sottovoce.errors import DataError, NetworkError, PrivacyError, PrivacyLeakWarning, SottovoceError, SpecError

if TYPE_CHECKING:
    from sottovoce.auditing import Audit, audit
    from sottovoce.data.embedded import embedded
    from sottovoce.estimators import (
        PrivateClassifier,
        PrivateRegressor,
        PrivateSearchCV,
        PublicEncoder,
        PublicScaler,
        RowNormalizer,
    )
    from sottovoce.estimators.saved import load, save
    from sottovoce.experiments.sweep import sweep
    from sottovoce.node.budget import Budget
    from sottovoce.planner import Facts, plan
    from sottovoce.plugins import register
    from sottovoce.privacy.planning import account, calibrate
    from sottovoce.privacy.statement import PrivacyStatement
    from sottovoce.problem.shards import Shards, even
    from sottovoce.run import (
        AlgorithmSpec,
        Execution,
        History,
        NetworkSpec,
        PrivacySpec,
        ProblemSpec,
        Result,
        Spec,
    )
    from sottovoce.run.solve import solve

_HOMES = {
    "AlgorithmSpec": "run",
    "Audit": "auditing",
    "Budget": "node.budget",
    "Execution": "run",
    "Facts": "planner",
    "History": "run",
    "NetworkSpec": "run",
    "PrivacySpec": "run",
    "PrivacyStatement": "privacy.statement",
    "PrivateClassifier": "estimators",
    "PrivateRegressor": "estimators",
    "PrivateSearchCV": "estimators",
    "ProblemSpec": "run",
    "PublicEncoder": "estimators",
    "PublicScaler": "estimators",
    "Result": "run",
    "RowNormalizer": "estimators",
    "Shards": "problem",
    "Spec": "run",
    "account": "privacy.planning",
    "audit": "auditing",
    "calibrate": "privacy.planning",
    "embedded": "data.embedded",
    "even": "problem",
    "load": "estimators.saved",
    "plan": "planner",
    "register": "plugins",
    "save": "estimators.saved",
    "solve": "run.solve",
    "sweep": "experiments.sweep",
}
"""Where each name is at home; it is loaded when it is asked for: scikit-learn alone takes a second."""

__all__ = [
    "AlgorithmSpec",
    "Audit",
    "Budget",
    "DataError",
    "Execution",
    "Facts",
    "History",
    "NetworkError",
    "NetworkSpec",
    "PrivacyError",
    "PrivacyLeakWarning",
    "PrivacySpec",
    "PrivacyStatement",
    "PrivateClassifier",
    "PrivateRegressor",
    "PrivateSearchCV",
    "ProblemSpec",
    "PublicEncoder",
    "PublicScaler",
    "Result",
    "RowNormalizer",
    "Shards",
    "SottovoceError",
    "Spec",
    "SpecError",
    "__version__",
    "account",
    "audit",
    "calibrate",
    "embedded",
    "even",
    "load",
    "plan",
    "register",
    "save",
    "solve",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    found = getattr(import_module(f"sottovoce.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Also what is not loaded yet."""
    return sorted({*globals(), *_HOMES})
