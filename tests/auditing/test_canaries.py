"""One run with many canaries, on what can only be run once: real nodes, a consortium's count."""

import threading

import numpy as np
import pytest
from net import Net

from sottovoce.auditing import Canaries, concluded
from sottovoce.auditing.bounds import Family
from sottovoce.consortium.evaluation import count_event, noisy_count
from sottovoce.data.schema import Encoded
from sottovoce.errors import SpecError
from sottovoce.node.budget import Budget
from sottovoce.node.keys import own_keys
from sottovoce.node.node import DurableNode
from sottovoce.node.runfile import make_run
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.privacy.events import FullEvent

COUNT = 120


class Overheard(DurableNode):
    """A real node on whose wire someone listens: what its messages are over what is known before is ζ."""

    def release_message(self, t, message):
        self.released = [*getattr(self, "released", []), (message - self._state.z)[0]]
        return super().release_message(t, message)


def nodes_run(tmp_path, canaries, noise):
    """A run of two real nodes, and −Σ ζ of the first one, which has the canaries among its records."""
    features = [f"c{j}" for j in range(COUNT)]
    run = make_run(
        {
            "run": "canaries",
            "schedule_seed": 5,
            "timeout": 30.0,
            "features": features,
            "label": "y",
            "classes": ["no", "yes"],
            "nodes": {"north": COUNT, "south": 20},
            "spec": {
                "algorithm": {"rounds": 3, "gamma": "constant(1e6)", "a": "constant(1)"},
                "network": {"activation": "everyone"},
                "privacy": {"sampling": "full", "noise": noise},
            },
        }
    )
    mine = {"north": (canaries.X, canaries.y), "south": (np.zeros((20, COUNT)), np.ones(20))}
    net, nodes = Net(), []
    for name in run.nodes:
        store = Store(tmp_path / name)
        store.set_budget(Budget(1e9, 1e-5).detail("records"))
        nodes.append(Overheard(run, name, own_problem(run, name, Encoded(*mine[name], None)), store))
        net.join(nodes[-1])

    threads = [threading.Thread(target=node.take_part) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for node in nodes:
        node.store.close()
    return run, -sum(nodes[0].released)


def test_real_nodes_are_audited_in_one_run(tmp_path):
    canaries = Canaries.tossed(COUNT, np.random.default_rng(2))
    run, scores = nodes_run(tmp_path, canaries, "private(8)")
    found = canaries.guessed(scores, run.event(0), 1e-5, guesses=40)
    assert found.stated == pytest.approx(8, rel=1e-2)
    assert 1.0 < found.at_least < 12 and found.scale > 0.5
    assert "40 random bits of 120 canaries" in found.verdict() and found.to_dict()["guesses"] == 40


def test_too_little_noise_at_real_nodes_is_found_in_one_run(tmp_path):
    """A statement of ε = 0.5 for the noise of ε = 30."""
    canaries = Canaries.tossed(COUNT, np.random.default_rng(2))
    run, scores = nodes_run(tmp_path, canaries, "private(30)")
    stated = FullEvent(COUNT, COUNT, 1.0, 20 * run.event(0).sigma, 3)
    found = canaries.guessed(scores, stated, 1e-5, guesses=40)
    assert Family(stated, 1e-5).epsilon() < 1.5 and found.broken


def test_the_noisy_count_of_an_evaluation_keeps_its_word_and_that_of_a_smaller_epsilon_is_not_kept():
    """10 of 20 right answers against 11: the count of one record more."""
    event, runs, wrong = count_event(20, 4.0, 1e-5), 1500, [0, 0]
    for trial in range(runs):
        one, other = (own_keys(bytes(32), f"{trial:04x}", bytes([world]) * 32) for world in (0, 1))
        wrong[0] += noisy_count(10, event, one) > 10
        wrong[1] += noisy_count(11, event, other) <= 10
    for stated, broken in ((event, ""), (count_event(20, 2.0, 1e-5), "curve")):
        found = concluded(stated, 1e-5, (wrong[0], wrong[1]), (runs, runs))
        assert found.broken == broken and found.at_least > 2.5, found.verdict()


def test_canaries_have_one_score_each():
    canaries = Canaries.tossed(5, np.random.default_rng(1), row_norm=2.0)
    assert np.allclose(np.linalg.norm(canaries.X, axis=1), 2.0) and set(canaries.y) <= {-1.0, 1.0}
    with pytest.raises(SpecError, match="one score for each"):
        canaries.guessed(np.ones(4), FullEvent(5, 5, 1.0, 1.0, 1), 1e-5)
    with pytest.raises(SpecError, match="at least one canary"):
        Canaries.tossed(0, np.random.default_rng(1))
