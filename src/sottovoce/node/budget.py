"""The owner's total budget: what all runs on a data set together may cost, by a privacy filter (`privacy.filter`).

Each run may depend on the models of the runs before. So the composition of mechanisms fixed in advance does not apply:
the filter admits or refuses a run by a rule that was fixed with the first one. A single run keeps the accountant's
cost.

A run that has released anything counts with *all* of its planned rounds, finished or not: it may go on at any time,
and composition with a number of rounds that was chosen along the way is not what the accountant proves. A run that has
released nothing costs nothing.

A budget with a `path` has a folder like a node's, with the same ledger, and pays for what this machine computes from a
table of several owners' records: fits, evaluations, searches, runs of the command (`node.budget_entries`).

An owner shows of a ledger: an overview, an export that others can keep, and a check against what they kept.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sottovoce._version import __version__
from sottovoce.bounded import MAX_JSON_BYTES, read_bounded
from sottovoce.errors import PrivacyError, StoreError
from sottovoce.node.ledger import Row, runs_of
from sottovoce.node.store import Store
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.events import ADJACENCY, Event
from sottovoce.privacy.filter import Observer, any_of_each, covers, observer, weakest
from sottovoce.privacy.release import ADVERSARIES, Adversary
from sottovoce.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from sottovoce.node.budget_entries import Paid

SLACK = 1e-9  # rounding of the sum itself


DATASET = "records"
"""The owner's name for them, where only one is needed."""
HELD_OUT = " (held out)"
"""Of records that a model is only tested on: as each record is in one of the two sums, each may cost as much."""


