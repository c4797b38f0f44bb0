"""The dialects' base: the SQL for one queue in one database, in parts by what it is for."""

from __future__ import annotations

from functools import cached_property

from xq.core.connections import Connections
from xq.core.kinds import Row
from xq.sql.installer.installer import Installer
from xq.sql.moves import TaskMoves
from xq.sql.queries import Queries
from xq.sql.records import Records
from xq.sql.rows import Rows


class Dialect(Rows):
    """The SQL for one queue in one database.

    Statuses are literals, never parameters: a planner that does not see the value cannot use a partial index. A call's
    values are named parameters:

    any statement
        now                  a test's clock, in seconds since 1970; NULL for the database's clock
        context              the event context for a server's triggers: event, queue, actor, reason, `now`
    selectors
        k0, k1 ...           the key's parts; with the row's index if there are several (k0_3)
        keys                 a list of keys, each with its token if the fence needs it, in JSON
        session, token       a fence: the session, which the token begins with; the whole token
        first0, end0 ...     the token ranges of ended sessions
        tube                 the tube in a take, in a counter, or in a pause
        skip0, skip1 ...     the paused tubes to skip
        skipg0, skipg1 ...   the paused groups to skip
        unique0, unique1 ... values of the role unique
        n, many              the maximum row count; the number of locked rows
        most                 how many rows are looked at, of which others may have locked some
        since, until         microseconds since 1970 (the history)
        p0, p1 ...           a row's position in an index (the search)
        v0, v1 ...           a filter's values
        look                 how many rows the search examines at most
    new values
        f3, f3_0, f3_1 ...   the application's fields, by their index in the table; then the row's index
        ttl, increment ...   a call's options, in seconds, by their names
        own_ttl ...          a role's stored option; `forever` for never
        owner                the take's token
        adding               how many tasks a put adds to a limited queue
    counters; records.sql and shared.sql name the values of their own texts
        source, target, count, event   a transition, its number, and its event

    Two names are not values: `filled` replaces them by SQL when the row count is known. `uuids` becomes a list of
    values (uuids0, uuids1 ...), and `chosen` a condition.
    """

    moves_kind: type[TaskMoves]
    queries_kind: type[Queries]
    installer_kind: type[Installer]

    def locked_by(self, store: Connections) -> list[Row]:
        """Return what locks the table against writes: (who, seconds, how to end it); none if it answers."""
        return []

    @cached_property
    def records(self) -> Records:
        return Records(self)

    @cached_property
    def moves(self) -> TaskMoves:
        return self.moves_kind(self)

    @cached_property
    def queries(self) -> Queries:
        return self.queries_kind(self)

    @cached_property
    def installer(self) -> Installer:
        return self.installer_kind(self)
