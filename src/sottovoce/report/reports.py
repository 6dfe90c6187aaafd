"""write(results, path): the report of a run, or of several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from sottovoce._text import bytes_text
from sottovoce.errors import DataError
from sottovoce.evaluation.figures import name_of, number_text
from sottovoce.report.audits import audited
from sottovoce.report.budget import burn_down, claims
from sottovoce.report.document import Section, download, page, tag
from sottovoce.report.graph import network, node_names
from sottovoce.report.guarantee import (
    VERIFIED,
    Level,
    banner,
    conditions,
    level,
    meaning,
    numbers,
    shown,
    statement,
    tradeoff,
    verdict,
)
from sottovoce.report.history import curves
from sottovoce.report.model import terms, weights
from sottovoce.report.settings import RunGroup, settings_of
from sottovoce.report.tables import compared, evaluated, intervals, what_was_run
from sottovoce.run.result import History, Result, write_atomically
from sottovoce.run.terms import Axis

__all__ = ["write"]


def write(
    results: Result | Sequence[Result],
    path: str | Path,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
    verified: bool = False,
    axes: Mapping[str, Axis] | None = None,
) -> Path:
    """Write one self-contained HTML file about a run or about several.

    Parameters
    ----------
    results : what `solve` or `sweep` returned, or `Result.load` read; runs that differ by their seed alone are shown
        together, as their mean and their range. The history of a run with a guarantee is not shown: it is not private
    path : the file, replaced if it is there
    title : the page's heading
    labels : names of the results, one for each; results of one name are shown together
    evaluation : of a single result, what a private evaluation found (`Evaluation.to_dict`)
    audit : of a single result, what an attack on it found (`Audit.to_dict`)
    verified : whether `Result.verify` was called first, so that the page may say so
    axes : of a single result, what its columns are in their own units (`Schema.axes`), for the pictures of its terms

    Returns
    -------
    path : where the report is
    """
    settings = settings_of([_public(each) for each in ([results] if isinstance(results, Result) else results)], labels)
    if len(settings) == 1:
        text = _one(settings[0], title, evaluation, audit, verified, axes)
    else:
        text = _several(settings, title, verified)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise DataError(
            f"the report cannot be written to '{path}' ({type(error).__name__}); give another file"
        ) from None
    return path


def _public(result: Result) -> Result:
    """The result without what was seen of a run outside its mechanism, unless it is a simulation."""
    return result if result.statement.simulation else replace(result, history=History())


def _one(
    setting: RunGroup,
    title: str | None,
    evaluation: Mapping[str, Any] | None,
    audit: Mapping[str, Any] | None,
    verified: bool,
    axes: Mapping[str, Axis] | None,
) -> str:
    result = setting.first
    problem = result.spec.problem
    training = curves([setting])
    if training is not None:
        get = download("History as CSV", "history-not-private.csv", _history(setting))
        training = Section(training.title, (*training.parts, tag("p", get)), training.label)
    sections = [
        statement(setting.statement, _known(result)),
        None if evaluation is None else evaluated(evaluation, setting.statement),
        claims([setting]),
        burn_down([setting]),
        None if audit is None else audited(audit),
        training,
        network(result),
        intervals(setting),
        terms(setting, axes=axes),
        weights([setting]),
        what_was_run([setting]),
    ]
    heading = title or f"{problem.loss} + {problem.h} by gossip between {result.public['n']} nodes"
    return page(
        heading,
        [s for s in sections if s is not None],
        [_subtitle(setting), verdict(setting.statement, verified), _tiles(setting, evaluation)],
    )


def _several(settings: Sequence[RunGroup], title: str | None, verified: bool) -> str:
    runs = sum(len(s.runs) for s in settings)
    sections = [
        compared(settings),
        tradeoff(settings),
        claims(settings),
        burn_down(settings),
        curves(settings),
        weights(settings, "Models"),
        _network_of_all(settings),
        _statements(settings),
        what_was_run(settings),
    ]
    heading = title or f"{len(settings)} settings compared in {runs} runs"
    head = [tag("p", _sizes(settings), class_="subtitle"), _verdict_of_all(settings, verified)]
    return page(heading, [s for s in sections if s is not None], head)


def _history(setting: RunGroup) -> list[dict[str, Any]]:
    several = len(setting.runs) > 1
    seeds: list[dict[str, Any]] = [{"seed": run.spec.seed} if several else {} for run in setting.runs]
    return [seed | row for seed, run in zip(seeds, setting.runs, strict=True) for row in run.history.rows]


def _sizes(settings: Sequence[RunGroup]) -> str:
    """How large the runs were, as ranges where they differ."""
    firsts = [s.first for s in settings]
    counts = {
        "nodes": [r.public["n"] for r in firsts],
        "records": [sum(r.public["records"]) for r in firsts],
        "features": [r.public["m"] for r in firsts],
        "rounds": [r.spec.algorithm.rounds for r in firsts],
    }
    return ", ".join(
        f"{min(v):,} {name}" if min(v) == max(v) else f"{min(v):,} to {max(v):,} {name}" for name, v in counts.items()
    )


def _known(result: Result) -> Sequence[str] | None:
    """Names of nodes for the statement, which numbers those that have none."""
    return None if result.nodes is None else node_names(result)


def _subtitle(setting: RunGroup) -> Element:
    seeds = f", {len(setting.runs)} seeds" if len(setting.runs) > 1 else ""
    date = setting.first.environment.get("date")
    return tag("p", _sizes([setting]) + seeds + (f"; run on {date}" if date else ""), class_="subtitle")


def _tiles(setting: RunGroup, evaluation: Mapping[str, Any] | None) -> Element:
    """The figures that a reader searches for first."""
    said = setting.statement
    what = f"{said.kind}: ε" if said.kind else "true ε"
    tiles = [(shown(said.epsilon), f"{what} at δ = {said.delta:g}, against '{said.adversary}', {said.adjacency}")]
    if len(setting.first.history):
        last = setting.first.history.last
        score = "test" if setting.knows("test_accuracy") else "train"
        kind = {"test": "test", "train": "training"}[score]
        tiles += [
            (f"{last['epoch']:.3g}", "passes over the data"),
            (bytes_text(last["bytes"]), f"sent in {int(last['messages']):,} messages"),
            (
                f"{setting.last(f'{score}_accuracy').mean():.4f}",
                f"{kind} {setting.score} of the mean model (not private)",
            ),
        ]
    else:
        tiles += _public_tiles(setting, evaluation)
    return tag("div", *(tag("div", tag("b", value), tag("span", text)) for value, text in tiles), class_="tiles")


def _public_tiles(setting: RunGroup, evaluation: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Tiles of a run without evaluations: public numbers, and what was released."""
    said, public = setting.statement, setting.first.public
    tiles = []
    if said.private:
        alarm = "highest true-positive rate of an attack with a 1 % false-positive rate"
        lead = f"{said.kind}: " if said.kind else ""
        tiles.append((f"{math.ceil(1000 * said.risk(0.01)) / 10:.3g} %", lead + alarm))
    tiles.append((f"{max(group.event.rounds for group in said.groups):,}", "releases of the node that spoke most"))
    figures = {} if evaluation is None else evaluation["figures"]
    score = next((name for name in ("accuracy", "r2") if name in figures), None)
    if score is None:
        tiles.append((f"{sum(public['records']):,}", f"records of {public['n']:,} nodes"))
    else:
        words = f"{name_of(score, evaluation or {})} on held-out records, noise included"
        tiles.append((number_text(figures[score]["value"]), words))
    return tiles


