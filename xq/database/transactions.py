"""Run work in transactions, and repeat it after a conflict."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from xq.core import time
from xq.core.connections import Connection, Connections, Runs
from xq.core.kinds import ErrorKind, R
from xq.sql.dialect import Dialect

V = TypeVar("V")

# Longest pauses in seconds before the retries after a conflict, half a minute in all. Under SERIALIZABLE, PostgreSQL
# treats most transactions on a small table as conflicts: with eight processes, one failed eleven times in a row.
PAUSES: Final = tuple(min(0.001 * 2**tried, 0.512) for tried in range(60))


def retried(store: Connections, work: Callable[[], R]) -> R:
    """Run `work` and return its result. Outside of a transaction, retry it after a conflict (a deadlock).

    For work that opens its transactions by itself, such as the installer's and bulk puts.
    """
    within = store.in_transaction()  # before `work`: on MariaDB a deadlock ends the transaction
    try:
        return work()
    except BaseException as error:
        return retried_after(error, store, work, within)


def retried_after(error: BaseException, store: Connections, again: Callable[[], R], within: bool) -> R:
    """Retry after the conflict `error`: call `again`, up to 60 times. Raise the last conflict, or any other error.

    Within the application's transaction, raise: the database has rolled that back as a whole. After an interrupt, roll
    back a transaction that xq left open.
    """
    if within:
        raise error
    for pause in PAUSES:
        if not isinstance(error, Exception) or store.classify(error) is not ErrorKind.CONFLICT:
            break
        time.sleep(random.uniform(0, pause))
        try:
            return again()
        except BaseException as another:
            error = another
    if store.classify(error) is ErrorKind.NOT_DATABASE:
        store.undo_interrupted()
    raise error


def in_parts(
    work: Callable[[Sequence[V]], int], rows: Sequence[V], is_refused: Callable[[Exception], bool]
) -> tuple[int, list[tuple[V, Exception]]]:
    """Do work on rows at once, or in several parts that leave out the rows that are refused.

    Return the sum of what `work` returns, and the refused rows with their errors.
    """
    try:
        return (work(rows) if rows else 0), []
    except Exception as error:
        if not is_refused(error):
            raise
        if len(rows) == 1:
            return 0, [(rows[0], error)]
    half = len(rows) // 2
    (n, refused), (m, more) = (in_parts(work, part, is_refused) for part in (rows[:half], rows[half:]))
    return n + m, refused + more


class Transactions(ABC):
    """Runs work in transactions of one database, on this thread's connection."""

    store: Connections

    @property
    @abstractmethod
    def begin_writing(self) -> str:
        """The SQL that locks the database for writing before the first read; "" if it needs none."""

    @abstractmethod
    def explain(self, error: Exception) -> None:
        """Raise NotInstalled if that is the reason for an error of the database."""

    def transaction(self, work: Callable[[], R], *, locks: bool = True, caught: bool = False, own: bool = True) -> R:
        """Run `work` in one transaction and return its result; within the application's, in a savepoint.

        `locks`: it reads before it writes, so within the application's transaction lock for writing first. Of xq's
        `own` work the statements have no savepoints, so it catches no error of one. `caught`: the caller goes on after
        an error, see `Connection.open_block`.

        Outside of a transaction, retry it after a conflict (a deadlock). Within the application's, raise: the database
        has rolled that back as a whole. If it is interrupted, roll back a transaction that xq left open.
        """
        connection = self.store.ready()
        if own and not caught and connection.open_block:
            return work()
        within = connection.in_transaction  # before `work`: on MariaDB a deadlock ends the transaction
        if locks:
            self.lock(connection)

        def attempt() -> R:
            with self.store.atomic(own):
                return work()

        return self.explained(attempt, attempt, within)

    def explained(self, work: Callable[[], R], again: Callable[[], R], within: bool) -> R:
        """Return the result of `work`. Outside of a transaction, call `again` after a conflict. Explain an error."""
        try:
            try:
                return work()
            except BaseException as error:
                return retried_after(error, self.store, again, within)
        except Exception as error:
            if self.store.classify(error) is not ErrorKind.NOT_DATABASE:
                self.explain(error)  # not earlier: a failed transaction allows no query
            raise

    def lock(self, connection: Connection) -> None:
        """Within the application's transaction, lock for writing before the first read.

        On SQLite a transaction that has read fails at once, without a wait, if there is another writer when it writes.
        A transaction of xq's own has locked when it began.
        """
        if connection.in_transaction and not connection.open_block:
            try:
                if begin_writing := self.begin_writing:
                    with self.store.bookkeeping():
                        self.store.change(begin_writing)
            except Exception as error:
                self.explain(error)
                raise


class RunsQueue(Runs, Protocol):
    """How SQL of one queue runs: its `Executor`."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def bound(self) -> object | None:
        """What it has found installed in the model's current database; None if it has not looked."""
