"""SQL of the history of a queue: what triggers write to it, and queries."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from xq.adapters.databases.terms import Terms
from xq.core.compile import Statement
from xq.core.machine import ABSENT, LONGEST, TAKEN
from xq.core.ports import HISTORY, Kind


class HistoryTable(Terms):
    """A row of the history is a transition of one task, in the order of the commits."""

    history_columns: ClassVar[Mapping[str, Kind]] = HISTORY  # of the history

    @property
    def has_history(self) -> bool:
        return self.machine.settings.history is not None

    @property
    def history_kept(self) -> float:
        """Returns for how many seconds the rows of the history are kept (inf: for ever)."""
        kept = self.machine.settings.history
        return math.inf if kept is None else kept

    def is_acted(self, event: str) -> bool:
        """Return whether a transition by this event is that of an actor: what falls due in its block is not."""
        return bool(event) and all(row.event != event for row in self.machine.due)

    @property
    def noted(self) -> str:
        """The columns that a trigger writes, in their order in triggers.sql."""
        names = ("key", "tube", "attempt", "at_us", "source", "target", "event", "owner", "actor", "reason")
        return ", ".join(map(self.quote, names))

    def note_move(self, state: str, target: str) -> str:
        """Return SQL that writes a transition of every task in a state, for changes that fire no trigger."""
        values = {
            "key": self.key_in_history([f"{self.table}.{key}" for key in self.keys]),
            "tube": f"{self.table}.{self.roles['tube']}" if "tube" in self.roles else "NULL",
            "attempt": f"{self.table}.{self.roles['attempts']}" if "attempts" in self.roles else "NULL",
            "at_us": self.now_us,
            "source": f"'{state}'",
            "target": f"'{target}'",
            "event": ":event",
            "owner": self.roles["owner"] if state == TAKEN else "NULL",
            "actor": ":actor",
            "reason": ":reason",
        }
        return (
            f"INSERT INTO {self.side('history')} ({self.noted}) "
            f"SELECT {', '.join(values.values())} FROM {self.table_in_schema} WHERE {self.is_state(state)}"
        )

    def history(self, of: Iterable[str]) -> str:
        """Return a query of the history, with the time in each state. `of` has key, after, before, since or until."""
        conditions = {
            "key": f"{self.quote('key')} = {self.key_in_history([f':k{i}' for i in range(len(self.keys))])}",
            "after": "id > :after",
            "before": "id < :before",
            "since": "at_us >= :since",
            "until": "at_us < :until",
        }
        asked = [conditions[name] for name in of if name in ("since", "until")]
        if self.history_kept < math.inf:
            asked.append(f"at_us >= {self._forgotten_before}")
        which = [conditions[name] for name in of if name in ("key", "after", "before")]
        within = f" WHERE {' AND '.join(which)}" if which else ""
        columns = ", ".join(map(self.quote, self.history_columns))
        # The conditions of time are outside: the previous transition of a task may be older.
        return (
            f"SELECT {columns}, dur_us "
            f"FROM (SELECT {columns}, {self.since_before} AS dur_us FROM {self.side('history')}{within}) AS noted"
            f"{' WHERE ' * bool(asked)}{' AND '.join(asked)} ORDER BY id"
        )

    @property
    def any_history(self) -> str:
        """Return a query of one row of the history, if it has one; also where this definition has no history."""
        return f"SELECT id FROM {self.side('history')} LIMIT 1"

    @abstractmethod
    def after(self, checkpoint: Sequence[int]) -> str:
        """Return the condition of the rows after a checkpoint; () is before all rows."""

    def done_again(self, checkpoint: Sequence[int]) -> str:
        """Return a query that finds a row if a task came to D after a checkpoint, and an archive deleted it then."""
        key, table, after = self.quote("key"), self.side("history"), self.after(checkpoint)
        gone = f"SELECT {key} FROM {table} WHERE source = 'D' AND target = '{ABSENT}' AND event = 'archive' AND {after}"
        return f"SELECT 1 FROM {table} WHERE target = 'D' AND {after} AND {key} IN ({gone}) LIMIT 1"

    def forget_rows(self, ids: Sequence[int]) -> Statement:
        """Return the statement that deletes the rows with these ids."""
        return Statement(f"DELETE FROM {self.side('history')} WHERE id IN ({', '.join(map(str, ids))})")

    highest_key = ""  # a query of the highest key, if the database gives the next task the one after it

    elapsed: ClassVar[str] = "at_us - {}"  # since a time

    @property
    def since_before(self) -> str:
        """Returns SQL of the microseconds since the previous transition of the same task; NULL if it was absent."""
        before = f"LAG(at_us) OVER (PARTITION BY {self.quote('key')} ORDER BY id)"
        return f"CASE WHEN source <> '{ABSENT}' THEN {self.elapsed.format(before)} END"

    @property
    def _forgotten_before(self) -> str:
        """Returns SQL of the time, in microseconds since 1970, before which rows are pruned."""
        return f"{self.now_us} - {min(self.history_kept, LONGEST)!r} * 1000000"

    @property
    def _not_newest(self) -> str:
        """Returns the condition that a row is not the newest. The newest stays, so that no id is used twice."""
        return f"id < (SELECT MAX(id) FROM {self.side('history')})"

    @property
    def forget_history(self) -> str:
        """Returns SQL that prunes up to `n` expired rows of the history, never the newest; empty if none expire."""
        if self.history_kept == math.inf:
            return ""
        table = self.side("history")
        oldest = f"SELECT id, at_us FROM {table} WHERE {self._not_newest} ORDER BY id LIMIT :n"
        forgotten = f"SELECT id FROM ({oldest}) AS oldest WHERE at_us < {self._forgotten_before}"
        return f"DELETE FROM {table} WHERE id IN ({forgotten})"
