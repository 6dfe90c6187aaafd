"""poisson(0.05): the same share of every node's records, whatever their number, in draws, accounting and engines."""

import numpy as np
import pytest

from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.run.build import prepare
from sottovoce.run.presets import private


def test_a_share_is_a_batch_of_each_nodes_own_size():
    share, batch = SAMPLINGS.read("poisson(0.1)"), SAMPLINGS.read("poisson(20)")
    assert [share.batch(q) for q in (3, 50, 200)] == [1, 5, 20] and SAMPLINGS.read(str(share)) == share
    stream = np.random.default_rng(0).random(400)
    drawn = [s.draw(lambda first, count: stream[first : first + count], 200) for s in (share, batch)]
    assert np.array_equal(*drawn)  # where the sizes agree, so do the draws
    for wrong in ("poisson(0)", "poisson(1.5)", "poisson(-0.1)", "fixed(0.5)"):
        with pytest.raises(SpecError, match="whole number of records"):
            SAMPLINGS.read(wrong)


def test_every_record_is_drawn_at_the_accounted_rate(make_shards):
    shards = make_shards(n=3, q=40, m=2)
    job = prepare(private(600).replace(seed=1, privacy__sampling="poisson(0.1)", privacy__noise="none"), shards).job
    counts = np.zeros((3, 40))
    for t in range(1, 601):
        for i, records in enumerate(job.draws.records(np.arange(3), np.full(3, t))):
            counts[i, records] += 1
    assert job.release.event(0, 40, 600).rate == 0.1
    assert np.mean(counts) / 600 == pytest.approx(0.1, rel=0.05)
    assert np.max(np.abs(counts / 600 - 0.1)) < 5 * np.sqrt(0.09 / 600)


@pytest.mark.parametrize("engine", ["nodes", "compiled"])
def test_engines_agree(engine, make_shards):
    shards = make_shards(n=4, q=30, m=5)
    job = prepare(
        private(40).replace(seed=2, privacy__sampling="poisson(0.2)", privacy__noise="gaussian(0.1)"), shards
    ).job
    states = [ENGINES[name].run([job], [job.start()], 1, 40)[0] for name in ("reference", engine)]
    assert np.allclose(states[0].z, states[1].z, rtol=1e-5, atol=1e-5)
