"""Queues in migrations: `import xq.adapters.sqlalchemy.alembic` in Alembic's env.py.

Autogenerate then writes `op.install_queue` and `op.uninstall_queue`, with the SQL of this day for each database, and
leaves out what install() has made beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from alembic import util
from alembic.autogenerate import comparators, renderers
from alembic.ddl.sqlite import SQLiteImpl
from alembic.operations import MigrateOperation, Operations, ops
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.adapters.sqlalchemy.store import SqlalchemyStore
from xq.core.errors import ConfigurationError
from xq.core.kinds import beside
from xq.sql.dialects import DIALECTS, SHARED
from xq.sql.installer.installation import Installation
from xq.sql.migrated import OF_TABLE, RECORDS, beside_writers
from xq.sql.shared import QUEUES, TUBES
from xq.upgrading.build import arguments_of, build

Sql = Mapping[str, Sequence[str]]  # the statements, by database
Key = tuple[str | None, str]  # a schema, and a table in it

# The databases by the names that SQLAlchemy has for them, and their names there.
PRODUCTS: Mapping[str, str] = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mariadb"}
NAMES = {product: name for name, product in PRODUCTS.items()}
# Alembic before 1.18 has no priorities, and runs comparators in the order of their registration.
PRIORITIES: Any = getattr(util, "DispatchPriority", None)
FIRST, LAST = ({"priority": PRIORITIES[name]} if PRIORITIES else {} for name in ("FIRST", "LAST"))

ischema_names.setdefault("xid8", sa.BigInteger)  # of a table of xq's, which Alembic reads, and SQLAlchemy does not know


@Operations.register_operation("install_queue")
@Operations.register_operation("uninstall_queue")
class QueueOp(MigrateOperation):
    """Installs a queue, or without a definition uninstalls it, by SQL that was written with the revision."""

    undo: QueueOp
    then: Any = None  # the definition that follows what is uninstalled

    def __init__(
        self, table_name: str, sql: Sql, definition: Any = None, schema: str | None = None, online: bool = False
    ) -> None:
        self.table_name, self.sql, self.definition = table_name, sql, definition
        self.schema, self.online = schema, online
        self.name = "uninstall_queue" if definition is None else "install_queue"

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

    @classmethod
    def uninstall_queue(
        cls, operations: Operations, table_name: str, sql: Sql, schema: str | None = None, then: Any = None
    ) -> None:
        """Remove what installing has made, or what the next definition replaces. The columns are `op.drop_column`'s.

        Raises ConfigurationError, before it removes anything, if the definition `then` may not follow.
        """
        made = cls(table_name, sql, schema=schema)
        made.then = then
        operations.invoke(made)

    def reverse(self) -> MigrateOperation:
        return self.undo

    def to_diff_tuple(self) -> tuple[str, ...]:
        return self.name, self.table_name


class Definition:
    """A queue's definition on a mapped class, for each kind of database."""

    def __init__(self, key: Key, model: type[Any], arguments: Mapping[str, Any], record: str = "") -> None:
        self._key, self._model, self._arguments, self._record = key, model, arguments, record

    @classmethod
    def recorded(cls, connection: sa.Connection, key: Key, record: str, of: Mapping[str, Any]) -> Definition:
        """Return an installed definition, on the table as it is.

        `of`: features, which may be the application's own. Raises ConfigurationError.
        """
        (schema, name), listeners = key, [("column_reflect", _see_uuid)]
        table = sa.Table(
            name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False, listeners=listeners
        )
        model: type[Any] = type(name, (), {})
        orm.registry().map_imperatively(model, table)
        arguments = arguments_of(json.loads(record), of=of)
        return cls(key, model, arguments, record)

    def installation(self, engine: str) -> Installation:
        store = SqlalchemyStore(self._model, sa.make_url(f"{NAMES[engine]}://").get_dialect()())
        of = build(store, **self._arguments, detached=True).parts.definition
        dialect = of.dialects[engine](of.table, of.machine, of.words, of.tube_stats)
        made = Installation(store, dialect, of.structure, of.wording)
        made.fingerprint = self._record or made.fingerprint
        return made

    def on(self, connection: sa.Connection) -> Installation:
        """Return the installation in a connection's database."""
        engine, made = connection.engine, self.installation(_product(connection.dialect))
        made.store.bind(AsyncEngine(engine) if engine.dialect.is_async else engine)  # type: ignore[attr-defined]
        return made

    @property
    def definition(self) -> Any:
        return json.loads(self._record or self.installation("sqlite").fingerprint)

    def install(self, engines: Iterable[str]) -> QueueOp:
        return self._op(engines, lambda engine: self.installation(engine).ddl(columns=False), self.definition)

    def uninstall(self, engines: Iterable[str], successor: Definition | None) -> QueueOp:
        def drops(engine: str) -> list[str]:
            made = self.installation(engine)
            return made.ddl_to_replace(successor.installation(engine)) if successor else made.ddl_to_uninstall(False)

        made = self._op(engines, drops)
        made.then = successor and successor.definition
        return made

    def _op(self, engines: Iterable[str], statements: Callable[[str], list[str]], definition: Any = None) -> QueueOp:
        sql, (schema, table) = {}, self._key
        for engine in engines:
            with suppress(ConfigurationError):  # not each kind of database can have each definition
                sql[engine] = statements(engine)
        return QueueOp(table, sql, definition, schema)


