"""Queries for operators: the search, the reasons why a task is not running, durations, and the latest transitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xq.core.kinds import INTEGERS, Field
from xq.core.machine import ABSENT, READY, TAKEN
from xq.sql.dialect import Dialect

ERROR_SHOWN = 500  # characters from which failures are made


@dataclass(frozen=True, slots=True)
class Walk:
    """An order in which a page goes on behind a position: a row's values in `columns`, which end with the key.

    A move changes none of these columns but the state, and a reprioritise the priority.
    """

    name: str  # in cursors; "" goes by key, the greatest first
    rows: str  # the FROM clause
    condition: str  # selects the rows to read: a LIMIT bounds their number
    columns: Sequence[str]  # NOT NULL
    order: str
    test: str = "TRUE"  # selects the rows that the filter means


class Questions:
    """Queries that look at a queue from outside. They lock nothing, and bind all values."""

    def __init__(self, dialect: Dialect) -> None:
        self.terms, self.objects, self.queries = dialect, dialect.installer.objects, dialect.queries

    # the search's walks, along a state's index or along the key; `:tube` is the walk's tube

    def by_state_index(self, state: str, of_tube: bool) -> Walk | None:
        """Return the walk along a state's index: in take order, or, if it has no name, sorted by key.

        None if no index has all tasks in this state.
        """
        index = {TAKEN: self.terms.index_of_taken, "W": "runat"}.get(state, f"oldest_{state}")
        if index not in self.objects.wanted_indexes() or (self.terms.heads and state == READY):
            return None
        mine, roles = (
            self.terms.is_state(state),
            [self.terms.source.roles[role] for role in self.terms.source.ordered_by],
        )
        # Else a position could not be compared with its row.
        exact = all(field.kind in INTEGERS and not field.null for field in roles) and self._orders(self.terms.ordered)
        if exact and index.startswith("oldest"):
            if of_tube and state == READY and self._orders([self.terms.roles["tube"]]):
                index, mine = f"{index}_of_tube", f"{mine} AND {self.terms.in_tube}"
            return Walk(state, self.terms.read_by(index), mine, self.terms.ordered, self.terms.order)
        if state == "W" and "awaits" not in self.terms.roles:
            mine += f" AND {self.terms.roles['runat']} IS NOT NULL"  # as the index has it
        return Walk(
            "", self.terms.sorted_alone(self.terms.read_by(index), mine), mine, self.terms.keys, self._newest_first
        )

    def by_keys(self, states: Collection[str], conditions: Sequence[str]) -> Walk:
        """Return the walk along the key, or along some keys. X among the states: also rows that are no tasks."""
        rows, condition = f"{self.terms.table_in_schema}{self.terms.by_primary}", " AND ".join(conditions or ["TRUE"])
        test = self.terms.in_states(states) if states and ABSENT not in states else "FALSE"
        if ABSENT in states:
            letters = ", ".join(f"'{state}'" for state in states)
            test = f"{self.terms.letter(self.terms.roles['status'])} IN ({letters})"
        return Walk("", rows, condition if states else "FALSE", self.terms.keys, self._newest_first, test)

    @property
    def _newest_first(self) -> str:
        return ", ".join(f"{key} DESC" for key in self.terms.keys)

    def _orders(self, columns: Sequence[str]) -> bool:
        """Return whether an index on these columns orders rows by their whole values."""
        return all(self.terms.indexed(column) == column for column in columns)

    def number_in(self, walk: Walk) -> str:
        """Return a query that counts a walk's rows, up to `:n`."""
        some = f"SELECT 1 FROM {walk.rows} WHERE {walk.condition} LIMIT :n"
        return f"SELECT COUNT(*) FROM ({some}) AS xq_some"

    def examined(
        self, walk: Walk, tests: Sequence[str], goes_on: bool, with_error: bool, function: Field | None, whole: bool
    ) -> str:
        """Return a query for up to `:look` rows; if it goes on, for those behind the position `:p0`, `:p1` ...

        Its columns are whether the row passes the tests (1 or 0), the key as in the history, the state, the token, the
        error, when it finished, what it runs, the position and, if wanted, all the table's columns.
        """
        way, first = (">", "<" * self.terms.machine.settings.highest_first) if walk.name else ("<", "")
        behind = f" AND {self.terms.beyond(walk.columns, way, first)}" if goes_on else ""
        passes = f"CASE WHEN {' AND '.join([walk.test, *tests])} THEN 1 ELSE 0 END"
        error = f"substr({self.terms.roles['error']}, 1, {ERROR_SHOWN})" if with_error else "NULL"
        runs = self.terms.quote(function.column) if function and with_error else "NULL"
        key = self.terms.key_in_history([f"{self.terms.table}.{key}" for key in self.terms.keys])
        terms, role = self.terms, self.terms.roles.get("finished")
        ended = terms.seconds(terms.kind("finished"), role) if role else "NULL"
        state, owner = terms.letter(terms.roles["status"]), terms.roles["owner"]
        values = [passes, key, state, owner, error, ended, runs, *walk.columns]
        named = ", ".join(f"{value} AS xq_{i}" for i, value in enumerate(values))  # ORDER BY means the columns
        named += f", {self.terms.columns}" * whole
        where = f"{self.terms.keys_there()}{walk.condition}{behind}"
        return f"SELECT {named} FROM {walk.rows} WHERE {where} ORDER BY {walk.order} LIMIT :look"

    # tests: conditions that are true or false, never NULL

    def contains(self, field: Field, value: str) -> str:
        """Return the condition that a text contains a bound one. Letters from A to Z equal those from a to z."""
        column, part = self.terms.folded(self.terms.quote(field.column)), self.terms.folded(value)
        return f"COALESCE({self.terms.place_in_text}({column}, {part}) > 0, FALSE)"

    def compares(self, field: Field, operator: str, value: str) -> str:
        """Return the condition that compares a column with a bound value; a text byte by byte."""
        return f"COALESCE({self.terms.exact(self.terms.quote(field.column), field.kind)} {operator} {value}, FALSE)"

    def is_empty(self, field: Field) -> str:
        """Return the condition that a column is NULL, or an empty text."""
        column = self.terms.quote(field.column)
        return f"({column} IS NULL OR {column} = '')" if field.kind == "text" else f"{column} IS NULL"

    # since when a task is in its state

    @property
    def last_before(self) -> str:
        """Last id before `:at_us` among the newest `:n` transitions, and whether there are others."""
        history = self.terms.side("history")
        least = f"(SELECT MAX(id) FROM {history}) - :n"
        before = f"SELECT id FROM {history} WHERE id > {least} AND at_us < :at_us ORDER BY id DESC LIMIT 1"
        return f"SELECT ({before}), EXISTS (SELECT 1 FROM {history} WHERE id <= {least})"

    def last_entries(self, n: int) -> str:
        """Return a query for (key, state, last time in microseconds) by the history's `n` keys `:h0`, `:h1` ...

        It reads the transitions whose id is greater than `:low`.
        """
        key, keys = self.terms.quote("key"), ", ".join(f":h{i}" for i in range(n))
        return (
            f"SELECT {key}, target, MAX(at_us) FROM {self.terms.side('history')} WHERE id > :low AND source <> target "
            f"AND {key} IN ({keys}) GROUP BY {key}, target"
        )

    # why a task is not running, and what happened last

    @property
    def takes_of_tube(self) -> str:
        """A query of how many tasks of `:tube` are taken, and when the last take among `:n` transitions was."""
        terms, last = self.terms, "NULL"
        if terms.has_history:
            history = terms.side("history")
            last = f"SELECT MAX(at_us) FROM {history} WHERE id > (SELECT MAX(id) FROM {history}) - :n"
            last += f" AND target = '{TAKEN}' AND source = '{READY}' AND tube = :tube"
        taken = f"SELECT COUNT(*) FROM {terms.table_in_schema} WHERE {terms.is_state(TAKEN)} AND {terms.in_tube}"
        return f"SELECT ({taken}), ({last})"

    @property
    def often_taken(self) -> str:
        """A query for up to `:n` unfinished tasks taken `:least` times or more; "" without the role attempts."""
        if not (attempts := self.terms.roles.get("attempts")):
            return ""
        pending = self.terms.in_states(self.terms.machine.pending)
        often = f"{self.terms.table_in_schema} WHERE {pending} AND {attempts} >= :least ORDER BY {attempts} DESC"
        return f"SELECT {', '.join([*self.terms.keys, attempts])} FROM {often} LIMIT :n"

    @property
    def newest_transition(self) -> str:
        return f"SELECT COALESCE(MAX(id), 0) FROM {self.terms.side('history')}"

    @property
    def transitions_after(self) -> str:
        """A query for the first `:n` transitions whose id is greater than `:since`."""
        columns = ", ".join(map(self.terms.quote, self.terms.history_columns))
        return f"SELECT {columns} FROM {self.terms.side('history')} WHERE id > :since ORDER BY id LIMIT :n"

    @property
    def ready_since(self) -> str:
        """A query for one row: now, how many tasks are ready, and what the last `:n` transitions say about them.

        That is how many tasks became ready in them and are still so, their first time, when the last take was, and when
        the first transition was. It is one statement, since the numbers must belong to one moment.
        """
        key, counts = self.terms.quote("key"), f"FROM ({self.queries.counters}) AS counted WHERE tube = ''"
        into, out = (f"CASE WHEN {column} = '{READY}' THEN n ELSE 0 END" for column in ("target", "source"))
        last = f"SELECT id, at_us, source, target, {key} FROM {self.terms.side('history')} ORDER BY id DESC LIMIT :n"
        entry = f"CASE WHEN target = '{READY}' THEN {{}} END"
        moved = (
            f"SELECT MAX(id) AS last, MAX({entry.format('id')}) AS entered, MAX({entry.format('at_us')}) AS at_us, "
            f"MAX(CASE WHEN target = '{TAKEN}' THEN at_us END) AS taken_us, MIN(at_us) AS first_us "
            f"FROM ({last}) AS noted WHERE source <> target GROUP BY {key}"
        )
        still = "CASE WHEN last = entered THEN {} END"
        return (
            f"SELECT {self.terms.now_us}, (SELECT COALESCE(SUM({into} - {out}), 0) {counts}), "
            f"COUNT({still.format(1)}), MIN({still.format('at_us')}), MAX(taken_us), MIN(first_us) "
            f"FROM ({moved}) AS moved"
        )

    @property
    def durations(self) -> str:
        """A query for (state, microseconds that a task was in it) by the transitions after the id `:since`.

        The third column is 1 where the task came into the state before these transitions: then it was longer.
        """
        dur_us, least = self.queries.since_before, self.terms.elapsed("MIN(at_us) OVER ()")
        history = self.terms.side("history")
        spent = f"SELECT source, {dur_us} AS dur_us, {least} AS least_us FROM {history} WHERE id > :since"
        longer = "CASE WHEN dur_us IS NULL THEN 1 ELSE 0 END"
        return f"SELECT source, COALESCE(dur_us, least_us), {longer} FROM ({spent}) AS spent WHERE source <> '{ABSENT}'"
