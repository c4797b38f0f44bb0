"""What xq looks at: tasks, the times of the next duties, the counters and the history. Nothing here moves a task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from xq.core.compile import EVERYWHERE, Selector, Statement, Window
from xq.core.connections import Connections
from xq.core.machine import (
    ABSENT,
    ANY_READY,
    DIRTY_HEADS,
    ENDED,
    LONGEST,
    OLD_HISTORY,
    READY,
    SETTLE,
    TAKEN,
    UNTIMED,
    duty_of,
)
from xq.sql.named import beside, filled
from xq.sql.rows import Rows

ROLL_UP = 10_000  # rows of counters that are merged at once
LATE, SOON = 2.0, 1.0  # seconds since, and until, the times of the timers that a look reads with `Window.due`


class Queries:
    """Queries on one queue, and SQL that adds up and prunes its counters and its history."""

    def __init__(self, terms: Rows) -> None:
        self.terms = terms
        self._next_due, self._times_left = dict[bool, str](), dict[bool, list[str]]()

    # tasks

    def look(self, afresh: str = "", listed: bool = False) -> str:
        """Return a query for the row of a key, or of each in a list, in any state, and its token."""
        which = f"{self.terms.by_primary * listed} WHERE {self.terms.keys_listed() if listed else self.terms.by_key()}"
        return f"{self._look}{which}{afresh}"

    @property
    def _look(self) -> str:
        return f"SELECT {self.terms.columns}, {self.terms.roles['owner']} FROM {self.terms.table_in_schema}"

    def by_state(self, state: str) -> str:
        """Return a query for the tasks in a state, in the order in which takes find them."""
        return (
            f"SELECT {self.terms.columns} FROM {self.terms.table_in_schema} WHERE {self.terms.is_state(state)} "
            f"ORDER BY {self.terms.order} LIMIT :n"
        )

    @property
    def taken(self) -> str:
        """A query for the taken tasks' keys and tokens."""
        wanted = ", ".join([*self.terms.keys, self.terms.roles["owner"]])
        return f"SELECT {wanted} FROM {self.terms.table_in_schema} WHERE {self.terms.is_state(TAKEN)}"

    def any_ready(self, window: Window = EVERYWHERE) -> str:
        """Return a query that finds a row if a take might find a task. It locks nothing."""
        return self._any_ready.replace(" LIMIT 1", f"{window.above} LIMIT 1") if window.above else self._any_ready

    @cached_property
    def _any_ready(self) -> str:
        if heads := self.terms.heads:
            queries = heads.candidates(["1"], Selector("first", READY))
            found = [f"EXISTS ({look})" for look in [*queries, *filter(None, [heads.any_dirty])]]
            return f"SELECT 1{self.terms.absent_rows} WHERE {' OR '.join(found)}"
        ready = f"{self.terms.is_state(READY)}{self.terms.not_due(READY)}{self.terms.takeable}"
        return f"SELECT 1 FROM {self.terms.read_by(f'oldest_{READY}')} WHERE {ready} LIMIT 1"

    def ready(self, rows: Selector) -> str:
        """Return a query, without locks, that finds a row if there is such a task, or a dirty head."""
        if self.terms.heads:
            return self.terms.heads.ready(rows)
        by, chosen = self.terms.choice(rows)
        return f"SELECT 1 FROM {self.terms.table_in_schema}{by} WHERE {chosen} LIMIT {self.terms.limit(rows)}"

    def first(self, rows: Selector) -> list[str]:
        """Return queries for the keys from which a take chooses the first. They skip locked rows, and lock theirs."""
        by, chosen = ("", "") if self.terms.heads else self.terms.choice(rows)
        keys = [f"{self.terms.table}.{key}" for key in self.terms.keys]
        plain = (
            f"SELECT {', '.join(keys)} FROM {self.terms.table_in_schema}{by} WHERE {chosen} LIMIT 1{self.terms.skip}"
        )
        return [
            f"SELECT {', '.join(keys)} FROM {self.terms.table_in_schema}{self.terms.by_primary} "
            f"WHERE {self.terms.key} = ({query}) AND {self.terms.is_state(READY)}{self.terms.skip}"
            for query in (self.terms.heads.candidates(keys, rows) if self.terms.heads else [plain])
        ]

    def behind_due(self, rows: Selector) -> str:
        """Return a query that finds a row if an open group may have such a task behind due ones; else ""."""
        return self.terms.heads.behind_due(rows) if self.terms.heads else ""

    # taken tasks without an owner

    @property
    def unowned(self) -> str:
        """A query of the number of taken tasks without an owner: another program wrote their status."""
        return f"SELECT COUNT(*) FROM {self.terms.table_in_schema} WHERE {self._is_unowned}"

    @cached_property
    def expired(self) -> str:
        """A query of the sessions of up to `:n` taken tasks whose ttr has passed, and of the time."""
        terms, runat = self.terms, self.terms.roles["runat"]
        due = f"{terms.is_state(TAKEN)} AND {runat} <= {terms.bound(terms.kind('runat'))}"
        found = f"SELECT {terms.session_of_owner}, {terms.now} FROM {terms.read_by('runat')}"
        return f"{found} WHERE {due} ORDER BY {runat} LIMIT :n"

    @cached_property
    def times_unowned(self) -> str:
        """SQL that lets the ttr of the queue begin for such tasks; "" if it has none."""
        return self._times(TAKEN, self._is_unowned)

    @property
    def times_ended(self) -> dict[str, str]:
        """SQL by state that starts the seconds of zombie or keep for the ended tasks without a timer."""
        found = {state: self._times(state, self.terms.is_state(state)) for state in self.terms.machine.states}
        return {state: found[state] for state in ENDED if found.get(state)}

    @property
    def times_finished(self) -> str:
        """SQL that does so for keep from the role finished on; "" without these."""
        if "D" not in self.times_ended or "finished" not in self.terms.roles:
            return ""
        finished = self.terms.roles["finished"]
        since = self.terms.seconds(self.terms.kind("finished"), finished)
        return self._times("D", f"{self.terms.is_state('D')} AND {finished} IS NOT NULL", since)

    def times_those(self, state: str, seconds: float, of: Mapping[str, Any]) -> str:
        """Return SQL that starts so many seconds for the tasks in an ended state that have these values."""
        values = (f"{self.terms.column_of[name]} = {self.terms.literal(value)}" for name, value in of.items())
        return self._times(state, " AND ".join([self.terms.is_state(state), *values]), seconds=seconds)

    def _times(self, state: str, condition: str, since: str = "", seconds: float | None = None) -> str:
        timer = self.terms.machine.timer(state, "runat")
        if (seconds := timer.default if timer and seconds is None else seconds) is None:
            return ""
        runat, at = self.terms.roles["runat"], f"{since or self.terms.now} + {seconds!r}"
        at = self.terms.moment(self.terms.kind("runat"), at)
        return f"UPDATE {self.terms.table_in_schema} SET {runat} = {at} WHERE {condition} AND {runat} IS NULL"

    @property
    def _is_unowned(self) -> str:
        owner = self.terms.roles["owner"]  # with a dash: of an earlier take, ended by its token
        return f"{self.terms.is_state(TAKEN)} AND ({owner} IS NULL OR substr({owner}, 1, 1) = '-')"

    # when tasks are due, and when the history is to be pruned

    def _timers(self, now: str = "", window: Window = EVERYWHERE) -> dict[str, str]:
        """Return a query for each timer that finds its earliest time, `at`: one row, or none."""
        terms, found = self.terms, dict[str, str]()
        for row in terms.machine.due:
            column, kind, time = terms.roles[row.due], terms.kind(row.due), f"{terms.roles[row.due]} IS NOT NULL"
            if window.due:  # a subquery, since the planner uses no index for a clock
                since, until = (f"(SELECT {terms.moment(kind, f'{now} {far:+}')})" for far in (-LATE, SOON))
                time = f"{column} BETWEEN {since} AND {until}"
            found[duty_of(row)] = (
                f"SELECT {terms.seconds(kind, column)} AS at FROM {terms.read_by(row.due)} "
                f"WHERE {terms.is_state(row.source)} AND {time} ORDER BY {column} LIMIT 1"
            )
        return found

    def _left(self, now: str, window: Window) -> list[str]:
        """Return for each duty what follows SELECT to find the seconds until it is due, if it is in sight."""
        times = self._timers(now, window)
        if self.terms.history_kept < math.inf:
            # Rows of the history expire one by one. Waiting a tenth longer prunes many at once.
            late = self.terms.history_kept + max(1.0, self.terms.history_kept / 10)
            oldest = f"{self.terms.side('history')} WHERE {self._not_newest} ORDER BY id LIMIT 1"
            times[OLD_HISTORY] = f"SELECT at_us / 1000000.0 + {late!r} AS at FROM {oldest}"
        if self.times_unowned:
            untimed = f"{self._is_unowned} AND {self.terms.roles['runat']} IS NULL"
            times[UNTIMED] = f"SELECT 0 AS at FROM {self.terms.read_by('runat')} WHERE {untimed} LIMIT 1"
        if pending := [slice.pending for slice in self.terms.slices if slice.pending]:
            either = " OR ".join(f"EXISTS ({look})" for look in pending)
            times[SETTLE] = f"SELECT 0 AS at{self.terms.absent_rows} WHERE {either}"
        if self.terms.heads and self.terms.heads.any_dirty:
            times[DIRTY_HEADS] = self.terms.heads.any_dirty
        return [f"'{duty}' AS duty, at - {now} AS seconds FROM ({time}) AS times" for duty, time in times.items()]

    def next_due(self, window: Window = EVERYWHERE) -> str:
        """Return a query for each duty in sight, and the seconds until it is due: negative if it is late; or ""."""
        if window.due not in self._next_due:
            self._next_due[window.due] = " UNION ALL ".join(
                f"SELECT {left}" for left in self._left(self.terms.now, window)
            )
        return self._next_due[window.due]

    def times_left(self, window: Window = EVERYWHERE) -> list[str]:
        """Return queries as `next_due`, after SELECT and without named values."""
        if window.due not in self._times_left:
            self._times_left[window.due] = self._left(filled(self.terms.now, now="NULL"), window)
        return self._times_left[window.due]

    def found_ready(self, window: Window = EVERYWHERE) -> str:
        return f"'{ANY_READY}' AS duty, 0.0 AS seconds FROM ({filled(self.any_ready(window), now='NULL')}) AS ready"

    @cached_property
    def anything(self) -> str:
        """A condition that is true if a take might find a task, or a timer has passed."""
        now = filled(self.terms.now, now="NULL")
        due = (f"COALESCE(({at}) <= {now}, FALSE)" for at in self._timers().values())
        return " OR ".join([f"EXISTS ({filled(self._any_ready, now='NULL')})", *due])

    # counters

    @property
    def counters(self) -> str:
        """A query for tube, source, target, number of transitions, and how many rows make it up."""
        return f"SELECT tube, source, target, n, 1 FROM {self.terms.side('count')}"

    @property
    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.terms.side('count')} (tube, source, target, n) VALUES (:tube, :source, :target, :count)"
            f"{self.terms.on_conflict('tube, source, target', 'n = n + :count')}"
        )

    @property
    def audit(self) -> str:
        """A query for the counters and the actual task counts (source NULL). It reads the whole table."""
        actual = f"SELECT tube, NULL AS source, state AS target, n, 0 FROM ({self.actual_counts}) AS actual"
        return f"{self.counters} UNION ALL {actual}"

    @property
    def actual_counts(self) -> str:
        """A query for tube, letter and actual task count. It reads the whole table."""
        letter = self.terms.letter(self.terms.roles["status"])
        states = self.terms.in_states(self.terms.machine.states)
        rows = f"FROM {self.terms.table_in_schema} WHERE {states}"
        everything = f"SELECT '' AS tube, {letter} AS state, COUNT(*) AS n {rows} GROUP BY 1, 2"
        if not self.terms.tube_stats:
            return everything
        tube, counted = (
            self.terms.exact(self.terms.value_of("tube", self.terms.roles["tube"])),
            self.terms.counted(self.terms.roles["tube"]),
        )
        return f"{everything} UNION ALL SELECT {tube}, {letter}, COUNT(*) {rows} AND {counted} GROUP BY 1, 2"

    @property
    def count_what_is_there(self) -> str:
        """SQL that counts the existing tasks, unless counting has begun."""
        return (
            f"INSERT INTO {self.terms.side('count')} (tube, source, target, n) "
            f"SELECT tube, '', state, n FROM ({self.actual_counts}) AS actual "
            f"WHERE NOT EXISTS ({self.begun})"
        )

    @property
    def begun(self) -> str:
        """A query that finds a row if counting has begun."""
        return f"SELECT 1 FROM {self.terms.side('count')}"

    def roll_up(self, store: Connections) -> bool:
        """Merge some rows that were appended to the counters. Return whether there may be more."""
        return False

    # the history

    add_up_history = ""  # SQL that adds to the counters the transitions that only history rows count

    def history(self, of: Iterable[str]) -> str:
        """Return a query on the history, with the time in each state. `of` has key, after, before, since or until."""
        key = self.terms.key_in_history([f":k{i}" for i in range(len(self.terms.keys))])
        conditions = {
            "key": f"{self.terms.quote('key')} = {key}",
            "after": "id > :after",
            "before": "id < :before",
            "since": "at_us >= :since",
            "until": "at_us < :until",
        }
        asked = [conditions[name] for name in of if name in ("since", "until")]
        if self.terms.history_kept < math.inf:
            asked.append(f"at_us >= {self._forgotten_before}")
        which = [conditions[name] for name in of if name in ("key", "after", "before")]
        within = f" WHERE {' AND '.join(which)}" if which else ""
        columns = ", ".join(map(self.terms.quote, self.terms.history_columns))
        # The time conditions are outside: a task's previous transition may be older.
        return (
            f"SELECT {columns}, dur_us "
            f"FROM (SELECT {columns}, {self.since_before} AS dur_us FROM {self.terms.side('history')}{within}) AS noted"
            f"{' WHERE ' * bool(asked)}{' AND '.join(asked)} ORDER BY id"
        )

    def done_again(self, checkpoint: Sequence[int]) -> str:
        """Return a query that finds a row if a task came to D after a checkpoint, and an archive deleted it then."""
        key, table, after = (
            self.terms.quote("key"),
            self.terms.side("history"),
            beside(self.terms.history_order, checkpoint, ">") or "1 = 1",
        )
        gone = f"SELECT {key} FROM {table} WHERE source = 'D' AND target = '{ABSENT}' AND event = 'archive' AND {after}"
        return f"SELECT 1 FROM {table} WHERE target = 'D' AND {after} AND {key} IN ({gone}) LIMIT 1"

    def forget_rows(self, ids: Sequence[int]) -> Statement:
        """Return the statement that deletes rows by their ids."""
        return Statement(f"DELETE FROM {self.terms.side('history')} WHERE id IN ({', '.join(map(str, ids))})")

    highest_key = ""  # a query for the highest key, if the database gives the next task the one after it

    @property
    def since_before(self) -> str:
        return self.terms.since_before

    @property
    def _forgotten_before(self) -> str:
        return f"{self.terms.now_us} - {min(self.terms.history_kept, LONGEST)!r} * 1000000"

    @property
    def _not_newest(self) -> str:
        """The condition that a row is not the newest. The newest stays, so that no id is used twice."""
        return f"id < (SELECT MAX(id) FROM {self.terms.side('history')})"

    @cached_property
    def expired_history(self) -> str:
        """A query for the ids of up to `n` expired rows of the history, never the newest; empty if none expire.

        A query of its own: within a DELETE it would wait on MariaDB for each row that another transaction has added.
        """
        if self.terms.history_kept == math.inf:
            return ""
        oldest = f"SELECT id, at_us FROM {self.terms.side('history')} WHERE {self._not_newest} ORDER BY id LIMIT :n"
        return f"SELECT id FROM ({oldest}) AS oldest WHERE at_us < {self._forgotten_before}"


class ServerQueries(Queries):
    """Triggers append rows to the counters, so that no transaction waits for another; `roll_up` merges them."""

    @property
    def counters(self) -> str:
        return (
            f"SELECT tube, source, target, {self.terms.whole('SUM(n)')} AS n, COUNT(*) "
            f"FROM {self.terms.side('count')} GROUP BY tube, source, target"
        )

    @property
    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.terms.side('count')} (tube, source, target, n) VALUES (:tube, :source, :target, :count)"
        )
