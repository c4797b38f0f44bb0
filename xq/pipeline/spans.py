"""The history of a queue that may be exported: rows below the watermark, to which no open transaction adds."""

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
ROWS = 5_000  # rows that one statement deletes

Past = Mapping[str, Any]  # the exportable rows: id and xid are the watermark, before_us a moment


def delete(database: Database, sql: str, values: Mapping[str, Any]) -> int:
    """Delete rows of a side table in a transaction that locks no other rows. Returns how many."""

    def transaction() -> int:
        database.dialect.exports.prepare(database.store)
        return database.change(database.open(), Statement(sql), {**database.values(), **values})

    return database.unit(transaction)


class OldHistory:
    """The part of the history of a queue that goes to an archive. Calls `next_generation` before it deletes rows."""

    def __init__(self, database: Database, next_generation: Callable[[], None]) -> None:
        self.database = database
        self.next_generation = next_generation

    @property
    def _outbox(self) -> Exports:
        return self.database.dialect.exports

    @property
    def is_read_in_parts(self) -> bool:
        """Whether parallel readers can find all rows below a watermark."""
        return not self._outbox.looks_ahead

    def past(self, before_us: int) -> Past | None:
        """Return the watermark of the rows before a moment; None if there are no such rows."""
        ((top, last_us, xid),) = self.database.execute(self._outbox.settling)
        # A moment that has passed: if the ids ever start again, later rows do not match it.
        mark = {"id": top, "before_us": min(before_us, (last_us or 0) + 1), "xid": xid}
        if top is None:
            return None
        if self._outbox.looks_ahead:
            mark["id"] = self._settled(mark)
        return mark if self.is_there(mark) else None

    def newest_settled(self) -> int:
        """Return the highest id of the history that no open transaction can still write below."""
        ((top, _, xid),) = self.database.execute(self._outbox.settling)
        if top is None or not self._outbox.looks_ahead:
            return top or 0
        return self._settled({"id": top, "before_us": LATEST, "xid": xid}) - 1

    def _settled(self, mark: Past) -> int:
        """Return the first id that another connection has written and not committed; if none, that of the watermark."""
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
        """Return whether any of these rows exists."""
        return self._oldest(mark) is not None

    def _oldest(self, mark: Past) -> int | None:
        ((oldest,),) = self.database.execute(self._outbox.oldest(mark))
        return None if oldest is None else int(oldest)

    def count(self, mark: Past) -> int:
        """Return how many rows of the history these are, including uncommitted ones."""
        ahead = self._outbox.look_ahead
        return sum(self._count_in(mark, low, high, ahead) for low, high in self._ranges(mark, LOOK))

    def _count_in(self, mark: Past, low: int, high: int, prepare: Callable[[Connections], None]) -> int:
        prepare(self.database.store)
        ((n,),) = self.database.execute(self._outbox.count_old(mark), {"low": low, "high": high})
        return int(n)

    def forget(self, mark: Past) -> int:
        """Delete these rows of the history after they have been archived. Returns how many still existed."""
        outbox, deleted = self._outbox, 0
        if self.is_there(mark):
            self.next_generation()
        for low, high in self._ranges(mark, ROWS):
            many = self._count_in(mark, low, high, outbox.prepare) if outbox.looks_ahead else 0
            deleted += delete(self.database, outbox.forget_old(mark), {"low": low, "high": high, "many": many})
        return deleted

    def _ranges(self, mark: Past, n: int) -> Iterator[tuple[int, int]]:
        oldest = self._oldest(mark)
        for low in range(oldest, mark["id"], n) if oldest is not None else ():
            yield low, low + n - 1
