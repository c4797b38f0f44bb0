"""xq for SQLAlchemy: mapped classes and tables as queues, on the application's engine and in its sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from xq.api import Queue
from xq.core.clock import Clock
from xq.core.kinds import T
from xq.core.machine import Feature
from xq.upgrading.build import Schedules, as_decorator, build

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from xq.features import Features

__all__ = ["SqlalchemyQueue", "queue", "upgrade"]


class SqlalchemyQueue(Queue[T]):
    """The queue of a mapped class: an `xq.Queue`, with `bind(engine)`."""

    def bind(self, engine: Engine | AsyncEngine) -> None:
        """Use this engine from now on. Raises ConfigurationError for an engine that xq does not support."""
        store: Any = self.parts.store
        store.bind(engine)


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Features | Mapping[str, Feature] | None = None,
    *,
    engine: Engine | AsyncEngine | None = None,
    statuses: Mapping[Any, str | int | Enum] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    schedules: Schedules | None = None,
    methods: bool | Sequence[str] = False,
    clock: Clock | None = None,
) -> SqlalchemyQueue[T]:
    """Make a mapped class a queue, as `xq.upgrade` does. Touches no database.

    `engine` is an Engine or an AsyncEngine; without one, `bind` gives it before the first call. Columns that `fields`
    does not map are added to the table and, as deferred attributes, to the class, so that Alembic finds them. Calls
    take connections from the engine's pool and give them back, or join the transaction of the session given as `on=`.
    `statuses` maps letters to values, or to members of the column's Enum. `methods` attaches the queue's methods to the
    class. Raises ConfigurationError if the arguments do not fit.
    """
    from xq.adapters.sqlalchemy.store import SqlalchemyStore
    from xq.adapters.sqlalchemy.testing import made as queues

    store: SqlalchemyStore[Any] = SqlalchemyStore(model)
    if engine is not None:
        store.bind(engine)
    named = store.named_fields(fields)
    made = build(
        store,
        named,
        features,
        statuses=store.stored(named, statuses),
        tube_stats=tube_stats,
        worker=worker,
        workers=workers,
        schedules=schedules,
        methods=methods,
        clock=clock,
        kind=SqlalchemyQueue,
    )
    vars(store.mapped)["xq"] = made  # for Alembic, which would write what is in Table.info into its revisions
    queues.add(made)
    return cast("SqlalchemyQueue[T]", made)


queue = as_decorator(upgrade)
"""Make the decorated class a queue: `@queue(features={"ttr": 60}, engine=engine)`, with the arguments of `upgrade`."""
