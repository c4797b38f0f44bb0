"""`xq.upgrade` and `xq.queue` for Peewee models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import peewee as pw

from xq.adapters.peewee.connections import PeeweeConnections
from xq.adapters.peewee.model import PeeweeModel
from xq.api import Queue
from xq.core.clock import Clock
from xq.core.connections import Store
from xq.core.kinds import T
from xq.core.machine import Feature
from xq.features import Features
from xq.upgrading.build import Schedules, as_decorator, build

M = TypeVar("M", bound=pw.Model)


class PeeweeStore(PeeweeModel[M], PeeweeConnections):
    """A Peewee model and its database. Implements `xq.core.connections.Store`."""

    def __init__(self, model: type[M], installs: str = "") -> None:
        PeeweeModel.__init__(self, model)
        PeeweeConnections.__init__(self, model.__name__, partial(getattr, model._meta, "database"))
        if self._database is not None:
            _ = self.engine  # raises for a class that xq does not support
        self.installs = installs

    @property
    def may_fail_to_read(self) -> bool:
        return bool(self.may_fail_on) and self.engine in self.may_fail_on


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Features | Mapping[str, Feature] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    schedules: Schedules | None = None,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Queue[T]:
    """Make a model a queue, and return the queue. It does not connect to a database, so call it at import time.

    `fields` maps roles to the model's fields (the field or its name). The queue adds fields for others that it needs,
    xq_status, xq_owner, xq_runat and xq_deadline, and install() their columns; True asks for an optional one, as in
    {"attempts": True}. priority, tube, utube and unique are the application's fields. A model that inherits from
    `xq.Task` has a field for each role but unique and utube. `features` maps feature names to their values. `statuses`
    maps the states' letters to values for the status field. `tube_stats` names the tubes with their own counters.
    `Page.xq.run()` calls `worker` with each task, in `workers` threads (see `Queue.worker`). `schedules` maps names to
    (spec, task) or (spec, task, options), as `Queue.every` takes them; tz is an option. When workers start, they
    replace all schedules declared before; None leaves them as they are. `methods` adds the queue's methods to the
    model; a sequence names some of them. `clock` is a test's clock.

    The model's save() leaves out the queue's fields, unless the application has changed them: so a stale instance
    cannot overwrite a status that the queue has changed. Raises ConfigurationError if the model, the fields or the
    features do not match.
    """
    store: Store[T] = PeeweeStore(model)  # type: ignore[type-var]
    return build(
        store,
        fields,
        features,
        statuses=statuses,
        tube_stats=tube_stats,
        worker=worker,
        workers=workers,
        schedules=schedules,
        methods=methods,
        clock=clock,
    )


queue = as_decorator(upgrade)
"""Make the decorated model a queue: `@xq.queue(features={"ttr": 60})`. The arguments are those of `upgrade`."""
