"""MariaDB 10.6 and later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

from xq.adapters.databases.mariadb.groups import MariadbGroups
from xq.adapters.databases.mariadb.installer import OPEN_TRANSACTIONS, MariadbInstaller
from xq.adapters.databases.mariadb.looks import MariadbLooks
from xq.adapters.databases.mariadb.objects import SERVER_TIME
from xq.adapters.databases.mariadb.scans import MariadbScans
from xq.adapters.databases.named import filled
from xq.adapters.databases.records import QUEUES, RATES
from xq.adapters.databases.server import Server
from xq.adapters.databases.session_connection import ALIVE, SessionSql
from xq.adapters.drivers.mariadb import as_transaction
from xq.adapters.stores import Connection as OpenConnection
from xq.core.compile import Change, Selector, Statement
from xq.core.errors import ConfigurationError, shown
from xq.core.machine import FOREVER, Guard, Machine
from xq.core.ports import BYTES, INTEGERS, PART, TIMES, Connection, Connections, Field, Kind, Row, Run, Table, Values

EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # compared byte by byte, to the last space
EXACTLY = "COLLATE utf8mb4_nopad_bin"  # the collation alone
EPOCH = "TIMESTAMP'1970-01-01 00:00:00'"
TIMED = f"CONCAT(SUBSTRING_INDEX(:context, '{PART}', 4), '{PART}', xq_now, '{PART}')"  # the context at that time
CHANGED = 1020  # the number of the error: a row was changed since the transaction began to read
PUT_SINCE = "another put since this transaction began to read, and the number of tasks is limited: begin it anew"
HIGHEST = "\uffff"  # of the characters in names
PER_CHANGE = 999  # rows that one statement changes by key: given 1,000 keys, MariaDB reads and locks the whole table
ONE: Final = frozenset({"key", "first"})  # the ways to select one row
NAMES: Final = ("k", "other")  # of the variables of a block: for the key of a row, and for that of others
LONGEST_STATEMENT = "SELECT @@max_allowed_packet"  # bytes; the server closes the connection after a longer one

PREFIX = 191  # characters of a long text that an index holds
LONG = 255  # characters, beyond which an index of several columns cannot be sure to hold the whole


class Mariadb(Server):
    """The dialect of MariaDB. UPDATE has no RETURNING, so it locks rows by SELECT, updates by key, and reads again.

    One block does so for one row: variables hold its key. Several rows come to the client, which names their keys.
    """

    now = f"COALESCE(:now, {SERVER_TIME})"
    now_us = f"CAST(ROUND({now} * 1000000) AS SIGNED)"
    forever = FOREVER  # MariaDB has no infinity
    never = f"{int(FOREVER)}e0"
    savepoints = "CREATE TEMPORARY TABLE IF NOT EXISTS xq_savepoint (number BIGINT PRIMARY KEY) ENGINE = InnoDB"
    no_limit = 2**64 - 1
    most_values = 10_000
    longest_name = 64
    groups_kind = MariadbGroups
    looks_kind = MariadbLooks
    installer_kind = MariadbInstaller
    groups: MariadbGroups | None
    scans_kind = MariadbScans
    records_file = Path(__file__).parent / "records.sql"
    layout = "12"  # 5, of xq 0.1, had indexes of virtual columns
    long_text = "LONGTEXT"
    dashed = (
        "CASE LENGTH({0}) WHEN 32 THEN CONCAT(substr({0}, 1, 8), '-', substr({0}, 9, 4), '-', substr({0}, 13, 4), "
        "'-', substr({0}, 17, 4), '-', substr({0}, 21, 12)) ELSE {0} END"
    )
    engine = " ENGINE = InnoDB"  # no other engine locks rows, and few roll back
    turn = "puts = puts + 1"
    absent_rows = " FROM DUAL"
    afresh = Server.lock
    sets_context = f"(@xq_context := CONCAT(:context, {SERVER_TIME})) IS NOT NULL"
    list_kinds: ClassVar[Mapping[str, str]] = dict.fromkeys((*INTEGERS, "text", "uuid"), "")

    # A number, or since MariaDB 12 a word. A user with the privilege READ ONLY ADMIN can write to a replica all the
    # same, which then differs from its primary: so ask.
    read_only = "CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')"
    found_tables = "SELECT DATABASE()"

    open_transactions = OPEN_TRANSACTIONS
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

    @cached_property
    def may_pass_by(self) -> bool:
        # A take that leaves out tubes locks their rows for a moment, until it has read the tube.
        return self.has_dirty_groups or "tube" in self.roles

    @staticmethod
    def digest(value: str) -> str:
        """Return SQL of a digest of text of any length. Texts compare byte by byte."""
        return f"SHA2(CONVERT({value} USING utf8mb4), 256)"

    @property
    def schema(self) -> str:
        return self.literal(self.source.schema) if self.source.schema else "DATABASE()"

    def prefixed(self, column: str) -> str:
        """Return a column of an index, or the prefix of it that an index can hold."""
        field = next((field for field in self.source.fields if self.quote(field.column) == column), None)
        long = field is not None and (field.type.upper().endswith("TEXT") or (field.max_length or 0) > LONG)
        return f"{column}({PREFIX})" if long else column

    @staticmethod
    def quote(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    @staticmethod
    def literal(value: Any) -> str:
        text = Server.literal(value)
        return text.replace("\\", "\\\\") if isinstance(value, str) else text

    def in_any_mode(self, text: str) -> str:
        # Whether a backslash escapes depends on the sql_mode; hexadecimal digits contain none.
        return f"_utf8mb4 X'{text.encode().hex()}'" if "\\" in text else self.literal(text)

    def varying(self, length: int) -> str:
        return f"VARCHAR({length}) {EXACT}"

    def whole(self, number: str) -> str:
        return f"CAST({number} AS SIGNED)"

    def moment(self, kind: Kind, seconds: str) -> str:
        if kind in TIMES:
            return f"TIMESTAMPADD(MICROSECOND, ({seconds}) * 1000000, {EPOCH})"
        if kind == "datetime0":
            return f"TIMESTAMPADD(SECOND, CEIL({seconds}), {EPOCH})"
        if kind == "bigint":
            return f"CEIL({seconds})"  # rounded up, so that no task is due too early
        return seconds

    def seconds(self, kind: Kind, column: str) -> str:
        if kind in (*TIMES, "datetime0"):
            return f"(TIMESTAMPDIFF(MICROSECOND, {EPOCH}, {column}) / 1e6)"
        return column

    def bound(self, kind: Kind) -> str:
        return self.moment("datetime", self.now) if kind in (*TIMES, "datetime0") else self.now

    def kind(self, role: str) -> Kind:
        field = self.source.roles[role]
        return "datetime0" if field.kind == "datetime" and "(" not in field.type else field.kind

    def exact(self, column: str, kind: Kind = "text") -> str:
        return f"CONVERT({column} USING utf8mb4) {EXACTLY}" if kind == "text" else column

    def as_text(self, column: str) -> str:
        return self.digest(column)

    def exactly(self, column: str, test: str, kind: Kind = "text") -> str:
        # Most collations ignore case, so compare what the index finds byte by byte.
        found = super().exactly(column, test, kind)
        return f"({found} AND {self.exact(column)} {test})" if kind == "text" else found

    def not_by_index(self, column: str) -> str:
        return f"CONCAT({column})" if self.source.roles["status"].kind == "text" else f"0 + {column}"

    by_primary = " FORCE INDEX (PRIMARY)"

    def _orders(self, columns: Sequence[str]) -> bool:
        return all(self.prefixed(column) == column for column in columns)

    def beyond(self, columns: Sequence[str], operator: str) -> str:
        # A comparison of rows would read no range. The values before the last one are beyond only if they differ.
        *before, last = [(column, f":p{i}") for i, column in enumerate(columns)]
        found = f"{last[0]} {operator} {last[1]}"
        for column, value in reversed(before):
            found = f"({column} {operator} {value} OR ({column} = {value} AND {found}))"
        return found

    def folded(self, text: str) -> str:
        return f"LOWER({self.exact(text)})"

    def differ(self, one: str, other: str) -> str:
        return f"NOT (BINARY {one} <=> BINARY {other})"

    def on_conflict(self, key: str, update: str = "") -> str:
        first = key.partition(",")[0]
        return f" ON DUPLICATE KEY UPDATE {update or f'{first} = {first}'}"

    def by_index(self, name: str) -> str:
        return f" FORCE INDEX ({self.quote(name)})"

    def key_in_history(self, parts: Sequence[str]) -> str:
        stored = [self._in_history(field, part) for field, part in zip(self.source.key, parts, strict=True)]
        # In the collation of the history's column: that of the connection may not be comparable with it.
        return self.exact(stored[0] if len(stored) == 1 else f"JSON_ARRAY({', '.join(stored)})")

    def _in_history(self, field: Field, part: str) -> str:
        if field.type.upper() in BYTES:
            return f"HEX({part})"
        return self.dashed.format(part) if field.kind == "uuid" else part

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

    def _of_states(self, rows: Selector) -> str:
        # Not by an index of states: it would miss tasks that move meanwhile to an already read state.
        return f"{self.table_in_schema}{self.by_primary * bool(rows.more)}"

    def _locked(self, rows: Selector, columns: str) -> str:
        """Return a query that locks the rows and returns them unchanged."""
        if rows.way in ("all", "each"):
            return f"SELECT {columns} FROM {self._of_states(rows)} WHERE {self.where(rows)}{self.lock}"
        if rows.way not in ("key", "keys"):
            return self.select(columns, rows)
        # By the key: by the index of states MariaDB would also lock the tasks that others have taken.
        of = f"{self.table_in_schema}{self.by_primary}"
        return f"SELECT {columns} FROM {of} WHERE {self.named(rows)}{self.fence(rows)}{self.lock}"

    def _locks(self, rows: Selector, columns: str) -> dict[str, str]:
        one, utubes = rows.way in ONE, self.heads_for(rows)
        into, into_other = (f" INTO {', '.join(self._variables(name))}" * one for name in NAMES)
        found = {"lock": self._locked(rows, f"{columns}{into}")}
        _, *others = utubes.candidates([f"{columns}{into_other}"], rows) if utubes else [""]
        for query in others:
            found["others"] = f"{query}{self.skip}"
            # A locking read: a plain one might read an old snapshot, without these rows.
            either = " OR ".join(map(self._is_row, NAMES)) if one else ":chosen"
            found["among"] = (
                f"SELECT {', '.join(self.keys)}{into} FROM {self.table_in_schema}{self.by_primary} WHERE {either} "
                f"ORDER BY {self.order} LIMIT {self.limit(rows)}{self.lock}"
            )
        return found

    def _variables(self, name: str) -> list[str]:
        return [f"xq_{name}{i}" for i in range(len(self.keys))]

    def _is_row(self, name: str) -> str:
        """Return the condition of the row of the key in these variables. It finds none, at once, if they are NULL."""
        return " AND ".join(f"{key} = {it}" for key, it in zip(self.keys, self._variables(name), strict=True))

    def listing(self, rows: Selector) -> str:
        return self._locked(rows, ", ".join(self._keys_of_table))

    def update(self, rows: Selector, change: Change) -> Statement:
        table, names = self.table_in_schema, self.brings(change)
        if rows.way == "all":  # the caller needs no rows back
            return Statement(f"UPDATE {table} SET {self.sets(change)} WHERE {self.where(rows)}", names=names)
        chosen = self._is_row(NAMES[0]) if rows.way in ONE else ":chosen"
        return Statement(
            f"UPDATE {table}{self.by_primary} SET {self.sets(change)} WHERE {chosen}",
            names=names,
            **self._locks(rows, ", ".join(self._keys_of_table)),
            charge=self.charging(chosen) if self.is_charged(rows, change) else "",
            # An UPDATE that changes nothing makes no version: an older snapshot would not have a row put since.
            back=f"SELECT {self.columns} FROM {table}{self.by_primary} WHERE {chosen}{self.afresh}",
        )

    def charging(self, task: str) -> str:
        # ON DUPLICATE KEY UPDATE has no condition, so the second statement has it.
        bucket = f"(SELECT {self._bucket} FROM {self.table_in_schema} WHERE {task})"
        return (
            f"{self._adding(task, '0', f'{RATES}.full_us')}; UPDATE {RATES} SET full_us = {self._charged} "
            f"WHERE {self._my_buckets} AND bucket = {bucket} AND full_us <= {self._latest}"
        )

    def delete(self, rows: Selector, change: Change) -> Statement:
        table, names = self.table_in_schema, self.brings(change)
        if rows.way == "all":
            deleted = f"DELETE {table} FROM {self._of_states(rows)} WHERE {self.where(rows)} AND {self.sets_context}"
            return Statement(deleted, names=names)
        # With ORDER BY and LIMIT: else MariaDB would read and lock the whole table if most rows match.
        in_order = f"ORDER BY {', '.join(self.keys)} LIMIT"
        if rows.way in ("key", "keys"):
            # It accepts no FORCE INDEX here. By the index of states it would lock the tasks that others have taken.
            fenced = self.named(rows, by_key=True) + self.fence(rows, f"CONCAT({self.roles['owner']})")
            some, returned = "1" if rows.way == "key" else ":many", ", ".join(self.last(change))
            deleted = f"DELETE FROM {table} WHERE {fenced} AND {self.sets_context} {in_order} {some}"
            return Statement(f"{deleted} RETURNING {returned}", names=names)
        return Statement(
            f"DELETE FROM {table} WHERE :chosen AND {self.sets_context} {in_order} :many",
            names=names,
            **self._locks(rows, ", ".join([*self.last(change, f"{self.table}."), *self._keys_of_table])),
        )

    @property
    def _keys_of_table(self) -> list[str]:
        return [f"{self.table}.{key}" for key in self.keys]

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        if within:
            # Writes do not conflict with the snapshot here, so what this transaction reads may be old. A locking count
            # would block each connection that moves tasks.
            look = f"SELECT puts FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"
            if store.execute(f"{look}{self.lock}") != store.execute(look):
                store.execute(f"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {CHANGED}, MESSAGE_TEXT = '{PUT_SINCE}'")
        super().one_at_a_time(store, within)

    def run_alone(self, statement: Statement, width: int = 0) -> Run:
        if not statement.lock:
            return super().run_alone(statement, width)
        if filled(statement.sql, chosen="") == statement.sql:
            return self._in_a_block(statement)
        find, others = self.query(statement.lock), self.query(statement.others) if statement.others else None
        wide = len(self.keys)
        both = _block(statement.sql, statement.back) if statement.back else statement.sql
        of_size: dict[int, Run] = {}  # by the number of the rows

        def change(connection: Connection, values: dict[str, Any], found: list[Row]) -> list[Row]:
            """Change the locked rows, and return them."""
            many = len(found)
            run = of_size.get(many) or of_size.setdefault(many, self.query(filled(both, chosen=self._chosen(many))))
            values = {**values, **self._named([row[-wide:] for row in found]), "many": many}
            back = run(connection, values)
            return back if statement.back else [row[: len(row) - wide] for row in found]

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            found = find(connection, values)
            more = others(connection, values) if others else []
            if found and more:
                found = self._among(statement, connection, values, [*found, *more])
            found = found or more
            batches = (found[i : i + PER_CHANGE] for i in range(0, len(found), PER_CHANGE))
            return [row for batch in batches for row in change(connection, values, batch)]

        return partial(OpenConnection.atomically, work=run)

    def _in_a_block(self, statement: Statement) -> Run:
        """Return a function that runs all parts of a statement of one row in a block: one round trip."""
        mine, other = map(self._variables, NAMES)
        steps = [
            f"DECLARE {name} TYPE OF {self.table_in_schema}.{key}"
            for names in ((mine, other) if statement.others else (mine,))
            for name, key in zip(names, self.keys, strict=True)
        ]
        steps.append(statement.lock)
        if statement.others:
            steps += [statement.others, f"IF {other[0]} IS NOT NULL THEN {statement.among}; END IF"]
        change = f"{statement.sql}; {statement.back}"
        if statement.charge:
            unlimited = f"SELECT {self._bucket} IS NULL FROM {self.table_in_schema} WHERE {self._is_row(NAMES[0])}"
            refused = f"SELECT {', '.join(['NULL'] * len(self.source.fields))}"  # the bucket has become empty
            otherwise = f"ELSEIF {mine[0]} IS NOT NULL THEN {refused}; END IF"
            change = f"{statement.charge}; IF ROW_COUNT() > 0 OR ({unlimited}) THEN {change}; {otherwise}"
        text = "; ".join([*steps, change])
        if statement.charge:  # one time for the take, its charge and its history
            text = f"DECLARE xq_now DOUBLE DEFAULT {self.now}; {filled(text, now='xq_now', context=TIMED)}"
        text, values_of = self.filled(_block(text))
        alone = as_transaction(text)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return connection.execute(alone if connection.begins else text, values_of(values))

        return run

    def _among(self, statement: Statement, connection: Connection, values: Values, found: list[Row]) -> list[Row]:
        wide = len(self.keys)
        keys = [row[-wide:] for row in found]
        among = filled(statement.among, chosen=self._chosen(len(keys)))
        meant = set(map(tuple, self.execute(connection, among, {**values, **self._named(keys)})))
        return [row for row in found if tuple(row[-wide:]) in meant]

    def _chosen(self, many: int) -> str:
        """Return the condition of the rows of `many` keys."""
        keys = (", ".join(f":k{i}_{j}" for j in range(len(self.keys))) for i in range(many))
        return f"{self.key} IN ({', '.join(f'({key})' for key in keys)})"

    @staticmethod
    def _named(keys: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the values of `_chosen`."""
        return {f"k{i}_{j}": part for i, key in enumerate(keys) for j, part in enumerate(key)}

    @property
    def lock_task(self) -> str:
        return f"SELECT 1 FROM {self.table_in_schema} WHERE {self.by_key()}{self.skip}"

    def lock_all(self, states: Iterable[str]) -> str:
        first, *more = states
        return self._locked(Selector("all", first, more=tuple(more)), "COUNT(*)")

    def unless_duplicate(self, guard: Guard) -> str:
        return ""  # an error rolls back the statement, not the transaction

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        # The driver's error shows its message as Python does, which escapes a quote if there is one of each kind.
        return f"{self.name(guard.name)}'" in refusal.replace("\\'", "'")

    def unique_column(self, guard: Guard) -> tuple[str, str]:
        return self.quote(self.name("held")), f"CONVERT({self.digest(':unique')} USING ascii)"


def _block(*statements: str) -> str:
    return f"BEGIN NOT ATOMIC {'; '.join(statements)}; END"
