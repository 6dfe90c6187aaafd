"""What a FLARE process of a consortium obeys: settled before FLARE reads anything, by `flare_patches`.

FLARE trusts its server: a site takes configuration in four languages from it, one of which reads files, addresses and
the environment; runs shell commands and logging configurations; and sends back what its exceptions say. Here nobody is
trusted, so that in every process

- configuration is JSON, parsed strictly; the loaders of all else are gone, and a file of another kind is not there;
- a site obeys six commands (`OBEYED`): may this job run, here is its app, start it, end it, its resources are free, it
  is over. App and description are compared with the agreed job and then replaced by the site's own (`job.py`);
- whatever else FLARE would answer to is never registered (`HEARD`), nor decoded;
- connections are mutual TLS, inside a site too, and messages must carry the name of the connected party
  (`connections.py`);
- what goes back is a `job.Code` or a value of the site's own making, never text of an exception;
- logs are written as `logs.py` says, and no command changes that;
- a job is started by `process.py`, with a filter of its own, and with passwords in a pipe (`credentials.py`).

A server, which holds no records, is kept to JSON and to the agreed job: an administrator cannot make it do more.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sottovoce.consortium import credentials
from sottovoce.consortium import job as agreed
from sottovoce.consortium.agreement import FILE, Agreement, current_agreement, read_agreement
from sottovoce.consortium.certificates import name_in
from sottovoce.consortium.connections import check_origin, secure_connections
from sottovoce.consortium.flare import CHANNEL, TOPICS, flare
from sottovoce.consortium.flare_patches import forbid_modules, patch
from sottovoce.consortium.job import Code, strict_json
from sottovoce.consortium.logs import use_own_logs
from sottovoce.consortium.project import RESOURCES, certificate_files, keep_inside
from sottovoce.errors import SottovoceError, SpecError

log = logging.getLogger(__name__)

ROLES = ("server", "site", "server-job", "site-job")
OBEYED = frozenset(
    {
        "scheduler.check_resource",
        "scheduler.cancel_resource",
        "train.deploy",
        "train.start_job",
        "train.abort",
        "train.notify_job_status",
    }
)
"""The topics of a server's commands that a site carries out."""
_ALWAYS = {
    ("credential_manager", "key_exchange"): "key_exchange",
    ("cellnet.channel", "bye"): "bye",
    ("sm__STREAM", "sm__DATA"): "sm__DATA",
    ("sm__STREAM", "sm__ACK"): "sm__ACK",
    ("sm__STREAM", "sm__ERROR"): "sm__ERROR",
    ("return_only", "*"): "*",  # replies to a site's own requests
}
HEARD: dict[str, dict[tuple[str, str], str]] = {
    "site": _ALWAYS | {("admin", "*"): "*"},
    "site-job": _ALWAYS
    | {("client_command", "*"): "abort", ("aux_communication", "*"): "__end_run__"}
    | {(CHANNEL, topic): topic for topic in TOPICS},
}
"""What a process of a site listens on: the (channel, topic) that FLARE or we register, and the topic that is heard."""
PARENT = "SOTTOVOCE_PARENT"
"""The environment variable with the process that starts another one, which ends with it."""
MANY = 1000
"""Folders of jobs after which a site takes no more of them, so that nobody fills its disk."""
_closed: list[str] = []


def harden(role: str, kit: Path) -> None:
    """Close the filter of this process, for good."""
    if role not in ROLES:
        raise SpecError(f"there is no process '{role}'; the processes are {', '.join(ROLES)}")
    flare("apis")  # the version that the following was written for
    say_codes_only()
    read_json_only(kit if role.startswith("server") else None)
    use_own_logs()
    start_jobs_behind_gates(role, kit)
    secure_connections(role, *_own_name(role, kit))
    if role in HEARD:
        hear_only(HEARD[role])
    if role == "site":
        obey_only(kit)
    if role == "server":
        take_only(kit)
    _closed.append(role)


def _own_name(role: str, kit: Path) -> tuple[str, tuple[int, ...]]:
    """Whose certificate a kit has, and which ones do not count."""
    certificate = kit / certificate_files(role.removesuffix("-job"))[0]
    return name_in(certificate), read_agreement(kit / "local" / FILE).revoked


def hardened() -> str | None:
    """The role for which this process was hardened; None if it was not."""
    return _closed[0] if _closed else None


def say_codes_only() -> None:
    """Where FLARE writes an exception into what it sends, a code stands instead; the text goes to the process's log.

    Much of FLARE has its own reference to the function that does it, so that its very code is exchanged.
    """
    patch("security.logging:said_of", lambda _: said_of)
    patch("security.logging:secure_format_exception.__code__", lambda _: (lambda e: said_of(e)).__code__)


def said_of(error: Exception) -> str:
    """Return what others may learn of an error."""
    log.warning("an error whose text stays here: %s: %s", type(error).__name__, error)
    return str(Code.FAILED)


