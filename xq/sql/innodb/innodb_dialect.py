"""The dialect of what MariaDB and MySQL share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

from xq.core.connections import Connection, Connections, Run
from xq.core.errors import ConfigurationError, shown
from xq.core.kinds import BYTES, Field, Kind, Row, Table, Values
from xq.core.machine import Machine
from xq.sql.innodb.innodb_installer import InnodbInstaller
from xq.sql.innodb.innodb_language import InnodbTerms
from xq.sql.innodb.innodb_moves import InnodbMoves
from xq.sql.innodb.innodb_objects import LONG, PREFIX
from xq.sql.innodb.innodb_queries import InnodbQueries
from xq.sql.named import filled
from xq.sql.shared import QUEUES

CHANGED = 1020  # the number of the error: a row was changed since the transaction began to read
PUT_SINCE = "another put since this transaction began to read, and the number of tasks is limited: begin it anew"
HIGHEST = "\uffff"  # among the characters in names
LONGEST_STATEMENT = "SELECT @@max_allowed_packet"  # bytes; the server closes the connection after a longer one
# Who waits for locks on a table, where it cannot be read who has them.
WAITED_FOR = (
    "SELECT CONCAT('another connection, for which connection ', id, ' of ', user, ' waits'), time, '' FROM "
    "information_schema.processlist WHERE LEFT(state, 17) = 'Waiting for table' AND LOCATE(:name, info) > 0 "
    "ORDER BY time DESC LIMIT 1"
)


class Innodb(InnodbTerms):
    """No arrays and no partial indexes, and collations that ignore case."""

    no_limit = 2**64 - 1
    moves_kind = InnodbMoves
    queries_kind = InnodbQueries
    installer_kind = InnodbInstaller
    turn = "puts = puts + 1"
    position = ""  # ids are given before the commits, and may come late
    found_tables = "SELECT DATABASE(), NULL"

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None:
        tables = table.schema, table.name
        for name in (*tables, *(field.column for field in table.fields)):
            if any(character > HIGHEST for character in name or ""):
                raise ConfigurationError(
                    f"{self.product} has no characters beyond U+{ord(HIGHEST):X} in the names of tables and columns: "
                    f"{shown(name)} needs another one"
                )
        if self.misread and any(self.misread in (name or "") for name in tables):
            raise ConfigurationError(
                f"{self.product} shows the name {shown(table.name)} wrong in the text of a trigger"
            )
        super().__init__(table, machine, words, tube_stats)

    @property
    def schema(self) -> str:
        return self.literal(self.source.schema) if self.source.schema else "DATABASE()"

    def locked_by(self, store: Connections) -> list[Row]:
        if self.locked(store):
            for sql in (self.holders_of_locks, WAITED_FOR, "SELECT 'another connection', NULL, ''"):
                with suppress(Exception):  # no right, or no such plugin
                    if found := self.execute(store, sql.replace("{schema}", self.schema), {"name": self.source.name}):
                        return found
        return []

    @abstractmethod
    def locked(self, store: Connections) -> bool:
        """Return whether another connection has locked the table."""

    def indexed(self, column: str) -> str:
        field = next((field for field in self.source.fields if self.quote(field.column) == column), None)
        long = field is not None and (field.type.upper().endswith("TEXT") or (field.max_length or 0) > LONG)
        return f"{column}({PREFIX})" if long else column

    def kind(self, role: str) -> Kind:
        field = self.source.roles[role]
        return "datetime0" if field.kind == "datetime" and "(" not in field.type else field.kind

    def exactly(self, column: str, test: str, kind: Kind = "text") -> str:
        # Most collations ignore case, so compare what the index finds byte by byte.
        found = super().exactly(column, test, kind)
        return f"({found} AND {self.exact(column)} {test})" if kind == "text" else found

    def beyond(self, columns: Sequence[str], operator: str, first: str = "") -> str:
        # A row comparison would read no range. The values before the last one are beyond only if they differ.
        *before, last = [(column, f":p{i}") for i, column in enumerate(columns)]
        found = f"{last[0]} {operator} {last[1]}"
        for n, (column, value) in reversed([*enumerate(before)]):
            found = f"({column} {(first if n == 0 else '') or operator} {value} OR ({column} = {value} AND {found}))"
        return found

    def per_row(self, value: str) -> str:
        # The server keeps the result for later rows whose columns named here are equal by their collations, which may
        # ignore case: so name the key.
        keys = " AND ".join(f"{self.table}.{key} IS NOT NULL" for key in self.keys)
        return f"IF({keys}, {value}, NULL)"

    def key_in_history(self, parts: Sequence[str]) -> str:
        # In the history column's collation: the connection's may not be comparable with it.
        return self.exact_text(super().key_in_history(parts))

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
