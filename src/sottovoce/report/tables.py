"""What was run, and how the runs compare, as tables."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from sottovoce.errors import PrivacyError
from sottovoce.evaluation.figures import notes_of, rows_of
from sottovoce.figure import Interval
from sottovoce.inference.table import WHY
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.report.budget import terms
from sottovoce.report.document import Section, download, pairs, table, tag
from sottovoce.report.guarantee import badge, level, shown
from sottovoce.report.history import agree
from sottovoce.report.settings import RunGroup, flat
from sottovoce.run.result import NOT_PRIVATE, Result

LABELS = {
    "problem.loss": "loss",
    "problem.h": "regularizer h",
    "problem.weights": "counts the same",
    "problem.intercept": "intercept column",
    "problem.row_norm": "bound on a row's norm",
    "problem.features": "map of columns",
    "problem.on_violation": "a row over the bound",
    "network.graph": "graph",
    "network.activation": "who speaks in a round",
    "network.weights": "mixing weights",
    "network.averaging": "averaging",
    "network.correct": "uneven nodes corrected",
    "algorithm.rounds": "rounds T",
    "algorithm.a": "steps a",
    "algorithm.gamma": "steps γ",
    "algorithm.distance": "distance d",
    "algorithm.centre": "center of d",
    "algorithm.primal": "x of a silent node",
    "algorithm.curvature": "curvature used",
    "privacy.sampling": "records of a release",
    "privacy.noise": "noise",
    "privacy.delta": "δ",
    "privacy.clip": "clip",
    "privacy.adversary": "adversary",
}
COLUMNS = {
    "objective": "F",
    "suboptimality": "F − F*",
    "train_accuracy": "training",
    "test_accuracy": "test",
    "consensus_error": "disagreement",
}


def intervals(setting: RunGroup) -> Section | None:
    """Estimates with intervals, of a run that released sums for them; or why there are none."""
    result = setting.first
    if "inference" not in result.public:
        return None
    try:
        found = result.summary()
    except PrivacyError as refusal:
        return Section("Intervals", (tag("p", str(refusal)),))
    head, *rows = found.rows()
    note = f"{found.outcome}, {100 * found.confidence:g} % confidence. {WHY}"
    columns = found.columns()
    plain = [{"name": name} | {key: values[k] for key, values in columns.items()} for k, name in enumerate(found.names)]
    get = tag("p", download("Intervals as CSV", "intervals.csv", plain))
    return Section("Intervals", (table(head, rows, note, words=head[:1]), get))


def what_was_run(settings: Sequence[RunGroup], title: str = "What was run") -> Section:
    """The spec as cards, the public numbers, the machine; for several settings also what distinguishes them."""
    specs = [flat(s.first) | {"problem.on_violation": _over(s.first)} for s in settings]
    shared = {k: v for k, v in specs[0].items() if all(k in spec and spec[k] == v for spec in specs)}
    first = settings[0].first
    cards = [
        _card(part.capitalize(), {LABELS.get(k, k.split(".")[-1].replace("_", " ")): _text(v) for k, v in mine.items()})
        for part, mine in _by_part(shared).items()
    ]
    if len(settings) == 1:
        cards.append(_card("Public numbers", _public(first)))
    cards.append(_card("Environment", {k: _text(v) for k, v in sorted(first.environment.items())}))
    parts: list[Element] = []
    differing = [k for spec in specs for k in spec if k not in shared]
    if differing:
        columns = list(dict.fromkeys(differing))
        rows = [[s.label, *(_text(spec.get(k)) for k in columns)] for s, spec in zip(settings, specs, strict=True)]
        heads = ["setting", *(LABELS.get(k, k) for k in columns)]
        parts.append(table(heads, rows, "What distinguishes the settings.", words=heads))
    parts.append(tag("div", *cards, class_="cards"))
    written: Any = [run.spec.to_dict() for s in settings for run in s.runs]
    parts.append(_copyable("The spec as JSON", written[0] if len(written) == 1 else written))
    return Section(title, tuple(parts))


def _over(result: Result) -> str:
    """What became of rows over the bound before, or in, the run."""
    if result.scale.bound is not None:
        return "scaled down to it"
    return {"raise": "refused", "clip": "its subgradient clipped"}[result.spec.problem.on_violation]


def evaluated(evaluation: Mapping[str, Any], said: PrivacyStatement, title: str = "Evaluation") -> Section:
    """Figures of a private evaluation with their intervals."""
    rows = [list(row) for row in rows_of(evaluation)]
    if evaluation.get("threshold") is not None:
        rows.append(["stored threshold", f"{float(evaluation['threshold']):.6g}", ""])
        at = rows_of(evaluation, "threshold_figures") if "threshold_figures" in evaluation else []
        rows += [[f"{row.name}, at the stored threshold", row.value, row.interval] for row in at]
    seeded = bool(evaluation.get("held_out_seeded"))
    text = (
        f"Made of noisy sums over {int(evaluation['records']):,} records, and of nothing else: "
        f"{'a simulation of an evaluation' if seeded else 'private, covered by the statement above'}. {said.covers} "
        "Intervals count the noise and that these records are a sample. "
    ) + " ".join(notes_of(evaluation))
    return Section(title, (tag("p", text), table(["figure", "value", "95 % interval"], rows, words=["figure"])))


def compared(settings: Sequence[RunGroup], title: str = "Comparison") -> Section:
    """One row a setting: its guarantee, and the final figures as a mean with its 95 % interval over seeds."""
    known = {c: text for c, text in COLUMNS.items() if any(s.knows(c) for s in settings)}
    if "consensus_error" in known and agree(settings):
        del known["consensus_error"]
    claimed = any(s.statement.claimed is not None for s in settings)
    frames = {(s.statement.delta, s.statement.adversary) for s in settings}
    columns = ["setting", "verdict", *(["claimed ε"] if claimed else []), "true ε"]
    columns += [*(["δ", "against"] if len(frames) > 1 else []), "runs", *known.values()]
    rows = [
        [*_guarantee(s, claimed, len(frames) > 1), str(len(s.runs)), *(_mean(s, c) for c in known)] for s in settings
    ]
    frame = terms([s.statement for s in settings])
    score = settings[0].score
    caption = (
        f"ε {frame}; of the runs of a setting, the one with the largest ε. The other figures ({score} for training and "
        f"test) are {NOT_PRIVATE}; mean ± 95 % interval over seeds (Student's t)."
    )
    get = download("All runs as CSV", "runs-not-private.csv", run_rows(settings))
    return Section(title, (table(columns, rows, caption, words=("setting", "verdict", "against")), tag("p", get)))


def run_rows(settings: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """One flat row a run."""
    return [
        {"setting": s.label, "seed": run.spec.seed}
        | flat(run)
        | {
            "claimed": run.statement.claimed,
            "epsilon": run.statement.epsilon,
            "epsilon_lower": run.statement.epsilon_lower,
            "delta": run.statement.delta,
            "adversary": run.statement.adversary,
            "adjacency": run.statement.adjacency,
            "private": run.statement.private,
            "simulation": run.statement.simulation,
            "secure": run.statement.secure,
        }
        | (dict(run.history.last) if len(run.history) else {})
        | {"seconds": run.environment.get("seconds")}
        for s in settings
        for run in s.runs
    ]


def _guarantee(setting: RunGroup, claimed: bool, framed: bool) -> list[Element | str]:
    said = setting.statement
    cells: list[Element | str] = [setting.label, tag("span", badge(said), class_=f"chip {level(said)}")]
    if claimed:
        cells.append("–" if said.claimed is None else f"{said.claimed:g}")
    cells.append(shown(said.epsilon))
    return [*cells, f"{said.delta:g}", said.adversary] if framed else cells


def _mean(setting: RunGroup, column: str) -> str:
    values = setting.last(column) if setting.knows(column) else np.array([np.nan])
    if not np.all(np.isfinite(values)):
        return "–"
    found = Interval.of(values)
    form = ".4f" if abs(found.mean) >= 0.01 else ".2e"
    return f"{found.mean:{form}}" + (f" ± {found.half:{form}}" if found.seeds > 1 else "")


def _public(result: Result) -> dict[str, str]:
    """What is known without looking at data; an algorithm without gossip has no β."""
    public = result.public
    sizes = public["records"]
    rows = {
        "nodes n": f"{public['n']:,}",
        "features m": f"{public['m']:,}",
        "records q": f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}",
    }
    numbers = {"activity ι": "iota", "mixing β": "beta", "bound L": "lipschitz"}
    known: dict[str, Any] = dict(public)
    deep = {"exchanges, sequentially": f"{public['depth']:,}"} if "depth" in public else {}
    return rows | {text: f"{known[name]:.6g}" for text, name in numbers.items() if name in known} | deep


def _by_part(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        parts.setdefault(key.split(".")[0], {})[key] = value
    return {name: parts[name] for name in ("problem", "network", "algorithm", "privacy") if name in parts} | parts


def _card(title: str, rows: Mapping[str, str]) -> Element:
    return tag("div", tag("h3", title), pairs(rows), class_="card")


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _copyable(title: str, content: Any) -> Element:
    text = json.dumps(content, ensure_ascii=False, indent=2)
    button = tag("button", "Copy", type="button", data_copy="")
    return tag("details", tag("summary", title), button, tag("pre", text))
