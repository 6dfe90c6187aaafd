"""Records from a database: the rows of one query, through SQLAlchemy (extra `sql`) and any driver that it has."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sottovoce.data.tables import Table
from sottovoce.errors import DataError, SpecError

_SECRET = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


def is_database(text: str) -> bool:
    """Whether a source of records is the address of a database and not a file.

    Examples
    --------
    >>> is_database("postgresql+psycopg://clinic@db/registry"), is_database("patients.csv")
    (True, False)
    """
    return "://" in text


def load_sql(
    url: str, query: str, *, label: str | None = None, group: str | None = None, columns: Sequence[str] | None = None
) -> Table:
    """Read the records that a query gives; passwords in the address are never shown.

    Parameters
    ----------
    url : such as 'sqlite:///clinic.db' or 'postgresql+psycopg://user:password@host/registry'
    query : one SELECT
    label : the label's column; by default the one called label, y, target or class
    group : the column that names every record's owner
    columns : the features to take, by name and in this order; all others but the label are left alone
    """
    from sottovoce.data.columns import chosen, to_table  # here: Arrow's parts are slow to load

    name, answer = answer_of(url, query)
    table = pa.table({column: _column(name, column, values) for column, values in answer.items()})
    if columns is not None:
        table = chosen(table, [*columns, *(other for other in (label, group) if other is not None)], name)
    return to_table(table, name, label, group, require_label=True)


def answer_of(url: str, query: str) -> tuple[str, dict[str, list[Any]]]:
    """The address without its password, and the columns of a query's answer as plain values."""
    try:
        import sqlalchemy
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
    except ImportError:
        raise SpecError("reading from a database needs SQLAlchemy; install sottovoce[sql]") from None
    try:
        address = sqlalchemy.make_url(url)
    except ArgumentError:
        raise SpecError("this is no database address; write one such as sqlite:///clinic.db") from None
    if any(_SECRET.search(key) for key in address.query):  # it would be shown with the address
        raise SpecError(
            "the address of this database has a password behind its '?'; write it as user:${NAME}@host, with NAME in "
            "the environment"
        )
    name = address.render_as_string(hide_password=True)
    try:
        engine = sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)  # one query: nothing is kept open
        with engine.connect() as connection:
            result = connection.execute(sqlalchemy.text(query))
            if not result.returns_rows:
                raise DataError(f"{name}: the query gives no rows; write one SELECT")
            names, rows = list(result.keys()), result.fetchall()
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise SpecError(
            f"{name}: there is no driver for this database ({error}); install it (sottovoce[sql] has PostgreSQL's)"
        ) from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise DataError(f"{name}: the query failed ({reason}); check the address, the rights and the query") from None
    if len(set(names)) < len(names):
        raise DataError(f"{name}: two columns of the query have the same name; give each its own with AS")
    return name, {column: [row[j] for row in rows] for j, column in enumerate(names)}


def _column(name: str, column: str, values: list[Any]) -> Any:
    try:
        # exact decimals to the nearest float, as a file's text is read; Arrow's own cast may end a bit beside it
        return pa.array([float(value) if isinstance(value, Decimal) else value for value in values])
    except (pa.ArrowException, OverflowError):
        raise DataError(f"{name}: column '{column}' mixes types; CAST it to one in the query") from None
