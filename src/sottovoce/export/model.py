"""model.json: all that it takes to apply a model, for programs that know nothing of sottovoce.

It holds names, public numbers and the mean model, which is made of noisy releases alone. Applied to rows of features:

    scaled = rows * minimum(1, row_bound / norm of each row)          where there is a row_bound
    scores = scaled @ transposed coefficients + intercepts
    answer = scores                                                   of a regression
           = classes[1] where scores >= threshold, else classes[0]    of two classes
           = classes[number of the largest score]                     of more

Where there was a schema, `columns` says how features are made of raw columns: a number or a date is clipped to [low,
high] and brought to [−1, 1]; a category is an indicator for each of its values, a flag −1 or +1.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from sottovoce._version import __version__
from sottovoce.data.schema import Column, Schema
from sottovoce.run.result import Result

FORMAT = 1
SOFTMAX = "softmax"
HOW = (
    "scores = rows @ transposed coefficients + intercepts, where rows longer than row_bound, if there is one, are "
    "scaled down to it first; a regression answers with its score, a classifier of two with the second class from the "
    "threshold on, one of more with the class of the largest score"
)


def model(result: Result, schema: Schema | None = None) -> dict[str, Any]:
    """The mean model as plain values."""
    coefficients = np.atleast_2d(result.coef)
    classes, scale = result.classes, result.scale
    return {
        "format": FORMAT,
        "software": f"sottovoce {__version__}",
        "kind": "linear regression" if classes is None else "linear classifier",
        "how": HOW,
        "features": None if result.features is None else list(result.features),
        "columns": None if schema is None or schema.numbered else [_column(column) for column in schema.columns],
        "clip": [schema.low, schema.high] if schema is not None and schema.numbered else None,
        "row_bound": row_bound(result, schema),
        "coefficients": coefficients.tolist(),
        "intercepts": np.atleast_1d(result.intercept).tolist(),
        "classes": None if classes is None else list(classes),
        "positive": classes[1] if classes is not None and len(classes) == 2 else None,
        "threshold": scale.threshold if classes is not None and len(classes) == 2 else None,
        "probabilities": probabilities(result),
    }


def row_bound(result: Result, schema: Schema | None = None) -> float | None:
    """To which length longer rows are scaled down before the model sees them."""
    bounds = [result.scale.bound] if result.scale.bound is not None else []
    if schema is not None and schema.row_norm < schema.widest:
        bounds.append(schema.row_norm)
    return min(bounds, default=None)


def probabilities(result: Result) -> str | list[float] | None:
    """(a, b) of 1/(1 + e^−(a s + b)), or 'softmax'; None where no probabilities are known."""
    if result.classes is None:
        return None
    if result.spec.problem.loss.name == SOFTMAX:
        return SOFTMAX
    if result.scale.link is not None:
        return list(result.scale.link)
    return [1.0, 0.0] if result.spec.problem.loss.name == "logistic" else None


def _column(column: Column) -> dict[str, Any]:
    """How a raw column becomes features: what its kind needs, and no more."""
    needs = {
        "number": ("low", "high"),
        "date": ("low", "high", "format"),
        "category": ("categories",),
        "flag": ("categories",),
        "text": ("buckets",),
    }[column.kind]
    said = asdict(column)
    own = {name: list(said[name]) if isinstance(said[name], tuple) else said[name] for name in needs}
    about = {"column": column.name, "type": column.kind, "features": list(column.features)}
    return about | own | {"missing": column.missing}
