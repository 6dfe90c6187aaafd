"""The owner's total budget: what all runs on a data set together may cost, by a privacy filter (`privacy.filter`).

Runs are agreed on one after another, and whoever proposes the next has seen the model of the last. So their sum is not
that of mechanisms which were settled before: the filter lets a run through, or not, by a rule that was fixed with the
first one. A single run keeps the accountant's price.

A run that has released anything counts with *all* of its planned rounds, finished or not: it may go on at any time,
and composition with a number of rounds that was chosen along the way is not what the accountant proves. A run that has
released nothing costs nothing.

An owner shows of a ledger: an overview, an export that others can keep, and a check against what they kept.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce._version import __version__
from sottovoce.errors import PrivacyError, StoreError
from sottovoce.node.ledger import Row
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.events import ADJACENCY, Event, read_event
from sottovoce.privacy.filter import one_after_another
from sottovoce.privacy.release import Adversary

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
    adversary: Adversary,
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
        "adversary": str(adversary),
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
    found = [
        s
        for s in spendings(rows)
        if s.run != but and s.released and (s.dataset == dataset or s.fingerprint == fingerprint)
    ]
    spoke = list(dict.fromkeys(row.run for row in rows if row.kind == "release"))
    return sorted(found, key=lambda s: spoke.index(s.run))  # a filter's rule is that of the first that spoke


def spent(rows: Sequence[Row], dataset: str, fingerprint: str | None = None, but: str = "") -> list[Event]:
    """All that was or will be released of a data set."""
    return [s.event for s in counted(rows, dataset, fingerprint, but)]


def refuse_unless_affordable(
    rows: Sequence[Row],
    dataset: str,
    fingerprint: str,
    event: Event,
    adversary: Adversary,
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
    after = one_after_another([*before, event], limit.delta)
    if after > limit.epsilon * (1 + SLACK):
        already = one_after_another(before, limit.delta)
        raise PrivacyError(
            f"this run would bring data set '{dataset}' to ε = {_number(after)} at δ = {limit.delta:g} (so far "
            f"{_number(already)}), over the owner's budget of ε = {limit.epsilon:g}, against "
            f"'{adversary}' ({adjacency}); nothing was sent: plan more noise or fewer rounds"
        )
    return after


def _number(value: float) -> str:
    return "∞ (no noise)" if math.isinf(value) else f"{value:.4g}"


# -- what an owner shows --

FORMAT = 1


def overview(store: Store) -> dict[str, Any]:
    """Runs, and what every data set has cost of its budget: ε with its δ, adversary and adjacency."""
    rows = store.rows()
    runs, sets = spendings(rows), []
    opened = {row.run: row for row in rows if row.kind == "open"}
    for name, limit in budgets(rows).items():
        used = [s.fingerprint for s in runs if s.dataset == name]
        units = {s.adjacency for s in runs if s.dataset == name}
        events = spent(rows, name, used[-1] if used else None)
        sets.append(
            {
                "dataset": name,
                "epsilon": one_after_another(events, limit.delta),
                "epsilon_budget": limit.epsilon,
                "delta": limit.delta,
                "adversary": ", ".join(sorted({row.detail["adversary"] for row in opened.values()})) or "transcript",
                "adjacency": ", ".join(sorted(units)) or ADJACENCY,
            }
        )
    return {
        "rows": len(rows),
        "head": rows[-1].hash.hex() if rows else "",
        "datasets": sets,
        "runs": [
            {
                "run": s.run,
                "name": s.name,
                "node": opened[s.run].detail["node"],
                "dataset": s.dataset,
                "state": s.state,
                "rounds": s.event.rounds,
                "released": s.released,
                "sigma": s.event.sigma,
            }
            for s in runs
        ],
    }


def export(store: Store) -> dict[str, Any]:
    """The whole ledger and the high-water marks of the peers, as plain values; no records, no state, no key."""
    return {
        "format": FORMAT,
        "sottovoce": __version__,
        "ledger": store.identity,
        "rows": [[*row[:6], row.hash.hex()] for row in store.rows()],
        "seen": store.marks(),
    }


def read_export(path: Path) -> dict[str, Any]:
    """An export from a file."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != FORMAT or not isinstance(data["ledger"], str):
            raise ValueError
        hashes = [bytes.fromhex(row[6]) for row in data["rows"]]
        marks = [(hash(mark[name]), mark["message"]) for mark in data["seen"] for name in ("run", "node", "round")]
        if len(hashes) != len(data["rows"]) or any(not isinstance(mark["run"], str) for mark in data["seen"]):
            raise ValueError(marks)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise StoreError(f"'{path}' is no export of a ledger; make one with: sottovoce ledger export DIR") from None
    return dict(data)


def contradictions(rows: list[Row], identity: str, kept: dict[str, Any]) -> list[str]:
    """What a ledger lacks of an earlier export of itself, or of what a peer saw from it."""
    if kept["ledger"] == identity:
        mine = [row.hash.hex() for row in rows]
        theirs = [row[6] for row in kept["rows"]]
        if mine[: len(theirs)] != theirs:
            return [
                f"an earlier export knows {len(theirs)} rows that this ledger of {len(mine)} does not begin with: it "
                "is an old copy, or was written anew"
            ]
        return []
    names = {row.run: row.detail.get("node") for row in rows if row.kind == "open"}
    released = {(row.run, row.round): row.message for row in rows if row.kind == "release"}
    return [
        f"a peer saw round {mark['round']} of run {mark['run'][:12]}, which this ledger does not know with that "
        "message: it is an old copy, or was written anew"
        for mark in kept["seen"]
        if names.get(mark["run"]) == mark["node"] and _unknown(mark, released.get((mark["run"], mark["round"])))
    ]


def _unknown(mark: dict[str, Any], message: str | None) -> bool:
    """Whether a peer saw what a ledger does not have; of a later exchange it tells no more than that there was one."""
    return message is None or mark["message"] not in (None, message)
