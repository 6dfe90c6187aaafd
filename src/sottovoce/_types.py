"""The array types of the whole package, in one place."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
"""Real numbers. State is float64 everywhere; only the data may be float32."""

IntArray: TypeAlias = NDArray[np.int64]
"""Indices of nodes, records, rounds."""

Matrix: TypeAlias = Any
"""The data: a dense 2-d ndarray or a `scipy.sparse.csr_array`/`csr_matrix`."""

FLOAT_BYTES = 8
"""A coordinate of a message on the wire."""
