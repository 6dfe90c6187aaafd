"""A fitted estimator in a folder, and back: the folder of a run, with the estimator's parameters beside it.

What `save` writes is what `sottovoce train --out` writes, so that `predict`, `evaluate`, `report`, `account --verify`
and `export` take it; and what `train` wrote `load` takes, too. Nothing in it is code: arrays, JSON and a schema. It is
verified before it is believed, as `account --verify` does.

A private evaluation is kept with the model, and the statement is then of both. What is not kept: the plan with its
reasons (`plan_`), and by what this process knows records again.
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sottovoce._renamed import loaded_parameters, saved_parameters
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import Schema, read_schema
from sottovoce.errors import DataError, SpecError
from sottovoce.estimators.base import PrivateLinearModel, WarmStart
from sottovoce.estimators.classifier import PrivateClassifier
from sottovoce.estimators.regressor import PrivateRegressor
from sottovoce.estimators.settings import PlanOptions
from sottovoce.evaluation import Evaluation
from sottovoce.evaluation.curves import public_link
from sottovoce.features import Additive
from sottovoce.planner.network import NetworkModel
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.statement import PERSON, PrivacyStatement
from sottovoce.run.result import ESTIMATOR, EVALUATION, Result, belonging, belonging_object

KINDS: dict[str, type[Any]] = {"PrivateClassifier": PrivateClassifier, "PrivateRegressor": PrivateRegressor}
LABELS = (str, int, float, bool)
"""Classes that a file can hold."""


def save(model: Any, folder: str | Path, *, schema: str | Path | None = None, force: bool = False) -> Path:
    """Keep a fitted `PrivateClassifier`, `PrivateRegressor` or search in a folder, as `sottovoce train --out` does.

    Parameters
    ----------
    model : a fitted estimator of sottovoce; of a pipeline its last step, together with the schema
    folder : where to, made if need be
    schema : the schema.toml by which records were encoded, if they were: with it `sottovoce predict` takes raw files
    force : whether to take the place of another release that lies there

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sottovoce import PrivateClassifier, load
    >>> X, y = np.eye(200), np.arange(200) % 2
    >>> model = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1], random_state=0).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     again = load(save(model, Path(folder, "first")))
    >>> bool(np.array_equal(again.predict_proba(X), model.predict_proba(X))), again.privacy_ == model.privacy_
    (True, True)
    """
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        raise SpecError(
            "a pipeline is not kept as one: save its last step, pipeline[-1], and give the schema by which the steps "
            "before it encode records, if they do; other steps are yours to keep"
        )
    if not isinstance(model, PrivateLinearModel):
        raise SpecError(
            f"{type(model).__name__} is no model with a statement; save a PrivateClassifier, a PrivateRegressor or a "
            "PrivateSearchCV"
        )
    check_is_fitted(model)
    text = Path(schema).read_bytes() if schema is not None else getattr(model, "_schema_text", None)
    columns = model._result.features if model._run_scale is not None else None
    if schema is not None:
        fitting = _fitting(read_schema(schema), model)
        columns = fitting.features
        if fitting.unit is not None and model.privacy_.unit != PERSON.name:
            raise SpecError(
                f"by the schema records belong to people (unit = '{fitting.unit}'), but the model's guarantee is "
                f"for single records; fit with user_ids=table['{fitting.unit}']"
            )
    odd = [label for label in getattr(model, "classes_", np.empty(0)).tolist() if not isinstance(label, LABELS)]
    if odd:
        raise SpecError(f"the class {odd[0]!r} cannot be kept in a file; fit with texts, numbers or truth values")
    beside = {} if text is None else {SCHEMA_FILE: text}
    if model._run_scale is None:  # it was fitted as an estimator
        beside[ESTIMATOR] = _text(_described(model))
    result, found = model.to_result(columns), model.kept_evaluation()
    if isinstance(found, Evaluation):
        found = _text(found.to_dict() | {"held_out_seeded": result.spec.seed is not None})
    if isinstance(found, bytes):
        beside[EVALUATION] = found
    return result.save(folder, beside=beside, force=force)


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()


def _fitting(schema: Schema, model: PrivateLinearModel) -> Schema:
    if schema.m != model.n_features_in_:
        raise SpecError(
            f"the schema makes {schema.m} features of a record, and the model has {model.n_features_in_}; give the "
            "schema that it was fitted by"
        )
    return schema


def _described(model: PrivateLinearModel) -> dict[str, Any]:
    """All of a fitted estimator that its result does not say, as plain values."""
    params = model.get_params(deep=False) | model._options.get_params()  # beside the others, as 0.2 wrote them
    del params["plan"], params["schema"]  # a schema is a file of its own
    if isinstance(params["random_state"], np.random.Generator | np.random.RandomState):
        params["random_state"] = model.spec_.seed  # what it gave
    return {
        "format": 1,
        "estimator": next(name for name, kind in KINDS.items() if isinstance(model, kind)),
        "params": {name: _plain(value, name) for name, value in saved_parameters(params).items()},
        "labels": model.classes_.dtype.str if isinstance(model, PrivateClassifier) else None,
        "named": hasattr(model, "feature_names_in_"),
        "row_norm": model.row_norm_,
        "earlier": [statement.to_dict() for statement in model._last.statements[:-1]],
    }


def _plain(value: Any, name: str) -> Any:
    """A parameter as JSON knows it; what JSON does not know is in a box that names it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return {"float": str(value)}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        listed = [_plain(each, name) for each in value]
        return {"tuple": listed} if isinstance(value, tuple) else listed
    if name == "budget":
        return {"budget": asdict(value) | {"path": str(Path(value.path).resolve())}}  # from wherever it is loaded
    if isinstance(value, NetworkModel):
        value = asdict(value)
    if isinstance(value, dict):
        return {"pairs": [[_plain(key, name), _plain(each, name)] for key, each in value.items()]}
    raise SpecError(f"{name} is {value!r}, which cannot be kept in a file; fit with plain values")