def _verdict_of_all(settings: Sequence[RunGroup], verified: bool) -> Element:
    found = [level(s.statement) for s in settings]
    bad = [s.label for s, one in zip(settings, found, strict=True) if one == "bad"]
    kinds = {s.statement.kind for s in settings if s.statement.kind}
    order: tuple[Level, ...] = ("bad", "weak", "open", "good")
    whole: Level = "weak" if bad and len(bad) < len(settings) else next(one for one in order if one in found)
    if not bad:
        keep = f"{', '.join(sorted(kinds))}: with secret and exact noise all" if kinds else "All"
        verb = "would keep" if kinds else "keep"
        line = (
            f"{keep} {len(settings)} settings {verb} the guarantee that the table gives with its δ and its adversary."
        )
    else:
        line = f"{len(bad)} of {len(settings)} settings are not private, or not as claimed: {'; '.join(bad)}."
    lines = [tag("p", line, class_="verdict-line")]
    if any(s.statement.simulation for s in settings):
        lines.append(tag("p", "A simulation: seeds were given, and anyone who knows a seed can remove its noise."))
    if verified:
        lines.append(tag("p", f"Verified {VERIFIED}."))
    return banner(whole, lines)


def _network_of_all(settings: Sequence[RunGroup]) -> Section | None:
    """The graph, where all settings share it; who spoke how often is that of the first run."""
    first = settings[0].first
    shared = all(s.first.public.get("edges") == first.public.get("edges") for s in settings)
    return network(first, "Network of the first run") if shared else None


def _statements(settings: Sequence[RunGroup]) -> Section:
    """Every setting's statement, folded; what all of them rest on is said once."""
    shared = len({(s.statement.assumptions, s.statement.not_covered) for s in settings}) == 1
    folded = [
        tag(
            "details",
            tag("summary", s.label),
            verdict(s.statement),
            meaning(s.statement),
            None if shared else conditions(s.statement),
            numbers(s.statement, _known(s.first)),
            class_="printed",
        )
        for s in settings
    ]
    return Section("Privacy statements", (*folded, *([conditions(settings[0].statement)] if shared else [])))
