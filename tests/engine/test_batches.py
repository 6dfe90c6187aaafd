"""Large batches: blocks of rows, records that do not pull, and rows that were partitioned."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from contract import difference, injected
from scipy import sparse

from sottovoce.engine import compiled, reference
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec

ROUNDS = 12
KINDS = {"dense": np.asarray, "float32": np.float32, "csr": sparse.csr_array}


def partitioned(q, m, kind, nodes=3, people=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(nodes * q, m)) * (rng.random((nodes * q, m)) < 0.5)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1e-9)[:, None]
    ids = np.arange(nodes * q) // 2 if people else None
    offsets, order = even(nodes * q, nodes, None if people else rng)
    return Shards.of(KINDS[kind](X), np.sign(X[:, 0] + 0.1), offsets, order, user_ids=ids)


def job_on(shards, sampling, loss="hinge", **changes):
    spec = Spec(AlgorithmSpec(ROUNDS, a="constant(1)", gamma="constant(0.01)"), seed=3)  # long steps: some do not pull
    spec = spec.replace(network__activation="everyone", privacy__sampling=sampling, privacy__noise="gaussian(0.01)")
    return prepare(spec.replace(problem__loss=loss, problem__intercept=0.5, **changes), shards).job


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", ["full", "poisson(0.7)", "fixed(300)"])
@pytest.mark.parametrize(("q", "m"), [(520, 3), (301, 40)])
def test_blocks_of_rows(kind, sampling, q, m):
    """More rows than a block has, and a last block that is not full; a clip, and many records that do not pull."""
    shards = partitioned(q, m, kind)
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
    shards = partitioned(30, 4, kind)
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


def test_rows_too_long_for_a_block():
    job = job_on(partitioned(9, 6000, "float32"), "full", "logistic")
    expected = reference.run(job, job.start(), 1, ROUNDS)
    assert difference(compiled.run(injected(job), job.start(), 1, ROUNDS), expected) < 1e-12


def test_rows_that_were_partitioned_are_copied_once_and_only_where_that_pays(monkeypatch):
    shards = partitioned(40, 5, "dense")
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
    assert compiled._laid_out(job_on(partitioned(40, 5, "dense", people=True), "full")).order is None


def test_rows_that_changed_in_place_are_copied_anew():
    shards = partitioned(40, 5, "dense")
    compiled._laid_out(job_on(shards, "full"))
    shards.X[:] *= -0.5
    anew = Shards.of(shards.X, shards.y, shards.offsets, shards.order)
    assert np.array_equal(compiled._laid_out(job_on(anew, "full")).X, shards.X[shards.order])


def test_a_copy_goes_with_its_data():
    shards = partitioned(40, 5, "csr")
    compiled._laid_out(job_on(shards, "full"))
    assert compiled._copied
    del shards
    gc.collect()
    assert not compiled._copied
