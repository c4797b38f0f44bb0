"""Queues on tables without a program's model: the model is made from the table, the queue from its record."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import peewee as pw
from playhouse.reflection import Introspector, SqliteMetadata

from xq.adapters.peewee import upgrade, urls
from xq.api import Queue
from xq.core.errors import BadValue, ConfigurationError, Error, shown
from xq.core.kinds import beside, own_name
from xq.core.schema import asks_for_own
from xq.drivers.base import of_login
from xq.operators.inspection import LOOK, Locked
from xq.sql.postgres.postgres_dialect import LOCKED_BY
from xq.sql.postgres.postgres_objects import KEY
from xq.sql.shared import QUEUES, TUBES
from xq.sql.sqlite.sqlite_language import SqliteShared
from xq.upgrading.build import arguments_of
from xq.upgrading.verbs import VERBS

# The declared types to which SQLite gives the affinity REAL, by its rules: the first ones are not in the name.
REAL = re.compile("(?!.*(INT|CHAR|CLOB|TEXT|BLOB)).*(REAL|FLOA|DOUB).*")


def installed(found: pw.Database) -> dict[str, Mapping[str, Any]]:
    """Return the queue definitions that a database records, by table name."""
    if not found.table_exists(QUEUES):
        return {}
    rows = found.execute_sql(SqliteShared().definitions).fetchall()  # the same text on each database
    return {name: json.loads(record) for name, record in rows}


def model_of(found: pw.Database, table: str) -> type[pw.Model]:
    """Return a model for an existing table. Raises BadValue if there is none."""
    tables = found.get_tables()
    if table not in tables:
        raise BadValue(f"there is no table {shown(table)}: there are {', '.join(tables) or 'none'}")
    with _unlocked(found, table):
        return _model_of(found, table)


@contextmanager
def _unlocked(found: pw.Database, table: str) -> Iterator[None]:
    """Raise Locked if the block waits for longer than LOOK seconds: PostgreSQL reads no columns of a locked table."""
    if not isinstance(found, pw.PostgresqlDatabase):
        yield
        return
    try:
        with found.atomic():  # a setting of the session could stay behind in a pooler's connection
            found.execute_sql(f"SET LOCAL lock_timeout = '{LOOK}s'")
            yield
    except pw.OperationalError as error:
        sql = LOCKED_BY.replace(":name", "%s").replace(":beside", "%s")
        if locked := found.execute_sql(sql, (f'"{table}"', beside(table, ""))).fetchall():
            raise Locked(table, locked) from error
        raise


def _model_of(found: pw.Database, table: str) -> type[pw.Model]:
    of = Introspector(_Columns(found)) if isinstance(found, pw.SqliteDatabase) else Introspector.from_database(found)
    made: type[pw.Model] = of.generate_models(table_names=[table], literal_column_names=True)[table]
    for column in found.get_columns(table):
        if (field := made._meta.columns.get(column.name)) is not None:
            field.declared = column.data_type
    return made


class _Columns(SqliteMetadata):
    """An SQLite table's columns. SQLite accepts any name as a type."""

    column_map: Mapping[str, Any] = {**SqliteMetadata.column_map, "binary": pw.BlobField, "varbinary": pw.BlobField}

    def _map_col(self, column_type: str) -> Any:
        """Return the field class for a declared type; a DoubleField where SQLite's affinity is REAL, with 8 bytes."""
        if REAL.fullmatch(column_type.upper()):
            return pw.DoubleField
        return super()._map_col(column_type)


@contextmanager
def _connected(where: str, keep: bool = False) -> Iterator[pw.Database]:
    """Connect to a URL's database for the block, or longer. Raises Error for a database error, and without the file."""
    found = urls.database(where)
    file = str(found.database)
    if isinstance(found, pw.SqliteDatabase) and not (file.startswith((":memory:", "file:")) or Path(file).exists()):
        raise Error(f"there is no file {shown(file)}")  # SQLite would make an empty one
    if isinstance(found, pw.PostgresqlDatabase):
        found.get_primary_keys = partial(_key_of, found)  # type: ignore[method-assign]
    with database_errors(), nullcontext(found.connect()) if keep else found.connection_context():
        yield found


