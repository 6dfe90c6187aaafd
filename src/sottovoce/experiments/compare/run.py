"""Runs what the table lacks, several at a time, and writes the table after each: stopped work goes on where it was."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from sottovoce.experiments.compare.study import FACTORS, KEY, TUNING_SEED, Cell, Row, Study, run_cell
from sottovoce.run.result import load_rows, save_rows

Done = Callable[[int, int, Row], None]
"""(runs done, of how many, the newest row)."""


def compare(study: Study, out: Path | None = None, jobs: int = 1, done: Done | None = None) -> list[Row]:
    """All rows of a study, those that `out` holds already included; other studies' rows in `out` are kept.

    Parameters
    ----------
    study : what is compared
    out : a Parquet file to read earlier runs from and to write all of them to
    jobs : how many runs at a time, each in a process of its own
    done : called after every run

    Examples
    --------
    >>> from sottovoce.experiments.compare.data import load_dataset
    >>> from sottovoce.problem.losses import LOSSES
    >>> data = load_dataset("breast_cancer", LOSSES.make("logistic"), nodes=5)
    >>> study = Study.of(data, ["dsgd", "dpsgd"], {"h": "l2(0.05)", "batch": 16, "epochs": 2.0}, seeds=2)
    >>> rows = compare(study)
    >>> [(row["algorithm"], row["adversary"], round(row["true_epsilon"], 2)) for row in rows[:2]]
    [('dsgd', 'transcript', 1.0), ('dpsgd', 'central', 1.0)]
    """
    table = load_rows(out) if out is not None and out.exists() else []
    known = {_key(row): row for row in table}
    cells = study.cells()
    missing = [c for c in cells if (row := known.get(_key(study.head(c)))) is None or not study.holds(c, row)]
    f_star = study.f_star() if missing else float("nan")
    missing = _tune(study, missing, list(known.values()), f_star, jobs)
    for count, row in enumerate(_run(study, missing, f_star, jobs), 1):
        known[_key(row)] = row
        if out is not None:
            save_rows(list(known.values()), out)
        if done is not None:
            done(count, len(missing), row)
    return [known[_key(study.head(cell))] for cell in cells]


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in KEY)


def _run(study: Study, cells: list[Cell], f_star: float, jobs: int) -> Iterator[Row]:
    """Rows in the order in which runs end."""
    if jobs == 1:
        yield from (run_cell(study, cell, f_star) for cell in cells)
    else:
        from joblib import Parallel, delayed  # slow to load

        study.dataset.shards.norms  # noqa: B018 - once, before the processes all need them
        yield from Parallel(jobs, return_as="generator_unordered")(delayed(run_cell)(study, c, f_star) for c in cells)


def _tune(study: Study, cells: list[Cell], rows: list[Row], f_star: float, jobs: int) -> list[Cell]:
    """Give the tuned ones the factor with the least objective on a run of its own, or the one of earlier runs."""
    ours = study.head(Cell("", 0.0, True, 0))
    same = [name for name in KEY if name not in ("algorithm", "epsilon", "seed")]
    best = {
        (row["algorithm"], row["epsilon"]): (0.0, 0.0, row["factor"])
        for row in rows
        if all(row[name] == ours[name] for name in same)
    }
    wanted = {(c.algorithm, c.epsilon) for c in cells if c.tuned} - set(best)
    trials = [Cell(*pair, True, TUNING_SEED, factor) for pair in sorted(wanted) for factor in FACTORS]
    for row in _run(study, trials, f_star, jobs):
        pair = row["algorithm"], row["epsilon"]
        found = row["objective"], abs(math.log(row["factor"])), row["factor"]  # of equals, the nearest to 1
        best[pair] = min(best.get(pair, (math.inf, 0.0, 1.0)), found)
    return [c._replace(factor=best[c.algorithm, c.epsilon][2]) if c.tuned else c for c in cells]
