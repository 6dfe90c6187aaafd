"""Names of version 0.2 still work; each warns once and names its replacement."""

import importlib
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sottovoce import AlgorithmSpec, PrivateClassifier, Shards, Spec, _renamed
from sottovoce.planner import PublicInputs


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    monkeypatch.setattr(_renamed, "_warned", set())


@pytest.mark.parametrize(
    ("package", "old", "new"), [(p, old, new) for p, names in _renamed.NAMES.items() for old, new in names.items()]
)
def test_old_names_of_packages_are_the_new_ones(package, old, new):
    module = importlib.import_module(package)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {package}.{new}"):
        assert getattr(module, old) is getattr(module, new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(module, old) is getattr(module, new)  # once is enough
    assert old not in module.__all__ if hasattr(module, "__all__") else True
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_old_methods_and_arguments_are_the_new_ones():
    spec = Spec(AlgorithmSpec(10))
    with pytest.warns(DeprecationWarning, match=r"Spec\.but is now Spec\.replace"):
        assert spec.but(seed=3) == spec.replace(seed=3)
    with pytest.warns(DeprecationWarning, match=r"units=\) is now Shards\.of\(user_ids="):
        shards = Shards.of(np.eye(4), np.ones(4), np.array([0, 4]), units=[0, 0, 1, 1])
    assert shards.people and shards.sizes.tolist() == [2]
    with pytest.warns(DeprecationWarning, match=r"lost=\) is now PublicInputs\(dropout_rate="):
        assert PublicInputs((50,), 3, 1.0, 1e-5, lost=0.1).dropout_rate == 0.1
    with pytest.raises(AttributeError):
        _ = spec.no_such_name


def test_old_parameters_of_estimators_are_the_new_ones():
    with pytest.warns(DeprecationWarning, match=r"PrivateClassifier\(private_scaling="):
        model = PrivateClassifier(shape=False)
    assert "shape" not in model.get_params() and clone(model).private_scaling is False
    assert _renamed.loaded_parameters(_renamed.saved_parameters(model.get_params())) == model.get_params()
    assert "shape" in _renamed.saved_parameters(model.get_params())


def test_every_alias_has_its_place():
    """Tables name classes and functions that are there, and accept what they say."""
    for old, new in _renamed.OPTIONS.items():
        assert _renamed.current_options([f"{old}=3", "--", old]) == [f"{new}=3", "--", old]
    from sottovoce import errors

    assert all(hasattr(errors, new) for new in _renamed.ERROR_KINDS)


def test_an_old_option_works_and_is_named_once(capsys):
    assert _renamed.current_options(["train", "--deal", "even", "--deal", "even"]) == [
        "train", "--partition", "even", "--partition", "even",
    ]  # fmt: skip
    assert capsys.readouterr().err == "warning: --deal is now --partition; version 0.4 removes the old option\n"
