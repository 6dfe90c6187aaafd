"""MODEL_CARD.md: what a model is, on what it was trained, what it guarantees and what it is for."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sottovoce.evaluation.figures import notes_of, rows_of
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import UNITS, PrivacyStatement, number
from sottovoce.run.result import Result

UNSTATED = "Its publisher has not said what it is for. Ask before you decide anything about anybody by it."


def card(
    result: Result,
    name: str,
    use: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
    files: Sequence[str] = (),
    bound: float | None = None,
) -> str:
    """The card of a result in Markdown: public numbers, and what the mechanism released."""
    said, public = result.statement, result.public
    problem, sizes = result.spec.problem, public["records"]
    units = UNITS.make(said.unit).plural
    each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    additive = bool(result.spec.problem.features)
    date = result.environment.get("date", "not written down")
    trained = {
        "date": date,
        "software": said.software or f"sottovoce {result.environment.get('sottovoce', '')}",
        "owners": f"{public['n']:,}, with {each} {units} each, {sum(sizes):,} in all",
        "columns" if additive else "features": f"{result.columns:,}",
        **({"functions of columns": f"{result.coef.shape[-1]:,}: {result.spec.problem.features}"} if additive else {}),
        "loss and penalty": f"{problem.loss} + {problem.h}",
        "rounds": f"{result.spec.algorithm.rounds:,}",
        "longest row": "as they came" if bound is None else f"{bound:g}; longer ones are scaled down to it",
    }
    parts = [
        _front_matter(result),
        f"# {_plain(name)}",
        f"{_kind(result)}, trained by gossip between {public['n']:,} {'owner' if public['n'] == 1 else 'owners'} under "
        f"differential privacy. {_plain(said.verdict())}",
        "## Intended use",
        _plain(use) if use else UNSTATED,
        "## What it answers",
        _answers(result),
        "## Trained on",
        _table(("public number", "value"), trained.items()),
        "This page does not say who owns which records. Nothing on it was computed outside the mechanism.",
        "## Guarantee",
        *_guarantee(said),
        "## Evaluation",
        *_evaluated(evaluation, result.scale.threshold, said),
        "## Files",
        "\n".join(f"- `{file}`: {FILES[file]}" for file in files),
    ]
    return "\n\n".join(parts) + "\n"


FILES = {
    "model.json": "names, public numbers and the mean model, with how to apply it",
    "model.onnx": "the same as a graph in single precision; features in, answers out",
    "statement.json": "the privacy statement; `sottovoce account --verify statement.json` computes it again",
    "statement.txt": "the same in words",
    "MODEL_CARD.md": "this page",
}


def _front_matter(result: Result) -> str:
    """What model hubs read at the top of a card."""
    task = "tabular-regression" if result.classes is None else "tabular-classification"
    return f"---\nlibrary_name: sottovoce\npipeline_tag: {task}\ntags:\n- differential-privacy\n- {task}\n---"


def _kind(result: Result) -> str:
    article = "An additive" if result.spec.problem.features else "A linear"
    if result.classes is None:
        return f"{article} regression"
    return f"{article} classifier of {len(result.classes)} classes"


def _answers(result: Result) -> str:
    classes, scale = result.classes, result.scale
    if classes is None:
        if scale.targets is None:
            return "A number."
        low, high = result.target_range or scale.targets
        return f"A number; it was trained on targets from {low:g} to {high:g}."
    if len(classes) == 2:
        threshold = f"{round(scale.threshold, 12):g}"  # next to 0 where 0 was meant: see `Result.with_classes`
        return (
            f"The positive class is **{_plain(classes[1])}**: the answer where the score is {threshold} or more. "
            f"Below, it is **{_plain(classes[0])}**."
        )
    return f"The class with the largest score: {', '.join(f'**{_plain(label)}**' for label in classes)}."


def _guarantee(said: PrivacyStatement) -> list[str]:
    adversary = ADVERSARIES.read(said.adversary)
    rows = {
        "ε": number(said.epsilon),
        "δ": f"{said.delta:g}",
        "adversary": f"{said.adversary}, who sees {adversary.sees}",
        "neighboring data": said.adjacency,
        "unit": said.unit,
    }
    rests = "\n".join(f"- {_plain(text)}" for text in said.assumptions)
    open_ = "\n".join(f"- {_plain(text)}" for text in said.not_covered)
    return [_table(("", ""), rows.items()), "It rests on this:", rests, "It does not cover:", open_]


def _evaluated(evaluation: Mapping[str, Any] | None, threshold: float, said: PrivacyStatement) -> list[str]:
    if evaluation is None:
        return ["No private evaluation is published with it, and figures that are not private are not published."]
    stored = evaluation.get("threshold") == threshold
    measured = threshold if stored else evaluation.get("decision_threshold")
    notes = notes_of(evaluation)
    if measured is not None and measured != threshold:
        notes.append(
            f"These figures are of answers at the threshold {measured:g}; the model here answers from {threshold:g} on."
        )
    return [
        f"Noisy tallies over {int(evaluation['records']):,} records, covered by the guarantee above. {said.covers} "
        "Intervals count the noise and that these records are a sample.",
        *map(_plain, notes),
        _table(("figure", "value", "95 % interval"), rows_of(evaluation, "threshold_figures" if stored else "figures")),
    ]


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


_SIGNS = re.compile(r"([\\`*_{}\[\]<>|#])")


def _plain(text: Any) -> str:
    """Text that Markdown shows as it is, on one line."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text))
    return "---" if shown == "---" else _SIGNS.sub(r"\\\1", shown)
