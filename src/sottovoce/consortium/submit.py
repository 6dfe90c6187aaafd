"""What the administrator does: submit a job (`job.py`), follow it, fetch what everybody may know."""

import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sottovoce.consortium.agreement import FILE, Agreement, read_agreement
from sottovoce.consortium.flare import flare
from sottovoce.consortium.job import MAX_JOB_BYTES, is_job_id, job_name, write_job
from sottovoce.consortium.untrusted_input import progress_of_all, report_of
from sottovoce.errors import NetworkError, SpecError

OVER = "FINISHED"
COMPLETED = "FINISHED:COMPLETED"
REPORT = "sottovoce.json"
BEAT = 2
"""Seconds between two signs of life of a site."""
SITE_TIMEOUT = 30.0
"""Seconds after which a site that was not heard is called missing: sites of version 0.1 speak up every ten."""
NOT_STARTED = ("SUBMITTED", "APPROVED", "DISPATCHED")
"""FLARE's states of a job that no site works on."""
SCHEDULING = 180.0
"""Seconds after which a job that was not started is ended."""
_STATE = re.compile(r"[A-Z_:]{1,64}")


class Status(NamedTuple):
    """A job, and how far its sites are."""

    job: str
    state: str
    progress: dict[str, dict[str, Any]]
    """By site: the round that it has done, of how many, its state, and whom it waits for."""
    why: str = ""
    """Why nothing happens, where the server does not run the job."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state.startswith(OVER)


class Connected(NamedTuple):
    """A site, as the server knows it."""

    site: str
    connected: bool
    """Whether the site answered during the request."""
    heard: float | None
    """When it was last heard, by the server's clock (seconds since 1970); None if never since the server started."""


