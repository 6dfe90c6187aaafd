"""What a run does not need is not compiled, and its numbers are those of the kernel with everything in it."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from contract import BASE, cloud, difference, job_of
from numba.core.codegen import JITCodeLibrary

from sottovoce.engine import compiled
from sottovoce.engine.kernel import rounds, speak, wake
from sottovoce.engine.kernel.arguments import OUTSIDE, Kind, exact, make_scratch, njit

ROUNDS = 12
EVERYONE = {"activation": "everyone", "noise": "gaussian(0.1)"}
CASES = {
    "edges": (BASE | {"h": "l2(0.01)"}, Kind(True, None, None, None, None, None)),
    "batches": (BASE | EVERYONE | {"h": "l2(0.01)", "sampling": "full"}, Kind(None, None, None, None, None, None)),
    "soft": (BASE | EVERYONE | {"h": "l1(0.01)", "sampling": "full"}, Kind(None, None, None, None, None, True)),
}


def kind_of(job, which):
    packed = compiled._pack([job])
    what = packed.data, packed.plan, packed.model, packed.noise
    return which(*what, make_scratch(*what, (1, *job.start().z.shape)))


@pytest.mark.parametrize("name", CASES)
def test_a_kind_is_what_a_run_needs(name, complete):
    case, expected = CASES[name]
    assert kind_of(job_of(case, cloud(40), ROUNDS), complete) == expected


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"outputs": 3, "loss": "logistic"}, "joint"),
        ({"people": True}, "joint"),
        ({"averaging": "clipped(0.5)", "activation": "everyone"}, "robust"),
        ({"h": "simplex"}, "bent"),
        ({"distance": "centre"}, "bent"),
    ],
)
def test_more_is_needed_where_there_is_more(change, part, complete, make_shards):
    less, more = (kind_of(job_of(BASE | some, make_shards, ROUNDS), complete) for some in ({}, change))
    assert getattr(less, part) is None and getattr(more, part)


@pytest.mark.parametrize("name", ["edges", "batches"])
def test_kinds_have_the_numbers_of_the_complete_kernel(name, complete, monkeypatch):
    job = job_of(CASES[name][0], cloud(40), ROUNDS)
    expected = compiled.run(job, job.start(), 1, ROUNDS)
    monkeypatch.setattr(compiled, "kind_of", complete)
    before = len(wake.joint_part.signatures), len(speak.bound.signatures)
    found = compiled.run(job, job.start(), 1, ROUNDS)
    assert difference(found, expected) < 1e-14 and np.all(np.isfinite(found.z))
    assert (len(wake.joint_part.signatures), len(speak.bound.signatures)) == before  # neither people nor liars


def test_machine_code_is_made_of_entry_points_alone(monkeypatch):
    made, finalize = [], JITCodeLibrary._finalize_specific

    def finalizing(library):
        made.append(library.name.split(".")[-1])
        finalize(library)

    @exact
    def inner(x):
        return 3.0 * x

    @exact
    def middle(x):
        return inner(x) + inner(x + 1.0)

    @njit(**OUTSIDE | {"cache": False})
    def entry(x):
        return middle(x) - 1.0

    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", finalizing)
    assert entry(2.0) == 14.0
    assert "entry" in made and not {"inner", "middle"} & {*made}


@pytest.mark.parametrize("looked_at", [True, False])
def test_compiling_is_announced_where_somebody_looks(looked_at, monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return looked_at

    monkeypatch.setattr(sys, "stderr", screen := Screen())
    for dispatcher in (wake.look, rounds.run_rounds, wake.wake):
        rounds.Announcement().on_start(SimpleNamespace(data={"dispatcher": dispatcher}))
    assert screen.getvalue().count(rounds.COMPILING) == looked_at