def _see_uuid(inspector: object, table: object, column: Any) -> None:
    """Take the type that SQLAlchemy gives to Uuid, where a database has none of its own, for a Uuid."""
    if isinstance(column["type"], sa.CHAR) and column["type"].length == 32:
        column["type"] = sa.Uuid()


def _product(dialect: Any) -> str:
    """Return the database that a dialect is of: by a URL with mysql:// it may be MariaDB, as a connection has told."""
    return "mariadb" if getattr(dialect, "is_mariadb", False) else PRODUCTS[dialect.name]


# in a revision


@Operations.implementation_for(QueueOp)
def _run(operations: Operations, op: QueueOp) -> None:
    context, made = operations.migration_context, None
    engine = _product(context.dialect)
    if context.as_sql and engine == "mysql" and engine not in op.sql:
        engine = "mariadb"  # without a connection, mysql:// may be either: the revision has the one
    if engine not in op.sql:
        raise ConfigurationError(
            f"{op.table_name} has no SQL for {engine} in this revision: name the project's databases in env.py, as in "
            "context.configure(..., xq_databases=['sqlite', 'postgresql']), unless it cannot be a queue there"
        )
    definition = op.definition or op.then
    if definition is not None and not context.as_sql:
        connection, record = operations.get_bind(), json.dumps(definition, sort_keys=True)
        with suppress(ConfigurationError):  # a definition that this xq, without the application's features, cannot have
            made = Definition.recorded(connection, (op.schema, op.table_name), record, {}).on(connection)
        if made is not None:
            with made.store.joining(connection):  # the order of revisions says which definition is newer
                made.refuse_all(downgrade=True) if op.definition else made.admit(downgrade=True)
    if op.online and engine == "postgres":
        with context.autocommit_block():
            _execute(operations, filter(None, (beside_writers(sql, op.table_name) for sql in op.sql[engine])))
    _execute(operations, op.sql[engine])
    if made is not None and op.definition:
        with made.store.joining(operations.get_bind()):
            if not made.missing():  # else it is the SQL of another version of xq
                _execute(operations, made.stale())  # a history, for example, which stays until here
                made.recount()  # other rows may be tasks now


def _execute(operations: Operations, statements: Iterable[str]) -> None:
    """Run SQL as it is: neither `:name` nor `%` is read as the place of a value."""
    context = operations.migration_context
    for sql in statements:
        if context.as_sql:
            context.impl.static_output(sql + context.impl.command_terminator)
        else:
            operations.get_bind().exec_driver_sql(sql, None, {"no_parameters": True})


# autogenerate


@renderers.dispatch_for(QueueOp)
def _render(context: object, op: QueueOp) -> str:
    lines = [f"op.{op.name}(", f"    {op.table_name!r},"]
    lines += [f"    {name}={value!r}," for name in ("schema", "definition", "then") if (value := getattr(op, name))]
    lines.append("    sql={")
    for engine, sql in op.sql.items():
        lines += [f"        {engine!r}: [", *(f"            {each!r}," for each in sql), "        ],"]
    return "\n".join([*lines, "    },", ")"])


@comparators.dispatch_for("schema", **FIRST)
def _hide(context: Any, upgrade_ops: object, schemas: object) -> None:
    """Have the other comparators neither see nor log what installing has made."""
    is_made = _made(_product(context.connection.dialect), _records(context.connection))
    context._name_filters.append(lambda name, kind, of: not is_made(of.get("schema_name"), name or ""))


