"""The tables that all queues of a database share: the SQL that creates them, and the texts of shared.sql."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from xq.core.acting import LONGEST_ACTOR, LONGEST_REASON
from xq.core.compile import Window
from xq.core.machine import TAKEN
from xq.core.tokens import HOST, PROGRAM, UUID_LENGTH, in_full
from xq.sql.language import SHARED_TEXTS, Language
from xq.sql.named import listed
from xq.sql.sql_file import Holes, filled_in, texts

SESSIONS = "xq_session"  # the sessions of a database (queue ''), and the queues in which each may own tasks
SETTINGS = "xq_setting"  # the settings of `configure`
QUEUES = "xq_queue"  # the installed queues and their configurations
PAUSES = "xq_pause"  # the paused queues (whole = 1, tube ''), tubes (0) and groups (2)
SCHEDULES = "xq_schedule"  # the schedules of all queues
GENERATIONS = "xq_generation"  # a queue's definitions, first installed in this order, and its sets of schedules
OBJECTS = "xq_object"  # what install() has made for each queue, and the hash of each index and trigger
SLOTS = "xq_slot"  # the slots of xq.Concurrency, by name and number, and the session that each belongs to
LEASES = "xq_lease"  # on a server, the tokens whose ttr does not pass before a time
RATES = "xq_rate"  # the token buckets of the feature rate (its slice.py)
TUBES = "xq_tube"  # the tubes; the names of their tables begin so (xq/tubes/tables.py)
ALIVE = "xq_alive"  # on a server, the sessions of each process; the process's lock shows that it lives

ANY = "SELECT 1"  # asks for nothing but an answer


class Sql(cached_property[str]):
    """The text of the same name. Its object fills it in by the method `text`."""

    def __init__(self) -> None:
        super().__init__(lambda part: part.text(self.attrname))


class SharedSql(Language):
    """The SQL of one kind of database about what all its queues share. It names no queue.

    It has the tables, the texts of shared.sql by their names, and what a database is asked about many queues at once.
    """

    more_of_queues = ""  # further columns of QUEUES, after a comma
    table = QUEUES  # without it, no queue of the database is installed

    definitions = Sql()
    queues = Sql()
    time_us = Sql()
    set_setting = Sql()

    sessions = Sql()
    sessions_listed = Sql()
    session_queues = Sql()
    session_listed = Sql()
    session_is_there = Sql()
    session_rejoined = Sql()
    rejoin_session = Sql()
    describe_session = Sql()
    expire_session_later = Sql()
    session_ends = Sql()
    older_sessions = Sql()
    session_over = Sql()
    deregister_session = Sql()

    add_slot = Sql()
    free_slots = Sql()
    take_slot = Sql()
    leave_slot = Sql()
    hold_task = Sql()
    forget_held = Sql()
    forget_cancelled = Sql()

    @property
    def holes(self) -> Holes:
        return {
            "now": self.now,
            "now_us": self.now_us,
            "server_start": self.server_start,
            "lock": self.lock.lstrip(),
            "skip": self.skip.lstrip(),
            "unless": lambda columns: self.on_conflict(columns).lstrip(),
        }

    def text(self, name: str) -> str:
        """Return a text with its holes filled in."""
        return filled_in({**texts(SHARED_TEXTS), **texts(self.shared_file)}[name], (), self.holes)

    def records_of(self, queues: Sequence[Any]) -> str:
        """Return a query of what other processes may change: kind, queue, name, text, number.

        A queue has its layout and its fingerprint, a pause its tube or group and `whole`, and a schedule the
        microseconds until its next firing. A cancelled task has its name. A server has a row with 1 if it accepts no
        writes.
        """
        names = ", ".join(self.literal(queue.source_name) for queue in queues) or "''"
        found = [
            f"SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n "
            f"FROM {QUEUES} WHERE name IN ({names})",
            f"SELECT 'pause', queue, tube, '', whole FROM {PAUSES}",
            f"SELECT 'schedule', queue, name, '', next_us - {self.now_us} "
            f"FROM {SCHEDULES} WHERE next_us IS NOT NULL AND paused IS NULL",
            f"SELECT 'cancelled', '', name, '', 0 FROM {SETTINGS} WHERE substr(name, 1, 10) = 'cancelled:'",
        ]
        if self.read_only:
            found.append(f"SELECT 'read only', '', '', '', 1{self.absent_rows} WHERE {self.read_only}")
        return " UNION ALL ".join(found)

    @staticmethod
    def orphans_of(queues: Sequence[Any]) -> str:
        """Return a query for (queue's index, session): unregistered sessions that wait there or own tasks to reap.

        It reads all taken tasks.
        """
        found = []
        for place, of in enumerate(queues):
            if of.machine.settings.reaped:
                uuid, taken = f"substr({of.roles['owner']}, 1, {UUID_LENGTH})", of.is_state(TAKEN)
                found.append(f"SELECT {place} AS place, {uuid} AS uuid FROM {of.table_in_schema} WHERE {taken}")
            found.append(f"SELECT {place} AS place, session AS uuid FROM {of.waits}")
        mentions = " UNION ALL ".join(found)
        return f"SELECT DISTINCT place, uuid FROM ({mentions}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    @staticmethod
    def of_sessions(sql: str, uuids: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """Return one of these statements for some sessions, and its values. There are two texts: for one, for many."""
        return listed(sql, "uuids", in_full(uuids))

    @staticmethod
    def upkeep_of(queues: Sequence[tuple[Any, bool, bool, Window]]) -> str:
        """Return a query that finds (index of the queue, duty, seconds until that is due) for several queues, or "".

        The first flag asks for the duties in sight, the second for ANY_READY, if a take might find a task. The query
        uses the database's clock, and no named values.
        """
        found = [
            f"SELECT {place} AS place, {look}"
            for place, (queue, timed, asks, window) in enumerate(queues)
            for look in queue.queries.times_left(window) * timed + [queue.queries.found_ready(window)] * asks
        ]
        return " UNION ALL ".join(found)

    def many_counters_of(self, queues: Sequence[Any], many: int) -> str:
        """Return a query of the indexes of the queues with more rows of counters than that; "" if rows never add up."""
        if self.is_local:
            return ""
        return " UNION ALL ".join(
            f"SELECT {place} FROM (SELECT 1 AS one FROM {queue.side('count')} LIMIT 1 OFFSET {many}) AS counters"
            for place, queue in enumerate(queues)
        )

    @cached_property
    def tables(self) -> dict[str, str]:
        """The tables that all queues share: the SQL, by table name, to create each unless it is there."""
        name, uuid, long = self.varying(255), self.varying(UUID_LENGTH), self.long_text
        # For a pause. And paused is 1 or NULL.
        by = f"actor {self.varying(LONGEST_ACTOR)}, reason {self.varying(LONGEST_REASON)}"
        tables = {
            QUEUES: f"name {name} PRIMARY KEY, version {name} NOT NULL, fingerprint {long} NOT NULL"
            f"{self.more_of_queues}",
            SESSIONS: f"uuid {uuid} NOT NULL, queue {name} NOT NULL, since DOUBLE PRECISION NOT NULL, "
            f"ends DOUBLE PRECISION, host {self.varying(HOST)}, pid BIGINT, program {self.varying(PROGRAM)}, "
            "PRIMARY KEY (uuid, queue)",
            SETTINGS: f"name {name} PRIMARY KEY, value DOUBLE PRECISION NOT NULL",
            PAUSES: f"queue {name} NOT NULL, tube {name} NOT NULL, whole INTEGER NOT NULL, "
            f"since_us BIGINT, {by}, PRIMARY KEY (queue, tube, whole)",
            # A schedule that does not fire again keeps its row: repeating its definition must not fire it again.
            SCHEDULES: f"queue {name} NOT NULL, name {name} NOT NULL, spec {long} NOT NULL, task {long} NOT NULL, "
            f"next_us BIGINT, last_us BIGINT, paused INTEGER, paused_us BIGINT, {by}, PRIMARY KEY (queue, name)",
            RATES: f"queue {name} NOT NULL, bucket {name} NOT NULL, full_us BIGINT NOT NULL, "
            "PRIMARY KEY (queue, bucket)",
            GENERATIONS: f"queue {name} NOT NULL, kind {name} NOT NULL, generation INTEGER NOT NULL, "
            f"version {name} NOT NULL, definition {long} NOT NULL, at_us BIGINT NOT NULL, "
            "PRIMARY KEY (queue, kind, generation)",
            OBJECTS: f"queue {name} NOT NULL, name {name} NOT NULL, hash {long} NOT NULL, PRIMARY KEY (queue, name)",
            SLOTS: f"name {name} NOT NULL, slot INTEGER NOT NULL, session {uuid} NOT NULL, PRIMARY KEY (name, slot)",
        }
        if not self.is_local:
            # A row with an empty uuid registers a process for commit notifications.
            tables[ALIVE] = (
                f"uuid {uuid} NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, "
                "PRIMARY KEY (uuid, process)"
            )
            tables[LEASES] = f"token {name} PRIMARY KEY, ends {self.double} NOT NULL"
        return {
            table: f"CREATE TABLE IF NOT EXISTS {table} ({columns}){self.engine}" for table, columns in tables.items()
        }
