"""SQL of xq's own tables: the installed queues, sessions, settings, pauses, schedules, slots and waits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xq.adapters.databases.named import listed
from xq.adapters.databases.sql_file import Holes, filled_in, texts
from xq.adapters.databases.terms import Terms
from xq.core import dialect as interface
from xq.core.machine import TAKEN
from xq.sessions.records import in_full
from xq.sessions.session import UUID_LENGTH

SESSIONS = "xq_session"  # the sessions of a database (queue ''), and the queues in which each may own tasks
SETTINGS = "xq_setting"  # the settings of `configure`
QUEUES = "xq_queue"  # the installed queues and their configurations
PAUSES = "xq_pause"  # the paused queues (whole = 1, tube ''), and the paused tubes
SCHEDULES = "xq_schedule"  # the schedules of all queues
DEFINITIONS = f"SELECT name, fingerprint FROM {QUEUES} ORDER BY name"
GENERATIONS = "xq_generation"  # the definitions, and the sets of schedules, that were the newest of a queue in turn
SLOTS = "xq_slot"  # the slots of xq.Concurrency, by name and number, and the session that each belongs to
LEASES = "xq_lease"  # on a server, the tokens whose ttr does not pass before a time
OBJECTS = "xq_object"  # what install() has made for each queue, and the hash of each index and trigger
RATES = "xq_rate"  # the token buckets of the feature rate (token_buckets.py)
TEXTS = Path(__file__).parent / "records.sql"


class Records(interface.Records):
    """The texts of records.sql with what the dialect of a queue fills in."""

    table = QUEUES  # without it, no queue of the database is installed

    def __init__(self, of: Terms, file: Path = TEXTS) -> None:
        self.of, self.file = of, file

    def text(self, name: str, **more: str) -> str:
        """Return a text with its holes filled in."""
        of, parts = self.of, [f"k{i}" for i in range(len(self.of.keys))]
        holes: Holes = {
            "now": of.now,
            "now_us": of.now_us,
            "queue": of.literal(of.source_name),
            "lock": of.lock.lstrip(),
            "skip": of.skip.lstrip(),
            "unless": lambda columns: of.on_conflict(columns).lstrip(),
            "waits": of.waits,
            "parts": ", ".join(parts),
            "values": ", ".join(f":{part}" for part in parts),
            "this_key": " AND ".join(f"{part} = :{part}" for part in parts),
            "tasks": of.table_in_schema,
            "columns_of_t": ", ".join(f"t.{of.quote(field.column)}" for field in of.source.fields),
            "t_is_awaited": of.same_wait("w", "t"),
            "t_is_taken": of.is_state(TAKEN, f"t.{of.roles['status']}"),
            **more,
        }
        return filled_in({**texts(TEXTS), **texts(self.file)}[name], (), holes)

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        """Return SQL that records this queue as installed, in place of an earlier record, and as the newest."""
        values = {"version": self.of.literal(version), "fingerprint": self.of.in_any_mode(fingerprint)}
        noted = self.forget_noted, self.note_installed  # also of the earlier one, which may not be noted yet
        return *noted, self.forget, self.text("recorded", **values), *noted

    @property
    def forget_all(self) -> dict[str, str]:
        """The SQL, by shared table, that deletes its rows of this queue."""
        beside = {
            table: self.text("forget_in", table=table) for table in (PAUSES, SCHEDULES, RATES, GENERATIONS, OBJECTS)
        }
        return beside | {QUEUES: self.forget}

    def records_of(self, queues: Sequence[Terms]) -> str:
        """Return a query of what other processes may change: kind, queue, name, text, number, `now` in microseconds.

        A queue has its layout and its fingerprint, a pause its tube and 1 for the whole queue, and a schedule the
        microseconds until its next firing. A cancelled task has its name. A server has a row with 1 if it accepts no
        writes.
        """
        of = self.of
        names = ", ".join(of.literal(queue.source_name) for queue in queues)
        found = [
            f"SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n, 0 AS now "
            f"FROM {QUEUES} WHERE name IN ({names})",
            f"SELECT 'pause', queue, tube, '', whole, 0 FROM {PAUSES}",
            f"SELECT 'schedule', queue, name, '', next_us - {of.now_us}, {of.now_us} "
            f"FROM {SCHEDULES} WHERE next_us IS NOT NULL AND paused IS NULL",
            f"SELECT 'cancelled', '', name, '', 0, 0 FROM {SETTINGS} WHERE substr(name, 1, 10) = 'cancelled:'",
        ]
        if of.read_only:
            found.append(f"SELECT 'read only', '', '', '', 1, 0{of.absent_rows} WHERE {of.read_only}")
        return " UNION ALL ".join(found)

    @staticmethod
    def orphans_of(queues: Sequence[Terms]) -> str:
        """Return a query of (index of the queue, session): unregistered sessions that wait there or own tasks to reap.

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
