"""A node of a consortium: its agreement, its records, its loop, and what becomes of them, apart from FLARE's classes.

`executor.py` hands it a `Channel`. What goes over it leaves encrypted; what `ready` and `take_part` return goes to the
server. At the end every site keeps the model, its statement and the schema in its own folder.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce._types import Array
from sottovoce.consortium.agreement import FILE, SERVER, Agreement, read_agreement
from sottovoce.consortium.credentials import lent
from sottovoce.consortium.evaluation import Examiner, check_not_moved, split_held_out, statement
from sottovoce.consortium.flare import MODEL, ORDER, PROGRESS, Channel, FlareTransport
from sottovoce.consortium.progress import Reporter
from sottovoce.consortium.project import certificate_files
from sottovoce.data.policy import GUARANTEE, ReadPolicy
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.errors import FolderInUse, NetworkError, SottovoceError, SpecError
from sottovoce.node.budget import spendings
from sottovoce.node.identity import Certified, Identity
from sottovoce.node.message import Code, Header, Refused, check, pack, read
from sottovoce.node.node import DurableNode
from sottovoce.node.runfile import predicts_numbers
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import Site, problem_of, read_site
from sottovoce.node.state import shown
from sottovoce.node.store import Store
from sottovoce.node.transport import Stopwatch
from sottovoce.run.plan import Public
from sottovoce.run.result import History, Result, environment

RESULTS = "results"
ENGINE = "nodes over FLARE"
LOCKED = 40.0  # seconds that an ended job's process may still hold the node's folder
log = logging.getLogger(__name__)


class ConsortiumNode:
    """A node in one job of FLARE.

    Parameters
    ----------
    kit : the site's folder
    name : the node, and its site
    digest : of the run that the job is for
    channel : to the other processes of the job
    stopped : whether the job was ended
    """

    def __init__(self, kit: Path, name: str, digest: str, channel: Channel, stopped: Callable[[], bool]) -> None:
        self.agreement = read_agreement(kit / "local" / FILE)
        self.kit, self.name, self.channel, self.stopped = kit, name, channel, stopped
        run = self.run = self.agreement.run
        if run.digest != digest:
            raise SpecError(
                f"the job is for another run ({digest[:12]}) than this site's agreement ({run.digest[:12]}); compare "
                f"{FILE} and the schema with the other sites"
            )
        with lent():
            site = read_site(kit / "local" / SITE_FILE)
        self.store = _opened(site.state)
        try:
            identity = identity_of(kit, self.agreement, channel)
            with lent():
                self.node, self.examiner = own_records(self.agreement, name, site, self.store, identity)
        except BaseException:
            self.store.close()
            raise
        self.number = self.node.number
        self._models: dict[int, Array] = {}
        answers = self.store.answers(run.digest) if self.node.over else {}
        self._last_models = {i: sealed for (i, topic, _), sealed in answers.items() if topic == MODEL}
        self._gather_began: float | None = None
        self.transport = FlareTransport(self.node.links, self.node.skips, channel, stopped)
        self.node.transport = self.transport
        channel.serve(MODEL, self._swap)
        channel.serve(ORDER, self._obey)
        channel.serve(PROGRESS, lambda site, _: json.dumps(self.progress()).encode())
        self._advanced = -1, time.monotonic()
        self._reporter = Reporter(site.state, run.digest, self._report)
        self._reporter.start()

    def ready(self) -> dict[str, Any]:
        """Return what the server learns before the first message."""
        return {"digest": self.run.digest, **self.progress()}

    def progress(self) -> dict[str, Any]:
        """How far this node is; rounds and who speaks in them are public."""
        left = self.node.rounds
        t = at = int(left[0]) if len(left) else self.node.exchange
        late, seconds = self._gathering() or ((), 0.0)
        with suppress(SottovoceError):  # an error of the run ends this node, and its state says so
            if not late:
                late, seconds = self.transport.waiting(t)
            if not late:
                at, (late, seconds) = 0, self.transport.greeting()
        at = min(at, self.run.T + 1)  # what follows the last round is shown as the round after it
        waits = {"round": at, "for": self.run.nodes[late[0]], "seconds": round(seconds, 1)} if late else None
        state = shown(self.node.state, seconds if late else 0.0)
        found = {"round": min(t - 1, self.run.T), "rounds": self.run.T, "waits": waits, "state": state.value}
        return found | ({"removed": self._removed} if self._removed else {})

    @property
    def _removed(self) -> list[str]:
        """The sites that this one went on without."""
        return [self.run.nodes[i] for i, _ in self.node.run.removed]

    def _report(self) -> dict[str, Any]:
        """For the site itself: how far it is, and what it has exchanged with each peer."""
        found, nodes, waited = self.progress(), self.run.nodes, self.transport.waited
        if found["round"] != self._advanced[0]:
            self._advanced = found["round"], time.monotonic()
        sent, received = self.transport.sent, self.transport.received
        peers = {
            nodes[i]: {"sent": sent[i], "received": received.get(i, 0), "waited": round(waited.get(i, 0.0), 3)}
            for i in tuple(sent)
        }
        return found | {"name": self.run.name, "age": time.monotonic() - self._advanced[1], "peers": peers}

    def _gathering(self) -> tuple[tuple[int, ...], float] | None:
        """Return the sites whose final models are missing, and for how many seconds; None before they are requested."""
        if self._gather_began is None:
            return None
        return tuple(i for i in range(self.run.n) if i not in self._models), time.monotonic() - self._gather_began

    def take_part(self) -> dict[str, Any]:
        """Train, agree on the mean of all models, test it, keep the results."""
        began = time.perf_counter()
        over = self.node.over
        outcome = self.node.take_part(leave=False)
        if over:  # the results were saved, and peers that ask again are answered
            count = None if self.examiner is None else self.examiner.count(outcome.model, self.node.scored)
            return {"finished": True, "right": count, "unheard": [], "skips": outcome.skips, "removed": self._removed}
        seconds = time.perf_counter() - began
        models = self._gather(outcome.model)
        with np.errstate(over="ignore"):
            mean = models.mean(axis=0)
        if not np.all(np.isfinite(mean)):
            raise NetworkError("the mean of all models is not finite: a site sent numbers of no ordinary size; refused")
        count = None if self.examiner is None else self.examiner.count(mean, self.node.scored)
        public = self.node.public | Public(skips=outcome.skips)
        about = environment(ENGINE, seconds)
        folder = save_results(
            self.kit, self.store.path, self.agreement, models, public, about, statistics=self.node.statistics
        )
        log.info("the model and its statement are in %s", folder)
        message, seal = self._model_message(), self.node.envelope.seal
        others = (i for i in self.node.run.members if i != self.number)
        self.node.leave(outcome, {(i, MODEL, True): seal(i, MODEL, b"", message, reply=True) for i in others})
        unheard, removed = list(outcome.unheard), self._removed
        return {"finished": True, "right": count, "unheard": unheard, "skips": outcome.skips, "removed": removed}

    def _gather(self, mine: Array) -> Array:
        """Everybody's final model, which is made of released messages only; they travel encrypted all the same."""
        self._models[self.number] = mine
        if self.run.may_lose:  # the exact mean: all who are left have this very model, and nobody need be waited for
            return np.tile(mine, (self.run.n, 1))
        self._gather_began = time.monotonic()
        watch, others = Stopwatch(), [i for i in range(self.run.n) if i != self.number]
        payload = self._model_message()
        self.transport.meet(others)  # whom this node knows already it need not ask
        while missing := [i for i in others if i not in self._models]:
            if self.stopped() or watch.read() > self.run.timeout:
                names = ", ".join(self.run.nodes[i] for i in missing)
                raise NetworkError(f"no final model came from {names}; the run is paused: submit it again")
            for i in missing:
                answer = self.channel.ask(self.run.nodes[i], MODEL, self.node.envelope.seal(i, MODEL, b"", payload))
                try:
                    if answer:
                        self._take_model(i, answer, reply=True)
                except NetworkError as error:  # a relay can send anything: request it again
                    log.warning("the final model of %s was refused: %s", self.run.nodes[i], error)
            if len(self._models) < self.run.n:
                time.sleep(0.1)
        return np.stack([self._models[i] for i in range(self.run.n)])

    def _model_message(self) -> bytes:
        return pack(Header(self.run.mark, self.run.T + 2, self.number), self._models[self.number])

    def _take_model(self, sender: int, data: bytes, reply: bool = False) -> None:
        if len(data) > self.node.links.limit:
            raise NetworkError(f"a model of {len(data)} bytes came from site {sender}; refused")
        message = read(self.node.envelope.open(sender, MODEL, data, reply))
        expected = Header(self.run.mark, self.run.T + 2, sender)
        check(message, expected, (self.run.m,), bound=self.node.model_bound)
        if not np.array_equal(self._models.setdefault(sender, np.array(message.array)), message.array):
            raise Refused(
                Code.SECOND, f"site '{self.run.nodes[sender]}' sent a second, different final model; the first counts"
            )

    def _swap(self, site: str, payload: bytes) -> bytes:
        sender = self.run.number(site)
        if sender in self._last_models:
            return self._last_models[sender]
        self._take_model(sender, payload)
        if self.number not in self._models:
            return b""
        return self.node.envelope.seal(sender, MODEL, b"", self._model_message(), reply=True)

    def _obey(self, site: str, payload: bytes) -> bytes:
        if site != SERVER:
            raise NetworkError(f"'{site}' is not the controller, and gives no orders")
        return self.node.skips.answer(payload)

    def close(self) -> None:
        """Let go of the network and of the node's folder."""
        self._reporter.close()
        self.transport.close()
        self.store.close()


