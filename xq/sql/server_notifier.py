"""What wakes the maintenance thread on a server: a notification on the session connection, or a query that watches."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any

from xq.core import time
from xq.core.connections import Connections, Connector
from xq.sql.session_connection import SessionConnection, SessionSql
from xq.sql.waker import Waker

AGAIN = 5.0  # seconds until a watch is begun again that could not be begun: the server has no connection left


class Watch:
    """Finds out whether callers may be served, on a server that cannot notify: a statement looks there again and again.

    It does not run on the session connection, whose lock the server would hold until the statement ends.
    """

    def __init__(self, connector: Connector, sql: SessionSql) -> None:
        self._connector, self._sql = connector, sql
        self._connection: Any = None
        self._conditions: frozenset[str] = frozenset()  # for the running statement
        self._begin_at = 0.0  # the monotonic time of the next try, after one that failed

    def covers(self, conditions: Sequence[str]) -> bool:
        """Return whether a statement looks for these conditions. Begin it if none runs."""
        watch = self._sql.watch
        if conditions and not self._conditions and watch and time.monotonic() >= self._begin_at:
            try:
                with self._connector.errors():
                    self._begin(conditions, watch(" OR ".join(conditions)))
            except self._connector.failures:
                self.close()
                self._begin_at = time.monotonic() + AGAIN  # until then the database is polled
        return bool(conditions) and self._conditions.issuperset(conditions)

    def _begin(self, conditions: Sequence[str], sql: str) -> None:
        if self._connection is None:
            self._connection = self._connector.open()
            for setting in (*self._sql.connected, self._sql.briefly):
                self._connection.cursor().execute(setting)
        self._connector.driver.send(self._connection, sql)
        self._conditions = frozenset(conditions)

    def fileno(self) -> int:
        """Return the descriptor that is readable when the statement ends; negative if none runs."""
        return self._connector.driver.fileno(self._connection) if self._conditions else -1

    def found(self) -> bool:
        """Return whether the statement has ended because a condition is true, or failed: then the next look will."""
        self._conditions = frozenset()
        try:
            with self._connector.errors():
                return bool(self._connector.driver.result(self._connection))
        except self._connector.failures:
            self.close()
            return True

    def close(self) -> None:
        # Without a message to the server: a forked child has its parent's socket.
        self._connection, self._conditions = None, frozenset()


class ServerNotifier:
    """Waits until the server reports a commit, or another thread wakes it."""

    unseen = math.inf  # the server notifies after a commit is visible
    at_rest = False

    def __init__(self, session: SessionConnection) -> None:
        session.open()
        self._session, self._watch = session, Watch(session.connector, session.sql)
        self._waker = Waker()
        self._polled = False
        self._notified = False  # whether the server has notified since the last `has_changed`
        self._lost = False
        session.on_notification = self._tell

    def _tell(self) -> None:
        self._notified = True
        self.wake()

    def wait(self, seconds: float, eagerly: bool, conditions: Sequence[str] = ()) -> bool:
        if not self._session.is_open:
            self._lost = True
            return True
        begun = self._session.expect(eagerly)
        self._polled = eagerly and not self._session.listens and not self._watch.covers(conditions)
        if begun:
            self._notified = True  # earlier commits were not reported
            return True
        end, listened = self._session.fileno(), select.poll()
        if end < 0:  # another thread has just detected that it is lost
            self._lost = True
            return True
        listened.register(self._waker, select.POLLIN)
        listened.register(end, select.POLLIN)
        if (watched := self._watch.fileno()) >= 0:
            listened.register(watched, select.POLLIN)
        ready = {descriptor for descriptor, _ in listened.poll(0 if self._polled else 1000 * seconds)}
        if self._waker.fileno() in ready:
            self._waker.clear()
        if end in ready and self._session.receive():
            self._notified = True
        if watched in ready and self._watch.found():
            self._notified = True
        self._lost |= not self._session.is_open
        return self._notified or self._polled

    @property
    def reports_own(self) -> bool:
        return self._session.listens

    def expect(self) -> None:
        self._session.expect(True)
        if not self._session.listens:  # its thread may sleep until the next duty: from now on it polls
            self._waker.wake()

    def has_changed(self, store: Connections, notified: bool) -> bool:
        if self._notified:  # else another thread may set it just now
            self._notified, notified = False, True
        return notified or not self._session.listens

    def wake(self) -> None:
        self._waker.wake()

    def replaced(self) -> bool:
        lost, self._lost = self._lost, False
        if lost:
            self._watch.close()  # a cut network has cut it too
        return lost

    def close(self) -> None:
        self._waker.close()
        self._watch.close()
