"""PublicEncoder: raw columns into bounded rows by a public schema, as a step of a scikit-learn pipeline.

The same schema.toml that `sottovoce train --schema` and real nodes read. Nothing is learnt from the records: `fit`
notes the columns' names, and every record is encoded by itself.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sottovoce._types import Matrix
from sottovoce.data.schema import Schema, read_schema, schema_of
from sottovoce.errors import SpecError
from sottovoce.estimators.unusable import warn_owner


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Encode numbers, categories, flags, dates and words into rows of public bounds.

    Parameters
    ----------
    schema : the path of a schema.toml, its tables as a dictionary, or a `Schema`; what it says of missing values,
        the label holds too, and columns that it does not name are left alone. Where it names people (`unit`) or owners
        (`group`), `fit` of an estimator with `public_` needs these columns as `user_ids` and `nodes`

    Attributes
    ----------
    schema_ : the schema that was read
    row_norm_ : the length that no row can exceed: a public bound to give as `row_norm`
    bounds_ : the public bounds of every feature that is a number, a date or an ordered category, None for the others:
        to give as `bounds`
    pairs_ : the pairs that the schema names, by the places of their features, None without any: to give as `pairs`
    public_ : all of these, the schema and the label's classes or bounds, as parameters of an estimator:
        ``PrivateClassifier(**public_)``
    feature_names_in_, n_features_in_ : the columns that are taken

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sottovoce import PrivateClassifier
    >>> schema = {
    ...     "label": {"column": "sick", "classes": ["no", "yes"]},
    ...     "columns": {
    ...         "age": {"low": 0, "high": 120, "missing": 50},
    ...         "ward": {"type": "category", "categories": ["A", "B"], "missing": "none"},
    ...     },
    ... }
    >>> patients = {"age": [30, None, 90], "ward": ["A", "B", None]}
    >>> encoder = PublicEncoder(schema).fit(patients)
    >>> encoder.get_feature_names_out().tolist(), round(encoder.row_norm_, 3)
    (['age', 'ward=A', 'ward=B'], 1.414)
    >>> encoder.transform(patients).round(2)
    array([[-0.5 ,  1. ,  0. ], [-0.17,  0. ,  1. ], [ 0.5 ,  0. ,  0. ]])
    >>> model = make_pipeline(encoder, PrivateClassifier(epsilon=1.0, **encoder.public_))
    """

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Read the schema; of the records nothing is noted."""
        self.schema_ = _read(self.schema)
        if self.schema_.numbered:
            raise SpecError("this schema has numbered features (svmlight); give one with named columns")
        self.row_norm_ = float(self.schema_.row_norm)
        numeric = set(self.schema_.numeric_features)
        self.bounds_ = [(-1.0, 1.0) if place in numeric else None for place in range(self.schema_.m)]
        places = self.schema_.numeric_features
        self.pairs_ = [(places[i], places[j]) for i, j in self.schema_.numeric_pairs] or None
        label = self.schema_.label
        target = {"target_bounds": (label.low, label.high)} if label.classes is None else {"classes": [*label.classes]}
        pairs = {} if self.pairs_ is None else {"pairs": self.pairs_}
        known = {"row_norm": self.row_norm_, "bounds": self.bounds_, "schema": self.schema_}
        self.public_ = known | pairs | target
        self.feature_names_in_ = np.array([column.name for column in self.schema_.columns], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: Any) -> Matrix:
        """Encode every record by itself: a data frame, a dictionary of columns or an Arrow table.

        A record that the schema has no place for becomes a row of NaN, and a warning informs its owner. An estimator
        with a guarantee counts such a row as zeros; others refuse it.
        """
        from sottovoce.data.frames import encode_frame  # Arrow is slow to load

        check_is_fitted(self)
        return encode_frame(self.schema_, X, lambda what, records: warn_owner(records, f"records: {what}"))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the features that come out, such as 'age' and 'ward=A'."""
        check_is_fitted(self)
        if input_features is not None and [*input_features] != self.feature_names_in_.tolist():
            raise ValueError("input_features is not equal to feature_names_in_")  # scikit-learn's own words
        return np.array(self.schema_.features, dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Columns by name, of any type, some values missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.dict = tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _read(schema: Any) -> Schema:
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return schema_of(dict(schema))
    if isinstance(schema, str | PathLike):
        return read_schema(schema)  # type: ignore[arg-type]
    raise SpecError(f"schema must be the path of a schema.toml, its tables or a Schema, not {schema!r}")