class Administrator:
    """A session with the server; made by `administrator`, which also closes it."""

    def __init__(self, session: Any, agreement: Agreement) -> None:
        self.session, self.agreement = session, agreement

    def who(self, patience: float = SITE_TIMEOUT) -> list[Connected]:
        """Return all sites; one is connected if the server hears it now, since the server's list keeps dead sites.

        Sites send a heartbeat every `BEAT` seconds, so clocks need not agree. The call ends once all sites were heard,
        or after that many seconds.
        """
        first = last = self.heard()
        until = time.monotonic() + patience
        while True:
            found = [
                Connected(name, last.get(name, 0.0) > first.get(name, 0.0), last.get(name)) for name in self._names
            ]
            if all(each.connected or each.heard is None for each in found) or time.monotonic() > until:
                return found
            time.sleep(0.5)
            last = self.heard()

    def missing(self, since: float = 0.0) -> list[str]:
        """Sites that the server has not heard of since then, by its own clock (seconds since 1970), without waiting."""
        heard = self.heard()
        return [name for name in self._names if heard.get(name, -1.0) < since]

    @property
    def _names(self) -> list[str]:
        return [site.name for site in self.agreement.sites]

    def heard(self) -> dict[str, float]:
        """When the server last heard of whom."""
        clients = self._call("get_system_info").client_info
        return {str(client.name): float(client.last_connect_time or 0.0) for client in clients}

    def submit(self, patience: float = SITE_TIMEOUT) -> str:
        """Start a run, or let a paused one go on; a job of the same run that still runs is ended first.

        A site that is not heard within so many seconds is named, and nothing is started.
        """
        missing = [each.site for each in self.who(patience) if not each.connected]
        if missing:
            raise NetworkError(
                f"not connected: {', '.join(missing)}; nothing was stopped or started: start what is missing, then "
                "submit again"
            )
        self.stop()
        with TemporaryDirectory() as folder:
            return self._id(self._call("submit_job", str(write_job(self.agreement, Path(folder, "job")))))

    def stop(self) -> list[str]:
        """Stop the jobs of this run and return them; no site loses anything, and a new submit continues the run."""
        ended = []
        for job in self.jobs():
            if not str(job.get("status", OVER)).startswith(OVER):
                with suppress(NetworkError):  # it ended meanwhile, or with a server that was stopped
                    self._call("abort_job", job["job_id"])
                    ended.append(self._id(job["job_id"]))
        return ended

    @staticmethod
    def _id(job: Any) -> str:
        if not is_job_id(job):
            raise NetworkError("the server does not name the job as FLARE names them; is it one?")
        return str(job)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs of this run, the latest first."""
        return list(self._call("list_jobs", name_prefix=job_name(self.agreement), reverse=True) or [])

    def latest(self) -> str:
        """The last job of this run."""
        jobs = self.jobs()
        if not jobs:
            raise SpecError("no job of this run was submitted yet; run: sottovoce consortium submit")
        return self._id(jobs[0].get("job_id"))

    def status(self, job: str) -> Status:
        """Where a job stands."""
        state = str(self._call("get_job_meta", job).get("status", "?"))
        progress: dict[str, dict[str, Any]] = {}
        if state == "RUNNING":
            with suppress(NetworkError):  # its process is only starting, or just ended
                stats = self._call("show_stats", job, "server")
                reported = stats.get("server") if isinstance(stats, dict) else None
                progress = progress_of_all(
                    reported.get("sottovoce") if isinstance(reported, dict) else None, self.agreement.run
                )
        why = self._why_not_started() if state in NOT_STARTED else ""
        return Status(job, state if _STATE.fullmatch(state) else "?", progress, why)

    def _why_not_started(self) -> str:
        """Why the server has not started a job: who is not there, or that every site is busy."""
        heard = [seconds for seconds in self.heard().values() if seconds]
        missing = self.missing(max(heard, default=0.0) - SITE_TIMEOUT)
        if missing:
            return f"it waits for {', '.join(missing)}, which the server does not hear: start what is missing"
        return "every site is heard, and the server has not started it: another job may run at a site"

    def follow(self, job: str, every: float = 1.0, limit: float = SCHEDULING) -> Iterator[Status]:
        """The job's status now and then, until it is over; one that does not start within `limit` seconds is ended."""
        began = time.monotonic()
        while True:
            found = self.status(job)
            if found.state in NOT_STARTED and time.monotonic() - began > limit:
                self.stop()
                found = Status(job, "FINISHED:NOT_STARTED", {}, f"not started within {limit:g} s: {found.why}")
            yield found
            if found.over:
                return
            time.sleep(every)

    def results(self, job: str) -> dict[str, Any]:
        """What the controller wrote down: sites, statement, evaluation; who failed, and why."""
        with TemporaryDirectory() as folder:
            self._call("download_job_result", job, folder)
            found = sorted(Path(folder).rglob(REPORT))
            if not found:
                raise NetworkError("the job left no report: it was ended before; submit again, and the run goes on")
            if found[0].stat().st_size > MAX_JOB_BYTES:
                raise NetworkError(
                    f"the report has more than {MAX_JOB_BYTES} bytes, so it is not from sottovoce; not read"
                )
            return report_of(found[0].read_bytes(), self.agreement)

    def _call(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """A command of FLARE's API; its errors are sentences, and what it prints is not for stdout."""
        try:
            with redirect_stdout(StringIO()):
                return getattr(self.session, command)(*args, **kwargs)
        except (ValueError, TypeError, AttributeError):
            raise
        except Exception as error:
            raise NetworkError(f"the server did not do '{command}' ({error}); is it running?") from None


@contextmanager
def administrator(kit: Path, patience: float = 30.0) -> Iterator[Administrator]:
    """A session with the server from an administrator's kit; closed in any case, or the process would never end."""
    agreement = read_agreement(kit / "local" / FILE)
    try:
        name = str(json.loads((kit / "startup" / "fed_admin.json").read_text())["admin"]["username"])
    except (OSError, ValueError, KeyError):
        raise SpecError(f"'{kit}' is no administrator's kit: it has no startup/fed_admin.json") from None
    api = flare("fuel.flare_api.flare_api")
    until = time.monotonic() + patience
    wait_for(agreement.host, agreement.port, until)
    silent = logging.NullHandler()  # without any handler, FLARE's warnings would go to the screen
    logging.getLogger().addHandler(silent)
    try:
        with redirect_stdout(StringIO()):
            session = api.new_secure_session(name, str(kit.resolve()), timeout=max(5.0, until - time.monotonic()))
    except Exception as error:
        logging.getLogger().removeHandler(silent)
        raise _unreachable(agreement.host, agreement.port, error) from None
    try:
        yield Administrator(session, agreement)
    finally:
        with redirect_stdout(StringIO()):
            session.close()
        logging.getLogger().removeHandler(silent)


def wait_for(host: str, port: int, until: float) -> None:
    """Until the server listens, or the monotonic clock says so: FLARE would fill the screen with its attempts."""
    while True:
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise _unreachable(host, port, error) from None
            time.sleep(0.3)


def _unreachable(host: str, port: int, error: Exception) -> NetworkError:
    return NetworkError(f"the server at {host}:{port} cannot be reached ({error}); is it started?")
