"""MySQL 8.0.30 and later: what it says in another way than MariaDB. The rest is in ../innodb/."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xq.core.compile import Change, Charge, Selector, Statement
from xq.core.connections import Connection, Connections, Run
from xq.core.errors import BadValue
from xq.core.kinds import INTEGERS, ErrorKind, Row
from xq.drivers.packet import SEVERAL, statements
from xq.drivers.pymysql import AS_TRANSACTION
from xq.sql.innodb.innodb_dialect import Innodb
from xq.sql.innodb.innodb_installer import InnodbInstaller
from xq.sql.innodb.innodb_language import InnodbLanguage, InnodbShared
from xq.sql.innodb.innodb_moves import NAMES, ONE, InnodbMoves
from xq.sql.innodb.innodb_objects import InnodbObjects
from xq.sql.installer.objects import Object
from xq.sql.language import AS_IT_IS, Form
from xq.sql.shared import ALIVE
from xq.sql.sql_file import filled_in, texts

WATCH = Path(__file__).parent / "watch.sql"
SEVERAL_PRIMARIES = "SHOW VARIABLES WHERE variable_name = 'group_replication_single_primary_mode' AND value = 'OFF'"
STEP = re.compile(r"(?:DROP|ADD) (INDEX|COLUMN) IF (NOT )?EXISTS (`(?:[^`]|``)+`|\w+)")
LISTED = {"": ("tables", ""), "INDEX": ("statistics", "index_name"), "COLUMN": ("columns", "column_name")}
LITERAL = re.compile(r"`(?:[^`]|``)*`|'((?:[^']|'')*)'")
TEXT = "_utf8mb4 "
NOTHING = f"{TEXT}'DO 0'"
NAME = re.compile(r"`((?:[^`]|``)+)`")


class Hexadecimal(Form):
    """SQL with a place for a text, in hexadecimal digits."""

    def __call__(self, *texts: object) -> str:
        return super().__call__(*(str(text).encode().hex() for text in texts))


class MysqlLanguage(InnodbLanguage):
    """Several statements in one packet with variables of the session, and queries in place of RETURNING."""

    database = "mysql"
    product = "MySQL"
    misread = "`"
    assigning_is_deprecated = True
    collation = "utf8mb4_0900_bin"
    differ = Form("NOT (CAST({} AS BINARY) <=> CAST({} AS BINARY))")
    new_value = Form("VALUES({})")
    commits = (
        "SELECT variable_value FROM performance_schema.global_status "
        "WHERE variable_name = 'Innodb_redo_log_current_lsn'"
    )
    create_view = "CREATE OR REPLACE VIEW"

    status_in = "performance_schema"
    of_check = ""
    # No setting limits one statement. NOWAIT fails where another transaction has the row's key.
    unless_locked = ("", Form("SELECT 1 FROM {} WHERE {} FOR UPDATE NOWAIT; "))
    at_once = AS_IT_IS
    within_a_second = Form("{} NOWAIT")
    block = Form(f"{SEVERAL}{{}}")
    as_transaction = Form(AS_TRANSACTION["mysql"])
    variable = Form("@xq_{}")
    when = Form("{1}")  # it finds nothing by keys that are NULL
    by_level = Form("{0}")
    holders_of_locks = (
        "SELECT CONCAT('connection ', processlist_id, ' of ', processlist_user, ' from ', processlist_host), "
        "MAX(processlist_time), CONCAT('KILL ', processlist_id) FROM performance_schema.metadata_locks "
        "JOIN performance_schema.threads ON owner_thread_id = thread_id WHERE object_type = 'TABLE' "
        "AND object_schema = {schema} AND object_name = :name AND lock_status = 'GRANTED' "
        "AND lock_type IN ('EXCLUSIVE', 'SHARED_NO_READ_WRITE', 'SHARED_NO_WRITE', 'SHARED_READ_ONLY') "
        "AND processlist_id <> CONNECTION_ID() "
        "GROUP BY processlist_id, processlist_user, processlist_host ORDER BY 2 DESC LIMIT 3"
    )
    session = "SET SESSION wait_timeout = 31536000, innodb_lock_wait_timeout = 1, long_query_time = 31536000"
    watch = Hexadecimal("CALL xq_watch(_utf8mb4 X'{}')")

    def declare(self, names: Sequence[str], kind: str, value: str = "") -> str:
        return "SET " + ", ".join(f"{name} = {value or 'NULL'}" for name in names)

    def if_charged(self, charge: Charge, sql: str, back: str, keys: Sequence[str], refused: str) -> str:
        unless = ", ".join(f"{key} = IF(@xq_charged, {key}, NULL)" for key in keys)
        return (
            f"{charge.sql}; SET @xq_charged = ROW_COUNT() > 0 OR {charge.free}, @xq_there = {keys[0]} IS NOT NULL; "
            f"SET {unless}; {sql}; ({back}) UNION ALL {refused} FROM DUAL WHERE @xq_there AND NOT @xq_charged"
        )

    def returning(self, *columns: str) -> str:
        kept = "".join(f" AND ((@xq_{column} := {column}) IS NULL OR TRUE)" for column in columns)
        variables = ", ".join(f"@xq_{column}" for column in columns)
        return f"{kept}; {SEVERAL}SELECT {variables} FROM DUAL WHERE ROW_COUNT() > 0"

    def in_any_mode(self, text: str) -> str:
        literal = super().in_any_mode(text)  # two literals of which one has the collation of the connection do not mix
        return literal if literal.startswith(TEXT) else f"{TEXT}{literal}"

    def alter(self, table: str, *steps: str) -> str:
        plain = table.removeprefix("IF EXISTS ")
        made = ", ".join(self._step(table, step) for step in steps)
        altered = (
            f"CONCAT({self.in_any_mode(f'ALTER TABLE {plain} ')}, NULLIF(CONCAT_WS({TEXT}', ', {made}), {TEXT}''))"
        )
        if plain != table:
            altered = f"IF({self._is_there(table)}, {altered}, NULL)"
        return self._prepared(f"COALESCE({altered}, {NOTHING})")

    def _step(self, table: str, step: str) -> str:
        if not (found := STEP.match(step)):
            return self.in_any_mode(step)
        kind, absent, name = found.groups()
        condition = "NOT " * bool(absent) + self._is_there(table, kind, name)
        plain = step.replace(f" IF {absent or ''}EXISTS", "", 1)
        return f"IF({condition}, {self.in_any_mode(plain)}, NULL)"

    def _is_there(self, table: str, kind: str = "", name: str = "") -> str:
        """Return the condition that a table, or its index or column of a name, is there. Both are quoted."""
        where, column = LISTED[kind]
        *schema, named = (self.in_any_mode(each.replace("``", "`")) for each in NAME.findall(table))
        mine = f"table_schema = {schema[0] if schema else 'DATABASE()'} AND table_name = {named}"
        mine += f" AND {column} = {self.in_any_mode(name.strip('`').replace('``', '`'))}" * bool(column)
        return f"EXISTS(SELECT 1 FROM information_schema.{where} WHERE {mine})"

    def _prepared(self, text: str) -> str:
        """Return SQL that runs a text: what depends on what is there has no other way."""
        return self.block(
            f"SET @xq_sql = {text}; PREPARE xq_sql FROM @xq_sql; EXECUTE xq_sql; DEALLOCATE PREPARE xq_sql"
        )

    def create_index(self, name: str, table: str, listed: str) -> str:
        made = self.in_any_mode(f"CREATE INDEX {name} ON {table} ({listed})")
        return self._prepared(f"IF({self._is_there(table, 'INDEX', name)}, {NOTHING}, {made})")

    def create_trigger(self, name: str, table: str, rest: str) -> tuple[str, ...]:
        replaced = f"DROP TRIGGER IF EXISTS {name}", f"CREATE TRIGGER {name} {rest}"
        return f"LOCK TABLES {table} WRITE", *replaced, "UNLOCK TABLES"

    def clause(self, shown: str) -> str:
        return re.sub(r"\\(.)", r"\1", shown)

    def in_a_script(self, sql: str) -> Sequence[str]:
        return statements(sql) if SEVERAL in sql else [sql]

    def ended_in_a_script(self, sql: str) -> str:
        return f"DELIMITER ;;\n{sql};;\nDELIMITER ;" if ";" in sql else f"{sql};"


class MysqlShared(MysqlLanguage, InnodbShared):
    """The SQL for what the queues in a MySQL database share."""


class MysqlObjects(InnodbObjects):
    """There is a procedure as well: what looks again and again, as MySQL has no blocks."""

    def body(self, kind: str, name: str, create: str = "") -> str:
        # information_schema shows a literal's value between quotes.
        shown = super().body(kind, name, create)
        return LITERAL.sub(lambda it: it[0] if it[1] is None else f"'{it[1].replace(chr(39) * 2, chr(39))}'", shown)

    def shared(self) -> list[Object]:
        watch = filled_in(texts(WATCH)["watch"], (), {})
        dropped = self.terms.block("{}; DROP PROCEDURE IF EXISTS xq_watch")
        return [
            replace(each, create=(*each.create, watch), drop=dropped.format(each.drop)) if each.name == ALIVE else each
            for each in super().shared()
        ]


class MysqlInstaller(InnodbInstaller):
    """Creates the procedure as well."""

    objects_kind = MysqlObjects

    def denied(self, store: Connections) -> str:
        if store.execute(SEVERAL_PRIMARIES):
            return (
                "its group replication has several primaries, none of which sees the locks of another one: set "
                "group_replication_single_primary_mode = ON"
            )
        return super().denied(store)


class MysqlMoves(InnodbMoves):
    """A statement that writes rows returns none: a query in the same packet reads them."""

    def returned(self, sql: str, columns: str) -> str:
        return sql

    def insert(self, change: Change, names: Sequence[str], count: int, guarded: bool = True) -> Statement:
        made, terms = super().insert(change, names, count, guarded), self.terms
        found = f"SELECT {terms.columns} FROM {terms.table_in_schema} WHERE {self._put(names, count)}"
        if self._may_be_counted and terms.source.key[0].name in names:
            # Only where the database makes keys, and by default, it makes one of 0.
            found = f"SELECT COUNT(*) FROM {terms.table_in_schema} WHERE {terms.key} = 0 INTO @xq_zero; {found}"
        return replace(made, sql=terms.block(f"{made.sql}; {found}"))

    @property
    def _may_be_counted(self) -> bool:
        return len(self.terms.source.key) == 1 and self.terms.source.key[0].kind in INTEGERS

    def _put(self, names: Sequence[str], count: int) -> str:
        """Return the condition, and the order, that finds the rows which an INSERT has just put."""
        terms, key = self.terms, self.terms.source.key
        if any(field.name not in names for field in key):
            if count == 1:
                return f"{terms.key} = LAST_INSERT_ID()"
            last = f"LAST_INSERT_ID() + {count} * @@auto_increment_increment"
            return f"{terms.key} >= LAST_INSERT_ID() AND {terms.key} < {last} ORDER BY {terms.key}"
        rows = [[f":{terms.parameters[field.name]}_{i}" for field in key] for i in range(count)]
        if self._may_be_counted:  # a fraction is rounded
            rows = [[f"IF({row} + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST({row} AS SIGNED))"] for (row,) in rows]
        if count == 1:
            return " AND ".join(map(" = ".join, zip(terms.keys, rows[0], strict=True)))
        each = [" AND ".join(map(" = ".join, zip(terms.keys, row, strict=True))) for row in rows]
        cases = " ".join(f"WHEN {same} THEN {i}" for i, same in enumerate(each))
        return f"{terms.key} IN ({', '.join(map(terms.tuple_of, rows))}) ORDER BY CASE {cases} END"

    def delete(self, rows: Selector, change: Change) -> Statement:
        if rows.mode not in ("key", "keys"):
            return super().delete(rows, change)
        if rows.unread:
            deleted, terms = super().delete(rows._replace(briefly=False), change), self.terms
            same = " AND ".join(f"{key} = xq_c{i}" for i, key in enumerate(self._keys_of_table))
            found = self._locked(rows, ", ".join(f"{key} AS xq_c{i}" for i, key in enumerate(terms.keys)))
            sql = f"DELETE {terms.table} FROM ({found}) AS xq_c JOIN {terms.table_in_schema} ON {same}"
            return replace(deleted, sql=f"{sql} WHERE {terms.sets_context}") if rows.briefly else deleted
        deleted = super().delete(rows._replace(briefly=False), change)
        locked = self._locked(rows, ", ".join(self.last(change)))
        return replace(deleted, sql=self.terms.block(f"{locked}; {deleted.sql}"))

    def _locks(self, rows: Selector, columns: str) -> dict[str, str]:
        found = super()._locks(rows, columns)
        if "among" in found and rows.mode in ONE:
            # Joined by key: `id = @a OR id = @b ORDER BY id LIMIT 1` reads the key in order, and waits for locked rows.
            (mine, other), terms, keys = map(self._variables, NAMES), self.terms, self._keys_of_table
            named = ", ".join(f"{variable} AS p{i}" for i, variable in enumerate(mine))
            both = f"SELECT {named} UNION ALL SELECT {', '.join(other)}"
            on = " AND ".join(f"{key} = xq_i.p{i}" for i, key in enumerate(keys))
            found["among"] = (
                f"SELECT {', '.join(keys)} INTO {', '.join(mine)} FROM ({both}) AS xq_i STRAIGHT_JOIN "
                f"{terms.table_in_schema}{terms.by_primary} ON {on} ORDER BY "
                f"{terms.order_by(terms.ordered, f'{terms.table}.')} LIMIT 1 FOR UPDATE OF {terms.table}"
            )
        return found

    def run_one(self, statement: Statement, width: int) -> Run:
        if SEVERAL not in statement.sql:
            return super().run_one(statement, width)
        within, alone = (
            self.terms.query(sql, statement.names, width)
            for sql in (statement.sql, self.terms.as_transaction(statement.sql))
        )

        key = f"{self.terms.parameters[self.terms.source.key[0].name]}_0"
        at = statement.names.index(key) if key in statement.names and self._may_be_counted else None

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if at is not None and sum(row[at] == 0 for row in values["rows"]) > 1:
                raise BadValue("several tasks have the key 0, of which MySQL may make numbers: leave the keys out")
            return (alone if connection.begins else within)(connection, values)

        return run


class Mysql(MysqlLanguage, Innodb):
    """MySQL's dialect."""

    shared_kind = MysqlShared
    moves_kind = MysqlMoves
    installer_kind = MysqlInstaller

    def locked(self, store: Connections) -> bool:
        patience = "SET @xq_patience = @@lock_wait_timeout, SESSION lock_wait_timeout = 1"
        restored = "SET SESSION lock_wait_timeout = @xq_patience"
        with store.on_one_connection():
            try:
                probe = f"SELECT 1 FROM {self.table_in_schema} LIMIT 0 FOR UPDATE"
                store.execute(self.block(f"{patience}; {probe}; {restored}"))
            except Exception as error:
                store.execute(restored)
                return store.classify(error) is ErrorKind.LOCKED
        return False
