"""A plan is made from public numbers alone, and is the plan of the run that is made on records."""

import dataclasses
import inspect

import numpy as np
import pytest
from scipy import sparse

from sottovoce.errors import SpecError
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.plan import Request, plan_public, with_noise
from sottovoce.run.spec import AlgorithmSpec, Spec

BASE = Spec(AlgorithmSpec(30), seed=3).replace(
    privacy__noise="private(2)", privacy__sampling="full", network__activation="everyone", problem__intercept=0.5
)
CASES = {
    "plain": {"network__activation": "edges(1)", "privacy__sampling": "poisson(4)"},
    "moments": {"privacy__moments": "moments(0.05, 0.1)"},
    "targets": {"privacy__quantiles": "quantiles(0.1)", "problem__loss": "absolute"},
    "threshold": {"privacy__balance": "balance(0.1, 0.2)"},
    "statistics": {"algorithm__method": "statistics", "problem__loss": "squared", "algorithm__rounds": 1},
    "pairs": {"privacy__law": "pairs(2)", "privacy__adversary": "secret_pairs(1)"},
    "classes": {"problem__outputs": 3, "problem__loss": "logistic"},
}


def request(spec, shards):
    return Request(spec, shards.sizes, int(shards.X.shape[1]), shards.people)


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_plan_of_a_run_needs_none_of_its_records(case, people, make_shards):
    spec = BASE.replace(**CASES[case])
    kind = spec.problem.loss.targets == "real"
    shards = make_shards(n=3, q=40, real=kind, outputs=spec.problem.outputs, people=people)
    if kind:
        shards = shards.relabeled(np.clip(shards.y, -1, 1))
    made, plan = prepare(spec, shards), plan_public(request(spec, shards))
    assert plan.statement(simulated=True, secure=False) == made.statement
    assert plan.release == made.job.release or case == "pairs"  # whose law has arrays
    assert plan.events() == made.plan.events()
    assert {name: made.public[name] for name in plan.public} == plan.public
    assert made.public.keys() - plan.public.keys() == ({"targets"} if case == "targets" else set())


def test_how_records_are_stored_is_no_part_of_it(make_shards):
    dense = make_shards(n=3, q=20)
    stored = Shards.of(sparse.csr_array(dense.X), dense.y, dense.offsets)
    one, other = (prepare(BASE.replace(privacy__moments="moments(0.05)"), shards) for shards in (dense, stored))
    assert one.statement == other.statement and one.public == other.public


def test_nothing_in_a_request_can_hold_a_record():
    """A field that could is an array of floats, or an object that has them; sizes are whole numbers, one a node."""
    kinds = {field.name: field.type for field in dataclasses.fields(Request)}
    assert kinds == {
        "spec": Spec, "sizes": kinds["sizes"], "features": int, "people": bool, "schedule_seed": kinds["schedule_seed"],
    }  # fmt: skip
    assert "shards" not in inspect.signature(plan_public).parameters


def test_a_schedule_can_be_drawn_again_from_its_seed_by_anybody():
    secret = plan_public(Request(BASE.replace(seed=None, network__activation="edges(1)"), np.array([30, 40, 50]), 4))
    again = plan_public(dataclasses.replace(secret.request, schedule_seed=secret.public["schedule_seed"]))
    assert np.array_equal(secret.schedule.active, again.schedule.active) and again.public == secret.public
    other = plan_public(secret.request)
    assert other.public["schedule_seed"] != secret.public["schedule_seed"]


def test_another_noise_is_the_plan_that_would_be_made_anew():
    sizes = np.array([30, 40, 50])
    plan, wanted = plan_public(Request(BASE, sizes, 4)), BASE.replace(privacy__noise="private(1)")
    found, expected = with_noise(plan, wanted), plan_public(Request(wanted, sizes, 4))
    assert found.release == expected.release and found.public == expected.public and found.spec == wanted
    assert found.schedule is plan.schedule and found.method is plan.method
    assert (
        with_noise(plan, wanted.replace(seed=5)) is None and with_noise(plan, wanted.replace(privacy__clip=0.5)) is None
    )
    moments = plan_public(Request(BASE.replace(privacy__moments="moments(0.1)"), sizes, 4))
    assert with_noise(moments, moments.spec.replace(privacy__noise="private(1)")) is None


def test_a_minimiser_has_no_records_before_there_is_a_job(make_shards):
    spec = BASE.replace(
        algorithm__method="output_perturbation", algorithm__rounds=1, problem__h="l2(0.1)", problem__loss="logistic"
    )
    shards = make_shards(n=1, q=50)
    plan = plan_public(request(spec, shards))
    with pytest.raises(SpecError, match="make a job of it"):
        plan.method.best  # noqa: B018
    assert np.isfinite(prepare(spec, shards).job.method.best.value)
