"""What a site keeps at the end: a saved `Result`, for `sottovoce predict` and `sottovoce account --verify`."""

import json
from pathlib import Path

from sottovoce._types import Array
from sottovoce.consortium.agreement import Agreement
from sottovoce.consortium.evaluate import statement
from sottovoce.result import History, Result, environment

FOLDER = "results"
ENGINE = "nodes over FLARE"


def save(state: Path, agreement: Agreement, models: Array) -> Path:
    """Write everybody's final models and the statement under the node's own folder."""
    plan = agreement.plan
    made = statement(agreement)
    result = Result(
        spec=plan.spec,
        models=models,
        history=History(),
        statement=made,
        public=plan.prepared.public,
        classes=agreement.schema.label.classes,
        features=agreement.schema.features,
        nodes=plan.nodes,
        environment=environment(ENGINE, 0.0),
    )
    folder = result.save(state / FOLDER / str(agreement.run["run"]))
    (folder / "statement.txt").write_text(made.paragraph() + "\n", encoding="utf-8")
    (folder / "statement.json").write_text(json.dumps(made.to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")
    return folder
