"""Bad input: one clear sentence each, before any noise is spent."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sottovoce import PrivateClassifier, PrivateRegressor
from sottovoce.errors import DataError, OwnerWarning, PrivacyError, SottovoceError, SpecError
from sottovoce.planner.shared_settings import check_node_sizes

rng = np.random.default_rng(0)
X, y, REAL = rng.uniform(-0.5, 0.5, (60, 3)), np.arange(60) % 2, rng.uniform(0, 5, 60)
NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf
GAP = np.where(np.arange(60) == 7, None, "a").astype(object)


def fit(X=X, y=y, nodes=None, user_ids=None, **more):
    settings = {"classes": (0, 1), "row_norm": 1.0, "random_state": 0, "rounds": 3}
    return PrivateClassifier(**(settings | more)).fit(X, y, nodes=nodes, user_ids=user_ids)


def regress(y=REAL, **more):
    settings = {"target_bounds": (0, 5), "row_norm": 1.0, "random_state": 0, "rounds": 3}
    return PrivateRegressor(**(settings | more)).fit(X, y)


BAD = [
    (fit, {"X": NAN}, DataError, "NaN or infinite values; fill them in"),
    (fit, {"X": INF}, DataError, "NaN or infinite values; fill them in"),
    (fit, {"X": sparse.csr_array(NAN)}, DataError, "NaN or infinite"),
    (fit, {"y": np.zeros(60), "classes": None}, DataError, r"y holds only one class, \[0.0\]"),
    (fit, {"classes": ["a"]}, DataError, "classes names only one class"),
    (fit, {"y": np.arange(60) % 3}, DataError, "y holds the class 2 in record 2, which is not among"),
    (fit, {"y": np.array(["a", "b"] * 30)}, DataError, "y holds the class 'a' in record 0"),
    (fit, {"y": np.array([0, None] * 30, dtype=object)}, DataError, "no class for record 1"),
    (fit, {"y": REAL}, DataError, "continuous values are no classes"),
    (fit, {"y": pd.array([0, pd.NA] * 30, dtype="object")}, DataError, "no class for record 1"),
    (fit, {"y": y[:-1]}, DataError, "60 records but 59 targets"),
    (fit, {"y": None}, DataError, "requires y to be passed"),
    (fit, {"epsilon": 0.0}, PrivacyError, "epsilon must be over 0"),
    (fit, {"epsilon": -1}, PrivacyError, "over 0 .*not -1"),
    (fit, {"epsilon": float("nan")}, PrivacyError, "over 0"),
    (fit, {"epsilon": "1"}, PrivacyError, "a number over 0"),
    (fit, {"delta": 1.0}, PrivacyError, "strictly between 0 and 1, not 1"),
    (fit, {"delta": 0.0}, PrivacyError, "strictly between 0 and 1"),
    (fit, {"delta": "small"}, PrivacyError, "'auto' or a number"),
    (fit, {"epsilon": 0.05}, DataError, r"too few records \(n_samples = 60\): at epsilon = 0.05"),
    (fit, {"nodes": [*"abcdefghij"] * 6}, DataError, r"node 'a' has too few records \(n_samples = 6\)"),
    (fit, {"user_ids": np.arange(60) % 4}, DataError, r"too few people \(n_samples = 4\)"),
    (fit, {"row_norm": 0.1, "on_violation": "raise"}, DataError, "of 60 rows are over the public bound row_norm = 0.1"),
    (fit, {"on_violation": "pray"}, SpecError, "'clip' or 'raise'"),
    (fit, {"secure": True}, SpecError, "a seed .random_state. can remove the noise"),
    (fit, {"secure": "yes"}, SpecError, "secure must be 'auto', True or False, not 'yes'"),
    (fit, {"random_state": None, "engine": "compiled"}, SpecError, "does not know the secure release"),
    (fit, {"row_norm": 0.0}, SpecError, "row_norm must be a public number"),
    (fit, {"row_norm": "auto"}, SpecError, "row_norm must be a public number"),
    (fit, {"nodes": ["a"] * 59}, DataError, "one label a record, 60 of them"),
    (fit, {"nodes": GAP}, DataError, "no label for record 7"),
    (fit, {"nodes": pd.Series(np.where(np.arange(60) == 7, np.nan, 1.0))}, DataError, "no label for record 7"),
    (fit, {"nodes": ["a", "b"] * 30, "n_nodes": 3}, SpecError, "names 2 owners, but n_nodes is 3"),
    (fit, {"n_nodes": 61}, DataError, "61 nodes cannot share 60 records"),
    (fit, {"n_nodes": 9, "user_ids": np.arange(60) % 8}, DataError, "9 nodes cannot share 8 people"),
    (fit, {"n_nodes": 2.5}, SpecError, "'auto' or a whole number"),
    (fit, {"user_ids": GAP}, DataError, "user_ids has no label for record 7"),
    (fit, {"loss": "huber"}, SpecError, "does not fit this estimator; choose one of auto, hinge"),
    (fit, {"loss": "hinges"}, SpecError, "no loss 'hinges'"),
    (fit, {"penalty": "l3"}, SpecError, "no penalty 'l3'"),
    (fit, {"alpha": -1.0}, SpecError, "alpha must be"),
    (fit, {"alpha": "big"}, SpecError, "alpha must be"),
    (fit, {"penalty": "elasticnet", "l1_ratio": 2}, SpecError, "l1_ratio must be"),
    (fit, {"adversary": "nobody"}, PrivacyError, "no adversary 'nobody'"),
    (fit, {"adversary": "central", "n_nodes": 2}, PrivacyError, "use 'transcript'"),
    (fit, {"private_scaling": "yes"}, SpecError, "private_scaling must be"),
    (fit, {"trust": 0}, SpecError, "at least 1 node"),
    (fit, {"graph": "blob", "n_nodes": 2}, SottovoceError, "blob"),
    (fit, {"activation": "sometimes", "n_nodes": 2}, SottovoceError, "sometimes"),
    (fit, {"sampling": "half"}, SpecError, "no sampling 'half'"),
    (fit, {"batch": 0}, SpecError, "batch must be"),
    (fit, {"sampling": "full", "batch": 3}, SpecError, "leave batch out"),
    (fit, {"batch": 61}, SpecError, "at most 60"),
    (fit, {"rounds": 0}, SpecError, "rounds"),
    (fit, {"rounds": "many"}, SpecError, "rounds"),
    (fit, {"engine": "steam"}, SpecError, "no engine 'steam'"),
    (fit, {"random_state": "seven"}, SpecError, "random_state must be"),
    (fit, {"track": True, "random_state": None}, SpecError, "make the run a simulation"),
    (regress, {"y": np.where(REAL > 4.9, np.nan, REAL)}, DataError, "targets hold NaN"),
    (regress, {"y": np.array(["a"] * 60)}, DataError, "must be numbers"),
    (regress, {"target_bounds": (1, 0)}, SpecError, "low < high"),
    (regress, {"target_bounds": 3}, SpecError, "pair of numbers"),
    (regress, {"target_bounds": (0, np.inf)}, SpecError, "finite"),
    (regress, {"loss": "hinge"}, SpecError, "choose one of auto, huber"),
]


@pytest.mark.parametrize(
    ("call", "what", "error", "words"), BAD, ids=lambda v: str(v)[:30] if isinstance(v, dict) else ""
)
def test_bad_input_is_one_sentence(call, what, error, words):
    with pytest.raises(error, match=words) as caught:
        call(**what)
    message = str(caught.value)
    assert "\n" not in message and 20 < len(message) < 320
    assert caught.value.__cause__ is None


def test_a_refused_row_is_refused_in_predict_too():
    model = fit(on_violation="raise")
    assert np.array_equal(model.predict(X), fit().predict(X))
    with pytest.raises(DataError, match="1 of 1 rows are over"):
        model.predict([[3.0, 0.0, 0.0]])


def test_given_classes_need_not_all_be_there():
    """That nobody has a rare class is nobody's business, so it is no error either."""
    assert fit(y=np.zeros(60, dtype=int)).classes_.tolist() == [0, 1]
    assert fit(classes=(0, 1, 2)).coef_.shape == (3, 3)


