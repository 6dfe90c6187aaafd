"""The server's part of a job: see that all sites agree, follow them, decide about edges of stragglers, collect counts.

It relays what it cannot read and computes nothing. What it writes down, and what an administrator can fetch, is public
or noisy: the run, the statement, how far everybody is, the counts of right answers. It parses what sites send field by
field (`untrusted_input.py`): numbers within the run's bounds, names of its nodes, codes from the list, nothing else.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.widgets.info_collector import InfoCollector

from sottovoce.consortium.agreement import FILE, SERVER, Agreement, read_agreement
from sottovoce.consortium.evaluation import evaluation, statement
from sottovoce.consortium.flare import ORDER, PROGRESS, Channel, kit_of, simulated
from sottovoce.consortium.job import PREPARE, TRAIN, Code, code_of
from sottovoce.consortium.submit import REPORT
from sottovoce.consortium.untrusted_input import progress_of, removed_by, reply_of
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.dropped_edges import SkipOrders
from sottovoce.node.runfile import Run

CHECK_SECONDS = 1.0  # seconds between two checks of the sites' progress
GIVE_UP = 5.0
"""Seconds between the first failure of a site and the end of the job, in which the others say what they met."""
log = logging.getLogger(__name__)


class Unanswered:
    """Which sites have not answered for too long.

    Examples
    --------
    >>> now = [0.0]
    >>> unanswered = Unanswered(60.0, lambda: now[0])
    >>> unanswered.too_long("ash")
    False
    >>> now[0] = 61.0
    >>> unanswered.too_long("ash")
    True
    >>> unanswered.heard("ash")
    >>> unanswered.too_long("ash")
    False
    """

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self.limit, self._clock, self._began = limit, clock, clock()
        self._last: dict[str, float] = {}

    def heard(self, site: str) -> None:
        """Note that a site answered."""
        self._last[site] = self._clock()

    def too_long(self, site: str) -> bool:
        """Whether a site has not answered within the limit."""
        return self._clock() - self._last.get(site, self._began) > self.limit


class GossipController(Controller):  # type: ignore[misc]
    """What FLARE starts at the server.

    Parameters
    ----------
    digest : of the run that the job is for; the server's own agreement must have the same
    """

    def __init__(self, digest: str) -> None:
        super().__init__()
        self.digest = digest
        self._replies: dict[str, dict[str, Any]] = {}
        self._progress: dict[str, Any] = {}
        self._gone: set[str] = set()
        """Sites that failed, or do not answer any more."""
        self._run: Run | None = None
        self._task: Task | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is done before the flow begins."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to do."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Return the sites' progress to an administrator."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            if collector is not None:
                collector.set_info("sottovoce", dict(self._progress))

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Prepare everybody, then train; a site that cannot ends the job before anything was sent."""
        try:
            agreement = self._agreement(fl_ctx)
            names = [site.name for site in agreement.sites]
            self._ask_all(PREPARE, names, fl_ctx, abort_signal)
            wrong = {n: self._replies.get(n, {}).get("error", Code.SILENT) for n in names if not self._ready(n)}
            if wrong:
                self._end(fl_ctx, {"failed": wrong}, f"not ready: {wrong}")
                return
            self._replies, self._gone = {}, set()
            following = threading.Event()
            follower = threading.Thread(target=self._follow, args=(agreement, fl_ctx, following), daemon=True)
            follower.start()
            self._ask_all(TRAIN, names, fl_ctx, abort_signal)
            following.set()
            self._conclude(agreement, names, fl_ctx)
        except SottovoceError as error:
            log.error("%s", error)
            self._end(fl_ctx, {"failed": {SERVER: code_of(error)}}, str(code_of(error)))

    def _agreement(self, fl_ctx: FLContext) -> Agreement:
        cell = fl_ctx.get_engine().get_cell().core_cell
        kit = kit_of(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), "server", cell)
        agreement = read_agreement(kit / "local" / FILE)
        if agreement.run.digest != self.digest:
            raise SpecError("the job is for another run than the server's agreement; give all the same files")
        self._run = agreement.run
        return agreement

    def _channel(self, fl_ctx: FLContext) -> Channel:
        cell = fl_ctx.get_engine().get_cell().core_cell
        return Channel(cell, str(fl_ctx.get_job_id()), plaintext=simulated(cell))

    def _ask_all(self, task: str, names: list[str], fl_ctx: FLContext, abort_signal: Signal) -> None:
        """Ask every site, until all have answered, or one has failed and the others had time to say so too."""
        self._task = Task(name=task, data=Shareable(), result_received_cb=self._received)
        self.broadcast_and_wait(
            task=self._task,
            fl_ctx=fl_ctx,
            targets=names,
            min_responses=len(names),
            abort_signal=abort_signal,
        )
        self._task = None

    def _received(self, client_task: Any, fl_ctx: FLContext) -> None:
        reported = client_task.result.get("sottovoce") if isinstance(client_task.result, dict) else None
        if self._run is not None:
            reply = self._replies[client_task.client.name] = reply_of(reported, self._run)
            if "error" in reply:
                self._gone_without(client_task.client.name)

    def _gone_without(self, name: str) -> None:
        """Let the others go on without a site that failed, if they may; else end the task."""
        self._gone.add(name)
        if self._run is None or len(self._gone) > self._run.may_lose:
            self._give_up_later(self._task)

    def _end_if_settled(self, run: Run) -> None:
        """End the task once every site has finished, or the others finished without it."""
        task, removed = self._task, removed_by(self._replies, run)
        if task is not None and removed and all(self._finished(name) or name in removed for name in run.nodes):
            self.cancel_task(task)

    def _give_up_later(self, task: Task | None) -> None:
        """End a task at which a site failed: no other one can finish it."""

        def give_up() -> None:
            if task is not None and task is self._task:
                self.cancel_task(task)

        late = threading.Timer(GIVE_UP, give_up)
        late.daemon = True
        late.start()

    def _ready(self, name: str) -> bool:
        return self._replies.get(name, {}).get("digest") == self.digest

    def _follow(self, agreement: Agreement, fl_ctx: FLContext, done: threading.Event) -> None:
        """Check the sites periodically, and let an edge be skipped if one end keeps the other waiting."""
        run, channel = agreement.run, self._channel(fl_ctx)
        kept = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir()) / f"{run.digest[:16]}.skips"
        orders = SkipOrders(run, kept, lambda i, order: channel.ask(run.nodes[i], ORDER, order))
        orders.repeat()
        unanswered = Unanswered(run.timeout, time.monotonic)
        while not done.wait(CHECK_SECONDS):
            orders.repeat()
            self._end_if_settled(run)
            for name in run.nodes:
                found = progress_of(channel.ask(name, PROGRESS, b"", CHECK_SECONDS), run)
                if found is None:
                    if unanswered.too_long(name) and not self._finished(name):
                        log.error("%s has not answered for %g s", name, run.timeout)
                        self._gone_without(name)
                    continue
                unanswered.heard(name)
                self._progress[name] = found
                waits = found["waits"]
                if waits is None or not 1 <= waits["round"] <= run.T:
                    continue
                if agreement.skip_after is not None and waits["seconds"] > agreement.skip_after:
                    done_so = orders.skip(waits["round"], run.number(name), run.number(waits["for"]))
                    log.info("edge of %s and %s in round %d: skipped: %s", name, waits["for"], waits["round"], done_so)

    def _conclude(self, agreement: Agreement, names: list[str], fl_ctx: FLContext) -> None:
        """Write down what everybody may know."""
        removed = removed_by(self._replies, agreement.run)
        missing = [n for n in names if not self._finished(n) and n not in removed]
        unfinished = {n: self._replies.get(n, {}).get("error", Code.SILENT) for n in missing}
        counts = {n: reply["right"] for n, reply in self._replies.items() if reply.get("right") is not None}
        report: dict[str, Any] = {
            "run": agreement.run_name,
            "digest": self.digest,
            "sites": {n: {"finished": self._finished(n), **self._replies.get(n, {})} for n in names},
            "privacy": statement(agreement).to_dict(),
            "evaluation": evaluation(agreement, counts).to_dict() if counts else None,
        }
        report |= {"removed": removed} if removed else {}
        if unfinished:
            self._end(fl_ctx, report | {"failed": unfinished}, f"not finished: {unfinished}")
        else:
            self._write(fl_ctx, report)

    def _finished(self, name: str) -> bool:
        return bool(self._replies.get(name, {}).get("finished"))

    def _end(self, fl_ctx: FLContext, report: dict[str, Any], reason: str) -> None:
        self._write(fl_ctx, report)
        self.system_panic(f"{reason}; run `sottovoce node check` at those sites, then submit again", fl_ctx)

    def _write(self, fl_ctx: FLContext, report: dict[str, Any]) -> None:
        folder = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_result_root(fl_ctx.get_job_id()))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPORT).write_text(json.dumps(report, ensure_ascii=False, indent=2), encoding="utf-8")

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A late answer of a task that is over means nothing any more."""
