"""Names of version 0.2 that version 0.3 still accepts. Each one warns once and names its replacement; 0.4 removes them.

All aliases are in this file: names of packages (`NAMES`), attributes of classes (`ATTRIBUTES`), keyword arguments
(`ARGUMENTS`), options of the command line (`OPTIONS`), parameters in saved estimators (`SAVED_PARAMETERS`) and names
in machine-readable errors (`ERROR_KINDS`).
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")

NAMES: dict[str, dict[str, str]] = {
    "sottovoce": {"Facts": "PublicInputs"},
    "sottovoce.auditing": {
        "audit_balance": "audit_private_threshold",
        "audit_look": "audit_pre_release",
        "audit_targets": "audit_target_range",
    },
    "sottovoce.errors": {
        "Contradicted": "ConflictingMessages",
        "OldCopy": "StaleCopy",
        "Paused": "PeerTimeout",
        "Stranger": "UnknownPeer",
    },
    "sottovoce.experiments": {"Facts": "BaselineInputs", "summarise": "summarize"},
    "sottovoce.planner": {"Facts": "PublicInputs"},
    "sottovoce.privacy": {"price": "compute_epsilon"},
    "sottovoce.problem": {"REGULARISERS": "REGULARIZERS"},
    "sottovoce.report": {"Setting": "RunGroup"},
    "sottovoce.secure": {"Law": "NoiseKind"},
    "sottovoce.testing": {"check_regulariser": "check_regularizer"},
}
"""Names by the package that had them."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "Dataset": {"deal": "partition"},
    "DurableNode": {"linger": "drain"},
    "Engine": {"together": "run_jobs", "worth": "auto_threshold", "blur": "noise_rtol", "lacking": "unavailable"},
    "Evaluation": {"asked": "metrics"},
    "Event": {"realised": "realized"},
    "Graph": {"neighbours": "neighbors"},
    "Prepared": {"shape": "row_map"},
    "PrivateClassifier": {"shape": "private_scaling"},
    "PrivateSearchCV": {"worth_": "summary_"},
    "PublicInputs": {"shape": "private_scaling", "lost": "dropout_rate"},
    "Run": {"together": "batch_size"},
    "Shards": {"dealt": "partitioned"},
    "Spec": {"but": "replace"},
    "Table": {"units": "user_ids"},
}
"""Methods and fields by class."""

_FIT = {"units": "user_ids"}
ARGUMENTS: dict[str, dict[str, str]] = {
    "Engine": {
        "together": "run_jobs", "worth": "auto_threshold", "blur": "noise_rtol", "lacking": "unavailable",
        "crowds": "large_n_averagings", "regularisers": "regularizers",
    },
    "Evaluates.evaluate": {"units": "user_ids", "ask": "metrics"},
    "PrivateClassifier.__init__": {"shape": "private_scaling"},
    "PrivateClassifier.fit": _FIT,
    "PrivateLinearModel.fit": _FIT,
    "PrivateSearchCV.fit": _FIT,
    "PublicInputs": {"shape": "private_scaling", "lost": "dropout_rate"},
    "Shards.of": _FIT,
    "Table": _FIT,
    "audit_tally": {"ask": "metrics"},
    "evaluate": {"ask": "metrics"},
    "prepare": {"like": "reusable"},
    "solve": {"allow": "budget_check"},
}  # fmt: skip
"""Keyword arguments by function, method or class."""

OPTIONS: dict[str, str] = {
    "--ask": "--metrics",
    "--correct": "--debias",
    "--deal": "--partition",
    "--h": "--regularizer",
    "--lost": "--dropout-rate",
    "--no-shape": "--no-private-scaling",
    "--shape": "--private-scaling",
    "--try": "--param",
    "--unit": "--user-id",
    "--weigh": "--node-weights",
}
"""Options of the command line."""

SAVED_PARAMETERS = {"private_scaling": "shape"}
"""Parameters of estimators by the names that saved models keep."""

ERROR_KINDS = {
    "PeerTimeout": "Paused",
    "UnknownPeer": "Stranger",
    "ConflictingMessages": "Contradicted",
    "StaleCopy": "OldCopy",
}
"""Classes of errors by the names that `--json` prints."""

_warned: set[str] = set()


def warn_once(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that a name is deprecated, once in a process."""
    if old not in _warned:
        _warned.add(old)
        warnings.warn(f"{old} is now {new}; version 0.4 removes the old name", DeprecationWarning, stacklevel)


def module_attribute(module: str, name: str) -> Any:
    """Return what a package's old name stands for; for the `__getattr__` of a module."""
    new = NAMES[module].get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_once(f"{module}.{name}", f"{module}.{new}", 4)
    return getattr(import_module(module), new)


def old_attributes(cls: type[T]) -> type[T]:
    """Let instances of a class answer to its old attributes (`ATTRIBUTES`)."""
    table, own = ATTRIBUTES[cls.__name__], cls.__dict__.get("__getattr__")

    def missing(self: Any, name: str) -> Any:
        new = table.get(name)
        if new is None and own is not None:
            return own(self, name)
        if new is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warn_once(f"{cls.__name__}.{name}", f"{cls.__name__}.{new}")
        return getattr(self, new)

    cls.__getattr__ = missing  # type: ignore[attr-defined]
    return cls


F = TypeVar("F", bound=Callable[..., Any])


def old_arguments(function: F) -> F:
    """Let a function, a method or a class accept its old keyword arguments (`ARGUMENTS`)."""
    if isinstance(function, type):
        function.__init__ = _accepting(function.__init__, function.__name__)  # type: ignore[misc]
        return function
    return _accepting(function, function.__qualname__)


def _accepting(function: Any, name: str) -> Any:
    table, called = ARGUMENTS[name], name.removesuffix(".__init__")

    @wraps(function)
    def accepting(*args: Any, **given: Any) -> Any:
        for old in table.keys() & given.keys():
            warn_once(f"{called}({old}=)", f"{called}({table[old]}=)")
            given[table[old]] = given.pop(old)
        return function(*args, **given)

    accepting.deprecated_original = function  # type: ignore[attr-defined] # scikit-learn reads a constructor's names from it
    return accepting


def current_options(arguments: Sequence[str]) -> list[str]:
    """Replace old options of a command line by the current ones, with one line on stderr for each."""
    found = []
    for k, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if name not in OPTIONS or "--" in arguments[:k]:
            found.append(argument)
            continue
        if name not in _warned:
            _warned.add(name)
            print(f"warning: {name} is now {OPTIONS[name]}; version 0.4 removes the old option", file=sys.stderr)
        found.append(OPTIONS[name] + sign + value)
    return found


def saved_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters under the names that saved models keep."""
    return {SAVED_PARAMETERS.get(name, name): value for name, value in parameters.items()}


def loaded_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a saved model under their current names."""
    current = {old: new for new, old in SAVED_PARAMETERS.items()}
    return {current.get(name, name): value for name, value in parameters.items()}


def error_kind(error: BaseException) -> str:
    """Return the name of an error's class that `--json` prints."""
    name = type(error).__name__
    return ERROR_KINDS.get(name, name)
