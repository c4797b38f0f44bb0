"""What the feature guard refuses."""

from __future__ import annotations

from typing import Final

from xq.sql.effects import IS_STALE, UPDATED
from xq.sql.slice import Effect, Slice

REFUSAL: Final = (  # of 128 characters at most, since MySQL refuses a longer one
    "feature guard: xq alone writes the status of a taken or finished task. Read the row again, or call release() or "
    "restart()"
)


class GuardSlice(Slice):
    """The refusal of one queue's triggers."""

    effects = (Effect("", UPDATED, IS_STALE, refuses=REFUSAL),)
