"""The consortium as a page: sites, rounds, who waits for whom, budgets and the statement.

Everything comes from files and messages that exist: what the server informs an administrator who requests for a run's
status, or a site's own ledger. Nothing new is sent between sites, and the page is of this machine alone.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from sottovoce.consortium.agreement import FILE, Agreement, read_agreement
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.project import kind_of
from sottovoce.consortium.submit import Administrator, Status
from sottovoce.errors import SpecError
from sottovoce.node.budget import overview
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import read_site
from sottovoce.node.store import Store
from sottovoce.pages.server import Page
from sottovoce.privacy.accounting import compute_epsilon

ReadStatus = Callable[[], dict[str, Any]]
SILENT = 60.0
"""Seconds after which a site that the server has not heard of is shown as missing."""


def page(read_status: ReadStatus, agreement: Agreement) -> Page:
    """A page that examines again whenever it is queried."""
    return Page("watch", f"{agreement.name}: {agreement.run_name}", lambda fields: read_status())


def frame(agreement: Agreement) -> dict[str, Any]:
    """What is settled before anything runs: sites, records, the guarantee."""
    promised = statement(agreement)
    return {
        "run": agreement.run_name,
        "digest": agreement.run.digest,
        "records": {site.name: site.records for site in agreement.sites},
        "verdict": promised.verdict(),
        "paragraph": promised.paragraph().removeprefix(promised.verdict()).strip(),
        "epsilon": promised.epsilon,
        "delta": promised.delta,
        "terms": f"δ = {promised.delta:g}, against '{promised.adversary}'",
    }


def of_run(agreement: Agreement, status: Status, missing: list[str]) -> dict[str, Any]:
    """As an administrator sees it: how far every site is, whom it waits for, what its records have cost so far."""
    spent = _spending(agreement)
    sites = []
    for name in agreement.run.nodes:
        row = status.progress.get(name)
        waits = row["waits"] if row else None
        sites.append(
            {
                "name": name,
                "here": name not in missing,
                "round": row["round"] if row else None,
                "rounds": agreement.run.T,
                "waits": waits["for"] if waits and waits["seconds"] >= 2 else None,
                "seconds": waits["seconds"] if waits else 0.0,
                "spent": spent(name, row["round"]) if row else None,
                "state": _state(row) if row else None,
            }
        )
    return frame(agreement) | {"state": status.state, "job": status.job, "sites": sites, "budgets": []}


def _state(row: Mapping[str, Any]) -> str | None:
    """A site's state, and which sites it went on without."""
    state, removed = row.get("state"), row.get("removed")
    return f"{state or 'running'}, without {', '.join(removed)}" if removed else state


def _spending(agreement: Agreement) -> Callable[[str, int], float]:
    """ε of a site's records after so many rounds, by the statement's own events and the public schedule.

    Of the round that comes next a site may have said its part already, so it counts.
    """
    promised, spoken = statement(agreement), agreement.run.plan.schedule.participations
    events = {agreement.run.nodes[i]: group.event for group in promised.groups for i in group.nodes}
    known: dict[tuple[str, int], float] = {}

    def spent(name: str, rounds: int) -> float:
        count = int(spoken(min(rounds + 1, agreement.run.T))[agreement.run.nodes.index(name)])
        count += agreement.run.may_lose  # rounds that are made anew
        if count == 0:
            return 0.0
        event = events[name]
        if (name, count) not in known:
            known[name, count] = float(compute_epsilon([event.after(count)], promised.delta).epsilon)
        return known[name, count]

    return spent


def of_folder(agreement: Agreement, folder: Path) -> dict[str, Any]:
    """As a site sees it: its own ledger, with what each run released and what its records' budget has left."""
    found = overview(Store(folder, reading=True))
    runs = [
        {
            "name": run["node"],
            "here": True,
            "round": run["released"],
            "rounds": run["rounds"],
            "waits": None,
            "seconds": 0.0,
            "spent": None,
            "run": run["name"],
            "state": run["state"],
        }
        for run in found["runs"]
    ]
    latest = runs[-1]["state"] if runs else "no run yet"
    return frame(agreement) | {"state": latest, "job": found["head"][:16], "sites": runs, "budgets": found["datasets"]}


class Silence:
    """Who has said nothing for a while: the server's times are compared with one another, and no two clocks are."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[float, float]] = {}

    def __call__(self, names: Sequence[str], heard: Mapping[str, float], now: float) -> list[str]:
        """Those whom the server has not heard of for `SILENT` seconds of ours, or never."""
        for name in names:
            said = heard.get(name, 0.0)
            if said and self.last.get(name, (0.0, 0.0))[0] != said:
                self.last[name] = said, now
        return [name for name in names if name not in self.last or now - self.last[name][1] > SILENT]


def watched_run(kit: Path, admin: Administrator | None) -> tuple[Agreement, ReadStatus]:
    """How to read the status from a kit: an administrator's queries the server, a site's reads its own ledger."""
    agreement = read_agreement(kit / "local" / FILE)
    if admin is not None:
        silent = Silence()

        def read() -> dict[str, Any]:
            status = admin.status(admin.latest()) if admin.jobs() else Status("", "not submitted yet", {})
            return of_run(agreement, status, silent(agreement.run.nodes, admin.heard(), monotonic()))

        return agreement, read
    if kind_of(kit) != "site":
        raise SpecError(
            f"'{kit}' is the server's kit, which knows nothing of a run; take a site's or the administrator's"
        )
    folder = read_site(kit / "local" / SITE_FILE).state
    return agreement, lambda: of_folder(agreement, folder)
