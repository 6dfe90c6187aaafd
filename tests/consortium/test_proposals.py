"""A further run by the kits of the first: proposed, reviewed and accepted, with nothing but public files sent."""

import json
import shutil
import socket
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.cli.consortium import app
from sottovoce.consortium import proposals
from sottovoce.consortium.agreement import current_agreement, read_agreement
from sottovoce.consortium.certificates import serial_in
from sottovoce.consortium.check import Trial, check_kit
from sottovoce.consortium.job import check_own_job, write_job
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, administrator
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytestmark = pytest.mark.skipif(find_spec("nvflare") is None, reason="the extra 'flare' is not installed")


@pytest.fixture(scope="module")
def original(small_at, tmp_path_factory):
    folder = tmp_path_factory.mktemp("proposals")
    made = small_at(folder, rounds=4)
    kits = provision(made.agreement, folder / "consortium.toml", folder / "kits")
    for name in made.names:
        made.settle(kits[name], name)
    return made, kits


@pytest.fixture
def consortium(original, tmp_path):
    made, kits = original
    return made, {name: shutil.copytree(kit, tmp_path / "kits" / name) for name, kit in kits.items()}


def monthly(made, folder, *changes):
    """The agreement of another month, beside its schema."""
    folder.mkdir(exist_ok=True)
    text = (made.root / "consortium.toml").read_text()
    for old, new in (('run = "first"', 'run = "monthly-2"'), ("rounds = 4", "rounds = 6"), *changes):
        assert old in text
        text = text.replace(old, new)
    (folder / "consortium.toml").write_text(text)
    shutil.copyfile(made.root / "schema.toml", folder / "schema.toml")
    return folder / "consortium.toml"


def proposal(made, kit, folder, *changes):
    path = folder / "run.proposal"
    path.write_bytes(proposals.propose(monthly(made, folder / "new", *changes), kit))
    return path


def archived(agreement, folder):
    made = shutil.make_archive(str(folder / "job"), "zip", folder, write_job(agreement, folder / "job").name)
    return Path(made).read_bytes()


def test_a_second_run_needs_no_new_kits(consortium, tmp_path):
    made, kits = consortium
    path = proposal(made, kits["ash"], tmp_path)
    assert b"PRIVATE KEY" not in path.read_bytes()
    new = read_agreement(tmp_path / "new" / "consortium.toml")
    before = {name: current_agreement(kit).run.digest for name, kit in kits.items()}
    job = archived(new, tmp_path)
    server = kits[made.agreement.host]
    with pytest.raises(SpecError, match="not the agreed one"):
        check_own_job(job, current_agreement(server))
    for name, kit in kits.items():
        proposed = proposals.read_proposal(path, kit)
        assert proposed.by == "ash" and proposed.agreement.run.digest == new.run.digest
        (*each,) = proposals.costs(proposed, kit)
        assert [cost.dataset for cost in each] == (["people", "people (held out)"] if name in made.names else [])
        assert all(cost.before == 0.0 < cost.after <= cost.limit == 4.0 for cost in each)
        proposals.accept(path, kit)
        assert current_agreement(kit).run.digest == new.run.digest != before[name]
    check_own_job(job, current_agreement(server))  # the same process takes the new job in
    for name in made.names:
        findings = check_kit(kits[name])
        assert all(finding.good for finding in findings), findings
        assert new.run.digest in (kits[name] / "README.md").read_text()


FORGED = {
    "another text": lambda data: data | {"agreement": data["agreement"].replace("rounds = 6", "rounds = 7")},
    "another schema": lambda data: data | {"schema": data["schema"] + "\n"},
    "another member's name": lambda data: data | {"by": "birch"},
    "a stranger's name": lambda data: data | {"by": "eve"},
    "no signature": lambda data: data | {"signature": ""},
    "no certificate": lambda data: data | {"certificate": "00"},
    "another format": lambda data: data | {"format": "2"},
    "an entry is missing": lambda data: {name: data[name] for name in data if name != "schema"},
}


@pytest.mark.parametrize("what", FORGED)
def test_what_its_proposer_did_not_sign_is_refused(consortium, tmp_path, what):
    made, kits = consortium
    path = proposal(made, kits["ash"], tmp_path)
    path.write_text(json.dumps(FORGED[what](json.loads(path.read_text()))))
    kept = (kits["birch"] / "local" / "consortium.toml").read_text()
    with pytest.raises(SpecError, match=r"not signed by|no member|is no proposal"):
        proposals.accept(path, kits["birch"])
    assert (kits["birch"] / "local" / "consortium.toml").read_text() == kept


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[sites.cedar]", "[sites.elm]"), "another sites"),
        (("port = 8002", "port = 8003"), "another server's port"),
        (('name = "small"', 'name = "large"'), "another name"),
    ],
)
def test_other_members_need_kits(consortium, tmp_path, change, words):
    made, kits = consortium
    with pytest.raises(SpecError, match=words):
        proposal(made, kits["ash"], tmp_path, change)