@comparators.dispatch_for("schema", **LAST)
def _compare(context: Any, upgrade_ops: ops.UpgradeOps, schemas: object) -> None:
    connection, found = context.connection, upgrade_ops.ops
    records = _records(connection)
    named = context.opts.get("xq_databases", [])
    engines = {PRODUCTS[each]: each for each in named} or {_product(connection.dialect): connection.dialect.name}
    _leave_out(found, _made(_product(connection.dialect), records))
    tables: dict[Key, Any] = {(op.schema, op.table_name): None for op in found if isinstance(op, ops.DropTableOp)}
    tables |= {(each.schema, each.name): each for each in context.sorted_tables}
    altered = [each for op in found for each in getattr(op, "ops", ()) if isinstance(each, ops.AlterColumnOp)]
    # PostgreSQL alters no column that a trigger names.
    retyped = {(each.schema, each.table_name) for each in altered if each.modify_type is not None}
    for key, table in tables.items():
        if table is not None and not context.run_object_filters(table, table.name, "table", False, None):
            continue
        queue, new, before, features = getattr(table, "xq", None), None, None, {}
        if queue is not None:
            arguments = queue.parts.definition.arguments
            new, features = Definition(key, queue.model, arguments), arguments["features"]
            here = new.on(connection)
            with here.store.joining(connection):
                if not (key in retyped or here.missing_objects() or here.changed()):
                    continue
                if not here.missing_columns():
                    here.refuse_all(downgrade=True)
        if key in records:
            before = Definition.recorded(connection, key, records[key], features)
            before.on(connection)  # raises, if it cannot be made anew
            found.insert(0, first := before.uninstall(engines, new))  # columns that triggers name cannot be dropped
            first.undo = before.install(engines)
            if new is None and table is not None:
                util.warn(f"{table.name} is no queue any more; if it is one, import the module that says so in env.py")
        if new is not None:
            found.append(last := new.install(engines))
            last.undo = new.uninstall(engines, before)


def _records(connection: sa.Connection) -> dict[Key, str]:
    """Return the definitions of the queues that a database has, but for tubes."""
    found: dict[Key, str] = {}
    if sa.inspect(connection).has_table(QUEUES):
        for name, record in connection.exec_driver_sql(RECORDS):
            schema, _, table = name.rpartition(".")
            if not table.startswith(TUBES):
                found[schema or None, table] = record
    return found


def _made(engine: str, records: Iterable[Key]) -> Callable[[Any, str], bool]:
    """Return what tells of a table, an index or a column, by schema and name, whether installing has made it."""
    shared, longest = SHARED[engine]().tables, DIALECTS[engine].longest_name
    prefixes = [(None, TUBES), *((schema, beside(table, "", longest)) for schema, table in records)]

    def is_made(schema: Any, name: str) -> bool:
        is_shared = schema is None and name in shared
        return is_shared or any(schema == of and name.startswith(prefix) for of, prefix in prefixes)

    return is_made


def _leave_out(found: list[Any], is_made: Callable[[Any, str], bool]) -> None:
    """Remove the operations on what installing has made."""
    for op in list(found):
        if isinstance(op, ops.ModifyTableOps):
            _leave_out(op.ops, is_made)
        names = (getattr(op, name, None) for name in ("table_name", "index_name", "column_name"))
        if any(is_made(op.schema, name) for name in names if name) or getattr(op, "ops", True) == []:
            found.remove(op)


class SqliteWithQueues(SQLiteImpl):
    """SQLite, where batch_alter_table makes a table anew: with the indexes and triggers of its queue."""

    __dialect__ = "sqlite"
    _made: Mapping[str, str] = {}  # the SQL of those, by name

    def prep_table_for_batch(self, batch_impl: Any, table: sa.Table) -> None:
        super().prep_table_for_batch(batch_impl, table)
        if self.connection is not None:
            found = self.connection.exec_driver_sql(OF_TABLE, (table.name,))
            self._made = {name: sql for name, sql in found if name.startswith(beside(table.name, ""))}
        for name in self._made:
            batch_impl.indexes.pop(name, None)

    def rename_table(self, old_table_name: str, new_table_name: Any, schema: Any = None) -> None:
        super().rename_table(old_table_name, new_table_name, schema)
        made, self._made = self._made, {}
        for sql in made.values():
            self.connection.exec_driver_sql(sql, None, {"no_parameters": True})  # type: ignore[union-attr]
