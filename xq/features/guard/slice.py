"""What the feature guard refuses."""

from __future__ import annotations

from typing import Final

from xq.sql.effects import IS_STALE, UPDATED
from xq.sql.slice import Effect, Slice

REFUSAL: Final = (
    "feature guard: this task is taken or finished, so xq alone writes its status. Read the row again, and leave its "
    "status as it is. To move the task call release(), snatch() or restart(), or end it by its token in SQL; a "
    "finished one may leave the queue by a status that is none of its words"
)


class GuardSlice(Slice):
    """The refusal of one queue's triggers."""

    effects = (Effect("", UPDATED, IS_STALE, refuses=REFUSAL),)
