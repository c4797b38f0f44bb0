"""Task moves on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from xq.core.compile import Change, Selector, Statement
from xq.sql.server import Server, ServerMoves
from xq.sql.terms import UNIQUE


class PostgresMoves(ServerMoves):
    """One statement moves tasks and returns them."""

    def amount(self, value: Any) -> str:
        return f"CAST({super().amount(value)} AS float8)"

    def named(self, rows: Selector, by_key: bool = True) -> str:
        # Few rows are taken at once, so the planner may choose the index on the status. Beside a snapshot that is held
        # that has all rows that were taken since.
        return super().named(rows, by_key)

    def select(self, columns: str, rows: Selector) -> str:
        locked = super().select(columns, rows)
        if rows.mode == "first" or self.heads_for(rows):
            return locked
        # MATERIALIZED, since a query that locks must run only once.
        return f"WITH picked AS MATERIALIZED ({locked}) SELECT * FROM picked"

    def update(self, rows: Selector, change: Change) -> Statement:
        here = f"{self.terms.key} = (SELECT * FROM xq_task)"
        if (charge := self.charge(rows, change, here)) is None:
            return super().update(rows, change)
        # It charges before it takes the task. If it cannot, by now, it returns one row, all NULL.
        may = f"({charge.free} OR EXISTS (SELECT 1 FROM xq_charged))"
        return Statement(
            f"WITH xq_task AS MATERIALIZED ({self.select(', '.join(self.terms.keys), rows)}), "
            f"xq_charged AS ({charge.sql} RETURNING 1), "
            f"xq_taken AS (UPDATE {self.terms.table_in_schema} SET {self.sets(rows, change)} WHERE {here} AND {may} "
            f"RETURNING {self.terms.columns}) SELECT xq_taken.* FROM xq_task LEFT JOIN xq_taken ON TRUE",
            names=self.brings(change),
        )

    def delete(self, rows: Selector, change: Change) -> Statement:
        # A DELETE would wait for those inserts, so it skips such a row.
        found = super().delete(rows, change)
        return replace(found, sql=found.sql.replace(f"{self.terms.skip})", f"{Server.skip})"))

    @property
    def lock_task(self) -> str:
        terms, table = self.terms, self.terms.table_in_schema
        keys = f"SELECT {', '.join(terms.keys)} FROM {table} WHERE {terms.by_key()}"
        free = f"WITH free AS MATERIALIZED ({keys}{terms.skip}) SELECT * FROM free"
        # Write the row: under REPEATABLE READ a lock alone causes no conflict.
        status = terms.roles["status"]
        return f"UPDATE {table} SET {status} = {status} WHERE {terms.key} IN ({free}) RETURNING 1"

    def lock_all(self, states: Iterable[str]) -> str:
        rows = f"SELECT 1 FROM {self.terms.table_in_schema} WHERE {self.terms.in_states(states)}{self.terms.lock}"
        return f"SELECT COUNT(*) FROM ({rows}) AS held"

    def is_duplicate(self, refusal: str) -> bool:
        return f'"{self.terms.name(UNIQUE)}"' in refusal
