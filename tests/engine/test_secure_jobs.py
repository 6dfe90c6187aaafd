"""Jobs whose releases are secure: the same bits in every engine and place, the right laws, and refusals."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from contract import BASE, CASES, NAMES, difference, job_of
from scipy import sparse, stats

from sottovoce.engine import ENGINES, choose, reference, secure
from sottovoce.engine.job import draw, gradients
from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.release import Tree
from sottovoce.privacy.sampling import Fixed
from sottovoce.problem.losses import LOSSES, Joint
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.secure import sums
from sottovoce.secure.generator import generators

GRID = 1e-5  # of σ: where sums differ in their last bits, releases may differ by a step of their grid, 2⁻²⁰ of σ


def keyed(job, key=0):
    """The same job with keys that a test knows: what two engines draw is then the same."""
    assert job.secure
    return replace(job, draws=replace(job.draws, keys=generators(bytes([key] * 32), b"test", bytes(32))))


def secure_job(case, make_shards, rounds=20, **changes):
    noisy = "gaussian(0.3)" if case["noise"] == "none" else case["noise"]
    return keyed(job_of(case | {"noise": noisy}, make_shards, rounds, seed=None, **changes))


def same(one, other):
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_nodes_equal_the_reference(case, make_shards):
    """Bit for bit where mixing is exact, as is the mean of two; elsewhere up to a step of the grid."""
    for change in ({"activation": "edges(1)", "mixing": "metropolis", "averaging": "gossip"}, {}):
        job = secure_job(case | change, make_shards)
        expected = reference.run(job, job.start(), 1, 20)
        (found,) = ENGINES["nodes"].run([job], [job.start()], 1, 20)
        if change:
            assert same(found, expected)
        assert difference(found, expected) < GRID


LAYERED = [
    ("gaussian", "descent", "poisson(3)", "transcript"),
    ("gaussian", "mixup", "full", "transcript"),
    ("laplace", "mixup", "full", "transcript"),
    ("pairs(2.0)", "descent", "one", "secret_pairs"),
    ("pairs(2.0, graph=ring)", "tracking", "full", "secret_pairs(1)"),
    ("tree", "dual_averaging", "cyclic(3)", "central"),
    ("gaussian", "stale", "fixed(3)", "transcript"),
    ("gaussian", "tracking", "full", "transcript"),
    ("gaussian", "scaffold", "full", "transcript"),
    ("gaussian", "muffliato(3, 1.2)", "full", "transcript"),
]


def layered_job(law, method, sampling, adversary, make_shards):
    shards = make_shards(n={"tree": 1, "pairs(2.0, graph=ring)": 3}.get(law, 2), q=12, m=5)
    spec = Spec(AlgorithmSpec(16, method, eta="inverse_sqrt(0.7)")).replace(
        network__activation="everyone",
        privacy__sampling=sampling,
        privacy__noise="gaussian(0.3)",
        privacy__law=law,
        privacy__adversary=adversary,
    )
    return keyed(prepare(spec, shards).job)


@pytest.mark.parametrize(("law", "method", "sampling", "adversary"), LAYERED)
def test_every_law_and_method_that_adds_noise_at_once_runs_securely(law, method, sampling, adversary, make_shards):
    job = layered_job(law, method, sampling, adversary, make_shards)
    expected = reference.run(job, job.start(), 1, 16)
    (found,) = ENGINES["nodes"].run([job], [job.start()], 1, 16)
    few = job.problem.shards.n < 3  # two mix to the same bits
    assert same(found, expected) if few else difference(found, expected) < GRID
    other = keyed(job, 1)
    assert not np.any(reference.run(other, other.start(), 1, 16).z == expected.z)


@pytest.mark.parametrize("engine", ["reference", "nodes"])
def test_cutting_a_run_into_pieces_changes_nothing(engine, make_shards, monkeypatch):
    job = secure_job(BASE | {"sampling": "poisson(3)"}, make_shards, 30)
    (whole,) = ENGINES[engine].run([job], [job.start()], 1, 30)
    monkeypatch.setattr(reference, "NOISE_BLOCK", 7)
    monkeypatch.setattr(secure, "WORDS", 9)
    state = job.start()
    for first, last in ((1, 4), (5, 5), (6, 29), (30, 30)):
        (state,) = ENGINES[engine].run([job], [state], first, last)
    assert same(whole, state)


def compiled(job):
    """The same job with everything that can be compiled."""
    sums = job.draws.sums
    if isinstance(sums, secure.ExactSums):
        sums = replace(sums, compiled=True)
    return replace(job, draws=replace(job.draws, sums=sums, compiled=True))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_compiled_sums_and_noise_are_the_same_bits(case, make_shards):
    """Every loss, sampler, activation and kind of data: the state after rounds, to the last bit."""
    job = secure_job(case, make_shards)
    assert same(*(reference.run(one, one.start(), 1, 20) for one in (job, compiled(job))))


@pytest.mark.parametrize(("law", "method", "sampling", "adversary"), LAYERED)
def test_compiled_noises_of_every_law_are_the_same_bits(law, method, sampling, adversary, make_shards):
    job = layered_job(law, method, sampling, adversary, make_shards)
    assert same(*(reference.run(one, one.start(), 1, 16) for one in (job, compiled(job))))


# --- places


def moved(shards, rng, how):
    """The same records of every node, in another order: in memory, or by an index."""
    order = np.concatenate([a + rng.permutation(b - a) for a, b in itertools.pairwise(shards.offsets)])
    X, y = shards.X, shards.y
    if how == "by an index":
        back = np.argsort(rng.permutation(len(y)))
        owner_order = np.argsort(back)
        return Shards.of(X[back], y[back], shards.offsets, owner_order[order])
    return Shards.of(X[order], y[order], shards.offsets)


@pytest.mark.parametrize("how", ["in memory", "by an index"])
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array], ids=["dense", "float32", "csr"])
@pytest.mark.parametrize(("loss", "outputs"), [("logistic", 1), ("hinge", 1), ("softmax", 3), ("logistic", 3)])
def test_the_order_of_the_records_changes_no_bit(kind, how, loss, outputs, make_shards, monkeypatch):
    shards = make_shards(n=2, q=150, m=17, kind=kind, outputs=outputs)
    spec = Spec(AlgorithmSpec(12)).replace(
        problem__loss=loss,
        problem__outputs=outputs,
        problem__intercept=0.5,
        problem__on_violation="clip",
        privacy__sampling="full",
        privacy__noise="gaussian(0.01)",
        network__activation="everyone",
    )
    job, rng = keyed(prepare(spec, shards).job), np.random.default_rng(1)
    expected = reference.run(job, job.start(), 1, 12)
    other = keyed(prepare(spec, moved(shards, rng, how)).job)
    assert same(reference.run(other, other.start(), 1, 12), expected)
    monkeypatch.setattr(sums, "BLOCK", 40)  # split
    assert same(reference.run(other, other.start(), 1, 12), expected)


def test_the_order_changes_bits_of_floating_point(make_shards):
    """Else the test above would show nothing."""
    shards = make_shards(n=2, q=150, m=17)
    spec = Spec(AlgorithmSpec(12), seed=1).replace(privacy__sampling="full", network__activation="everyone")
    spec = spec.replace(problem__loss="logistic", privacy__noise="gaussian(0.01)")
    jobs = [prepare(spec, some).job for some in (shards, moved(shards, np.random.default_rng(1), "in memory"))]
    assert not same(*(reference.run(job, job.start(), 1, 12) for job in jobs))


def test_the_order_of_people_changes_no_bit(make_shards):
    rng = np.random.default_rng(0)
    shards, ids = make_shards(n=1, q=120, m=9), np.repeat(np.arange(40), 3)
    spec = Spec(AlgorithmSpec(8)).replace(
        problem__loss="logistic",
        privacy__clip=0.2,
        privacy__sampling="full",
        privacy__noise="gaussian(0.01)",
    )
    ends = []
    for order in (np.arange(120), rng.permutation(120)):
        people = Shards.of(shards.X[order], shards.y[order], shards.offsets, user_ids=ids[order])
        job = keyed(prepare(spec, people).job)
        ends.append(reference.run(job, job.start(), 1, 8))
    assert same(*ends)


def test_a_row_over_the_bound_counts_as_brought_to_it(make_shards):
    """By itself: anyone who else is there, its part of the sum is what it is alone."""
    shards = make_shards(n=1, q=30, m=6)
    X = shards.X.copy()
    X[::3] *= 50.0
    spec = Spec(AlgorithmSpec(3)).replace(
        problem__loss="squared_hinge",
        privacy__clip=0.7,
        problem__on_violation="clip",
        privacy__sampling="full",
        privacy__noise="gaussian(0.01)",
    )
    draws = prepare(spec, Shards.of(X, shards.y, shards.offsets)).job.draws
    x = np.random.default_rng(1).normal(size=6)
    whole = draws.sums.total(0, x, None)
    each = [draws.sums.total(0, x, np.array([r])) for r in range(30)]
    assert np.array_equal(whole, np.sum(each, axis=0))
    sizes = np.linalg.norm(np.array(each) * draws.sums.grids.sum, axis=1)
    assert sizes.max() <= 0.7 and sizes.max() > 0.699
    with pytest.raises(Exception, match="rows are over the public bound"):
        prepare(spec.replace(problem__on_violation="raise"), Shards.of(X, shards.y, shards.offsets))


# --- laws


def noise_of(job, t, node=0):
    """ζ − ĝ of a node at x = 0, in many rounds."""
    nodes, t = np.full(len(t), node), np.asarray(t)
    drawn = draw(job.draws, nodes, t, np.ones(len(t), dtype=bool), job.problem.m)
    x = np.zeros((len(t), job.problem.m))
    assert not drawn.noise.any()
    return drawn.gradient(job.problem, job.release, nodes)(x) - gradients(
        job.problem, job.release, nodes, drawn.records
    )(x)


def fits(values, sigma, law=stats.norm):
    """Whether values are of a law with this scale: Kolmogorov and Smirnov, and their mean size."""
    values = np.ravel(values) / sigma
    size, spread = law.expect(np.abs), np.sqrt(law.var() - law.expect(np.abs) ** 2)
    near = abs(np.mean(np.abs(values)) - size) < 4 * spread / np.sqrt(len(values))
    return near and stats.kstest(values, law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("sampling", ["full", "poisson(7)", "fixed(7)", "cyclic(7)"])
def test_the_noise_is_gaussian_with_the_release_s_scale(sampling, make_shards):
    spec = Spec(AlgorithmSpec(3000)).replace(privacy__sampling=sampling, privacy__noise="gaussian(0.2)")
    job = keyed(prepare(spec, make_shards(n=1, q=50, m=12)).job)
    found = noise_of(job, np.arange(1, 3001))
    assert fits(found, 0.2)
    assert not fits(found, 0.2 * 1.03) and not fits(found, 0.2 / 1.03)
    assert abs(np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]) < 4 / np.sqrt(found.size)


@pytest.mark.parametrize(("law", "reference_law"), [("gaussian", stats.norm), ("laplace", stats.laplace)])
def test_shaped_noise_is_so_much_larger_than_its_gain_is_smaller(law, reference_law, make_shards):
    spec = Spec(AlgorithmSpec(400, "mixup(0.3)")).replace(
        privacy__law=law, privacy__sampling="full", privacy__noise="gaussian(0.2)", network__activation="everyone"
    )
    job = keyed(prepare(spec, make_shards(n=1, q=50, m=60)).job)
    found = noise_of(job, np.arange(1, 401)) * job.method.weights[:, None]
    assert fits(found, 0.2, reference_law) and not fits(found, 0.2 * 1.05, reference_law)


def test_pairs_cancel_and_have_the_accounted_covariance(make_shards):
    spec = Spec(AlgorithmSpec(300)).replace(
        network__graph="ring",
        network__activation="everyone",
        privacy__law="pairs(3.0)",
        privacy__adversary="secret_pairs",
        privacy__sampling="full",
        privacy__noise="gaussian(0.2)",
    )
    job = keyed(prepare(spec, make_shards(n=4, q=20, m=50)).job)
    found = np.stack([noise_of(job, np.arange(1, 301), node).ravel() for node in range(4)]) / 0.2
    expected = job.release.law.covariance()
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / found.shape[1])
    assert np.all(np.abs(np.cov(found) - expected) < 4 * error)
    assert fits(found.sum(axis=0), 2.0)  # what pairs share is gone: four nodes' own


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_pairs_of_uneven_nodes_have_the_accounted_covariance(graph, make_shards):
    """Times c_i: what pairs share is gone from the weighted sum, and another scale is not taken for it."""
    spec = Spec(AlgorithmSpec(300)).replace(
        network__activation="everyone",
        problem__weights="records",
        privacy__law=f"pairs(3, graph={graph})",
        privacy__adversary="secret_pairs(1)",
        privacy__sampling="full",
        privacy__noise="private(2)",
    )
    job = keyed(prepare(spec, make_shards(sizes=[20, 30, 25, 40, 35], m=50)).job)
    c, sigma = job.method.scale, np.array(job.release.sigma)
    noise = [c[i] * noise_of(job, np.arange(1, 301), i).ravel() for i in range(5)]
    found = np.stack(noise) / (c * sigma)[0]
    expected = job.release.law.covariance(()) / np.square(c * np.array(job.release.law.units(5)))[0]
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / found.shape[1])
    assert np.all(np.abs(np.cov(found) - expected) < 4 * error)
    assert not np.all(np.abs(np.cov(1.05 * found) - expected) < 4 * error)
    assert fits(found.sum(axis=0), np.sqrt(5)) and not fits(found.sum(axis=0), 1.05 * np.sqrt(5))


@pytest.mark.parametrize("batches", [1, 2, 5, 8, 13])
def test_a_tree_s_prefixes_are_the_nodes_that_make_them_up(batches):
    """Exactly: rounds before take away what the prefix no longer has, in every pass."""
    t = np.arange(1, 3 * batches + 1)
    held: dict[tuple[int, int], float] = {}
    rounds = [[] for _ in t]
    for source in Tree(batches).noise_terms(np.zeros_like(t), t):
        for row, *one in zip(source.rows, source.owners, source.rounds, source.factors, strict=True):
            rounds[row].append(tuple(one))
    for now, parts in zip(t.tolist(), rounds, strict=True):
        first = (now - 1) // batches * batches
        s = now - first
        held = held if s > 1 else {}
        for level, end, factor in parts:
            held[level, end] = held.get((level, end), 0.0) + factor
        made_up = {(level, first + (s >> level << level)): 1.0 for level in range(8) if s >> level & 1}
        assert {where: factor for where, factor in held.items() if factor} == made_up


def test_a_tree_s_noise_is_that_of_its_nodes(make_shards):
    spec = Spec(AlgorithmSpec(8)).replace(
        privacy__law="tree", privacy__sampling="cyclic(5)", privacy__noise="gaussian(0.2)", privacy__adversary="central"
    )
    job = keyed(prepare(spec, make_shards(n=1, q=40, m=4000)).job)
    prefixes = np.cumsum(noise_of(job, np.arange(1, 9)), axis=0)
    for s, made in enumerate(prefixes, start=1):
        assert fits(made, 0.2 * np.sqrt(s.bit_count()))
    assert np.allclose(prefixes[5] - prefixes[3], noise_of(job, [6])[0] + noise_of(job, [5])[0], atol=1e-6)


def test_a_run_made_twice_has_other_noise(make_shards):
    spec = Spec(AlgorithmSpec(50)).replace(privacy__sampling="full", privacy__noise="gaussian(0.2)")
    shards = make_shards(n=1, q=50, m=40)
    one, other = (noise_of(prepare(spec, shards).job, np.arange(1, 51)) for _ in range(2))
    assert not np.any(one == other) and abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


# --- what is refused


def test_the_compiled_engine_refuses_and_auto_does_not_take_it(make_shards, monkeypatch):
    job = secure_job(BASE, make_shards, 10)
    assert "the compiled engine does not know the secure release" in ENGINES["compiled"].refusal(job)
    with pytest.raises(SpecError, match="--no-secure"):
        ENGINES["compiled"].run([job], [job.start()], 1, 10)
    assert choose("auto", job, runs=10**9).name == "reference"
    plain = job_of(BASE, make_shards, 10)
    assert not plain.secure and choose("auto", plain, runs=10**9).name == "compiled"


@pytest.mark.parametrize(
    ("method", "changes", "why"),
    [
        ("huang", {}, "after a proximal map"),
        ("admm", {}, "after a proximal map"),
        ("output_perturbation", {}, "goes with a minimizer"),
        ("objective_perturbation", {"problem__loss": "logistic"}, "goes with a minimizer"),
    ],
)
def test_what_is_no_exact_sum_is_refused_unless_one_does_without(method, changes, why, make_shards):
    spec = Spec(AlgorithmSpec(1, method)).replace(
        privacy__sampling="full", network__activation="everyone", privacy__noise="gaussian(0.3)", **changes
    )
    shards = make_shards(n=1)
    with pytest.raises(PrivacyError, match=why) as details:
        prepare(spec, shards)
    assert "secure=False (--no-secure)" in str(details.value) and "or a seed" in str(details.value)
    assert not prepare(spec, shards, secure=False).statement.secure
    assert prepare(spec.replace(seed=1), shards).statement.simulation
    assert not prepare(spec.replace(privacy__noise="none"), shards).job.secure  # nothing to harden


class OtherSampler(Fixed):
    """Whose draws are its own."""


def test_formulas_and_samplers_that_are_not_known_are_refused(make_shards):
    job = prepare(Spec(AlgorithmSpec(3)).replace(privacy__noise="gaussian(0.3)"), make_shards()).job
    hinge = job.problem.loss
    mine = replace(hinge, slope_formula=lambda u, y, k: np.tanh(u))
    for loss in (mine, replace(mine, name="mine")):
        problem = replace(job.problem, loss=loss)
        assert f"the slope of loss '{loss.name}'" in secure.refusal(problem, job.method, job.release)
    other = replace(job.release, sampling=OtherSampler(2))
    assert "no exact way to draw records" in secure.refusal(job.problem, job.method, other)
    many_nodes = prepare(
        Spec(AlgorithmSpec(1)).replace(
            privacy__law="pairs(1.0)", privacy__adversary="secret_pairs(1)", network__activation="everyone"
        ),
        make_shards(n=513, q=2),
    ).job
    assert "with 512 others or more" in secure.refusal(many_nodes.problem, many_nodes.method, many_nodes.release)
    assert secure.refusal(job.problem, job.method, job.release) is None


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_the_table_has_an_exact_slope(name):
    """Equal to its own formula to rounding, and the same alone as among others."""
    loss = LOSSES.make(name)
    for outputs in (1, 3) if loss.targets == "binary" else (3,) if loss.targets == "classes" else (1,):
        joint, rng = Joint(loss, outputs), np.random.default_rng(0)
        u = rng.normal(size=(501, outputs) if outputs > 1 else 501) * 3
        y = rng.integers(0, 3, 501) if outputs > 1 else np.sign(rng.normal(size=501))
        slope = secure.slope_of(joint)
        whole = slope(u, y)
        assert np.allclose(whole, joint.slope(u, y), rtol=1e-12, atol=1e-12)
        assert np.array_equal(whole, np.concatenate([slope(u[r : r + 1], y[r : r + 1]) for r in range(501)]))


def test_a_seed_or_secure_false_make_plain_draws(make_shards):
    spec, shards = Spec(AlgorithmSpec(3)).replace(privacy__noise="gaussian(0.3)"), make_shards()
    assert isinstance(prepare(spec, shards).job.draws, SecureDraws) and prepare(spec, shards).statement.secure
    for plain in (prepare(spec.replace(seed=1), shards), prepare(spec, shards, secure=False)):
        assert not plain.job.secure and not plain.statement.secure
