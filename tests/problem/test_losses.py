"""Laws that every row of LOSSES must obey."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import SpecError
from sottovoce.problem.losses import IEEE_SLOPES, LOSSES, Conjugate
from sottovoce.testing import LOSS_LAWS, LawBroken, check_loss, least_bound, vectorizes

SCALAR = [loss for loss in LOSSES.values() if loss.targets != "classes"]

ALL = pytest.mark.parametrize("loss", [*SCALAR, LOSSES.make("huber", 0.3), LOSSES.make("quantile", 0.9)], ids=str)
margin = st.floats(-50, 50)


def target(loss, raw):
    return math.copysign(1.0, raw) if loss.targets == "binary" else raw


@ALL
@pytest.mark.parametrize("law", LOSS_LAWS)
@given(u=margin, v=margin, raw=st.floats(-5, 5))
def test_its_laws(loss, law, u, v, raw):
    """Those of the kit that others have for theirs."""
    LOSS_LAWS[law](loss, u, v, target(loss, raw))


@ALL
def test_the_slope_bound_is_the_least(loss):
    least_bound(loss)


@ALL
def test_values_are_not_negative_and_vectorise(loss):
    vectorizes(loss)


OTHER = Conjugate(lambda k: 0.1, lambda y, k: (np.minimum(-y, 0), np.maximum(-y, 0)))
WRONG = {
    "subgradient": {"slope_formula": lambda u, y, k: y * (y * u < 1.0)},
    "derivative": {"slope_formula": lambda u, y, k: -0.9 * y * (y * u < 1.0)},
    "bounded": {"bound_formula": lambda k: 0.99},
    "fenchel_young": {"conjugate_formula": OTHER},
}


@pytest.mark.parametrize("law", LOSS_LAWS)
def test_the_laws_find_what_breaks_them(law):
    wrong = replace(LOSSES.make("hinge"), name="wrong", **WRONG[law])
    with pytest.raises(LawBroken):
        for u in np.linspace(-3, 3, 13) + 0.01:
            LOSS_LAWS[law](wrong, u, -u, 1.0)
    with pytest.raises(LawBroken):
        check_loss(wrong, engines=[])
    with pytest.raises(LawBroken, match="the least"):
        least_bound(replace(wrong, slope_formula=LOSSES["hinge"].slope_formula, bound_formula=lambda k: 1.01))


def test_smoothed_hinge_tends_to_the_hinge_and_stays_within_half_its_width():
    u = np.linspace(-4, 4, 801)
    for width in (1.0, 0.1, 1e-3):
        gap = LOSSES["hinge"].value(u, 1.0) - LOSSES.make("smoothed_hinge", width).value(u, 1.0)
        assert np.all(gap >= -1e-12) and np.max(gap) == pytest.approx(width / 2)


@pytest.mark.parametrize(
    ("name", "parameter", "words"),
    [
        ("hinges", None, "no loss 'hinges'"),
        ("hinge", 1.0, "malformed; write hinge"),
        ("quantile", 1.5, "between 0 and 1"),
    ],
)
def test_bad_choices_are_one_sentence(name, parameter, words):
    with pytest.raises(SpecError, match=words):
        LOSSES.make(name, parameter)


def test_listed_slopes_have_no_function_of_a_library():
    """Such functions may give other bits in another place of a batch: then no release of them is a secure one."""
    exact = {"np", "maximum", "minimum", "sign"}
    assert all(set(formula.__code__.co_names) <= exact for formula in IEEE_SLOPES)
    assert not set(LOSSES["logistic"].slope_formula.__code__.co_names) <= exact
