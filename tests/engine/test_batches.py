"""Large batches in the kernel: blocks of rows, records that do not pull, and rows that were dealt out."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from contract import difference, from_python, injected
from scipy import sparse

from sottovoce.engine import compiled, reference
from sottovoce.engine.kernel import entries
from sottovoce.engine.kernel.data import RUNGS, clipped_slopes, code_of, kept
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

ROUNDS = 12
KINDS = {"dense": np.asarray, "float32": np.float32, "csr": sparse.csr_array}


def dealt(q, m, kind, nodes=3, people=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(nodes * q, m)) * (rng.random((nodes * q, m)) < 0.5)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1e-9)[:, None]
    ids = np.arange(nodes * q) // 2 if people else None
    offsets, order = even(nodes * q, nodes, None if people else rng)
    return Shards.of(KINDS[kind](X), np.sign(X[:, 0] + 0.1), offsets, order, units=ids)


def job_on(shards, sampling, loss="hinge", **changes):
    spec = Spec(AlgorithmSpec(ROUNDS, a="constant(1)", gamma="constant(0.01)"), seed=3)  # long steps: some do not pull
    spec = spec.but(network__activation="everyone", privacy__sampling=sampling, privacy__noise="gaussian(0.01)")
    return prepare(spec.but(problem__loss=loss, problem__intercept=0.5, **changes), shards).job


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", ["full", "poisson(0.7)", "fixed(300)"])
@pytest.mark.parametrize(("q", "m"), [(520, 3), (301, 40)])
def test_blocks_of_rows(kind, sampling, q, m):
    """More rows than a block has, and a last block that is not full; a clip, and many records that do not pull."""
    shards = dealt(q, m, kind)
    for changes in ({}, {"privacy__clip": 0.4}):
        job = job_on(shards, sampling, **changes)
        start = job.start()
        expected = reference.run(job, start, 1, ROUNDS)
        assert difference(compiled.run(injected(job), start, 1, ROUNDS), expected) < 1e-12
        assert difference(compiled.run(job, start, 1, ROUNDS), expected) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sampling", "loss", "outputs"), [("full", "hinge", 1), ("fixed(1)", "hinge", 1), ("full", "softmax", 3)]
)
def test_weights_of_records(kind, sampling, loss, outputs):
    """One record at a time, in batches, and of several outputs, with a clip that weights may keep a record from."""
    shards = dealt(30, 4, kind)
    rng = np.random.default_rng(1)
    y = np.digitize(rng.normal(size=90), [-0.5, 0.5]).astype(float) if outputs > 1 else shards.y
    shards = replace(shards, y=y, weights=rng.random(90))
    job = job_on(shards, sampling, loss, problem__outputs=outputs, privacy__clip=0.5)
    expected = reference.run(job, job.start(), 1, ROUNDS)
    assert difference(compiled.run(injected(job), job.start(), 1, ROUNDS), expected) < 1e-12
    plain = prepare_again(job, replace(shards, weights=None))
    assert difference(reference.run(plain, job.start(), 1, ROUNDS), expected) > 1e-3


def prepare_again(job, shards):
    """The same run on other records."""
    return replace(job, problem=replace(job.problem, shards=shards.with_intercept(job.problem.shards.intercept)))


@pytest.fixture(scope="module")
def slopes_of_rows():
    return from_python(clipped_slopes)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_of_a_block(name, weighted, slopes_of_rows):
    """As the table's formulas, clipped as the reference does it, of rows in any order, at the extremes, too."""
    loss, clip, rng = RUNGS[name], 0.3, np.random.default_rng(4)
    shards = dealt(40, 3, "dense")
    shards = replace(shards, weights=rng.random(120) if weighted else None)
    data = compiled._data(shards)
    rows = rng.permutation(120)[:53]
    u = 4 * rng.normal(size=53)
    u[:12] = [0.0, -0.0, 1.0, -1.0, 36.0, -36.0, 745.0, -745.0, 1e308, -1e308, np.inf, np.nan]
    found, about = u.copy(), np.empty(64)
    slopes_of_rows(data, code_of(loss), loss.parameter, clip, rows, about, found)
    with np.errstate(all="ignore"):
        expected = shards.weighted(loss.slope(u, shards.y[rows]), rows)
        size = np.abs(expected) * shards.norms[rows]
        expected = np.where(np.isfinite(size), expected * np.minimum(1.0, clip / np.maximum(size, 1e-300)), 0.0)
    assert np.allclose(found, expected, rtol=1e-14, atol=1e-300) and np.any(size > clip)


