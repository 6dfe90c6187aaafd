"""A member of a run: its agreement, its records, its node, and what becomes of them, apart from any engine.

`executor.py` hands it a `Wire`. What goes over it leaves encrypted; what `ready` and `run` return goes to the server.
"""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.consortium.agreement import FILE, Agreement, read_agreement
from sottovoce.consortium.carrier import MODEL, ORDER, PROGRESS, FlareCarrier, Wire
from sottovoce.consortium.evaluation import Examiner, save_results
from sottovoce.consortium.shares import deal, refuse_moved
from sottovoce.consortium.site import FILE as SITE_FILE
from sottovoce.consortium.site import Source, read_site
from sottovoce.errors import NetworkError, SpecError, StoreError
from sottovoce.node.budget import spendings
from sottovoce.node.exchange import Stopwatch
from sottovoce.node.loop import Participant
from sottovoce.node.store import Store
from sottovoce.node.wire import Header, pack, unpack
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.build import check_rows, make_problem

LOCKED = 40.0  # seconds that an ended job's process may still hold the node's folder
SERVER = "server"
log = logging.getLogger(__name__)


class Member:
    """One site in one job.

    Parameters
    ----------
    kit : the site's folder
    name : the site
    digest : of the plan that the job is for
    wire : to the other processes of the job
    stopped : whether the job was ended
    """

    def __init__(self, kit: Path, name: str, digest: str, wire: Wire, stopped: Callable[[], bool]) -> None:
        self.agreement = read_agreement(kit / "local" / FILE)
        self.kit, self.name, self.wire, self.stopped = kit, name, wire, stopped
        plan = self.plan = self.agreement.plan
        if plan.digest != digest:
            raise SpecError(
                f"the job is for another plan ({digest[:12]}) than this site's agreement ({plan.digest[:12]}); compare "
                f"{FILE} and the schema with the other members"
            )
        source = read_site(kit / "local" / SITE_FILE)
        self.store = _opened(source.state)
        try:
            self.node, self.examiner = own_records(self.agreement, name, source, self.store)
        except BaseException:
            self.store.close()
            raise
        self.me = self.node.me
        self._models: dict[int, Array] = {}
        self.carrier = FlareCarrier(wire, plan, self.node.postbox, stopped)
        self.node.connect(self.carrier)
        wire.serve(MODEL, self._swap)
        wire.serve(ORDER, self._obey)
        wire.serve(PROGRESS, lambda site, _: json.dumps(self.progress()).encode())

    def ready(self) -> dict[str, Any]:
        """What the server is told before the first message."""
        return {"digest": self.plan.digest, **self.progress()}

    def progress(self) -> dict[str, Any]:
        """How far this node is; rounds and who speaks in them are public."""
        left = self.node.rounds
        t = int(left[0]) if len(left) else self.plan.T + 1
        late = self.carrier.waiting(t) if t <= self.plan.T else None
        waits = None if late is None else {"round": t, "for": self.plan.nodes[late[0]], "seconds": round(late[1], 1)}
        return {"round": t - 1, "rounds": self.plan.T, "waits": waits}

    def run(self) -> dict[str, Any]:
        """Train, agree on the mean of all models, test it, keep the results."""
        began = time.perf_counter()
        outcome = self.node.run()
        seconds = time.perf_counter() - began
        models = self._gather(outcome.model)
        count = None if self.examiner is None else self.examiner.count(models.mean(axis=0))
        folder = save_results(self.kit, self.store.path, self.agreement, models, seconds)
        log.info("the model and its statement are in %s", folder)
        return {"finished": True, "right": count, "unheard": list(outcome.unheard)}

    def _gather(self, mine: Array) -> Array:
        """Everybody's final model, which is made of released messages only; they travel encrypted all the same."""
        self._models[self.me] = mine
        watch, others = Stopwatch(), [i for i in range(self.plan.n) if i != self.me]
        payload = self._model_message()
        while missing := [i for i in others if i not in self._models]:
            if self.stopped() or watch.read() > self.plan.timeout:
                names = ", ".join(self.plan.nodes[i] for i in missing)
                raise NetworkError(f"no final model came from {names}; the run is paused: submit it again")
            for i in missing:
                answer = self.wire.ask(self.plan.nodes[i], MODEL, payload)
                if answer:
                    self._take_model(i, answer)
            if len(self._models) < self.plan.n:
                time.sleep(0.1)
        return np.stack([self._models[i] for i in range(self.plan.n)])

    def _model_message(self) -> bytes:
        return pack(Header(self.plan.run, self.plan.T + 2, self.me), self._models[self.me])

    def _take_model(self, sender: int, payload: bytes) -> None:
        expected = Header(self.plan.run, self.plan.T + 2, sender)
        self._models[sender] = np.array(unpack(payload, expected, (self.plan.m,)))

    def _swap(self, site: str, payload: bytes) -> bytes:
        self._take_model(self.plan.number(site), payload)
        return self._model_message() if self.me in self._models else b""

    def _obey(self, site: str, payload: bytes) -> bytes:
        if site != SERVER:
            raise NetworkError(f"'{site}' is not the controller, and gives no orders")
        return self.node.skips.answer(payload)

    def close(self) -> None:
        """Let go of the network and of the node's folder."""
        self.carrier.close()
        self.store.close()


def own_records(agreement: Agreement, name: str, source: Source, store: Store) -> tuple[Participant, Examiner | None]:
    """The node over its training records, and the test over those that are held out; both within the budget."""
    site = agreement.site(name)
    train, test = deal(
        source.read(agreement.schema), site.records, site.held_out(agreement.held_out), store.secret, source.dataset
    )
    node = Participant(agreement.plan, name, _problem(agreement, train), store, source.dataset)
    examiner = None
    if test is not None:
        examiner = Examiner(agreement, name, _problem(agreement, test), store, source.dataset)
        examiner.refuse_unless_affordable()
    spent = spendings(store.rows())
    refuse_moved(spent, source.dataset, node.fingerprint, None if examiner is None else examiner.fingerprint)
    return node, examiner


def _problem(agreement: Agreement, shards: Shards) -> Problem:
    spec = agreement.plan.spec.problem
    problem = make_problem(spec, shards)
    check_rows(spec, problem.shards)
    return problem


def _opened(folder: Path) -> Store:
    """The node's folder; the process of a job that was just ended may hold it for some seconds."""
    until = time.monotonic() + LOCKED
    while True:
        try:
            return Store(folder)
        except StoreError as error:
            if "another process" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.5)
