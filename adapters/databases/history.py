"""The history of a queue: what triggers write there, and queries of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from xq.adapters.databases.terms import Terms
from xq.core.machine import ABSENT, LONGEST, TAKEN
from xq.core.ports import HISTORY, Kind


class History(Terms):
    """A row of the history is a transition of one task, in the order of the commits."""

    told: ClassVar[Mapping[str, Kind]] = HISTORY  # its columns

    @property
    def has_history(self) -> bool:
        return self.machine.settings.history is not None

    @property
    def history_kept(self) -> float:
        """For how many seconds the rows of the history are kept."""
        kept = self.machine.settings.history
        return math.inf if kept is None else kept

    def noted(self, history: str, task: str, what: Mapping[str, str], rows: str) -> str:
        """SQL that writes a row of the history for each of `rows`, or one, as `what` says by column.

        `task` has the columns.
        """
        known = {
            "key": self.told_key([f"{task}.{key}" for key in self.keys]),
            "tube": f"{task}.{self.roles['tube']}" if "tube" in self.roles else "NULL",
            "attempt": f"{task}.{self.roles['attempts']}" if "attempts" in self.roles else "NULL",
        }
        columns = {**known, **what}
        names, values = ", ".join(map(self.quote, columns)), ", ".join(columns.values())
        return f"INSERT INTO {history} ({names}) {f'SELECT {values} {rows}' if rows else f'VALUES ({values})'}"

    def owner_noted(self, versions: Mapping[str, str]) -> str:
        """Who holds the task, of those versions of its row in which it is taken: alias -> its letter, as SQL."""
        status = self.roles["status"]
        held = " ".join(
            f"WHEN {self.is_state(TAKEN, f'{version}.{status}')} THEN {self.owner_of(version)}"
            for version, letter in versions.items()
            if letter != f"'{ABSENT}'"
        )
        return f"CASE {held} END"

    @abstractmethod
    def owner_of(self, version: str) -> str:
        """Who holds this version of a row, as a trigger sees it."""

    def note_move(self, state: str, target: str) -> str:
        """Write into the history that every task in a state moves, where no trigger does."""
        owner = self.owner if state == TAKEN else "NULL"
        what = {
            "at_us": self.now_us,
            "source": f"'{state}'",
            "target": f"'{target}'",
            "event": ":event",
            "owner": owner,
        }
        rows = f"FROM {self.table_in_schema} WHERE {self.is_state(state)}"
        return self.noted(self.side("history"), self.table, what, rows)

    def history(self, of: Iterable[str]) -> str:
        """The rows of the history, each with the time since the one before it of its task; `of` a key, since, until."""
        conditions = {
            "key": f"{self.quote('key')} = {self.told_key([f':k{i}' for i in range(len(self.keys))])}",
            "since": "at_us >= :since",
            "until": "at_us < :until",
        }
        asked = [conditions[name] for name in of if name != "key"]
        if self.history_kept < math.inf:
            asked.append(f"at_us >= {self._forgotten_before}")
        whose = f" WHERE {conditions['key']}" if "key" in of else ""
        columns = ", ".join(map(self.quote, self.told))
        # Within a time as well, the row before it may be older.
        return (
            f"SELECT {columns}, dur_us "
            f"FROM (SELECT {columns}, {self.since_before} AS dur_us FROM {self.side('history')}{whose}) AS told"
            f"{' WHERE ' * bool(asked)}{' AND '.join(asked)} ORDER BY id"
        )

    @property
    def since_before(self) -> str:
        """Of a row of the history the microseconds since the one before it of its task."""
        return f"at_us - LAG(at_us) OVER (PARTITION BY {self.quote('key')} ORDER BY id)"

    @property
    def _forgotten_before(self) -> str:
        """The microsecond from which on rows of the history are kept."""
        return f"{self.now_us} - {min(self.history_kept, LONGEST)!r} * 1000000"

    @property
    def _not_newest(self) -> str:
        """The newest row of the history stays: the next one has the id after it, and so no id is used twice."""
        return f"id < (SELECT MAX(id) FROM {self.side('history')})"

    @property
    def forget_history(self) -> str:
        """Delete the oldest `n` rows of the history, but for the newest and those that are to be kept.

        Nothing where all are.
        """
        if self.history_kept == math.inf:
            return ""
        table = self.side("history")
        oldest = f"SELECT id, at_us FROM {table} WHERE {self._not_newest} ORDER BY id LIMIT :n"
        forgotten = f"SELECT id FROM ({oldest}) AS oldest WHERE at_us < {self._forgotten_before}"
        return f"DELETE FROM {table} WHERE id IN ({forgotten})"
