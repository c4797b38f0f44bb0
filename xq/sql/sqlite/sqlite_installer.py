"""Installing on SQLite."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from xq.core import time
from xq.core.connections import Connections
from xq.core.kinds import ErrorKind
from xq.sql.installer.installer import VIEW, Installer
from xq.sql.sqlite.event_context import is_read
from xq.sql.sqlite.sqlite_objects import SqliteObjects

WITHIN = "(?:'[^']*'|--.*|[^()'])*"  # parentheses, which may have others in them
for _ in range(5):
    WITHIN = rf"(?:'[^']*'|--.*|[^()']|\({WITHIN}\))*"
CHECK = re.compile(rf"""(CONSTRAINT\s+\S+\s+)?CHECK\s*\(({WITHIN})\)""", re.IGNORECASE)
SWITCHING = 10.0  # seconds for which switching a file to WAL is retried


class SqliteInstaller(Installer):
    """One writer at a time."""

    objects_kind = SqliteObjects
    dropping = "DROP COLUMN"

    @property
    def no_table(self) -> str:
        name, count = map(self.terms.literal, (self.terms.source.name, self.terms.name("count")))
        among = f"FROM {self.terms.schema}.sqlite_master WHERE name COLLATE NOCASE"
        spelled = "'is installed as ' || substr(name, 1, length(name) - 9) || ': spell its name so in the model'"
        other = f"SELECT {spelled} {among} = {count} AND name <> {count}"
        return f"SELECT '{VIEW}' {among} = {name} AND type = 'view' UNION ALL {other}"

    def prepare(self, store: Connections) -> None:
        # In WAL mode readers do not wait for the writer. SQLite cannot switch to it within a transaction.
        deadline = time.monotonic() + SWITCHING
        while not store.in_transaction() and self._journal_mode(store) not in ("wal", "memory"):
            try:
                store.execute(f"PRAGMA {self.terms.schema}.journal_mode = WAL")
                return  # a file that does not support WAL keeps its mode; check() reports that
            except Exception as error:
                # If several processes switch at once, all but one get an error, without waiting.
                if store.classify(error) is ErrorKind.NOT_DATABASE or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.05))

    def _journal_mode(self, store: Connections) -> str:
        ((mode,),) = store.execute(f"PRAGMA {self.terms.schema}.journal_mode")
        return str(mode)

    def unfit(self, store: Connections) -> str | None:
        mode = self._journal_mode(store)
        if mode not in ("wal", "memory"):
            return f"the file is in journal mode {mode}, not WAL"
        if not is_read(store):  # the guard would refuse its own moves
            return "xq's own moves look like writes of other programs: PRAGMA trusted_schema is off on this connection"
        return None

    def checks(self, store: Connections) -> Iterable[Sequence[str]]:
        mine = f"type = 'table' AND name = {self.terms.literal(self.terms.source.name)} COLLATE NOCASE"
        ((sql,),) = store.execute(f"SELECT sql FROM {self.terms.schema}.sqlite_master WHERE {mine}")
        return [(f"{name}CHECK", condition) for name, condition in CHECK.findall(sql)]

    def existing(self, store: Connections) -> dict[str, str]:
        # Filtered in SQL, since a file may have a thousand queues' objects.
        shared, prefix = ", ".join(map(self.terms.literal, self.objects.shared_names)), self.terms.name("")
        chosen = f"name IN ({shared}) OR substr(name, 1, {len(prefix)}) = {self.terms.literal(prefix)}"
        listed = (
            f"SELECT name, type FROM {self.terms.quote(schema)}.sqlite_master "
            f"WHERE {self._of_mine} OR (type IN ('table', 'view') AND ({chosen}))"
            for schema in dict.fromkeys(["main", self.terms.source.schema or "main"])
        )
        return {name: str(kind) for sql in listed for name, kind in store.execute(sql)}

    @property
    def definitions(self) -> str:
        mine = f"({self._of_mine} OR type = 'view') AND type <> 'table' AND sql <> ''"
        listed = "SELECT name, sql AS shown, sql AS body, '' AS here"
        return f"{listed} FROM {self.terms.schema}.sqlite_master WHERE {mine}"

    @property
    def _of_mine(self) -> str:
        # Indexes and triggers on a table that was renamed belong to the renamed one.
        tables = map(self.terms.literal, [self.terms.source.name, self.terms.name("count"), self.terms.name("history")])
        return f"tbl_name COLLATE NOCASE IN ({', '.join(tables)})"

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        listed = "SELECT name, hidden <> 0 FROM pragma_table_xinfo(:name, :schema)"
        values = {"name": table, "schema": self.terms.source.schema or "main"}
        return {name: bool(made) for name, made in self.terms.execute(store, listed, values)}

    locks = dict.fromkeys(("tables", "columns", "index", "triggers", "count"), ("the write lock of the file",) * 2)

    def add_own(self, store: Connections) -> list[str]:
        there = self.columns_of(store, self.terms.source.name)
        added = [definition for column, definition in self.own.items() if column not in there]
        return [f"ALTER TABLE {self.terms.table_in_schema} ADD COLUMN {definition}" for definition in added]
