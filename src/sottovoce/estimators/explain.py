"""What an estimator's model is made of, column by column: pictures, importances, and the shares of one score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sottovoce._types import Array
from sottovoce.data.schema import Schema
from sottovoce.run.result import Result
from sottovoce.run.terms import Axis, Terms, explained, terms_of


class Explains:
    """`terms`, `plot`, `importances` and `explain` of a fitted model."""

    def terms(self, axes: Mapping[str, Axis] | None = None, names: Sequence[str] | None = None) -> Terms:
        """What each column adds to a score, the most important first; from the released model and public numbers alone.

        Of two classes higher means the positive one, the last of `classes` as given, as in a report; `higher` names it.

        Parameters
        ----------
        names : of the columns, where the model knows none
        axes : {column: (low, high)} in the column's own units, where the model has it in [−1, 1], as encoders do; a
            model with a `schema`, or loaded with one, knows names and axes

        Examples
        --------
        >>> from sottovoce import PrivateClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, (4000, 2))
        >>> y = np.abs(X[:, 0] - 5) > 2.5
        >>> public = {"bounds": (0, 10), "classes": [False, True], "random_state": 0}
        >>> model = PrivateClassifier(1.0, **public).fit(X, y)
        >>> [term.name for term in model.terms()], len(model.terms().text().splitlines()) > 5
        (['column 1', 'column 1 × column 2', 'column 2'], True)
        """
        return terms_of(self._explained(), names, self._axes() | dict(axes or {}))

    def plot(
        self,
        most: int = 12,
        axes: Mapping[str, Axis] | None = None,
        names: Sequence[str] | None = None,
        figure: Any = None,
    ) -> Any:
        """A Matplotlib figure of the most important terms; the band is for the noise of the rounds only.

        `print(model.terms().text())` says the same in words.

        Parameters
        ----------
        most : terms that are drawn
        axes, names : as in `terms`
        figure : the empty figure to draw on, such as ``plt.figure()``; a new one by default
        """
        from sottovoce.figure import draw_terms

        found = self.terms(axes, names)
        return draw_terms(found.terms, found.outputs, most, canvas=figure, higher=found.higher)

    @property
    def importances_(self) -> dict[str, float]:
        """The root mean square of what each column adds, under the released distribution or evenly over its bounds."""
        return {term.name: term.importance for term in self.terms()}

    def explain(self, row: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
        """What each column adds to the score of one record, and the constant; they sum to the score.

        Of two classes that is the score of the positive one, the last of `classes` as given: `decision_function`, with
        the other sign where they were not given in sorted order.

        Parameters
        ----------
        row : one record: a list of numbers, or a data frame of one row
        names : of the columns, where the model knows none

        Examples
        --------
        >>> from sottovoce import PrivateRegressor
        >>> X = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
        >>> model = PrivateRegressor(2.0, bounds=(-1, 1), target_bounds=(-3, 3), random_state=0).fit(X, 2 * X[:, 0])
        >>> shares = model.explain([0.5, 0.1])
        >>> [*shares], bool(np.isclose(sum(shares.values()), model.predict([[0.5, 0.1]])[0]))
        (['column 1', 'column 1 × column 2', 'column 2', 'constant'], True)
        """
        result, rows = self._explained(), row if hasattr(row, "iloc") else np.asarray(row).reshape(1, -1)
        checked: Any = self._checked(rows, reset=False)  # type: ignore[attr-defined]
        dense: Array = np.asarray(checked if isinstance(checked, np.ndarray) else checked.toarray(), dtype=np.float64)
        found = explained(result, dense[0], names)
        return {name: float(value[0]) if len(value) == 1 else value for name, value in found.items()}

    def _explained(self) -> Result:
        """The result with the names and the units of the estimator; of two classes towards the positive one."""
        check_is_fitted(self)
        result: Result = self._result  # type: ignore[attr-defined]
        names = getattr(self, "feature_names_in_", result.features)
        names = self._encoding.features if names is None and self._encoding is not None else names
        labels = self._labels() if hasattr(self, "classes_") else None  # type: ignore[attr-defined]
        made = replace(
            result,
            scale=self._record_scale(),  # type: ignore[attr-defined]
            classes=labels,
            features=None if names is None else tuple(map(str, names)),
        )
        return made.with_classes(self._class_order()) if len(labels or ()) == 2 else made  # type: ignore[attr-defined]

    def _axes(self) -> dict[str, Axis]:
        """The columns' own units, by the schema of a loaded model."""
        schema = self._encoding
        return {} if schema is None else schema.axes

    @property
    def _encoding(self) -> Schema | None:
        """The schema by which records were encoded: of a loaded model its own, of others the parameter."""
        found: Schema | None = getattr(self, "schema_", None)
        given: Schema | None = self.schema if found is None else found  # type: ignore[attr-defined]
        fits = given is not None and given.m == self.n_features_in_  # type: ignore[attr-defined]
        return given if fits else None
