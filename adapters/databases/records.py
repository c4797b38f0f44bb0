"""The tables of xq that all queues of a database share: sessions, settings, and what is installed."""

from __future__ import annotations

from collections.abc import Sequence

from xq.adapters.databases.terms import Terms
from xq.core.machine import TAKEN
from xq.sessions.session import UUID_LENGTH

SESSIONS = "xq_session"  # the sessions of a database (queue ''), and the queues in which each may hold tasks
SETTINGS = "xq_setting"  # what `configure` stored
QUEUES = "xq_queue"  # what is installed in it, and how it was configured


def goes_on(now: str) -> str:
    """That a session has not ended; as SQL."""
    return f"(ends IS NULL OR ends > {now})"


def session_there(now: str) -> str:
    """A row, where the session `:uuid` has not ended; as SQL."""
    return f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND queue = '' AND {goes_on(now)}"


class Records(Terms):
    """What is installed of this queue, and which sessions there are."""

    @property
    def installed(self) -> str:
        return f"SELECT version, fingerprint FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    def record(self, version: str, fingerprint: str) -> tuple[str, ...]:
        values = f"{self.literal(self.source_name)}, {self.literal(version)}, {self.in_any_mode(fingerprint)}"
        return (self.forget, f"INSERT INTO {QUEUES} (name, version, fingerprint) VALUES ({values})")

    @property
    def forget(self) -> str:
        return f"DELETE FROM {QUEUES} WHERE name = {self.literal(self.source_name)}"

    queues = f"SELECT name FROM {QUEUES}"
    sessions = f"SELECT uuid, since FROM {SESSIONS} WHERE queue = '' ORDER BY since, uuid"
    session_struck = f"DELETE FROM {SESSIONS} WHERE uuid = :uuid AND queue = :queue"

    @property
    def set_setting(self) -> str:
        values = self.on_conflict("name", "value = :value")
        return f"INSERT INTO {SETTINGS} (name, value) VALUES (:name, :value){values}"

    @property
    def session_listed(self) -> str:
        """That there is a session, and that it may hold tasks of this queue; it ends in `:lease` seconds, or lives."""
        rows = ", ".join(
            f"(:uuid, {queue}, {self.now}, {self.now} + :lease)" for queue in ("''", self.literal(self.source_name))
        )
        return f"INSERT INTO {SESSIONS} (uuid, queue, since, ends) VALUES {rows}{self.on_conflict('uuid, queue')}"

    @property
    def session_goes_on(self) -> str:
        """Have a session go on for `:lease` seconds, or for good, unless it has ended."""
        return f"UPDATE {SESSIONS} SET ends = {self.now} + :lease WHERE uuid = :uuid AND {goes_on(self.now)}"

    @property
    def session_is_there(self) -> str:
        return session_there(self.now)

    @property
    def session_went_on(self) -> str:
        """Whether a session is there now, and not only when the transaction began, in which this is asked."""
        return f"{session_there(self.now)}{self.lock}"

    @property
    def session_over(self) -> str:
        """Whether a session that was to end can be rejoined no more."""
        return f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND ends <= {self.now}{self.lock}"

    @property
    def session_postponed(self) -> str:
        """Have a session end when session_ttr has passed, where it is set."""
        ttr = f"(SELECT value FROM {SETTINGS} WHERE name = 'session_ttr' AND value > 0)"
        return (
            f"UPDATE {SESSIONS} SET ends = COALESCE(ends, {self.now} + {ttr}) WHERE uuid = :uuid AND {ttr} IS NOT NULL"
        )

    session_ends = f"SELECT 1 FROM {SESSIONS} WHERE uuid = :uuid AND ends IS NOT NULL"

    @property
    def _holders(self) -> list[tuple[str, str]]:
        """Where sessions are named: as the owners of tasks that are to be reaped, and as those that wait."""
        held = (f"substr({self.owner}, 1, {UUID_LENGTH})", f"{self.table_in_schema} WHERE {self.is_state(TAKEN)}")
        return [*([held] if self.machine.settings.reaped else []), ("session", self.waits)]

    @property
    def orphans(self) -> str:
        """The sessions that wait in this queue, or own tasks that are to be reaped, and are not listed.

        Reads all taken tasks.
        """
        found = " UNION ".join(f"SELECT DISTINCT {uuid} AS uuid FROM {table}" for uuid, table in self._holders)
        return f"SELECT uuid FROM ({found}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    @staticmethod
    def orphans_of(queues: Sequence[Records]) -> str:
        """As `orphans` for each of several queues, after its place among them."""
        held = " UNION ALL ".join(
            f"SELECT {place} AS place, {uuid} AS uuid FROM {table}"
            for place, of in enumerate(queues)
            for uuid, table in of._holders
        )
        return f"SELECT DISTINCT place, uuid FROM ({held}) AS found WHERE uuid NOT IN (SELECT uuid FROM {SESSIONS})"

    session_queues = f"SELECT queue FROM {SESSIONS} WHERE uuid = :uuid"

    @property
    def sessions_listed(self) -> str:
        """Every session, the queue in which it may hold tasks, and in how many seconds it ends (NULL: it lives)."""
        return f"SELECT uuid, queue, ends - {self.now} FROM {SESSIONS}"
