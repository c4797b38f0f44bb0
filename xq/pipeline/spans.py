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

Watermark = Mapping[str, Any]  # the exportable rows: id and xid are the watermark, before_us a moment


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
    def _exports(self) -> Exports:
        return self.database.dialect.exports

    @property
    def is_read_in_parts(self) -> bool:
        """Whether parallel readers can find all rows below a watermark."""
        return not self._exports.looks_ahead

    def watermark(self, before_us: int) -> Watermark | None:
        """Return the watermark of the rows before a moment; None if there are no such rows."""
        ((top, last_us, xid),) = self.database.execute(self._exports.newest_and_watermark)
        # A moment that has passed: if the ids ever start again, later rows do not match it.
        watermark = {"id": top, "before_us": min(before_us, (last_us or 0) + 1), "xid": xid}
        if top is None:
            return None
        if self._exports.looks_ahead:
            watermark["id"] = self._first_uncommitted(watermark)
        return watermark if self.is_there(watermark) else None

    def newest_complete_id(self) -> int:
        """Return the highest id of the history that no open transaction can still write below."""
        ((top, _, xid),) = self.database.execute(self._exports.newest_and_watermark)
        if top is None or not self._exports.looks_ahead:
            return top or 0
        return self._first_uncommitted({"id": top, "before_us": LATEST, "xid": xid}) - 1

    def _first_uncommitted(self, watermark: Watermark) -> int:
        """Return the first id that another connection has written and not committed; if none, that of the watermark."""
        for low, high in self._ranges(watermark, LOOK):
            while not self._is_committed(watermark, low, high):
                if low == high:
                    return low
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._is_committed(watermark, low, middle) else (low, middle)
        return int(watermark["id"])

    def _is_committed(self, watermark: Watermark, low: int, high: int) -> bool:
        written = self._count_in(watermark, low, high, self._exports.look_ahead)
        return written == self._count_in(watermark, low, high, self._exports.prepare)

    def is_there(self, watermark: Watermark) -> bool:
        """Return whether any of these rows exists."""
        return self._oldest(watermark) is not None

    def _oldest(self, watermark: Watermark) -> int | None:
        ((oldest,),) = self.database.execute(self._exports.oldest(watermark))
        return None if oldest is None else int(oldest)

    def count(self, watermark: Watermark) -> int:
        """Return how many rows of the history these are, including uncommitted ones."""
        ahead = self._exports.look_ahead
        return sum(self._count_in(watermark, low, high, ahead) for low, high in self._ranges(watermark, LOOK))

    def _count_in(self, watermark: Watermark, low: int, high: int, prepare: Callable[[Connections], None]) -> int:
        prepare(self.database.store)
        ((n,),) = self.database.execute(self._exports.count_old(watermark), {"low": low, "high": high})
        return int(n)

    def forget(self, watermark: Watermark) -> int:
        """Delete these rows of the history after they have been archived. Returns how many still existed."""
        exports, deleted = self._exports, 0
        if self.is_there(watermark):
            self.next_generation()
        for low, high in self._ranges(watermark, ROWS):
            many = self._count_in(watermark, low, high, exports.prepare) if exports.looks_ahead else 0
            deleted += delete(self.database, exports.forget_old(watermark), {"low": low, "high": high, "many": many})
        return deleted

    def _ranges(self, watermark: Watermark, n: int) -> Iterator[tuple[int, int]]:
        oldest = self._oldest(watermark)
        for low in range(oldest, watermark["id"], n) if oldest is not None else ():
            yield low, low + n - 1
