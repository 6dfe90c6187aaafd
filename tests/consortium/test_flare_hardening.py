"""What FLARE can carry, against what a site takes: everything but the agreed job, to the byte, is refused by a code."""

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import pytest

from sottovoce.consortium import credentials
from sottovoce.consortium.job import (
    MAX_JOB_BYTES,
    Code,
    app_files,
    check_job_meta,
    check_own_job,
    code_of,
    is_job_id,
    job_meta,
    own_archive,
    own_meta,
    strict_json,
    unpacked,
    write_job,
)
from sottovoce.errors import FolderInUse, PeerTimeout, PrivacyError, SpecError, StaleCopy

pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
JOB = "0b54c1a4-8d3c-4a51-9df1-0d2c6d3f5a77"
SITE, SERVER = "config/config_fed_client.json", "config/config_fed_server.json"


def archive(files, prefix="", method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, content in files.items():
            made.writestr(prefix + name, content)
    return buffer.getvalue()


def changed(digest, **entries):
    """The site's configuration with entries put in or replaced."""
    return json.dumps(json.loads(app_files(digest)[SITE]) | entries, indent=2)


def executor(path, **args):
    return [{"tasks": ["prepare", "train"], "executor": {"path": path, "args": args}}]


OURS = "sottovoce.consortium.executor.GossipExecutor"
WIDGET = {"id": "w", "path": "nvflare.widgets.widget.Widget", "args": {}}
CARRIED = {
    "code of its own": lambda d: {"custom/own.py": "import os"},
    "code beside the configuration": lambda d: {"config/own.py": "import os"},
    "HOCON in place of JSON": lambda d: {SITE: None, "config/config_fed_client.conf": "a = ${PGPASSWORD}"},
    "HOCON beside JSON": lambda d: {"config/config_fed_client.conf": "include url(http://example.org)"},
    "YAML": lambda d: {SITE: None, "config/config_fed_client.yml": "executors: ${oc.env:PGPASSWORD}"},
    "YAML with its other ending": lambda d: {"config/config_fed_client.yaml": "a: 1"},
    "defaults": lambda d: {"config/config_fed_client.json.default": "{}"},
    "a logging configuration": lambda d: {"config/log_config.json": '{"version": 1}'},
    "resources": lambda d: {"config/resources.json": "{}"},
    "an environment": lambda d: {"config/environment.json": "{}"},
    "a privacy policy": lambda d: {"config/privacy.json": "{}"},
    "fobs decomposers": lambda d: {"config/decomposers.json": "{}"},
    "a second app": lambda d: {"other/config/config_fed_client.json": "{}"},
    "a file that climbs": lambda d: {"../../local/custom/own.py": "import os"},
    "an absolute path": lambda d: {"/etc/cron.d/own": "* * * * *"},
    "another executor": lambda d: {SITE: changed(d, executors=executor("nvflare.app_common.executors.x.X"))},
    "an executor of a script": lambda d: {SITE: changed(d, executors=executor("subprocess.Popen", args=["id"]))},
    "another digest": lambda d: {SITE: app_files("0" * 64)[SITE]},
    "an argument more": lambda d: {SITE: changed(d, executors=executor(OURS, digest=d, kit="/"))},
    "other tasks": lambda d: {SITE: changed(d, executors=[{"tasks": ["*"], "executor": {"path": OURS}}])},
    "two executors": lambda d: {SITE: changed(d, executors=2 * executor(OURS, digest=d))},
    "a component": lambda d: {SITE: changed(d, components=[WIDGET])},
    "a filter of results": lambda d: {SITE: changed(d, task_result_filters=[{"tasks": ["*"], "filters": [WIDGET]}])},
    "a filter of data": lambda d: {SITE: changed(d, task_data_filters=[{"tasks": ["*"], "filters": [WIDGET]}])},
    "a variable": lambda d: {SITE: changed(d, executors=executor(OURS, digest="{PGPASSWORD}"))},
    "a secret reference": lambda d: {SITE: changed(d, executors=executor(OURS, digest="${secret:PGPASSWORD}"))},
    "an entry more": lambda d: {SITE: changed(d, default_task_fetch_interval=0.01)},
    "a space more": lambda d: {SITE: app_files(d)[SITE] + b" "},
    "an entry twice": lambda d: {SITE: app_files(d)[SITE].replace(b'"comp', b'"format_version": 2, "comp')},
    "a server's workflow": lambda d: {SERVER: json.dumps({"format_version": 2, "workflows": [WIDGET]})},
    "no server's part": lambda d: {SERVER: None},
    "a signature elsewhere": lambda d: {"custom/.__nvfl_sig.json": "{}"},
    "many files": lambda d: {f"config/{i}.json": "{}" for i in range(40)},
    "a bomb": lambda d: {SITE: b" " * (MAX_JOB_BYTES + 1)},
}


@pytest.mark.parametrize("what", CARRIED)
def test_an_app_that_is_not_ours_to_the_byte_is_refused(small, what):
    agreement = small(rounds=2).agreement
    digest = agreement.run.digest
    ours = app_files(digest)
    assert unpacked(own_archive(archive(ours), digest)) == ours
    signed = ours | {".__nvfl_sig.json": b"{}", "config/.__nvfl_submitter.crt": b"a certificate"}
    assert unpacked(own_archive(archive(signed), digest)) == signed  # FLARE wants signatures, and checks them
    files = {name: content for name, content in (ours | CARRIED[what](digest)).items() if content is not None}
    with pytest.raises(SpecError, match="refused"):
        own_archive(archive(files), digest)
    whole = {"meta.json": json.dumps(job_meta(agreement)), **{f"app/{name}": files[name] for name in files}}
    with pytest.raises(SpecError, match="refused"):
        check_own_job(archive(whole, "job/"), agreement)


def test_the_job_that_is_written_is_the_one_that_is_taken(small, tmp_path):
    agreement = small(rounds=2).agreement
    folder = write_job(agreement, tmp_path / "job")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    check_own_job(archive(files, "any-name/"), agreement)
    for more in ({"other/x": b""}, {"README": b""}, {"app/.hidden": b""}):
        with pytest.raises(SpecError):
            check_own_job(archive(files | more, "job/"), agreement)
    with pytest.raises(SpecError, match="one folder"):
        check_own_job(archive(files | {f"../second/{name}": files[name] for name in files}), agreement)


TORN = archive({SITE: b"{}" * 99}).replace(b"\xab\xae", b"\xff\xae", 1)
"""Its index is whole, and what is packed is not."""


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive", None, "text", {}, b"x" * (MAX_JOB_BYTES + 1), TORN])
def test_what_is_no_archive_is_refused(data):
    with pytest.raises(SpecError, match="refused"):
        own_archive(data, "ab")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_lies_about_its_size_takes_no_memory(method):
    """One of a few kilobytes that says ten bytes and unpacks to 32 MB: `ZipFile.read` would first unpack it all."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        made.writestr(SITE, bytes(2**25))
        made.filelist[0].file_size = 10
    assert len(buffer.getvalue()) < 2**16
    tracemalloc.start()
    try:
        with pytest.raises(SpecError, match="refused"):
            own_archive(buffer.getvalue(), "ab")
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


MORE = {
    "launcher_spec": {"ash": {"docker": {"image": "evil"}}},
    "resource_spec": {"ash": {"num_of_gpus": 1}},
    "scope": "private",
    "custom_props": {"a": 1},
    "edge_method": "x",
    "stats_pool_config": {"save_config": {"*": "*"}},
    "byoc": True,
    "study": "another",
    "deploy_map": {"app": ["ash"]},
    "min_clients": 1,
    "mandatory_clients": [],
    "name": "another",
    "job_id": "another",
    "flower_predeployed": True,
    "anything": "at all",
}


@pytest.mark.parametrize("key", MORE)
def test_a_description_that_requests_for_more_is_refused(small, key):
    agreement = small(rounds=2).agreement
    meta = job_meta(agreement) | {"job_id": JOB, "study": "default", "status": "SUBMITTED", "schedule_count": 1}
    check_job_meta(meta, agreement, JOB)
    check_job_meta(own_meta(agreement, JOB), agreement, JOB)
    for wrong in (meta | {key: MORE[key]}, None, [], {}):
        with pytest.raises(SpecError, match="refused"):
            check_job_meta(wrong, agreement, JOB)


@pytest.mark.parametrize("job", ["../../local", "x --set secure_train=false", "", None, 7, JOB.upper(), JOB + "\n"])
def test_names_of_jobs_are_flare_s_own(job):
    assert is_job_id(JOB) and not is_job_id(job)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[1]", '{"a": NaN}', "{", "[" * 10**5, b"\xff{}", "7"])
def test_json_is_strict(text):
    assert strict_json('{"a": [1, {"b": 2}]}') == {"a": [1, {"b": 2}]}
    with pytest.raises(SpecError):
        strict_json(text)
    with pytest.raises(SpecError, match="bytes"):
        strict_json('{"a": "' + "x" * MAX_JOB_BYTES + '"}')


def test_every_error_has_a_code_and_no_code_has_its_text():
    errors = [
        FolderInUse("/home/x"),
        StaleCopy("x"),
        PeerTimeout("x"),
        PrivacyError("x"),
        KeyError("x"),
        OSError("/home/x"),
    ]
    codes = [code_of(error) for error in errors]
    assert codes == [Code.FOLDER, Code.FOLDER, Code.WAITED, Code.BUDGET, Code.SOFTWARE, Code.SOFTWARE]
    assert not any("x" in str(code).split() or "/home" in code for code in codes)


# -- a server's commands --


@pytest.fixture
def commands(small, tmp_path):
    from sottovoce.consortium.flare_hardening import Commands

    return Commands(small(rounds=2).agreement, tmp_path)


def command(topic, body=None, **headers):
    from nvflare.private.admin_defs import Message

    made = Message(topic, body)
    made.set_headers({"job_id": JOB, **headers})
    return made


def all_topics():
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    return [topic for processor in ClientRequestProcessors.request_processors for topic in processor.get_topics()]


def answered(commands, sent, reply=None, origin="server"):
    """The answer to a command, and what FLARE was given of it."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.private.defs import new_cell_message

    given = []

    def dispatch(request):
        given.append(request.payload)
        return new_cell_message({}, reply)

    request = new_cell_message({MessageHeaderKey.ORIGIN: origin}, sent)
    return commands.answer(request, dispatch).payload, given


def test_of_all_that_flare_s_sites_obey_six_are_left(commands):
    from sottovoce.consortium.flare_hardening import OBEYED

    topics = all_topics()
    assert len(topics) > 15 and set(topics) > OBEYED
    for topic in {*topics, "another", None, 7} - OBEYED:
        said, given = answered(commands, command(topic, "ls"))
        assert given == [] and said.body == f"NVFLARE_ERROR: {Code.NOT_OBEYED}"


@pytest.mark.parametrize("origin", ["birch", "ash", "ash.job", "server.job", "", None])
def test_orders_of_anybody_but_the_server_are_refused(commands, origin):
    ok = command("reply", "done")
    said, given = answered(commands, command("train.abort"), ok, origin=origin)
    assert given == [] and said.body.startswith("NVFLARE_ERROR")
    assert len(answered(commands, command("train.abort"), ok)[1]) == 1


def test_flare_is_handed_the_site_s_own_job(commands):
    agreement = commands.agreement
    digest, meta = agreement.run.digest, job_meta(agreement) | {"job_id": JOB, "submitter_role": "project_admin"}
    sent = command("train.deploy", archive(app_files(digest)), job_meta=meta, app_name="../x", require_authz="no")
    ok = command("reply", "deployed as uid 0 into /home/ash")
    ok.set_header("_rtnCode", "_ok")
    said, (given,) = answered(commands, sent, ok)
    assert given.headers == {"job_id": JOB, "job_meta": own_meta(agreement, JOB), "app_name": "app"}
    assert unpacked(given.body) == app_files(digest) and said.body == "OK"
    for wrong in (
        command("train.deploy", archive(app_files("0" * 64)), job_meta=meta),
        command("train.deploy", archive(app_files(digest)), job_meta=meta | MORE),
        command("train.deploy", archive(app_files(digest)), job_meta=meta, job_id="../../local"),
        command("train.start_job", {"num_of_gpus": 1}, job_meta=meta),
        command("train.start_job", {}, job_meta=meta, _resource_reserve_token="x; id"),
        command("scheduler.check_resource", {"a": 1}),
        command("train.notify_job_status", job_status="${PGPASSWORD}"),
    ):
        said, given = answered(commands, wrong)
        assert given == [] and said.body == f"NVFLARE_ERROR: {Code.OTHER_JOB}"


def test_what_flare_says_goes_back_as_a_code(commands):
    """Whatever its processors answer: paths, exceptions, reasons."""
    from nvflare.apis.shareable import Shareable
    from nvflare.private.admin_defs import error_reply

    secret, meta = "swordfish", job_meta(commands.agreement) | {"job_id": JOB}
    start = command("train.start_job", {}, job_meta=meta)
    for reply in (command("reply", f"NVFLARE_ERROR: exception {secret}"), error_reply(f"exception_occurred: {secret}")):
        assert answered(commands, start, reply)[0].body == f"NVFLARE_ERROR: {Code.FAILED}"
    assert answered(commands, start, command("reply", f"started in {secret}"))[0].body == "OK"
    for enough, token in ((False, secret), (True, secret), (True, JOB)):
        found = Shareable()
        found.set_header("_is_resource_enough", enough)
        found.set_header("_resource_reserve_token", token)
        said = answered(commands, command("scheduler.check_resource", {}), command("reply", found))[0].body
        assert said.get_header("_is_resource_enough") is enough
        assert said.get_header("_resource_reserve_token") == (JOB if token == JOB else "")


def test_a_server_that_sends_jobs_without_end_does_not_fill_the_disk(commands, monkeypatch):
    from sottovoce.consortium import flare_hardening

    monkeypatch.setattr(flare_hardening, "MANY", 2)
    meta = job_meta(commands.agreement) | {"job_id": JOB}
    sent = command("train.deploy", archive(app_files(commands.agreement.run.digest)), job_meta=meta)
    for i in range(2):
        commands.admitted(sent)
        (commands.kit / f"{JOB[:-1]}{i}").mkdir()
    with pytest.raises(SpecError, match="folders"):
        commands.admitted(sent)


# -- a hardened process --

PROBE = """
import json, sys
from pathlib import Path
from sottovoce.consortium import flare_hardening
flare_hardening.harden(sys.argv[1], Path(sys.argv[2]))
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.security.logging import secure_format_exception
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.registry import Registry
class Cell:
    req_reg = Registry()
for pair in [("admin", "*"), ("_net_manager", "process_info"), ("aux_communication", "*"), ("client_command", "*"),
             ("sottovoce", "message"), ("sottovoce", "else"), ("*", "*"), ("download_service__", "x")]:
    CoreCell.register_request_cb(Cell, *pair, print)
folder = Path(sys.argv[2])
(folder / "x").mkdir()
found = {}
for ending in ("conf", "yml", "yaml", "json.default", "json"):
    (folder / "x" / f"config_fed_client.{ending}").write_text('{"a": "' + ending + '"}')
    loaded = ConfigFactory.load_config("config_fed_client.json", [str(folder / "x")])
    found[ending] = None if loaded is None else loaded.to_dict()
(folder / "x" / "config_fed_client.json").write_text('{"a": 1, "a": 2}')
try:
    ConfigFactory.load_config("config_fed_client.json", [str(folder / "x")])
    strict = False
except ValueError:
    strict = True
import importlib
users = ["private.fed.client.admin", "private.fed.client.training_cmds", "private.fed.client.scheduler_cmds",
         "private.fed.utils.app_deployer", "private.fed.client.client_runner", "fuel.f3.cellnet.core_cell",
         "fuel.f3.cellnet.cell", "fuel.f3.streaming.byte_receiver"]
modules = [importlib.import_module(f"nvflare.{name}") for name in users]
details = [m.secure_format_exception(ValueError("swordfish")) for m in modules if "secure_format_exception" in vars(m)]
print(json.dumps({"texts": details, "loaders": [str(f) for f in ConfigFactory._fmt2Loader],
    "heard": sorted(Cell.req_reg.reg),
    "found": found, "strict": strict, "said": secure_format_exception(ValueError("swordfish")), "role":
    flare_hardening.hardened()}))
"""


@pytest.mark.parametrize("role", ["site", "site-job"])
def test_a_process_after_hardening_reads_json_and_hears_little(small, tmp_path, role):
    kit = small(rounds=2).kits()["ash"]
    done = subprocess.run([sys.executable, "-c", PROBE, role, str(kit)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    details = json.loads(done.stdout.splitlines()[-1])
    assert details["loaders"] == ["ConfigFormat.JSON"] and details["strict"] and details["role"] == role
    assert details["found"] == dict.fromkeys(("conf", "yml", "yaml", "json.default")) | {"json": {"a": "json"}}
    assert len(details["texts"]) > 4 and {details["said"], *details["texts"]} == {str(Code.FAILED)}
    assert "swordfish" not in done.stdout
    heard = {"site": ["admin:*"], "site-job": ["aux_communication:__end_run__", "client_command:abort"]}[role]
    assert details["heard"] == heard + ["sottovoce:message"] * (role == "site-job")


def test_a_job_in_a_process_without_hardening_is_refused(small, cells, monkeypatch):
    """FLARE's own scripts would start one."""
    from sottovoce.consortium import executor

    class Context:
        get_identity_name = get_job_id = lambda self: "ash"
        get_prop = lambda self, key: None  # noqa: E731

        def get_engine(self):
            cell = cells.Cells().cell("ash")
            core = type("Core", (), {"core_cell": cell})
            return type("Engine", (), {"get_cell": lambda self: core})()

    reply = executor.GossipExecutor("ab").execute("prepare", None, Context(), None)
    assert json.loads(reply["sottovoce"]) == {"error": Code.AGREEMENT}
    monkeypatch.setattr(executor.flare_hardening, "_closed", ["site-job"])
    reply = executor.GossipExecutor("ab").execute("prepare", None, Context(), None)
    assert json.loads(reply["sottovoce"]) == {"error": Code.SOFTWARE}  # it got further, and there is no kit


# -- passwords --

CHILD = """
import os, sys
from sottovoce.consortium import credentials
given = dict(os.environ)
credentials.unseal()
with credentials.lent():
    inside = os.environ.get("PGPASSWORD"), os.environ.get("OWN")
block = open("/proc/self/environ").read()
left = [name for name in ("PGPASSWORD", "OWN", credentials.PIPE) if name in os.environ]
print([inside, left, "swordfish" in block or "swordfish" in str(given), os.environ["ELSE"]])
"""


def test_passwords_are_in_no_environment_but_while_records_are_read(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "site.toml").write_text('database = "postgresql://reader:${OWN}@host/db"\n')
    names = credentials.named(tmp_path)
    assert names == {*credentials.DRIVERS, "OWN"}
    outside = {**os.environ, "PGPASSWORD": "swordfish 1", "OWN": "swordfish 2", "ELSE": "stays"}
    environment, pipe = credentials.sealed(outside, names)
    assert "swordfish" not in str(environment)
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, pass_fds=(pipe,), capture_output=True, text=True
    )
    os.close(pipe)
    assert done.stdout.strip() == str([("swordfish 1", "swordfish 2"), [], False, "stays"]), done.stderr