def read_json_only(kit: Path | None = None) -> None:
    """No loader but that of JSON, and that one strict; files of other kinds are not found.

    Of a server's kit, the resources name the place where the kit is now: it may have been moved, and be read-only.
    """
    forbid_modules()
    loader, json_format = flare("fuel.utils.json_config_loader"), flare("fuel.utils.config").ConfigFormat.JSON

    class StrictLoader(loader.JsonConfigLoader):  # type: ignore[name-defined,misc]
        """FLARE's loader of JSON, strict."""

        def load_config_from_str(self, config_str: str) -> Any:
            return loader.JsonConfig(strict_json(config_str))

        def _from_file(self, path: str) -> dict[str, Any]:
            found = strict_json(Path(path).read_bytes())
            if kit is not None and Path(path).resolve() == (kit / RESOURCES).resolve():
                keep_inside(found, kit)
            return found

    factory, formats = "fuel.utils.config_factory:ConfigFactory", "fuel.utils.config:ConfigFormat"
    for name in ("PyhoconLoader", "OmegaConfLoader"):
        patch(f"{factory}.{name}", lambda _: None)
    patch(f"{factory}._fmt2Loader", lambda _: {json_format: StrictLoader()})
    patch(f"{formats}.config_ext_formats", lambda _: classmethod(lambda cls: {".json": json_format}))
    patch(f"{formats}.extensions", lambda _: classmethod(lambda cls, target_fmt=None: [".json"]))


def hear_only(heard: Mapping[tuple[str, str], str]) -> None:
    """Handlers for anything else are not registered: to FLARE's cells, and to its streams, they do not exist."""

    def narrowed(register: Callable[..., Any]) -> Callable[..., None]:
        def register_some(self: Any, channel: str, topic: str, *args: Any, **kwargs: Any) -> None:
            if (channel, topic) in heard:
                register(self, channel, heard[channel, topic], *args, **kwargs)

        return register_some

    patch("fuel.f3.cellnet.core_cell:CoreCell.register_request_cb", narrowed)
    patch("fuel.f3.streaming.byte_receiver:ByteReceiver.register_callback", narrowed)


def take_only(kit: Path) -> None:
    """A server takes in the agreed job only: of the agreement that its kit has by then."""

    def ours_only(validate: Callable[..., Any]) -> Callable[..., Any]:
        def validate_ours(self: Any, job_name: str, job_data: Any) -> tuple[bool, str, dict[str, Any]]:
            try:
                data = job_data if isinstance(job_data, bytes) else Path(job_data).read_bytes()
                agreed.check_own_job(data, current_agreement(kit))
            except (SottovoceError, OSError) as error:
                log.error("a job was refused: %s", error)
                return False, str(Code.OTHER_JOB), {}
            found: tuple[bool, str, dict[str, Any]] = validate(self, job_name, job_data)
            return found

        return validate_ours

    patch("private.fed.server.job_meta_validator:JobMetaValidator.validate", ours_only)


# -- a site, and its server's commands --


def obey_only(kit: Path) -> None:
    """Stand between the server and FLARE's own processors: check every command and every answer.

    The agreement is the one that the kit has by then: a new run needs no restart.
    """

    def watched(dispatch: Callable[..., Any]) -> Callable[..., Any]:
        def answer(self: Any, request: Any) -> Any:
            return Commands(current_agreement(kit), kit).answer(request, partial(dispatch, self))

        return answer

    patch("private.fed.client.admin:FedAdminAgent._dispatch_request", watched)


