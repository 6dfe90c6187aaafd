"""The release of columns before the first round: what follows from it, what it costs, and where it is refused."""

import math
from itertools import pairwise

import numpy as np
import pytest

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.features import CELLS, CENTERS, EDGES, Additive
from sottovoce.privacy.accounting import compute_epsilon
from sottovoce.privacy.distribution import Distribution
from sottovoce.problem.shards import Shards
from sottovoce.run.distribution import ColumnCounts, believed
from sottovoce.run.one_shot import Noisy
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Spec

rng = np.random.default_rng(0)
OF = Additive(
    4, ((0, -1.0, 1.0), (2, 0.0, 9.0)), rest=1.5, basis="cosine", degree=5, distribution=True, pairs=((0, 1),)
)
RAW = np.column_stack([rng.beta(0.5, 3, 4000) * 2 - 1, rng.random(4000) < 0.1, rng.uniform(0, 9, 4000), np.ones(4000)])
ROWS = OF.rows(RAW) / OF.norm
Y = np.where(RAW[:, 0] > -0.8, 1.0, -1.0)
COUNTED = Distribution(0.1, 2, 0.05, 2)
SPEC = Spec(AlgorithmSpec(20), seed=1).replace(
    privacy__noise="private(2)",
    privacy__distribution=str(COUNTED),
    privacy__sampling="full",
    network__activation="everyone",
    problem__features=str(OF),
    problem__intercept=0.25,
    problem__loss="logistic",
    problem__weights="records",
)


def shards(X=ROWS, n=1):
    return Shards.of(X, Y, np.linspace(0, len(Y), n + 1).astype(int))


def found(X=ROWS, noise=0.0, **more):
    query = ColumnCounts(COUNTED, OF, 1.0, 0.25, **more)
    mean = query.means(shards(X))[0]
    return query, query.finish(Noisy(mean, noise, noise * len(Y), float(len(Y))))


def test_without_noise_the_distribution_is_that_of_the_records():
    _, expanded = found()
    u = (RAW[:, 0] + 1) / 2
    expected = [np.mean(u < low) + np.mean((u >= low) & (u < high)) / 2 for low, high in pairwise(EDGES)]
    assert np.allclose(expanded.distributions[0], expected, atol=1e-9)
    assert np.allclose(expanded.distributions[1], CENTERS, atol=0.03)  # even: nearly the identity


def test_rows_are_centered_and_of_the_bounds_length():
    _, expanded = found()
    mapped = expanded.shards(shards()).X
    norms = np.linalg.norm(mapped, axis=1)
    assert norms.max() <= expanded.reach * (1 + 1e-12)
    assert 0.8 < np.sqrt(np.mean(norms**2)) < 1.2
    single = [k for j in range(OF.d) for k in OF.features_of(j)]
    assert np.abs(mapped.mean(axis=0)[single]).max() < 0.02 < np.abs(ROWS.mean(axis=0)[single]).max()


def test_a_model_of_mapped_rows_is_one_of_functions():
    _, expanded = found()
    models = rng.normal(size=(3, OF.width + 1))
    mapped, plain = expanded.shards(shards()).X[:50], OF.rows(RAW[:50], expanded.distributions) / OF.norm
    assert np.linalg.norm(expanded.shards(shards()).X[:50], axis=1).max() < expanded.reach  # none was shortened
    back = expanded.inverse_transform(models)
    scores = mapped @ models[:, :-1].T + 0.25 * models[:, -1]
    assert np.allclose(plain @ back[:, :-1].T + 0.25 * back[:, -1], scores)
    assert np.allclose(expanded.transform(back), models)


def test_rows_of_a_regression_keep_their_bound():
    _, expanded = found(centered=False)
    mapped = expanded.shards(shards()).X
    assert np.linalg.norm(mapped, axis=1).max() <= 1.0 and expanded.reach == 1.0
    assert np.allclose(mapped, OF.rows(RAW, expanded.distributions) / OF.norm)


def test_what_noise_hides_is_the_identity():
    _, expanded = found(noise=1.0)
    assert np.allclose(expanded.distributions, CENTERS)
    shares = rng.dirichlet(np.ones(CELLS))
    for deviation in (0.0, 0.01, 0.1):
        some = believed(shares + deviation * rng.normal(size=CELLS), deviation)
        assert some.min() >= 0 and some.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes", [{}, {"privacy__adversary": "secret_pairs(1)", "privacy__law": "pairs(2)"}], ids=str
)
@pytest.mark.parametrize("secure", [False, True])
def test_a_run_verifies_and_costs_what_it_says(changes, secure):
    spec = SPEC.replace(seed=None if secure else 1, **changes)
    result = solve(spec, shards(n=4))
    result.verify()
    assert result.statement.epsilon == pytest.approx(2.0, rel=1e-3) and result.statement.secure is secure
    event = result.statement.worst.event
    assert event.before is not None
    alone = compute_epsilon([event.before], 1e-5).epsilon
    without = compute_epsilon(
        [type(event)(event.records, event.batch, event.clip, event.sigma, event.rounds, note=event.note)], 1e-5
    )
    assert alone < 1.2 and without.epsilon < 2.0
    assert len(result.public["distribution"]) == 2 and len(result.public["row_scale"]) == OF.width


@pytest.mark.parametrize(
    "forged", [None, [[0.0] * CELLS], [[1.0, *[0.0] * 31]] * 2, [[2.0] * CELLS] * 2, "no", [[math.nan] * 32] * 2]
)
def test_a_forged_distribution_does_not_verify(forged):
    result = solve(SPEC, shards())
    if forged is None:
        del result.public["distribution"]
    else:
        result.public["distribution"] = forged
    with pytest.raises(PrivacyError, match="distribution functions"):
        result.verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem__features": "linear"}, "leave it out of a linear one"),
        ({"privacy__distribution": "distribution(0.1, 3)"}, "does not match the 2 numeric columns"),
        ({"privacy__moments": "moments(0.1)"}, "not both"),
        (
            {"privacy__distribution": "none", "problem__features": "legendre(3, 1, 0, 1, 0, 0, -1, 1)"},
            "map the records",
        ),
    ],
)
def test_specs_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        solve(SPEC.replace(**changes), shards())
    with pytest.raises(SpecError, match="malformed"):
        Distribution(0.6, 2)
