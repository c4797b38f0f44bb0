"""A queue's extracts: columns with types, as SQL. Compiled in the process that has the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from xq.core.connections import Address
from xq.core.errors import BadValue, shown
from xq.core.kinds import Field
from xq.core.machine import ELSEWHERE, NAMES
from xq.pipeline.frames import FRAMED, type_of
from xq.pipeline.scan import STATE, WHATS, Extract, Extracted, What
from xq.pipeline.sql.readers import ExtractReader
from xq.sql.dialect import Dialect


class Scans(ABC):
    """Makes extracts for a dialect's queue. Each database has a subclass."""

    reading: ClassVar[type[ExtractReader]]
    key_in_history: ClassVar[str] = "{}"  # casts a key to the text that triggers write to the history
    witness: ClassVar[tuple[str, ...]] = ("at_us",)  # ids begin at 1 again

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.queries = dialect, dialect.queries

    def of(self, what: What, name: str, address: Address, states: str) -> Extract:
        """Return what another program needs to read the model `name` at `address`; for tasks, only in `states`.

        "" means all states. Raises BadValue, ConfigurationError.
        """
        if what not in WHATS:
            raise BadValue(f"a queue has {', '.join(WHATS)}, not {shown(what)}")
        make = partial(self.reading, what=what, name=name, address=address)
        if what == "tasks":
            return self._tasks(make, states)
        return self._history(make) if what == "history" else self._stats(make)

    def _tasks(self, make: Callable[..., Extract], states: str) -> Extract:
        dialect, machine, fields = self.dialect, self.dialect.machine, self.dialect.source.fields
        columns = [
            Extracted(field.name, kind, *self.stored(field, dialect.quote(field.column), kind))
            for field, kind in zip(fields, map(type_of, fields))
        ]
        status = dialect.exact(dialect.roles["status"], dialect.kind("status"))
        cases = " ".join(
            f"WHEN {dialect.literal(dialect.words[s])} THEN {dialect.literal(NAMES.get(s, s))}" for s in machine.states
        )
        spelled = f"CASE {status} {cases} END"
        taken = {field.name.lower() for field in fields}
        words = tuple(NAMES.get(s, s) for s in machine.states)
        names = (name for name in ("state", STATE) if name not in taken)
        columns += [Extracted(name, "STRING", spelled, "STRING", words=words) for name in names]
        stored_key = self.key_in_history.format(dialect.key_in_history(dialect.keys))
        columns.append(Extracted("xq_key", "STRING", stored_key, "STRING", asked=True))
        (key, *more) = dialect.source.key
        ranged = key.name if not more and type_of(key) == "BIGINT" else ""
        rows = dialect.in_states([state for state in machine.states if not states or state in states])
        return make(relation=dialect.table_in_schema, rows=rows, columns=tuple(columns), ranged=ranged)

    def _history(self, make: Callable[..., Extract]) -> Extract:
        table = self.dialect.side("history")
        types = {name: FRAMED[kind].spark for name, kind in self.dialect.history_columns.items()}
        quoted = {name: self.dialect.quote(name) for name in types}
        columns = [Extracted(name, kind, quoted[name], kind) for name, kind in types.items()]
        columns.append(Extracted("at", "TIMESTAMP", quoted["at_us"], "BIGINT"))
        # A window over the rows `:of` a part, which begins before it: at each task's previous transition.
        duration = f"{self.queries.since_before} AS dur_us"
        timed = f"(SELECT {', '.join(quoted.values())}, {duration} FROM {table}:of) AS timed"
        columns.append(Extracted("dur_us", "BIGINT", "dur_us", "BIGINT", asked=True))
        make = partial(make, order=self.dialect.history_order, witness=self.witness)
        return make(relation=table, rows="", columns=tuple(columns), ranged="id", timed=timed)

    def _stats(self, make: Callable[..., Extract]) -> Extract:
        columns = [Extracted(name, "STRING", name, "STRING") for name in ("tube", "source", "target")]
        columns.append(Extracted("n", "BIGINT", "n", "BIGINT"))
        # Without the event counters.
        transitions = f"NOT (source = '{ELSEWHERE}' AND target = '{ELSEWHERE}')"
        return make(relation=f"({self.queries.counters}) AS counted", rows=transitions, columns=tuple(columns))

    @abstractmethod
    def stored(self, field: Field, sql: str, kind: str) -> tuple[str, str]:
        """Return how a column (`sql`) with this type is read: its SQL, and the type that the database returns."""
