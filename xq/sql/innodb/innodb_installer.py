"""Installing on MariaDB and MySQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import ClassVar

from xq.core.connections import Connections
from xq.core.errors import ConfigurationError
from xq.core.kinds import OUTCOME_UNKNOWN
from xq.drivers.packet import SEVERAL
from xq.sql.innodb.innodb_language import InnodbTerms
from xq.sql.innodb.innodb_objects import LONG, PREFIX, InnodbObjects
from xq.sql.installer.installer import VIEW
from xq.sql.installer.server import ServerInstaller
from xq.sql.shared import QUEUES

UNSEEN = 1227  # the number of the error: no right to see what is there
ALONE = "the metadata lock alone: reads and writes wait, for a moment"  # how a step changes the table
AT_BOTH_ENDS = "the metadata lock alone, for a moment at its beginning and at its end: reads and writes go on between"
MAKES_TRIGGERS = re.compile(r"GRANT (ALL PRIVILEGES|.*\bSUPER\b).* ON \*\.\*")
BAD_MODES = frozenset({"ORACLE", "EMPTY_STRING_IS_NULL"})


class InnodbInstaller(ServerInstaller):
    """Each statement that creates something is its own transaction."""

    objects_kind = InnodbObjects
    objects: InnodbObjects
    terms: InnodbTerms

    @property
    def no_table(self) -> str:
        return f"SELECT '{VIEW}' FROM information_schema.tables WHERE {self._mine} AND table_type = 'VIEW'"

    others = (
        "SELECT table_schema FROM information_schema.tables "
        f"WHERE table_name = '{QUEUES}' AND table_schema <> DATABASE() ORDER BY table_schema"
    )
    from_there = "connect to the database"

    def denied(self, store: Connections) -> str:
        ((distrusts,),) = store.execute("SELECT @@log_bin AND NOT @@log_bin_trust_function_creators")
        if distrusts and not any(MAKES_TRIGGERS.match(grant) for (grant,) in store.execute("SHOW GRANTS")):
            return (
                "the server has a binary log, and then creates no trigger for a user without the right SUPER (error "
                "1419). Have the administrator SET GLOBAL log_bin_trust_function_creators = 1, and write that into the "
                "server's configuration, or have a user with SUPER run the SQL that ddl() returns"
            )
        return ""

    def checks(self, store: Connections) -> Iterable[Sequence[str]]:
        status = self.terms.literal(self.terms.source.roles["status"].column)
        found = store.execute(
            "SELECT CONCAT('CONSTRAINT `', constraint_name, '` CHECK'), check_clause "
            "FROM information_schema.check_constraints JOIN information_schema.table_constraints "
            f"USING (constraint_schema, constraint_name{self.terms.of_check}) WHERE constraint_schema = "
            f"{self.terms.schema} AND table_name = {self.terms.literal(self.terms.source.name)} UNION ALL "
            "SELECT column_type, IF(data_type = 'enum', CONCAT('`', column_name, '` IN ', SUBSTR(column_type, 5)), "
            "CONCAT('CHAR_LENGTH(`', column_name, '`) <= ', character_maximum_length)) FROM information_schema.columns "
            f"WHERE {self._mine} AND column_name = {status} AND character_maximum_length IS NOT NULL"
        )
        return [(what, self.terms.clause(text) if " CHECK" in what else text) for what, text in found]

    def in_a_script(self, sql: str) -> Sequence[str]:
        return self.terms.in_a_script(*super().in_a_script(sql))

    def script(self, statements: Iterable[str]) -> str:
        return "".join(f"{self.terms.ended_in_a_script(sql)}\n\n" for sql in statements)

    def add_own(self, store: Connections) -> list[str]:
        return [
            self.terms.alter(self.terms.table_in_schema, f"ADD COLUMN IF NOT EXISTS {column}")
            for column in self.own.values()
        ]

    def drop_own(self, columns: Iterable[str]) -> list[str]:
        dropped = (f"DROP COLUMN IF EXISTS {self.terms.quote(column)}" for column in columns)
        return [self.terms.alter(self.terms.table_in_schema, each) for each in dropped]

    @contextmanager
    def installing(self, store: Connections) -> Iterator[None]:
        # Each statement that creates something is its own transaction, and ends the open one.
        if store.in_transaction():
            raise ConfigurationError(
                f"{self.terms.product} ends a transaction where something is installed: install outside of it"
            )
        with self.creating(store):
            there, triggers = self.existing(store), self._triggers(store)
            try:
                yield
            except Exception:
                store.execute("UNLOCK TABLES")
                # No rollback brings back what was taken down. Its triggers may belong to another definition.
                lost = there.keys() - self.existing(store).keys()
                mine = (item for item in self.objects.mine() if item.kind == "index" and item.name in lost)
                indexes = [sql for item in mine for sql in item.create]
                for sql in [*indexes, *(sql for made in sorted(triggers - self._triggers(store)) for sql in made)]:
                    store.execute(sql)
                raise

    transactional_ddl = False
    locks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "columns": (ALONE,) * 2,
        "index": (f"{AT_BOTH_ENDS}; with unique or utube writes wait", AT_BOTH_ENDS),
        "triggers": (ALONE,) * 2,
    }

    def not_online(self, store: Connections) -> str:
        if unique := self.terms.machine.single:
            column = f"the stored column of the feature {unique.name!r}"
            return f"{self.terms.product} copies the table to add {column}: call install()"
        for (what,) in store.execute(
            "SELECT 'a FULLTEXT or SPATIAL index' FROM information_schema.statistics WHERE index_type IN ('FULLTEXT', "
            f"'SPATIAL') AND {self._mine} UNION ALL SELECT 'system versioning' FROM information_schema.tables "
            f"WHERE {self._mine} AND table_type = 'SYSTEM VERSIONED'"
        ):
            return f"{self.terms.product} cannot change a table with {what} beside its writers: call install()"
        return super().not_online(store)

    @property
    def estimate(self) -> str:
        return f"SELECT table_rows FROM information_schema.tables WHERE {self._mine}"

    def online(self, sql: str) -> str:
        if SEVERAL in sql:  # MySQL itself takes the way that locks least
            return sql
        return f"{sql}{',' * sql.startswith('ALTER')} ALGORITHM=INPLACE{',' * sql.startswith('ALTER')} LOCK=NONE"

    @contextmanager
    def admitted(self, store: Connections) -> Iterator[bool]:
        name = f"CONCAT({self.terms.schema}, '.', {self.terms.literal(self.terms.source.name)})"
        lock = self.terms.lock_of("online.", name)
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
            raise ConfigurationError(f"{self.terms.product} ends a transaction where a table is dropped: do it outside")
        try:
            store.execute(f"LOCK TABLES {self.terms.table_in_schema} WRITE")
            taken = self.taken_now(store)
            if not taken:
                store.execute(
                    f"DROP TABLE {self.terms.table_in_schema}"
                )  # other tables are out of reach until the unlock
        finally:
            store.execute("UNLOCK TABLES")
        yield taken

    def _triggers(self, store: Connections) -> set[tuple[str, ...]]:
        """Return SQL that creates the table's existing triggers again."""
        table = self.terms.table_in_schema
        found = store.execute(
            "SELECT trigger_name, action_timing, event_manipulation, action_statement FROM information_schema.triggers "
            f"WHERE {self._of_mine}"
        )
        return {
            self.terms.create_trigger(
                self.terms.object(name), table, f"{when} {event} ON {table} FOR EACH ROW {action}"
            )
            for name, when, event, action in found
        }

    def unfit(self, store: Connections) -> str | None:
        found = store.execute(
            "SELECT table_schema, table_name, engine FROM information_schema.tables "
            f"WHERE {self._tables} AND engine <> 'InnoDB' ORDER BY table_name"
        )
        for schema, name, engine in found:
            return (
                f"{name} is a table of {engine}, where no row is locked for a take and nothing is rolled back: "
                f"ALTER TABLE {self.terms.quote(schema)}.{self.terms.quote(name)} ENGINE = InnoDB"
            )
        ((lowered, modes, by_statement),) = store.execute(
            "SELECT @@lower_case_table_names = 1, @@sql_mode, @@log_bin AND @@binlog_format = 'STATEMENT'"
        )
        if by_statement:
            return "binlog_format STATEMENT refuses writes at READ COMMITTED: SET GLOBAL binlog_format = MIXED, or ROW"
        for mode in BAD_MODES.intersection(modes.split(",")):
            return f"in the sql_mode {mode} xq's SQL has another meaning: connect without it, as by init_command"
        if lowered and self.terms.source.name != self.terms.source.name.lower():
            name = self.terms.source.name
            return f"the server keeps the names of tables in lower case: call {name} so in the model's Meta"
        return super().unfit(store)

    def go_on(self, n: int) -> str:
        return f"ALTER TABLE {self.terms.table_in_schema} AUTO_INCREMENT = {n + 1}"

    def existing(self, store: Connections) -> dict[str, str]:
        quoted = {field.column.lower(): self.terms.quote(field.column) for field in self.terms.source.fields}
        columns = store.execute(
            "SELECT LOWER(column_name), data_type, COALESCE(character_maximum_length, 0), row_format IN ('Compact', "
            "'Redundant') FROM information_schema.columns JOIN information_schema.tables "
            f"USING (table_schema, table_name) WHERE {self._mine}"
        )
        mine = [(quoted[name], *of) for name, *of in columns if name in quoted]
        is_long = {
            column: kind.endswith(("text", "blob")) or length > (PREFIX if is_compact else LONG)
            for column, kind, length, is_compact in mine
        }
        self.objects.columns = frozenset(column for column, kind, *_ in mine if kind == "char"), is_long
        found = store.execute(
            "SELECT table_name, IF(table_type = 'VIEW', 'view', 'table') FROM information_schema.tables "
            f"WHERE {self._tables} "
            "UNION ALL SELECT DISTINCT index_name, 'index' FROM information_schema.statistics "
            f"WHERE {self._mine} UNION ALL SELECT trigger_name, 'trigger' FROM information_schema.triggers "
            f"WHERE {self._of_mine}"
        )
        known = {name: str(kind) for name, kind in found}
        if self.terms.name("count") in known:
            triggers = [item for item in self.objects.mine() if item.kind == "trigger" and item.name not in known]
            known |= {item.name: item.kind for item in triggers if self._is_hidden(store, item.name)}
        return known

    def _is_hidden(self, store: Connections, trigger: str) -> bool:
        """Return whether there is a trigger that this user may not see, since a right is missing."""
        try:
            store.execute(f"SHOW CREATE TRIGGER {self.terms.object(trigger)}")
        except Exception as error:
            if store.classify(error) in OUTCOME_UNKNOWN:
                raise
            return f"({UNSEEN}," in str(error)
        return False  # another table has it: this one before a copy has taken its name

    @property
    def definitions(self) -> str:
        return (
            "SELECT index_name AS name, CONCAT(MIN(non_unique), GROUP_CONCAT(column_name, "
            f"COALESCE(CAST(sub_part AS CHAR), '') ORDER BY seq_in_index)) AS shown, '' AS body, '' AS here "
            f"FROM information_schema.statistics WHERE {self._mine} GROUP BY name "
            "UNION ALL SELECT trigger_name, CONCAT(action_timing, event_manipulation, TRIM(action_statement)), "
            f"TRIM(action_statement), '' FROM information_schema.triggers WHERE {self._of_mine} "
            "UNION ALL SELECT table_name, view_definition, '', '' "
            f"FROM information_schema.views WHERE table_schema = {self.terms.schema}"
        )

    @staticmethod
    def hashed(made: str, shown: str) -> str:
        return f"SHA2(CONCAT({made}, {shown}), 256)"

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        found = store.execute(
            "SELECT column_name, COALESCE(generation_expression, '') <> '' FROM information_schema.columns "
            f"WHERE table_schema = {self.terms.schema} AND table_name = {self.terms.literal(table)}"
        )
        return {name: bool(made) for name, made in found}

    @property
    def _mine(self) -> str:
        """The condition that finds the queue's table in information_schema."""
        return f"table_schema = {self.terms.schema} AND table_name = {self.terms.literal(self.terms.source.name)}"

    @property
    def _of_mine(self) -> str:
        table = self.terms.literal(self.terms.source.name)
        return f"event_object_schema = {self.terms.schema} AND event_object_table = {table}"

    @property
    def _tables(self) -> str:
        """The condition for the queue's table, its side tables, and the tables that all queues share."""
        shared = ", ".join(map(self.terms.literal, self.objects.shared_names))
        return (
            f"((table_schema = {self.terms.schema} AND (table_name = {self.terms.literal(self.terms.source.name)} "
            f"OR CAST(table_name AS BINARY) LIKE {self.like_mine})) "
            f"OR (table_schema = DATABASE() AND table_name IN ({shared})))"
        )
