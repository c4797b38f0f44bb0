"""When a take may find what the features of its queue hid from one."""

from __future__ import annotations

import math
from typing import Any

from xq.core import time
from xq.core.connections import Connection, Run
from xq.core.kinds import Row
from xq.sql.dialect import Dialect


class Opening:
    """That time, for the takes of one queue whose features hide ready tasks."""

    def __init__(self) -> None:
        self.at = math.inf  # on the monotonic clock

    def note(self, opens: list[Row]) -> None:
        """Note the first time. Then look again: what has opened by now is not among them."""
        self.at = time.monotonic() + min((left for (left,) in opens if left is not None), default=math.inf) / 1_000_000

    def looking_again(self, dialect: Dialect, run: Run) -> Run:
        """Return `run`, a take, which notes the time if it has found nothing."""
        if not dialect.opens:
            return run
        opens = dialect.query(dialect.opens)

        def look(connection: Connection, values: dict[str, Any]) -> list[Row]:
            found = run(connection, values)
            if not found:
                self.note(opens(connection, values))
                found = run(connection, values)
            return found

        return look
