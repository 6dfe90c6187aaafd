"""A site's own records, read the way that the public run file says: columns, classes, bound, number of records.

Nothing is learnt from the data here: which columns there are, what counts as +1 and how many records a node has are in
the run file, so that a node that has only one class, or a column out of place, gives nothing away and breaks nothing.
"""

import numpy as np

from sottovoce._types import Array
from sottovoce.data.load import as_reals
from sottovoce.data.tables import Table, unit_rows
from sottovoce.errors import DataError, SpecError
from sottovoce.node.plan import Plan
from sottovoce.problem.objective import Problem
from sottovoce.problem.shards import Shards
from sottovoce.run.build import check_rows, loss_from_text, make_problem


def own_problem(plan: Plan, name: str, table: Table) -> Problem:
    """The node's part of eq. (1): its own records, checked against the plan."""
    promised, units = plan.sizes[plan.number(name)], None if plan.unit is None else table.groups
    if plan.unit is not None and units is None:
        raise DataError(f"'{table.name}' does not say whose a record is; it needs the column '{plan.unit}'")
    count = table.n_records if units is None else len(np.unique(units))
    if count != promised:
        raise DataError(
            f"node '{name}' has {count} {'records' if units is None else 'people'} in '{table.name}', but the run file "
            f"says {promised}: noise and guarantee were computed from that number; correct the one or the other"
        )
    if table.m != plan.width or (plan.features is not None and table.features not in (None, plan.features)):
        raise DataError(f"'{table.name}' does not have the {plan.width} features of the run file, in their order")
    X = unit_rows(table.X, plan.spec.problem.row_norm) if plan.unit_rows else table.X
    shards = Shards.of(X, _targets(plan, table), np.array([0, table.n_records]), units=units)
    problem = make_problem(plan.spec.problem, shards)
    check_rows(plan.spec.problem, problem.shards)
    return problem


def _targets(plan: Plan, table: Table) -> Array:
    if table.y is None:
        raise DataError(f"'{table.name}' has no labels; name their column in the run file (label = …)")
    if loss_from_text(plan.spec.problem.loss).targets == "real":
        return as_reals(table.y)
    outputs = plan.spec.problem.outputs
    if plan.classes is None or len(plan.classes) != max(2, outputs):
        raise SpecError(
            f'the run file must name the {max(2, outputs)} classes (classes = ["no", "yes"], −1 first): a node that '
            "found them out by looking would tell which labels it has"
        )
    values = np.asarray(table.y)
    each = np.stack([values == _same_kind(label, table) for label in plan.classes])
    unknown = np.flatnonzero(~each.any(axis=0))
    if unknown.size:
        raise DataError(
            f"record {unknown[0] + 1} of '{table.name}' has a label that is none of the run file's classes "
            f"{', '.join(map(repr, plan.classes))}; correct or drop it"
        )
    number = each.argmax(axis=0).astype(np.float64)
    return 2.0 * number - 1.0 if outputs == 1 else number


def _same_kind(label: object, table: Table) -> object:
    """A class of the run file in the type of the labels as they were read."""
    assert table.y is not None
    if np.asarray(table.y).dtype.kind in "US":
        return str(label)
    try:
        return float(str(label))
    except ValueError:
        return label