class Commands:
    """A server's commands at a site: what FLARE is handed of one, and what goes back.

    Parameters
    ----------
    agreement : the site's own
    kit : the site's folder
    """

    def __init__(self, agreement: Agreement, kit: Path) -> None:
        self.agreement, self.kit = agreement, kit
        self._defs, self._headers = flare("private.admin_defs"), flare("private.defs").RequestHeader
        self._token = flare("private.scheduler_constants").ShareableHeader.RESOURCE_RESERVE_TOKEN
        self._origin = flare("fuel.f3.cellnet.defs").MessageHeaderKey.ORIGIN
        self._enough = flare("private.scheduler_constants").ShareableHeader.IS_RESOURCE_ENOUGH

    def answer(self, request: Any, dispatch: Callable[[Any], Any]) -> Any:
        """FLARE's answer to a command, or a code."""
        topic = getattr(request.payload, "topic", None)
        try:
            check_origin(request.get_header(self._origin))
            request.payload = self.admitted(request.payload)
        except SottovoceError as error:
            log.error("a command of the server was refused: %s", error)
            refused = Code.NOT_OBEYED if topic not in OBEYED else Code.OTHER_JOB
            return self._cell_message(self._error(refused))
        return self._cell_message(self.said(request.payload.topic, dispatch(request).payload))

    def admitted(self, command: Any) -> Any:
        """A command that is one of ours, made anew from the site's own agreement; the job's name is the server's."""
        if not isinstance(command, self._defs.Message) or command.topic not in OBEYED:
            raise SpecError(f"'{getattr(command, 'topic', None)}' is not obeyed here")
        job, topic = command.get_header(self._headers.JOB_ID), command.topic
        if not agreed.is_job_id(job):
            raise SpecError("a command names no job")
        digest = self.agreement.run.digest
        headers: dict[str, Any] = {self._headers.JOB_ID: job}
        body: Any = {}
        if topic in ("train.deploy", "train.start_job"):
            agreed.check_job_meta(command.get_header(self._headers.JOB_META), self.agreement, job)
            headers[self._headers.JOB_META] = agreed.own_meta(self.agreement, job)
        if topic == "train.deploy":
            body, headers[self._headers.APP_NAME] = agreed.own_archive(command.body, digest), agreed.APP
            if sum(agreed.is_job_id(entry.name) for entry in self.kit.iterdir()) >= MANY:
                raise SpecError(f"there are {MANY} folders of jobs in '{self.kit}'; remove old ones")
        elif topic.startswith("scheduler.check") or topic in ("train.start_job", "scheduler.cancel_resource"):
            if command.body:
                raise SpecError("a job requests resources")
            token = command.get_header(self._token)
            if token is not None and not agreed.is_job_id(token):
                raise SpecError("a command brings no token of this site's making")
            headers[self._token] = token
        elif topic == "train.notify_job_status":
            headers[self._headers.JOB_STATUS] = _whole(command.get_header(self._headers.JOB_STATUS))
        made = self._defs.Message(topic, body)
        made.id, made.headers = command.id, headers
        if topic == "scheduler.check_resource":
            made.set_header(flare("apis.fl_constant").ServerCommandKey.PEER_FL_CONTEXT, self._no_context())
        return made

    def said(self, topic: str, reply: Any) -> Any:
        """What goes back: that it was done, or a code; of resources, the token that was made here."""
        prefix, wrong = flare("private.defs").ERROR_MSG_PREFIX, self._defs.ReturnCode.ERROR
        body, code = reply.body, reply.get_header(self._defs.MsgHeader.RETURN_CODE)
        if code == wrong or (isinstance(body, str) and body.startswith(prefix)):
            log.error("a command of the server failed: %s: %s", topic, body)
            return self._error(Code.FAILED)
        answer = self._defs.Message(f"reply_{topic}", "OK")
        if code is not None:  # some of FLARE's answers have none, and their readers want none
            answer.set_header(self._defs.MsgHeader.RETURN_CODE, self._defs.ReturnCode.OK)
        if topic == "scheduler.check_resource":
            found = flare("apis.shareable").Shareable()
            enough, token = body.get_header(self._enough, False) is True, body.get_header(self._token)
            found.set_header(self._enough, enough)
            found.set_header(self._token, token if enough and agreed.is_job_id(token) else "")
            answer.body = found
        if topic == "scheduler.cancel_resource":
            answer.body = flare("apis.shareable").Shareable()
        return answer

    def _error(self, code: Code) -> Any:
        return self._defs.error_reply(f"{flare('private.defs').ERROR_MSG_PREFIX}: {code}")

    def _no_context(self) -> Any:
        return flare("apis.fl_context").FLContext()

    @staticmethod
    def _cell_message(reply: Any) -> Any:
        return flare("private.defs").new_cell_message({}, reply)


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 100:
        raise SpecError("a command names no status")
    return value


# -- processes --


def line(role: str, *arguments: str) -> list[str]:
    """The command of a process. No kit has a say in it, and with `-P` no file beside one stands for a module."""
    return [sys.executable, "-P", "-u", "-m", "sottovoce.consortium.process", role, *arguments]


FLARES_OWN = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "20"}
"""FLARE's settings: a finished job whose sites are partly gone is over after so many seconds (FLARE: 900)."""


def sealed_environment(kit: Path, environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """What such a process gets to see, and the pipe that it inherits."""
    own = {"PYTHONSAFEPATH": "1", PARENT: str(os.getpid()), **FLARES_OWN}
    return credentials.sealed({**environment, **own}, credentials.named(kit))


def start_jobs_behind_gates(role: str, kit: Path) -> None:
    """FLARE's launcher starts `process.py` of the job's role, and not its own program; passwords go by a pipe."""
    launcher = flare("app_common.job_launcher.process_launcher")
    utils = flare("utils.job_launcher_utils")
    keys, names = flare("apis.fl_constant").FLContextKey, flare("apis.job_launcher_spec").JobProcessArgs

    def launch_job(self: Any, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        given = fl_ctx.get_prop(keys.JOB_PROCESS_ARGS)
        order = utils.get_server_job_args if role == "server" else utils.get_client_job_args
        arguments: list[str] = []
        for name in order(include_exe_module=False):
            if name in given:
                option, value = given[name]
                arguments += [option, *(str(value).split() if name == names.OPTIONS else [str(value)])]
        environment, pipe = sealed_environment(kit, {**os.environ, **utils.get_credential_env(given)})
        try:
            command = line(f"{role}-job", *arguments)
            process = subprocess.Popen(command, env=environment, pass_fds=(pipe,), start_new_session=True)
        finally:
            os.close(pipe)
        return launcher.ProcessHandle(process=process)

    patch("app_common.job_launcher.process_launcher:ProcessJobLauncher.launch_job", lambda _: launch_job)
