"""SQL of the tables that all queues of a database share: sessions, settings, pauses, schedules, and the queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xq.adapters.databases.named import listed
from xq.adapters.databases.terms import Terms
from xq.core.machine import TAKEN
from xq.sessions.session import UUID_LENGTH, in_full

SESSIONS = "xq_session"  # the sessions of a database (queue ''), and the queues in which each may own tasks
SETTINGS = "xq_setting"  # the settings of `configure`
QUEUES = "xq_queue"  # the installed queues and their configurations
PAUSES = "xq_pause"  # the paused queues (whole = 1, tube ''), and the paused tubes
SCHEDULES = "xq_schedule"  # the schedules of all queues
DEFINITIONS = f"SELECT name, fingerprint FROM {QUEUES} ORDER BY name"
SLOTS = "xq_slot"  # the slots of xq.Concurrency, by name and number, and the session that each belongs to
FIRES = "next_us IS NOT NULL AND paused IS NULL"  # of a schedule
RATES = "xq_rate"  # the token buckets of the feature rate (rates.py)
SESSION_COLUMNS = "uuid, queue, since, ends, host, pid, program"


def goes_on(now: str) -> str:
    """Return the condition that a session has not expired."""
    return f"(ends IS NULL OR ends > {now})"


def session_there(now: str) -> str:
    """Return a query that finds a row if the session `:uuid` has not expired."""
    return f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = '' AND {goes_on(now)}"


class Records(Terms):
    """The records of one queue: its installation, and sessions."""

    @property
    def installed(self) -> str:
        return f"SELECT version, fingerprint FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        values = f"{self.literal(self.source_name)}, {self.literal(version)}, {self.in_any_mode(fingerprint)}"
        return (self.forget, f"INSERT INTO {QUEUES} (name, version, fingerprint) VALUES ({values})")

    read_only: ClassVar[str] = ""  # SQL: whether the server is read-only; "" if that must be asked of the connection

    def records_of(self, queues: Sequence[Records]) -> str:
        """Return a query of what other processes may change: kind, queue, name, text, number, `now` in microseconds.

        A queue has its layout and its fingerprint, a pause its tube and 1 for the whole queue, and a schedule the
        microseconds until its next firing. A server has a row with 1 if it accepts no writes.
        """
        names = ", ".join(self.literal(queue.source_name) for queue in queues)
        found = [
            f"SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n, 0 AS now "
            f"FROM {QUEUES} WHERE name IN ({names})",
            f"SELECT 'pause', queue, tube, '', whole, 0 FROM {PAUSES}",
            f"SELECT 'schedule', queue, name, '', next_us - {self.now_us}, {self.now_us} "
            f"FROM {SCHEDULES} WHERE {FIRES}",
        ]
        if self.read_only:
            found.append(f"SELECT 'read only', '', '', '', 1, 0{self.absent_rows} WHERE {self.read_only}")
        return " UNION ALL ".join(found)

    @property
    def forget(self) -> str:
        return f"DELETE FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    @property
    def forget_all(self) -> dict[str, str]:
        """Returns SQL, by shared table, that deletes its rows of this queue."""
        mine = {table: f"DELETE FROM {table} WHERE {self._mine}" for table in (PAUSES, SCHEDULES, RATES)}
        return mine | {QUEUES: self.forget}

    @property
    def _mine(self) -> str:
        return f"queue = {self.literal(self.source_name)}"

    records = QUEUES
    queues = f"SELECT name FROM {QUEUES}"
    sessions = f"SELECT uuid, since FROM {SESSIONS} WHERE queue = '' ORDER BY since, uuid"
    processes = f"SELECT uuid, since, host, pid, program FROM {SESSIONS} WHERE queue = '' ORDER BY since, uuid"
    deregister_session = f"DELETE FROM {SESSIONS} WHERE uuid IN (:uuids) AND queue = :queue"

    @property
    def set_setting(self) -> str:
        values = self.on_conflict("name", "value = :value")
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, :value){values}"

    @property
    def session_listed(self) -> str:
        """Returns SQL that registers a session with this queue. It expires in `:lease` seconds (NULL: never)."""
        rows = ", ".join(
            f"(:uuid, {queue}, {self.now}, {self.now} + :lease, :host, :pid, :program)"
            for queue in ("''", self.literal(self.source_name))
        )
        return f"INSERT INTO {SESSIONS} ({SESSION_COLUMNS}) VALUES {rows}{self.on_conflict('uuid, queue')}"

    @property
    def rejoin_session(self) -> str:
        """Returns SQL that extends a session to `:lease` seconds from now (NULL: for ever), unless it has expired.

        Also record this process: the one that registered the session may have ended.
        """
        process = "host = :host, pid = :pid, program = :program"
        return f"UPDATE {SESSIONS} SET ends = {self.now} + :lease, {process} WHERE uuid = :uuid AND {goes_on(self.now)}"

    @property
    def session_is_there(self) -> str:
        return session_there(self.now)

    @property
    def session_rejoined(self) -> str:
        """Returns a query that finds the session `:uuid` as last committed, not as of the transaction's snapshot."""
        return f"{session_there(self.now)}{self.lock}"

    @property
    def session_over(self) -> str:
        """Returns a query of those of some sessions that have expired, so that no process can join them again."""
        return f"SELECT uuid FROM {SESSIONS} WHERE uuid IN (:uuids) AND ends <= {self.now}{self.lock}"

    @property
    def expire_session_later(self) -> str:
        """Returns SQL that makes sessions expire after session_ttr, if that is set."""
        ttr = f"(SELECT value FROM {SETTINGS} WHERE name = 'session_ttr' AND value > 0)"
        these = f"uuid IN (:uuids) AND {ttr} IS NOT NULL"
        return f"UPDATE {SESSIONS} SET ends = COALESCE(ends, {self.now} + {ttr}) WHERE {these}"

    session_ends = f"SELECT uuid FROM {SESSIONS} WHERE uuid IN (:uuids) AND ends IS NOT NULL"

    @property
    def _mentions(self) -> list[tuple[str, str]]:
        """Returns (uuid, rows) of all mentions of sessions: as owners of tasks to reap, and in the waits."""
        uuid = f"substr({self.roles['owner']}, 1, {UUID_LENGTH})"
        owners = (uuid, f"{self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return [*([owners] if self.machine.settings.reaped else []), ("session", self.waits)]

    @staticmethod
    def orphans_of(queues: Sequence[Records]) -> str:
        """Return a query of (index of the queue, session): unregistered sessions that wait there or own tasks to reap.

        It reads all taken tasks.
        """
        mentions = " UNION ALL ".join(
            f"SELECT {place} AS place, {uuid} AS uuid FROM {table}"
            for place, of in enumerate(queues)
            for uuid, table in of._mentions
        )
        return f"SELECT DISTINCT place, uuid FROM ({mentions}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    session_queues = f"SELECT queue FROM {SESSIONS} WHERE uuid IN (:uuids)"

    @staticmethod
    def of_sessions(sql: str, uuids: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """Return one of these statements for some sessions, and its values. There are two texts: for one, for many."""
        return listed(sql, "uuids", in_full(uuids))

    @property
    def sessions_listed(self) -> str:
        """Returns a query of all sessions: uuid, queue, seconds until it expires (NULL: never), and its process."""
        return f"SELECT uuid, queue, ends - {self.now}, host, pid, program FROM {SESSIONS}"

    # pauses

    pauses = f"SELECT queue, tube, whole FROM {PAUSES}"

    @property
    def pause(self) -> str:
        """Returns SQL that pauses the queue (`:whole` is 1) or the tube `:tube`."""
        values = f"{self.literal(self.source_name)}, :tube, :whole, {self.now_us}, :actor, :reason"
        there = self.on_conflict("queue, tube, whole")
        return f"INSERT INTO {PAUSES} (queue, tube, whole, since_us, actor, reason) VALUES ({values}){there}"

    @property
    def my_pauses(self) -> str:
        """Returns a query of the pauses of this queue: tube, 1 for the whole queue, since when, actor, reason."""
        return f"SELECT tube, whole, since_us, actor, reason FROM {PAUSES} WHERE {self._mine}"

    @property
    def resume(self) -> str:
        return f"DELETE FROM {PAUSES} WHERE {self._mine} AND tube = :tube AND whole = :whole"

    # schedules

    @property
    def time_us(self) -> str:
        """Returns a query of `now`, in microseconds."""
        return f"SELECT {self.now_us}"

    @property
    def schedules(self) -> str:
        """Returns a query of the schedules of this queue that have not ended.

        Name, spec, task, times of the next and the last firing, 1 if it is paused, `now`.
        """
        columns = f"name, spec, task, next_us, last_us, paused, {self.now_us}"
        return f"SELECT {columns} FROM {SCHEDULES} WHERE {self._mine} AND next_us IS NOT NULL ORDER BY name"

    @property
    def declared_schedules(self) -> str:
        """Returns a query of the schedules of this queue whose task is like `:mark`: name, spec, task."""
        return f"SELECT name, spec, task FROM {SCHEDULES} WHERE {self._mine} AND task LIKE :mark ORDER BY name"

    @property
    def next_firings(self) -> str:
        """Returns a query of all queues' schedules: queue, name, microseconds until the next firing, `now`."""
        return f"SELECT queue, name, next_us - {self.now_us}, {self.now_us} FROM {SCHEDULES} WHERE {FIRES}"

    @property
    def add_schedule(self) -> str:
        """Returns SQL that adds a schedule, unless there is one of this name. It locks that one."""
        values = f"({self.literal(self.source_name)}, :name, :spec, :task, :next_us){self.on_conflict('queue, name')}"
        return f"INSERT INTO {SCHEDULES} (queue, name, spec, task, next_us) VALUES {values}"

    @property
    def schedule(self) -> str:
        """Returns a query of a schedule by its name: spec, task, time of the next firing. It locks it."""
        return f"SELECT spec, task, next_us FROM {SCHEDULES} WHERE {self._mine} AND name = :name{self.lock}"

    @property
    def task_of_schedule(self) -> str:
        """Returns a query of the task of a schedule by its name. It locks nothing."""
        return f"SELECT task FROM {SCHEDULES} WHERE {self._mine} AND name = :name"

    @property
    def due_schedule(self) -> str:
        """Returns a query of a due schedule by its name: spec, task, time of the firing, `now`. It locks it.

        It does not wait: a schedule that another transaction has locked is changed or fired by that.
        """
        passing = f"{self.lock} SKIP LOCKED" if self.lock else ""
        return (
            f"SELECT spec, task, next_us, {self.now_us} FROM {SCHEDULES} "
            f"WHERE {self._mine} AND name = :name AND paused IS NULL AND next_us <= {self.now_us}{passing}"
        )

    @property
    def set_schedule(self) -> str:
        values = "spec = :spec, task = :task, next_us = :next_us"
        return f"UPDATE {SCHEDULES} SET {values} WHERE {self._mine} AND name = :name"

    @property
    def fired_schedule(self) -> str:
        values = f"next_us = :next_us, last_us = {self.now_us}"
        return f"UPDATE {SCHEDULES} SET {values} WHERE {self._mine} AND name = :name"

    @property
    def pause_schedule(self) -> str:
        return f"UPDATE {SCHEDULES} SET paused = 1 WHERE {self._mine} AND name = :name"

    @property
    def resume_schedule(self) -> str:
        values = "paused = NULL, next_us = :next_us"
        return f"UPDATE {SCHEDULES} SET {values} WHERE {self._mine} AND name = :name AND paused = 1"

    @property
    def drop_schedule(self) -> str:
        return f"DELETE FROM {SCHEDULES} WHERE {self._mine} AND name = :name"

    # slots

    @property
    def add_slot(self) -> str:
        there = self.on_conflict("name, slot")
        return f"INSERT INTO {SLOTS} (name, slot, session) VALUES (:name, :slot, ''){there}"

    @property
    def free_slots(self) -> str:
        """Returns a query of up to `:n` of the first `:most` slots that are free, or of ended sessions. It locks them.

        It does not wait: a slot that another transaction has locked is being taken or freed.
        """
        passing = f"{self.lock} SKIP LOCKED" if self.lock else ""
        living = f"SELECT uuid FROM {SESSIONS} WHERE queue = '' AND {goes_on(self.now)}"
        return (
            f"SELECT slot FROM {SLOTS} WHERE name = :name AND slot <= :most AND "
            f"(session = '' OR session NOT IN ({living})) ORDER BY slot LIMIT :n{passing}"
        )

    take_slot = f"UPDATE {SLOTS} SET session = :uuid WHERE name = :name AND slot = :slot"
    leave_slot = f"UPDATE {SLOTS} SET session = '' WHERE name = :name AND slot = :slot AND session = :uuid"