@dataclass(frozen=True)
class Budget:
    """The owner's total for one data set: what all runs on it, all evaluations and searches may cost together.

    Parameters
    ----------
    epsilon, delta : the total; an infinite ε says that these records need no protection. Without an ε it is the one
        that the ledger has
    path : a folder for the ledger, made if need be; the same for everything that is computed from these records, in
        Python (`PrivateClassifier(budget=…)`) and by the command (`--budget PATH`)
    dataset : a name for the records, where a ledger is of several

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from sottovoce import PrivateClassifier
    >>> X, y = np.eye(100), np.arange(100) % 2
    >>> with TemporaryDirectory() as folder:
    ...     budget = Budget(1.2, 1e-5, folder)
    ...     settings = {"row_norm": 1.0, "classes": [0, 1], "budget": budget}
    ...     model = PrivateClassifier(1.0, random_state=0, **settings).fit(X, y)
    ...     spent = budget.spent()
    ...     try:
    ...         PrivateClassifier(1.0, random_state=1, **settings).fit(X, y)
    ...     except ValueError as error:
    ...         said = str(error)
    >>> round(spent, 3), said
    (1.0, "this fit would bring data set 'records' to ε = 1.4... (so far 1), over the owner's budget of ε = 1.2, ...")
    """

    epsilon: float | None = None
    delta: float = 1e-5
    path: str | Path | None = None
    dataset: str = DATASET

    def __post_init__(self) -> None:
        """Refuse what limits nothing."""
        if self.epsilon is None and self.path is None:
            raise PrivacyError("a budget needs an ε, or the path of a ledger that has one; give one of them")
        if self.epsilon is not None and not self.epsilon > 0:
            raise PrivacyError(f"a budget's ε must be over 0, not {self.epsilon}")
        check_delta(self.delta)

    def pay(self, what: str, statement: PrivacyStatement, records: "Paid", check: bool = False) -> str:
        """Record a release in the ledger before it is made, or refuse it; return its name in the ledger.

        Parameters
        ----------
        what : a word for the release
        statement : its guarantee
        records : its records and its run
        check : whether to check only and write nothing
        """
        from sottovoce.node.budget_entries import pay  # loads much, so only here

        return pay(self, what, statement, records, check)

    def close(self, run: str) -> None:
        """What was paid for is done."""
        from sottovoce.node.budget_entries import close

        close(self, run)

    def spent(self) -> float:
        """ε of everything so far, for a record that was in all of it."""
        return max((each["epsilon"] for each in self.overview()["datasets"]), default=0.0)

    def overview(self) -> dict[str, Any]:
        """Runs and sums of the ledger, as `sottovoce ledger show` shows them."""
        from sottovoce.node.budget_entries import opened

        with opened(self) as store:
            return overview(store)

    def verdict(self) -> str:
        """The sum in one line."""
        found = self.overview()
        mine = [each for each in found["datasets"] if each["dataset"].removesuffix(HELD_OUT) == self.dataset]
        return " ".join(sentence(each) for each in mine)

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
    each: tuple[tuple[str, Event], ...] = ()
    """(owner, event) of a run over several owners' records whose events differ; an owner may have several."""
    adversary: str = "transcript"

    @classmethod
    def planned(
        cls,
        run: str,
        dataset: str,
        fingerprint: str,
        event: Event,
        adversary: Adversary,
        adjacency: str = ADJACENCY,
        each: tuple[tuple[str, Event], ...] = (),
        name: str = "run",
    ) -> "Spending":
        """What a run will have cost that has released nothing so far."""
        return cls(run, name, dataset, fingerprint, event, 0, "open", adjacency, each, str(adversary))

    @property
    def observer(self) -> Observer:
        """The adversary, as its events are accounted against it."""
        return observer(ADVERSARIES.read(self.adversary), self.events())

    def events(self, owner: str | None = None) -> tuple[Event, ...]:
        """What a record of this owner, or of anybody, may have been in."""
        return tuple(event for one, event in self.each if owner in (None, one)) or (self.event,)


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
    """Return what is accounted for the run that a ledger row opens, and how many messages it may send.

    The two differ: a node that only relays sends messages too, and one cost may cover several messages.
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
    whole = runs_of(rows)
    for row in rows:
        if row.kind == "release":
            run = whole.get(row.run, row.run)
            released[run] = released.get(run, 0) + 1
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
                tuple((one["owner"], read_event(one["event"])) for one in row.detail.get("each", ())),
                row.detail.get("adversary", "transcript"),
            )
            for row in opened
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(f"the ledger holds a run that cannot be accounted for ({error}); verify it") from None


def counted_spendings(
    rows: Sequence[Row], dataset: str, fingerprint: str | None = None, excluding: str = ""
) -> list[Spending]:
    """All runs that have let something of a data set out: under its name, or under any other with the same records.

    Records that go by several names, as those that a model was tested on and trained on, count under each of them: with
    whatever comes later under either, too.
    """
    spoken = [s for s in spendings(rows) if s.run != excluding and s.released]
    names: dict[str | None, set[str]] = {fingerprint: {dataset}}
    for s in spoken:
        names.setdefault(s.fingerprint, set()).add(s.dataset)
    found = [s for s in spoken if names[s.fingerprint] & names[fingerprint]]
    whole = runs_of(rows)
    spoke = list(dict.fromkeys(whole.get(row.run, row.run) for row in rows if row.kind == "release"))
    return sorted(found, key=lambda s: spoke.index(s.run))  # a filter's rule is that of the first that spoke


def joint_epsilon(runs: Iterable[Spending], delta: float) -> float:
    """ε of runs on the same records, one after another, for the record that is protected least.

    Where all runs were over the same owners' records, a record's events are its owner's; else it may have been in any.
    The sum is against the weakest adversary of all; infinite where they cannot be compared.
    """
    listed = list(runs)
    if listed and weakest([run.observer for run in listed]) is None:
        return math.inf
    several = [{owner for owner, _ in run.each} for run in listed if run.each]
    if several and all(owners == several[0] for owners in several):
        histories = {tuple(run.events(owner) for run in listed) for owner in sorted(several[0])}
        return max(any_of_each(history, delta) for history in histories)
    return any_of_each([run.events() for run in listed], delta)


def check_affordable(rows: Sequence[Row], new: Spending) -> float:
    """ε of everything with this run; an error where that passes the owner's budget, or where there is none."""
    dataset, adjacency = new.dataset, new.adjacency
    limit = budgets(rows).get(dataset)
    if limit is None:
        raise PrivacyError(
            f"the owner has set no budget for data set '{dataset}'; set one first: sottovoce ledger budget DIR "
            "--epsilon … --delta …"
        )
    same = counted_spendings(rows, dataset, new.fingerprint, excluding=new.run)
    if any(s.adjacency != adjacency for s in same):
        raise PrivacyError(
            f"data set '{dataset}' was accounted for '{same[0].adjacency}' before, and this run counts '{adjacency}'; "
            "what both cost together is not known: keep to one unit, or give these records another data set"
        )
    _check_not_weaker(new, same)
    after, most = joint_epsilon([*same, new], limit.delta), math.inf if limit.epsilon is None else limit.epsilon
    if after > most * (1 + SLACK):
        already = joint_epsilon(same, limit.delta)
        raise PrivacyError(
            f"this {new.name} would bring data set '{dataset}' to ε = {_number(after)} at δ = {limit.delta:g} (so far "
            f"{_number(already)}), over the owner's budget of ε = {most:g}, against "
            f"'{new.adversary}' ({adjacency}); nothing was sent: plan more noise or fewer rounds"
        )
    return after