def _key_of(found: pw.Database, table: str, schema: str | None = None) -> list[str]:
    return [name for (name,) in found.execute_sql(KEY, (table, schema)).fetchall()]


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise Error for an error that Peewee raises in the block."""
    try:
        yield
    except RuntimeError as error:
        raise of_login(error) from error.__cause__
    except pw.PeeweeException as error:
        raise Error(f"the database fails: {error}") from error
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        raise BadValue(f"the driver does not have a parameter that the URL has: {error}") from error


def queue_of(where: str, table: str) -> Queue[Any]:
    """Return a table's installed queue, in a URL's database; the only one there if `table` is empty.

    Raises BadValue, Error, and ConfigurationError for a queue that only its own program can define.
    """
    with _connected(where) as found:
        known = installed(found)
        if not table and len(known) == 1:
            (table,) = known
        if table not in known:
            there = f"there are {', '.join(known)}" if known else "none is installed"
            raise BadValue(
                f"no queue {shown(table)} is installed in this database: {there}"
                if table
                else f"say which queue of this database is meant, by # and its name: {there}"
            )
        return _queue(known[table], table, model_of(found, table))


def twin_of(where: str, table: str, queue: Queue[Any]) -> Queue[Any]:
    """Return a URL's table, or the one called as a queue's, as the same queue, which may not be installed there.

    Raises BadValue without the table; Error, ConfigurationError.
    """
    table = table or queue.parts.definition.table.name
    record = json.loads(queue.parts.executor.installation.fingerprint)
    with _connected(where) as found:
        if table not in found.get_tables():
            raise BadValue(f"there is no table {shown(table)} yet: create it there as your application does (migrate)")
        model = model_of(found, table)
        own = {column for role, column in record["roles"].items() if column == own_name(role)}
        lacks = own - model._meta.columns.keys()  # install() adds them
        record["roles"] = {role: None if column in lacks else column for role, column in record["roles"].items()}
        return _queue(installed(found).get(table) or record, table, model)


def queues_of(where: str, keep: bool = False) -> tuple[pw.Database, list[Queue[Any]], dict[str, str]]:
    """Return a URL's database, its installed queues, and why others are left out, by table name.

    Tubes are not among them. `keep`: its connection stays open. Raises BadValue, Error.
    """
    with _connected(where, keep) as found:
        queues, left_out = [], {}
        for table, record in installed(found).items():
            if table.startswith(f"{TUBES}_"):
                continue
            try:
                queues.append(_queue(record, table, model_of(found, table)))
            except Error as error:
                left_out[table] = str(error)
    return found, queues, left_out


def _queue(record: Mapping[str, Any], table: str, model: type[pw.Model]) -> Queue[Any]:
    if own := record.get("own"):
        raise ConfigurationError(
            f"{table} has features of its own program ({', '.join(own)}): name its model, as app.models:Page"
        )
    priority = model._meta.columns.get(record["roles"].get("priority"))
    if priority is not None and not (priority.null or priority.constraints):
        model._meta.defaults[priority] = 0  # Django's table has no DEFAULT
    return upgrade(model, **arguments_of(record, partial(_field, model)), methods=False)  # a column may be called so


def _field(model: type[pw.Model], column: str | None) -> Any:
    if column is None:
        return True
    if column not in model._meta.columns:
        raise ConfigurationError(
            f"the queue was installed with the column {column} of {model._meta.table_name}, which is gone: rename it "
            "back, or name the new one in the program's model, and install() there. Until then writes may fail"
        )
    return str(model._meta.columns[column].name)


def words(where: str, table: str, column: str) -> dict[Any, int]:
    """Return how many rows have each value in a column, the most frequent first; nothing without the column."""
    with _connected(where) as found:
        field = (model := model_of(found, table))._meta.columns.get(column)
        n = pw.fn.COUNT(pw.SQL("1"))
        rows: Any = model.select(field, n).group_by(field).order_by(n.desc()).tuples() if field else ()
        return dict(rows)


def upgraded(
    where: str, table: str, fields: Mapping[str, Any], features: Mapping[str, Any], statuses: Mapping[str, str]
) -> Queue[Any]:
    """Return a plain table's queue, not installed yet. Raises BadValue, Error; ConfigurationError if it is unfit."""
    with _connected(where) as found:
        model = model_of(found, table)
    there = model._meta.columns
    for role, column in fields.items():
        if column not in there and not asks_for_own(role, column):
            more = f", or --status {own_name(role)} adds one" if role == "status" else ""
            what = f"{table} has no column {shown(column)} for the role {shown(role)}"
            raise BadValue(f"{what}: there are {', '.join(there)}{more}")
    status = there.get(fields["status"])
    is_unknown = status is not None and status.declared == "USER-DEFINED"
    if is_unknown:  # on PostgreSQL: as a text, so that an enum is refused by name
        model._meta.add_field(status.name, pw.TextField(column_name=status.column_name))
    roles = {role: _field(model, column) if column in there else True for role, column in fields.items()}
    is_number = isinstance(status, pw.IntegerField)
    own = {state: int(word) if is_number and word.isdecimal() else word for state, word in statuses.items()}
    queue: Queue[Any] = upgrade(model, roles, features, statuses=own or None, methods=False)
    with database_errors(), queue.parts.store.briefly_connected():
        queue.parts.executor.installation.refuse()  # before a column is added
    if is_unknown:
        raise BadValue(f"the column {table}.{status.column_name} is neither text nor an integer")
    return queue


def new_columns(queue: Queue[Any]) -> list[str]:
    """Return the columns that install() adds to such a queue's table."""
    fields = queue.parts.store.model._meta.sorted_fields
    return [field.column_name for field in fields if not hasattr(field, "declared")]


def in_python(where: str, table: str, queue: Queue[Any], columns: Mapping[str, Any]) -> tuple[str, str]:
    """Return Peewee's command to print a table's model, and the call that makes this model the queue.

    `columns` are those given to `upgraded`. The command names no password, and asks for it.
    """
    with _connected(where) as found:
        printed = Introspector.from_database(found).introspect([table])
    engine, at = queue.parts.store.engine, found.connect_params
    options = {"-H": at.get("host"), "-p": at.get("port"), "-u": at.get("user")}
    given = [part for option, value in options.items() if value for part in (option, str(value))]
    asks = ["-P"] if at.get("password") or at.get("passwd") else []
    program = ["python", "-m", "pwiz", "-e", {"innodb": "mysql"}.get(engine, engine), "-t", table]
    command = shlex.join([*program, *given, *asks, str(found.database)])
    if engine == "sqlite":  # where REAL has 8 bytes
        command += " | sed s/FloatField/DoubleField/"
    names = {column.column_name: column.name for column in printed.columns[table].values()}
    fields = {role: names.get(column, True) for role, column in columns.items()}  # an own column may not be there yet
    statuses, features = queue.parts.definition.arguments["statuses"], queue.parts.definition.arguments["features"]
    more = f", statuses={statuses!r}" if statuses else ""
    more += ", methods=False" if {*VERBS} & {*names.values()} else ""  # a column may have the name of a method
    return command, f"xq.upgrade({printed.model_names[table]}, fields={fields!r}, features={features!r}{more})"
