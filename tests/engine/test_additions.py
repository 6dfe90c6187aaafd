"""A loss and an engine are added in one place each; contract, kernel and runs know them from there, or refuse them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contract import BASE, NAMES, check, job_of

from sottovoce import solve
from sottovoce.algorithm.descent import Descent
from sottovoce.engine import ENGINES, Engine, choose, one_by_one, reference
from sottovoce.errors import SpecError
from sottovoce.experiments.sweep import sweep
from sottovoce.problem.losses import LOSSES
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

HERE = Path(__file__).parent
SPEC = Spec(AlgorithmSpec(rounds=30, method="descent"), seed=1).replace(problem__h="l2(0.1)")


def details(script, which):
    """Run a script, then some of the contract, then what the script would like to know; how many passed, and that."""
    script += f"""
import contextlib, io, json, pytest
with contextlib.redirect_stdout(io.StringIO()) as printed:
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-k", {which!r}, {str(HERE / "test_contract.py")!r}])
print(json.dumps([int(code), printed.getvalue(), found()]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, printed, found = json.loads(done.stdout)
    assert code == 0, printed
    return int(printed.split()[printed.split().index("passed,") - 1]), found


# --- a loss

LOSS = """
import numpy as np
from sottovoce import Execution, Shards, SpecError, solve
from sottovoce.engine import ENGINES
from sottovoce.problem.losses import LOSSES, Conjugate, Loss
from sottovoce.run.presets import private

STEEP = 3.0


def row(name, slope):
    value = lambda u, y, k: np.maximum(STEEP * (u - y), k * (y - u))
    interval = Conjugate(lambda k: 0.0, lambda y, k: (-k, STEEP))
    return Loss(name, "real", value, slope, lambda k: max(STEEP, k), interval, parameter=0.5, parameter_name="down")


def slope(u, y, k):
    return STEEP * (u > y) - k * (u < y)


LOSSES.add("lopsided", row("lopsided", slope))


def refusal(spec, shards):
    try:
        return solve(spec, shards, execution=Execution("compiled")).environment["engine"]
    except SpecError as error:
        return str(error)


def found():
    import contract  # beside the tests: it can be found by now

    cases = [case | {"data": "dense"} for case in contract.CASES if case["loss"] == "lopsided"]
    held = [contract.check(ENGINES["nodes"], contract.job_of(case, contract.cloud(4), 40), 40) for case in cases]
    rng = np.random.default_rng(0)
    shards = Shards.of(rng.normal(size=(40, 3)) / 4, rng.normal(size=40), np.arange(0, 41, 8))
    spec = private(60).replace(privacy__sampling="one", problem__loss="lopsided(0.25)", seed=1)
    return {
        "held": held,
        "compiled": refusal(spec, shards),
        "auto": solve(spec, shards, execution=Execution(runs=10**9)).environment["engine"],
    }
"""


@pytest.mark.slow
def test_a_loss_is_one_row_that_numpy_engines_run():
    passed, found = details(LOSS, "lopsided and not compiled")
    assert passed == len(found["held"]) >= 9 and all(found["held"])  # with every h at least
    assert found["auto"] == "reference"
    assert found["compiled"].startswith("the compiled engine does not know the loss 'lopsided'")
    assert found["compiled"].endswith("use engine='reference', which runs everything")


def test_a_row_that_comes_too_late_is_refused_and_never_computed_as_another(make_shards, monkeypatch):
    job = job_of(BASE, make_shards, rounds=10)
    late = replace(job.problem.loss, name="late", slope_formula=lambda u, y, k: 0.5 * u)
    monkeypatch.setitem(LOSSES, "late", late)
    assert not check(ENGINES["compiled"], replace(job, problem=replace(job.problem, loss=late)), 10)
    changed = replace(job.problem.loss, slope_formula=late.slope_formula)
    monkeypatch.setitem(LOSSES, "hinge", changed)
    assert not check(ENGINES["compiled"], replace(job, problem=replace(job.problem, loss=changed)), 10)


# --- an engine


def mine(**declared):
    return Engine("mine", one_by_one(reference.run), **declared)


def test_an_engine_is_one_entry(make_shards, monkeypatch):
    monkeypatch.setitem(ENGINES, "mine", mine(methods=(Descent,), auto_threshold=0))
    shards, how = make_shards(), Execution("mine")
    found = solve(SPEC, shards, execution=how)
    assert found.environment["engine"] == "mine"
    assert np.array_equal(found.models, solve(SPEC, shards, execution=Execution("reference")).models)
    grid = [SPEC.replace(privacy__noise=f"gaussian({sigma})") for sigma in (0.1, 0.2)]
    assert [result.environment["engine"] for result in sweep(grid, shards, execution=how)] == ["mine", "mine"]
    assert solve(SPEC, shards).environment["engine"] == "mine"  # it says that it is worth it
    other = SPEC.replace(algorithm__method="dual_averaging")
    assert solve(other, shards).environment["engine"] == "reference"
    with pytest.raises(SpecError, match="the mine engine does not know the method DualAveraging; use engine='ref"):
        solve(other, shards, execution=how)
    with pytest.raises(SpecError, match=r"choose one of auto, reference, nodes, compiled, .*mine"):
        choose("yours", job_of(BASE, make_shards, rounds=3))


def test_the_contract_finds_it():
    script = """
from sottovoce.algorithm.descent import Descent
from sottovoce.engine import ENGINES, Engine, one_by_one, reference
ENGINES["mine"] = Engine("mine", one_by_one(reference.run), methods=(Descent,))
found = lambda: None
"""
    passed, _ = details(script, "mine and (hinge or law or method or jobs or pieces)")
    assert passed > sum("hinge" in name for name in NAMES)


def test_the_contract_can_fail(make_shards):
    """An engine that is off by a little, one that writes into what it is given, one that refuses in other words."""

    def off(job, state, start, stop):
        state = reference.run(job, state, start, stop)
        return state._replace(z=state.z * (1 + 1e-11))

    def careless(job, state, start, stop):
        for _ in reference.rounds(job, state, start, stop):
            pass
        return state.copy()

    class Rude(Engine):
        def refuse(self, jobs):
            raise SpecError("no")

    job = job_of(BASE, make_shards, rounds=20)
    assert check(mine(), job, 20)
    assert not check(mine(methods=(Descent,)), job, 20)
    for engine in (
        Engine("mine", one_by_one(off)),
        Engine("mine", one_by_one(careless)),
        Rude("mine", one_by_one(reference.run), methods=(Descent,)),
    ):
        with pytest.raises(AssertionError):
            check(engine, job, 20)
