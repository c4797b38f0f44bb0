"""The objects that installing a queue creates on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from xq.adapters.databases.counters import Number
from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.objects import Object
from xq.adapters.databases.sqlite.event_context import CLOCK, EVENT, OWNER, SENT, read
from xq.adapters.databases.sqlite.groups import SqliteGroups
from xq.core.machine import ABSENT, TAKEN
from xq.core.ports import HISTORY, INTEGERS, Connections, Field

MACHINE_TIME = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
UPSERT = "ON CONFLICT DO UPDATE SET n = n + 1"


def microseconds(seconds: str) -> str:
    return f"CAST(ROUND({seconds} * 1000000.0) AS INTEGER)"


class SqliteObjects(Dialect):
    """Side tables have no rowid, indexes are partial, and the statements of a trigger have conditions."""

    groups: SqliteGroups | None

    @property
    def _schema(self) -> str:
        return self.quote(self.source.schema or "main")

    def drop(self, kind: str, name: str) -> str:
        # Without a schema SQLite searches all attached ones, and might find the index of another queue.
        return f"DROP {kind.upper()} IF EXISTS {self._schema}.{self.quote(name)}"

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
        sent = f"MAX(COALESCE(NULLIF({read(SENT)}, '{SENT}'), 0), {microseconds(MACHINE_TIME)})"
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


def _type(field: Field) -> str:
    """Return the type of a column that is compared with this one: with another affinity no index would be used."""
    return "INTEGER" if field.kind in INTEGERS else "TEXT" if field.kind in ("text", "uuid") else field.type
