"""Several outputs and units of several rows, compiled as in the reference: the clip, and laws of whole trajectories."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from sottovoce.engine import ENGINES, compiled, reference
from sottovoce.errors import SpecError
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

T = 40
SPEC = Spec(AlgorithmSpec(rounds=T, a="constant(1)", gamma="sqrt(0.5)"), seed=3).replace(
    problem__h="l2(0.1)", network__activation="nodes(3)", privacy__sampling="poisson(3)"
)
ENGINE = pytest.mark.parametrize("engine", sorted(ENGINES))


class Given:
    """The records of a job and noise of our own."""

    def __init__(self, draws, noise):
        self.records, self.noise = draws.records, noise


def final(engine, job):
    return ENGINES[engine].run([job], [job.start()], 1, T)[0]


def noise_of(m):
    """A row for each (node, round), the caller."""

    def noise(nodes, t):
        return np.stack([np.random.default_rng([i, u]).normal(size=m) for i, u in zip(nodes, t, strict=True)]) * 0.2

    return noise


def close(found, expected, tolerance=1e-10):
    scale = max(float(np.max(np.abs(expected))), 1e-300)
    return float(np.max(np.abs(found - expected))) <= tolerance * scale


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array, lambda X: sparse.csr_array(np.float32(X))])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("clip", [0.6, 0.2, 1e-3])
@pytest.mark.parametrize("sampling", ["one", "full"])
def test_a_clip_that_bites_is_the_same_in_every_engine(kind, outputs, clip, sampling, make_shards):
    """Means longer than the clip are measured, row by row of CSR data with coordinates in common."""
    shards = make_shards(n=5, people=True, outputs=outputs, m=6, kind=kind)
    spec = SPEC.replace(
        privacy__clip=clip, problem__outputs=outputs, problem__intercept=0.5, privacy__sampling=sampling
    )
    job = prepare(spec.replace(problem__loss="squared_hinge"), shards).job
    expected = job.start()
    steps = [step.round.zeta for step in reference.rounds(job, expected, 1, 12)]
    for engine in ("compiled", "nodes"):
        (found,) = ENGINES[engine].run([job], [job.start()], 1, 12)
        assert close(found.z, expected.z) and close(found.total, expected.total)
    longest = max(float(np.linalg.norm(zeta, axis=1).max()) for zeta in steps)
    assert longest <= clip * (1 + 1e-9)
    assert longest > 0.99 * clip or sampling == "full" or clip > 0.5


@ENGINE
def test_the_released_mean_moves_by_at_most_two_clips(engine, make_shards):
    """Brute force in every engine: one round from zero, no noise; a person is replaced by another of other rows."""
    base = make_shards(n=1, q=6, people=True, outputs=3)
    spec = SPEC.replace(problem__outputs=3, problem__loss="squared_hinge", privacy__clip=0.7, privacy__sampling="full")
    spec = spec.replace(problem__on_violation="clip", algorithm__rounds=1, network__activation="everyone")

    def released(X, y, ids):
        job = prepare(spec, Shards.of(X, y, np.array([0, len(y)]), user_ids=ids)).job
        return ENGINES[engine].run([job], [job.start()], 1, 1)[0].z[0]

    rows = [base.rows(0, np.array([u])) for u in range(6)]
    ids = np.empty(12)
    for u, mine in enumerate(rows):
        ids[mine] = u
    first = released(base.X, base.y, ids)
    rng, moves = np.random.default_rng(0), []
    for u in range(6):
        kept = ids != u
        X = np.concatenate([base.X[kept], 10.0 ** rng.integers(-1, 6) * rng.normal(size=(3, 4))])
        moved = released(X, np.r_[base.y[kept], rng.integers(0, 3, 3)], np.r_[ids[kept], [u, u, u]])
        moves.append(np.linalg.norm(moved - first))
    assert 0.5 * 2 * 0.7 / 6 < max(moves) <= 2 * 0.7 / 6 * (1 + 1e-9)


@ENGINE
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_softmax_of_two_classes_runs_as_the_logistic_loss(engine, intercept, make_shards):
    """w = x₁ − x₀, with half of μ and of γ, and noise of opposite signs: the same trajectory, round for round."""
    shards = make_shards(n=5, outputs=2)
    signs = shards.relabeled(2 * shards.y - 1)
    two = SPEC.replace(problem__loss="softmax", problem__outputs=2, problem__intercept=intercept)
    one = SPEC.replace(problem__loss="logistic", problem__h="l2(0.05)", algorithm__gamma="sqrt(0.25)")
    two, one = prepare(two, shards).job, prepare(one.replace(problem__intercept=intercept), signs).job
    m = one.problem.m
    noise = noise_of(m)
    two = replace(two, draws=Given(two.draws, lambda i, t: np.hstack([-noise(i, t), noise(i, t)])))
    one = replace(one, draws=Given(one.draws, noise))
    a, b = final(engine, two), final(engine, one)
    x = two.method.average(a, T).reshape(5, 2, m)
    assert close(x[:, 1] - x[:, 0], one.method.average(b, T)) and close(a.z[:, m:], b.z) and close(a.z[:, :m], -b.z)


@ENGINE
@pytest.mark.parametrize("loss", ["hinge", "logistic", "smoothed_hinge"])
@pytest.mark.parametrize("people", [False, True])
def test_one_against_the_rest_runs_as_a_run_for_each_class(engine, loss, people, make_shards):
    shards = make_shards(n=5, outputs=3, people=people)
    joint = prepare(SPEC.replace(problem__loss=loss, problem__outputs=3), shards).job
    noise = noise_of(12)
    joint = replace(joint, draws=Given(joint.draws, noise))
    x = joint.method.average(final(engine, joint), T).reshape(5, 3, 4)
    for k in range(3):
        alone = prepare(SPEC.replace(problem__loss=loss), shards.relabeled(np.where(shards.y == k, 1.0, -1.0))).job
        mine = Given(alone.draws, lambda i, t, k=k: noise(i, t)[:, 4 * k : 4 * k + 4])
        alone = replace(alone, draws=mine)
        assert close(x[:, k], alone.method.average(final(engine, alone), T))


@ENGINE
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("sampling", ["one", "poisson(3)", "full"])
def test_people_of_one_row_each_are_records_bit_for_bit(engine, outputs, sampling, make_shards):
    plain = make_shards(n=5, outputs=outputs)
    people = Shards.of(plain.X, plain.y, plain.offsets, user_ids=np.random.default_rng(0).permutation(40))
    spec = SPEC.replace(problem__outputs=outputs, privacy__sampling=sampling, privacy__noise="gaussian(0.3)")
    a, b = (final(engine, prepare(spec, shards).job) for shards in (plain, people))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(a, b, strict=True))


@ENGINE
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_person_with_a_row_many_times_is_a_record(engine, outputs, make_shards):
    """The mean over copies of a row is the row: with another number of copies for everybody, scattered."""
    plain = make_shards(n=5, outputs=outputs)
    rng = np.random.default_rng(1)
    parts = [rng.permutation(np.repeat(plain.rows(i, np.arange(8)), rng.integers(1, 5, 8))) for i in range(5)]
    rows = np.concatenate([np.r_[plain.rows(i, np.arange(8)), part] for i, part in enumerate(parts)])
    offsets = np.concatenate([[0], np.cumsum([8 + len(part) for part in parts])])
    copied = Shards.of(plain.X[rows], plain.y[rows], offsets, user_ids=rows)
    spec = SPEC.replace(problem__outputs=outputs, privacy__noise="gaussian(0.3)")
    a, b = (final(engine, prepare(spec, shards).job) for shards in (plain, copied))
    assert close(a.z, b.z) and close(a.total, b.total)


@ENGINE
@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_renaming_classes_renames_the_model(engine, loss, make_shards):
    shards = make_shards(n=5, outputs=3)
    turn = np.array([2, 0, 1])  # class k becomes turn[k]
    spec = SPEC.replace(problem__loss=loss, problem__outputs=3)
    a, b = (
        prepare(spec, s).job.method.average(final(engine, prepare(spec, s).job), T).reshape(5, 3, 4)
        for s in (shards, shards.relabeled(turn[shards.y.astype(int)]))
    )
    assert close(b[:, turn], a) and not close(b, a, 1e-3)


@pytest.mark.parametrize(("row", "target"), [([1e-170, 1e-170], 1e250), ([1e300, -1e300], 1.0), ([1e-200, 0.0], 1e300)])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_no_person_evades_the_compiled_clip(kind, row, target):
    X = np.array([row, row, [0.5, 0.5], [0.1, 0.2], [-x for x in row]])
    y = np.array([target, target, 1.0, -1.0, 2.0])
    shards = Shards.of(kind(X), y, np.array([0, 3, 5]), user_ids=[0, 0, 1, 2, 2])
    spec = SPEC.replace(problem__loss="squared", privacy__clip=1.0, problem__on_violation="clip", problem__outputs=1)
    spec = spec.replace(network__activation="everyone", privacy__sampling="full")
    job = prepare(spec, shards).job
    found, wanted = final("compiled", job), final("reference", job)
    assert np.all(np.isfinite(found.z)) and np.max(np.linalg.norm(found.z, axis=1)) <= T * (1 + 1e-9)
    assert np.allclose(found.z, wanted.z, rtol=1e-6, atol=1e-6)


def test_only_runs_of_the_same_outputs_and_units_are_stacked(make_shards):
    shards = make_shards(n=5, outputs=2, people=True)
    records = replace(shards, starts=None, offsets=2 * shards.offsets)
    job = prepare(SPEC.replace(problem__outputs=2), shards).job
    for spec, data, words in (
        (SPEC.replace(problem__outputs=2), records, "differ in their data"),
        (SPEC.replace(problem__outputs=2, problem__loss="softmax"), shards, "differ in their loss"),
        (SPEC.replace(problem__outputs=3), shards, "5 rows of 8 numbers"),
    ):
        other = prepare(spec, data).job
        with pytest.raises(SpecError, match=words):
            compiled.run_many([job, other], [job.start(), other.start()], 1, 10)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_slopes_at_the_least_of_floats_are_slopes(kind):
    """e^−720, of a softmax that is sure of a row, has no reciprocal; the person's other row counts all the same."""
    shards = Shards.of(kind(np.array([[1.0], [0.5]])), np.array([0, 1]), np.array([0, 2]), user_ids=[0, 0])
    spec = SPEC.replace(problem__loss="softmax", problem__outputs=2, network__activation="everyone")
    job = prepare(spec.replace(privacy__sampling="full", algorithm__rounds=1), shards).job
    start = job.start()._replace(z=-job.method.modulus[0] * np.array([[360.0, -360.0]]))
    (found,), (wanted,) = (ENGINES[name].run([job], [start], 1, 1) for name in ("compiled", "reference"))
    assert abs(wanted.z[0] - start.z[0]).min() > 0.2 and close(found.z, wanted.z)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("loss", ["softmax", "squared_hinge"])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_rows_gone_through_together_are_rows(loss, intercept, kind):
    """More of them than go together, and one that is too long for any number: it counts as nothing, the others not."""
    rng, most = np.random.default_rng(4), np.finfo(kind).max
    X = (rng.normal(size=(77, 21)) / 6).astype(kind)
    X[40] = most * (1.0 - 2.0 * (np.arange(21) % 2))
    shards = Shards.of(X, rng.integers(0, 3, 77).astype(float), np.array([0, 77]))
    spec = SPEC.replace(
        problem__loss=loss, problem__outputs=3, problem__intercept=intercept, problem__on_violation="clip"
    )
    spec = spec.replace(network__activation="everyone", privacy__sampling="full", privacy__clip=0.3)
    job = prepare(spec, shards).job
    found, wanted = final("compiled", job), final("reference", job)
    assert np.all(np.isfinite(found.z)) and close(found.z, wanted.z) and close(found.total, wanted.total)
