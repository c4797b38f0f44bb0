"""What other processes do with a queue: they read it in parts, and put rows into it in parts."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from xq.pipeline.scan import Extract, Part


def elsewhere(thing: Any) -> Any:
    """A thing as another process has it."""
    return pickle.loads(pickle.dumps(thing))


def extract(queue: Any, *what: Any) -> Extract:
    """Whoever reads this of a queue, in another process."""
    found: Extract = elsewhere(queue.xq.pipeline.extract(*what))
    return found


def rows(of: Extract, *names: str, **which: Any) -> list[tuple[Any, ...]]:
    return sorted(of.read(list(names) or None, Part(**which)))


def put(Task: Any, columns: Sequence[str], *rows: Any, job: str | None = None, parts: int = 1, **options: Any) -> int:
    """Put rows by a job of so many partitions."""
    begun = elsewhere(elsewhere(Task.xq.pipeline.bulk(**options)).begin(columns, job, parts))
    count: int = sum(begun.put(part, rows[part::parts]) for part in range(parts))
    begun.commit()
    return count


def names(Task: Any) -> list[str]:
    return [task.name for task in Task.select().order_by(Task._meta.primary_key)]
