"""SQLite 3.35 and later."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from xq.adapters.databases.counters import Number
from xq.adapters.databases.dialect import Dialect, Run
from xq.adapters.databases.file_liveness import FileLocks, FileNotifier
from xq.adapters.databases.objects import Object
from xq.adapters.databases.records import SESSIONS
from xq.adapters.databases.sqlite.event_context import (
    CLOCK,
    EVENT,
    OWNER,
    SENT,
    context_of,
    is_read,
    read,
    with_context,
)
from xq.adapters.databases.sqlite.exports import SqliteExports
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.adapters.databases.sqlite.scans import SqliteScans
from xq.adapters.databases.terms import parts_of_uuid
from xq.core.compile import Selector, Statement
from xq.core.machine import ABSENT, TAKEN, Guard
from xq.core.ports import (
    HISTORY,
    INTEGERS,
    TIMES,
    Connection,
    Connections,
    ErrorKind,
    Field,
    Kind,
    Notifier,
    Row,
    Values,
)
from xq.sessions.liveness import Liveness

SWITCHING = 10.0  # seconds for which switching a file to WAL is retried
MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
UPSERT = "ON CONFLICT DO UPDATE SET n = n + 1"


def _microseconds(seconds: str) -> str:
    return f"CAST(ROUND({seconds} * 1000000.0) AS INTEGER)"


class Sqlite(Dialect):
    """The dialect of SQLite. It has one writer at a time, so a statement chooses its rows without locking them."""

    layout = "7"  # 5, of xq 0.1, had triggers that read the event by char()

    # julianday is precise to the millisecond, and constant within a statement.
    now = f"COALESCE(:now, {MACHINE_TIME})"

    now_us = _microseconds(now)
    never = "9e999"
    keys_at_once = "SELECT value FROM json_each(:keys)"
    begin_writing = f"UPDATE {SESSIONS} SET since = since WHERE FALSE"
    savepoints = "CREATE TEMP TABLE IF NOT EXISTS xq_savepoint (number INTEGER PRIMARY KEY)"
    commits = "PRAGMA data_version"  # does not change with this connection's own commits
    no_limit = -1
    most_values = 32_766
    mark = "?"
    serial = "INTEGER PRIMARY KEY"
    groups_kind = SqliteGroups
    exports_kind = SqliteExports
    scans_kind = SqliteScans
    groups: SqliteGroups | None

    def moment(self, kind: Kind, seconds: str) -> str:
        if kind in TIMES:
            return f"strftime('%Y-%m-%d %H:%M:%f', {seconds}, 'unixepoch')"
        if kind == "bigint":
            return f"CAST({seconds} + 0.999 AS INTEGER)"  # rounded up, so that no task is due too early
        return seconds

    def seconds(self, kind: Kind, column: str) -> str:
        return f"(julianday({column}) - 2440587.5) * 86400.0" if kind in TIMES else column

    def differ(self, one: str, other: str) -> str:
        return f"{one} IS NOT {other} COLLATE BINARY"

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        if not column.startswith(("OLD.", "NEW.")):
            return super().in_states(states, column)
        # For IN with more than two values SQLite builds a table at each run of a trigger: a tenth of a task's time.
        return f"({' OR '.join(self.is_state(state, column) for state in states)})"

    def not_by_index(self, column: str) -> str:
        return f"+{column}"

    def remembering(self, rows: Selector, statement: Statement) -> Statement:
        names, values = ", ".join(self.keys), ", ".join(f":k{i}" for i in range(len(self.keys)))
        one = f"INSERT OR REPLACE INTO {self.owners} ({names}, owner) VALUES ({values}, :owner)"
        all_ = f"INSERT OR REPLACE INTO {self.owners} ({names}, owner) SELECT value, :owner FROM json_each(:keys)"
        several = rows.way not in ("key", "first") and len(self.keys) == 1
        return replace(statement, after=one, after_all=all_ if several else "")

    def is_duplicate(self, guard: Guard, refusal: str) -> bool:
        return refusal.endswith(f"UNIQUE constraint failed: {self.source.name}.{self.source.roles[guard.role].column}")

    def drop(self, kind: str, name: str) -> str:
        # Without a schema SQLite searches all attached ones, and might find the index of another queue.
        return f"DROP {kind.upper()} IF EXISTS {self._schema}.{self.quote(name)}"

    def keys_there(self, of: str = "") -> str:
        # SQLite allows NULL keys. Such a row equals no key, and must not block the others.
        return "".join(
            f"{of}{key} IS NOT NULL AND "
            for key, field in zip(self.keys, self.source.key, strict=True)
            if field.kind not in ("auto", "bigauto")
        )

    def choice(self, rows: Selector) -> tuple[str, str]:
        by, chosen = super().choice(rows)
        return by, self.keys_there() + chosen

    def pick(self, columns: str, rows: Selector) -> str:
        utubes = self.picked_from(rows)
        if utubes is None:
            return super().pick(columns, rows)
        both = " UNION ALL ".join(f"SELECT * FROM ({pick})" for pick in utubes.picks(utubes.mine, rows))
        limit = "1" if rows.way == "first" else ":n"
        return f"SELECT {columns} FROM ({both}) ORDER BY {self.order} LIMIT {limit}"

    def by_index(self, name: str) -> str:
        # With outdated statistics the planner may expect most rows in one state, and read the whole table.
        return f" INDEXED BY {self.quote(name)}"

    def key_in_history(self, parts: Sequence[str]) -> str:
        stored = [_in_history(field, part) for field, part in zip(self.source.key, parts, strict=True)]
        return stored[0] if len(stored) == 1 else f"json_array({', '.join(stored)})"

    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        if statement.after:
            run: Run = self._taking(statement)
        else:
            run = self.query(statement.sql, statement.names, width)
        in_context = with_context(event, run, self.has_history) if event else run
        # Within the transaction, whose beginning waits for other writers: the time that triggers read is after that.
        return (lambda connection, values: connection.atomically(in_context, values)) if statement.after else in_context

    def _taking(self, statement: Statement) -> Run:
        """Return a function that runs a statement that takes tasks and writes their owners."""
        text, pick = self.filled(statement.sql)
        one, pick_one = self.filled(statement.after)
        several = self.query(statement.after_all) if statement.after_all else None
        parts = [(f"k{i}", place) for i, place in enumerate(self._key_at)]

        def taking(connection: Connection, values: dict[str, Any]) -> list[Row]:
            rows, owner = connection.execute(text, pick(values)), values["owner"]
            if several and len(rows) > 1:
                listed = self.listed([[row[place] for _, place in parts] for row in rows])
                if listed:
                    several(connection, {"keys": listed, "owner": owner})
                    return rows
            for row in rows:
                owned = {"owner": owner}
                for name, place in parts:
                    owned[name] = row[place]
                connection.execute(one, pick_one(owned))
            return rows

        return taking

    @cached_property
    def _key_at(self) -> list[int]:
        """Return the indexes of the key's parts in a row."""
        return [self.source.fields.index(field) for field in self.source.key]

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        changed = 0

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            nonlocal changed
            changed = super(Sqlite, self).change(store, statement, values)
            return []

        with_context(event or EVENT, run, self.has_history)(store.ready(), {**values, "owner": None})
        return changed

    def connected(self, store: Connections, connection: Connection) -> None:
        connection.context = context_of(store)

    def prepare(self, store: Connections) -> None:
        # In WAL mode readers do not wait for the writer. SQLite cannot switch to it within a transaction.
        deadline = time.monotonic() + SWITCHING
        while not store.in_transaction() and self._journal_mode(store) not in ("wal", "memory"):
            try:
                store.execute(f"PRAGMA {self._schema}.journal_mode = WAL")
                return  # a file that does not support WAL keeps its mode; check() reports that
            except Exception as error:
                # If several processes switch at once, all but one get an error, without waiting.
                if store.classify(error) is ErrorKind.NOT_DATABASE or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.05))

    @property
    def _schema(self) -> str:
        return self.quote(self.source.schema or "main")

    def _journal_mode(self, store: Connections) -> str:
        ((mode,),) = store.execute(f"PRAGMA {self._schema}.journal_mode")
        return str(mode)

    def unfit(self, store: Connections) -> str | None:
        mode = self._journal_mode(store)
        if mode not in ("wal", "memory"):
            return f"the file is in journal mode {mode}, not WAL"
        if self.has_history and not is_read(store):
            return "the history tells every event as a write: PRAGMA trusted_schema is off on this connection"
        return None

    def only_reads(self, store: Connections) -> bool:
        ((refused,),) = store.execute("PRAGMA query_only")
        # No pragma shows whether a file was opened read-only. But then the program of BEGIN IMMEDIATE, which is not
        # run here, begins a read transaction. 0 is the main file.
        begun = {row[2]: row[3] for row in store.execute("EXPLAIN BEGIN IMMEDIATE") if row[1] == "Transaction"}
        if refused or not begun.get(0, True):
            return True
        # The file may have become read-only after the connection was opened.
        return any(os.path.exists(file) and not os.access(file, os.W_OK) for file in self._files(store)[:1])

    def _files(self, store: Connections) -> list[str]:
        """Return the files of the table and of xq's records; none if one is in memory."""
        wanted = ("main", (self.source.schema or "main").lower())
        with store.bookkeeping():
            found = {name.lower(): file for _, name, file in store.execute("PRAGMA database_list")}
        files = [found[name] for name in dict.fromkeys(wanted) if name in found]
        return files if all(files) and store.has_threads else []

    def liveness(self, store: Connections) -> Liveness | None:
        files = self._files(store)
        return FileLocks.of(files[0]) if files else None

    def notifier(self, store: Connections) -> Notifier | None:
        files = self._files(store)
        schemas = dict.fromkeys(["main", self.source.schema or "main"])
        versions = [f"PRAGMA {self.quote(schema)}.data_version" for schema in schemas]
        return FileNotifier(files, versions) if files else None

    def existing(self, store: Connections) -> dict[str, str]:
        # Filtered in SQL, since a file may have the objects of a thousand queues.
        shared, prefix = ", ".join(self.literal(item.name) for item in self.shared()), self.name("")
        chosen = f"name IN ({shared}) OR substr(name, 1, {len(prefix)}) = {self.literal(prefix)}"
        # Indexes and triggers of a table that was renamed belong to the renamed one.
        mine = f"tbl_name = {self.literal(self.source.name)} COLLATE NOCASE"
        listed = (
            f"SELECT name, type FROM {self.quote(schema)}.sqlite_master WHERE {mine} OR (type = 'table' AND ({chosen}))"
            for schema in dict.fromkeys(["main", self.source.schema or "main"])
        )
        return {name: str(kind) for sql in listed for name, kind in store.execute(sql)}

    def table_columns(self, store: Connections) -> set[str]:
        present = {name.lower() for name in self.columns_of(store, self.source.name)}
        return {field.column for field in self.source.fields if field.column.lower() in present}

    def columns_of(self, store: Connections, table: str) -> dict[str, bool]:
        listed = "SELECT name, hidden <> 0 FROM pragma_table_xinfo(:name, :schema)"
        values = {"name": table, "schema": self.source.schema or "main"}
        return {name: bool(made) for name, made in self.execute(store, listed, values)}

    def side_tables(self) -> list[Object]:
        kinds = list(map(_type, self.source.key))
        parts = ", ".join(f"{part} {kind}" for part, kind in zip(self._parts(), kinds, strict=True))
        tables = {
            "count": "(tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID",
            "wait": f"({parts}, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, "
            f"target TEXT, PRIMARY KEY ({', '.join(self._parts())}, waiter)) WITHOUT ROWID",
        }
        if "owner" not in self.roles:
            keys = ", ".join(f"{key} {kind}" for key, kind in zip(self.keys, kinds, strict=True))
            tables["owner"] = f"({keys}, owner TEXT NOT NULL, PRIMARY KEY ({', '.join(self.keys)})) WITHOUT ROWID"
        if self.has_history:
            # No index but the ids: another costs more than the rows do. AUTOINCREMENT, too, would write a page more in
            # each transaction, a tenth of all; that ids are not used twice follows from the newest row, which stays.
            types = {"bigauto": self.serial, "bigint": "INTEGER", "text": "TEXT"}
            tables["history"] = f"({', '.join(f'{column} {types[kind]}' for column, kind in HISTORY.items())})"
        made = [self.side_table(suffix, body) for suffix, body in tables.items()]
        return [*made, self._heads(self.groups)] if self.groups else made

    def _heads(self, utubes: SqliteGroups) -> Object:
        fields = [self.source.roles[role] for role in ("utube", *self.source.ordered_by)]
        names = ["utube", *utubes.columns]
        types = map(_type, [*fields, *self.source.key])
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
        taken = f"taken INTEGER NOT NULL CHECK (taken <= {utubes.most})"
        open_heads = self.object(self.name(f"{utubes.suffix}_open"))
        return self.side_table(
            utubes.suffix,
            f"({columns}, {taken}, PRIMARY KEY (utube)) WITHOUT ROWID",
            f"CREATE INDEX IF NOT EXISTS {open_heads} "
            f"ON {self.quote(self.name(utubes.suffix))} ({', '.join(utubes.columns)}) WHERE {utubes.is_open()}",
        )

    def stage_body(self, place: str, options: Sequence[str]) -> tuple[str, ...]:
        fields = [f"{self.quote(field.column)} {_type(field)}" for field in self.source.fields]
        return (f"({', '.join([f'{place} INTEGER PRIMARY KEY', *fields, *(f'{option} REAL' for option in options)])})",)

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        return self.made(
            "index",
            suffix,
            f"CREATE {'UNIQUE ' * unique}INDEX IF NOT EXISTS {self.side(suffix)} "
            f"ON {self.table} ({columns}) WHERE {condition}",
        )

    def triggers(self) -> list[Object]:
        status, absent, (old, new), moved = self.roles["status"], f"'{ABSENT}'", self._letters, self.moved_key
        was, is_ = (self.in_states(self.machine.states, f"{version}.{status}") for version in ("OLD", "NEW"))
        changed = self.differ(f"OLD.{status}", f"NEW.{status}")
        was_pending, is_pending = (self.in_states(self.machine.pending, f"{v}.{status}") for v in ("OLD", "NEW"))
        ended = f"{was_pending} AND (({is_pending}) IS NOT TRUE OR {moved})"
        inserted = list(map(self._count, self.numbers_of("NEW", came=True)))
        updated = list(map(self._count, self.numbers_of_change()))
        deleted = list(map(self._count, self.numbers_of("OLD", came=False)))
        updated.append(self._note_end(ended, f"CASE WHEN {moved} THEN {absent} ELSE {new} END"))
        deleted.append(self._note_end(was_pending, absent))
        if self.has_history:
            inserted.append(self._note("NEW", absent, new, is_))
            deleted.append(self._note("OLD", old, absent, was))
            # A statement of xq that writes a status is a transition, even if the status stays the same.
            entered = f"({changed} OR {read(EVENT)} <> '{EVENT}')"
            updated += [
                self._note("NEW", old, new, f"NOT ({moved}) AND ({was} OR {is_}) AND {entered}"),
                self._note("OLD", old, absent, f"({moved}) AND {was}"),
                self._note("NEW", absent, new, f"({moved}) AND {is_}"),
            ]
        utubes = self.in_schema("").groups  # a trigger names none
        if isinstance(utubes, SqliteGroups):
            inserted += utubes.on_change(utubes.change_of("NEW", came=True))
            updated += [sql for change in utubes.changes_of_update() for sql in utubes.on_change(change)]
            deleted += utubes.on_change(utubes.change_of("OLD", came=False))
        if "owner" not in self.roles:
            taken = self.is_state(TAKEN, f"OLD.{status}")
            updated.append(self._forget_owner(f"{taken} AND ({changed} OR {moved})"))
            deleted.append(self._forget_owner(taken))
        events = {
            "insert": ("INSERT", inserted),
            "update": (f"UPDATE OF {', '.join(self.watched())}", updated),
            "delete": ("DELETE", deleted),
        }
        return [
            self.made(
                "trigger",
                suffix,
                self.drop("trigger", self.name(suffix)),
                f"CREATE TRIGGER {self.side(suffix)} AFTER {event} ON {self.table} BEGIN {' '.join(body)} END",
            )
            for suffix, (event, body) in events.items()
        ]

    def _count(self, number: Number) -> str:
        counts = self.quote(self.name("count"))
        row = f"{number.tube}, {number.source}, {number.target}, 1"
        return f"INSERT INTO {counts} SELECT {row} WHERE {number.when} {UPSERT};"

    def _note_end(self, when: str, target: str) -> str:
        return (
            f"UPDATE {self.quote(self.name('wait'))} SET event = {read(EVENT)}, target = {target} "
            f"WHERE {self.same_wait('', 'OLD')} AND event IS NULL AND {when};"
        )

    def _forget_owner(self, when: str) -> str:
        return f"DELETE FROM {self.quote(self.name('owner'))} WHERE {self.same_key('', 'OLD')} AND {when};"

    def _note(self, version: str, source: str, target: str, when: str) -> str:
        """Return the statement of a trigger that writes this version of a row into the history."""
        # SQLite's own time has milliseconds, and is later where the statement waited for a lock.
        sent = f"MAX(COALESCE(NULLIF({read(SENT)}, '{SENT}'), 0), {_microseconds(MACHINE_TIME)})"
        what = {
            "at_us": f"COALESCE(NULLIF({read(CLOCK)}, '{CLOCK}'), {sent})",
            "source": source,
            "target": target,
            "event": read(EVENT),
            "owner": self.owner_noted({"OLD": source, "NEW": target}),
        }
        return f"{self.noted(self.quote(self.name('history')), version, what, f'WHERE {when}')};"

    @property
    def since_before(self) -> str:
        return f"MAX(0, {super().since_before})"  # the time of a row is exact, or cut to milliseconds: see _note

    def owner_of(self, version: str) -> str:
        if "owner" in self.roles:
            return f"{version}.{self.roles['owner']}"
        if version == "NEW":
            return f"NULLIF({read(OWNER)}, '{OWNER}')"
        return f"(SELECT owner FROM {self.quote(self.name('owner'))} WHERE {self.same_key('', 'OLD')})"


def _in_history(field: Field, part: str) -> str:
    """Return, as SQL, a stored part of a key as the application writes it. JSON cannot hold bytes."""
    if field.kind in ("auto", "bigauto"):
        return part
    if field.kind == "decimal":
        return f"CAST({part} AS NUMERIC)"  # a column makes a number of it, and a parameter is the text
    if field.kind == "uuid":
        dashed = " || '-' || ".join(parts_of_uuid(part))
        return f"CASE length({part}) WHEN 32 THEN {dashed} ELSE {part} END"
    return f"CASE typeof({part}) WHEN 'blob' THEN hex({part}) ELSE {part} END"


def _type(field: Field) -> str:
    """Return the type of a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
