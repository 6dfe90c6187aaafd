"""Parse what sites and servers send, field by field; drop whatever does not fit.

A controller reads from sites, an administrator from a server. Neither trusts the sender: numbers must lie within the
run's bounds, names must be those of its nodes, reasons must be codes from the fixed list (`job.Code`). The guarantee is
computed from one's own agreement, the accuracy from the counts. So no foreign text reaches a terminal or a report.
"""

from collections.abc import Mapping
from typing import Any

from sottovoce.consortium.agreement import SERVER, Agreement
from sottovoce.consortium.evaluation import evaluation, statement
from sottovoce.consortium.job import Code, strict_json
from sottovoce.errors import SpecError
from sottovoce.node.runfile import Run
from sottovoce.node.state import RunState

_LONG = 10.0**9  # seconds; a number that is none of ours is not one of these


def progress_of(reported: bytes | str | None, run: Run) -> dict[str, Any] | None:
    """How far a site says that it is; None where it says nothing that can be read."""
    if not reported:
        return None
    try:
        return _progress(strict_json(reported), run)
    except SpecError:
        return None


def _progress(value: Any, run: Run) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not _whole(value.get("round"), 0, run.T):
        return None
    state = next((state.value for state in RunState if state == value.get("state")), None)  # 0.2 says none
    found = {"round": value["round"], "rounds": run.T, "waits": _waits(value.get("waits"), run), "state": state}
    removed = _removed(value.get("removed"), run)
    return found | ({"removed": removed} if removed else {})


def _removed(value: Any, run: Run) -> list[str]:
    """The sites that a site, or the server, says are removed: no more than may be lost."""
    if not isinstance(value, list) or not all(_named(name, run) for name in value) or len(value) > run.may_lose:
        return []
    return sorted(set(value), key=run.number)


def _waits(value: Any, run: Run) -> dict[str, Any] | None:
    """Whom a site waits for; in round 0 for a hello, in round T + 1 for a farewell or a final model."""
    if not isinstance(value, dict) or not _whole(value.get("round"), 0, run.T + 1):
        return None
    if not _named(value.get("for"), run):
        return None
    seconds = value.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _LONG:
        return None
    return {"round": value["round"], "for": value["for"], "seconds": float(seconds)}


def progress_of_all(value: Any, run: Run) -> dict[str, dict[str, Any]]:
    """How far a server says that the sites are."""
    if not isinstance(value, dict):
        return {}
    found = {name: _progress(value.get(name), run) for name in run.nodes}
    return {name: row for name, row in found.items() if row is not None}


def reply_of(reported: Any, run: Run) -> dict[str, Any]:
    """A site's answer to a task: ready for a run, finished with a count, or a code."""
    try:
        if not isinstance(reported, str):
            raise SpecError("no answer")
        return _reply(strict_json(reported), run)
    except SpecError:
        return {"error": Code.UNREADABLE}


def _reply(value: Any, run: Run) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"error": Code.UNREADABLE}
    if "error" in value:
        return {"error": _code(value["error"])}
    kept: dict[str, Any] = {}
    if value.get("digest") == run.digest:
        kept["digest"] = run.digest
    if value.get("finished") is True:
        unheard = value.get("unheard")
        names = [name for name in unheard if _named(name, run)] if isinstance(unheard, list) else []
        right = value.get("right") if _whole(value.get("right"), -(2**53), 2**53) else None
        skips = value.get("skips") if _whole(value.get("skips"), 0, run.n * run.T) else None
        kept |= {"finished": True, "right": right, "unheard": names, "skips": skips}
        removed = _removed(value.get("removed"), run)
        kept |= {"removed": removed} if removed else {}
    return kept or {"error": Code.UNREADABLE}


def report_of(data: bytes, agreement: Agreement) -> dict[str, Any]:
    """What a controller wrote down, as far as it can be read; guarantee and accuracy are one's own to compute."""
    try:
        value = strict_json(data)
    except SpecError:
        return {"failed": {SERVER: Code.UNREADABLE}}
    sites, failed = outcomes(value, agreement.run)
    counts = {name: row["right"] for name, row in sites.items() if row.get("right") is not None}
    report: dict[str, Any] = {
        "run": agreement.run_name,
        "digest": agreement.run.digest,
        "sites": sites,
        "privacy": statement(agreement).to_dict(),
        "evaluation": evaluation(agreement, counts).to_dict() if counts and agreement.held_out else None,
    }
    removed = removed_by(sites, agreement.run)
    return report | ({"removed": removed} if removed else {}) | ({"failed": failed} if failed else {})


def outcomes(value: dict[str, Any], run: Run) -> tuple[dict[str, dict[str, Any]], dict[str, Code]]:
    """What became of every site, and the code of each that did not finish."""
    reported, reasons = ({} if not isinstance(value.get(key), dict) else value[key] for key in ("sites", "failed"))
    sites = {name: {"finished": False} | _reply(reported.get(name), run) for name in run.nodes}
    removed = removed_by(sites, run)
    blamed = [
        name
        for name in (*run.nodes, SERVER)
        if name not in removed and (name in reasons or not sites.get(name, {"finished": 1})["finished"])
    ]
    return sites, {name: _code(reasons.get(name, Code.SILENT)) for name in blamed}


def removed_by(sites: Mapping[str, Mapping[str, Any]], run: Run) -> list[str]:
    """The sites that most of those which finished went on without."""
    finished = [row for row in sites.values() if row.get("finished")]
    named = {name: sum(name in row.get("removed", ()) for row in finished) for name in run.nodes}
    return [name for name, count in named.items() if 2 * count > len(finished)]


def _code(value: Any) -> Code:
    return next((code for code in Code if code == value), Code.UNREADABLE)


def _named(value: Any, run: Run) -> bool:
    return isinstance(value, str) and value in run.nodes


def _whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
