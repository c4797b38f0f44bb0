"""Puts that read nothing back: where whoever sends a row has all of it, the answer to the INSERT is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from xq.core.compile import Change, Statement
from xq.core.connections import Connection, Run
from xq.core.kinds import NUMBERED, Row
from xq.sql.innodb.innodb_language import InnodbTerms

# The types of columns that give a value of these types back as it was sent. NULL comes back from all but a TIMESTAMP.
EXACT: Final[Mapping[type, frozenset[str]]] = {
    bool: frozenset(("tinyint",)),
    int: frozenset(("tinyint", "smallint", "mediumint", "int", "bigint")),
    str: frozenset(("varchar", "tinytext", "text", "mediumtext", "longtext")),
    float: frozenset(("double",)),
}
Columns = dict[str, tuple[str, bool]]  # the type of each, and whether one that is left out is NULL
RowOf = Callable[[Row, Mapping[str, tuple[str, bool]]], list[Any] | None]
# What `column_default` is for one without a default: MySQL, MariaDB. And what else is filled in is told by `extra`.
LEFT_OUT: Final = "COALESCE(column_default, 'NULL') = 'NULL' AND extra IN ('', 'INVISIBLE')"
UNKNOWN: Final = ("timestamp", False)


def columns_of(terms: InnodbTerms) -> str:
    """Return a query for the columns: none if a trigger may change what is sent.

    Who may not see triggers does not see those of xq either.
    """
    table = terms.literal(terms.source.name)
    return (
        f"SELECT column_name, IF(data_type = 'double', column_type, data_type), {LEFT_OUT} "
        f"FROM information_schema.columns WHERE table_schema = {terms.schema} AND table_name = {table} "
        f"AND 1 = (SELECT MIN(action_timing = 'AFTER') FROM information_schema.triggers WHERE event_object_schema = "
        f"{terms.schema} AND event_object_table = {table} AND event_manipulation = 'INSERT')"
    )


def row_of(terms: InnodbTerms, change: Change, names: Sequence[str]) -> RowOf | None:
    """Return `Known.row` for a put of these fields; None if SQL computes a part of the row."""
    written = {terms.source.roles[role].name: value for role, value in change.roles.items() if role in terms.roles}
    written[terms.source.roles["status"].name] = terms.words[change.target]
    if not all(isinstance(value, (str, int, type(None))) for value in written.values()):
        return None
    row = [written.get(field.name) for field in terms.source.fields]
    sent = [
        (at, field, names.index(field.name) if field.name in names else None)
        for at, field in enumerate(terms.source.fields)
        if field.name not in written and (field.name in names or field.kind not in NUMBERED)
    ]

    def of(values: Row, columns: Mapping[str, tuple[str, bool]]) -> list[Any] | None:
        made = list(row)
        for at, field, place in sent:
            kind, is_empty = columns.get(field.column, UNKNOWN)
            value = None if place is None else values[place]
            comes_back = kind in EXACT.get(type(value), ()) or (value is None and kind != "timestamp")
            # In place of a key of 0 the database may make a number.
            if not comes_back or (place is None and not is_empty) or (value == 0 and field in terms.source.key):
                return None
            made[at] = int(value) if isinstance(value, bool) else value
        return made

    return of


def unread(terms: InnodbTerms, columns: Columns, statement: Statement, width: int, read: Run) -> Run:
    """Return a function that puts a task, and reads its row back, by `read`, only if it is not known.

    `columns` are those of the table, once they have been found.
    """
    assert statement.known
    known, find = statement.known, terms.query(columns_of(terms))
    again = terms.query(f"SELECT {terms.columns} FROM {terms.table_in_schema} WHERE {terms.by_key()}")
    usual = known.sql.count(":=") * terms.assigning_is_deprecated
    text, values_of = terms.filled(known.sql, statement.names, width)
    key_at = [terms.source.fields.index(field) for field in terms.source.key]

    def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
        if not columns and connection.begins:  # a look within a transaction would begin its snapshot
            found = {name: (kind, bool(is_empty)) for name, kind, is_empty in find(connection, values)}
            columns.update(found or {"": UNKNOWN})
        row = known.row(values["rows"][0], columns) if len(columns) > 1 else None
        if row is None:
            return read(connection, values)
        key, warnings = connection.insert(text, values_of(values))
        for place in key_at:
            row[place] = key if row[place] is None else row[place]
        # A warning says that a value was changed.
        parts = zip(terms.parts, [row[place] for place in key_at], strict=True)
        return (warnings > usual and again(connection, dict(parts))) or [row]

    return run
