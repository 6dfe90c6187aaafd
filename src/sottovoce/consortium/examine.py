"""A node releases its one noisy count: budgeted, in the ledger before anybody sees it, and never a second one."""

from collections.abc import Sequence

from sottovoce._types import Array
from sottovoce.consortium.agreement import Agreement
from sottovoce.consortium.evaluate import ROUND, count_digest, count_events, noisy_count, right_answers
from sottovoce.consortium.shares import HELD_OUT
from sottovoce.errors import StoreError
from sottovoce.node import budget, entropy
from sottovoce.node.ledger import Row
from sottovoce.node.store import Store
from sottovoce.node.wire import RUN, Header, check, pack_text, read, unpack_text
from sottovoce.problem.objective import Problem


class Examiner:
    """The test of one node's final model on its own held-out records.

    In the ledger the held-out share is a data set of its own, with the budget that the owner set for the whole: a
    record is in one share only, so each may cost as much.
    """

    def __init__(self, agreement: Agreement, name: str, problem: Problem, store: Store, dataset: str) -> None:
        self.plan, self.name, self.problem, self.store = agreement.plan, name, problem, store
        self.me = self.plan.number(name)
        self.dataset, self.whole = dataset + HELD_OUT, dataset
        self.event, self.tolerance = count_events(agreement)[self.me], agreement.tolerance
        self.digest = count_digest(agreement)
        self.fingerprint = entropy.fingerprint(store.secret, problem.shards)

    def refuse_unless_affordable(self) -> None:
        """As for a run, by the budget of the whole data set."""
        rows, adversary = self._rows(), self.plan.spec.privacy.adversary
        budget.refuse_unless_affordable(rows, self.dataset, self.fingerprint, self.event, adversary, self.digest)

    def _rows(self) -> Sequence[Row]:
        rows = self.store.rows()
        limit = budget.budgets(rows).get(self.whole)
        if limit is None or self.dataset in budget.budgets(rows):
            return rows
        return [*rows, Row(len(rows) + 1, "budget", "", 0, "", limit.detail(self.dataset), b"")]

    def count(self, model: Array) -> int:
        """The noisy count of right answers; the same number however often it is asked for."""
        header = Header(bytes.fromhex(self.digest)[:RUN], ROUND, self.me)
        name = f"{self.plan.name} (test)"
        saved = self.store.enter(self.digest, name, self.name, self.plan.nodes, self.fingerprint)
        if ROUND in saved.outbox:
            message = read(saved.outbox[ROUND])
            check(message, header, None, "|u1")
            return int(unpack_text(message)[0]["right"])
        if self.store.ledger.released(self.digest, ROUND) is not None:
            raise StoreError("the count of right answers was released before, but is gone; restore the node's folder")
        self.refuse_unless_affordable()
        right = right_answers(self.problem, model, self.tolerance)
        noisy = noisy_count(right, self.event, self.store.secret, self.digest)
        adversary = self.plan.spec.privacy.adversary
        detail = budget.opening(name, self.name, self.dataset, self.fingerprint, self.event, adversary)
        with self.store.transaction():
            self.store.ledger.append("open", self.digest, detail=detail)
            self.store.keep_message(self.digest, ROUND, pack_text(header, {"right": noisy}), ())
            self.store.ledger.append("close", self.digest)
        return noisy
