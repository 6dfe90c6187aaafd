"""Questions that threads ask at the same time are answered once, and in parallel where they differ."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sottovoce.errors import PrivacyError
from sottovoce.experiments.sweep import sweep
from sottovoce.privacy import accounting, calibration
from sottovoce.privacy.accounting import cached
from sottovoce.problem.shards import Shards
from sottovoce.run.presets import private


def test_one_computes_and_the_others_wait():
    computed, barrier = [], threading.Event()

    @cached(8)
    def slow(x):
        computed.append(x)
        assert barrier.wait(10)
        return [x]

    with ThreadPoolExecutor(4) as pool:
        requested = [pool.submit(slow, 1) for _ in range(4)]
        threading.Timer(0.05, barrier.set).start()
        answers = [each.result(10) for each in requested]
    assert computed == [1] and all(answer is answers[0] for answer in answers)


def test_other_questions_do_not_wait():
    meet = threading.Barrier(2, timeout=10)

    @cached(8)
    def both(x):
        meet.wait()  # breaks unless the two are under way together
        return x

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(both, (1, 2))) == [1, 2]


def test_what_failed_is_requested_again():
    tries = []

    @cached(8)
    def never(x):
        tries.append(x)
        raise PrivacyError("no")

    for _ in range(2):
        with pytest.raises(PrivacyError):
            never(1)
    assert tries == [1, 1]


def test_old_answers_go_first():
    computed = []

    @cached(2)
    def same(x):
        computed.append(x)
        return x

    assert [same(x) for x in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2] and computed == [1, 2, 3, 2]


def test_seeds_of_a_sweep_share_their_accounts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (600, 3))
    shards = Shards.of(X, np.sign(X[:, 0]), np.array([0, 200, 400, 600]))
    specs = [private(40).replace(privacy__noise=f"private({e})", seed=s) for s in range(4) for e in (0.71, 1.31, 2.91)]
    functions = calibration._least, accounting._compute_epsilon
    before = [function.cache_info().misses for function in functions]
    results = sweep(specs, shards, jobs=2)
    # one noise an ε; one cost of ε alone, and one of all that a statement shows
    assert [f.cache_info().misses - b for f, b in zip(functions, before, strict=True)] == [3, 6]
    assert [result.spec for result in results] == specs
    assert len({result.statement.epsilon for result in results}) == 3