def test_the_least_size_of_a_node_is_where_noise_reaches_the_largest_gradient():
    from sottovoce.privacy.calibration import sigma
    from sottovoce.privacy.events import FullEvent

    for epsilon in (0.3, 1.0, 5.0):
        least = next(q for q in range(1, 200) if sigma(FullEvent(q, q, 1.0, 1.0, 1), epsilon, 1e-5) <= 1.0)
        check_node_sizes((least,), ("a",), epsilon, 1e-5, "records")
        with pytest.raises(DataError, match="too few"):
            check_node_sizes((least - 1,), ("a",), epsilon, 1e-5, "records")
        with pytest.raises(DataError, match="node 'b' has too few"):
            check_node_sizes((least, least - 1), ("a", "b"), epsilon, 1e-5, "records", weighed=False)
        said = check_node_sizes((least, least - 1), ("a", "b"), epsilon, 1e-5, "records")
        assert len(said) == 1 and f"'b' ({least - 1} records)" in said[0] and "receive the model" in said[0]


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("labels", [y, pd.Series(y), pd.Series(y, dtype="Int64"), y.astype(bool), y.astype(float)])
def test_numbers_as_labels_of_classes_that_are_texts_are_refused_by_their_type(seed, labels):
    """A schema's classes are texts, and pandas reads 0 and 1 as numbers: no record had a usable label."""
    expected = r"y holds numbers \(.*\), but the classes are texts, '0', '1', so that no label .*; give y.astype\(str\)"
    texts = y.astype(str)
    with pytest.raises(DataError, match=expected):
        fit(y=labels, classes=["0", "1"], random_state=seed)
    model = fit(y=texts, classes=["0", "1"], random_state=seed)
    for attempt in (model.score, model.evaluate):
        with pytest.raises(DataError, match=expected):
            attempt(X, labels)
    assert 0 <= model.score(X, texts) <= 1
    assert model.evaluate(X, texts).records == 60 and len(model._evaluations) == 1


@pytest.mark.parametrize("dtype", ["str", "category"])
def test_the_owner_is_warned_of_columns_of_text_and_no_cell_decides_a_refusal(dtype):
    """One word in a file makes a reader call a whole column text, so a refusal would reveal one record."""
    frame = pd.DataFrame({"age": X[:, 0], "ward": ["A", "B"] * 30, "town": ["C", "D"] * 30})
    frame = frame.astype({"ward": dtype, "town": dtype})
    with pytest.warns(OwnerWarning) as heard:
        model = fit(X=frame, random_state=None)
    assert any("columns of text are no numbers: ward, town; " in str(one.message) for one in heard)
    assert any("PublicEncoder" in str(one.message) for one in heard) and model.n_features_in_ == 3
    odd = frame[["age"]].astype(object)
    odd.iloc[3, 0] = "soon"
    with pytest.warns(OwnerWarning, match="columns of text are no numbers: age|1 numbers are not finite"):
        assert fit(X=odd.astype("str"), random_state=None).n_features_in_ == 1
