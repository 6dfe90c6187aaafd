"""What was run, and how the runs compare, as tables."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from sottovoce.report.budget import terms
from sottovoce.report.document import Section, download, pairs, table, tag
from sottovoce.report.guarantee import badge, level, shown
from sottovoce.report.history import agree
from sottovoce.report.settings import Setting, flat
from sottovoce.run.result import NOT_PRIVATE, Result

LABELS = {
    "problem.loss": "loss",
    "problem.h": "regulariser h",
    "problem.weights": "counts the same",
    "problem.intercept": "intercept column",
    "problem.row_norm": "bound on a row's norm",
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
    "algorithm.centre": "centre of d",
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


def what_was_run(settings: Sequence[Setting], title: str = "What was run") -> Section:
    """The spec as cards, the public numbers, the machine; for several settings also what tells them apart."""
    specs = [flat(s.first) | {"problem.on_violation": _over(s.first)} for s in settings]
    shared = {k: v for k, v in specs[0].items() if all(k in spec and spec[k] == v for spec in specs)}
    first = settings[0].first
    cards = [
        _card(part.capitalize(), {LABELS.get(k, k.split(".")[-1].replace("_", " ")): _text(v) for k, v in mine.items()})
        for part, mine in _by_part(shared).items()
    ]
    if len(settings) == 1:
        cards.append(_card("Public numbers", _public(first)))
    cards.append(_card("Environment", {k: _text(v) for k, v in sorted(first.kept_environment.items())}))
    parts: list[Element] = []
    differing = [k for spec in specs for k in spec if k not in shared]
    if differing:
        columns = list(dict.fromkeys(differing))
        rows = [[s.label, *(_text(spec.get(k)) for k in columns)] for s, spec in zip(settings, specs, strict=True)]
        heads = ["setting", *(LABELS.get(k, k) for k in columns)]
        parts.append(table(heads, rows, "What tells the settings apart.", words=heads))
    parts.append(tag("div", *cards, class_="cards"))
    written: Any = [run.spec.to_dict() for s in settings for run in s.runs]
    parts.append(_copyable("The spec as JSON", written[0] if len(written) == 1 else written))
    return Section(title, tuple(parts))


def _over(result: Result) -> str:
    """What became of rows over the bound before, or in, the run."""
    if result.scale.bound is not None:
        return "scaled down to it"
    return {"raise": "refused", "clip": "its subgradient clipped"}[result.spec.problem.on_violation]


FIGURES = {
    "auc": "area under the ROC curve",
    "calibration_error": "expected calibration error",
    "r2": "R²",
    "mean_squared_error": "mean squared error, of targets within [−1, 1]",
}
WIDE = 1.96  # standard errors on either side of a 95 % interval


def evaluated(evaluation: Mapping[str, Any], title: str = "Evaluation on held-out records") -> Section:
    """Figures of a private evaluation with their intervals."""
    rows = []
    for name, figure in evaluation["figures"].items():
        value, error = float(figure["value"]), float(figure["standard_error"])
        low, high = value - WIDE * error, value + WIDE * error
        rows.append([FIGURES.get(name, name.replace("_", " ")), f"{value:.4f}", f"{low:.4f} to {high:.4f}"])
    if evaluation.get("threshold") is not None:
        rows.append(["threshold for the wanted rate", f"{float(evaluation['threshold']):.6g}", ""])
    seeded = bool(evaluation.get("held_out_seeded"))
    text = (
        f"Made of noisy sums over {int(evaluation['records']):,} records that were held out of training, and of "
        f"nothing else: {'a simulation of an evaluation' if seeded else 'private, covered by the statement above'}. "
        "Intervals count the noise and that these records are a sample."
    )
    return Section(title, (tag("p", text), table(["figure", "value", "95 % interval"], rows, words=["figure"])))


def compared(settings: Sequence[Setting], title: str = "Comparison") -> Section:
    """One row a setting: its guarantee, and the final figures as mean ± standard deviation over seeds."""
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
        f"test) are {NOT_PRIVATE}; mean ± standard deviation over seeds."
    )
    get = download("All runs as CSV", "runs-not-private.csv", run_rows(settings))
    return Section(title, (table(columns, rows, caption, words=("setting", "verdict", "against")), tag("p", get)))


def run_rows(settings: Sequence[Setting]) -> list[dict[str, Any]]:
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
        | {"seconds": run.kept_environment.get("seconds")}
        for s in settings
        for run in s.runs
    ]


def _guarantee(setting: Setting, claimed: bool, framed: bool) -> list[Element | str]:
    said = setting.statement
    cells: list[Element | str] = [setting.label, tag("span", badge(said), class_=f"chip {level(said)}")]
    if claimed:
        cells.append("–" if said.claimed is None else f"{said.claimed:g}")
    cells.append(shown(said.epsilon))
    return [*cells, f"{said.delta:g}", said.adversary] if framed else cells


def _mean(setting: Setting, column: str) -> str:
    values = setting.last(column) if setting.knows(column) else np.array([np.nan])
    if not np.all(np.isfinite(values)):
        return "–"
    mean = float(values.mean())
    form = ".4f" if abs(mean) >= 0.01 else ".2e"
    return f"{mean:{form}}" + (f" ± {values.std():{form}}" if len(values) > 1 else "")


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
    deep = {"exchanges, one after the other": f"{public['depth']:,}"} if "depth" in public else {}
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
