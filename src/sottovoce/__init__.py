"""sottovoce: linear models trained over many owners' private data by gossip, with honest differential privacy.

The folders are the paper: `problem` (eq. 1), `network` (Assumption 2), `privacy` (Theorem 1 and what is true),
`algorithm` (Algorithm 1, Theorem 2 and its corollaries), `engine` (who computes it, and where), `run` (a run written
down, run and kept). What people use is named here; a folder's own public names are in its ``__init__``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sottovoce._renamed import module_attribute
from sottovoce._version import __version__
from sottovoce.errors import DataError, NetworkError, PrivacyError, PrivacyLeakWarning, SottovoceError, SpecError

if TYPE_CHECKING:
    from sottovoce.auditing import Audit, audit
    from sottovoce.data.embedded import embedded
    from sottovoce.estimators import (
        PlanOptions,
        PrivateClassifier,
        PrivateKaplanMeier,
        PrivatePoissonRegressor,
        PrivateRegressor,
        PrivateSearchCV,
        PrivateSurvival,
        PublicEncoder,
        PublicScaler,
        RowNormalizer,
    )
    from sottovoce.estimators.saved import load, save
    from sottovoce.experiments.sweep import sweep
    from sottovoce.node.budget import Budget
    from sottovoce.planner import PublicInputs, plan
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
    "PublicInputs": "planner",
    "History": "run",
    "NetworkSpec": "run",
    "PlanOptions": "estimators",
    "PrivacySpec": "run",
    "PrivacyStatement": "privacy.statement",
    "PrivateClassifier": "estimators",
    "PrivateKaplanMeier": "estimators",
    "PrivatePoissonRegressor": "estimators",
    "PrivateRegressor": "estimators",
    "PrivateSearchCV": "estimators",
    "PrivateSurvival": "estimators",
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
"""The module of each name, loaded on first use: scikit-learn alone takes a second to load."""

__all__ = [
    "AlgorithmSpec",
    "Audit",
    "Budget",
    "DataError",
    "Execution",
    "History",
    "NetworkError",
    "NetworkSpec",
    "PlanOptions",
    "PrivacyError",
    "PrivacyLeakWarning",
    "PrivacySpec",
    "PrivacyStatement",
    "PrivateClassifier",
    "PrivateKaplanMeier",
    "PrivatePoissonRegressor",
    "PrivateRegressor",
    "PrivateSearchCV",
    "PrivateSurvival",
    "ProblemSpec",
    "PublicEncoder",
    "PublicInputs",
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
    """Load a name on first use."""
    if name not in _HOMES:
        return module_attribute(__name__, name)
    found = getattr(import_module(f"sottovoce.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Also what is not loaded yet."""
    return sorted({*globals(), *_HOMES})
