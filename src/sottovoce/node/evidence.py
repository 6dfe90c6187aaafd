"""What an owner shows of a ledger: an overview, an export that others can keep, and a check against what they kept."""

import json
from pathlib import Path
from typing import Any

from sottovoce._version import __version__
from sottovoce.errors import StoreError
from sottovoce.node.budget import budgets, spendings, spent
from sottovoce.node.ledger import Row
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import price
from sottovoce.privacy.events import ADJACENCY

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
                "epsilon": price(events, limit.delta, lower=False).epsilon,
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
        if data["format"] != FORMAT or not isinstance(data["rows"], list) or not isinstance(data["seen"], list):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
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
        if names.get(mark["run"]) == mark["node"] and released.get((mark["run"], mark["round"])) != mark["message"]
    ]
