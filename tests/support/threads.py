"""The maintenance threads of this process."""

from __future__ import annotations

from xq.database import database
from xq.database.duties import Duties
from xq.database.members import copied


def threads() -> list[Duties]:
    """The duties of each database that has some."""
    return [each.duties for each in copied(database._databases) if each.duties is not None]
