"""Four real processes on the loopback interface, one of which lies, and a hostile relay between: nothing changes."""

import numpy as np
import pytest
from loopback import DEEDS, Cluster
from net import keys, records, run_file, simulated

SEED = 1


@pytest.mark.slow
def test_killed_stopped_and_cut_off_processes_end_where_undisturbed_ones_do(tmp_path):
    cluster = Cluster(tmp_path, run_file(rounds=300), seed=SEED, hostile=["east"])
    cluster.faulty = 0.05
    made = cluster.endure(events=15, every=0.1, limit=150)
    run = cluster.run
    assert sum(made.values()) == 15 and made["kill"] > 0 and sum(made[deed] > 0 for deed in DEEDS) > 2
    assert sum(cluster.starts.values()) > run.n
    cluster.check_wire()
    expected = simulated(run, records(run), keys(run, tmp_path))
    assert np.allclose(cluster.models(), expected, rtol=1e-9, atol=1e-9)