def test_a_run_over_the_budget_is_refused_before_it_is_accepted(consortium, tmp_path):
    made, kits = consortium
    path = proposal(made, kits["ash"], tmp_path, ("epsilon = 2.0", "epsilon = 5.0"))
    for step in (lambda: proposals.costs(proposals.read_proposal(path, kits["ash"]), kits["ash"]),
                 lambda: proposals.accept(path, kits["ash"])):  # fmt: skip
        with pytest.raises(PrivacyError, match="over the owner's budget"):
            step()


def test_a_run_that_has_begun_is_finished_first(consortium, tmp_path):
    made, kits = consortium
    path, state = proposal(made, kits["ash"], tmp_path), read_site(kits["birch"] / "local" / "site.toml").state
    store = Store(state)
    run = made.agreement.run
    with store.transaction():
        store.ledger.append("open", run.digest, detail={"name": run.name, "node": "birch"})
        store.ledger.append("release", run.digest, 1, "ab" * 32)
    store.close()
    with pytest.raises(SpecError, match="has begun here"):
        proposals.accept(path, kits["birch"])
    proposals.accept(path, kits["cedar"])


def test_a_member_is_shut_out_without_new_kits(consortium, tmp_path):
    made, kits = consortium
    serial = serial_in((kits["cedar"] / "startup" / "client.crt").read_bytes())
    path = proposal(made, kits["ash"], tmp_path, ('name = "small"', f'name = "small"\nrevoked = ["{serial:x}"]'))
    proposals.accept(path, kits["birch"])
    assert current_agreement(kits["birch"]).revoked == (serial,)
    (tmp_path / "own").mkdir()
    back = proposal(made, kits["cedar"], tmp_path / "own")
    with pytest.raises(SpecError, match="not signed by 'cedar'"):
        proposals.accept(back, kits["birch"])


def test_the_commands_say_what_a_run_costs(consortium, tmp_path):
    made, kits = consortium
    file, out = monthly(made, tmp_path / "new"), tmp_path / "monthly.proposal"
    runner = CliRunner()
    for line in (
        ["propose", str(file), str(kits["ash"]), "--out", str(out)],
        ["review", str(out), str(kits["birch"])],
        ["accept", str(out), str(kits["birch"]), str(kits["cedar"])],
    ):
        found = runner.invoke(app, line, catch_exceptions=False)
        assert found.exit_code == 0
        if line[0] == "review":
            assert "'ash' proposes run 'monthly-2'" in found.output and "of 4 at" in found.output
    data = json.loads(runner.invoke(app, ["review", str(out), str(kits["ash"]), "--json"]).output)
    assert data["by"] == "ash" and {cost["dataset"] for cost in data["costs"]} == {"people", "people (held out)"}


@pytest.mark.slow
def test_services_that_run_take_the_next_run_in(small_at, tmp_path):
    """Three sites, a server, two runs: not one process is started anew between them."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    made = small_at(tmp_path, rounds=4, port=port, timeout=120)
    kits = provision(made.agreement, tmp_path / "consortium.toml", tmp_path / "kits")
    for name in made.names:
        made.settle(kits[name], name)
    with Trial(kits, tmp_path / "logs") as trial:
        trial.start(made.agreement.host)
        for name in made.names:
            trial.start(name)
        for number in range(2):
            with administrator(kits[made.agreement.admin], patience=150) as admin:
                until = time.monotonic() + 150
                while not all(each.connected for each in admin.who(10)):
                    assert time.monotonic() < until, "not all sites connected"
                job = admin.submit()
                *_, last = admin.follow(job)
                assert last.state == COMPLETED, last
            path = proposal(made, kits["ash"], tmp_path, (f"port = {port}", f"port = {port}")) if not number else None
            for kit in kits.values() if path is not None else ():
                proposals.accept(path, kit)
    for name in made.names:
        found = [Result.load(kits[name] / "state" / "results" / run) for run in ("first", "monthly-2")]
        assert [one.spec.algorithm.rounds for one in found] == [4, 6]
        store = Store(kits[name] / "state", reading=True)
        assert len([row for row in store.rows() if row.kind == "close"]) == 4 and store.verify() == []
        store.close()
