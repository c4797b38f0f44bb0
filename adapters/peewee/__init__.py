"""`xq.upgrade` and `xq.queue` of Peewee models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import peewee as pw

from xq.adapters.peewee.connections import PeeweeConnections
from xq.adapters.peewee.model import PeeweeModel
from xq.build import as_decorator, build
from xq.core.clock import Clock
from xq.core.ports import Store
from xq.queue import Queue

T = TypeVar("T")
M = TypeVar("M", bound=pw.Model)


class PeeweeStore(PeeweeModel[M], PeeweeConnections):
    """A Peewee model on its database, as a `xq.core.ports.Store`."""

    def __init__(self, model: type[M]) -> None:
        PeeweeModel.__init__(self, model)
        PeeweeConnections.__init__(self, model)


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Queue[T]:
    """Give a model the power of a queue. Touches no database: it may stand at import time.

    `fields` maps roles to fields of the model, by name or as the field: status is required, the features say
    which others. A model that inherits from `xq.Task` has fields for them: `fields` is for those that you map yourself.
    `features` maps the names of features to their values. `statuses` maps the letters of the states
    to what the application stores in the status field. `tube_stats` names the tubes that are counted one by one.
    `worker` is what `Page.xq.run()` calls with each task, in `workers` threads (see `Queue.worker`).
    `methods` puts the verbs on the model (a sequence: only these). `clock` is for tests.

    The model's only_save_dirty is set, so that save() writes what the application changed and never moves a task
    back. Raises ConfigurationError, which says what does not fit.
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
        methods=methods,
        clock=clock,
    )


def queue(
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[Any], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Callable[[type[T]], type[T]]:
    """upgrade, as a class decorator: `@xq.queue(fields={"status": "status"}, features={"keep": True})`.

    Above a model that inherits from `xq.Task`: `@xq.queue(features={"keep": True})`.
    """
    options = {
        "statuses": statuses,
        "tube_stats": tube_stats,
        "worker": worker,
        "workers": workers,
        "methods": methods,
        "clock": clock,
    }
    return as_decorator(upgrade, fields, features, options)
