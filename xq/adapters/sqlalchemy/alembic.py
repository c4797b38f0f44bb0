"""Queues in migrations: `import xq.adapters.sqlalchemy.alembic` in Alembic's env.py.

Autogenerate then writes `op.install_queue` and `op.uninstall_queue`, with the SQL of this day for each database, and
leaves out what install() has made beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import sqlalchemy as sa
from alembic import util
from alembic.autogenerate import comparators, renderers
from alembic.ddl.sqlite import SQLiteImpl
from alembic.operations import MigrateOperation, Operations, ops
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.adapters.databases.dialects import DIALECTS, SHARED
from xq.adapters.databases.installer.findings import OWN
from xq.adapters.databases.installer.installation import Installation
from xq.adapters.databases.migrated import MADE, OF_TABLE, RECORDS, beside_writers
from xq.adapters.databases.shared import OBJECTS, QUEUES, TUBES
from xq.adapters.sqlalchemy.connections import ENGINES
from xq.adapters.sqlalchemy.store import SqlalchemyStore
from xq.core.errors import ConfigurationError
from xq.core.kinds import beside
from xq.upgrading.build import arguments_of, build

Sql = Mapping[str, Sequence[str]]  # the statements, by database
Key = tuple[str | None, str]  # a schema, and a name in it

# Alembic before 1.18 has no priorities, and runs comparators in the order of their registration.
LAST: Any = {"priority": util.DispatchPriority.LAST} if hasattr(util, "DispatchPriority") else {}

ischema_names.setdefault("xid8", sa.BigInteger)  # of a table of xq's, which Alembic reads, and SQLAlchemy does not know


class QueueOp(MigrateOperation):
    """An operation on a queue, by SQL that was written with its revision."""

    called: ClassVar[str]
    undo: QueueOp

    def __init__(self, table_name: str, sql: Sql, definition: Any = None, schema: Any = None, online: bool = False):
        self.table_name, self.sql, self.definition = table_name, sql, definition
        self.schema, self.online = schema, online

    def reverse(self) -> MigrateOperation:
        return self.undo


@Operations.register_operation("install_queue")
class InstallQueueOp(QueueOp):
    called = "install_queue"

    @classmethod
    def install_queue(
        cls,
        operations: Operations,
        table_name: str,
        sql: Sql,
        definition: Mapping[str, Any],
        schema: str | None = None,
        online: bool = False,
    ) -> None:
        """Install a queue, or this definition in place of another. Raises ConfigurationError as `Queue.install` does.

        With `online`, what the migration has done is committed, and PostgreSQL builds the indexes beside writers.
        """
        operations.invoke(cls(table_name, sql, definition, schema, online))


@Operations.register_operation("uninstall_queue")
class UninstallQueueOp(QueueOp):
    called = "uninstall_queue"

    @classmethod
    def uninstall_queue(cls, operations: Operations, table_name: str, sql: Sql, schema: str | None = None) -> None:
        """Remove what installing has made, or what the next definition replaces. The columns are `op.drop_column`'s."""
        operations.invoke(cls(table_name, sql, schema=schema))


