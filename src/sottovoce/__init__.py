"""sottovoce: linear models trained over many owners' private data by gossip, with honest differential privacy.

The folders are the paper: `problem` (eq. 1), `network` (Assumption 2), `privacy` (Theorem 1 and what is true),
`algorithm` (Algorithm 1), `bounds` (Theorem 2 and its corollaries), `engine` (who computes it, and where).
"""

from sottovoce._version import __version__
from sottovoce.errors import DataError, NetworkError, PrivacyError, SottovoceError, SpecError
from sottovoce.problem.shards import Shards
from sottovoce.result import History, Result
from sottovoce.solve import solve
from sottovoce.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec

__all__ = [
    "AlgorithmSpec",
    "DataError",
    "Execution",
    "History",
    "NetworkError",
    "NetworkSpec",
    "PrivacyError",
    "PrivacySpec",
    "ProblemSpec",
    "Result",
    "Shards",
    "SottovoceError",
    "Spec",
    "SpecError",
    "__version__",
    "solve",
]
