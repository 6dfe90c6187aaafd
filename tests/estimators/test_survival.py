"""PrivateKaplanMeier: one release of counts with one statement, for any owner of the records."""

import numpy as np
import pytest

from sottovoce import Budget, PrivateKaplanMeier
from sottovoce.errors import DataError, PrivacyError, SpecError
from sottovoce.estimators.unusable import OwnerWarning
from sottovoce.privacy.calibration import single

TIMES = np.arange(1, 12)


def study(N=4000, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], N)
    event, end = rng.exponential(np.where(group == "a", 10, 14)), rng.uniform(0, 15, N)
    return np.minimum(event, end), event <= end, group


def model(**changes):
    plain = {"times": TIMES, "groups": ["a", "b"], "random_state": 0}
    return PrivateKaplanMeier(1.0, **plain | changes)


@pytest.mark.parametrize(
    ("settings", "factor"),
    [({}, 1.0), ({"n_nodes": 20}, np.sqrt(20)), ({"n_nodes": 20, "trust": "majority"}, np.sqrt(20 / 11))],
)
@pytest.mark.parametrize("seed", [0, None])
def test_the_noise_is_that_of_one_release(settings, factor, seed):
    time, event, group = study()
    found = model(random_state=seed, **settings).fit(time, event, group)
    found.privacy_.verify()
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=1e-6) and found.privacy_.secure == (seed is None)
    assert found.counts_.deviation == pytest.approx(np.sqrt(2) * single(1.0, 1e-5) * factor, rel=2e-3)
    assert found.counts_.at_risk[:, 0].sum() == pytest.approx(4000, abs=50 * factor * 5)
    survival, low, high = found.curve("a").at(5)
    assert low < survival < high and abs(survival - np.exp(-0.5)) < 4 * (high - low) / 3.9
    assert found.log_rank().p_value < 0.05 or factor > 2


def test_counts_are_exact_counts_with_noise():
    """Every cell by hand; noise of 29 counts is as large as stated, within five deviations of its mean square."""
    pytest.importorskip("pandas")
    time, event, group = study()
    found = PrivateKaplanMeier(1e4, times=TIMES, groups=["a", "b"], random_state=1).fit(time, event, group)
    own = group == "b"
    exact = np.histogram(time[own & event], [0, *TIMES])[0]
    assert np.all(np.abs(found.counts_.events[1] - exact) < 1)
    assert abs(found.counts_.beyond[1] - np.sum(own & (time > 11))) < 1
    noisy = [model(random_state=seed).fit(time, event, group).counts_ for seed in range(30)]
    errors = np.array([counts.events[1] - exact for counts in noisy]) / noisy[0].deviation
    assert np.mean(errors**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / errors.size))
    assert model().fit(time, event, group).to_frame().shape[0] == 22


def test_the_same_seed_gives_the_same_release_and_both_are_counted():
    time, event, group = study()
    one, two = model().fit(time, event, group), model().fit(time, event, group)
    assert np.array_equal(one.counts_.events, two.counts_.events)
    assert two.spent_.epsilon > 1.3 and two.spent_.fits >= 2


def test_a_budget_pays_first(tmp_path):
    time, event, group = study()
    budget = Budget(1.2, 1e-5, tmp_path)
    model(random_state=None, budget=budget).fit(time, event, group)
    assert budget.spent() == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(PrivacyError, match="survival curve would bring"):
        model(random_state=None, budget=budget).fit(time, event, group)


def test_a_record_that_cannot_be_used_is_refused_in_a_simulation_alone():
    time, event, group = study()
    time[3], group = np.nan, group.astype(object)
    group[5] = "c"
    with pytest.raises(DataError, match="2 records have no usable time, event or group"):
        model().fit(time, event, group)
    with pytest.warns(OwnerWarning, match="2 records"):
        found = model(random_state=None).fit(time, event, group)
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": None}, "times must be given"),
        ({"times": [2, 1]}, "over 0 and increasing"),
        ({"times": "soon"}, "list of public numbers"),
        ({"groups": ["a", "a"]}, "different names"),
        ({"groups": None}, "or neither"),
        ({"epsilon": None}, "give epsilon"),
    ],
)
def test_what_cannot_be_counted_is_refused(changes, message):
    time, event, group = study(500)
    with pytest.raises(SpecError, match=message):
        model().set_params(**changes).fit(time, event, group)


def test_a_group_is_one_that_was_named():
    time, event, group = study()
    found = model().fit(time, event, group)
    with pytest.raises(SpecError, match="there is no group 'c'"):
        found.curve("c")
    with pytest.raises(SpecError, match="strictly between"):
        found.curve("a", confidence=2)
    whole = model(groups=None).fit(time, event)
    assert len(whole.curve().times) == 11


@pytest.mark.filterwarnings("ignore::sottovoce.errors.OwnerWarning")
@pytest.mark.parametrize("container", [list, np.array])
def test_one_value_of_another_type_changes_one_record(container):
    """One text beside truth values once left no record with an event."""
    rng = np.random.default_rng(0)
    table = {
        "time": rng.uniform(0, 9, 60).tolist(),
        "event": (rng.random(60) < 0.5).tolist(),
        "group": rng.integers(0, 2, 60).tolist(),
    }
    model = PrivateKaplanMeier(1.0, times=[3, 6], groups=[0, 1])

    def cells(values):
        return np.column_stack(model._columns(*values.values(), [0, 1], private=True))

    before = cells(table)
    assert np.isfinite(before).all() and before[:, 1].any()
    for name in table:
        for odd in ("soon", None, 1 + 1j, [1], 10**400, b"x"):
            values = [odd if k == 7 else value for k, value in enumerate(table[name])]
            try:
                after = cells(table | {name: container(values)})
            except ValueError as error:
                assert isinstance(odd, list) and "inhomogeneous" in str(error)  # there is no such array
                continue
            others = np.arange(60) != 7
            np.testing.assert_array_equal(after[others], before[others])
