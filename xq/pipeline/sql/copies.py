"""SQL that copies a queue's rows into another database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xq.core.kinds import HISTORY
from xq.sql.rows import Rows
from xq.sql.shared import PAUSES, SCHEDULES

PAUSE = ("queue", "tube", "whole", "since_us", "actor", "reason")
LIMIT = ("feature", "value", "is_set", "label", "n", "slack", "given", "since_us", "actor", "reason")
SCHEDULE = ("queue", "name", "spec", "task", "next_us", "last_us", "paused", "paused_us", "actor", "reason")


@dataclass(frozen=True)
class Copied:
    """A table and its columns, as SQL; the first `keys` are its key. The n rows' values are v0_0, v1_0 .. v0_1 .."""

    table: str
    columns: Sequence[str]
    keys: int
    of: str = "1 = 1"  # the condition for the queue's rows
    overriding: str = ""

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.table} WHERE {self.of}"

    @property
    def count(self) -> str:
        return f"SELECT COUNT(*) FROM {self.table} WHERE {self.of}"

    def delete(self, n: int = 0) -> str:
        """Return SQL that deletes the rows with the keys of `n` rows; 0: all."""
        keys = [*enumerate(self.columns[: self.keys])]
        rows = (" AND ".join(f"{column} = :v{i}_{row}" for i, column in keys) for row in range(n))
        return f"DELETE FROM {self.table} WHERE {' OR '.join(f'({row})' for row in rows) or self.of}"

    def insert(self, n: int) -> str:
        rows = (", ".join(f":v{i}_{row}" for i in range(len(self.columns))) for row in range(n))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}){self.overriding} VALUES ({'), ('.join(rows)})"


class Copies:
    """What is copied of a queue."""

    def __init__(self, terms: Rows) -> None:
        self.terms, of = terms, f"queue = {terms.literal(terms.source_name)}"
        self.history = Copied(terms.side("history"), [*map(terms.quote, HISTORY)], 1)
        self.pauses, self.schedules = Copied(PAUSES, PAUSE, 3, of), Copied(SCHEDULES, SCHEDULE, 2, of)
        self.limits = Copied(terms.side("limit"), LIMIT, 3, "is_set = 1 AND feature <> ''") if terms.limits else None

    def tasks(self, columns: Iterable[str]) -> Copied:
        """Return the application's table with these columns; those of the key come first."""
        columns, terms = [*map(self.terms.quote, columns)], self.terms
        return Copied(terms.table_in_schema, columns, len(terms.keys), overriding=terms.overriding)

    @property
    def unfinished(self) -> dict[str, str]:
        """Queries that find a row, by what it stands for: what has no meaning in another database."""
        side = self.terms.side
        groups = {"open groups": f"SELECT 1 FROM {side('group')} WHERE done IS NULL LIMIT 1"}
        links = {"tasks that wait for others": f"SELECT 1 FROM {side('after')} LIMIT 1"}
        return {
            **(groups if self.terms.machine.settings.groups else {}),
            **(links if "after" in self.terms.roles else {}),
        }
