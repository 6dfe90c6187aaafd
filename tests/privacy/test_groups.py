"""Accounts by groups: equal nodes share one event, and what follows is what it would be node by node, to the bit."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy.calibration import Circumstances, Private
from sottovoce.privacy.coalitions import complete, joint_noise
from sottovoce.privacy.release import ADVERSARIES, LAWS, Attendance, MechanismContext, Release, Transcript
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.privacy.statement import LEVELS, grouped_by_event

T = 12


def listed(release, sizes, spoken, turns):
    """One event a node, made for it alone."""
    return [release.event(i, int(q), int(spoken[i]), partial(turns, i)) for i, q in enumerate(sizes)]


def one_by_one(events):
    """Nodes whose events differ in their count alone, examined node by node."""
    kinds = {}
    for i, event in enumerate(events):
        kinds.setdefault(event.after(0), []).append(i)
    result = []
    for nodes in kinds.values():
        counts = sorted({events[i].count for i in nodes})
        levels = counts[len(counts) - 1 :: -max(1, math.ceil(len(counts) / LEVELS))][::-1]
        for low, high in zip([-1, *levels], levels, strict=False):
            mine = tuple(i for i in nodes if low < events[i].count <= high)
            result.append((events[mine[0]].covering([events[i] for i in mine]), mine))
    return result


@st.composite
def runs(draw):
    n = draw(st.integers(3, 8))
    sizes = np.array(draw(st.lists(st.sampled_from([20, 30]), min_size=n, max_size=n)))
    here = np.array(draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=T, max_size=T)))
    here |= draw(st.booleans())
    here[0] = True  # nobody is silent for ever
    law = LAWS.read(draw(st.sampled_from(["gaussian", "pairs(3)", "pairs(2, graph=ring, cut=priced)"])))
    k = draw(st.sampled_from([1, "majority"]))
    watching = ADVERSARIES.read(f"secret_pairs({k})") if str(law) != "gaussian" else Transcript()
    sampling = SAMPLINGS.read(draw(st.sampled_from(["full", "poisson(4)", "cyclic(7)"])))
    scale = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=n, max_size=n)))
    starts = np.concatenate([[0], np.cumsum(here.sum(axis=1))])
    attendance = None if here.all() else Attendance(starts, np.nonzero(here)[1])
    made = law.on(MechanismContext(GRAPHS.read("complete")(n), sampling, sizes, 2, None, watching, scale, attendance))
    sigma = tuple(draw(st.sampled_from([1.0, 1.5])) * unit for unit in made.units(n))
    release = Release(sampling, 1.0, sigma, watching.among(n), made)
    return release, sizes, here.sum(axis=0), lambda i: 1 + np.flatnonzero(here[:, i])


@settings(max_examples=60)
@given(runs())
def test_events_by_groups_are_those_of_every_node(run):
    release, sizes, spoken, turns = run
    events = release.events(sizes, spoken, turns)
    alone = listed(*run)
    assert events == alone
    assert grouped_by_event(events) == one_by_one(alone) == grouped_by_event(alone)


def test_calibration_by_groups_is_that_of_every_node(monkeypatch):
    sizes, spoken = np.array([20, 30, 20, 20, 30]), np.array([9, 9, 12, 9, 12])
    unit = Release(SAMPLINGS.read("poisson(4)"), 1.0, (1.0,) * 5, Transcript())
    known = Circumstances(unit, sizes, spoken, 1e-5, 1.0, T, None)
    found = Private(1.0).scales(known)
    monkeypatch.setattr(Release, "events", lambda self, *given: listed(self, sizes, spoken, lambda i: np.arange(9)))
    assert found == Private(1.0).scales(known) and len(set(found[0])) == 2


def test_a_hundred_thousand_equal_nodes_are_one_cost():
    n = 100_000
    sizes, spoken = np.full(n, 20), np.full(n, 100)
    sizes[::7] = 23
    release = Release(SAMPLINGS.read("full"), 1.0, (0.1,) * n, Transcript())
    groups = grouped_by_event(release.events(sizes, spoken))
    assert [len(nodes) for _, nodes in groups] == [np.sum(sizes == 23), np.sum(sizes == 20)]
    assert [event.records for event, _ in groups] == [23, 20]
    watching = ADVERSARIES.read("secret_pairs(majority)").among(n)
    law = LAWS.read("pairs(10)").on(
        MechanismContext(GRAPHS.read("complete")(n), release.sampling, sizes, 2, None, watching)
    )
    hidden = Release(release.sampling, 1.0, law.units(n), watching, law)
    assert len(grouped_by_event(hidden.events(sizes, spoken))) == 2


@given(st.lists(st.floats(0.1, 3.0), min_size=2, max_size=9), st.data())
def test_the_worst_coalition_of_all_nodes_at_once_is_that_of_each(drawn, data):
    d, k = np.array(drawn), data.draw(st.integers(0, len(drawn) - 2))
    found, order = complete(d, 4.0, k), np.argsort(-d, kind="stable").tolist()
    for i in range(len(d)):
        honest = np.ones(len(d), dtype=bool)
        honest[[j for j in order if j != i][:k]] = False
        assert found[i] == pytest.approx(joint_noise(d, 4.0, honest)[i], rel=1e-12)
