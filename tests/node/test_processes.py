"""Four real processes on the loopback interface: killed, stopped and cut off at random, and nothing changes."""

import numpy as np
import pytest
from loopback import Cluster
from net import keys, records, run_file, simulated


@pytest.mark.slow
def test_killed_stopped_and_cut_off_processes_end_where_undisturbed_ones_do(tmp_path):
    cluster = Cluster(tmp_path, run_file(rounds=120), seed=1)
    cluster.faulty = 0.05
    made = cluster.endure(events=12, every=0.25, limit=120)
    run = cluster.run
    assert sum(made.values()) == 12 and min(made.values()) > 0 and sum(cluster.starts.values()) > run.n
    cluster.check_wire()
    expected = simulated(run, records(run), keys(run, tmp_path))
    assert np.allclose(cluster.models(), expected, rtol=1e-9, atol=1e-9)
