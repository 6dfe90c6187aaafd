"""The table of benchmarks/peers.py: ε in both adjacencies, and a line for what is not installed."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce.privacy.accounting import compute_epsilon, epsilon
from sottovoce.privacy.composite_events import JointEvent
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import FixedEvent, FullEvent, PoissonEvent
from sottovoce.privacy.profiles import FixedPair, gaussian_epsilon, gaussian_multiplier

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"

pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are not here")


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("peers", BENCHMARKS / "peers.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "peers", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SEEDS", 1)
    return module


def small(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(900, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=900) > 0, 1.0, -1.0)
    return X[:600], y[:600], X[600:], y[600:]


def test_a_full_batch_has_half_the_sensitivity_to_a_record_more_or_less(peers):
    event = FullEvent(records=100, batch=100, clip=1.0, sigma=0.2, rounds=4)
    assert event.noise_multiplier == pytest.approx(10.0)
    parts = peers.added_or_removed(event)
    assert epsilon(parts, 1e-5) == pytest.approx(gaussian_epsilon(1e-5, 20.0 / math.sqrt(4)), rel=1e-6)
    twice = JointEvent.of([event, replace(event, before=FullEvent(100, 100, 1.0, 0.1, 1))])
    assert [part.count for part in peers.added_or_removed(twice)] == [4, 1, 4]


def test_both_conversions_of_a_gaussian_are_inverse(peers):
    z = gaussian_multiplier(1.0, 1e-5)
    replaced = peers.halved(z, 1.0)
    assert replaced.replaced == 1.0 and replaced.added < 0.5
    assert peers.doubled(2.0 * z, replaced.added).replaced == pytest.approx(1.0, abs=1e-6)


def test_poisson_batches_are_converted_as_dp_sgd_is_accounted(peers):
    event = PoissonEvent(records=1000, batch=20, clip=1.0, sigma=0.1, rounds=50)
    found = peers.both(event, compute_epsilon([event], 1e-5).epsilon)
    assert found.added == pytest.approx(epsilon([Part(FixedPair(2.0, 0.02), 50)], 1e-5))
    assert found.added < found.replaced
    again = peers.poisson(2.0, 0.02, 50, found.added)  # and back, as of Opacus
    assert again.replaced == pytest.approx(found.replaced, rel=1e-6)


def test_where_the_other_adjacency_is_not_known_there_is_no_number(peers):
    assert peers.added_or_removed(FixedEvent(records=100, batch=10, clip=1.0, sigma=0.5, rounds=10)) is None
    assert peers._shown(math.nan) == "?" and peers._shown(math.inf) == "none"


def test_a_line_has_every_column(peers):
    split = ("small", small())
    for name in ("LogisticRegression", "NumPy", "sottovoce, one owner"):
        (row,) = peers.measured(name, split)
        cells = peers.cells(row)
        assert len(cells) == len(peers.HEADS) and all(cells) and not row.missing
        assert 0.5 < row.accuracy <= 1 and 0.5 < row.auc <= 1
        private = row.adjacency != "–"
        assert all(math.isfinite(each) for each in row.guarantee) == private
        if private:
            assert row.guarantee.added < row.guarantee.replaced <= 1 + 1e-6


def test_what_is_not_installed_is_named_with_what_installs_it(peers, monkeypatch):
    def absent(split, seed):
        import no_such_package_of_peers  # noqa: F401

    monkeypatch.setitem(peers.PEERS, "absent", peers.Peer(absent, "outsiders", peers.ADD, "pip install absent"))
    (row,) = peers.measured("absent", ("small", small()))
    assert "pip install absent" in row.missing and math.isnan(row.accuracy)
    assert len(peers.cells(row)) == len(peers.HEADS) and row.missing in peers.cells(row)[0]


def test_who_is_not_ours_says_how_to_install_it_and_against_whom_it_protects(peers):
    for name in ("diffprivlib", "DP-EBM", "Opacus", "NVFlare", "DECOR"):
        (peer,) = [peer for each, peer in peers.PEERS.items() if each.startswith(name)]
        assert "pip install" in peer.install
        assert ("not private" in peer.adversary) == (peer.adjacency == "–") == (name == "NVFlare")
