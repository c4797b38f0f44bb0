"""Load rows of an archive into the staging table of a queue, from other processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from xq.engine.unit import unit_of_work
from xq.pipeline.bulk import Job
from xq.pipeline.columns import Columns

PLACES = 2**32  # the largest number of rows in a part of a run


@dataclass(frozen=True)
class Loading:
    """How other processes fill the staging table with a run of an archive. May be pickled."""

    job: Job
    run: str
    newer: tuple[Any, ...]  # defaults of the fields that the archive does not have

    def load(self, rows: Iterable[Columns], part: int) -> int:
        """Write rows, column by column, as one part of the run. `part` must be unique. Returns how many."""
        dialect, frame = self.job.bulk.dialect, self.job.frame
        names = [target.field.column for target in frame.targets if target.field]
        sql, count = dialect.exports.load(names), 0
        with self.job.connected() as store:
            dialect.exports.refuse_misfits(store)
            for part_rows in rows:
                found = frame.stored([*part_rows, *([value] * len(part_rows[0]) for value in self.newer)])
                first = part * PLACES + count
                numbers = range(first, first + len(part_rows[0]))
                values = zip(*(found[target] for target in frame.targets), strict=True)
                numbered = [(self.run, n, *row) for n, row in zip(numbers, values, strict=True)]
                unit_of_work(store, lambda rows=numbered: _load(store, sql, rows))  # type: ignore[misc]
                count += len(numbered)
        return count

    def keep(self, parts: Iterable[int]) -> None:
        """Delete all parts except these: they come from attempts that failed or were superseded."""
        exports = self.job.bulk.dialect.exports
        with self.job.connected() as store:
            execute = self.job.bulk.dialect.execute
            ((low, high),) = execute(store, exports.bounds, {"run": self.run})
            ends = [(part * PLACES, (part + 1) * PLACES - 1) for part in sorted(parts)]
            starts = [0 if low is None else low, *(last + 1 for _, last in ends)]
            for first, last in zip(starts, [*(first - 1 for first, _ in ends), high or 0], strict=True):
                if first <= last:
                    execute(store, exports.forget, {"run": self.run, "low": first, "high": last})


def _load(store: Any, sql: str, rows: Sequence[Any]) -> None:
    with store.atomic():
        store.load(sql, rows)
