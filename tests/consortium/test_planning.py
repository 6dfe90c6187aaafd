"""Planned agreements: the plan of estimators, the same bytes again, and records posed as estimators pose them."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sottovoce import PlanOptions, PrivateClassifier, PrivateRegressor
from sottovoce.cli.consortium import app
from sottovoce.consortium.agreement import made_agreement, read_agreement
from sottovoce.consortium.check import round_trips
from sottovoce.consortium.planning import Proposal, plan_agreement, read_sites, rounded_up
from sottovoce.data.schema import read_schema
from sottovoce.data.values import from_lists
from sottovoce.errors import NetworkError, SpecError
from sottovoce.node.bounds import longest_messages
from sottovoce.node.site import problem_of
from sottovoce.planner.network import NetworkModel
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare

COLUMNS = """
[columns.age]
low = 0
high = 120
[columns.dose]
low = 0
high = 10
[columns.ward]
type = "category"
categories = ["a", "b", "c"]
"""
LABELS = {
    "two": '[label]\ncolumn = "sick"\nclasses = ["no", "yes"]\n',
    "three": '[label]\ncolumn = "sick"\nclasses = ["no", "some", "yes"]\n',
    "real": '[label]\ncolumn = "days"\nlow = 0\nhigh = 60\n',
}
SITES = ("north:3000", "south:2500:southern", "west:1200")


def proposal(folder, label="two", **changes):
    (folder / "schema.toml").write_text(LABELS[label] + COLUMNS)
    sites = read_sites(changes.pop("sites", SITES))
    return Proposal("clinics", "first", folder / "schema.toml", sites, **changes)


def table(schema, label, q=4000, seed=0):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 120, q), rng.uniform(0, 10, q)
    score = age / 60 + dose / 5 + rng.normal(size=q) / 3
    target = {
        "two": np.where(score > 2, "yes", "no").tolist(),
        "three": np.array(["no", "some", "yes"])[np.digitize(score, [1.7, 2.3])].tolist(),
        "real": np.clip(15 * score, 0, 60).tolist(),
    }[label]
    columns = {"age": age.tolist(), "dose": dose.tolist(), "ward": rng.choice(["a", "b", "c"], q).tolist()}
    columns |= {schema.label.column: target}
    return schema.encode(from_lists(columns, "here", schema.numbers, schema.texts))


def estimator(wanted, schema):
    """What an owner simulates: the encoded records with their public bounds."""
    numeric = {place for place in schema.numeric_features}
    common = {
        "epsilon": wanted.epsilon,
        "trust": int(wanted.trust) if wanted.trust.isdecimal() else wanted.trust,
        "row_norm": schema.row_norm,
        "bounds": [(-1.0, 1.0) if place in numeric else None for place in range(schema.m)],
        "random_state": 0,
        "plan": PlanOptions(network=wanted.network),
    }
    if schema.label.classes is None:
        return PrivateRegressor(**common, target_bounds=(schema.label.low, schema.label.high))
    codes = [-1.0, 1.0] if schema.label.outputs == 1 else list(map(float, range(schema.label.outputs)))
    return PrivateClassifier(**common, classes=codes)


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("two", {}),
        ("two", {"epsilon": 0.1}),
        ("two", {"trust": "majority"}),
        ("three", {"trust": "1"}),
        ("real", {}),
        ("real", {"epsilon": 30.0, "trust": "1"}),
    ],
    ids=str,
)
def test_an_agreement_has_the_plan_and_the_problem_of_the_estimator(label, changes, tmp_path):
    wanted = proposal(tmp_path, label, **changes)
    planned = plan_agreement(wanted)
    (tmp_path / "consortium.toml").write_text(planned.text)
    run = read_agreement(tmp_path / "consortium.toml").run
    assert run.digest == planned.agreement.run.digest
    schema = read_schema(tmp_path / "schema.toml")
    found = table(schema, label, sum(site.records for site in wanted.sites))
    nodes = np.repeat([site.name for site in wanted.sites], [site.records for site in wanted.sites])
    model = estimator(wanted, schema)
    prepared = model._prepare(found.X, found.y, nodes, None)
    simulated, deployed = prepared.spec.replace(seed=None), run.spec.replace(seed=None)
    for part in ("problem", "network", "privacy", "algorithm"):
        mine, its = vars(getattr(deployed, part)), vars(getattr(simulated, part))
        assert {k: str(v) for k, v in mine.items() if k != "features"} == {
            k: str(v) for k, v in its.items() if k != "features"
        }
    assert type(deployed.problem.features) is type(simulated.problem.features)
    job = prepare(prepared.spec, prepared.shards).plan
    order = [prepared.nodes.index(name) for name in run.nodes]
    assert np.allclose(np.array(job.release.sigma)[order], run.plan.release.sigma, rtol=1e-9)
    for i, site in enumerate(wanted.sites):
        at = np.flatnonzero(nodes == site.name)
        own = problem_of(run, Shards.of(found.X[at], found.y[at], np.array([0, len(at)]))).shards
        mine = prepared.shards.node(order[i])
        assert np.allclose(own.X, mine.X[mine.rows(0)], rtol=1e-12, atol=1e-14) and np.allclose(own.y, mine.y)


def test_the_same_public_numbers_give_the_same_bytes(tmp_path):
    first, again = (plan_agreement(proposal(tmp_path, trust="1")).text for _ in range(2))
    assert first == again
    other = plan_agreement(proposal(tmp_path, trust="1", sites=("north:3001", *SITES[1:]))).text
    assert other != first
    assert "Foreseen:" in first and "[sites.south]  # adds noise of σ = 0." in first
    assert all(len(line) <= 120 for line in first.splitlines())


def test_time_is_kept_and_the_network_named(tmp_path):
    slow = plan_agreement(proposal(tmp_path, network=NetworkModel(0.5, 1e6, 50.0), max_seconds=120.0))
    assert slow.choice.alternatives[0]["seconds"] <= 120 < 1000 * 0.5
    assert "500 ms" in slow.text and "50 exchanges a second" in slow.text


def test_everything_that_is_planned_can_run_on_real_nodes(tmp_path):
    for label in LABELS:
        for trust in ("nobody", "1"):
            run = plan_agreement(proposal(tmp_path, label, trust=trust, held_out=0.1)).agreement.run
            plan = run.plan
            assert np.isfinite(longest_messages(plan.method, plan.release, np.array(run.sizes), plan.numbers)).all()
            assert run.statement.epsilon <= 1.0 + 1e-6 and run.scale.unit > 1.0


def test_what_cannot_be_planned_is_refused(tmp_path):
    with pytest.raises(SpecError, match="does not fit the schema's label"):
        plan_agreement(proposal(tmp_path, "real", loss="hinge"))
    for text in ("north", "north:0", "north:a", "a:1:b:c"):
        with pytest.raises(SpecError, match="is no site"):
            read_sites([text])


def test_an_agreement_without_bounds_has_no_units(tmp_path):
    planned = plan_agreement(proposal(tmp_path))
    schema = read_schema(tmp_path / "schema.toml")
    data = {"name": "x", "run": "first", "schedule_seed": 1, "server": {"host": "h", "port": 1}}
    data |= {"admin": {"email": "a@b", "org": "b"}, "sites": {"a": {"org": "a", "records": 50}}}
    spec = {"algorithm": {"rounds": 3}, "privacy": {"epsilon": 1.0}}
    plain = made_agreement(data | spec, "schema.toml", schema)
    scaled = made_agreement(data | spec | {"in_units_of_bounds": True}, "schema.toml", schema)
    assert plain.run.spec.problem.row_norm == schema.row_norm and scaled.run.spec.problem.row_norm == 1.0
    assert plain.run.scale.unit == 1.0 and scaled.run.scale.unit == schema.row_norm
    assert len({plain.run.digest, scaled.run.digest, planned.agreement.run.digest}) == 3
    with pytest.raises(SpecError, match="row_norm is the schema's"):
        _ = made_agreement(data | spec | {"problem": {"row_norm": 3.3}}, "schema.toml", schema).run


@given(st.floats(1e-6, 1e6))
def test_a_rounded_number_is_never_smaller(value):
    text = rounded_up(value)
    assert float(text) >= value * (1 - 1e-11) and float(text) <= value * (1 + 2e-8)
    assert len(text.replace(".", "").lstrip("0")) <= 9


def test_round_trips_are_measured():
    with socket.create_server(("localhost", 0)) as server:

        def accept():
            for _ in range(3):
                server.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        found = round_trips(f"localhost:{server.getsockname()[1]}", 3)
        thread.join()
        port = server.getsockname()[1]
    assert len(found) == 3 and all(0 < seconds < 5 for seconds in found)
    with pytest.raises(NetworkError, match="nobody answers"):
        round_trips(f"localhost:{port}", 1)
    with pytest.raises(SpecError, match="HOST:PORT"):
        round_trips("localhost", 1)


def test_the_command_writes_what_was_planned(tmp_path):
    wanted = proposal(tmp_path, trust="1")
    file = tmp_path / "consortium.toml"
    line = ["init", str(file), *(part for site in SITES for part in ("--site", site)), "--trust", "1", "--name"]
    for _ in range(2):  # the second time it is there, and says the same
        found = CliRunner().invoke(app, [*line, "clinics"])
        assert found.exit_code == 0, found.output
    assert file.read_text() == plan_agreement(wanted).text
    assert "differential privacy" in found.output and "then: sottovoce consortium init" in found.output
    with pytest.raises(SpecError, match="says something else"):
        CliRunner().invoke(app, [*line, "others"], catch_exceptions=False)
