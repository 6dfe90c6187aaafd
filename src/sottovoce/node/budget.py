"""The owner's total budget: what all runs on a data set together may cost, composed by the accountant.

A run that has released anything counts with *all* of its planned rounds, finished or not: it may go on at any time,
and composition with a number of rounds that was chosen along the way is not what the accountant proves. A run that has
released nothing costs nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sottovoce.errors import PrivacyError
from sottovoce.node.ledger import Row
from sottovoce.privacy.accounting import check_delta, price
from sottovoce.privacy.adversaries import make_adversary
from sottovoce.privacy.events import ADJACENCY, Event, read_event

SLACK = 1e-9  # rounding of the sum itself


@dataclass(frozen=True)
class Budget:
    """The owner's total for one data set."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """An infinite ε is allowed: the owner says that these records need no protection."""
        if not self.epsilon > 0:
            raise PrivacyError(f"a budget's ε must be over 0, not {self.epsilon}")
        check_delta(self.delta)

    def detail(self, dataset: str) -> dict[str, Any]:
        """Of the ledger's row."""
        return {"dataset": dataset, "epsilon": repr(self.epsilon), "delta": self.delta}


class Spending(NamedTuple):
    """What a run has cost, or will have cost when it is done."""

    run: str
    name: str
    dataset: str
    fingerprint: str
    event: Event
    released: int
    state: str
    """'open', 'closed' or 'stopped'."""
    adjacency: str = ADJACENCY


def opening(
    name: str,
    node: str,
    dataset: str,
    fingerprint: str,
    event: Event,
    adversary: str,
    adjacency: str = ADJACENCY,
    messages: int | None = None,
) -> dict[str, Any]:
    """Of the ledger's row that opens a run: what is priced, and how many messages it may send.

    These are two things: a node that only passes on sends a message too, and one price may cover several messages.
    """
    return {
        "name": name,
        "node": node,
        "dataset": dataset,
        "fingerprint": fingerprint,
        "event": event.to_dict(),
        "messages": event.rounds if messages is None else messages,
        "adversary": adversary,
        "adjacency": adjacency,
    }


def budgets(rows: Sequence[Row]) -> dict[str, Budget]:
    """The latest budget of every data set."""
    found = (row.detail for row in rows if row.kind == "budget")
    return {d["dataset"]: Budget(float(d["epsilon"]), float(d["delta"])) for d in found}


def spendings(rows: Sequence[Row]) -> list[Spending]:
    """Every run that was opened."""
    released: dict[str, int] = {}
    ended: dict[str, str] = {}
    for row in rows:
        if row.kind == "release":
            released[row.run] = released.get(row.run, 0) + 1
        elif row.kind in ("close", "stop"):
            ended[row.run] = "closed" if row.kind == "close" else "stopped"
    opened = [row for row in rows if row.kind == "open"]
    try:
        return [
            Spending(
                row.run,
                row.detail["name"],
                row.detail["dataset"],
                row.detail["fingerprint"],
                read_event(row.detail["event"]),
                released.get(row.run, 0),
                ended.get(row.run, "open"),
                row.detail.get("adjacency", ADJACENCY),
            )
            for row in opened
        ]
    except (KeyError, TypeError) as error:
        raise PrivacyError(f"the ledger holds a run that cannot be accounted for ({error}); verify it") from None


def counted(rows: Sequence[Row], dataset: str, fingerprint: str | None = None, but: str = "") -> list[Spending]:
    """All runs that have let something of a data set out: under its name, or under any other with the same records."""
    return [
        s
        for s in spendings(rows)
        if s.run != but and s.released and (s.dataset == dataset or s.fingerprint == fingerprint)
    ]


def spent(rows: Sequence[Row], dataset: str, fingerprint: str | None = None, but: str = "") -> list[Event]:
    """All that was or will be released of a data set."""
    return [s.event for s in counted(rows, dataset, fingerprint, but)]


def refuse_unless_affordable(
    rows: Sequence[Row],
    dataset: str,
    fingerprint: str,
    event: Event,
    adversary: str,
    run: str,
    adjacency: str = ADJACENCY,
) -> float:
    """ε of everything with this run; an error where that passes the owner's budget, or where there is none."""
    limit = budgets(rows).get(dataset)
    if limit is None:
        raise PrivacyError(
            f"the owner has set no budget for data set '{dataset}'; set one first: sottovoce ledger budget DIR "
            "--epsilon … --delta …"
        )
    same = counted(rows, dataset, fingerprint, but=run)
    if any(s.adjacency != adjacency for s in same):
        raise PrivacyError(
            f"data set '{dataset}' was accounted for '{same[0].adjacency}' before, and this run counts '{adjacency}'; "
            "what both cost together is not known: keep to one unit, or give these records another data set"
        )
    before = [s.event for s in same]
    after = price([*before, event], limit.delta, lower=False).epsilon
    if after > limit.epsilon * (1 + SLACK):
        already = price(before, limit.delta, lower=False).epsilon
        raise PrivacyError(
            f"this run would bring data set '{dataset}' to ε = {_number(after)} at δ = {limit.delta:g} (so far "
            f"{_number(already)}), over the owner's budget of ε = {limit.epsilon:g}, against "
            f"'{make_adversary(adversary).name}' ({adjacency}); nothing was sent: plan more noise or fewer rounds"
        )
    return after


def _number(value: float) -> str:
    return "∞ (no noise)" if math.isinf(value) else f"{value:.4g}"