class Definition:
    """A queue's definition on a mapped class, for each kind of database."""

    def __init__(self, model: type[Any], arguments: Mapping[str, Any], record: str = "") -> None:
        self._model, self._arguments, self._record = model, arguments, record

    @classmethod
    def recorded(
        cls, connection: sa.Connection, key: Key, record: str, of: Mapping[str, Any], today: sa.Table | None = None
    ) -> Definition:
        """Return an installed definition, on the table as it is; `today` knows the types of columns better.

        `of`: features, which may be the application's own. Raises ConfigurationError.
        """
        known = () if today is None else today.columns
        columns = [sa.Column(each.name, each.type, primary_key=each.primary_key) for each in known]
        table = sa.Table(
            key[1],
            sa.MetaData(),
            *columns,
            schema=key[0],
            autoload_with=connection,
            resolve_fks=False,
            listeners=[("column_reflect", _see_uuid)],
        )
        model: type[Any] = type(key[1], (), {})
        orm.registry().map_imperatively(model, table)
        arguments = arguments_of(found := json.loads(record))
        if unknown := found.get(OWN, {}).keys() - of.keys():
            raise ConfigurationError(
                f"{key[1]} was installed with features of its own program, {', '.join(sorted(unknown))}, so no way "
                "back can be written: leave them in features= for this revision"
            )
        arguments["features"].update((name, of[name]) for name in found.get(OWN, ()))
        return cls(model, arguments, record)

    def installation(self, engine: str) -> Installation:
        name = next(name for name, of in ENGINES.items() if of == engine)  # as SQLAlchemy calls it
        store = SqlalchemyStore(self._model, sa.make_url(f"{name}://").get_dialect()())
        of = build(store, **self._arguments, detached=True).parts.definition
        dialect = of.dialects[engine](of.table, of.machine, of.words, of.tube_stats)
        made = Installation(store, dialect, of.structure, of.wording)
        made.fingerprint = self._record or made.fingerprint
        return made

    def on(self, connection: sa.Connection) -> Installation:
        """Return the installation in a connection's database."""
        engine, made = connection.engine, self.installation(ENGINES[connection.dialect.name])
        made.store.bind(AsyncEngine(engine) if engine.dialect.is_async else engine)  # type: ignore[attr-defined]
        return made

    def install(self, key: Key) -> InstallQueueOp:
        definition = json.loads(self._record or self.installation("sqlite").fingerprint)
        return InstallQueueOp(
            key[1], _each(lambda engine: self.installation(engine).ddl(columns=False)), definition, key[0]
        )

    def uninstall(self, key: Key, successor: Definition | None) -> UninstallQueueOp:
        def drops(engine: str) -> list[str]:
            made = self.installation(engine)
            return made.ddl_to_replace(successor.installation(engine)) if successor else made.ddl_to_uninstall(False)

        return UninstallQueueOp(key[1], _each(drops), schema=key[0])


def _see_uuid(inspector: object, table: object, column: Any) -> None:
    """Take the type that SQLAlchemy gives to Uuid, where a database has none of its own, for a Uuid."""
    if isinstance(column["type"], sa.CHAR) and column["type"].length == 32:
        column["type"] = sa.Uuid()


def _each(sql: Callable[[str], list[str]]) -> Sql:
    found = {}
    for engine in DIALECTS:
        with suppress(ConfigurationError):  # not each kind of database can have each definition
            found[engine] = sql(engine)
    return found


# in a revision


@Operations.implementation_for(UninstallQueueOp)
def _run(operations: Operations, op: QueueOp, only: Callable[[str], str] = str) -> None:
    """Run SQL as it is: neither `:name` nor `%` is read as the place of a value."""
    context = operations.migration_context
    if (engine := ENGINES[context.dialect.name]) not in op.sql:
        raise ConfigurationError(
            f"{op.table_name} has no SQL for {engine} in this revision, as it cannot be a queue there"
        )
    for sql in filter(None, map(only, op.sql[engine])):
        if context.as_sql:
            context.impl.static_output(sql + context.impl.command_terminator)
        else:
            operations.get_bind().exec_driver_sql(sql, None, {"no_parameters": True})


@Operations.implementation_for(InstallQueueOp)
def _install(operations: Operations, op: InstallQueueOp) -> None:
    context, key, made = operations.migration_context, (op.schema, op.table_name), None
    if not context.as_sql:
        connection, record = operations.get_bind(), json.dumps(op.definition, sort_keys=True)
        with suppress(ConfigurationError):  # a definition that this xq, without the application's features, cannot have
            made = Definition.recorded(connection, key, record, {}).on(connection)
        if made is not None:
            with made.store.joining(connection):
                made.refuse_all(downgrade=True)  # the order of revisions says which definition is newer
    if op.online and context.dialect.name == "postgresql":
        with context.autocommit_block():
            _run(operations, op, lambda sql: beside_writers(sql, op.table_name))
    _run(operations, op)
    if made is not None:
        with made.store.joining(operations.get_bind()):
            if made.is_unchanged():  # else it is the SQL of another version of xq
                made.recount()  # other rows may be tasks now


# autogenerate


@renderers.dispatch_for(QueueOp)
def _render(context: object, op: QueueOp) -> str:
    lines = [f"op.{op.called}(", f"    {op.table_name!r},"]
    lines += [f"    {name}={value!r}," for name in ("schema", "definition") if (value := getattr(op, name))]
    lines.append("    sql={")
    for engine, sql in op.sql.items():
        lines += [f"        {engine!r}: [", *(f"            {each!r}," for each in sql), "        ],"]
    return "\n".join([*lines, "    },", ")"])


