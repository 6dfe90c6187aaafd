"""What people who come from scikit-learn try: logarithms of probabilities, generators as seeds, several targets."""

import numpy as np
import pytest
from sklearn.base import clone

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import DataError, SpecError

rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, (200, 2))
SIGN = (X[:, 0] > X[:, 1]).astype(int)
THREE = np.digitize(X[:, 0], [-0.2, 0.2])
TWO = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1])
NUMBER = PrivateRegressor(1.0, row_norm=1.0, target_bounds=(0, 1))


@pytest.mark.parametrize(("classes", "y"), [([0, 1], SIGN), ([0, 1, 2], THREE)])
@pytest.mark.parametrize("loss", ["auto", "logistic", "hinge"])
def test_log_probabilities_are_logarithms_of_probabilities(classes, y, loss):
    model = PrivateClassifier(5.0, row_norm=1.0, classes=classes, loss=loss, random_state=0).fit(X, y)
    likely = model.predict_proba(X)
    assert np.allclose(likely.sum(axis=1), 1.0) and np.allclose(np.exp(model.predict_log_proba(X)), likely)
    assert np.array_equal(model.classes_[np.argmax(likely, axis=1)], model.predict(X))


def test_numpys_generators_make_simulations():
    for make in (np.random.default_rng, np.random.RandomState):
        one, again, other = (clone(TWO).set_params(random_state=make(seed)).fit(X, SIGN) for seed in (3, 3, 4))
        assert np.array_equal(one.coef_, again.coef_) and not np.array_equal(one.coef_, other.coef_)
        assert one.privacy_.simulation
    model = clone(TWO).set_params(random_state=np.random.default_rng(3))
    first = model.fit(X, SIGN).coef_
    assert not np.array_equal(first, model.fit(X, SIGN).coef_)  # it goes on, as in scikit-learn
    for wrong in ("three", 1.5, -1, True, np.random.SeedSequence(1)):
        with pytest.raises(SpecError, match="random_state must be None, or, for a SIMULATION, a whole number"):
            clone(TWO).set_params(random_state=wrong).fit(X, SIGN)


@pytest.mark.parametrize("model", [TWO, NUMBER], ids=["classifier", "regressor"])
def test_several_targets_a_record_are_refused_with_what_to_do(model):
    with pytest.raises(DataError, match=r"y has 2 columns, but a model has one target .* fit one model for each"):
        model.fit(X, np.column_stack([SIGN, SIGN]))
