"""SQL of the history of a queue: what triggers write to it, and queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from xq.adapters.databases.terms import Terms
from xq.core.machine import TAKEN
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
