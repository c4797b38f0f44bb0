"""Old history of a queue on its way to an archive: rows to which nobody adds any more, whoever is still writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from xq.core.compile import Statement
from xq.core.ports import Connections
from xq.engine.unit import Database

if TYPE_CHECKING:
    from xq.adapters.databases.exports import Exports

LATEST: Final = 2**62  # microseconds
LOOK = 100_000  # ids of the history that one statement counts
ROWS = 5_000  # that one statement deletes

Past = Mapping[str, Any]  # which rows of the history are meant: id and xid, up to which it is settled; before_us


def delete(database: Database, sql: str, values: Mapping[str, Any]) -> int:
    """Delete rows beside the table, as a transaction that locks no others. Returns how many."""

    def transaction() -> int:
        database.dialect.outbox.prepare(database.store)
        return database.change(database.open(), Statement(sql), {**database.values(), **values})

    return database.unit(transaction)


class OldHistory:
    """What of the history of one queue goes to an archive. `turn` is called before any of it is deleted."""

    def __init__(self, database: Database, turn: Callable[[], None]) -> None:
        self.database = database
        self.turn = turn

    @property
    def _outbox(self) -> Exports:
        return self.database.dialect.outbox

    @property
    def is_read_in_parts(self) -> bool:
        """Whether several readers find all rows that were `past`."""
        return not self._outbox.looks_ahead

    def past(self, before_us: int) -> Past | None:
        """The rows of the history from before a moment that nobody adds to any more; None where there are none."""
        ((top, last_us, xid),) = self.database.execute(self._outbox.settling)
        # A moment that has been: where the ids begin anew, one day, those rows are others.
        mark = {"id": top, "before_us": min(before_us, (last_us or 0) + 1), "xid": xid}
        if top is None:
            return None
        if self._outbox.looks_ahead:
            mark["id"] = self._settled(mark)
        return mark if self.is_there(mark) else None

    def newest_settled(self) -> int:
        """The id of the history up to which nobody adds to it any more."""
        ((top, _, xid),) = self.database.execute(self._outbox.settling)
        if top is None or not self._outbox.looks_ahead:
            return top or 0
        return self._settled({"id": top, "before_us": LATEST, "xid": xid}) - 1

    def _settled(self, mark: Past) -> int:
        """The first id that others have written and not committed yet; that of the mark where there is none."""
        for low, high in self._ranges(mark, LOOK):
            while not self._is_settled(mark, low, high):
                if low == high:
                    return low
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._is_settled(mark, low, middle) else (low, middle)
        return int(mark["id"])

    def _is_settled(self, mark: Past, low: int, high: int) -> bool:
        written = self._count_in(mark, low, high, self._outbox.look_ahead)
        return written == self._count_in(mark, low, high, self._outbox.prepare)

    def is_there(self, mark: Past) -> bool:
        """Whether any of these rows is."""
        return self._oldest(mark) is not None

    def _oldest(self, mark: Past) -> int | None:
        ((oldest,),) = self.database.execute(self._outbox.oldest(mark))
        return None if oldest is None else int(oldest)

    def count(self, mark: Past) -> int:
        """How many rows of the history these are, with those that are not committed yet."""
        ahead = self._outbox.look_ahead
        return sum(self._count_in(mark, low, high, ahead) for low, high in self._ranges(mark, LOOK))

    def _count_in(self, mark: Past, low: int, high: int, prepare: Callable[[Connections], None]) -> int:
        prepare(self.database.store)
        ((n,),) = self.database.execute(self._outbox.count_old(mark), {"low": low, "high": high})
        return int(n)

    def forget(self, mark: Past) -> int:
        """Delete these rows of the history, which are in an archive. Returns how many of them were still there."""
        outbox, there = self._outbox, 0
        if self.is_there(mark):
            self.turn()
        for low, high in self._ranges(mark, ROWS):
            many = self._count_in(mark, low, high, outbox.prepare) if outbox.looks_ahead else 0
            there += delete(self.database, outbox.forget_old(mark), {"low": low, "high": high, "many": many})
        return there

    def _ranges(self, mark: Past, n: int) -> Iterator[tuple[int, int]]:
        oldest = self._oldest(mark)
        for low in range(oldest, mark["id"], n) if oldest is not None else ():
            yield low, low + n - 1
