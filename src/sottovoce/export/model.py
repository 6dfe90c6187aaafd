"""model.json: all that it takes to apply a model, for programs that know nothing of sottovoce.

It holds names, public numbers and the mean model, which is made of noisy releases alone. Applied to rows of features:

    scaled = rows * minimum(1, row_bound / norm of each row)          where there is a row_bound
    scores = scaled @ transposed coefficients + intercepts
    answer = scores                                                   of a regression
           = classes[1] where scores >= threshold, else classes[0]    of two classes
           = classes[number of the largest score]                     of more

Of an additive model `map` says how features are made of columns, before all of that:

    t = numeric columns brought from [low, high] to [−1, 1] and clipped; u = (1 + t)/2; F = u, or its `distribution` by
        straight lines between `centers`
    features = t of every numeric column, the `others` (scaled down to `rest` where they are longer), 2 F − 1 of every
        numeric column if `distribution_is_a_feature`, then for each numeric column k^−decay times cos(π k u) for k = 1
        … degree (u the mean of u and F if a distribution is known and no feature) or the Legendre polynomial P_k(t)
        for k = 2 … degree, then for each pair of numeric columns pair_weight P_a(t_i) P_b(t_j)/(a b), a, b = 1 … 3

Where there was a schema, `columns` says how features are made of raw columns: a number or a date is clipped to [low,
high] and brought to [−1, 1]; a category is an indicator for each of its values, a flag −1 or +1.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from sottovoce._version import __version__
from sottovoce.data.schema import Column, Schema
from sottovoce.errors import PrivacyError
from sottovoce.features import CENTERS, PAIR_WEIGHT, Additive
from sottovoce.run.result import Result

FORMAT, FORMAT_OF_MAPS = 1, 2
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
        "format": FORMAT_OF_MAPS if result.spec.problem.features else FORMAT,
        "software": f"sottovoce {__version__}",
        "kind": f"{kind(result)} {'regression' if classes is None else 'classifier'}",
        "how": HOW,
        "features": None if result.features is None else list(result.features),
        "columns": None if schema is None or schema.numbered else [_column(column) for column in schema.columns],
        **feature_map(result),
        "clip": [schema.low, schema.high] if schema is not None and schema.numbered else None,
        "row_bound": row_bound(result, schema),
        "coefficients": coefficients.tolist(),
        "intercepts": np.atleast_1d(result.intercept).tolist(),
        "classes": None if classes is None else list(classes),
        "positive": classes[1] if classes is not None and len(classes) == 2 else None,
        "threshold": scale.threshold if classes is not None and len(classes) == 2 else None,
        "probabilities": probabilities(result),
        **intervals(result),
    }


def intervals(result: Result) -> dict[str, Any]:
    """Estimates with confidence intervals, where the run released sums for them and noise does not hide them."""
    if "inference" not in result.public:
        return {}
    try:
        return {"intervals": result.summary().to_dict()}
    except PrivacyError:  # of released numbers that are worth nothing: there are none
        return {}


def kind(result: Result) -> str:
    """Whether a model is linear or additive, in a word."""
    return "additive" if result.spec.problem.features else "linear"


def feature_map(result: Result) -> dict[str, Any]:
    """How features are made of columns; nothing of a linear model."""
    of = result.spec.problem.features
    if not isinstance(of, Additive):
        return {}
    names = ["" if result.features is None else result.features[place] for place, _, _ in of.numeric]
    numeric = [
        {"name": name, "place": place, "low": low, "high": high}
        for name, (place, low, high) in zip(names, of.numeric, strict=True)
    ]
    found = {
        "basis": of.basis,
        "degree": of.degree,
        "decay": of.decay,
        "numeric": numeric,
        "others": of.others,
        "rest": of.rest,
        "pairs": [list(pair) for pair in of.pairs],
        "pair_weight": PAIR_WEIGHT,
        "distribution_is_a_feature": of.distribution,
        "distribution": result.public.get("distribution"),
        "centers": CENTERS.tolist(),
        "features": list(of.names(result.features)),
    }
    return {"map": found}


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
        "number": ("low", "high", "transform", "special"),
        "ordered": ("categories",),
        "date": ("low", "high", "format"),
        "category": ("categories",),
        "flag": ("categories",),
        "text": ("buckets",),
    }[column.kind]
    said = asdict(column)
    own = {name: list(said[name]) if isinstance(said[name], tuple) else said[name] for name in needs}
    about = {"column": column.name, "type": column.kind, "features": list(column.features)}
    return about | own | {"missing": column.missing}