def identity_of(kit: Path, agreement: Agreement, channel: Channel) -> Identity | None:
    """The site's certificate; in FLARE's simulator, where one owner has everything, nobody has one."""
    if channel.plaintext:
        return None
    certificate, key, authority = (kit / path for path in certificate_files("site"))
    return Certified(certificate, key, authority, agreement.revoked)


def own_records(
    agreement: Agreement,
    name: str,
    site: Site,
    store: Store,
    identity: Identity | None = None,
    policy: ReadPolicy = GUARANTEE,
) -> tuple[DurableNode, Examiner | None]:
    """The node over its training records, and the test over those that are held out; both within the budget."""
    run, public = agreement.run, agreement.site(name)
    train, test = split_held_out(
        site.read(agreement.schema, policy),
        public.records,
        public.held_out(agreement.held_out),
        store.secret,
        site.dataset,
        weighted=not predicts_numbers(run.spec),
    )
    node = DurableNode(run, name, problem_of(run, train), store, site.dataset, identity)
    examiner = None
    if test is not None:
        examiner = Examiner(agreement, name, problem_of(run, test), store, site.dataset)
        examiner.check_affordable()
    spent = spendings(store.rows())
    check_not_moved(spent, site.dataset, node.fingerprint, None if examiner is None else examiner.fingerprint)
    return node, examiner