@comparators.dispatch_for("schema", **LAST)
def _compare(context: Any, upgrade_ops: ops.UpgradeOps, schemas: object) -> None:
    connection, found = context.connection, upgrade_ops.ops
    records = _records(connection)
    _leave_out(found, {*_made(connection, records)})
    tables: dict[Key, Any] = {(op.schema, op.table_name): None for op in found if isinstance(op, ops.DropTableOp)}
    tables |= {(each.schema, each.name): each for each in context.sorted_tables}
    for key, table in tables.items():
        if table is not None and not context.run_object_filters(table, table.name, "table", False, None):
            continue
        queue, new, before, features = getattr(table, "xq", None), None, None, {}
        if queue is not None:
            arguments = queue.parts.definition.arguments
            new, features = Definition(queue.model, arguments), arguments["features"]
            here = new.on(connection)
            with here.store.joining(connection):
                if here.is_whole():
                    continue
                if not here.missing_columns():
                    here.refuse_all(downgrade=True)
        if key in records:
            before = Definition.recorded(connection, key, records[key], features, table)
            before.on(connection)  # raises, if it cannot be made anew
            found.insert(0, first := before.uninstall(key, new))  # columns that triggers name cannot be dropped
            first.undo = before.install(key)
        if new is not None:
            found.append(last := new.install(key))
            last.undo = new.uninstall(key, before)


def _records(connection: sa.Connection) -> dict[Key, str]:
    """Return the definitions of the queues that a database has, but for tubes."""
    if not sa.inspect(connection).has_table(QUEUES):
        return {}
    rows = connection.exec_driver_sql(RECORDS)
    return {_key(name): record for name, record in rows if not name.startswith(TUBES)}


def _key(queue: str, name: str = "") -> Key:
    """Return the key of a queue, or of what has this name beside it."""
    schema, _, table = queue.rpartition(".")
    return schema or None, name or table


def _made(connection: sa.Connection, records: Mapping[Key, str]) -> Iterator[Key]:
    """Yield the tables, indexes and columns that installing has made."""
    engine = ENGINES[connection.dialect.name]
    yield from ((None, name) for name in [*SHARED[engine]().tables, TUBES])
    for schema, name in records:  # a table that is made late, and columns of MariaDB
        yield from ((schema, beside(name, of, DIALECTS[engine].longest_name)) for of in ("put", "held", "turn"))
    if sa.inspect(connection).has_table(OBJECTS):
        for queue, name in connection.exec_driver_sql(MADE):
            yield from (_key(queue, name), *([_key(queue)] * queue.startswith(TUBES)))


def _leave_out(found: list[Any], made: set[Key]) -> None:
    """Remove the operations on what installing has made."""
    for op in list(found):
        if isinstance(op, ops.ModifyTableOps):
            _leave_out(op.ops, made)
        names = (getattr(op, name, None) for name in ("table_name", "index_name", "column_name"))
        if any((op.schema, name) in made for name in names if name) or getattr(op, "ops", True) == []:
            found.remove(op)


class SqliteWithQueues(SQLiteImpl):
    """SQLite, where batch_alter_table makes a table anew: with the indexes and triggers of its queue."""

    __dialect__ = "sqlite"
    _dropped: Mapping[str, str] = {}  # the SQL of those, by name

    def drop_table(self, table: sa.Table, **options: Any) -> None:
        if self.connection is not None:
            found = self.connection.exec_driver_sql(OF_TABLE, (table.name,)).all()
            self._dropped = {name: sql for name, sql in found if name.startswith(beside(table.name, ""))}
        super().drop_table(table, **options)

    def rename_table(self, old_table_name: str, new_table_name: Any, schema: Any = None) -> None:
        super().rename_table(old_table_name, new_table_name, schema)
        for name, sql in self._dropped.items():
            if self.connection is not None and name.startswith(beside(new_table_name, "")):
                self.connection.exec_driver_sql(sql, None, {"no_parameters": True})

    def create_index(self, index: sa.Index, **options: Any) -> None:
        if index.name not in self._dropped:
            super().create_index(index, **options)
