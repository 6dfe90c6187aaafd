"""What must hold at the ends of the floats, compiled as in the reference: tails of the noise, and the clip."""

import numpy as np
import pytest
from contract import normal_rows
from scipy import sparse

from sottovoce import streams
from sottovoce.engine import compiled, reference
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce.streams import Purpose, Streams


def rare(s):
    """(node, round) pairs whose noise has a radius that takes the refined branch."""
    for t in range(1, 3000):
        k0, k1 = s._pairs(Purpose.NOISE, np.arange(8), t)
        w0, _ = streams.threefry((k0[:, None], k1[:, None]), (np.arange(1000, dtype=np.uint32), 0))
        for node in np.unique(np.nonzero(w0 < streams.TAIL)[0]):
            yield int(node), t


def test_the_refined_tail_is_the_same_in_both():
    s = Streams(3)
    pairs = list(rare(s))
    assert len(pairs) > 2
    nodes, ts = (np.array(values) for values in zip(*pairs, strict=True))
    wanted = s.normals(nodes, ts, 2000)
    found = normal_rows(np.ravel(s.key(Purpose.NOISE)), nodes, ts, 2000)
    assert np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-3)) < 1e-5


def test_the_tail_goes_beyond_what_32_bits_can_reach(monkeypatch):
    """The refined radius of the smallest word lies between 6.6 and 9.5, and uses the second block."""
    s = Streams(3)
    node, t = next(rare(s))
    plain = s.normals(np.array([node]), t, 2000)
    monkeypatch.setattr(streams, "TAIL", 0)
    coarse = s.normals(np.array([node]), t, 2000)
    moved = np.flatnonzero(plain != coarse)
    assert 1 <= len(moved) <= 4  # the two coordinates of the rare block, and no others


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("row", "target"), [([1e-170, 1e-170], 1e250), ([1e300, -1e300], 1.0), ([1e-200, 0.0], 1e300)])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_no_number_evades_the_compiled_clip(kind, row, target):
    X = np.array([row, row, [0.5, 0.5], [0.1, 0.2]])
    shards = Shards.of(kind(X), np.array([target, -target, 1.0, -1.0]), np.array([0, 2, 4]))
    spec = paper_l2(12).replace(problem__loss="squared", privacy__clip=1.0, problem__on_violation="clip", seed=1)
    spec = spec.replace(network__activation="everyone", problem__h="l2(0.1)", algorithm__a="constant(1)")
    job = prepare(spec, shards).job
    found, wanted = (run(job, job.start(), 1, 12) for run in (compiled.run, reference.run))
    assert np.all(np.isfinite(found.z)) and np.max(np.linalg.norm(found.z, axis=1)) <= 12 * (1 + 1e-9)
    assert np.allclose(found.z, wanted.z, rtol=1e-6, atol=1e-6)
