"""MariaDB 10.6 and later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from xq.adapters.databases.mariadb.groups import MariadbGroups
from xq.adapters.databases.mariadb.installer import MariadbInstaller
from xq.adapters.databases.mariadb.looks import MariadbLooks
from xq.adapters.databases.mariadb.moves import MariadbMoves
from xq.adapters.databases.mariadb.objects import LONG, PREFIX, SERVER_TIME
from xq.adapters.databases.mariadb.scans import MariadbScans
from xq.adapters.databases.named import filled
from xq.adapters.databases.records import QUEUES, RATES
from xq.adapters.databases.server import Server
from xq.adapters.databases.session_connection import ALIVE, SessionSql
from xq.adapters.databases.terms import Form
from xq.core.errors import ConfigurationError, shown
from xq.core.machine import FOREVER, Machine
from xq.core.ports import BYTES, INTEGERS, TIMES, Connection, Connections, Field, Kind, Row, Run, Table, Values

EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # compared byte by byte, to the last space
EXACT_TEXT = Form("CONVERT({} USING utf8mb4) COLLATE utf8mb4_nopad_bin")
EPOCH = "TIMESTAMP'1970-01-01 00:00:00'"
CHANGED = 1020  # the number of the error: a row was changed since the transaction began to read
PUT_SINCE = "another put since this transaction began to read, and the number of tasks is limited: begin it anew"
HIGHEST = "\uffff"  # of the characters in names
LONGEST_STATEMENT = "SELECT @@max_allowed_packet"  # bytes; the server closes the connection after a longer one


class Mariadb(Server):
    """The dialect of MariaDB. It has no arrays and no partial indexes, and its collations ignore case."""

    now = f"COALESCE(:now, {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS SIGNED)"
    moments: ClassVar[Mapping[Kind, Form]] = {
        **dict.fromkeys(TIMES, Form(f"TIMESTAMPADD(MICROSECOND, ({{}}) * 1000000, {EPOCH})")),
        "datetime0": Form(f"TIMESTAMPADD(SECOND, CEIL({{}}), {EPOCH})"),
        "bigint": Form("CEIL({})"),  # rounded up, so that no task is due too early
    }
    times: ClassVar[Mapping[Kind, Form]] = dict.fromkeys(
        (*TIMES, "datetime0"), Form(f"(TIMESTAMPDIFF(MICROSECOND, {EPOCH}, {{}}) / 1e6)")
    )
    json_array = Form("JSON_ARRAY({})")
    differ = Form("NOT (BINARY {} <=> BINARY {})")
    as_text = Form("SHA2(CONVERT({} USING utf8mb4), 256)")  # a digest of text of any length
    exact_text = EXACT_TEXT
    folded = Form(f"LOWER({EXACT_TEXT})")
    ended = Form("CONCAT('-', {})")
    whole = Form("CAST({} AS SIGNED)")
    varying = Form(f"VARCHAR({{}}) {EXACT}")
    number_alone, text_alone = Form("0 + {}"), Form("CONCAT({})")
    quotes = "`"
    hint = Form(" FORCE INDEX ({})")
    forever = FOREVER  # MariaDB has no infinity
    never = f"{int(FOREVER)}e0"
    savepoints = "CREATE TEMPORARY TABLE IF NOT EXISTS xq_savepoint (number BIGINT PRIMARY KEY) ENGINE = InnoDB"
    no_limit = 2**64 - 1
    most_values = 10_000
    longest_name = 64
    groups_kind = MariadbGroups
    moves_kind = MariadbMoves
    looks_kind = MariadbLooks
    installer_kind = MariadbInstaller
    scans_kind = MariadbScans
    records_file = Path(__file__).parent / "records.sql"
    layout = "14"
    long_text = "LONGTEXT"
    dashed = Form(
        "CASE LENGTH({0}) WHEN 32 THEN CONCAT(substr({0}, 1, 8), '-', substr({0}, 9, 4), '-', substr({0}, 13, 4), "
        "'-', substr({0}, 17, 4), '-', substr({0}, 21, 12)) ELSE {0} END"
    )
    # No other engine locks rows, and few roll back. A key of 255 characters does not fit into other row formats.
    engine = " ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    turn = "puts = puts + 1"
    absent_rows = " FROM DUAL"
    afresh = Server.lock
    token_text = EXACT_TEXT
    sets_context = f"(@xq_context := CONCAT(:context, {SERVER_TIME})) IS NOT NULL"
    list_kinds: ClassVar[Mapping[str, str]] = dict.fromkeys((*INTEGERS, "text", "uuid"), "")

    # A number, or since MariaDB 12 a word. A user with the privilege READ ONLY ADMIN can write to a replica all the
    # same, which then differs from its primary: so ask.
    read_only = "CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')"
    found_tables = "SELECT DATABASE(), NULL"

    open_transactions = (
        "SELECT CONCAT('connection ', id, ' of ', user, ' from ', host), TIMESTAMPDIFF(SECOND, trx_started, NOW()), "
        "CONCAT('KILL ', id) FROM information_schema.innodb_trx JOIN information_schema.processlist "
        "ON id = trx_mysql_thread_id WHERE id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL :n SECOND "
        "ORDER BY trx_started"
    )
    session_sql = SessionSql(
        connected=(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # for xq's own tables
            # A year, the maximum. And `watch` is no slow query.
            "SET SESSION wait_timeout = 31536000, slow_query_log = 0, max_statement_time = 0",
        ),
        made=f"SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{ALIVE}'",
        number="SELECT CONNECTION_ID()",
        listen=(),
        expect="",
        tell="",
        lock="GET_LOCK(CONCAT('xq.', :lock), 0)",
        unlock="RELEASE_LOCK(CONCAT('xq.', :lock))",
        living=f"SELECT DISTINCT uuid FROM {ALIVE} WHERE IS_USED_LOCK(CONCAT('xq.', process)) IS NOT NULL",
        forget="",
        time=SERVER_TIME,
        unless_there=" ON DUPLICATE KEY UPDATE uuid = uuid",
        nowait="SET STATEMENT innodb_lock_wait_timeout = 0 FOR ",
        # The pauses grow from 1 to 20 ms. Outside of a SELECT, InnoDB would lock what it reads.
        watch="BEGIN NOT ATOMIC DECLARE xq_found BOOLEAN; DECLARE xq_pause DOUBLE DEFAULT 0.001; "
        "DECLARE xq_end DOUBLE DEFAULT @@timestamp + 5; REPEAT DO SLEEP(xq_pause); "
        "SET xq_pause = LEAST(xq_pause * 1.04, 0.02); SELECT :found INTO xq_found; "
        "UNTIL xq_found OR @@timestamp > xq_end END REPEAT; SELECT 1 FROM DUAL WHERE xq_found; END",
    )

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None:
        for name in (table.schema, table.name, *(field.column for field in table.fields)):
            if any(character > HIGHEST for character in name or ""):
                raise ConfigurationError(
                    f"MariaDB has no characters beyond U+{ord(HIGHEST):X} in the names of tables and columns: "
                    f"{shown(name)} needs another one"
                )
        super().__init__(table, machine, words, tube_stats)

    @property
    def schema(self) -> str:
        return self.literal(self.source.schema) if self.source.schema else "DATABASE()"

    def indexed(self, column: str) -> str:
        field = next((field for field in self.source.fields if self.quote(field.column) == column), None)
        long = field is not None and (field.type.upper().endswith("TEXT") or (field.max_length or 0) > LONG)
        return f"{column}({PREFIX})" if long else column

    @staticmethod
    def literal(value: Any) -> str:
        text = Server.literal(value)
        return text.replace("\\", "\\\\") if isinstance(value, str) else text

    def in_any_mode(self, text: str) -> str:
        # Whether a backslash escapes depends on the sql_mode; hexadecimal digits contain none.
        return f"_utf8mb4 X'{text.encode().hex()}'" if "\\" in text else self.literal(text)

    def bound(self, kind: Kind) -> str:
        return self.moment("datetime", self.now) if kind in self.times else self.now

    def kind(self, role: str) -> Kind:
        field = self.source.roles[role]
        return "datetime0" if field.kind == "datetime" and "(" not in field.type else field.kind

    def exactly(self, column: str, test: str, kind: Kind = "text") -> str:
        # Most collations ignore case, so compare what the index finds byte by byte.
        found = super().exactly(column, test, kind)
        return f"({found} AND {self.exact(column)} {test})" if kind == "text" else found

    by_primary = " FORCE INDEX (PRIMARY)"

    def beyond(self, columns: Sequence[str], operator: str) -> str:
        # A comparison of rows would read no range. The values before the last one are beyond only if they differ.
        *before, last = [(column, f":p{i}") for i, column in enumerate(columns)]
        found = f"{last[0]} {operator} {last[1]}"
        for column, value in reversed(before):
            found = f"({column} {operator} {value} OR ({column} = {value} AND {found}))"
        return found

    def on_conflict(self, key: str, update: str = "") -> str:
        first = key.partition(",")[0]
        return f" ON DUPLICATE KEY UPDATE {update or f'{first} = {first}'}"

    def key_in_history(self, parts: Sequence[str]) -> str:
        # In the collation of the history's column: that of the connection may not be comparable with it.
        return EXACT_TEXT(super().key_in_history(parts))

    def in_history(self, field: Field, part: str, alone: bool) -> str:
        if field.type.upper() in BYTES:
            return f"HEX({part})"
        return self.dashed(part) if field.kind == "uuid" else part

    def rows_listed(self, columns: int, wide: int) -> str:
        return ":listed" if columns == len(self.keys) else ":takes"  # becomes a placeholder for each value

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        if filled(sql, listed="", takes="") != sql:
            return lambda connection, values: self.execute(connection, sql, values)
        return super().query(sql, brought, width)

    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]:
        if "keys" in values:
            rows = [row if isinstance(row, list) else [row] for row in json.loads(values["keys"])]
            names = [[f"l{i}_{j}" for j in range(len(row))] for i, row in enumerate(rows)]
            texts = [[f":{name}" for name in row] for row in names]
            listed = ", ".join(self.tuple_of(row[: len(self.keys)]) for row in texts)
            sql = filled(sql, listed=listed, takes=", ".join(map(self.tuple_of, texts)))
            values = {**values, **dict(zip(chain(*names), chain(*rows), strict=True)), "many": len(rows)}
        return super().execute(store, sql, values)

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        if within:
            # Writes do not conflict with the snapshot here, so what this transaction reads may be old. A locking count
            # would block each connection that moves tasks.
            look = f"SELECT puts FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"
            if store.execute(f"{look}{self.lock}") != store.execute(look):
                store.execute(f"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {CHANGED}, MESSAGE_TEXT = '{PUT_SINCE}'")
        super().one_at_a_time(store, within)

    def charging(self, task: str) -> str:
        # ON DUPLICATE KEY UPDATE has no condition, so the second statement has it.
        bucket = f"(SELECT {self.bucket} FROM {self.table_in_schema} WHERE {task})"
        return (
            f"{self.adding(task, '0', f'{RATES}.full_us')}; UPDATE {RATES} SET full_us = {self.charged} "
            f"WHERE {self.my_buckets} AND bucket = {bucket} AND full_us <= {self.latest}"
        )
