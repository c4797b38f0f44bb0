"""The objects that installing a queue creates on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import ClassVar

from xq.adapters.databases.groups import GroupChange, Groups
from xq.adapters.databases.mariadb.groups import MariadbGroups
from xq.adapters.databases.objects import Object
from xq.adapters.databases.server import Server
from xq.core.errors import ConfigurationError
from xq.core.machine import ELSEWHERE
from xq.core.ports import LONGEST_REASON, PART, UNANSWERED, Connections
from xq.sessions.session import UUID_LENGTH

TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))
SERVER_TIME = "(@@timestamp * 1e0)"  # seconds since 1970 when the statement began, whatever the time zone
UNSEEN = 1227  # the number of the error: no right to see what is there
DIGEST = "CHAR(64) CHARACTER SET ascii"  # the type of one
PREFIX = 191  # characters of a long text that an index holds
ALONE = "the metadata lock alone: reads and writes wait, for a moment"  # how a step changes the table
AT_BOTH_ENDS = "the metadata lock alone, for a moment at its beginning and at its end: reads and writes go on between"
BAD_MODES = frozenset({"ORACLE", "EMPTY_STRING_IS_NULL"})
LONG = 255  # characters, beyond which an index of several columns cannot be sure to hold the whole


def part(n: int | str) -> str:
    """Return SQL of a part of the event context."""
    context = "CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"
    return f"SUBSTRING_INDEX(SUBSTRING_INDEX({context}, '{PART}', {n}), '{PART}', -1)"


class MariadbObjects(Server):
    """There are no partial indexes, and each statement that creates something is a transaction of its own."""

    groups: MariadbGroups | None

    @staticmethod
    def digest(value: str) -> str:
        """Return SQL of a digest of text of any length. Texts compare byte by byte."""
        return f"SHA2(CONVERT({value} USING utf8mb4), 256)"

    # installing

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        # Each statement that creates something is a transaction of its own, and ends the one that is open.
        if store.in_transaction():
            raise ConfigurationError("MariaDB ends a transaction where something is installed: install outside of it")
        with self.creating(store):
            there, triggers = self.existing(store), self._triggers(store)
            try:
                yield
            except Exception:
                # No rollback brings back what was taken down. Its triggers may be those of another definition.
                lost = there.keys() - self.existing(store).keys()
                indexes = [
                    sql for item in self.objects() if item.kind == "index" and item.name in lost for sql in item.create
                ]
                for sql in [*indexes, *sorted(triggers - self._triggers(store))]:
                    store.execute(sql)
                raise

    @contextmanager
    def creating(self, store: Connections) -> Iterator[None]:
        locks = [f"CONCAT('xq.', {self.literal(schema)})" for schema in self.installed_in(store)]
        try:
            ((locked,),) = store.execute(f"SELECT {' AND '.join(f'GET_LOCK({lock}, 60)' for lock in locks)}")
            if not locked:
                raise ConfigurationError("another process has been installing for a minute: try again")
            yield
        finally:
            store.execute(f"SELECT {', '.join(f'RELEASE_LOCK({lock})' for lock in locks)}")

    transactional_ddl = False
    locks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "columns": (ALONE,) * 2,
        "index": (f"{AT_BOTH_ENDS}; with unique or utube writes wait", AT_BOTH_ENDS),
        "triggers": (ALONE,) * 2,
    }

    def not_online(self, store: Connections) -> str:
        if self.machine.guard("unique"):
            return "MariaDB copies the table to add the stored column of the feature 'unique': call install()"
        for (what,) in store.execute(
            "SELECT 'a FULLTEXT or SPATIAL index' FROM information_schema.statistics WHERE index_type IN ('FULLTEXT', "
            f"'SPATIAL') AND table_schema = {self._schema} AND table_name = {self.literal(self.source.name)} "
            f"UNION ALL SELECT 'system versioning' FROM information_schema.tables WHERE table_schema = {self._schema} "
            f"AND table_name = {self.literal(self.source.name)} AND table_type = 'SYSTEM VERSIONED'"
        ):
            return f"MariaDB cannot change a table with {what} beside its writers: call install()"
        return super().not_online(store)

    @property
    def estimate(self) -> str:
        return (
            f"SELECT table_rows FROM information_schema.tables WHERE table_schema = {self._schema} "
            f"AND table_name = {self.literal(self.source.name)}"
        )

    @property
    def in_the_way(self) -> str:  # type: ignore[override]
        return self.open_transactions

    def online(self, sql: str) -> str:
        return f"{sql}{',' * sql.startswith('ALTER')} ALGORITHM=INPLACE{',' * sql.startswith('ALTER')} LOCK=NONE"

    @contextmanager
    def admitted(self, store: Connections) -> Iterator[bool]:
        lock = f"CONCAT('xq.online.', MD5(CONCAT({self._schema}, '.', {self.literal(self.source.name)})))"
        ((admitted,),) = store.execute(f"SELECT GET_LOCK({lock}, 0)")
        try:
            yield bool(admitted)
        finally:
            if admitted:
                store.execute(f"SELECT RELEASE_LOCK({lock})")

    @contextmanager
    def briefly(self, store: Connections, seconds: float, kind: str) -> Iterator[None]:
        with self.creating(store):
            store.execute(f"SET SESSION lock_wait_timeout = {ceil(seconds)}")
            try:
                yield
            finally:
                store.execute("SET SESSION lock_wait_timeout = DEFAULT")

    @contextmanager
    def closing(self, store: Connections) -> Iterator[int]:
        if store.in_transaction():
            raise ConfigurationError("MariaDB ends a transaction where a table is dropped: do it outside of it")
        try:
            store.execute(f"LOCK TABLES {self.table_in_schema} WRITE")
            taken = self.taken_now(store)
            if not taken:
                store.execute(f"DROP TABLE {self.table_in_schema}")  # other tables are out of reach until the unlock
        finally:
            store.execute("UNLOCK TABLES")
        yield taken

    def _triggers(self, store: Connections) -> set[str]:
        """Return SQL that creates the existing triggers of the table again."""
        found = store.execute(
            "SELECT trigger_name, action_timing, event_manipulation, action_statement FROM information_schema.triggers "
            f"WHERE event_object_schema = {self._schema} AND event_object_table = {self.literal(self.source.name)}"
        )
        return {
            f"CREATE OR REPLACE TRIGGER {self.object(name)} {timing} {event} ON {self.table_in_schema} "
            f"FOR EACH ROW {action}"
            for name, timing, event, action in found
        }

    # what is there

    def unfit(self, store: Connections) -> str | None:
        found = store.execute(
            "SELECT table_schema, table_name, engine FROM information_schema.tables "
            f"WHERE {self._tables} AND engine <> 'InnoDB' ORDER BY table_name"
        )
        for schema, name, engine in found:
            return (
                f"{name} is a table of {engine}, where no row is locked for a take and nothing is rolled back: "
                f"ALTER TABLE {self.quote(schema)}.{self.quote(name)} ENGINE = InnoDB"
            )
        ((lowered, modes),) = store.execute("SELECT @@lower_case_table_names = 1, @@sql_mode")
        for mode in BAD_MODES.intersection(modes.split(",")):
            return f"in the sql_mode {mode} xq's SQL has another meaning: connect without it, as by init_command"
        if lowered and self.source.name != self.source.name.lower():
            return f"the server keeps the names of tables in lower case: call {self.source.name} so in the model's Meta"
        return super().unfit(store)

    def existing(self, store: Connections) -> dict[str, str]:
        table = self.literal(self.source.name)
        found = store.execute(
            f"SELECT table_name, 'table' FROM information_schema.tables WHERE {self._tables} "
            "UNION ALL SELECT DISTINCT index_name, 'index' FROM information_schema.statistics "
            f"WHERE table_schema = {self._schema} AND table_name = {table} "
            "UNION ALL SELECT trigger_name, 'trigger' FROM information_schema.triggers "
            f"WHERE event_object_schema = {self._schema} AND event_object_table = {table}"
        )
        known = {name: str(kind) for name, kind in found}
        if self.name("count") in known:
            triggers = [item for item in self.triggers() if item.name not in known]
            known |= {item.name: item.kind for item in triggers if self._is_hidden(store, item.name)}
        return known

    def _is_hidden(self, store: Connections, trigger: str) -> bool:
        """Return whether there is a trigger that this user may not see, for lack of a right."""
        try:
            store.execute(f"SHOW CREATE TRIGGER {self.object(trigger)}")
        except Exception as error:
            if store.classify(error) in UNANSWERED:
                raise
            return f"({UNSEEN}," in str(error)
        return True

    @property
    def definitions(self) -> str:
        table = self.literal(self.source.name)
        added = [self.literal(self.name(each)) for each in ("unique", "utube")]  # with the column that they are of
        return (
            "SELECT index_name, CONCAT(IF(MIN(non_unique), '', 'UNIQUE '), 'INDEX ', index_name, "
            f"IF(index_name IN ({', '.join(added)}), '', {self.literal(f' ON {self.table_in_schema}')}), "
            "GROUP_CONCAT(column_name, COALESCE(sub_part, '') ORDER BY seq_in_index)) "
            "FROM information_schema.statistics "
            f"WHERE table_schema = {self._schema} AND table_name = {table} GROUP BY index_name "
            "UNION ALL SELECT trigger_name, action_statement FROM information_schema.triggers "
            f"WHERE event_object_schema = {self._schema} AND event_object_table = {table}"
        )

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        found = store.execute(
            "SELECT column_name, generation_expression IS NOT NULL FROM information_schema.columns "
            f"WHERE table_schema = {self._schema} AND table_name = {self.literal(table)}"
        )
        return {name: bool(made) for name, made in found}

    @property
    def _schema(self) -> str:
        return self.literal(self.source.schema) if self.source.schema else "DATABASE()"

    @property
    def _tables(self) -> str:
        """Return the condition of the queue's table, its side tables, and the tables that all queues share."""
        shared = ", ".join(self.literal(item.name) for item in self.shared())
        return (
            f"((table_schema = {self._schema} AND (table_name = {self.literal(self.source.name)} "
            f"OR BINARY table_name LIKE {self.like_mine})) OR (table_schema = DATABASE() AND table_name IN ({shared})))"
        )

    # tables and indexes

    tables_file = TABLES

    def heads_values(self, utubes: Groups) -> dict[str, str]:
        pairs = zip(utubes.columns, self.ordered, strict=True)
        return {
            "ordered_as_columns": ", ".join(f"{self.table}.{mine} AS {column}" for column, mine in pairs),
            "nulls": ", ".join(["NULL"] * len(utubes.columns)),
            "open": self.groups.opened if self.groups else "",
        }

    def names_beside(self, suffix: str) -> dict[str, str]:
        return self._types

    @property
    def _types(self) -> dict[str, str]:
        lengths = {"letter": 1, "text": 255, "token": 64, "uuid": UUID_LENGTH, "reason": LONGEST_REASON}
        return {name: self.varying(length) for name, length in lengths.items()} | {"digest": DIGEST}

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        name, table = self.name(suffix), self.table_in_schema
        leading = self.roles["status"]
        listed = columns if columns.startswith(leading) else f"{leading}, {columns}"
        short = ", ".join(self._short(column) for column in listed.split(", "))
        if suffix == "utube" and self.groups:
            made = self.digest(self.roles["utube"])
            return self.made("index", suffix, self.stored(table, self.groups.column, DIGEST, made, name, short))
        if unique:
            # There are no partial indexes: a column that is NULL outside the states that count is in their place. It
            # holds a digest: a text may be too long for an index, and compares as loosely as its collation does.
            held = self.quote(self.name("held"))
            made = f"CASE WHEN {condition} THEN {self.digest(columns)} END"
            return self.made("index", suffix, self.stored(table, held, DIGEST, made, name, held, "UNIQUE "))
        return self.made("index", suffix, f"CREATE INDEX IF NOT EXISTS {self.quote(name)} ON {table} ({short})")

    def _short(self, column: str) -> str:
        """Return a column of an index, or the prefix of it that an index can hold."""
        field = next((field for field in self.source.fields if self.quote(field.column) == column), None)
        long = field is not None and (field.type.upper().endswith("TEXT") or (field.max_length or 0) > LONG)
        return f"{column}({PREFIX})" if long else column

    def stored(self, table: str, column: str, kind: str, made: str, index: str, listed: str, unique: str = "") -> str:
        """Return SQL that adds a stored computed column and an index of `listed`."""
        values = {
            "table": table,
            "column": column,
            "type": kind,
            "expression": made,
            "unique": unique,
            "index": self.quote(index),
            "listed": listed,
        }
        return self.filled_in(TABLES, "stored_column", values).rstrip(";")

    def drop(self, kind: str, name: str) -> str:
        if kind != "index":
            return super().drop(kind, name)
        # With the column it is of, also that of a definition which is no longer this one.
        column = {self.name("unique"): "held", self.name("utube"): "turn"}.get(name)
        dropped = f"DROP INDEX IF EXISTS {self.quote(name)}"
        if column:
            dropped += f", DROP COLUMN IF EXISTS {self.quote(self.name(column))}"
        return f"ALTER TABLE IF EXISTS {self.table_in_schema} {dropped}"

    # triggers

    def triggers(self) -> list[Object]:
        return [self._trigger(event) for event in ("insert", "update", "delete")]

    def _trigger(self, event: str) -> Object:
        known = {**self._in_triggers, "name": self.side(event)}
        if utubes := self.groups:
            known["groups"] = " ".join(map(self._group_changed, utubes.changes_of(event)))
        return self.made("trigger", event, self.filled_in(TRIGGERS, event, known))

    @property
    def _in_triggers(self) -> dict[str, str]:
        """Returns what the triggers' texts name, as SQL."""
        status = self.roles["status"]
        at = f"IF({self._ours} AND {part(5)} <> '', {part(5)} * 1e0, {SERVER_TIME})"
        known = {
            **self.names_beside(""),
            "table": self.table_in_schema,
            **{name: self.side(name) for name in ("count", "wait", "history")},
            "pending": ", ".join(f"'{state}'" for state in self.machine.pending),
            "other_status": self.differ(f"OLD.{status}", f"NEW.{status}"),
            "other_key": self.moved_key,
            "its_wait": self.same_wait("", "OLD"),
            "event": self.event,
            "at": f"ROUND({at} * 1000000)",
            "noted": self.noted,
            "by_actor": f"NULLIF({part(3)}, '')",
            "by_reason": f"NULLIF({part(4)}, '')",
            **self.of_version("OLD", "old", "was"),
            **self.of_version("NEW", "new", "is"),
        }
        if self.tube_stats:
            tube = self.roles["tube"]
            known |= {"other_tube": self.differ(f"OLD.{tube}", f"NEW.{tube}"), "elsewhere": ELSEWHERE}
        return known

    def _group_changed(self, change: GroupChange) -> str:
        """Return what a trigger does for one effect of a change on a group."""
        assert self.groups
        known = {
            "when": f"({change.when})",
            "taken": change.taken,
            "utube": change.utube,
            "dirties": self.groups.dirties(change.taken),
            "heads": self.groups.heads,
            "adding": self.groups.adding,
            "dirty_groups": self.groups.dirty_groups,
            "me": self.groups.me,
        }
        return self.filled_in(TRIGGERS, "group_changed", known)

    @property
    def _ours(self) -> str:
        """Return the condition that the event context is of this statement and this queue."""
        return f"{part(2)} = {self.literal(self.source_name)} AND {part(6)} = CAST({SERVER_TIME} AS CHAR)"

    @property
    def event(self) -> str:
        return f"IF({self._ours}, {part(1)}, 'write')"
