"""Extracts of a queue: their columns with types, as SQL. Compiled in the process that has the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.readers import ExtractReader
from xq.core.errors import BadValue, ConfigurationError, FeatureOff, shown
from xq.core.machine import ELSEWHERE, NAMES
from xq.core.ports import Address, Field
from xq.pipeline.frames import FRAMED, type_of
from xq.pipeline.scan import WHATS, Column, Extract, What

BURIED = "B"
NONE = "CAST(NULL AS CHAR)"


class Scans(ABC):
    """The extracts of a dialect's queue. Each database has a subclass."""

    reading: ClassVar[type[ExtractReader]]
    has_snapshots: ClassVar[bool] = False
    key_in_history: ClassVar[str] = "{}"  # casts a key to the text that triggers write to the history
    order: ClassVar[tuple[str, ...]] = ("id",)  # of the history
    witness: ClassVar[tuple[str, ...]] = ("at_us",)  # ids begin at 1 again

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def of(self, what: What, name: str, address: Address, snapshot: str) -> Extract:
        """Return an extract. Raises BadValue (unknown `what`), ConfigurationError (no snapshots), FeatureOff."""
        if what not in WHATS:
            raise BadValue(f"a queue has {', '.join(WHATS)}, not {shown(what)}")
        if snapshot and not self.has_snapshots:
            raise ConfigurationError("only PostgreSQL has snapshots that several readers share: read in one partition")
        rendered = {
            "tasks": self._tasks,
            "history": self._history,
            "stats": self._stats,
            "live": self._live,
            "buried": self._buried,
        }
        return rendered[what](partial(self.reading, what=what, name=name, address=address, snapshot=snapshot))

    def _tasks(self, make: Callable[..., Extract]) -> Extract:
        dialect, machine, fields = self.dialect, self.dialect.machine, self.dialect.source.fields
        columns = [self._column(field) for field in fields]
        status = dialect.exact(dialect.roles["status"], dialect.kind("status"))
        cases = " ".join(
            f"WHEN {dialect.literal(dialect.words[s])} THEN {dialect.literal(NAMES.get(s, s))}" for s in machine.states
        )
        spelled = f"CASE {status} {cases} END"
        taken = {field.name.lower() for field in fields}
        state = "state" if "state" not in taken else "xq_state"
        columns.append(Column(state, "STRING", spelled, "STRING", self._exact_text(spelled)))
        (key, *more) = dialect.source.key
        ranged = key.name if not more and type_of(key) == "BIGINT" else ""
        states = dialect.in_states(machine.states)
        return make(relation=dialect.table_in_schema, rows=states, columns=tuple(columns), ranged=ranged)

    def _live(self, make: Callable[..., Extract]) -> Extract:
        dialect = self.dialect
        states = [state for state in "RTW" if state in dialect.machine.states]
        what = {"tube": dialect.roles.get("tube", NONE), "state": dialect.letter(dialect.roles["status"])}
        return self._of_history(make, states, what)

    def _buried(self, make: Callable[..., Extract]) -> Extract:
        if BURIED not in self.dialect.machine.states:
            raise FeatureOff("only a queue with the feature 'buried' has buried tasks", feature="buried")
        return self._of_history(make, [BURIED], {"error": self.dialect.roles.get("error", NONE)})

    def _of_history(self, make: Callable[..., Extract], states: Sequence[str], what: Mapping[str, str]) -> Extract:
        """Return an extract of text columns of the tasks in some states, with the key as in the history."""
        dialect = self.dialect
        key = self.key_in_history.format(dialect.key_in_history(dialect.keys))
        columns = tuple(Column(name, "STRING", sql, "STRING") for name, sql in {"key": key, **what}.items())
        return make(relation=dialect.table_in_schema, rows=dialect.in_states(states), columns=columns)

    def _history(self, make: Callable[..., Extract]) -> Extract:
        table = self.dialect.side("history")
        types = {name: FRAMED[kind].spark for name, kind in self.dialect.history_columns.items()}
        quoted = {name: self.dialect.quote(name) for name in types}
        columns = [
            Column(name, kind, quoted[name], kind, self._exact_text(quoted[name]) if kind == "STRING" else sql)
            for (name, kind), sql in zip(types.items(), quoted.values(), strict=True)
        ]
        columns.append(Column("at", "TIMESTAMP", quoted["at_us"], "BIGINT", quoted["at_us"]))
        # A window over the rows `:of` a part, which begins before it: at the previous transition of each task.
        timed = f"(SELECT {', '.join(quoted.values())}, {self.dialect.since_before} AS dur_us FROM {table}:of) AS timed"
        columns.append(Column("dur_us", "BIGINT", "dur_us", "BIGINT", "dur_us", timed))
        return make(
            relation=table, rows="", columns=tuple(columns), order=self.order, witness=self.witness, ranged="id"
        )

    def _stats(self, make: Callable[..., Extract]) -> Extract:
        columns = [Column(name, "STRING", name, "STRING") for name in ("tube", "source", "target")]
        columns.append(Column("n", "BIGINT", "n", "BIGINT", "n"))
        # Without the counters of events.
        transitions = f"NOT (source = '{ELSEWHERE}' AND target = '{ELSEWHERE}')"
        return make(relation=f"({self.dialect.counters}) AS counted", rows=transitions, columns=tuple(columns))

    @abstractmethod
    def _column(self, field: Field) -> Column:
        """Return the column of a field of the application."""

    @abstractmethod
    def _exact_text(self, sql: str) -> str:
        """Return SQL of text that compares byte by byte in UTF-8."""
