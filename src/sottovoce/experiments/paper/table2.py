"""Table 2, the data sets: what the paper lists, and what is really there."""

from typing import Any

import numpy as np
from scipy import sparse

from sottovoce.experiments.paper.data import Sample

PAPER = {"epsilon": (400_000, 2_000), "rcv1": (677_399, 47_236)}


def describe(sample: Sample) -> dict[str, Any]:
    """One row: counts, entries a row, the norms of the rows and the share of the larger class.

    Of made-up or public data, that is; of private data none of this may be published.
    """
    shards = sample.train
    X = shards.X
    stored = X.nnz if sparse.issparse(X) else int(np.count_nonzero(X[: min(1000, len(X))]) / min(1000, len(X)) * len(X))
    norms = shards.norms
    positive = float(np.mean(shards.y > 0))
    return {
        "data": sample.name,
        "size": sample.size,
        "records": len(shards.y),
        "features": shards.m,
        "nonzeros a row": round(stored / len(shards.y), 1),
        "row norms": f"{norms.min():.3g} to {norms.max():.3g}",
        "larger class": round(max(positive, 1 - positive), 3),
        "test records": len(sample.test.y),
    }
