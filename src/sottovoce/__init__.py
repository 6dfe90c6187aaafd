"""sottovoce: linear models trained over many owners' private data by gossip, with honest differential privacy.

The folders are the paper: `problem` (eq. 1), `network` (Assumption 2), `privacy` (Theorem 1 and what is true),
`algorithm` (Algorithm 1), `bounds` (Theorem 2 and its corollaries), `engine` (who computes it, and where).
"""

from typing import TYPE_CHECKING, Any

from sottovoce._version import __version__
from sottovoce.errors import DataError, NetworkError, PrivacyError, PrivacyLeakWarning, SottovoceError, SpecError
from sottovoce.problem.shards import Shards
from sottovoce.run.result import History, Result
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec

if TYPE_CHECKING:
    from sottovoce.estimators import PrivateClassifier, PrivateRegressor, PublicScaler, RowNormalizer

__all__ = [
    "AlgorithmSpec",
    "DataError",
    "Execution",
    "History",
    "NetworkError",
    "NetworkSpec",
    "PrivacyError",
    "PrivacyLeakWarning",
    "PrivacySpec",
    "PrivateClassifier",
    "PrivateRegressor",
    "ProblemSpec",
    "PublicScaler",
    "Result",
    "RowNormalizer",
    "Shards",
    "SottovoceError",
    "Spec",
    "SpecError",
    "__version__",
    "solve",
]

_ESTIMATORS = {"PrivateClassifier", "PrivateRegressor", "PublicScaler", "RowNormalizer"}


def __getattr__(name: str) -> Any:
    """Estimators are loaded when they are asked for: scikit-learn takes a second, which a node need not wait for."""
    if name in _ESTIMATORS:
        from sottovoce import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Also what is not loaded yet."""
    return sorted({*globals(), *_ESTIMATORS})