def test_rows_that_do_not_pull_are_left_out():
    u, rows = np.array([1.0, 0.0, -2.0, -0.0, 3.0]), np.arange(5)
    assert from_python(kept)(u, rows) == 3 and u[:3].tolist() == [1, -2, 3] and rows[:3].tolist() == [0, 2, 4]
    u, rows = np.array([1.0, -2.0]), np.arange(2)
    assert from_python(kept)(u, rows) == 2 and u.tolist() == [1, -2] and rows.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [np.uint16, np.int32])
@pytest.mark.parametrize("mean", [3, 20])
def test_products_of_sparse_rows(mean, kind, monkeypatch):
    """Columns are numbered in two bytes where that is enough, else as SciPy does; rows of any length and order."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 40)) * (rng.random((60, 40)) < rng.random((60, 1)) * mean / 20)
    X[7:9] = 0.0
    shards = Shards.of(sparse.csr_array(X), np.ones(60), np.array([0, 60]))
    monkeypatch.setattr(compiled, "SHORT", 40 if kind == np.uint16 else 39)
    data = compiled._data(shards)
    assert data.indices.dtype == kind and (data.values.size < entries.SHORT * 60) == (mean < entries.SHORT)
    rows, x, u, g = np.append(rng.permutation(59)[:49], 59), rng.normal(size=40), np.empty(50), np.ones(40)
    from_python(entries.margins)(data.values, data.indices, data.indptr, rows, x, 0.5, u)
    assert np.allclose(u, X[rows] @ x + 0.5, rtol=1e-13, atol=1e-13)
    from_python(entries.pull)(data.values, data.indices, data.indptr, rows, u, g)
    assert np.allclose(g, 1.0 + X[rows].T @ u, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("length", [9, 15, 16, 17, 33])
def test_there_may_be_one_row_alone(length):
    x, u = np.arange(1.0, length + 1), np.empty(1)
    row = np.ones(length), np.arange(length, dtype=np.uint16), np.array([0, length], np.int32)
    from_python(entries.margins)(*row, np.zeros(1, np.int64), x, 0.5, u)
    assert u[0] == length * (length + 1) / 2 + 0.5


def test_rows_too_long_for_a_block():
    job = job_on(dealt(9, 6000, "float32"), "full", "logistic")
    expected = reference.run(job, job.start(), 1, ROUNDS)
    assert difference(compiled.run(injected(job), job.start(), 1, ROUNDS), expected) < 1e-12


def test_rows_that_were_dealt_out_are_copied_once_and_only_where_that_pays(monkeypatch):
    shards = dealt(40, 5, "dense")
    often, seldom = job_on(shards, "full"), job_on(shards, "fixed(2)")
    assert compiled._laid_out(seldom) is seldom.problem.shards  # twelve rounds of two are less than a pass
    other = compiled._laid_out(often)
    assert other.order is None and np.array_equal(other.X, shards.X[shards.order])
    assert np.array_equal(other.norms, often.problem.shards.norms[shards.order])
    assert compiled._laid_out(job_on(shards, "full")).X is other.X
    again = replace(shards, order=shards.order[::-1].copy())
    assert np.array_equal(compiled._laid_out(job_on(again, "full")).X, shards.X[again.order])
    monkeypatch.setattr(compiled, "COPIED", 10)
    assert compiled._laid_out(often) is often.problem.shards
    assert compiled._laid_out(job_on(dealt(40, 5, "dense", people=True), "full")).order is None


def test_rows_that_changed_in_place_are_copied_anew():
    shards = dealt(40, 5, "dense")
    compiled._laid_out(job_on(shards, "full"))
    shards.X[:] *= -0.5
    anew = Shards.of(shards.X, shards.y, shards.offsets, shards.order)
    assert np.array_equal(compiled._laid_out(job_on(anew, "full")).X, shards.X[shards.order])


def test_a_copy_goes_with_its_data():
    shards = dealt(40, 5, "csr")
    compiled._laid_out(job_on(shards, "full"))
    assert compiled._copied
    del shards
    gc.collect()
    assert not compiled._copied
