"""Queries for operators: the reasons why a task is not running, durations, and the latest transitions."""

from __future__ import annotations

from xq.adapters.databases.selectors import Selectors
from xq.core.machine import ABSENT, READY, TAKEN


class Inspections(Selectors):
    """Queries that look at a queue from outside. None locks anything."""

    @property
    def takers(self) -> str:
        """A query of the keys of the taken tasks that have the utube of the task of a key."""
        role = self.roles["utube"]
        its = f"SELECT {self.as_text(f'xq_its.{role}')} FROM {self.table_in_schema} AS xq_its"
        same = f"{self.as_text(role)} = ({its} WHERE {self.by_key('xq_its.')})"
        return f"SELECT {', '.join(self.keys)} FROM {self.table_in_schema} WHERE {self.is_state(TAKEN)} AND {same}"

    @property
    def newest_transition(self) -> str:
        return f"SELECT COALESCE(MAX(id), 0) FROM {self.side('history')}"

    @property
    def transitions_after(self) -> str:
        """A query of the first `:n` transitions whose id is greater than `:since`."""
        columns = ", ".join(map(self.quote, self.history_columns))
        return f"SELECT {columns} FROM {self.side('history')} WHERE id > :since ORDER BY id LIMIT :n"

    @property
    def ready_since(self) -> str:
        """A query of one row: now, the number of ready tasks, and what the last `:n` transitions have of them.

        That is the number of tasks that became ready in them and are still so, their first time, the time of the last
        take, and the time of the first transition. One statement: the numbers must be of one moment.
        """
        key, counts = self.quote("key"), f"FROM ({self.looks.counters}) AS counted WHERE tube = ''"
        into, out = (f"CASE WHEN {column} = '{READY}' THEN n ELSE 0 END" for column in ("target", "source"))
        last = f"SELECT id, at_us, source, target, {key} FROM {self.side('history')} ORDER BY id DESC LIMIT :n"
        entry = f"CASE WHEN target = '{READY}' THEN {{}} END"
        moved = (
            f"SELECT MAX(id) AS last, MAX({entry.format('id')}) AS entered, MAX({entry.format('at_us')}) AS at_us, "
            f"MAX(CASE WHEN target = '{TAKEN}' THEN at_us END) AS taken_us, MIN(at_us) AS first_us "
            f"FROM ({last}) AS noted WHERE source <> target GROUP BY {key}"
        )
        still = "CASE WHEN last = entered THEN {} END"
        return (
            f"SELECT {self.now_us}, (SELECT COALESCE(SUM({into} - {out}), 0) {counts}), "
            f"COUNT({still.format(1)}), MIN({still.format('at_us')}), MAX(taken_us), MIN(first_us) "
            f"FROM ({moved}) AS moved"
        )

    @property
    def durations(self) -> str:
        """A query of (state, microseconds of a task in it) of the transitions whose id is > `:since`.

        The third column is 1 where the task came into the state before these transitions: then it was longer.
        """
        dur_us, least = self.looks.since_before, self.looks.elapsed.format("MIN(at_us) OVER ()")
        spent = f"SELECT source, {dur_us} AS dur_us, {least} AS least_us FROM {self.side('history')} WHERE id > :since"
        longer = "CASE WHEN dur_us IS NULL THEN 1 ELSE 0 END"
        return f"SELECT source, COALESCE(dur_us, least_us), {longer} FROM ({spent}) AS spent WHERE source <> '{ABSENT}'"

    # A query of (holder, seconds, how to end it) of transactions older than `:n` seconds, the oldest first.
    open_transactions = ""