def _value(plain: Any) -> Any:
    """`_plain` read back."""
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    if isinstance(plain, dict):
        ((box, held),) = plain.items()
        boxes: dict[str, Any] = {
            "budget": _budget,
            "float": float,
            "tuple": lambda each: tuple(map(_value, each)),
            "pairs": lambda each: {_value(key): _value(value) for key, value in each},
        }
        return boxes[box](held)
    return plain


def _budget(said: dict[str, Any]) -> Any:
    """The budget of a saved estimator; where its ledger is gone there is nothing to pay from, and none is made."""
    from sottovoce.node.budget import Budget
    from sottovoce.node.store import FILE

    there = (Path(said["path"]) / FILE).exists()
    return Budget(**said | ({} if there else {"epsilon": None}))


def load(folder: str | Path) -> Any:
    """The fitted estimator of a folder that `model.save`, `sottovoce train --out` or `tune --out` wrote.

    Parameters
    ----------
    folder : a saved run; it is verified first, and refused where a file was changed or the statement is not what its
        spec guarantees

    Returns
    -------
    A `PrivateClassifier` or `PrivateRegressor` that predicts the same numbers; `privacy_` is its statement and
    `schema_` the schema by which records are encoded, or None
    """
    folder = Path(folder)
    result = Result.load(folder)
    result.verify()
    said = belonging_object(folder, ESTIMATOR)
    try:
        model = _of_run(result) if said is None else _of_estimator(result, said)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        if isinstance(error, DataError | SpecError):
            raise
        described = f"'{folder / ESTIMATOR}' describes no estimator ({type(error).__name__}); save it anew"
        raise DataError(described) from None
    kept = belonging(folder, EVALUATION)
    model._evaluations += [] if kept is None else [kept]  # as it was written: its figures are not needed here
    model._schema_text = belonging(folder, SCHEMA_FILE)
    model.schema_ = None if model._schema_text is None else _fitting(read_schema(folder / SCHEMA_FILE), model)
    if said is None and model.schema_ is None and result.features is not None:
        model.feature_names_in_ = np.array(result.features, dtype=object)
    if said is None and model.schema_ is not None and model.schema_.label.classes is None:
        model.target_bounds_ = model.target_bounds = model.schema_.label.low, model.schema_.label.high
        model.target_range_ = result.target_range or model.target_bounds_
    return model


