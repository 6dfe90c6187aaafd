"""One table for all experiments: rows about runs, kept as they are made, so that stopped work goes on where it was.

A table is a Parquet file that says that it is *not private*. It is written whole or not at all, after every run, and it
keeps what others put into it: two studies may share a file.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from sottovoce.errors import DataError, SpecError
from sottovoce.limits import check_file
from sottovoce.registry import parse, write
from sottovoce.run.result import NOT_PRIVATE

Row = dict[str, Any]
"""A flat row: numbers, words and truth values by name."""
Work = TypeVar("Work")
Done = Callable[[int, int, Row], None]
"""(works done, of how many, the newest row)."""


class Runs:
    """Rows of runs, found by what makes two rows the same run; a run may have several rows.

    Parameters
    ----------
    key : names of the columns that make a run what it is; a choice in two spellings is one choice
    path : a file to go on with and to write to after every run; None keeps nothing
    missing : values of columns that tables of earlier versions do not have

    Examples
    --------
    >>> runs = Runs(["method", "seed"])
    >>> runs.fill([1, 2], lambda seed: [{"method": "l2:0.1", "seed": seed, "accuracy": 0.5 + seed / 10}])
    >>> [row["accuracy"] for row in runs.find(method="l2(0.1)", seed=2)]
    [0.7]
    """

    def __init__(self, key: Sequence[str], path: Path | None = None, missing: Mapping[str, Any] | None = None) -> None:
        self.key, self.path = tuple(key), path
        self._runs: dict[tuple[Any, ...], list[Row]] = {}
        if path is not None and path.exists():
            self._take([{**(missing or {}), **row} for row in load_rows(path)])

    @property
    def rows(self) -> list[Row]:
        """All rows, run by run."""
        return [row for rows in self._runs.values() for row in rows]

    def find(self, **head: Any) -> list[Row]:
        """The rows of one run; none where it was not made yet."""
        return self._runs.get(self._key(head), [])

    def like(self, **fields: Any) -> list[Row]:
        """The rows of all runs with these values."""
        wanted = {name: _meaning(value) for name, value in fields.items()}
        return [row for row in self.rows if all(_meaning(row[name]) == value for name, value in wanted.items())]

    def add(self, rows: Sequence[Row]) -> None:
        """Keep the rows of one or several runs, in place of what was known of these runs."""
        for row in rows:
            self._runs.pop(self._key(row), None)
        self._take(rows)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_rows(self.rows, self.path)

    def fill(
        self,
        works: Sequence[Work],
        run: Callable[[Work], list[Row]],
        *,
        jobs: int = 1,
        threads: bool = False,
        done: Done | None = None,
    ) -> None:
        """Do what is missing, and keep each run at once.

        Parameters
        ----------
        works : what to do
        run : does one of them, and gives the rows of its runs
        jobs, threads : how many at a time; each in a process of its own, or in threads that share the data
        done : called after every work
        """
        for count, rows in enumerate(each(works, run, jobs, threads), 1):
            self.add(rows)
            if done is not None:
                done(count, len(works), rows[0])

    def _take(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._runs.setdefault(self._key(row), []).append(row)

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_meaning(row[name]) for name in self.key)


Made = TypeVar("Made")


def each(works: Sequence[Work], run: Callable[[Work], Made], jobs: int = 1, threads: bool = False) -> Iterator[Made]:
    """What the works give, in the order in which they end, several at a time."""
    if jobs == 1:
        yield from map(run, works)
        return
    from joblib import Parallel, delayed  # slow to load
    from threadpoolctl import threadpool_limits

    side_by_side = Parallel(jobs, prefer="threads" if threads else None, return_as="generator_unordered")
    # matrix products that each take all cores would wait for each other
    with threadpool_limits(max(1, (os.cpu_count() or 1) // jobs) if threads else None, user_api="blas"):
        yield from side_by_side(delayed(run)(work) for work in works)


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as one table that says what it is; whole, or not at all. What a row lacks is left empty."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
    check_file(path)
    beside = path.with_name(path.name + ".part")
    try:
        pq.write_table(table.replace_schema_metadata({"privacy": NOT_PRIVATE}), beside)
        os.replace(beside, path)
    except OSError as error:
        raise DataError(
            f"the table cannot be written to '{path}' ({type(error).__name__}); give another file"
        ) from None


def load_rows(path: Path) -> list[Row]:
    """Read `save_rows` back."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_table(path).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"'{path}' is no readable table ({type(error).__name__}); give another file") from None


def _meaning(value: Any) -> Any:
    return _written(value) if isinstance(value, str) else value


@lru_cache(maxsize=1024)  # all rows have the same few
def _written(text: str) -> str:
    """A choice in its one notation, whichever way it was spelt; what is none stays as it is."""
    try:
        call = parse(text)
    except SpecError:
        return text
    numbers = [value for value in call.args if not isinstance(value, str)]
    return write(call.name, *numbers, **call.kwargs) if len(numbers) == len(call.args) else text
