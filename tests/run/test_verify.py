"""A saved run is verified against its spec and public numbers: that a statement fits together is not enough."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.cli.main import app
from sottovoce.errors import PrivacyError, SottovoceError
from sottovoce.privacy.statement import PERSON, make_statement
from sottovoce.run.build import prepare
from sottovoce.run.presets import paper_l2
from sottovoce.run.solve import solve

SPEC = paper_l2(60).replace(seed=3, privacy__noise="private(1.5)", privacy__sampling="poisson(8)")
PAPER = paper_l2(60).replace(seed=3, privacy__noise="theorem1(0.5)")


def command(*arguments):
    """The command's exit code, and what it says."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    refused = isinstance(done.exception, SottovoceError)
    return (done.exception.exit_code, str(done.exception)) if refused else (done.exit_code, done.output)


def account(path):
    return command("account", "--verify", path, "--json")


def forged(made, result, **changes):
    """A statement whose own numbers fit together, of a run that was not this one."""
    job, sizes = made.job, made.job.problem.shards.sizes
    release = replace(job.release, **changes)
    spoken = job.schedule.participations()
    return make_statement(
        release, sizes, spoken, result.statement.delta, made.claims, True, turns=job.schedule.turns, secure=False
    )


def without_the_worst(made, result):
    worst = result.statement.worst.nodes
    job = made.job
    kept = np.array([i for i in range(job.problem.shards.n) if i not in worst])
    release = replace(job.release, sigma=tuple(job.release.sigma[i] for i in kept))
    sizes, spoken = job.problem.shards.sizes[kept], job.schedule.participations()[kept]
    return make_statement(release, sizes, spoken, result.statement.delta, made.claims, True)


TAMPERINGS = {
    "the worst node removed": (SPEC, without_the_worst),
    "sigma times 100": (SPEC, lambda made, r: forged(made, r, sigma=tuple(100 * s for s in made.job.release.sigma))),
    "the clip over 100": (SPEC, lambda made, r: forged(made, r, clip=made.job.release.clip / 100)),
    "simulation flipped": (SPEC, lambda made, r: replace(r.statement, simulation=False)),
    "claimed removed": (PAPER, lambda made, r: replace(r.statement, claimed=None)),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_run_is_caught(name, make_shards, tmp_path):
    spec, tamper = TAMPERINGS[name]
    shards = make_shards(n=5, q=40)
    result = solve(spec, shards)
    made = prepare(spec, shards)
    folder = result.save(tmp_path / "run")
    assert account(folder)[0] == 0
    wrong = tamper(made, result)
    wrong.verify()  # its own arithmetic is right: that is all that used to be examined
    assert wrong != result.statement
    folder = replace(result, statement=wrong).save(tmp_path / "run")
    code, out = account(folder)
    assert code == 5 and "the spec and the public numbers give" in out, out
    code, out = command("report", folder)
    assert code == 5 and "is not drawn" in out and not (folder / "report.html").exists()


def test_the_same_tamperings_with_public_numbers_to_match_are_caught(make_shards, tmp_path):
    shards = make_shards(n=5, q=40)
    result, made = solve(SPEC, shards), prepare(SPEC, shards)
    result.verify()
    public = dict(result.public)
    for changes in (
        {"participations": [k // 2 for k in public["participations"]]},
        {"records": [4 * q for q in public["records"]]},
        {"n": 4, "records": public["records"][1:], "participations": public["participations"][1:]},
        {"m": public["m"] + 1},
        {"lipschitz": public["lipschitz"] / 100},
        {"records": ["many"] * 5},
        {"records": []},
        {"edges": public["edges"][1:]},
    ):
        with pytest.raises(PrivacyError):
            replace(result, public=public | changes).verify()
    for absent in ("records", "participations", "n", "m"):
        with pytest.raises(PrivacyError, match=f"lack {absent}"):
            replace(result, public={k: v for k, v in public.items() if k != absent}).verify()
    with pytest.raises(PrivacyError, match="delta"):
        replace(result, spec=SPEC.replace(privacy__delta=1e-6)).verify()
    with pytest.raises(PrivacyError, match="sigma"):
        replace(result, spec=SPEC.replace(privacy__noise="private(1.0)")).verify()
    with pytest.raises(PrivacyError, match="software"):
        replace(result, environment=result.environment | {"sottovoce": "7.1"}).verify()
    with pytest.raises(PrivacyError, match="models of shape"):
        replace(result, models=result.models[:, :-1]).verify()
    with pytest.raises(PrivacyError, match="secure run"):
        secure = make_statement(
            made.job.release, shards.sizes, made.job.schedule.participations(), 1e-5, (), True, secure=True
        )
        replace(result, statement=secure).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"network__activation": "ticks", "privacy__sampling": "cyclic(3)"},
        {"network__activation": "nodes(2)", "network__every": 3, "problem__intercept": 1.0},
        {"network__activation": "edges(2)", "privacy__noise": "gaussian(0.5)"},
        {"network__graph": "ring", "privacy__law": "pairs(2, 1)", "privacy__adversary": "secret_pairs",
         "network__activation": "everyone"},
        {"problem__outputs": 3, "problem__loss": "softmax"},
        {"privacy__noise": "none"},
    ],
    ids=str,
)  # fmt: skip
def test_seeded_runs_of_many_kinds_verify(changes, make_shards):
    shards = make_shards(n=5, q=40)
    if "problem__outputs" in changes:
        shards = shards.relabeled(np.arange(len(shards.y)) % 3)
    solve(SPEC.replace(**changes), shards).verify()


@pytest.mark.parametrize("sampling", ["poisson(8)", "cyclic(3)"])
def test_a_run_without_a_seed_keeps_the_seed_of_its_schedule(sampling, make_shards):
    spec = SPEC.replace(seed=None, privacy__sampling=sampling)
    result = solve(spec, make_shards(n=5, q=40))
    assert result.public["schedule_seed"] is not None and "schedule_seed" not in solve(SPEC, make_shards()).public
    result.verify()
    with pytest.raises(PrivacyError, match="participations"):
        replace(result, public=result.public | {"schedule_seed": result.public["schedule_seed"] + 1}).verify()


def test_people_verify(make_shards):
    shards = make_shards(n=4, q=40)
    people = type(shards).of(shards.X, shards.y, shards.offsets, user_ids=np.arange(len(shards.y)) // 2)
    result = solve(SPEC, people)
    assert result.statement.unit == PERSON.name
    result.verify()


def test_of_a_bare_statement_only_the_arithmetic_is_said_to_be_checked(make_shards, tmp_path):
    result = solve(SPEC, make_shards())
    bare = tmp_path / "statement.json"
    bare.write_text(result.statement.to_json())
    code, out = account(bare)
    assert code == 0 and "only the statement's own arithmetic" in json.loads(out)["checked"]
    folder = result.save(tmp_path / "run")
    for path in (folder, folder / "result.json"):
        code, out = account(path)
        assert code == 0 and "against the run's spec and public numbers" in json.loads(out)["checked"]
