"""What a site keeps at the end: a saved `Result`, for `sottovoce predict` and `sottovoce account --verify`."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from sottovoce._types import Array
from sottovoce.consortium.agreement import SCHEMA_FILE, Agreement
from sottovoce.consortium.evaluate import statement
from sottovoce.result import History, Result, environment

FOLDER = "results"
ENGINE = "nodes over FLARE"


def save(kit: Path, state: Path, agreement: Agreement, models: Array, seconds: float) -> Path:
    """Write everybody's final models, the statement and the schema under the node's own folder."""
    plan = agreement.plan
    made = statement(agreement)
    result = Result(
        spec=replace(plan.spec, seed=None),  # the plan's seed is the schedule's alone
        models=models,
        history=History(),
        statement=made,
        public=plan.prepared.public | {"run": plan.digest, "schedule_seed": plan.spec.seed},
        classes=agreement.schema.label.classes,
        features=agreement.schema.features,
        nodes=plan.nodes,
        environment=environment(ENGINE, seconds),
    )
    folder = result.save(state / FOLDER / str(agreement.run["run"]))
    shutil.copyfile(kit / "local" / agreement.schema_file, folder / SCHEMA_FILE)
    (folder / "statement.txt").write_text(made.paragraph() + "\n", encoding="utf-8")
    (folder / "statement.json").write_text(json.dumps(made.to_dict(), ensure_ascii=False, indent=2), encoding="utf-8")
    return folder