def _check_not_weaker(new: Spending, same: Sequence[Spending]) -> None:
    """A ledger has one adversary for the same records: every run is safe from it, or from a stronger one."""
    before = weakest([run.observer for run in same]) if same else new.observer
    if before is None or not covers(new.observer, before):
        first = same[0].adversary
        raise PrivacyError(
            f"data set '{new.dataset}' was accounted against '{first}' before, and this {new.name} is against "
            f"'{new.adversary}', a weaker or another adversary: what both cost together against '{first}' is not "
            f"known; plan it against '{first}' (--adversary or --trust), or give these records another data set"
        )


def _number(value: float) -> str:
    return "∞ (no noise)" if math.isinf(value) else f"{value:.4g}"


# -- what an owner shows --

FORMAT = 1


def overview(store: Store) -> dict[str, Any]:
    """Runs, and what every data set has cost of its budget: ε with its δ, adversary and adjacency."""
    rows = store.rows()
    runs, sets = spendings(rows), []
    opened = {row.run: row for row in rows if row.kind == "open"}
    limits = budgets(rows)
    whole = {s.dataset: s.dataset.removesuffix(HELD_OUT) for s in runs}  # a share that is held out has the same limit
    shares = {name: limits[of] for name, of in whole.items() if name not in limits and of in limits}
    for name, limit in (limits | shares).items():
        used: list[str | None] = list(dict.fromkeys(s.fingerprint for s in runs if s.dataset == name)) or [None]
        sums = {
            tuple(counted_spendings(rows, name, fingerprint)) for fingerprint in used
        }  # of the record that was in most of them
        units = {s.adjacency for s in runs if s.dataset == name}
        observers = [s.observer for s in set().union(*sums)]
        watching = weakest(observers) if observers else Observer(ADVERSARIES.read("transcript"))
        sets.append(
            {
                "dataset": name,
                "epsilon": max(joint_epsilon(some, limit.delta) for some in sums),
                "epsilon_budget": limit.epsilon,
                "delta": limit.delta,
                "adversary": ", ".join(sorted(map(str, observers))) if watching is None else str(watching),
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
            | ({"planned": opened[s.run].detail["messages"]} if "messages" in opened[s.run].detail else {})
            for s in runs
        ],
    }


def sentence(row: dict[str, Any]) -> str:
    """What a data set has cost, in one line."""
    whole = row["dataset"].removesuffix(HELD_OUT)
    proviso = "" if whole == row["dataset"] else f", provided that none of its records is in '{whole}', too"
    return (
        f"data set '{row['dataset']}': ε = {_number(row['epsilon'])} of {row['epsilon_budget']:g} at "
        f"δ = {row['delta']:g} against '{row['adversary']}' ({row['adjacency']}){proviso}; every run that has begun "
        "counts with all of its rounds."
    )


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
        data = json.loads(read_bounded(path, MAX_JSON_BYTES))
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
    names |= {epoch: names.get(run) for epoch, run in runs_of(rows).items()}
    released = {(row.run, row.round): row.message for row in rows if row.kind == "release"}
    return [
        f"a peer saw round {mark['round']} of run {mark['run'][:12]}, which this ledger does not know with that "
        "message: it is an old copy, or was written anew"
        for mark in kept["seen"]
        if names.get(mark["run"]) == mark["node"] and _unknown(mark, released.get((mark["run"], mark["round"])))
    ]


def _unknown(mark: dict[str, Any], message: str | None) -> bool:
    """Return whether a peer saw a message that the ledger lacks; of a later exchange only its existence is known."""
    return message is None or mark["message"] not in (None, message)
