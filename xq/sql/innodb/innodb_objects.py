"""The objects that installing a queue creates on MariaDB and MySQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from xq.core.acting import LONGEST_REASON, PART
from xq.core.tokens import UUID_LENGTH
from xq.sql.effects import on_innodb, written
from xq.sql.innodb.innodb_language import SERVER_TIME, InnodbTerms
from xq.sql.installer.objects import Object, Objects
from xq.sql.terms import UNIQUE

TABLES, TRIGGERS = (Path(__file__).parent / name for name in ("tables.sql", "triggers.sql"))
PREFIX = 191  # how many characters an index holds from a long text, in each row format
LONG = 255  # characters, beyond which an index on several columns cannot be sure to hold the whole
DIGEST = "CHAR(64) CHARACTER SET ascii"  # a digest's type


def part(n: int | str) -> str:
    """Return SQL for one part of the event context."""
    context = "CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"
    return f"SUBSTRING_INDEX(SUBSTRING_INDEX({context}, '{PART}', {n}), '{PART}', -1)"


class InnodbObjects(Objects):
    """There are no partial indexes."""

    terms: InnodbTerms

    # The char columns, and whether each is long, quoted; before the installer has read them, the model's types decide.
    columns = frozenset[str](), dict[str, bool]()

    def indexed(self, column: str) -> str:
        """Return an index column, or the prefix that an index can hold."""
        is_long = self.columns[1].get(column)
        return self.terms.indexed(column) if is_long is None else f"{column}({PREFIX})" if is_long else column

    def digest(self, column: str, role: str = "") -> str:
        """Return a column's digest, for a stored column."""
        # How it reads a CHAR depends on the sql_mode, so MariaDB refuses one in a stored column.
        value = f"RTRIM({column})" if column in self.columns[0] else column
        return self.terms.as_text(self.terms.value_of(role, value) if role else value)

    tables_file = TABLES

    def names_beside(self, suffix: str) -> dict[str, str]:
        lengths = {"letter": 1, "text": 255, "token": 64, "uuid": UUID_LENGTH, "reason": LONGEST_REASON}
        return {name: self.terms.varying(length) for name, length in lengths.items()} | {"digest": DIGEST}

    def index(self, suffix: str, columns: str, condition: str, unique: bool) -> Object:
        name, table = self.terms.name(suffix), self.terms.table_in_schema
        leading = self.terms.roles["status"]
        listed = columns if columns.startswith(leading) else f"{leading}, {columns}"
        short = ", ".join(self.indexed(column) for column in listed.split(", "))
        if self.terms.heads and suffix == self.terms.heads.name:
            column, made = self.terms.heads.stored(self.digest)
            return self.made("index", suffix, self.stored(table, column, DIGEST, made, name, short))
        if unique:
            # There are no partial indexes: a column that is NULL outside some states is in their place. It
            # holds a digest: a text may be too long for an index, and compares as loosely as its collation does.
            held = self.terms.quote(self.terms.name("held"))
            made = f"CASE WHEN {condition} THEN {self.digest(columns)} END"
            return self.made("index", suffix, self.stored(table, held, DIGEST, made, name, held, "UNIQUE "))
        return self.made("index", suffix, self.terms.create_index(self.terms.quote(name), table, short))

    def stored(self, table: str, column: str, kind: str, made: str, index: str, listed: str, unique: str = "") -> str:
        # In one statement: where rows hold a value twice that may be held once, nothing of it stays. It is stored:
        # InnoDB damages an index of a virtual column, when it purges and when it recovers from a crash.
        return self.terms.alter(
            table,
            f"DROP INDEX IF EXISTS {self.terms.quote(index)}",
            f"DROP COLUMN IF EXISTS {column}",
            f"ADD COLUMN {column} {kind} GENERATED ALWAYS AS ({made}) STORED INVISIBLE",
            f"ADD {unique}INDEX {self.terms.quote(index)} ({listed})",
        )

    def body(self, kind: str, name: str, create: str = "") -> str:
        # information_schema shows an escaped backslash as one, and what is beyond three bytes of UTF-8 as ?.
        body = create.partition(" FOR EACH ROW ")[2] if kind == "trigger" else ""
        return re.sub("[\U00010000-\U0010ffff]", "?", body.replace("\\\\", "\\"))

    def drop(self, kind: str, name: str) -> str:
        if kind != "index":
            return super().drop(kind, name)
        # With its column, also the one from an earlier definition.
        column = {self.terms.name(UNIQUE): "held", self.terms.name("utube"): "turn"}.get(name)
        dropped = [f"DROP INDEX IF EXISTS {self.terms.quote(name)}"]
        if column:
            dropped.append(f"DROP COLUMN IF EXISTS {self.terms.quote(self.terms.name(column))}")
        return self.terms.alter(f"IF EXISTS {self.terms.table_in_schema}", *dropped)

    def triggers(self) -> list[Object]:
        found = []
        for event in ("insert", "update", "delete", *["left"] * ("emptied" in self.words())):
            known = self.in_triggers()
            more = {"effects": partial(self._effects, known), "heads": partial(self.in_heads, known)}
            text = self.filled_in(TRIGGERS, event, {**known, **more})
            create = self.terms.create_trigger(self.terms.side(event), self.terms.table_in_schema, text)
            found.append(replace(self.made("trigger", event, text), create=create))
        return found

    def _effects(self, known: Mapping[str, str], change: str) -> str:
        """Return what a trigger does after a change. It has declared variables."""
        own = {name: name for name in ("other_key", "at_us", "by_actor", "by_reason")}
        states = {"old": "old_state", "new": "new_state"}
        states |= {"surely_was": "old_state <> 'X'", "surely_is": "new_state <> 'X'"}
        pending = ", ".join(map(self.terms.literal, self.terms.machine.pending))
        states |= {"was_pending": f"old_state IN ({pending})", "is_pending": f"new_state IN ({pending})"}
        return written(self.effects, change, {**known, **own, **states}, self.terms, on_innodb)

    def in_triggers(self) -> dict[str, str]:
        """Return what the triggers' texts name, as SQL."""
        # Another statement, or another queue, may have set the event context.
        ours = f"{part(2)} = {self.terms.literal(self.terms.source_name)} AND {part(6)} = CAST({SERVER_TIME} AS CHAR)"
        event = f"IF({ours}, {part(1)}, 'write')"
        at = f"IF({ours} AND {part(5)} <> '', {part(5)} * 1e0, {SERVER_TIME})"
        return {
            **self.names_beside(""),
            **self.of_change(),
            "emptied": self.emptied("NEW.{} = {}"),
            "table": self.terms.table_in_schema,
            **{name: self.terms.side(name) for name in self.written},
            "event": event,
            "event_name": "event_name" if self.terms.has_history else event,
            "at": f"ROUND({at} * 1000000)",
            "by_actor": f"NULLIF({part(3)}, '')",
            "by_reason": f"NULLIF({part(4)}, '')",
        }
