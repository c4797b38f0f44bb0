"""What time brings about in one queue: tasks that fall due, history that is forgotten, and news that takes need."""

from __future__ import annotations

import time
from typing import NamedTuple

from xq.core.compile import Statement
from xq.engine.batches import Batches
from xq.engine.transitions import BATCH

SWEEP_AFTER = 0.05  # seconds: a process that takes without end looks this often for what fell due


class Swept(NamedTuple):
    """What a sweep has found to do."""

    due: bool  # whether anything was due
    moved: int  # tasks
    forgotten: int  # rows of the history
    refused: int = 0  # tasks that the database does not let go
    news: int = 0  # of tasks that have become ready


class Due:
    """What is due in one queue."""

    def __init__(self, batches: Batches) -> None:
        self.database = batches.database
        self.store = batches.store
        self.batches = batches
        self.machine = batches.machine
        self._swept_at = 0.0  # the monotonic time

    def seconds(self) -> float | None:
        """In how many seconds something falls due: less than none for what is late, None for never."""
        asked = self.database.dialect.next_due
        ((seconds,),) = self.database.execute(asked) if asked else [(None,)]
        return None if seconds is None else float(seconds)

    @property
    def just_swept(self) -> bool:
        """Whether what fell due was moved a moment ago. Under a test's clock any time may have passed."""
        return self.database.clock is None and time.monotonic() - self._swept_at < SWEEP_AFTER

    def sweep_if_any(self) -> Swept:
        """As `sweep_batch`, if anything is due."""
        seconds = self.seconds()
        is_due = seconds is not None and seconds <= 0 and self.database.may_move
        swept = self.sweep_batch() if is_due else Swept(False, 0, 0)
        self._swept_at = time.monotonic()
        return swept

    def sweep(self) -> int:
        """Move what is due until nothing is, and forget what is history. Returns how many moves that were."""
        moves = 0
        while (swept := self.sweep_batch()).moved or swept.news or swept.forgotten == BATCH:
            moves += swept.moved
        return moves

    def sweep_batch(self) -> Swept:
        """Move a batch of what each timer makes due, and forget a batch of history."""
        self.database.begin_writing()
        swept = [self.batches.move_due(timer) for timer in self.machine.due]
        moved, refused = (sum(numbers) for numbers in zip(*swept, strict=True)) if swept else (0, 0)
        return Swept(True, moved, self._forget(), refused, self.hear_news())

    def hear_news(self, mine: bool = False) -> int:
        """Have takes find what they do not without, `mine` since the open transaction began. Returns how much."""
        database = self.database
        return database.open().dialect.hear(self.store, database.again, database.whole, mine)

    def _forget(self) -> int:
        """Delete a batch of the history that is older than the feature keeps it. Returns how many rows."""
        opened = self.database.open()
        forget = opened.dialect.forget_history
        values = self.database.values() | {"n": BATCH}
        return self.database.change(opened, Statement(forget), values) if forget else 0