def _of_estimator(result: Result, said: dict[str, Any]) -> Any:
    """What `save` kept."""
    params = {name: _value(plain) for name, plain in loaded_parameters(said["params"]).items()}
    given = {name: params.pop(name) for name in PlanOptions().get_params().keys() & params.keys()}
    model = KINDS[said["estimator"]](**params)
    if given != PlanOptions().get_params():
        model.plan = PlanOptions(**given)
    if result.classes is not None:
        result = result.with_classes(tuple(np.unique(np.array(result.classes)).tolist()))
    model.row_norm_ = float(said["row_norm"])
    _common(model, result)
    if isinstance(model, PrivateClassifier):
        model.classes_ = np.array(result.classes, dtype=np.dtype(said["labels"]))
    else:
        if result.scale.targets is None:
            raise DataError("the result says nothing of the range of its targets; save it anew")
        model.target_bounds_ = result.scale.targets
    if said["named"]:
        model.feature_names_in_ = np.array(result.features, dtype=object)
    model._set_coefficients(result)
    labels, people = model._labels(), result.statement.unit == PERSON.name
    names = tuple(model.nodes_.tolist())
    problem = (names, model.n_features_in_, model.row_norm_, bool(model.fit_intercept), labels, people)
    earlier = (PrivacyStatement.from_dict(each) for each in said["earlier"])
    model._last = WarmStart(problem, tuple(result.model.tolist()), (*earlier, result.statement))
    return model


def _of_run(result: Result) -> Any:
    """An estimator of what `sottovoce train` or a node kept, with as many of its parameters as it can have."""
    problem, said, given = result.spec.problem, result.statement, result.classes
    if given is not None:  # scikit-learn's scorers need sorted classes
        result = result.with_classes(tuple(np.unique(np.array(given)).tolist()))
    noise = result.spec.privacy.noise
    epsilon = noise.epsilon if isinstance(noise, Private) else said.epsilon
    model: Any = (PrivateRegressor if result.classes is None else PrivateClassifier)(
        None if math.isinf(epsilon) else epsilon,
        said.delta,
        loss=str(problem.loss),
        plan=PlanOptions(adversary=said.adversary),
        row_norm=result.scale.bound or problem.row_norm,
        fit_intercept=problem.intercept > 0,
        random_state=result.spec.seed,
    )
    if isinstance(problem.features, Additive):
        model.features, model.bounds = "additive", bounds_of(problem.features)
    model.row_norm_, model._run_scale = float(model.row_norm), result.scale
    _common(model, result)
    each = [replace(result, models=result.models[i : i + 1]) for i in range(len(result.models))]
    coef, constant = np.array(result.coef), np.asarray(result.intercept)
    every, constants = np.array([one.coef for one in each]), np.array([one.intercept for one in each])
    if isinstance(model, PrivateClassifier):
        model.classes = list(given or ())
        model.classes_ = np.array(result.classes)
        shape = (-1, coef.shape[-1])
        model.coef_, model.intercept_ = coef.reshape(shape), constant.reshape(-1)
        model.node_coef_, model.node_intercept_ = every.reshape(len(each), *shape), constants.reshape(len(each), -1)
    else:
        model.coef_, model.intercept_ = coef, float(constant)
        model.node_coef_, model.node_intercept_ = every, constants
        model.target_bounds_, model.target_range_, model.statistics_, model.r2_ = None, None, None, None
        model.method_ = result.spec.algorithm.method.name
    return model


def bounds_of(features: Additive) -> list[tuple[float, float] | None]:
    """The bounds of every column, as an estimator takes them."""
    known = {place: (low, high) for place, low, high in features.numeric}
    return [known.get(place) for place in range(features.columns)]


def _common(model: Any, result: Result) -> None:
    problem = result.spec.problem
    model.n_features_in_ = result.columns
    model._features, model._distributions = problem.features, result.public.get("distribution")
    model.features_ = "additive" if getattr(problem.features, "degree", 1) > 1 else "linear"
    model.loss_, model.spec_ = str(problem.loss), result.spec
    model.privacy_, model.history_ = result.statement, result.history
    model.nodes_ = np.array(result.nodes or [str(i) for i in range(int(result.public["n"]))])
    model._result, model._evaluations = result, []
    if result.classes is not None:
        model.threshold_, model.link_ = result.scale.threshold, result.scale.link or public_link(problem.loss.name)