def save_results(
    kit: Path,
    state: Path,
    agreement: Agreement,
    models: Array,
    public: Public,
    about: Mapping[str, Any],
    statistics: Array | None = None,
) -> Path:
    """What a site keeps: a `Result` for `sottovoce predict` and `sottovoce account --verify`, statement and schema."""
    run, made = agreement.run, statement(agreement)
    result = Result(
        spec=replace(run.spec, seed=None),  # the run file's seed is the schedule's alone
        models=models,
        history=History(),
        statement=made,
        public=public,
        classes=agreement.schema.label.classes,
        features=agreement.schema.features,
        nodes=run.nodes,
        environment=dict(about),
        statistics=statistics,
        scale=run.scale,
    )
    schema = {SCHEMA_FILE: (kit / "local" / agreement.schema_file).read_bytes()}
    folder = result.save(state / RESULTS / agreement.run_name, beside=schema)
    (folder / "statement.txt").write_text(made.paragraph() + "\n", encoding="utf-8")
    (folder / "statement.json").write_text(json.dumps(made.to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")
    return folder


def _opened(folder: Path) -> Store:
    """The node's folder; the process of a job that was just ended may hold it for some seconds."""
    until = time.monotonic() + LOCKED
    while True:
        try:
            return Store(folder)
        except FolderInUse:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
