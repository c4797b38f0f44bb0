"""SQL of xq's own tables: the installed queues, sessions, settings, pauses, schedules, slots and waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from xq.adapters.databases.named import listed
from xq.adapters.databases.sql_file import Holes, Text, filled_in, texts
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
RATES = "xq_rate"  # the token buckets of the feature rate (rates.py)
TEXTS = Path(__file__).parent / "records.sql"


def session_there(now: str) -> str:
    """Return a query that finds a row if the session `:uuid` has not expired, by this time."""
    return filled_in(texts(TEXTS)["session_is_there"], (), {"now": now})


class Records(Terms):
    """The texts of records.sql for one queue, by their names, and queries of many queues at once."""

    records_file: ClassVar[Path] = TEXTS  # the texts that the database writes in its own way

    def text(self, name: str, **more: str) -> str:
        """Return a text with the values for its holes filled in."""
        columns = ", ".join(f"t.{self.quote(field.column)}" for field in self.source.fields)
        parts = self._parts()
        values: Holes = {
            "now": self.now,
            "now_us": self.now_us,
            "queue": self.literal(self.source_name),
            "lock": self.lock.lstrip(),
            "skip": f"{self.lock} SKIP LOCKED".lstrip() if self.lock else "",
            "unless": lambda columns: self.on_conflict(columns).lstrip(),
            "waits": self.waits,
            "parts": ", ".join(parts),
            "values": ", ".join(f":{part}" for part in parts),
            "this_key": " AND ".join(f"{part} = :{part}" for part in parts),
            "tasks": self.table_in_schema,
            "columns_of_t": columns,
            "t_is_awaited": self.same_wait("w", "t"),
            "t_is_taken": self.is_state(TAKEN, f"t.{self.roles['status']}"),
            **more,
        }
        return filled_in({**texts(TEXTS), **texts(self.records_file)}[name], (), values)

    installed = Text()
    forget = Text()
    forget_pauses = Text()
    forget_schedules = Text()
    forget_buckets = Text()
    queues = Text()
    time_us = Text()
    set_setting = Text()

    sessions = Text()
    processes = Text()
    sessions_listed = Text()
    session_queues = Text()
    session_listed = Text()
    session_is_there = Text()
    session_rejoined = Text()
    rejoin_session = Text()
    expire_session_later = Text()
    session_ends = Text()
    session_over = Text()
    deregister_session = Text()

    pauses = Text()
    my_pauses = Text()
    pause = Text()
    resume = Text()

    schedules = Text()
    declared_schedules = Text()
    next_firings = Text()
    add_schedule = Text()
    schedule = Text()
    task_of_schedule = Text()
    due_schedule = Text()
    set_schedule = Text()
    fired_schedule = Text()
    pause_schedule = Text()
    resume_schedule = Text()
    drop_schedule = Text()

    add_slot = Text()
    free_slots = Text()
    take_slot = Text()
    leave_slot = Text()
    drop_full_buckets = Text()

    begin_wait = Text()
    end_wait = Text()
    ends = Text()
    waiting = Text()
    taken_and_awaited = Text()
    forget_waits = Text()

    records = QUEUES

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        """Return SQL that records that this queue is installed, in place of what was recorded."""
        return self.forget, self.text(
            "recorded", version=self.literal(version), fingerprint=self.in_any_mode(fingerprint)
        )

    @property
    def forget_all(self) -> dict[str, str]:
        """The SQL, by shared table, that deletes its rows of this queue."""
        beside = {PAUSES: self.forget_pauses, SCHEDULES: self.forget_schedules, RATES: self.forget_buckets}
        return {**beside, QUEUES: self.forget}

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
            f"FROM {SCHEDULES} WHERE next_us IS NOT NULL AND paused IS NULL",
        ]
        if self.read_only:
            found.append(f"SELECT 'read only', '', '', '', 1, 0{self.absent_rows} WHERE {self.read_only}")
        return " UNION ALL ".join(found)

    @property
    def _mentions(self) -> list[tuple[str, str]]:
        """(uuid, rows) of all mentions of sessions: as owners of tasks to reap, and in the waits."""
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

    @staticmethod
    def of_sessions(sql: str, uuids: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """Return one of these statements for some sessions, and its values. There are two texts: for one, for many."""
        return listed(sql, "uuids", in_full(uuids))
